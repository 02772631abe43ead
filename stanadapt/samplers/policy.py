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
    """The networks, and what their training needs. Iterations change its arrays in place."""

    actor_is: Shape
    critic_is: Shape
    nets: Networks
    memory: ReplayBuffer
    gradient: np.ndarray  # (p,) gradient of the actor, summed over a mini-batch; not used when faithful
    baseline_gradient: np.ndarray  # (q,)
    threshold: float
    updates: np.ndarray  # (1,) their number
    seen: int  # number of transitions that the policy has learned from; used only when faithful


class Record(NamedTuple):
    """The rewards and the acceptance of the policy. Iterations change its arrays in place."""

    sums: np.ndarray  # (6,) the sums that the next constants name
    reward_room: np.ndarray  # (E,) mean reward of each episode
    accept_room: np.ndarray  # (E,) mean acceptance of each episode
    length: int  # of an episode

    @property
    def n(self) -> int:
        """The number of iterations in this episode."""
        return int(self.sums[LENGTH])

    @property
    def rewards(self) -> np.ndarray:
        """Mean reward of each episode; in the search for a scale, what `search_scale` says."""
        return self.reward_room[: int(self.sums[EPISODE])]

    @property
    def acceptances(self) -> np.ndarray:
        """Mean acceptance of each episode."""
        return self.accept_room[: int(self.sums[EPISODE])]


# Record.sums: of reward and acceptance over this episode, and its length so far; the number of episodes that
# have ended; the number of iterations in which a policy moved the chain, and a running mean of the acceptance
# probability.
REWARD, ACCEPT, LENGTH, EPISODE, TRIALS, ACCEPTANCE = range(6)


class PolicyGuard(NamedTuple):
    """The best policy so far, which replaces one that has collapsed; its arrays change in place."""

    actor: np.ndarray  # (p,) weights of the best actor so far
    about: np.ndarray  # (4,) the numbers that the next constants name
    faithful: bool  # prefers the last policy to the best one, unless it has collapsed

    @property
    def reward(self) -> float:
        """The mean reward of the best policy; -inf: no policy was good yet."""
        return float(self.about[BEST_REWARD])

    @property
    def fallbacks(self) -> int:
        """The number of episodes after which the policy was replaced."""
        return int(self.about[FALLBACKS])

    @property
    def broken(self) -> int:
        """1 if learning has stopped at numbers that are not finite."""
        return int(self.about[BROKEN])


BEST_SCALE, BEST_REWARD, FALLBACKS, BROKEN = range(4)  # PolicyGuard.about: first the scale of its proposals


class Policy(NamedTuple):
    """A policy with all that belongs to it."""

    phase: int
    due: bool  # whether a policy for this phase must be made now
    space: Space
    learner: Learner
    record: Record
    guard: PolicyGuard
    pretrained: np.ndarray  # (p,) weights of the actor before any reward


def empty_policy() -> Policy:
    """The state before there is a policy."""
    none, no_matrix, no_shape = np.zeros(0), np.zeros((0, 0)), Shape(0, 0, 0)
    zero, sums, about = np.zeros(1, np.int64), np.zeros(6), np.zeros(4)
    adam = Adam(none, none, zero)
    nets = Networks(none, none, adam, none, none, adam)
    memory = ReplayBuffer(no_matrix, no_matrix, none, zero)
    learner = Learner(no_shape, no_shape, nets, memory, none, none, 0.0, zero, 0)
    sums[ACCEPTANCE] = 1.0
    about[BEST_SCALE], about[BEST_REWARD] = 1.0, -np.inf
    record, guard = Record(sums, none, none, 0), PolicyGuard(none, about, False)
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
def choose_actor(
    settings: Any,
    phase: Any,
    actor: Vector,
    record: Record,
    guard: PolicyGuard,
    scale: Real,
    rng: Generator,
    adapting: Flag,
) -> Any:
    """Whether the policy, not the walk, makes this iteration; its actor (p,) and its scale."""
    share = settings.walk_share
    if np.isnan(share):
        share = 0.0 if settings.faithful else 0.1
    if phase == APPROACH or (share > 0.0 and rng.random() < share):
        return False, actor, scale
    if adapting or phase == SCALE:
        return True, actor, scale
    return frozen_policy(actor, record, guard, scale)


@kernel(ordered=True)
def frozen_policy(
    actor: Vector, record: Record, guard: PolicyGuard, scale: Real
) -> tuple[Flag, Vector, Real]:
    """Whether a policy makes the draws, its actor (p,) and its scale.

    It is the policy of the best episode. When faithful it is the last policy, unless that has collapsed. If
    no policy was good, the walk alone makes the draws.
    """
    alive = record.sums[ACCEPTANCE] >= least_acceptance(guard) and guard.about[BROKEN] == 0.0
    if guard.about[BEST_REWARD] > -np.inf and not (guard.faithful and alive):
        return True, guard.actor, guard.about[BEST_SCALE]
    return alive, actor, scale


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
) -> None:
    """Let a policy learn from an iteration of an episode that it made, and add this to its record, in place.

    `learn_on_policy` takes `slopes`.
    """
    learner, record, guard = policy.learner, policy.record, policy.guard
    reward = max(reward, _WORST)
    if settings.faithful:
        store(learner.memory, u, u_y, a, a_y, reward)
    elif guard.about[BROKEN] == 0.0 and not learn_on_policy(settings, learner, u, u_y, reward, slopes):
        overwrite(learner.nets.actor, guard.actor)
        guard.about[BROKEN] = 1.0

    sums = record.sums
    sums[TRIALS] += 1.0
    sums[ACCEPTANCE] += max(1.0 / sums[TRIALS], 0.01) * (accept_prob - sums[ACCEPTANCE])
    sums[REWARD] += reward
    sums[ACCEPT] += accept_prob
    sums[LENGTH] += 1.0
    n = sums[LENGTH]
    if n == settings.episode:
        mean_reward, mean_accept, episode = sums[REWARD] / n, sums[ACCEPT] / n, int(sums[EPISODE])
        if episode < record.reward_room.size:
            record.reward_room[episode], record.accept_room[episode] = mean_reward, mean_accept
            sums[EPISODE] += 1.0
        judge_episode(guard, learner.nets, scale, mean_reward, mean_accept)
        sums[REWARD], sums[ACCEPT], sums[LENGTH] = 0.0, 0.0, 0.0


@kernel(ordered=True)
def learn_by_critic(settings: Any, learner: Learner, rng: Generator) -> Flag:
    """Algorithm 2 with an update for each new transition, in place. Returns whether all is finite."""
    memory, updates, n, finite = learner.memory, learner.updates, learner.memory.written[0], True
    for _ in range(n - learner.seen):
        if n > settings.batch and finite:
            rates = learning_rates(settings, updates[0], learner.threshold)
            finite = learn(learner.actor_is, learner.critic_is, learner.nets, memory, rates, rng)
            updates[0] += 1
    return finite


@kernel(ordered=True)
def learn_on_policy(
    settings: Any, learner: Learner, u: Vector, u_y: Vector, reward: Real, slopes: Any
) -> Flag:
    """Add one sample to the gradient of E[r]; at the end of a mini-batch, take a step.

    Every policy leaves p invariant, so that J = E_p E_q[r(x, y, a, a_y)]. Its gradient is the mean of
    (r - V(u)) d log q / da + dr/da at x, and of dr/da_y at y, for any V: Williams (1992). `slopes` are
    d log q / da, dr/da and dr/da_y, (k,) each. Returns whether all is finite.
    """
    actor_is, critic_is, nets, _, gradient, baseline_gradient, threshold, updates, _ = learner
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
    updates[0] += 1
    finite = True
    if updates[0] % settings.batch == 0:
        rates = learning_rates(settings, updates[0], threshold)
        for i in range(gradient.size):
            gradient[i] /= settings.batch
        for i in range(baseline_gradient.size):
            baseline_gradient[i] /= settings.batch
        finite = np.isfinite(clip(gradient, threshold)) and np.isfinite(clip(baseline_gradient, 1e3))
        if finite:
            descend(nets.actor, gradient, nets.actor_adam, rates.actor)
            descend(nets.critic, baseline_gradient, nets.critic_adam, rates.critic)
        fill(gradient, 0.0)
        fill(baseline_gradient, 0.0)
    return finite


@kernel(ordered=True)
def least_acceptance(guard: PolicyGuard) -> Any:
    """The mean acceptance below which a policy has collapsed."""
    return 0.01 if guard.faithful else 0.05


@kernel(ordered=True, seldom=True)
def judge_episode(guard: PolicyGuard, nets: Networks, scale: Real, reward: Real, acceptance: Any) -> None:
    """Let the guard see an episode with this mean reward and acceptance, in place.

    If the policy has collapsed, its weights become the weights of the best policy so far, in place.
    """
    if acceptance < least_acceptance(guard):
        overwrite(nets.actor, guard.actor)
        overwrite(nets.actor_target, guard.actor)
        guard.about[FALLBACKS] += 1.0
    elif reward > guard.about[BEST_REWARD]:
        overwrite(guard.actor, nets.actor)
        guard.about[BEST_SCALE], guard.about[BEST_REWARD] = scale, reward


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
def search_scale(record: Record, scale: Real, accept_prob: Real) -> Real:
    """Note an iteration of the search for a scale. Returns the scale of the next proposal.

    The scales take turns. `record.rewards` holds their sums of acceptance for `best_scale`.
    """
    trials = int(record.sums[TRIALS])
    record.reward_room[trials % SCALES.size] += accept_prob
    record.sums[TRIALS] += 1.0
    return SCALES[(trials + 1) % SCALES.size]
