"""Random numbers of generated quantities: a stream for every iteration of a chain, whatever else was written.

Stan draws them from MIXMAX (Savvidy, 2015, The MIXMAX random number generator), whose state is 17 integers
below p = 2^61 - 1, not all zero, their sum modulo p, and a counter. To seed one by BridgeStan's function
takes some 25 µs, several times what a draw of eight schools costs with its generated quantities, since it
jumps far ahead for each bit of the seed. So the state of one generator is written here instead, by SplitMix64
(Steele, Lea and Flood, 2014, Fast splittable pseudorandom number generators), in 50 ns.

Libraries of Stan 2.35 and later have MIXMAX, and the sum in the generator's state shows it. For other
libraries, BridgeStan seeds a generator for every row.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any, NamedTuple

import bridgestan
import numpy as np

from ....jit import kernel

_P = np.uint64(2**61 - 1)
_WORDS = 17
_FIRST_VERSION = (2, 5, 0)  # of BridgeStan with Stan 2.35
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


class Stream(NamedTuple):
    """The stream from which a kernel draws the random numbers of a row."""

    handle: int  # address of the generator
    state: np.ndarray  # (19,) uint64, its memory: the integers, their sum, the counter; (0,) if it is seeded
    counter: np.uint64  # of a fresh generator
    key: np.uint64


class Streams:
    """The generators of one writer."""

    def __init__(self, model: bridgestan.StanModel, seed: int) -> None:
        self.model = model
        self.rng = model.new_rng(1)
        self.key = np.uint64(_mix(np.uint64(seed)))
        state = _mixmax(self.rng) if model.model_version() >= _FIRST_VERSION else np.zeros(0, np.uint64)
        self.stream = Stream(self.rng.ptr, state, state[-1] if state.size else np.uint64(0), self.key)

    def parts(self, iterations: np.ndarray) -> Iterator[tuple[slice, Stream]]:
        """Rows that a kernel can write at once, and the stream for them."""
        if self.stream.state.size:
            yield slice(None), self.stream
            return
        for i, iteration in enumerate(iterations):
            place = (int(self.key) + int(iteration) * int(_GOLDEN)) % 2**64
            seed = int(_mix(np.uint64(place))) >> 32
            rng = self.model.new_rng(seed)  # lives until the next one is asked for
            yield slice(i, i + 1), self.stream._replace(handle=rng.ptr)


def _mixmax(rng: Any) -> np.ndarray:
    """The state of a generator in its own memory; nothing if it is no MIXMAX."""
    memory: Any = (ctypes.c_uint64 * (_WORDS + 2)).from_address(rng.ptr)
    memory.owner = rng  # which frees it
    state = np.ctypeslib.as_array(memory)
    words = [int(word) for word in state[:_WORDS]]
    sound = max(words) <= int(_P) and sum(words) % int(_P) == int(state[_WORDS])
    return state if sound else state[:0]


@kernel
def _mix(z: Any) -> Any:
    """SplitMix64's output for the state `z`."""
    z = (z ^ (z >> np.uint64(30))) * _MIX_1
    z = (z ^ (z >> np.uint64(27))) * _MIX_2
    return z ^ (z >> np.uint64(31))


@kernel
def begin(stream: Any, iteration: Any) -> None:
    """Have the generator begin the stream of an iteration."""
    if stream.state.size == 0:
        return
    place = stream.key + np.uint64(_WORDS) * np.uint64(iteration) * _GOLDEN
    total = np.uint64(0)
    for i in range(_WORDS):
        place += _GOLDEN
        word = _mix(place) >> np.uint64(3)
        if word == _P:
            word = np.uint64(0)
        stream.state[i] = word
        total += word
        if total >= _P:
            total -= _P
    stream.state[_WORDS] = total
    stream.state[_WORDS + 1] = stream.counter
