"""The one place that calls numba.

numba's disk cache notices an edit only in the file that holds the cached function: a kernel built on shared
maths would go on with yesterday's maths. So the cache folder carries a hash of every file that holds kernels
and of all that these import. An edit to any of them gives a new folder, and an untouched install compiles
once per machine.

Kernels release the GIL, so chains run in threads. `reassoc` lets the compiler vectorise sums and `contract`
lets it fuse multiply-adds; NaN and infinity keep their meaning.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba
from numba.core.caching import FunctionCache

from .cache import cache_home

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

_PACKAGE = Path(__file__).parent
_KEEP_DAYS = 30
_IMPORT_OF_JIT = re.compile(r"^from \.+jit import .*\b(kernel|exact|callback)\b", re.MULTILINE)


@functools.cache
def cache_folder() -> Path:
    """Where compiled kernels of this very version of the sources are kept."""
    digest = hashlib.sha256(f"{numba.__version__} {sys.version}".encode())
    for source in sorted(_kernel_sources()):
        digest.update(source.relative_to(_PACKAGE).as_posix().encode())
        digest.update(source.read_bytes())
    folder = cache_home() / "kernels" / digest.hexdigest()[:16]
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        os.utime(folder)
        _prune(folder)
    return folder


def _kernel_sources() -> set[Path]:
    """Files of the package that use this one, with everything of the package that they import."""
    waiting = [path for path in _PACKAGE.rglob("*.py") if _IMPORT_OF_JIT.search(path.read_text("utf-8"))]
    found = {Path(__file__)}
    front = _PACKAGE / "__init__.py"  # imports everything, and no kernel
    while waiting:
        path = waiting.pop()
        if path in found or path == front:
            continue
        found.add(path)
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.level:
                base = path.parents[node.level - 1].joinpath(*(node.module or "").split("."))
                names = [base, *(base / alias.name for alias in node.names)]
                files = [file for name in names for file in (name.with_suffix(".py"), name / "__init__.py")]
                waiting += [file for file in files if file.is_file()]
    return found


def _prune(current: Path) -> None:
    """Remove the folders of other versions that nothing has opened for a month."""
    oldest = time.time() - _KEEP_DAYS * 86_400
    for folder in current.parent.iterdir():
        if folder != current and folder.is_dir() and folder.stat().st_mtime < oldest:
            shutil.rmtree(folder, ignore_errors=True)


def kernel(function: Callable[..., Any]) -> Any:
    """Compile `function` to machine code at its first call, without the GIL, cached on disk."""
    return _njit(function, fastmath={"reassoc", "contract"})


def exact(function: Callable[..., Any]) -> Any:
    """A kernel whose sums keep the order in which they are written.

    Each kernel that calls another holds a copy of it, optimised on its own, and which of the copies runs
    depends on the order in which they were loaded. Where the compiler may reorder sums, the process that
    compiles can differ in the last digit from those that load from disk. Most kernels are too small for that.
    A product may be fused with a sum in any kernel: write a b + c d so that there is no choice of which.
    """
    return _njit(function)


def _njit(function: Callable[..., Any], **options: Any) -> Any:
    compiled = numba.njit(nogil=True, error_model="numpy", **options)(function)
    with _our_cache():
        compiled._cache = _SharedCache(function)  # as `cache=True` does, with another class
    return compiled


class _SharedCache(FunctionCache):  # type: ignore[misc]  # numba has no types
    """numba's cache of a function, which several processes may write at the same time.

    numba reads the index of the function, adds a line to it and writes it back. Two processes that compile it
    for different types at once could name one file for both, and what loads that file later runs the machine
    code of the other types.
    """

    def save_overload(self, sig: Any, data: Any) -> None:
        with _lock(Path(self.cache_path)):
            super().save_overload(sig, data)


@contextlib.contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """No other process is here for this folder, as far as the system can lock files."""
    if fcntl is None:
        yield
        return
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # some network file systems lock nothing
            folder.mkdir(parents=True, exist_ok=True)
            held = stack.enter_context((folder / "lock").open("w"))
            fcntl.flock(held, fcntl.LOCK_EX)
        yield


def callback(signature: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function to a C callback of the given numba signature, cached on disk."""

    def decorate(function: Callable[..., Any]) -> Any:
        with _our_cache():
            return numba.cfunc(signature, nopython=True, cache=True)(function)

    return decorate


@contextlib.contextmanager
def _our_cache() -> Any:
    """Our cache folder while a decorator runs, numba's setting as the user had it afterwards."""
    theirs = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(cache_folder())
    try:
        yield
    finally:
        numba.config.CACHE_DIR = theirs


def is_compiled(function: Any) -> bool:
    """Whether `function`, a kernel, is compiled in this process or on disk."""
    if function.signatures:
        return True
    name = f"{function.py_func.__module__.rpartition('.')[2]}.{function.py_func.__qualname__}"
    return any(cache_folder().rglob(f"{name}-*.nbi"))
