"""Which groups a map has: those of the window before, judged and fitted again, and new ones.

What is minimised is F, the divergence of groups.py. At the end of a window, in this order:

1. *Judge.* Draws of the window that has just ended were made after the map. A pair (a group of coordinates
   with its head) under which F is not smaller there than without it is dropped, unless it explains scores
   wholly.
2. *Refit* the pairs, where that pays: else they stay as they are, so that the map comes to rest and warm-up
   can end. A second head or an offset that scores do not ask for goes.
3. *Explain.* Laws that leave nothing of the scores of their members are taken (exact_laws.py). The rest is
   for what has no such law, because its likelihood is not normal, say.
4. *Detect* the group and the head for which F would fall most (detection.py).
5. *Locate* (places.py). Scores decide between locations where they are clear; else F does, and to
   choose among k coordinates for each of m members costs m log k / n of its fall.
6. *Fit* the numbers of the law (fit.py).
7. *Guard.* Fitted to the older half of the draws, the law must beat on the newer half both no map and one
   that is linear in head and location, by a margin.

Pairs are undone from the last one of the map to its first. A pair is judged and fitted in draws in which the
others are undone, but for those that move its heads and locations: its law is one of the program.
"""

from __future__ import annotations

import contextlib

import numpy as np

from ..training import Training
from .detection import LEAST_GAIN, NEED, detect, may_rule, slope_gains
from .exact_laws import (
    WORTH,
    is_exact,
    needs_offset,
    simplify,
    with_exact_pairs,
    with_likelihood,
    with_slope,
)
from .fit import fit_law
from .groups import (
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
from .places import (
    BETAS,
    NOWHERE,
    Place,
    likeliest_place,
    part_of,
    possible_places,
    residual_share,
    single_places,
)

PROMISE = 1.0  # expected fall of F from which on a place with an offset is tried
OFFSET_GAIN = 0.1  # fall of F a coordinate that an offset must bring
MARGIN = 0.3  # fall of F on the newer half of the draws that a pair must bring
LEAD = 0.5  # fall of F by which a location must be better than none, or than another one
SETTLED = 0.02  # fall of F a coordinate, below which a pair stays as it is
_ROUNDS = 4  # new pairs in a window
_JUDGES = 15  # draws of a window that may judge a pair


def choose_groups(rows: np.ndarray, training: Training) -> np.ndarray:
    """The rows of a map's groups that draws ask for, from those in use."""
    with contextlib.suppress(np.linalg.LinAlgError):
        return _choose_groups(rows, training)
    return rows


def exact_groups(training: Training) -> np.ndarray:
    """The rows of those groups alone whose laws explain scores wholly, where there is no map yet."""
    draws = with_likelihood(Draws(training.points, training.scores), [], training.variables)
    pairs = with_exact_pairs([], draws, training.variables, training.new)
    return pair_rows(order_pairs(pairs) or [], training.points)


def _choose_groups(moves: np.ndarray, training: Training) -> np.ndarray:
    points, scores, groups, before, new, _ = training
    old = pairs_of(moves)
    draws = with_likelihood(Draws(points, scores), old, groups)
    pairs = _judge(old, draws.part(slice(before, None)), draws)
    for k in range(len(pairs)):
        pulled = pull_draws(draws, others_of(pairs, pairs[k]))
        pairs[k] = _refit(simplify(pairs[k], pairs, draws, pulled), pulled)
        others = [other for other in pairs if other is not pairs[k]]
        if new and not is_exact(pairs[k], others, draws):
            pairs[k] = _with_other_locations(pairs[k], pairs, draws, groups)
            pairs[k] = _with_second_head(pairs[k], pairs, draws, pulled, groups)
    pairs = order_pairs(with_exact_pairs(pairs, draws, groups, new)) or pairs
    if new:
        pairs = _with_scaled_parts(pairs, draws)
    refused: set[tuple[int, int]] = set()
    for _ in range(_ROUNDS if new else 0):
        pulled = pull_draws(draws, pairs)
        found = detect(pulled, pairs, groups, refused)
        if found is None:
            break
        members, heads, sign, name, promise = found
        numbers = 0.0, 0.0, np.zeros(0), np.zeros(0)
        law = Pair(members, heads, sign * BETAS[0], -1, 0.0, NOWHERE, *numbers)
        nowhere = Place(NOWHERE, pulled, 0.0)
        places = [nowhere, *single_places(draws, pulled, pairs, groups, law)]
        places = possible_places(places, law, pairs, draws, groups)
        pair = _choose(places, law, promise, pairs, draws)
        if pair is None:
            refused.add(name)
        else:
            pairs = order_pairs([*pairs, pair]) or pairs
    unchanged = len(pairs) == len(old) and all(a is b for a, b in zip(pairs, old, strict=True))
    return moves if unchanged else pair_rows(pairs, draws.points)


def _judge(pairs: list[Pair], draws: Draws, whole: Draws) -> list[Pair]:
    """The pairs without those that make the draws of the last window worse and leave some of all scores."""
    kept = list(pairs)
    if len(draws.points) < _JUDGES:
        return kept
    for pair in pairs:
        if fall_of(pull_draws(draws, others_of(kept, pair)), pair) > 0.0:
            continue
        others = [other for other in kept if other is not pair]
        if not is_exact(pair, others, whole):
            kept = [other for other in kept if other is not pair]
    return kept


def _with_scaled_parts(pairs: list[Pair], draws: Draws) -> list[Pair]:
    """The pairs, with one for coordinates x_q of locations p + e^(b v) x_q that are not moved yet.

    A pair with such locations takes all that is said of x_q out of their scores, and the data speak of p +
    e^(b v) x_q: that is the law of a program that is not centred.
    """
    for pair in pairs:
        members = np.unique(pair.parts)
        moved = {int(i) for other in pairs for i in other.members}
        if pair.part_head < 0 or moved.intersection(map(int, members)):
            continue
        located, none = float(pair.locations[0] >= 0), np.zeros(0)
        numbers = -pair.part_beta, -1, 0.0, pair.locations, -located, 0.0, none, none
        law = Pair(members, np.array([pair.part_head]), *numbers)
        pulled = pull_draws(draws, others_of([*pairs, law], law))
        law = fit_law(pulled, law, free=False)
        older, newer = (plain_divergence(half, law) - divergence(half, law) for half in pulled.halves())
        if older > 0.0 and newer > 0.0:
            pairs = order_pairs([*pairs, law]) or pairs
    return pairs


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
    if pair.beta < 0.0 or pair.offset != 0.0 or not needs_offset(pair, pairs, raw):
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
        shifted = [place for place in places if needs_offset(place.of(law), pairs, raw)]
        found = _choose_place(shifted, law, offset=True) if shifted else None
    if found is None:
        return None
    return _with_offset(with_slope(found[0], pairs, raw, found[1]), pairs, raw, found[1])


def _choose_place(places: list[Place], law: Pair, *, offset: bool) -> tuple[Pair, Draws] | None:
    """The same with the draws that it is fitted to."""
    chosen, gain = None, -np.inf
    for place in places:
        whole = place.of(law)
        some = part_of(whole)
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
    least = residual_share(pair, others, raw) - WORTH
    for size in BETAS:
        law = pair._replace(second=int(heads[k]), beta_2=float(np.sign(pair.beta) * size))
        if residual_share(law, others, raw) > least:
            continue
        offset = pair.offset != 0.0
        trial = fit_law(older, law, offset=offset)
        alone = divergence(newer, fit_law(older, pair, offset=offset)) + root_divergence(
            newer, law.second, 0.0
        )
        if (fall := alone - divergence(newer, trial)) > gained:
            best, gained = fit_law(draws, law, offset=offset), fall
    return best


def _with_other_locations(pair: Pair, pairs: list[Pair], draws: Draws, groups: np.ndarray) -> Pair:
    """The pair with another location, or with locations of the members' own, where the draws ask for them.

    The first draws may show the wrong one: where two hierarchies move together, either mean will do.
    """
    rest = [other for other in pairs if other is not pair]
    offset = pair.offset != 0.0
    of_parts = pair.parts, pair.part_head, pair.part_beta
    present = Place(pair.locations, pull_draws(draws, others_of(pairs, pair)), 0.0, *of_parts)
    places = [present, *likeliest_place(draws, rest, groups, pair)]
    places = possible_places(places, pair, rest, draws, groups)
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


def _newer_fall(place: Place, law: Pair, offset: bool) -> float:
    """By how much F is smaller on the newer half of the draws under the law that the older ones show."""
    older, newer = place.draws.halves()
    return plain_divergence(newer, law) - divergence(newer, fit_law(older, law, offset=offset))
