"""Products with a root of a matrix, and the rank-one update of such a root.

Roots are stored column by column (Fortran order), so that every inner loop below runs along memory. Plain
loops beat calls to BLAS up to a few hundred dimensions, never start threads of their own, and give the same
result in every chain.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..jit import kernel


@kernel
def scaled_identity(d: Any, scale: Any) -> Any:
    """`scale` times the identity (d, d), in Fortran order."""
    matrix = np.zeros((d, d)).T
    for k in range(d):
        matrix[k, k] = scale
    return matrix


@kernel
def times(root: Any, v: Any) -> Any:
    """root @ v."""
    out = np.zeros(v.size)
    add_times(out, root, v)
    return out


@kernel
def add_times(out: Any, root: Any, v: Any) -> None:
    """out += root @ v, with four columns a pass: `out` is then read and written four times less often."""
    d = v.size
    whole = d - d % 4
    for k in range(0, whole, 4):
        a, b, c, e = v[k], v[k + 1], v[k + 2], v[k + 3]
        for i in range(d):
            out[i] += a * root[i, k] + b * root[i, k + 1] + c * root[i, k + 2] + e * root[i, k + 3]
    for k in range(whole, d):
        a = v[k]
        for i in range(d):
            out[i] += a * root[i, k]


@kernel
def transposed_times(root: Any, v: Any) -> Any:
    """root.T @ v."""
    out = np.empty(v.size)
    transposed_times_into(out, root, v)
    return out


@kernel
def transposed_times_into(out: Any, root: Any, v: Any) -> None:
    """out = root.T @ v."""
    d = v.size
    for k in range(d):
        total = 0.0
        for i in range(d):
            total += root[i, k] * v[i]
        out[k] = total


@kernel
def add_outer(root: Any, scale: Any, weight: Any, u: Any, v: Any) -> Any:
    """root = scale (root + weight u v^T), in place. Returns the sum of the squares of the new root.

    That sum is tr(root root^T), and comes almost free here: the pass over the matrix is bound by memory.
    """
    d = u.size
    total = 0.0
    for k in range(d):
        a = scale * weight * v[k]
        for i in range(d):
            entry = scale * root[i, k] + a * u[i]
            root[i, k] = entry
            total += entry * entry
    return total


@kernel
def dot(u: Any, v: Any) -> Any:
    """u . v, without a call to BLAS."""
    total = 0.0
    for i in range(u.size):
        total += u[i] * v[i]
    return total
