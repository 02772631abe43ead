"""What kamh, kmc_lite and kmc_finite share: first a walk, then refits to the history between blocks."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import ArgumentError
from ..jit import kernel
from ..kinds import ChainState, Generator, Integer, Real, Target, Vector
from ..numerics.frame import WALK_ACCEPT, Frame
from ..numerics.history import restart, sample_history, schedule_fit
from ..numerics.metropolis import accept_probability
from ..numerics.walk import first_scale, propose_walk
from ..target import log_density
from .base import Stage
from .settings import UNSET

POINTS = 300  # size of a subsample by default
LARGEST = 5_000  # largest subsample or basis; some arrays have the square of this size, 200 MB each
FIRST = 50  # number of iterations before the first fit of a faithful run
GROWTH = 1.25  # everything is learned anew when the number of iterations has grown by this factor


def stages(settings: Any, warmup: int, subsample: int = UNSET) -> list[Stage]:
    """A walk for the first half of warm-up, unless faithful; `subsample` is the setting if the method has it.

    Raises
    ------
    ArgumentError
        The history cannot fill the subsample.
    """
    quarter = 0 if settings.faithful else warmup // 4
    shortest = int((GROWTH - 1.0) * (warmup // 2))  # between two restarts of the history
    _check_subsample(subsample, warmup if settings.faithful else shortest, warmup)
    return [Stage("approach", quarter), Stage("walk", quarter), Stage("surrogate", warmup - 2 * quarter)]


def _check_subsample(size: int, available: int, warmup: int) -> None:
    """Refuse a subsample that the history can never fill. The default size is not refused.

    Raises
    ------
    ArgumentError
        There are fewer points than `size`.
    """
    if warmup and size > available:
        raise ArgumentError(
            f"settings['subsample']={size} is not allowed: with warmup={warmup} the history, which gives the "
            f"subsample, has only {available} points at times; use a smaller subsample or a longer warm-up"
        )


def enter(stage: str, state: ChainState, settings: Any) -> Any:
    """Forget the approach when the walk begins. Learn from the walk when it ends."""
    history = state.history
    if stage == "walk":
        history = restart(history)
    if stage == "surrogate":
        first = history.t + (FIRST if settings.faithful else 0)
        history = history._replace(next_fit=first, next_rebuild=first)
    return state._replace(history=history)


def until_refit(state: ChainState) -> int:
    """The number of iterations before `refit`."""
    return int(max(0, state.history.next_fit - state.history.t))


def begin_refit(
    state: ChainState, settings: Any, rng: np.random.Generator
) -> tuple[Any, np.ndarray | None, bool]:
    """Begin a refit from a subsample.

    Returns the state, with the time of the next refit; the points (n, d) to learn from, or None if there are
    too few since the last restart; and whether everything is learned anew.
    """
    history = state.history
    anew = history.t >= history.next_rebuild
    enough = anew or settings.faithful or history.seen >= len(history.points)
    points = sample_history(history) if enough else None
    return state._replace(history=schedule_fit(history, settings.schedule, rng)), points, anew


def schedule_rebuild(state: ChainState, settings: Any) -> Any:
    """Set the time when everything is learned anew again. Unless faithful, restart the history."""
    history = state.history._replace(next_rebuild=int(GROWTH * state.history.t) + 1)
    return state._replace(history=history if settings.faithful else restart(history))


def subsample_size(size: Integer) -> Integer:
    """The size of the subsample: the setting, or the default."""
    return POINTS if size == UNSET else size


def first_walk_size(target: Target, settings: Any, x: Vector, logp: Real, rng: Generator) -> Real:
    """The walk's first step size: the setting, or found by halving; 0 for a faithful run without a walk."""
    if settings.initial_step_size > 0.0:
        return settings.initial_step_size
    if settings.faithful:
        return 0.0
    return first_scale(target, x, logp, WALK_ACCEPT, rng)


@kernel
def walk_proposal(
    target: Target, x: Vector, logp: Real, size: Real, frame: Frame, rng: Generator
) -> tuple[Vector, Real, Real]:
    """A proposal y (d,) of the walk, its log density and its acceptance probability."""
    y, z = np.empty(x.size), np.empty(x.size)
    propose_walk(x, frame.chol_t, size * np.sqrt(frame.scale), rng, y, z)
    logp_y = log_density(target, y)
    return y, logp_y, accept_probability(logp_y - logp)
