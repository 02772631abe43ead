"""Generated quantities that a user names: what the posterior calls them, and whether they fit their data."""

from __future__ import annotations

import json

from ... import check
from ...errors import ArgumentError, ModelError
from ...model.posterior import Posterior
from ..request import Request


def name_quantities(request: Request, posterior: Posterior) -> Request:
    """The request with the names that quantities have in a posterior."""
    quantity = posterior.description.quantity
    likelihood, predictive = "log_likelihood", "posterior_predictive"
    return request._replace(
        log_likelihood={quantity(likelihood, name): own for name, own in request.log_likelihood.items()},
        posterior_predictive={
            quantity(predictive, name): own for name, own in request.posterior_predictive.items()
        },
    )


def check_quantities(request: Request, posterior: Posterior) -> None:
    """Refuse a posterior without quantities, and names that are no generated quantities of it."""
    if posterior.n_values == 0:
        raise ModelError("model: it has no parameters and no generated quantities, so nothing to draw")
    for argument in ("log_likelihood", "posterior_predictive"):
        for name in getattr(request, argument):
            check.choice(argument, name, posterior.generated_quantities)
            _check_owner(argument, name, request, posterior)
    for name in request.log_likelihood:
        if name in request.posterior_predictive and name in posterior.generated_quantities:
            raise ArgumentError(f"log_likelihood and posterior_predictive both name {name!r}; only one may")


def _check_owner(argument: str, quantity: str, request: Request, posterior: Posterior) -> None:
    """Refuse a name in the group that no data have, and data whose shape differs from the quantity's."""
    own = getattr(request, argument)[quantity]
    if own == quantity:
        return
    data = posterior.data_shapes
    shape = posterior.generated_quantities[quantity].shape
    if quantity == f"{argument}:{own}":  # made by the model, whose shape is right
        data[own] = shape
    check.choice(f"{argument}: the data of {quantity}", own, data)
    # A likelihood has one value for all components of an observation.
    wanted = data[own][: len(shape)] if argument == "log_likelihood" else data[own]
    if shape != wanted:
        raise ArgumentError(
            f"{argument}: {quantity} has shape {shape}, and the data {own} have {data[own]}; they must be "
            "alike"
        )
    if quantity in request.dims:
        raise ArgumentError(
            f"dims[{quantity!r}] is not allowed: {quantity} is named {own} in the result, and has its "
            "dimensions"
        )


def describe_quantities(request: Request) -> dict[str, str]:
    """For the result's attributes: by group, the names that differ from the program's names."""
    asked = {
        "log_likelihood": request.log_likelihood,
        "posterior_predictive": request.posterior_predictive,
    }
    others = {
        group: {own: quantity for quantity, own in names.items() if own != quantity}
        for group, names in asked.items()
    }
    others = {group: names for group, names in others.items() if names}
    return {"quantities": json.dumps(others)} if others else {}
