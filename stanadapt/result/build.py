"""From arrays to the groups of a result."""

from __future__ import annotations

import datetime
import functools
import importlib.metadata
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray

from .. import check, samplers
from ..errors import ArgumentError
from ..model.description import Description
from ..model.posterior import Posterior
from ..model.printing import no_prints
from ..run.draws import ChainResult, Run, Stack
from ..run.job import Job
from ..run.preparation.prepare import Prepared
from ..run.request import Request
from .container import OWN_GROUP, Groups, container
from .coordinates import coordinates_text
from .labels import name_levels
from .machine import versions
from .modes import find_unvisited
from .path_results import evidence_of, tempering_group
from .schema import Schema, stack_chains
from .tails import tail_indices

if TYPE_CHECKING:
    from .container import InferenceData

# Of a chain, in the group `adaptation`, as far as they are known.
_FACTS = (
    "warmup_iterations",
    "failures_warmup",
    "failures",
    "first_failure",
    "evaluations_warmup",
    "evaluations",
    "seconds_warmup",
    "seconds",
    "seconds_total",
)

_TRANSPORT_DIMS = ("transport_row", "transport_column")  # of the table in transport/map_table.py


def build(
    run: Run,
    prepared: Prepared,
    request: Request,
    seconds: float,
    notes: Mapping[str, Any] | None = None,
    shown: Run | None = None,
) -> InferenceData:
    """The result of a run that took `seconds`: the groups of ArviZ's schema, and `adaptation`, which is ours.

    Its attributes, `notes` among them, stand on every group and on the result itself. Where memory does not
    hold the draws of the run, `shown` has some of them.
    """
    posterior, job = prepared.posterior, prepared.job
    schema = Schema.of(request, posterior.description)
    facts = attributes_of(run, job, schema.description, seconds) | prepared.notes | dict(notes or {})
    groups = run_groups(shown or run, job, schema, posterior) | data_groups(posterior, schema)
    if "tempering" in groups and "log_evidence" in groups["tempering"]:
        facts |= evidence_of(groups["tempering"])
    return finish(groups, facts, posterior.code)


def finish(groups: Groups, attrs: Mapping[str, Any], code: str) -> InferenceData:
    """The groups as a result, with the attributes on the whole and on each; the program on the whole."""
    for group in groups.values():
        group.attrs.update(attrs)
    return container(groups, {**attrs, "model_code": code} if code else attrs)


def run_groups(run: Run, job: Job, schema: Schema, posterior: Posterior | None) -> Groups:
    """The groups of a run: its draws, and the values that its chains have learnt.

    Without the posterior, tails and modes that the draws may lack cannot be found.
    """
    kept, n = common_length(run)
    draws = _cut(run.draws, kept, n)
    groups = schema.draws(draws, kept)
    if schema.description.dim:
        groups["sample_stats"] = _without_unknown(groups["sample_stats"])
        chains = [run.chains[i] for i in kept]
        known = _last_step_sizes(draws)
        if posterior is not None:
            with no_prints():  # these evaluations are of no chain
                known |= _find_missed(chains, draws, posterior, job.seed)
        own_dims = {"transport": _TRANSPORT_DIMS, **dict(samplers.facts(job.method).dims)}
        groups[OWN_GROUP] = _adaptation(chains, schema.description, own_dims, known)
        facts = samplers.facts(job.method)
        if facts.outcomes and all(chain.outcome for chain in chains):
            names = schema.description.unconstrained_names
            groups[facts.outcomes] = tempering_group(chains, names, dict(facts.dims), posterior)
        learnt = [chain.learnt for chain in chains]
        if text := coordinates_text(learnt, schema.description.unconstrained_names):
            groups[OWN_GROUP].attrs["coordinates"] = text
    if run.warmup is not None:
        n = min(_warmup_rows(run.chains[i]) for i in kept)
        warmup = schema.warmup(_cut(run.warmup, kept, n), kept)
        warmup["warmup_sample_stats"] = _without_unknown(warmup["warmup_sample_stats"])
        groups |= warmup
    return groups


def try_build(posterior: Posterior, request: Request) -> None:
    """Build a result without draws, to find before the run what would fail after it: clashing names, say.

    Raises
    ------
    ArgumentError
        Variables and dimensions cannot stand together in a result.
    """
    schema = Schema.of(request, posterior.description)
    try:
        groups = schema.quantities(np.empty((1, 0, posterior.n_values)), [0])
        container(groups | data_groups(posterior, schema), {})
    except ValueError as error:
        raise ArgumentError(f"model: no result can hold its variables: {check.one_line(error)}") from error


def bare(run: Run, posterior: Posterior) -> dict[str, dict[str, np.ndarray]]:
    """The draws of a run as arrays by group and variable, (chain, draw, ...)."""
    draws = _cut(run.draws, *common_length(run))
    arrays = {
        "posterior": {name: variable.take(draws.values) for name, variable in posterior.variables.items()},
        "sample_stats": draws.stats,
    }
    return arrays if draws.x is None else arrays | {"unconstrained_posterior": {"x": draws.x}}


def data_groups(posterior: Posterior, schema: Schema) -> Groups:
    """The groups of the data, as far as there are any.

    Data are observed if the program models them, or if a quantity is named as theirs.
    """
    observed, constant = posterior.split_data()
    owners = {own for _, own in schema.moved.values()}
    named = [name for name in constant if name in owners]
    groups = {
        "observed_data": observed | {name: constant[name] for name in named},
        "constant_data": {name: data for name, data in constant.items() if name not in named},
    }
    built = {name: schema.labels.dataset(data, {}) for name, data in groups.items() if data}
    for group in built.values():
        levels = {
            name_levels(name): given for name, given in posterior.labels.levels.items() if name in group
        }
        group.coords.update({name: given for name, given in levels.items() if name not in group})
    return built


def common_length(run: Run) -> tuple[list[int], int]:
    """Chains that have draws and the length that all of them have; while none has any, those that started."""
    lengths = [chain.draws.n for chain in run.chains]
    kept = [i for i, length in enumerate(lengths) if length > 0]
    kept = kept or [i for i, chain in enumerate(run.chains) if chain.learnt] or list(range(len(lengths)))
    return kept, min(lengths[i] for i in kept)


def _warmup_rows(chain: ChainResult) -> int:
    return 0 if chain.warmup is None else chain.warmup.n


def _cut(stack: Stack, kept: list[int], n: int) -> Stack:
    """The first `n` rows of the chains kept; a view when all of them are."""
    chains: Any = slice(None) if len(kept) == len(stack.values) else kept
    return Stack(
        stack.values[chains, :n],
        None if stack.x is None else stack.x[chains, :n],
        {name: column[chains, :n] for name, column in stack.stats.items()},
        n,
    )


def _without_unknown(stats: xarray.Dataset) -> xarray.Dataset:
    """Leave out columns of NaN alone: a method without a step size writes such a column."""
    variables = stats.variables
    unknown = [name for name in stats.data_vars if _is_unknown(variables[name].values)]
    return stats.drop_vars(unknown) if unknown else stats


def _is_unknown(column: np.ndarray) -> bool:
    """Whether all entries are NaN."""
    return column.size > 0 and column.dtype.kind == "f" and bool(np.all(np.isnan(column)))


def _common(columns: list[dict[str, Any]]) -> list[str]:
    """Names that all chains have. A run may be stopped where some of them still are in their pilot."""
    return [name for name in columns[0] if all(name in others for others in columns)]


def _adaptation(
    chains: list[ChainResult],
    description: Description,
    own_dims: Mapping[str, tuple[str, ...]],
    known: Mapping[str, Any],
) -> xarray.Dataset:
    """The history over warm-up, (chain, note), what each chain has learnt at its end, and the values `known`.

    There is a note at the end of every stage. Where the warm-up of a chain ends before that of another one,
    its notes end in NaN.

    `own_dims` has the dimensions that a method declares for its learnt arrays; the shape gives the others.
    """
    coords: dict[str, Any] = {
        "chain": [chain.index for chain in chains],
        "unconstrained": description.unconstrained_names,
    }
    variables = dict(known)  # added one after another, each would take xarray a millisecond
    # All chains have the same plan, so the chain with the most notes has the notes of the others too.
    longest = max((chain.history for chain in chains), key=lambda history: len(history.get("iteration", ())))
    for name, column in longest.items():
        if name in ("iteration", "stage"):
            coords[name] = ("note", column)
        else:
            notes = [np.array(chain.history.get(name, ()), float) for chain in chains]
            variables[name] = (("chain", "note"), stack_chains(notes))
    for name in _common([chain.learnt for chain in chains]):
        value = stack_chains([chain.learnt[name] for chain in chains])
        if name == "transport" and not value.size:
            continue
        dims: tuple[str, ...] = tuple(f"{name}_dim_{i}" for i in range(value.ndim - 1))
        if name in own_dims:
            dims = own_dims[name]
        elif value.shape[1:] in ((description.dim,), (description.dim, description.dim)):
            dims = ("unconstrained", "unconstrained_2")[: value.ndim - 1]
        variables[name] = (("chain", *dims), value)
        if "unconstrained_2" in dims:
            coords["unconstrained_2"] = description.unconstrained_names
    variables["start"] = (("chain", "unconstrained"), np.stack([chain.start for chain in chains]))
    for name in _FACTS:
        facts = [getattr(chain, name) for chain in chains]
        if None not in facts:
            variables[name] = ("chain", np.array(facts, dtype=object if name == "first_failure" else None))
    for name in chains[0].counts:
        variables[f"{name}_warmup"] = ("chain", [chain.counts_warmup.get(name, 0) for chain in chains])
        variables[name] = ("chain", [chain.counts[name] for chain in chains])
    return xarray.Dataset(variables, coords=coords)


def _find_missed(chains: list[ChainResult], draws: Stack, posterior: Posterior, seed: int) -> dict[str, Any]:
    """Parts that the draws may lack, with dimensions: heavy tails, and modes that no chain has visited."""
    if not draws.rows:
        return {}
    missed: dict[str, Any] = {}
    indices = tail_indices(draws.values, posterior, int(draws.stats["n_steps"].sum()))
    if not np.all(np.isnan(indices)):
        missed["tail_index"] = ("unconstrained", indices)
    tops = np.concatenate([chain.tops for chain in chains])
    found = find_unvisited(
        tops, draws.values, draws.stats["lp"], posterior, _evaluations(chains, draws), seed
    )
    missed["search_evaluations"] = ((), found.evaluations)
    if found.modes:
        points, logp, rise, log_mass, climbs = zip(*found.modes, strict=True)
        missed["mode"] = (("missed", "unconstrained"), np.array(points))
        missed["mode_lp"] = ("missed", np.array(logp))
        missed["mode_rise"] = ("missed", np.array(rise))
        missed["mode_log_mass"] = ("missed", np.array(log_mass))
        missed["mode_climbs"] = ("missed", np.array(climbs))
    return missed


def _evaluations(chains: list[ChainResult], draws: Stack) -> int:
    """How often the density was evaluated by the iterations of a run, as far as that is known."""
    total = int(draws.stats["n_steps"].sum())
    known = [(chain.evaluations_warmup, chain.evaluations) for chain in chains]
    return max(total, sum((before or 0) + (after or 0) for before, after in known))


def _last_step_sizes(draws: Stack) -> dict[str, Any]:
    """The step size of each chain's last draw, with dimensions; of all its draws, where it is frozen."""
    if not draws.rows or "step_size" not in draws.stats or _is_unknown(draws.stats["step_size"]):
        return {}
    return {"final_step_size": ("chain", draws.stats["step_size"][:, -1].copy())}


@functools.cache
def _version() -> str:
    """Of this package, as installed: looking for it takes a millisecond."""
    return importlib.metadata.version("stanadapt")


def attributes_of(run: Run, job: Job, description: Description, seconds: float) -> dict[str, Any]:
    """Facts about the run, as strings and numbers: netCDF takes nothing else."""
    method = samplers.sampler(job.method)
    attrs = record_attributes(description, run.chains[0].library, job.seed, seconds)
    attrs |= {
        "chains": job.chains,
        "tuning_steps": job.warmup,
        "draws": job.draws,
        "thin": job.thin,
        "method": job.method,
        "settings": json.dumps(samplers.user_values(method, job.settings)),
        "interrupted": int(run.is_interrupted),
    }
    if run.is_interrupted:
        attrs["interrupted_note"] = interrupted_note(run, job)
        attrs["ended_by"] = run.ended_by
    return attrs


def record_attributes(description: Description, library: str, seed: int, seconds: float) -> dict[str, Any]:
    """Facts that every result records, whatever has made its draws."""
    attrs = {
        "created_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "creation_library": "stanadapt",
        "inference_library": "stanadapt",
        "inference_library_version": _version(),
        "sampling_time": seconds,
        "seed": seed,
        "backend": library,
        "versions": json.dumps(versions()),
        "noisy": int(description.noisy),
        "model_hash": description.hash,
        "parameters": json.dumps(list(description.parameters)),
    }
    if names := description.complex_variables:
        attrs["complex"] = json.dumps(names)
    return attrs


def interrupted_note(run: Run, job: Job) -> str:
    """How much of the requested run an early end has left; `diagnose` prints it."""
    kept, n = common_length(run)
    note = f"interrupted: {len(kept)} of {job.chains} chains, {n} of {job.draws // job.thin} draws each"
    early = [chain.index for chain in run.chains if chain.draws.n == 0]
    if early and not samplers.facts(job.method).whole_chains:
        listed = ", ".join(map(str, early[:5])) + (", ..." if len(early) > 5 else "")
        note += f"; still in warm-up: {listed}"
    return note
