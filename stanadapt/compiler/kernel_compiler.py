"""numba's compiler as our kernels need it: fewer references are counted, and code goes to our `Library`.

numba has no types, so mypy cannot check classes that derive from numba's (`type: ignore`).
"""

from __future__ import annotations

import collections
from typing import Any

from numba import types
from numba.core import cgutils, compiler, ir
from numba.core.compiler_machinery import register_pass
from numba.core.lowering import Lower
from numba.core.typed_passes import NativeLowering

from .held_values import Arguments, HeldValue
from .kernel_library import Library

open_kernels: list[Any] = []  # each one is compiled because the one before calls it


class _Lower(Lower):  # type: ignore[misc]
    """numba's generator of machine code, for which arguments and their parts are `HeldValue`s.

    It counts no references to them. numba counts each array among the arguments, in a tuple or alone, when a
    function begins, and counts it back when the function has used it last. It counts it again when a part of
    a tuple gets a name. The caller holds all arguments until the function returns, so that all of this can be
    left out. A sampler's step has about ten arrays, and the state of a policy has thirty; counting them took
    a tenth of an iteration on a small model, and a tenth of the time to compile it.
    """

    def pre_lower(self) -> None:
        """See numba."""
        super().pre_lower()
        assigned = [line for block in self.blocks.values() for line in block.find_insts(ir.Assign)]
        times = collections.Counter(line.target.name for line in assigned)
        once = [line for line in assigned if times[line.target.name] == 1]  # others get further values
        self._held: dict[str, HeldValue] = {}  # the variables that name an argument, or a part of one
        for line in once:
            name, value = line.target.name, line.value
            if isinstance(value, ir.Arg) and self.typeof(name) == self.typeof(f"arg.{value.name}"):
                self._held[name] = self.fnargs.hold(value.index)
        n = -1
        while n < len(self._held):
            n = len(self._held)
            for line in once:
                name, part = line.target.name, self._part(line.target.name, line.value)
                if name not in self._held and part is not None and part[0] in self._held:
                    whole, place = self._held[part[0]], part[1]
                    self._held[name] = whole if place is None else self._hold_part(name, whole, place)

    def _hold_part(self, name: str, whole: HeldValue, place: int) -> HeldValue:
        return HeldValue(self.builder, self.context.data_model_manager[self.typeof(name)], whole.flat[place])

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

    def extract_function_arguments(self) -> Any:
        """See numba, which builds all arguments from their numbers at once."""
        numbers = self.call_conv.get_arguments(self.function)
        packer = self.call_conv._get_arg_packer(self.fndesc.argtypes)
        self.fnargs = Arguments(self.builder, packer, numbers)
        return self.fnargs

    def lower_assign(self, ty: Any, inst: Any) -> Any:
        """See numba: the value that a variable gets."""
        return self._held.get(inst.target.name) or super().lower_assign(ty, inst)

    def loadvar(self, name: str) -> Any:
        """See numba: the value of a variable."""
        return self._held.get(name) or super().loadvar(name)

    def storevar(self, value: Any, name: str, argidx: Any = None) -> None:
        """See numba: the value that the variable had is given up."""
        if name not in self._held:
            super().storevar(value, name, argidx)

    def delvar(self, name: str) -> None:
        """See numba: nothing uses the variable from here on."""
        if name not in self._held:
            super().delvar(name)

    def _alloca_var(self, name: str, fetype: Any) -> None:
        if name not in self._held:
            super()._alloca_var(name, fetype)

    def alloca_lltype(self, name: str, lltype: Any, datamodel: Any = None) -> Any:
        """See numba, which finds the size of each variable for debuggers."""
        if self.flags.debuginfo:
            return super().alloca_lltype(name, lltype, datamodel)
        return cgutils.alloca_once(self.builder, lltype, name=name, zfill=False)


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
