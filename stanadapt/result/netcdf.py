"""netCDF files, read and written through HDF5.

`files.py` imports this file at the first netCDF file, since most of a process' start can do without h5py.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5netcdf
import h5py
import xarray
from xarray.backends import H5NetCDFStore

from ..errors import OutputError
from .container import Groups
from .labels import SAMPLE_DIMS

_HDF5 = ("v110", "v110")  # the first version whose descriptions all have checksums, of 2016


def read_groups(path: str | Path) -> tuple[Groups, dict[str, Any]]:
    """The groups of a file and its attributes.

    A file without groups, such as netCDF 3 is, holds a posterior if it has variables by chain and draw.

    Raises
    ------
    OutputError
        A part of the file would be read from another file.
    Exception
        Nearly anything, where the file is damaged.
    """
    return _read_version_3(path) if _is_version_3(path) else _read_version_4(path)


def _is_version_3(path: str | Path) -> bool:
    """By its first bytes; version 4 is HDF5."""
    with Path(path).open("rb") as file:
        return file.read(3) == b"CDF"


def _read_version_3(path: str | Path) -> tuple[Groups, dict[str, Any]]:
    with xarray.open_dataset(path, engine="scipy") as dataset:
        return _variables_outside_groups(dataset.load())


def _read_version_4(path: str | Path) -> tuple[Groups, dict[str, Any]]:
    with _File(path) as held:
        dict(held.attrs)  # where these are damaged, h5netcdf's file prints a traceback when it is deleted
        _check_own(path, held)
        with h5netcdf.File(held, decode_vlen_strings=True) as file:
            groups = {name: _read_group(file, name) for name in file.groups}
            alone, attrs = _variables_outside_groups(_read_group(file))
    return (groups if "posterior" in groups else groups | alone), attrs


def _read_group(file: h5netcdf.File, name: str | None = None) -> xarray.Dataset:
    """The variables of a group, or those outside of groups. The file stays open."""
    return xarray.open_dataset(H5NetCDFStore(file, group=name)).load()


class _File(h5py.File):  # type: ignore[misc]  # h5py has no types
    """An HDF5 file that holds what it has opened.

    h5netcdf opens a dataset again each time it looks at one, some forty times. That took more than half of
    the time of a file with many small variables.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._held: dict[tuple[str, int], Any] = {}

    def __getitem__(self, name: Any) -> Any:
        if not isinstance(name, str) or name == "/":
            return super().__getitem__(name)
        link = self.id.links.get_info(name.encode())
        if link.type != h5py.h5l.TYPE_HARD:
            return super().__getitem__(name)
        place = name, link.u  # what is written in the place of another dataset has another address
        if place not in self._held:
            self._held[place] = super().__getitem__(name)
        return self._held[place]

    def close(self) -> None:
        self._held.clear()
        super().close()


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


def _variables_outside_groups(dataset: xarray.Dataset) -> tuple[Groups, dict[str, Any]]:
    """The variables outside of groups, as a posterior if they hold draws; and the attributes there."""
    attrs = {str(name): value for name, value in dataset.attrs.items()}
    drawn = any(set(SAMPLE_DIMS) <= set(values.dims) for values in dataset.data_vars.values())
    return ({"posterior": dataset} if drawn else {}), attrs


def check_names(groups: Groups) -> None:
    """Refuse a name that netCDF would read as a path inside the file."""
    for group in groups.values():
        for name in (*group.variables, *group.dims):
            text = str(name)
            if not text or text in (".", "..") or "/" in text or "\0" in text:
                raise OutputError(
                    f"the name {text!r} cannot be written as netCDF: it must not be empty, '.' or '..', and "
                    "must not hold '/' or NUL"
                )


def dump(groups: Groups, attrs: Mapping[str, Any], to: io.FileIO) -> None:
    """Write a whole netCDF file. Raises the first OSError that writing met."""
    out = _Patient(to)
    try:
        with _File(out, "w", libver=_HDF5, track_order=True) as held, h5netcdf.File(held, "w") as file:
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
