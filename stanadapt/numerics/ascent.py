"""Out of the far tail: a short climb of the log density before the first iteration of a sampler.

From a start uniform on (-2, 2) the log density can be -1e13 and its gradient 1e13, and a Langevin chain whose
step fits there needs tens of thousands of iterations to come home. A quasi-Newton climb needs tens of
gradients. It stops long before a mode: a mode may be an infinite spike (the neck of a funnel), and finding
the typical set is the sampler's own work.

Sources: L-BFGS is Algorithms 7.4 and 7.5 of Nocedal and Wright (2006), Numerical Optimization. The line
search asks for the weak Wolfe conditions only and brackets a step for them as Lewis and Overton (2013),
Nonsmooth optimization via quasi-Newton methods, Algorithm 2.6, do; it needs nothing of the log density but
that it be finite at the start. Interpolation takes the place of halving and doubling within bounds.
Parameters of a posterior differ in scale, so the recursion starts from a diagonal, as in Pathfinder (Zhang,
Carpenter, Gelman and Vehtari, 2022), with the update of Gilbert and Lemaréchal (1989), Some numerical
experiments with variable-storage quasi-Newton algorithms.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..jit import exact
from ..target import log_density_gradient

_LOOK_BACK = 10  # iterations over which the gain is looked at
_GAIN = 5.0  # a climb goes on while those gain more than this many nats per dimension
_NEAR = 5.0  # nats per dimension below the highest point at which the tail is left
_MAX_GRADIENTS = 1000
_MEMORY = 10  # pairs of L-BFGS
_SLOTS = _MEMORY + 1
_KNOWN = 5  # pairs, or one per dimension if that is fewer, from which their word on what is left is taken
_LEFT = 1e-3  # it is the top if that is less than half of this many nats per dimension
_AGAIN = 0.5  # nats per dimension that must be gained before the memory is cleared once more
_TRIES = 30  # gradients of one line search
_SUFFICIENT = 1e-4  # part of the rise that the slope promises which a step must give
_FLATTER = 0.9  # and part of the slope that may be left at its end
_CURVED = 1e-12  # cosine between a step and its turn from which the pair is kept
_ROUNDING = 1e-14  # relative error of a log density


class Climbed(NamedTuple):
    """What a climb found."""

    x: Any  # (d,) the first point of the way up that is out of the tail
    logp: Any  # the highest log density
    gradients: Any  # how many were evaluated


class Memory(NamedTuple):
    """The latest pairs of L-BFGS, in a ring. Both of a pair are divided by the length of its turn.

    A curvature of 1e200 would overflow in the sums of squares, and the inverse Hessian is the same.
    """

    steps: Any  # (m + 1, d): the slot written next is not in use
    turns: Any  # (m + 1, d) the score before a step less the score after it
    inner: Any  # (m + 1,) their products, which are positive
    diagonal: Any  # (d,) the inverse Hessian that the pairs start from


@exact
def climb(target: Any, x: Any) -> Any:
    """Climb from `x` (d,) while the log density still rises by tens of nats in ten iterations.

    Returns the first point of the way up that is at most 5 nats a dimension below the highest found, which is
    `x` itself for a start that is not far out, and the highest log density. So chains still start apart from
    each other and further out than the bulk: for a Gaussian that is up to three standard deviations.

    What the memory has from far out may say that nothing is left to gain, or point nowhere, on the side of a
    narrow ridge. So it is cleared there, and the climb ends where that has not helped.
    """
    d = x.size
    way, heights = np.empty((_MAX_GRADIENTS + 1, d)), np.empty(_MAX_GRADIENTS + 1)
    score, next_score, direction = np.empty(d), np.empty(d), np.empty(d)
    memory = Memory(np.empty((_SLOTS, d)), np.empty((_SLOTS, d)), np.empty(_SLOTS), np.empty(d))
    way[0] = x
    heights[0] = log_density_gradient(target, x, score)
    pairs, n, cleared, gradients = 0, 0, 0, 1  # an iteration takes a gradient, so the way is long enough
    while gradients < _MAX_GRADIENTS and rises(heights, n, d):
        slope = uphill(memory, pairs, score, direction)
        logp, tries = heights[n], 0
        if 0.0 < slope < np.inf and not (pairs >= min(d, _KNOWN) and slope < _LEFT * d):
            logp, tries = line_search(target, way[n], heights[n], slope, direction, way[n + 1], next_score)
        gradients += tries
        if logp > heights[n]:
            pairs = remember(memory, pairs, way[n], way[n + 1], score, next_score)
            score, next_score = next_score, score
            n += 1
            heights[n] = logp
        elif heights[n] - heights[cleared] > _AGAIN * d:
            pairs, cleared = 0, n
        else:
            break
    return Climbed(way[out_of_tail(heights, n, d)].copy(), heights[n], gradients)


@exact
def rises(heights: Any, n: Any, d: Any) -> Any:
    """Whether a climb goes on after iteration `n`."""
    if n < _LOOK_BACK:
        return heights[n] > -np.inf
    return heights[n] - heights[n - _LOOK_BACK] > _GAIN * d


@exact
def out_of_tail(heights: Any, n: Any, d: Any) -> Any:
    """The first iteration up to `n` that is near the highest."""
    first = 0
    while heights[first] < heights[n] - _NEAR * d:
        first += 1
    return first


@exact
def uphill(memory: Any, pairs: Any, score: Any, direction: Any) -> Any:
    """Write the next step to `direction` (d,): the inverse Hessian times the score. Returns the slope there.

    If the inverse Hessian is right, half the slope is what is left to gain. The first step is the score
    itself, shortened to the length 1. A slope that is no positive number means that there is no step.
    """
    direction[:] = score
    if pairs == 0:
        length = norm(score)
        if not length > 0.0:
            return 0.0
        for i in range(score.size):
            direction[i] /= length
        return dot(direction, score)
    newest, oldest = pairs - 1, max(pairs - _MEMORY, 0)
    weights = np.empty(_SLOTS)
    for k in range(newest, oldest - 1, -1):
        j = k % _SLOTS
        weights[j] = dot(memory.steps[j], direction) / memory.inner[j]
        add(direction, -weights[j], memory.turns[j])
    for i in range(direction.size):
        direction[i] *= memory.diagonal[i]
    for k in range(oldest, newest + 1):
        j = k % _SLOTS
        weight = dot(memory.turns[j], direction) / memory.inner[j]
        add(direction, weights[j] - weight, memory.steps[j])
    return dot(direction, score)


@exact
def remember(memory: Any, pairs: Any, x: Any, end: Any, score: Any, end_score: Any) -> Any:
    """Keep the step from `x` to `end` if the log density is concave along it. Returns how many were kept."""
    j = pairs % _SLOTS
    step, turn = memory.steps[j], memory.turns[j]
    for i in range(x.size):
        step[i], turn[i] = end[i] - x[i], score[i] - end_score[i]
    length = norm(turn)
    if not (0.0 < length < np.inf):
        return pairs
    for i in range(x.size):
        step[i] /= length
        turn[i] /= length
    memory.inner[j] = dot(step, turn)
    if not memory.inner[j] > _CURVED * norm(step):
        return pairs
    if pairs == 0:
        memory.diagonal[:] = memory.inner[j]
    rescale(memory.diagonal, step, turn, memory.inner[j])
    return pairs + 1


@exact
def rescale(diagonal: Any, step: Any, turn: Any, inner: Any) -> None:
    """Fit the diagonal to a pair, after Gilbert and Lemaréchal."""
    before, after = 0.0, 0.0
    for i in range(step.size):
        before += turn[i] * turn[i] * diagonal[i]
        after += step[i] * step[i] / diagonal[i]
    for i in range(step.size):
        part = step[i] / diagonal[i]
        curvature = before / diagonal[i] + turn[i] * turn[i] - before * (part * part / after)
        if curvature > 0.0:
            diagonal[i] = inner / curvature


@exact
def line_search(target: Any, x: Any, logp: Any, slope: Any, direction: Any, end: Any, end_score: Any) -> Any:
    """Write to `end` (d,) a point ahead of `x` (d,) that is higher, its score to `end_score` (d,).

    It rises enough for the slope at `x`, and leaves less of it. Where no point is found that does both, it is
    the last that does the first. Returns its log density, that of `x` if there is none, and the number of
    gradients.
    """
    low, low_logp, low_slope = 0.0, logp, slope  # the longest step known to be too short
    high = np.inf  # the shortest known to be too long
    step, tries = 1.0, 0
    while tries < _TRIES:
        tries += 1
        end_logp = step_to(target, x, step, direction, end, end_score)
        if not end_logp >= logp + _SUFFICIENT * step * slope:
            if step * slope < _ROUNDING * abs(logp):
                break  # nothing to be seen there
            high = step
            step = low + (high - low) * shorter(low_slope * (high - low), end_logp - low_logp)
            continue
        end_slope = dot(end_score, direction)
        if not end_slope > _FLATTER * slope:
            return end_logp, tries
        ahead = (step - low) * further(low_slope, end_slope)
        low, low_logp, low_slope = step, end_logp, end_slope
        step = low + (ahead if high == np.inf else within(ahead, high - low))
    if low == 0.0:
        return logp, tries
    return step_to(target, x, low, direction, end, end_score), tries + 1


@exact
def step_to(target: Any, x: Any, step: Any, direction: Any, end: Any, end_score: Any) -> Any:
    """Write x + step * direction to `end`, its score to `end_score`. Returns its log density."""
    for i in range(x.size):
        end[i] = x[i] + step * direction[i]
    return log_density_gradient(target, end, end_score)


@exact
def shorter(promised: Any, rise: Any) -> Any:
    """The part of a step that is too long where the parabola through what is known of it is highest.

    `promised` is what the slope at its beginning says it would rise, `rise` what it does.
    """
    part = 0.5 * promised / (promised - rise)
    return min(part, 0.5) if part > 0.1 else 0.1


@exact
def further(slope: Any, end_slope: Any) -> Any:
    """By how many of its lengths to go on from a step that is too short: to where the slope would be zero."""
    turn = slope - end_slope
    return min(max(end_slope / turn, 1.0), 9.0) if turn > 0.0 else 9.0


@exact
def within(ahead: Any, width: Any) -> Any:
    """`ahead`, but not in the outer tenths of the bracket."""
    return min(max(ahead, 0.1 * width), 0.9 * width)


@exact
def norm(v: Any) -> Any:
    """Euclidean length; squares do not overflow."""
    largest = 0.0
    for i in range(v.size):
        largest = max(largest, abs(v[i]))
    if not (0.0 < largest < np.inf):
        return largest
    total = 0.0
    for i in range(v.size):
        part = v[i] / largest
        total += part * part
    return largest * np.sqrt(total)


@exact
def dot(u: Any, v: Any) -> Any:
    """u . v, in order; that of linear.py may be reordered, and a climb amplifies last digits."""
    total = 0.0
    for i in range(u.size):
        total += u[i] * v[i]
    return total


@exact
def add(out: Any, weight: Any, v: Any) -> None:
    """out += weight * v."""
    for i in range(out.size):
        out[i] += weight * v[i]


def far_below(logp: float, other: float, d: int) -> bool:
    """Whether a mode at `logp` has no share of the mass beside one at `other`, unless vastly wider."""
    return other - logp > 10.0 + 2.0 * d
