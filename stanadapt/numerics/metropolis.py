"""The Metropolis-Hastings decision."""

from __future__ import annotations

import numpy as np

from ..jit import kernel
from ..kinds import Real


@kernel(counted=False)
def accept_probability(log_ratio: Real) -> Real:
    """min(1, e^log_ratio), or 0 if the ratio is NaN.

    If the current point has no log density, the ratio is infinity and the probability is 1. That happens on a
    noisy target, because the first estimate of a chain may be zero.
    """
    if np.isnan(log_ratio):
        return 0.0
    return np.exp(min(0.0, log_ratio))


@kernel(counted=False)
def accept_probability_if_finite(log_ratio: Real) -> Real:
    """min(1, e^log_ratio), or 0 if the ratio is NaN or infinity.

    This is for methods whose current point always has a log density and a score. For them only an overflow
    makes a ratio infinite, and an overflow says nothing about the proposal.
    """
    if np.isnan(log_ratio) or log_ratio == np.inf:
        return 0.0
    return np.exp(min(0.0, log_ratio))
