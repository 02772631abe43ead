"""What rlmh and rlmh_mala do between iterations: the warm start, the making of a policy, and results.

Wang, Chen, Kanagawa and Oates (2024), Reinforcement Learning for Adaptive MCMC. policy.py has the policy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import numpy as np
from scipy import linalg

from .. import check
from ..errors import ArgumentError, InitializationError
from ..kinds import ChainState
from ..numerics import actor_critic, networks
from ..numerics.frame import Frame
from ..numerics.history import NEVER, all_equal, restart, sample_history
from ..numerics.networks import Shape
from .base import Stage
from .policy import (
    APPROACH,
    BROKEN,
    EPISODE,
    EPISODES,
    SCALE,
    SCALES,
    Learner,
    Policy,
    PolicyGuard,
    Record,
    Space,
    frozen_policy,
    learn_by_critic,
)
from .settings import NOT_NEGATIVE, POSITIVE, Choice, Limit

TOGETHER = 10  # a faithful policy makes so many updates at a time, after as many iterations
KEPT = 5_000  # largest number of points of the warm start that the policy learns from
MANY = 100  # a user is warned in more dimensions
PRETRAINING = Choice(("reflection", "identity"))
IDENTITY = 1  # index of the second
DIMS = (  # of arrays in `learnt`
    ("episode_reward", ("episode",)),
    ("episode_acceptance", ("episode",)),
    ("actor", ("weight",)),
    ("pretrained_actor", ("weight",)),
)
_FIRST_ROWS = 4_096  # rows of the replay buffer at first; it grows
_FIRST_EPISODES = 64  # that there is room for at first
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
        raise check.refusal(
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
    policy, record = state.policy, state.policy.record
    if policy.due:
        return 0
    if policy.phase != EPISODES:
        return NEVER
    until_full = int((record.reward_room.size - record.rewards.size) * record.length - record.n)
    if not policy.guard.faithful:
        return until_full
    return max(0, min(until_full, TOGETHER - int(policy.learner.memory.n - policy.learner.seen)))


def refit(state: ChainState, settings: Any, rng: np.random.Generator, begin: Callable[..., Any]) -> Any:
    """Between blocks of iterations: make the policy from the warm start, or let a faithful one learn, and
    make room for more episodes.

    `begin(state, settings, draws, space, rng)` makes the policy. `space` has its coordinates, and `draws`
    (n, d) are the draws of the warm start in them. If these are too few, the walk goes on.
    """
    policy, record = state.policy, state.policy.record
    if not policy.due:
        if record.rewards.size == record.reward_room.size:
            state = state._replace(policy=policy._replace(record=extend(record)))
        is_due = policy.guard.faithful and policy.learner.memory.n - policy.learner.seen >= TOGETHER
        return train(state, settings, rng) if is_due else state
    draws = warm_start_draws(state, settings, rng)
    if draws is None:
        return state._replace(policy=state.policy._replace(due=False, phase=APPROACH))
    return begin(state, settings, *draws, rng)


def extend(record: Record) -> Record:
    """A record with room for as many episodes again."""
    rooms = [np.append(room, np.zeros_like(room)) for room in (record.reward_room, record.accept_room)]
    return record._replace(reward_room=rooms[0], accept_room=rooms[1])


def train(state: ChainState, settings: Any, rng: np.random.Generator) -> Any:
    """Let a faithful policy learn from the transitions since its last updates."""
    policy = state.policy
    if policy.guard.broken:
        learner = policy.learner._replace(seen=policy.learner.memory.n)
        return state._replace(policy=policy._replace(learner=learner))
    learner = policy.learner
    finite, memory = learn_by_critic(settings, learner, rng), learner.memory
    memory = actor_critic.extend_replay(memory, TOGETHER, settings.buffer)
    learner = learner._replace(memory=memory, seen=memory.n)
    if not finite:
        learner.nets.actor[:] = policy.guard.actor
        policy.guard.about[BROKEN] = 1.0
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
    record = policy.record._replace(sums=policy.record.sums.copy(), reward_room=np.zeros(SCALES.size))
    record.sums[EPISODE] = SCALES.size
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
        np.zeros(1, np.int64),
        0,
    )
    rooms = np.zeros(_FIRST_EPISODES), np.zeros(_FIRST_EPISODES)
    record = Record(np.array([0.0, 0.0, 0.0, 0.0, 0.0, 1.0]), *rooms, settings.episode)
    guard = PolicyGuard(actor.copy(), np.array([scale, -np.inf, 0.0, 0.0]), settings.faithful)
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
    used, actor, _ = frozen_policy(state.policy.learner.nets.actor, record, guard, state.step_size)
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
