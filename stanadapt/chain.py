"""One chain: its start, the stages of its warm-up, the freeze, and the draws, in compiled blocks.

Between blocks the chain can be stopped, reports where it is, and hears of exceptions in Python callables.
Blocks take about the same time whatever the model costs; draws do not depend on where blocks end.
"""

from __future__ import annotations

import abc
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import numpy as np

from .inits import Init, find
from .posterior import Posterior
from .samplers import Sampler, Settling, advance, climbs, keeps_adapting, pilot, sampler, stats
from .samplers.base import Piloted
from .trace import Trace, empty_trace

_BLOCK_SECONDS = 0.05
_BLOCK_NUMBERS = 1_000_000  # floats of positions that a block may hold
_GENERATED_BLOCK = 1_000  # draws of a model without parameters
_CHECKPOINTS = 50  # of the history over warm-up; fewer where a spectrum of (d, d) is dear
_NOTE_EVERY = 50  # iterations at least; to leave and enter compiled code takes as long as some tens of them
SPECTRUM_LIMIT = 1_000  # dimension above which spectra of (d, d) are left out


class Job(NamedTuple):
    """What every chain of a run shares."""

    method: str
    settings: Any  # the sampler's Settings, resolved
    warmup: int
    draws: int
    thin: int
    chains: int
    seed: int
    save_warmup: bool
    keep_unconstrained: bool


@dataclass
class Draws:
    """Rows of kept iterations: constrained values, unconstrained positions if wanted, and statistics."""

    values: np.ndarray  # (n, c)
    x: np.ndarray | None  # (n, d)
    stats: dict[str, np.ndarray]  # each (n,)
    n: int = 0  # rows written so far

    def write(self, write_values: Any, trace: Trace, rows: slice) -> None:
        """Append the iterations of `trace` that `rows` picks."""
        x = trace.x[rows]
        here = slice(self.n, self.n + len(x))
        write_values(x, self.values[here])
        if self.x is not None:
            self.x[here] = x
        for name, column in zip(self.stats, trace[1:], strict=True):
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
    draws = Stack.empty(chains, job.draws // job.thin, posterior, job)
    warmup = Stack.empty(chains, job.warmup // job.thin, posterior, job) if job.save_warmup else None
    return draws, warmup


@dataclass
class ChainResult:
    """What a chain hands over, finished or not. What is None is not known, and is left out of the result."""

    index: int
    draws: Draws
    warmup: Draws | None
    start: np.ndarray  # (d,) where it started, unconstrained
    library: str  # what ran it, with its version
    history: dict[str, list[Any]] = field(default_factory=dict)
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


class Board:
    """Where every chain writes how far it is, for the one who shows progress: a row of numbers each."""

    COLUMNS = ("iteration", "sampling", "acceptance", "step_size", "finished")

    def __init__(self, rows: np.ndarray) -> None:
        self.rows = rows  # (chains + 1, columns); the last row's first entry asks all chains to stop

    @classmethod
    def for_chains(cls, chains: int) -> Board:
        return cls(np.zeros((chains + 1, len(cls.COLUMNS))))

    def post(self, chain: int, *numbers: float) -> None:
        self.rows[chain] = numbers

    def stop(self) -> None:
        self.rows[-1, 0] = 1.0

    @property
    def stopped(self) -> bool:
        return bool(self.rows[-1, 0])


class Chain(abc.ABC):
    """A chain that is run by exhausting `blocks()`; `result()` is valid after any of them."""

    def __init__(
        self,
        posterior: Posterior,
        job: Job,
        index: int,
        init: Init,
        board: Board,
        draws: Draws,
        warmup: Draws | None,
    ) -> None:
        self.posterior, self.job, self.index, self.init, self.board = posterior, job, index, init, board
        # What spawn() gives, one at a time.
        self.seeds = np.random.SeedSequence(job.seed, spawn_key=(index,))
        self.rng = np.random.default_rng(self.seeds)
        gq_seed = int(self.seeds.generate_state(1, np.uint32)[0])
        self.model = posterior.model.for_chain(index, self.seeds.spawn(1)[0])
        self.write_values = self.model.writer(gq_seed)
        self.write_warmup = self.model.writer(gq_seed ^ 1)  # so that saving warm-up changes no draw
        self.out = ChainResult(index, draws, warmup, np.full(posterior.dim, np.nan), posterior.library)

    def blocks(self) -> Iterator[None]:
        """Run the chain; yields now and then, so that another one can have its turn."""
        yield from self._run() if self.posterior.dim else self._generated_only()

    @abc.abstractmethod
    def _run(self) -> Iterator[None]: ...

    def result(self) -> ChainResult:
        """What there is so far."""
        return self.out

    def _generated_only(self) -> Iterator[None]:
        """A model without parameters: every draw evaluates the generated quantities."""
        job, draws = self.job, self.out.draws
        while draws.n < len(draws.values):
            rows = draws.values[draws.n : draws.n + _GENERATED_BLOCK]
            self.write_values(np.empty((len(rows), 0)), rows)
            draws.n += len(rows)
            self.board.post(self.index, job.warmup + draws.n * job.thin, 1.0, np.nan, np.nan, 0.0)
            yield
        self.board.post(self.index, job.warmup + job.draws, 1.0, np.nan, np.nan, 1.0)


class KernelChain(Chain):
    """A chain of a kernel sampler."""

    def __init__(self, posterior: Posterior, job: Job, *place: Any) -> None:
        super().__init__(posterior, job, *place)
        self.sampler = cast(Sampler, sampler(job.method))  # the pilot, as long as there is one
        self.settings = job.settings
        self.target = self.model.target()
        self.done = 0
        self.step_seconds = 0.0
        self.began = self.turn_began = 0.0
        self.state: Any = None
        self.accept_sum, self.accept_count = 0.0, 0
        self.buffer = empty_trace(10, posterior.dim)

    def _run(self) -> Iterator[None]:
        """Yields at the end of a block when the chain's turn has lasted long enough.

        Blocks are short at first and where warm-up is cut at its checkpoints; a turn for each would leave a
        chain in warm-up far behind one that is sampling.
        """
        self.began = self.turn_began = time.perf_counter()
        x = find(
            self.init,
            self.posterior,
            self.model,
            self.index,
            self.rng,
            use_gradient=self.sampler.NEEDS_GRADIENT,
            ascend=climbs(self.sampler, self.settings),
            use_hessian=self.sampler.NEEDS_HESSIAN,
        )
        self.out.start = x.copy()
        yield from self._warm_up(x)
        self.out.learnt = self.sampler.learnt(self.state)
        self.out.failures_warmup = int(self.target.failures.total[0])
        self.out.counts_warmup = self.model.counts()
        warmed_up = time.perf_counter()
        self.out.seconds_warmup = warmed_up - self.began
        yield from self._iterate(self.job.draws, False, self.out.draws, self.write_values)
        self.out.seconds = time.perf_counter() - warmed_up
        self.out.seconds_total = self.out.seconds_warmup + self.out.seconds
        self.board.rows[self.index, 4] = 1.0

    def result(self) -> ChainResult:
        failures, out = self.target.failures, self.out
        total = int(failures.total[0])
        if self.state is not None and out.seconds_warmup == 0.0:  # stopped in warm-up
            out.learnt = self.sampler.learnt(self.state)
            out.failures_warmup = total
            out.warmup_iterations = self.done
        if out.seconds_warmup == 0.0:
            out.counts_warmup = self.model.counts()
        out.failures = total - (out.failures_warmup or 0)
        out.counts = {
            name: count - out.counts_warmup.get(name, 0) for name, count in self.model.counts().items()
        }
        if total:
            out.first_failure = self.posterior.failure(failures.first, self.sampler.NEEDS_GRADIENT)
        if self.state is not None and out.seconds_total == 0.0:  # stopped
            out.seconds_total = time.perf_counter() - self.began
        return out

    def _warm_up(self, x: np.ndarray) -> Iterator[None]:
        """From `x` (d,): the pilot, if there is one, and then the method."""
        warmup = self.job.warmup
        length = pilot.length(self.sampler, self.settings, warmup)
        if length:
            yield from self._pilot(x, length)
        else:
            self.state = self.sampler.start(self.target, self.settings, x, self.rng)
        yield from self._stages(warmup - length)
        self.out.warmup_iterations = self.done
        self.done = warmup

    def _pilot(self, x: np.ndarray, length: int) -> Iterator[None]:
        """`length` iterations of the pilot from `x`, then the method's state where they end.

        All of them, so that what chains note is of the same stage in all.
        """
        method = self.sampler
        self.sampler, self.settings = pilot.module()
        self.state = self.sampler.start(self.target, self.settings, x, self.rng)
        yield from self._stages(length, "pilot_")
        method_settings = self.job.settings
        with np.errstate(all="ignore"):
            found = pilot.found(self.sampler, self.settings, self.state, length)
            state = method.start(self.target, method_settings, found.x, self.rng)
            if state.logp == -np.inf:  # it needs a Hessian, and there is none
                state = method.start(self.target, method_settings, x, self.rng)
            state = cast(Piloted, method).piloted(state, found, method_settings)
        self.sampler, self.settings, self.state = method, method_settings, state

    def _stages(self, length: int, prefix: str = "") -> Iterator[None]:
        """The sampler's stages, cut at fixed iterations where the history is noted."""
        d = self.posterior.dim
        marks = _checkpoints(self.job.warmup, d)
        for stage in self.sampler.stages(self.settings, length, d):
            if stage.length == 0:
                continue
            with np.errstate(all="ignore"):  # a chain may be on its way to infinity; that is diagnosed later
                self.state = self.sampler.enter(stage.name, self.state, self.settings)
            end = self.done + stage.length
            for mark in [m for m in marks if self.done < m < end] + [end]:
                yield from self._iterate(mark - self.done, True, self.out.warmup, self.write_warmup)
                self._note(prefix + stage.name)
            if not prefix and isinstance(self.sampler, Settling) and self.sampler.settled(self.state):
                break

    def _iterate(self, n: int, adapting: bool, draws: Draws | None, write_values: Any) -> Iterator[None]:
        """Run `n` iterations in blocks, keeping every thin-th in `draws`."""
        goes_on = keeps_adapting(self.settings)
        offset = self.done if adapting else self.done - self.job.warmup
        while n > 0:
            size = min(n, self._block_size())
            trace = self._buffer(size)
            began = time.perf_counter()
            self.state = advance(
                self.sampler, self.target, self.settings, self.state, self.rng, adapting or goes_on, trace
            )
            self.step_seconds = (time.perf_counter() - began) / size
            self.model.raise_pending()
            if draws is not None:
                draws.write(write_values, trace, slice(-(offset + 1) % self.job.thin, None, self.job.thin))
            n, offset, self.done = n - size, offset + size, self.done + size
            # One after another: the last digit of NumPy's own sum would tell where blocks end.
            self.accept_sum = float(np.cumsum(np.append(self.accept_sum, trace.accept_prob))[-1])
            self.accept_count += size
            acceptance = float(trace.accept_prob.mean())
            self.board.post(self.index, self.done, float(not adapting), acceptance, trace.step_size[-1], 0.0)
            if time.perf_counter() - self.turn_began >= _BLOCK_SECONDS:
                yield
                self.turn_began = time.perf_counter()

    def _block_size(self) -> int:
        """Iterations that take about the same time as every other block, from the pace of the last one."""
        if self.step_seconds == 0.0:
            return 1
        most = min(10 * len(self.buffer.logp), max(1, _BLOCK_NUMBERS // self.posterior.dim))
        return int(np.clip(_BLOCK_SECONDS / self.step_seconds, 1, most))

    def _buffer(self, size: int) -> Trace:
        if size > len(self.buffer.logp):
            self.buffer = empty_trace(size, self.posterior.dim)
        return Trace(*(column[:size] for column in self.buffer))

    def _note(self, stage: str) -> None:
        """Append to the history what warm-up has come to, with the acceptance since the last note.

        What the pilot or the method alone has is NaN at the notes of the other.
        """
        history = self.out.history
        row: dict[str, Any] = {
            "iteration": self.done,
            "stage": stage,
            "acceptance_rate": self.accept_sum / self.accept_count,
        }
        if hasattr(self.state, "step_size"):
            row["step_size"] = float(self.state.step_size)
        if self.posterior.dim <= SPECTRUM_LIMIT:
            row |= self.sampler.history(self.state)
        before = len(history.get("iteration", ()))
        for name in {**history, **row}:
            history.setdefault(name, [np.nan] * before).append(row.get(name, np.nan))
        self.accept_sum, self.accept_count = 0.0, 0


def _checkpoints(warmup: int, d: int) -> list[int]:
    """Iterations of warm-up after which the history is noted. They depend on nothing but the run's size."""
    count = min(_CHECKPOINTS if d <= 100 else max(5, _CHECKPOINTS * 100 // d), max(1, warmup // _NOTE_EVERY))
    return sorted({warmup * k // count for k in range(1, count + 1)} - {0})
