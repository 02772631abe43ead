"""The time of one evaluation of a model."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from ..jit import kernel
from ..target import NativeTarget, log_density_gradient

_SECONDS = 0.2  # long enough for a clock, short enough to wait for


@kernel
def _repeat(target: Any, x: Any, n: Any) -> Any:
    """Sum of n log densities at `x` (d,), each with its gradient."""
    score = np.empty_like(x)
    total = 0.0
    for _ in range(n):
        total += log_density_gradient(target, x, score)
    return total


def seconds_per_gradient(target: NativeTarget, x: np.ndarray) -> float:
    """Seconds that a log density with its gradient takes at `x` (d,), called as samplers call it."""
    n = 1
    _repeat(target, x, n)  # compiled, or loaded
    while True:
        began = time.perf_counter()
        _repeat(target, x, n)
        spent = time.perf_counter() - began
        if spent >= _SECONDS:
            return spent / n
        n *= 2
