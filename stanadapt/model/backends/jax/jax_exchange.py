"""XLA called from compiled code, without Python in between: an XLA program that asks for points.

JAX hands out no C function of a compiled program. But a program may call C functions (`jax.ffi`). So the
program here is a loop, in a thread of its own: it calls `exchange`, which hands out the log density of the
last point and waits for the next one, and evaluates that. Kernels call `log_density` and
`log_density_gradient`, which leave a point, wake the loop by a semaphore, and sleep until it has answered.
So one of the two threads runs at any time, and nothing depends on which.

What makes it sound:

- One mutex is held for the whole of a call, and by `stop`. So the two sides take strict turns.
- However the loop ends, its thread posts the answer once more. A waiting thread then sees that no answer
will come, and fails; the exception is raised at the end of the block.
- XLA runs larger programs in threads of a pool that has as many as there are cores. A loop that waits there
  would keep others out. So a loop lives for a block of iterations at most: `stop` comes before all other work
  that the model does in JAX, at the end of every block, and when the interpreter exits.

The semaphores are POSIX semaphores in memory, which Linux has. Elsewhere, see `is_at_hand`, models are
called through Python.
"""

from __future__ import annotations

import ctypes
import functools
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from ....jit import callback, intrinsic, kernel

_TARGET = "stanadapt_exchange"  # its name in programs of XLA's

# The words of an exchange, which both sides share.
_RUNS = 0  # whether the loop is there
_ASKED = 1  # whether a point waits for its answer
_TAKEN = 2  # whether the loop has taken the point
_WANTED = 3  # one of the three below
_DIM = 4
_POINT = 5  # address of a point (d,)
_RESULT = 6  # address of a log density and its gradient (1 + d,)
_START = 7  # address of a callback that starts the loop
_MUTEX, _REQUEST, _ANSWER = 8, 9, 10  # addresses of the mutex and of two semaphores
_ACQUIRE, _RELEASE, _WAIT, _POST = 11, 12, 13, 14  # addresses of C functions of these
_WORDS = 15

STOP, DENSITY, GRADIENT = 0, 1, 2  # what is wanted

# Words of XLA's structures (xla/ffi/api/c_api.h), whose interface of version 0 keeps their places.
_FRAME_EXTENSION, _FRAME_STAGE, _FRAME_ARGUMENTS, _FRAME_RESULTS = 1, 4, 9, 14
_BUFFER_DATA = 3
_EXECUTE = 3  # the stage
_METADATA = 1  # the kind of extension that asks for the version
_VERSION = 1 << 32  # major 0, minor 1
_VERSION_BYTES = 24

_START_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
_BYTES = 128  # of a mutex or a semaphore, at most


@functools.cache
def is_at_hand() -> bool:
    """Whether this system supports an exchange."""
    return sys.platform == "linux" and ctypes.sizeof(ctypes.c_void_p) == 8


@functools.cache
def _libc() -> Any:
    return ctypes.CDLL(None)


class Exchange:
    """The two sides of a model in this process.

    Parameters
    ----------
    dim
        d.
    compile_loop
        A function that returns the loop, compiled: a callable of (words, result), where `words` is the
        address of the exchange as an array () of int64 and `result` an array (1 + d,). It is called when the
        first point is asked for.
    """

    def __init__(self, dim: int, compile_loop: Callable[[], Callable[..., Any]]) -> None:
        self.compile_loop = compile_loop
        self._loop: Callable[..., Any] | None = None
        self._room = _Room(dim)
        self._start_callback = _START_FUNCTION(self._start)
        self._room.words[_START] = _address(self._start_callback)
        weakref.finalize(self, self._room.stop)  # at the end of the interpreter too

    @property
    def context(self) -> int:
        """The first argument of `LOG_DENSITY_ADDRESS` and `GRADIENT_ADDRESS`."""
        return self._room.address

    def stop(self) -> None:
        """End the loop, if there is one. The next call starts it again."""
        self._room.stop()

    def raise_pending(self) -> None:
        """Raise the exception with which the loop, or its compiler, has ended."""
        error, self._room.pending = self._room.pending, None
        if error is not None:
            raise error

    def _start(self, _: Any) -> int:
        """Start the loop where it does not run. The caller holds the mutex."""
        room = self._room
        try:
            if room.pending is not None:
                return -1
            if self._loop is None:
                self._loop = self.compile_loop()
            room.start(self._loop)
        except BaseException as error:  # must not cross C frames
            room.words[_RUNS] = 0
            room.pending = error
            return -1
        return 0


class _Room:
    """The memory of an exchange, and the thread of its loop, which holds it for as long as it runs."""

    def __init__(self, dim: int) -> None:
        self.dim = dim
        self.pending: BaseException | None = None
        self.words = np.zeros(_WORDS, np.int64)
        self.address = int(self.words.ctypes.data)
        self._thread: threading.Thread | None = None
        self._numbers = np.zeros(2 * dim + 1)  # the point, then the result
        self._system = np.zeros((3, _BYTES // 8), np.int64)
        mutex, request, answer = (int(row.ctypes.data) for row in self._system)
        libc, point = _libc(), int(self._numbers.ctypes.data)
        functions = libc.pthread_mutex_lock, libc.pthread_mutex_unlock, libc.sem_wait, libc.sem_post
        places = [dim, point, point + 8 * dim, 0, mutex, request, answer, *map(_address, functions)]
        self.words[_DIM:] = places
        self._mutex, self._request, self._answer = map(ctypes.c_void_p, (mutex, request, answer))
        codes = [libc.pthread_mutex_init(self._mutex, None)]
        codes += [libc.sem_init(semaphore, 0, 0) for semaphore in (self._request, self._answer)]
        if any(codes):
            raise OSError("the system has no mutex or semaphore left")

    def start(self, loop: Callable[..., Any]) -> None:
        """Start the loop, in a thread. The mutex is held."""
        self._join()
        for semaphore in (self._request, self._answer):  # nothing is left over from another loop
            while _libc().sem_trywait(semaphore) == 0:
                pass
        self.words[_ASKED] = self.words[_TAKEN] = 0
        self.words[_RUNS] = 1
        self._thread = threading.Thread(target=self._serve, args=(loop,), name="stanadapt-xla", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the loop, if there is one."""
        if not self.words[_RUNS] and self._thread is None:
            return
        libc = _libc()
        libc.pthread_mutex_lock(self._mutex)
        try:
            if self.words[_RUNS]:
                self.words[_WANTED] = STOP
                libc.sem_post(self._request)
            self._join()
        finally:
            libc.pthread_mutex_unlock(self._mutex)

    def _serve(self, loop: Callable[..., Any]) -> None:
        """In the thread: run the loop."""
        try:
            loop(np.array(self.address), np.zeros(1 + self.dim)).block_until_ready()
        except BaseException as error:
            self.pending = error
        finally:
            self.words[_RUNS] = 0
            _libc().sem_post(self._answer)

    def _join(self) -> None:
        """Wait for the end of a thread that is about to end."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None


def loop(density: Callable[[Any], Any], packed: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    """The program of (words, result) around a log density of JAX's, for `jax.jit`.

    `density` is a function of x (d,), and `packed` one that returns its gradient too, in one array (1 + d,).
    The program returns its last result, which is not used.
    """
    import jax
    from jax import lax
    from jax import numpy as jnp

    register()

    def alone(x: Any) -> Any:
        return jnp.concatenate([density(x)[None], jnp.zeros_like(x)])

    def run(words: Any, result: Any) -> Any:
        point = jax.ShapeDtypeStruct((result.size - 1,), np.float64)
        wanted = jax.ShapeDtypeStruct((), np.int32)
        call = jax.ffi.ffi_call(_TARGET, (point, wanted), has_side_effect=True)

        def body(state: Any) -> Any:
            x, wanted = call(words, state[0])
            return lax.switch(wanted, [lambda x: state[0], alone, packed], x), wanted

        return lax.while_loop(lambda state: state[1] != STOP, body, (result, jnp.int32(GRADIENT)))[0]

    return run


@functools.cache
def register() -> None:
    """Tell JAX of the C function that the loop calls."""
    import jax

    jax.ffi.register_ffi_target(_TARGET, jax.ffi.pycapsule(_exchange.ctypes), platform="cpu")


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


@intrinsic
def _word(typing_context: Any, address: Any, index: Any) -> Any:
    """The word (int64) number `index` from an address on."""

    def generate(_: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(_pointer(builder, *arguments))

    return types.int64(types.int64, types.int64), generate


@intrinsic
def _set_word(typing_context: Any, address: Any, index: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store(arguments[2], _pointer(builder, *arguments[:2]))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


def _pointer(builder: Any, address: Any, index: Any) -> Any:
    word = ir.IntType(64)
    return builder.gep(builder.inttoptr(address, word.as_pointer()), [index])


@intrinsic
def _copy(typing_context: Any, to: Any, start: Any, count: Any) -> Any:
    """Copy `count` numbers of 8 bytes from the address `start` to the address `to`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        to, start = (builder.inttoptr(argument, byte) for argument in arguments[:2])
        cgutils.raw_memcpy(builder, to, start, arguments[2], 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@intrinsic
def _call(typing_context: Any, function: Any, argument: Any) -> Any:
    """Call the C function `int f(void *)` at an address."""

    def generate(_: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        at, argument = arguments
        kind = ir.FunctionType(ir.IntType(32), [ir.IntType(64)])
        return builder.call(builder.inttoptr(at, kind.as_pointer()), [argument])

    return types.int32(types.int64, types.int64), generate


@intrinsic
def _low_half(typing_context: Any, word: Any) -> Any:
    """The first 4 bytes of a word, which hold an `int` of C's."""

    def generate(_: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.sext(builder.trunc(arguments[0], ir.IntType(32)), ir.IntType(64))

    return types.int64(types.int64), generate


@intrinsic
def _set_low_half(typing_context: Any, address: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        half = ir.IntType(32)
        at = builder.inttoptr(arguments[0], half.as_pointer())
        builder.store(builder.trunc(arguments[1], half), at)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@callback(types.int64(types.int64))
def _exchange(frame):  # type: ignore[no-untyped-def]
    """Hand out the last result, if it was asked for, and wait for a point. The loop calls this."""
    extension = _word(frame, _FRAME_EXTENSION)
    if extension != 0 and _low_half(_word(extension, 1)) == _METADATA:
        metadata = _word(extension, 3)
        _set_word(metadata, 1, _VERSION_BYTES)
        _set_word(metadata, 2, 0)
        _set_word(metadata, 3, _VERSION)
        _set_word(metadata, 4, 0)
        return 0
    if _low_half(_word(frame, _FRAME_STAGE)) != _EXECUTE:
        return 0
    arguments, results = _word(frame, _FRAME_ARGUMENTS), _word(frame, _FRAME_RESULTS)
    words = _word(_word(_word(arguments, 0), _BUFFER_DATA), 0)
    given = _word(_word(arguments, 1), _BUFFER_DATA)
    x = _word(_word(results, 0), _BUFFER_DATA)
    wanted = _word(_word(results, 1), _BUFFER_DATA)
    d = _word(words, _DIM)
    if _word(words, _TAKEN) != 0:
        _copy(_word(words, _RESULT), given, d + 1)
        _set_word(words, _TAKEN, 0)
        _set_word(words, _ASKED, 0)
        _call(_word(words, _POST), _word(words, _ANSWER))
    while _call(_word(words, _WAIT), _word(words, _REQUEST)) != 0:
        pass  # a signal came
    kind = _word(words, _WANTED)
    if kind != STOP:
        _set_word(words, _TAKEN, 1)
        _copy(x, _word(words, _POINT), d)
    _set_low_half(wanted, kind)
    return 0


@kernel(counted=False)
def _ask(words: Any, x: Any, value: Any, score: Any, kind: Any) -> Any:
    """Have the loop evaluate the point at the address `x`. Returns 0, or -1 where it has ended instead."""
    d = _word(words, _DIM)
    _call(_word(words, _ACQUIRE), _word(words, _MUTEX))
    if _word(words, _RUNS) == 0 and _call(_word(words, _START), words) != 0:
        _call(_word(words, _RELEASE), _word(words, _MUTEX))
        return -1
    _set_word(words, _WANTED, kind)
    _copy(_word(words, _POINT), x, d)
    _set_word(words, _ASKED, 1)
    _call(_word(words, _POST), _word(words, _REQUEST))
    while _call(_word(words, _WAIT), _word(words, _ANSWER)) != 0:
        pass  # a signal came
    code = -1
    if _word(words, _ASKED) == 0:
        code = 0
        result = _word(words, _RESULT)
        _copy(value, result, 1)
        if kind == GRADIENT:
            _copy(score, result + 8, d)
    _set_word(words, _ASKED, 0)
    _call(_word(words, _RELEASE), _word(words, _MUTEX))
    return code


_HEAD = (types.int64, types.boolean, types.boolean, types.int64, types.int64)


@callback(types.int32(*_HEAD, types.int64))
def _log_density(words, propto, jacobian, x, value, message):  # type: ignore[no-untyped-def]
    return _ask(words, x, value, 0, DENSITY)


@callback(types.int32(*_HEAD, types.int64, types.int64))
def _log_density_gradient(words, propto, jacobian, x, value, score, message):  # type: ignore[no-untyped-def]
    return _ask(words, x, value, score, GRADIENT)


# C functions as kernels call them; their first argument is an `Exchange.context`.
LOG_DENSITY_ADDRESS, GRADIENT_ADDRESS = _log_density.address, _log_density_gradient.address
