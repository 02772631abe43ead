"""Groups of coordinates whose scales one law of group.py rules, and how well draws bear a law out.

What is minimised is, with the draws z and scores s_z that a map gives,

    F = sum_i log(V(z_i) V(s_zi)) / 2          over the coordinates that are moved
      + sum_h log(1 + V(z_h) V(s_zh)) / 2      over the heads and locations that move them.

log V(z) V(s_z) is 0 for a normal law of any scale and grows with every way in which draws and scores
disagree: it is the Fisher divergence from a normal law, E |s_z + z|², without its scale. For a pure funnel
x_i = e^u w_i the score is -e^-u w_i, and log |x_i| - log |s_i| = 2 u exactly: few draws tell the law. A map
that is fitted to draws that have not seen the neck still reaches into it, because the law is that of the
model.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...jit import exact
from ..table import (
    APART,
    BETA,
    BETA_2,
    CENTRED,
    COLUMNS,
    DATA,
    HEAD,
    KIND,
    KNEE,
    LOCATION,
    LOG_UNITS,
    NOT_CENTRED,
    OFFSET,
    OWN,
    PART,
    PART_BETA,
    PART_HEAD,
    REFERENCE,
    ROWS,
    SECOND,
    SLOPE,
    UNIT,
    is_pair,
)

TINY = 1e-250  # smallest weight w
_NO_PARTS = np.array([-1])
_DIGITS = 12  # of C, which a table holds multiplied: a whole number is one again


class Pair(NamedTuple):
    """A group of m coordinates whose scales one law rules."""

    members: np.ndarray  # (m,) int64
    heads: np.ndarray  # (1,) int64; or (m,), the own head of each member
    beta: float
    second: int  # another head, that of all members; -1 for none
    beta_2: float
    locations: np.ndarray  # (1,) int64, -1 for none; or (m,), the own location of each member
    slope: float  # C
    offset: float  # c; 0 where beta < 0
    knees: np.ndarray  # (m,) a
    data: np.ndarray  # (m,) y
    # Where locations are not centred themselves, p + e^(b v) x_q: the coordinates q, v and b.
    parts: np.ndarray = _NO_PARTS  # (m,), or (1,) -1 for none
    part_head: int = -1
    part_beta: float = 0.0

    @property
    def is_located(self) -> bool:
        """Whether it has a location."""
        return bool((self.locations >= 0).any()) or self.part_head >= 0

    @property
    def are_apart(self) -> bool:
        """Whether each member has a location of its own."""
        return len(self.locations) > 1 or len(self.parts) > 1

    def at(self, locations: np.ndarray) -> Pair:
        """The same law with other locations, which are coordinates."""
        return self._replace(locations=locations, parts=_NO_PARTS, part_head=-1, part_beta=0.0)


class Likelihood(NamedTuple):
    """A normal likelihood that coordinates share."""

    precision: np.ndarray  # (n,) of the error, at each draw
    parameters: np.ndarray  # (k,) the coordinates that its mean may have


class Draws(NamedTuple):
    """Draws and scores (n, d), in coordinates in which some pairs already are."""

    points: np.ndarray
    scores: np.ndarray
    likelihood: Likelihood | None = None  # with which some law explains scores wholly

    def part(self, rows: slice | np.ndarray) -> Draws:
        more = self.likelihood
        if more is not None:
            more = more._replace(precision=more.precision[rows])
        return Draws(self.points[rows], self.scores[rows], more)

    def halves(self) -> tuple[Draws, Draws]:
        """The older and the newer ones."""
        half = len(self.points) // 2
        return self.part(slice(0, half)), self.part(slice(half, None))


class View(NamedTuple):
    """What a pair sees of n draws."""

    x: np.ndarray  # (m, n) of its members
    s: np.ndarray  # (m, n) their scores
    eta: np.ndarray  # (1 or m, n) without the knee
    p: np.ndarray  # (1 or m, n) the location; zeros where there is none
    up: bool  # whether beta is positive


def pairs_of(table: np.ndarray) -> list[Pair]:
    """The pairs of a map, in its order; rows with heads of their own that share all else are one."""
    found: list[Pair] = []
    for k in np.flatnonzero(is_pair(table) & (table[:, ROWS] > 0.0)):
        rows = table[k : k + int(table[k, ROWS])]
        first = rows[0]
        knees = first[REFERENCE] + 0.5 * np.log(rows[:, KNEE])
        slope = float(first[SLOPE])
        if first[BETA] < 0.0:
            slope = float(np.round(slope * np.exp(-knees[0]), _DIGITS))
        apart = bool(first[APART] > 0.0)
        heads, members = rows[:1, HEAD].astype(np.int64), rows[:, OWN].astype(np.int64)
        locations = rows[: len(rows) if apart else 1, LOCATION].astype(np.int64)
        law = float(first[BETA]), int(first[SECOND]), float(first[BETA_2]), locations
        parts = rows[: len(rows) if first[PART] >= 0.0 else 1, PART].astype(np.int64)
        of_parts = parts, int(first[PART_HEAD]), float(first[PART_BETA])
        if first[PART] >= 0.0:
            law = (*law[:3], locations[:1])
        pair = Pair(members, heads, *law, slope, float(first[OFFSET]), knees, rows[:, DATA].copy(), *of_parts)
        before = found[-1] if found else None
        alone = len(rows) == 1 and before is not None and len(before.heads) == len(before.members)
        if before is not None and alone and _is_continued(before, pair, apart):
            found[-1] = before._replace(
                members=np.append(before.members, pair.members),
                heads=np.append(before.heads, pair.heads),
                locations=np.append(before.locations, locations) if apart else locations,
                knees=np.append(before.knees, pair.knees),
                data=np.append(before.data, pair.data),
            )
        else:
            found.append(pair)
    return found


def _is_continued(before: Pair, pair: Pair, apart: bool) -> bool:
    """Whether a row with a head of its own, and perhaps a location of its own, belongs to the pair before."""
    if before[2:5] != pair[2:5] or before.heads[-1] == pair.heads[0]:
        return False
    return apart or np.array_equal(before.locations, pair.locations)


def pair_rows(pairs: list[Pair], points: np.ndarray) -> np.ndarray:
    """The rows of a map; z_i has the unit of x_i where the draws (n, d) of its heads have their means."""
    tables = [np.empty((0, COLUMNS))]
    for pair in pairs:
        rows = np.zeros((len(pair.members), COLUMNS))
        own = len(pair.heads) > 1
        references = pair.knees if own else np.full(len(rows), pair.knees.mean())
        middles = pair.beta * points[:, pair.heads].mean(axis=0)
        if pair.second >= 0:
            middles = middles + pair.beta_2 * points[:, pair.second].mean()
        units = np.sqrt(1.0 + np.exp(-2.0 * (middles - pair.knees)))
        rows[:, KIND] = CENTRED if pair.beta > 0.0 else NOT_CENTRED
        rows[:, OWN], rows[:, HEAD] = pair.members, pair.heads
        rows[:, SECOND], rows[:, LOCATION] = pair.second, pair.locations
        rows[:, APART] = pair.are_apart
        rows[:, PART], rows[:, PART_HEAD], rows[:, PART_BETA] = pair.parts, pair.part_head, pair.part_beta
        rows[:, BETA], rows[:, BETA_2], rows[:, REFERENCE] = pair.beta, pair.beta_2, references
        rows[:, KNEE], rows[:, UNIT] = np.exp(2.0 * (pair.knees - references)), units
        rows[:, DATA] = pair.data
        rows[:, SLOPE] = pair.slope * (np.exp(pair.knees) if pair.beta < 0.0 else 1.0)
        rows[:, OFFSET] = pair.offset
        if own:
            rows[:, ROWS], rows[:, LOG_UNITS] = 1, np.log(units)
        else:
            rows[0, ROWS], rows[0, LOG_UNITS] = len(rows), np.log(units).sum()
        tables.append(rows)
    return np.concatenate(tables)


def same_law(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two maps change the same coordinates by the same laws, whatever the numbers are."""
    columns = [KIND, OWN, HEAD, SECOND, LOCATION, BETA, BETA_2, PART, PART_HEAD]
    return np.array_equal(one[:, columns], other[:, columns])


def view_of(draws: Draws, pair: Pair) -> View:
    """What a pair sees of draws."""
    x = np.ascontiguousarray(draws.points[:, pair.members].T)
    s = np.ascontiguousarray(draws.scores[:, pair.members].T)
    eta = pair.beta * np.ascontiguousarray(draws.points[:, pair.heads].T)
    if pair.second >= 0:
        eta += pair.beta_2 * draws.points[:, pair.second]
    return View(x, s, eta, locations_of(draws.points, pair), pair.beta > 0.0)


def locations_of(points: np.ndarray, pair: Pair) -> np.ndarray:
    """The locations (1 or m, n) of draws (n, d); zeros where there is none."""
    p = np.ascontiguousarray(points[:, pair.locations].T)
    p[pair.locations < 0] = 0.0
    if pair.part_head >= 0:
        p = p + scale_of_parts(points, pair) * points[:, pair.parts].T
    return p


def scale_of_parts(points: np.ndarray, pair: Pair) -> np.ndarray:
    """e^(b v) of draws (n,)."""
    return np.asarray(np.exp(pair.part_beta * points[:, pair.part_head]))


def roots_of(pair: Pair) -> set[int]:
    """The coordinates that the scales and the locations of a pair are made of."""
    return {int(i) for i in (*pair.heads, pair.second, *pair.locations, *pair.parts, pair.part_head)} - {-1}


def others_of(pairs: list[Pair], pair: Pair) -> list[Pair]:
    """The pairs without this one, and without those that move its heads and locations.

    A law is one of coordinates as they are in the program, so what rules must not be moved.
    """
    kept, roots = [], roots_of(pair)
    for other in reversed(pairs):
        if roots.intersection(map(int, other.members)):
            roots |= roots_of(other)
        elif other is not pair:
            kept.append(other)
    return kept[::-1]


def order_pairs(pairs: list[Pair]) -> list[Pair] | None:
    """The pairs in an order in which a coordinate is moved before it rules others; None if there is none."""
    waiting, found = list(pairs), []
    while waiting:
        for pair in waiting:
            moved = {int(i) for other in waiting if other is not pair for i in other.members}
            if not moved & roots_of(pair):
                break
        else:
            return None
        found.append(pair)
        waiting = [other for other in waiting if other is not pair]
    return found


def pull_draws(draws: Draws, pairs: list[Pair]) -> Draws:
    """The draws in the coordinates of `pairs`, the last of which is the first to be undone.

    z_i is not scaled to x_i.
    """
    if not pairs:
        return draws
    points, scores = draws.points.copy(), draws.scores.copy()
    for pair in reversed(pairs):
        view = view_of(Draws(points, scores), pair)
        z, scores_z, pull, drag = _pull(view, pair)
        points[:, pair.members], scores[:, pair.members] = z.T, scores_z.T
        scores[:, pair.heads] += pair.beta * pull.T
        if pair.second >= 0:
            scores[:, pair.second] += pair.beta_2 * pull.sum(axis=0)
        for place, more in drags_of(points, pair, drag):
            scores[:, place] += more
    return Draws(points, scores)


def drags_of(points: np.ndarray, pair: Pair, drag: np.ndarray) -> list[tuple[int, np.ndarray]]:
    """What the derivatives `drag` (1 or m, n) in the locations add to the scores of coordinates."""
    found = [
        (int(place), drag[np.broadcast_to(pair.locations, len(drag)) == place].sum(axis=0))
        for place in np.unique(pair.locations[pair.locations >= 0])
    ]
    if pair.part_head >= 0:
        scaled = drag * scale_of_parts(points, pair)
        found += [(int(part), scaled[pair.parts == part].sum(axis=0)) for part in np.unique(pair.parts)]
        along = (scaled * points[:, pair.parts].T).sum(axis=0)
        found.append((pair.part_head, pair.part_beta * along))
    return found


def _pull(view: View, pair: Pair) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """z and its scores (m, n), and what is added to the scores of heads (over beta) and locations."""
    z, scores = np.empty_like(view.x), np.empty_like(view.s)
    pull, drag = np.zeros_like(view.eta), np.zeros_like(view.p)
    _evaluate(*view, pair.slope, pair.offset, pair.knees, pair.data, z, scores, pull, drag)
    return z, scores, pull, drag


@exact
def _evaluate(
    x: Any,
    s: Any,
    eta: Any,
    p: Any,
    up: Any,
    slope: Any,
    offset: Any,
    knees: Any,
    data: Any,
    z: Any,
    scores: Any,
    pull: Any,
    drag: Any,
) -> Any:
    """Write what `_pull` returns. Returns the part of F that is the members'."""
    (m, n), apart = x.shape, len(p) > 1
    total = 0.0
    for j in range(m):
        factor = slope if up else slope * np.exp(knees[j])
        h, q = j if len(eta) > 1 else 0, j if apart else 0
        for t in range(n):
            w = max(1.0 / (1.0 + np.exp(-2.0 * (eta[h, t] - knees[j]))), TINY)
            root, left = np.sqrt(w), 1.0 - w
            if up:
                at = offset + factor * p[q, t]
                here, along = left * at + w * data[j], left * factor
                change = 2.0 * w * left * (data[j] - at)
            else:
                middle = np.sqrt(w * left)
                at = data[j] + factor * p[q, t]
                here, change, along = middle * at, (left - w) * middle * at, middle * factor
            rest = x[j, t] - here
            z[j, t], scores[j, t] = rest / root, s[j, t] * root
            pull[h, t] += s[j, t] * (change + left * rest) + left
            drag[q, t] += s[j, t] * along
        total += 0.5 * np.log(variance(z[j]) * variance(scores[j]))
    return total


@exact
def variance(values: Any) -> Any:
    mean, squares = 0.0, 0.0
    for t in range(values.size):
        mean += values[t]
    mean /= values.size
    for t in range(values.size):
        squares += (values[t] - mean) * (values[t] - mean)
    return squares / values.size


def divergence(draws: Draws, pair: Pair, view: View | None = None) -> float:
    """F of a pair."""
    view = view_of(draws, pair) if view is None else view
    pull, drag = np.zeros_like(view.eta), np.zeros_like(view.p)
    scratch = np.empty_like(view.x), np.empty_like(view.s)
    numbers = pair.slope, pair.offset, pair.knees, pair.data
    total = float(_evaluate(*view, *numbers, *scratch, pull, drag))
    added = [(int(head), pair.beta * pull[k]) for k, head in enumerate(pair.heads)]
    if pair.second >= 0:
        added.append((pair.second, pair.beta_2 * pull.sum(axis=0)))
    sums: dict[int, np.ndarray] = {}
    for place, more in added + drags_of(draws.points, pair, drag):
        sums[place] = sums[place] + more if place in sums else more
    for place, more in sums.items():
        total += root_divergence(draws, place, more)
    return total


def root_divergence(draws: Draws, place: int, added: np.ndarray | float) -> float:
    """log(1 + V(x) V(s)) / 2 of a head or location, with what a map adds to its score."""
    score = np.ascontiguousarray(draws.scores[:, place] + added)
    return float(0.5 * np.log1p(variance(np.ascontiguousarray(draws.points[:, place])) * variance(score)))


def plain_divergence(draws: Draws, pair: Pair, coefficients: np.ndarray | None = None) -> float:
    """F of the same coordinates without the law: as they are, or less what is linear in heads and location.

    `coefficients` (m, k) are those of `linear_map`.
    """
    x, s = draws.points[:, pair.members].T, draws.scores[:, pair.members].T
    added: dict[int, np.ndarray | float] = {}
    if len(pair.heads) > 1:
        added = {int(head): 0.0 for head in pair.heads}
    rulers = rulers_of(pair)
    for k, ruler in enumerate(rulers):
        if coefficients is not None:
            x = x - coefficients[:, k, None] * draws.points[:, ruler].T
        for place in np.unique(ruler):
            ruled = slice(None) if len(ruler) == 1 else ruler == place
            added[int(place)] = 0.0 if coefficients is None else coefficients[ruled, k] @ s[ruled]
    if pair.part_head >= 0:
        added.setdefault(pair.part_head, 0.0)
    total = 0.0
    for place, more in added.items():
        total += root_divergence(draws, place, more)
    return float(total + 0.5 * np.log(x.var(axis=1) * s.var(axis=1)).sum())


def rulers_of(pair: Pair) -> list[np.ndarray]:
    """The heads that all members share, and the locations: (1,), or (m,) if each member has its own."""
    rulers = [pair.heads] if len(pair.heads) == 1 else []
    rulers += [np.array([pair.second])] if pair.second >= 0 else []
    if (pair.locations >= 0).any():
        rulers.append(pair.locations)
    return rulers + ([pair.parts] if pair.part_head >= 0 else [])


def linear_map(draws: Draws, pair: Pair) -> np.ndarray:
    """The coefficients (m, k) of regressions of the members on the heads that they share and locations."""
    x, rulers = draws.points[:, pair.members], rulers_of(pair)
    x = x - x.mean(axis=0)
    if all(len(ruler) == 1 for ruler in rulers):
        shared = [int(ruler[0]) for ruler in rulers]
        u = draws.points[:, shared] - draws.points[:, shared].mean(axis=0)
        size = u.std(axis=0)
        u = u / size
        weak = np.linalg.solve(u.T @ u + np.eye(u.shape[1]), u.T @ x)
        return np.asarray(weak.T / size)
    places = np.column_stack([np.broadcast_to(ruler, len(pair.members)) for ruler in rulers])
    u = draws.points.T[places]
    u -= u.mean(axis=2, keepdims=True)
    size = u.std(axis=2)
    u /= size[:, :, None]
    weak = np.linalg.solve(u @ u.transpose(0, 2, 1) + np.eye(len(rulers)), u @ x.T[:, :, None])
    return np.asarray(weak[:, :, 0] / size)


def fall_of(draws: Draws, pair: Pair, older: Draws | None = None) -> float:
    """By how much F is smaller under a law than without a map, and than under a linear one.

    The linear one is fitted to the same draws, or to `older` ones.
    """
    linear = plain_divergence(draws, pair, linear_map(draws if older is None else older, pair))
    return min(plain_divergence(draws, pair), linear) - divergence(draws, pair)
