"""The draws of an earlier result, as the parameters of a model."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .. import check
from ..errors import ArgumentError
from ..model.labelled_data import labels_of
from ..model.posterior import Posterior
from ..result.container import Groups, attributes, datasets, readable
from ..result.labels import SAMPLE_DIMS, name_levels
from ..result.learned import open_result


class SavedDraws(NamedTuple):
    """The result of an earlier run, by any program."""

    groups: Groups
    attrs: dict[str, Any]
    chains: list[Any]  # the labels of chains and draws
    draws: np.ndarray


class ParameterDraws(NamedTuple):
    """The parameters of a model at m chains of n draws."""

    flat: np.ndarray  # (m, n, p) in the order of the model's names
    x: np.ndarray | None  # (m, n, d) unconstrained, as they were kept; another program may mean other values


def read_saved(result: Any) -> SavedDraws:
    """Read the draws of a result, of a fit of CmdStanPy, or of files.

    Raises
    ------
    ArgumentError
        It is no such thing, or it has no draws.
    """
    opened = open_result(result, "result")
    with readable("result"):
        groups = datasets(opened)
        posterior = groups.get("posterior")
        if posterior is None or not all(posterior.sizes.get(dim, 0) for dim in SAMPLE_DIMS):
            raise ArgumentError(
                "result has no draws: a group posterior with the dimensions chain and draw is needed"
            )
        chains, draws = (
            posterior[dim].values if dim in posterior.coords else np.arange(posterior.sizes[dim])
            for dim in SAMPLE_DIMS
        )
        return SavedDraws(groups, posterior.attrs | attributes(opened), list(chains), draws)


def check_labels(saved: SavedDraws, posterior: Posterior) -> None:
    """Refuse data whose labels are not those of the parameters that they index.

    Levels of categoricals are numbered as the fit did already, whatever the parameters' own labels are.

    Raises
    ------
    ArgumentError
        A dimension of a parameter has other labels in the data, or the same in another order.
    """
    found = labels_of(posterior.code, posterior.labels)[0]
    coords = {dim: labels for dim, labels in found.items() if dim not in known_levels(saved)}
    for name in posterior.parameters:
        held = saved.groups["posterior"][name]
        for dim in (str(dim) for dim in held.dims if dim in held.coords and dim not in SAMPLE_DIMS):
            if dim in coords and not np.array_equal(np.asarray(coords[dim]), held[dim].values):
                raise ArgumentError(
                    f"data label {dim} as {check.quote(list(coords[dim]))}, and the draws of {name} are of "
                    f"{check.quote(held[dim].values.tolist())}: bring the data into this order"
                )


def known_levels(saved: SavedDraws) -> dict[str, list[Any]]:
    """The levels of the categoricals among the data of a result, by their names."""
    found: dict[str, list[Any]] = {}
    for group in (saved.groups[name] for name in ("constant_data", "observed_data") if name in saved.groups):
        for name in map(str, group.data_vars):
            levels = group.coords.get(name_levels(name))
            if levels is not None and levels.ndim == 1:
                found[name] = list(levels.values)
    return found


@readable("result")
def read_parameters(saved: SavedDraws, posterior: Posterior) -> ParameterDraws:
    """The draws of a model's parameters.

    Raises
    ------
    ArgumentError
        The result lacks parameters of the model, or has them with other shapes.
    """
    group = saved.groups["posterior"]
    lacking = [name for name in posterior.parameters if name not in group.data_vars]
    if lacking:
        raise ArgumentError(
            f"result lacks parameters of the model: {', '.join(lacking)}; it has "
            f"{', '.join(map(str, group.data_vars))}"
        )
    m, n = len(saved.chains), len(saved.draws)
    flat = np.empty((m, n, len(posterior.names)))
    for name, variable in posterior.parameters.items():
        held = group[name]
        if not set(SAMPLE_DIMS) <= set(held.dims) or held.dtype.kind not in "biufc":
            raise ArgumentError(f"result: its {name} holds no numbers by chain and draw")
        values = held.transpose(*SAMPLE_DIMS, ...).values
        if values.dtype.kind == "c":
            values = np.stack([values.real, values.imag], axis=-1)
        if values.shape[2:] != variable.shape:
            raise ArgumentError(
                f"result has the parameter {name} with shape {values.shape[2:]}, and the model declares "
                f"{variable.shape}"
            )
        flat[..., variable.columns] = values
    return ParameterDraws(flat, _kept_points(saved, posterior))


def _kept_points(saved: SavedDraws, posterior: Posterior) -> np.ndarray | None:
    """The unconstrained draws, if they were kept and have the names of the model's."""
    kept = saved.groups.get("unconstrained_posterior")
    if kept is None or "x" not in kept or "unconstrained" not in kept.coords:
        return None
    x = np.asarray(kept["x"].transpose(*SAMPLE_DIMS, ...).values, dtype=float)
    names = list(map(str, kept["unconstrained"].values))
    wanted = (len(saved.chains), len(saved.draws), posterior.dim)
    return x if names == list(posterior.unconstrained_names) and x.shape == wanted else None
