"""The loop that all samplers share: a block of iterations of a `step`, compiled and cached on disk."""

from __future__ import annotations

import types
from typing import Any

from ..jit import kernel
from ..trace import record


def swept(step: Any) -> Any:
    """The kernel `sweep(target, settings, state, rng, adapting, trace)` of a sampler's `step`.

    It runs one iteration for every row of `trace` and returns the state after the last.

    A loop that takes `step` as an argument, or closes over it, would miss numba's cache in every process,
    which costs three seconds each time. So `swept` makes a new function from the code of `_sweep`. That
    function belongs to the sampler's own file, and `step` is one of its globals.
    """
    own = step.py_func
    code = _sweep.__code__.replace(
        co_filename=own.__code__.co_filename, co_firstlineno=own.__code__.co_firstlineno, co_name="sweep"
    )
    sweep = types.FunctionType(code, {"step": step, "record": record, "__name__": own.__module__}, "sweep")
    sweep.__module__, sweep.__qualname__, sweep.__doc__ = own.__module__, "sweep", _sweep.__doc__
    return kernel(sweep)


def _sweep(target: Any, settings: Any, state: Any, rng: Any, adapting: Any, trace: Any) -> Any:
    """Run one iteration for every row of `trace`."""
    for i in range(trace.logp.size):
        state, info = step(target, settings, state, rng, adapting)  # type: ignore[name-defined] # noqa: F821
        record(trace, i, state.x, state.logp, info)
    return state
