"""From rows of draws to datasets: which group each quantity is in, and what its dimensions are called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray

from ..model.description import Description
from ..run.draws import Stack
from ..run.request import Request
from .container import Groups
from .labels import SAMPLE_DIMS, Labels


class Schema(NamedTuple):
    """How the rows of a run are named in its result."""

    description: Description
    labels: Labels
    moved: Mapping[str, tuple[str, str]]  # of quantities that are not in the posterior: group and name there

    @classmethod
    def of(cls, request: Request, description: Description) -> Schema:
        """The schema for the arguments of a run."""
        return cls(description, Labels(request.coords, request.dims), moved_quantities(request.quantities))

    def quantity(self, group: str, name: str) -> str:
        """The quantity of the program that a variable of a group holds."""
        return next((quantity for quantity, place in self.moved.items() if place == (group, name)), name)

    def draws(self, rows: Stack, chains: Sequence[int]) -> Groups:
        """The groups of draws; arrays are (chain, draw, ...)."""
        groups = self.quantities(rows.values, chains)
        if self.description.dim:
            groups["sample_stats"] = _stats(rows.stats, chains)
        if rows.x is not None:
            groups["unconstrained_posterior"] = self._unconstrained_posterior(rows.x, chains)
        return groups

    def warmup(self, rows: Stack, chains: Sequence[int]) -> Groups:
        """The groups of the iterations of warm-up."""
        variables = self.description.variables.items()
        values = {name: each.take(rows.values) for name, each in variables if name not in self.moved}
        return {
            "warmup_posterior": self.labels.dataset(values, _sample_coords(chains, rows.values.shape[1])),
            "warmup_sample_stats": _stats(rows.stats, chains),
        }

    def quantities(self, values: np.ndarray, chains: Sequence[int]) -> Groups:
        """The posterior, and the groups of what is not in it; `values` are (chain, draw, column)."""
        arrays: dict[str, dict[str, np.ndarray]] = {"posterior": {}}
        for name, variable in self.description.variables.items():
            group, own = self.moved.get(name, ("posterior", name))
            arrays.setdefault(group, {})[own] = variable.take(values)
        coords = _sample_coords(chains, values.shape[1])
        return {name: self.labels.dataset(group, coords) for name, group in arrays.items()}

    def _unconstrained_posterior(self, x: np.ndarray, chains: Sequence[int]) -> xarray.Dataset:
        names = self.description.unconstrained_names
        coords = _sample_coords(chains, x.shape[1]) | {"unconstrained": names}
        return xarray.Dataset({"x": ((*SAMPLE_DIMS, "unconstrained"), x)}, coords=coords)


def moved_quantities(names: Mapping[str, Mapping[str, str]]) -> dict[str, tuple[str, str]]:
    """Group and name of each quantity that is not in the posterior; `names` has quantities by group."""
    return {quantity: (group, own) for group, given in names.items() for quantity, own in given.items()}


def _sample_coords(chains: Sequence[int], n: int) -> dict[str, Any]:
    return {"chain": list(chains), "draw": np.arange(n)}


def _stats(stats: Mapping[str, np.ndarray], chains: Sequence[int]) -> xarray.Dataset:
    coords = _sample_coords(chains, next(iter(stats.values())).shape[1])
    return xarray.Dataset({name: (SAMPLE_DIMS, value) for name, value in stats.items()}, coords=coords)


def stack_chains(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """One array (chains, ...); where chains have come to different lengths, shorter ones end in NaN."""
    if len({array.shape for array in arrays}) == 1:
        return np.stack(arrays)
    sides = np.max([array.shape for array in arrays], axis=0)
    whole = np.full((len(arrays), *sides), np.nan)
    for row, array in zip(whole, arrays, strict=True):
        row[tuple(slice(n) for n in array.shape)] = array
    return whole
