"""Where the members of a group may be: the locations that are tried, and those that scores are clear about.

A location is a coordinate of a small variable that correlates most with the group, or that its scores speak
for. It may also be one for each member, as in a hierarchy of two levels: the coordinate of another variable
that the member's score has in it (scores.py). Where that variable is not centred itself, the location
is p + e^(b v) x_q, with a q for each member.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from .detection import may_be_parents
from .groups import Group, ScoredDraws, order_groups, others_of, pull_draws
from .scores import residual_shares

BETAS = (1.0, 0.5)  # a log scale; a log variance or precision
# Mean decrease of the logarithm of the scores' unexplained share that decides for one of several laws.
CLEAR = 1.0
EXACT = -12.0  # the same logarithm, below which a law leaves nothing
FEWEST = 3  # members that may have locations of their own
MOST_PARENTS = (
    5  # coordinates of small variables that the locations of a program that is not centred are made of
)
NOWHERE = np.array([-1])  # no location
_PLACES = 3  # locations that are tried
_SOME = 16  # coordinates of a group by which locations are compared


class Place(NamedTuple):
    """Where the members of a group may be."""

    locations: np.ndarray
    draws: ScoredDraws  # in which these are as in the program
    cost: float  # what F must fall by, since one of many is chosen
    parts: np.ndarray = NOWHERE  # of locations that are not centred themselves, see Pair
    part_scale: int = -1
    part_beta: float = 0.0

    def of(self, law: Group) -> Group:
        """The law with its members here."""
        law = law.at(self.locations)
        return law._replace(parts=self.parts, part_scale=self.part_scale, part_beta=self.part_beta)


def possible_places(
    places: list[Place], law: Group, groups: list[Group], draws: ScoredDraws, variables: np.ndarray
) -> list[Place]:
    """The place that the scores are clear about, alone; else all places, for F to decide.

    To `places` are added those where members have locations of their own.
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
    """The coordinates outside of the group that correlate most with it, and the one that scores speak for."""
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
    """How much each of the coordinates `free` correlates with some of the members."""
    return np.asarray(np.abs(_correlations(points, free, part_of(law).members)).mean(axis=1))


def _correlations(points: np.ndarray, these: np.ndarray, those: np.ndarray) -> np.ndarray:
    """The correlations (these, those) of draws, times their number."""
    u, v = (points[:, i] - points[:, i].mean(axis=0) for i in (these, those))
    return np.asarray((u / u.std(axis=0)).T @ (v / v.std(axis=0)))


def _own_locations(draws: ScoredDraws, groups: list[Group], variables: np.ndarray, law: Group) -> list[Place]:
    """What may be the own locations of members: the coordinates of another variable that correlate most."""
    members, sizes = law.members, np.bincount(variables)
    if len(law.scales) > 1 or len(members) < FEWEST or len(set(variables[members])) > 1:
        return []
    ruled, found, strengths = set(variables[[*members, *law.scales]]), [], []
    for g in np.flatnonzero((sizes > 1) & (sizes <= len(members))):
        if g in ruled:
            continue
        coordinates = np.flatnonzero(variables == g)
        strength = np.abs(_correlations(draws.points, coordinates, members)).T
        shares = residual_shares(draws, law, groups, candidates=draws.points[:, coordinates])
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
        for place in _places_at(locations, draws, groups, law, cost)
    ]


def _scaled_locations(
    draws: ScoredDraws, groups: list[Group], variables: np.ndarray, law: Group
) -> list[Place]:
    """What may be locations p + e^(b v) x_q with a q for each member, by their scores: the best one."""
    members, sizes = law.members, np.bincount(variables)
    if len(law.scales) > 1 or len(members) < FEWEST or len(set(variables[members])) > 1:
        return []
    some = part_of(law)
    parents = np.setdiff1d(np.flatnonzero(may_be_parents(variables)), members)[:MOST_PARENTS]
    best, least = None, -CLEAR
    for g in np.flatnonzero((sizes > 1) & (sizes <= len(members))):
        coordinates = np.flatnonzero(variables == g)
        if g == variables[members[0]] or np.isin(parents, coordinates).any():
            continue
        for part_scale, base, beta in itertools.product(parents, [-1, *parents], BETAS):
            if base == part_scale:
                continue
            columns = np.exp(beta * draws.points[:, [part_scale]]) * draws.points[:, coordinates]
            here = some.at(np.array([base]))
            share = float(residual_shares(draws, here, groups, candidates=columns).min(axis=1).mean())
            if share < least:
                best, least = (int(base), int(part_scale), beta, coordinates, columns), share
            if share < EXACT:
                break
    if best is None:
        return []
    base, part_scale, beta, coordinates, columns = best
    here = law.at(np.array([base]))
    parts = coordinates[residual_shares(draws, here, groups, candidates=columns).argmin(axis=1)]
    trial = here._replace(parts=parts, part_scale=part_scale, part_beta=beta)
    if not order_groups([*groups, trial]):
        return []
    pulled = pull_draws(draws, others_of([*groups, trial], trial))
    cost = len(members) * np.log(len(coordinates)) / len(draws.points)
    return [Place(here.locations, pulled, cost, parts, part_scale, beta)]


def _places_at(
    locations: np.ndarray, draws: ScoredDraws, groups: list[Group], law: Group, cost: float
) -> list[Place]:
    """The place at `locations`, which may be moved; none where a coordinate would rule what moves it."""
    trial = law.at(locations)
    if not order_groups([*groups, trial]):
        return []
    return [Place(locations, pull_draws(draws, others_of([*groups, trial], trial)), cost)]


def _without_twins(places: list[Place]) -> list[Place]:
    """The places, each once."""
    found: dict[tuple[int, ...], Place] = {}
    for place in places:
        found.setdefault((*map(int, place.locations), -2, *map(int, place.parts), place.part_scale), place)
    return list(found.values())


def likeliest_place(
    draws: ScoredDraws, groups: list[Group], variables: np.ndarray, law: Group
) -> list[Place]:
    """The coordinate that correlates most with the members, as the draws are, whether it is moved or not."""
    free = np.setdiff1d(np.flatnonzero(may_be_parents(variables)), [*law.members, *law.scales])
    if not free.size or len(law.members) < FEWEST or law.are_apart:
        return []
    strength = _strengths(draws.points, free, law)
    if not np.isfinite(strength).all():
        return []
    return _places_at(free[[strength.argmax()]], draws, groups, law, 0.0)


def part_of(law: Group) -> Group:
    """The law of some of the members."""
    every = -(-len(law.members) // _SOME)
    return law._replace(
        members=law.members[::every],
        scales=law.scales if len(law.scales) == 1 else law.scales[::every],
        locations=law.locations if len(law.locations) == 1 else law.locations[::every],
        parts=law.parts if len(law.parts) == 1 else law.parts[::every],
    )


def residual_share(law: Group, others: list[Group], draws: ScoredDraws) -> float:
    """The mean over members of what the law leaves of their scores, see scores.py."""
    return float(residual_shares(draws, law, others).mean())
