"""Products with a root of a matrix, and the rank-one update of such a root.

A root R is kept as its transpose, `root_t`, so that every inner loop below runs along memory: row k of root_t
is column k of R. (Fortran order would do the same, but numba takes a 1 x 1 array for C order and compiles
again.) Plain loops beat calls to BLAS up to a few hundred dimensions, never start threads of their own, and
give the same result in every chain.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..jit import kernel


@kernel
def scaled_identity(d: Any, scale: Any) -> Any:
    """`scale` times the identity (d, d)."""
    matrix = np.zeros((d, d))
    for k in range(d):
        matrix[k, k] = scale
    return matrix


@kernel
def times(root_t: Any, v: Any) -> Any:
    """R @ v."""
    out = np.zeros(v.size)
    add_times(out, root_t, v)
    return out


@kernel
def add_times(out: Any, root_t: Any, v: Any) -> None:
    """out += R @ v, with four columns a pass: `out` is then read and written four times less often."""
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
def transposed_times(root_t: Any, v: Any) -> Any:
    """R^T @ v."""
    out = np.empty(v.size)
    transposed_times_into(out, root_t, v)
    return out


@kernel
def transposed_times_into(out: Any, root_t: Any, v: Any) -> None:
    """out = R^T @ v."""
    d = v.size
    for k in range(d):
        total = 0.0
        for i in range(d):
            total += root_t[k, i] * v[i]
        out[k] = total


@kernel
def add_outer(root_t: Any, scale: Any, weight: Any, u: Any, v: Any) -> Any:
    """R = scale (R + weight u v^T), in place. Returns the sum of the squares of the new R.

    That sum is tr(R R^T), and comes almost free here: the pass over the matrix is bound by memory.
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


@kernel
def dot(u: Any, v: Any) -> Any:
    """u . v, without a call to BLAS."""
    total = 0.0
    for i in range(u.size):
        total += u[i] * v[i]
    return total


@kernel
def with_room(rows: Any) -> Any:
    """The same rows (n, d), and room for as many more."""
    more = np.empty((2 * len(rows), rows.shape[1]))
    for i in range(len(rows)):  # a slice takes seconds to compile
        for j in range(rows.shape[1]):
            more[i, j] = rows[i, j]
    return more
