"""The SoftAbs metric: a smooth positive-definite stand-in for the negative Hessian."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..jit import kernel
from .cholesky import factorise, invert_lower

SAME = 20.0  # coth of more than this is 1 to the last digit, and softabs(l) = l


@kernel
def softabs(eigenvalue: Any, alpha: Any) -> Any:
    """l coth(alpha l): near |l| for |alpha l| over 1, and at least 1 / alpha: Betancourt (2013)."""
    scaled = abs(alpha * eigenvalue)
    if scaled < 1e-4:  # where 0 / 0 would be near; the next term of the series is scaled^4 / 45
        return (1.0 + scaled * scaled / 3.0) / alpha
    return abs(eigenvalue) / np.tanh(scaled)


@kernel
def softabs_metric(hessian: Any, alpha: Any, metric: Any, root_t: Any) -> Any:
    """Write the SoftAbs metric G of the Hessian (d, d) of a log density, and a root of its inverse.

    With -H = Q diag(l) Q^T, G = Q diag(softabs(l)) Q^T goes to `metric` (d, d), and R^T with R R^T = G^-1 to
    `root_t` (d, d). Returns log|G|. O(d³). Where every l is over 20 / alpha, G is -H itself, and its Cholesky
    factor gives the root, R = L^-T, many times faster than eigenvectors do.
    """
    d = len(hessian)
    for k in range(d):
        for i in range(d):
            metric[k, i] = -hessian[k, i]
    log_det = 0.0
    chol_t = np.empty((d, d))
    if factorise(metric, SAME / alpha, chol_t) and factorise(metric, 0.0, chol_t):
        invert_lower(chol_t, root_t)
        for k in range(d):
            log_det += 2.0 * np.log(chol_t[k, k])
        return log_det
    eigenvalues, vectors = np.linalg.eigh(metric)
    grown = np.empty((d, d))
    for k in range(d):
        curvature = softabs(eigenvalues[k], alpha)
        log_det += np.log(curvature)
        for i in range(d):
            root_t[k, i] = vectors[i, k] / np.sqrt(curvature)
            grown[i, k] = vectors[i, k] * curvature
    metric[:] = grown @ np.ascontiguousarray(vectors.T)
    return log_det
