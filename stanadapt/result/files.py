"""Results as netCDF files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import xarray

from .. import check
from ..errors import OutputError
from .container import Groups, attributes, container, datasets
from .labels import SAMPLE_DIMS

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
    """Read a result from a netCDF file, by whatever program it was written.

    A file without groups, such as netCDF 3 is, holds a posterior if it has variables by chain and draw.

    Raises
    ------
    OutputError
        There is no such file, or it holds no posterior.
    """
    if not Path(path).is_file():
        raise OutputError(f"{path}: there is no such file")
    try:
        groups, attrs = _read_version_3(path) if _is_version_3(path) else _read_version_4(path)
    except Exception as error:  # the libraries raise nearly anything at a damaged file
        raise OutputError(f"{path} cannot be read as netCDF: {check.one_line(error)}") from error
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
    with xarray.open_datatree(path, engine="h5netcdf") as tree:
        groups = {name: node.to_dataset().load() for name, node in tree.children.items()}
        alone, attrs = _ungrouped(tree.to_dataset().load())
    return (groups if "posterior" in groups else groups | alone), attrs


def _ungrouped(dataset: xarray.Dataset) -> tuple[Groups, dict[str, Any]]:
    """What stands outside of groups, as a posterior if there are draws; and its attributes."""
    attrs = {str(name): value for name, value in dataset.attrs.items()}
    drawn = any(set(SAMPLE_DIMS) <= set(values.dims) for values in dataset.data_vars.values())
    return ({"posterior": dataset} if drawn else {}), attrs
