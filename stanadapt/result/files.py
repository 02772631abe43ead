"""Results as netCDF files, and files of draws that were rescued when the result could not be built."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray

from .. import check
from ..errors import OutputError
from .container import attributes, container, datasets, draws_of_a_prior
from .labels import SAMPLE_DIMS, Labels

if TYPE_CHECKING:
    from .container import InferenceData

Arrays = Mapping[str, Mapping[str, np.ndarray]]  # by group and variable
_RESCUED = "draws.npz"
_ATTRIBUTES = "attributes"  # the entry of a rescue file that holds them, as JSON


def write(result: InferenceData, path: str | Path) -> None:
    """Write a result as netCDF; an older file at `path` is replaced when the new one is whole.

    Raises
    ------
    OutputError
        The file cannot be written, or netCDF cannot hold one of the names.
    """
    from . import netcdf  # here and below: h5py takes as long to import as a short run

    groups = datasets(result)
    with whole_files([path], overwrite=True) as (unfinished,):
        netcdf.check_names(groups)
        try:
            with unfinished.open("w+b", buffering=0) as file:
                netcdf.dump(groups, attributes(result), file)
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
    unfinished = [check.partial_path(target) for target in targets]
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
    from . import netcdf

    try:
        groups, attrs = netcdf.read_groups(path)
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
            f"{' and '.join(SAMPLE_DIMS)}{draws_of_a_prior(groups)}"
        )
    return container(groups, attrs)


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
