"""Draws on a disk: arrays of Zarr, format 3, which are written in blocks of rows while a run goes on.

A block is a chunk of one chain's rows. It is written once, when all its rows are there; only after that does
a checkpoint count them, so a block that a kill has torn is drawn again. Every chunk has a checksum. xarray
opens the folder without this package.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import threading
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray

from ..errors import StoreError
from ..run.draws import Draws, Stack
from .container import Groups
from .labels import SAMPLE_DIMS
from .schema import Schema

# Groups whose arrays are written while a run goes on. Those of warm-up have names that begin so.
WARMUP = "warmup_"
SAMPLED = (
    "posterior",
    "log_likelihood",
    "posterior_predictive",
    "sample_stats",
    "unconstrained_posterior",
    "warmup_posterior",
    "warmup_sample_stats",
)
_METADATA = "zarr.json"


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
        for group, name, values in self._columns([rows], warmup):
            array = self._array(group, name) or self._new_array(group, name, values, total, self.block)
            array[chain, first : first + len(rows.values)] = values.values[0]
            self._unflushed[chain].append(self._chunk(array, group, name, chain, first))

    def flush(self, chain: int) -> list[Path]:
        """The files of a chain that have been written since the last call."""
        paths, self._unflushed[chain] = self._unflushed[chain], []
        return paths

    def read(
        self, chain: int, rows: Draws, first: int, stop: int, *, warmup: bool = False, step: int = 1
    ) -> None:
        """Append rows of a chain to `rows`: every `step`-th from `first` on and before `stop`.

        Raises
        ------
        StoreError
            A block is missing or damaged.
        """
        count = len(range(first, stop, step))
        if not count:
            return
        values = np.full((count, rows.values.shape[1]), np.nan)
        x = None if rows.x is None else np.empty((count, rows.x.shape[1]))
        stats = {name: np.empty(count, column.dtype) for name, column in rows.stats.items()}
        for group, name, like in self._columns([_one_row(rows)], warmup):
            part = self._read_part(group, name, like, chain, slice(first, stop, step))
            if group.endswith("sample_stats"):
                stats[name] = part
            elif group == "unconstrained_posterior":
                x = part
            else:
                columns = self.schema.description.variables[name].columns.ravel()
                values[:, columns] = part.reshape(count, -1)
        rows.append(values, x, stats)

    def close(self, rest: list[Draws], n: int, *, warmup: bool = False) -> None:
        """Write the last of `n` rows of each chain, which no full block has, and cut the arrays to them.

        Where no block has been written at all, the arrays are made now, as long as they need be.
        """
        for group, name, values in self._columns(rest, warmup):
            array = self._array(group, name) or self._new_array(group, name, values, n, max(1, n))
            array.resize((self.chains, n, *values.shape[2:]))
            array[:, n - values.shape[1] : n] = values.values

    def grow(self, total: int) -> None:
        """Have room for `total` rows of each chain, where draws of a result were written.

        Arrays that were made without a full block go, since checkpoints have all their rows.
        """
        for group in SAMPLED:
            for name, array in self._drawn(group):
                if array.chunks[1] != self.block:
                    del self._arrays[group, name]
                    shutil.rmtree(self.folder / group / name)
                elif not group.startswith(WARMUP):
                    array.resize((self.chains, total, *array.shape[2:]))

    def write_labels(self, name: str, labels: xarray.Dataset, kept: set[str]) -> None:
        """Write coordinates and attributes of a group of draws, and remove all arrays but those to keep."""
        for path in self._paths(name):
            if path.name not in kept:
                self._arrays.pop((name, path.name), None)
                shutil.rmtree(path)
        self._write(name, labels)

    def write_group(self, name: str, group: xarray.Dataset) -> None:
        """Write a group that has no draws."""
        if (self.folder / name).exists():
            shutil.rmtree(self.folder / name)
        self._write(name, group)

    def write_attributes(self, attrs: Mapping[str, Any]) -> None:
        """Write the attributes of the whole."""
        import zarr

        root = zarr.open_group(self.folder, mode="a")
        root.attrs.clear()
        root.attrs.update(attrs)

    def open_groups(self) -> tuple[Groups, dict[str, Any]]:
        """The groups that are there, not yet read, and the attributes of the whole.

        Raises
        ------
        StoreError
            A file is missing or damaged.
        """
        if not (self.folder / _METADATA).is_file():
            return {}, {}
        try:
            with _quiet():
                tree = xarray.open_datatree(
                    self.folder, engine="zarr", consolidated=False, chunks=None, mask_and_scale=False
                )
            groups = {name: _with_texts(node.to_dataset()) for name, node in tree.children.items()}
        except Exception as error:  # the libraries raise nearly anything at damaged files
            raise StoreError(f"{self.folder} is damaged ({type(error).__name__}: {error})") from error
        return groups, {str(name): value for name, value in tree.attrs.items()}

    def check(self) -> None:
        """Raise StoreError where a block of a result is missing: Zarr would read it as NaN."""
        for group in SAMPLED:
            for name, array in self._drawn(group):
                for chain in range(self.chains):
                    for first in range(0, array.shape[1], array.chunks[1]):
                        self._check_chunk(array, group, name, chain, first)

    def digest(self) -> str:
        """A hash of the descriptions of all arrays, which have no checksums of their own."""
        texts = [path.read_bytes() for path in sorted(self.folder.rglob(_METADATA))]
        return hashlib.sha256(b"".join(texts)).hexdigest()

    def _read_part(self, group: str, name: str, like: xarray.Variable, chain: int, rows: slice) -> np.ndarray:
        """Rows of a chain's quantity, which is like `like`."""
        array = self._array(group, name)
        if array is None:
            raise StoreError(f"{self.folder / group / name} is missing")
        expected = (self.block, like.dtype, like.shape[2:])
        if (array.chunks[1], array.dtype, array.shape[2:]) != expected or array.shape[1] < rows.stop:
            raise StoreError(f"{self.folder / group / name} is damaged: its description has changed")
        for start in range(rows.start // self.block * self.block, rows.stop, self.block):
            self._check_chunk(array, group, name, chain, start)
        try:
            return np.asarray(array[chain, rows])
        except Exception as error:  # the library raises nearly anything at a damaged file
            raise StoreError(
                f"{self.folder / group / name}: a block of chain {chain} is damaged, among draws "
                f"{rows.start} to {rows.stop - 1} ({type(error).__name__}: {error})"
            ) from error

    def _check_chunk(self, array: Any, group: str, name: str, chain: int, first: int) -> None:
        path = self._chunk(array, group, name, chain, first)
        if not path.is_file():
            raise StoreError(f"{path} is missing: it had draws of chain {chain} from {first} on")

    def _chunk(self, array: Any, group: str, name: str, chain: int, first: int) -> Path:
        """The file of a block."""
        place = (chain, first // array.chunks[1], *[0] * (array.ndim - 2))
        return self.folder / group / name / str(array.metadata.encode_chunk_key(place))

    def _drawn(self, group: str) -> list[tuple[str, Any]]:
        """The arrays of a group that have draws, with their names."""
        arrays = [(path.name, self._array(group, path.name)) for path in self._paths(group)]
        return [each for each in arrays if tuple(each[1].metadata.dimension_names[:2]) == SAMPLE_DIMS]

    def _paths(self, group: str) -> list[Path]:
        """The folders of a group's arrays."""
        return sorted(path.parent for path in (self.folder / group).glob(f"*/{_METADATA}"))

    def _columns(self, chains: list[Draws], warmup: bool) -> Iterator[tuple[str, str, xarray.Variable]]:
        """Group, name and values (chain, row, ...) of every quantity of chains with as many rows each."""
        first = chains[0]
        stack = Stack(
            np.stack([rows.values for rows in chains]),
            None if first.x is None else np.stack([rows.x for rows in chains if rows.x is not None]),
            {name: np.stack([rows.stats[name] for rows in chains]) for name in first.stats},
            len(first.values),
        )
        numbers = range(len(chains))
        groups = self.schema.warmup(stack, numbers) if warmup else self.schema.draws(stack, numbers)
        for group, dataset in groups.items():
            for name in dataset.data_vars:
                yield group, str(name), dataset.variables[name]

    def _array(self, group: str, name: str) -> Any:
        """The array of a quantity; None where there is none."""
        import zarr

        with self._lock:
            known = self._arrays.get((group, name))
            path = self.folder / group / name
            if known is None and (path / _METADATA).is_file():
                try:
                    with _quiet():
                        known = zarr.open_array(path, mode="r+")
                except Exception as error:  # the library raises nearly anything at a damaged file
                    raise StoreError(f"{path} is damaged ({type(error).__name__}: {error})") from error
                self._arrays[group, name] = known
            return known

    def _new_array(self, group: str, name: str, like: xarray.Variable, total: int, block: int) -> Any:
        """A new array for `total` rows; another thread may have made it meanwhile."""
        import zarr
        from zarr.codecs import Crc32cCodec

        own = like.shape[2:]
        with self._lock, _quiet():
            if (group, name) not in self._arrays:
                held = zarr.open_group(self.folder, mode="a").require_group(group)
                self._arrays[group, name] = held.create_array(
                    name,
                    shape=(self.chains, total, *own),
                    chunks=(1, block, *(max(1, size) for size in own)),
                    dtype=like.dtype,
                    fill_value=np.nan if like.dtype.kind == "f" else 0,
                    compressors=[Crc32cCodec()],
                    dimension_names=[str(dim) for dim in like.dims],
                )
            return self._arrays[group, name]

    def _write(self, place: str, group: xarray.Dataset) -> None:
        """Write a dataset beside what is in the group already."""
        for variable in group.variables:
            path = self.folder / place / str(variable)
            if path.exists():
                shutil.rmtree(path)
        from zarr.codecs import Crc32cCodec

        texts = {
            name: (variable.dims, variable.values.astype(object))
            for name, variable in group.variables.items()
            if variable.dtype.kind == "U"
        }
        encoding = {name: {"compressors": [Crc32cCodec()]} for name in group.variables}
        with _quiet():
            labelled = group.assign_coords({name: texts[name] for name in texts if name in group.coords})
            labelled = labelled.assign({name: texts[name] for name in texts if name in group.data_vars})
            labelled.to_zarr(
                self.folder, group=place, mode="a", consolidated=False, zarr_format=3, encoding=encoding
            )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without warnings of texts in format 3; and with chunks written whatever they hold."""
    import zarr

    with warnings.catch_warnings(), zarr.config.set({"array.write_empty_chunks": True}):
        warnings.simplefilter("ignore")
        yield


def _with_texts(group: xarray.Dataset) -> xarray.Dataset:
    """Texts as the run had them: arrays of texts as coordinates, and of objects as variables."""
    texts = {
        name: (variable.dims, variable.values.astype(object))
        for name, variable in group.variables.items()
        if variable.dtype.kind in "OT"
    }
    coords = {name: (dims, values.astype(str)) for name, (dims, values) in texts.items()}
    coords = {name: text for name, text in coords.items() if name in group.coords}
    return group.assign_coords(coords).assign(
        {name: text for name, text in texts.items() if name in group.data_vars}
    )


def _one_row(rows: Draws) -> Draws:
    """A row that nobody reads, for the names and shapes of quantities."""
    x = None if rows.x is None else np.empty((1, rows.x.shape[1]))
    stats = {name: np.empty(1, column.dtype) for name, column in rows.stats.items()}
    return Draws(np.empty((1, rows.values.shape[1])), x, stats, 1)
