"""Data for a Stan program: from what users have to JSON, checked against the program's declarations."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import stanio

from .errors import DataError
from .program import Declaration

_NON_FINITE = {
    "nan": float("nan"),
    "inf": float("inf"),
    "+inf": float("inf"),
    "infinity": float("inf"),
    "+infinity": float("inf"),
    "-inf": float("-inf"),
    "-infinity": float("-inf"),
}


def read(data: Any, what: str = "data") -> dict[str, Any]:
    """Plain numbers, nested lists and dicts (Stan tuples) from a dict, a path to JSON, JSON text or None.

    Raises
    ------
    DataError
        The file is missing, the JSON does not parse, or a value is not a rectangular array of numbers.
    """
    if data is None:
        return {}
    if isinstance(data, str | os.PathLike):
        return {name: _plain(name, value, what) for name, value in _load(data, what).items()}
    if not isinstance(data, Mapping):
        raise DataError(
            f"{what} of type {type(data).__name__} are not allowed: {what} must be a dict, a path to a JSON "
            "file, JSON text, or None"
        )
    for name in data:
        if not isinstance(name, str) or not name.isidentifier():
            raise DataError(f"{what}: the name {name!r} is not allowed; names are those of Stan variables")
    return {name: _plain(name, value, what) for name, value in data.items()}


def to_json(values: Mapping[str, Any]) -> str:
    """JSON as Stan reads it, by CmdStanPy's writer."""
    return str(stanio.dump_stan_json(values))


def check_declared(values: Mapping[str, Any], declared: Mapping[str, Declaration]) -> None:
    """Refuse data that lack a declared variable, or have it in another shape or type.

    Raises
    ------
    DataError
        Names the variable, its declaration and what came.
    """
    missing = [name for name in declared if name not in values]
    if missing:
        listed = ", ".join(f"{name} ({declared[name].type})" for name in missing)
        given = ", ".join(values) or "none"
        raise DataError(f"data lack what the Stan program declares: {listed}. Given: {given}")
    for name, declaration in declared.items():
        value = np.asarray(values[name])
        wanted = declaration.shape(values)
        shown = ", ".join(declaration.sizes)
        described = f"{declaration.type}, sizes [{shown}]" if wanted else f"a single {declaration.type}"
        if declaration.type == "int" and value.size and value.dtype.kind not in "iu":
            raise DataError(f"data[{name!r}] holds {_example(value)}; it is declared as {described}")
        negative = [size for size in wanted if size is not None and size < 0]
        if negative:
            raise DataError(f"data[{name!r}] is declared with the negative size {negative[0]} ({described})")
        if 0 in wanted:
            continue  # Stan takes [] for any empty shape
        fits = value.ndim == len(wanted) and all(
            size in (None, length) for size, length in zip(wanted, value.shape, strict=True)
        )
        if not fits:
            expected = tuple("?" if size is None else size for size in wanted)
            raise DataError(
                f"data[{name!r}] has shape {value.shape}; its declaration ({described}) needs "
                f"({', '.join(str(size) for size in expected)}{',' if len(expected) == 1 else ''})"
            )


def _load(source: str | os.PathLike[str], what: str) -> dict[str, Any]:
    """The object in JSON text or a JSON file."""
    text, where = os.fspath(source), what
    if not text.lstrip().startswith(("{", "[")):
        path = Path(text)
        where = f"{what} file {path}"
        if path.is_dir():
            raise DataError(f"{what}={text!r} is a directory; {what} must be a JSON file")
        if not path.exists():
            raise DataError(f"{what}={text!r}: there is no such file; {what} must be a path or JSON text")
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"{where} cannot be read: {error}") from error
    try:
        values = json.loads(text)
    except json.JSONDecodeError as error:
        raise DataError(f"{where} is not valid JSON: {error}") from error
    if not isinstance(values, dict):
        raise DataError(f"{where} holds a {type(values).__name__}; a JSON object is needed: names and values")
    return values


def _plain(name: str, value: Any, what: str) -> Any:
    """`value` as numbers and nested lists."""
    label = f"{what}[{name!r}]"
    if isinstance(value, np.ma.MaskedArray):
        raise DataError(f"{label} is a masked array; fill or drop the masked values first")
    kind = getattr(getattr(value, "dtype", None), "kind", None)
    if kind is not None and kind in "OUSMmV":
        raise DataError(f"{label} has dtype {value.dtype}; numbers are needed")
    if type(value).__name__ == "DataFrame":
        value = np.asarray(value)
        if value.dtype.kind not in "iufb":
            raise DataError(f"{label} is a DataFrame with columns that are not numbers")
    plain = stanio.json.process_value(value)
    if kind is None:
        plain = _numbers(label, plain)
    return plain


def _numbers(label: str, value: Any) -> Any:
    """Nested lists with every entry checked; the texts that stand for NaN and infinities become floats."""
    if isinstance(value, dict):
        return {key: _numbers(label, part) for key, part in value.items()}
    if isinstance(value, list):
        rows = [_numbers(label, row) for row in value]
        if len({_shape(row) for row in rows}) > 1:
            raise DataError(
                f"{label} is ragged: its rows have different lengths; Stan arrays are rectangular"
            )
        return rows
    if isinstance(value, str) and value.lower() in _NON_FINITE:
        return _NON_FINITE[value.lower()]
    if isinstance(value, int | float):
        return value
    raise DataError(f"{label} holds {_short(value)} ({type(value).__name__}); numbers are needed")


def _shape(value: Any) -> tuple[int, ...]:
    return (len(value), *_shape(value[0])) if isinstance(value, list) and value else np.shape(value)


def _short(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."


def _example(value: np.ndarray) -> str:
    """An entry that is not an integer, for an error message."""
    flat = value.ravel()
    if value.dtype.kind == "f":
        odd = flat[~(np.isfinite(flat) & (flat == np.floor(flat)))]
        return f"{(odd[0] if odd.size else flat[0])} (a float)"
    return f"{_short(flat[0].item())}"
