"""Products with a root of a matrix, and the rank-one update of such a root.

A root R is kept as its transpose, `root_t`, so that every inner loop below runs along memory: row k of root_t
is column k of R. (Fortran order would do the same, but numba takes a 1 x 1 array for C order, and would
compile again for it.) Plain loops are faster than calls to BLAS up to a few hundred dimensions, never start
threads, and give the same result in every chain.
"""

from __future__ import annotations

import numpy as np

from ..jit import kernel
from ..kinds import Integer, Matrix, Real, Vector


@kernel
def scaled_identity(d: Integer, scale: Real) -> Matrix:
    """`scale` times the identity (d, d)."""
    matrix = np.zeros((d, d))
    for k in range(d):
        matrix[k, k] = scale
    return matrix


@kernel
def times(root_t: Matrix, v: Vector) -> Vector:
    """R @ v."""
    out = np.zeros(v.size)
    add_times(out, root_t, v)
    return out


@kernel(counted=False)
def add_times(out: Vector, root_t: Matrix, v: Vector) -> None:
    """out += R @ v, four columns in a pass, so that `out` is read and written a quarter as often."""
    d = v.size
    whole = d - d % 4
    for k in range(0, whole, 4):
        a, b, c, e = v[k], v[k + 1], v[k + 2], v[k + 3]
        for i in range(d):
            out[i] += a * root_t[k, i] + b * root_t[k + 1, i] + c * root_t[k + 2, i] + e * root_t[k + 3, i]
    for k in range(whole, d):
        a = v[k]
        for i in range(d):
            out[i] += a * root_t[k, i]


@kernel
def transposed_times(root_t: Matrix, v: Vector) -> Vector:
    """R^T @ v."""
    out = np.empty(v.size)
    transposed_times_into(out, root_t, v)
    return out


@kernel(counted=False)
def transposed_times_into(out: Vector, root_t: Matrix, v: Vector) -> None:
    """out = R^T @ v."""
    d = v.size
    for k in range(d):
        total = 0.0
        for i in range(d):
            total += root_t[k, i] * v[i]
        out[k] = total


@kernel(counted=False, copied=False)
def add_outer(root_t: Matrix, scale: Real, weight: Real, u: Vector, v: Vector) -> Real:
    """R = scale (R + weight u v^T), in place. Returns the sum of the squares of the new R.

    This sum is tr(R R^T). It costs almost nothing here, since memory limits the speed of the pass. The kernel
    is not copied: a copy for a constant scale was half as slow again in 200 dimensions.
    """
    d = u.size
    total = 0.0
    for k in range(d):
        a = scale * weight * v[k]
        for i in range(d):
            entry = scale * root_t[k, i] + a * u[i]
            root_t[k, i] = entry
            total += entry * entry
    return total


@kernel(counted=False)
def dot(u: Vector, v: Vector) -> Real:
    """u . v, without a call to BLAS."""
    total = 0.0
    for i in range(u.size):
        total += u[i] * v[i]
    return total


@kernel
def double_capacity(rows: Matrix) -> Matrix:
    """The same rows (n, d) in an array that has room for twice as many."""
    more = np.empty((2 * len(rows), rows.shape[1]))
    for i in range(len(rows)):  # numba takes seconds to compile a slice
        for j in range(rows.shape[1]):
            more[i, j] = rows[i, j]
    return more
