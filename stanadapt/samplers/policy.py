"""The policy of rlmh and rlmh_mala, as iterations use and train it; policy_stages.py has the rest.

Wang, Chen, Kanagawa and Oates (2024), Reinforcement Learning for Adaptive MCMC. Inputs and actions of the
networks are in the coordinates u = R^-1 (x - m), where m and R R^T = Sigma are mean and covariance of the
warm start.

A faithful policy learns as in the paper: a critic learns the value of states and actions, and the actor
climbs this value (`learn_by_critic`). There the action is a function of the state, so that no data tell the
critic what another action would give. At the paper's learning rate of 10^-6 the actor stays within 0.05 of
its pre-trained weights. At a rate a hundred times as large it becomes useless on most posteriors. By default
a policy learns from the gradient of log q instead (`learn_on_policy`): random proposals tell what other
actions would give.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..jit import kernel
from ..kinds import Flag, Generator, Real, Vector
from ..numerics.actor_critic import Networks, Rates, ReplayBuffer, exterior_weight, learn, store
from ..numerics.linear import add_times, times
from ..numerics.networks import Adam, Shape, add_gradient, clip, descend, fill, overwrite, value

APPROACH, SCALE, EPISODES = 0, 1, 2  # Policy.phase: no policy yet; a linear one; networks
SCALES = np.array([0.1, 0.14, 0.2, 0.28, 0.4, 0.56, 0.7071, 0.9])  # scales of proposals, to be tried
LEAST = -10.0  # smallest log alpha in the reward, unless faithful
_WORST = -100.0  # smallest reward, since log alpha can be minus infinity


class Space(NamedTuple):
    """The coordinates u = R^-1 (x - m)."""

    center: np.ndarray  # (d,) m
    root_t: np.ndarray  # (d, d) R = D C^1/2, transposed; D: standard deviations, C: correlations
    inverse_t: np.ndarray  # (d, d) R^-1, transposed


class Learner(NamedTuple):
    """The networks, and what their training needs."""

    actor_is: Shape
    critic_is: Shape
    nets: Networks
    memory: ReplayBuffer
    gradient: np.ndarray  # (p,) gradient of the actor, summed over a mini-batch; not used when faithful
    baseline_gradient: np.ndarray  # (q,)
    threshold: float
    updates: int
    seen: int  # number of transitions that the policy has learned from; used only when faithful


class Record(NamedTuple):
    """The rewards and the acceptance of the policy."""

    reward_sum: float  # over this episode; so are the next two fields
    accept_sum: float
    n: int
    rewards: np.ndarray  # (E,) mean reward of each episode
    acceptances: np.ndarray  # (E,) mean acceptance of each episode
    trials: int  # number of iterations in which a policy moved the chain
    acceptance: float  # running mean of the acceptance probability


class PolicyGuard(NamedTuple):
    """The best policy so far, which replaces one that has collapsed."""

    actor: np.ndarray  # (p,) weights of the best actor so far
    scale: float  # of this actor's proposals
    reward: float  # its mean reward; -inf: no policy was good yet
    fallbacks: int  # number of episodes after which the policy was replaced
    broken: int  # 1 if learning has stopped at numbers that are not finite
    faithful: bool  # prefers the last policy to the best one, unless it has collapsed


class Policy(NamedTuple):
    """A policy with all that belongs to it."""

    phase: int
    due: bool  # whether a policy for this phase must be made now
    space: Space
    learner: Learner
    record: Record
    guard: PolicyGuard
    pretrained: np.ndarray  # (p,) weights of the actor before any reward


@kernel
def empty_policy() -> Policy:
    """The state before there is a policy."""
    none, no_matrix, no_shape = np.zeros(0), np.zeros((0, 0)), Shape(0, 0, 0)
    adam = Adam(none, none, 0)
    nets = Networks(none, none, adam, none, none, adam)
    learner = Learner(
        no_shape, no_shape, nets, ReplayBuffer(no_matrix, no_matrix, none, 0), none, none, 0.0, 0, 0
    )
    record = Record(0.0, 0.0, 0, none, none, 0, 1.0)
    guard = PolicyGuard(none, 1.0, -np.inf, 0, 0, False)
    return Policy(APPROACH, False, Space(none, no_matrix, no_matrix), learner, record, guard, none)


@kernel
def into_space(space: Space, x: Vector) -> Vector:
    """The coordinates u (d,) of `x` (d,)."""
    away = np.empty(x.size)
    for i in range(x.size):
        away[i] = x[i] - space.center[i]
    return times(space.inverse_t, away)


@kernel
def out_of_space(space: Space, u: Vector) -> Vector:
    """The point x (d,) with the coordinates `u` (d,)."""
    x = space.center.copy()
    add_times(x, space.root_t, u)
    return x


@kernel(ordered=True)
def choose_actor(settings: Any, policy: Policy, scale: Real, rng: Generator, adapting: Flag) -> Any:
    """Whether the policy, not the walk, makes this iteration; its actor (p,) and its scale."""
    share = settings.walk_share
    if np.isnan(share):
        share = 0.0 if settings.faithful else 0.1
    if policy.phase == APPROACH or (share > 0.0 and rng.random() < share):
        return False, policy.learner.nets.actor, scale
    if adapting or policy.phase == SCALE:
        return True, policy.learner.nets.actor, scale
    return frozen_policy(policy, scale)


@kernel(ordered=True)
def frozen_policy(policy: Policy, scale: Real) -> tuple[Flag, Vector, Real]:
    """Whether a policy makes the draws, its actor (p,) and its scale.

    It is the policy of the best episode. When faithful it is the last policy, unless that has collapsed. If
    no policy was good, the walk alone makes the draws.
    """
    nets, guard = policy.learner.nets, policy.guard
    alive = policy.record.acceptance >= least_acceptance(guard) and guard.broken == 0
    if guard.reward > -np.inf and not (guard.faithful and alive):
        return True, guard.actor, guard.scale
    return alive, nets.actor, scale


@kernel(ordered=True)
def update_policy(
    settings: Any,
    policy: Policy,
    scale: Real,
    u: Vector,
    u_y: Vector,
    a: Vector,
    a_y: Vector,
    reward: Real,
    accept_prob: Real,
    slopes: Any,
) -> Any:
    """The policy after an iteration of an episode that it made: it learns, and its record grows.

    `learn_on_policy` takes `slopes`.
    """
    phase, due, space, learner, record, guard, pretrained = policy
    reward = max(reward, _WORST)
    if settings.faithful:
        learner = store_transition(learner, u, u_y, a, a_y, reward)
    elif guard.broken == 0:
        learner, finite = learn_on_policy(settings, learner, u, u_y, reward, slopes)
        if not finite:
            overwrite(learner.nets.actor, guard.actor)
            guard = PolicyGuard(guard.actor, guard.scale, guard.reward, guard.fallbacks, 1, guard.faithful)

    reward_sum, accept_sum, n, rewards, acceptances, trials, acceptance = record
    trials += 1
    acceptance += max(1.0 / trials, 0.01) * (accept_prob - acceptance)
    reward_sum, accept_sum, n = reward_sum + reward, accept_sum + accept_prob, n + 1
    if n == settings.episode:
        rewards, acceptances = extend(rewards, reward_sum / n), extend(acceptances, accept_sum / n)
        guard = judge_episode(guard, learner.nets, scale, reward_sum / n, accept_sum / n)
        reward_sum, accept_sum, n = 0.0, 0.0, 0
    record = Record(reward_sum, accept_sum, n, rewards, acceptances, trials, acceptance)
    return Policy(phase, due, space, learner, record, guard, pretrained)


@kernel(ordered=True)
def extend(numbers: Vector, number: Real) -> Vector:
    """`numbers` (n,) with one more."""
    more = np.empty(numbers.size + 1)
    for i in range(numbers.size):
        more[i] = numbers[i]
    more[numbers.size] = number
    return more


@kernel(ordered=True)
def store_transition(learner: Learner, u: Vector, u_y: Vector, a: Vector, a_y: Vector, reward: Real) -> Any:
    """The learner with one more transition in its replay buffer."""
    actor_is, critic_is, nets, memory, gradient, baseline_gradient, threshold, updates, seen = learner
    memory = store(memory, u, u_y, a, a_y, reward)
    return Learner(actor_is, critic_is, nets, memory, gradient, baseline_gradient, threshold, updates, seen)


@kernel(ordered=True)
def learn_by_critic(settings: Any, learner: Learner, rng: Generator) -> Any:
    """Algorithm 2 with an update for each new transition. Returns the learner, and whether all is finite."""
    actor_is, critic_is, nets, memory, gradient, baseline_gradient, threshold, updates, seen = learner
    finite = True
    for _ in range(memory.n - seen):
        if memory.n > settings.batch and finite:
            rates = learning_rates(settings, updates, threshold)
            nets, finite = learn(actor_is, critic_is, nets, memory, rates, rng)
            updates += 1
    learner = Learner(
        actor_is, critic_is, nets, memory, gradient, baseline_gradient, threshold, updates, memory.n
    )
    return learner, finite


@kernel(ordered=True)
def learn_on_policy(
    settings: Any, learner: Learner, u: Vector, u_y: Vector, reward: Real, slopes: Any
) -> Any:
    """Add one sample to the gradient of E[r]; at the end of a mini-batch, take a step.

    Every policy leaves p invariant, so that J = E_p E_q[r(x, y, a, a_y)]. Its gradient is the mean of
    (r - V(u)) d log q / da + dr/da at x, and of dr/da_y at y, for any V: Williams (1992). `slopes` are
    d log q / da, dr/da and dr/da_y, (k,) each. Returns the learner, and whether all is finite.
    """
    actor_is, critic_is, nets, memory, gradient, baseline_gradient, threshold, updates, seen = learner
    log_q_slope, slope, slope_y = slopes
    advantage = reward - value(critic_is, nets.critic, u)
    keep, d_out, d_value = 1.0 - exterior_weight(u, settings.radius), np.empty(slope.size), np.empty(1)
    for i in range(d_out.size):
        d_out[i] = -keep * (advantage * log_q_slope[i] + slope[i])
    add_gradient(actor_is, nets.actor, u, d_out, gradient)
    keep = 1.0 - exterior_weight(u_y, settings.radius)
    for i in range(d_out.size):
        d_out[i] = -keep * slope_y[i]
    add_gradient(actor_is, nets.actor, u_y, d_out, gradient)
    d_value[0] = -2.0 * advantage
    add_gradient(critic_is, nets.critic, u, d_value, baseline_gradient)
    updates += 1
    finite = True
    if updates % settings.batch == 0:
        rates = learning_rates(settings, updates, threshold)
        for i in range(gradient.size):
            gradient[i] /= settings.batch
        for i in range(baseline_gradient.size):
            baseline_gradient[i] /= settings.batch
        finite = np.isfinite(clip(gradient, threshold)) and np.isfinite(clip(baseline_gradient, 1e3))
        if finite:
            actor_adam = descend(nets.actor, gradient, nets.actor_adam, rates.actor)
            critic_adam = descend(nets.critic, baseline_gradient, nets.critic_adam, rates.critic)
            nets = Networks(
                nets.actor, nets.actor_target, actor_adam, nets.critic, nets.critic_target, critic_adam
            )
        fill(gradient, 0.0)
        fill(baseline_gradient, 0.0)
    learner = Learner(
        actor_is, critic_is, nets, memory, gradient, baseline_gradient, threshold, updates, seen
    )
    return learner, finite


@kernel(ordered=True)
def least_acceptance(guard: PolicyGuard) -> Any:
    """The mean acceptance below which a policy has collapsed."""
    return 0.01 if guard.faithful else 0.05


@kernel(ordered=True)
def judge_episode(guard: PolicyGuard, nets: Networks, scale: Real, reward: Real, acceptance: Any) -> Any:
    """The guard after an episode with this mean reward and acceptance.

    If the policy has collapsed, its weights become the weights of the best policy so far, in place.
    """
    if acceptance < least_acceptance(guard):
        overwrite(nets.actor, guard.actor)
        overwrite(nets.actor_target, guard.actor)
        return PolicyGuard(
            guard.actor, guard.scale, guard.reward, guard.fallbacks + 1, guard.broken, guard.faithful
        )
    if reward > guard.reward:
        return PolicyGuard(nets.actor.copy(), scale, reward, guard.fallbacks, guard.broken, guard.faithful)
    return guard


@kernel(ordered=True)
def learning_rates(settings: Any, updates: Any, threshold: Any) -> Any:
    """The constants of learning after so many updates."""
    actor = settings.actor_rate
    if np.isnan(actor):
        actor = 1e-6 if settings.faithful else 5e-3
    actor *= (1.0 + updates / settings.horizon) ** -settings.decay
    return Rates(
        settings.critic_rate,
        actor,
        threshold,
        settings.discount,
        settings.smoothing,
        settings.batch,
        settings.radius,
    )


@kernel(ordered=True)
def search_scale(policy: Policy, scale: Real, accept_prob: Real) -> Any:
    """The policy after an iteration of the search for a scale, and the scale of its next proposal.

    The scales take turns. `record.rewards` holds their sums of acceptance for `best_scale`.
    """
    phase, due, space, learner, record, guard, pretrained = policy
    reward_sum, accept_sum, n, rewards, acceptances, trials, acceptance = record
    rewards[trials % SCALES.size] += accept_prob
    trials += 1
    record = Record(reward_sum, accept_sum, n, rewards, acceptances, trials, acceptance)
    return Policy(phase, due, space, learner, record, guard, pretrained), SCALES[trials % SCALES.size]
