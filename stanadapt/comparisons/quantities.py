"""The scalars of a comparison, and their places in results and in references."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .. import check
from ..diagnostics.statistics import row_names, select
from ..errors import ArgumentError
from ..model.posterior import Posterior
from ..model.steady import find_steady
from ..result.labels import SAMPLE_DIMS

if TYPE_CHECKING:
    from ..result.container import InferenceData


class Quantities:
    """The scalars of some variables of a posterior: all that move, each of them once.

    Attributes
    ----------
    names : list of str
        The variables.
    shapes : dict
        Their shapes.
    kept : numpy.ndarray
        For every scalar of them, in their order and row by row, whether it is one of the k that are compared.
    """

    def __init__(self, posterior: Posterior, var_names: Sequence[str] | None) -> None:
        self.names = _check_names(posterior, var_names)
        self.shapes = {name: posterior.variables[name].shape for name in self.names}
        steady = find_steady(posterior)
        columns = np.concatenate([posterior.variables[name].columns.ravel() for name in self.names])
        own = columns < len(steady)  # of what the program computes, all are looked at
        self.kept = np.ones(len(columns), bool)
        self.kept[own] = ~steady[columns[own]]
        if not self.kept.any():
            raise ArgumentError(f"var_names: nothing moves in {', '.join(self.names)}")
        self._flat = {
            ".".join([name, *(str(i + 1) for i in index)]): (name, index)
            for name, shape in self.shapes.items()
            for index in np.ndindex(*shape)
        }

    def __len__(self) -> int:
        return int(self.kept.sum())

    def labels(self, idata: InferenceData) -> list[str]:
        """Name the scalars as a result does: `theta[0]`, or by its coordinates."""
        every = row_names(select(idata, self.names))
        return [label for label, kept in zip(every, self.kept, strict=True) if kept]

    def draws(self, idata: InferenceData) -> np.ndarray:
        """Return the draws (chain, draw, k) of a result."""
        posterior = select(idata, self.names)
        arrays = {name: posterior[name].transpose(*SAMPLE_DIMS, ...).values for name in self.names}
        return self.gather(arrays)

    def gather(self, arrays: dict[str, np.ndarray]) -> np.ndarray:
        """Join arrays (..., *shape) by variable to one array (..., k), with NaN for missing variables."""
        first = next(iter(arrays.items()))
        head = first[1].shape[: first[1].ndim - len(self.shapes[first[0]])]
        every = [
            np.reshape(arrays[name], (*head, -1))
            if name in arrays
            else np.full((*head, int(np.prod(shape))), np.nan)
            for name, shape in self.shapes.items()
        ]
        joined = np.concatenate(every, axis=-1)
        return joined if self.kept.all() else np.ascontiguousarray(joined[..., self.kept])

    def place(self, name: str) -> tuple[str, tuple[int, ...]] | None:
        """Find the variable and index of a scalar that Stan calls `theta[1,2]` or `theta.1.2`."""
        return self._flat.get(re.sub(r"[\[,]\s*", ".", name.strip()).rstrip("] "))


def _check_names(posterior: Posterior, given: Sequence[str] | None) -> list[str]:
    if given is None:
        return list(posterior.parameters)
    names = [given] if isinstance(given, str) else given
    if not isinstance(names, Sequence) or not names:
        raise check.refusal("var_names", given, "a list of variables")
    for name in names:
        check.choice("var_names", name, posterior.variables)
    return list(dict.fromkeys(names))
