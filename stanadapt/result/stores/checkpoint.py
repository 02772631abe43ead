"""Checkpoints: the value of a chain between two blocks, in files that a kill at any moment leaves whole.

Each chain has a folder. A checkpoint is written beside the last one, flushed to the disk and renamed; its
name has its number, its length and a hash of what it holds. So a torn or damaged file is noticed, and the
file before it, which is kept too, is used.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from .encoding import decode, encode

KEPT = 2  # checkpoints of a chain
_ENDING, _UNFINISHED = ".npz", ".part"
_MANY = 50  # files


def write_checkpoint(folder: Path, value: Any) -> Path:
    """Write a value as the newest checkpoint of `folder`, and remove all but the last two.

    Raises
    ------
    OSError
        There is no room, or the folder cannot be written. The checkpoints before it stay.
    EncodingError
        The value holds something that cannot be written.
    """
    data = encode(value)
    folder.mkdir(parents=True, exist_ok=True)
    for torn in folder.glob(f"*{_UNFINISHED}"):  # of a process that was killed while it wrote
        torn.unlink(missing_ok=True)
    before = _checkpoints_by_number(folder)
    number = 1 + max(before, default=0)
    target = folder / f"{number:08d}-{len(data)}-{_hash(data)}{_ENDING}"
    write_whole(target, data)
    for old in sorted(before)[: 1 - KEPT]:
        with contextlib.suppress(OSError):
            before[old].unlink()
    return target


def read_checkpoint(folder: Path) -> Any:
    """The value of the newest checkpoint that is whole; None where there is none.

    Raises
    ------
    EncodingError
        A whole file holds something that this version cannot read.
    """
    for path in _newest_first(folder):
        try:
            data = path.read_bytes()
        except FileNotFoundError:  # the running process has replaced it meanwhile
            return read_checkpoint(folder)
        if _is_whole(path, data):
            return decode(data)
    return None


def write_whole(target: Path, data: bytes) -> None:
    """Write a file that is there as a whole or not at all, after a power cut too. Raises OSError."""
    unfinished = target.with_name(f"{target.name}{_UNFINISHED}")
    try:
        with unfinished.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(target)
    except OSError:
        with contextlib.suppress(OSError):
            unfinished.unlink()
        raise
    flush_folder(target.parent)


def flush_files(paths: Sequence[Path]) -> None:
    """Flush files to the disk. Raises OSError.

    A call for each takes milliseconds; for many the system is asked once, for all that it holds.
    """
    if len(paths) > _MANY and hasattr(os, "sync"):
        os.sync()
        return
    for path in paths:
        flush_file(path)


def flush_file(path: Path) -> None:
    """Flush a file to the disk. Raises OSError."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def flush_folder(folder: Path) -> None:
    """Flush the names in a folder to the disk, where the system can do so."""
    with contextlib.suppress(OSError):  # Windows opens no folders
        flush_file(folder)


def _checkpoints_by_number(folder: Path) -> dict[int, Path]:
    """The checkpoints in a folder by their numbers."""
    return {int(path.name.partition("-")[0]): path for path in _checkpoints(folder)}


def _newest_first(folder: Path) -> list[Path]:
    return [path for _, path in sorted(_checkpoints_by_number(folder).items(), reverse=True)]


def _checkpoints(folder: Path) -> Iterator[Path]:
    for path in folder.glob(f"*{_ENDING}"):
        if path.name.partition("-")[0].isdecimal():
            yield path


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]


def _is_whole(path: Path, data: bytes) -> bool:
    """Whether a file holds what its name says."""
    parts = path.name.removesuffix(_ENDING).split("-")
    return parts[1:] == [str(len(data)), _hash(data)]
