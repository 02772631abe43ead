"""A running mean and covariance; the covariance is kept as a scaled Cholesky factor."""

from __future__ import annotations

import numpy as np

from ..jit import kernel
from ..kinds import Matrix, Real, Vector
from .cholesky import rank_one_update
from .linear import dot

SMALLEST = 1e-100  # a smaller scale is multiplied into the factor


@kernel
def learn_point(
    mean: Vector,
    chol_t: Matrix,
    scale: Real,
    tr: Real,
    x: Vector,
    keep: Real,
    weight: Real,
    mean_weight: Real,
) -> tuple[Real, Real]:
    """Sigma <- keep Sigma + weight (x - mu)(x - mu)^T, mu <- mu + mean_weight (x - mu), in O(d²).

    Sigma = scale L L^T, where `chol_t` (d, d) is L transposed; `mean` and `chol_t` change in place. `keep`
    multiplies the scale, so that only the rank-one update touches the matrix. Returns the scale and
    tr(L L^T).
    """
    d = x.size
    away = np.empty(d)
    for i in range(d):
        away[i] = x[i] - mean[i]
    scale *= keep
    if scale < SMALLEST:
        for k in range(d):
            for i in range(k, d):
                chol_t[k, i] *= np.sqrt(scale)
        scale, tr = 1.0, scale * tr
    grow = np.sqrt(weight / scale)
    for i in range(d):
        mean[i] += mean_weight * away[i]
        away[i] *= grow
    tr += dot(away, away)
    rank_one_update(chol_t, away)
    return scale, tr
