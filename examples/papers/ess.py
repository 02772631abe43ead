"""Effective sample sizes of one chain, as the papers estimate them."""

from __future__ import annotations

import numpy as np
from scipy import fft


def autocorrelation(x: np.ndarray) -> np.ndarray:
    """Of one chain (n,), at lags 0 to n - 1; sums over n - k terms are divided by n."""
    n = len(x)
    size = fft.next_fast_len(2 * n, real=True)
    covariance = fft.irfft(np.abs(fft.rfft(x - x.mean(), size)) ** 2, size)[:n]
    return covariance / covariance[0] if covariance[0] > 0 else np.ones(n)


def geyer_ess(x: np.ndarray) -> float:
    """Initial monotone sequence estimator of Geyer (1992), of one chain (n,); at most n."""
    rho = autocorrelation(x)
    pairs = rho[: len(rho) // 2 * 2].reshape(-1, 2).sum(axis=1)
    pairs = np.minimum.accumulate(pairs)
    return len(x) / max(1.0, 2 * pairs[pairs > 0].sum() - 1)


def tfp_ess(x: np.ndarray) -> float:
    """TensorFlow Probability's `effective_sample_size` by default: up to the first negative correlation.

    Its correlations divide by n - k, and are weighed by (n - k) / n: the same as dividing by n at once.
    """
    rho = autocorrelation(x)
    negative = np.flatnonzero(rho < 0)
    return len(x) / (2 * rho[: negative[0] if len(negative) else None].sum() - 1)
