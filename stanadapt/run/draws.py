"""Room for draws: what chains write into, block by block, and what a run hands over at its end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ..model.backends.base import Writer
from ..model.posterior import Posterior
from ..samplers import sampler, stats
from ..trace import Trace
from .job import Job


@dataclass
class Draws:
    """Rows of kept iterations: constrained values, unconstrained positions if wanted, and statistics."""

    values: np.ndarray  # (n, c)
    x: np.ndarray | None  # (n, d)
    stats: dict[str, np.ndarray]  # each (n,): those that every kernel sampler has, then the method's own
    n: int = 0  # rows written so far

    def write(self, write_values: Writer, trace: Trace, rows: slice, offset: int) -> None:
        """Append the iterations of `trace` that `rows` picks; `offset` iterations came before it."""
        x = trace.x[rows]
        here = slice(self.n, self.n + len(x))
        write_values(x, self.values[here], np.arange(offset, offset + len(trace.x))[rows])
        if self.x is not None:
            self.x[here] = x
        columns = [*trace[1:-1], *trace.own.T]
        for name, column in zip(self.stats, columns, strict=True):
            self.stats[name][here] = column[rows]
        self.n = here.stop

    def put(self, values: np.ndarray, x: np.ndarray | None, stats: dict[str, np.ndarray]) -> None:
        """Write all rows at once."""
        self.n = len(values)
        self.values[:] = values
        if self.x is not None:
            self.x[:] = x
        for name, column in stats.items():
            self.stats[name][:] = column

    def written(self) -> Draws:
        """The rows written so far, without the room for more."""
        x = None if self.x is None else self.x[: self.n]
        stats = {name: column[: self.n] for name, column in self.stats.items()}
        return Draws(self.values[: self.n], x, stats, self.n)


class Stack(NamedTuple):
    """Room for the draws of several chains, held once: chains write into views of it."""

    values: np.ndarray  # (chains, n, c)
    x: np.ndarray | None  # (chains, n, d)
    stats: dict[str, np.ndarray]  # each (chains, n)

    @classmethod
    def empty(cls, chains: int, n: int, posterior: Posterior, job: Job) -> Stack:
        """The system hands out this memory only as it is written."""
        columns = stats(sampler(job.method))
        return cls(
            np.empty((chains, n, posterior.n_values)),
            np.empty((chains, n, posterior.dim)) if job.keep_unconstrained else None,
            {name: np.empty((chains, n), dtype) for name, dtype in columns.items()},
        )

    def chain(self, i: int) -> Draws:
        """The rows of chain `i`."""
        x = None if self.x is None else self.x[i]
        return Draws(self.values[i], x, {name: column[i] for name, column in self.stats.items()})

    def absorb(self, i: int, draws: Draws) -> Draws:
        """Copy what another process has drawn; returns the rows here."""
        mine, n = self.chain(i), draws.n
        mine.values[:n] = draws.values[:n]
        if mine.x is not None and draws.x is not None:
            mine.x[:n] = draws.x[:n]
        for name, column in draws.stats.items():
            mine.stats[name][:n] = column[:n]
        mine.n = n
        return mine


def stacks(job: Job, posterior: Posterior, chains: int) -> tuple[Stack, Stack | None]:
    """Room for the draws and, if they are kept, the warm-up of `chains` chains."""
    draws = Stack.empty(chains, job.rows, posterior, job)
    return draws, Stack.empty(chains, job.warmup_rows, posterior, job) if job.save_warmup else None


@dataclass
class ChainResult:
    """What a chain hands over, finished or not. What is None is not known, and is left out of the result."""

    index: int
    draws: Draws
    warmup: Draws | None
    start: np.ndarray  # (d,) where it started, unconstrained
    library: str  # what ran it, with its version
    history: dict[str, list[Any]] = field(default_factory=dict)
    tops: np.ndarray = field(default_factory=lambda: np.empty((0, 0)))  # (k, d) of the climbs to the start
    learnt: dict[str, np.ndarray] = field(default_factory=dict)
    warmup_iterations: int = 0  # fewer than asked for, where warm-up has ended by itself
    failures_warmup: int | None = 0
    failures: int | None = 0
    first_failure: str | None = ""
    counts_warmup: dict[str, int] = field(default_factory=dict)  # by the model, start included
    counts: dict[str, int] = field(default_factory=dict)
    seconds_warmup: float | None = 0.0
    seconds: float | None = 0.0
    seconds_total: float = 0.0


class Run(NamedTuple):
    """What a run gave."""

    chains: list[ChainResult]
    draws: Stack
    warmup: Stack | None

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C came before the last draw: nothing else ends a run early without an exception."""
        return any(chain.draws.n < len(chain.draws.values) for chain in self.chains)
