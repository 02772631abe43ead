"""A summary of a preconditioner in a few numbers."""

from __future__ import annotations

import numpy as np


def summarise_preconditioner(root: np.ndarray) -> dict[str, float]:
    """Trace, log-determinant and condition number of A = root root^T."""
    if np.all(np.isfinite(root)):
        eigenvalues = np.linalg.svd(root, compute_uv=False) ** 2
    else:  # an overflow is recorded in the history and does not end the run
        eigenvalues = np.full(len(root), np.nan)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return {
            "preconditioner_trace": float(eigenvalues.sum()),
            "preconditioner_log_det": float(np.log(eigenvalues).sum()),
            "preconditioner_condition": float(eigenvalues[0] / eigenvalues[-1]),
        }
