"""What most models do: they count nothing, carry nothing from block to block, and serve every chain."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from ..variables import variables
from .contract import CheckedWriter, Writer


class RowDefaults(abc.ABC):
    """What follows from a model's writer and its way back to unconstrained points."""

    dim: int

    @abc.abstractmethod
    def writer(self, seed: int) -> Writer: ...

    @abc.abstractmethod
    def unconstrain_flat(self, values: np.ndarray) -> np.ndarray: ...

    def unconstrain_rows(self, values: np.ndarray) -> np.ndarray:
        x = np.full((len(values), self.dim), np.nan)
        for point, row in zip(x, values, strict=True):
            with contextlib.suppress(RuntimeError):  # outside of the support
                point[:] = self.unconstrain_flat(row)
        return x

    def checked_writer(self, seed: int) -> CheckedWriter:
        write = self.writer(seed)

        def write_checked(x: np.ndarray, values: np.ndarray, iterations: np.ndarray) -> np.ndarray:
            write(x, values, iterations)
            return np.zeros(len(x), np.bool_)

        return write_checked

    def refusal(self, x: np.ndarray, seed: int, iteration: int) -> str:
        return ""


class ModelDefaults(RowDefaults):
    """Members of `contract.Model` that a backend writes only where it differs."""

    has_gradient = True
    noisy = False

    @abc.abstractmethod
    def names(self, *, transformed: bool, generated: bool) -> list[str]: ...

    def unconstrain(self, values: Mapping[str, Any]) -> np.ndarray:
        names = self.names(transformed=False, generated=False)
        flat = np.empty(len(names))
        for name, variable in variables(names).items():
            flat[variable.columns] = values[name]
        return self.unconstrain_flat(flat)

    def for_chain(self, index: int, seeds: np.random.SeedSequence) -> Self:
        return self

    def counts(self) -> dict[str, int]:
        return {}

    def carried(self) -> dict[str, Any]:
        return {}

    def carry(self, given: Mapping[str, Any]) -> None:
        return None

    def raise_pending(self) -> None:
        return None
