"""The files of machine code: how a process finds what another one has compiled, and waits for it.

A file holds a function's machine code for one tuple of argument types. It names the kernels that it calls by
symbols, whose addresses differ from process to process. So these kernels are loaded first.

numba has no types, so mypy cannot check a class that derives from one of numba's (`type: ignore`).
"""

from __future__ import annotations

import functools
import hashlib
import pickle
import re
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numba
from llvmlite import binding as llvm
from numba.core import caching, compiler
from numba.core.runtime import rtsys
from numba.core.serialize import dumps

from .. import cache
from ..errors import StanAdaptWarning
from .kernel_folder import PACKAGE, cache_folder, shipped_folder, write_whole

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

CODE = "code"  # the folder of machine code in the folder of a version
_LONGEST_WAIT, _PAUSE = 60.0, 0.02  # seconds, for a kernel that another process compiles


class Called(NamedTuple):
    """A kernel for one tuple of argument types, by which a process finds the machine code of a symbol."""

    place: tuple[str, int, str]
    types: tuple[Any, ...]


kernels: dict[tuple[str, int, str], Any] = {}  # by their places
symbols: dict[str, Called] = {}


def place_of(function: Callable[..., Any]) -> tuple[str, int, str]:
    """Where a function stands, its file, line and name: two modules of one name may be loaded in turn."""
    return _origin(function.__code__.co_filename)[0], function.__code__.co_firstlineno, function.__qualname__


def text_of_types(kinds: Iterable[Any]) -> str:
    """A text that tells types of arguments apart, and is the same in all processes.

    numba's own text gives a named tuple the name of its class and the types of its fields, so that those
    of two methods, each with its `Settings`, may have the same one.
    """
    return ", ".join(str(kind) + "".join(f" {name}" for name in _tuple_classes(kind)) for kind in kinds)


def _tuple_classes(kind: Any) -> Iterator[str]:
    """The classes of named tuples in a type, with the modules that define them."""
    if isinstance(kind, numba.types.BaseNamedTuple):
        yield f"{kind.instance_class.__module__}.{kind.instance_class.__qualname__}"
    if isinstance(kind, numba.types.BaseTuple):
        for part in kind:
            yield from _tuple_classes(part)


@functools.cache
def _origin(file: str) -> tuple[str, ...]:
    """What tells a source file in the cache: a file of the package by its place there, so that the cache
    holds no paths; another one by its path and what it holds.
    """
    path = Path(file)
    if path.is_relative_to(PACKAGE):
        return (path.relative_to(PACKAGE).as_posix(),)
    try:
        return file, hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:  # it was read from an archive, or typed in
        return (file,)


class KernelFiles(caching._Cache):  # type: ignore[misc]
    """The machine code of a function on the disk: a file for each tuple of argument types.

    The name of a file is a digest of all that its machine code depends on beside the sources, which name the
    folder. It ends in a digest of what it holds, because damaged code would crash the process. A fault in
    the cache never ends a run: a file that cannot be read is compiled and written again, and if it cannot be
    written, each process compiles. Files that came with the package come first, and are only read.

    Attributes
    ----------
    is_missing
        Whether there was no machine code for the types that were asked for last.
    """

    is_missing = False

    def __init__(self, function: Callable[..., Any], shared: bool) -> None:
        self._function, self._shared = function, shared
        self._turn: Any = None  # the open lock file while this process compiles the function

    @property
    def cache_path(self) -> str:
        """See numba."""
        try:
            return str(_files())
        except OSError:
            return ""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Machine code from the disk; None if there is none, and this process is to compile it."""
        self.is_missing = False
        name = self._name(sig, target_context.codegen())
        shipped = shipped_folder()
        if shipped is not None:
            found = load(shipped / CODE / name, sig, target_context)
            if found is not None:
                return found
        try:
            path = _files() / name
        except OSError as error:
            _tell_once(error)
            self.is_missing = True
            return None
        found = load(path, sig, target_context)
        self.is_missing = found is None
        if found is None and self._shared and self._turn is None:
            self._turn = take_turn(path.with_suffix(".turn"))
            found = load(path, sig, target_context)
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        """Write machine code; other processes see the file whole or not at all."""
        try:
            self._write(sig, data)
        except Exception as error:  # for example, the disk is full
            _tell_once(error)

    def _write(self, sig: Any, data: Any) -> None:
        if data.library.has_dynamic_globals:  # addresses, which die with the process
            return
        module = data.library._final_module
        named = (one for kind in (module.functions, module.global_variables) for one in kind)
        called = [one.name for one in named if one.is_declaration]
        parts = data._replace(type_annotation="")._reduce()  # a text with all types, which nobody reads
        called_ones = [symbols[name] for name in called if name in symbols]
        others = [name for name in called if name not in symbols and not name.startswith("llvm.")]
        content = dumps((called_ones, others, parts))
        write_whole(_files() / self._name(sig, data.codegen), content + hashlib.sha256(content).digest())

    def end_turn(self) -> None:
        """Let other processes compile the function, or load what this one has compiled."""
        if self._turn is not None:
            self._turn.close()
            self._turn = None

    def _name(self, sig: Any, codegen: Any) -> str:
        code = self._function.__code__
        cells = [cell.cell_contents for cell in self._function.__closure__ or ()]
        kinds, result = numba.core.sigutils.normalize_signature(sig)
        about = (
            *_origin(code.co_filename),
            code.co_firstlineno,
            text_of_types((*kinds, result)),
            codegen.magic_tuple(),
        )
        found = hashlib.sha256("\n".join(map(str, about)).encode())
        found.update(code.co_code + (dumps(cells) if cells else b""))
        name = re.sub(r"[^\w.]", "", f"{Path(code.co_filename).stem}.{self._function.__qualname__}")
        return f"{name}-{found.hexdigest()[:32]}.code"

    def enable(self) -> None:
        """See numba."""

    def disable(self) -> None:
        """See numba."""

    def flush(self) -> None:
        """See numba."""


@functools.cache
def _files() -> Path:
    """The folder of machine code."""
    return cache.private_folder(cache_folder() / CODE)


def load(path: Path, sig: Any, target_context: Any) -> Any:
    """The machine code of a file for types of arguments, or None."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    try:
        if hashlib.sha256(content[:-32]).digest() != content[-32:]:
            raise pickle.UnpicklingError(f"{path} is damaged")
        called, others, parts = pickle.loads(content[:-32])
        # What it calls must be there first, or the linker ends the process.
        for place, types in called:
            if types not in kernels[place].overloads:
                kernels[place].compile(types)  # its module is imported, since the caller's module imports it
        # numba would load here all that it compiles with, a hundred modules. Machine code needs its symbols.
        rtsys.initialize(target_context)
        if not all(map(llvm.address_of_symbol, others)):
            target_context.refresh()
        found = compiler.CompileResult._rebuild(target_context, *parts)
        if tuple(found.signature.args) != tuple(numba.core.sigutils.normalize_signature(sig)[0]):
            raise TypeError(f"{path} is for other types")  # whose names are the same
    except Exception:  # a damaged pickle may raise anything
        return None
    return found


def take_turn(path: Path) -> Any:
    """The open file at `path`, locked; None if it cannot be locked, or if its owner does not get on.

    Kernels that call each other form no circle, so processes that hold a lock while they wait for another one
    do not wait for each other.
    """
    if fcntl is None:
        return None
    try:
        cache.private_folder(path.parent)
        file = path.open("w")
    except OSError:
        return None
    last = time.monotonic() + _LONGEST_WAIT
    while time.monotonic() < last:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_PAUSE)
        except OSError:  # some network file systems lock nothing
            break
        else:
            return file
    file.close()
    return None


_told: list[str] = []


def _tell_once(error: Exception) -> None:
    """Warn once that kernels are not kept: a warning for each kernel would make a hundred lines."""
    if not _told:
        _told.append(str(error))
        warnings.warn(
            f"compiled code cannot be kept ({error}): the next run compiles it again",
            StanAdaptWarning,
            stacklevel=2,
        )
