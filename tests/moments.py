"""Draws against known means, in standard errors of Monte Carlo."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray
from scipy import stats

from stanadapt.results import arviz

LEVEL = 0.001  # family-wise, of one test


def z_scores(draws: np.ndarray, mean: np.ndarray, mcse: np.ndarray | float = 0.0) -> np.ndarray:
    """z of the mean of `draws` (chain, draw, k) against `mean` (k,), known up to `mcse` (k,)."""
    known = np.broadcast_to(mcse, np.shape(mean))
    z = []
    for k in range(draws.shape[2]):
        column = draws[:, :, k]
        ess = float(arviz().ess(as_dataset(column), method="mean")["x"])
        own = column.std(ddof=1) / np.sqrt(ess)
        z.append((column.mean() - mean[k]) / np.hypot(own, known[k]))
    return np.array(z)


def as_dataset(column: np.ndarray) -> Any:
    """Draws of one number (chain, draw) as arviz takes them."""
    return xarray.Dataset({"x": (("chain", "draw"), column)})


def limit(count: int) -> float:
    """What the largest of `count` |z| may be (Bonferroni)."""
    return float(stats.norm.isf(LEVEL / 2 / count))
