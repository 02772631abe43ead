"""The data of a Stan program: read, and checked against its declarations."""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Mapping
from typing import Any

from .. import check
from ..errors import DataError, ModelError, warn
from .data import conform, read
from .labelled_data import DataLabels, unpack
from .program import data_declarations, declarations, undeclared_names
from .source import ProgramSource

_NUMBER_BYTES = 8  # of a number in `transformed data`
_NAMED = 5  # entries that a warning names


def read_data(source: ProgramSource, data: Any) -> dict[str, Any]:
    """Data that fit the program."""
    return read_labelled(source, data)[0]


def read_labelled(source: ProgramSource, data: Any) -> tuple[dict[str, Any], DataLabels]:
    """Data that fit the program, and the labels that they bring."""
    declared = data_declarations(source.code)
    data, labels = unpack(data, declared, source.code)
    tuples = [name for name, declaration in declared.items() if declaration.type == "tuple"]
    try:
        values = conform(read(data, tuples=tuples), declared)
        _check_size(source.code, values)
    except DataError:
        from .backends.stan import stanli

        stanli.compile_program(source.program)  # where the program does not compile, the user hears that
        raise
    return values, labels


def tell_unused(code: str, values: Mapping[str, Any]) -> None:
    """Warn of data that the program does not declare."""
    if unused := undeclared_names(code, values):
        _tell_once(hashlib.sha256(code.encode()).hexdigest(), tuple(unused))


@functools.lru_cache(maxsize=256)
def _tell_once(program: str, names: tuple[str, ...]) -> None:
    """Once in a process for a program, by its hash, and such names: a typing error may be among them."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    warn(f"data have entries that the Stan program does not declare: {', '.join(names[:_NAMED])}{more}")


def _check_size(code: str, data: Mapping[str, Any]) -> None:
    """Refuse negative sizes, and more values than memory holds: opening them may hang, or crash."""
    for block in ("parameters", "transformed parameters", "generated quantities"):
        for name, declaration in declarations(code, block).items():
            shape = declaration.shape(data)
            if None in shape:
                continue
            sizes = [size for size in shape if size is not None]
            if min(sizes, default=0) < 0:
                raise DataError(
                    f"data do not fit the Stan program: {name} ({declaration}) has the negative size "
                    f"{min(sizes)}; sizes must be at least 0"
                )
            if reason := check.too_many(math.prod(sizes)):
                raise ModelError(f"model: {name} ({declaration}) has {reason}")
    for name, declaration in declarations(code, "transformed data").items():
        shape = declaration.shape(data)
        size = 0 if None in shape else math.prod(abs(size or 0) for size in shape)
        if reason := check.too_many(size, _NUMBER_BYTES):
            raise ModelError(f"model: {name} ({declaration}) has {reason}")
