"""The SoftAbs metric: a smooth positive-definite stand-in for the negative Hessian."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..jit import kernel


@kernel
def softabs(eigenvalue: Any, alpha: Any) -> Any:
    """l coth(alpha l): near |l| for |alpha l| over 1, and at least 1 / alpha: Betancourt (2013)."""
    scaled = abs(alpha * eigenvalue)
    if scaled < 1e-4:  # where 0 / 0 would be near; the next term of the series is scaled^4 / 45
        return (1.0 + scaled * scaled / 3.0) / alpha
    return abs(eigenvalue) / np.tanh(scaled)


@kernel
def softabs_root(hessian: Any, alpha: Any, root_t: Any, curvature: Any) -> None:
    """Make root_t^T root_t the inverse of the SoftAbs metric G of the Hessian (d, d) of a log density.

    With -H = Q diag(l) Q^T, G = Q diag(softabs(l)) Q^T and the root is R = Q diag(softabs(l))^(-1/2). Writes
    R transposed to `root_t` (d, d) and softabs(l) to `curvature` (d,). O(d³).
    """
    eigenvalues, vectors = np.linalg.eigh(-hessian)
    d = curvature.size
    for k in range(d):
        curvature[k] = softabs(eigenvalues[k], alpha)
        shrink = 1.0 / np.sqrt(curvature[k])
        for i in range(d):
            root_t[k, i] = shrink * vectors[i, k]
