"""Folders that keep compiled code between runs.

The folders hold machine code and pickles. With write access to them, another user could make this user's
process run any code. So a folder is used only if it belongs to the user and nobody else can write to it.
"""

from __future__ import annotations

import atexit
import os
import shutil
import stat
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from .errors import StanAdaptWarning
from .garbage import paused_collector

# With this environment variable a process tells its child processes which temporary cache it uses.
_SHARED = "STANADAPT_TEMPORARY_CACHE"


def cache_folder(*parts: str) -> Path:
    """The folder `stanadapt/...` in the user's cache, `XDG_CACHE_HOME` or `~/.cache`.

    If that folder cannot be private to the user (a read-only home in a container, a folder that others can
    write to), the result is a private temporary folder, which is removed when the process ends. A warning
    says so once.

    Raises
    ------
    OSError
        A temporary folder cannot be made either.
    """
    try:
        return _private_subfolder(private_folder(_users_cache() / "stanadapt"), parts)
    except OSError as error:
        return _private_subfolder(_temporary(error), parts)


def private_folder(folder: Path) -> Path:
    """Make `folder` if it is missing, check that it is private to the user, and return it.

    Raises
    ------
    OSError
        It cannot be made or written, belongs to another user, or others can write to it.
    """
    for part in reversed((folder, *folder.parents)):
        if not part.exists():
            part.mkdir(mode=0o700, exist_ok=True)
    _check_private(folder)
    return folder


def import_with_home(load: Callable[[], ModuleType]) -> ModuleType:
    """Import a library that needs the user's home folder, even if the user has none.

    `load` imports it. If that fails, `load` is called again with a folder of the cache as the home.
    """
    try:
        with paused_collector():
            return load()
    except (OSError, RuntimeError):
        before = {key: os.environ.get(key) for key in ("HOME", "XDG_CACHE_HOME")}
        os.environ |= dict.fromkeys(before, str(cache_folder("home")))
        try:
            return load()
        finally:
            for key, value in before.items():
                del os.environ[key]
                if value is not None:
                    os.environ[key] = value


def _check_private(folder: Path) -> None:
    found = folder.stat()
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(f"{folder} is no folder")
    if hasattr(os, "getuid"):
        if found.st_uid != os.getuid():
            raise PermissionError(f"{folder} belongs to another user")
        if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise PermissionError(
                f"others than its owner can write to {folder}. Remove it, or run chmod -R go-w on it if you "
                "trust what it holds"
            )
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(f"{folder} cannot be written")


def _users_cache() -> Path:
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if named.is_absolute():  # the standard says to ignore relative paths
        return named
    try:
        return Path("~/.cache").expanduser()
    except RuntimeError as error:
        raise OSError("this user has no home folder") from error


def _private_subfolder(folder: Path, parts: tuple[str, ...]) -> Path:
    for part in parts:
        folder = private_folder(folder / part)
    return folder


def _temporary(reason: OSError) -> Path:
    """The temporary cache of this process, or of the process that started it."""
    known = os.environ.get(_SHARED)
    if known:
        try:
            _check_private(Path(known))
        except OSError:  # the other process has ended
            pass
        else:
            return Path(known)
    folder = Path(tempfile.mkdtemp(prefix="stanadapt-"))
    atexit.register(_remove, folder, os.getpid())
    os.environ[_SHARED] = str(folder)
    warnings.warn(
        f"the cache of compiled code is not used: {reason.strerror or reason}"
        f"{f' ({reason.filename})' if reason.filename else ''}. What is compiled goes into a temporary "
        "folder, and the next run compiles it again. XDG_CACHE_HOME can name another place for the cache.",
        StanAdaptWarning,
        stacklevel=2,
    )
    return folder


def _remove(folder: Path, maker: int) -> None:
    """Remove the temporary cache; a forked child leaves it to its maker."""
    if os.getpid() == maker:
        shutil.rmtree(folder, ignore_errors=True)
