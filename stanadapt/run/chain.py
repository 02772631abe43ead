"""One chain: its start, its warm-up, the freeze, and the draws, in compiled blocks.

Between blocks the chain is a value (`ChainValue`): it can be stopped there, pickled, and taken up again in
another process. It reports its progress, and notices exceptions in Python callables. Blocks take about the
same time whatever the model costs; draws do not depend on where blocks end.
"""

from __future__ import annotations

import abc
import copy
import threading
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from ..model.backends.contract import Model, Writer
from ..model.posterior import Posterior
from ..samplers import (
    Handover,
    Sampler,
    advance,
    climbs,
    history,
    keeps_adapting,
    knowledge,
    outcome,
    sampler,
    uses_gradient,
)
from ..target import Failures
from ..trace import Trace, empty_trace
from ..transport.learning import describe
from ..transport.map_table import no_transport
from .draws import ChainResult, Draws
from .guard import Guard, StoppedError
from .inits import Init, Start, find
from .job import Job
from .together import Taught, learn_together
from .warmup import WarmUp, WarmupPlace, plan, variable_groups
from .workers.board import Board

_BLOCK_SECONDS = 0.05
_BLOCK_NUMBERS = 1_000_000  # floats of positions that a block may hold
_GENERATED_BLOCK = 1_000  # draws of a model without parameters
_NOTES = 50  # of the history over warm-up; fewer where a spectrum of (d, d) is dear
_NOTE_EVERY = 50  # iterations at least; to leave and enter compiled code takes as long as some tens of them
_SHORT_SECONDS = 1e-4  # of an evaluation; as long as what Python does beside it while a chain learns
SPECTRUM_LIMIT = 1_000  # dimension above which spectra of (d, d) are left out

_learning = threading.Lock()  # held by the chain of this process that learns


class Chain(abc.ABC):
    """A chain that is run by exhausting `blocks()`; `result()` is valid after any of them.

    It pauses when it has `goal` rows of draws. `blocks()` asked for again goes on from there.
    """

    value: Any  # the state between two blocks, beside the rows

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
        gq_seed = int(self.seeds.generate_state(1, np.uint64)[0])
        self.model = posterior.model.for_chain(index, self.seeds.spawn(1)[0])
        self.write_values = self.model.writer(gq_seed)
        # Another seed, so that saving warm-up changes no draw.
        self.write_warmup = self.write_values if warmup is None else self.model.writer(gq_seed ^ 1)
        self.draws, self.warmup = draws, warmup
        self.goal = draws.rows
        self.learning_seconds = 0.0  # in which no other chain of this process could learn

    def blocks(self) -> Iterator[None]:
        """Run the chain; yields now and then, so that another one can have its turn."""
        yield from self._run() if self.posterior.dim else self._generated_only()

    @abc.abstractmethod
    def _run(self) -> Iterator[None]: ...

    @abc.abstractmethod
    def result(self) -> ChainResult:
        """The result so far."""

    def _generated_only(self) -> Iterator[None]:
        """A model without parameters: every draw evaluates the generated quantities."""
        job, draws = self.job, self.draws
        self.value.warmup_iterations = 0
        while draws.n < self.goal:
            count = min(_GENERATED_BLOCK, self.goal - draws.n)
            draws.evaluate(self.write_values, (draws.n + 1 + np.arange(count)) * job.thin - 1)
            self.value.rows, self.value.done = draws.n, job.warmup + draws.n * job.thin
            self.board.post(self.index, self.value.done, 1.0, np.nan, np.nan, 0.0)
            yield
        if draws.n == draws.rows:
            self.value.done = job.warmup + job.draws
            self.board.post(self.index, self.value.done, 1.0, np.nan, np.nan, 1.0)


@dataclass
class ChainValue:
    """All that a kernel sampler's chain holds between two blocks, beside the rows that it has written.

    Arrays, numbers, NamedTuples and dicts of them, and a NumPy generator. The chain goes on writing into
    these arrays. To keep the value while the chain runs, pickle or copy it.
    """

    index: int
    rng: np.random.Generator
    failures: Failures
    start: np.ndarray  # (d,) NaN before it is found
    tops: np.ndarray  # (k, d) the highest points of the climbs to it
    place: WarmupPlace | None = None  # in warm-up; None before it begins
    state: Any = None  # the sampler's State
    transport: np.ndarray = field(default_factory=no_transport)  # the coordinates of the state
    model: dict[str, Any] = field(default_factory=dict)  # what the model of the chain carries along
    done: int = 0  # iterations
    warmup_iterations: int | None = None  # None before warm-up has ended
    accept_sum: float = 0.0  # since the last note of the history, as is the next one
    accept_count: int = 0
    history: dict[str, list[Any]] = field(default_factory=dict)
    learnt: dict[str, np.ndarray] = field(default_factory=dict)  # at the end of warm-up
    first_failure: str = ""  # in words
    failures_warmup: int = 0
    counts: dict[str, int] = field(default_factory=dict)  # by the model
    counts_warmup: dict[str, int] = field(default_factory=dict)
    seconds_warmup: float = 0.0
    seconds: float = 0.0  # of all blocks
    evaluations_warmup: int = 0  # of the density or its gradient, by iterations
    evaluations: int = 0
    rows: int = 0  # written draws
    warmup_rows: int = 0
    goal: int = 0  # rows at which it is to pause
    warm: Handover | None = None  # what it has taken over from a chain of an earlier run
    taught: Taught | None = None  # what it has learned last, where chains learn together

    @property
    def is_waiting(self) -> bool:
        """Whether it is between two windows, and goes on when all chains are."""
        return self.place is not None and not self.place.left and not (self.taught and self.taught.is_over)

    @property
    def spent(self) -> float:
        """Seconds so far."""
        return self.seconds

    def result(self, job: Job, draws: Draws, warmup: Draws | None, library: str) -> ChainResult:
        """The result of the chain, finished or not, without an evaluation."""
        out = ChainResult(self.index, draws, warmup, self.start, library, self.history, self.tops)
        total = int(self.failures.total[0])
        if self.warmup_iterations is None:  # stopped in warm-up
            if self.state is not None and self.place is not None:
                method = cast(Sampler, sampler(job.method))
                segments = plan(method, job.settings, job.warmup, self.start.size, self.warm)
                out.learnt = knowledge(segments[self.place.segment].sampler, self.state)
            out.failures_warmup, out.counts_warmup, out.warmup_iterations = total, self.counts, self.done
            out.evaluations_warmup = self.evaluations
        else:
            out.learnt, out.failures_warmup = self.learnt, self.failures_warmup
            if self.state is not None:
                method = cast(Sampler, sampler(job.method))
                out.outcome = outcome(method, self.state, job.settings, self.transport)
            out.counts_warmup, out.warmup_iterations = self.counts_warmup, self.warmup_iterations
            out.evaluations_warmup = self.evaluations_warmup
        out.failures = total - out.failures_warmup
        out.evaluations = self.evaluations - out.evaluations_warmup
        out.counts = {name: count - out.counts_warmup.get(name, 0) for name, count in self.counts.items()}
        out.first_failure = self.first_failure
        out.seconds_warmup, out.seconds_total = self.seconds_warmup, self.seconds
        finished = self.done == job.warmup + job.draws and self.warmup_iterations is not None
        out.seconds = self.seconds - self.seconds_warmup if finished else 0.0
        return out


class KernelChain(Chain):
    """A chain of a kernel sampler."""

    def __init__(self, posterior: Posterior, job: Job, *place: Any, value: ChainValue | None = None) -> None:
        """Begin, or go on from `value`; the given room then begins after the rows of that value."""
        super().__init__(posterior, job, *place)
        self.sampler = cast(Sampler, sampler(job.method))
        self.guard = Guard(self.model, lambda: self.board.is_stopped)
        target = self.guard.target()
        if value is None:
            nowhere = np.full(posterior.dim, np.nan)
            rng, none = np.random.default_rng(self.seeds), np.empty((0, posterior.dim))
            value = ChainValue(self.index, rng, target.failures, nowhere, none, warm=self.init.warm)
        else:
            self.model.carry(value.model)
        self.value: ChainValue = value
        self.target = target._replace(failures=value.failures, transport=value.transport)
        self.step_seconds = 0.0
        self.resumed_at = self.turn_began = 0.0
        self.held: dict[str, Any] = {}  # of a slow model: the value before the block under way
        self.buffer = empty_trace(10, posterior.dim, len(self.sampler.FACTS.columns))

    def _run(self) -> Iterator[None]:
        """Yields at the end of a block when the chain's turn has lasted long enough.

        Blocks are short at first and where warm-up is cut for the history; a turn for each would leave a
        chain in warm-up far behind one that is sampling.
        """
        self.turn_began = time.perf_counter()
        self.resumed_at = self.turn_began - self.value.seconds
        if self.guard.is_slow:
            self._hold()
        else:  # its evaluations are not refused, so there will be nothing to go back to
            self._set_down()
        try:
            yield from self._go_on()
        except StoppedError:
            vars(self.value).update(self.held)

    def _go_on(self) -> Iterator[None]:
        value = self.value
        if value.warmup_iterations is None:
            yield from self._warm_up()
            if value.warmup_iterations is None:
                self._set_down()
                return
            value.learnt = self._adaptation()
            value.failures_warmup = int(value.failures.total[0])
            value.counts_warmup, value.evaluations_warmup = self.model.counts(), value.evaluations
            value.seconds_warmup = self._spent()
        yield from self._sample()
        self._set_down()
        if self.draws.n == self.draws.rows:
            self.board.finish(self.index)

    def _warm_up(self) -> Iterator[None]:
        """Find the start and run all stages of warm-up, and note the history now and then."""
        value, job, d = self.value, self.job, self.posterior.dim
        if value.place is None:
            value.start, value.tops = self._find_start()
            self.target = self.guard.guard_target(self.target)
        self.target = self.target._replace(transport=value.transport)
        warm = self.init.warm
        segments = plan(self.sampler, job.settings, job.warmup, d, warm)
        groups = variable_groups(self.posterior.unconstrained_names)
        start = value.start.copy()
        warm_up = WarmUp(
            segments,
            self.target,
            start,
            value.rng,
            value.place,
            value.state,
            groups,
            warm,
            self.init.modes,
        )
        marks = _note_marks(job.warmup, d)
        apart = not learn_together(job)
        while warm_up.n_left or ((apart or warm_up.place.stage < 0) and (yield from self._learn(warm_up))):
            end = min([value.done + warm_up.n_left, *[mark for mark in marks if mark > value.done]])
            while value.done < end:
                trace = self._room(end - value.done)
                began = time.perf_counter()
                warm_up.run(trace)
                self._keep(warm_up)
                self._end_block(trace, began, value.done, self.warmup, self.write_warmup)
                if value.done == end:
                    self._note(warm_up, trace)
                warm_up.target = self.guard.guard_target(warm_up.target)
                yield from self._pause()
        self._keep(warm_up)
        if apart or not value.is_waiting:
            value.warmup_iterations, value.done = value.done, job.warmup

    def _learn(self, warm_up: WarmUp) -> Generator[None, None, bool]:
        """Enter the next stage of warm-up, if there is one; yields while this has to wait.

        Where evaluations are short, chains of a process learn one after another: Python's lock would go to
        and fro between them with each evaluation.
        """
        is_alone = self.guard.seconds < _SHORT_SECONDS
        while is_alone and not _learning.acquire(timeout=_BLOCK_SECONDS):
            self._keep(warm_up)
            self._set_down()
            yield
        began = time.perf_counter()
        try:
            return warm_up.next_stage()
        finally:
            if is_alone:
                self.learning_seconds += time.perf_counter() - began
                _learning.release()

    def _keep(self, warm_up: WarmUp) -> None:
        """Take over what warm-up has come to."""
        value, self.target = self.value, warm_up.target
        value.place, value.state, value.transport = warm_up.place, warm_up.state, warm_up.target.transport

    def _adaptation(self) -> dict[str, np.ndarray]:
        """What the method has learnt, and the coordinates that it moves in, if it or its pilot learns any."""
        learnt = knowledge(self.sampler, self.value.state)
        if self.sampler.FACTS.transports or len(self.value.transport):
            learnt = describe(self.value.transport, self.posterior.dim) | learnt
        return learnt

    def _sample(self) -> Iterator[None]:
        """Draws, with everything learnt frozen, unless the method goes on adapting ever more rarely."""
        value, job = self.value, self.job
        goes_on = keeps_adapting(self.sampler, job.settings)
        end = job.draws if self.goal == self.draws.rows else self.goal * job.thin
        while (left := job.warmup + end - value.done) > 0:
            trace = self._room(left)
            began = time.perf_counter()
            value.state = advance(
                self.sampler, self.target, job.settings, value.state, value.rng, goes_on, trace
            )
            self._end_block(trace, began, value.done - job.warmup, self.draws, self.write_values)
            self.target = self.guard.guard_target(self.target)
            yield from self._pause()

    def _end_block(
        self, trace: Trace, began: float, offset: int, draws: Draws | None, write_values: Writer
    ) -> None:
        """Keep every thin-th iteration of a block in `draws`, and say how far the chain is.

        `offset` is the number of iterations before the block since warm-up, or the draws, began.
        """
        value, n = self.value, len(trace.logp)
        spent = time.perf_counter() - began
        self.step_seconds = spent / n
        self.guard.raise_pending()
        self.guard.note(spent / max(1, int(trace.n_steps.sum())))
        if draws is not None:
            rows = slice(-(offset + 1) % self.job.thin, None, self.job.thin)
            draws.write(write_values, trace, rows, offset)
        value.done += n
        value.evaluations += int(trace.n_steps.sum())
        # One after another: the last digit of NumPy's own sum would tell where blocks end.
        value.accept_sum = float(np.cumsum(np.append(value.accept_sum, trace.accept_prob))[-1])
        value.accept_count += n
        sampling = float(value.warmup_iterations is not None)
        acceptance = float(trace.accept_prob.mean())
        self.board.post(self.index, value.done, sampling, acceptance, trace.step_size[-1], 0.0)

    def _pause(self) -> Iterator[None]:
        """Let another chain have its turn, if this one has run for long enough."""
        if self.guard.is_slow:
            self._hold()
        if time.perf_counter() - self.turn_began >= _BLOCK_SECONDS:
            self._set_down()
            yield
            self.turn_began = time.perf_counter()

    def _hold(self) -> None:
        """Keep a copy of the value, to go back to it where the next block is cut off."""
        self._set_down()
        self.held = copy.deepcopy(vars(self.value))

    def _set_down(self) -> None:
        """Complete the value, so that it can be taken up elsewhere."""
        value = self.value
        value.seconds = self._spent()
        value.model, value.counts = self.model.carried(), self.model.counts()
        value.rows = self.draws.n
        value.warmup_rows = 0 if self.warmup is None else self.warmup.n

    def _spent(self) -> float:
        """Seconds that the chain has been run for, here and before it was taken up."""
        return time.perf_counter() - self.resumed_at

    def result(self) -> ChainResult:
        value = self.value
        if value.failures.total[0] and not value.first_failure:
            gradient = uses_gradient(self.sampler, self.job.settings)
            value.first_failure = self.posterior.failure(value.failures.first, gradient)
        return value.result(self.job, self.draws, self.warmup, self.posterior.library)

    def _find_start(self) -> Start:
        facts = self.sampler.FACTS
        return find(
            self.init,
            self.posterior,
            cast(Model, self.guard),
            self.index,
            self.value.rng,
            use_gradient=uses_gradient(self.sampler, self.job.settings),
            ascend=climbs(self.sampler, self.job.settings),
            use_hessian=facts.hessian,
        )

    def _room(self, most: int) -> Trace:
        """Room for a block, which takes about the same time as every other by the pace of the last one."""
        d, held = self.posterior.dim, len(self.buffer.logp)
        size = 1
        if self.step_seconds > 0.0:
            longest = min(10 * held, max(1, _BLOCK_NUMBERS // d))
            size = min(most, int(np.clip(_BLOCK_SECONDS / self.step_seconds, 1, longest)))
        if size > held:
            self.buffer = empty_trace(size, d, self.buffer.own.shape[1])
        return self.buffer.part(slice(0, size))

    def _note(self, warm_up: WarmUp, trace: Trace) -> None:
        """Append to the history what warm-up has come to, with the acceptance since the last note.

        Where only the pilot or only the method has a name, the notes of the other one hold NaN.
        """
        value = self.value
        row: dict[str, Any] = {
            "iteration": value.done,
            "stage": warm_up.label,
            "acceptance_rate": value.accept_sum / value.accept_count,
        }
        if not np.isnan(trace.step_size[-1]):
            row["step_size"] = float(trace.step_size[-1])
        if self.posterior.dim <= SPECTRUM_LIMIT:
            row |= history(warm_up.segment.sampler, value.state)
        before = len(value.history.get("iteration", ()))
        for name in {**value.history, **row}:
            value.history.setdefault(name, [np.nan] * before).append(row.get(name, np.nan))
        value.accept_sum, value.accept_count = 0.0, 0


def _note_marks(warmup: int, d: int) -> list[int]:
    """Iterations of warm-up after which the history is noted. They depend on nothing but the run's size."""
    most = _NOTES if d <= 100 else max(5, _NOTES * 100 // d)
    count = min(most, max(1, warmup // _NOTE_EVERY))
    return sorted({warmup * k // count for k in range(1, count + 1)} - {0})
