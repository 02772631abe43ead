"""Results in stores: written when a run is over, read whenever they are asked for."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from ..errors import StoreError
from ..run.draws import ChainResult, Draws, Run, Stack
from ..run.turns import Work
from .blocks import SAMPLED, WARMUP
from .build import attributes_of, finish, run_groups
from .container import Groups, attributes, container, datasets
from .store import Store, failures

if TYPE_CHECKING:
    from .container import InferenceData

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
                store.blocks.write_group(name, group)
        store.blocks.write_attributes(attributes(idata))


def read_store(store: Store) -> InferenceData:
    """The result of a run that is over, or what there is of one that is not."""
    if store.ended().get("finished"):
        return _read_whole(store)
    try:
        return _read_part(store)
    except StoreError:
        if store.ended().get("finished"):  # it has ended meanwhile
            return _read_whole(store)
        raise


def thin_run(store: Store, work: Work, run: Run) -> Run:
    """A run with some thousand rows of each chain, evenly spread, for what looks at all of them at once."""
    n = min(chain.draws.n for chain in run.chains)
    step = max(1, n // _SHOWN)
    job, description = store.asked.job, store.asked.description
    rows = len(range(0, n, step))
    stack = Stack.empty(job.chains, rows, description, job)
    chains = []
    for i, chain in enumerate(run.chains):
        draws = stack.chain(i)
        full = min(work.draws[i].first, n)
        store.blocks.read(i, draws, 0, full, step=step)
        for row in range(-(-full // step) * step, n, step):
            part = work.draws[i].part(row, row + 1)
            draws.append(part.values, part.x, part.stats)
        chains.append(dataclasses.replace(chain, draws=draws))
    return run._replace(chains=chains, draws=stack)


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
        rest.append(rows.written())
    return rest


def _read_whole(store: Store) -> InferenceData:
    """The result as it was written."""
    if store.blocks.digest() != store.ended().get("digest"):
        raise StoreError(f"{store.folder} is damaged: descriptions of its arrays have changed")
    store.blocks.check()
    groups, attrs = store.blocks.open_groups()
    if not store.is_lazy:
        groups = {name: group.load() for name, group in groups.items()}
    return container(groups, attrs)


def _read_part(store: Store) -> InferenceData:
    """What the last checkpoints have."""
    job, description = store.asked.job, store.asked.description
    room, draws, warmup, values = store.rooms()
    chains = []
    for i, value in enumerate(values):
        if value is None:
            nowhere = np.full(description.dim, np.nan)
            chains.append(ChainResult(i, draws[i], warmup[i], nowhere, description.library))
        else:
            chains.append(value.result(job, draws[i], warmup[i], description.library))
    run = Run(chains, *room, False, str(store.ended().get("ended_by", "")))
    seconds = max(chain.seconds_total for chain in chains)
    attrs = attributes_of(run, job, description, seconds) | store.asked.notes
    attrs |= store.ended().get("notes", {})
    attrs |= {"store": str(store.folder), "partial": 1, "interrupted": 1}
    note = str(
        attrs.get("interrupted_note", "interrupted: all draws are there, and the result was not built")
    )
    attrs["interrupted_note"] = f"{note}; {store.state()}"
    groups = run_groups(run, job, store.schema, None)
    if store.is_lazy:
        groups |= _full_blocks(store, draws)
    others = store.blocks.open_groups()[0].items()
    groups |= {name: group.load() for name, group in others if name in ("observed_data", "constant_data")}
    return finish(groups, attrs)


def _full_blocks(store: Store, draws: list[Draws]) -> Groups:
    """The groups of draws in the blocks that all chains have, which stay on the disk."""
    block = store.asked.block
    n = min(each.n for each in draws) // block * block
    groups = store.blocks.open_groups()[0]
    return {
        name: group.isel(draw=slice(n)).assign_coords(
            chain=np.arange(store.asked.job.chains), draw=np.arange(n)
        )
        for name, group in groups.items()
        if name in SAMPLED and not name.startswith("warmup_")
    }
