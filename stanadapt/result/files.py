"""Results as netCDF files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import xarray

from .. import check
from ..errors import OutputError
from .container import attributes, container, datasets

if TYPE_CHECKING:
    from .container import InferenceData


def write(result: InferenceData, path: str | Path) -> None:
    """Write a result as netCDF; an older file at `path` is replaced when the new one is whole.

    Raises
    ------
    OutputError
        The file cannot be written.
    """
    target = check.output(path, overwrite=True)
    unfinished = check.unfinished(target)
    try:
        xarray.Dataset(attrs=attributes(result)).to_netcdf(unfinished, mode="w", engine="h5netcdf")
        for name, group in datasets(result).items():
            group.to_netcdf(unfinished, group=name, mode="a", engine="h5netcdf")
        unfinished.replace(target)
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error}") from error
    finally:
        unfinished.unlink(missing_ok=True)


def read(path: str | Path) -> InferenceData:
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
            attrs = {str(name): value for name, value in tree.attrs.items()}
    except (OSError, ValueError) as error:
        raise OutputError(f"{path} cannot be read as netCDF: {error}") from error
    if "posterior" not in groups:
        raise OutputError(f"{path} has no group named posterior")
    return container(groups, attrs)
