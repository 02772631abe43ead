"""Cholesky factors under rank-one change."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..jit import kernel


@kernel
def rank_one_update(chol_t: Any, v: Any) -> None:
    """Make L the lower Cholesky factor of L L^T + v v^T, in place, in O(d²); `v` is used up.

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
        below, rest = chol_t[k, k + 1 :], v[k + 1 :]  # views from 0 on let the loop be vectorised
        for i in range(rest.size):
            updated = (below[i] + s * rest[i]) * inverse
            below[i] = updated
            rest[i] = c * rest[i] - s * updated
