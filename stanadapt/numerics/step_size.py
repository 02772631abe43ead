"""Step sizes: where to start, and how to follow the acceptance rate."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..jit import kernel


@kernel
def towards_target(step_size: Any, accept_prob: Any, target_accept: Any, rate: Any) -> Any:
    """One move of s² <- s² [1 + rho (alpha - alpha*)], Titsias (2023), Algorithm 1."""
    return step_size * np.sqrt(1.0 + rate * (accept_prob - target_accept))


@kernel
def doubled_or_halved(step_size: Any, accept_prob: Any, target_accept: Any, direction: Any) -> Any:
    """One move of the search for a first step size.

    The first call (direction 0) picks the direction: up where the trial's acceptance is above the target.
    Returns the next step size, the direction, and whether the search is over because the acceptance has
    crossed the target. Hoffman and Gelman (2014), Algorithm 4, has the same search.
    """
    above = accept_prob > target_accept
    if direction == 0:
        direction = 1 if above else -1
    done = above != (direction == 1)
    if done and direction == -1:
        return step_size, direction, True
    if done:
        return 0.5 * step_size, direction, True
    return step_size * 2.0**direction, direction, False


class DualAveraging(NamedTuple):
    """Where the search of Hoffman and Gelman (2014), Section 3.2.1, stands."""

    shortfall: float  # of the acceptance, H-bar_t
    log_average: float  # of the step sizes, log epsilon-bar_t
    origin: float  # mu, towards which log step sizes are drawn
    t: float  # iterations


_GAMMA, _T_0, _KAPPA = 0.05, 10.0, 0.75  # theirs


def dual_averaging(step_size: float) -> DualAveraging:
    """A search that begins at `step_size`.

    Theirs is drawn to ten times the first step size, which pays where long steps are cheap and the first one
    was a guess. Here it was found in the window before.
    """
    return DualAveraging(0.0, float(np.log(step_size)), float(np.log(1.5 * step_size)), 0.0)


@kernel
def averaged(search: Any, accept_prob: Any, target_accept: Any, longest: Any) -> Any:
    """One move. Returns the search and the next step size, at most `longest`.

    The search itself may go a quarter further, and no more: a step size that is held back has the acceptance
    of a shorter one, which says nothing of how much longer it could be.
    """
    shortfall, log_average, origin, t = search
    t += 1.0
    shortfall += (target_accept - accept_prob - shortfall) / (t + _T_0)
    log_step = origin - np.sqrt(t) / _GAMMA * shortfall
    if log_step > np.log(1.25 * longest):
        log_step = np.log(1.25 * longest)
        shortfall = (origin - log_step) * _GAMMA / np.sqrt(t)
    log_average += (log_step - log_average) * t**-_KAPPA
    return DualAveraging(shortfall, log_average, origin, t), min(np.exp(log_step), longest)


@kernel
def settled_step(search: Any, longest: Any) -> Any:
    """The step size that the search has come to."""
    return min(np.exp(search.log_average), longest)
