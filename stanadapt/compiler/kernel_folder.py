"""The folder of compiled kernels, which an edit of any file that they rest on changes.

numba's disk cache notices an edit only in the file that holds the cached function. A kernel that calls a
function of another file would keep the old version of that function. So the name of the folder is a hash of
all files that hold kernels, and of all files that they import. An edit of any of them gives a new folder.
Without edits a kernel is compiled once per machine, or never: an installed package may bring such a folder
with it, which is read before the one in the user's cache and never written.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.machinery
import os
import re
import shutil
import sys
import threading
import time
from pathlib import Path

import numba

from .. import cache

PACKAGE = Path(__file__).parents[1]
_SHIPPED = PACKAGE / "compiled"  # what wheels may bring (tests/compiled_wheels.py); a checkout has none
_PYTHON = importlib.machinery.EXTENSION_SUFFIXES[0]  # names the version of Python and how it was built
_KEEP_DAYS = 30
# A text that only looks like one does no harm. To parse all sources would take half a second.
_RELATIVE_IMPORT = re.compile(r"^ *from (\.+)([\w.]*) import (\([^)]*\)|.*)", re.MULTILINE)
_IMPORT_OF_JIT = re.compile(r"^from \.+jit import .*\b(kernel|callback)\b", re.MULTILINE)


@functools.cache
def cache_folder() -> Path:
    """The folder for kernels that were compiled from exactly this version of the sources.

    Raises
    ------
    OSError
        No folder can be used, not even a temporary one.
    """
    folder = cache.cache_folder("kernels", _version())
    with contextlib.suppress(OSError):
        os.utime(folder)
        _prune(folder)
    return folder


@functools.cache
def shipped_folder() -> Path | None:
    """The folder of kernels that came with the package, for these versions of sources, Python and numba."""
    folder = _SHIPPED / _version() if _SHIPPED.is_dir() else None
    return folder if folder is not None and folder.is_dir() else None


@functools.cache
def _version() -> str:
    """`_digest`, from a file that says it as long as the files of the package stay the same."""
    try:
        stamp = cache.cache_folder("stamps") / _stamp()
    except OSError:  # nothing is kept
        return _digest()
    try:
        digest = stamp.read_text("ascii")
    except OSError:
        digest = _digest()
        with contextlib.suppress(OSError):  # without the file the next process reads the sources again
            write_whole(stamp, digest.encode())
    with contextlib.suppress(OSError):
        os.utime(stamp)
        _prune(stamp)
    return digest


def _stamp() -> str:
    """A hash of the places, sizes and times of the package's files, which changes if any of them is written.

    To read and parse the sources takes half a second in every process; this takes some milliseconds.
    """
    found = hashlib.sha256(f"{numba.__version__} {sys.version} {PACKAGE}".encode())
    for path in sorted(PACKAGE.rglob("*.py")):
        about = path.stat()
        found.update(
            f"{path} {about.st_size} {about.st_mtime_ns} {about.st_ctime_ns} {about.st_ino}".encode()
        )
    return found.hexdigest()[:32]


def _digest() -> str:
    """A hash of all sources that compiled code depends on."""
    found = hashlib.sha256(f"{numba.__version__} {_PYTHON}".encode())
    for source in sorted(kernel_sources()):
        found.update(source.relative_to(PACKAGE).as_posix().encode())
        found.update(source.read_bytes())
    return found.hexdigest()[:16]


def write_whole(path: Path, content: bytes) -> None:
    """Write a file that other processes see whole or not at all."""
    part = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        part.write_bytes(content)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def kernel_sources() -> set[Path]:
    """The files of the package that hold kernels, and all files of the package that these import."""
    waiting = [path for path in PACKAGE.rglob("*.py") if _IMPORT_OF_JIT.search(path.read_text("utf-8"))]
    waiting.append(PACKAGE / "jit.py")
    found: set[Path] = set()
    front = PACKAGE / "__init__.py"  # it imports everything and holds no kernel
    while waiting:
        path = waiting.pop()
        if path in found or path == front:
            continue
        found.add(path)
        for dots, module, names in _RELATIVE_IMPORT.findall(path.read_text("utf-8")):
            base = path.parents[len(dots) - 1].joinpath(*module.split("."))
            places = [base, *(base / name for name in re.findall(r"\w+", names))]
            files = [file for place in places for file in (place.with_suffix(".py"), place / "__init__.py")]
            waiting += [file for file in files if file.is_file()]
    return found


def _prune(current: Path) -> None:
    """Remove what stands beside `current`, of other versions, and what no process has used for a month."""
    oldest = time.time() - _KEEP_DAYS * 86_400
    for path in current.parent.iterdir():
        if path != current and path.stat().st_mtime < oldest:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink()
