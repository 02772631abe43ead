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

from collections.abc import Collection

import numpy as np

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


def scale_candidates(
    points: np.ndarray, scores: np.ndarray, variables: np.ndarray, moved: Collection[int] = ()
) -> np.ndarray:
    """The coordinates that are tried as scale parameters of others: none of those that are `moved`."""
    scales = np.array([i for i in np.flatnonzero(may_be_parents(variables)) if i not in moved], np.int64)
    # To try all coordinates takes O(n d²). A scale parameter has large scores, since its group adds to them.
    if variables.max() == 0 and scales.size > _SCALES:
        spread = points[:, scales].std(axis=0) * scores[:, scales].std(axis=0)
        scales = np.sort(scales[np.argsort(-spread, kind="stable")[:_SCALES]])
    return scales


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
    if not free.size:
        return None
    scales = scale_candidates(draws.points, draws.scores, variables, moved)
    _, first_of, numbers = np.unique(
        variables[free] if named else free, return_index=True, return_inverse=True
    )
    firsts = free[first_of]
    found, best = None, max(NEED / n, LEAST_GAIN)
    if scales.size:
        gain, derivative = slope_gains(draws.points, draws.scores, free, numbers, scales)
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


@np.errstate(all="ignore")  # the caller refuses results that are not finite
def _own_gain(
    points: np.ndarray, scores: np.ndarray, members: np.ndarray, scales: np.ndarray
) -> tuple[float, float]:
    """The expected decrease of F by a slope, and the sign of that slope.

    All members have the same slope, each on its own scale parameter.
    """
    n = len(points)
    u, t = _standardise(points, scores, scales)
    information = 1.0 + np.square(t).mean(axis=1)
    x, s = _centre(points, members), _centre(scores, members)
    x -= (x * u).sum(axis=1, keepdims=True) / (n + 3.0) * u
    pulls = scores[:, members].T * x
    derivative = (u * _differences(x, s)).sum() / n + ((t * pulls).mean(axis=1) / information).sum()
    curvature = (4.0 + pulls.var(axis=1) / information).sum()
    return float(0.5 * derivative * derivative / curvature), float(-np.sign(derivative))


@np.errstate(all="ignore")
def slope_gains(
    points: np.ndarray, scores: np.ndarray, members: np.ndarray, numbers: np.ndarray, scales: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The decrease of F that a slope would bring, and the derivative of F in it: (scale parameters, groups).

    `numbers` (members,) are the numbers of the members' groups, 0, 1, and so on. The part of x that is linear
    in a few of the scale parameters is subtracted first: it is a matter of locations, not of scales. It stays
    in members that are scale parameters themselves.
    """
    n = len(points)
    u, t = _standardise(points, scores, scales)
    information = 1.0 + np.square(t).mean(axis=1)
    x, s = _centre(points, members), _centre(scores, members)
    strength = np.square(u @ x.T / n).sum(axis=1)
    basis = _orthonormal(u[np.argsort(-strength, kind="stable")[:_REGRESSORS]])
    regressed = ~np.isin(members, scales)
    x[regressed] -= (x[regressed] @ basis.T / (n + 3.0)) @ basis
    order = np.argsort(numbers, kind="stable")
    firsts = np.searchsorted(numbers[order], np.arange(numbers.max() + 1))
    ratios = np.add.reduceat(_differences(x, s)[order], firsts)
    pulls = np.add.reduceat((scores[:, members].T * x)[order], firsts)
    pulls -= pulls.mean(axis=1, keepdims=True)
    derivative = u @ ratios.T / n + (t / information[:, None]) @ pulls.T / n
    curvature = 4.0 * np.bincount(numbers) + np.square(pulls).mean(axis=1) / information[:, None]
    gain = 0.5 * np.square(derivative) / curvature
    unknown = ~(np.isfinite(gain) & np.isfinite(derivative))
    gain[unknown] = derivative[unknown] = 0.0
    return gain, derivative


def _centre(columns: np.ndarray, places: np.ndarray) -> np.ndarray:
    """The columns at `places`, less their means, as rows (places, n)."""
    rows = columns.T[places]
    return np.asarray(rows - rows.mean(axis=1, keepdims=True))


def _standardise(points: np.ndarray, scores: np.ndarray, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Centred draws with mean squares 1 and their scores, as rows (places, n)."""
    u, t = _centre(points, places), _centre(scores, places)
    size = np.sqrt(np.square(u).mean(axis=1, keepdims=True))
    return u / size, t * size


def _differences(x: np.ndarray, s: np.ndarray) -> np.ndarray:
    """b_i - a_i of the module's docstring, for each draw: centred draws and scores as rows (members, n)."""
    a, b = np.square(x), np.square(s)
    return np.asarray(b / b.mean(axis=1, keepdims=True) - a / a.mean(axis=1, keepdims=True))


def _orthonormal(rows: np.ndarray) -> np.ndarray:
    """A basis (k, n) of the span of centred rows, with mean squares 1; rows without news add nothing."""
    basis = np.empty((0, rows.shape[1]))
    for row in rows:
        for _ in range(2):  # the second time removes what rounding has left
            row = row - (basis @ row / row.size) @ basis
        size = np.sqrt(np.square(row).mean())
        if size > 1e-6:
            basis = np.concatenate((basis, row[None] / size))
    return basis
