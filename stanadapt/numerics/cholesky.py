"""Cholesky factors under rank-one change."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..jit import kernel


@kernel
def rank_one_update(chol: Any, v: Any) -> None:
    """Make `chol` the lower Cholesky factor of chol chol^T + v v^T, in place, in O(d²); `v` is used up.

    Gill, Golub, Murray and Saunders (1974), Methods for modifying matrix factorizations, method C1.
    `chol` (d, d) is in Fortran order.
    """
    d = v.size
    for k in range(d):
        diagonal = chol[k, k]
        radius = np.sqrt(diagonal * diagonal + v[k] * v[k])
        c, s = radius / diagonal, v[k] / diagonal
        chol[k, k] = radius
        inverse = 1.0 / c
        for i in range(k + 1, d):
            updated = (chol[i, k] + s * v[i]) * inverse
            chol[i, k] = updated
            v[i] = c * v[i] - s * updated
