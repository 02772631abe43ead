"""Learning the map of transport.py from a few hundred draws and scores.

What is minimised is F, the divergence of transport_pairs.py. Heavy tails and bends are learnt in
heavy_tails.py and bends.py, from draws in which the pairs that are found here have been undone.

At the end of a window, in this order:

1. *Judge.* Draws of the window that has just ended were made after the map. A pair (a group of coordinates
   with its head) under which F is not smaller there than without it is dropped.
2. *Refit* the pairs, where that pays: else they stay as they are, so that the map comes to rest and warm-up
   can end.
3. *Detect* the group and the head for which F would fall most (transport_detection.py).
4. *Locate.* A location is that coordinate of a small variable that correlates most with the group. It may
   also be one for each member, as in a hierarchy of two levels: the coordinate of another variable that
   correlates most with the member. F decides, and to choose among k coordinates for each of m members costs
   m log k / n of its fall.
5. *Fit* the numbers of the law (transport_fit.py).
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
import itertools
from typing import Any, NamedTuple

import numpy as np

from ..jit import exact
from ..transport import (
    BETA,
    HEAD,
    LOCATION,
    OWN,
    UNIT,
    change_coordinates,
    is_pair,
    no_transport,
    rows_into_x,
    transport_draws,
)
from .bends import bend_rows, bends_of, learn_bends, may_have_bends
from .dense_metric import is_finite
from .heavy_tails import LEAST, learn_tails, may_have_tails, tail_rows, tails_of
from .score_support import likelihood_terms, places, unexplained, unexplained_alone
from .transport_detection import FEW, LEAST_GAIN, NEED, detect, may_rule, screen, slope_gains
from .transport_fit import fit_law
from .transport_pairs import (
    Draws,
    Pair,
    divergence,
    fall_of,
    order_pairs,
    others_of,
    pair_rows,
    pairs_of,
    plain_divergence,
    pull_draws,
    root_divergence,
)

PROMISE = 1.0  # expected fall of F from which on a place with an offset is tried
OFFSET_GAIN = 0.1  # fall of F a coordinate that an offset must bring
MARGIN = 0.3  # fall of F on the newer half of the draws that a pair must bring
LEAD = 0.5  # fall of F by which a location must be better than none, or than another one
SETTLED = 0.02  # fall of F a coordinate, below which a pair stays as it is
BETAS = (1.0, 0.5)  # a log scale; a log variance or precision
_PLACES = 3  # locations that are tried
_SOME = 16  # coordinates of a group by which locations are compared
_ROUNDS = 4  # new pairs in a window
_JUDGES = 15  # draws of a window that may judge a pair
_RULERS = 5  # coordinates of small variables that the locations of a program that is not centred are made of
_FEWEST = 3  # members that may have locations of their own
# Mean fall of the logarithm of the scores' unexplained share that decides for one law among several, and that
# another head or an offset must bring.
CLEAR, WORTH = 1.0, 0.3
NEAR = 1e-3  # distance of members' C and c from each other that is rounding
_DIGITS = 4  # that such a number has
EXACT = -12.0  # the same logarithm, below which a law leaves nothing
CERTAIN = 90  # draws from which on such a law is looked for where F shows nothing
SPREAD = 0.1  # of a log scale, from which on a law that is exact is taken
_NOWHERE = np.array([-1])  # no location


class Place(NamedTuple):
    """Where the members of a pair may be."""

    locations: np.ndarray
    draws: Draws  # in which these are as in the program
    cost: float  # what F must fall by, since one of many is chosen
    parts: np.ndarray = _NOWHERE  # of locations that are not centred themselves, see Pair
    part_head: int = -1
    part_beta: float = 0.0

    def of(self, law: Pair) -> Pair:
        """The law with its members here."""
        law = law.at(self.locations)
        return law._replace(parts=self.parts, part_head=self.part_head, part_beta=self.part_beta)


@np.errstate(all="ignore")  # what is not finite is not taken
def learn_transport(
    table: np.ndarray,
    points: np.ndarray,
    scores: np.ndarray,
    groups: np.ndarray,
    before: int,
    *,
    new: bool = True,
    wholly: bool = True,
) -> np.ndarray:
    """The map that draws and scores in x (n, d), the older ones first, show.

    The first `before` of them are those of the window before; `table` is the map of the present one. `groups`
    (d,) are the variables that coordinates belong to; where it is empty, nothing is learnt. Without `new` no
    pair is added: one of the last window would be judged by nobody. Unless `wholly`, laws that explain scores
    wholly are looked for only where F shows something.
    """
    if not (len(groups) and len(points) >= LEAST):
        return table
    points, scores = np.ascontiguousarray(points), np.ascontiguousarray(scores)
    if not (is_finite(points) and is_finite(scores)):
        return table
    plain = not len(table) and _is_plain(points, scores, groups, new)
    if plain and not (wholly and new and len(points) >= CERTAIN):
        return table
    draws = _with_likelihood(Draws(points, scores), pairs_of(table), groups)
    if plain:
        pairs = _with_exact_pairs([], draws, groups, new)
        return pair_rows(order_pairs(pairs) or [], points) if pairs else table
    moves = table[is_pair(table)]
    with contextlib.suppress(np.linalg.LinAlgError):
        moves = _learn_moves(moves, draws, groups, before, new)
    moved = moves[:, OWN].astype(np.int64)
    pulled = transport_draws(moves, points, scores)
    tails = learn_tails(tails_of(table), *pulled, moved)
    bends = learn_bends(bends_of(table), *pulled, np.concatenate((moved, tails.places)))
    return np.concatenate((tail_rows(tails), bend_rows(bends), moves))


@exact
def _is_plain(points: Any, scores: Any, groups: Any, new: Any) -> Any:
    """Whether draws and scores (n, d) show nothing that `learn_transport` would look at, if there is no map.

    Most posteriors show nothing, and to find that out by NumPy's calls takes as long as a hundred draws of a
    small model. What is detected is what `detect`, `learn_tails` and `learn_bends` detect, or more.
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
            if sizes[g] == sizes[h] and sizes[g] > FEW:  # one may have its heads in the other
                return False
    members, group, as_is = np.arange(d), np.arange(d), np.zeros(d, np.bool_)
    heads, k = np.empty(d, np.int64), 0
    for j in range(d):
        if last > 0:
            group[j] = groups[j]
        if last == 0 or sizes[groups[j]] <= FEW:
            as_is[j] = True
            heads[k] = j
            k += 1
    if k == 0:
        return True
    gain, derivative = np.zeros((k, group.max() + 1)), np.zeros((k, group.max() + 1))
    screen(points, scores, members, group, heads[:k], as_is, gain, derivative)
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
    pairs = _judge(old, draws.part(slice(before, None)), draws)
    for k in range(len(pairs)):
        pulled = pull_draws(draws, others_of(pairs, pairs[k]))
        pairs[k] = _refit(_simplify(pairs[k], pairs, draws, pulled), pulled)
        if new:
            pairs[k] = _with_other_locations(pairs[k], pairs, draws, groups)
            pairs[k] = _with_second_head(pairs[k], pairs, draws, pulled, groups)
    pairs = order_pairs(_with_exact_pairs(pairs, draws, groups, new)) or pairs
    refused: set[tuple[int, int]] = set()
    for _ in range(_ROUNDS if new else 0):
        pulled = pull_draws(draws, pairs)
        found = detect(pulled, pairs, groups, refused)
        if found is None:
            break
        members, heads, sign, name, promise = found
        numbers = 0.0, 0.0, np.zeros(0), np.zeros(0)
        law = Pair(members, heads, sign * BETAS[0], -1, 0.0, _NOWHERE, *numbers)
        nowhere = Place(_NOWHERE, pulled, 0.0)
        places = [nowhere, *_locations(draws, pulled, pairs, groups, law)]
        places = _places(places, law, pairs, draws, groups)
        pair = _choose(places, law, promise, pairs, draws)
        if pair is None:
            refused.add(name)
        else:
            pairs = order_pairs([*pairs, pair]) or pairs
    unchanged = len(pairs) == len(old) and all(a is b for a, b in zip(pairs, old, strict=True))
    return moves if unchanged else pair_rows(pairs, draws.points)


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
    table = learn_transport(no_transport(), points, scores, groups, n // 2)
    table = learn_transport(table, points, scores, groups, n // 2)
    rows_into_x(table, transport_draws(table, points, scores)[0], np.zeros(n))
    change_coordinates(table, table, points[0], 0.0, scores[0])
    return table


def describe(table: np.ndarray, d: int) -> dict[str, np.ndarray]:
    """What a map does to each coordinate (d,), as results have it, and the map itself, `transport`.

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
    return described | {"transport": table}


def _judge(pairs: list[Pair], draws: Draws, whole: Draws) -> list[Pair]:
    """The pairs without those that make the draws of the last window worse and leave some of all scores."""
    kept = list(pairs)
    if len(draws.points) < _JUDGES:
        return kept
    for pair in pairs:
        if fall_of(pull_draws(draws, others_of(kept, pair)), pair) > 0.0:
            continue
        others = [other for other in kept if other is not pair]
        if not _is_exact(pair, others, whole):
            kept = [other for other in kept if other is not pair]
    return kept


def _is_exact(law: Pair, others: list[Pair], draws: Draws) -> bool:
    """Whether the law leaves nothing of its members' scores, and something is left without it."""
    alone = unexplained_alone(draws, law.members, others).mean()
    return bool(_unexplained(law, others, draws) < EXACT < alone - CLEAR)


def _with_likelihood(draws: Draws, pairs: list[Pair], groups: np.ndarray) -> Draws:
    """The draws with the terms of a likelihood with which some law explains scores wholly, if there is one.

    Without them where a law does so as it is, or where there are few draws.
    """
    members = _unexplained_groups(draws, pairs, groups)
    if len(draws.points) < CERTAIN or not members:
        return draws
    small = np.flatnonzero(may_rule(groups))
    for error in (None, -1, *map(int, small[:_RULERS])):
        trial = draws
        if error is not None:
            more = likelihood_terms(draws.points, error, small[: 2 * _RULERS])
            trial = draws._replace(likelihood=more)
        for some in members:
            others = [pair for pair in pairs if not np.isin(pair.members, some).any()]
            rulers = np.setdiff1d(
                _spread_heads(draws, pairs, groups), [*some, -1 if error is None else error]
            )[:_RULERS]
            if rulers.size and _exact_pair(trial, others, groups, some, rulers, plain=True) is not None:
                return trial
    return draws


def _unexplained_groups(draws: Draws, pairs: list[Pair], groups: np.ndarray) -> list[np.ndarray]:
    """The members of large variables whose scores no pair of theirs explains wholly; none if one does."""
    found: list[np.ndarray] = []
    if not groups.max():
        return found
    for g in np.flatnonzero(np.bincount(groups) >= _FEWEST):
        members = np.flatnonzero(groups == g)
        for pair in pairs:
            if np.isin(members, pair.members).any():
                others = [other for other in pairs if other is not pair]
                if _unexplained(pair, others, draws) < EXACT:
                    return []
        found.append(members)
    return found


def _spread_heads(draws: Draws, pairs: list[Pair], groups: np.ndarray) -> np.ndarray:
    """The coordinates of small variables that vary enough to be worth a law, and are not moved."""
    moved = {int(i) for pair in pairs for i in pair.members}
    heads = [
        i for i in np.flatnonzero(may_rule(groups)) if draws.points[:, i].std() > SPREAD and i not in moved
    ]
    return np.array(heads, np.int64)


def _with_exact_pairs(pairs: list[Pair], draws: Draws, groups: np.ndarray, new: bool) -> list[Pair]:
    """The pairs, and those that explain the scores of their members wholly, whether F falls already or not.

    Where a scale is seldom small, draws in its neck come late, or never. The scores tell of it all the same.
    Such a pair takes the place of one that leaves something of the same scores; others are added if `new`.
    """
    if not groups.max():
        return pairs
    sizes, done, count = np.bincount(groups), set[int](), -1
    while len(done) > count:  # what is found explains the scores of its locations
        count = len(done)
        for g in np.flatnonzero(sizes >= _FEWEST):
            members = np.flatnonzero(groups == g)
            present = [pair for pair in pairs if np.isin(members, pair.members).any()]
            if g in done or any(len(pair.members) != len(members) for pair in present):
                continue
            others = [pair for pair in pairs if not any(pair is one for one in present)]
            if not (present or new):
                continue
            if present and _unexplained(present[0], others, draws) < EXACT:
                continue
            rulers = np.setdiff1d(_spread_heads(draws, others, groups), members)[:_RULERS]
            pair = _exact_pair(draws, others, groups, members, rulers)
            if pair is not None and order_pairs([*others, pair]):
                pairs = [*others, pair]
                done.add(int(g))
    return pairs


def _exact_pair(
    draws: Draws,
    pairs: list[Pair],
    groups: np.ndarray,
    members: np.ndarray,
    rulers: np.ndarray,
    *,
    plain: bool = False,
) -> Pair | None:
    """The law of `members` that explains their scores wholly, with one of the `rulers` as its head, or a
    head for each member, unless it is to be `plain`.
    """
    some = members[:: -(-len(members) // _FEWEST)]
    if unexplained_alone(draws, some, pairs).max() < EXACT + CLEAR:
        return None
    law = None if plain else _exact_own_heads(draws, pairs, groups, members, rulers)
    if law is not None or not rulers.size:
        return law
    own = np.isin(np.arange(len(groups)), members)
    small = np.bincount(groups)[groups] <= len(members)
    columns = draws.points[:, ~own & small]
    none = np.zeros(0)
    nested = bool((small & ~own & ~may_rule(groups)).any()) and not plain
    for beta, base in _trials(rulers, nested)[: 2 if plain else None]:
        if base is not None:  # a location that is not centred itself
            scales = np.exp(draws.points[:, rulers])
            parts = draws.points[:, small & ~own & ~may_rule(groups)]
            columns = (scales[:, :, None] * parts[:, None, :]).reshape(len(scales), -1)
        location = _NOWHERE if base is None else np.array([base])
        members_and_heads = np.tile(some, len(rulers)), np.repeat(rulers, len(some))
        law = Pair(*members_and_heads, beta, -1, 0.0, location, 0.0, 0.0, none, none)
        shares = unexplained(draws, law, pairs, candidates=columns).min(axis=1)
        shares = shares.reshape(len(rulers), -1).max(axis=1)  # the worst member of each head
        if not shares.min() < EXACT:
            continue
        head = rulers[[int(shares.argmin())]]
        law = Pair(members, head, beta, -1, 0.0, _NOWHERE, 0.0, 0.0, none, none)
        pulled = pull_draws(draws, pairs)
        places = [Place(_NOWHERE, pulled, 0.0), *_locations(draws, pulled, pairs, groups, law)]
        for place in _places(places, law, pairs, draws, groups):
            if _is_exact(place.of(law), pairs, draws):
                return _with_exact_place(place.of(law), pairs, draws, place.draws)
    return None


def _exact_own_heads(
    draws: Draws, pairs: list[Pair], groups: np.ndarray, members: np.ndarray, rulers: np.ndarray
) -> Pair | None:
    """The same with the coordinates of another variable as heads, and perhaps one of the `rulers` too."""
    every, sizes, none = -(-len(members) // _FEWEST), np.bincount(groups), np.zeros(0)
    moved = {int(i) for pair in pairs for i in pair.members}
    for h in np.flatnonzero(sizes == len(members)):
        heads = np.flatnonzero(groups == h)
        if h == groups[members[0]] or moved.intersection(map(int, heads)) or len(heads) <= FEW:
            continue
        for beta, second in itertools.product((1.0, -1.0), (-1, *map(int, rulers))):
            law = Pair(
                members, heads, beta, second, beta if second >= 0 else 0.0, _NOWHERE, 0.0, 0.0, none, none
            )
            some = law._replace(members=members[::every], heads=heads[::every])
            if unexplained(draws, some, pairs).max() < EXACT and _is_exact(law, pairs, draws):
                return _with_exact_place(law, pairs, draws, pull_draws(draws, others_of([*pairs, law], law)))
    return None


def _trials(rulers: np.ndarray, nested: bool) -> list[tuple[float, int | None]]:
    """beta, and what is added to a location that is scaled itself: -1 for nothing, None where none is."""
    found: list[tuple[float, int | None]] = [(sign * size, None) for size in BETAS for sign in (1.0, -1.0)]
    if nested:
        found += [(sign, int(base)) for sign in (1.0, -1.0) for base in (-1, *rulers)]
    return found


def _simplify(pair: Pair, pairs: list[Pair], draws: Draws, pulled: Draws) -> Pair:
    """The pair without a second head or an offset that the scores do not ask for any more."""
    others = [other for other in pairs if other is not pair]
    if pair.second >= 0:
        alone = [
            pair._replace(heads=np.array([head]), beta=beta, second=-1, beta_2=0.0)
            for head, beta in ((int(pair.heads[0]), pair.beta), (pair.second, pair.beta_2))
            if len(pair.heads) == 1
        ] or [pair._replace(second=-1, beta_2=0.0)]
        alone += [law._replace(beta=2.0 * law.beta) for law in alone if abs(law.beta) == BETAS[1]]
        shares = [_unexplained(law, others, draws) for law in alone]
        if min(shares) < _unexplained(pair, others, draws) + WORTH:
            pair = fit_law(pulled, alone[int(np.argmin(shares))], offset=pair.offset != 0.0)
    if pair.offset != 0.0 and not _needs_offset(pair, others, draws):
        pair = fit_law(pulled, pair._replace(offset=0.0))
    return _with_slope(pair, others, draws, pulled)


def _unexplained(law: Pair, others: list[Pair], draws: Draws) -> float:
    """The mean over members of what the law leaves of their scores, see score_support.py."""
    return float(unexplained(draws, law, others).mean())


def _needs_offset(law: Pair, others: list[Pair], draws: Draws) -> bool:
    """Whether the scores ask for an offset of the law's place."""
    slope = law.slope if law.slope != 0.0 or not law.is_located else 1.0
    plain = unexplained(draws, law._replace(slope=slope), others, offset=False).mean()
    return bool(plain - _unexplained(law, others, draws) > WORTH)


def _with_slope(pair: Pair, others: list[Pair], draws: Draws, pulled: Draws) -> Pair:
    """The pair with C and c as the scores have them, where they are clear: C = 1, or -1 where beta < 0."""
    exact = _with_exact_place(pair, others, draws, pulled)
    if exact is not None:
        return exact
    if not pair.is_located or pair.beta < 0.0:
        return pair
    whole = pair._replace(slope=1.0, offset=0.0)
    least = _unexplained(pair, others, draws)
    if pair.slope == 1.0 or unexplained(draws, whole, others, offset=False).mean() > least + WORTH:
        return pair
    return fit_law(pulled, whole, free=False)


def _with_exact_place(pair: Pair, others: list[Pair], draws: Draws, pulled: Draws) -> Pair | None:
    """The pair with the C and c that the scores of all its members agree on; None where they do not."""
    if _unexplained(pair, others, draws) > EXACT:
        return None
    slopes, offsets = places(draws, pair, others)
    if not (np.ptp(slopes) < NEAR and np.ptp(offsets) < NEAR):
        return None
    slope, offset = _plain(slopes), _plain(offsets)
    if (slope, offset) == (pair.slope, pair.offset) and len(pair.knees):
        return pair
    return fit_law(pulled, pair._replace(slope=slope, offset=offset), free=False)


def _plain(values: np.ndarray) -> float:
    """The median of values that are all but equal, without the digits that are rounding."""
    return float(np.round(np.median(values), _DIGITS)) + 0.0  # no -0


def _refit(pair: Pair, draws: Draws) -> Pair:
    """The pair, fitted to all draws, where that makes enough of a difference."""
    best, least = pair, divergence(draws, pair) - SETTLED * len(pair.members)
    offset = pair.offset != 0.0
    free = offset or not float(pair.slope).is_integer()
    for size in BETAS:
        beta = float(np.sign(pair.beta) * size)
        fit = fit_law(draws, pair._replace(beta=beta), free=free, offset=offset)
        value = divergence(draws, fit) + (0.0 if beta == pair.beta else 3.0 / len(draws.points))
        if value < least:
            best, least = fit, value
    return best


def _with_offset(pair: Pair, pairs: list[Pair], raw: Draws, draws: Draws) -> Pair:
    """The pair with an offset of its place, where it can have one, and scores and both halves of draws ask
    for it.
    """
    if pair.beta < 0.0 or pair.offset != 0.0 or not _needs_offset(pair, pairs, raw):
        return pair
    least = LEAD + OFFSET_GAIN * len(pair.members)
    shifted = fit_law(draws, pair, offset=True)
    if not divergence(draws, pair) - divergence(draws, shifted) > least:
        return pair
    older, newer = draws.halves()
    gain = divergence(newer, fit_law(older, pair)) - divergence(newer, fit_law(older, pair, offset=True))
    return shifted if gain > least else pair


def _choose(places: list[Place], law: Pair, promise: float, pairs: list[Pair], raw: Draws) -> Pair | None:
    """The law and location of a new pair; None where the newer half of the draws does not bear it out.

    Where F should fall by much, the `promise` of its derivative, and does not, the place may have an offset.
    """
    found = _choose_place(places, law, offset=False)
    if found is None and promise > PROMISE and law.beta > 0.0:
        shifted = [place for place in places if _needs_offset(place.of(law), pairs, raw)]
        found = _choose_place(shifted, law, offset=True) if shifted else None
    if found is None:
        return None
    return _with_offset(_with_slope(found[0], pairs, raw, found[1]), pairs, raw, found[1])


def _places(
    places: list[Place], law: Pair, pairs: list[Pair], draws: Draws, groups: np.ndarray
) -> list[Place]:
    """The place that the scores are clear about, alone; else all places, for F to decide.

    To `places` are added those where members have locations of their own.
    """
    places = _without_twins(places + _own_locations(draws, pairs, groups, law.at(_NOWHERE)))
    shares = [_unexplained(place.of(law), pairs, draws) for place in places]
    if min(shares) > EXACT:
        places = _without_twins(places + _scaled_locations(draws, pairs, groups, law.at(_NOWHERE)))
        shares += [_unexplained(place.of(law), pairs, draws) for place in places[len(shares) :]]
    order = np.argsort(shares, kind="stable")
    if len(places) > 1 and shares[order[1]] - shares[order[0]] > CLEAR:
        return [places[order[0]]]
    return places


def _choose_place(places: list[Place], law: Pair, *, offset: bool) -> tuple[Pair, Draws] | None:
    """The same with the draws that it is fitted to."""
    chosen, gain = None, -np.inf
    for place in places:
        whole = place.of(law)
        some = _part(whole)
        scale = len(whole.members) / len(some.members)
        pair = fit_law(place.draws, some, offset=offset)
        fall = scale * (plain_divergence(place.draws, pair) - divergence(place.draws, pair)) - place.cost
        if chosen is None or fall - gain > LEAD:
            chosen, gain = (whole, pair, scale, place), fall
    assert chosen is not None
    law, pair, scale, place = chosen
    draws, margin = place.draws, MARGIN + place.cost
    if not (scale * fall_of(draws, pair) > margin and _is_borne_out(draws, pair, offset, margin / scale)):
        return None
    best = fit_law(draws, law, offset=offset)
    gain = fall_of(draws, best)
    for size in BETAS[1:]:
        pair = fit_law(draws, best._replace(beta=float(np.sign(law.beta) * size)), offset=offset)
        if (fall := fall_of(draws, pair)) > gain + 1.0 / len(draws.points):
            best, gain = pair, fall
    return (best, draws) if _is_borne_out(draws, best, offset, margin) else None


def _part(law: Pair) -> Pair:
    """The law of some of the members."""
    every = -(-len(law.members) // _SOME)
    return law._replace(
        members=law.members[::every],
        heads=law.heads if len(law.heads) == 1 else law.heads[::every],
        locations=law.locations if len(law.locations) == 1 else law.locations[::every],
        parts=law.parts if len(law.parts) == 1 else law.parts[::every],
    )


def _is_borne_out(draws: Draws, pair: Pair, offset: bool, margin: float) -> bool:
    """Whether the law, fitted to the older half of the draws, beats having none on the newer half."""
    older, newer = draws.halves()
    return fall_of(newer, fit_law(older, pair, offset=offset), older) > margin


def _with_second_head(pair: Pair, pairs: list[Pair], raw: Draws, draws: Draws, groups: np.ndarray) -> Pair:
    """The pair with another head that all its members share, if they have one."""
    if pair.second >= 0:
        return pair
    taken = {int(i) for other in pairs for i in (*other.members, *other.heads)}
    heads = np.array([i for i in np.flatnonzero(may_rule(groups)) if i not in taken], np.int64)
    if not heads.size:
        return pair
    group = np.zeros(len(pair.members), np.int64)
    gain, derivative = slope_gains(pull_draws(draws, [pair]), pair.members, group, heads)
    k = int(gain[:, 0].argmax())
    if gain[k, 0] < max(NEED / len(draws.points), LEAST_GAIN) or np.sign(-derivative[k, 0]) != np.sign(
        pair.beta
    ):
        return pair
    older, newer = draws.halves()
    best, gained = pair, MARGIN
    others = [other for other in pairs if other is not pair]
    least = _unexplained(pair, others, raw) - WORTH
    for size in BETAS:
        law = pair._replace(second=int(heads[k]), beta_2=float(np.sign(pair.beta) * size))
        if _unexplained(law, others, raw) > least:
            continue
        offset = pair.offset != 0.0
        trial = fit_law(older, law, offset=offset)
        alone = divergence(newer, fit_law(older, pair, offset=offset)) + root_divergence(
            newer, law.second, 0.0
        )
        if (fall := alone - divergence(newer, trial)) > gained:
            best, gained = fit_law(draws, law, offset=offset), fall
    return best


def _locations(draws: Draws, pulled: Draws, pairs: list[Pair], groups: np.ndarray, law: Pair) -> list[Place]:
    """The coordinates outside of the group that correlate most with it, and the one that scores speak for."""
    moved = [int(i) for pair in pairs for i in pair.members]
    free = np.setdiff1d(np.flatnonzero(may_rule(groups)), [*law.members, *law.heads, *moved])
    if not free.size:
        return []
    strength = _strengths(pulled.points, free, law)
    likely = [int(k) for k in np.argsort(-strength)[:_PLACES]]
    shares = unexplained(draws, _part(law), pairs, candidates=draws.points[:, free])
    by_score = int(shares.mean(axis=0).argmin())
    return [Place(free[k : k + 1], pulled, 0.0) for k in dict.fromkeys([by_score, *likely])]


def _strengths(points: np.ndarray, free: np.ndarray, law: Pair) -> np.ndarray:
    """How much each of the coordinates `free` correlates with some of the members."""
    return np.asarray(np.abs(_correlations(points, free, _part(law).members)).mean(axis=1))


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
        strength = np.abs(_correlations(draws.points, coordinates, members)).T
        shares = unexplained(draws, law, pairs, candidates=draws.points[:, coordinates])
        if shares.any():  # the scores can tell
            strength = -shares
        if np.isfinite(strength).all():
            cost = len(members) * np.log(sizes[g]) / len(draws.points)
            found.append((coordinates[strength.argmax(axis=1)], cost))
            strengths.append(-strength.max(axis=1).mean())
    likely = [found[k] for k in np.argsort(strengths)[:_PLACES]]
    return [
        place
        for locations, cost in likely
        if len(set(locations)) > 1
        for place in _places_at(locations, draws, pairs, law, cost)
    ]


def _scaled_locations(draws: Draws, pairs: list[Pair], groups: np.ndarray, law: Pair) -> list[Place]:
    """What may be locations p + e^(b v) x_q with a q for each member, by their scores: the best one."""
    members, sizes = law.members, np.bincount(groups)
    if len(law.heads) > 1 or len(members) < _FEWEST or len(set(groups[members])) > 1:
        return []
    some = _part(law)
    rulers = np.setdiff1d(np.flatnonzero(may_rule(groups)), members)[:_RULERS]
    best, least = None, -CLEAR
    for g in np.flatnonzero((sizes > 1) & (sizes <= len(members))):
        coordinates = np.flatnonzero(groups == g)
        if g == groups[members[0]] or np.isin(rulers, coordinates).any():
            continue
        for part_head, base, beta in itertools.product(rulers, [-1, *rulers], BETAS):
            if base == part_head:
                continue
            columns = np.exp(beta * draws.points[:, [part_head]]) * draws.points[:, coordinates]
            here = some.at(np.array([base]))
            share = float(unexplained(draws, here, pairs, candidates=columns).min(axis=1).mean())
            if share < least:
                best, least = (int(base), int(part_head), beta, coordinates, columns), share
            if share < EXACT:
                break
    if best is None:
        return []
    base, part_head, beta, coordinates, columns = best
    here = law.at(np.array([base]))
    parts = coordinates[unexplained(draws, here, pairs, candidates=columns).argmin(axis=1)]
    trial = here._replace(parts=parts, part_head=part_head, part_beta=beta)
    if not order_pairs([*pairs, trial]):
        return []
    pulled = pull_draws(draws, others_of([*pairs, trial], trial))
    cost = len(members) * np.log(len(coordinates)) / len(draws.points)
    return [Place(here.locations, pulled, cost, parts, part_head, beta)]


def _places_at(locations: np.ndarray, draws: Draws, pairs: list[Pair], law: Pair, cost: float) -> list[Place]:
    """The place at `locations`, which may be moved; none where a coordinate would rule what moves it."""
    trial = law.at(locations)
    if not order_pairs([*pairs, trial]):
        return []
    return [Place(locations, pull_draws(draws, others_of([*pairs, trial], trial)), cost)]


def _with_other_locations(pair: Pair, pairs: list[Pair], draws: Draws, groups: np.ndarray) -> Pair:
    """The pair with another location, or with locations of the members' own, where the draws ask for them.

    The first draws may show the wrong one: where two hierarchies move together, either mean will do.
    """
    rest = [other for other in pairs if other is not pair]
    offset = pair.offset != 0.0
    of_parts = pair.parts, pair.part_head, pair.part_beta
    present = Place(pair.locations, pull_draws(draws, others_of(pairs, pair)), 0.0, *of_parts)
    places = [present, *_likeliest_location(draws, rest, groups, pair)]
    places = _places(places, pair, rest, draws, groups)
    if len(places) == 1:
        return pair if places[0] is present else fit_law(places[0].draws, places[0].of(pair))
    best, gain = pair, _newer_fall(present, pair, offset)
    for place in places[1:]:
        law = place.of(pair)
        again = pair.are_apart and set(groups[place.locations]) == set(groups[pair.locations])
        lead = SETTLED * len(pair.members) if again else LEAD + place.cost
        if (fall := _newer_fall(place, law, offset)) > gain + lead:
            best, gain = fit_law(place.draws, law, offset=offset), fall
    return best


def _without_twins(places: list[Place]) -> list[Place]:
    """The places, each once."""
    found: dict[tuple[int, ...], Place] = {}
    for place in places:
        found.setdefault((*map(int, place.locations), -2, *map(int, place.parts), place.part_head), place)
    return list(found.values())


def _likeliest_location(draws: Draws, pairs: list[Pair], groups: np.ndarray, law: Pair) -> list[Place]:
    """The coordinate that correlates most with the members, as the draws are, whether it is moved or not."""
    free = np.setdiff1d(np.flatnonzero(may_rule(groups)), [*law.members, *law.heads])
    if not free.size or len(law.members) < _FEWEST or law.are_apart:
        return []
    strength = _strengths(draws.points, free, law)
    if not np.isfinite(strength).all():
        return []
    return _places_at(free[[strength.argmax()]], draws, pairs, law, 0.0)


def _newer_fall(place: Place, law: Pair, offset: bool) -> float:
    """By how much F is smaller on the newer half of the draws under the law that the older ones show."""
    older, newer = place.draws.halves()
    return plain_divergence(newer, law) - divergence(newer, fit_law(older, law, offset=offset))
