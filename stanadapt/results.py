"""From arrays to ArviZ: the only file that knows it.

Python 3.11 gets arviz 0.23 with InferenceData, 3.12 and later get arviz 1.x with xarray's DataTree. One plain
set of xarray datasets is built first; then comes the one branch. arviz is imported late: it takes 1.7 s.
"""

from __future__ import annotations

import datetime
import functools
import importlib
import importlib.metadata
import json
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import xarray

from . import check, samplers
from .chain import ChainResult, Draws, Job, Stack
from .errors import ArgumentError, OutputError
from .posterior import Posterior
from .runner import Run

Groups = dict[str, xarray.Dataset]
_SAMPLE_DIMS = ("chain", "draw")
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


@functools.cache
def has_datatree() -> bool:
    """Whether the installed arviz keeps results in a DataTree (1.x) rather than in InferenceData (0.x)."""
    return int(importlib.metadata.version("arviz").split(".")[0]) >= 1


@functools.cache
def arviz() -> Any:
    """The module with arviz's statistics, imported at the first need; of arviz 1.x without the plots."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # arviz 0.23 announces arviz 1 at import
        return importlib.import_module("arviz_stats" if has_datatree() else "arviz")


def container(groups: Groups) -> Any:
    """The datasets in what the installed arviz works with."""
    if has_datatree():
        return xarray.DataTree.from_dict(groups)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # "adaptation" is no group of the schema
        return arviz().InferenceData(**groups)


def datasets(result: Any) -> Groups:
    """The datasets of an InferenceData or a DataTree, by group."""
    if hasattr(result, "children"):
        return {name: node.to_dataset() for name, node in result.children.items()}
    if not callable(getattr(result, "groups", None)):
        raise check.refused("idata", result, "a result of stanadapt.sample")
    return {name: result[name] for name in result.groups()}


def write(result: Any, path: str | Path) -> None:
    """Write a result as netCDF; an older file at `path` is replaced when the new one is whole.

    Raises
    ------
    OutputError
        The file cannot be written.
    """
    target = check.output(path, overwrite=True)
    unfinished = check.unfinished(target)
    mode: Literal["w", "a"] = "w"
    try:
        for name, group in datasets(result).items():
            group.to_netcdf(unfinished, group=name, mode=mode, engine="h5netcdf")
            mode = "a"
        unfinished.replace(target)
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error}") from error
    finally:
        unfinished.unlink(missing_ok=True)


def read(path: str | Path) -> Any:
    """Read a result that was written as netCDF.

    Raises
    ------
    OutputError
        There is no such file, or it is no result of a run.
    """
    if not Path(path).is_file():
        raise OutputError(f"{path}: there is no such file")
    try:
        with xarray.open_datatree(path, engine="h5netcdf") as tree:
            groups = {name: node.to_dataset().load() for name, node in tree.children.items()}
    except (OSError, ValueError) as error:
        raise OutputError(f"{path} cannot be read as netCDF: {error}") from error
    if "posterior" not in groups:
        raise OutputError(f"{path} has no group named posterior")
    return container(groups)


def build(
    run: Run,
    job: Job,
    posterior: Posterior,
    *,
    seconds: float,
    coords: Mapping[str, Sequence[Any]] | None,
    dims: Mapping[str, Sequence[str]] | None,
    log_likelihood: Sequence[str],
    posterior_predictive: Sequence[str],
    notes: dict[str, str],
) -> Any:
    """The result of a run: groups of the InferenceData schema, and `adaptation`, which is ours.

    `notes` join the attributes.
    """
    label = _Labels(coords or {}, dims or {})
    kept, n = _common_length(run)
    attrs = _attributes(run, job, posterior, kept, n, seconds) | notes
    draws = _cut(run.draws, kept, n)
    moved = dict.fromkeys(log_likelihood, "log_likelihood")
    moved |= dict.fromkeys(posterior_predictive, "posterior_predictive")

    arrays: dict[str, dict[str, np.ndarray]] = {"posterior": {}}
    for name, variable in posterior.variables.items():
        arrays.setdefault(moved.get(name, "posterior"), {})[name] = variable.take(draws.values)
    groups = {name: label.dataset(group, _sample_coords(kept, n)) for name, group in arrays.items()}
    if posterior.dim:
        groups["sample_stats"] = _stats(draws.stats, kept)
        groups["adaptation"] = _adaptation([run.chains[i] for i in kept], posterior)
    if draws.x is not None:
        groups["unconstrained_posterior"] = _unconstrained(draws.x, kept, posterior)
    if run.warmup is not None:
        n_warmup = min(_warmup_rows(run.chains[i]) for i in kept)
        warmup = _cut(run.warmup, kept, n_warmup)
        groups["warmup_posterior"] = label.dataset(
            {
                name: variable.take(warmup.values)
                for name, variable in posterior.variables.items()
                if name not in moved
            },
            _sample_coords(kept, n_warmup),
        )
        groups["warmup_sample_stats"] = _stats(warmup.stats, kept)
    observed, constant = posterior.observed()
    for group_name, data in (("observed_data", observed), ("constant_data", constant)):
        if data:
            groups[group_name] = label.dataset(data, {})
    for group in groups.values():
        group.attrs |= attrs
    return container(groups)


class _Labels:
    """Names of dimensions and coordinates: the user's, or `theta_dim_0` with 0, 1, ..., as ArviZ has it."""

    def __init__(self, coords: Mapping[str, Sequence[Any]], dims: Mapping[str, Sequence[str]]) -> None:
        self.coords, self.dims = coords, dims

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

    def names(self, name: str, shape: tuple[int, ...]) -> list[str]:
        """The dimensions of a variable."""
        given = list(self.dims.get(name, ()))
        return [given[i] if i < len(given) else f"{name}_dim_{i}" for i in range(len(shape))]


def check_labels(
    coords: Mapping[str, Sequence[Any]] | None,
    dims: Mapping[str, Sequence[str]] | None,
    shapes: Mapping[str, tuple[int, ...]],
) -> None:
    """Refuse, before sampling, names and coordinates that xarray would refuse after it.

    Raises
    ------
    ArgumentError
        dims of an unknown variable, too many or taken names, or coords of another length.
    """
    for name, value in (("coords", coords), ("dims", dims)):
        if value is not None and not isinstance(value, Mapping):
            raise check.refused(name, value, "a dict")
    for name, given in (dims or {}).items():
        check.choice("dims: variable", name, shapes)
        if isinstance(given, str) or len(given) > len(shapes[name]):
            raise check.refused(f"dims[{name!r}]", given, f"a list of at most {len(shapes[name])} names")
        if len(set(given)) < len(given) or set(given) & {*shapes, *_SAMPLE_DIMS}:
            allowed = "different names that are no variables, and not chain or draw"
            raise check.refused(f"dims[{name!r}]", given, allowed)
    label = _Labels(coords or {}, dims or {})
    lengths: dict[str, tuple[int, str]] = {}
    for name, shape in shapes.items():
        for dim, length in zip(label.names(name, shape), shape, strict=True):
            if dim in label.coords and len(label.coords[dim]) != length:
                raise check.refused(
                    f"coords[{dim!r}]", label.coords[dim], f"of length {length}, as {name} has it"
                )
            known, where = lengths.setdefault(dim, (length, name))
            if known != length:
                raise ArgumentError(
                    f"dims: {dim!r} has length {known} in {where} and {length} in {name}; it must be the same"
                )


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
    stated = {name: (_SAMPLE_DIMS, value) for name, value in stats.items() if not _is_unknown(value)}
    return xarray.Dataset(stated, coords=coords)


def _is_unknown(column: np.ndarray) -> bool:
    """Whether it is nothing but NaN, which is what a method without a step size writes for it."""
    return column.size > 0 and column.dtype.kind == "f" and bool(np.all(np.isnan(column)))


def _common(columns: list[dict[str, Any]]) -> list[str]:
    """Names that all chains have: of a run that was stopped some may be under their pilot still."""
    return [name for name in columns[0] if all(name in others for others in columns)]


def _unconstrained(x: np.ndarray, chains: Sequence[int], posterior: Posterior) -> xarray.Dataset:
    coords = _sample_coords(chains, x.shape[1]) | {"unconstrained": posterior.unconstrained_names}
    return xarray.Dataset({"x": ((*_SAMPLE_DIMS, "unconstrained"), x)}, coords=coords)


def _adaptation(chains: list[ChainResult], posterior: Posterior) -> xarray.Dataset:
    """The history over warm-up, (chain, note), and what each chain has learnt at its end."""
    group = xarray.Dataset(coords={"chain": [chain.index for chain in chains]})
    notes = min(len(chain.history.get("iteration", ())) for chain in chains)
    first = chains[0].history
    if notes:
        group = group.assign_coords(
            iteration=("note", first["iteration"][:notes]), stage=("note", first["stage"][:notes])
        )
    for name in _common([chain.history for chain in chains]):
        if name not in ("iteration", "stage") and notes:
            group[name] = (("chain", "note"), np.array([chain.history[name][:notes] for chain in chains]))
    for name in _common([chain.learnt for chain in chains]):
        value = _stacked([chain.learnt[name] for chain in chains])
        dims: tuple[str, ...] = tuple(f"{name}_dim_{i}" for i in range(value.ndim - 1))
        if name.startswith("episode_"):
            dims = ("episode",)
        elif value.shape[1:] in ((posterior.dim,), (posterior.dim, posterior.dim)):
            dims = ("unconstrained", "unconstrained_2")[: value.ndim - 1]
        group[name] = (("chain", *dims), value)
    group["start"] = (("chain", "unconstrained"), np.stack([chain.start for chain in chains]))
    for name in _FACTS:
        facts = [getattr(chain, name) for chain in chains]
        if None not in facts:
            group[name] = ("chain", np.array(facts, dtype=object if name == "first_failure" else None))
    for name in chains[0].counts:
        group[f"{name}_warmup"] = ("chain", [chain.counts_warmup.get(name, 0) for chain in chains])
        group[name] = ("chain", [chain.counts[name] for chain in chains])
    labels = {"unconstrained": posterior.unconstrained_names}
    if "unconstrained_2" in group.dims:
        labels["unconstrained_2"] = posterior.unconstrained_names
    return group.assign_coords(labels)


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
