"""Values as bytes: JSON with arrays beside it, read without executing anything.

The value of a chain between two blocks consists of arrays, numbers, named tuples of this package and states
of random numbers. Pickles hold the same, but anybody who can change a pickle can make its reader execute
anything. Here a file only names classes, and only classes of this package with plain fields are made again.
"""

from __future__ import annotations

import dataclasses
import io
import json
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

_PACKAGE = __name__.partition(".")[0]
_TREE = "tree"  # the entry of the file that holds the JSON
# Classes that earlier versions have written under other names.
_FORMER_NAMES = {
    "run.warmup.Place": "run.warmup.WarmupPlace",
    "numerics.actor_critic.Replay": "numerics.actor_critic.ReplayBuffer",
    "numerics.actor_critic.Shape": "numerics.networks.Shape",
    "numerics.actor_critic.Adam": "numerics.networks.Adam",
    "samplers.policy.Guard": "samplers.policy.PolicyGuard",
}
_BIT_GENERATORS = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")


class EncodingError(ValueError):
    """Damaged bytes, or a value that cannot be written."""


def encode(value: Any) -> bytes:
    """A value as the bytes of a file that `numpy.load` reads.

    It may hold None, booleans, numbers, texts, NumPy's arrays, scalars and generators, and lists, tuples,
    dicts with texts as keys, named tuples and dataclasses of them. An array that is met twice is one array
    again.

    Raises
    ------
    EncodingError
        It holds something else.
    """
    arrays: dict[int, np.ndarray] = {}  # by id, in order
    held: list[Any] = []  # keeps the arrays alive, so that no id is used twice
    tree = json.dumps(_tree(value, arrays, held))
    entries = {str(i): array for i, array in enumerate(arrays.values())}
    file = io.BytesIO()
    text = np.frombuffer(tree.encode(), np.uint8)
    np.savez(file, allow_pickle=False, **{_TREE: text}, **entries)  # type: ignore[arg-type]
    return file.getvalue()


def decode(data: bytes) -> Any:
    """The value that `encode` has written. The modules of its classes must have been imported.

    Raises
    ------
    EncodingError
        The bytes are damaged, or name a class or a field that this version does not have.
    """
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as entries:
            arrays = [entries[str(i)] for i in range(len(entries.files) - 1)]
            tree = json.loads(entries[_TREE].tobytes())
        return _value(tree, arrays)
    except Exception as error:  # NumPy and zipfile raise nearly anything at damaged bytes
        raise EncodingError(f"it does not hold what it should: {error}") from error


def _tree(value: Any, arrays: dict[int, np.ndarray], held: list[Any]) -> Any:
    """`value` as what JSON can hold; arrays go to `arrays`."""

    def inner(part: Any) -> Any:
        return _tree(part, arrays, held)

    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
        if array.dtype.kind not in "biufcUMm":
            raise EncodingError(f"an array of {array.dtype} cannot be written")
        held.append(value)
        arrays.setdefault(id(value), array)
        kind = "array" if isinstance(value, np.ndarray) else "scalar"
        return {kind: list(arrays).index(id(value))}
    if isinstance(value, np.random.Generator):
        return {"generator": _plain_state(value.bit_generator.state)}
    fields = _fields(type(value))
    if fields is not None:
        parts = {name: inner(getattr(value, name)) for name in fields}
        return {"class": _name(type(value)), "fields": parts}
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {"dict": [[key, inner(part)] for key, part in value.items()]}
    if isinstance(value, list | tuple):
        return {"tuple" if isinstance(value, tuple) else "list": [inner(part) for part in value]}
    raise EncodingError(f"a value of type {type(value).__name__} cannot be written")


def _value(tree: Any, arrays: list[np.ndarray]) -> Any:
    """What `_tree` has taken apart."""
    if not isinstance(tree, dict):
        return tree
    kind, held = next(iter(tree.items()))
    if kind == "array":
        return arrays[held]
    if kind == "scalar":
        return arrays[held][()]
    if kind == "generator":
        return _generator(held)
    if kind == "class":
        return _instance(held, {name: _value(part, arrays) for name, part in tree["fields"].items()})
    if kind == "dict":
        return {key: _value(part, arrays) for key, part in held}
    parts = [_value(part, arrays) for part in held]
    return {"tuple": tuple, "list": list}[kind](parts)


def _fields(kind: type) -> tuple[str, ...] | None:
    """The names of the fields of a named tuple or a dataclass of this package; None for another type."""
    if kind.__module__.partition(".")[0] != _PACKAGE:
        return None
    if issubclass(kind, tuple):
        return getattr(kind, "_fields", None)
    return tuple(field.name for field in dataclasses.fields(kind)) if dataclasses.is_dataclass(kind) else None


def _name(kind: type) -> str:
    return f"{kind.__module__.partition('.')[2]}.{kind.__qualname__}"


def _instance(name: str, fields: Mapping[str, Any]) -> Any:
    """An instance of a class of this package, with these fields and no others."""
    module, _, own = _FORMER_NAMES.get(name, name).rpartition(".")
    kind: Any = getattr(sys.modules.get(f"{_PACKAGE}.{module}"), own, None)
    known = _fields(kind) if isinstance(kind, type) else None
    if known is None:
        raise EncodingError(f"this version has no {name}")
    if set(known) != set(fields):
        raise EncodingError(f"{name} has other fields in this version")
    return kind(**fields)


def _plain_state(state: Any) -> Any:
    """The state of a bit generator, which is made of dicts, integers, texts and arrays of integers."""
    if isinstance(state, dict):
        return {key: _plain_state(part) for key, part in state.items()}
    return {"integers": state.tolist()} if isinstance(state, np.ndarray) else state


def _generator(state: Any) -> np.random.Generator:
    if state["bit_generator"] not in _BIT_GENERATORS:
        raise EncodingError(f"{state['bit_generator']!r} is no generator of random numbers")
    bit_generator = getattr(np.random, state["bit_generator"])()
    bit_generator.state = _array_state(state)
    return np.random.Generator(bit_generator)


def _array_state(state: Any) -> Any:
    if not isinstance(state, dict):
        return state
    if "integers" in state:
        return np.array(state["integers"], np.uint64)
    return {key: _array_state(part) for key, part in state.items()}
