"""What a preconditioner looks like, in a few numbers."""

from __future__ import annotations

import numpy as np


def describe(root: np.ndarray) -> dict[str, float]:
    """Trace, log-determinant and condition number of A = root root^T."""
    eigenvalues = np.linalg.svd(root, compute_uv=False) ** 2
    with np.errstate(divide="ignore"):
        return {
            "preconditioner_trace": float(eigenvalues.sum()),
            "preconditioner_log_det": float(np.log(eigenvalues).sum()),
            "preconditioner_condition": float(eigenvalues[0] / eigenvalues[-1]),
        }
