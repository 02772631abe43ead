"""Graphs of a PyMC model, compiled: by numba, to C functions that kernels call, or by PyTensor's C backend.

Compiled functions take the model's data as arguments. They are kept for the session by what the graphs are,
so that a model with other data, or one that is made again, is not compiled again. PyTensor keeps them on the
disk, so that the next session compiles little.
"""

from __future__ import annotations

import contextlib
import re
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pytensor
from numba import carray, types
from numba.core.errors import NumbaWarning
from pymc.pytensorf import compile as compile_graphs
from pytensor.compile.mode import Mode

from ....errors import ModelError
from .calls import GENERATOR, array_type, at_address, compile_text, pointer
from .philox import PhiloxStreams, begin
from .pymc_graphs import LOOK, REJECTIONS, GraphProgram, Graphs

_KEPT = 32  # models and sets of quantities that stay compiled
_OBJECT_MODE = "Numba will use object mode to run (?P<op>.*)'s perform method"
_Doubles = types.CPointer(types.float64)
_SHORT = types.int32(
    types.CPointer(types.uintp), types.boolean, types.boolean, _Doubles, _Doubles, types.uintp
)
_LONG = types.int32(
    types.CPointer(types.uintp), types.boolean, types.boolean, _Doubles, _Doubles, _Doubles, types.uintp
)

_LOCK = threading.RLock()
_KEEP: OrderedDict[Any, Any] = OrderedDict()

Arrays = list[np.ndarray]


Compiled = TypeVar("Compiled")


class Density(NamedTuple):
    """A log density, compiled, with its gradient where it has one."""

    make: Callable[[Arrays], Arrays]  # from the data to the arrays that the functions take
    callbacks: tuple[Any, ...]  # numba's C functions: of the density, and with the gradient; or none
    functions: tuple[Any, ...]  # the same for Python, of x and arrays, where numba could not compile them
    reason: str  # why it could not
    held: Any  # what must live as long as these do


class Rows(NamedTuple):
    """What writes values of draws."""

    n_generators: int
    write: Callable[[np.ndarray, np.ndarray, np.ndarray, Arrays, PhiloxStreams], None]
    held: Any


def is_ready(graphs: Graphs, quantities: Sequence[tuple[str, str]]) -> bool:
    """Whether all that a run calls is compiled in this session."""
    return (graphs.key, None) in _KEEP and (graphs.key, tuple(quantities)) in _KEEP


def density(graphs: Graphs) -> Density:
    """The log density and its gradient."""
    return _look_up((graphs.key, None), partial(_compile_density, graphs))


def rows(graphs: Graphs, quantities: Sequence[tuple[str, str]]) -> Rows:
    """What gives all values of draws, with the quantities asked for."""
    own = tuple(quantities)
    return _look_up((graphs.key, own), partial(_compile_rows, graphs, own))


def try_quantities(graphs: Graphs, quantities: Sequence[tuple[str, str]]) -> None:
    """Evaluate quantities once, before anything is compiled. Raises ModelError where that is not possible."""
    for quantity in quantities:
        program, generators = graphs.values_program([quantity])
        inputs = [*program.inputs, *(pytensor.In(each, mutable=True) for each in generators)]
        try:
            function = _function(graphs, inputs, program.outputs, LOOK)
            function(np.zeros(graphs.dim), *graphs.data, *PhiloxStreams(0, len(generators)).generators)
        except REJECTIONS:
            pass
        except Exception as error:  # such as of a distribution without a function for random numbers
            what = f"{quantity[0]} of {quantity[1]}"
            raise ModelError(f"model: {what} cannot be evaluated: {first_words(error)}") from error


def look(graphs: Graphs, program: GraphProgram) -> Callable[..., Any]:
    """A program for few calls: nothing is compiled."""
    return _function(graphs, program.inputs, program.outputs, LOOK)  # type: ignore[no-any-return]


def table(arrays: Arrays) -> np.ndarray:
    """Addresses and shapes of arrays, which the C functions get as their context; the arrays must live on."""
    words = [word for array in arrays for word in (array.ctypes.data, *array.shape)]
    return np.array([*words, 0], np.uint64)


def _look_up(key: Any, make: Callable[[], Compiled]) -> Compiled:
    """What is kept under a key; it is made where nothing is."""
    with _LOCK:
        if key not in _KEEP:
            _KEEP[key] = make()
            if len(_KEEP) > _KEPT:
                _KEEP.popitem(last=False)
        _KEEP.move_to_end(key)
        kept: Compiled = _KEEP[key]
        return kept


def _function(graphs: Graphs, inputs: Sequence[Any], outputs: Sequence[Any], mode: Any) -> Any:
    """A PyTensor function with PyMC's own rewrites; the model says whether parameters are checked."""
    with graphs.model:
        return compile_graphs(list(inputs), list(outputs), mode=mode, on_unused_input="ignore")


def _compile_density(graphs: Graphs) -> Density:
    program = graphs.density_program()
    make = partial(_make, None)
    if program.made:
        make = partial(_make, _function(graphs, program.given, program.made, LOOK))
    wanted = [program.outputs[:1], *[program.outputs] * (graphs.gradient is not None)]
    try:
        with _no_fallback():
            jitted = [_jit(graphs, program.inputs, outputs) for outputs in wanted]
            callbacks = tuple(
                _density_callback(each, graphs.dim, program.inputs[1:], k > 0)
                for k, each in enumerate(jitted)
            )
        return Density(make, callbacks, (), "", jitted)
    except Exception as error:  # ops without a numba form raise whatever they like, and so do numba and LLVM
        reason = first_words(error)
    functions = tuple(_function(graphs, program.inputs, outputs, _c_mode()) for outputs in wanted)
    return Density(make, (), functions, reason, functions)


def _make(made: Callable[..., Any] | None, data: Arrays) -> Arrays:
    more = [] if made is None else made(*data)
    return [*data, *(np.array(each, order="C") for each in more)]


def _compile_rows(graphs: Graphs, quantities: tuple[tuple[str, str], ...]) -> Rows:
    program, generators = graphs.values_program(quantities)
    n = len(generators)
    inputs = [*program.inputs, *(pytensor.In(each, mutable=True) for each in generators)]
    try:
        with _no_fallback():
            jitted = _jit(graphs, inputs, program.outputs)
            kernel = _rows_kernel(jitted, program.inputs[1:], n)
            nothing = np.empty((0, graphs.dim)), np.empty((0, 0)), np.empty(0, np.int64)
            _call(kernel, *nothing, graphs.data, PhiloxStreams(0, n))  # which compiles it
        return Rows(n, partial(_write, kernel), jitted)
    except Exception:  # as above
        function = _function(graphs, inputs, program.outputs, _c_mode())
        return Rows(n, partial(_write_slowly, function), function)


def _jit(graphs: Graphs, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
    """PyTensor's numba function of a graph, not compiled yet."""
    return _function(graphs, inputs, outputs, "NUMBA").vm.jit_fn


@contextlib.contextmanager
def _no_fallback() -> Iterator[None]:
    """Raise where PyTensor would have numba call Python; and pass over what numba says of PyTensor's code."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", _OBJECT_MODE, UserWarning)
        warnings.simplefilter("ignore", NumbaWarning)
        yield


def first_words(error: Exception) -> str:
    """The first sentence of an error; PyTensor's go on for pages."""
    if found := re.match(_OBJECT_MODE, str(error)):
        return f"{found['op']} has no numba form"
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return f"{first.partition('. ')[0][:200].rstrip('.')}"


def _c_mode() -> Mode:
    return Mode(linker="cvm" if pytensor.config.cxx else "vm", optimizer="fast_run")


def _density_callback(jitted: Any, dim: int, arrays: Sequence[Any], with_gradient: bool) -> Any:
    """BridgeStan's C function of a log density, whose context is a `table` of arrays."""
    given, place = ["carray(x, (dim,))"], 0
    for each in arrays:
        shape = "".join(f"context[{place + 1 + axis}], " for axis in range(each.type.ndim))
        given.append(f"carray(pointer(context[{place}]), ({shape}), dtype_{each.type.dtype})")
        place += 1 + each.type.ndim
    lines = [
        f"def call(context, propto, jacobian, x, value, {'score, ' * with_gradient}message):",
        f"    is_fine, found = compiled(({', '.join(given)},))",
        "    if not is_fine:",
        "        return -1",
        "    value[0] = found[0][()]",
        *["    gradient = found[1]", "    for i in range(dim):", "        score[i] = gradient[i]"]
        * with_gradient,
        "    return 0",
    ]
    compiled = at_address(jitted, [array_type("float64", 1), *map(_type, arrays)])
    held: dict[str, Any] = {"carray": carray, "pointer": pointer, "compiled": compiled, "dim": dim}
    held |= {f"dtype_{each.type.dtype}": np.dtype(each.type.dtype).type for each in arrays}
    return compile_text(lines, held, _LONG if with_gradient else _SHORT)


def _rows_kernel(jitted: Any, arrays: Sequence[Any], n_generators: int) -> Any:
    """A kernel that writes rows of values; one that fails is NaN."""
    given = [
        "x[i]",
        *(f"data[{k}]" for k in range(len(arrays))),
        *(f"rngs[{k}]" for k in range(n_generators)),
    ]
    lines = [
        "def call(x, values, iterations, data, rngs, addresses):",
        "    for i in range(len(x)):",
        "        begin(addresses, iterations[i])",
        f"        is_fine, found = compiled(({', '.join(given)},))",
        "        if is_fine:",
        "            values[i] = found[0]",
        "        else:",
        "            values[i] = nan",
    ]
    wanted = [array_type("float64", 1), *map(_type, arrays), *[GENERATOR] * n_generators]
    held = {"begin": begin, "compiled": at_address(jitted, wanted), "nan": np.nan}
    return compile_text(lines, held)


def _type(variable: Any) -> Any:
    return array_type(variable.type.dtype, variable.type.ndim)


def _call(
    kernel: Any,
    x: np.ndarray,
    values: np.ndarray,
    iterations: np.ndarray,
    data: Arrays,
    streams: PhiloxStreams,
) -> None:
    kernel(x, values, iterations, tuple(data), streams.generators, streams.addresses)


def _write(
    kernel: Any,
    x: np.ndarray,
    values: np.ndarray,
    iterations: np.ndarray,
    data: Arrays,
    streams: PhiloxStreams,
) -> None:
    if len(streams.addresses) == len(streams.generators):
        _call(kernel, x, values, iterations, data, streams)
        return
    for i, iteration in enumerate(iterations):
        streams.begin_slowly(int(iteration))
        _call(kernel, x[i : i + 1], values[i : i + 1], iterations[i : i + 1], data, streams)


def _write_slowly(
    function: Any,
    x: np.ndarray,
    values: np.ndarray,
    iterations: np.ndarray,
    data: Arrays,
    streams: PhiloxStreams,
) -> None:
    """The same in PyTensor's C backend, whose functions hold what they work on: one thread at a time."""
    with _LOCK:
        for i, iteration in enumerate(iterations):
            streams.begin_slowly(int(iteration))
            try:
                values[i] = function(x[i], *data, *streams.generators)[0]
            except REJECTIONS:
                values[i] = np.nan
