"""Which locations a group may have: the p of its prior mean C p + c.

`possible_places` finds them for choice.py and exact_laws.py, from draws and scores. It returns one place if
the scores clearly prefer that one, and otherwise all places that F shall decide between. A location that all
members share is a coordinate of a small variable: one that correlates with the group more than most others,
or the one that explains its scores best. In a hierarchy of two levels each member has its own location: the
coordinate of another variable that occurs in the member's score (scores.py). If that variable is not centred
itself, the location is p + e^(b v) x_q, with a q for each member.
"""

from __future__ import annotations

import functools
import itertools
from typing import NamedTuple

import numpy as np

from .detection import may_be_parents
from .groups import Group, ScoredDraws, order_groups, others_of, pull_draws
from .scores import MOST_DRAWS, residual_shares, shares_with

BETAS = (1.0, 0.5)  # |beta| for a log scale; for a log variance or precision
# A law is clearly better than another one if the mean log of the unexplained share of scores is so much less.
CLEAR = 1.0
EXACT = -12.0  # a law with a mean log below this leaves nothing of the scores
FEWEST = 3  # fewest members of a group that may have locations of their own
MOST_PARENTS = 5  # most coordinates of small variables that are tried as scale parameters, or as p and v
NOWHERE = np.array([-1])  # no location
_PLACES = 3  # number of locations that are tried because they correlate most with the group
_LARGE = 100  # in a larger group a part of the members tells first which variables may hold locations
_OVER_CHANCE = 2.0  # they may if they explain so many times what chance does
_TERMS = 10  # about so many draws are spent on the terms of a law
_SOME = 16  # about so many members of a group are looked at when locations are compared


class Place(NamedTuple):
    """A location, or one for each member, that a group may have."""

    locations: np.ndarray
    draws: ScoredDraws  # in which the locations are as in the program
    cost: float  # F must decrease by so much more, since this place is one of many
    parts: np.ndarray = NOWHERE  # of locations that are not centred themselves, see groups.Group
    part_scale: int = -1
    part_beta: float = 0.0

    def of(self, law: Group) -> Group:
        """The law with its location here."""
        law = law.at(self.locations)
        return law._replace(parts=self.parts, part_scale=self.part_scale, part_beta=self.part_beta)


def possible_places(
    places: list[Place], law: Group, groups: list[Group], draws: ScoredDraws, variables: np.ndarray
) -> list[Place]:
    """The one place that the scores clearly prefer; else all places, so that F decides.

    Places where each member has its own location are added to `places` first.
    """
    places = _without_twins(places + _own_locations(draws, groups, variables, law.at(NOWHERE)))
    shares = [residual_share(place.of(law), groups, draws) for place in places]
    if min(shares) > EXACT:
        places = _without_twins(places + _scaled_locations(draws, groups, variables, law.at(NOWHERE)))
        shares += [residual_share(place.of(law), groups, draws) for place in places[len(shares) :]]
    order = np.argsort(shares, kind="stable")
    if len(places) > 1 and shares[order[1]] - shares[order[0]] > CLEAR:
        return [places[order[0]]]
    return places


def single_places(
    draws: ScoredDraws, pulled: ScoredDraws, groups: list[Group], variables: np.ndarray, law: Group
) -> list[Place]:
    """The coordinates that correlate most with the group, and the one that explains its scores best."""
    moved = [int(i) for group in groups for i in group.members]
    free = np.setdiff1d(np.flatnonzero(may_be_parents(variables)), [*law.members, *law.scales, *moved])
    if not free.size:
        return []
    strength = _strengths(pulled.points, free, law)
    likely = [int(k) for k in np.argsort(-strength)[:_PLACES]]
    shares = residual_shares(draws, part_of(law), groups, candidates=draws.points[:, free])
    by_score = int(shares.mean(axis=0).argmin())
    return [Place(free[k : k + 1], pulled, 0.0) for k in dict.fromkeys([by_score, *likely])]


def _strengths(points: np.ndarray, free: np.ndarray, law: Group) -> np.ndarray:
    """How strongly each of the coordinates `free` correlates with a part of the members."""
    return np.asarray(np.abs(_correlations(points, free, part_of(law).members)).mean(axis=1))


def _correlations(points: np.ndarray, these: np.ndarray, those: np.ndarray) -> np.ndarray:
    """The correlations (these, those) of draws, times their number."""
    u, v = (points[:, i] - points[:, i].mean(axis=0) for i in (these, those))
    return np.asarray((u / u.std(axis=0)).T @ (v / v.std(axis=0)))


def _own_locations(draws: ScoredDraws, groups: list[Group], variables: np.ndarray, law: Group) -> list[Place]:
    """Places where each member has its own location: the best coordinate of another variable.

    The scores decide which coordinate is best, or the correlations where the scores cannot tell.
    """
    members, sizes = law.members, np.bincount(variables)
    if len(law.scales) > 1 or len(members) < FEWEST or len(set(variables[members])) > 1:
        return []
    ruled, found, strengths = set(variables[[*members, *law.scales]]), [], []
    with_candidates = functools.cache(lambda: shares_with(draws, law, groups))
    for g in np.flatnonzero((sizes > 1) & (sizes <= len(members))):
        if g in ruled:
            continue
        coordinates = np.flatnonzero(variables == g)
        if not _may_be_locations(coordinates, draws, groups, law):
            continue
        strength = -with_candidates()(draws.points[:, coordinates])
        if not strength.any():  # the scores cannot tell
            strength = np.abs(_correlations(draws.points, coordinates, members)).T
        if np.isfinite(strength).all():
            cost = len(members) * np.log(sizes[g]) / len(draws.points)
            found.append((coordinates[strength.argmax(axis=1)], cost))
            strengths.append(-strength.max(axis=1).mean())
    likely = [found[k] for k in np.argsort(strengths)[:_PLACES]]
    return [
        place
        for locations, cost in likely
        if len(set(locations)) > 1
        for place in _places_at(locations, draws, groups, law, cost)
    ]


def _may_be_locations(coordinates: np.ndarray, draws: ScoredDraws, groups: list[Group], law: Group) -> bool:
    """Whether the best of the coordinates for each member explain more of its scores than by chance.

    Of a large group a part of the members tells.
    """
    if len(law.members) <= _LARGE:
        return True
    some = part_of(law)
    shares = residual_shares(draws, some, groups, candidates=draws.points[:, coordinates])
    explained = residual_shares(draws, some, groups) - shares.min(axis=1)
    return bool(not shares.any() or explained.mean() > _most_by_chance(len(coordinates), draws))


def _most_by_chance(k: int, draws: ScoredDraws) -> float:
    """What the best of k columns may explain, as a logarithm.

    Of columns of noise that is some 2 log(k) / n in n draws.
    """
    n = min(len(draws.points), MOST_DRAWS) - _TERMS
    return float(_OVER_CHANCE * 2.0 * np.log(k) / n) if n > 0 else np.inf


def _scaled_locations(
    draws: ScoredDraws, groups: list[Group], variables: np.ndarray, law: Group
) -> list[Place]:
    """The place with locations p + e^(b v) x_q, a q for each member, that explains scores best; or none."""
    members, sizes = law.members, np.bincount(variables)
    if len(law.scales) > 1 or len(members) < FEWEST or len(set(variables[members])) > 1:
        return []
    some = part_of(law)
    parents = np.setdiff1d(np.flatnonzero(may_be_parents(variables)), members)[:MOST_PARENTS]
    tries = [
        _ScaledTry(int(base), int(part_scale), beta, coordinates)
        for g in np.flatnonzero((sizes > 1) & (sizes <= len(members)))
        for coordinates in [np.flatnonzero(variables == g)]
        if g != variables[members[0]] and not np.isin(parents, coordinates).any()
        for part_scale, base, beta in itertools.product(parents, [-1, *parents], BETAS)
        if base != part_scale
    ]
    few = some._replace(members=few_of(some.members))
    shares = _scaled_shares(draws, few, groups, tries)  # of few members, which leave a few tries for more
    likely = [tries[k] for k in sorted(np.argsort(shares, kind="stable")[:_PLACES])]
    shares = _scaled_shares(draws, some, groups, likely)
    if not (likely and shares.min() < -CLEAR):
        return []
    best, least = likely[int(shares.argmin())], float(shares.min())
    base, part_scale, beta, coordinates = best
    if len(members) > _LARGE:  # all of them take long, and nothing would come of what is chance
        alone = residual_share(some.at(np.array([base])), groups, draws)
        if alone - least < _most_by_chance(len(coordinates), draws):
            return []
    here = law.at(np.array([base]))
    columns = best.columns(draws.points)
    parts = coordinates[residual_shares(draws, here, groups, candidates=columns).argmin(axis=1)]
    trial = here._replace(parts=parts, part_scale=part_scale, part_beta=beta)
    if not order_groups([*groups, trial]):
        return []
    pulled = pull_draws(draws, others_of([*groups, trial], trial))
    cost = len(members) * np.log(len(coordinates)) / len(draws.points)
    return [Place(here.locations, pulled, cost, parts, part_scale, beta)]


class _ScaledTry(NamedTuple):
    """Locations p + e^(b v) x_q to try: p, -1 for none, v, b, and which coordinates x_q may be."""

    base: int
    part_scale: int
    beta: float
    coordinates: np.ndarray

    def columns(self, points: np.ndarray) -> np.ndarray:
        """e^(b v) x_q in draws (n, d), for each coordinate (n, coordinates)."""
        return np.asarray(np.exp(self.beta * points[:, [self.part_scale]]) * points[:, self.coordinates])


def _scaled_shares(
    draws: ScoredDraws, law: Group, groups: list[Group], tries: list[_ScaledTry]
) -> np.ndarray:
    """The mean over members of the log of the share that the best x_q of each try leaves (tries,).

    All tries with the same p are one regression with many candidates.
    """
    found, points = np.empty(len(tries)), draws.points[-MOST_DRAWS:]
    for base in dict.fromkeys(one.base for one in tries):
        own = [k for k, one in enumerate(tries) if one.base == base]
        columns = [tries[k].columns(points) for k in own]
        at_base = law.at(np.array([base]))
        shares = residual_shares(draws, at_base, groups, candidates=np.concatenate(columns, axis=1))
        ends = np.cumsum([0, *(column.shape[1] for column in columns[:-1])])
        found[own] = np.minimum.reduceat(np.nan_to_num(shares), ends, axis=1).mean(axis=0)
    return found


def _places_at(
    locations: np.ndarray, draws: ScoredDraws, groups: list[Group], law: Group, cost: float
) -> list[Place]:
    """The place at `locations`, even if groups move these; none if a coordinate would depend on itself."""
    trial = law.at(locations)
    if not order_groups([*groups, trial]):
        return []
    return [Place(locations, pull_draws(draws, others_of([*groups, trial], trial)), cost)]


def _without_twins(places: list[Place]) -> list[Place]:
    """The places without repetitions."""
    found: dict[tuple[int, ...], Place] = {}
    for place in places:
        found.setdefault((*map(int, place.locations), -2, *map(int, place.parts), place.part_scale), place)
    return list(found.values())


def likeliest_place(
    draws: ScoredDraws, groups: list[Group], variables: np.ndarray, law: Group
) -> list[Place]:
    """The coordinate that correlates most with the members in `draws`, whether a group moves it or not."""
    free = np.setdiff1d(np.flatnonzero(may_be_parents(variables)), [*law.members, *law.scales])
    if not free.size or len(law.members) < FEWEST or law.are_apart:
        return []
    strength = _strengths(draws.points, free, law)
    if not np.isfinite(strength).all():
        return []
    return _places_at(free[[strength.argmax()]], draws, groups, law, 0.0)


def few_of(members: np.ndarray) -> np.ndarray:
    """The members that are looked at first."""
    return members[:: -(-len(members) // FEWEST)]


def part_of(law: Group) -> Group:
    """The law for a part of the members, taken at regular intervals."""
    every = -(-len(law.members) // _SOME)
    return law._replace(
        members=law.members[::every],
        scales=law.scales if len(law.scales) == 1 else law.scales[::every],
        locations=law.locations if len(law.locations) == 1 else law.locations[::every],
        parts=law.parts if len(law.parts) == 1 else law.parts[::every],
    )


def residual_share(law: Group, others: list[Group], draws: ScoredDraws) -> float:
    """The mean over members of the log of the share of their scores that the law leaves, see scores.py."""
    return float(residual_shares(draws, law, others).mean())
