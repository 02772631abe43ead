"""`generate_quantities`: quantities of a model over the draws of an earlier result."""

from __future__ import annotations

import datetime
import json
import os
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import check
from ..errors import ArgumentError, ModelError
from ..model.known_levels import with_known_levels
from ..model.labelled_data import labels_of
from ..model.plugins import check_backend
from ..model.posterior import Posterior, as_posterior
from ..result.build import data_groups
from ..result.container import OWN_GROUP, Groups, container, json_attribute
from ..result.labels import SAMPLE_DIMS, Labels
from ..result.schema import Schema, moved_quantities
from ..run.interrupts import raised_interrupts
from ..run.preparation.named_quantities import check_quantities, describe_quantities, posterior_names
from ..run.request import parse_labels, parse_quantities
from ..runs import memory_in_words
from .generation import Generated, generate
from .log_prior import GROUP as LOG_PRIOR
from .log_prior import LogPrior
from .saved_draws import SavedDraws, check_labels, known_levels, read_parameters, read_saved

if TYPE_CHECKING:
    from ..result.container import InferenceData

_OF_THE_DRAWS = (
    "sample_stats",
    OWN_GROUP,
    "unconstrained_posterior",
    LOG_PRIOR,
)  # groups that are taken over


class _Asked(NamedTuple):
    """The arguments, checked as far as they can be without the model."""

    seed: int
    workers: int
    backend: str
    progress: bool
    coords: Mapping[str, Sequence[Any]]
    dims: Mapping[str, Sequence[str]]
    log_likelihood: Mapping[str, str]  # generated quantity -> its name in the group
    posterior_predictive: Mapping[str, str]
    predictions: Mapping[str, str]
    log_prior: bool

    @property
    def quantities(self) -> dict[str, Mapping[str, str]]:
        """By group of the result: the generated quantities that go there, with their names in it."""
        return {
            "log_likelihood": self.log_likelihood,
            "posterior_predictive": self.posterior_predictive,
            "predictions": self.predictions,
        }


def generate_quantities(
    model: Any,
    result: InferenceData | str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    data: Any = None,
    *,
    seed: int | None = None,
    log_likelihood: str | Sequence[str] | Mapping[str, str] = (),
    posterior_predictive: str | Sequence[str] | Mapping[str, str] = (),
    predictions: str | Sequence[str] | Mapping[str, str] = (),
    log_prior: bool = False,
    coords: Mapping[str, Sequence[Any]] | None = None,
    dims: Mapping[str, Sequence[str]] | None = None,
    workers: int | None = None,
    backend: str = "auto",
    progress: bool = True,
    include_paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
) -> InferenceData:
    """Evaluate a model's generated quantities at the draws of an earlier result.

    The model may be the program of the fit with another block of generated quantities, or the same program
    with other data. Its parameters must be among the variables of the result, with the same shapes. Nothing
    is sampled again.

    Parameters
    ----------
    model, data
        As for `sample`. The levels of a categorical are numbered as in the data of `result`, also if the new
        data have some of them alone, or have them in another order.
    result
        A result of `sample`, the path of its netCDF file, or the folder of a run with `store`; the draws of
        another program in such a container; a `cmdstanpy.CmdStanMCMC`; the path of a Stan CSV file, or a list
        of such paths with a chain each.
    seed
        0 to 2**32 - 1, for the random numbers of the quantities. They depend on it, on the place of the chain
        and on that of the draw, and not on the number of workers. By default it is a fresh one, which the
        result's attribute quantities_seed holds.
    log_likelihood, posterior_predictive
        As for `sample`: the names of the generated quantities that are pointwise log likelihoods, or
        replicated data.
    predictions
        The names of the generated quantities that are predictions for data that were not fitted, likewise;
        they go into the group predictions. For a model of PyMC or NumPyro these are names of observed
        variables, which are replicated with the new data. If only predictions are named, the data go into the
        group predictions_constant_data, and the groups of the fitted data stay.
    log_prior
        Whether to add the group log_prior, as for `sample`. One that `result` has is taken over.
    coords, dims
        As for `sample`. By default variables have the dimensions that they have in `result`, as long as their
        shapes are the same.
    workers
        Number of threads; by default the number of cores.
    backend
        As for `sample`.
    progress
        Show a progress bar; if the output is no terminal, show lines.
    include_paths
        Folders for the files that the program includes, as for `sample`.

    Returns
    -------
    arviz.InferenceData or xarray.DataTree
        The group posterior has the parameters as they are in `result`, the transformed parameters, and the
        generated quantities that you did not name for other groups. Groups about the draws (sample_stats,
        adaptation, unconstrained_posterior) are those of `result`, and the attributes too. The attributes
        quantities_seed, quantities_backend, quantities_model_hash, quantities_code and quantities_failed tell
        about this call.

    Raises
    ------
    ArgumentError
        The result lacks parameters of the model, has them with other shapes or outside of their support; or
        an argument is not allowed.
    ModelError, DataError
        The model cannot be opened, has no quantities beside its parameters, or the data do not fit.
    EvaluationError
        The quantities fail at every draw. Where they fail at some draws (Stan's `reject`), they are NaN
        there; a warning and the attribute quantities_failed tell how many draws these are.

    Notes
    -----
    The draws are taken to the unconstrained scale and back, since this is where Stan's programs begin.
    Quantities that copy a constrained parameter therefore equal it up to rounding (about 1e-15 of its size).
    They equal it to the last bit if the result has the group unconstrained_posterior
    (`sample(..., keep_unconstrained=True)`), or if the parameter is not constrained.

    Examples
    --------
    >>> idata = stanadapt.sample("eight_schools.stan", "eight_schools.json", seed=1)
    >>> new = stanadapt.generate_quantities(
    ...     "eight_schools.stan", idata, "eight_schools.json", seed=2, posterior_predictive={"y": "y_rep"}
    ... )
    """
    asked = _Asked(
        seed=secrets.randbits(32) if seed is None else check.integer("seed", seed, 0, 2**32 - 1),
        workers=check.available_cores()
        if workers is None
        else check.integer("workers", workers, 1, check.LARGEST_COUNT),
        backend=check_backend(backend),
        progress=check.boolean("progress", progress),
        coords=parse_labels("coords", coords),
        dims=parse_labels("dims", dims),
        log_likelihood=parse_quantities("log_likelihood", log_likelihood),
        posterior_predictive=parse_quantities("posterior_predictive", posterior_predictive),
        predictions=parse_quantities("predictions", predictions),
        log_prior=check.boolean("log_prior", log_prior),
    )
    began = time.perf_counter()
    with raised_interrupts(), memory_in_words():
        saved = read_saved(result)
        data, unknown = with_known_levels(data, known_levels(saved))
        posterior = as_posterior(model, data, asked.backend, include_paths=include_paths)
        posterior = posterior.with_quantities(
            asked.log_likelihood, [*asked.posterior_predictive, *asked.predictions]
        )
        names = posterior_names(asked, posterior)
        asked = asked._replace(
            log_likelihood=names["log_likelihood"],
            posterior_predictive=names["posterior_predictive"],
            predictions=names["predictions"],
        )
        check_quantities(asked, posterior)
        prior = LogPrior(posterior) if asked.log_prior else None
        if posterior.n_values == len(posterior.names) and prior is None:
            raise ModelError(
                "model: it has no transformed parameters and no generated quantities, so there is nothing to "
                "generate"
            )
        labels = Labels.from_user(*_with_inherited(asked, saved, posterior), posterior)
        try:
            draws = read_parameters(saved, posterior)
            check_labels(saved, posterior)
        except ArgumentError as error:
            raise ArgumentError(f"{error}{_in_words(unknown)}") from error
        made = generate(posterior, draws, saved, asked.seed, asked.workers, asked.progress)
        built = _build(asked, saved, posterior, labels, made, time.perf_counter() - began)
        return built if prior is None else prior.add(built)


def _in_words(unknown: Mapping[str, Sequence[Any]]) -> str:
    """What new levels have to do with a parameter of another shape; empty if there are none."""
    if not unknown:
        return ""
    named = "; ".join(f"{name} {check.quote(list(levels))}" for name, levels in unknown.items())
    return f". The data have levels that the fit did not have: {named}"


def _with_inherited(
    asked: _Asked, saved: SavedDraws, posterior: Posterior
) -> tuple[dict[str, Sequence[Any]], dict[str, Sequence[str]]]:
    """The coords and dims asked for, and those of the result where shapes are the same."""
    shapes = posterior.data_shapes | {name: each.shape for name, each in posterior.variables.items()}
    dims, coords = dict(asked.dims), dict(asked.coords)
    own = getattr(posterior.model, "dims", {})
    of_data = labels_of(posterior.code, posterior.labels)[0]  # which may be of other rows than the fit's
    for group in ("posterior", "observed_data", "constant_data"):
        held = saved.groups.get(group)
        if held is None:
            continue
        for name in map(str, held.data_vars):
            names = [str(dim) for dim in held[name].dims if dim not in SAMPLE_DIMS]
            shape = tuple(held.sizes[dim] for dim in names)
            usual = [f"{name}_dim_{i}" for i in range(len(names))]
            if name in dims or name in own or shapes.get(name) != shape or names == usual:
                continue
            dims[name] = names
            for dim in names:
                is_own = name in posterior.parameters or dim not in of_data
                if is_own and dim in held.coords and held[dim].ndim == 1:
                    coords.setdefault(dim, held[dim].values.tolist())
    return coords, dims


def _build(
    asked: _Asked, saved: SavedDraws, posterior: Posterior, labels: Labels, made: Generated, seconds: float
) -> InferenceData:
    """The result: the groups of the draws, of the quantities and of the data."""
    schema = Schema(posterior.description, labels, moved_quantities(asked.quantities))
    groups: Groups = {
        name: group.assign_coords(draw=saved.draws)
        for name, group in schema.quantities(made.values, saved.chains).items()
    }
    groups |= {name: saved.groups[name].copy() for name in _OF_THE_DRAWS if name in saved.groups}
    groups |= _data(asked, saved, posterior, schema)
    whole = _attributes(asked, saved, posterior, made, seconds)
    codes = {name: whole.pop(name) for name in ("model_code", "quantities_code") if name in whole}
    for group in groups.values():
        group.attrs.update(whole)
    return container(groups, whole | codes)


def _data(asked: _Asked, saved: SavedDraws, posterior: Posterior, schema: Schema) -> Groups:
    """The data that the quantities were made with."""
    if not asked.predictions or asked.log_likelihood or asked.posterior_predictive:
        return data_groups(posterior, schema)
    observed, constant = posterior.split_data()
    kept = {
        name: saved.groups[name].copy() for name in ("observed_data", "constant_data") if name in saved.groups
    }
    new = observed | constant
    return kept | ({"predictions_constant_data": schema.labels.dataset(new, {})} if new else {})


def _attributes(
    asked: _Asked, saved: SavedDraws, posterior: Posterior, made: Generated, seconds: float
) -> dict[str, Any]:
    """The facts about the draws, as the result has them, and those about the quantities."""
    attrs = {name: value for name, value in saved.attrs.items() if name not in ("quantities", "store")}
    attrs |= {
        "created_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "creation_library": "stanadapt",
        "parameters": json.dumps(list(posterior.parameters)),
        "quantities_seed": asked.seed,
        "quantities_backend": posterior.library,
        "quantities_model_hash": posterior.digest(),
        "quantities_failed": int(np.count_nonzero(made.failed)),
        "quantities_time": seconds,
        "quantities_log_prior": int(asked.log_prior),
    }
    parted = {*json_attribute(saved.attrs, "complex", []), *posterior.description.complex_variables}
    if parted:
        attrs["complex"] = json.dumps(sorted(parted))
    if posterior.code:
        attrs["quantities_code"] = posterior.code
    return attrs | describe_quantities(asked)
