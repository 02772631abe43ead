"""Random numbers for rows of draws: streams of numpy's Philox, restarted for every iteration by its number.

Philox (Salmon, Moraes, Dror and Shaw, 2011, Parallel random numbers: as easy as 1, 2, 3) makes its numbers
from a key and a counter. So the stream of an iteration begins when the iteration's number is written into
the counter, in the generator's own memory: numpy's `state` can only be set from Python, which takes
microseconds. A check compares the memory's layout with numpy's own description of it once in a process.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np
from numba import carray

from ....jit import kernel
from .calls import pointer

_BUFFER = 4  # numbers that a counter gives; a position of so many says that they are used up


class PhiloxStreams:
    """Generators for several random quantities, each with streams of its own."""

    def __init__(self, seed: int, count: int) -> None:
        """`seed`: 0 to 2**64 - 1."""
        keys = [np.array([seed, number], np.uint64) for number in range(count)]
        self.generators = tuple(np.random.Generator(np.random.Philox(key=key)) for key in keys)
        addresses = [generator.bit_generator.ctypes.state_address for generator in self.generators]
        # The addresses of their memories, for `begin`; empty where `begin_slowly` has to be used.
        self.addresses = np.array(addresses if is_known_memory() else [], np.uint64)

    def begin_slowly(self, iteration: int) -> None:
        """Do the work of the kernel `begin` by numpy's own functions."""
        for generator in self.generators:
            _set(generator.bit_generator, iteration)


@kernel
def begin(addresses: Any, iteration: Any) -> None:
    """Have generators begin the streams of an iteration; `addresses` (k,) uint64: of their memories."""
    for k in range(len(addresses)):
        state = carray(pointer(addresses[k]), (8,), np.uint64)
        counter = carray(pointer(state[0]), (4,), np.uint64)
        counter[0] = counter[1] = counter[3] = np.uint64(0)
        counter[2] = np.uint64(iteration)  # numpy counts from the first number on
        state[2] = np.uint64(_BUFFER)
        state[7] = np.uint64(0)  # no half of a number is left


@functools.cache
def is_known_memory() -> bool:
    """Whether `begin` writes what numpy's own `state` would have written, in another generator's midst."""
    ours, theirs = (np.random.Generator(np.random.Philox(key=np.array([3, 5], np.uint64))) for _ in range(2))
    ours.integers(10, size=3, dtype=np.uint32)  # so that a half is left, and the buffer is in use
    before = np.ctypeslib.as_array(_words(ours.bit_generator)).copy()
    known = ours.bit_generator.state
    if int(before[2] & np.uint64(0xFFFFFFFF)) != known["buffer_pos"] or not known["has_uint32"]:
        return False
    if list(before[3:7]) != list(known["buffer"]) or int(before[7] & np.uint64(0xFFFFFFFF)) != 1:
        return False
    begin(np.array([ours.bit_generator.ctypes.state_address], np.uint64), 7)
    _set(theirs.bit_generator, 7)
    return bool(np.array_equal(ours.random(9), theirs.random(9)))


def _words(generator: Any) -> Any:
    return (ctypes.c_uint64 * 8).from_address(generator.ctypes.state_address)


def _set(generator: Any, iteration: int) -> None:
    state = generator.state
    state["state"]["counter"] = np.array([0, 0, iteration, 0], np.uint64)
    state["buffer_pos"], state["has_uint32"], state["uinteger"] = _BUFFER, 0, 0
    generator.state = state
