"""Kernels that call a kernel of a sampler: the loop that all samplers share, and steps that some share.

A kernel that takes another one as an argument, or closes over it, would miss numba's cache in every process,
which costs three seconds each time. So `kernel_from` makes a new function from the code of a template. That
function belongs to the sampler's own file, and the other kernel is one of its globals.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from ..jit import kernel
from ..trace import record


def kernel_from(template: Callable[..., Any], name: str, owner: Any, **names: Any) -> Any:
    """The kernel `name` with the code of `template`, compiled and cached as a part of the file of `owner`.

    `owner` is a kernel of that file. `names` are globals which the template uses and does not define.
    """
    own = owner.py_func
    code = template.__code__.replace(
        co_filename=own.__code__.co_filename, co_firstlineno=own.__code__.co_firstlineno, co_name=name
    )
    made = types.FunctionType(code, {**template.__globals__, **names, "__name__": own.__module__}, name)
    made.__module__, made.__qualname__, made.__doc__ = own.__module__, name, template.__doc__
    return kernel(made)


def swept(step: Any) -> Any:
    """The kernel `sweep(target, settings, state, rng, adapting, trace)` of a sampler's `step`.

    It runs one iteration for every row of `trace` and returns the state after the last. The step is copied
    into it: nothing else calls the step, and to hand over all arguments takes time in every iteration.
    """
    step.copied = True
    return kernel_from(_sweep, "sweep", step, step=step)


def _sweep(target: Any, settings: Any, state: Any, rng: Any, adapting: Any, trace: Any) -> Any:
    """Run one iteration for every row of `trace`."""
    for i in range(trace.logp.size):
        state, info = step(target, settings, state, rng, adapting)  # type: ignore[name-defined] # noqa: F821
        record(trace, i, state.x, state.logp, info)
    return state
