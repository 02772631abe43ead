"""Draws on a disk: arrays of Zarr, format 3, which are written in blocks of rows while a run goes on.

A block is a chunk of one chain's rows. It is written once, when all its rows are there. A checkpoint counts
them only after that, so a block that a kill has torn is drawn again. Every chunk has a checksum. xarray
opens the folder without this package.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import shutil
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray
from xarray.backends import BackendArray
from xarray.core import indexing

from ...errors import StoreError
from ...run.draws import Draws, Stack
from ..container import Groups
from ..labels import SAMPLE_DIMS
from ..schema import Schema
from .admission import METADATA, check_array, check_group, check_tree
from .checkpoint import flush_files, write_whole

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
DATA = ("observed_data", "constant_data")
_SETTING = threading.Lock()  # runs in several threads change it, and each restores what it has met
_TORN = ".partial"  # as Zarr names files that it has not yet renamed
_OPENING: dict[str, Any] = {
    "engine": "zarr",
    "consolidated": False,
    "chunks": None,
    "mask_and_scale": False,
    "zarr_format": 3,
}


class Blocks:
    """The arrays of a run. Chains write into them from several threads."""

    def __init__(self, folder: Path, aside: Path, schema: Schema, chains: int, block: int) -> None:
        """`aside` is the folder for arrays that a result leaves out."""
        self.folder, self.aside = folder, aside
        self.schema, self.chains, self.block = schema, chains, block
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
            chunk = self._chunk(array, group, name, chain, first)
            self._unflushed[chain] += [chunk, self.folder / group / name / METADATA]

    def flush(self, chain: int) -> list[Path]:
        """The files of a chain that have been written since the last call, and those that describe them."""
        paths, self._unflushed[chain] = self._unflushed[chain], []
        return list(dict.fromkeys(paths))

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
                quantity = self.schema.quantity(group, name)
                columns = self.schema.description.variables[quantity].columns.ravel()
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

    def grow(self, total: int, *, has_blocks: bool) -> None:
        """Make room for `total` rows of each chain, where draws of a result were written.

        Arrays that were made without a full block go, since checkpoints have all their rows. Those that the
        result left out come back. Groups lose their attributes, which may be damaged.
        """
        if not has_blocks:
            for group in SAMPLED:
                for place in (self.folder, self.aside):
                    if (place / group).exists():
                        shutil.rmtree(place / group)
            self._arrays.clear()
        for path in (*self.folder.glob(METADATA), *self.folder.glob(f"*/{METADATA}")):
            write_whole(path, json.dumps({"zarr_format": 3, "node_type": "group"}).encode())
        for path in sorted(self.aside.glob("*/*")):
            path.rename(self.folder / path.parent.name / path.name)
        for group in SAMPLED:
            for name, array in self._arrays_of_draws(group):
                if array.chunks[1] != self.block:
                    del self._arrays[group, name]
                    shutil.rmtree(self.folder / group / name)
                elif not group.startswith(WARMUP):
                    array.resize((self.chains, total, *array.shape[2:]))

    def flush_all(self) -> None:
        """Flush the descriptions of all arrays to the disk; where they are many, flush everything."""
        flush_files(sorted(self.folder.rglob(METADATA)))

    def remove_torn(self) -> None:
        """Remove the files that a process left behind when it was killed while writing."""
        for path in self.folder.rglob(f"*{_TORN}"):
            path.unlink()

    def write_labels(self, name: str, labels: xarray.Dataset, kept: set[str]) -> None:
        """Write coordinates and attributes of a group of draws, and put all arrays but those kept aside.

        An extended run needs them again.
        """
        for array, _ in self._arrays_of_draws(name):
            if array not in kept:
                self._arrays.pop((name, array), None)
                (self.aside / name).mkdir(parents=True, exist_ok=True)
                (self.folder / name / array).rename(self.aside / name / array)
        self._write(name, labels)

    def write_group(self, name: str, group: xarray.Dataset, digest: str = "") -> None:
        """Write a group that has no draws; of data, whose files have the hash `digest`, the attributes."""
        if name in DATA and self.data_digest() == digest:
            self._write_attributes(name, group.attrs)
            return
        if (self.folder / name).exists():
            shutil.rmtree(self.folder / name)
        self._write(name, group)

    def write_attributes(self, attrs: Mapping[str, Any]) -> None:
        """Write the attributes of the whole."""
        self._write_attributes("", attrs)

    def open_groups(self, *, load: bool) -> tuple[Groups, dict[str, Any]]:
        """The groups of a result, read if they are to be loaded, and the attributes of the whole.

        Raises
        ------
        StoreError
            A file is missing or damaged.
        """
        check_tree(self.folder)
        self._check_chunks(self.folder)
        with _readable(self.folder):
            tree = xarray.open_datatree(_local(self.folder), **_OPENING)
            groups = {
                name: self._order(_with_texts(node.to_dataset())) for name, node in tree.children.items()
            }
            if load:
                groups = {name: group.load() for name, group in groups.items()}
            else:
                groups = {name: self._read_later(name, group) for name, group in groups.items()}
        return groups, {str(name): value for name, value in tree.attrs.items()}

    def read_data(self, digest: str) -> Groups:
        """The groups of data, with the hash of their files. Raises StoreError where that is another one."""
        if self.data_digest() != digest:
            raise StoreError(f"{self.folder}: the data are damaged, or of another run: they have changed")
        groups = {}
        for name in DATA:
            if (self.folder / name).exists():
                check_group(self.folder / name)
                with _readable(self.folder / name):
                    group = xarray.open_dataset(_local(self.folder), group=name, **_OPENING)
                    groups[name] = _with_texts(group.drop_attrs(deep=False)).load()
        return groups

    def open_rows(self, name: str, like: xarray.Dataset, chains: list[int], n: int) -> xarray.Dataset:
        """The first `n` rows of some chains in a group like `like`, which are not yet read.

        Raises
        ------
        StoreError
            A block is missing, or a description is damaged.
        """
        variables = {}
        for own, each in like.data_vars.items():
            array = self._checked_array(name, str(own), each.variable, n)
            for chain in chains:
                self._check_blocks(array, name, str(own), chain, range(0, n, self.block))
            variables[own] = (each.dims, _lazy(array, self._place(name, str(own))))
        held = xarray.Dataset(variables).isel(chain=chains, draw=slice(n))
        coords = {key: each for key, each in like.coords.items() if "draw" not in each.dims}
        return held.assign_coords(coords | {"draw": np.arange(n)})

    def digest(self) -> str:
        """A hash of the descriptions of all arrays, which have no checksums of their own."""
        texts = [path.read_bytes() for path in sorted(self.folder.rglob(METADATA))]
        return hashlib.sha256(b"".join(texts)).hexdigest()

    def data_digest(self) -> str:
        """A hash of all files of the data, but for attributes of their groups."""
        held = hashlib.sha256()
        for path in sorted(path for name in DATA for path in (self.folder / name).glob("*/**/*")):
            if path.is_file() and path.suffix != _TORN:
                content = hashlib.sha256(path.read_bytes()).hexdigest()
                held.update(f"{path.relative_to(self.folder).as_posix()} {content}\n".encode())
        return held.hexdigest()

    def _read_part(self, group: str, name: str, like: xarray.Variable, chain: int, rows: slice) -> np.ndarray:
        """Rows of a chain's quantity, which is like `like`."""
        array = self._checked_array(group, name, like, rows.stop)
        first = rows.start // self.block * self.block
        self._check_blocks(array, group, name, chain, range(first, rows.stop, self.block))
        words = f"a block of chain {chain}, with some of draws {rows.start} to {rows.stop - 1}, is "
        with _readable(self._place(group, name), words):
            return np.asarray(array[chain, rows])

    def _order(self, group: xarray.Dataset) -> xarray.Dataset:
        """A group with its quantities as the program has them, and others by their names.

        A file system lists them in any order.
        """
        quantities = self.schema.description.variables
        named = [self.schema.moved.get(name, ("", name))[1] for name in quantities]
        drawn = dict.fromkeys(name for name in named if name in group.data_vars)
        names = [*drawn, *sorted(str(name) for name in group.data_vars if name not in drawn)]
        variables = {name: group.variables[name] for name in names}
        return xarray.Dataset(variables, coords=group.coords, attrs=group.attrs)

    def _read_later(self, name: str, group: xarray.Dataset) -> xarray.Dataset:
        """A group with arrays of draws that are read when they are asked for."""
        arrays = dict(self._arrays_of_draws(name))
        later = {
            own: (group[own].dims, _lazy(arrays[str(own)], self._place(name, str(own))), group[own].attrs)
            for own in group.data_vars
            if str(own) in arrays
        }
        return group.assign(later)

    def _checked_array(self, group: str, name: str, like: xarray.Variable, n: int) -> Any:
        """The array of a quantity that is like `like`, with `n` rows at least. Raises StoreError."""
        array = self._array(group, name)
        if array is None:
            raise StoreError(f"{self.folder / group / name} is missing")
        was = array.chunks[1], array.dtype, array.shape[2:], _dims(array)
        if was != (self.block, like.dtype, like.shape[2:], like.dims) or array.shape[1] < n:
            raise StoreError(f"{self.folder / group / name} is damaged: its description has changed")
        return array

    def _check_blocks(self, array: Any, group: str, name: str, chain: int, blocks: range) -> None:
        """Refuse an array where a chain's block is missing: Zarr would read it as NaN."""
        for first in blocks:
            path = self._chunk(array, group, name, chain, first)
            if not path.is_file():
                raise StoreError(f"{path} is missing: it had draws of chain {chain} from {first} on")

    def _check_chunks(self, folder: Path) -> None:
        """Refuse a result where a chunk of any array is missing."""
        import zarr

        for described in sorted(folder.rglob(METADATA)):
            with _readable(described):
                node = zarr.open(_local(described.parent), zarr_format=3)
            if isinstance(node, zarr.Array):
                counts = [range(-(-n // size)) for n, size in zip(node.shape, node.chunks, strict=True)]
                for place in itertools.product(*counts):
                    path = described.parent / node.metadata.encode_chunk_key(place)
                    if not path.is_file():
                        raise StoreError(f"{path} is missing")

    def _chunk(self, array: Any, group: str, name: str, chain: int, first: int) -> Path:
        """The file of a block."""
        place = (chain, first // array.chunks[1], *[0] * (array.ndim - 2))
        return self._place(group, name) / str(array.metadata.encode_chunk_key(place))

    def _place(self, group: str, name: str) -> Path:
        """The folder of an array."""
        aside = self.aside / group / name
        return aside if aside.exists() else self.folder / group / name

    def _arrays_of_draws(self, group: str) -> list[tuple[str, Any]]:
        """The arrays of a group that have draws, with their names."""
        arrays = [(path.name, self._array(group, path.name)) for path in self._paths(group)]
        return [each for each in arrays if _dims(each[1])[:2] == SAMPLE_DIMS]

    def _paths(self, group: str) -> list[Path]:
        """The folders of a group's arrays."""
        return sorted(path.parent for path in (self.folder / group).glob(f"*/{METADATA}"))

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
            path = self._place(group, name)
            if known is None and (path / METADATA).is_file():
                check_array(path)
                # Chunks of zeros are written too. No argument says so here, only a setting of the process.
                with _readable(path), _SETTING, zarr.config.set({"array.write_empty_chunks": True}):
                    known = zarr.open_array(_local(path, read_only=False), mode="r+", zarr_format=3)
                self._arrays[group, name] = known
            return known

    def _new_array(self, group: str, name: str, like: xarray.Variable, total: int, block: int) -> Any:
        """A new array for `total` rows; another thread may have made it meanwhile."""
        from zarr.codecs import Crc32cCodec

        own = like.shape[2:]
        with self._lock:
            if (group, name) not in self._arrays:
                held = self._root("").require_group(group)
                self._arrays[group, name] = held.create_array(
                    name,
                    shape=(self.chains, total, *own),
                    chunks=(1, block, *(max(1, size) for size in own)),
                    dtype=like.dtype,
                    fill_value=np.nan if like.dtype.kind == "f" else 0,
                    compressors=[Crc32cCodec()],
                    dimension_names=[str(dim) for dim in like.dims],
                    config={"write_empty_chunks": True},
                )
            return self._arrays[group, name]

    def _write_attributes(self, place: str, attrs: Mapping[str, Any]) -> None:
        """Write the attributes of a group, of the whole where it has no name."""
        self._root(place).attrs.put(dict(attrs))

    def _root(self, place: str) -> Any:
        """A group to write to, which is made where it is missing."""
        import zarr

        store = _local(self.folder, read_only=False)
        return zarr.open_group(store, path=place, mode="a", zarr_format=3, use_consolidated=False)

    def _write(self, place: str, group: xarray.Dataset) -> None:
        """Add a dataset to a group."""
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
        labelled = group.assign_coords({name: texts[name] for name in texts if name in group.coords})
        labelled = labelled.assign({name: texts[name] for name in texts if name in group.data_vars})
        labelled.to_zarr(
            _local(self.folder, read_only=False),
            group=place,
            mode="a",
            consolidated=False,
            zarr_format=3,
            encoding=encoding,
            write_empty_chunks=True,
        )
        self._write_attributes(place, group.attrs)  # xarray would add them to an earlier result's


class _Rows(BackendArray):
    """An array on the disk as xarray takes it, with errors in words."""

    def __init__(self, array: Any, place: Path) -> None:
        self.array, self.place = array, place
        self.shape, self.dtype = array.shape, array.dtype

    def __getitem__(self, key: Any) -> Any:
        support = indexing.IndexingSupport.BASIC
        return indexing.explicit_indexing_adapter(key, self.shape, support, self._read)

    def _read(self, key: tuple[Any, ...]) -> np.ndarray:
        with _readable(self.place):
            return np.asarray(self.array[key])


def _local(folder: Path, *, read_only: bool = True) -> Any:
    """A folder as Zarr's store of files, whatever its path looks like."""
    from zarr.storage import LocalStore

    return LocalStore(folder, read_only=read_only)


def _dims(array: Any) -> tuple[str, ...]:
    return tuple(array.metadata.dimension_names or ())


def _lazy(array: Any, place: Path) -> Any:
    """The values of an array, read when they are asked for."""
    return indexing.LazilyIndexedArray(_Rows(array, place))


@contextlib.contextmanager
def _readable(path: Path, words: str = "it is ") -> Iterator[None]:
    """Turn the errors of libraries at damaged files, of nearly any type, into a StoreError."""
    try:
        yield
    except Exception as error:
        raise StoreError(f"{path}: {words}damaged ({type(error).__name__}: {error})") from error


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
    """A row that is never read: it has the names and shapes of quantities."""
    x = None if rows.x is None else np.empty((1, rows.x.shape[1]))
    stats = {name: np.empty(1, column.dtype) for name, column in rows.stats.items()}
    return Draws(np.empty((1, rows.values.shape[1])), x, stats, 1)
