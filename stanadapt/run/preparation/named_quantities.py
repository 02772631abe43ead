"""Generated quantities that a user names: what the posterior calls them, and whether they fit their data."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Protocol

from ... import check
from ...errors import ArgumentError, ModelError
from ...model.posterior import Posterior
from ..request import Request


class Naming(Protocol):
    """Arguments that name quantities of a model for groups of a result: those of `sample`, for instance."""

    @property
    def dims(self) -> Mapping[str, Sequence[str]]: ...

    @property
    def quantities(self) -> dict[str, Mapping[str, str]]:
        """By group of the result: the generated quantities that go there, with their names in it."""
        ...


def posterior_names(naming: Naming, posterior: Posterior) -> dict[str, dict[str, str]]:
    """The same with the names that quantities have in a posterior, by group.

    Models that make replicated data on request make predictions in the same way, and call them the same.
    """
    names = {}
    for group, given in naming.quantities.items():
        made = "posterior_predictive" if group == "predictions" else group
        names[group] = {posterior.description.quantity(made, name): own for name, own in given.items()}
    return names


def name_quantities(request: Request, posterior: Posterior) -> Request:
    """The request with the names that quantities have in a posterior."""
    names = posterior_names(request, posterior)
    return request._replace(
        log_likelihood=names["log_likelihood"], posterior_predictive=names["posterior_predictive"]
    )


def check_quantities(naming: Naming, posterior: Posterior) -> None:
    """Refuse a posterior without quantities, and names that are no generated quantities of it."""
    if posterior.n_values == 0:
        raise ModelError("model: it has no parameters and no generated quantities, so nothing to draw")
    owners: dict[str, str] = {}
    for argument, names in naming.quantities.items():
        for name in names:
            check.choice(argument, name, posterior.generated_quantities)
            if name in owners:
                raise ArgumentError(f"{owners[name]} and {argument} both name {name!r}; only one may")
            owners[name] = argument
            _check_owner(argument, name, naming, posterior)


def _check_owner(argument: str, quantity: str, naming: Naming, posterior: Posterior) -> None:
    """Refuse a name in the group that no data have, and data whose shape differs from the quantity's."""
    own = naming.quantities[argument][quantity]
    if own == quantity:
        return
    data = posterior.data_shapes
    shape = posterior.generated_quantities[quantity].shape
    if quantity.endswith(f":{own}"):  # made by the model, whose shape is right
        data[own] = shape
    if argument == "predictions" and own not in data:  # of data that nobody has seen
        return
    check.choice(f"{argument}: the data of {quantity}", own, data)
    # A likelihood has one value for all components of an observation.
    wanted = data[own][: len(shape)] if argument == "log_likelihood" else data[own]
    if shape != wanted:
        raise ArgumentError(
            f"{argument}: {quantity} has shape {shape}, and the data {own} have {data[own]}; they must be "
            "alike"
        )
    given = naming.dims.get(quantity)
    if given is not None and list(given) != list(naming.dims.get(own, ())):
        raise ArgumentError(
            f"dims[{quantity!r}] is not allowed: {quantity} is named {own} in the result, and has its "
            "dimensions"
        )


def describe_quantities(naming: Naming) -> dict[str, str]:
    """For the result's attributes: by group, the names that differ from the program's names."""
    others = {
        group: {own: quantity for quantity, own in names.items() if own != quantity}
        for group, names in naming.quantities.items()
    }
    others = {group: names for group, names in others.items() if names}
    return {"quantities": json.dumps(others)} if others else {}
