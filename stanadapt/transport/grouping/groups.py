"""What a group is, and how well draws and scores support it: the divergence F that grouping/ minimises.

A group is a set of coordinates whose scales follow one law of group.py. The functions here turn the rows of a
map into groups and back, undo groups in draws, and compute F; the other files of grouping/ use them to decide
between laws. They all use these words, with the symbols of group.py:

    member            a coordinate x_i of the group
    scale parameter   a coordinate u that is the log of the members' scale, times a constant
    location          a coordinate p in the members' prior mean C p + c; c is its offset
    threshold         a_i, which stands for the precision of a member's data; y_i stands for their value
    place             a location, or one location for each member
    to undo a group   to turn its members x_i into z_i, in draws and in their scores
    explain wholly    a law explains scores wholly if a regression on its terms leaves nothing (scores.py)

With the draws z and scores s_z that a map gives,

    F = sum_i log(V(z_i) V(s_zi)) / 2          over the coordinates that are moved
      + sum_h log(1 + V(z_h) V(s_zh)) / 2      over the scale parameters and locations that move them.

log V(z) V(s_z) is 0 for a normal law of any scale and grows with every way in which draws and scores
disagree: it is the Fisher divergence from a normal law, E |s_z + z|², without its scale. For a pure funnel
x_i = e^u w_i the score is -e^-u w_i, and log |x_i| - log |s_i| = 2 u exactly, so that few draws tell the law.
A map may be fitted to draws that have not seen the neck and still reach into it, because the model has the
same law there.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...jit import kernel
from ..map_table import (
    APART,
    BETA,
    BETA_2,
    CENTRED,
    COLUMNS,
    DATA,
    ERROR_MIDDLE,
    KIND,
    LOCATION,
    LOG_UNITS,
    NOT_CENTRED,
    OFFSET,
    OWN,
    PART,
    PART_BETA,
    PART_SCALE,
    REFERENCE,
    ROWS,
    SCALE,
    SECOND,
    SLOPE,
    THRESHOLD,
    UNIT,
    has_error,
    is_of_group,
    without_error_scales,
)

TINY = 1e-250  # smaller weights w become this
_NO_PARTS = np.array([-1])
_DIGITS = 12  # decimals of C: a table holds C times a factor, and rounding makes an integer C exact again


class Group(NamedTuple):
    """A group of m coordinates whose scales follow one law."""

    members: np.ndarray  # (m,) int64
    scales: np.ndarray  # (1,) int64, the scale parameter that all share; or (m,), one for each member
    beta: float
    second: int  # a second scale parameter, which all members share; -1 for none
    beta_2: float
    locations: np.ndarray  # (1,) int64, -1 for none; or (m,), one for each member
    slope: float  # C
    offset: float  # c; 0 where beta < 0
    thresholds: np.ndarray  # (m,) a
    data: np.ndarray  # (m,) y
    # For locations p + e^(b v) x_q, which are not centred themselves: the coordinates q and v, and b.
    parts: np.ndarray = _NO_PARTS  # (m,), or (1,) -1 for none
    part_scale: int = -1
    part_beta: float = 0.0
    # For data with an unknown error: its log scale v, -1 for none, and the v at which thresholds hold.
    error: int = -1
    middle: float = 0.0

    @property
    def is_located(self) -> bool:
        """Whether the group has a location."""
        return bool((self.locations >= 0).any()) or self.part_scale >= 0

    @property
    def are_apart(self) -> bool:
        """Whether each member has a location of its own."""
        return len(self.locations) > 1 or len(self.parts) > 1

    def at(self, locations: np.ndarray) -> Group:
        """The same law with other locations, each a single coordinate."""
        return self._replace(locations=locations, parts=_NO_PARTS, part_scale=-1, part_beta=0.0)

    @property
    def error_beta(self) -> float:
        """What eta multiplies the log scale of the error by."""
        return -1.0 if self.beta > 0.0 else 1.0


class Likelihood(NamedTuple):
    """A normal likelihood that coordinates share."""

    precision: np.ndarray  # (n,) of the error, at each draw
    parameters: np.ndarray  # (k,) the coordinates that its mean may depend on; and, for each member,
    partners: tuple[np.ndarray, ...] = ()  # (d,) one coordinate of another variable, -1 for none
    error: int = -1  # the log scale of the error, -1 if it is known
    middle: float = 0.0  # the median of that scale, where the precision is 1


class ScoredDraws(NamedTuple):
    """Draws and scores (n, d), in which some groups may be undone already."""

    points: np.ndarray
    scores: np.ndarray
    likelihood: Likelihood | None = None  # some law explains scores wholly with its help
    known: dict[Any, Any] | None = None  # what regressions of these draws have given, see scores.py

    def part(self, rows: slice | np.ndarray) -> ScoredDraws:
        more = self.likelihood
        if more is not None:
            more = more._replace(precision=more.precision[rows])
        return ScoredDraws(self.points[rows], self.scores[rows], more)

    def halves(self) -> tuple[ScoredDraws, ScoredDraws]:
        """The older and the newer half of the draws."""
        half = len(self.points) // 2
        return self.part(slice(0, half)), self.part(slice(half, None))


class View(NamedTuple):
    """The values of n draws that the law of a group depends on."""

    x: np.ndarray  # (m, n) the members
    s: np.ndarray  # (m, n) their scores
    eta: np.ndarray  # (1 or m, n) the log scale, before the threshold is subtracted
    p: np.ndarray  # (1 or m, n) the location; zeros where there is none
    up: bool  # whether beta is positive
    factor: np.ndarray  # (n,) of scales, or of locations where beta is negative, by the error


def groups_of(table: np.ndarray) -> list[Group]:
    """The groups of a map, in its order.

    Rows that follow one law, each with its own scale parameter, are one group.
    """
    found: list[Group] = []
    for k in np.flatnonzero(is_of_group(table) & (table[:, ROWS] > 0.0)):
        rows = table[k : k + int(table[k, ROWS])]
        first = rows[0]
        thresholds, second = first[REFERENCE] + 0.5 * np.log(rows[:, THRESHOLD]), first[[SECOND, BETA_2]]
        error, middle = -1, 0.0
        if has_error(first[SECOND], first[BETA], first[BETA_2]):
            error, middle = int(first[SECOND]), float(first[ERROR_MIDDLE])
            thresholds, second = thresholds - first[BETA_2] * middle, np.array([-1.0, 0.0])
        slope = float(first[SLOPE])
        if first[BETA] < 0.0:
            slope = float(np.round(slope * np.exp(-thresholds[0]), _DIGITS))
        apart = bool(first[APART] > 0.0)
        scales, members = rows[:1, SCALE].astype(np.int64), rows[:, OWN].astype(np.int64)
        locations = rows[: len(rows) if apart else 1, LOCATION].astype(np.int64)
        law = float(first[BETA]), int(second[0]), float(second[1]), locations
        parts = rows[: len(rows) if first[PART] >= 0.0 else 1, PART].astype(np.int64)
        part_beta = float(first[PART_BETA]) if error < 0 else 0.0
        of_parts = parts, int(first[PART_SCALE]), part_beta
        if first[PART] >= 0.0:
            law = (*law[:3], locations[:1])
        numbers = slope, float(first[OFFSET]), thresholds, rows[:, DATA].copy()
        group = Group(members, scales, *law, *numbers, *of_parts, error, middle)
        before = found[-1] if found else None
        alone = len(rows) == 1 and before is not None and len(before.scales) == len(before.members)
        if before is not None and alone and _is_continued(before, group, apart):
            found[-1] = before._replace(
                members=np.append(before.members, group.members),
                scales=np.append(before.scales, group.scales),
                locations=np.append(before.locations, locations) if apart else locations,
                thresholds=np.append(before.thresholds, group.thresholds),
                data=np.append(before.data, group.data),
            )
        else:
            found.append(group)
    return found


def _is_continued(before: Group, group: Group, apart: bool) -> bool:
    """Whether `group`, a row with its own scale parameter, belongs to the group before it."""
    if before[2:5] != group[2:5] or before.scales[-1] == group.scales[0]:
        return False
    return apart or np.array_equal(before.locations, group.locations)


def group_rows(groups: list[Group], points: np.ndarray) -> np.ndarray:
    """The rows of a map for these groups.

    z_i has the unit of x_i where the scale parameters have the means of their draws, columns of `points`
    (n, d).
    """
    tables = [np.empty((0, COLUMNS))]
    for group in groups:
        rows = np.zeros((len(group.members), COLUMNS))
        own = len(group.scales) > 1
        references = group.thresholds if own else np.full(len(rows), group.thresholds.mean())
        middles = group.beta * points[:, group.scales].mean(axis=0)
        if group.second >= 0:
            middles = middles + group.beta_2 * points[:, group.second].mean()
        if group.error >= 0:
            middles = middles + group.error_beta * (points[:, group.error].mean() - group.middle)
        units = np.sqrt(1.0 + np.exp(-2.0 * (middles - group.thresholds)))
        rows[:, KIND] = CENTRED if group.beta > 0.0 else NOT_CENTRED
        rows[:, OWN], rows[:, SCALE] = group.members, group.scales
        rows[:, SECOND], rows[:, LOCATION] = group.second, group.locations
        rows[:, APART] = group.are_apart
        rows[:, PART], rows[:, PART_SCALE], rows[:, PART_BETA] = (
            group.parts,
            group.part_scale,
            group.part_beta,
        )
        rows[:, BETA], rows[:, BETA_2], rows[:, REFERENCE] = group.beta, group.beta_2, references
        rows[:, THRESHOLD], rows[:, UNIT] = np.exp(2.0 * (group.thresholds - references)), units
        if group.error >= 0:
            rows[:, SECOND], rows[:, BETA_2], rows[:, ERROR_MIDDLE] = (
                group.error,
                group.error_beta,
                group.middle,
            )
            rows[:, REFERENCE] += group.error_beta * group.middle
        rows[:, DATA] = group.data
        rows[:, SLOPE] = group.slope * (np.exp(group.thresholds) if group.beta < 0.0 else 1.0)
        rows[:, OFFSET] = group.offset
        if own:
            rows[:, ROWS], rows[:, LOG_UNITS] = 1, np.log(units)
        else:
            rows[0, ROWS], rows[0, LOG_UNITS] = len(rows), np.log(units).sum()
        tables.append(rows)
    return np.concatenate(tables)


def same_law(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two maps change the same coordinates by the same laws, whatever the numbers are.

    Scales of errors do not count: in the middle of the draws they leave a coordinate as it is, so that a
    metric stays right when they come or go.
    """
    columns = [KIND, OWN, SCALE, SECOND, LOCATION, BETA, BETA_2, PART, PART_SCALE]
    one, other = without_error_scales(one), without_error_scales(other)
    return np.array_equal(one[:, columns], other[:, columns])


def view_of(draws: ScoredDraws, group: Group) -> View:
    """The values that the law of a group takes from draws."""
    x = np.ascontiguousarray(draws.points[:, group.members].T)
    s = np.ascontiguousarray(draws.scores[:, group.members].T)
    eta = group.beta * np.ascontiguousarray(draws.points[:, group.scales].T)
    if group.second >= 0:
        eta += group.beta_2 * draws.points[:, group.second]
    factor = np.ones(len(draws.points))
    if group.error >= 0:
        away = group.error_beta * (draws.points[:, group.error] - group.middle)
        eta, factor = eta + away, np.exp(-away)
    return View(x, s, eta, locations_of(draws.points, group), group.beta > 0.0, factor)


def locations_of(points: np.ndarray, group: Group) -> np.ndarray:
    """The locations (1 or m, n) in draws (n, d); zeros where there is none."""
    p = np.ascontiguousarray(points[:, group.locations].T)
    p[group.locations < 0] = 0.0
    if group.part_scale >= 0:
        p = p + scale_of_parts(points, group) * points[:, group.parts].T
    return p


def scale_of_parts(points: np.ndarray, group: Group) -> np.ndarray:
    """e^(b v) for each draw (n,)."""
    return np.asarray(np.exp(group.part_beta * points[:, group.part_scale]))


def parents_of(group: Group) -> set[int]:
    """The coordinates that the scales and the locations of a group depend on."""
    shared = group.second, group.error, group.part_scale
    return {int(i) for i in (*group.scales, *group.locations, *group.parts, *shared)} - {-1}


def all_but(groups: list[Group], group: Group) -> list[Group]:
    """The groups without this one."""
    return [other for other in groups if other is not group]


def others_of(groups: list[Group], group: Group) -> list[Group]:
    """The groups without this one, and without those that move its scale parameters and locations.

    A law holds for coordinates as they are in the program, so its scale parameters and locations must stay.
    """
    kept, roots = [], parents_of(group)
    for other in reversed(groups):
        if roots.intersection(map(int, other.members)):
            roots |= parents_of(other)
        elif other is not group:
            kept.append(other)
    return kept[::-1]


def order_groups(groups: list[Group]) -> list[Group] | None:
    """The groups in an order that moves a coordinate before others depend on it; None if there is none."""
    waiting, found = list(groups), []
    while waiting:
        for group in waiting:
            moved = {int(i) for other in waiting if other is not group for i in other.members}
            if not moved & parents_of(group):
                break
        else:
            return None
        found.append(group)
        waiting = all_but(waiting, group)
    return found


def pull_draws(draws: ScoredDraws, groups: list[Group]) -> ScoredDraws:
    """The draws with `groups` undone, the last group first.

    z_i does not get the unit of x_i here.
    """
    if not groups:
        return draws
    points, scores = draws.points.copy(), draws.scores.copy()
    for group in reversed(groups):
        view = view_of(ScoredDraws(points, scores), group)
        z, scores_z, pull, drag, growth = _pull(view, group)
        points[:, group.members], scores[:, group.members] = z.T, scores_z.T
        scores[:, group.scales] += group.beta * pull.T
        if group.second >= 0:
            scores[:, group.second] += group.beta_2 * pull.sum(axis=0)
        if group.error >= 0:
            scores[:, group.error] += group.error_beta * (pull.sum(axis=0) - growth)
        for place, more in drags_of(points, group, drag):
            scores[:, place] += more
    return ScoredDraws(points, scores)


def drags_of(points: np.ndarray, group: Group, drag: np.ndarray) -> list[tuple[int, np.ndarray]]:
    """What the derivatives `drag` (1 or m, n) in the locations add to the scores of coordinates."""
    found = [
        (int(place), drag[np.broadcast_to(group.locations, len(drag)) == place].sum(axis=0))
        for place in np.unique(group.locations[group.locations >= 0])
    ]
    if group.part_scale >= 0:
        scaled = drag * scale_of_parts(points, group)
        found += [(int(part), scaled[group.parts == part].sum(axis=0)) for part in np.unique(group.parts)]
        along = (scaled * points[:, group.parts].T).sum(axis=0)
        found.append((group.part_scale, group.part_beta * along))
    return found


def _pull(view: View, group: Group) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """z and its scores (m, n); what the scores of scales (over beta) and locations get added; and the
    derivatives (n,) in the logarithm of the error's factor.
    """
    z, scores, growth = np.empty_like(view.x), np.empty_like(view.s), np.zeros_like(view.factor)
    pull, drag = np.zeros_like(view.eta), np.zeros_like(view.p)
    numbers = group.slope, group.offset, group.thresholds, group.data
    _evaluate(*view, *numbers, z, scores, pull, drag, growth)
    return z, scores, pull, drag, growth


@kernel(ordered=True)
def _evaluate(
    x: Any,
    s: Any,
    eta: Any,
    p: Any,
    up: Any,
    errors: Any,
    slope: Any,
    offset: Any,
    thresholds: Any,
    data: Any,
    z: Any,
    scores: Any,
    pull: Any,
    drag: Any,
    growth: Any,
) -> Any:
    """Write the arrays that `_pull` returns. Returns the first sum of F, that over the members."""
    (m, n), apart = x.shape, len(p) > 1
    total = 0.0
    for j in range(m):
        factor = slope if up else slope * np.exp(thresholds[j])
        h, q = j if len(eta) > 1 else 0, j if apart else 0
        for t in range(n):
            w = max(1.0 / (1.0 + np.exp(-2.0 * (eta[h, t] - thresholds[j]))), TINY)
            root, left = np.sqrt(w), 1.0 - w
            if up:
                at = offset + factor * p[q, t]
                here, along = left * at + w * data[j], left * factor
                change = 2.0 * w * left * (data[j] - at)
            else:
                middle = np.sqrt(w * left) * errors[t]
                at = data[j] + factor * p[q, t]
                here, change, along = middle * at, (left - w) * middle * at, middle * factor
            rest = x[j, t] - here
            if up:
                root *= errors[t]
                growth[t] += s[j, t] * rest + 1.0
            else:
                growth[t] += s[j, t] * here
            z[j, t], scores[j, t] = rest / root, s[j, t] * root
            pull[h, t] += s[j, t] * (change + left * rest) + left
            drag[q, t] += s[j, t] * along
        total += 0.5 * np.log(variance(z[j]) * variance(scores[j]))
    return total


@kernel(ordered=True)
def variance(values: Any) -> Any:
    mean, squares = 0.0, 0.0
    for t in range(values.size):
        mean += values[t]
    mean /= values.size
    for t in range(values.size):
        squares += (values[t] - mean) * (values[t] - mean)
    return squares / values.size


def divergence(draws: ScoredDraws, group: Group, view: View | None = None) -> float:
    """F of a group."""
    view = view_of(draws, group) if view is None else view
    pull, drag = np.zeros_like(view.eta), np.zeros_like(view.p)
    scratch, growth = (np.empty_like(view.x), np.empty_like(view.s)), np.zeros_like(view.factor)
    numbers = group.slope, group.offset, group.thresholds, group.data
    total = float(_evaluate(*view, *numbers, *scratch, pull, drag, growth))
    added = [(int(scale), group.beta * pull[k]) for k, scale in enumerate(group.scales)]
    if group.second >= 0:
        added.append((group.second, group.beta_2 * pull.sum(axis=0)))
    if group.error >= 0:
        added.append((group.error, group.error_beta * (pull.sum(axis=0) - growth)))
    sums: dict[int, np.ndarray] = {}
    for place, more in added + drags_of(draws.points, group, drag):
        sums[place] = sums[place] + more if place in sums else more
    return total + root_divergence(draws, list(sums), np.array(list(sums.values())).T)


def root_divergence(draws: ScoredDraws, places: list[int], added: np.ndarray | float) -> float:
    """The sum of log(1 + V(x) V(s)) / 2 over scale parameters and locations.

    The map adds `added` (n, places) to their scores.
    """
    x, s = draws.points[:, places], draws.scores[:, places] + added
    return float(0.5 * np.log1p(x.var(axis=0) * s.var(axis=0)).sum())


def plain_divergence(draws: ScoredDraws, group: Group, coefficients: np.ndarray | None = None) -> float:
    """F of the same coordinates without the law.

    Without `coefficients` the coordinates stay as they are. With `coefficients` (m, k) of `linear_map`, they
    lose the part that is linear in scale parameters and location.
    """
    x, s = draws.points[:, group.members].T, draws.scores[:, group.members].T
    none = np.zeros(len(draws.points))
    added = {int(scale): none for scale in group.scales} if len(group.scales) > 1 else {}
    for k, parent in enumerate(parent_arrays_of(group)):
        if coefficients is not None:
            x = x - coefficients[:, k, None] * draws.points[:, parent].T
        for place in parent if len(parent) == 1 else np.unique(parent):
            ruled = slice(None) if len(parent) == 1 else parent == place
            added[int(place)] = none if coefficients is None else coefficients[ruled, k] @ s[ruled]
    if group.part_scale >= 0:
        added.setdefault(group.part_scale, none)
    total = root_divergence(draws, list(added), np.array(list(added.values())).T) if added else 0.0
    return float(total + 0.5 * np.log(x.var(axis=1) * s.var(axis=1)).sum())


def parent_arrays_of(group: Group) -> list[np.ndarray]:
    """The scale parameters that all members share, and the locations.

    Each array is (1,), or (m,) if each member has its own.
    """
    parents = [group.scales] if len(group.scales) == 1 else []
    parents += [np.array([group.second])] if group.second >= 0 else []
    if (group.locations >= 0).any():
        parents.append(group.locations)
    return parents + ([group.parts] if group.part_scale >= 0 else [])


def linear_map(draws: ScoredDraws, group: Group) -> np.ndarray:
    """The coefficients (m, k) of regressions of the members.

    They are regressed on the scale parameters that they share and on their locations.
    """
    x, parents = draws.points[:, group.members], parent_arrays_of(group)
    x = x - x.mean(axis=0)
    if all(len(parent) == 1 for parent in parents):
        shared = [int(parent[0]) for parent in parents]
        u = draws.points[:, shared] - draws.points[:, shared].mean(axis=0)
        size = u.std(axis=0)
        u = u / size
        weak = np.linalg.solve(u.T @ u + np.eye(u.shape[1]), u.T @ x)
        return np.asarray(weak.T / size)
    places = np.column_stack([np.broadcast_to(parent, len(group.members)) for parent in parents])
    u = draws.points.T[places]
    u -= u.mean(axis=2, keepdims=True)
    size = u.std(axis=2)
    u /= size[:, :, None]
    weak = np.linalg.solve(u @ u.transpose(0, 2, 1) + np.eye(len(parents)), u @ x.T[:, :, None])
    return np.asarray(weak[:, :, 0] / size)


def decrease_of(draws: ScoredDraws, group: Group, older: ScoredDraws | None = None) -> float:
    """The decrease of F under a law, compared with the better of two: no map, and a linear one.

    The linear map is fitted to the same draws, or to `older` ones.
    """
    linear = plain_divergence(draws, group, linear_map(draws if older is None else older, group))
    return min(plain_divergence(draws, group), linear) - divergence(draws, group)
