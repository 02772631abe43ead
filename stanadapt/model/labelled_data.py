"""Tables and labelled arrays as data: their columns by name, sizes from their lengths, and their labels.

A table is a DataFrame of pandas, or anything that hands out its columns by Arrow's interchange, as polars and
pyarrow do. Labelled arrays are those of xarray. The labels go on into the result: a dimension of the data is
one of every variable whose declaration has the same size.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ..check import is_label
from ..errors import DataError
from .data import read
from .program import Declaration, block, declarations

_BLOCKS = ("data", "parameters", "transformed parameters", "generated quantities")
_DRAWN = _BLOCKS[1:]


class DataLabels(NamedTuple):
    """Names of dimensions, and their coordinates, which data bring with them."""

    coords: dict[str, list[Any]]  # by dimension
    dims: dict[str, tuple[str | None, ...]]  # by name of the data; None for an axis without a name
    sizes: dict[str, str]  # by a size that the program declares, the dimension that it counts
    levels: dict[str, list[Any]]  # by name of a categorical, the names of its levels in their order

    @classmethod
    def none(cls) -> DataLabels:
        """No labels, to which some may be added."""
        return cls({}, {}, {}, {})


class Amended(NamedTuple):
    """What a user gave as data, with some values of our own."""

    data: Any
    values: dict[str, Any]


def unpack(data: Any, declared: Mapping[str, Declaration], code: str) -> tuple[Any, DataLabels]:
    """Data as a dict of arrays, and their labels; what is no table and has no labels stays what it is.

    Parameters
    ----------
    data
        What the user gave, perhaps `Amended`.
    declared
        The data that the program declares. Of a table and of a dataset, other columns are left out.
    code
        The program, with includes in place, or nothing where it is not known.

    Raises
    ------
    DataError
        A column has missing levels, a table cannot be read, or an array has no name.
    """
    if isinstance(data, Amended):
        given, labels = unpack(data.data, declared, code)
        return {**(given if isinstance(given, Mapping) else read(given)), **data.values}, labels
    if is_table(data):
        return _unpack_table(as_pandas(data), declared, code)
    if _is_data_array(data):
        if data.name is None:
            raise DataError(
                "data are a DataArray without a name: rename it to the variable that the program declares"
            )
        data = data.to_dataset()
    if _is_dataset(data):
        return _unpack_dataset(data, declared)
    if isinstance(data, Mapping) and any(_has_labels(value) for value in data.values()):
        return _unpack_dict(data, declared, code)
    return data, DataLabels.none()


def labels_of(code: str, labels: DataLabels) -> tuple[dict[str, list[Any]], dict[str, tuple[str, ...]]]:
    """Coordinates and dimensions for the variables of a program, from the labels of its data.

    A variable gets the dimension of each size in its declaration that counts one. A dimension that has the
    name of a variable of the same group of a result, or of one that all draws have, is left out.
    """
    if not labels.coords:
        return {}, {}
    found = {name: declarations(code, name) for name in _BLOCKS}
    drawn = {name for each in _DRAWN for name in found[each]}
    dims: dict[str, tuple[str, ...]] = {}
    for group, variables in found.items():
        taken = {"chain", "draw", *(drawn if group in _DRAWN else found["data"])}
        for name, declaration in variables.items():
            own: list[str | None] = list(labels.dims.get(name, ()) if group == "data" else ())
            own += [None] * (len(declaration.sizes) - len(own))
            named = [
                given or labels.sizes.get(size) for given, size in zip(own, declaration.sizes, strict=False)
            ]
            kept = [
                dim if dim and is_label(dim) and dim not in (*taken, *named[:i]) else f"{name}_dim_{i}"
                for i, dim in enumerate(named)
            ]
            if any(dim in labels.coords for dim in kept):
                dims[name] = tuple(kept)
    used = {dim for each in dims.values() for dim in each}
    return {dim: values for dim, values in labels.coords.items() if dim in used}, dims


def _unpack_table(
    frame: Any, declared: Mapping[str, Declaration], code: str
) -> tuple[dict[str, Any], DataLabels]:
    """The declared columns, their length for the size that they share, and numbers of levels."""
    values: dict[str, Any] = {}
    labels = DataLabels.none()
    columns = {str(name): frame[name] for name in frame.columns if isinstance(name, str)}
    row = _index_name(frame.index)
    if row:
        labels.coords[row] = plain_labels(frame.index)
    for name in declared:
        if name not in columns:
            continue
        values[name] = _levels_as_codes(name, columns[name], labels, code)
        if is_text(columns[name]):
            raise DataError(
                f"data[{name!r}] is a column of texts; numbers are needed, or a categorical, which is the "
                f"numbers of its levels: frame[{name!r}].astype('category')"
            )
        if row:
            labels.dims[name] = (row,)
    for name in list(values):
        (size, *others) = declared[name].sizes or ("",)
        if size and not others and _is_open(size, declared, values):
            values[size] = len(frame)
        if size and row:
            labels.sizes[size] = row
    _fill_bounds(values, labels, declared, code)
    return values, labels


def _unpack_dict(
    data: Mapping[Any, Any], declared: Mapping[str, Declaration], code: str
) -> tuple[dict[Any, Any], DataLabels]:
    """A dict in which some values have labels: arrays of xarray, or categoricals of pandas."""
    values, labels = dict(data), DataLabels.none()
    for name, value in data.items():
        if not isinstance(name, str):
            continue  # which is refused where the values are read
        if _is_data_array(value):
            values[name] = value.values
            _take_coords(name, value, declared, labels)
        elif is_categorical(value):
            values[name] = _levels_as_codes(name, value, labels, code)
    return values, labels


def _unpack_dataset(data: Any, declared: Mapping[str, Declaration]) -> tuple[dict[str, Any], DataLabels]:
    """The declared variables of a dataset; and its sizes, for those that the program declares."""
    values: dict[str, Any] = {}
    labels = DataLabels.none()
    for name in declared or map(str, data.data_vars):
        is_size = name in data.dims and name in declared and not declared[name].sizes
        if name in data.variables and not is_size:
            values[name] = data[name].values
            _take_coords(name, data[name], declared, labels)
    lengths = {str(dim): int(n) for dim, n in data.sizes.items()}
    for name in list(values):
        for size, length in zip(
            declared[name].sizes if name in declared else (), np.shape(values[name]), strict=False
        ):
            if _is_open(size, declared, values):
                values[size] = int(length)
    for dim, length in lengths.items():
        if _is_open(dim, declared, values):
            values[dim] = length
    return values, labels


def _take_coords(name: str, array: Any, declared: Mapping[str, Declaration], labels: DataLabels) -> None:
    """Note the dimensions of an array of xarray, and their coordinates; those without stay without names."""
    dims: list[str | None] = []
    for dim in map(str, array.dims):
        index = array.indexes.get(dim)
        is_plain = index is not None and getattr(index, "nlevels", 1) == 1
        if is_plain:
            labels.coords[dim] = plain_labels(index)
        dims.append(dim if is_plain else None)
    labels.dims[name] = tuple(dims)
    for size, named in zip(declared[name].sizes if name in declared else (), dims, strict=False):
        if named and size.isidentifier():
            labels.sizes.setdefault(size, named)


def _levels_as_codes(name: str, column: Any, labels: DataLabels, code: str) -> Any:
    """A categorical as the numbers of its levels, from 1 on, whose names are kept; else the column itself."""
    if not is_categorical(column):
        return column
    held = getattr(column, "cat", column)
    codes = np.asarray(held.codes)
    if (codes < 0).any():
        raise DataError(
            f"data[{name!r}] is categorical, and its entry {int(np.argmax(codes < 0)) + 1} is missing; every "
            "entry must have a level"
        )
    labels.levels[name] = plain_labels(held.categories)
    bound = _upper_bound(code, name)
    if bound:
        labels.coords[name] = labels.levels[name]
        labels.sizes[bound] = name
    return codes.astype(np.int64) + 1


def _fill_bounds(
    values: dict[str, Any], labels: DataLabels, declared: Mapping[str, Declaration], code: str
) -> None:
    """Give the number of levels of a categorical to the size that bounds it, if nothing else does."""
    for name in list(values):
        bound = _upper_bound(code, name) if name in labels.levels else ""
        if bound and _is_open(bound, declared, values):
            values[bound] = len(labels.levels[name])


def _upper_bound(code: str, name: str) -> str:
    """The name that bounds a variable of the data from above, `array[N] int<lower=1, upper=J> name`."""
    for statement in block(code, "data").split(";"):
        found = re.search(r"<[^>]*\bupper\s*=\s*([A-Za-z]\w*)\s*[,>]", statement)
        if found and re.search(rf"\b{re.escape(name)}\s*(,|$)", statement.strip()):
            return found[1]
    return ""


def _is_open(size: str, declared: Mapping[str, Declaration], values: Mapping[str, Any]) -> bool:
    """Whether a size is an integer that the program declares as data, and that is not given."""
    return size in declared and declared[size] == Declaration("int", ()) and size not in values


def _index_name(index: Any) -> str:
    """The name of a table's index, if it labels its rows: it has a name, one level, and no label twice."""
    named = isinstance(index.name, str) and index.name and getattr(index, "nlevels", 1) == 1
    return str(index.name) if named and index.is_unique else ""


def plain_labels(index: Any) -> list[Any]:
    """Labels as a file can hold them: numbers, texts and times; others, such as intervals, as texts."""
    values = list(index)
    kinds = (str, int, float, np.integer, np.floating, np.datetime64)
    if all(isinstance(value, kinds) for value in values):
        return values
    array = np.asarray(index)
    return list(array) if array.dtype.kind == "M" else [str(value) for value in values]


def as_pandas(table: Any) -> Any:
    """A table of another library as a DataFrame, through Arrow."""
    if _is_frame(table):
        return table
    try:
        pyarrow = importlib.import_module("pyarrow")
    except ImportError as error:
        raise DataError(
            f"data of type {type(table).__name__} are not allowed without pyarrow, which is not installed: "
            "pip install 'stanadapt[parquet]', or pass a DataFrame of pandas"
        ) from error
    try:
        return pyarrow.table(table).to_pandas()
    except Exception as error:  # of Arrow, or of the other library
        raise DataError(f"data of type {type(table).__name__} cannot be read as a table: {error}") from error


def is_table(data: Any) -> bool:
    """Whether data are a DataFrame of pandas, or of a library that hands out its columns by Arrow."""
    is_other = hasattr(data, "__arrow_c_stream__") and not isinstance(data, Mapping)
    return _is_frame(data) or (is_other and _library(data) not in ("pandas", "xarray"))


def _is_frame(data: Any) -> bool:
    return _library(data) == "pandas" and hasattr(data, "columns")


def _is_dataset(data: Any) -> bool:
    return _library(data) == "xarray" and hasattr(data, "data_vars") and hasattr(data, "sizes")


def _is_data_array(data: Any) -> bool:
    return _library(data) == "xarray" and hasattr(data, "to_dataset") and not hasattr(data, "data_vars")


def _library(data: Any) -> str:
    """The library that an object is of; it need not be imported to tell."""
    return type(data).__module__.partition(".")[0]


def is_text(column: Any) -> bool:
    """Whether a column of a table holds texts, and nothing but texts."""
    kind = str(getattr(column, "dtype", ""))
    return kind.startswith("str") or (
        kind == "object" and len(column) > 0 and all(isinstance(each, str) for each in column)
    )


def is_categorical(value: Any) -> bool:
    """Whether it is a column or an array of pandas with levels."""
    return _library(value) == "pandas" and hasattr(getattr(value, "dtype", None), "categories")


def _has_labels(value: Any) -> bool:
    return _is_data_array(value) or is_categorical(value)
