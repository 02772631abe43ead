"""The SoftAbs metric: a smooth positive definite replacement for the negative Hessian."""

from __future__ import annotations

import numpy as np

from ..jit import kernel
from ..kinds import Matrix, Real
from .cholesky import factorise, invert_lower

SAME = 20.0  # above this coth is 1 to the last digit, and softabs(l) = l


@kernel
def softabs(eigenvalue: Real, alpha: Real) -> Real:
    """l coth(alpha l): about |l| where |alpha l| > 1, and at least 1 / alpha: Betancourt (2013)."""
    scaled = abs(alpha * eigenvalue)
    if scaled < 1e-4:  # a series avoids 0 / 0; its next term is scaled^4 / 45
        return (1.0 + scaled * scaled / 3.0) / alpha
    return abs(eigenvalue) / np.tanh(scaled)


@kernel
def softabs_metric(hessian: Matrix, alpha: Real, metric: Matrix, root_t: Matrix) -> Real:
    """Write the SoftAbs metric G of the Hessian (d, d) of a log density, and a root of its inverse; O(d³).

    With -H = Q diag(l) Q^T, it writes G = Q diag(softabs(l)) Q^T to `metric` (d, d), and R^T with
    R R^T = G^-1 to `root_t` (d, d). Returns log|G|. If every l is above 20 / alpha, G is -H itself. Then the
    Cholesky factor gives the root, R = L^-T, many times faster than eigenvectors do.
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
    product = grown @ np.ascontiguousarray(vectors.T)
    for k in range(d):
        for i in range(d):
            metric[k, i] = product[k, i]
    return log_det
