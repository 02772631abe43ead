"""The generator of machine code of our kernels: for a level of processors, where there is one.

numba compiles for exactly the type of processor that the process runs on, whose name LLVM knows. Machine
code of one type does not always run on another, and sums and products are fused and reordered otherwise, so
that draws differ in their last digits. The levels of x86-64 name what instructions are there: x86-64-v3 has
AVX2 and fused products (since about 2013), x86-64-v4 has AVX-512. Draws are as fast as with code for the
exact type. So kernels are compiled for the highest level that the processor has: one cache serves all
processors of a level, a release can bring machine code with it, and kernels round alike on all of them.

The levels are those of the x86-64 psABI (https://gitlab.com/x86-psABIs/x86-64-ABI). NUMBA_CPU_NAME and
NUMBA_CPU_FEATURES name another target, as for numba.

numba has no types, so mypy cannot check a class that derives from one of numba's (`type: ignore`).
"""

from __future__ import annotations

import functools
from typing import Any

import llvmlite.binding as llvm
from numba.core import codegen, config

from .kernel_library import Library

_LEVELS = {  # the highest first, with what LLVM must find beside what all x86-64 processors have
    "x86-64-v4": ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"),
    "x86-64-v3": ("avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave"),
}


def processor() -> str:
    """The type of the processor that this process runs on; the last bits of draws may depend on it."""
    return str(llvm.get_host_cpu_name())


def processor_levels() -> list[str]:
    """The levels of x86-64 that this processor has, the highest first; none on other processors."""
    try:
        features = llvm.get_host_cpu_features()
    except RuntimeError:  # LLVM does not know the processor
        return []
    missing = [name for name, needs in _LEVELS.items() if not all(features.get(need) for need in needs)]
    if "x86-64-v3" in missing or not config.ENABLE_AVX:
        return []
    return [name for name in _LEVELS if name not in missing]


def processor_level() -> str | None:
    """The highest level of x86-64 that this processor has; None below x86-64-v3, and on other processors."""
    return next(iter(processor_levels()), None)


class LevelCodegen(codegen.JITCPUCodegen):  # type: ignore[misc]
    """numba's generator of machine code, for a level of processors, and with our own `Library`."""

    _library_class = Library
    _name: str | None = None  # of the processors; LLVM takes its time to find what this one has

    def _get_host_cpu_name(self) -> str:
        if self._name is None:
            self._name = str(config.CPU_NAME or processor_level() or super()._get_host_cpu_name())
        return self._name

    def _get_host_cpu_features(self) -> str:
        if config.CPU_FEATURES is None and self._get_host_cpu_name() in _LEVELS:
            return ""  # the name says it
        return str(super()._get_host_cpu_features())

    def _check_llvm_bugs(self) -> None:
        """numba asks this for each function; once for each kernel will do (`check_locale`)."""

    def set_env(self, env_name: str, env: Any) -> None:
        """Tell machine code where its constants are, if there is any."""
        if self._engine.is_symbol_defined(env_name):
            super().set_env(env_name, env)


@functools.cache
def level_codegen() -> LevelCodegen:
    """The generator of all our kernels in this process."""
    return LevelCodegen("stanadapt")


def check_locale(made: LevelCodegen) -> None:
    """In some locales LLVM reads numbers wrongly; then this is an error, as in numba."""
    codegen.JITCPUCodegen._check_llvm_bugs(made)


def target_processor() -> str:
    """The processors that kernels are compiled for: a level, or a type."""
    return level_codegen()._get_host_cpu_name()
