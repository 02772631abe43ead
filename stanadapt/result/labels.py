"""Names of dimensions and their coordinates, checked before a run."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import xarray

from .. import check
from ..errors import ArgumentError, ModelError
from ..model.labelled_data import labels_of
from ..model.posterior import Posterior

SAMPLE_DIMS = ("chain", "draw")


def name_levels(name: str) -> str:
    """The coordinate that has the levels of a categorical among the data."""
    return f"{name}_levels"


class Labels:
    """Names of dimensions and coordinates: the user's, or `theta_dim_0` with 0, 1, ..., as ArviZ has it."""

    def __init__(self, coords: Mapping[str, Sequence[Any]], dims: Mapping[str, Sequence[str]]) -> None:
        self.coords, self.dims = coords, dims

    @classmethod
    def from_user(
        cls, coords: Mapping[str, Sequence[Any]], dims: Mapping[str, Sequence[str]], posterior: Posterior
    ) -> Labels:
        """The labels that a user gives for the variables of a posterior.

        Raises
        ------
        ArgumentError
            dims of an unknown variable, too many or taken names, or coords of another length.
        ModelError
            A variable has the name of a dimension of every result.
        """
        observed = posterior.data_shapes
        drawn = {name: variable.shape for name, variable in posterior.variables.items()}
        shapes = observed | drawn
        for name in observed:
            check.label("data: the name", name)
        for name in SAMPLE_DIMS:
            if name in posterior.variables:
                raise ModelError(
                    f"model: its variable {name} has the name of a dimension of the result; rename it"
                )
        for name, given in dims.items():
            beside = {each for group in (observed, drawn) if name in group for each in group}
            _check_dims(name, given, shapes, beside)
        for name, labelled in coords.items():
            if not _is_flat(labelled):
                raise check.refusal(f"coords[{name!r}]", labelled, "a list of labels, one for each entry")
        labels = cls(coords, dims)._with_own(posterior, shapes)
        labels._check_names(observed)
        labels._check_names(drawn)
        labels._check_lengths(shapes)
        labels._check_used(shapes)
        return labels

    def _with_own(self, posterior: Posterior, shapes: Mapping[str, tuple[int, ...]]) -> Labels:
        """Add the labels of the model itself, where the user gives no others."""
        own_dims, own_coords = (dict(getattr(posterior.model, name, {})) for name in ("dims", "coords"))
        coords_of_data, dims_of_data = labels_of(posterior.code, posterior.labels)
        own_dims, own_coords = own_dims | dims_of_data, own_coords | coords_of_data
        dims = {name: given for name, given in own_dims.items() if name in shapes} | dict(self.dims)
        used = {name for given in dims.values() for name in given}
        coords = {name: given for name, given in own_coords.items() if name in used} | dict(self.coords)
        return Labels(coords, dims)

    def _check_names(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Refuse variables of one group of the result with the name of a dimension there."""
        for name, shape in shapes.items():
            dims = self.names(name, shape)
            if len(set(dims)) < len(dims):
                raise check.refusal(f"dims[{name!r}]", self.dims[name], "different from names left out")
            for dim in dims:
                if dim in shapes:
                    raise ModelError(
                        f"model: its variable {dim} has the name of a dimension of {name}; rename one of the "
                        f"two, or name the dimension: dims={{{name!r}: [...]}}"
                    )

    def _check_lengths(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        lengths: dict[str, tuple[int, str]] = {}
        for name, shape in shapes.items():
            for dim, length in zip(self.names(name, shape), shape, strict=True):
                if dim in self.coords and len(self.coords[dim]) != length:
                    raise check.refusal(
                        f"coords[{dim!r}]", self.coords[dim], f"of length {length}, as {name} has it"
                    )
                known, where = lengths.setdefault(dim, (length, name))
                if known != length:
                    raise ArgumentError(
                        f"dims: {dim!r} has length {known} in {where} and {length} in {name}; it must be "
                        "the same"
                    )

    def _check_used(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Refuse coordinates of a dimension that no variable has."""
        used = {name for given in self.dims.values() for name in given}
        used |= {f"{name}_dim_{i}" for name, shape in shapes.items() for i in range(len(shape))}
        for name in self.coords:
            if name not in used:
                raise ArgumentError(
                    f"coords[{name!r}] is no dimension: name it in dims, for the variables that have it"
                    f"{check.nearest(name, used)}"
                )

    def dataset(self, arrays: Mapping[str, np.ndarray], head: Mapping[str, Any]) -> xarray.Dataset:
        """Arrays whose first axes have the coordinates in `head`.

        All at once: xarray takes minutes to add some thousands of variables one after another.
        """
        coords, variables = dict(head), {}
        for name, array in arrays.items():
            shape = array.shape[len(head) :]
            dims = self.names(name, shape)
            coords |= {
                dim: list(self.coords[dim]) if dim in self.coords else np.arange(length)
                for dim, length in zip(dims, shape, strict=True)
            }
            variables[name] = ((*head, *dims), array)
        return xarray.Dataset(variables, coords=coords)

    def label(self, group: xarray.Dataset) -> xarray.Dataset:
        """A group with the coordinates as they were given: a file has dates in another unit."""
        return group.assign_coords(
            {dim: list(given) for dim, given in self.coords.items() if dim in group.dims}
        )

    def names(self, name: str, shape: tuple[int, ...]) -> list[str]:
        """The dimensions of a variable."""
        given = list(self.dims.get(name, ()))
        return [given[i] if i < len(given) else f"{name}_dim_{i}" for i in range(len(shape))]


def _check_dims(
    name: str, given: Any, shapes: Mapping[str, tuple[int, ...]], beside: Collection[str]
) -> None:
    """Refuse names of the dimensions of a variable that xarray would refuse after the run.

    `beside` has the variables of its groups.
    """
    names = isinstance(given, Sequence) and not isinstance(given, str)
    if not names or not all(isinstance(dim, str) and dim for dim in given):
        raise check.refusal(f"dims[{name!r}]", given, "a list of names of dimensions")
    for dim in given:
        check.label(f"dims[{name!r}]", dim)
    check.choice("dims: variable", name, shapes)
    if len(given) > len(shapes[name]):
        raise check.refusal(f"dims[{name!r}]", given, f"a list of at most {len(shapes[name])} names")
    if len(set(given)) < len(given) or set(given) & {*beside, *SAMPLE_DIMS}:
        allowed = "different names that are no variables, and not chain or draw"
        raise check.refusal(f"dims[{name!r}]", given, allowed)


def _is_flat(given: Any) -> bool:
    try:
        return np.ndim(given) == 1
    except ValueError:  # ragged
        return False
