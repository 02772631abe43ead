"""numba's compiler without the work that our kernels do not need, which is a third of its time.

`lean` replaces some of numba's functions while this process compiles a kernel, and puts them back after it.
The machine code is the same, for a level of processors. What is left out:

- machine code of functions that are only copied into others, as all of numba's own are
- function passes over declarations, which have no body that a pass could change
- wrappers for C, which nothing calls
- timers and events that nobody listens to: numba announces each of the 100,000 calls of LLVM of a first run
- checks of numba's own passes, and descriptions of all types for listeners
- comparisons of all twenty flags of two compilations where few are set, and a test of the locale for each
  function
- the lifetimes of variables after every pass: numba computes them again before it generates code
- garbage collections

numba's lock for compilers is held meanwhile, so that no other thread compiles with these functions. numba has
no types, so mypy cannot check a class that derives from one of numba's (`type: ignore`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from numba.core import event
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import PassManager, _pass_registry
from numba.core.lowering import Lower
from numba.core.targetconfig import TargetConfig
from numba.core.transforms import canonicalize_cfg
from numba.core.typing.templates import _OverloadFunctionTemplate

from ..garbage import paused_collector
from .internal_functions import jit_with_files
from .level_codegen import check_locale, level_codegen


@contextlib.contextmanager
def lean(context: Any) -> Iterator[None]:
    """A context in which this thread compiles kernels, to the machine code of `level_codegen`.

    `context` is numba's target context, which all functions of a process share. What numba keeps of its own
    functions, which are copied into ours, is kept apart: the user's code gets none that was made for kernels.
    """
    with global_compiler_lock:
        ours = level_codegen()
        if context._internal_codegen is ours:
            yield
            return
        check_locale(ours)
        changes: tuple[tuple[Any, str, Any], ...] = (
            (context, "_internal_codegen", ours),
            (context, "cached_internal_func", _internal_functions),
            (TargetConfig, "__eq__", _same_flags),
            (TargetConfig, "__hash__", _hash_flags),
            (PassManager, "_runPass", _run_pass),
            (Lower, "create_cfunc_wrapper", lambda _: None),
            (_OverloadFunctionTemplate, "_get_jit_decorator", jit_with_files),
            (event, "install_timer", lambda *_: contextlib.nullcontext()),
            (event, "start_event", _start_event),
            (event, "end_event", _end_event),
        )
        before = [getattr(owner, name) for owner, name, _ in changes]
        try:
            for owner, name, new in changes:
                setattr(owner, name, new)
            with paused_collector():
                yield
        finally:
            for (owner, name, _), old in zip(changes, before, strict=True):
                setattr(owner, name, old)


_internal_functions: dict[Any, Any] = {}  # numba's own functions, as compiled for kernels

_same_values, _hash_of_names = TargetConfig.__eq__, TargetConfig.__hash__
_hashes: dict[type, int] = {}


def _same_flags(flags: Any, other: Any) -> Any:
    """Whether two compilations have the same flags. numba asks this ten thousand times in a first run."""
    if type(flags) is type(other) and flags._values == other._values:
        return True
    return _same_values(flags, other)


def _hash_flags(flags: Any) -> int:
    """numba's hash of flags, which is that of their names and so the same for all."""
    kind = type(flags)
    if kind not in _hashes:
        _hashes[kind] = _hash_of_names(flags)
    return _hashes[kind]


def _run_pass(manager: Any, index: int, one: Any, state: Any) -> None:
    """Run a pass of numba's compiler, and restore the form of the function after it."""
    one.analysis = manager._analysis
    changed = [run(state) for run in (one.run_initialization, one.run_pass, one.run_finalizer)]
    if any(changed) or _pass_registry.get(one.__class__).mutates_CFG:
        state.func_ir.blocks = canonicalize_cfg(state.func_ir.blocks)


_start, _end = event.start_event, event.end_event


def _start_event(kind: str, data: Any = None) -> None:
    if event._registered.get(kind):
        _start(kind, data)


def _end_event(kind: str, data: Any = None, exc_details: Any = None) -> None:
    if event._registered.get(kind):
        _end(kind, data, exc_details)
