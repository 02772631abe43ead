"""Chains that a program outside of this package runs as a whole."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from .. import check
from ..errors import ChainError, InitializationError
from ..model.backends.contract import ChainPlan, Writer
from ..model.nuts_programs import nuts_program
from ..model.posterior import Posterior
from ..samplers import Engine, sampler
from ..samplers.base import WholeChain
from .chain import Chain
from .draws import ChainResult, Draws
from .inits import find
from .job import Job

_STOP_SECONDS = 0.3  # Ctrl-C may end a program before it is known here


@dataclass
class EngineValue:
    """An engine's chain beside its draws. Until the chain is complete, only its number is known."""

    index: int
    start: np.ndarray  # (d,) NaN before it is found
    library: str
    learnt: dict[str, np.ndarray] = field(default_factory=dict)
    warmup_iterations: int | None = None  # None before the chain is whole
    seconds_warmup: float | None = None  # of the chain's parts, where they are known
    seconds: float | None = None
    seconds_total: float = 0.0
    evaluations_warmup: int | None = None  # gradients; of warm-up they are known where it is kept
    evaluations: int | None = None
    done: int = 0  # iterations
    rows: int = 0  # written draws
    warmup_rows: int = 0
    goal: int = 0  # rows: all, where it runs

    @property
    def spent(self) -> float:
        """Seconds so far."""
        return self.seconds_total

    def result(self, job: Job, draws: Draws, warmup: Draws | None, library: str) -> ChainResult:
        """The result of the chain. An engine does not report failures."""
        return ChainResult(
            self.index,
            draws,
            warmup,
            self.start,
            self.library,
            tops=np.empty((0, self.start.size)),
            learnt=self.learnt,
            warmup_iterations=self.warmup_iterations or 0,
            failures_warmup=None,
            failures=None,
            first_failure=None,
            evaluations_warmup=self.evaluations_warmup,
            evaluations=self.evaluations,
            seconds_warmup=self.seconds_warmup,
            seconds=self.seconds,
            seconds_total=self.seconds_total,
        )


class EngineChain(Chain):
    """A chain of an engine: one block. Until its end it has no draws."""

    def __init__(self, posterior: Posterior, job: Job, *place: Any, value: EngineValue | None = None) -> None:
        super().__init__(posterior, job, *place)
        self.engine = cast(Engine, sampler(job.method))
        self.rng = np.random.default_rng(self.seeds)
        start = np.full(posterior.dim, np.nan)
        self.value: EngineValue = value or EngineValue(self.index, start, posterior.library)

    def _run(self) -> Iterator[None]:
        job, out = self.job, self.value
        if out.warmup_iterations is not None:  # it is whole
            return
        began = time.perf_counter()
        program = nuts_program(job.method, self.posterior)  # not earlier: it may hold a copy of large data
        out.library = program.library
        more = {"use_gradient": True, "ascend": False}
        x = find(self.init, self.posterior, self.model, self.index, self.rng, **more).x
        out.start = x.copy()
        # 31 bits, and not zero, are a seed wherever Stan runs.
        seed = max(1, int(self.seeds.generate_state(2, np.uint32)[1] >> 1))
        save_warmup = self.warmup is not None
        plan = ChainPlan(self.index, seed, job.warmup, job.draws, save_warmup, self._must_stop, self._tell)
        try:
            whole = self.engine.run(program, job.settings, x, plan)
            self._check_names(whole.names)
        except (RuntimeError, OSError) as error:
            if not self.board.is_stopped:
                time.sleep(_STOP_SECONDS)
            if self.board.is_stopped:
                return
            raise self._failure(error) from error
        n = len(whole.values) - job.draws
        out.evaluations = int(whole.stats["n_steps"][n:].sum())
        if self.warmup is not None:
            out.evaluations_warmup = int(whole.stats["n_steps"][:n].sum())
            self._keep(whole, slice(0, n), self.warmup, self.write_warmup)
            out.warmup_rows = self.warmup.n
        self._keep(whole, slice(n, None), self.draws, self.write_values)
        out.learnt, out.rows = whole.learnt, self.draws.n
        if whole.seconds is not None:
            out.seconds_warmup, out.seconds = whole.seconds
        out.seconds_total = sum(whole.seconds) if whole.seconds else time.perf_counter() - began
        out.warmup_iterations, out.done = job.warmup, job.warmup + job.draws
        acceptance = float(whole.stats["acceptance_rate"][n:].mean())
        step_size = float(whole.learnt["step_size"])
        self.board.post(self.index, job.warmup + job.draws, 1.0, acceptance, step_size, 1.0)
        yield

    def result(self) -> ChainResult:
        return self.value.result(self.job, self.draws, self.warmup, self.posterior.library)

    def _must_stop(self) -> bool:
        return self.board.is_stopped

    def _tell(self, done: int) -> None:
        done = min(done, self.job.warmup + self.job.draws - 1)  # the last one is done when the draws are here
        self.board.post(self.index, done, float(done > self.job.warmup), np.nan, np.nan, 0.0)

    def _keep(self, whole: WholeChain, rows: slice, draws: Draws, write: Writer) -> None:
        """Every thin-th of the rows, as for the other methods."""
        thinned = slice(self.job.thin - 1, None, self.job.thin)
        given = whole.values[rows]
        iterations = np.arange(len(given))[thinned]
        values, x = self._complete(whole.names, given[thinned], iterations, draws.x is not None, write)
        draws.append(values, x, {name: column[rows][thinned] for name, column in whole.stats.items()})

    def _complete(
        self, names: list[str], given: np.ndarray, iterations: np.ndarray, with_x: bool, write: Writer
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Values in the posterior's columns, and unconstrained draws where they are wanted.

        Columns that the program did not give are computed from the unconstrained draws.
        """
        posterior = self.posterior
        columns = {name: i for i, name in enumerate(self._names())}
        present = [columns[name] for name in names]
        missing = sorted(set(columns.values()) - set(present))
        values = np.full((len(given), posterior.n_values), np.nan)
        values[:, present] = given
        if not (with_x or missing):
            return values, None
        x = np.array([self._unconstrain(row) for row in values]).reshape(len(values), posterior.dim)
        if missing:
            inside = np.isfinite(x).all(axis=1)
            computed = np.empty((int(inside.sum()), posterior.n_values))
            write(x[inside], computed, iterations[inside])
            values[np.ix_(inside, missing)] = computed[:, missing]
        return values, x

    def _check_names(self, names: list[str]) -> None:
        """Refuse columns of another program, such as an old executable gives. Raises RuntimeError."""
        strange = sorted(set(names) - set(self._names()))
        lacking = sorted(set(self.posterior.names) - set(names))
        if strange or lacking:
            raise RuntimeError(
                "it ran another program than the one that is open, with the unknown variables "
                f"{', '.join(strange[:3]) or 'none'} and without {', '.join(lacking[:3]) or 'none'}"
            )

    def _names(self) -> list[str]:
        return self.posterior.model.names(transformed=True, generated=True)

    def _unconstrain(self, row: np.ndarray) -> np.ndarray:
        """The point of a draw; NaN where rounding has put a value on the boundary of its support."""
        try:
            return self.model.unconstrain_flat(row[: len(self.posterior.names)])
        except RuntimeError:
            return np.full(self.posterior.dim, np.nan)

    def _failure(self, error: Exception) -> ChainError | InitializationError:
        text = f"chain {self.index}: {self.value.library} failed: {check.one_line(error)}"
        kind = InitializationError if "initialization failed" in text.lower() else ChainError
        return kind(text)
