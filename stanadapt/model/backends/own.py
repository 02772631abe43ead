"""The base of models that are no Stan programs: a log density at the address of a C function.

Backends from outside of this package derive their models from `OwnModel`; docs/backends_contract.md is the
page for their authors.
"""

from __future__ import annotations

import abc
import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from ...target import LOG_DENSITY, LOG_DENSITY_GRADIENT, NativeTarget, native_target
from .contract import Writer
from .defaults import ModelDefaults

_POINTER = ctypes.POINTER(ctypes.c_double)


class Addresses(NamedTuple):
    """Where the C functions of a log density are, and their first argument."""

    log_density: int  # of a function with the signature of `LOG_DENSITY`
    log_density_gradient: int  # the same for `LOG_DENSITY_GRADIENT`; 0 where there is no gradient
    context: int = 0


class OwnModel(ModelDefaults):
    """A log density of d unconstrained parameters, with names. `contract.Model` says what each member means.

    A derived class sets `library` and `dim`, and has `addresses`, `unconstrained_names`, `identity` and,
    where its chains may run in processes, `__reduce__` or another way to be pickled. By default its variables
    are the unconstrained parameters; `names`, `constrain` and `unconstrain_flat` say otherwise.
    """

    backend = "own"
    library = "a library"
    dim = 0
    thread_safe = False
    data: Mapping[str, Any] = {}  # for the record: numbers and arrays
    modelled: frozenset[str] = frozenset()  # names of the data that the density models
    coords: Mapping[str, Sequence[Any]] = {}  # of dimensions that the model itself names
    dims: Mapping[str, Sequence[str]] = {}  # of variables and data, as far as the model names them
    notice = ""  # what a user is told before the first evaluation, which may take long

    @abc.abstractmethod
    def addresses(self) -> Addresses:
        """The C functions, valid for as long as the model lives."""

    @abc.abstractmethod
    def unconstrained_names(self) -> list[str]: ...

    @abc.abstractmethod
    def identity(self) -> bytes: ...

    def names(self, *, transformed: bool, generated: bool) -> list[str]:
        return self.unconstrained_names()

    def constrain(self, x: np.ndarray, values: np.ndarray, iterations: np.ndarray, seed: int) -> None:
        """Write unconstrained points `x` (n, d) as rows of `values` (n, c), in the order of all names.

        Random numbers of row i may depend on `seed` and `iterations[i]` alone.
        """
        values[:] = x

    def unconstrain_flat(self, values: np.ndarray) -> np.ndarray:
        return np.asarray(values, dtype=float)

    def with_quantities(self, log_likelihood: Sequence[str], posterior_predictive: Sequence[str]) -> Self:
        """The model with the quantities that a user asks for, as far as it makes them on request.

        They are generated quantities with names such as `log_likelihood:y.1`: the group, a colon, the name
        there.
        """
        return self

    def compile(self, tell: Callable[[str], None]) -> None:
        """Make ready what takes seconds, or `tell` the user in a line what will."""
        if self.notice:
            tell(f"stanadapt: {self.notice}")

    def target(self) -> NativeTarget:
        return native_target(*self.addresses(), self.dim)

    def log_density(self, x: np.ndarray) -> float:
        addresses, value = self.addresses(), np.full(1, np.nan)
        function = LOG_DENSITY(addresses.log_density)
        point = np.ascontiguousarray(x, dtype=float)
        self._check_code(function(addresses.context, True, True, _pointer(point), _pointer(value), None))
        return float(value[0])

    def log_density_gradient(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        addresses, value, score = self.addresses(), np.full(1, np.nan), np.full(self.dim, np.nan)
        function = LOG_DENSITY_GRADIENT(addresses.log_density_gradient)
        point = np.ascontiguousarray(x, dtype=float)
        arguments = _pointer(point), _pointer(value), _pointer(score)
        self._check_code(function(addresses.context, True, True, *arguments, None))
        return float(value[0]), score

    def writer(self, seed: int) -> Writer:
        def write(x: np.ndarray, values: np.ndarray, iterations: np.ndarray) -> None:
            self.constrain(x, values, iterations, seed)

        return write

    def _check_code(self, code: int) -> None:
        """Raise the error that a returned `code` means."""
        self.raise_pending()
        if code != 0:
            raise RuntimeError(f"{self.library} has no log density there (it returned {code})")


def _pointer(array: np.ndarray) -> Any:
    return array.ctypes.data_as(_POINTER)
