"""What kamh, kmc_lite and kmc_finite share: a walk first, then learning from the history between blocks."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import ArgumentError
from ..jit import kernel
from ..numerics.frame import WALK_ACCEPT
from ..numerics.history import restarted, sample, scheduled
from ..numerics.metropolis import accept_probability
from ..numerics.walk import first_scale, propose_walk
from ..target import log_density
from .base import Stage
from .settings import UNSET

POINTS = 300  # default size of a subsample
LARGEST = 5_000  # subsample or basis: some squares of it are held, 200 MB each
FIRST = 50  # iterations before a faithful run learns for the first time
GROWTH = 1.25  # of the number of iterations between times at which all is learnt anew


def stages(settings: Any, warmup: int, subsample: int = UNSET) -> list[Stage]:
    """A walk in the first half of warm-up, unless faithful; `subsample` is the setting, where there is one.

    Raises
    ------
    ArgumentError
        The history will not fill the subsample.
    """
    quarter = 0 if settings.faithful else warmup // 4
    shortest = int((GROWTH - 1.0) * (warmup // 2))  # between two restarts of the history
    _check_subsample(subsample, warmup if settings.faithful else shortest, warmup)
    return [Stage("approach", quarter), Stage("walk", quarter), Stage("surrogate", warmup - 2 * quarter)]


def _check_subsample(size: int, available: int, warmup: int) -> None:
    """Refuse a subsample that the history will never fill; by default it takes what there is.

    Raises
    ------
    ArgumentError
    """
    if warmup and size > available:
        raise ArgumentError(
            f"settings['subsample']={size} is not allowed: with warmup={warmup} the history that it is drawn "
            f"from has {available} points at times; use a smaller subsample or a longer warm-up"
        )


def enter(stage: str, state: Any, settings: Any) -> Any:
    """The approach is forgotten. At the end of the walk all is learnt from it."""
    history = state.history
    if stage == "walk":
        history = restarted(history)
    if stage == "surrogate":
        first = history.t + (FIRST if settings.faithful else 0)
        history = history._replace(next_fit=first, next_rebuild=first)
    return state._replace(history=history)


def until_refit(state: Any) -> int:
    """Iterations until `refit` is due."""
    return int(max(0, state.history.next_fit - state.history.t))


def due(state: Any, settings: Any, rng: np.random.Generator) -> tuple[Any, np.ndarray | None, bool]:
    """What begins a refit from a subsample.

    Returns the state with the next one scheduled; the points (n, d) to learn from, None where the last
    restart has left too few; and whether all is to be learnt anew.
    """
    history = state.history
    anew = history.t >= history.next_rebuild
    enough = anew or settings.faithful or history.seen >= len(history.points)
    points = sample(history) if enough else None
    return state._replace(history=scheduled(history, settings.schedule, rng)), points, anew


def rebuilt(state: Any, settings: Any) -> Any:
    """After all was learnt anew: when that is due again. The history starts again, unless faithful."""
    history = state.history._replace(next_rebuild=int(GROWTH * state.history.t) + 1)
    return state._replace(history=history if settings.faithful else restarted(history))


@kernel
def size_or_default(size: Any) -> Any:
    """The size of the subsample that was set, or the default."""
    return POINTS if size == UNSET else size


@kernel
def first_walk_size(target: Any, settings: Any, x: Any, logp: Any, rng: Any) -> Any:
    """Step size of the walk: what was set, or what halving finds; a faithful run has no walk."""
    if settings.initial_step_size > 0.0:
        return settings.initial_step_size
    if settings.faithful:
        return 0.0
    return first_scale(target, x, logp, WALK_ACCEPT, rng)


@kernel
def walked(target: Any, x: Any, logp: Any, size: Any, frame: Any, rng: Any) -> Any:
    """A proposal y (d,) of the walk, its log density and its acceptance probability."""
    y, z = np.empty_like(x), np.empty_like(x)
    propose_walk(x, frame.chol_t, size * np.sqrt(frame.scale), rng, y, z)
    logp_y = log_density(target, y)
    return y, logp_y, accept_probability(logp_y - logp)
