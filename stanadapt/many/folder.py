"""A folder of results: a file for each of many fits, and an index to which each fit adds a line.

    run.json      what was asked: program, arguments, seed
    index.jsonl   a line for every fit that has ended: its key, its file, or the reason why there is none
    fits/         the results, as netCDF

When the file of a result is complete, one call writes its line of the index. If a crash cuts off the last
line, the next run removes that line, and its fit runs again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .. import check
from ..errors import ArgumentError, OutputError
from ..result.container import datasets

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

FORMAT = 1
_RUN, _INDEX, _FITS, _LOCK = "run.json", "index.jsonl", "fits", "lock"
_NAME_LENGTH = 40  # of the readable part of a file's name


class Folder:
    """An open folder of results; a lock keeps other processes from writing to it, if files can be locked."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Make the folder or open it, and read its index.

        Raises
        ------
        OutputError
            The folder cannot be made, read or written, another process uses it, or it holds other files.
        """
        self.path = Path(path).resolve()
        self.shown = str(path)
        try:
            self._open()
        except OSError as error:
            if isinstance(error, OutputError):
                raise
            raise self._failure(error) from error

    def _open(self) -> None:
        if self.path.exists() and not self.path.is_dir():
            raise OutputError(f"out={self.shown!r} is a file; the name of a folder is needed")
        if self.path.is_dir() and not (self.path / _RUN).exists():
            strange = [entry.name for entry in self.path.iterdir() if entry.name not in (_LOCK, _FITS)]
            if strange:
                raise OutputError(
                    f"out={self.shown!r} holds other files ({', '.join(sorted(strange)[:3])}) and no {_RUN}; "
                    "a new or empty folder is needed, or one of an earlier call"
                )
        (self.path / _FITS).mkdir(parents=True, exist_ok=True)
        self._lock = (self.path / _LOCK).open("w")
        if fcntl is not None:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise OutputError(f"out={self.shown!r} is in use by another call of sample_many") from None
            except OSError:  # some network file systems lock nothing
                pass
        self._remove_parts()
        self.run = self._read_run()
        self.index, whole = self._read_index()
        self._file = (self.path / _INDEX).open("ab", buffering=0)
        self._file.truncate(whole)

    def close(self) -> None:
        """Close the folder, so that other processes can use it."""
        self._file.close()
        with contextlib.suppress(OSError):
            self._remove_parts()
        self._lock.close()

    def _remove_parts(self) -> None:
        """Remove the unfinished files that killed processes have left in `fits/`."""
        for left in (self.path / _FITS).glob("*.part"):
            left.unlink(missing_ok=True)

    def adopt(self, asked: Mapping[str, Any]) -> None:
        """Note the arguments in a new folder; refuse a folder with other arguments.

        Raises
        ------
        OutputError
            The arguments differ (the message names the first difference), or run.json cannot be written.
        """
        wanted = json.loads(json.dumps(dict(asked)))
        if not self.run:
            self.run = {"format": FORMAT, **wanted}
            target = self.path / _RUN
            unfinished = check.partial_path(target)
            try:
                with unfinished.open("w", encoding="utf-8") as file:
                    json.dump(self.run, file, indent=1)
                    file.flush()
                    os.fsync(file.fileno())
                unfinished.replace(target)
            except OSError as error:
                raise self._failure(error) from error
            return
        for name, value in wanted.items():
            if self.run.get(name) != value:
                difference = _difference(name, self.run.get(name), value)
                raise OutputError(f"out={self.shown!r} holds fits of {difference}")

    def entry(self, text: str) -> dict[str, Any] | None:
        """The index entry of the fit whose key has this text; None unless the fit is done and has a file."""
        entry = self.index.get(text)
        if entry is None or entry["status"] != "done":
            return None
        # The index of somebody else's folder could name any file. So only the name that we would use counts.
        if entry["file"] != self.file(text) or not (self.path / entry["file"]).is_file():
            return None
        return entry

    def file(self, text: str) -> str:
        """The file for a key, as a path relative to the folder: words of the key, and a hash of its own."""
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        name = re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-")[:_NAME_LENGTH]
        return f"{_FITS}/{name}{'-' if name else ''}{digest}.nc"

    def note(self, text: str, facts: Mapping[str, Any]) -> None:
        """Append a line to the index; it counts in place of an older line with the same key.

        Raises
        ------
        OutputError
            The line cannot be written, for example because the disk is full.
        """
        entry = {"key": json.loads(text), **facts}
        line = json.dumps(entry).encode() + b"\n"
        try:
            if self._file.write(line) != len(line):
                raise OSError("the disk is full")
        except OSError as error:
            raise self._failure(error) from error
        self.index[text] = entry

    def _read_run(self) -> dict[str, Any]:
        """What earlier calls asked for, from run.json; an empty dict in a new folder."""
        path = self.path / _RUN
        if not path.exists():
            return {}
        try:
            run = json.loads(path.read_text("utf-8"))
            found = run["format"]
        except (ValueError, TypeError, KeyError) as error:
            raise OutputError(
                f"out={self.shown!r}: {_RUN} cannot be read: {check.one_line(error)}"
            ) from error
        if found != FORMAT:
            raise OutputError(
                f"out={self.shown!r} was written by another version of stanadapt, in format "
                f"{check.quote(found)}; this one has format {FORMAT}"
            )
        return dict(run)

    def _read_index(self) -> tuple[dict[str, dict[str, Any]], int]:
        """Read the index: the last line of each key, and the number of bytes of the complete lines."""
        path = self.path / _INDEX
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        index, whole = {}, 0
        for number, line in enumerate(lines, 1):
            if not line.endswith(b"\n") and number == len(lines):
                break
            try:
                entry = json.loads(line)
                index[json.dumps(entry["key"])] = dict(entry)
                if entry["status"] == "done":
                    str(entry["file"])
            except (ValueError, TypeError, KeyError) as error:
                raise OutputError(
                    f"out={self.shown!r}: line {number} of {_INDEX} cannot be read: {check.one_line(error)}"
                ) from error
            whole += len(line)
        return index, whole

    def _failure(self, error: OSError) -> OutputError:
        return OutputError(f"out={self.shown!r} cannot be written: {check.one_line(error)}")


def plain(name: str, value: Any) -> Any:
    """Convert an argument to what JSON can hold, a hash for each array, so that arguments can be compared.

    Raises
    ------
    ArgumentError
        The argument holds a value of a type that cannot be converted.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "groups"):  # an earlier result
        held = datasets(value)["posterior"].data_vars
        return {str(key): plain(name, held[key].values) for key in held}
    if isinstance(value, Mapping):
        return {str(key): plain(name, part) for key, part in value.items()}
    if isinstance(value, np.generic):
        return value.item()
    if hasattr(value, "__array__"):
        array = np.ascontiguousarray(value)
        if array.dtype.kind in "iufbcU":
            digest = hashlib.sha256(array.tobytes()).hexdigest()
            return {"dtype": array.dtype.str, "shape": list(array.shape), "sha256": digest}
    elif isinstance(value, Sequence):
        return [plain(name, part) for part in value]
    raise ArgumentError(
        f"{name}={check.quote(value)} is not allowed with out=, since a folder cannot tell it from another "
        "one: use numbers, texts, arrays, and lists and dicts of them"
    )


def digest(name: str, value: Any) -> str:
    """A hash of an argument that `plain` can write: 64 hexadecimal digits."""
    return hashlib.sha256(json.dumps(plain(name, value), sort_keys=True).encode()).hexdigest()


def _difference(name: str, held: Any, asked: Any) -> str:
    """Name the first difference of two calls' arguments, in words that continue the message "fits of"."""
    if isinstance(held, dict) and isinstance(asked, dict):
        for part in {**held, **asked}:
            if held.get(part) != asked.get(part):
                return _difference(part, held.get(part), asked.get(part))
    if name == "program":
        return "another program: use another folder"
    return f"{name}={check.quote(held)}, and {name}={check.quote(asked)} is asked for: use another folder"
