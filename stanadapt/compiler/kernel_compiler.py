"""numba's compiler as our kernels need it: fewer references are counted, and code goes to our `Library`.

numba has no types, so mypy cannot check classes that derive from numba's (`type: ignore`).
"""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Iterator
from typing import Any

from numba import types
from numba.core import cgutils, compiler, ir
from numba.core.compiler_machinery import register_pass
from numba.core.lowering import Lower
from numba.core.typed_passes import NativeLowering

from .kernel_library import Library

open_kernels: list[Any] = []  # each one is compiled because the one before calls it


class _Lower(Lower):  # type: ignore[misc]
    """numba's generator of machine code, which here counts no references to arguments.

    numba counts each array among the arguments, in a tuple or alone, when a function begins, and counts it
    back when the function has used it last. It counts it again when a part of a tuple gets a name. The caller
    holds all arguments until the function returns, so that all of this can be left out. A sampler's step has
    about ten arrays, and the state of a policy has thirty; counting them took a tenth of an iteration on a
    small model, and a tenth of the time to compile it.
    """

    def pre_lower(self) -> None:
        """See numba."""
        super().pre_lower()
        assigned = [line for block in self.blocks.values() for line in block.find_insts(ir.Assign)]
        times = collections.Counter(line.target.name for line in assigned)
        once = [line for line in assigned if times[line.target.name] == 1]  # others get further values
        self._held = {line.target.name for line in once if isinstance(line.value, ir.Arg)}
        self._parts: dict[str, tuple[str, int | None]] = {}  # held by what, and at which place of a tuple
        n = -1
        while n < len(self._held):
            n = len(self._held)
            for line in once:
                part = self._part(line.target.name, line.value)
                if part is not None and part[0] in self._held:
                    self._held.add(line.target.name)
                    self._parts[line.target.name] = part
        self._counts = True

    def _part(self, name: str, value: Any) -> tuple[str, int | None] | None:
        """The variable whose value, or a part of it, `name` is another name for; and which part."""
        if isinstance(value, ir.Var):
            return (value.name, None) if self.typeof(value.name) == self.typeof(name) else None
        if not isinstance(value, ir.Expr) or value.op not in ("exhaust_iter", "static_getitem", "getattr"):
            return None
        whole = self.typeof(value.value.name)
        if not isinstance(whole, types.BaseTuple):
            return None
        place: int | None = None
        if value.op == "static_getitem":
            if not isinstance(value.index, int) or not 0 <= value.index < len(whole):
                return None
            place = value.index
        elif value.op == "getattr":
            if not isinstance(whole, types.BaseNamedTuple) or value.attr not in whole.fields:
                return None
            place = whole.fields.index(value.attr)
        kind = whole if place is None else whole[place]
        return (value.value.name, place) if kind == self.typeof(name) else None

    def lower_assign(self, ty: Any, inst: Any) -> Any:
        """See numba."""
        if inst.target.name in self._parts:
            whole, place = self._parts[inst.target.name]
            value = self.loadvar(whole)
            return value if place is None else self.builder.extract_value(value, place)
        with self._counting(inst.target.name):
            return super().lower_assign(ty, inst)

    def storevar(self, value: Any, name: str, argidx: Any = None) -> None:
        """See numba: the value that the variable had is given up."""
        with self._counting(name):
            super().storevar(value, name, argidx)

    def delvar(self, name: str) -> None:
        """See numba: nothing uses the variable from here on."""
        with self._counting(name):
            super().delvar(name)

    def alloca_lltype(self, name: str, lltype: Any, datamodel: Any = None) -> Any:
        """See numba, which finds the size of each variable for debuggers."""
        if self.flags.debuginfo:
            return super().alloca_lltype(name, lltype, datamodel)
        return cgutils.alloca_once(self.builder, lltype, name=name, zfill=False)

    @contextlib.contextmanager
    def _counting(self, name: str) -> Iterator[None]:
        """Count references to the value of the variable `name`, unless the caller holds it."""
        self._counts = name not in self._held
        yield
        self._counts = True

    def incref(self, typ: Any, val: Any) -> None:
        """See numba."""
        if self._counts:
            super().incref(typ, val)

    def decref(self, typ: Any, val: Any) -> None:
        """See numba."""
        if self._counts:
            super().decref(typ, val)


@register_pass(mutates_CFG=True, analysis_only=False)
class _Lowering(NativeLowering):  # type: ignore[misc]
    _name = "stanadapt_lowering"

    @property
    def lowering_class(self) -> type[_Lower]:
        return _Lower

    def run_pass(self, state: Any) -> bool:
        """See numba."""
        _make_library(state, open_kernels[-1].copied, False)
        state.library.is_seldom = open_kernels[-1].seldom
        return bool(super().run_pass(state))


def _make_library(state: Any, is_copied: bool, is_wrapper: bool) -> None:
    """Make what the machine code of a function goes to."""
    state.library = Library(state.targetctx.codegen(), state.func_id.func_qualname)
    state.library.is_copied, state.library.is_wrapper = is_copied, is_wrapper
    state.library.enable_object_caching()


@register_pass(mutates_CFG=True, analysis_only=False)
class _EntryLowering(NativeLowering):  # type: ignore[misc]
    _name = "stanadapt_entry_lowering"

    def run_pass(self, state: Any) -> bool:
        """See numba."""
        _make_library(state, False, True)
        return bool(super().run_pass(state))


class KernelCompiler(compiler.CompilerBase):  # type: ignore[misc]
    """numba's compiler with our `_Lower`."""

    lowering: type[NativeLowering] = _Lowering

    def define_pipelines(self) -> list[Any]:
        """See numba."""
        passes = compiler.DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.passes = [(self.lowering if one is NativeLowering else one, why) for one, why in passes.passes]
        passes.finalize()
        return [passes]


class EntryCompiler(KernelCompiler):
    """The compiler of what Python calls, which counts references to arguments."""

    lowering = _EntryLowering
