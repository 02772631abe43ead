"""numba's compiler without the work that our kernels do not need, which is a third of its time.

`lean` replaces some of numba's functions while this process compiles a kernel, and puts them back after it.
The machine code is the same. What is left out:

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

import llvmlite.binding as llvm
from numba.core import event
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import PassManager, _pass_registry
from numba.core.lowering import Lower
from numba.core.targetconfig import TargetConfig
from numba.core.transforms import canonicalize_cfg

from ..garbage import paused_collector


@contextlib.contextmanager
def lean(codegen: Any) -> Iterator[None]:
    """A context in which this thread compiles kernels to the machine code of `codegen`."""
    with global_compiler_lock:
        if codegen._library_class is Library:
            yield
            return
        codegen._check_llvm_bugs()
        changes: tuple[tuple[Any, str, Any], ...] = (
            (codegen, "_library_class", Library),
            (codegen, "_check_llvm_bugs", lambda: None),
            (TargetConfig, "__eq__", _same_flags),
            (TargetConfig, "__hash__", _hash_flags),
            (codegen, "set_env", lambda *arguments: _set_environment(codegen, *arguments)),
            (PassManager, "_runPass", _run_pass),
            (Lower, "create_cfunc_wrapper", lambda _: None),
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


class Library(JITCodeLibrary):  # type: ignore[misc]
    """A compiled function with what is copied into it: as machine code, or only to be copied into others."""

    is_copied = True  # whether it has no machine code of its own
    is_wrapper = False  # whether it only calls another one: then little is gained by optimising it

    def _optimize_final_module(self) -> None:
        if not self.is_wrapper:
            super()._optimize_final_module()
            return
        passes, builder = self._codegen._module_pass_manager(
            loop_vectorize=False, slp_vectorize=False, opt=0, cost="cheap"
        )
        passes.run(self._final_module, builder)

    def _finalize_final_module(self) -> None:
        if not self.is_copied:
            super()._finalize_final_module()
            return
        self._finalize_dynamic_globals()
        self._finalized = True

    def serialize_using_object_code(self) -> tuple[str, str, Any]:
        """What is stored: numba would store both the machine code and what it was made from."""
        if self.is_copied:
            return self.name, "copied", self._get_module_for_linking().as_bitcode()
        defined = [
            one.name
            for kind in (self._final_module.functions, self._final_module.global_variables)
            for one in kind
            if not one.is_declaration
        ]
        return self.name, "code", (self._get_compiled_object(), defined)

    @classmethod
    def _unserialize(cls, codegen: Any, state: tuple[str, str, Any]) -> Any:
        name, kind, data = state
        self = cls(codegen, name)
        self.is_copied = kind == "copied"
        if self.is_copied:
            self._final_module = self._shared_module = llvm.parse_bitcode(data)
            self._finalized = True
            return self
        code, defined = data
        self.enable_object_caching()
        self._set_compiled_object(code)
        self._finalize_final_module()
        codegen._engine._defined_symbols.update(defined)
        return self

    def _optimize_functions(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout
        for function in ll_module.functions:
            if not function.is_declaration:
                passes, builder = self._codegen._function_pass_manager()
                passes.run(function, builder)


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


def _set_environment(codegen: Any, name: str, environment: Any) -> None:
    """Tell machine code where its constants are, if there is any."""
    if codegen._engine.is_symbol_defined(name):
        type(codegen).set_env(codegen, name, environment)


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
