"""What an evidence needs of a fit: unconstrained draws, and what chains have learnt of the coordinates."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import check
from ..diagnostics.approximation import is_approximation
from ..diagnostics.finding import Finding
from ..diagnostics.missed import modes
from ..errors import ArgumentError
from ..model import PROGRAM_BACKENDS
from ..model.log_constants import unit_vectors
from ..model.posterior import Posterior, as_posterior
from ..result.container import OWN_GROUP, Groups, attributes, datasets, readable
from ..result.labels import SAMPLE_DIMS
from ..result.learned import open_result, read_warm
from ..result.record import ATTRIBUTES, RunRecord, same_density, thinning, unconstrained_points
from ..result.stores.reopening import reopen_posterior
from ..result.stores.store import Store, open_store
from ..transport.map_table import no_transport
from .proposals import Coordinates

if TYPE_CHECKING:
    from ..result.container import InferenceData

FEWEST = 40  # draws a chain, half of which fit a proposal


class FittedDraws(NamedTuple):
    """The draws of a fit."""

    x: np.ndarray  # (C, n, d) unconstrained
    candidates: list[Coordinates]
    findings: list[Finding]


def open_fit(result: Any, model: Any, data: Any, backend: str) -> tuple[Posterior, FittedDraws]:
    """The posterior of a fit, and its draws; the arguments are those of `log_evidence`.

    Raises
    ------
    ArgumentError
        The result has not enough draws, lacks parameters, or is of another program or other data.
    ModelError, DataError
        The model cannot be opened, or the data do not fit.
    """
    idata = open_result(result, "result")
    store = _store_of(result, idata, model)
    if store is None and model is None:
        raise ArgumentError(
            "model is missing: a result does not hold the program and the data of its run, unless that was "
            "kept in a store"
        )
    posterior = as_posterior(model, data, backend) if store is None else reopen_posterior(store, model, data)
    if not posterior.dim:
        raise ArgumentError(
            "model: it has no parameters, so there is nothing to integrate: its log density is its evidence"
        )
    if posterior.model.noisy:
        raise ArgumentError(
            "model: its density is only estimated, and an evidence needs its values: draws do not tell the "
            "estimates that they were accepted with"
        )
    with readable("result"):
        return posterior, _read(idata, posterior)


def _store_of(result: Any, idata: InferenceData, model: Any) -> Store | None:
    """The folder of the run, if it is given, or if the result has one and no model is given."""
    if isinstance(result, str | os.PathLike) and Path(result).is_dir():
        return open_store(result)
    known = attributes(idata).get("store") if model is None else None
    return open_store(str(known)) if known else None


def _read(idata: InferenceData, posterior: Posterior) -> FittedDraws:
    groups = datasets(idata)
    drawn = groups.get("posterior")
    if drawn is None or not set(SAMPLE_DIMS) <= set(drawn.sizes):
        raise ArgumentError("result has no draws: its group posterior lacks the dimensions chain and draw")
    chains, draws = (drawn.sizes[dim] for dim in SAMPLE_DIMS)
    if is_approximation(drawn.attrs):
        raise ArgumentError(
            "result holds draws of an approximation, and bridge sampling needs draws of the posterior: use "
            "those of sample"
        )
    if draws < FEWEST or not chains:
        raise ArgumentError(f"result has {draws} draws a chain; at least {FEWEST} are needed")
    stride = thinning(chains, draws, posterior.dim)
    x = unconstrained_points(groups, posterior, np.arange(stride - 1, draws, stride))
    if not np.isfinite(x).all():
        raise ArgumentError("result has draws that are NaN or infinite")
    if (x == x[:, :1]).all(axis=1).any():
        raise ArgumentError("result has a chain that has not moved in a parameter; see stanadapt.diagnose")
    _check_lengths(groups, posterior, x[0])
    found = _check_density(groups, drawn.attrs | attributes(idata), posterior)
    if OWN_GROUP in groups and (missed := modes(groups[OWN_GROUP])) is not None:
        found.append(missed)
    return FittedDraws(np.ascontiguousarray(x), _candidates(idata, posterior), found)


def _check_lengths(groups: Groups, posterior: Posterior, points: np.ndarray) -> None:
    """Refuse draws of unit vectors u = y / |y| whose lengths |y| are not known. Raises ArgumentError."""
    if posterior.model.backend not in PROGRAM_BACKENDS or "unconstrained_posterior" in groups:
        return
    if names := unit_vectors(posterior, points):
        raise ArgumentError(
            f"result: the parameters {', '.join(names)} are unit vectors, whose draws do not tell the "
            "unconstrained points that they come from: draw with keep_unconstrained=True"
        )


def _check_density(groups: Groups, attrs: dict[str, Any], posterior: Posterior) -> list[Finding]:
    """Refuse a posterior that is not that of a run of ours; of other programs' draws only say so."""
    if all(name in attrs for name in ATTRIBUTES):
        RunRecord(groups, attrs).check_model(posterior)
        return []
    if same_density(groups, posterior):
        return []
    text = (
        "The log density that the result has recorded differs from the model's by more than a constant: if "
        "it is that of the unconstrained parameters, these are other data or another program, and the "
        "evidence is wrong"
    )
    return [Finding("density", text)]


def _candidates(idata: InferenceData, posterior: Posterior) -> list[Coordinates]:
    """The program's own coordinates, and those of the first chain that has learnt some."""
    try:
        warm = read_warm(idata)
    except ArgumentError:  # the draws are all that a result of other programs needs to have
        return [Coordinates(no_transport(), None)]
    if warm.names is not None and list(warm.names) != list(posterior.unconstrained_names):
        return [Coordinates(no_transport(), None)]
    metrics = [None] * len(warm.transport) if warm.metric is None else list(warm.metric)
    plain: list[Coordinates] = []
    moved: list[Coordinates] = []
    for transport, metric in zip(warm.transport, metrics, strict=True):
        suits = metric is not None and metric.shape[0] == posterior.dim
        (moved if len(transport) else plain).append(Coordinates(transport, metric if suits else None))
    return [*moved[:1], *(plain[:1] or [Coordinates(no_transport(), None)])]


def check_seed(seed: Any) -> int:
    """The seed of the proposal's draws."""
    return check.integer("seed", seed, 0, 2**32 - 1)
