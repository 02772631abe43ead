"""The arguments that a model of NumPyro is called with, and what of them is on record."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from .... import check
from ....errors import DataError
from ...data import load
from .jax_checks import is_key


def read_arguments(model: Any, data: Any) -> dict[str, Any]:
    """Data as the arguments of a model. Raises DataError where they do not fit."""
    if data is None:
        data = {}
    if isinstance(data, str | os.PathLike):
        data = load(data, "data")
    if not isinstance(data, Mapping) or not all(isinstance(name, str) for name in data):
        raise DataError(
            f"data={check.quote(data)} is not allowed: data must be a dict of the model's arguments by name, "
            "a path to a JSON file, JSON text, or None"
        )
    arguments = {name: _argument(name, value) for name, value in data.items()}
    try:
        signature = inspect.signature(model)
    except (TypeError, ValueError):  # of a compiled callable
        return arguments
    try:
        signature.bind(**arguments)
    except TypeError as error:
        raise DataError(
            f"data do not fit the model {name_of(model)}{signature}: {check.one_line(error)}"
        ) from error
    return arguments


def _argument(name: str, value: Any) -> Any:
    """An array in double precision where it is one; anything else as it is: a number may be a size.

    An array of JAX remains one: a model may index it with values that JAX traces, which NumPy's arrays
    refuse.
    """
    import jax

    if value is None or isinstance(value, bool | int | float | str) or callable(value):
        return value
    if isinstance(value, jax.Array):
        return value.astype(np.float64) if jax.numpy.issubdtype(value.dtype, np.floating) else value
    try:
        array = np.asarray(value)
    except Exception as error:  # ragged, or an array of another library with its own error
        raise DataError(f"data[{name!r}] is no array: {check.one_line(error)}") from error
    if array.dtype.kind == "f":
        return array.astype(np.float64)
    return array if array.dtype.kind in "iub" else value


def constants_of(arguments: Mapping[str, Any], observed: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The other data, without arrays that some site has observed under another name."""
    import jax

    constants = {}
    for name, value in arguments.items():
        if isinstance(value, bool | str) or value is None or callable(value) or is_key(value):
            continue
        if name in observed:
            continue
        array = np.asarray(value) if not isinstance(value, Mapping) else np.empty(0, dtype=object)
        if array.dtype.kind not in "iuf" or any(
            array.shape == other.shape and np.array_equal(array, other, equal_nan=array.dtype.kind == "f")
            for other in observed.values()
            if array.size
        ):
            continue
        constants[name] = array if isinstance(value, jax.Array) else value
    return constants


def whole_numbers(value: Any) -> np.ndarray:
    array = np.asarray(value)
    return array.astype(np.int64) if array.dtype.kind == "b" else array


def name_of(model: Any) -> str:
    return getattr(model, "__name__", "") or check.quote(model)
