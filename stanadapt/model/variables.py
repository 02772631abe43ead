"""From flat names to variables with shapes: `theta.1.2` is entry [1, 2] of theta."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

_NAME = re.compile(
    r"^(?P<base>[^.]+(?:\.\d+(?=[.:\d]*:\d))*(?::\d+)*)(?P<index>(?:\.\d+)*)(?P<part>\.real|\.imag)?$"
)


class Variable(NamedTuple):
    """A variable among the columns of an array of draws."""

    name: str
    shape: tuple[int, ...]
    columns: np.ndarray  # the column of each entry, in the shape's own (row-major) order

    def take(self, values: np.ndarray) -> np.ndarray:
        """Its values from an array whose last axis holds the columns; a view where the layout allows."""
        head = values.shape[:-1]
        if not self.shape:
            return values[..., self.columns.item()]
        first, size = int(self.columns.min()), self.columns.size
        if np.array_equal(self.columns, first + np.arange(size).reshape(self.shape, order="F")):
            flat = values[..., first : first + size].reshape(*head, *self.shape[::-1])
            axes = range(len(head) + len(self.shape) - 1, len(head) - 1, -1)
            return flat.transpose(*range(len(head)), *axes)
        return values[..., self.columns]


def variable_of(name: str) -> str:
    """The variable that a coordinate belongs to, by its name `theta.1` or `theta[1]`."""
    return name.partition(".")[0].partition("[")[0]


def variables(names: list[str]) -> dict[str, Variable]:
    """Group flat names into variables, in their order. Complex numbers get a last axis (real, imaginary)."""
    entries: dict[str, list[tuple[tuple[int, ...], int]]] = {}
    for column, name in enumerate(names):
        found = _NAME.match(name)
        base, index = (name, ()) if found is None else (found["base"], _index(found))
        entries.setdefault(base, []).append((index, column))
    grouped: dict[str, Variable] = {}
    for base, places in entries.items():
        if not _is_array(places):  # only a Python target can name its parameters so
            grouped |= {
                names[column]: Variable(names[column], (), np.array(column, dtype=np.intp))
                for _, column in places
            }
            continue
        shape = tuple(np.max([index for index, _ in places], axis=0).astype(int)) if places[0][0] else ()
        columns = np.zeros(shape, dtype=np.intp)
        for index, column in places:
            columns[tuple(i - 1 for i in index)] = column
        grouped[base] = Variable(base, tuple(int(n) for n in shape), columns)
    return grouped


def _is_array(places: list[tuple[tuple[int, ...], int]]) -> bool:
    """Whether the indices are all indices of an array, each once."""
    indices = {index for index, _ in places}
    if len({len(index) for index in indices}) != 1:
        return False
    sizes = np.max(list(indices), axis=0) if min(indices) else ()
    return len(indices) == len(places) == int(np.prod(sizes)) and all(min(i, default=1) > 0 for i in indices)


def _index(found: re.Match[str]) -> tuple[int, ...]:
    index = tuple(int(i) for i in found["index"].split(".") if i)
    return (*index, {".real": 1, ".imag": 2}[found["part"]]) if found["part"] else index


def flat_names(shapes: Mapping[str, tuple[int, ...]]) -> list[str]:
    """The flat names of variables of these shapes, which `variables` groups again; first index fastest."""
    return [
        ".".join([name, *(str(i + 1) for i in reversed(index))])
        for name, shape in shapes.items()
        for index in np.ndindex(*shape[::-1])
    ]
