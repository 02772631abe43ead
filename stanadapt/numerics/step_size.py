"""Step sizes: where to start, and how to follow the acceptance rate."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..jit import kernel


@kernel
def towards_target(step_size: Any, accept_prob: Any, target_accept: Any, rate: Any) -> Any:
    """One move of s² <- s² [1 + rho (alpha - alpha*)], Titsias (2023), Algorithm 1."""
    return step_size * np.sqrt(1.0 + rate * (accept_prob - target_accept))


@kernel
def doubled_or_halved(step_size: Any, accept_prob: Any, target_accept: Any, direction: Any) -> Any:
    """One move of the search for a first step size.

    The first call (direction 0) picks the direction: up where the trial's acceptance is above the target.
    Returns the next step size, the direction, and whether the search is over because the acceptance has
    crossed the target. Hoffman and Gelman (2014), Algorithm 4, has the same search.
    """
    above = accept_prob > target_accept
    if direction == 0:
        direction = 1 if above else -1
    done = above != (direction == 1)
    if done and direction == -1:
        return step_size, direction, True
    if done:
        return 0.5 * step_size, direction, True
    return step_size * 2.0**direction, direction, False
