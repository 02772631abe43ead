"""Calls of kernels from Python by their addresses, without a compiled wrapper.

numba compiles a wrapper for each function that Python calls, which takes as long as a small kernel. Here
Python itself lays the arguments flat, as machine code takes them: an array is seven numbers or more, a tuple
is its parts. This is done where arguments are numbers, arrays and tuples of them, and where the result is a
number or nothing, so that no array changes hands. A call takes some microseconds more.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import types

_WORD = ctypes.c_int64
_RESULTS = {
    types.float64: ctypes.c_double,
    types.int64: _WORD,
    types.uint64: ctypes.c_uint64,
    types.boolean: ctypes.c_uint8,
    types.none: _WORD,
}
_OWNERLESS = (0, 0)  # in place of the count of references to an array, and of its Python object


class DirectCall(NamedTuple):
    """A kernel for one tuple of argument types."""

    function: Any
    result: Any  # the C type
    kind: Any  # numba's type of the result

    def __call__(self, words: list[Any]) -> Any:
        """The result for flat arguments.

        Raises
        ------
        KernelError
            The kernel has raised an exception.
        """
        result, error = self.result(), ctypes.c_void_p()
        if self.function(ctypes.byref(result), ctypes.byref(error), *words):
            raise KernelError
        if self.kind == types.none:
            return None
        return bool(result.value) if self.kind == types.boolean else result.value


class KernelError(Exception):
    """A kernel has raised an exception, whose text only a compiled wrapper can tell."""


def is_direct(result: Any) -> bool:
    """Whether a kernel with a result of this type can be called directly."""
    return result in _RESULTS


def direct_call(address: int, result: Any, words: list[Any]) -> DirectCall:
    """The kernel at `address`, for arguments with the types of these flat ones."""
    kinds = [ctypes.c_double if isinstance(word, float) else _WORD for word in words]
    function = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, *kinds)(address)
    return DirectCall(function, _RESULTS[result], result)


def lay_flat(value: Any, words: list[Any], key: list[Any]) -> bool:
    """Append an argument to `words` as machine code takes it, and what tells its type to `key`.

    Returns whether there is a way to do that.
    """
    way = _WAYS.get(type(value))
    if way is not None:
        way(value, words, key)
        return True
    if isinstance(value, tuple):
        key.append((type(value), len(value)))
        return all(lay_flat(part, words, key) for part in value)
    return False


def _array(value: np.ndarray, words: list[Any], key: list[Any]) -> None:
    flags = value.flags
    key.append(
        (value.dtype, value.ndim, flags.c_contiguous, flags.f_contiguous, flags.writeable, flags.aligned)
    )
    words += (*_OWNERLESS, value.size, value.itemsize, value.ctypes.data, *value.shape, *value.strides)


def _number(
    plain: Callable[[Any], Any], kind: type | None = None
) -> Callable[[Any, list[Any], list[Any]], None]:
    def append(value: Any, words: list[Any], key: list[Any]) -> None:
        words.append(plain(value))
        key.append(kind or plain)

    return append


def _flag(value: Any) -> int:
    return 1 if value else 0


_WAYS: dict[type, Callable[[Any, list[Any], list[Any]], None]] = {
    np.ndarray: _array,
    float: _number(float),
    np.float64: _number(float),
    int: _number(int),
    np.int64: _number(int),
    np.uint64: _number(int, np.uint64),
    bool: _number(_flag),
    np.bool_: _number(_flag),
}
