"""Calls of kernels from Python by their addresses, without a compiled wrapper.

numba compiles a wrapper for each function that Python calls, which takes as long as a small kernel. Here
Python itself lays the arguments flat, as machine code takes them: an array is seven numbers or more, a tuple
is its parts. It also reads the result, which machine code writes to memory that Python gives. This is done
where arguments are numbers, arrays, random number generators and tuples of them, and where the result is
nothing, a number, an array, or a tuple of such. A call takes some tens of microseconds more.

Arrays of arguments are lent: they carry no count of references. So an array of the result that has none is
one of the arguments, or a view of one. An array that the kernel has made has a count, and Python takes over
the reference that the kernel hands to it.
"""

from __future__ import annotations

import ctypes
import itertools
import struct
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.core.runtime.nrt import MemInfo

_WORD = ctypes.c_int64
_NUMBERS = {types.float64: "d", types.int64: "q", types.uint64: "Q", types.boolean: "?"}
_DTYPES = {kind: np.dtype(letter) for kind, letter in _NUMBERS.items()}
_OWNERLESS = (0, 0)  # in place of the count of references to an array, and of its Python object
_HEAD = 5  # numbers of an array before its shape


class DirectCall(NamedTuple):
    """A kernel for one tuple of argument types."""

    function: Any
    result: Any  # numba's type
    form: struct.Struct  # of the result in memory

    def __call__(self, words: list[Any], lent: dict[int, np.ndarray]) -> Any:
        """The result for flat arguments and their arrays; `lay_flat` has written both.

        Raises
        ------
        KernelError
            The kernel has raised an exception.
        """
        memory, error = ctypes.create_string_buffer(self.form.size or 8), ctypes.c_void_p()
        if self.function(memory, ctypes.byref(error), *words):
            raise KernelError
        if self.result == types.none:
            return None
        return _read(self.result, iter(self.form.unpack_from(memory)), lent)


class KernelError(Exception):
    """A kernel has raised an exception, whose text only a compiled wrapper can tell."""


def is_direct(result: Any, arguments: Any) -> bool:
    """Whether a kernel with these types can be called directly."""
    return (result == types.none or _is_readable(result)) and all(map(_is_flat, arguments))


def direct_call(address: int, result: Any, words: list[Any]) -> DirectCall:
    """The kernel at `address`, for arguments with the types of these flat ones."""
    kinds = [ctypes.c_double if isinstance(word, float) else _WORD for word in words]
    function = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, *kinds)(address)
    form = "" if result == types.none else _form(result)[0]
    return DirectCall(function, result, struct.Struct(f"@{form}"))


def lay_flat(value: Any, words: list[Any], key: list[Any], lent: dict[int, np.ndarray]) -> bool:
    """Append an argument to `words` as machine code takes it, and what tells its type to `key`.

    `lent` gets the arrays, by their addresses. Returns whether there is a way to do that.
    """
    if isinstance(value, np.ndarray) and type(value) is np.ndarray:
        lent[_array(value, words, key)] = value
        return True
    way = _WAYS.get(type(value))
    if way is not None:
        way(value, words, key)
        return True
    if isinstance(value, tuple):
        key.append((type(value), len(value)))
        return all(lay_flat(part, words, key, lent) for part in value)
    return False


def _array(value: np.ndarray, words: list[Any], key: list[Any]) -> int:
    flags = value.flags
    key.append(
        (value.dtype, value.ndim, flags.c_contiguous, flags.f_contiguous, flags.writeable, flags.aligned)
    )
    address: int = value.ctypes.data
    words += (*_OWNERLESS, value.size, value.itemsize, address, *value.shape, *value.strides)
    return address


def _generator(value: np.random.Generator, words: list[Any], key: list[Any]) -> None:
    about = value.bit_generator.ctypes
    key.append(np.random.Generator)
    calls = (ctypes.cast(call, ctypes.c_void_p).value for call in about[2:5])
    words += (0, about.state_address, about.state.value, *calls, about.bit_generator.value, *_OWNERLESS)


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
    np.random.Generator: _generator,
    float: _number(float),
    np.float64: _number(float),
    int: _number(int),
    np.int64: _number(int),
    np.uint64: _number(int, np.uint64),
    bool: _number(_flag),
    np.bool_: _number(_flag),
}


def _is_flat(kind: Any) -> bool:
    """Whether `lay_flat` has a way for values of this type."""
    if isinstance(kind, types.BaseTuple):
        return all(map(_is_flat, kind))
    return kind in _NUMBERS or isinstance(kind, types.Array | types.NumPyRandomGeneratorType)


def _is_readable(kind: Any) -> bool:
    """Whether `_read` has a way for values of this type."""
    if isinstance(kind, types.BaseTuple):
        return all(map(_is_readable, kind))
    return kind in _NUMBERS or (isinstance(kind, types.Array) and kind.dtype in _NUMBERS)


def _form(kind: Any) -> tuple[str, int]:
    """How values of a type stand in memory, as `struct` writes it, and to how many bytes they are aligned."""
    if isinstance(kind, types.BaseTuple):
        parts = [_form(part) for part in kind]
        text, aligned = "".join(part for part, _ in parts), max((each for _, each in parts), default=1)
        around = "0q" if aligned > 1 else ""
        return f"{around}{text}{around}", aligned
    if isinstance(kind, types.Array):
        return "q" * (_HEAD + 2 * kind.ndim), 8
    return _NUMBERS[kind], 1 if kind == types.boolean else 8


def _read(kind: Any, numbers: Iterator[Any], lent: dict[int, np.ndarray]) -> Any:
    """The value of a type that begins with the next of these numbers."""
    if isinstance(kind, types.BaseTuple):
        parts = [_read(part, numbers, lent) for part in kind]
        return kind.instance_class(*parts) if isinstance(kind, types.BaseNamedTuple) else tuple(parts)
    if not isinstance(kind, types.Array):
        return next(numbers)
    counted, _, size, _, address = itertools.islice(numbers, _HEAD)
    shape, strides = tuple(itertools.islice(numbers, kind.ndim)), tuple(itertools.islice(numbers, kind.ndim))
    dtype = _DTYPES[kind.dtype]
    if counted:
        owner = MemInfo(counted)  # it takes over the reference that the kernel hands to its caller
        array: np.ndarray = np.ndarray(shape, dtype, owner, address - owner.data if size else 0, strides)
    else:
        array = _argument(lent, address, shape, strides, dtype)
    if not kind.mutable and array.flags.writeable:
        array = array.view()
        array.flags.writeable = False
    return array


def _argument(
    lent: dict[int, np.ndarray], address: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any
) -> np.ndarray:
    """The array among the arguments that stands at `address`, or a view of one."""
    array = lent.get(address)
    if array is not None and (shape, strides, dtype) == (array.shape, array.strides, array.dtype):
        return array
    about = {"data": (address, False), "shape": shape, "strides": strides, "typestr": dtype.str, "version": 3}
    for array in lent.values():
        first, end = np.lib.array_utils.byte_bounds(array)
        if first <= address < end or address == array.ctypes.data:
            return np.asarray(_Part(about, array))
    return np.array(_Part(about, None))  # a copy: it is a constant of the machine code


class _Part:
    """What holds the array that a view is of, where NumPy only knows the address."""

    def __init__(self, about: dict[str, Any], base: np.ndarray | None) -> None:
        self.__array_interface__, self.base = about, base
