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

LEAST_SHARE = 1e-8  # smaller shares of the variance are only rounding error
_SPARE = 4  # a regression needs so many draws more than it has terms
_PARALLEL = 1e-9  # a column adds nothing if the basis leaves less than this share of its square
_DEPENDENT = 1e-13  # a term depends on those before it if they leave less of its length: rounding error
_TOGETHER = 1 << 17  # numbers that are worked out together, so that they stay in the processor's cache
NONE = np.zeros((0, 0))


class Regressions:
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
    def _fit(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """The orthonormal terms and what is left (m, terms + 1, n); R (m, terms + 1, terms + 1); the lengths
        of the terms (m, terms); and the squares of the scores without their mean (m,).
        """
        x, scores, terms = self._of
        (m, n), t = x.shape, self.n_terms
        rows = np.empty((m, t + 1, n))
        for k, term in enumerate(terms, self.first):
            rows[:, k] = term
        triangle, lengths, total = np.empty((m, t + 1, t + 1)), np.empty((m, t)), np.empty(m)
        _regress(x, scores, self.weight, self.first, rows, triangle, lengths, total)
        return rows, triangle, lengths, total

    def tells(self, more: int) -> bool:
        """Whether there are enough draws for the terms and `more` of them."""
        return bool(self._of[0].shape[1] >= self.n_terms + more + _SPARE)

    @functools.cached_property
    def coefficients(self) -> np.ndarray:
        """The coefficients (m, terms) of the regressions; 0 for a term that depends on those before it."""
        _, triangle, lengths, _ = self._fit
        r = triangle[:, :-1]
        try:
            solved = np.linalg.solve(r[:, :, :-1], r[:, :, -1:])[:, :, 0]
        except np.linalg.LinAlgError:
            return np.full(lengths.shape, np.nan)
        return np.asarray(solved / lengths)

    def ratio(self, of: int, to: int) -> np.ndarray:
        """Minus the coefficient of the term `to` over that of the term `of` (m,); NaN if there are none."""
        found = self.coefficients
        return np.asarray(-found[:, to] / found[:, of])

    def share(self) -> np.ndarray:
        """The logarithm of the share (m,) that is left; zeros where there are too few draws to tell."""
        if not self.tells(0):
            return np.zeros(len(self._of[0]))
        _, triangle, _, total = self._fit
        return _log_share(np.square(triangle[:, -1, -1]), total)

    @functools.cached_property
    def _basis(self) -> np.ndarray:
        """The terms made orthonormal once more, and what they leave (m, terms + 1, n).

        The first time rounding leaves them orthogonal enough for R alone.
        """
        rows = self._fit[0].copy()
        _orthonormalise(rows, np.empty((rows.shape[1],) * 2))
        return rows

    def share_with(self, columns: np.ndarray, factor: np.ndarray) -> np.ndarray:
        """The log of the share (m, k) that is left if `factor` times a column joins the terms.

        There are k columns (n, k), and a factor (1 or m, n). Weights and factors go to the basis of each
        member, so that no column is written out for each member.
        """
        m, k = len(self._of[0]), columns.shape[1]
        if not self.tells(1):
            return np.zeros((m, k))
        weight, rest, total = self.weight * factor, self._basis[:, -1], self._fit[3]
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
def _regress(
    x: Any, scores: Any, weight: Any, first: Any, rows: Any, triangle: Any, lengths: Any, total: Any
) -> None:
    """Write the results of `Regressions._fit`; `rows` has the terms from the row `first` on already."""
    m, n = x.shape
    last = rows.shape[1] - 1
    for j in range(m):
        own, w = rows[j], weight[j if len(weight) > 1 else 0]
        for t in range(n):
            own[0, t] = 1.0
            own[1, t] = x[j, t]
            own[last, t] = scores[j, t] * w[t]
        if first > 2:
            for t in range(n):
                own[2, t] = x[j, t] * x[j, t]
        for k in range(last):
            square = 0.0
            for t in range(n):
                own[k, t] *= w[t]
                square += own[k, t] * own[k, t]
            length = np.sqrt(square)
            lengths[j, k] = length if length > 0.0 else 1.0
            for t in range(n):
                own[k, t] /= lengths[j, k]
        along, squares = 0.0, 0.0
        for t in range(n):
            along += own[last, t] * w[t]
            squares += w[t] * w[t]
        mean = along / squares
        left = 0.0
        for t in range(n):
            left += (own[last, t] - mean * w[t]) * (own[last, t] - mean * w[t])
        total[j] = left
    for j in range(m):
        _orthonormalise(rows[j : j + 1], triangle[j])


@kernel
def _orthonormalise(rows: Any, triangle: Any) -> None:
    """Make the rows of matrices (m, t, n) orthonormal, all but the last one of each, and write R (t, t).

    R is that of the last matrix. A row that depends on those before it becomes 0, and its coefficient too.
    """
    m, count, n = rows.shape
    for j in range(m):
        own = rows[j]
        for k in range(count):
            for i in range(k):
                triangle[k, i] = 0.0
            square = 0.0
            for t in range(n):
                square += own[k, t] * own[k, t]
            length = np.sqrt(square)
            triangle[k, k] = length
            if k == count - 1:
                continue
            depends = length < _DEPENDENT
            if depends:
                triangle[k, k] = 1.0
            for t in range(n):
                own[k, t] = 0.0 if depends else own[k, t] / length
            for i in range(k + 1, count):
                along = 0.0
                for t in range(n):
                    along += own[k, t] * own[i, t]
                for t in range(n):
                    own[i, t] -= along * own[k, t]
                triangle[k, i] = along
