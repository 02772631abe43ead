"""What the machine code of a kernel goes to.

numba has no types, so mypy cannot check a class that derives from one of numba's (`type: ignore`).
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
from numba.core import config
from numba.core.codegen import JITCodeLibrary


class Library(JITCodeLibrary):  # type: ignore[misc]
    """A compiled function with what is copied into it: as machine code, or only to be copied into others."""

    is_copied = True  # whether it has no machine code of its own
    is_wrapper = False  # whether it only calls another one: then little is gained by optimising it
    is_seldom = False  # whether it runs seldom: then vectorised loops gain little

    def _optimize_final_module(self) -> None:
        if self.is_wrapper:
            self._run_passes(loop_vectorize=False, slp_vectorize=False, opt=0, cost="cheap")
        elif self.is_seldom:
            self._run_passes(loop_vectorize=False, slp_vectorize=False, opt=1)
        elif self.is_copied:
            self._keep_loops()
        else:
            super()._optimize_final_module()

    def _keep_loops(self) -> None:
        """Run all passes but those that unroll loops and make vectors of them.

        They would make the code five times as long, and each kernel that gets a copy runs them again.
        """
        options = llvm.create_pipeline_tuning_options(speed_level=int(config.OPT))
        options.loop_vectorization = options.slp_vectorization = False
        options.loop_unrolling = options.loop_interleaving = False
        builder = llvm.create_pass_builder(self._codegen._tm, options)
        builder.getModulePassManager().run(self._final_module, builder)

    def _run_passes(self, **options: Any) -> None:
        passes, builder = self._codegen._module_pass_manager(**options)
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
        if self.is_seldom:
            return  # the passes over the whole module follow at once
        for function in ll_module.functions:
            if not function.is_declaration:
                passes, builder = self._codegen._function_pass_manager()
                passes.run(function, builder)
