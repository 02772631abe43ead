"""Which numbers a law has: its thresholds a_i, its y_i, C and c.

`fit_law` finds them for choice.py and exact_laws.py, from draws and scores, for a group with given members,
scale parameters and locations. One compiled pass computes F (groups.py) on a grid of thresholds, and a
parabola through the least values gives the threshold of each member; a prior pulls the thresholds of a group
together. Weighted least squares give y_i, C and c. C becomes an integer if an integer fits as well: in a
funnel C must be exactly 1, or the map does not reach the neck. A threshold just beyond the draws counts as
none.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...jit import kernel
from .groups import TINY, Group, ScoredDraws, View, divergence, variance, view_of

_POOL = 3.0  # weight of the thresholds' common value in this prior, as a number of draws
_PRIOR = 0.1  # weight of the mean of eta in the draws, likewise
_FLAT = 3.0  # the prior treats larger distances from these two values like this one
_OUTSIDE, _STEP = 2.5, 0.5  # the grid of thresholds goes so far beyond the draws; its largest step
_FARTHEST = 15.0  # the grid ignores draws beyond this distance from the mean: the chain is on its way
_LIMIT = 12.0  # a threshold at this distance or beyond stands for an infinite one
_NO_DATA = 9.0  # a threshold beyond this distance comes from a precision that is only rounding error
# A threshold is kept only if it decreases F by more than this, over the number of draws. In a pure funnel,
# which has no threshold, chance decreases F by that much, and a map with a threshold would make a new funnel
# beyond it.
_FREE, _FREE_EACH = 4.0, 0.25
_WHOLE, _NEARLY_WHOLE = 0.06, 0.3  # nearer to C than this, relatively, an integer is taken, or is tried
_WEIGHT = 2.0  # of the prior of y, as a number of draws; this prior has the mean of x, or 0 if beta < 0


def fit_law(draws: ScoredDraws, law: Group, *, free: bool = True, offset: bool = False) -> Group:
    """The law with thresholds and y fitted to draws, and C and c too if it is `free`.

    Without `offset` a free law has c = 0. A law that is not free keeps its C and c. An unknown error is left
    out: only scores tell it (exact_laws.py).
    """
    law = law._replace(error=-1)
    view = view_of(draws, law)
    if not free:
        return _with_numbers(law, view, law.slope, law.offset)
    return _fit_place(draws, law, view, offset=offset and view.up)


def law_with_data(draws: ScoredDraws, law: Group, precision: np.ndarray, weighted: np.ndarray) -> Group:
    """The law for data N(y, sigma²), where 1 / sigma² and y / sigma² (m,) are known.

    Where a member has no data, its threshold stands for an infinite one, and draws tell which one does.
    """
    view = view_of(draws, law)
    centres = view.eta.mean(axis=1)
    far = np.maximum(_LIMIT, view.eta.max(axis=1) - centres + _OUTSIDE + 1.0)
    sign = 1.0 if view.up else -1.0
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = -0.5 * np.log(precision)  # of sigma
        thresholds = sign * logs
        has_data = (precision > 0.0) & (sign * (thresholds - centres) < _NO_DATA)
        data = weighted / (precision if view.up else np.sqrt(precision))
    nothing = view.x.mean(axis=1) if view.up else np.zeros(len(view.x))
    return law._replace(
        thresholds=np.where(has_data, thresholds, centres + sign * far),
        data=np.where(has_data, data, nothing),
    )


def _fit_place(draws: ScoredDraws, law: Group, view: View, *, offset: bool) -> Group:
    """The law with all its numbers fitted: C if it has a location, and c if it shall have an `offset`."""
    located = law.is_located
    if not (located or offset):
        return _with_numbers(law, view, 0.0, 0.0)
    slope, shift = _first_place(view, located, offset)
    group = _with_numbers(law, view, slope, shift)
    for _ in range(2):
        group = _with_numbers(law, view, *_solve_place(view, group, located, offset))
    whole = float(np.round(group.slope))
    if located and whole != 0.0 and abs(group.slope - whole) < _NEARLY_WHOLE * abs(whole):
        near = abs(group.slope - whole) < _WHOLE * abs(whole)
        shift = _solve_place(view, group, False, offset, whole)[1]
        other = _with_numbers(law, view, whole, shift)
        if near or divergence(draws, other, view) < divergence(draws, group, view) + 2.0 / len(view.x[0]):
            group = other
    if offset and group.offset != 0.0:
        plain = float(f"{group.offset:.2g}")
        other = _with_numbers(law, view, group.slope, plain)
        if divergence(draws, other, view) < divergence(draws, group, view) + 2.0 / len(view.x[0]):
            group = other
    return group


def _with_numbers(law: Group, view: View, slope: float, offset: float) -> Group:
    """The law with C and c, and with the thresholds and y that go with them."""
    thresholds, data = _fit_thresholds(view, slope, offset)
    return law._replace(slope=slope, offset=offset, thresholds=thresholds, data=data)


def _first_place(view: View, located: bool, offset: bool) -> tuple[float, float]:
    """C and c by least squares without weights; zeros where beta is negative."""
    if not view.up:
        return 0.0, 0.0
    x, p = (view.x.mean(axis=0), view.p[0]) if len(view.p) == 1 else (view.x.ravel(), view.p.ravel())
    if not located:
        return 0.0, float(x.mean())
    if not offset:
        return float((x * p).sum() / np.square(p).sum()), 0.0
    slope = float(np.cov(x, p)[0, 1] / p.var(ddof=1))
    return slope, float(x.mean() - slope * p.mean())


def _solve_place(
    view: View, group: Group, located: bool, offset: bool, slope: float = 0.0
) -> tuple[float, float]:
    """C, if the law is `located`, and c, if it has an `offset`, by weighted least squares.

    `group` gives the thresholds and y. Unless the law is `located`, C is `slope`. Where all thresholds
    lie beyond the draws, no draw shows the location; then the sums are zero, and C and c stay as they are.
    """
    x, eta, p, up = view.x, view.eta, view.p, view.up
    pp, p1, one, xp, x1 = _regress(x, eta, p, up, group.thresholds, group.data)
    if located and offset:
        det = pp * one - p1 * p1
        if not det > 0.0:
            return group.slope, group.offset
        return (xp * one - x1 * p1) / det, (x1 * pp - xp * p1) / det
    if located:
        return xp / pp if pp > 0.0 else group.slope, 0.0
    if not offset:
        return slope, 0.0
    return slope, (x1 - slope * p1) / one if one > 0.0 else group.offset


@kernel(ordered=True)
def _regress(x: Any, eta: Any, p: Any, up: Any, thresholds: Any, data: Any) -> Any:
    """The weighted sums of p², p, 1, x p and x over all members, for the regression of x on p and 1."""
    m, n = x.shape
    pp, p1, one, xp, x1 = 0.0, 0.0, 0.0, 0.0, 0.0
    target, along = np.empty(n), np.empty(n)
    for j in range(m):
        h, q = j if len(eta) > 1 else 0, j if len(p) > 1 else 0
        factor = 1.0 if up else np.exp(thresholds[j])
        for t in range(n):
            w = max(1.0 / (1.0 + np.exp(-2.0 * (eta[h, t] - thresholds[j]))), TINY)
            root, left = np.sqrt(w), 1.0 - w
            if up:
                target[t], along[t] = (x[j, t] - w * data[j]) / root, left / root
            else:
                target[t], along[t] = x[j, t] / root - np.sqrt(left) * data[j], np.sqrt(left) * factor
        size = 1.0 / variance(target)
        for t in range(n):
            a = along[t] * size
            pp += a * along[t] * p[q, t] * p[q, t]
            p1 += a * along[t] * p[q, t]
            one += a * along[t]
            xp += a * target[t] * p[q, t]
            x1 += a * target[t]
    return pp, p1, one, xp, x1


def _fit_thresholds(view: View, slope: float, offset: float) -> tuple[np.ndarray, np.ndarray]:
    """The thresholds and y of all members (m,), from F on a grid of thresholds."""
    x, s, eta, p, up, _ = view
    thresholds, data = _search_thresholds(x, s, eta, slope * p + offset, up)
    return thresholds, data


@kernel(ordered=True)
def _search_thresholds(x: Any, s: Any, eta: Any, at: Any, up: Any) -> Any:
    """The thresholds and y of all members (m,), where `at` (1 or m, n) is C p + c."""
    (m, n), scales = x.shape, len(eta)
    centres, low, high = np.empty(scales), np.inf, -np.inf
    for h in range(scales):
        centres[h] = eta[h].sum() / n
        low, high = min(low, eta[h].min() - centres[h]), max(high, eta[h].max() - centres[h])
    low, high = max(low, -_FARTHEST) - _OUTSIDE, min(high, _FARTHEST) + _OUTSIDE
    inside = max(3, int(np.ceil((high - low) / _STEP)) + 1)
    step, last = (high - low) / (inside - 1), inside + 1
    grid = np.empty(inside + 2)
    grid[0], grid[last] = min(-_LIMIT, low - 1.0), max(_LIMIT, high + 1.0)
    for k in range(inside):
        grid[k + 1] = low
        grid[k + 1] += k * step
    values, data = np.empty((m, inside + 2)), np.empty((m, inside + 2))
    _scan(x, s, eta, at, up, centres, grid, values, data)
    common, least, sums = 0, np.inf, np.zeros(inside + 2)
    for k in range(inside + 2):
        for j in range(m):
            if not np.isfinite(values[j, k]):
                values[j, k] = np.inf
            sums[k] += values[j, k]
        if sums[k] + 0.5 * m * _prior(grid[k]) / n < least:
            common, least = k, sums[k] + 0.5 * m * _prior(grid[k]) / n
    if sums[last] - sums[common] < (_FREE + _FREE_EACH * m) / n:
        common = last
    thresholds, chosen = np.empty(m), np.empty(m)
    for j in range(m):
        best, least = 0, np.inf
        for k in range(inside + 2):
            apart = min(max(grid[k] - grid[common], -_FLAT), _FLAT)
            values[j, k] += 0.5 * (_POOL * (apart * apart) + _prior(grid[k])) / n
            if values[j, k] < least:
                best, least = k, values[j, k]
        thresholds[j], chosen[j] = grid[best], data[j, best]
        if 1 < best < inside:  # a parabola through the best and its neighbours
            below, above = values[j, best - 1], values[j, best + 1]
            shift = 0.5 * (below - above) / (below - 2.0 * values[j, best] + above)
            if np.isfinite(shift):
                shift = min(max(shift, -0.5), 0.5)
                side = 1 if shift > 0.0 else -1
                thresholds[j] += shift * step
                chosen[j] += abs(shift) * (data[j, best + side] - chosen[j])
        thresholds[j] += centres[j if scales > 1 else 0]
    return thresholds, chosen


@kernel(ordered=True)
def _prior(threshold: Any) -> Any:
    near = min(max(threshold, -_FLAT), _FLAT)
    return _PRIOR * (near * near)


@kernel
def _scan(
    x: Any, s: Any, eta: Any, at: Any, up: Any, centres: Any, grid: Any, values: Any, data: Any
) -> None:
    """Write log(V(z) V(s_z)) / 2 and y (m, K) of m members, for K thresholds around the mean of eta.

    `at` (1 or m, n) is C p + c.
    """
    m, n = x.shape
    root, inverse, left, place = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    weight, total, factor = np.empty(n), 1.0, 1.0
    for k in range(grid.size):
        for j in range(m):
            if j == 0 or len(eta) > 1:  # what the members share
                threshold = centres[j if len(eta) > 1 else 0] + grid[k]
                row = eta[j if len(eta) > 1 else 0]
                factor = 1.0 if up else np.exp(threshold)
                total = _WEIGHT
                for t in range(n):
                    w = max(1.0 / (1.0 + np.exp(-2.0 * (row[t] - threshold))), TINY)
                    root[t] = np.sqrt(w)
                    inverse[t] = 1.0 / root[t]
                    left[t] = np.sqrt(1.0 - w)
                    weight[t] = w if up else root[t] * left[t]
                    total += w if up else 1.0 - w
            if j == 0 or len(eta) > 1 or len(at) > 1:
                here = at[j if len(at) > 1 else 0]
                for t in range(n):  # x_i = place + weight y + root z_i
                    place[t] = factor * here[t] * (left[t] * left[t] if up else root[t] * left[t])
            y = 0.0
            if up:
                mean = 0.0
                for t in range(n):
                    y += x[j, t] - place[t]
                    mean += x[j, t]
                y += _WEIGHT * mean / n
            else:
                for t in range(n):
                    y += left[t] * inverse[t] * (x[j, t] - place[t])
            y /= total
            z1, z2, s1, s2 = 0.0, 0.0, 0.0, 0.0
            for t in range(n):
                z = (x[j, t] - place[t] - weight[t] * y) * inverse[t]
                score = s[j, t] * root[t]
                z1 += z
                z2 += z * z
                s1 += score
                s2 += score * score
            values[j, k] = 0.5 * np.log((z2 / n - z1 * z1 / n / n) * (s2 / n - s1 * s1 / n / n))
            data[j, k] = y
