"""Distance of draws from a benchmark in all mixed moments up to order 3."""

from __future__ import annotations

import numpy as np


def moments(draws: np.ndarray) -> np.ndarray:
    """Features (n, (d + 1)³) of `draws` (n, d) whose products are the polynomial kernel (1 + x . y)³."""
    extended = np.column_stack([np.ones(len(draws)), draws])
    features: np.ndarray = np.einsum("ni,nj,nk->nijk", extended, extended, extended)
    return features.reshape(len(draws), -1)


def mmd_path(draws: np.ndarray, benchmark: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Squared maximum mean discrepancy of the first `at` draws from the benchmark, for all of `at`.

    Gretton et al. (2012), A kernel two-sample test, the biased estimate; with features it is a difference of
    means.
    """
    means = np.cumsum(moments(draws), axis=0)[at - 1] / at[:, None]
    squares: np.ndarray = ((means - moments(benchmark).mean(axis=0)) ** 2).sum(axis=1)
    return squares
