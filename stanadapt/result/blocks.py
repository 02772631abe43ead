"""Draws on a disk: arrays of Zarr, format 3, which are written in blocks of rows while a run goes on.

A block is a chunk of one chain's rows. It is written once, when all its rows are there; only after that does a
checkpoint count them, so a block that a kill has torn is drawn again. Every chunk has a checksum. xarray opens
the folder without this package.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import xarray

from ..errors import StoreError
from ..run.draws import Draws, Stack
from .container import Groups
from .labels import SAMPLE_DIMS
from .schema import Schema

WARMUP = "warmup_"  # how the names of groups of warm-up begin


class Blocks:
    """The arrays of a run. Chains write into them from several threads."""

    def __init__(self, folder: Path, schema: Schema, chains: int, block: int) -> None:
        self.folder, self.schema, self.chains, self.block = folder, schema, chains, block
        self._lock = threading.Lock()
        self._arrays: dict[tuple[str, str], Any] = {}
        self._unflushed: list[list[Path]] = [[] for _ in range(chains)]

    def put(self, chain: int, first: int, rows: Draws, total: int, *, warmup: bool = False) -> None:
        """Write a block of a chain's rows, which begins with row `first` of `total` there may be.

        Raises OSError where there is no room.
        """
        for group, name, values in self._columns(rows, warmup):
            array = self._array(group, name, values, total, self.block)
            array[chain, first : first + len(rows.values)] = values.values[0]
            key = array.metadata.encode_chunk_key((chain, first // self.block, *[0] * (array.ndim - 2)))
            self._unflushed[chain].append(self.folder / group / name / key)

    def flush(self, chain: int) -> list[Path]:
        """The files of a chain that have been written since the last call."""
        paths, self._unflushed[chain] = self._unflushed[chain], []
        return paths

    def read(self, chain: int, rows: Draws, first: int, stop: int, *, warmup: bool = False, step: int = 1) -> None:
        """Append rows of a chain from the blocks, every `step`-th from `first` on and before `stop`.

        Raises
        ------
        StoreError
            A block is missing or damaged.
        """
        count = len(range(first, stop, step))
        if not count:
            return
        values = np.full((count, rows.values.shape[1]), np.nan)
        x = None if rows.x is None else np.full((count, rows.x.shape[1]), np.nan)
        stats = {name: np.empty(count, column.dtype) for name, column in rows.stats.items()}
        for group, name, template in self._columns(_one_row(rows), warmup):
            array = self._array(group, name, template, stop, self.block, write=False)
            try:
                part = array[chain, first:stop:step]
            except Exception as error:  # the library raises nearly anything at a damaged file
                raise StoreError(
                    f"{self.folder / group / name}: a block of chain {chain} is damaged, among draws {first} to "
                    f"{stop - 1} ({type(error).__name__}: {error})"
                ) from error
            if group.endswith("sample_stats"):
                stats[name] = part
            elif group == "unconstrained_posterior":
                x = part
            else:
                values[:, self.schema.description.variables[name].columns.ravel()] = part.reshape(count, -1)
        rows.append(values, x, stats)

    def close(self, stack: Stack, first: int, n: int, *, warmup: bool = False) -> None:
        """Write the rows from `first` on, which no full block has, and cut the arrays to `n` rows.

        Where no block has been written at all, the arrays are made now, as long as they need be.
        """
        rows = Draws(*stack[:3], n=n - first)
        for group, name, values in self._columns(rows, warmup, range(self.chains)):
            array = self._array(group, name, values, n, self.block if first else max(1, n))
            array.resize((self.chains, n, *values.shape[2:]))
            array[:, first:n] = values.values

    def grow(self, total: int) -> None:
        """Have room for `total` rows of each chain. Arrays without a full block go, and are made again."""
        import zarr

        for group, names in self._known().items():
            for name in names:
                array = zarr.open_array(self.folder / group / name, mode="r+")
                if group.startswith(WARMUP):
                    continue
                if array.chunks[1] != self.block:
                    del zarr.open_group(self.folder / group, mode="r+")[name]
                else:
                    array.resize((self.chains, total, *array.shape[2:]))
        self._arrays.clear()

    def _known(self) -> dict[str, list[str]]:
        """Names of the arrays of draws that are there, by group."""
        known: dict[str, list[str]] = {}
        for path in self.folder.glob("*/*/zarr.json"):
            known.setdefault(path.parts[-3], []).append(path.parts[-2])
        return known

    def _columns(
        self, rows: Draws, warmup: bool, chains: Any = (0,)
    ) -> Iterator[tuple[str, str, xarray.Variable]]:
        """Group, name and values (chain, row, ...) of every quantity."""
        arrays = (rows.values, rows.x, rows.stats)
        if rows.values.ndim == 2:
            x = None if rows.x is None else rows.x[None]
            arrays = (rows.values[None], x, {name: column[None] for name, column in rows.stats.items()})
        stack = Stack(*arrays, rows=rows.n)
        groups = self.schema.warmup(stack, chains) if warmup else self.schema.draws(stack, chains)
        for group, dataset in groups.items():
            for name in dataset.data_vars:
                yield group, str(name), dataset.variables[name]

    def _array(
        self, group: str, name: str, like: xarray.Variable, total: int, block: int, write: bool = True
    ) -> Any:
        """The array of a quantity, which is made where it is missing."""
        import zarr
        from zarr.codecs import Crc32cCodec

        with self._lock:
            if (group, name) not in self._arrays:
                path = self.folder / group / name
                if (path / "zarr.json").is_file():
                    array = zarr.open_array(path, mode="r+" if write else "r")
                elif not write:
                    raise StoreError(f"{path} is missing")
                else:
                    own = like.shape[2:]
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        array = zarr.open_group(self.folder, mode="a").require_group(group).create_array(
                            name,
                            shape=(self.chains, total, *own),
                            chunks=(1, block, *own),
                            dtype=like.dtype,
                            fill_value=np.nan if like.dtype.kind == "f" else 0,
                            compressors=[Crc32cCodec()],
                            dimension_names=[str(dim) for dim in like.dims],
                        )
                self._arrays[group, name] = array
            return self._arrays[group, name]


def _one_row(rows: Draws) -> Draws:
    """A row that nobody reads, for the names and shapes of quantities."""
    x = None if rows.x is None else np.empty((1, rows.x.shape[1]))
    stats = {name: np.empty(1, column.dtype) for name, column in rows.stats.items()}
    return Draws(np.empty((1, rows.values.shape[1])), x, stats, 1)
