"""Which scale rules which coordinates, by one look at draws and scores.

For a group g and a head h the derivative of F (groups.py) in a slope b of the log scales,
t_i = b u_h, is

    sum_i E[u (b_i - a_i)] + E[s_u sum_i (s_i x_i + 1)] / (1 + V(s_u)),  a_i = x_i² / V(x_i),
                                                                        b_i = s_i² / V(s_i)

for u standardised: one matrix product for all of them. Its square over twice the curvature is what F would
fall by. Variables of the program are the groups, and those of a few coordinates may be heads; so may those of
as many coordinates as the group has, each of them its own. Where there is one variable alone, all coordinates
with the same head are a group.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...jit import exact
from .groups import Draws, Pair, rulers_of

NEED = 20.0  # expected fall of F, times the number of draws, from which on a pair is tried
LEAST_GAIN = 0.2  # the expected fall of F itself that this takes at least, however many draws there are
FEW = 4  # coordinates of a variable that may be heads and locations of others
_HEADS = 100  # coordinates of one large variable that are tried as heads
_REGRESSORS = 12  # heads that a location may be made of


def may_rule(groups: np.ndarray) -> np.ndarray:
    """Which coordinates (d,) may be heads and locations: those of small variables, if there are several."""
    return np.asarray((np.bincount(groups)[groups] <= FEW) | (groups.max() == 0))


def detect(
    draws: Draws, pairs: list[Pair], groups: np.ndarray, refused: set[tuple[int, int]]
) -> tuple[np.ndarray, np.ndarray, float, tuple[int, int], float] | None:
    """The members, heads and sign of beta of the pair that promises most; None where none does.

    With its name, its first member and head, as in `refused`, and the fall of F that it promises.
    """
    n, named = len(draws.points), groups.max() > 0
    moved = {int(i) for pair in pairs for i in pair.members}
    roots = {int(ruler[0]) for pair in pairs for ruler in rulers_of(pair) if len(ruler) == 1}
    roots |= {int(i) for pair in pairs for i in pair.heads}
    free = np.array([i for i in range(len(groups)) if i not in moved and i not in roots], np.int64)
    heads = np.array([i for i in np.flatnonzero(may_rule(groups)) if i not in moved], np.int64)
    if not free.size:
        return None
    if not named and heads.size > _HEADS:  # all pairs take O(n d²), and a head feels the scales of its group
        spread = draws.points[:, heads].std(axis=0) * draws.scores[:, heads].std(axis=0)
        heads = np.sort(heads[np.argsort(-spread, kind="stable")[:_HEADS]])
    _, first_of, group = np.unique(groups[free] if named else free, return_index=True, return_inverse=True)
    firsts = free[first_of]
    found, best = None, max(NEED / n, LEAST_GAIN)
    if heads.size:
        gain, derivative = slope_gains(draws, free, group, heads)
        own = free[:, None] == heads
        member, head = np.nonzero(own)
        gain[head, group[member]] = 0.0  # no group rules itself
        signs = -np.sign(derivative)
        if not named:  # all coordinates whose scales follow the same head in the same direction are a group
            clear = gain * (gain > 0.3 * NEED / n)
            sides = np.array([-1.0, 1.0])
            gain = np.stack([(clear * (signs == side)).sum(axis=1) for side in sides], axis=1)
            firsts = sides.astype(np.int64) - 2  # no coordinate has such a number
        for first, place in refused:
            gain[np.ix_(heads == place, firsts == first)] = 0.0
        k, g = (int(i) for i in np.unravel_index(int(gain.argmax()), gain.shape))
        if gain[k, g] >= best:
            best, sign = float(gain[k, g]), float(signs[k, g]) if named else float(sides[g])
            chosen = group == g if named else (clear[k] > 0.0) & (signs[k] == sign)
            members = free[chosen & (free != heads[k])]
            found = members, heads[k : k + 1], sign, (int(firsts[g]), int(heads[k])), best
    return _detect_own_heads(draws, free, groups, refused, moved, best) or found


def _detect_own_heads(
    draws: Draws,
    free: np.ndarray,
    groups: np.ndarray,
    refused: set[tuple[int, int]],
    moved: set[int],
    best: float,
) -> tuple[np.ndarray, np.ndarray, float, tuple[int, int], float] | None:
    """The same of two variables of one size: each coordinate of one is the head of its like in the other."""
    found = None
    sizes = np.bincount(groups)
    waiting = {int(g) for g in groups[free] if sizes[g] > FEW}
    for g in sorted(waiting):
        members = np.flatnonzero(groups == g)
        if not np.isin(members, free).all():
            continue
        for h in np.flatnonzero(sizes == sizes[g]):
            heads = np.flatnonzero(groups == h)
            name = int(members[0]), int(heads[0])
            if h == g or int(heads[0]) in moved or name in refused:
                continue
            gain, sign = _own_gain(draws.points, draws.scores, members, heads)
            if np.isfinite(gain) and gain > best:
                found, best = (members, heads, sign, name, gain), gain
    return found


@exact
def _own_gain(points: Any, scores: Any, members: Any, heads: Any) -> Any:
    """The fall of F by one slope for all members on their own heads, and the sign of that slope."""
    n = len(points)
    derivative, curvature = 0.0, 0.0
    x, s, u, t = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    for j in range(members.size):
        _centre(points, members[j], x)
        _centre(scores, members[j], s)
        _centre(points, heads[j], u)
        _centre(scores, heads[j], t)
        size = np.sqrt(_mean_product(u, u))
        _subtract(x, u, _mean_product(x, u) / (size * size) * n / (n + 3.0))
        of_x, of_s = 1.0 / _mean_product(x, x), 1.0 / _mean_product(s, s)
        information = 1.0 + _mean_product(t, t) * size * size
        mean, pulled, squares = 0.0, 0.0, 0.0
        for row in range(n):
            pull = scores[row, members[j]] * x[row]
            mean += pull / n
            squares += pull * pull / n
            pulled += t[row] * pull * size / n
            derivative += u[row] / size * (s[row] * s[row] * of_s - x[row] * x[row] * of_x) / n
        derivative += pulled / information
        curvature += 4.0 + (squares - mean * mean) / information
    return 0.5 * derivative * derivative / curvature, -np.sign(derivative)


def slope_gains(
    draws: Draws, members: np.ndarray, group: np.ndarray, heads: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The fall of F that a slope would bring, and the derivative of F in it: (heads, groups).

    `group` (members,) are the numbers of the members' groups, from 0 on.
    """
    found = np.zeros((2, len(heads), int(group.max()) + 1))
    screen(draws.points, draws.scores, members, group, heads, np.isin(members, heads), *found)
    found[:, ~np.isfinite(found).all(axis=0)] = 0.0
    return found[0], found[1]


@exact
def screen(
    points: Any, scores: Any, members: Any, group: Any, heads: Any, as_is: Any, gain: Any, derivative: Any
) -> None:
    """Write what `slope_gains` returns.

    x is taken without what is linear in a few of the heads, since a location is none of the scale's business;
    members that are `as_is` (members,), heads themselves, are taken whole.
    """
    n, (k, groups) = len(points), gain.shape
    u, t, information = np.empty((k, n)), np.empty((k, n)), np.empty(k)
    for h in range(k):
        _centre(points, heads[h], u[h])
        _centre(scores, heads[h], t[h])
        size = np.sqrt(_mean_product(u[h], u[h]))
        for row in range(n):
            u[h, row] /= size
            t[h, row] *= size
        information[h] = 1.0 + _mean_product(t[h], t[h])
    x = np.empty((members.size, n))
    strength = np.zeros(k)
    for j in range(members.size):
        _centre(points, members[j], x[j])
        for h in range(k):
            strength[h] += _mean_product(u[h], x[j]) ** 2
    basis, used = np.empty((min(k, _REGRESSORS), n)), 0
    for h in np.argsort(-strength)[:_REGRESSORS]:
        v = u[h].copy()
        for b in range(used):
            _subtract(v, basis[b], _mean_product(v, basis[b]))
        size = np.sqrt(_mean_product(v, v))
        if size > 1e-6:
            for row in range(n):
                basis[used, row] = v[row] / size
            used += 1
    ratios, pulls, sizes = np.zeros((groups, n)), np.zeros((groups, n)), np.zeros(groups)
    s = np.empty(n)
    for j in range(members.size):
        if not as_is[j]:
            for b in range(used):
                _subtract(x[j], basis[b], _mean_product(x[j], basis[b]) * n / (n + 3.0))
        _centre(scores, members[j], s)
        of_x, of_s = 1.0 / _mean_product(x[j], x[j]), 1.0 / _mean_product(s, s)
        g = group[j]
        sizes[g] += 1.0
        for row in range(n):
            ratios[g, row] += s[row] * s[row] * of_s - x[j, row] * x[j, row] * of_x
            pulls[g, row] += scores[row, members[j]] * x[j, row]
    for g in range(groups):
        mean = pulls[g].mean()
        for row in range(n):
            pulls[g, row] -= mean
        spread = _mean_product(pulls[g], pulls[g])
        for h in range(k):
            slope = _mean_product(u[h], ratios[g]) + _mean_product(t[h], pulls[g]) / information[h]
            derivative[h, g] = slope
            gain[h, g] = 0.5 * slope * slope / (4.0 * sizes[g] + spread / information[h])


@exact
def _centre(columns: Any, place: Any, out: Any) -> None:
    mean = 0.0
    for row in range(out.size):
        out[row] = columns[row, place]
        mean += out[row]
    mean /= out.size
    for row in range(out.size):
        out[row] -= mean


@exact
def _mean_product(a: Any, b: Any) -> Any:
    total = 0.0
    for row in range(a.size):
        total += a[row] * b[row]
    return total / a.size


@exact
def _subtract(a: Any, b: Any, factor: Any) -> None:
    for row in range(a.size):
        a[row] -= factor * b[row]
