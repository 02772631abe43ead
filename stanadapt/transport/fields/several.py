"""Several fields: series of which none is tied to another, each with heads of its own.

A panel of series, of stocks or of places say, in which each has its own scale, has more heads than one field
may have. But given all heads the latents of one series are independent of those of another one. So each has
a field, which is learned in the density of its own latents and heads alone; all other coordinates stay where
they are. What all series share, such as the scale of the noise, may be a head of each of them. What lies
above the heads, such as the mean of their logarithms, has no part in this: it moves no latent.

Where the sum of several parts is observed, such as an autoregression, a walk and effects of groups, the data
tie all latents, and one field would have a dense precision, and more heads than it may have. Then each series
has a field too: that of its law given all other latents, which stay where they are. What is left between the
parts hardly changes with the heads, so that the metric has it. If there is one series alone, beside effects
say, its intercept is a latent of its field.

Data may also tie the series in the columns or rows of one matrix, such as the shares of several parties. With
more heads than one field may have, each of them has a field in the same way. The mean of such a series, if no
other one depends on it, is a latent of its field.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse as sparse
from scipy.sparse.csgraph import connected_components

from ..effects_table import LEAST_GROUPS
from .heads import (
    FAINT_HEAD,
    HEAD,
    MOST_HEADS,
    MOST_OF_ONE,
    choose_heads,
    strengths_of,
    without_all_locations,
    without_locations,
)
from .innovation_search import NO_HEADS, series_at
from .laplace import find_mode
from .precision import Precision
from .probes import FEW_NEIGHBOURS, Coupling, ScaledDensity, axes, divisions, wide_coordinates

LEAST_TIED = 15  # so many coordinates must hang together beside others, or in one of many series,
SHORTEST, TIED = 5, 0.4  # and so many in a short one beside them; and this share of all that may do so
# With this share of all its pairs tied a variable is no series, but for innovations. Such are coefficients of
# a regression. What data tell of these while others stay is more than what they tell where those follow.
_ALL_TIED = 0.9
_MOST_SMALL = 40  # coordinates may be heads of series that data tie
# What lies above the heads is moved by this, such as the logarithm of a scale, if it then holds them less: if
# their curvature is at most this share of what it was.
_LOOSER, _LESS = 1.5, 0.9
MANY_PARTS = 8  # series are many
_TIGHT = 1.0 / 3.0  # latents hold a shared head if less than this of its precision is left where they follow
_LEAST_LEFT = 0.05  # which is below 0 where the log density of a head curves upwards for a while
_FAR = 2.5  # from its mode, in standard deviations, a shared head is not held by what will hold it
_REACH = 1.2  # of heads that they share, in standard deviations of draws
# Variances of effects that series follow, in those where these stay: means of persons beside autoregressions
# have 10 to 44, those of houses that poll, or of groups beside a smooth walk, 1.0 to 1.8.
_FAR_WITH_OTHERS = 4.0
_SHARE = 0.2  # of the latents of a series that a coordinate is coupled to, which may be one of its heads


class Part(NamedTuple):
    """The latents of one series with its heads, and their density, in which all other coordinates stay."""

    places: np.ndarray  # (k,) its coordinates
    density: ScaledDensity
    coupling: Coupling
    heads: np.ndarray  # among these coordinates,
    possible: np.ndarray  # and those that may be heads if no modes are found for the heads
    alone: bool  # whether the heads depend on nothing outside, but for what they share with other series


class TiedSeries(NamedTuple):
    """A variable that is a series."""

    own: np.ndarray  # (n,) its coordinates,
    divided: list[np.ndarray]  # and those of its columns or rows if it is a matrix, else none


class Tied(NamedTuple):
    """Series that data tie to other latents, or to each other."""

    series: list[TiedSeries]
    may_be_head: np.ndarray  # (d,) whether a coordinate may be a head

    def has_matrices(self) -> bool:
        """Whether there are series in a matrix, which may have a field each."""
        return any(one.divided for one in self.series)


class StrengthsOfAll(NamedTuple):
    """How much each coordinate that may be a head changes the curvature of all latents."""

    of_all: dict[int, float]
    of_heads: dict[int, float]  # without locations

    def are_too_many(self) -> bool:
        """Whether there are more heads than one field may have."""
        return len(choose_heads(self.of_heads, most=len(self.of_heads))) > MOST_OF_ONE


def find_parts(
    density: ScaledDensity, coupling: Coupling, x: np.ndarray, variables: np.ndarray
) -> list[Part]:
    """The series around `x` (d,), in units, that may have a field each; none if one field may do for all.

    Parts that share more heads than a field may have are none, such as the even and the odd waves of a
    process, which data on both sides of 0 do not tie. Locations are no heads of one field for all.
    """
    hubs = _are_hubs(coupling, variables)
    found = _separate(coupling, hubs)
    if len(found) < 2:
        return []
    strengths: list[dict[int, float]] = []
    of_one: set[int] = set()
    for places in found:
        part, own = _restrict(density, coupling, x, places)
        # Latents of a dense series have many neighbours in it.
        is_few = np.bincount(variables[places])[variables[places]] < SHORTEST
        own = own._replace(wide=hubs[places] | (own.wide & is_few))
        of_part = strengths_of(part, x[places], own)
        strengths.append({int(places[k]): strength for k, strength in of_part.items()})
        if len(of_one) <= MOST_HEADS:
            of_one |= {int(places[k]) for k in choose_heads(without_locations(part, x[places], own, of_part))}
    if len(of_one) <= MOST_HEADS:
        return []
    heads = {k for of_part in strengths for k, strength in of_part.items() if strength > HEAD}
    times = np.bincount(np.concatenate(found), minlength=x.size)
    if sum(times[k] > 1 for k in heads) > MOST_HEADS:
        return []
    x = _loosen(density, coupling, x, np.array(sorted(heads)), times)
    of_all = np.array([k for k in sorted(heads) if times[k] > 1], np.int64)
    hold = _find_hold(density, coupling, x, of_all, found, hubs)
    return [
        _part(density, coupling, x, places, of_part, times > 1, hold)
        for places, of_part in zip(found, strengths, strict=True)
    ]


def series_beside_others(coupling: Coupling, variables: np.ndarray) -> Tied | None:
    """The series among the `variables` (d,) beside which there are other latents, or more series; None if
    there are none, or if nothing may be a head of theirs, or too much.
    """
    series, are_heads = _series_and_heads(coupling, variables)
    may_be_head = are_heads[variables]
    if (
        not series
        or np.count_nonzero(~are_heads) + len(_numbers_of_series(series)) < 2
        or not _are_few(may_be_head)
    ):
        return None
    return Tied(series, may_be_head)


def scales_of_few(
    density: ScaledDensity, x: np.ndarray, coupling: Coupling, variables: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Coordinates (k,) on which all of a variable with few coordinates depend, and the curvature of these,
    where nothing ties them to each other, but something to a larger variable; and those (m,) where something
    ties them to each other.

    Such is the scale of the effects of a few groups. They are too few for it to be wide, and it changes the
    curvature of all latents together by next to nothing. Effects that are tied have a law along their axes
    (rotation.py).
    """
    counts = np.bincount(variables)
    is_small = counts[variables] < SHORTEST
    narrow = np.flatnonzero(is_small & ~coupling.wide)
    may_be_scale, of_tied = np.zeros(x.size, bool), np.zeros(x.size, bool)
    for number in np.flatnonzero((counts >= LEAST_GROUPS) & (counts <= FEW_NEIGHBOURS)):
        own = np.flatnonzero(variables == number)
        others = ~is_small
        others[own] = False
        if not coupling.pattern[own][:, others].nnz:
            continue
        on = np.asarray(coupling.pattern[own][:, narrow].sum(axis=0)).ravel()
        may_be_scale[narrow[on == len(own)]] = True
        of_tied[narrow[on == len(own)]] |= coupling.pattern[own][:, own].nnz > len(own)
    if not may_be_scale.any():
        return NO_HEADS, NO_HEADS
    strengths = strengths_of(density, x, coupling._replace(wide=may_be_scale))
    found = choose_heads({k: strength for k, strength in strengths.items() if may_be_scale[k]}, FAINT_HEAD)
    return found[~of_tied[found]], found[of_tied[found]]


def are_followed(
    density: ScaledDensity, coupling: Coupling, x: np.ndarray, tied: Tied, scales: np.ndarray
) -> bool:
    """Whether effects with these `scales` (k,) reach far where the series beside them follow, around `x`
    (d,), in units, and not where these stay: as the mean of a person does, beside a series of this person.
    """
    effects = np.asarray(coupling.pattern[:, scales].sum(axis=1)).ravel() > 0
    effects[scales] = False
    precision = Precision(density, coupling, np.flatnonzero(tied.may_be_head & ~effects))
    logp, score = density(x)
    matrix = precision.at(x, score) if np.isfinite(logp) else None
    factor = None if matrix is None else precision.factor(matrix)
    if matrix is None or factor is None:
        return False
    own = np.flatnonzero(effects[precision.latents])
    along = zip(own, axes(len(precision.latents), own), strict=True)
    variances = np.array([factor.solve(axis)[k] for k, axis in along])
    return bool(np.median(variances * matrix.diagonal()[own]) > _FAR_WITH_OTHERS)


def has_series(coupling: Coupling, variables: np.ndarray) -> bool:
    """Whether one of the `variables` (d,) is a series that is long enough to have a field alone."""
    return len(_series_among(coupling, variables, LEAST_TIED)) > 0


def are_all_series(coupling: Coupling, variables: np.ndarray) -> bool:
    """Whether each of the `variables` (d,) is a series or a matrix of series, but those that may be heads."""
    series, are_heads = _series_and_heads(coupling, variables)
    return len(series) == np.count_nonzero(~are_heads)


def _series_and_heads(coupling: Coupling, variables: np.ndarray) -> tuple[list[TiedSeries], np.ndarray]:
    """The series among the `variables` (d,), and whether each variable may be heads: it is small, or has as
    many coordinates as there are series in a matrix, which may have a scale each.
    """
    found = _series_among(coupling, variables, SHORTEST)
    series = [TiedSeries(own, divide_series(coupling, own)) for own in found]
    counts = np.bincount(variables)
    return series, (counts < SHORTEST) | np.isin(counts, list(_numbers_of_series(series)))


def _numbers_of_series(series: list[TiedSeries]) -> set[int]:
    """How many series there are in each matrix."""
    return {len(one.divided) for one in series if one.divided}


def _series_among(coupling: Coupling, variables: np.ndarray, shortest: int) -> list[np.ndarray]:
    """The coordinates of each of the `variables` (d,) that is a series which is no shorter than that."""
    of_variables = (np.flatnonzero(variables == number) for number in np.unique(variables))
    long = (own for own in of_variables if len(own) >= shortest)
    return [own for own in long if are_tied(coupling.pattern[own][:, own], shortest)]


def series_alone(coupling: Coupling, variables: np.ndarray) -> Tied | None:
    """The long series among the `variables` (d,), each given all else but its heads; None if there are none,
    or if nothing may be a head of theirs, or too much.
    """
    series, are_heads = _series_and_heads(coupling, variables)
    may_be_head = are_heads[variables]
    tied = without_short(Tied(series, may_be_head))
    return tied if tied.series and _are_few(may_be_head) else None


def _are_few(may_be_head: np.ndarray) -> bool:
    """Whether some coordinates (d,) may be heads, and not too many."""
    return bool(0 < may_be_head.sum() <= _MOST_SMALL)


def without_short(tied: Tied) -> Tied:
    """The series that are no shorter than one beside which there is nothing else may be."""
    return tied._replace(series=[one for one in tied.series if len(one.own) >= LEAST_TIED])


def cost_of_precision(density: ScaledDensity, coupling: Coupling, tied: Tied) -> tuple[int, int]:
    """The gradients that the precision of all latents takes, and the number of its heads.

    All coordinates that may be heads are taken for such.
    """
    heads = np.flatnonzero(tied.may_be_head)
    return Precision(density, coupling, heads).cost, len(heads)


def find_tied_parts(
    density: ScaledDensity,
    coupling: Coupling,
    x: np.ndarray,
    tied: Tied,
    strengths: StrengthsOfAll | None = None,
) -> list[Part]:
    """The parts around `x` (d,), in units, of series that data tie; those without heads are left out.

    A matrix that has more heads than one field may have is as many parts as it has series. Where there is one
    series alone, the locations that it depends on are latents of its part. If they stayed where they are, the
    series would make up for an intercept that is off. `strengths` are those of `strengths_of_all`, if they
    are known.
    """
    strengths = strengths or strengths_of_all(density, coupling, x, tied, NO_HEADS)
    locations = set(strengths.of_all) - set(strengths.of_heads)
    possible = np.setdiff1d(np.flatnonzero(tied.may_be_head), list(locations))
    series = [one for one in tied.series if _is_series(density, coupling, x, one.own)]
    parts: list[Part] = []
    for own, divided in series:
        of_own = _strengths_in(density, coupling, x, own, possible)
        of_each = []
        if divided and sum(strength > HEAD for strength in of_own.values()) > MOST_HEADS:
            of_each = [(one, _strengths_in(density, coupling, x, one, possible)) for one in divided[:2]]
            first, second = (choose_heads(of_one, most=len(of_one)) for _, of_one in of_each)
            if len(np.intersect1d(first, second)) > MOST_HEADS:  # each would lack some of the same heads
                of_each = []
        if of_each:
            of_each += [(one, _strengths_in(density, coupling, x, one, possible)) for one in divided[2:]]
            means = [_means_of(coupling, one, of_one, tied) for one, of_one in of_each]
        else:
            of_each = [(own, of_own)]
            means = [_tied_to(coupling, own, sorted(locations) if len(series) == 1 else [])]
        found = (
            _tied_part(density, coupling, x, one, of_one, means_of_one)
            for (one, of_one), means_of_one in zip(of_each, means, strict=True)
        )
        parts += [part for part in found if part is not None]
    return parts


def strengths_of_all(
    density: ScaledDensity, coupling: Coupling, x: np.ndarray, tied: Tied, scales: np.ndarray
) -> StrengthsOfAll:
    """Of each coordinate that may be a head, around `x` (d,), in units, with `scales` of few latents."""
    whole = coupling._replace(wide=tied.may_be_head)
    of_all = strengths_of(density, x, whole)
    return StrengthsOfAll(of_all, without_all_locations(density, x, whole, of_all, scales))


def divide_series(coupling: Coupling, own: np.ndarray) -> list[np.ndarray]:
    """The series in the columns or rows of a matrix with the coordinates `own` (n,); none if there are none.

    Data tie each of them to each other one, at the same times, or none to any other. On a grid of places
    columns are tied too, but to the next ones alone.
    """
    pattern, n = coupling.pattern[own][:, own].tocsc(), len(own)
    apart = _divide_apart(pattern)
    if apart:
        return [own[one] for one in apart]
    rows, columns = pattern.nonzero()
    series, time = np.empty(n, np.int64), np.empty(n, np.int64)
    for members in divisions(np.arange(n), SHORTEST):
        k = len(members)
        series[members], time[members] = np.arange(k)[:, None], np.arange(n // k)
        between = series[rows] != series[columns]
        pairs = np.unique(series[rows[between]] * k + series[columns[between]])
        if (
            len(pairs) == k * (k - 1)
            and np.array_equal(time[rows[between]], time[columns[between]])
            and all(are_tied(pattern[one][:, one], SHORTEST) for one in members)
        ):
            return [own[one] for one in members]
    return []


def _divide_apart(pattern: sparse.csc_matrix) -> list[np.ndarray]:
    """The series of one length of which none is tied to another one, among all; none if there are others."""
    labels = connected_components(pattern, directed=False)[1]
    series = [np.flatnonzero(labels == label) for label in range(labels.max(initial=0) + 1)]
    is_one_length = len({len(one) for one in series}) == 1
    if len(series) < 2 or not is_one_length or len(series[0]) < SHORTEST:
        return []
    return series if all(are_tied(pattern[one][:, one], SHORTEST) for one in series) else []


def are_tied(pattern: sparse.csc_matrix, fewest: int) -> bool:
    """Whether many coordinates, and at least so many, hang together by neighbours, given what is coupled.

    In a series or on a map nearly all do. The groups of a hierarchy do not: their law is group.py's.
    """
    n = pattern.shape[0]
    if n == 0 or np.median(np.asarray(pattern.sum(axis=0)).ravel()) < 3.0:  # most have one neighbour, or none
        return False
    sizes = np.bincount(connected_components(pattern, directed=False)[1])
    return bool(sizes[sizes >= SHORTEST].sum() >= max(fewest, TIED * n))


def _is_series(density: ScaledDensity, coupling: Coupling, x: np.ndarray, own: np.ndarray) -> bool:
    """Whether not all of the coordinates `own` (n,) are tied to each other, or they are innovations."""
    if coupling.pattern[own][:, own].nnz < _ALL_TIED * len(own) ** 2:
        return True
    return series_at(density, x, own) is not None


def _strengths_in(
    density: ScaledDensity, coupling: Coupling, x: np.ndarray, own: np.ndarray, possible: np.ndarray
) -> dict[int, float]:
    """How much each coordinate that is `possible` changes the curvature of the series `own` (n,) alone."""
    places = np.union1d(own, possible)
    part, of_part = _restrict(density, coupling, x, places)
    found = strengths_of(part, x[places], of_part._replace(wide=np.isin(places, possible)))
    return {int(places[k]): strength for k, strength in found.items()}


def _tied_part(
    density: ScaledDensity,
    coupling: Coupling,
    x: np.ndarray,
    own: np.ndarray,
    strengths: dict[int, float],
    means: np.ndarray,
) -> Part | None:
    """The series with the coordinates `own` (n,), to whose curvature others have such `strengths`, and with
    the `means` (k,); None if it has no heads.

    The scale of a sum of sums changes its curvature by little, in units of the diagonal. So if there are none
    but faint heads, these are.
    """
    heads = choose_heads(strengths)
    if not len(heads):
        heads = choose_heads(strengths, FAINT_HEAD)
    if not len(heads):
        return None
    wide = np.union1d(heads, means)
    places = np.union1d(own, wide)
    part, of_part = _restrict(density, coupling, x, places)
    among = np.searchsorted(places, heads)
    of_part = of_part._replace(wide=np.isin(places, wide))
    return Part(places, part, of_part, among, among, alone=False)


def _means_of(coupling: Coupling, own: np.ndarray, strengths: dict[int, float], tied: Tied) -> np.ndarray:
    """Those that may be heads, but by their `strengths` are none of the series `own` (n,), on which this
    depends and no other latent does.
    """
    others = ~tied.may_be_head
    others[own] = False
    possible = np.setdiff1d(np.flatnonzero(tied.may_be_head), choose_heads(strengths))
    elsewhere = np.asarray(coupling.pattern[:, possible][others].sum(axis=0)).ravel()
    return _tied_to(coupling, own, possible[elsewhere == 0])


def _tied_to(coupling: Coupling, own: np.ndarray, possible: Sequence[int] | np.ndarray) -> np.ndarray:
    """Those of the `possible` (k,) that many of the series `own` (n,) depend on."""
    among = np.asarray(possible, np.int64)
    share = np.asarray(coupling.pattern[own][:, among].mean(axis=0)).ravel()
    return np.asarray(among[share >= _SHARE])


def _separate(coupling: Coupling, hubs: np.ndarray) -> list[np.ndarray]:
    """The coordinates of each series: what hangs together, and those of the `hubs` (d,) that have many
    neighbours among that.
    """
    narrow, wide = np.flatnonzero(~hubs), np.flatnonzero(hubs)
    labels = connected_components(coupling.pattern[narrow][:, narrow], directed=False)[1]
    found = []
    for label in np.flatnonzero(np.bincount(labels, minlength=1) >= LEAST_TIED):
        members = narrow[labels == label]
        share = np.asarray(coupling.pattern[members][:, wide].mean(axis=0)).ravel()
        found.append(np.sort(np.concatenate((members, wide[share >= _SHARE]))))
    # A constraint on a sum ties the latents of all series that it goes through.
    tied = [np.isin(members, places).all() for members in coupling.members for places in found]
    return found if np.sum(tied) == len(coupling.members) else []


def _are_hubs(coupling: Coupling, variables: np.ndarray) -> np.ndarray:
    """Whether each coordinate (d,) has more neighbours than a latent of a series.

    The latents of a series are none, though each may be the factor of many others, as the place of a voter is
    in all answers of a year.
    """
    hubs = wide_coordinates(coupling.pattern.toarray(), FEW_NEIGHBOURS)
    for number in np.unique(variables[hubs]):
        own = np.flatnonzero(variables == number)
        if are_tied(coupling.pattern[own][:, own], LEAST_TIED):
            hubs[own] = False
    return hubs


def _loosen(
    density: ScaledDensity, coupling: Coupling, x: np.ndarray, heads: np.ndarray, times: np.ndarray
) -> np.ndarray:
    """A point (d,) like `x`, at which what lies above the `heads` (k,) holds them less.

    A search may begin while the scale of their own law is small, so that the heads hardly move. Their laws
    would then end where draws come later. `times` (d,) is the number of series that have a coordinate.
    """
    own = heads[times[heads] == 1]
    above = np.flatnonzero(np.asarray(coupling.pattern[own].sum(axis=0)).ravel() * (times == 0))
    together = np.zeros(x.size)
    together[own] = 1.0

    def hold(point: np.ndarray) -> float:
        found = density.curvature(point, together)
        return np.inf if found is None else float(found[own].sum())

    held = hold(x)
    for k in above:
        for sign in (-1.0, 1.0):
            moved = x.copy()
            moved[k] += sign * _LOOSER / density.unit[k]
            there = hold(moved)
            if 0.0 < there < _LESS * held:
                x, held = moved, there
    return x


def _part(
    density: ScaledDensity,
    coupling: Coupling,
    x: np.ndarray,
    places: np.ndarray,
    strengths: dict[int, float],
    shared: np.ndarray,
    hold: _Hold | None,
) -> Part:
    """The part around `x` (d,) that has the coordinates `places` (k,), some of which are `shared` (d,).

    Other series have a `hold` on some of these.

    A location that has a law of its own, with a mean that all series share say, is a head too: a latent
    depends on heads and on later latents alone.
    """
    outside = np.setdiff1d(np.arange(x.size), places)
    depends = np.zeros(x.size, bool)
    depends[places] = np.asarray(coupling.pattern[places][:, outside].sum(axis=1)).ravel() > 0
    part, own = _restrict(density, coupling, x, places, hold)
    own = own._replace(wide=np.isin(places, list(strengths)))
    numbers = {int(k): i for i, k in enumerate(places)}
    of_heads = without_locations(part, x[places], own, {numbers[k]: strengths[k] for k in strengths})
    heads, possible = places[choose_heads(of_heads)], choose_heads(strengths, FAINT_HEAD)
    others = [k for k in sorted(strengths, key=lambda k: -strengths[k]) if k not in heads and depends[k]]
    more = [k for k in others if not shared[k]][: MOST_HEADS - len(heads)]
    left_out = np.setdiff1d(others, more)
    heads, possible = np.union1d(heads, more), np.setdiff1d(possible, left_out)
    places = np.setdiff1d(places, left_out)
    return Part(
        places,
        *_restrict(density, coupling, x, places, hold),
        np.searchsorted(places, heads),
        np.searchsorted(places, possible),
        not depends[heads.astype(np.int64)].any(),
    )


def _restrict(
    density: ScaledDensity, coupling: Coupling, x: np.ndarray, places: np.ndarray, hold: _Hold | None = None
) -> tuple[ScaledDensity, Coupling]:
    """The density around `x` (d,) as a function of the coordinates `places` (k,) alone, and their coupling.

    The gradients count for the whole density, too. The `hold` that others have on some of these is loosened.
    """
    place_of = np.full(x.size, -1)
    place_of[places] = np.arange(len(places))
    pattern = coupling.pattern[places][:, places].tocsc()
    inside = [k for k, members in enumerate(coupling.members) if np.all(place_of[members] >= 0)]
    return density_within(density, x, places, hold), Coupling(
        pattern,
        coupling.diagonal[places],
        wide_coordinates(pattern.toarray()),
        tuple(place_of[coupling.members[k]] for k in inside),
        tuple(coupling.levels[k] for k in inside),
    )


def density_within(
    density: ScaledDensity, x: np.ndarray, places: np.ndarray, hold: _Hold | None = None
) -> ScaledDensity:
    """The density around `x` (d,), in units, as a function of the coordinates `places` (k,) alone.

    If others have a `hold` on some of these, it is loosened.
    """
    return ScaledDensity(_Restricted(density, x, places, hold), density.unit[places])


class _Hold:
    """What the latents of many series together tell of the heads that they share, while they stay.

    While a series is looked at, the latents of all others stay where they are, and hold a shared head closer
    than it is where they follow it. The law of the series would end where draws come later: in a panel of 25
    series the scale of all was held to half of its standard deviation. So a part of the hold is taken away.

    With all latents in place a shared head has the precision C, and where those of n series follow it
    Lambda, by the approximation of Laplace. Each series has an n-th of both. If the share r of what is told
    with all in place is kept, the head has the precision Lambda / n + (r - 1 / n) C in the density of one
    series, whose latents follow. With r = 1 / n + (1 / w^2 - 1 / n) Lambda / C it reaches w times as far as
    where all follow.
    """

    def __init__(
        self, density: ScaledDensity, x: np.ndarray, heads: np.ndarray, series: int, left: float
    ) -> None:
        """On the `heads` (k,), around `x` (d,), in units, of so many `series`; `left` is Lambda / C."""
        self._density, self._x, self._heads, self._logp = density, x, heads, density(x)[0]
        self._taken = 1.0 - 1.0 / series - (_REACH**-2 - 1.0 / series) * left
        self._known: dict[bytes, tuple[float, np.ndarray]] = {}

    def loosen(self, points: np.ndarray, found: np.ndarray, scores: np.ndarray) -> None:
        """Take it from log densities (n,), and from their scores (n, d), at points (n, d)."""
        for row, point in enumerate(points):
            told, slope = self._at(point[self._heads])
            found[row] = found[row] - told if np.isfinite(told) else -np.inf
            scores[row, self._heads] -= slope

    def _at(self, heads: np.ndarray) -> tuple[float, np.ndarray]:
        """At the shared heads (k,), with all else in place. Latents are looked for given heads, so that most
        points have heads at which this is known.
        """
        key = heads.tobytes()
        if key not in self._known:
            moved = self._x.copy()
            moved[self._heads] = heads
            logp, score = self._density(moved)
            self._known[key] = self._taken * (logp - self._logp), self._taken * score[self._heads]
        return self._known[key]


def _find_hold(
    density: ScaledDensity,
    coupling: Coupling,
    x: np.ndarray,
    heads: np.ndarray,
    parts: list[np.ndarray],
    hubs: np.ndarray,
) -> _Hold | None:
    """What many `parts` tell of the `heads` (k,) that they share, around `x` (d,), if that is to be loosened.

    It is if they hold these heads close, and not where one of them is far from where it will be, as it may be
    early in a chain: others' latents tell nothing of that place.
    """
    if len(parts) < MANY_PARTS or not len(heads):
        return None
    members = np.concatenate(parts)
    latents = members[~hubs[members]]
    precision = Precision(density, coupling, np.setdiff1d(np.arange(x.size), latents))
    left = [_left_to_followers(precision, x, int(head)) for head in heads]
    if not 0.0 < min(left) <= max(left) < _TIGHT:
        return None
    return _Hold(density, x, heads, len(parts), max(left))


def _left_to_followers(precision: Precision, x: np.ndarray, head: int) -> float:
    """The share of the precision of a head around `x` (d,), in units, that is left where latents follow it.

    It is 0 if modes of the latents are not found, and if the head is far from its own.
    """
    move = np.zeros(x.size)
    move[head] = 1.0
    curvature = precision.density.curvature(x, move)
    if curvature is None or not curvature[head] > 0.0:
        return 0.0
    move /= np.sqrt(curvature[head])
    middle = find_mode(precision, x)
    sides = [None if middle is None else find_mode(precision, middle.x + side * move) for side in (-1.0, 1.0)]
    if middle is None or sides[0] is None or sides[1] is None:
        return 0.0
    left = max(2.0 * middle.logp - sides[0].logp - sides[1].logp, _LEAST_LEFT)
    slope = 0.5 * (sides[1].logp - sides[0].logp)
    return float(left) if slope**2 < _FAR**2 * left else 0.0


class _Restricted:
    """A density as a function of some of its coordinates, in the program's own."""

    def __init__(
        self, density: ScaledDensity, x: np.ndarray, places: np.ndarray, hold: _Hold | None = None
    ) -> None:
        """All but the coordinates `places` (k,) stay at `x` (d,), in units."""
        self._density, self._x, self._places, self._unit = density, x, places, density.unit[places]
        self._hold = hold

    def __call__(self, x: np.ndarray, score: np.ndarray) -> float:
        """The log density at `x` (k,), whose score is written."""
        return float(self.at_all(x[None], score[None])[0])

    def at_all(self, points: np.ndarray, scores: np.ndarray) -> np.ndarray:
        """The log densities (n,) at points (n, k), whose scores are written."""
        whole = np.repeat(self._x[None], len(points), axis=0)
        whole[:, self._places] = points / self._unit
        found, of_whole = self._density.at_all(whole)
        if self._hold is not None:
            self._hold.loosen(whole, found, of_whole)
        scores[:] = of_whole[:, self._places] / self._unit
        return found
