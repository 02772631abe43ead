"""The Metropolis-Hastings decision."""

from __future__ import annotations

import numpy as np

from ..jit import kernel
from ..kinds import Real


@kernel
def accept_probability(log_ratio: Real) -> Real:
    """min(1, e^log_ratio), and 0 where the ratio is NaN.

    The ratio is infinity, and the probability 1, where the current point has no log density. That happens to
    a chain on a noisy target, whose first estimate may be zero.
    """
    if np.isnan(log_ratio):
        return 0.0
    return np.exp(min(0.0, log_ratio))


@kernel
def accept_probability_if_finite(log_ratio: Real) -> Real:
    """min(1, e^log_ratio), and 0 where the ratio is NaN or infinity.

    For methods whose current point has a log density and a score. Then no ratio is infinite but by an
    overflow, which says nothing of the proposal.
    """
    if np.isnan(log_ratio) or log_ratio == np.inf:
        return 0.0
    return np.exp(min(0.0, log_ratio))
