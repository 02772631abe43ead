"""Chains that a program outside of this package runs as a whole, and which program a posterior goes to."""

from __future__ import annotations

import importlib.util
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np

from . import check
from . import data as data_module
from .backends.base import StanProgram
from .chain import Chain, Draws, Job
from .errors import ArgumentError, ChainError, InitializationError, ModelError
from .inits import find
from .posterior import Posterior
from .program import draws_data
from .samplers import Engine, sampler
from .samplers.base import Plan, WholeChain

_STOP_SECONDS = 0.3  # Ctrl-C may end a program before it is known here


class EngineChain(Chain):
    """A chain of an engine: one block. Until its end it has no draws."""

    def __init__(self, posterior: Posterior, job: Job, *place: Any) -> None:
        super().__init__(posterior, job, *place)
        self.engine = cast(Engine, sampler(job.method))
        if posterior.dim:
            self.program = stan_program(posterior)
            self.out.library = self.program.library
        self.out.failures_warmup = self.out.failures = self.out.first_failure = None
        self.out.seconds_warmup = self.out.seconds = None

    def _run(self) -> Iterator[None]:
        job, out = self.job, self.out
        began = time.perf_counter()
        x = find(self.init, self.posterior, self.index, self.rng, use_gradient=True, ascend=False)
        out.start = x.copy()
        # 31 bits, and not zero, are a seed wherever Stan runs.
        seed = max(1, int(self.seeds.generate_state(2, np.uint32)[1] >> 1))
        save_warmup = out.warmup is not None
        plan = Plan(self.index, seed, job.warmup, job.draws, save_warmup, self._stopped, self._tell)
        try:
            whole = self.engine.run(self.program, job.settings, x, plan)
        except RuntimeError as error:
            if not self.board.stopped:
                time.sleep(_STOP_SECONDS)
            if self.board.stopped:
                return
            raise self._failure(error) from error
        out.learnt = whole.learnt
        if whole.seconds is not None:
            out.seconds_warmup, out.seconds = whole.seconds
        n = len(whole.values) - job.draws
        if out.warmup is not None:
            self._keep(whole, slice(0, n), out.warmup, self.write_warmup)
        self._keep(whole, slice(n, None), out.draws, self.write_values)
        out.seconds_total = sum(whole.seconds) if whole.seconds else time.perf_counter() - began
        acceptance = float(whole.stats["acceptance_rate"][n:].mean())
        step_size = float(whole.learnt["step_size"])
        self.board.post(self.index, job.warmup + job.draws, 1.0, acceptance, step_size, 1.0)
        yield

    def _stopped(self) -> bool:
        return self.board.stopped

    def _tell(self, done: int) -> None:
        self.board.post(self.index, done, float(done > self.job.warmup), np.nan, np.nan, 0.0)

    def _keep(self, whole: WholeChain, rows: slice, draws: Draws, write: Any) -> None:
        """Every thin-th of the rows, as for the other methods."""
        thinned = slice(self.job.thin - 1, None, self.job.thin)
        given = whole.values[rows][thinned]
        values, x = self._completed(whole.names, given, draws.x is not None, write)
        draws.put(values, x, {name: column[rows][thinned] for name, column in whole.stats.items()})

    def _completed(
        self, names: list[str], given: np.ndarray, with_x: bool, write: Any
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Values in the posterior's columns, and unconstrained draws where they are wanted.

        Columns that the program did not give are computed from the unconstrained draws.
        """
        posterior = self.posterior
        self._check_names(names)
        columns = {name: i for i, name in enumerate(posterior.model.names(transformed=True, generated=True))}
        values = np.full((len(given), posterior.n_values), np.nan)
        values[:, [columns[name] for name in names]] = given
        missing = [i for name, i in columns.items() if name not in names]
        if not (with_x or missing):
            return values, None
        x = np.array([self._unconstrained(row) for row in values]).reshape(len(values), posterior.dim)
        if missing:
            inside = np.isfinite(x).all(axis=1)
            computed = np.empty((int(inside.sum()), posterior.n_values))
            write(x[inside], computed)
            values[np.ix_(inside, missing)] = computed[:, missing]
        return values, x

    def _check_names(self, names: list[str]) -> None:
        """Refuse columns of another program, such as an old executable gives."""
        known = self.posterior.model.names(transformed=True, generated=True)
        strange = [name for name in names if name not in known]
        lacking = [name for name in self.posterior.names if name not in names]
        if strange or lacking:
            raise ChainError(
                f"chain {self.index}: {self.program.library} ran another program than the one that is open. "
                f"Unknown are {', '.join(strange[:3]) or 'none'}, missing {', '.join(lacking[:3]) or 'none'}"
            )

    def _unconstrained(self, row: np.ndarray) -> np.ndarray:
        """The point of a draw; NaN where rounding has put a value on the boundary of its support."""
        try:
            return self.model.unconstrain_flat(row[: len(self.posterior.names)])
        except RuntimeError:
            return np.full(self.posterior.dim, np.nan)

    def _failure(self, error: RuntimeError) -> ChainError | InitializationError:
        text = f"chain {self.index}: {self.program.library} ended it: {check.one_line(error)}"
        return (
            InitializationError(text) if re.search("initialization failed", text, re.I) else ChainError(text)
        )


def check_posterior(method: str, posterior: Posterior) -> None:
    """Refuse what no engine can run, before anything runs.

    Raises
    ------
    ArgumentError
        There is no Stan program at hand that stanli covers, and no executable of CmdStan.
    """
    if posterior.model.backend == "python":
        raise ArgumentError(
            f"method={method!r} needs a Stan program, and this target is made of Python functions: use "
            "another method, see stanadapt.methods()"
        )
    if function := draws_data(posterior.code):
        raise _random_data(method, f" ({function})")
    if posterior.dim:
        program = stan_program(posterior)
        if not posterior.code and getattr(program, "has_random_data", bool)():
            raise _random_data(method, "")


def _random_data(method: str, how: str) -> ArgumentError:
    return ArgumentError(
        f"method={method!r} is not allowed for this program: its transformed data draw random numbers{how}, "
        "and every chain would have its own. Draw them before, and pass them as data"
    )


def stan_program(posterior: Posterior) -> StanProgram:
    """What runs Stan's own sampler on a posterior: CmdStan where it was opened from one, else stanli."""
    data = data_module.to_json(posterior.data)
    if posterior.executable:
        _check_executable(posterior.executable)
        from .backends.cmdstan import CmdStanProgram

        return CmdStanProgram(posterior.executable, data, posterior.constrain)
    from .backends.stanli_nuts import StanliProgram

    if posterior.model.backend == "stanli":
        return StanliProgram.of_model(cast(Any, posterior.model))
    wanted = "it needs a Stan program that stanli covers, or a CmdStanModel with its executable"
    if not posterior.code:
        raise ArgumentError(f"method='nuts' cannot run a compiled library ({posterior.library}): {wanted}")
    try:
        return StanliProgram.of_code(posterior.code, data)
    except (ModelError, RuntimeError) as error:
        reason = check.one_line(error)
        raise ArgumentError(
            f"method='nuts' cannot run this program: {wanted}. stanli says: {reason}"
        ) from error


def _check_executable(executable: str) -> None:
    if not Path(executable).is_file():
        raise ArgumentError(f"method='nuts' needs the CmdStanModel's executable, and {executable} is gone")
    if importlib.util.find_spec("cmdstanpy") is None:
        raise ArgumentError(
            "method='nuts' with a CmdStanModel needs cmdstanpy: pip install stanadapt[cmdstan]"
        )
