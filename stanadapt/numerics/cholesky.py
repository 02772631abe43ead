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
        below, rest = chol[k + 1 :, k], v[k + 1 :]  # views from 0 on let the loop be vectorised
        for i in range(rest.size):
            updated = (below[i] + s * rest[i]) * inverse
            below[i] = updated
            rest[i] = c * rest[i] - s * updated
