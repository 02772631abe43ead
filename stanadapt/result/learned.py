"""The learnt values of an earlier run, read from its result: `run.preparation.warm_start.Warm`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray

from .. import check, samplers
from ..errors import ArgumentError, OutputError, StoreError
from ..model.variables import variable_of
from ..run.inits import approximate_order
from ..run.preparation.warm_start import Warm
from ..run.warmup import PILOT
from ..transport.composition import is_map
from ..transport.map_table import COLUMNS, KIND, no_transport
from .container import OWN_GROUP, Groups, datasets, readable
from .files import read
from .formats.cmdstan_fit import is_fit, read_fit
from .formats.stancsv_files import is_stancsv, read_stancsv
from .labels import SAMPLE_DIMS
from .stores.disk_draws import read_store
from .stores.store import open_store

if TYPE_CHECKING:
    from .container import InferenceData

_MOST_DRAWS = 2_000
# Where coordinates are the program's own.
_UNMOVED = {
    "tail_rate": 0.0,
    "bend": 0.0,
    "scale_head": -1,
    "error_scale": -1,
    "ridge_terms": 0,
    "direction_power": 0.0,
}
_ALLOWED = (
    "an earlier InferenceData of stanadapt.sample, the path of its netCDF file, a cmdstanpy.CmdStanMCMC, or "
    "Stan CSV files"
)


@readable("warm")
def read_warm(given: Any) -> Warm:
    """What the chains of an earlier result have learnt; `given` is as `open_result` takes it.

    Raises
    ------
    ArgumentError
        It is no result of `stanadapt.sample` with chains whose warm-up has ended, or learnt values are not
        finite.
    """
    groups = datasets(open_result(given))
    if OWN_GROUP not in groups:
        raise ArgumentError(
            f"warm has no group named {OWN_GROUP}, which holds what chains have learnt: a result of "
            "stanadapt.sample is needed"
        )
    adaptation, posterior = groups[OWN_GROUP], _posterior(groups)
    attrs = adaptation.attrs | posterior.attrs
    method = str(attrs.get("method", ""))
    source = method
    if attrs.get("approximation"):
        groups = _in_order(groups)
        posterior, method = groups["posterior"], PILOT  # the scale of its metric is that of a covariance
    if method not in samplers.METHODS:
        raise ArgumentError(f"warm was drawn by the method {method!r}, which is not known here")
    m, names = posterior.sizes["chain"], _unconstrained_names(adaptation)
    if "chain" not in adaptation.sizes or adaptation.sizes["chain"] != m:
        raise ArgumentError(f"warm has draws of {m} chains, and what other chains have learnt")
    d = adaptation.sizes.get("unconstrained", 0)
    transport, metric = _transport(adaptation, m, d), _metric(adaptation, m, d)
    if transport is None:
        transport, metric = (no_transport(),) * m, None
    return Warm(
        method=method,
        names=names,
        draws=_parameters(_thin(posterior), names),
        x=_unconstrained_draws(groups, posterior, d),
        metric=metric,
        has_scale=not samplers.facts(method).unscaled,
        step_size=_step_sizes(adaptation, m),
        transport=transport,
        source=f"{source}, seed {attrs.get('seed', 'unknown')}, model {attrs.get('model_hash', 'unknown')}",
    )


def open_result(given: Any, name: str = "warm") -> InferenceData:
    """Open an earlier result, which may be given by its path, as a fit of CmdStanPy, or as Stan CSV files.

    `name` is that of the argument, for messages.

    Raises
    ------
    ArgumentError
        It is neither a result nor a file with one.
    """
    if is_stancsv(given):
        return read_stancsv(given, name)
    if isinstance(given, str | os.PathLike):
        try:
            return read_store(open_store(given)) if Path(given).is_dir() else read(os.fspath(given))
        except (OutputError, StoreError) as error:
            raise ArgumentError(f"{name}: {error}") from error
    if is_fit(given):
        return read_fit(given, name)
    if not (hasattr(given, "children") or callable(getattr(given, "groups", None))):
        raise check.refusal(name, given, _ALLOWED)
    return given  # type: ignore[no-any-return]


def _posterior(groups: Groups) -> xarray.Dataset:
    """The draws; refused where there are none, since warm-up has not ended then."""
    posterior = groups.get("posterior", xarray.Dataset())
    if not all(posterior.sizes.get(dim, 0) for dim in SAMPLE_DIMS):
        raise ArgumentError(
            "warm has no draws in its posterior group: the earlier run was stopped before its warm-up had "
            "ended, and what it had learnt by then is not kept"
        )
    return posterior


def _in_order(groups: Groups) -> Groups:
    """The groups of an approximation with draws in the order in which chains begin at them.

    The half with the smaller weights is left out, as those are draws that may be far from the posterior.
    """
    order = approximate_order(groups["posterior"], groups)
    order = order[: max(len(order) // 2, 1)]
    drawn = {name: group for name, group in groups.items() if "draw" in group.sizes}
    return groups | {name: group.isel(draw=order) for name, group in drawn.items()}


def _thin(group: xarray.Dataset) -> xarray.Dataset:
    """At most `_MOST_DRAWS` draws of each chain, evenly spaced."""
    return group.isel(draw=slice(None, None, -(-group.sizes["draw"] // _MOST_DRAWS)))


def _unconstrained_names(adaptation: xarray.Dataset) -> tuple[str, ...] | None:
    """Of the unconstrained parameters; None for a fit of CmdStan, which does not write them."""
    if "unconstrained" not in adaptation.coords:
        return None
    return tuple(map(str, adaptation["unconstrained"].values))


def _parameters(posterior: xarray.Dataset, names: tuple[str, ...] | None) -> dict[str, np.ndarray]:
    """The draws (chain, draw, ...) of the variables that have unconstrained parameters of these names.

    Where these are not known, of all variables.
    """
    wanted = dict.fromkeys(
        map(str, posterior.data_vars) if names is None else (*map(variable_of, names), *names)
    )
    drawn = [name for name in wanted if name in posterior and set(SAMPLE_DIMS) <= set(posterior[name].dims)]
    return {name: np.asarray(posterior[name].transpose(*SAMPLE_DIMS, ...).values) for name in drawn}


def _unconstrained_draws(groups: Groups, posterior: xarray.Dataset, d: int) -> np.ndarray | None:
    """The unconstrained draws (chain, draw, d), if all of them were kept."""
    group = groups.get("unconstrained_posterior")
    shape = (posterior.sizes["chain"], posterior.sizes["draw"], d)
    if group is None or "x" not in group or group["x"].shape != shape:
        return None
    return np.asarray(_thin(group)["x"].values)


def _metric(adaptation: xarray.Dataset, m: int, d: int) -> np.ndarray | None:
    """The metric of each chain, (m, d, d) or (m, d)."""
    for name, shape in (("preconditioner", (m, d, d)), ("preconditioner_diagonal", (m, d))):
        if name not in adaptation:
            continue
        metric = np.asarray(adaptation[name].values, dtype=float)
        if metric.shape != shape:
            raise ArgumentError(f"warm: its {name} has shape {metric.shape}, and {shape} is needed")
        variances = metric if metric.ndim == 2 else np.diagonal(metric, axis1=1, axis2=2)
        fine = np.isfinite(metric).reshape(m, -1).all(axis=1) & (variances > 0.0).all(axis=1)
        if not fine.all():
            chain = adaptation["chain"].values[np.argmin(fine)]
            raise ArgumentError(
                f"warm: the {name} that chain {chain} has learnt is not finite and positive; leave the chain "
                "out, or begin without warm"
            )
        return metric
    return None


def _transport(adaptation: xarray.Dataset, m: int, d: int) -> tuple[np.ndarray, ...] | None:
    """The coordinates of each chain; None where they are not in the result, though some were learnt."""
    if "transport" not in adaptation:
        moved = [adaptation[name].values != plain for name, plain in _UNMOVED.items() if name in adaptation]
        return None if any(map(np.any, moved)) else (no_transport(),) * m
    tables = np.asarray(adaptation["transport"].values, dtype=float)
    if tables.ndim != 3 or (tables.shape[0], tables.shape[2]) != (m, COLUMNS):
        wanted = f"({m}, r, {COLUMNS}) is needed"
        raise ArgumentError(f"warm: its transport has shape {tables.shape}, and {wanted}")
    maps = tuple(np.ascontiguousarray(table[np.isfinite(table[:, KIND])]) for table in tables)
    for chain, table in zip(adaptation["chain"].values, maps, strict=True):
        if not is_map(table, d):
            raise ArgumentError(f"warm: the transport of chain {chain} is no map of {d} coordinates")
    return maps


def _step_sizes(adaptation: xarray.Dataset, m: int) -> np.ndarray:
    """The step size with which each chain made its draws (m,), NaN where it is not known."""
    if "final_step_size" not in adaptation or adaptation["final_step_size"].shape != (m,):
        return np.full(m, np.nan)
    sizes = np.asarray(adaptation["final_step_size"].values, dtype=float)
    return np.where(np.isfinite(sizes) & (sizes > 0.0), sizes, np.nan)
