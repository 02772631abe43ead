"""Cholesky factors: factorisation, inversion and rank-one updates."""

from __future__ import annotations

import numpy as np

from ..jit import kernel
from ..kinds import Flag, Matrix, Real, Vector


@kernel
def factorise(a: Matrix, shift: Real, chol_t: Matrix) -> Flag:
    """Write the transposed lower Cholesky factor of a - shift I to `chol_t` (d, d), zeros below; O(d³/3).

    Only the upper triangle of the symmetric `a` (d, d) is read. Returns whether the matrix is positive
    definite; if not, `chol_t` is meaningless. (LAPACK in numba raises an error instead, and starts threads.)
    """
    d = len(a)
    for k in range(d):
        row = chol_t[k, k:]
        for i in range(row.size):
            row[i] = a[k, k + i]
        row[0] -= shift
        for m in range(k):
            above, c = chol_t[m, k:], chol_t[m, k]
            for i in range(row.size):
                row[i] -= c * above[i]
        if not row[0] > 0.0:
            return False
        scale = 1.0 / np.sqrt(row[0])
        for i in range(row.size):
            row[i] *= scale
        for i in range(k):
            chol_t[k, i] = 0.0
    return True


@kernel
def invert_lower(chol_t: Matrix, inverse: Matrix) -> None:
    """Write L^-1 to `inverse` (d, d), not transposed, with zeros above the diagonal; O(d³/3)."""
    d = len(chol_t)
    for k in range(d):
        row = inverse[k]
        for i in range(d):
            row[i] = 0.0
        row[k] = 1.0
        for m in range(k):
            c, before = chol_t[m, k], inverse[m]
            for i in range(m + 1):
                row[i] -= c * before[i]
        scale = 1.0 / chol_t[k, k]
        for i in range(k + 1):
            row[i] *= scale


@kernel
def rank_one_update(chol_t: Matrix, v: Vector) -> None:
    """Make L the lower Cholesky factor of L L^T + v v^T, in place, in O(d²); `v` is overwritten.

    Gill, Golub, Murray and Saunders (1974), Methods for modifying matrix factorizations, method C1.
    `chol_t` (d, d) is L transposed, so that the columns of L lie along memory.
    """
    d = v.size
    for k in range(d):
        diagonal = chol_t[k, k]
        radius = np.sqrt(diagonal * diagonal + v[k] * v[k])
        c, s = radius / diagonal, v[k] / diagonal
        chol_t[k, k] = radius
        inverse = 1.0 / c
        below, rest = chol_t[k, k + 1 :], v[k + 1 :]  # views that start at 0 let the compiler vectorise
        for i in range(rest.size):
            updated = (below[i] + s * rest[i]) * inverse
            below[i] = updated
            rest[i] = c * rest[i] - s * updated


@kernel
def solve_lower(chol_t: Matrix, v: Vector) -> None:
    """v = L^-1 v, in place, in O(d²); `chol_t` (d, d) is L transposed."""
    d = v.size
    for k in range(d):
        v[k] /= chol_t[k, k]
        below, rest = chol_t[k, k + 1 :], v[k + 1 :]
        for i in range(rest.size):
            rest[i] -= v[k] * below[i]


@kernel
def follow_outer(chol_t: Matrix, v: Vector, rate: Real) -> None:
    """L <- L + rate L [v v^T - I]_lower, in place, in O(d²), where [.]_lower keeps the lower triangle.

    Entry (i, j) of the product is v_j times the sum of L_ik v_k over k = j ... i. The loop goes through the
    columns from the last to the first, so that this sum grows by one term at a time. `chol_t` (d, d) is L
    transposed.
    """
    d = v.size
    sums = np.zeros(d)
    for k in range(d - 1, -1, -1):
        column, above = chol_t[k, k:], sums[k:]
        gain = rate * v[k]
        for i in range(column.size):
            above[i] += column[i] * v[k]
            column[i] = (1.0 - rate) * column[i] + gain * above[i]


def transposed_factor(cov: np.ndarray) -> np.ndarray:
    """L^T of a covariance (d, d), or of its diagonal if rounding errors leave no factor (plain Python)."""
    scale = np.sqrt(np.diag(cov))
    try:
        chol = np.linalg.cholesky(cov / np.outer(scale, scale))
    except np.linalg.LinAlgError:
        return np.diag(scale)
    return np.ascontiguousarray((scale[:, None] * chol).T)
