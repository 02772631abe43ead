"""The Metropolis-Hastings decision."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..jit import kernel


@kernel
def accept_probability(log_ratio: Any) -> Any:
    """min(1, e^log_ratio), and 0 where the ratio is NaN."""
    if np.isnan(log_ratio):
        return 0.0
    return np.exp(min(0.0, log_ratio))
