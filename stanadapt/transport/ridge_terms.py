"""A ridge in numbers, the terms that may be in one, and draws in which ridges are undone."""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

LARGEST_PAIRED = 40  # products of two parents are tried for at most so many coordinates


class Ridge(NamedTuple):
    """The location of a coordinate: a sum of t terms, those of second order first."""

    child: int
    firsts: np.ndarray  # (t,) int64, the parents a
    seconds: np.ndarray  # (t,) int64, the parents b; -1 for terms that are linear in a
    strengths: np.ndarray  # (t,) q
    centers: np.ndarray  # (t, 2) m_a and m_b
    reaches: np.ndarray  # (t, 2) r_a and r_b; infinite in an exact ridge

    @property
    def is_exact(self) -> bool:
        return bool(np.isinf(self.reaches).all())

    @property
    def parents(self) -> np.ndarray:
        """The parents in terms of second order."""
        bent = self.seconds >= 0
        return np.unique(np.concatenate((self.firsts[bent], self.seconds[bent])))

    def terms(self) -> set[tuple[int, int]]:
        return set(zip(self.firsts.tolist(), self.seconds.tolist(), strict=True))


class RidgeDraws(NamedTuple):
    """Draws and scores (n, d), in which some ridges may be undone."""

    points: np.ndarray
    scores: np.ndarray

    def part(self, rows: slice) -> RidgeDraws:
        return RidgeDraws(self.points[rows], self.scores[rows])


class Atoms(NamedTuple):
    """The terms that may be in a location: first those that are linear, then those of second order."""

    firsts: np.ndarray  # (m,) int64
    seconds: np.ndarray  # (m,) int64, -1 for linear terms
    columns: np.ndarray  # (n, m) less their means
    sizes: np.ndarray  # (m,) squared lengths of the columns
    centers: np.ndarray  # (d,)
    scales: np.ndarray  # (d,)

    @property
    def n_linear(self) -> int:
        return int(np.count_nonzero(self.seconds < 0))


def make_atoms(draws: RidgeDraws, parents: np.ndarray) -> Atoms:
    """The terms of all `parents`: linear, squares, and products of two where parents are few.

    Before means are taken off, columns are in units of the draws' means and standard deviations.
    """
    p, d = len(parents), draws.points.shape[1]
    centers, scales = np.zeros(d), np.ones(d)
    x = draws.points[:, parents]
    centers[parents], scales[parents] = x.mean(axis=0), x.std(axis=0)
    u = (x - centers[parents]) / scales[parents]
    a, b = _pairs(p) if p <= LARGEST_PAIRED else (np.arange(p),) * 2
    columns = np.concatenate((u, u[:, a] * u[:, b]), axis=1)
    columns -= columns.mean(axis=0)
    return Atoms(
        np.concatenate((parents, parents[a])),
        np.concatenate((np.full(p, -1), parents[b])),
        columns,
        np.square(columns).sum(axis=0),
        centers,
        scales,
    )


@functools.cache
def _pairs(p: int) -> tuple[np.ndarray, np.ndarray]:
    """The places of all pairs of `p` parents, a parent with itself among them."""
    return np.triu_indices(p)


def bent_part(ridge: Ridge) -> Ridge:
    return some_of(ridge, ridge.seconds >= 0)


def some_of(ridge: Ridge, kept: np.ndarray) -> Ridge:
    return Ridge(ridge.child, *(values[kept] for values in ridge[1:]))


def undo(draws: RidgeDraws, ridge: Ridge) -> RidgeDraws:
    """The draws with a ridge undone, and their scores."""
    points, scores = draws.points.copy(), draws.scores.copy()
    value, slopes = location_of(draws.points, ridge)
    points[:, ridge.child] -= value
    for parent, slope in slopes.items():
        scores[:, parent] += slope * scores[:, ridge.child]
    return RidgeDraws(points, scores)


def location_of(points: np.ndarray, ridge: Ridge) -> tuple[np.ndarray, dict[int, np.ndarray]]:
    """c (n,) at points (n, d), and its derivatives (n,) in the parents."""
    value, slopes = linear_location_of(points, ridge)
    add_bent_location(points, ridge, value, slopes)
    return value, slopes


def linear_location_of(points: np.ndarray, ridge: Ridge) -> tuple[np.ndarray, dict[int, np.ndarray]]:
    """The linear terms of c, and their derivatives in all parents."""
    linear = ridge.seconds < 0
    value = (points[:, ridge.firsts[linear]] - ridge.centers[linear, 0]) @ ridge.strengths[linear]
    slopes = {int(a): np.zeros(len(points)) for a in ridge.firsts}
    slopes |= {int(b): np.zeros(len(points)) for b in ridge.seconds if b >= 0}
    for a, strength in zip(ridge.firsts[linear].tolist(), ridge.strengths[linear].tolist(), strict=True):
        slopes[a] += strength
    return value, slopes


def add_bent_location(
    points: np.ndarray, ridge: Ridge, value: np.ndarray, slopes: dict[int, np.ndarray]
) -> None:
    """Add the terms of second order to c (n,), and their derivatives to those in the parents."""
    for a, b, strength, (center_a, center_b), (r_a, r_b) in zip(*bent_part(ridge)[1:], strict=True):
        u, v = points[:, a] - center_a, points[:, b] - center_b
        if np.isinf(r_a):
            value += strength * u * v
            at_a, at_b = v, u
        else:
            plus, minus = u / r_a + v / r_b, u / r_a - v / r_b
            value += 0.25 * strength * r_a * r_b * (huber(plus) - huber(minus))
            rise, fall = np.clip(plus, -2.0, 2.0), np.clip(minus, -2.0, 2.0)
            at_a, at_b = 0.5 * r_b * (rise - fall), 0.5 * r_a * (rise + fall)
        slopes[int(a)] += strength * at_a
        slopes[int(b)] += strength * at_b


def huber(t: np.ndarray) -> np.ndarray:
    """t² up to |t| = 2, and then the straight line with the slope there."""
    return np.asarray(np.where(np.abs(t) <= 2.0, np.square(t), 4.0 * np.abs(t) - 4.0))
