"""Results in stores: written when a run is over, and read on request."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING

import numpy as np

from ...errors import StoreError
from ...run.draws import ChainResult, Draws, Run, Stack
from ...run.workers.turns import Work
from ..build import attributes_of, common_length, finish, run_groups
from ..container import attributes, container, datasets
from .blocks import SAMPLED, WARMUP
from .run_folder import failures, is_locked
from .store import Store, open_store

if TYPE_CHECKING:
    from ..container import InferenceData

_PATIENCE, _PAUSE = 5.0, 0.1  # seconds
_SHOWN = 5_000  # rows of each chain that are looked at where the draws are not held in memory


def write_result(store: Store, idata: InferenceData, draws: list[Draws], warmup: list[Draws | None]) -> None:
    """Complete the arrays of a store with a result's other groups, its coordinates and attributes.

    Raises StoreError where there is no room.
    """
    groups = datasets(idata)
    n = min(each.n for each in draws)
    with failures(store.folder):
        store.blocks.close(_rest(store, draws, n, warmup=False), n)
        n_warmup = 0
        early = [each for each in warmup if each is not None]
        if early:
            n_warmup = min(each.n for each in early)
            store.blocks.close(_rest(store, early, n_warmup, warmup=True), n_warmup, warmup=True)
        for name, group in groups.items():
            if name in SAMPLED:
                length = n_warmup if name.startswith(WARMUP) else n
                labels = group.drop_vars(list(group.data_vars)).isel(draw=slice(0)).drop_vars("draw")
                labels = labels.assign_coords(draw=np.arange(length))
                store.blocks.write_labels(name, labels, {str(each) for each in group.data_vars})
            else:
                store.blocks.write_group(name, group, store.asked.facts["labels"])
        store.blocks.write_attributes(attributes(idata))
        store.blocks.flush_all()


def read_store(store: Store, *, is_own: bool = False) -> InferenceData:
    """The result of a finished run, or the draws so far of an unfinished one.

    `is_own`: this process has the lock, so that no other process changes the folder meanwhile.
    """
    late = time.monotonic() + _PATIENCE
    while True:
        ended = store.read_end()
        try:
            return _read_whole(store) if ended.get("finished") else _read_part(store)
        except StoreError:
            if is_own:
                raise
            # Asked first: a process says how the run has ended before it lets go of the lock.
            goes_on = is_locked(store.folder)
            now = open_store(store.folder)
            if (now.read_end(), now.asked.job) == (ended, store.asked.job):
                if time.monotonic() > late or not goes_on:
                    raise
                time.sleep(_PAUSE)  # its process may be about to complete the result
            store = now


def thin_run(store: Store, work: Work, run: Run) -> Run:
    """A run with some thousand rows of each chain, evenly spread, for statistics that need them at once."""
    stack, draws = _thin(store, work.draws, warmup=False)
    shown = [dataclasses.replace(chain, draws=rows) for chain, rows in zip(run.chains, draws, strict=True)]
    early = [rows for rows in work.warmup if rows is not None]
    if not early:
        return run._replace(chains=shown, draws=stack)
    before, warmup = _thin(store, early, warmup=True)
    shown = [dataclasses.replace(chain, warmup=rows) for chain, rows in zip(shown, warmup, strict=True)]
    return run._replace(chains=shown, draws=stack, warmup=before)


def _thin(store: Store, held: list[Draws], *, warmup: bool) -> tuple[Stack, list[Draws]]:
    """Some thousand rows of each chain."""
    n = min(each.n for each in held)
    step = max(1, n // _SHOWN)
    stack = Stack.empty(len(held), len(range(0, n, step)), store.asked.description, store.asked.job)
    thinned = []
    for i, each in enumerate(held):
        rows = stack.chain(i)
        full = min(each.first, n)
        store.blocks.read(i, rows, 0, full, warmup=warmup, step=step)
        for row in range(-(-full // step) * step, n, step):
            part = each.part(row, row + 1)
            rows.append(part.values, part.x, part.stats)
        thinned.append(rows)
    return stack, thinned


def _rest(store: Store, draws: list[Draws], n: int, *, warmup: bool) -> list[Draws]:
    """The rows of each chain, up to row `n`, that the last full block of all chains does not have."""
    first = n // store.asked.block * store.asked.block
    rest = []
    for i, each in enumerate(draws):
        if each.first <= first:
            rest.append(each.part(first, n))
            continue
        rows = each.room(n - first)  # its own is full of later rows
        store.blocks.read(i, rows, first, n, warmup=warmup)
        rest.append(rows.trim())
    return rest


def _read_whole(store: Store) -> InferenceData:
    """The result as it was written."""
    if store.blocks.digest() != store.read_end().get("digest"):
        raise StoreError(f"{store.folder} is damaged: descriptions of its arrays have changed")
    groups, attrs = store.blocks.open_groups(load=not store.is_lazy)
    labels = store.schema.labels
    return container({name: labels.label(group) for name, group in groups.items()}, attrs)


def _on_disk(store: Store, run: Run) -> tuple[Run, dict[str, int]]:
    """A run whose rows are on the disk only; here the first row of each chain stands for them.

    The numbers count the rows of draws and of warm-up that are to be read from blocks: every chain has them
    in full blocks.
    """
    job, description, block = store.asked.job, store.asked.description, store.asked.block
    kept, n = common_length(run)
    lengths = {}
    chains = list(run.chains)
    if any(run.chains[i].draws.first for i in kept):
        lengths["draws"] = n = n // block * block
        stack = Stack.empty(job.chains, 1, description, job)
        for i in kept:
            one = stack.chain(i)
            store.blocks.read(i, one, 0, 1)
            one.n, one.rows = n, job.rows
            chains[i] = dataclasses.replace(chains[i], draws=one)
        run = run._replace(draws=stack)
    early = {i: warmup for i in kept if (warmup := run.chains[i].warmup) is not None}
    if any(warmup.first for warmup in early.values()):
        lengths["warmup"] = n = min(warmup.n for warmup in early.values()) // block * block
        stack = Stack.empty(job.chains, 1, description, job)
        for i in kept:
            one = stack.chain(i)
            store.blocks.read(i, one, 0, 1, warmup=True)
            one.n = n
            chains[i] = dataclasses.replace(chains[i], warmup=one)
        run = run._replace(warmup=stack)
    return run._replace(chains=chains), lengths


def _read_part(store: Store) -> InferenceData:
    """The values in the last checkpoints."""
    job, description = store.asked.job, store.asked.description
    room, draws, warmup, values = store.rooms()
    chains = []
    for i, value in enumerate(values):
        if value is None:
            nowhere = np.full(description.dim, np.nan)
            chains.append(ChainResult(i, draws[i], warmup[i], nowhere, description.library))
        else:
            chains.append(value.result(job, draws[i], warmup[i], description.library))
    run, lengths = _on_disk(store, Run(chains, *room, False, str(store.read_end().get("ended_by", ""))))
    seconds = max(chain.seconds_total for chain in chains)
    attrs = attributes_of(run, job, description, seconds) | store.asked.notes
    attrs |= store.read_end().get("notes", {})
    attrs |= {"store": str(store.folder), "partial": 1, "interrupted": 1}
    note = str(
        attrs.get("interrupted_note", "interrupted: all draws are there, and the result was not built")
    )
    attrs["interrupted_note"] = f"{note}; {store.state()}"
    groups = run_groups(run, job, store.schema, None)
    kept = common_length(run)[0]
    for name in set(SAMPLED) & set(groups):
        kind = "warmup" if name.startswith(WARMUP) else "draws"
        if kind in lengths:
            groups[name] = store.blocks.open_rows(name, groups[name], kept, lengths[kind])
    return finish(groups | store.blocks.read_data(store.asked.facts["labels"]), attrs, store.code())
