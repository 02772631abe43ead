"""The description of a posterior in a result: names, shapes, and the library that evaluated it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from .variables import Variable, variables


class Description:
    """Names and shapes of a posterior's quantities, without the posterior."""

    def __init__(
        self,
        *,
        library: str,
        noisy: bool,
        unconstrained_names: list[str],
        flat_names: list[str],
        n_parameters: int,
        n_transformed: int,
        hash: str,
    ) -> None:
        """`flat_names`: of parameters, then of transformed parameters, then of generated quantities."""
        self.library, self.noisy, self.hash = library, noisy, hash
        self.unconstrained_names, self.flat_names = unconstrained_names, flat_names
        self.n_parameters, self.n_transformed = n_parameters, n_transformed

    def to_json(self) -> dict[str, Any]:
        """The arguments that make it again, for JSON."""
        names = (
            "library",
            "noisy",
            "unconstrained_names",
            "flat_names",
            "n_parameters",
            "n_transformed",
            "hash",
        )
        return {name: getattr(self, name) for name in names}

    @property
    def dim(self) -> int:
        """Number of unconstrained parameters."""
        return len(self.unconstrained_names)

    @property
    def n_values(self) -> int:
        """Number of columns of the constrained values."""
        return len(self.flat_names)

    def quantity(self, group: str, name: str) -> str:
        """The quantity that a group of the result calls `name`; each group may have its own."""
        own = f"{group}:{name}"
        return own if own in self.variables else name

    @cached_property
    def variables(self) -> dict[str, Variable]:
        """All quantities."""
        return variables(self.flat_names)

    @cached_property
    def parameters(self) -> dict[str, Variable]:
        """The parameters."""
        return _within(self.variables, 0, self.n_parameters)

    @cached_property
    def transformed_parameters(self) -> dict[str, Variable]:
        """The transformed parameters."""
        return _within(self.variables, self.n_parameters, self.n_parameters + self.n_transformed)

    @cached_property
    def generated_quantities(self) -> dict[str, Variable]:
        """The generated quantities."""
        return _within(self.variables, self.n_parameters + self.n_transformed, self.n_values)

    @property
    def complex_variables(self) -> list[str]:
        """Quantities of complex numbers, whose last axis has the real and the imaginary part."""
        ends = {index: name for name, each in self.variables.items() for index in [int(each.columns.flat[0])]}
        return [ends[i] for i, name in enumerate(self.flat_names) if i in ends and name.endswith(".real")]


def _within(all_variables: Mapping[str, Variable], start: int, stop: int) -> dict[str, Variable]:
    """Variables whose columns lie in [start, stop)."""
    return {
        name: variable
        for name, variable in all_variables.items()
        if start <= int(variable.columns.min()) < stop
    }
