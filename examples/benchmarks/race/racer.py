"""What a sampler is to the race, and what a run hands over."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np


class Outcome(NamedTuple):
    """Of a run of all chains."""

    seconds: float
    cpu_seconds: float  # of all threads
    gradients: float  # of warm-up and draws together
    draws: np.ndarray  # (chains, n, k), the parameters and then the transformed ones
    steps: np.ndarray | None = None  # (chains, n), leapfrog steps of each draw, where a sampler tells them


class Clock:
    """Wall and CPU time of a with block."""

    seconds = cpu_seconds = 0.0

    def __enter__(self) -> Clock:
        self._began = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        wall, cpu = self._began
        self.seconds, self.cpu_seconds = time.perf_counter() - wall, time.process_time() - cpu


class Racer(Protocol):
    """A sampler that has a problem open."""

    def prepare(self, draws: int) -> None:
        """Compile what depends on the problem, if anything does."""

    def run(self, draws: int, seed: int) -> Callable[[], Outcome]:
        """Draw. What is returned makes the outcome, which is not timed."""
        ...
