"""numba's own functions that kernels call, such as `np.empty`: kept on the disk like kernels.

numba compiles those that it writes in Python anew in every process, for each tuple of argument types, to copy
them into their callers. That was a tenth of the first run of a further method. Here they get files as copied
kernels have. numba also numbers the functions of a process to tell their symbols apart: two functions from
different processes might have the same name then, so each of them has a digest of what it is as its number.

numba has no types, so mypy cannot check classes that derive from numba's (`type: ignore`).
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numba.core.compiler import Compiler, Flags
from numba.core.dispatcher import Dispatcher
from numba.core.extending import _Intrinsic
from numba.core.typing.templates import _OverloadFunctionTemplate

from .kernel_files import KernelFiles, text_of_types

_NUMBA = Path(numba.__file__).parent
_PLAIN = (bool, int, float, complex, str, bytes, type(None), np.dtype)
# In these files are no sums or products of real numbers, which the options of sums would change.
_WITHOUT_SUMS = ("np/arrayobj.py ", "cpython/builtins.py ", "np/random/generator_core.py ")
_get_decorator = _OverloadFunctionTemplate._get_jit_decorator


def jit_with_files(template: Any) -> Callable[..., Any]:
    """What numba compiles its functions with, here with files for their machine code."""
    decorator = _get_decorator(template)

    def jit(**options: Any) -> Callable[[Any], Any]:
        decorate = decorator(**options)

        def compile_with_files(function: Any) -> Any:
            made = decorate(function)
            about = _text_of_function(function)
            if about is not None and made._compiler.pipeline_class is Compiler:
                made._cache = _InternalFiles(made, about)
                made._compiler.pipeline_class = _InternalCompiler
            return made

        return compile_with_files

    return jit


class _InternalFiles(KernelFiles):
    def __init__(self, compiled: Any, about: str) -> None:
        super().__init__(compiled.py_func, shared=False)
        self._compiled, self._about = compiled, about

    def save_overload(self, sig: Any, data: Any) -> None:
        """See numba. A few of its functions have constants that cannot be kept; callers hold copies."""
        with contextlib.suppress(Exception):
            self._write(sig, data)

    def _name(self, sig: Any, codegen: Any) -> str:
        kinds, _ = numba.core.sigutils.normalize_signature(sig)
        options = Flags()
        self._compiled.targetdescr.options.parse_as_flags(options, self._compiled.targetoptions)
        digest = _digest(self._about, kinds, options)
        found = hashlib.sha256(f"{digest} {codegen.magic_tuple()}".encode())
        return f"numba.{self._function.__name__}-{found.hexdigest()[:32]}.code"


class _InternalCompiler(Compiler):  # type: ignore[misc]
    """numba's compiler, which gives a function a number that is the same in all processes."""

    def _compile_bytecode(self) -> Any:
        identity, about = self.state.func_id, _text_of_function(self.state.func_id.func)
        number = int(_digest(about or "", self.state.args, self.state.flags)[:15], 16)
        identity.unique_id, identity.unique_name = number, f"{identity.func_qualname}${number}"
        return super()._compile_bytecode()


def _digest(about: str, kinds: Any, options: Any) -> str:
    """A digest of all that the machine code of a function depends on, beside versions and processors."""
    given = {name: getattr(options, name) for name in sorted(options.options) if options.is_set(name)}
    if about.startswith(_WITHOUT_SUMS):
        given.pop("fastmath", None)
    # The options of sums are a set, whose order differs from process to process.
    options = {name: sorted(getattr(value, "flags", [str(value)])) for name, value in given.items()}
    return hashlib.sha256(f"{about}\n{text_of_types(kinds)}\n{options}".encode()).hexdigest()


def _text_of_function(function: Any) -> str | None:
    """A text that tells one of numba's functions from all others; None for what has no such text."""
    try:
        return "\n".join(_texts(function))
    except TypeError:
        return None


def _texts(value: Any) -> Iterator[str]:
    """Texts that tell what machine code is made of, and are the same in all processes.

    Raises
    ------
    TypeError
        There are none for this value.
    """
    if isinstance(value, Dispatcher):
        value = value.py_func
    if isinstance(value, _Intrinsic):
        value = value._defn
    if isinstance(value, numba.types.Type):
        yield text_of_types((value,))
    elif isinstance(value, _PLAIN):
        yield f"{type(value).__name__} {value!r}"
    elif isinstance(value, tuple | list):
        yield f"{type(value).__name__} {len(value)}"
        for part in value:
            yield from _texts(part)
    elif isinstance(value, types.FunctionType):
        yield from _texts_of_code(value.__code__)
        yield value.__qualname__
        for cell in value.__closure__ or ():
            yield from _texts(cell.cell_contents)
        for default in value.__defaults__ or ():
            yield from _texts(default)
    elif isinstance(value, type | types.BuiltinFunctionType | np.ufunc):
        yield f"{getattr(value, '__module__', None)} {getattr(value, '__qualname__', value.__name__)}"
    else:
        raise TypeError(f"no text for {type(value)}")


def _texts_of_code(code: types.CodeType) -> Iterator[str]:
    yield f"{_place(code.co_filename)} {code.co_firstlineno}"
    yield hashlib.sha256(code.co_code).hexdigest()


@functools.cache
def _place(file: str) -> str:
    """The place of one of numba's files.

    Raises
    ------
    TypeError
        The file is not one of numba's, whose version names the folder.
    """
    path = Path(file)
    if not path.is_relative_to(_NUMBA):
        raise TypeError(f"{file} is no file of numba")
    return path.relative_to(_NUMBA).as_posix()
