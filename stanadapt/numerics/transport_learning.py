"""Learning the map of transport.py from a few hundred draws and scores.

What is minimised is, with the draws z and scores s_z that a map gives,

    F = sum_i log(V(z_i) V(s_zi)) / 2          over the coordinates that are moved
      + sum_h log(1 + V(z_h) V(s_zh)) / 2      over the heads and locations that move them.

log V(z) V(s_z) is 0 for a normal law of any scale and grows with every way in which draws and scores
disagree: it is the Fisher divergence from a normal law, E |s_z + z|², without its scale. For a pure funnel
x_i = e^u w_i the score is -e^-u w_i, and log |x_i| - log |s_i| = 2 u exactly: few draws tell the law. A map
that is fitted to draws that have not seen the neck still reaches into it, because the law is that of the
model.

At the end of a window, in this order:

1. *Judge.* Draws of the window that has just ended were made after the map. A pair (a group of coordinates
   with its head) under which F is not smaller there than without it is dropped.
2. *Refit* the pairs, where that pays: else they stay as they are, so that the map comes to rest and warm-up
   can end.
3. *Detect.* For a group g and a head h the derivative of F in a slope b of the log scales, t_i = b u_h, is

       sum_i E[u (b_i - a_i)] + E[s_u sum_i (s_i x_i + 1)] / (1 + V(s_u)),  a_i = x_i² / V(x_i),
                                                                           b_i = s_i² / V(s_i)

   for u standardised: one matrix product for all of them. Its square over twice the curvature is what F would
   fall by. Variables of the program are the groups, and those of a few coordinates may be heads; so may those
   of as many coordinates as the group has, each of them its own. Where there is one variable alone, all
   coordinates with the same head are a group.
4. *Locate.* A location is that coordinate of a small variable that correlates most with the group. It may
   also be one for each member, as in a hierarchy of two levels: the coordinate of another variable that
   correlates most with the member. F decides, and to choose among k coordinates for each of m members costs
   m log k / n of its fall.
5. *Fit.* Given a head and a location, a coordinate has two free numbers, its knee a_i and y_i. F is taken on
   a grid of knees in one compiled pass, and a parabola gives the best; knees of a group are drawn together,
   as by a prior. y_i, C and c are weighted least squares. C is made an integer where that fits as well: were
   it not exactly 1 in a funnel, the neck would be left out. A knee just beyond the draws is taken for none.
6. *Guard.* Fitted to the older half of the draws, the law must beat on the newer half both no map and one
   that is linear in head and location, by a margin.

Pairs are undone from the last one of the map to its first. A pair is judged and fitted in draws in which the
others are undone, but for those that move its heads and locations: its law is one of the program.

What the law does not reach: scales whose logarithm is not a coordinate or a sum of two; locations that are
regressions with other coefficients for every coordinate, and groups whose own correlations matter, of which
the metric learns what is linear; autoregressions, whose members are around the ones before; heads that are
moved themselves.
"""

from __future__ import annotations

import contextlib
import functools
from typing import Any, NamedTuple

import numpy as np

from ..jit import exact, kernel
from ..transport import (
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
    REFERENCE,
    ROWS,
    SECOND,
    SLOPE,
    UNIT,
    change_coordinates,
    is_pair,
    rows_into_x,
    transport_draws,
)
from .bends import bend_rows, bends_of, learn_bends, may_have_bends
from .dense_metric import is_finite
from .heavy_tails import LEAST, learn_tails, may_have_tails, tail_rows, tails_of

NEED = 20.0  # expected fall of F, times the number of draws, from which on a pair is tried
LEAST_GAIN = 0.2  # the expected fall of F itself that this takes at least, however many draws there are
PROMISE = 1.0  # expected fall of F from which on a place with an offset is tried
OFFSET_GAIN = 0.1  # fall of F a coordinate that an offset must bring
MARGIN = 0.3  # fall of F on the newer half of the draws that a pair must bring
LEAD = 0.5  # fall of F by which a location must be better than none, or than another one
SETTLED = 0.02  # fall of F a coordinate, below which a pair stays as it is
BETAS = (1.0, 0.5)  # a log scale; a log variance or precision
_FEW = 4  # coordinates of a variable that may be heads and locations of others
_PLACES = 3  # locations that are tried
_SOME = 16  # coordinates of a group by which locations are compared
_HEADS = 100  # coordinates of one large variable that are tried as heads
_REGRESSORS = 12  # heads that a location may be made of
_ROUNDS = 4  # new pairs in a window
_JUDGES = 15  # draws of a window that may judge a pair

_POOL = 3.0  # weight of the knees' common value, as a number of draws
_PRIOR = 0.1  # the same of the middle of the head's draws
_FLAT = 3.0  # distance from there beyond which all knees are alike
_OUTSIDE, _STEP = 2.5, 0.5  # of the grid of knees beyond the draws, and between two of them
_FARTHEST = 15.0  # distance beyond which draws ask for no knees: the chain is on its way
_LIMIT = 12.0  # distance of the knee that stands for infinity
# Fall of F, times the number of draws, up to which a knee near the last draws is none: a pure funnel has so
# much by chance, and beyond a knee that is none the map would make a funnel.
_FREE, _FREE_EACH = 4.0, 0.25
_WHOLE, _NEARLY_WHOLE = 0.06, 0.3  # relative distance of C from an integer that is taken, or tried
_WEIGHT = 2.0  # of the prior of y, as a number of draws: the mean of x, or 0 where x is not centred
_TINY = 1e-250  # smallest weight w
_FEWEST = 3  # members that may have locations of their own
_NOWHERE = np.array([-1])  # no location


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

    @property
    def is_located(self) -> bool:
        """Whether it has a location."""
        return bool((self.locations >= 0).any())


class Draws(NamedTuple):
    """Draws and scores (n, d), in coordinates in which some pairs already are."""

    points: np.ndarray
    scores: np.ndarray

    def part(self, rows: slice) -> Draws:
        return Draws(self.points[rows], self.scores[rows])

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


class Place(NamedTuple):
    """Where the members of a pair may be."""

    locations: np.ndarray
    draws: Draws  # in which these are as in the program
    cost: float  # what F must fall by, since one of many is chosen


@np.errstate(all="ignore")  # what is not finite is not taken
def learn_transport(
    table: np.ndarray,
    points: np.ndarray,
    scores: np.ndarray,
    groups: np.ndarray,
    before: int,
    *,
    new: bool = True,
) -> np.ndarray:
    """The map that draws and scores in x (n, d), the older ones first, show.

    The first `before` of them are those of the window before; `table` is the map of the present one. `groups`
    (d,) are the variables that coordinates belong to; where it is empty, nothing is learnt. Without `new` no
    pair is added: one of the last window would be judged by nobody.
    """
    if not (len(groups) and len(points) >= LEAST):
        return table
    points, scores = np.ascontiguousarray(points), np.ascontiguousarray(scores)
    if not (is_finite(points) and is_finite(scores)):
        return table
    if not len(table) and _is_plain(points, scores, groups, new):
        return table
    moves = table[is_pair(table)]
    with contextlib.suppress(np.linalg.LinAlgError):
        moves = _learn_moves(moves, Draws(points, scores), groups, before, new)
    moved = moves[:, OWN].astype(np.int64)
    pulled = transport_draws(moves, points, scores)
    tails = learn_tails(tails_of(table), *pulled, moved)
    bends = learn_bends(bends_of(table), *pulled, np.concatenate((moved, tails.places)))
    return np.concatenate((tail_rows(tails), bend_rows(bends), moves))


@exact
def _is_plain(points: Any, scores: Any, groups: Any, new: Any) -> Any:
    """Whether draws and scores (n, d) show nothing that `learn_transport` would look at, if there is no map.

    Most posteriors show nothing, and to find that out by NumPy's calls takes as long as a hundred draws of a
    small model. What is detected is what `_detect`, `learn_tails` and `learn_bends` detect, or more.
    """
    n, d = points.shape
    if may_have_tails(points, scores) or may_have_bends(points, scores):
        return False
    if not new:
        return True
    last = groups.max()
    sizes = np.zeros(last + 1, np.int64)
    for j in range(d):
        sizes[groups[j]] += 1
    for g in range(last + 1):
        for h in range(g):
            if sizes[g] == sizes[h] and sizes[g] > _FEW:  # one may have its heads in the other
                return False
    members, group, as_is = np.arange(d), np.arange(d), np.zeros(d, np.bool_)
    heads, k = np.empty(d, np.int64), 0
    for j in range(d):
        if last > 0:
            group[j] = groups[j]
        if last == 0 or sizes[groups[j]] <= _FEW:
            as_is[j] = True
            heads[k] = j
            k += 1
    if k == 0:
        return True
    gain, derivative = np.zeros((k, group.max() + 1)), np.zeros((k, group.max() + 1))
    _screen(points, scores, members, group, heads[:k], as_is, gain, derivative)
    least = max(NEED / n, LEAST_GAIN)
    for h in range(k):
        total = 0.0  # without names, the groups of one head are taken together
        for g in range(gain.shape[1]):
            if g != group[heads[h]] and np.isfinite(gain[h, g]) and np.isfinite(derivative[h, g]):
                total = max(total, gain[h, g]) if last > 0 else total + gain[h, g]
        if total >= least:
            return False
    return True


def _learn_moves(moves: np.ndarray, draws: Draws, groups: np.ndarray, before: int, new: bool) -> np.ndarray:
    """The rows of the pairs."""
    old = pairs_of(moves)
    pairs = _judge(old, draws.part(slice(before, None)))
    for k in range(len(pairs)):
        pulled = _pulled(draws, _others(pairs, pairs[k]))
        pairs[k] = _refit(pairs[k], pulled)
        if new:
            pairs[k] = _with_other_locations(pairs[k], pairs, draws, groups)
            pairs[k] = _with_second_head(pairs[k], pairs, pulled, groups)
    pairs = _ordered(pairs) or pairs
    refused: set[tuple[int, int]] = set()
    for _ in range(_ROUNDS if new else 0):
        pulled = _pulled(draws, pairs)
        found = _detect(pulled, pairs, groups, refused)
        if found is None:
            break
        members, heads, sign, name, promise = found
        numbers = 0.0, 0.0, np.zeros(0), np.zeros(0)
        law = Pair(members, heads, sign * BETAS[0], -1, 0.0, _NOWHERE, *numbers)
        places = _locations(pulled, pairs, groups, law) + _own_locations(draws, pairs, groups, law)
        pair = _choose([Place(_NOWHERE, pulled, 0.0), *places], law, promise)
        if pair is None:
            refused.add(name)
        else:
            pairs = _ordered([*pairs, pair]) or pairs
    unchanged = len(pairs) == len(old) and all(a is b for a, b in zip(pairs, old, strict=True))
    return moves if unchanged else pair_rows(pairs, draws.points)


def pairs_of(table: np.ndarray) -> list[Pair]:
    """The pairs of a map, in its order; rows with heads of their own that share all else are one."""
    found: list[Pair] = []
    for k in np.flatnonzero(is_pair(table) & (table[:, ROWS] > 0.0)):
        rows = table[k : k + int(table[k, ROWS])]
        first = rows[0]
        knees = first[REFERENCE] + 0.5 * np.log(rows[:, KNEE])
        slope = float(first[SLOPE] * (np.exp(-knees[0]) if first[BETA] < 0.0 else 1.0))
        apart = bool(first[APART] > 0.0)
        heads, members = rows[:1, HEAD].astype(np.int64), rows[:, OWN].astype(np.int64)
        locations = rows[: len(rows) if apart else 1, LOCATION].astype(np.int64)
        law = float(first[BETA]), int(first[SECOND]), float(first[BETA_2]), locations
        pair = Pair(members, heads, *law, slope, float(first[OFFSET]), knees, rows[:, DATA].copy())
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
        rows[:, APART] = len(pair.locations) > 1
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


@functools.cache
def learn_funnel() -> np.ndarray:
    """The map of a small hierarchy, x_i ~ N(p, e^(2u)) with a long left tail of u, from exact draws.

    It is learnt once in a process before chains start, so that no chain waits in the middle of its warm-up
    until what learning calls is compiled or loaded.
    """
    rng, n, m = np.random.default_rng(1), 100, 6
    e, p, w = rng.exponential(size=(n, 1)), rng.normal(size=(n, 1)), rng.normal(size=(n, m))
    u = np.log(e)
    points = np.concatenate((u, p, p + e * w), axis=1)
    pulls = np.square(w).sum(axis=1, keepdims=True) - m, (w / e).sum(axis=1, keepdims=True)
    scores = np.concatenate((1.0 - e + pulls[0], -p + pulls[1], -w / e), axis=1)
    groups = np.array([0, 1, *[2] * m])
    table = learn_transport(np.empty((0, COLUMNS)), points, scores, groups, n // 2)
    table = learn_transport(table, points, scores, groups, n // 2)
    rows_into_x(table, transport_draws(table, points, scores)[0], np.zeros(n))
    change_coordinates(table, table, points[0], 0.0, scores[0])
    return table


def describe(table: np.ndarray, d: int) -> dict[str, np.ndarray]:
    """What a map does to each coordinate (d,), as results have it.

    `tail_rate` is delta, 0 where no tail is heavy, and `bend` is sigma q, 0 where there is none. `scale_head`
    and `scale_location` are the places of the head and the location, -1 for none; `scale_beta` and
    `scale_knee` the law's beta and a; `data_weight` is the weight of the data where the head has its mean:
    near 1 the coordinate is sampled as in a centred program, near 0 as in the other one. NaN where the
    coordinate is not moved.
    """
    tails = tails_of(table)
    described: dict[str, np.ndarray] = {"tail_rate": np.zeros(d)}
    described["tail_rate"][tails.places] = tails.rates
    described["bend"] = np.zeros(d)
    for one in bends_of(table):
        described["bend"][one.place] = one.side * one.strength
    moves = table[is_pair(table)]
    own = moves[:, OWN].astype(np.int64)
    for name, column in (("scale_head", HEAD), ("scale_location", LOCATION)):
        described[name] = np.full(d, -1)
        described[name][own] = moves[:, column]
    weight = 1.0 / np.square(moves[:, UNIT])
    knees = [pair.knees for pair in pairs_of(table)]
    numbers = {
        "scale_beta": moves[:, BETA],
        "scale_knee": np.concatenate(knees) if knees else np.zeros(0),
        "data_weight": np.where(moves[:, BETA] > 0.0, weight, 1.0 - weight),
    }
    for name, values in numbers.items():
        described[name] = np.full(d, np.nan)
        described[name][own] = values
    return described


def same_law(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two maps change the same coordinates by the same laws, whatever the numbers are."""
    columns = [KIND, OWN, HEAD, SECOND, LOCATION, BETA, BETA_2]
    return np.array_equal(one[:, columns], other[:, columns])


def _view(draws: Draws, pair: Pair) -> View:
    """What a pair sees of draws."""
    x = np.ascontiguousarray(draws.points[:, pair.members].T)
    s = np.ascontiguousarray(draws.scores[:, pair.members].T)
    eta = pair.beta * np.ascontiguousarray(draws.points[:, pair.heads].T)
    if pair.second >= 0:
        eta += pair.beta_2 * draws.points[:, pair.second]
    p = np.ascontiguousarray(draws.points[:, pair.locations].T)
    p[pair.locations < 0] = 0.0
    return View(x, s, eta, p, pair.beta > 0.0)


def _roots(pair: Pair) -> set[int]:
    """The heads and locations of a pair."""
    return {int(i) for i in (*pair.heads, pair.second, *pair.locations)} - {-1}


def _others(pairs: list[Pair], pair: Pair) -> list[Pair]:
    """The pairs without this one, and without those that move its heads and locations.

    A law is one of coordinates as they are in the program, so what rules must not be moved.
    """
    kept, roots = [], _roots(pair)
    for other in reversed(pairs):
        if roots.intersection(map(int, other.members)):
            roots |= _roots(other)
        elif other is not pair:
            kept.append(other)
    return kept[::-1]


def _ordered(pairs: list[Pair]) -> list[Pair] | None:
    """The pairs in an order in which a coordinate is moved before it rules others; None if there is none."""
    waiting, found = list(pairs), []
    while waiting:
        for pair in waiting:
            moved = {int(i) for other in waiting if other is not pair for i in other.members}
            if not moved & _roots(pair):
                break
        else:
            return None
        found.append(pair)
        waiting = [other for other in waiting if other is not pair]
    return found


def _pulled(draws: Draws, pairs: list[Pair]) -> Draws:
    """The draws in the coordinates of `pairs`, the last of which is the first to be undone.

    z_i is not scaled to x_i.
    """
    if not pairs:
        return draws
    points, scores = draws.points.copy(), draws.scores.copy()
    for pair in reversed(pairs):
        view = _view(Draws(points, scores), pair)
        z, scores_z, pull, drag = _pull(view, pair)
        points[:, pair.members], scores[:, pair.members] = z.T, scores_z.T
        scores[:, pair.heads] += pair.beta * pull.T
        if pair.second >= 0:
            scores[:, pair.second] += pair.beta_2 * pull.sum(axis=0)
        placed = pair.locations >= 0
        np.add.at(scores.T, pair.locations[placed], drag[placed])
    return Draws(points, scores)


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
            w = max(1.0 / (1.0 + np.exp(-2.0 * (eta[h, t] - knees[j]))), _TINY)
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
        total += 0.5 * np.log(_variance(z[j]) * _variance(scores[j]))
    return total


@exact
def _variance(values: Any) -> Any:
    mean, squares = 0.0, 0.0
    for t in range(values.size):
        mean += values[t]
    mean /= values.size
    for t in range(values.size):
        squares += (values[t] - mean) * (values[t] - mean)
    return squares / values.size


def divergence(draws: Draws, pair: Pair, view: View | None = None) -> float:
    """F of a pair."""
    view = _view(draws, pair) if view is None else view
    pull, drag = np.zeros_like(view.eta), np.zeros_like(view.p)
    scratch = np.empty_like(view.x), np.empty_like(view.s)
    numbers = pair.slope, pair.offset, pair.knees, pair.data
    total = float(_evaluate(*view, *numbers, *scratch, pull, drag))
    for k, head in enumerate(pair.heads):
        total += _root(draws, head, pair.beta * pull[k])
    if pair.second >= 0:
        total += _root(draws, pair.second, pair.beta_2 * pull.sum(axis=0))
    for place in np.unique(pair.locations[pair.locations >= 0]):
        total += _root(draws, place, drag[pair.locations == place].sum(axis=0))
    return total


def _root(draws: Draws, place: int, added: np.ndarray | float) -> float:
    """log(1 + V(x) V(s)) / 2 of a head or location, with what a map adds to its score."""
    score = np.ascontiguousarray(draws.scores[:, place] + added)
    return float(0.5 * np.log1p(_variance(np.ascontiguousarray(draws.points[:, place])) * _variance(score)))


def plain_divergence(draws: Draws, pair: Pair, coefficients: np.ndarray | None = None) -> float:
    """F of the same coordinates without the law: as they are, or less what is linear in heads and location.

    `coefficients` (m, k) are those of `linear_map`.
    """
    x, s = draws.points[:, pair.members].T, draws.scores[:, pair.members].T
    added: dict[int, np.ndarray | float] = {}
    if len(pair.heads) > 1:
        added = {int(head): 0.0 for head in pair.heads}
    rulers = _rulers(pair)
    for k, ruler in enumerate(rulers):
        if coefficients is not None:
            x = x - coefficients[:, k, None] * draws.points[:, ruler].T
        for place in np.unique(ruler):
            ruled = slice(None) if len(ruler) == 1 else ruler == place
            added[int(place)] = 0.0 if coefficients is None else coefficients[ruled, k] @ s[ruled]
    total = 0.0
    for place, more in added.items():
        total += _root(draws, place, more)
    return float(total + 0.5 * np.log(x.var(axis=1) * s.var(axis=1)).sum())


def _rulers(pair: Pair) -> list[np.ndarray]:
    """The heads that all members share, and the locations: (1,), or (m,) if each member has its own."""
    rulers = [pair.heads] if len(pair.heads) == 1 else []
    rulers += [np.array([pair.second])] if pair.second >= 0 else []
    return rulers + ([pair.locations] if pair.is_located else [])


def linear_map(draws: Draws, pair: Pair) -> np.ndarray:
    """The coefficients (m, k) of regressions of the members on the heads that they share and locations."""
    x, rulers = draws.points[:, pair.members], _rulers(pair)
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


def _fall(draws: Draws, pair: Pair, older: Draws | None = None) -> float:
    """By how much F is smaller under a law than without a map, and than under a linear one.

    The linear one is fitted to the same draws, or to `older` ones.
    """
    linear = plain_divergence(draws, pair, linear_map(draws if older is None else older, pair))
    return min(plain_divergence(draws, pair), linear) - divergence(draws, pair)


def _fit(draws: Draws, law: Pair, *, free: bool = True, offset: bool = False) -> Pair:
    """The knees and y of a law and, if it is `free`, C, and c if it is to have an `offset`.

    Else C and c are those of the law.
    """
    view = _view(draws, law)
    if not free:
        return _with_numbers(law, view, law.slope, law.offset)
    return _fit_place(draws, law, view, offset=offset and view.up)


def _fit_place(draws: Draws, law: Pair, view: View, *, offset: bool) -> Pair:
    """The numbers of a law with C, if it has a location, and with c, if it is to have an `offset`."""
    located = law.is_located
    if not (located or offset):
        return _with_numbers(law, view, 0.0, 0.0)
    slope, shift = _first_place(view, located, offset)
    pair = _with_numbers(law, view, slope, shift)
    for _ in range(2):
        pair = _with_numbers(law, view, *_solve_place(view, pair, located, offset))
    whole = float(np.round(pair.slope))
    if located and whole != 0.0 and abs(pair.slope - whole) < _NEARLY_WHOLE * abs(whole):
        near = abs(pair.slope - whole) < _WHOLE * abs(whole)
        shift = _solve_place(view, pair, False, offset, whole)[1]
        other = _with_numbers(law, view, whole, shift)
        if near or divergence(draws, other, view) < divergence(draws, pair, view) + 2.0 / len(view.x[0]):
            pair = other
    if offset and pair.offset != 0.0:
        plain = float(f"{pair.offset:.2g}")
        other = _with_numbers(law, view, pair.slope, plain)
        if divergence(draws, other, view) < divergence(draws, pair, view) + 2.0 / len(view.x[0]):
            pair = other
    return pair


def _with_numbers(law: Pair, view: View, slope: float, offset: float) -> Pair:
    """The law with C and c, and with the knees and y that go with them."""
    knees, data = _fit_knees(view, slope, offset)
    return law._replace(slope=slope, offset=offset, knees=knees, data=data)


def _first_place(view: View, located: bool, offset: bool) -> tuple[float, float]:
    """C and c by least squares without weights, where beta is positive."""
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
    view: View, pair: Pair, located: bool, offset: bool, slope: float = 0.0
) -> tuple[float, float]:
    """C, if the law is `located`, and c, if it has an `offset`, by weighted least squares, given the knees
    and y.

    Without a location C is `slope`.
    """
    x, eta, p, up = view.x, view.eta, view.p, view.up
    pp, p1, one, xp, x1 = _regress(x, eta, p, up, pair.knees, pair.data)
    if located and offset:
        det = pp * one - p1 * p1
        return (xp * one - x1 * p1) / det, (x1 * pp - xp * p1) / det
    if located:
        return xp / pp, 0.0
    return slope, (x1 - slope * p1) / one if offset else 0.0


@exact
def _regress(x: Any, eta: Any, p: Any, up: Any, knees: Any, data: Any) -> Any:
    """The weighted sums of p², p, 1, x p and x over all members, for the regression of x on p and 1."""
    m, n = x.shape
    pp, p1, one, xp, x1 = 0.0, 0.0, 0.0, 0.0, 0.0
    target, along = np.empty(n), np.empty(n)
    for j in range(m):
        h, q = j if len(eta) > 1 else 0, j if len(p) > 1 else 0
        factor = 1.0 if up else np.exp(knees[j])
        for t in range(n):
            w = max(1.0 / (1.0 + np.exp(-2.0 * (eta[h, t] - knees[j]))), _TINY)
            root, left = np.sqrt(w), 1.0 - w
            if up:
                target[t], along[t] = (x[j, t] - w * data[j]) / root, left / root
            else:
                target[t], along[t] = x[j, t] / root - np.sqrt(left) * data[j], np.sqrt(left) * factor
        size = 1.0 / _variance(target)
        for t in range(n):
            a = along[t] * size
            pp += a * along[t] * p[q, t] * p[q, t]
            p1 += a * along[t] * p[q, t]
            one += a * along[t]
            xp += a * target[t] * p[q, t]
            x1 += a * target[t]
    return pp, p1, one, xp, x1


def _fit_knees(view: View, slope: float, offset: float) -> tuple[np.ndarray, np.ndarray]:
    """The knees and y of all members (m,), from a grid of knees."""
    x, s, eta, p, up = view
    knees, data = _search_knees(x, s, eta, slope * p + offset, up)
    return knees, data


@exact
def _search_knees(x: Any, s: Any, eta: Any, at: Any, up: Any) -> Any:
    """The same, where `at` (n,) is C p + c."""
    (m, n), heads = x.shape, len(eta)
    centres, low, high = np.empty(heads), np.inf, -np.inf
    for h in range(heads):
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
    knees, chosen = np.empty(m), np.empty(m)
    for j in range(m):
        best, least = 0, np.inf
        for k in range(inside + 2):
            apart = min(max(grid[k] - grid[common], -_FLAT), _FLAT)
            values[j, k] += 0.5 * (_POOL * (apart * apart) + _prior(grid[k])) / n
            if values[j, k] < least:
                best, least = k, values[j, k]
        knees[j], chosen[j] = grid[best], data[j, best]
        if 1 < best < inside:  # a parabola through the best and its neighbours
            below, above = values[j, best - 1], values[j, best + 1]
            shift = 0.5 * (below - above) / (below - 2.0 * values[j, best] + above)
            if np.isfinite(shift):
                shift = min(max(shift, -0.5), 0.5)
                side = 1 if shift > 0.0 else -1
                knees[j] += shift * step
                chosen[j] += abs(shift) * (data[j, best + side] - chosen[j])
        knees[j] += centres[j if heads > 1 else 0]
    return knees, chosen


@exact
def _prior(knee: Any) -> Any:
    near = min(max(knee, -_FLAT), _FLAT)
    return _PRIOR * (near * near)


@kernel
def _scan(
    x: Any, s: Any, eta: Any, at: Any, up: Any, centres: Any, grid: Any, values: Any, data: Any
) -> None:
    """log(V(z) V(s_z)) / 2 and y of m members for K knees, counted from the heads' means: both (m, K).

    `at` (1 or m, n) is C p + c.
    """
    m, n = x.shape
    root, inverse, left, place = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    weight, total, factor = np.empty(n), 1.0, 1.0
    for k in range(grid.size):
        for j in range(m):
            if j == 0 or len(eta) > 1:  # what the members share
                knee = centres[j if len(eta) > 1 else 0] + grid[k]
                row = eta[j if len(eta) > 1 else 0]
                factor = 1.0 if up else np.exp(knee)
                total = _WEIGHT
                for t in range(n):
                    w = max(1.0 / (1.0 + np.exp(-2.0 * (row[t] - knee))), _TINY)
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


def _judge(pairs: list[Pair], draws: Draws) -> list[Pair]:
    """The pairs without those that make the draws of the last window worse."""
    kept = list(pairs)
    if len(draws.points) < _JUDGES:
        return kept
    for pair in pairs:
        if not _fall(_pulled(draws, _others(kept, pair)), pair) > 0.0:
            kept = [other for other in kept if other is not pair]
    return kept


def _refit(pair: Pair, draws: Draws) -> Pair:
    """The pair, fitted to all draws, where that makes enough of a difference."""
    best, least = pair, divergence(draws, pair) - SETTLED * len(pair.members)
    offset = pair.offset != 0.0
    free = offset or not float(pair.slope).is_integer()
    for size in BETAS:
        beta = float(np.sign(pair.beta) * size)
        fit = _fit(draws, pair._replace(beta=beta), free=free, offset=offset)
        value = divergence(draws, fit) + (0.0 if beta == pair.beta else 3.0 / len(draws.points))
        if value < least:
            best, least = fit, value
    return _with_offset(best, draws)


def _with_offset(pair: Pair, draws: Draws) -> Pair:
    """The pair with an offset of its place, where it can have one and both halves of the draws ask for it."""
    if pair.beta < 0.0 or pair.offset != 0.0:
        return pair
    least = LEAD + OFFSET_GAIN * len(pair.members)
    shifted = _fit(draws, pair, offset=True)
    if not divergence(draws, pair) - divergence(draws, shifted) > least:
        return pair
    older, newer = draws.halves()
    gain = divergence(newer, _fit(older, pair)) - divergence(newer, _fit(older, pair, offset=True))
    return shifted if gain > least else pair


def _choose(places: list[Place], law: Pair, promise: float) -> Pair | None:
    """The law and location of a new pair; None where the newer half of the draws does not bear it out.

    Where F should fall by much, the `promise` of its derivative, and does not, the place may have an offset.
    """
    found = _choose_place(places, law, offset=False)
    if found is None and promise > PROMISE and law.beta > 0.0:
        found = _choose_place(places, law, offset=True)
    return None if found is None else _with_offset(*found)


def _choose_place(places: list[Place], law: Pair, *, offset: bool) -> tuple[Pair, Draws] | None:
    """The same with the draws that it is fitted to."""
    chosen, gain = None, -np.inf
    for place in places:
        whole = law._replace(locations=place.locations)
        some = _part(whole)
        scale = len(whole.members) / len(some.members)
        pair = _fit(place.draws, some, offset=offset)
        fall = scale * (plain_divergence(place.draws, pair) - divergence(place.draws, pair)) - place.cost
        if chosen is None or fall - gain > LEAD:
            chosen, gain = (whole, pair, scale, place), fall
    assert chosen is not None
    law, pair, scale, (*_, draws, cost) = chosen
    margin = MARGIN + cost
    if not (scale * _fall(draws, pair) > margin and _is_borne_out(draws, pair, offset, margin / scale)):
        return None
    best = _fit(draws, law, offset=offset)
    gain = _fall(draws, best)
    for size in BETAS[1:]:
        pair = _fit(draws, best._replace(beta=float(np.sign(law.beta) * size)), offset=offset)
        if (fall := _fall(draws, pair)) > gain + 1.0 / len(draws.points):
            best, gain = pair, fall
    return (best, draws) if _is_borne_out(draws, best, offset, margin) else None


def _part(law: Pair) -> Pair:
    """The law of some of the members, unless these follow each other."""
    every = -(-len(law.members) // _SOME)
    return law._replace(
        members=law.members[::every],
        heads=law.heads if len(law.heads) == 1 else law.heads[::every],
        locations=law.locations if len(law.locations) == 1 else law.locations[::every],
    )


def _is_borne_out(draws: Draws, pair: Pair, offset: bool, margin: float) -> bool:
    """Whether the law, fitted to the older half of the draws, beats having none on the newer half."""
    older, newer = draws.halves()
    return _fall(newer, _fit(older, pair, offset=offset), older) > margin


def _with_second_head(pair: Pair, pairs: list[Pair], draws: Draws, groups: np.ndarray) -> Pair:
    """The pair with another head that all its members share, if they have one."""
    if pair.second >= 0:
        return pair
    taken = {int(i) for other in pairs for i in (*other.members, *other.heads)}
    heads = np.array([i for i in np.flatnonzero(_may_rule(groups)) if i not in taken], np.int64)
    if not heads.size:
        return pair
    group = np.zeros(len(pair.members), np.int64)
    gain, derivative = _gains(_pulled(draws, [pair]), pair.members, group, heads)
    k = int(gain[:, 0].argmax())
    if gain[k, 0] < max(NEED / len(draws.points), LEAST_GAIN) or np.sign(-derivative[k, 0]) != np.sign(
        pair.beta
    ):
        return pair
    older, newer = draws.halves()
    best, gained = pair, MARGIN
    for size in BETAS:
        law = pair._replace(second=int(heads[k]), beta_2=float(np.sign(pair.beta) * size))
        offset = pair.offset != 0.0
        trial = _fit(older, law, offset=offset)
        alone = divergence(newer, _fit(older, pair, offset=offset)) + _root(newer, law.second, 0.0)
        if (fall := alone - divergence(newer, trial)) > gained:
            best, gained = _fit(draws, law, offset=offset), fall
    return best


def _locations(pulled: Draws, pairs: list[Pair], groups: np.ndarray, law: Pair) -> list[Place]:
    """The coordinates outside of the group that correlate most with it."""
    members, free = law.members, _free_locations(pairs, groups, law)
    if not free.size:
        return []
    some = members[:: -(-len(members) // _SOME)]
    strength = np.abs(_correlations(pulled.points, free, some)).mean(axis=1)
    return [Place(free[k : k + 1], pulled, 0.0) for k in np.argsort(-strength)[:_PLACES]]


def _free_locations(pairs: list[Pair], groups: np.ndarray, law: Pair) -> np.ndarray:
    """The coordinates that may be locations and are not moved."""
    taken = {int(i) for pair in (*pairs, law) for i in pair.members} | {*map(int, law.heads)}
    return np.array([i for i in np.flatnonzero(_may_rule(groups)) if i not in taken], np.int64)


def _correlations(points: np.ndarray, these: np.ndarray, those: np.ndarray) -> np.ndarray:
    """The correlations (these, those) of draws, times their number."""
    u, v = (points[:, i] - points[:, i].mean(axis=0) for i in (these, those))
    return np.asarray((u / u.std(axis=0)).T @ (v / v.std(axis=0)))


def _own_locations(draws: Draws, pairs: list[Pair], groups: np.ndarray, law: Pair) -> list[Place]:
    """What may be the own locations of members: the coordinates of another variable that correlate most."""
    members, sizes = law.members, np.bincount(groups)
    if len(law.heads) > 1 or len(members) < _FEWEST or len(set(groups[members])) > 1:
        return []
    ruled, found, strengths = set(groups[[*members, *law.heads]]), [], []
    for g in np.flatnonzero((sizes > 1) & (sizes <= len(members))):
        if g in ruled:
            continue
        coordinates = np.flatnonzero(groups == g)
        strength = np.abs(_correlations(draws.points, coordinates, members))
        if np.isfinite(strength).all():
            cost = len(members) * np.log(sizes[g]) / len(draws.points)
            found.append((coordinates[strength.argmax(axis=0)], cost))
            strengths.append(-strength.max(axis=0).mean())
    likely = [found[k] for k in np.argsort(strengths)[:_PLACES]]
    places = []
    for locations, cost in likely:
        trial = law._replace(locations=locations)
        if len(set(locations)) > 1 and _ordered([*pairs, trial]):
            pulled = _pulled(draws, _others([*pairs, trial], trial))
            places.append(Place(locations, pulled, cost))
    return places


def _with_other_locations(pair: Pair, pairs: list[Pair], draws: Draws, groups: np.ndarray) -> Pair:
    """The pair with another location, or with locations of the members' own, where the draws ask for them.

    The first draws may show the wrong one: where two hierarchies move together, either mean will do.
    """
    rest = [other for other in pairs if other is not pair]
    places = _likeliest_location(draws, rest, groups, pair) + _own_locations(draws, rest, groups, pair)
    places = [place for place in places if not np.array_equal(place.locations, pair.locations)]
    if not places:
        return pair
    offset = pair.offset != 0.0
    present = Place(pair.locations, _pulled(draws, _others(pairs, pair)), 0.0)
    best, gain = pair, _newer_fall(present, pair, offset)
    for place in places:
        law = pair._replace(locations=place.locations)
        again = len(pair.locations) > 1 and set(groups[place.locations]) == set(groups[pair.locations])
        lead = SETTLED * len(pair.members) if again else LEAD + place.cost
        if (fall := _newer_fall(place, law, offset)) > gain + lead:
            best, gain = _fit(place.draws, law, offset=offset), fall
    return best


def _likeliest_location(draws: Draws, pairs: list[Pair], groups: np.ndarray, law: Pair) -> list[Place]:
    """The coordinate that correlates most with the members, as the draws are, whether it is moved or not."""
    free = np.setdiff1d(np.flatnonzero(_may_rule(groups)), [*law.members, *law.heads])
    if not free.size or len(law.members) < _FEWEST or len(law.locations) > 1:
        return []
    some = law.members[:: -(-len(law.members) // _SOME)]
    strength = np.abs(_correlations(draws.points, free, some)).mean(axis=1)
    if not np.isfinite(strength).all():
        return []
    trial = law._replace(locations=free[[strength.argmax()]])
    if not _ordered([*pairs, trial]):
        return []
    return [Place(trial.locations, _pulled(draws, _others([*pairs, trial], trial)), 0.0)]


def _newer_fall(place: Place, law: Pair, offset: bool) -> float:
    """By how much F is smaller on the newer half of the draws under the law that the older ones show."""
    older, newer = place.draws.halves()
    return plain_divergence(newer, law) - divergence(newer, _fit(older, law, offset=offset))


def _may_rule(groups: np.ndarray) -> np.ndarray:
    """Which coordinates (d,) may be heads and locations: those of small variables, if there are several."""
    return np.asarray((np.bincount(groups)[groups] <= _FEW) | (groups.max() == 0))


def _detect(
    draws: Draws, pairs: list[Pair], groups: np.ndarray, refused: set[tuple[int, int]]
) -> tuple[np.ndarray, np.ndarray, float, tuple[int, int], float] | None:
    """The members, heads and sign of beta of the pair that promises most; None where none does.

    With its name, its first member and head, as in `refused`, and the fall of F that it promises.
    """
    n, named = len(draws.points), groups.max() > 0
    moved = {int(i) for pair in pairs for i in pair.members}
    roots = {int(ruler[0]) for pair in pairs for ruler in _rulers(pair) if len(ruler) == 1}
    roots |= {int(i) for pair in pairs for i in pair.heads}
    free = np.array([i for i in range(len(groups)) if i not in moved and i not in roots], np.int64)
    heads = np.array([i for i in np.flatnonzero(_may_rule(groups)) if i not in moved], np.int64)
    if not free.size:
        return None
    if not named and heads.size > _HEADS:  # all pairs take O(n d²), and a head feels the scales of its group
        spread = draws.points[:, heads].std(axis=0) * draws.scores[:, heads].std(axis=0)
        heads = np.sort(heads[np.argsort(-spread, kind="stable")[:_HEADS]])
    _, first_of, group = np.unique(groups[free] if named else free, return_index=True, return_inverse=True)
    firsts = free[first_of]
    found, best = None, max(NEED / n, LEAST_GAIN)
    if heads.size:
        gain, derivative = _gains(draws, free, group, heads)
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
    waiting = {int(g) for g in groups[free] if sizes[g] > _FEW}
    for g in sorted(waiting):
        members = np.flatnonzero(groups == g)
        if not np.isin(members, free).all():
            continue
        for h in np.flatnonzero(sizes == sizes[g]):
            heads = np.flatnonzero(groups == h)
            name = int(members[0]), int(heads[0])
            if h == g or int(heads[0]) in moved or name in refused:
                continue
            gain, sign = _own_gain(*draws, members, heads)
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


def _gains(
    draws: Draws, members: np.ndarray, group: np.ndarray, heads: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The fall of F that a slope would bring, and the derivative of F in it: (heads, groups).

    `group` (members,) are the numbers of the members' groups, from 0 on.
    """
    found = np.zeros((2, len(heads), int(group.max()) + 1))
    _screen(*draws, members, group, heads, np.isin(members, heads), *found)
    found[:, ~np.isfinite(found).all(axis=0)] = 0.0
    return found[0], found[1]


@exact
def _screen(
    points: Any, scores: Any, members: Any, group: Any, heads: Any, as_is: Any, gain: Any, derivative: Any
) -> None:
    """Write what `_gains` returns.

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
