"""What a sampler is to the race, and what a run hands over."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np


class Outcome(NamedTuple):
    """Of a run of all chains."""

    seconds: float
    gradients: float  # of warm-up and draws together
    draws: np.ndarray  # (chains, n, k), the parameters and then the transformed ones


class Racer(Protocol):
    """A sampler that has a problem open."""

    def prepare(self, draws: int) -> None:
        """Compile what depends on the problem, if anything does."""

    def run(self, draws: int, seed: int) -> Callable[[], Outcome]:
        """Draw. What is returned makes the outcome, which is not timed."""
        ...
