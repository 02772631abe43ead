"""Several fields: series of which none is tied to another, each with heads of its own.

A panel of series, of stocks or of places say, in which each has its own scale, has more heads than one field
may have. But given all heads the latents of one series are independent of those of another one. So each has
a field, which is learned in the density of its own latents and heads alone; all other coordinates stay where
they are. What all series share, such as the scale of the noise, may be a head of each of them. What lies
above the heads, such as the mean of their logarithms, has no part in this: it moves no latent.

Where the sum of several parts is observed, such as an autoregression, a walk and effects of groups, the data
tie all latents, and one field would have a dense precision, and more heads than it may have. Then each series
has a field too: that of its law given all other latents, which stay where they are. What is left between the
parts hardly changes with the heads, so that the metric has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse as sparse
from scipy.sparse.csgraph import connected_components

from .heads import FAINT_HEAD, HEAD, MOST_HEADS, choose_heads, strengths_of, without_locations
from .precision import Precision
from .probes import FEW_NEIGHBOURS, Coupling, ScaledDensity, wide_coordinates

LEAST_TIED = 15  # so many coordinates must hang together, in a series for instance,
SHORTEST, TIED = 5, 0.4  # and so many in a short one; and this share of all that may do so
# At most so many coordinates may be heads of series that data tie. Which of them are locations is seen in the
# precision of all latents, which takes two gradients for each of at most so many coordinates.
_MOST_SMALL, _LARGEST_WHOLE = 40, 400
# What lies above the heads is moved by this, such as the logarithm of a scale, if it then holds them less: if
# their curvature is at most this share of what it was.
_LOOSER, _LESS = 1.5, 0.9
_SHARE = 0.2  # of the latents of a series that a coordinate is coupled to, which may be one of its heads


class Part(NamedTuple):
    """The latents of one series with its heads, and their density, in which all other coordinates stay."""

    places: np.ndarray  # (k,) its coordinates
    density: ScaledDensity
    coupling: Coupling
    heads: np.ndarray  # among these coordinates,
    possible: np.ndarray  # and those that may be heads if no modes are found for the heads
    alone: bool  # whether the heads depend on nothing outside, but for what they share with other series


def find_parts(density: ScaledDensity, coupling: Coupling, x: np.ndarray) -> list[Part]:
    """The series around `x` (d,), in units, that may have a field each; none if one field may do for all."""
    found = _separate(coupling)
    if len(found) < 2:
        return []
    strengths = []
    for places in found:
        part, own = _restrict(density, coupling, x, places)
        of_part = strengths_of(part, x[places], own)
        strengths.append({int(places[k]): strength for k, strength in of_part.items()})
    heads = {k for of_part in strengths for k, strength in of_part.items() if strength > HEAD}
    if len(heads) <= MOST_HEADS:
        return []
    times = np.bincount(np.concatenate(found), minlength=x.size)
    x = _loosen(density, coupling, x, np.array(sorted(heads)), times)
    return [
        _part(density, coupling, x, places, of_part, times > 1)
        for places, of_part in zip(found, strengths, strict=True)
    ]


def series_beside_others(coupling: Coupling, variables: np.ndarray) -> list[np.ndarray]:
    """The coordinates of each of the `variables` (d,) that is a series, if there are other latents too.

    There are none where there are too many coordinates to look at.
    """
    counts = np.bincount(variables)
    latents = [np.flatnonzero(variables == number) for number in np.flatnonzero(counts >= SHORTEST)]
    n_small = int(counts[counts < SHORTEST].sum())
    if len(latents) < 2 or not 0 < n_small <= _MOST_SMALL or len(variables) > _LARGEST_WHOLE:
        return []
    return [own for own in latents if are_tied(coupling.pattern[own][:, own], SHORTEST)]


def is_precision_sparse(
    density: ScaledDensity, coupling: Coupling, variables: np.ndarray, largest_costs: Sequence[int]
) -> bool:
    """Whether the precision of all latents takes at most so many gradients, for each number of heads.

    Coordinates of small `variables` (d,) are taken for heads, all of them.
    """
    small = np.flatnonzero(np.bincount(variables)[variables] < SHORTEST)
    of_all = Precision(density, coupling, small)
    return of_all.cost <= min(largest_costs[min(len(small), MOST_HEADS)], len(variables))


def find_tied_parts(
    density: ScaledDensity,
    coupling: Coupling,
    x: np.ndarray,
    variables: np.ndarray,
    series: Sequence[np.ndarray],
) -> list[Part]:
    """The parts around `x` (d,), in units, of `series` that data tie to other latents.

    Each of the series is one of the `variables` (d,); those without heads are left out.
    """
    is_small = np.bincount(variables)[variables] < SHORTEST
    small = np.flatnonzero(is_small)
    whole = coupling._replace(wide=is_small)
    strengths = strengths_of(density, x, whole)
    of_heads = without_locations(density, x, whole, strengths)
    locations = set(strengths) - set(of_heads)
    possible = np.setdiff1d(small, list(locations))
    parts = [_tied_part(density, coupling, x, own, possible) for own in series]
    return [part for part in parts if part is not None]


def are_tied(pattern: sparse.csc_matrix, fewest: int) -> bool:
    """Whether many coordinates, and at least so many, hang together by neighbours, given what is coupled.

    In a series or on a map nearly all do. The groups of a hierarchy do not: their law is group.py's.
    """
    n = pattern.shape[0]
    if n == 0 or np.median(np.asarray(pattern.sum(axis=0)).ravel()) < 3.0:  # most have one neighbour, or none
        return False
    sizes = np.bincount(connected_components(pattern, directed=False)[1])
    return bool(sizes[sizes >= SHORTEST].sum() >= max(fewest, TIED * n))


def _tied_part(
    density: ScaledDensity, coupling: Coupling, x: np.ndarray, own: np.ndarray, possible: np.ndarray
) -> Part | None:
    """The series with the coordinates `own` (n,), whose heads are among those that are `possible`; None if it
    has no heads.
    """
    places = np.union1d(own, possible)
    part, of_part = _restrict(density, coupling, x, places)
    of_part = of_part._replace(wide=np.isin(places, possible))
    heads = places[choose_heads(strengths_of(part, x[places], of_part))]
    if not len(heads):
        return None
    places = np.union1d(own, heads)
    part, of_part = _restrict(density, coupling, x, places)
    among = np.searchsorted(places, heads)
    of_part = of_part._replace(wide=np.isin(places, heads))
    return Part(places, part, of_part, among, among, alone=False)


def _separate(coupling: Coupling) -> list[np.ndarray]:
    """The coordinates of each series: what hangs together, and what has many neighbours among that."""
    hubs = wide_coordinates(coupling.pattern.toarray(), FEW_NEIGHBOURS)
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
) -> Part:
    """The part around `x` (d,) that has the coordinates `places` (k,), some of which are `shared` (d,).

    A location that has a law of its own, with a mean that all series share say, is a head too: a latent
    depends on heads and on later latents alone.
    """
    outside = np.setdiff1d(np.arange(x.size), places)
    depends = np.zeros(x.size, bool)
    depends[places] = np.asarray(coupling.pattern[places][:, outside].sum(axis=1)).ravel() > 0
    part, own = _restrict(density, coupling, x, places)
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
        *_restrict(density, coupling, x, places),
        np.searchsorted(places, heads),
        np.searchsorted(places, possible),
        not depends[heads.astype(np.int64)].any(),
    )


def _restrict(
    density: ScaledDensity, coupling: Coupling, x: np.ndarray, places: np.ndarray
) -> tuple[ScaledDensity, Coupling]:
    """The density around `x` (d,) as a function of the coordinates `places` (k,) alone, and their coupling.

    The gradients count for the whole density, too.
    """
    place_of = np.full(x.size, -1)
    place_of[places] = np.arange(len(places))
    pattern = coupling.pattern[places][:, places].tocsc()
    inside = [k for k, members in enumerate(coupling.members) if np.all(place_of[members] >= 0)]
    return ScaledDensity(_Restricted(density, x, places), density.unit[places]), Coupling(
        pattern,
        coupling.diagonal[places],
        wide_coordinates(pattern.toarray()),
        tuple(place_of[coupling.members[k]] for k in inside),
        tuple(coupling.levels[k] for k in inside),
    )


class _Restricted:
    """A density as a function of some of its coordinates, in the program's own."""

    def __init__(self, density: ScaledDensity, x: np.ndarray, places: np.ndarray) -> None:
        """All but the coordinates `places` (k,) stay at `x` (d,), in units."""
        self._density, self._x, self._places, self._unit = density, x, places, density.unit[places]

    def __call__(self, x: np.ndarray, score: np.ndarray) -> float:
        """The log density at `x` (k,), whose score is written."""
        return float(self.at_all(x[None], score[None])[0])

    def at_all(self, points: np.ndarray, scores: np.ndarray) -> np.ndarray:
        """The log densities (n,) at points (n, k), whose scores are written."""
        whole = np.tile(self._x, (len(points), 1))
        whole[:, self._places] = points / self._unit
        found, of_whole = self._density.at_all(whole)
        scores[:] = of_whole[:, self._places] / self._unit
        return found
