"""`prior_predictive`: draws from the prior of a Stan program, and replicated data from them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import xarray

from .. import check
from ..api import sample
from ..errors import ArgumentError
from ..model.program import observed_names
from ..model.source import Contents
from ..result.container import attributes, container, datasets
from .prior_program import prior_program

if TYPE_CHECKING:
    from ..result.container import InferenceData

_GROUPS = {  # of a result, and what they are called for draws from a prior
    "posterior": "prior",
    "posterior_predictive": "prior_predictive",
    "sample_stats": "sample_stats_prior",
}
_DATA = ("observed_data", "constant_data")


def prior_predictive(
    model: Any,
    data: Any = None,
    *,
    predictive: str | Sequence[str] | Mapping[str, str] = (),
    observed: str | Sequence[str] | None = None,
    method: str = "fisher_hmc",
    chains: int = 4,
    warmup: int | None = None,
    draws: int | None = None,
    seed: int | None = None,
    settings: Any = None,
    coords: Mapping[str, Sequence[Any]] | None = None,
    dims: Mapping[str, Sequence[str]] | None = None,
    workers: int | None = None,
    backend: str = "auto",
    progress: bool = True,
    include_paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
) -> InferenceData:
    """Draw from the prior of a Stan program, with its generated quantities.

    If the program declares `int prior_only` among its data, as brms writes it, that is 1 here. Otherwise the
    statements of the likelihood are left out of the program, if it can be told which these are: those whose
    outcome is data, on the left of a `~` or before the bar in `normal_lpdf(y | mu, sigma)`. A program in
    which a statement could be either is refused, in words.

    Parameters
    ----------
    model, data
        A Stan program as `sample` takes it, or a `Posterior` of one. The data need all that the program
        declares; values of the observed data are not used by the prior.
    predictive
        Names of the generated quantities that are replicated data, for the group prior_predictive; or a dict
        such as {"y": "y_rep"}, as for `sample`.
    observed
        Names of the data that the likelihood is of: statements that depend on them are the likelihood. By
        default they are the data that the program models.
    method, chains, warmup, draws, seed, settings, coords, dims, workers, backend, progress, include_paths
        As for `sample`, which draws from the prior: findings are warned of in the same way.

    Returns
    -------
    arviz.InferenceData or xarray.DataTree
        The groups prior, prior_predictive, sample_stats_prior, observed_data and constant_data. The attribute
        prior_from says how the prior was found, and likelihood_statements lists in JSON what was left out.

    Raises
    ------
    ArgumentError
        An argument is not allowed.
    ModelError, DataError
        The model is no Stan program; it cannot be told what its likelihood is; a parameter has no prior
        without it; or the data do not fit.

    Examples
    --------
    >>> prior = stanadapt.prior_predictive(
    ...     "eight_schools.stan", "eight_schools.json", predictive={"y": "y_rep"}, seed=1
    ... )
    """
    names = None if observed is None else check.names("observed", observed, "data")
    prior = prior_program(model, data, names, include_paths=include_paths)
    try:
        drawn = sample(
            Contents(prior.code),
            prior.data,
            method=method,
            chains=chains,
            warmup=warmup,
            draws=draws,
            seed=seed,
            settings=settings,
            coords=coords,
            dims=dims,
            workers=workers,
            backend=backend,
            progress=progress,
            posterior_predictive=predictive,
        )
    except ArgumentError as error:  # which names the argument of `sample`
        raise ArgumentError(str(error).replace("posterior_predictive", "predictive")) from error
    groups = datasets(drawn)
    facts = {"prior_from": prior.how, "likelihood_statements": json.dumps(prior.likelihood)}
    attrs = {name: value for name, value in attributes(drawn).items() if name != "model_code"} | facts
    held = {own: groups[name].copy() for name, own in _GROUPS.items() if name in groups}
    held |= _data(groups, set(names or observed_names(prior.whole)))
    for group in held.values():
        group.attrs.update(attrs)
    return container(held, attrs | {"model_code": prior.whole})


def _data(groups: Mapping[str, xarray.Dataset], modelled: set[str]) -> dict[str, xarray.Dataset]:
    """The data, of which the whole program models some: the prior models none."""
    data = xarray.merge(
        [groups[name] for name in _DATA if name in groups], compat="override", join="override"
    )
    named = modelled | {str(name) for name in groups.get("observed_data", ())}
    parts = zip(_DATA, (True, False), strict=True)
    chosen = {
        group: [str(name) for name in data.data_vars if (str(name) in named) == is_observed]
        for group, is_observed in parts
    }
    return {group: data[names] for group, names in chosen.items() if names}
