"""Laws that explain scores wholly: found, put in the place of others, and given the numbers of the program.

Where the prior of a group is normal, and so is the likelihood, some law leaves nothing of the group's scores
(scores.py). Then heads, locations, C and c are certain from few draws on, wherever these are. Nothing
else is as clear: a divergence of a few hundred draws, some of them in a neck and close to each other, can be
smaller with a second head, or with an offset of 0.001, that walls the rest of the neck off.
"""

from __future__ import annotations

import itertools

import numpy as np

from .detection import FEW, may_rule
from .fit import fit_law
from .groups import Draws, Pair, order_pairs, others_of, pull_draws
from .places import (
    BETAS,
    CLEAR,
    EXACT,
    FEWEST,
    NOWHERE,
    RULERS,
    Place,
    possible_places,
    residual_share,
    single_places,
)
from .scores import (
    likelihood_of,
    location_in_likelihood,
    places,
    residual_shares,
    residual_shares_alone,
)

WORTH = 0.3  # mean fall of the logarithm of the scores' unexplained share that a head or an offset must bring
NEAR = 1e-3  # distance of members' C and c from each other that is rounding
_DIGITS = 4  # that such a number has
CERTAIN = 90  # draws from which on such a law is looked for where nothing else shows
SPREAD = 0.1  # of a log scale, from which on such a law is taken


def with_exact_pairs(pairs: list[Pair], draws: Draws, groups: np.ndarray, new: bool) -> list[Pair]:
    """The pairs, and those that explain the scores of their members wholly, whether F falls already or not.

    Where a scale is seldom small, draws in its neck come late, or never. The scores tell of it all the same.
    Such a pair takes the place of one that leaves something of the same scores; others are added if `new`.
    """
    if not groups.max():
        return pairs
    sizes, done, count = np.bincount(groups), set[int](), -1
    while len(done) > count:  # what is found explains the scores of its locations
        count = len(done)
        for g in np.flatnonzero(sizes >= FEWEST):
            members = np.flatnonzero(groups == g)
            present = [pair for pair in pairs if np.isin(members, pair.members).any()]
            if g in done or any(len(pair.members) != len(members) for pair in present):
                continue
            others = [pair for pair in pairs if not any(pair is one for one in present)]
            if not (present or new):
                continue
            if present and residual_share(present[0], others, draws) < EXACT:
                continue
            rulers = np.setdiff1d(_spread_heads(draws, others, groups), members)[:RULERS]
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
    some = members[:: -(-len(members) // FEWEST)]
    if residual_shares_alone(draws, some, pairs).max() < EXACT + CLEAR:
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
        location = NOWHERE if base is None else np.array([base])
        members_and_heads = np.tile(some, len(rulers)), np.repeat(rulers, len(some))
        law = Pair(*members_and_heads, beta, -1, 0.0, location, 0.0, 0.0, none, none)
        shares = residual_shares(draws, law, pairs, candidates=columns).min(axis=1)
        shares = shares.reshape(len(rulers), -1).max(axis=1)  # the worst member of each head
        if not shares.min() < EXACT:
            continue
        head = rulers[[int(shares.argmin())]]
        law = Pair(members, head, beta, -1, 0.0, NOWHERE, 0.0, 0.0, none, none)
        pulled = pull_draws(draws, pairs)
        if draws.likelihood is not None and beta < 0.0:
            law = law.at(np.array([location_in_likelihood(draws, law, pairs)]))
            return _with_exact_place(law, pairs, draws, pulled)
        places = [Place(NOWHERE, pulled, 0.0), *single_places(draws, pulled, pairs, groups, law)]
        for place in possible_places(places, law, pairs, draws, groups):
            if is_exact(place.of(law), pairs, draws):
                return _with_exact_place(place.of(law), pairs, draws, place.draws)
    return None


def _exact_own_heads(
    draws: Draws, pairs: list[Pair], groups: np.ndarray, members: np.ndarray, rulers: np.ndarray
) -> Pair | None:
    """The same with the coordinates of another variable as heads, and perhaps one of the `rulers` too."""
    every, sizes, none = -(-len(members) // FEWEST), np.bincount(groups), np.zeros(0)
    moved = {int(i) for pair in pairs for i in pair.members}
    for h in np.flatnonzero(sizes == len(members)):
        heads = np.flatnonzero(groups == h)
        if h == groups[members[0]] or moved.intersection(map(int, heads)) or len(heads) <= FEW:
            continue
        for beta, second in itertools.product((1.0, -1.0), (-1, *map(int, rulers))):
            law = Pair(
                members, heads, beta, second, beta if second >= 0 else 0.0, NOWHERE, 0.0, 0.0, none, none
            )
            some = law._replace(members=members[::every], heads=heads[::every])
            if residual_shares(draws, some, pairs).max() < EXACT and is_exact(law, pairs, draws):
                return _with_exact_place(law, pairs, draws, pull_draws(draws, others_of([*pairs, law], law)))
    return None


def _trials(rulers: np.ndarray, nested: bool) -> list[tuple[float, int | None]]:
    """beta, and what is added to a location that is scaled itself: -1 for nothing, None where none is."""
    found: list[tuple[float, int | None]] = [(sign * size, None) for size in BETAS for sign in (1.0, -1.0)]
    if nested:
        found += [(sign, int(base)) for sign in (1.0, -1.0) for base in (-1, *rulers)]
    return found


def with_likelihood(draws: Draws, pairs: list[Pair], groups: np.ndarray) -> Draws:
    """The draws with the terms of a likelihood with which some law explains scores wholly, if there is one.

    Without them where a law does so as it is, or where there are few draws.
    """
    members = _groups_without_law(draws, pairs, groups)
    if len(draws.points) < CERTAIN or not members:
        return draws
    small = np.flatnonzero(may_rule(groups))
    for error in (None, -1, *map(int, small[:RULERS])):
        trial = draws
        if error is not None:
            trial = draws._replace(likelihood=likelihood_of(draws.points, error, small[: 2 * RULERS]))
        for some in members:
            others = [pair for pair in pairs if not np.isin(pair.members, some).any()]
            rulers = np.setdiff1d(
                _spread_heads(draws, pairs, groups), [*some, -1 if error is None else error]
            )[:RULERS]
            if rulers.size and _exact_pair(trial, others, groups, some, rulers, plain=True) is not None:
                return trial
    return draws


def _groups_without_law(draws: Draws, pairs: list[Pair], groups: np.ndarray) -> list[np.ndarray]:
    """The members of large variables whose scores no pair of theirs explains wholly; none if one does."""
    found: list[np.ndarray] = []
    if not groups.max():
        return found
    for g in np.flatnonzero(np.bincount(groups) >= FEWEST):
        members = np.flatnonzero(groups == g)
        for pair in pairs:
            if np.isin(members, pair.members).any():
                others = [other for other in pairs if other is not pair]
                if residual_share(pair, others, draws) < EXACT:
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


def is_exact(law: Pair, others: list[Pair], draws: Draws) -> bool:
    """Whether the law leaves nothing of its members' scores, and something is left without it."""
    alone = residual_shares_alone(draws, law.members, others).mean()
    return bool(residual_share(law, others, draws) < EXACT < alone - CLEAR)


def simplify(pair: Pair, pairs: list[Pair], draws: Draws, pulled: Draws) -> Pair:
    """The pair without a second head or an offset that the scores do not ask for any more."""
    others = [other for other in pairs if other is not pair]
    if pair.second >= 0:
        alone = [
            pair._replace(heads=np.array([head]), beta=beta, second=-1, beta_2=0.0)
            for head, beta in ((int(pair.heads[0]), pair.beta), (pair.second, pair.beta_2))
            if len(pair.heads) == 1
        ] or [pair._replace(second=-1, beta_2=0.0)]
        alone += [law._replace(beta=2.0 * law.beta) for law in alone if abs(law.beta) == BETAS[1]]
        shares = [residual_share(law, others, draws) for law in alone]
        if min(shares) < residual_share(pair, others, draws) + WORTH:
            pair = fit_law(pulled, alone[int(np.argmin(shares))], offset=pair.offset != 0.0)
    if pair.offset != 0.0 and not needs_offset(pair, others, draws):
        pair = fit_law(pulled, pair._replace(offset=0.0))
    return with_slope(pair, others, draws, pulled)


def needs_offset(law: Pair, others: list[Pair], draws: Draws) -> bool:
    """Whether the scores ask for an offset of the law's place."""
    slope = law.slope if law.slope != 0.0 or not law.is_located else 1.0
    plain = residual_shares(draws, law._replace(slope=slope), others, offset=False).mean()
    return bool(plain - residual_share(law, others, draws) > WORTH)


def with_slope(pair: Pair, others: list[Pair], draws: Draws, pulled: Draws) -> Pair:
    """The pair with C and c as the scores have them, where they are clear: C = 1, or -1 where beta < 0."""
    exact = _with_exact_place(pair, others, draws, pulled)
    if exact is not None:
        return exact
    if not pair.is_located or pair.beta < 0.0:
        return pair
    whole = pair._replace(slope=1.0, offset=0.0)
    least = residual_share(pair, others, draws)
    if pair.slope == 1.0 or residual_shares(draws, whole, others, offset=False).mean() > least + WORTH:
        return pair
    return fit_law(pulled, whole, free=False)


def _with_exact_place(pair: Pair, others: list[Pair], draws: Draws, pulled: Draws) -> Pair | None:
    """The pair with the C and c that the scores of all its members agree on; None where they do not."""
    if residual_share(pair, others, draws) > EXACT:
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
