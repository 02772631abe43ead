"""Which group a map should have next, and which scale parameter that group has.

`detect` decides this for choice.py from draws and scores in which the present groups are undone. It fits no
law: it computes for every group and every scale parameter how fast F (groups.py) would decrease. For a group
g and a scale parameter h the derivative of F in a slope b of the log scales, t_i = b u_h, is

    sum_i E[u (b_i - a_i)] + E[s_u sum_i (s_i x_i + 1)] / (1 + V(s_u)),  a_i = x_i² / V(x_i),
                                                                        b_i = s_i² / V(s_i)

for u standardised, so that one matrix product gives it for all groups and scale parameters. F is expected to
decrease by the square of the derivative over twice the curvature. Each variable of the program may be a
group. The coordinates of small variables may be scale parameters. So may the coordinates of a variable that
has as many as the group: then each member has its own. If the program has only one variable, all coordinates
with the same scale parameter are a group.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...jit import kernel
from .groups import Group, ScoredDraws, parent_arrays_of

NEED = 20.0  # a group is tried if F is expected to decrease by at least this over the number of draws
LEAST_GAIN = 0.2  # and by at least this, however many draws there are
FEW = 4  # a variable with at most so many coordinates may have scale parameters and locations of others
_SCALES = 100  # most coordinates of a single variable that are tried as scale parameters
_REGRESSORS = 12  # most scale parameters that members are regressed on


def may_be_parents(variables: np.ndarray) -> np.ndarray:
    """Which coordinates (d,) may be scale parameters and locations.

    They are the coordinates of small variables, or all coordinates where there is only one variable.
    """
    return np.asarray((np.bincount(variables)[variables] <= FEW) | (variables.max() == 0))


def detect(
    draws: ScoredDraws, groups: list[Group], variables: np.ndarray, refused: set[tuple[int, int]]
) -> tuple[np.ndarray, np.ndarray, float, tuple[int, int], float] | None:
    """The group that promises the largest decrease of F; None where none promises enough.

    Returns its members, its scale parameters, the sign of beta, its name (its first member and its first
    scale parameter, as in `refused`) and the decrease of F that it promises.
    """
    n, named = len(draws.points), variables.max() > 0
    moved = {int(i) for group in groups for i in group.members}
    roots = {int(parent[0]) for group in groups for parent in parent_arrays_of(group) if len(parent) == 1}
    roots |= {int(i) for group in groups for i in group.scales}
    free = np.array([i for i in range(len(variables)) if i not in moved and i not in roots], np.int64)
    scales = np.array([i for i in np.flatnonzero(may_be_parents(variables)) if i not in moved], np.int64)
    if not free.size:
        return None
    # To try all coordinates takes O(n d²). A scale parameter has large scores, since its group adds to them.
    if not named and scales.size > _SCALES:
        spread = draws.points[:, scales].std(axis=0) * draws.scores[:, scales].std(axis=0)
        scales = np.sort(scales[np.argsort(-spread, kind="stable")[:_SCALES]])
    _, first_of, numbers = np.unique(
        variables[free] if named else free, return_index=True, return_inverse=True
    )
    firsts = free[first_of]
    found, best = None, max(NEED / n, LEAST_GAIN)
    if scales.size:
        gain, derivative = slope_gains(draws, free, numbers, scales)
        own = free[:, None] == scales
        member, scale = np.nonzero(own)
        gain[scale, numbers[member]] = 0.0  # no coordinate is its own scale parameter
        signs = -np.sign(derivative)
        # All coordinates with the same scale parameter and the same sign of the slope are a group.
        if not named:
            clear = gain * (gain > 0.3 * NEED / n)
            sides = np.array([-1.0, 1.0])
            gain = np.stack([(clear * (signs == side)).sum(axis=1) for side in sides], axis=1)
            firsts = sides.astype(np.int64) - 2  # no coordinate has such a number
        for first, place in refused:
            gain[np.ix_(scales == place, firsts == first)] = 0.0
        k, g = (int(i) for i in np.unravel_index(int(gain.argmax()), gain.shape))
        if gain[k, g] >= best:
            best, sign = float(gain[k, g]), float(signs[k, g]) if named else float(sides[g])
            chosen = numbers == g if named else (clear[k] > 0.0) & (signs[k] == sign)
            members = free[chosen & (free != scales[k])]
            found = members, scales[k : k + 1], sign, (int(firsts[g]), int(scales[k])), best
    return _detect_own_scales(draws, free, variables, refused, moved, best) or found


def _detect_own_scales(
    draws: ScoredDraws,
    free: np.ndarray,
    variables: np.ndarray,
    refused: set[tuple[int, int]],
    moved: set[int],
    best: float,
) -> tuple[np.ndarray, np.ndarray, float, tuple[int, int], float] | None:
    """The group among pairs of variables of one size that promises more than `best`; None if none does.

    Each coordinate of one variable is the scale parameter of the coordinate with the same index in the other.
    """
    found = None
    sizes = np.bincount(variables)
    waiting = {int(g) for g in variables[free] if sizes[g] > FEW}
    for g in sorted(waiting):
        members = np.flatnonzero(variables == g)
        if not np.isin(members, free).all():
            continue
        for h in np.flatnonzero(sizes == sizes[g]):
            scales = np.flatnonzero(variables == h)
            name = int(members[0]), int(scales[0])
            if h == g or int(scales[0]) in moved or name in refused:
                continue
            gain, sign = _own_gain(draws.points, draws.scores, members, scales)
            if np.isfinite(gain) and gain > best:
                found, best = (members, scales, sign, name, gain), gain
    return found


@kernel(ordered=True)
def _own_gain(points: Any, scores: Any, members: Any, scales: Any) -> Any:
    """The expected decrease of F by a slope, and the sign of that slope.

    All members have the same slope, each on its own scale parameter.
    """
    n = len(points)
    derivative, curvature = 0.0, 0.0
    x, s, u, t = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    for j in range(members.size):
        _centre(points, members[j], x)
        _centre(scores, members[j], s)
        _centre(points, scales[j], u)
        _centre(scores, scales[j], t)
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
    draws: ScoredDraws, members: np.ndarray, numbers: np.ndarray, scales: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The decrease of F that a slope would bring, and the derivative of F in it: (scale parameters, groups).

    `numbers` (members,) are the numbers of the members' groups, from 0 on.
    """
    found = np.zeros((2, len(scales), int(numbers.max()) + 1))
    screen(draws.points, draws.scores, members, numbers, scales, np.isin(members, scales), *found)
    found[:, ~np.isfinite(found).all(axis=0)] = 0.0
    return found[0], found[1]


@kernel(ordered=True)
def screen(
    points: Any, scores: Any, members: Any, numbers: Any, scales: Any, as_is: Any, gain: Any, derivative: Any
) -> None:
    """Write what `slope_gains` returns.

    The part of x that is linear in a few of the scale parameters is subtracted first: it is a matter of
    locations, not of scales. It stays in members that are `as_is` (members,), since these are scale
    parameters themselves.
    """
    n, (k, variables) = len(points), gain.shape
    u, t, information = np.empty((k, n)), np.empty((k, n)), np.empty(k)
    for h in range(k):
        _centre(points, scales[h], u[h])
        _centre(scores, scales[h], t[h])
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
    ratios, pulls, sizes = np.zeros((variables, n)), np.zeros((variables, n)), np.zeros(variables)
    s = np.empty(n)
    for j in range(members.size):
        if not as_is[j]:
            for b in range(used):
                _subtract(x[j], basis[b], _mean_product(x[j], basis[b]) * n / (n + 3.0))
        _centre(scores, members[j], s)
        of_x, of_s = 1.0 / _mean_product(x[j], x[j]), 1.0 / _mean_product(s, s)
        g = numbers[j]
        sizes[g] += 1.0
        for row in range(n):
            ratios[g, row] += s[row] * s[row] * of_s - x[j, row] * x[j, row] * of_x
            pulls[g, row] += scores[row, members[j]] * x[j, row]
    for g in range(variables):
        mean = pulls[g].mean()
        for row in range(n):
            pulls[g, row] -= mean
        spread = _mean_product(pulls[g], pulls[g])
        for h in range(k):
            slope = _mean_product(u[h], ratios[g]) + _mean_product(t[h], pulls[g]) / information[h]
            derivative[h, g] = slope
            gain[h, g] = 0.5 * slope * slope / (4.0 * sizes[g] + spread / information[h])


@kernel(ordered=True)
def _centre(columns: Any, place: Any, out: Any) -> None:
    mean = 0.0
    for row in range(out.size):
        out[row] = columns[row, place]
        mean += out[row]
    mean /= out.size
    for row in range(out.size):
        out[row] -= mean


@kernel(ordered=True)
def _mean_product(a: Any, b: Any) -> Any:
    total = 0.0
    for row in range(a.size):
        total += a[row] * b[row]
    return total / a.size


@kernel(ordered=True)
def _subtract(a: Any, b: Any, factor: Any) -> None:
    for row in range(a.size):
        a[row] -= factor * b[row]
