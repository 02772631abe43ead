"""A model behind BridgeStan's C ABI: the one file that knows the C functions.

Both stanli and BridgeStan hand over a `bridgestan.StanModel`; everything else is the same for them. The model
reopens in another process from its library, its data and its seed, so it pickles.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import bridgestan
import numpy as np
from llvmlite import ir
from numba import types

from .... import check
from ....errors import EvaluationError, ModelError
from ....jit import intrinsic, kernel
from ....target import NativeTarget, native_target
from ...includes import ProgramText, in_files
from ...printing import gather_prints, log_lines, no_prints, print_bytes
from ..contract import CheckedWriter, Writer
from ..defaults import ModelDefaults
from .division import check_division, checked_divisions, watch_divisions
from .elementwise import Elementwise, find_elementwise
from .streams import Streams, begin

THREADS = "STAN_THREADS=true"
_UNKNOWN = ProgramText("")
_PARTS = ((False, False), (True, False), (True, True))  # with transformed parameters; and generated
PROGRAM = "program.stan"  # the file that BridgeStan compiles a program from; it is gone afterwards


class NativeModel(ModelDefaults):
    """See `backends.contract.Model`."""

    def __init__(
        self,
        model: bridgestan.StanModel,
        backend: str,
        spare: str = "",
        program: ProgramText = _UNKNOWN,
        *,
        fixed_bounds: bool = False,
    ) -> None:
        """`spare` is stanli's form of the same program without its generated quantities.

        `program` is the text whose lines a message names, if it is known. With `fixed_bounds` no parameter
        stands in the bounds of another one.
        """
        self.model = model
        watch_divisions()
        hear(model.lib_path)  # a user's own model may have been opened otherwise
        self.spare, self.program, self.fixed_bounds = spare, program, fixed_bounds
        self.backend = backend
        self.library = _library(model, backend)
        self.dim = model.param_unc_num()
        self.thread_safe = THREADS in model.model_info()
        self.is_alone = False  # whether one thread evaluates it at a time, as in a process that has one

    def __reduce__(self) -> tuple[Any, ...]:
        return reopen, self._parts()

    def _parts(self) -> tuple[Any, ...]:
        """The arguments that open the model again."""
        held = self.model
        return held.lib_path, held.data, held.seed, self.backend, self.spare, self.program, self.fixed_bounds

    def names(self, *, transformed: bool, generated: bool) -> list[str]:
        return _split(self.model.param_names(include_tp=transformed, include_gq=generated))

    def unconstrained_names(self) -> list[str]:
        return _split(self.model.param_unc_names())

    def target(self) -> NativeTarget:
        return native_target(
            self._address("bs_log_density"),
            self._address("bs_log_density_gradient"),
            self.model.model,
            self.dim,
        )

    def log_density(self, x: np.ndarray) -> float:
        with _plain_errors(self.program):
            return float(self.model.log_density(x))

    def log_density_gradient(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        with _plain_errors(self.program):
            value, score = self.model.log_density_gradient(x)
        return value, np.asarray(score)

    def writer(self, seed: int) -> Writer:
        write_checked = self.checked_writer(seed)

        def write(x: np.ndarray, values: np.ndarray, iterations: np.ndarray) -> None:
            write_checked(x, values, iterations)

        return write

    def checked_writer(self, seed: int) -> CheckedWriter:
        streams = Streams(self.model, seed)
        address = self._address("bs_param_constrain")
        sizes = np.array([self.model.param_num(include_tp=tp, include_gq=gq) for tp, gq in _PARTS])

        def write(x: np.ndarray, values: np.ndarray, iterations: np.ndarray) -> np.ndarray:
            x = np.ascontiguousarray(x)
            failed = np.zeros(len(x), np.bool_)
            # An empty block, by which runs are prepared, compiles the kernel for the programs that need it.
            if len(x) and self._elementwise is not None:
                self._elementwise.constrain(x, values)
                return failed
            for rows, stream in streams.parts(iterations):
                points, at, out = x[rows], iterations[rows], values[rows]
                parts = np.zeros(len(points), np.int64)
                _constrain(address, self.model.model, stream, sizes, points, at, out, parts)
                hopeless = parts == 0
                if self.spare and hopeless.any():
                    n = sizes[1]
                    some = np.empty((int(hopeless.sum()), n))
                    model, smaller = self._spare_model.model, np.minimum(sizes, n)
                    rest = points[hopeless], at[hopeless], some, np.zeros(len(some), np.int64)
                    _constrain(address, model, stream, smaller, *rest)
                    out[hopeless, :n] = some
                failed[rows] = parts < len(_PARTS)
            self.raise_pending()
            return failed

        return write

    def refusal(self, x: np.ndarray, seed: int, iteration: int) -> str:
        for _, stream in Streams(self.model, seed).parts(np.array([iteration])):
            begin(stream, np.int64(iteration))
            generator: Any = SimpleNamespace(ptr=stream.handle)
            try:
                with _plain_errors(self.program):
                    self.model.param_constrain(x, include_tp=True, include_gq=True, rng=generator)
            except RuntimeError as error:
                return check.one_line(error)
        return ""

    def unconstrain_flat(self, values: np.ndarray) -> np.ndarray:
        with _plain_errors(self.program):
            return np.asarray(self.model.param_unconstrain(values))

    def unconstrain_rows(self, values: np.ndarray) -> np.ndarray:
        values = np.ascontiguousarray(values, dtype=float)
        x = np.empty((len(values), self.dim))
        _unconstrain(self._address("bs_param_unconstrain"), self.model.model, values, x)
        self.raise_pending()
        return x

    def identity(self) -> bytes:
        if self.backend == "stanli":
            return str(json.loads(self.model.data)["__stanli"]["mir"]).encode()
        return Path(self.model.lib_path).read_bytes()

    def for_chain(self, index: int, seeds: np.random.SeedSequence) -> NativeModel:
        # stanli locks a model while it evaluates it: two threads on one model get less done than one thread.
        if index == 0 or self.is_alone or self.backend != "stanli":
            return self
        return reopen(*self._parts())

    def raise_pending(self) -> None:
        try:
            check_division()
        except RuntimeError as error:
            raise EvaluationError(f"{error}") from error

    @functools.cached_property
    def _elementwise(self) -> Elementwise | None:
        """How the values of all draws are had at once; None where Stan constrains one after another."""
        names = self.names(transformed=True, generated=True)
        if not self.fixed_bounds or names != self.unconstrained_names():
            return None
        return find_elementwise(self.model.param_constrain, self.dim)

    @functools.cached_property
    def _spare_model(self) -> bridgestan.StanModel:
        """The model without generated quantities, opened when these first fail.

        stanli evaluates them even where only parameters are asked for: a failure in them takes all with it.
        """
        data = json.loads(self.model.data)
        data["__stanli"]["mir"] = self.spare
        with no_prints(), without_notes():
            return open_model(self.model.lib_path, json.dumps(data), self.model.seed)

    def _address(self, name: str) -> int:
        address = ctypes.cast(getattr(self.model.stanlib, name), ctypes.c_void_p).value
        assert address is not None  # a loaded function has one
        return address


def reopen(
    library: str, data: str, seed: int, backend: str, spare: str, program: ProgramText, fixed_bounds: bool
) -> NativeModel:
    """Open a model again, in this process or another."""
    try:
        with no_prints(), without_notes(), checked_divisions():
            model = open_model(library, data, seed)
        return NativeModel(model, backend, spare, program, fixed_bounds=fixed_bounds)
    except (OSError, RuntimeError) as error:
        raise ModelError(f"model: {library} can no longer be opened: {error}") from error


_CALL = re.compile(r"\w+\([\s\S]*?\) failed with exception:\s*")
_SCRATCH = re.compile(rf"'[^'\n]*/model/{re.escape(PROGRAM)}'")


def in_plain_words(message: str, program: ProgramText = _UNKNOWN) -> str:
    """A message of BridgeStan's without its function's name, C++'s exception, and a file that is gone."""
    message = _CALL.sub("", message.strip(), count=1) if _CALL.match(message.strip()) else message.strip()
    while message.startswith("Exception: "):
        message = message.removeprefix("Exception: ")
    return in_files(_SCRATCH.sub("the program", message), program)


@contextlib.contextmanager
def _plain_errors(program: ProgramText) -> Iterator[None]:
    try:
        with checked_divisions():
            yield
    except RuntimeError as error:
        raise RuntimeError(in_plain_words(str(error), program)) from error


def _print(text: Any, length: int) -> None:
    """Pass on the output of a Stan program."""
    print_bytes(ctypes.string_at(text, length))


_PRINT = bridgestan.model.c_print_callback(_print)


def hear(library: str | Path) -> None:
    """Have a library print by `_print`; it has one such function for all models that are opened in it.

    To be called before a model is opened, with `capture_stan_prints=False`: BridgeStan would set its own.
    """
    with contextlib.suppress(OSError, AttributeError):  # opening a model says what is wrong with the library
        ctypes.CDLL(str(library)).bs_set_print_callback(_PRINT, None)


def open_model(library: str | Path, data: str, seed: int) -> bridgestan.StanModel:
    """A model of a library, which prints by `_print`."""
    hear(library)
    return bridgestan.StanModel(library, data, seed=seed, warn=False, capture_stan_prints=False)


@contextlib.contextmanager
def without_notes() -> Iterator[list[str]]:
    """Collect the lines that stanli itself prints; lines of the Stan program go on to the log.

    No warning is passed on about another version of the C interface: stanli cannot be recompiled, and for a
    library the user was warned at its first opening.
    """
    notes: list[str] = []
    lines: list[str] = []
    try:
        with warnings.catch_warnings(), gather_prints() as lines:
            warnings.filterwarnings("ignore", "The version of the compiled model", RuntimeWarning)
            yield notes
    finally:
        for line in lines:
            if line.startswith("stanli: "):
                notes.append(line.removeprefix("stanli: ").strip())
            else:
                log_lines(line)


def strings_for_non_finite(text: str) -> str:
    """JSON whose bare NaN and Infinity are strings, which is the form that stanli's parser reads."""
    if "NaN" not in text and "Infinity" not in text:
        return text  # parsing takes seconds for a million numbers
    return json.dumps(json.loads(text, parse_constant=str))


def _library(model: bridgestan.StanModel, backend: str) -> str:
    version = ".".join(str(part) for part in model.model_version())
    if backend == "stanli":
        import stanli

        return f"stanli {stanli.__version__}"
    return f"bridgestan {version}"


_MANGLED = "_stan_"  # before names that are words of C++; a Stan name cannot begin like this


def _split(names: list[str]) -> list[str]:
    """BridgeStan's list of names; for a model without any it is one empty string."""
    return [demangle(name) for name in names if name]


def demangle(name: str) -> str:
    """A variable's name as the Stan program has it."""
    return name.removeprefix(_MANGLED)


@intrinsic
def _call_constrain(
    typing_context: Any, address: Any, model: Any, tp: Any, gq: Any, x: Any, out: Any, rng: Any
) -> Any:
    def generate(_: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word, flag = ir.IntType(64), ir.IntType(1)
        at, handle, with_tp, with_gq, point, values, generator = arguments
        shape = ir.FunctionType(ir.IntType(32), [word, flag, flag, word, word, word, word])
        function = builder.inttoptr(at, shape.as_pointer())
        flags = [builder.trunc(with_tp, flag), builder.trunc(with_gq, flag)]
        return builder.call(function, [handle, *flags, point, values, generator, word(0)])

    word = types.uintp
    return types.int32(word, word, types.boolean, types.boolean, word, word, word), generate


@intrinsic
def _call_unconstrain(typing_context: Any, address: Any, model: Any, values: Any, out: Any) -> Any:
    def generate(_: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = ir.IntType(64)
        at, handle, given, point = arguments
        function = builder.inttoptr(at, ir.FunctionType(ir.IntType(32), [word] * 4).as_pointer())
        return builder.call(function, [handle, given, point, word(0)])

    word = types.uintp
    return types.int32(word, word, word, word), generate


@kernel
def _unconstrain(address: Any, model: Any, values: Any, x: Any) -> None:
    """Write rows of constrained parameters (n, c) as rows of `x` (n, d); NaN where the model refuses one."""
    for i in range(len(x)):
        failed = _call_unconstrain(
            np.uint64(address),
            np.uint64(model),
            np.uint64(values[i].ctypes.data),
            np.uint64(x[i].ctypes.data),
        )
        if failed != 0:
            for j in range(x.shape[1]):
                x[i, j] = np.nan


@kernel
def _is_same(x: Any, i: Any) -> Any:
    """Whether row `i` of x (n, d) is the one before."""
    for j in range(x.shape[1]):
        if x[i, j] != x[i - 1, j]:
            return False
    return x.shape[1] > 0


@kernel
def _constrain(
    address: Any, model: Any, stream: Any, sizes: Any, x: Any, iterations: Any, values: Any, parts: Any
) -> None:
    """Constrain every row of `x` (n, d) into `values` (n, c).

    `parts` (n,) gets how many parts of a row there are: 3, or 2 without generated quantities, or 1 with
    parameters alone, or 0 for a row of NaN alone.

    Where generated quantities fail (they may reject), they are NaN and the parameters still come out; the
    same for transformed parameters. A point that is the one before, which is what a rejected proposal leaves,
    has the same values, unless generated quantities draw random numbers.
    """
    for i in range(len(x)):
        if i > 0 and sizes[2] == sizes[1] and _is_same(x, i):
            for j in range(values.shape[1]):
                values[i, j] = values[i - 1, j]
            parts[i] = parts[i - 1]
            continue
        for j in range(values.shape[1]):
            values[i, j] = np.nan
        begin(stream, iterations[i])
        for included in (2, 1, 0):
            failed = _call_constrain(
                np.uint64(address),
                np.uint64(model),
                included >= 1,
                included == 2,
                np.uint64(x[i].ctypes.data),
                np.uint64(values[i].ctypes.data),
                np.uint64(stream.handle),
            )
            if failed == 0:
                parts[i] = included + 1
                break
            for j in range(sizes[included - 1] if included > 0 else 0, values.shape[1]):
                values[i, j] = np.nan
