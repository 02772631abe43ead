"""A run in a folder: what was asked, where each chain is, and its draws, so that a run outlives its process.

    run.json         what was asked, the versions and the processor, the names of the quantities
    asked.npz        where chains start, and the user's coordinates
    program.stan     the program with its includes, where it is one
    data.json        its data
    chains/0/        the last two checkpoints of chain 0, see checkpoint.py
    draws.zarr/      full blocks of draws while the run goes on, see blocks.py; when it is over, the result
    end.json         how it ended, unless it was killed
    unknown/         columns of statistics that the method does not know, and that the result leaves out
    lock             held by the process that runs it; the system takes it from one that is dead

Reading executes nothing: all of it is JSON and arrays, without pickles.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ... import check
from ...errors import ArgumentError, StoreError

RUN, ASKED, PROGRAM, DATA, END, LOCK = (
    "run.json",
    "asked.npz",
    "program.stan",
    "data.json",
    "end.json",
    "lock",
)
CHAINS, DRAWS = "chains", "draws.zarr"
ASIDE = "unknown"  # arrays that a result leaves out, see blocks.py
_OURS = {ASKED, PROGRAM, DATA, LOCK, CHAINS, DRAWS}  # the files of a run that has not begun
_PATIENCE = 0.5  # seconds to wait for the lock: a process that only checks the run holds it for a moment
_ADVICE = (
    "The draws up to its last checkpoints are safe: when there is room, stanadapt.resume goes on from there"
)


class InUseError(StoreError):
    """Another process has the folder."""


def check_folder(path: Any) -> Path:
    """The folder for a new run, which is made.

    Raises
    ------
    ArgumentError
        It has a run already, or is no empty folder.
    StoreError
        It cannot be made.
    """
    folder = resolve(path)
    if (folder / RUN).exists():
        raise ArgumentError(
            f"store={os.fspath(path)!r} has a run already: stanadapt.resume goes on with it, "
            "stanadapt.extend adds draws, and stanadapt.load reads it; or name another folder"
        )
    if folder.exists() and not _is_free(folder):
        raise ArgumentError(f"store={os.fspath(path)!r} exists already, and is no empty folder")
    with failures(folder, "No run has begun"):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


def resolve(path: Any) -> Path:
    """The whole path of a store. Raises ArgumentError."""
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise check.refusal("store", path, "the path of a folder")
    folder = Path(os.fsdecode(path)).resolve()
    try:
        str(folder).encode()
    except UnicodeEncodeError as error:  # results, pages and files of results have the path as text
        raise check.refusal(
            "store", str(folder), "a path in UTF-8, since results name it as text; rename its folders"
        ) from error
    return folder


@contextlib.contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Lock the folder for this process. Raises StoreError if another process has the lock."""
    from filelock import FileLock, Timeout

    held = FileLock(folder / LOCK)
    try:
        held.acquire(timeout=_PATIENCE)
    except Timeout as error:
        raise InUseError(f"{folder} is in use by another process that runs it") from error
    except (OSError, NotImplementedError) as error:  # the latter where a file system has no locks
        raise StoreError(f"{folder} cannot be locked: {check.one_line(error)}") from error
    try:
        yield
    finally:
        held.release()


def is_locked(folder: Path) -> bool:
    """Whether a process runs what is in the folder. Raises StoreError where that cannot be seen."""
    try:
        with lock(folder):
            return False
    except InUseError:
        return True


@contextlib.contextmanager
def failures(folder: Path, advice: str = _ADVICE) -> Iterator[None]:
    """The system's refusal, in words."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or check.one_line(error)
        raise StoreError(f"{folder} cannot be written: {reason}. {advice}") from error


def _is_free(folder: Path) -> bool:
    """Whether a run may begin there: it is empty, or a run was killed there before it began."""
    if not folder.is_dir():
        return False
    names = {path.name.removesuffix(".part") for path in folder.iterdir()}
    return names <= {LOCK} or (LOCK in names and names <= _OURS | {RUN})
