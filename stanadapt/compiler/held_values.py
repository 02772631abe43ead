"""Arguments of kernels, which become values of machine code only where they are used.

A function takes an array as seven numbers, and a tuple as the numbers of its parts: the state of a sampler is
some hundred of them. numba builds each argument from its numbers when the function begins, takes parts out of
it, and takes all of it apart again for the next call. LLVM removes nearly all of this, three in five
instructions of a step of `tempered`. Here a part of an argument is its numbers. They go to the next call as
they are, and a value is built from them once, if an instruction asks for it.

numba and llvmlite tell values from constants by the class `Value`, so that `HeldValue` must be one. They have
no types, so mypy cannot check classes that derive from theirs (`type: ignore`).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba.core.datamodel import models
from numba.core.datamodel.packer import _flatten


class HeldValue(ir.Value):  # type: ignore[misc]
    """An argument of a function, or a part of one; the caller holds its arrays.

    Attributes
    ----------
    flat
        Its numbers, in tuples or lists as its type is nested.
    """

    def __init__(self, builder: Any, model: Any, flat: Any) -> None:
        self._builder, self._model, self.flat = builder, model, flat

    @functools.cached_property
    def _value(self) -> Any:
        with self._builder.goto_entry_block():  # so that it is there wherever it is used
            return _build(self._builder, self._model, self.flat)

    @property
    def type(self) -> Any:
        """LLVM's type. All that makes an instruction with a value asks for it."""
        return self._value.type

    def get_reference(self) -> str:
        """See llvmlite: how instructions name the value."""
        return str(self._value.get_reference())


class Arguments:
    """All arguments of a function, for numba, which builds those that are no `HeldValue`."""

    def __init__(self, builder: Any, packer: Any, numbers: Any) -> None:
        self._builder = builder
        self._models = packer._dm_args
        self._flat = packer._unflattener.unflatten(numbers)

    def __getitem__(self, index: int) -> Any:
        return self._models[index].from_argument(self._builder, self._flat[index])

    def hold(self, index: int) -> HeldValue:
        """An argument that has the same value wherever the function uses it."""
        return HeldValue(self._builder, self._models[index], self._flat[index])


def flatten(packer: Any, builder: Any, values: Any) -> tuple[Any, ...]:
    """The numbers of the arguments of a call, in place of numba's `ArgPacker.as_arguments`."""
    pairs = zip(packer._dm_args, values, strict=True)
    return tuple(
        _flatten(v.flat if isinstance(v, HeldValue) else model.as_argument(builder, v) for model, v in pairs)
    )


def _build(builder: Any, model: Any, flat: Any) -> Any:
    """A value of this kind from its numbers, without branches: numba makes flags by branches."""
    if isinstance(model, models.BooleanModel):
        return builder.icmp_unsigned("!=", flat, flat.type(0))
    parts = _models_of_parts(model)
    if parts is None:
        return model.from_argument(builder, flat)
    value = ir.Constant(model.get_value_type(), ir.Undefined)
    for place, (part, numbers) in enumerate(zip(parts, flat, strict=True)):
        value = builder.insert_value(value, _build(builder, part, numbers), place)
    return value


def _models_of_parts(model: Any) -> Sequence[Any] | None:
    if isinstance(model, models.UniTupleModel):
        return [model._elem_model] * model._count
    return tuple(model._models) if isinstance(model, models.StructModel) else None
