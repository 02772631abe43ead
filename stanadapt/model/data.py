"""Data for a Stan program: from what users have to JSON, checked against the program's declarations."""

from __future__ import annotations

import json
import math
import numbers
import os
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import stanio

from ..check import quote
from ..errors import DataError
from .program import Declaration
from .source import is_path

_NON_FINITE = {
    "nan": float("nan"),
    "inf": float("inf"),
    "+inf": float("inf"),
    "infinity": float("inf"),
    "+infinity": float("inf"),
    "-inf": float("-inf"),
    "-infinity": float("-inf"),
}
_LARGEST_INT = 2**31 - 1


class _Every:
    """All names there are."""

    def __contains__(self, name: object) -> bool:
        return True


EVERY = _Every()
_DEEPEST = 64  # axes of an array


def read(data: Any, what: str = "data", tuples: Container[str] = ()) -> dict[str, Any]:
    """Numbers and arrays of numbers from a dict, a path to JSON, JSON text or None.

    Parameters
    ----------
    data
        What the user gave.
    what
        The argument's name, for error messages.
    tuples
        Names of variables that are Stan tuples: their values stay nested, as dicts with keys "1", "2", ...
        A Python tuple for any other variable is an array; dicts are Stan tuples for every variable.

    Raises
    ------
    DataError
        The file is missing, the JSON does not parse, or a value is not a rectangular array of numbers.
    """
    if data is None:
        return {}
    if isinstance(data, str | os.PathLike):
        data = load(data, what)
    if not isinstance(data, Mapping):
        table = "a DataFrame, an xarray Dataset, " if what == "data" else ""
        raise DataError(
            f"{what}={quote(data)} of type {type(data).__name__} is not allowed: {what} must be a dict, "
            f"{table}a path to a JSON file, JSON text, or None"
        )
    values = {}
    for name in data:
        if not isinstance(name, str):
            raise DataError(f"{what}: the name {quote(name)} is not allowed: names must be strings")
        label = f"{what}[{name!r}]"
        try:
            values[name] = _tuple_value(label, data[name]) if name in tuples else _plain(label, data[name])
        except RecursionError as error:
            raise DataError(f"{label} is nested too deeply") from error
    return values


def to_json(values: Mapping[str, Any]) -> str:
    """JSON as Stan reads it: arrays row by row, NaN and Infinity as bare words.

    stanli wants those two as strings, which stanio does not write: `strings_for_non_finite` in
    backends/stan/native.py makes them.
    """
    return str(stanio.dump_stan_json(values))


def conform(values: Mapping[str, Any], declared: Mapping[str, Declaration]) -> dict[str, Any]:
    """The data in the declared types; refuses what lacks a variable, or has it in another shape or type.

    A variable without entries may be missing, as it may for CmdStan.

    Raises
    ------
    DataError
        Names the variable, its declaration and what came.
    """
    fitted = dict(values)
    missing = []
    for name, declaration in declared.items():
        wanted = declaration.shape(fitted)
        negative = [size for size in wanted if size is not None and size < 0]
        if negative:
            raise DataError(
                f"data[{name!r}] is declared with the negative size {negative[0]} ({declaration}); "
                "sizes must be at least 0"
            )
        if name in fitted:
            if declaration.type != "tuple":
                fitted[name] = _check_shape(name, fitted[name], declaration, wanted)
        elif 0 in wanted:
            fitted[name] = np.empty(0)
        else:
            missing.append(name)
    if missing:
        listed = ", ".join(f"{name} ({declared[name]})" for name in missing)
        given = ", ".join(values) or "none"
        raise DataError(f"data lack what the Stan program declares: {listed}. Given: {given}")
    return fitted


def _check_shape(name: str, value: Any, declaration: Declaration, wanted: tuple[int | None, ...]) -> Any:
    """`value` if it has the shape `wanted` and the declared type."""
    if holds_tuples(value):
        raise DataError(
            f"data[{name!r}] holds a JSON object; it is declared as {declaration}, not as a tuple"
        )
    array = np.asarray(value)
    if declaration.is_complex:
        if _fits(array.shape, wanted) and array.dtype.kind != "c":
            array = np.stack([array, np.zeros(array.shape)], axis=-1)  # real numbers will do
        wanted = (*wanted, 2)
    if not _fits(array.shape, wanted):
        sizes = ", ".join("?" if size is None else str(size) for size in wanted)
        raise DataError(
            f"data[{name!r}] has shape {array.shape}; its declaration ({declaration}) needs "
            f"({sizes}{',' if len(wanted) == 1 else ''})"
        )
    if declaration.type != "int":
        return value if array.ndim == 0 else array
    if not array.size:
        return array
    if array.dtype.kind == "f":
        odd = array[~(np.isfinite(array) & (array == np.floor(array)))]
        example = odd.flat[0] if odd.size else array.flat[0]
        raise DataError(f"data[{name!r}] holds {example} (a float); it is declared as {declaration}")
    beyond = array[(array > _LARGEST_INT) | (array < -_LARGEST_INT - 1)]
    if beyond.size:
        raise DataError(
            f"data[{name!r}] holds {beyond.flat[0]}; an int in Stan must be from {-_LARGEST_INT - 1} "
            f"to {_LARGEST_INT}"
        )
    return value if array.ndim == 0 else array


def _fits(shape: tuple[int, ...], wanted: tuple[int | None, ...]) -> bool:
    """Whether a value's shape is the one declared; where sizes are unknown, whether it could be."""
    if 0 in shape and (0 in wanted or None in wanted):
        return True  # Stan takes [] for any empty shape
    return len(shape) == len(wanted) and all(
        size in (None, length) for size, length in zip(wanted, shape, strict=True)
    )


def load(source: str | os.PathLike[str], what: str) -> dict[str, Any]:
    """The object in JSON text or a JSON file."""
    text = os.fspath(source)
    where = f"{what} text"
    if is_path(source, (".json",), looks_like_contents=text.lstrip().startswith(("{", "["))):
        where = f"{what} file {quote(text)}"
        text = _read_text(text, what)
    try:
        values = json.loads(text, object_pairs_hook=_without_repeats, parse_float=_finite)
    except RecursionError as error:
        raise DataError(f"{where} is nested too deeply") from error
    except ValueError as error:
        raise DataError(f"{where} is not valid JSON: {error}") from error
    if not isinstance(values, dict):
        raise DataError(f"{where} holds a {type(values).__name__}; a JSON object is needed: names and values")
    return values


def holds_tuples(value: Any) -> bool:
    """Whether a value is a Stan tuple or an array of them."""
    leaf = _first_leaf(value, (list, tuple))
    return isinstance(leaf, Mapping) and not hasattr(leaf, "__array__")


def _first_leaf(value: Any, kinds: Any) -> Any:
    """The first entry of nested sequences of some kinds, as deep as NumPy's arrays can be."""
    for _ in range(_DEEPEST):
        if not isinstance(value, kinds) or not value:
            break
        value = value[0]
    return value


def _read_text(name: str, what: str) -> str:
    path = Path(name)
    label = f"{what}={quote(name)}"
    try:
        if name and path.is_dir():
            raise DataError(f"{label} is a directory; {what} must be a JSON file")
        if not name.strip() or not path.exists():
            raise DataError(f"{label}: there is no such file; {what} must be a path or JSON text")
        return path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError, TypeError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{label} cannot be read: {error}") from error


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object as a dict; a name that comes twice would lose its first value."""
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {twice!r} comes twice")
    return values


def _finite(text: str) -> float:
    """A decimal number in JSON, which must not turn into infinity silently."""
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text} is beyond the range of a float")
    return value


def _plain(label: str, value: Any) -> Any:
    """`value` as an int, a float or an array; a complex number as a pair; Stan tuples, dicts, as they are."""
    if holds_tuples(value):
        return _tuple_value(label, value)
    if isinstance(value, str | bytes | set | frozenset):
        return _number(label, value)
    if type(value) is float or (type(value) is int and abs(value) < 2**63):
        return value
    array = _as_array(label, value)
    if array.dtype.kind == "c":
        array = np.stack([array.real, array.imag], axis=-1)
    if array.dtype.kind == "f":
        array = array.astype(np.float64, copy=False)
    elif array.dtype.kind == "b":
        array = array.astype(np.int64)
    return (
        array.item() if array.ndim == 0 else np.array(array, order="C")
    )  # a copy, whatever becomes of the user's


def _as_array(label: str, value: Any) -> np.ndarray:
    """An array of numbers, as NumPy makes it where it can, and entry by entry otherwise."""
    if isinstance(value, np.ma.MaskedArray):
        if np.ma.is_masked(value):
            raise DataError(f"{label} is an array with masked entries; fill or drop them: numbers are needed")
        value = value.data
    is_list = isinstance(value, list | tuple)
    try:
        array = np.asarray(value, dtype=object if _may_hold_na(value) else None)
    except RecursionError:
        raise
    except Exception:  # ragged, or an array of another library with its own error
        if not is_list:
            raise DataError(f"{label} of type {type(value).__name__} is no array of numbers") from None
        return _rectangular(label, value)
    masked = is_list and any(isinstance(row, np.ma.MaskedArray) for row in value)  # NumPy drops the masks
    if array.dtype.kind in "iufcb" and not masked:
        return array
    if array.dtype.kind in "mMV":
        raise DataError(f"{label} has dtype {array.dtype}; numbers are needed")
    return _rectangular(label, value if is_list else array.tolist())


def _may_hold_na(value: Any) -> bool:
    """Whether it is of a pandas type of its own, whose missing values NumPy may turn into NaN."""
    if not type(value).__module__.startswith("pandas"):
        return False
    kinds = list(value.dtypes) if hasattr(value, "columns") else [getattr(value, "dtype", None)]
    return not all(isinstance(kind, np.dtype) for kind in kinds)


def _rectangular(label: str, value: Any) -> np.ndarray:
    """An array from nested lists, every entry checked; texts for NaN and infinities become floats."""
    if not isinstance(value, list | tuple):
        if hasattr(value, "__array__") and np.ndim(value):
            return _as_array(label, value)
        return np.asarray(_number(label, value))
    rows = [_rectangular(label, row) for row in value]
    shapes = list(dict.fromkeys(row.shape for row in rows))
    if len(shapes) > 1:
        raise DataError(
            f"{label} is ragged: it has rows of shape {shapes[0]} and {shapes[1]}; "
            "Stan arrays are rectangular"
        )
    return np.array(rows) if rows else np.empty(0)


def _number(label: str, value: Any) -> int | float | complex:
    """One entry as a number."""
    if isinstance(value, str) and value.strip().lower() in _NON_FINITE:
        return _NON_FINITE[value.strip().lower()]
    if isinstance(value, np.generic):
        value = value.item()
    try:
        if isinstance(value, numbers.Integral):
            whole = int(value)
            # Beyond 64 bits NumPy has no integers; a float is what Stan makes of them too.
            return whole if abs(whole) < 2**63 else float(whole)
        if isinstance(value, numbers.Real):
            return float(value)
        if isinstance(value, numbers.Complex):
            return complex(value)
    except OverflowError as error:
        raise DataError(f"{label} holds {quote(value)}, which is beyond the range of a float") from error
    raise DataError(f"{label} holds {quote(value)} ({type(value).__name__}); numbers are needed")


def _tuple_value(label: str, value: Any) -> Any:
    """A Stan tuple, or an array of them: tuples as dicts, and in them numbers and lists."""
    if isinstance(value, Mapping):
        if not all(str(key).isdigit() for key in value):
            raise DataError(f"{label} is a dict with the keys {quote(list(value))}; numbers are needed")
        return {str(key): _tuple_value(label, part) for key, part in value.items()}
    if isinstance(value, tuple):
        return {str(i): _tuple_value(label, part) for i, part in enumerate(value, 1)}
    if isinstance(value, list) and isinstance(_first_leaf(value, list), tuple | Mapping):
        parts = [_tuple_value(label, part) for part in value]
        if len({len(part) if isinstance(part, list) else type(part) for part in parts}) > 1:
            raise DataError(f"{label} is ragged: its rows differ; Stan arrays are rectangular")
        return parts
    plain = _plain(label, value)
    return plain.tolist() if isinstance(plain, np.ndarray) else plain
