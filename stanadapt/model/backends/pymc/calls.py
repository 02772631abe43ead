"""Calls of functions that others have compiled with numba, at their addresses.

A kernel that calls another one usually holds a copy of it, which the compiler optimises again. For what
PyTensor makes of a model, that takes longer than all the rest, and the copy may differ in the last digit from
the one of another session. So what is compiled here calls the one piece of machine code that there is: that
which PyTensor compiled, or loaded from its own cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import from_dtype, types
from numba.core import cgutils

from ....jit import compile_here, intrinsic

GENERATOR = types.npy_rng  # the type of a numpy.random.Generator


@intrinsic
def pointer(typing_context: Any, address: Any) -> Any:
    """An address as the pointer that `numba.carray` takes."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())

    return types.voidptr(types.uintp), generate


def array_type(dtype: str, ndim: int) -> Any:
    """The type of an array in C order."""
    return types.Array(from_dtype(np.dtype(dtype)), ndim, "C")


def at_address(compiled: Any, arguments: Sequence[Any]) -> Any:
    """What kernels call for a compiled function, with one tuple of arguments of these types.

    It gives whether the function has returned, rather than raised, and its value, which means nothing where
    it has raised. `compiled` must live as long as the kernels do.
    """
    folded = tuple(compiled.get_call_template(tuple(arguments), {})[2])
    found = compiled.overloads[folded]
    address = found.library.get_pointer_to_function(found.fndesc.llvm_func_name)
    value, wanted = found.signature.return_type, found.signature.args
    takes_tuple = len(wanted) == 1 and isinstance(wanted[0], types.BaseTuple)  # def f(*arguments)

    def call(typing_context: Any, given: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, held: Any) -> Any:
            parts = cgutils.unpack_tuple(builder, held[0])
            if takes_tuple:
                parts = [context.make_tuple(builder, wanted[0], parts)]
            kind = context.call_conv.get_function_type(value, wanted)
            function = builder.inttoptr(ir.IntType(64)(address), kind.as_pointer())
            status, result = context.call_conv.call_function(builder, function, value, wanted, parts)
            return context.make_tuple(builder, signature.return_type, [status.is_ok, result])

        return types.Tuple((types.boolean, value))(given), generate

    return intrinsic(call)


def compile_text(lines: Sequence[str], held: dict[str, Any], signature: Any = None) -> Any:
    """A function `call` whose text only a model can tell, such as how many arguments there are."""
    exec("\n".join(lines), held)
    return compile_here(held["call"], signature)
