"""numba's compiler without the work that our kernels do not need, which is more than a third of its time.

`lean` replaces some of numba's functions while this process compiles a kernel, and puts them back after it.
The machine code does the same, for a level of processors. What is left out:

- machine code of functions that are only copied into others, as all of numba's own are
- values of arguments that no instruction needs (held_values.py)
- loops unrolled and made into vectors in code that is only copied, which those that get copies do again
- function passes over declarations, which have no body that a pass could change
- wrappers for C, which nothing calls
- timers and events that nobody listens to: numba announces each of the 100,000 calls of LLVM of a first run
- checks of numba's own passes, and descriptions of all types for listeners
- comparisons of all twenty flags of two compilations where few are set, and a test of the locale for each
  function
- a look for variables in parts of instructions that are of a kind without any
- the lifetimes of variables after every pass: numba computes them again before it generates code
- a look at all that extensions may have registered, for each function, where there is nothing new
- types of sums and comparisons of numbers, and sizes of types, that were found before
- parts of tuples that hold no array, where arrays are counted
- garbage collections

numba's lock for compilers is held meanwhile, so that no other thread compiles with these functions. numba has
no types, so mypy cannot check a class that derives from one of numba's (`type: ignore`).
"""

from __future__ import annotations

import contextlib
import operator
import sys
from collections.abc import Iterator
from typing import Any

from numba.core import event, ir, types
from numba.core.base import BaseContext
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import PassManager, _pass_registry
from numba.core.datamodel.packer import ArgPacker
from numba.core.lowering import Lower
from numba.core.postproc import PostProcessor, VariableLifetime
from numba.core.runtime.context import NRTContext
from numba.core.targetconfig import TargetConfig
from numba.core.transforms import canonicalize_cfg
from numba.core.types.functions import BaseFunction
from numba.core.typing.context import BaseContext as TypingContext
from numba.core.typing.templates import _OverloadFunctionTemplate

from ..garbage import paused_collector
from .held_values import flatten
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
            (PostProcessor, "run", _process),
            (ir.Inst, "_rec_list_vars", _list_variables),
            (BaseContext, "refresh", _refresh),
            (TypingContext, "refresh", _refresh_types),
            (BaseFunction, "get_call_type", _type_of_call),
            (BaseContext, "get_abi_sizeof", _size_of),
            (BaseContext, "get_abi_alignment", _alignment_of),
            (NRTContext, "get_meminfos", _counts_in),
            (ArgPacker, "as_arguments", flatten),
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
    if type(flags) is not type(other):
        return _same_values(flags, other)
    one, two, options = flags._values, other._values, flags.options
    if one == two:
        return True
    names = one.keys() | two.keys()  # those that neither has set have their defaults in both
    return all(one.get(k, options[k].default) == two.get(k, options[k].default) for k in names)


_every_variable = ir.Inst._rec_list_vars
_without_variables: set[type] = set()


def _list_variables(instruction: Any, value: Any) -> Any:
    """The variables in a part of an instruction. Of 300,000 parts in a first run most have none."""
    kind = type(value)
    if kind is ir.Var:
        return [value]
    if kind in _without_variables:
        return []
    if not isinstance(value, list | tuple | dict | ir.Var | ir.Inst):
        _without_variables.add(kind)
        return []
    return _every_variable(instruction, value)


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


_process_generator = PostProcessor.run


def _process(processor: Any, emit_dels: bool = False, extend_lifetimes: bool = False) -> None:
    """Restore the form of a function after a pass; what is alive where is computed when it is asked for."""
    function = processor.func_ir
    if function.is_generator:
        _process_generator(processor, emit_dels, extend_lifetimes)
        return
    function.blocks = canonicalize_cfg(function.blocks)
    function.variable_lifetime, function.generator_info = VariableLifetime(function.blocks), None
    if emit_dels:
        processor._insert_var_dels(extend_lifetimes=extend_lifetimes)


_refresh_all, _refresh_all_types = BaseContext.refresh, TypingContext.refresh
_seen: dict[Any, Any] = {}  # context -> what it had when it was refreshed last


def _refresh(context: Any) -> None:
    if _is_new(context):
        _refresh_all(context)
        _is_new(context)
    context.typing_context.refresh()


def _refresh_types(context: Any) -> None:
    if _is_new(context):
        _refresh_all_types(context)
        _is_new(context)


def _is_new(context: Any) -> bool:
    """Whether something was registered, or a module imported, since the last call."""
    registered = [
        len(getattr(registry, kind))
        for registry, loader in context._registries.items()
        for kind in loader.registry_items
    ]
    now = len(sys.modules), registered
    before, _seen[context] = _seen.get(context), now
    return before != now


_get_call_type = BaseFunction.get_call_type
_OPERATORS = frozenset(each for each in vars(operator).values() if callable(each))
_calls: dict[Any, Any] = {}  # operators with types of numbers -> signature


def _type_of_call(function: Any, context: Any, args: Any, kws: Any) -> Any:
    """The signature of a call. numba tries all ways that there are to add two numbers, for each sum."""
    operation = function.typing_key
    is_plain = isinstance(args, tuple) and all(
        isinstance(kind, types.Number | types.Boolean) for kind in args
    )
    if kws or not is_plain or operation not in _OPERATORS:
        return _get_call_type(function, context, args, kws)
    place = id(function), context, args
    known = _calls.get(place)
    if known is None:
        found = _get_call_type(function, context, args, kws)
        if found is None or function._impl_keys[found.args] is not operation:  # compiled for these flags
            return found
        known = _calls[place] = function, found  # which keeps the function, and so its place, alive
    return known[1]


_get_size, _get_alignment = BaseContext.get_abi_sizeof, BaseContext.get_abi_alignment
_sizes: dict[Any, int] = {}


def _size_of(context: Any, kind: Any) -> int:
    """The size of a type, for which numba has LLVM read a module that holds nothing else."""
    place = "size", str(kind)
    if place not in _sizes:
        _sizes[place] = _get_size(context, kind)
    return _sizes[place]


def _alignment_of(context: Any, kind: Any) -> int:
    place = "alignment", str(kind)
    if place not in _sizes:
        _sizes[place] = _get_alignment(context, kind)
    return _sizes[place]


_parts: dict[Any, bool] = {}  # type -> whether values of it hold counts


def _counts_in(runtime: Any, builder: Any, kind: Any, value: Any) -> list[tuple[Any, Any]]:
    """The counts of references in a value, with their types."""
    manager = runtime._context.data_model_manager
    model = manager[kind]
    if kind not in _parts:
        _parts[kind] = model.contains_nrt_meminfo()
    if not _parts[kind]:
        return []
    found = [(kind, model.get_nrt_meminfo(builder, value))] if model.has_nrt_meminfo() else []
    for member, get in model.traverse(builder):
        if member not in _parts:
            _parts[member] = manager[member].contains_nrt_meminfo()
        if _parts[member]:
            found += _counts_in(runtime, builder, member, get(value))
    return found


_start, _end = event.start_event, event.end_event


def _start_event(kind: str, data: Any = None) -> None:
    if event._registered.get(kind):
        _start(kind, data)


def _end_event(kind: str, data: Any = None, exc_details: Any = None) -> None:
    if event._registered.get(kind):
        _end(kind, data, exc_details)
