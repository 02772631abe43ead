"""A ridge in numbers and in rows of a map, terms that may be in one, and draws in which ridges are undone."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from ..jit import kernel
from .map_table import (
    CENTER_A,
    CENTER_B,
    COLUMNS,
    KIND,
    OWN,
    PARENT_A,
    PARENT_B,
    REACH,
    REACH_B,
    RIDGE,
    STRENGTH,
)

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

    def bent_terms(self) -> set[tuple[int, int]]:
        """Those of second order."""
        return {(a, b) for a, b in self.terms() if b >= 0}


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


def undo(draws: RidgeDraws, ridge: Ridge) -> RidgeDraws:
    """The draws with a ridge undone, and their scores."""
    points, scores = draws.points.copy(), draws.scores.copy()
    _undo(ridge_rows([ridge]), points, scores)
    return RidgeDraws(points, scores)


def undone_parts(draws: RidgeDraws, ridge: Ridge) -> np.ndarray:
    """Draws and their scores in which a part of a ridge is undone, as an array (2, 2, k, n).

    First the linear terms alone are undone, then all terms. Of the k coordinates, the last is that of the
    ridge, and the others are its parents in terms of second order.
    """
    own = np.append(ridge.parents, ridge.child)
    parts = np.empty((2, 2, len(own), len(draws.points)))
    _undo_parts(ridge_rows([ridge]), *map(np.ascontiguousarray, draws), own, parts)
    return parts


@kernel
def _undo(rows: Any, points: Any, scores: Any) -> None:
    """Undo the rows of a ridge in draws and their scores (n, d)."""
    child = int(rows[0, OWN])
    for t in range(len(points)):
        location, pull = 0.0, scores[t, child]
        for row in rows:
            value, _, _ = term(row, points[t])
            location += value
            add_slopes(row, points[t], scores[t], pull)
        points[t, child] -= location


@kernel
def _undo_parts(rows: Any, points: Any, scores: Any, own: Any, parts: Any) -> None:
    """Write what `undone_parts` returns, for the coordinates `own` (k,)."""
    last = own.size - 1
    for t in range(len(points)):
        for i in range(own.size):
            parts[:, 0, i, t] = points[t, own[i]]
            parts[:, 1, i, t] = scores[t, own[i]]
        pull = scores[t, own[last]]
        for row in rows:
            value, slope_a, slope_b = term(row, points[t])
            for part in range(0 if row[PARENT_B] < 0.0 else 1, 2):
                parts[part, 0, last, t] -= value
                for i in range(last):
                    if own[i] == int(row[PARENT_A]):
                        parts[part, 1, i, t] += pull * slope_a
                    if own[i] == int(row[PARENT_B]):
                        parts[part, 1, i, t] += pull * slope_b


@kernel(ordered=True, counted=False)
def add_slopes(row: Any, x: Any, score: Any, pull: Any) -> None:
    """Add the derivatives of a term, times `pull`, to the scores of its parents."""
    _, slope_a, slope_b = term(row, x)
    score[int(row[PARENT_A])] += pull * slope_a
    if row[PARENT_B] >= 0.0:
        score[int(row[PARENT_B])] += pull * slope_b


@kernel(ordered=True, counted=False)
def term(row: Any, x: Any) -> Any:
    """The value of a term, and its derivatives in its parents, which add up where both are the same."""
    strength = row[STRENGTH]
    u = x[int(row[PARENT_A])] - row[CENTER_A]
    if row[PARENT_B] < 0.0:
        return strength * u, strength, 0.0
    v = x[int(row[PARENT_B])] - row[CENTER_B]
    if row[REACH] == np.inf:
        return strength * u * v, strength * v, strength * u
    u /= row[REACH]
    v /= row[REACH_B]
    plus, plus_1 = _huber(u + v)
    minus, minus_1 = _huber(u - v)
    scale_a, scale_b = 0.25 * strength * row[REACH_B], 0.25 * strength * row[REACH]
    value = scale_a * row[REACH] * (plus - minus)
    return value, scale_a * (plus_1 - minus_1), scale_b * (plus_1 + minus_1)


@kernel(ordered=True, counted=False)
def _huber(t: Any) -> Any:
    """t², which goes on as a straight line beyond 2, and its derivative."""
    if abs(t) <= 2.0:
        return t * t, 2.0 * t
    return 4.0 * abs(t) - 4.0, 4.0 if t > 0.0 else -4.0


def ridges_of(rows: np.ndarray) -> list[Ridge]:
    """The ridges that rows of a map hold, in their order."""
    if not len(rows):
        return []
    starts = np.flatnonzero(np.diff(rows[:, OWN], prepend=-1.0))
    found = []
    for part in np.split(rows, starts[1:]):
        firsts, seconds = (part[:, column].astype(np.int64) for column in (PARENT_A, PARENT_B))
        exact = np.isinf(part[:, [REACH]])
        reaches = np.where(exact, np.inf, part[:, [REACH, REACH_B]])
        numbers = part[:, STRENGTH].copy(), part[:, [CENTER_A, CENTER_B]], reaches
        found.append(Ridge(int(part[0, OWN]), firsts, seconds, *numbers))
    return found


def ridge_rows(ridges: list[Ridge]) -> np.ndarray:
    """The rows of a map (r, COLUMNS)."""
    tables = [np.zeros((0, COLUMNS))]
    for one in ridges:
        rows = np.zeros((len(one.firsts), COLUMNS))
        rows[:, KIND], rows[:, OWN] = RIDGE, one.child
        rows[:, PARENT_A], rows[:, PARENT_B] = one.firsts, one.seconds
        rows[:, STRENGTH], rows[:, [CENTER_A, CENTER_B]] = one.strengths, one.centers
        rows[:, REACH] = one.reaches[:, 0]
        rows[:, REACH_B] = np.where(np.isinf(one.reaches[:, 1]), 1.0, one.reaches[:, 1])
        tables.append(rows)
    return np.concatenate(tables)
