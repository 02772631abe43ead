"""The contract of backends: what each of them offers to the rest of the package."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from ...errors import DataError, ModelError
from ...target import NativeTarget
from ..includes import ProgramText

# Writes n unconstrained points (n, d) as rows of constrained values (n, c), in place. The last argument, (n,)
# int64, has the iterations of the points, from 0 on: the random numbers of a row depend on them.
Writer = Callable[[np.ndarray, np.ndarray, np.ndarray], None]
# The same, and returns which rows (n,) have quantities that failed, whose values are NaN.
CheckedWriter = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


class Model(Protocol):
    """A log density with data, opened."""

    backend: str  # the name of its backend's file: "stanli", "bridgestan" or "python"
    library: str  # what runs it, with its version
    dim: int  # number of unconstrained parameters
    thread_safe: bool  # whether chains may run in threads
    has_gradient: bool
    noisy: bool  # whether the density is only estimated, with new random numbers at every evaluation

    def names(self, *, transformed: bool, generated: bool) -> list[str]:
        """Flat names of the constrained values, `theta.1.2` for theta[1, 2], last index slowest."""
        ...

    def unconstrained_names(self) -> list[str]:
        """Flat names of the unconstrained parameters."""
        ...

    def target(self) -> NativeTarget:
        """The density as kernels see it, with failure counts of its own."""
        ...

    def log_density(self, x: np.ndarray) -> float:
        """Log density at `x` (d,). Raises RuntimeError with the model's message."""
        ...

    def log_density_gradient(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """Log density and its gradient at `x` (d,). Raises RuntimeError with the model's message."""
        ...

    def writer(self, seed: int) -> Writer:
        """A function that constrains draws and evaluates generated quantities.

        Random numbers of generated quantities are a function of `seed`, 0 to 2**64 - 1, and the iteration
        alone. Earlier rows and the ends of blocks do not change them.
        """
        ...

    def checked_writer(self, seed: int) -> CheckedWriter:
        """The same, which says where quantities failed."""
        ...

    def refusal(self, x: np.ndarray, seed: int, iteration: int) -> str:
        """The model's message where quantities failed at the point `x` (d,); nothing where it has none."""
        ...

    def unconstrain(self, values: Mapping[str, Any]) -> np.ndarray:
        """The point (d,) of constrained values. Raises RuntimeError with the model's message."""
        ...

    def unconstrain_flat(self, values: np.ndarray) -> np.ndarray:
        """The same for values in the order of `names`; no other values follow."""
        ...

    def unconstrain_rows(self, values: np.ndarray) -> np.ndarray:
        """The points (n, d) of rows (n, c) in the order of `names`; NaN where the model refuses a row."""
        ...

    def identity(self) -> bytes:
        """Bytes that distinguish this model from others, where the model has no program text."""
        ...

    def for_chain(self, index: int, seeds: np.random.SeedSequence) -> Model:
        """The model that chain `index` evaluates: this one, or an equal one.

        It is another one where two chains would wait for each other inside one model, or where the
        density draws random numbers: then those of a chain come from `seeds`, which no other chain has.
        """
        ...

    def counts(self) -> dict[str, int]:
        """The counts of a chain's model since it was made: name -> number, for the record."""
        ...

    def carried(self) -> dict[str, Any]:
        """The state of a chain's model beside its program and data: random numbers, and counts."""
        ...

    def carry(self, given: Mapping[str, Any]) -> None:
        """Go on with the state that another model of the same chain has `carried`."""
        ...

    def raise_pending(self) -> None:
        """Raise the exception that a Python callable ended a block with, if there is one."""
        ...


class RefusedError(ModelError):
    """A backend does not cover this valid program; another one may."""


class RefusedDataError(DataError):
    """A backend finds that values do not go together; another backend may accept them."""


class ProgramBackend(Protocol):
    """The file of a backend that opens Stan programs."""

    ATTEMPT: str  # what it is about to do with a program that another one refused, such as "Compiling it"

    def is_at_hand(self, program: ProgramText) -> bool:
        """Whether it can open a program here and now, without anything that would have to be downloaded."""
        ...

    def open_program(self, program: ProgramText, data: str, seed: int) -> Model:
        """Open a Stan program with data (JSON text).

        Raises
        ------
        ModelError
            The program does not compile.
        RefusedError
            The program is valid, and the backend does not cover it.
        RefusedDataError
            The backend says that the data do not fit, and may be mistaken.
        DataError
            The data do not fit the program.
        """
        ...


class ObjectBackend(Protocol):
    """The file of a backend for objects that hold a log density, with the data that it has been made with."""

    def adopt(self, model: Any, data: Any) -> tuple[Model, dict[str, Any]] | None:
        """The object as a model, and its data for the record; None where the object is of another kind.

        It must tell the kinds apart without importing the object's library, because that may not be
        installed. Raises DataError where `data` are given and the object has its own.
        """
        ...


class ChainPlan(NamedTuple):
    """The request to a program that runs whole chains of Stan's NUTS, beside the settings."""

    chain: int
    seed: int  # of this chain alone, 1 to 2**31 - 1
    warmup: int
    draws: int
    save_warmup: bool
    stopped: Callable[[], bool]  # whether the run is to end
    tell: Callable[[int], None]  # to be told the iterations done, where they are known


class StanDraws(NamedTuple):
    """The output of Stan's NUTS for one chain; rows of warm-up come first, where they were asked for."""

    names: list[str]  # of the columns, flat as in `Model.names`; generated quantities may be missing
    values: np.ndarray  # (n, c) constrained
    stats: dict[str, np.ndarray]  # Stan's name, such as `lp__`, -> (n,)
    step_size: float
    inverse_metric: np.ndarray  # (d,), or (d, d) where it is dense
    seconds: tuple[float, float] | None  # of warm-up and of the draws, where they are known apart


class StanProgram(Protocol):
    """A Stan program with data, in a program that can run Stan's NUTS on it."""

    library: str  # what runs it, with its version

    def nuts(
        self, x: np.ndarray, plan: ChainPlan, *, metric: str, target_accept: float, max_tree_depth: int
    ) -> StanDraws:
        """One chain from the unconstrained point `x` (d,), not thinned.

        Raises RuntimeError with the program's message where it fails, or was stopped.
        """
        ...
