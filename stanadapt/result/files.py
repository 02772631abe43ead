"""Results as netCDF files, and files of draws that were rescued when the result could not be built."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5netcdf
import h5py
import numpy as np
import xarray
from xarray.backends import H5NetCDFStore

from .. import check
from ..errors import OutputError
from .container import Groups, attributes, container, datasets
from .labels import SAMPLE_DIMS, Labels

if TYPE_CHECKING:
    from .container import InferenceData

Arrays = Mapping[str, Mapping[str, np.ndarray]]  # by group and variable
_RESCUED = "draws.npz"
_HDF5 = ("v110", "v110")  # the first version whose descriptions all have checksums, of 2016
_ATTRIBUTES = "attributes"  # the entry of a rescue file that holds them, as JSON


def write(result: InferenceData, path: str | Path) -> None:
    """Write a result as netCDF; an older file at `path` is replaced when the new one is whole.

    Raises
    ------
    OutputError
        The file cannot be written, or netCDF cannot hold one of the names.
    """
    groups = datasets(result)
    with whole_files([path], overwrite=True) as (unfinished,):
        _check_names(groups)
        try:
            with unfinished.open("w+b", buffering=0) as file:
                _dump(groups, attributes(result), _Patient(file))
        except (ValueError, TypeError) as error:  # what an attribute or a label holds
            raise OutputError(f"{path} cannot be written: {check.one_line(error)}") from error


@contextlib.contextmanager
def whole_files(paths: Sequence[str | os.PathLike[str]], *, overwrite: bool) -> Iterator[list[Path]]:
    """Places to write files, which get the names in `paths` when all of them are whole and on the disk.

    Raises
    ------
    OutputError
        A file cannot be written, or is there already and `overwrite` is not set.
    """
    targets = [check.output(path, overwrite=overwrite) for path in paths]
    unfinished = [check.unfinished(target) for target in targets]
    shown = paths[0] if paths else ""
    try:
        yield unfinished
        for place, target in zip(unfinished, targets, strict=True):
            shown = target
            with place.open("rb+") as file:
                os.fsync(file.fileno())
        for place, target in zip(unfinished, targets, strict=True):
            shown = target
            place.replace(target)
    except OutputError:
        raise
    except OSError as error:
        raise OutputError(f"{shown} cannot be written: {check.one_line(error)}") from error
    finally:
        for place in unfinished:
            place.unlink(missing_ok=True)


def read(path: str | Path) -> InferenceData:
    """Read a result from a netCDF file, by whatever program it was written, or the draws of a rescue file.

    A file without groups, such as netCDF 3 is, holds a posterior if it has variables by chain and draw.

    Raises
    ------
    OutputError
        There is no such file, or it holds no posterior.
    """
    if not Path(path).is_file():
        raise OutputError(f"{path}: there is no such file")
    if zipfile.is_zipfile(path):
        return _read_rescued(path)
    try:
        groups, attrs = _read_version_3(path) if _is_version_3(path) else _read_version_4(path)
    except OutputError:
        raise
    except Exception as error:  # the libraries raise nearly anything at a damaged file
        text = check.one_line(error)
        fault = "it is damaged, or no netCDF"
        # The latter is what HDF5 says of the checksums of numbers.
        if "checksum" in text or "filter returned failure" in text:
            fault = "it is damaged, since it does not have the checksums that it names"
        raise OutputError(f"{path} cannot be read as netCDF: {fault} ({text})") from error
    if "posterior" not in groups:
        raise OutputError(
            f"{path} has no group named posterior, and outside of groups no variables with the dimensions "
            f"{' and '.join(SAMPLE_DIMS)}"
        )
    return container(groups, attrs)


def _is_version_3(path: str | Path) -> bool:
    """By its first bytes; version 4 is HDF5."""
    with Path(path).open("rb") as file:
        return file.read(3) == b"CDF"


def _read_version_3(path: str | Path) -> tuple[Groups, dict[str, Any]]:
    with xarray.open_dataset(path, engine="scipy") as dataset:
        return _ungrouped(dataset.load())


def _read_version_4(path: str | Path) -> tuple[Groups, dict[str, Any]]:
    with h5py.File(path) as file:
        dict(file.attrs)  # where these are damaged, h5netcdf's file prints a traceback when it is deleted
        _check_own(path, file)
    with xarray.open_datatree(path, engine="h5netcdf") as tree:
        groups = {name: node.to_dataset().load() for name, node in tree.children.items()}
        alone, attrs = _ungrouped(tree.to_dataset().load())
    return (groups if "posterior" in groups else groups | alone), attrs


def _check_own(path: str | Path, file: h5py.File) -> None:
    """Refuse a file with parts that HDF5 would read from other files: it may come from somebody else.

    Raises
    ------
    OutputError
        It names the part.
    """
    waiting, seen = [file["/"]], set()
    while waiting:
        group = waiting.pop()
        address = h5py.h5o.get_info(group.id).addr
        if address in seen:
            continue
        seen.add(address)
        for name in group:
            if isinstance(group.get(name, getlink=True), h5py.ExternalLink):
                raise OutputError(f"{path}: {group.name}/{name} is a link to another file, which is not read")
            held = group.get(name)
            if isinstance(held, h5py.Group):
                waiting.append(held)
            elif isinstance(held, h5py.Dataset) and (held.external or held.is_virtual):
                raise OutputError(f"{path}: {held.name} has its numbers in other files, which are not read")


def _ungrouped(dataset: xarray.Dataset) -> tuple[Groups, dict[str, Any]]:
    """The variables outside of groups, as a posterior if they hold draws; and the attributes there."""
    attrs = {str(name): value for name, value in dataset.attrs.items()}
    drawn = any(set(SAMPLE_DIMS) <= set(values.dims) for values in dataset.data_vars.values())
    return ({"posterior": dataset} if drawn else {}), attrs


def rescue(arrays: Arrays, attrs: Mapping[str, Any]) -> Path:
    """Write draws by the simplest means, and return the path of the file.

    The file is one of `numpy.load`, with the entries `posterior/theta` and so on, (chain, draw, ...), and
    without pickles. It is put among temporary files, or where there is no room into the current folder.

    Raises
    ------
    OutputError
        There is no room in either place.
    """
    entries = {f"{group}/{name}": array for group, held in arrays.items() for name, array in held.items()}
    entries = {name: array.astype(str) if array.dtype == object else array for name, array in entries.items()}
    entries[_ATTRIBUTES] = np.array(json.dumps(dict(attrs), default=str))
    reasons = []
    for place in (None, Path.cwd()):
        try:
            folder = Path(tempfile.mkdtemp(prefix="stanadapt-", dir=place))
            try:
                np.savez(folder / _RESCUED, **entries)  # type: ignore[arg-type]
            except OSError:
                shutil.rmtree(folder, ignore_errors=True)
                raise
            return folder / _RESCUED
        except OSError as error:
            reasons.append(check.one_line(error))
    raise OutputError(f"the draws cannot be rescued: {'; '.join(reasons)}")


def rescue_result(result: InferenceData, name: str) -> Path:
    """The same for a result: as netCDF of that name among temporary files, where it can be written at all."""
    with contextlib.suppress(OSError):
        folder = Path(tempfile.mkdtemp(prefix="stanadapt-"))
        try:
            write(result, folder / name)
        except OutputError:
            folder.rmdir()
        else:
            return folder / name
    groups = datasets(result).items()
    arrays = {name: {str(key): group[key].values for key in group.data_vars} for name, group in groups}
    return rescue(arrays, attributes(result))


def _read_rescued(path: str | Path) -> InferenceData:
    groups: dict[str, dict[str, np.ndarray]] = {}
    try:
        with np.load(path, allow_pickle=False) as entries:
            attrs = json.loads(str(entries[_ATTRIBUTES]))
            for entry in entries.files:
                group, slash, name = entry.partition("/")
                if slash:
                    groups.setdefault(group, {})[name] = entries[entry]
        built = {name: _rescued_group(arrays) for name, arrays in groups.items()}
        for group in built.values():
            group.attrs |= attrs
        if not {*SAMPLE_DIMS} <= {*built["posterior"].dims}:
            raise ValueError("its posterior has no chains and draws")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, zipfile.BadZipFile) as error:
        raise OutputError(f"{path} cannot be read as rescued draws: {check.one_line(error)}") from error
    return container(built, attrs)


def _rescued_group(arrays: Mapping[str, np.ndarray]) -> xarray.Dataset:
    """Arrays (chain, draw, ...) with dimensions as ArviZ names them; others have dimensions of their own."""
    shapes = {array.shape[:2] for array in arrays.values() if array.ndim >= 2}
    if len(shapes) != 1 or any(array.ndim < 2 for array in arrays.values()):
        return Labels({}, {}).dataset(arrays, {})
    head = {dim: np.arange(n) for dim, n in zip(SAMPLE_DIMS, shapes.pop(), strict=True)}
    return Labels({}, {}).dataset(arrays, head)


def _check_names(groups: Groups) -> None:
    """Refuse a name that netCDF would read as a path inside the file."""
    for group in groups.values():
        for name in (*group.variables, *group.dims):
            text = str(name)
            if not text or text in (".", "..") or "/" in text or "\0" in text:
                raise OutputError(
                    f"the name {text!r} cannot be written as netCDF: it must not be empty, '.' or '..', and "
                    "must not hold '/' or NUL"
                )


def _dump(groups: Groups, attrs: Mapping[str, Any], out: _Patient) -> None:
    """Write a whole netCDF file into `out`. Raises the first OSError that writing met."""
    try:
        with h5netcdf.File(out, "w", libver=_HDF5) as file:
            xarray.Dataset(attrs=attrs).dump_to_store(H5NetCDFStore(file))
            for name, group in groups.items():
                _with_checksums(group).dump_to_store(H5NetCDFStore(file, group=name, mode="w"))
    except Exception:
        if out.error is not None:  # and what was raised here comes from that
            raise out.error from None
        raise
    if out.error is not None:
        raise out.error


def _with_checksums(group: xarray.Dataset) -> xarray.Dataset:
    """A group whose numbers are to be written with a checksum for each array, where HDF5 can have one."""
    group = group.copy(deep=False)
    for variable in group.variables.values():
        if variable.size and variable.ndim and variable.dtype.kind not in "OUST":
            variable.encoding = variable.encoding | {"fletcher32": True}
    return group


class _Patient(io.RawIOBase):
    """A file that accepts all writes, and remembers the first error.

    HDF5 keeps what it could not write, tries again when the process ends, and crashes at that.
    """

    def __init__(self, file: io.FileIO) -> None:
        self.file = file
        self.error: OSError | None = None

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self.file.readinto(buffer)

    def write(self, buffer: Any) -> int:
        data = memoryview(buffer).cast("B")
        done = 0
        try:
            while self.error is None and done < len(data):
                done += self.file.write(data[done:])
        except OSError as error:
            self.error = error
        return len(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self.file.seek(offset, whence)

    def tell(self) -> int:
        return self.file.tell()

    def truncate(self, size: int | None = None) -> int:
        try:
            return self.file.truncate(size)
        except OSError as error:
            self.error = self.error or error
            return self.tell() if size is None else size
