"""Room for draws: arrays that chains fill block by block, and the results of chains and runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from ..model.backends.contract import Writer
from ..model.description import Description
from ..model.posterior import Posterior
from ..samplers import sampler, stats
from ..trace import Trace
from .job import Job


class Sink(Protocol):
    """What keeps blocks of rows, such as files on a disk."""

    block: int  # number of rows of a block

    def put(self, first: int, rows: Draws) -> None:
        """Keep the block of rows that begins with row `first`. Raises OSError where there is no room."""
        ...


@dataclass
class Draws:
    """Rows of kept iterations: constrained values, unconstrained positions if wanted, and statistics.

    With a sink every full block goes there. Then room for one block is enough, because each block replaces
    the one before.
    """

    values: np.ndarray  # (room, c)
    x: np.ndarray | None  # (room, d)
    stats: dict[str, np.ndarray]  # each (room,): those that every kernel sampler has, then the method's own
    n: int = 0  # rows written so far
    rows: int = -1  # rows there may be; as many as there is room for, where it is not said
    first: int = 0  # the row that the room begins with
    sink: Sink | None = None

    def __post_init__(self) -> None:
        if self.rows < 0:
            self.rows = len(self.values)

    def write(self, write_values: Writer, trace: Trace, rows: slice, offset: int) -> None:
        """Append the iterations of `trace` that `rows` picks; `offset` iterations came before it."""
        x = trace.x[rows]
        iterations = np.arange(offset, offset + len(trace.x))[rows]
        stats = [column[rows] for column in (*trace[1:-1], *trace.own.T)]
        for part, here in self._parts(len(x)):
            write_values(x[part], self.values[here], iterations[part])
            if self.x is not None:
                self.x[here] = x[part]
            for column, given in zip(self.stats.values(), stats, strict=True):
                column[here] = given[part]

    def evaluate(self, write_values: Writer, iterations: np.ndarray) -> None:
        """Append rows of a model without parameters, whose values come from the iterations' numbers."""
        for part, here in self._parts(len(iterations)):
            own = iterations[part]
            write_values(np.empty((len(own), 0)), self.values[here], own)

    def append(self, values: np.ndarray, x: np.ndarray | None, stats: Mapping[str, np.ndarray]) -> None:
        """Append rows that have been drawn elsewhere."""
        for part, here in self._parts(len(values)):
            self.values[here] = values[part]
            if self.x is not None and x is not None:
                self.x[here] = x[part]
            for name, column in stats.items():
                self.stats[name][here] = column[part]

    def part(self, first: int, stop: int) -> Draws:
        """Rows from `first` on and before `stop`, as views; the room must hold them."""
        here = slice(first - self.first, stop - self.first)
        x = None if self.x is None else self.x[here]
        stats = {name: column[here] for name, column in self.stats.items()}
        return Draws(self.values[here], x, stats, stop - first)

    def trim(self) -> Draws:
        """The rows written so far, as far as they are here, without the room for more."""
        return self.part(self.first, self.n)

    def tail(self) -> Draws:
        """The rows that no full block of the sink holds."""
        return self.part(0 if self.sink is None else self.n // self.sink.block * self.sink.block, self.n)

    def room(self, rows: int) -> Draws:
        """Other room, for so many rows of the same kind."""
        x = None if self.x is None else np.empty((rows, self.x.shape[1]))
        stats = {name: np.empty(rows, column.dtype) for name, column in self.stats.items()}
        return Draws(np.empty((rows, self.values.shape[1])), x, stats)

    def restore(self, n: int, tail: Draws) -> None:
        """Go on after `n` rows: `tail` has the last of them, and the sink has the rows before it.

        Where there is room for all rows, the caller writes them there.
        """
        self.n = n - len(tail.values)
        self.first = self.n if self.sink is not None and len(self.values) < self.rows else 0
        here = slice(self.n - self.first, n - self.first)
        self.values[here] = tail.values
        if self.x is not None and tail.x is not None:
            self.x[here] = tail.x
        for name, column in tail.stats.items():
            self.stats[name][here] = column
        self.n = n

    def _parts(self, count: int) -> Iterator[tuple[slice, slice]]:
        """Cut `count` new rows where blocks end: the rows, and the room that they go to.

        The rows of a part count when the caller asks for the next part.
        """
        done = 0
        while done < count:
            size = count - done
            if self.sink is not None:
                size = min(size, self.sink.block - self.n % self.sink.block)
            yield slice(done, done + size), slice(self.n - self.first, self.n - self.first + size)
            done += size
            self._count(size)

    def _count(self, size: int) -> None:
        n = self.n + size
        if self.sink is not None and n % self.sink.block == 0:
            begin = n - self.sink.block
            self.sink.put(begin, self.part(begin, n))  # rows that could not be kept do not count
            if len(self.values) < self.rows:
                self.first = n
        self.n = n


class Stack(NamedTuple):
    """Room for the draws of several chains, held once: chains write into views of it."""

    values: np.ndarray  # (chains, room, c)
    x: np.ndarray | None  # (chains, room, d)
    stats: dict[str, np.ndarray]  # each (chains, room)
    rows: int  # that each chain may have

    @classmethod
    def empty(
        cls, chains: int, rows: int, posterior: Posterior | Description, job: Job, room: int | None = None
    ) -> Stack:
        """The system hands out this memory only as it is written. There is room for all rows by default."""
        columns = stats(sampler(job.method))
        n = rows if room is None else min(rows, room)
        return cls(
            np.empty((chains, n, posterior.n_values)),
            np.empty((chains, n, posterior.dim)) if job.keep_unconstrained else None,
            {name: np.empty((chains, n), dtype) for name, dtype in columns.items()},
            rows,
        )

    def chain(self, i: int, sink: Sink | None = None) -> Draws:
        """The rows of chain `i`."""
        x = None if self.x is None else self.x[i]
        stats = {name: column[i] for name, column in self.stats.items()}
        return Draws(self.values[i], x, stats, rows=self.rows, sink=sink)


def row_bytes(job: Job, n_values: int, d: int) -> int:
    """Bytes of a row of a chain."""
    columns = n_values + (d if job.keep_unconstrained else 0) + len(stats(sampler(job.method)))
    return 8 * columns


def stacks(job: Job, posterior: Posterior, chains: int) -> tuple[Stack, Stack | None]:
    """Room for the draws and, if they are kept, the warm-up of `chains` chains."""
    draws = Stack.empty(chains, job.rows, posterior, job)
    return draws, Stack.empty(chains, job.warmup_rows, posterior, job) if job.save_warmup else None


@dataclass
class ChainResult:
    """The result of a chain, finished or not. An entry that is not known is None, and the result omits it."""

    index: int
    draws: Draws
    warmup: Draws | None
    start: np.ndarray  # (d,) where it started, unconstrained
    library: str  # what ran it, with its version
    history: dict[str, list[Any]] = field(default_factory=dict)
    tops: np.ndarray = field(default_factory=lambda: np.empty((0, 0)))  # (k, d) of the climbs to the start
    learnt: dict[str, np.ndarray] = field(default_factory=dict)
    outcome: dict[str, np.ndarray] = field(default_factory=dict)  # what the method says of its draws so far
    warmup_iterations: int = 0  # fewer than asked for, where warm-up has ended by itself
    failures_warmup: int | None = 0
    failures: int | None = 0
    first_failure: str | None = ""
    evaluations_warmup: int | None = 0  # of the density or its gradient, by iterations
    evaluations: int | None = 0
    counts_warmup: dict[str, int] = field(default_factory=dict)  # by the model, start included
    counts: dict[str, int] = field(default_factory=dict)
    seconds_warmup: float | None = 0.0
    seconds: float | None = 0.0
    seconds_total: float = 0.0


class Run(NamedTuple):
    """The result of a run."""

    chains: list[ChainResult]
    draws: Stack
    warmup: Stack | None
    is_enough: bool = False  # whether goals or a limit of `until` have ended it
    ended_by: str = ""  # the signal that has ended it, such as "SIGINT"

    @property
    def is_short(self) -> bool:
        """Whether a chain has fewer draws than it may have."""
        return any(chain.draws.n < chain.draws.rows for chain in self.chains)

    @property
    def is_interrupted(self) -> bool:
        """Whether it ended before the last draw that was wanted, or a chain has none."""
        return self.is_short and not (self.is_enough and all(chain.draws.n for chain in self.chains))
