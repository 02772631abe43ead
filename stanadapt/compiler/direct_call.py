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
import struct
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.core.runtime.nrt import MemInfo

_WORD = ctypes.c_int64
_NUMBERS = {types.float64: "d", types.int64: "q", types.uint64: "Q", types.boolean: "?"}
_DTYPES = {kind: np.dtype(letter) for kind, letter in _NUMBERS.items()}
_OWNERLESS = (0, 0)  # in place of the count of references to an array, and of its Python object
_HEAD = 5  # numbers of an array before its shape
# The flags of an array that its type tells: its order in memory, C or Fortran, aligned, and writeable.
_FLAGS = 0x1 | 0x2 | 0x100 | 0x400

Reader = Callable[[tuple[Any, ...], dict[int, np.ndarray]], Any]


class DirectCall(NamedTuple):
    """A kernel for one tuple of argument types."""

    function: Any
    result: Any  # numba's type
    form: struct.Struct  # of the result in memory
    read: Reader  # of the result from the numbers of that form

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
        return self.read(self.form.unpack_from(memory), lent)


class KernelError(Exception):
    """A kernel has raised an exception, whose text only a compiled wrapper can tell."""


def is_direct(result: Any, arguments: Any) -> bool:
    """Whether a kernel with these types can be called directly."""
    return (result == types.none or _is_readable(result)) and all(map(_is_flat, arguments))


def direct_call(address: int, result: Any, words: list[Any]) -> DirectCall:
    """The kernel at `address`, for arguments with the types of these flat ones."""
    kinds = [ctypes.c_double if isinstance(word, float) else _WORD for word in words]
    function = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, *kinds)(address)
    if result == types.none:
        return DirectCall(function, result, struct.Struct(""), lambda numbers, lent: None)
    return DirectCall(function, result, struct.Struct(f"@{_form(result)[0]}"), _reader(result, 0)[0])


def lay_flat(values: tuple[Any, ...], words: list[Any], key: list[Any], lent: dict[int, np.ndarray]) -> bool:
    """Append values to `words` as machine code takes them, and what tells their types to `key`.

    `lent` gets the arrays, by their addresses. Returns whether there is a way to do that.
    """
    for value in values:
        kind = type(value)
        if kind is np.ndarray:
            address = address_of(value)
            lent[address] = value
            words += (*_OWNERLESS, value.size, value.itemsize, address, *value.shape, *value.strides)
            key += (value.dtype, value.ndim, value.flags.num & _FLAGS)
        elif (way := _WAYS.get(kind)) is not None:
            way(value, words, key)
        elif isinstance(value, tuple):
            key += (kind, len(value))
            if not lay_flat(value, words, key, lent):
                return False
        else:
            return False
    return True


def _data_field(array: np.ndarray) -> int:
    """The address of an array's data, which is the first field of NumPy's structure."""
    return _POINTER(id(array) + _HEADER).value or 0


def _data_attribute(array: np.ndarray) -> int:
    address: int = array.ctypes.data
    return address


# The field takes an eighth of the time. Not every Python has an object at its `id`, so it is tried once.
_POINTER, _HEADER = ctypes.c_void_p.from_address, object.__basicsize__
address_of = _data_attribute
if sys.implementation.name == "cpython":
    _some = np.arange(6.0)
    if all(_data_field(each) == _data_attribute(each) for each in (_some, _some[1:], np.empty((0, 2)))):
        address_of = _data_field


def _generator(value: np.random.Generator, words: list[Any], key: list[Any]) -> None:
    generator = value.bit_generator
    about = generator.ctypes
    calls = _calls.get(type(generator))
    if calls is None:
        found = (ctypes.cast(call, ctypes.c_void_p).value for call in about[2:5])
        calls = _calls[type(generator)] = tuple(found)
    key.append(np.random.Generator)
    words += (0, about.state_address, about.state.value, *calls, about.bit_generator.value, *_OWNERLESS)


_calls: dict[type, tuple[Any, ...]] = {}  # the addresses of the functions of each kind of bit generator


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
    """Whether `_reader` has a way for values of this type."""
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


def _reader(kind: Any, first: int) -> tuple[Reader, int]:
    """What reads a value of a type whose numbers begin with number `first`, and the number after them."""
    if isinstance(kind, types.BaseTuple):
        readers, end = [], first
        for part in kind:
            read, end = _reader(part, end)
            readers.append(read)
        make = kind.instance_class._make if isinstance(kind, types.BaseNamedTuple) else tuple
        return lambda numbers, lent: make([read(numbers, lent) for read in readers]), end
    if not isinstance(kind, types.Array):
        return lambda numbers, lent: numbers[first], first + 1
    shape_ends, end = first + _HEAD + kind.ndim, first + _HEAD + 2 * kind.ndim
    dtype, mutable = _DTYPES[kind.dtype], kind.mutable

    def read_array(numbers: tuple[Any, ...], lent: dict[int, np.ndarray]) -> np.ndarray:
        counted, size, address = numbers[first], numbers[first + 2], numbers[first + 4]
        shape, strides = numbers[first + _HEAD : shape_ends], numbers[shape_ends:end]
        if counted:
            owner = MemInfo(counted)  # it takes over the reference that the kernel hands to its caller
            array: np.ndarray = np.ndarray(shape, dtype, owner, address - owner.data if size else 0, strides)
        else:
            array = _argument(lent, address, shape, strides, dtype)
        if not mutable and array.flags.writeable:
            array = array.view()
            array.flags.writeable = False
        return array

    return read_array, end


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
        if first <= address < end or address == address_of(array):
            return np.asarray(_Part(about, array))
    return np.array(_Part(about, None))  # a copy: it is a constant of the machine code


class _Part:
    """What holds the array that a view is of, where NumPy only knows the address."""

    def __init__(self, about: dict[str, Any], base: np.ndarray | None) -> None:
        self.__array_interface__, self.base = about, base
