"""Curvature by differences of scores: which coordinates are coupled, and which of them act on the curvature.

The negative Hessian of a latent field is sparse. Columns that share no row can be told from one difference of
two scores (Curtis, Powell and Reid, 1974, On the estimation of sparse Jacobian matrices), so that a series of
any length takes three. All of this works in units of the coordinates, in which they have similar scales.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import scipy.sparse as sparse

# Writes the score at a point (d,) to its second argument, and returns the log density. It may have a method
# `at_all` that does so for many points (n, d) in one call.
Evaluate = Callable[[np.ndarray, np.ndarray], float]

STEP = 1e-4  # of differences, in units
NOISE = 1e-6  # smaller entries, beside the diagonal, are rounding errors of differences
LEAST_ALONE = 6  # so many coordinates must hang together, in a series for instance, if there is nothing else
FEW_NEIGHBOURS = 20  # a coordinate with more neighbours than this,
WIDE = 0.1  # and than this share of all coordinates, is wide,
MOST = 0.4  # and so is one with more than this share in a small posterior
MOST_PROBES = 150  # gradients that a precision may take; a narrow one with k neighbours asks for 2 (k + 1)
_SAME = 1e-4  # entries of a background differ by less than this share
_TOGETHER = 128  # rows of a matrix (d, d) that are worked out together
_MOST_OF = 0.6  # share of the entries of a variable's block that a background explains


class ScaledDensity:
    """A log density and its score in units of the coordinates; it counts the gradients."""

    def __init__(self, evaluate: Evaluate, unit: np.ndarray, most: float = np.inf) -> None:
        """After `most` gradients there is no log density any more, so that every search comes to its end."""
        self._evaluate, self.unit, self.gradients, self._most = evaluate, unit, 0, most
        self._look = 0  # gradients that the look for neighbours took

    @property
    def spent(self) -> float:
        """The share of the gradients beside the look for neighbours that are spent.

        At 1 what was found is not finished.
        """
        return (self.gradients - self._look) / (self._most - self._look)

    def has_looked(self) -> None:
        """All gradients up to now were taken by the look for neighbours."""
        self._look = self.gradients

    def limit(self, most: float) -> None:
        """Let so many more gradients be taken, and no others."""
        self._most = self.gradients + most

    def allow(self, most: float) -> None:
        """Let at least `most` gradients be taken."""
        self._most = max(self._most, most)

    def __call__(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """The log density and the score (d,) at `x` (d,); -inf where there is none."""
        score = np.zeros(x.size)
        if self.gradients >= self._most:
            return -np.inf, score
        self.gradients += 1
        return float(self._evaluate(x * self.unit, score)), score * self.unit

    def curvature(self, x: np.ndarray, u: np.ndarray, here: np.ndarray | None = None) -> np.ndarray | None:
        """-H u (d,), with the Hessian H at `x` (d,); None where a score is missing.

        With the score at `x`, `here` (d,), the difference is one-sided and takes one gradient.
        """
        found = self.curvatures(x, u[None], here)[0]
        return None if np.isnan(found).any() else found

    def curvatures(self, x: np.ndarray, u: np.ndarray, here: np.ndarray | None = None) -> np.ndarray:
        """`curvature` for each of the directions `u` (k, d), at `x` (d,) or at points (k, d): (k, d).

        Those for which a score is missing are NaN.
        """
        ahead, score = self.at_all(x + STEP * u)
        if here is not None:
            found, known = (here - score) / STEP, np.isfinite(ahead)
        else:
            behind, before = self.at_all(x - STEP * u)
            found, known = (before - score) / (2.0 * STEP), np.isfinite(ahead) & np.isfinite(behind)
        found[~known] = np.nan
        return np.asarray(found)

    def at_all(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Log densities (k,) and scores (k, d) at points (k, d), as `__call__` has them."""
        at_all, n = getattr(self._evaluate, "at_all", None), len(points)
        if at_all is None or self.gradients + n > self._most:
            each = [self(point) for point in points]
            scores = np.array([score for _, score in each]).reshape(points.shape)
            return np.array([logp for logp, _ in each]), scores
        self.gradients += n
        scores = np.empty_like(points)
        found: np.ndarray = at_all(points * self.unit, scores)
        return found, scores * self.unit


def two_columns(
    density: ScaledDensity, x: np.ndarray, own: np.ndarray, here: np.ndarray | None
) -> Iterator[tuple[int, np.ndarray]]:
    """Columns (d,) of -H at `x` (d,) for two of the coordinates `own` (n,), and their places among these.

    They are NaN where a score is missing. `here` (d,) is the score at `x`; without it the
    differences are central.
    """
    for place in (len(own) // 3, 2 * len(own) // 3):
        yield place, density.curvatures(x, axes(x.size, own[[place]]), here)[0]


def have_ties(density: ScaledDensity, x: np.ndarray, own: np.ndarray, fewest: int, least: float) -> bool:
    """Whether one of two of the coordinates `own` (n,) has at least `fewest` entries in its column of -H at
    `x` (d,), for these coordinates and itself, that are larger than `least` times its diagonal.
    """
    logp, here = density(x)
    return np.isfinite(logp) and any(
        np.count_nonzero(np.abs(column[own]) > least * abs(column[own[place]])) >= fewest
        for place, column in two_columns(density, x, own, here)
    )


def axes(d: int, coordinates: np.ndarray) -> np.ndarray:
    """The unit vectors (k, d) of some coordinates (k,)."""
    found = np.zeros((len(coordinates), d))
    found[np.arange(len(coordinates)), coordinates] = 1.0
    return found


def columns_among(density: ScaledDensity, x: np.ndarray, unit: np.ndarray, own: np.ndarray) -> np.ndarray:
    """What columns of the negative Hessian at `x` (d,) have among the coordinates `own` (m,) themselves, a
    column a row, times its `unit` (d,): (m, m). Those for which a score is missing are NaN.
    """
    return density.curvatures(x, unit[own][:, None] * axes(x.size, own))[:, own]


class Coupling(NamedTuple):
    """Which coordinates are coupled, at one point.

    A soft constraint on the sum of a variable couples all its coordinates by the same entry. Such a
    background is kept apart: it is `levels[a]` times the square of the sum over `members[a]`.
    """

    pattern: sparse.csc_matrix  # (d, d) booleans, with the diagonal
    diagonal: np.ndarray  # (d,) of -H
    wide: np.ndarray  # (d,) whether a coordinate is coupled to a large share of all
    members: tuple[np.ndarray, ...]
    levels: tuple[float, ...]

    def is_dense(self) -> bool:
        """Whether each coordinate is coupled to each other one, and none is wide."""
        return self.pattern.nnz == self.wide.size**2 and not self.wide.any()

    def background(self, u: np.ndarray) -> np.ndarray:
        """The product (d,) of the background with `u` (d,)."""
        out = np.zeros(u.size)
        for members, level in zip(self.members, self.levels, strict=True):
            out[members] += level * u[members].sum()
        return out


def couple(density: ScaledDensity, x: np.ndarray, variables: np.ndarray) -> Coupling | None:
    """The coupling at `x` (d,), by one difference for each coordinate; None where scores are missing.

    The differences are one-sided, which takes half of the gradients: where two coordinates are not coupled,
    no derivative mixes them.

    `variables` (d,) are the numbers of the variables that coordinates belong to.
    """
    d = x.size
    logp, here = density(x)
    if not np.isfinite(logp):
        return None
    whole = np.empty((d, d))
    for rows in _parts(d):
        whole[rows] = density.curvatures(x, axes(d, np.arange(d)[rows]), here)
        if np.isnan(whole[rows]).any():
            return None
    _symmetrise(whole)
    members, levels = [], []
    for number in np.unique(variables):
        own = np.flatnonzero(variables == number)
        if len(own) <= FEW_NEIGHBOURS:
            continue
        block, per_unit = np.empty((len(own), len(own))), 1.0 / density.unit[own]
        for rows in _parts(len(own)):
            np.multiply(whole[np.ix_(own[rows], own)], np.outer(per_unit[rows], per_unit), out=block[rows])
        level = float(np.median(block))
        if level > 0.0 and np.mean(np.abs(block - level) < _SAME * level) > _MOST_OF:
            members.append(own)
            levels.append(level)
    size = np.sqrt(np.maximum(np.abs(np.diag(whole)), 1e-12))
    coupling = Coupling(
        sparse.csc_matrix((d, d), dtype=bool), size, size > 0.0, tuple(members), tuple(levels)
    )
    for own, level in zip(members, levels, strict=True):
        for rows in _parts(len(own)):
            whole[np.ix_(own[rows], own)] -= level * np.outer(density.unit[own[rows]], density.unit[own])
    pattern = np.empty((d, d), bool)
    for rows in _parts(d):
        np.greater(np.abs(whole[rows]), NOISE * np.outer(size[rows], size), out=pattern[rows])
    np.fill_diagonal(pattern, True)
    wide = wide_coordinates(pattern)
    return coupling._replace(pattern=sparse.csc_matrix(pattern), diagonal=np.diag(whole).copy(), wide=wide)


def _parts(n: int) -> list[slice]:
    """Rows that are worked out together: in thousands of dimensions (d, d) does not fit into a cache."""
    return [slice(first, min(first + _TOGETHER, n)) for first in range(0, n, _TOGETHER)]


def _symmetrise(matrix: np.ndarray) -> None:
    """Replace a matrix (d, d) by the mean of itself and its transpose, in place."""
    parts = _parts(len(matrix))
    for k, rows in enumerate(parts):
        for columns in parts[: k + 1]:
            mean = 0.5 * (matrix[rows, columns] + matrix[columns, rows].T)
            matrix[rows, columns] = mean
            matrix[columns, rows] = mean.T


def wide_coordinates(pattern: np.ndarray, most: float = np.inf) -> np.ndarray:
    """Which coordinates (d,) of a pattern (d, d) are wide; those with more than `most` neighbours are.

    Neighbours that are wide themselves do not count: a latent of a series stays narrow beside any number
    of regression coefficients. So the coordinate with most neighbours goes first, and the others are counted
    anew.
    """
    d, degree = len(pattern), pattern.sum(axis=0)
    limit = min(max(FEW_NEIGHBOURS, WIDE * d), MOST * d, MOST_PROBES // 2 - 1, most)
    wide = np.zeros(d, bool)
    for _ in range(d):
        k = int(np.where(wide, -1, degree).argmax())
        if wide[k] or degree[k] <= limit:
            break
        wide[k] = True
        degree = degree - pattern[k]
    return wide


def colours_of(pattern: sparse.csc_matrix) -> np.ndarray:
    """A colour (n,) for each column, so that columns of one colour share no row."""
    n = pattern.shape[0]
    two_steps = (pattern.astype(np.int32) @ pattern.astype(np.int32)).tocsc()
    colours = np.full(n, -1)
    for j in range(n):
        near = colours[two_steps.indices[two_steps.indptr[j] : two_steps.indptr[j + 1]]]
        taken = set(near[near >= 0].tolist())
        colour = 0
        while colour in taken:
            colour += 1
        colours[j] = colour
    return colours


def divisions(own: np.ndarray, shortest: int) -> Iterator[np.ndarray]:
    """The coordinates `own` (n,) as the columns or the rows of a matrix, (k, n / k), where n / k is not less
    than `shortest`.
    """
    for k in range(2, len(own) // shortest + 1):
        if len(own) % k == 0:
            yield own.reshape(k, -1)
            yield own.reshape(-1, k).T
