"""What most models do: they count nothing, carry nothing from block to block, and serve every chain."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from ..variables import variables


class ModelDefaults(abc.ABC):
    """Members of `contract.Model` that a backend writes only where it differs."""

    has_gradient = True
    noisy = False

    @abc.abstractmethod
    def names(self, *, transformed: bool, generated: bool) -> list[str]: ...

    @abc.abstractmethod
    def unconstrain_flat(self, values: np.ndarray) -> np.ndarray: ...

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
