"""What rlmh and rlmh_mala share: the warm start, the policy, its training, and its guard.

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

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import numpy as np
from scipy import linalg

from .. import check
from ..errors import ArgumentError, InitializationError
from ..jit import kernel
from ..kinds import ChainState, Flag, Generator, Real, Vector
from ..numerics import actor_critic, networks
from ..numerics.actor_critic import Networks, Rates, ReplayBuffer, exterior_weight, learn, store
from ..numerics.frame import Frame
from ..numerics.history import NEVER, all_equal, restart, sample_history
from ..numerics.linear import add_times, times
from ..numerics.networks import (
    Adam,
    Shape,
    add_gradient,
    clip,
    descend,
    fill,
    overwrite,
    value,
)
from .base import Stage
from .settings import NOT_NEGATIVE, POSITIVE, Choice, Limit

TOGETHER = 10  # a faithful policy makes so many updates at a time, after as many iterations
KEPT = 5_000  # largest number of points of the warm start that the policy learns from
MANY = 100  # a user is warned in more dimensions
APPROACH, SCALE, EPISODES = 0, 1, 2  # Policy.phase: no policy yet; a linear one; networks
PRETRAINING = Choice(("reflection", "identity"))
IDENTITY = 1  # index of the second
DIMS = (  # of arrays in `learnt`
    ("episode_reward", ("episode",)),
    ("episode_acceptance", ("episode",)),
    ("actor", ("weight",)),
    ("pretrained_actor", ("weight",)),
)
SCALES = np.array([0.1, 0.14, 0.2, 0.28, 0.4, 0.56, 0.7071, 0.9])  # scales of proposals, to be tried
LEAST = -10.0  # smallest log alpha in the reward, unless faithful
_WORST = -100.0  # smallest reward, since log alpha can be minus infinity
_FIRST_ROWS = 4_096  # rows of the replay buffer at first; it grows
_MANY_DRAWS = 100  # a warm start with so many points, all of them equal, never moved
_DRAWS_A_DIMENSION = 3  # fewer different points of a warm start give no useful covariance
_FLAT = 1e-12  # no policy is made if the correlations of the warm start have a smaller eigenvalue


class Settings(NamedTuple):
    """The settings that both methods have, behind their own."""

    radius: Annotated[float, POSITIVE, "c: radius of the ball in which the policy acts"] = 10.0
    hidden: Annotated[int, Limit(1, 4_096), "units of the actor's hidden layer"] = 32
    critic_hidden: Annotated[int, Limit(1, 4_096), "units of the critic's hidden layer"] = 8
    episode: Annotated[int, Limit(10, 1_000_000), "number of iterations in an episode"] = 500
    actor_rate: Annotated[float | None, NOT_NEGATIVE, "alpha_0; None: 0.005, or 1e-6 if faithful"] = None
    critic_rate: Annotated[float, NOT_NEGATIVE, "learning rate of the critic"] = 0.01
    threshold: Annotated[float | None, POSITIVE, "tau; None: 1, or min(d / |Sigma|², 1e-5) if faithful"] = (
        None
    )
    decay: Annotated[float, NOT_NEGATIVE, "exponent of the decay of alpha_n"] = 1.1
    horizon: Annotated[int, Limit(1, 1_000_000_000), "number of updates before alpha_n decays"] = 50_000
    discount: Annotated[float, Limit(0.0, 1.0), "weight of the next reward; used if faithful"] = 0.99
    smoothing: Annotated[float, Limit(0.0, 1.0), "rate of the target networks; used if faithful"] = 0.001
    batch: Annotated[int, Limit(2, 100_000), "number of transitions in a mini-batch"] = 64
    buffer: Annotated[int, Limit(100, 1_000_000_000), "transitions to keep; used if faithful"] = 1_000_000
    walk_share: Annotated[
        float | None, Limit(0.0, 0.9), "share of walk iterations; None: 0.1, or 0 if faithful"
    ] = None
    faithful: Annotated[bool, "follow the paper, without our departures"] = False


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


def stages(settings: Any, warmup: int, d: int) -> list[Stage]:
    """The warm start, which keeps its last third; the search for a scale, unless faithful; episodes.

    Raises
    ------
    ArgumentError
        Settings contradict each other, or the warm-up ends before learning begins.
    """
    if settings.faithful and settings.decay <= 1.0:
        raise ArgumentError(
            f"settings['decay']={settings.decay} is not allowed with faithful=True: it must be above 1, "
            "because Algorithm 1 needs learning rates (1 + n / horizon)^-decay with a finite sum"
        )
    if settings.faithful and 0 < warmup <= settings.warm_start:
        raise ArgumentError(
            f"warmup={warmup} is not allowed with faithful=True: the warm start alone takes "
            f"settings['warm_start']={settings.warm_start} iterations; use a longer warm-up"
        )
    if settings.batch > settings.buffer:
        raise check.refused(
            "settings['batch']", settings.batch, f"at most settings['buffer']={settings.buffer}"
        )
    warm = min(settings.warm_start, warmup if settings.faithful else warmup // 3)
    search = 0 if settings.faithful or not np.isnan(settings.scale) else (warmup - warm) // 5
    return [
        Stage("walk", warm - warm // 3),
        Stage("walk_kept", warm // 3),
        Stage("scale", search),
        Stage("episodes", warmup - warm - search),
    ]


def caution(settings: Any, d: int) -> str | None:
    """A warning before a run in dimension `d`, or None."""
    if d <= MANY:
        return None
    return (
        f"this posterior has {d} dimensions: a policy must learn a map of so many numbers, and policies are "
        f"known to fail above {MANY}; fisher_mala or nuts are likely better"
    )


def enter(stage: str, state: ChainState, settings: Any) -> Any:
    """Forget the first draws of the warm start; when it ends, a policy is due."""
    policy = state.policy
    if stage == "walk_kept":
        return state._replace(history=restart(state.history))
    if stage in ("scale", "episodes"):
        policy = policy._replace(due=True, phase=SCALE if stage == "scale" else EPISODES)
    return state._replace(policy=policy)


def until_refit(state: ChainState) -> int:
    """The number of iterations before the policy is made or, when faithful, learns."""
    policy = state.policy
    if policy.due:
        return 0
    if policy.phase != EPISODES or not policy.guard.faithful:
        return NEVER
    return max(0, TOGETHER - int(policy.learner.memory.n - policy.learner.seen))


def refit(state: ChainState, settings: Any, rng: np.random.Generator, begin: Callable[..., Any]) -> Any:
    """Between blocks of iterations: make the policy from the warm start, or let a faithful one learn.

    `begin(state, settings, draws, space, rng)` makes the policy. `space` has its coordinates, and `draws`
    (n, d) are the draws of the warm start in them. If these are too few, the walk goes on.
    """
    if not state.policy.due:
        return train(state, settings, rng)
    draws = warm_start_draws(state, settings, rng)
    if draws is None:
        return state._replace(policy=state.policy._replace(due=False, phase=APPROACH))
    return begin(state, settings, *draws, rng)


def train(state: ChainState, settings: Any, rng: np.random.Generator) -> Any:
    """Let a faithful policy learn from the transitions since its last updates."""
    policy = state.policy
    if policy.guard.broken:
        learner = policy.learner._replace(seen=policy.learner.memory.n)
        return state._replace(policy=policy._replace(learner=learner))
    learner, finite = learn_by_critic(settings, policy.learner, rng)
    learner = learner._replace(memory=actor_critic.extend_replay(learner.memory, TOGETHER, settings.buffer))
    if not finite:
        learner.nets.actor[:] = policy.guard.actor
        policy = policy._replace(guard=policy.guard._replace(broken=1))
    return state._replace(policy=policy._replace(learner=learner))


def warm_start_draws(
    state: ChainState, settings: Any, rng: np.random.Generator
) -> tuple[np.ndarray, Space] | None:
    """The draws (n, d) of the warm start in its coordinates u, and the `Space` of these; None if too few.

    Without a warm start u = x, and the draws come from N(0, (radius / 4)² I).

    Raises
    ------
    InitializationError
        There are many draws, and all are equal.
    """
    d = state.x.size
    if settings.warm_start == 0:
        points = 0.25 * settings.radius * rng.standard_normal((1_000, d))
        return points, Space(np.zeros(d), np.eye(d), np.eye(d))
    points = sample_history(state.history)
    if len(points) >= _MANY_DRAWS and all_equal(points):
        shown = np.array2string(points[0], precision=4, threshold=10, max_line_width=10_000)
        raise InitializationError(
            f"the warm start of a policy never moved from {shown} in {len(points)} iterations, so that the "
            "policy cannot learn: start elsewhere (inits=..., a smaller init_radius), make the warm start "
            f"longer (settings['warm_start']={settings.warm_start}; a third of warm-up at most), or use "
            "fisher_mala"
        )
    if len(np.unique(points[:, 0])) < _DRAWS_A_DIMENSION * d:
        return None
    center = points.mean(axis=0)
    space = make_space(center, points.std(axis=0), np.atleast_2d(np.corrcoef(points.T)))
    return None if space is None else ((points - center) @ space.inverse_t, space)


def make_space(center: np.ndarray, sd: np.ndarray, correlations: np.ndarray) -> Space | None:
    """The coordinates for a mean, standard deviations and correlations (d, d); None if these are singular."""
    values, vectors = linalg.eigh(correlations)
    if not values[0] > _FLAT:
        return None
    root_t = (vectors * np.sqrt(values)) @ vectors.T * sd
    inverse_t = (vectors / np.sqrt(values)) @ vectors.T / sd[:, None]
    return Space(center, root_t, inverse_t)


def begin_search(policy: Policy, space: Space) -> Policy:
    """The linear policy, before any of SCALES has been tried."""
    record = policy.record._replace(rewards=np.zeros(SCALES.size))
    return policy._replace(due=False, space=space, record=record)


def best_scale(record: Record) -> float:
    """The scale s with the largest product of acceptance and min(1, 2 s²); 1 if there was no search.

    For a Gaussian p and the linear policy phi(u) = -sqrt(1 - 2 s²) u, each accepted proposal reduces the
    correlation of |u|² by the share 2 s². This limits how fast such a chain mixes. The squared jump distance
    does not show it, because the chain reflects.
    """
    if record.rewards.size == 0:
        return 1.0
    return float(SCALES[np.argmax(record.rewards * np.minimum(1.0, 2.0 * SCALES**2))])


def make_policy(
    settings: Any,
    space: Space,
    points: np.ndarray,
    targets: np.ndarray,
    scale: float,
    rng: np.random.Generator,
) -> Policy:
    """A policy trained to give the actions `targets` (n, k) at `points` (n, d), before any reward."""
    d, k = points.shape[1], targets.shape[1]
    actor_is = Shape(d, settings.hidden, k)
    critic_is = Shape(d, settings.critic_hidden, 1)  # V(u)
    if settings.faithful:
        critic_is = actor_critic.critic_shape(d, settings.critic_hidden, k)
    epochs, good_enough = (2_000, 1.0 * k) if settings.faithful else (500, 0.01 * k)
    actor = networks.regress(
        actor_is,
        networks.silence(actor_is, networks.first_weights(actor_is, rng)),
        points,
        targets,
        rng,
        epochs=epochs,
        good_enough=good_enough,
    )
    nets = actor_critic.make_networks(actor, networks.first_weights(critic_is, rng))
    learner = Learner(
        actor_is,
        critic_is,
        nets,
        actor_critic.empty_replay(min(_FIRST_ROWS, settings.buffer) if settings.faithful else 0, d, k),
        np.zeros_like(nets.actor),
        np.zeros_like(nets.critic),
        _threshold(settings, space),
        0,
        0,
    )
    record = Record(0.0, 0.0, 0, np.zeros(0), np.zeros(0), 0, 1.0)
    guard = PolicyGuard(actor.copy(), scale, -np.inf, 0, 0, settings.faithful)
    return Policy(EPISODES, False, space, learner, record, guard, actor.copy())


def _threshold(settings: Any, space: Space) -> float:
    """The largest norm of the actor's gradient."""
    if not np.isnan(settings.threshold):
        return float(settings.threshold)
    if not settings.faithful:
        return 1.0
    return float(min(space.center.size / np.sum((space.root_t.T @ space.root_t) ** 2), 1e-5))


def walk_frame(space: Space) -> Frame:
    """The frame of the random walk that goes on between steps of a policy."""
    return Frame(space.center.copy(), np.ascontiguousarray(space.root_t), 1.0)


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


def history(state: ChainState) -> dict[str, float]:
    """The number that warm-up records: the mean reward of the last episode that has ended."""
    rewards = state.policy.record.rewards
    is_known = (
        state.policy.phase == EPISODES and rewards.size > 0
    )  # in the search they are sums of acceptance
    return {"warmup_reward": float(rewards[-1]) if is_known else np.nan}


def learnt(state: ChainState) -> dict[str, Any]:
    """What a chain has learned when warm-up ends."""
    space, record, guard = state.policy.space, state.policy.record, state.policy.guard
    episodes = state.policy.phase == EPISODES
    used, actor, _ = frozen_policy(state.policy, state.step_size)
    return {
        "episode_reward": record.rewards.copy() if episodes else np.zeros(0),
        "episode_acceptance": record.acceptances.copy(),
        "actor": actor.copy(),
        "pretrained_actor": state.policy.pretrained.copy(),
        "uses_policy": np.array(bool(used and episodes)),
        "mean": space.center.copy(),
        "preconditioner": space.root_t.T @ space.root_t,
        "fallbacks": np.array(guard.fallbacks),
        "broken": np.array(guard.broken),
    }
