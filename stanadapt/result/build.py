"""From arrays to the groups of a result."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray

from .. import check, samplers
from ..errors import ArgumentError
from ..model.posterior import Posterior
from ..run.draws import ChainResult, Draws, Run, Stack
from ..run.job import Job
from ..run.modes import unvisited
from ..run.prepare import Prepared
from ..run.request import Request
from ..run.tails import tail_indices
from .container import OWN_GROUP, Groups, container
from .coordinates import coordinates_text
from .labels import SAMPLE_DIMS, Labels

if TYPE_CHECKING:
    from .container import InferenceData

# Of a chain, in the group `adaptation`, as far as they are known.
_FACTS = (
    "warmup_iterations",
    "failures_warmup",
    "failures",
    "first_failure",
    "seconds_warmup",
    "seconds",
    "seconds_total",
)

_TRANSPORT_DIMS = ("transport_row", "transport_column")  # of the table in transport.py


def build(run: Run, prepared: Prepared, request: Request, labels: Labels, seconds: float) -> InferenceData:
    """The result of a run that took `seconds`: the groups of ArviZ's schema, and `adaptation`, which is ours.

    Its attributes stand on every group and on the result itself.
    """
    posterior, job = prepared.posterior, prepared.job
    kept, n = _common_length(run)
    attrs = _attributes(run, job, posterior, kept, n, seconds) | prepared.notes
    moved = _moved(request)
    own_dims = {"transport": _TRANSPORT_DIMS, **dict(samplers.facts(job.method).dims)}
    groups = _draws(run, kept, n, posterior, labels, moved, own_dims)
    if run.warmup is not None:
        groups |= _warmup(run, run.warmup, kept, posterior, labels, moved)
    groups |= _data(posterior, labels)
    for group in groups.values():
        group.attrs |= attrs
    return container(groups, attrs)


def try_build(posterior: Posterior, request: Request, labels: Labels) -> None:
    """Build a result without draws, for what may fail after a run: names that clash, and arviz's import.

    Raises
    ------
    ArgumentError
        Variables and dimensions cannot stand together in a result.
    """
    try:
        groups = _quantities(np.empty((1, 0, posterior.n_values)), [0], posterior, labels, _moved(request))
        container(groups | _data(posterior, labels), {})
    except ValueError as error:
        raise ArgumentError(f"model: no result can hold its variables: {check.one_line(error)}") from error


def bare(run: Run, posterior: Posterior) -> dict[str, dict[str, np.ndarray]]:
    """The draws of a run as arrays by group and variable, (chain, draw, ...)."""
    draws = _cut(run.draws, *_common_length(run))
    arrays = {
        "posterior": {name: variable.take(draws.values) for name, variable in posterior.variables.items()},
        "sample_stats": draws.stats,
    }
    return arrays if draws.x is None else arrays | {"unconstrained_posterior": {"x": draws.x}}


def _moved(request: Request) -> dict[str, str]:
    """The group of each quantity that is not in the posterior."""
    moved = dict.fromkeys(request.log_likelihood, "log_likelihood")
    return moved | dict.fromkeys(request.posterior_predictive, "posterior_predictive")


def _quantities(
    values: np.ndarray,
    chains: Sequence[int],
    posterior: Posterior,
    labels: Labels,
    moved: Mapping[str, str],
) -> Groups:
    """The posterior, and the groups of quantities that are not in it; `values` are (chain, draw, column)."""
    arrays: dict[str, dict[str, np.ndarray]] = {"posterior": {}}
    for name, variable in posterior.variables.items():
        arrays.setdefault(moved.get(name, "posterior"), {})[name] = variable.take(values)
    coords = _sample_coords(chains, values.shape[1])
    return {name: labels.dataset(group, coords) for name, group in arrays.items()}


def _data(posterior: Posterior, labels: Labels) -> Groups:
    """The groups of the data, as far as there are any."""
    observed, constant = posterior.observed()
    groups = {"observed_data": observed, "constant_data": constant}
    return {name: labels.dataset(data, {}) for name, data in groups.items() if data}


def _draws(
    run: Run,
    kept: list[int],
    n: int,
    posterior: Posterior,
    labels: Labels,
    moved: Mapping[str, str],
    own_dims: Mapping[str, tuple[str, ...]],
) -> Groups:
    """The groups of the draws."""
    draws = _cut(run.draws, kept, n)
    groups = _quantities(draws.values, kept, posterior, labels, moved)
    if posterior.dim:
        groups["sample_stats"] = _stats(draws.stats, kept)
        chains = [run.chains[i] for i in kept]
        known = _missed(chains, draws, posterior) | _last_step_sizes(draws)
        groups[OWN_GROUP] = _adaptation(chains, posterior, own_dims, known)
        if text := coordinates_text([chain.learnt for chain in chains], posterior.unconstrained_names):
            groups[OWN_GROUP].attrs["coordinates"] = text
    if draws.x is not None:
        groups["unconstrained_posterior"] = _unconstrained(draws.x, kept, posterior)
    return groups


def _warmup(
    run: Run,
    stack: Stack,
    kept: list[int],
    posterior: Posterior,
    labels: Labels,
    moved: Mapping[str, str],
) -> Groups:
    """The groups of the iterations of warm-up."""
    n = min(_warmup_rows(run.chains[i]) for i in kept)
    rows = _cut(stack, kept, n)
    variables = {name: each for name, each in posterior.variables.items() if name not in moved}
    values = {name: variable.take(rows.values) for name, variable in variables.items()}
    return {
        "warmup_posterior": labels.dataset(values, _sample_coords(kept, n)),
        "warmup_sample_stats": _stats(rows.stats, kept),
    }


def _sample_coords(chains: Sequence[int], n: int) -> dict[str, Any]:
    return {"chain": list(chains), "draw": np.arange(n)}


def _common_length(run: Run) -> tuple[list[int], int]:
    """Chains that have draws and the length that all of them have; while none has any, those that started."""
    lengths = [chain.draws.n for chain in run.chains]
    kept = [i for i, length in enumerate(lengths) if length > 0]
    kept = kept or [i for i, chain in enumerate(run.chains) if chain.learnt] or list(range(len(lengths)))
    return kept, min(lengths[i] for i in kept)


def _warmup_rows(chain: ChainResult) -> int:
    return 0 if chain.warmup is None else chain.warmup.n


def _cut(stack: Stack, kept: list[int], n: int) -> Draws:
    """The first `n` rows of the chains kept; a view when all of them are."""
    chains: Any = slice(None) if len(kept) == len(stack.values) else kept
    return Draws(
        stack.values[chains, :n],
        None if stack.x is None else stack.x[chains, :n],
        {name: column[chains, :n] for name, column in stack.stats.items()},
        n,
    )


def _stats(stats: Mapping[str, np.ndarray], chains: Sequence[int]) -> xarray.Dataset:
    coords = _sample_coords(chains, next(iter(stats.values())).shape[1])
    stated = {name: (SAMPLE_DIMS, value) for name, value in stats.items() if not _is_unknown(value)}
    return xarray.Dataset(stated, coords=coords)


def _is_unknown(column: np.ndarray) -> bool:
    """Whether it is nothing but NaN, which is what a method without a step size writes for it."""
    return column.size > 0 and column.dtype.kind == "f" and bool(np.all(np.isnan(column)))


def _common(columns: list[dict[str, Any]]) -> list[str]:
    """Names that all chains have. A run may be stopped where some of them still are in their pilot."""
    return [name for name in columns[0] if all(name in others for others in columns)]


def _unconstrained(x: np.ndarray, chains: Sequence[int], posterior: Posterior) -> xarray.Dataset:
    coords = _sample_coords(chains, x.shape[1]) | {"unconstrained": posterior.unconstrained_names}
    return xarray.Dataset({"x": ((*SAMPLE_DIMS, "unconstrained"), x)}, coords=coords)


def _adaptation(
    chains: list[ChainResult],
    posterior: Posterior,
    own_dims: Mapping[str, tuple[str, ...]],
    known: Mapping[str, Any],
) -> xarray.Dataset:
    """The history over warm-up, (chain, note), what each chain has learnt at its end, and what is `known`.

    `own_dims` are those that a method declares for what it learns; others are told by the shape.
    """
    coords: dict[str, Any] = {
        "chain": [chain.index for chain in chains],
        "unconstrained": posterior.unconstrained_names,
    }
    variables = dict(known)  # added one after another, each would take xarray a millisecond
    notes = min(len(chain.history.get("iteration", ())) for chain in chains)
    for name in _common([chain.history for chain in chains]) if notes else ():
        if name in ("iteration", "stage"):
            coords[name] = ("note", chains[0].history[name][:notes])
        else:
            variables[name] = (("chain", "note"), np.array([chain.history[name][:notes] for chain in chains]))
    for name in _common([chain.learnt for chain in chains]):
        value = _stacked([chain.learnt[name] for chain in chains])
        if name == "transport" and not value.size:
            continue
        dims: tuple[str, ...] = tuple(f"{name}_dim_{i}" for i in range(value.ndim - 1))
        if name in own_dims:
            dims = own_dims[name]
        elif value.shape[1:] in ((posterior.dim,), (posterior.dim, posterior.dim)):
            dims = ("unconstrained", "unconstrained_2")[: value.ndim - 1]
        variables[name] = (("chain", *dims), value)
        if "unconstrained_2" in dims:
            coords["unconstrained_2"] = posterior.unconstrained_names
    variables["start"] = (("chain", "unconstrained"), np.stack([chain.start for chain in chains]))
    for name in _FACTS:
        facts = [getattr(chain, name) for chain in chains]
        if None not in facts:
            variables[name] = ("chain", np.array(facts, dtype=object if name == "first_failure" else None))
    for name in chains[0].counts:
        variables[f"{name}_warmup"] = ("chain", [chain.counts_warmup.get(name, 0) for chain in chains])
        variables[name] = ("chain", [chain.counts[name] for chain in chains])
    return xarray.Dataset(variables, coords=coords)


def _missed(chains: list[ChainResult], draws: Draws, posterior: Posterior) -> dict[str, Any]:
    """What the draws may lack, with dimensions: tails that are heavy, and modes that no chain has visited."""
    if not draws.n:
        return {}
    missed: dict[str, Any] = {}
    indices = tail_indices(draws.values, posterior, int(draws.stats["n_steps"].sum()))
    if not np.all(np.isnan(indices)):
        missed["tail_index"] = ("unconstrained", indices)
    tops = np.concatenate([chain.tops for chain in chains])
    if modes := unvisited(tops, draws.values, draws.stats["lp"], posterior):
        points, logp, log_mass, climbs = zip(*modes, strict=True)
        missed["mode"] = (("missed", "unconstrained"), np.array(points))
        missed["mode_lp"] = ("missed", np.array(logp))
        missed["mode_log_mass"] = ("missed", np.array(log_mass))
        missed["mode_climbs"] = ("missed", np.array(climbs))
    return missed


def _last_step_sizes(draws: Draws) -> dict[str, Any]:
    """The step size of each chain's last draw, with dimensions; of all its draws, where it is frozen."""
    if not draws.n or "step_size" not in draws.stats or _is_unknown(draws.stats["step_size"]):
        return {}
    return {"final_step_size": ("chain", draws.stats["step_size"][:, -1].copy())}


def _stacked(arrays: list[np.ndarray]) -> np.ndarray:
    """One array (chains, ...); where chains have come to different lengths, shorter ones end in NaN."""
    if len({array.shape for array in arrays}) == 1:
        return np.stack(arrays)
    sides = np.max([array.shape for array in arrays], axis=0)
    stacked = np.full((len(arrays), *sides), np.nan)
    for row, array in zip(stacked, arrays, strict=True):
        row[tuple(slice(n) for n in array.shape)] = array
    return stacked


def _attributes(
    run: Run, job: Job, posterior: Posterior, kept: list[int], n: int, seconds: float
) -> dict[str, Any]:
    """Facts about the run, as strings and numbers: netCDF takes nothing else."""
    method = samplers.sampler(job.method)
    attrs = {
        "created_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "creation_library": "stanadapt",
        "inference_library": "stanadapt",
        "inference_library_version": importlib.metadata.version("stanadapt"),
        "sampling_time": seconds,
        "tuning_steps": job.warmup,
        "thin": job.thin,
        "method": job.method,
        "settings": json.dumps(samplers.named(method, job.settings)),
        "seed": job.seed,
        "backend": run.chains[0].library,
        "noisy": int(posterior.model.noisy),
        "model_hash": posterior.digest(),
        "interrupted": int(run.interrupted),
    }
    if run.interrupted:
        attrs["interrupted_note"] = (
            f"interrupted: {len(kept)} of {job.chains} chains, {n} of {job.draws // job.thin} draws each"
        )
    return attrs
