"""A short climb of the log density, out of the far tail, before the first iteration of a sampler.

At a start drawn uniformly from (-2, 2) the log density can be -1e13 and its gradient 1e13. With a step size
that works there, a Langevin chain needs tens of thousands of iterations to reach the typical set. A
quasi-Newton climb needs tens of gradients. The climb stops long before a mode, because a mode may be an
infinite spike (the neck of a funnel), and because finding the typical set is the sampler's own work.

Sources: L-BFGS is Algorithms 7.4 and 7.5 of Nocedal and Wright (2006), Numerical Optimization. The line
search asks for the weak Wolfe conditions only. It brackets a step for them like Algorithm 2.6 of Lewis and
Overton (2013), Nonsmooth optimization via quasi-Newton methods. But where that algorithm halves and doubles,
this one interpolates within bounds. It only requires that the log density is finite at the start. Parameters
of a posterior differ in scale. So the recursion starts from a diagonal, as in Pathfinder (Zhang, Carpenter,
Gelman and Vehtari, 2022), with the update of Gilbert and Lemaréchal (1989), Some numerical experiments with
variable-storage quasi-Newton algorithms.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..jit import kernel
from ..kinds import Flag, Integer, Matrix, Real, Target, Vector
from ..target import log_density, log_density_gradient

_LOOK_BACK = 10  # iterations over which the gain is measured
_GAIN = 5.0  # nats per dimension; a climb goes on while its gain is larger
_NEAR = 5.0  # nats per dimension below the highest point; the tail is further below
MAX_GRADIENTS = 1000
_MEMORY = 10  # pairs of L-BFGS
_SLOTS = _MEMORY + 1
_KNOWN = 5  # with this many pairs, or one for each dimension, the predicted gain is trusted
_LEFT = 1e-3  # nats per dimension; a step is not worth taking if twice its predicted gain is smaller
_AGAIN = 0.5  # nats per dimension that the climb must gain before the memory is cleared again
_TRIES = 30  # largest number of gradients of one line search
_SUFFICIENT = 1e-4  # a step must give this share of the rise that the slope promises
_FLATTER = 0.9  # and the slope at its end is at most this share of the slope at its beginning
_CURVED = 1e-12  # a pair is kept if the cosine between its step and its turn is larger
_ROUNDING = 1e-14  # relative error of a log density


class Ascent(NamedTuple):
    """The result of a climb."""

    x: Any  # (d,) the first point on the way up that is out of the tail
    logp: Any  # the highest log density
    gradients: Any  # how many were evaluated
    top: Any  # (d,) the highest point


class Memory(NamedTuple):
    """The latest pairs of L-BFGS, in a ring. A pair is a step and a turn, both divided by the turn's length.

    This division does not change the inverse Hessian. Without it a curvature of 1e200 would overflow in sums
    of squares.
    """

    steps: Any  # (m + 1, d) one slot more than pairs, so that a pair can be written and then refused
    turns: Any  # (m + 1, d) the score before the step minus the score after it
    inner: Any  # (m + 1,) inner products of steps and turns, all positive
    diagonal: Any  # (d,) the inverse Hessian before the pairs are applied


@kernel(ordered=True)
def climb(target: Target, x: Vector, most: Integer) -> Ascent:
    """Climb from `x` (d,) while the log density still rises by tens of nats in ten iterations.

    It takes at most `most` gradients and then finishes its line search. `most` is `MAX_GRADIENTS` unless
    there is a reason for fewer.

    Returns an `Ascent`. Its point is the first one on the way up that is at most 5 nats a dimension below the
    highest point. If the start is not far out, this is `x` itself. So chains still start apart from each
    other, and further out than the bulk: for a Gaussian up to three standard deviations.

    On the side of a narrow ridge, pairs that were collected far out are misleading: they predict that nothing
    is left to gain, or give a direction in which the log density does not rise. Then the memory is cleared.
    The climb ends if that does not help.
    """
    d = x.size
    way, heights = np.empty((most + 1, d)), np.empty(most + 1)
    score, next_score, direction = np.empty(d), np.empty(d), np.empty(d)
    memory = Memory(np.empty((_SLOTS, d)), np.empty((_SLOTS, d)), np.empty(_SLOTS), np.empty(d))
    for i in range(d):  # way[0] = x would compile the text of an error too, which takes a second
        way[0, i] = x[i]
    heights[0] = log_density_gradient(target, x, score)
    pairs, n, cleared, gradients = 0, 0, 0, 1  # each iteration takes a gradient, so `way` has enough rows
    while gradients < most and rises(heights, n, d):
        slope = ascent_direction(memory, pairs, score, direction)
        logp, tries = heights[n], 0
        if 0.0 < slope < np.inf and not (pairs >= min(d, _KNOWN) and slope < _LEFT * d):
            logp, tries = line_search(target, way[n], heights[n], slope, direction, way[n + 1], next_score)
        gradients += tries
        if logp > heights[n]:
            pairs = remember_pair(memory, pairs, way[n], way[n + 1], score, next_score)
            score, next_score = next_score, score
            n += 1
            heights[n] = logp
        elif heights[n] - heights[cleared] > _AGAIN * d:
            pairs, cleared = 0, n
        else:
            break
    return Ascent(way[first_near_top(heights, n, d)].copy(), heights[n], gradients, way[n].copy())


@kernel(ordered=True)
def rises(heights: Vector, n: Integer, d: Integer) -> Flag:
    """Whether the log density still rises fast enough after iteration `n`."""
    if n < _LOOK_BACK:
        return heights[n] > -np.inf
    return heights[n] - heights[n - _LOOK_BACK] > _GAIN * d


@kernel(ordered=True)
def first_near_top(heights: Vector, n: Integer, d: Integer) -> Integer:
    """The first iteration with a log density near the highest one, which iteration `n` has."""
    first = 0
    while heights[first] < heights[n] - _NEAR * d:
        first += 1
    return first


@kernel(ordered=True)
def ascent_direction(memory: Memory, pairs: Integer, score: Vector, direction: Vector) -> Real:
    """Write the inverse Hessian times the score to `direction` (d,). Returns the slope in this direction.

    If the inverse Hessian is right, half the slope is left to gain. Without pairs the direction is the score
    itself, scaled to the length 1. If the slope is zero, negative or not finite, there is no step.
    """
    for i in range(score.size):
        direction[i] = score[i]
    if pairs == 0:
        length = norm(score)
        if not length > 0.0:
            return 0.0
        for i in range(score.size):
            direction[i] /= length
        return dot_in_order(direction, score)
    newest, oldest = pairs - 1, max(pairs - _MEMORY, 0)
    weights = np.empty(_SLOTS)
    for k in range(newest, oldest - 1, -1):
        j = k % _SLOTS
        weights[j] = dot_in_order(memory.steps[j], direction) / memory.inner[j]
        add(direction, -weights[j], memory.turns[j])
    for i in range(direction.size):
        direction[i] *= memory.diagonal[i]
    for k in range(oldest, newest + 1):
        j = k % _SLOTS
        weight = dot_in_order(memory.turns[j], direction) / memory.inner[j]
        add(direction, weights[j] - weight, memory.steps[j])
    return dot_in_order(direction, score)


@kernel(ordered=True)
def remember_pair(
    memory: Memory, pairs: Integer, x: Vector, end: Vector, score: Vector, end_score: Vector
) -> Integer:
    """Keep the step from `x` to `end` if the log density is concave along it. Returns the number of pairs."""
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
    memory.inner[j] = dot_in_order(step, turn)
    if not memory.inner[j] > _CURVED * norm(step):
        return pairs
    if pairs == 0:
        for i in range(memory.diagonal.size):
            memory.diagonal[i] = memory.inner[j]
    rescale(memory.diagonal, step, turn, memory.inner[j])
    return pairs + 1


@kernel(ordered=True)
def rescale(diagonal: Vector, step: Vector, turn: Vector, inner: Real) -> None:
    """Update the diagonal by a pair, as Gilbert and Lemaréchal do."""
    before, after = 0.0, 0.0
    for i in range(step.size):
        before += turn[i] * turn[i] * diagonal[i]
        after += step[i] * step[i] / diagonal[i]
    for i in range(step.size):
        part = step[i] / diagonal[i]
        curvature = before / diagonal[i] + turn[i] * turn[i] - before * (part * part / after)
        if curvature > 0.0:
            diagonal[i] = inner / curvature


@kernel(ordered=True)
def line_search(
    target: Target, x: Vector, logp: Real, slope: Real, direction: Vector, end: Vector, end_score: Vector
) -> tuple[Real, Integer]:
    """Write a higher point ahead of `x` (d,) to `end` (d,), and its score to `end_score` (d,).

    The point meets both weak Wolfe conditions: the rise is sufficient, and the slope there is smaller. If the
    search finds no such point, it takes the last point with a sufficient rise. Returns the log density of
    this point, or of `x` if there is none, and the number of gradients.
    """
    low, low_logp, low_slope = 0.0, logp, slope  # the longest step that is known to be too short
    high = np.inf  # the shortest step that is known to be too long
    step, tries = 1.0, 0
    while tries < _TRIES:
        tries += 1
        end_logp = step_to(target, x, step, direction, end, end_score)
        if not end_logp >= logp + _SUFFICIENT * step * slope:
            if step * slope < _ROUNDING * abs(logp):
                break  # rounding hides any rise of so short a step
            high = step
            step = low + (high - low) * interpolate(low_slope * (high - low), end_logp - low_logp)
            continue
        end_slope = dot_in_order(end_score, direction)
        if not end_slope > _FLATTER * slope:
            return end_logp, tries
        ahead = (step - low) * extrapolate(low_slope, end_slope)
        low, low_logp, low_slope = step, end_logp, end_slope
        step = low + (ahead if high == np.inf else keep_inside(ahead, high - low))
    if low == 0.0:
        return logp, tries
    return step_to(target, x, low, direction, end, end_score), tries + 1


@kernel(ordered=True)
def step_to(target: Target, x: Vector, step: Real, direction: Vector, end: Vector, end_score: Vector) -> Real:
    """Write x + step * direction to `end`, and its score to `end_score`. Returns its log density."""
    for i in range(x.size):
        end[i] = x[i] + step * direction[i]
    return log_density_gradient(target, end, end_score)


@kernel(ordered=True)
def interpolate(promised: Real, rise: Real) -> Real:
    """The share of a step that was too long, from 0.1 to 0.5, at which a parabola along it is highest.

    The slope at the beginning of the step promises the rise `promised`; the actual one is `rise`.
    """
    part = 0.5 * promised / (promised - rise)
    return min(part, 0.5) if part > 0.1 else 0.1


@kernel(ordered=True)
def extrapolate(slope: Real, end_slope: Real) -> Real:
    """How far to go on after a step that was too short, in steps: to where the slope would be zero."""
    turn = slope - end_slope
    return min(max(end_slope / turn, 1.0), 9.0) if turn > 0.0 else 9.0


@kernel(ordered=True)
def keep_inside(ahead: Real, width: Real) -> Real:
    """`ahead`, moved out of the outer tenths of a bracket of this width."""
    return min(max(ahead, 0.1 * width), 0.9 * width)


@kernel(ordered=True)
def norm(v: Vector) -> Real:
    """Euclidean length, computed so that squares do not overflow."""
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


@kernel(ordered=True)
def dot_in_order(u: Vector, v: Vector) -> Real:
    """u . v, summed in order: a climb amplifies last digits, and `dot` of linear.py may be reordered."""
    total = 0.0
    for i in range(u.size):
        total += u[i] * v[i]
    return total


@kernel(ordered=True)
def add(out: Vector, weight: Real, v: Vector) -> None:
    """out += weight * v."""
    for i in range(out.size):
        out[i] += weight * v[i]


def far_below(logp: float, other: float, d: int) -> bool:
    """Whether a mode with log density `logp` has no mass beside a mode with log density `other`.

    It could have mass only if it were vastly wider.
    """
    return other - logp > 10.0 + 2.0 * d


@kernel
def write_heights(target: Target, points: Matrix, heights: Vector) -> None:
    """Write the log density at points (n, d) to `heights` (n,), up to the first point that has none."""
    for i in range(len(points)):
        heights[i] = log_density(target, points[i])
        if heights[i] == -np.inf:
            return
