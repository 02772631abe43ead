"""The search for a first step size, and rules by which step sizes follow the acceptance rate."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ..jit import kernel
from ..kinds import Flag, Integer, Real


@kernel(counted=False)
def adapt_step_size(step_size: Real, accept_prob: Real, target_accept: Real, rate: Real) -> Real:
    """One move of s² <- s² [1 + rho (alpha - alpha*)], Titsias (2023), Algorithm 1."""
    return step_size * np.sqrt(1.0 + rate * (accept_prob - target_accept))


@kernel
def double_or_halve(
    step_size: Real, accept_prob: Real, target_accept: Real, direction: Integer
) -> tuple[Real, Integer, Flag]:
    """One move of the search for a first step size.

    The first call, with direction 0, picks the direction: up if the acceptance is above the target. Returns
    the next step size, the direction, and whether the search is over because the acceptance has crossed the
    target. Hoffman and Gelman (2014), Algorithm 4, have the same search.
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
    """The state of the search of Hoffman and Gelman (2014), Section 3.2.1."""

    shortfall: float  # H-bar_t: how far the mean acceptance is below its target
    log_average: float  # log epsilon-bar_t: average of the log step sizes
    origin: float  # mu: the log step size that the search is drawn to
    t: float  # number of iterations


_GAMMA, _T_0, _KAPPA = 0.05, 10.0, 0.75  # the values of Hoffman and Gelman


def dual_averaging(step_size: float) -> DualAveraging:
    """A search that begins at `step_size`.

    The search of Hoffman and Gelman is drawn to ten times the first step size. That pays if long steps are
    cheap and the first step size is a guess. Here the first step size comes from the window before.
    """
    return DualAveraging(0.0, float(np.log(step_size)), float(np.log(1.5 * step_size)), 0.0)


@kernel
def average_step_size(
    search: DualAveraging, accept_prob: Real, target_accept: Real, longest: Real
) -> tuple[DualAveraging, Real]:
    """One move of the search. Returns the search and the next step size, which is at most `longest`.

    The search itself may go beyond `longest` by a quarter, but not further: the acceptance belongs to the
    shorter step, and does not tell how much longer the step could be.
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
def final_step_size(search: DualAveraging, longest: Real) -> Real:
    """The step size with which the search ends."""
    return min(math.exp(search.log_average), longest)  # the same digits in plain Python
