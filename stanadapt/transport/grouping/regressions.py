"""Weighted regressions of the scores of many coordinates, each on its own few terms, and what these leave.

scores.py asks them hundreds of times in a warm-up, each time for some ten coordinates, a hundred draws and
ten terms. So the terms are written and made orthonormal by one compiled pass: by modified Gram-Schmidt, with
the target as the last column, which is as exact as Householder's reflections (Björck and Paige 1992, Loss and
recapture of orthogonality in the modified Gram-Schmidt algorithm). The normal equations would not do: a share
of 1e-8 is far below what they leave.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ...jit import kernel
from ..triangular import dot

LEAST_SHARE = 1e-8  # smaller shares of the variance are only rounding error
_SPARE = 4  # a regression needs so many draws more than it has terms
_PARALLEL = 1e-9  # a column adds nothing if the basis leaves less than this share of its square
_DEPENDENT = 1e-26  # a term depends on those before it if they leave less of its square: rounding error
_TOGETHER = 1 << 17  # numbers that are worked out together, so that they stay in the processor's cache


class ScoreRegressions:
    """Weighted regressions of the scores of m coordinates in n draws."""

    def __init__(
        self,
        x: np.ndarray,
        scores: np.ndarray,
        weight: np.ndarray,
        terms: list[np.ndarray],
        *,
        curved: bool,
    ) -> None:
        """Regress scores (m, n) on 1, x (m, n), x² if `curved`, and `terms`, each (1 or m, n).

        Scores and terms are multiplied by `weight` (1 or m, n).
        """
        self.first = 3 if curved else 2  # column of the first of `terms`
        self.weight, self._of = weight, (x, scores, terms)

    @property
    def n_terms(self) -> int:
        return self.first + len(self._of[2])

    @functools.cached_property
    def _fit(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The orthonormal terms and what is left (m, terms + 1, n); R (m, terms + 1, terms + 1); and the
        squares of the scores without their mean (m,).
        """
        x, scores, terms = self._of
        (m, n), t, weight = x.shape, self.n_terms, self.weight
        rows, triangle, total = np.empty((m, t + 1, n)), np.zeros((m, t + 1, t + 1)), np.empty(m)
        rows[:, 0] = weight
        np.multiply(x, weight, out=rows[:, 1])
        if self.first > 2:
            np.multiply(x, rows[:, 1], out=rows[:, 2])
        for k, term in enumerate(terms, self.first):
            np.multiply(term, weight, out=rows[:, k])
        np.multiply(scores, weight, out=rows[:, t])
        orthonormalise(rows, triangle, total)
        return rows, triangle, total

    def tells(self, more: int) -> bool:
        """Whether there are enough draws for the terms and `more` of them."""
        return bool(self._of[0].shape[1] >= self.n_terms + more + _SPARE)

    @functools.cached_property
    def coefficients(self) -> np.ndarray:
        """The coefficients (m, terms) of the regressions; 0 for a term that depends on those before it."""
        r = self._fit[1][:, :-1]
        try:
            return np.asarray(np.linalg.solve(r[:, :, :-1], r[:, :, -1:])[:, :, 0])
        except np.linalg.LinAlgError:
            return np.full((len(r), self.n_terms), np.nan)

    def ratio(self, of: int, to: int) -> np.ndarray:
        """Minus the coefficient of the term `to` over that of the term `of` (m,); NaN if there are none."""
        found = self.coefficients
        return np.asarray(-found[:, to] / found[:, of])

    def share(self) -> np.ndarray:
        """The logarithm of the share (m,) that is left; zeros where there are too few draws to tell."""
        if not self.tells(0):
            return np.zeros(len(self._of[0]))
        _, triangle, total = self._fit
        return _log_share(np.square(triangle[:, -1, -1]), total)

    @functools.cached_property
    def _basis(self) -> np.ndarray:
        """The terms made orthonormal once more, and what they leave (m, terms + 1, n).

        The first time rounding leaves them orthogonal enough for R alone.
        """
        rows, triangle, total = self._fit
        rows = rows.copy()
        orthonormalise(rows, np.empty_like(triangle), np.empty_like(total))
        return rows

    def share_with(self, columns: np.ndarray, factor: np.ndarray) -> np.ndarray:
        """The log of the share (m, k) that is left if `factor` times a column joins the terms.

        There are k columns (n, k), and a factor (1 or m, n). Weights and factors go to the basis of each
        member, so that no column is written out for each member.
        """
        m, k = len(self._of[0]), columns.shape[1]
        if not self.tells(1):
            return np.zeros((m, k))
        weight, rest, total = self.weight * factor, self._basis[:, -1], self._fit[2]
        rows = self._basis * weight[:, None, :]
        lengths = np.square(weight) @ np.square(columns)  # (1 or m, k)
        left = np.square(rest).sum(axis=1)[:, None]
        found = np.empty((m, k))
        step = max(_TOGETHER // (rows.shape[1] * k), 1)
        for first in range(0, m, step):
            members = slice(first, first + step)
            block = rows[members]
            along = (block.reshape(-1, block.shape[2]) @ columns).reshape(len(block), -1, k)
            length = lengths if len(lengths) == 1 else lengths[members]
            np.square(along, out=along)
            inside = length - along[:, :-1].sum(axis=1)
            explained = np.zeros_like(inside)
            np.divide(along[:, -1], inside, out=explained, where=inside > _PARALLEL * length)
            found[members] = _log_share(left[members] - explained, total[members, None])
        return found


def _log_share(left: np.ndarray, total: np.ndarray) -> np.ndarray:
    return np.asarray(np.log(np.maximum(left / total, LEAST_SHARE)))


@kernel
def orthonormalise(rows: Any, triangle: Any, total: Any) -> None:
    """Make rows (m, t, n) orthonormal, all but the last one of each member, and write R (m, t, t) above its
    diagonal and on it.

    A row that depends on those before it becomes 0, and its coefficient too. Written to `total` (m,): the
    square of the last row without its part along the first one.
    """
    m, count, n = rows.shape
    sizes = np.empty(count)
    for j in range(m):
        own, r, target = rows[j], triangle[j], rows[j, count - 1]
        for k in range(count):
            sizes[k] = dot(own[k], own[k])
        for k in range(count - 1):
            row = own[k]
            square = dot(row, row)
            depends = not square > _DEPENDENT * sizes[k]
            r[k, k] = 1.0 if depends else np.sqrt(square)
            inverse = 0.0 if depends else 1.0 / r[k, k]
            for t in range(n):
                row[t] *= inverse
            for i in range(k + 1, count):
                along, other = dot(row, own[i]), own[i]
                r[k, i] = along
                for t in range(n):
                    other[t] -= along * row[t]
            if k == 0:
                total[j] = dot(target, target)
        r[count - 1, count - 1] = np.sqrt(dot(target, target))
