"""The one place that calls numba.

numba's disk cache notices an edit only in the file that holds the cached function. A kernel that calls a
function of another file would go on with its old version. So the name of the cache folder is a hash of all
files that hold kernels, and of all files that they import. An edit of any of them gives a new folder. Without
edits a kernel is compiled once per machine.

Kernels release the GIL, so that chains run in threads. `reassoc` lets the compiler vectorise sums, and
`contract` lets it fuse a product and a sum. NaN and infinity keep their meaning.
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
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba

from .cache import cache_home

_PACKAGE = Path(__file__).parent
_KEEP_DAYS = 30
_IMPORT_OF_JIT = re.compile(r"^from \.+jit import .*\b(kernel|exact|callback)\b", re.MULTILINE)


@functools.cache
def cache_folder() -> Path:
    """The folder for compiled kernels of this very version of the sources."""
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
    """The files of the package that hold kernels, and all files of the package that these import."""
    waiting = [path for path in _PACKAGE.rglob("*.py") if _IMPORT_OF_JIT.search(path.read_text("utf-8"))]
    found = {Path(__file__)}
    front = _PACKAGE / "__init__.py"  # it imports everything and holds no kernel
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
    """Remove the folders of other versions that no process has used for a month."""
    oldest = time.time() - _KEEP_DAYS * 86_400
    for folder in current.parent.iterdir():
        if folder != current and folder.is_dir() and folder.stat().st_mtime < oldest:
            shutil.rmtree(folder, ignore_errors=True)


def kernel(function: Callable[..., Any]) -> Any:
    """Compile `function` to machine code at its first call. It runs without the GIL and is cached on disk."""
    with _our_cache():
        return numba.njit(nogil=True, cache=True, error_model="numpy", fastmath={"reassoc", "contract"})(
            function
        )


def exact(function: Callable[..., Any]) -> Any:
    """Compile `function` like `kernel` does, but keep the order in which its sums are written.

    A kernel that calls another one holds a copy of it, which the compiler optimises again. The copy that runs
    depends on the order in which kernels were loaded. If the compiler may reorder sums, two copies can differ
    in the last digit, and so can two processes of which one compiles and the other loads from disk. Most
    kernels are too small for that to happen.

    Every kernel may fuse a product with a sum. In a b + c d the compiler can fuse either product, and the
    last digits differ. So add products one at a time, to a value that is no product itself: (e + a b) + c d.
    """
    with _our_cache():
        return numba.njit(nogil=True, cache=True, error_model="numpy")(function)


def callback(signature: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function to a C callback of the given numba signature, cached on disk."""

    def decorate(function: Callable[..., Any]) -> Any:
        with _our_cache():
            return numba.cfunc(signature, nopython=True, cache=True)(function)

    return decorate


@contextlib.contextmanager
def _our_cache() -> Any:
    """Set numba's cache folder to ours while a decorator runs, and restore the user's setting afterwards."""
    theirs = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(cache_folder())
    try:
        yield
    finally:
        numba.config.CACHE_DIR = theirs


def is_compiled(function: Any) -> bool:
    """Whether the kernel `function` is compiled, in this process or on disk."""
    if function.signatures:
        return True
    name = f"{function.py_func.__module__.rpartition('.')[2]}.{function.py_func.__qualname__}"
    return any(cache_folder().rglob(f"{name}-*.nbi"))
