"""The text of a Stan program with the files that it includes, and where each of its lines stands.

Stan's own compiler looks for included files in given folders only. Here a file is looked for beside the file
that includes it first, as in C. All included files are written in place before anything else reads the
program, so that every part of this package and every backend sees the same text. Messages of compilers count
the lines of that text; `in_files` turns them into lines of the files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .. import check
from ..errors import ArgumentError, ModelError
from .program import TOKEN, blank

MOST_INCLUDES = 1_000


class Line(NamedTuple):
    """The place of a line of a program."""

    file: str  # the path of an included file, as messages name it; empty for the program itself
    number: int  # from 1
    includer: Line | None = None  # the line with the #include

    def __str__(self) -> str:
        return f"line {self.number}{f' of {self.file}' if self.file else ''}"


class ProgramText(NamedTuple):
    """A program with its includes written in place."""

    code: str
    lines: tuple[Line, ...] = ()  # the place of each line; empty where the program includes nothing

    def line(self, number: int) -> Line:
        """The place of a line of `code`, which counts from 1."""
        return self.lines[number - 1] if 0 < number <= len(self.lines) else Line("", number)


def check_include_paths(include_paths: Any) -> tuple[Path, ...]:
    """The folders that a user names for included files: one, a list of them, or none.

    Raises
    ------
    ArgumentError
        One of them is no folder.
    """
    given = [include_paths] if isinstance(include_paths, str | os.PathLike) else include_paths
    if not isinstance(given, list | tuple) or not all(isinstance(each, str | os.PathLike) for each in given):
        raise check.refusal("include_paths", include_paths, "a folder or a list of folders")
    folders = tuple(Path(os.fspath(each)) for each in given)
    for folder in folders:
        if not _is_folder(folder):
            raise ArgumentError(
                f"include_paths={check.quote(str(folder))} is not allowed: there is no such folder (working "
                f"directory {Path.cwd()})"
            )
    return tuple(folder.resolve() for folder in folders)


def write_in_place(code: str, folder: Path | None, include_paths: Sequence[Path] = ()) -> ProgramText:
    """The program with included files written in place.

    An included file is looked for beside the file that includes it, then beside the program, then in
    `include_paths` in their order, then in the working directory. `folder` is that of the program, None for
    a text without a file.

    Raises
    ------
    ModelError
        A file cannot be found or read, or includes itself; or there are too many includes. Files that include
        others twice, which include others twice, and so on, would give more text than memory holds.
    """
    if not any(token["include"] for token in TOKEN.finditer(code)):
        return ProgramText(str(code))  # a text of its own kind cannot stand in every file
    writer = _Writer(folder, include_paths)
    writer.write(code, folder, "", None, ())
    return writer.text()


class _Writer:
    """Writes a program, and keeps the place of every line."""

    def __init__(self, folder: Path | None, include_paths: Sequence[Path]) -> None:
        self.folder, self.include_paths = folder, include_paths
        self.parts: list[str] = []
        self.lines: list[Line] = []  # of the lines that are complete
        self.begun: Line | None = None  # the place of the first text on the line that is not
        self.count = 0

    def text(self) -> ProgramText:
        """All that was written."""
        lines = (*self.lines, self.begun or Line("", 1))
        return ProgramText("".join(self.parts), lines)

    def write(
        self,
        code: str,
        folder: Path | None,
        name: str,
        includer: Line | None,
        including: tuple[tuple[Path, Line], ...],
    ) -> None:
        """Write the text of a file, and of those that it includes."""
        place, number = 0, 1
        for token in TOKEN.finditer(code):
            if token["include"] is None:
                continue
            self._add(code[place : token.start()], Line(name, number, includer))
            number += code.count("\n", place, token.start())
            self._include(token["include"].strip('"<>'), folder, Line(name, number, includer), including)
            place = token.end()
        self._add(code[place:], Line(name, number, includer))

    def _add(self, text: str, line: Line) -> None:
        """Write text that begins on a line of a file."""
        self.parts.append(text)
        for i, part in enumerate(text.split("\n")):
            if i:
                self.lines.append(self.begun or line._replace(number=line.number + i - 1))
                self.begun = None
            if self.begun is None and part.strip():
                self.begun = line._replace(number=line.number + i)

    def _include(
        self, written: str, folder: Path | None, line: Line, including: tuple[tuple[Path, Line], ...]
    ) -> None:
        """Write an included file in the place of its #include."""
        path = self._find(written, folder, line)
        self.count += 1
        if self.count > MOST_INCLUDES:
            raise ModelError(
                f"model: the Stan program includes files more than {MOST_INCLUDES} times, those that "
                f"included files include among them, the last one {path.name}; write each of them once"
            )
        including = (*including, (path, line))
        if path in [each for each, _ in including[:-1]]:
            start = [each for each, _ in including].index(path)
            circle = [f"{self._path_text(each)} (included in {where})" for each, where in including[start:]]
            raise ModelError(f"model: the Stan program includes a file in itself: {', then '.join(circle)}")
        try:
            text = path.read_text(encoding="utf-8-sig")
        except (OSError, ValueError) as error:
            raise ModelError(f"model: {line} includes {path}, which cannot be read: {error}") from error
        if "\0" in text:
            raise ModelError(f"model: {line} includes {path}, which has a NUL character")
        self.write(text, path.parent, self._path_text(path), line, including)

    def _find(self, written: str, folder: Path | None, line: Line) -> Path:
        """The path of an included file."""
        folders = [each for each in (folder, self.folder, *self.include_paths) if each is not None]
        folders = list(dict.fromkeys([*folders, Path.cwd()]))
        for each in folders:
            path = each / written
            if _is_file(path):
                return path.resolve()
        looked = (
            f"in none of {', '.join(map(str, folders))}" if not Path(written).is_absolute() else "not there"
        )
        raise ModelError(
            f"model: {line} includes {check.quote(written)}, which is {looked}; include_paths=[...] names "
            "more folders"
        )

    def _path_text(self, path: Path) -> str:
        """The path of a file for messages: from the program's folder on, if it is in there."""
        if self.folder is not None and path.is_relative_to(self.folder.resolve()):
            return path.relative_to(self.folder.resolve()).as_posix()
        return str(path)


def find_place(program: ProgramText, pattern: str) -> str:
    """Where a program first has text of a pattern, in words: its line; empty where it has none.

    Comments and texts are not looked at.
    """
    found = re.search(pattern, blank(program.code))
    if found is None:
        return ""
    number = program.code.count("\n", 0, found.start()) + 1
    return f"{program.line(number)}: {check.quote(program.code.splitlines()[number - 1].strip())}"


_PLACE = re.compile(
    r"(?P<name>'string'|the program), line (?P<line>\d+)(?P<column>, column \d+)?"
    r"(?P<to> to (?:line (?P<last>\d+), )?column \d+)?"
)
_EXCERPT = re.compile(r"^ *(?P<number>\d+):(?P<text> .*)?$")


def in_files(message: str, program: ProgramText) -> str:
    """A message of Stan's compiler, or of a model, with lines of the files in place of those of the text.

    Of the lines that the compiler shows beside the one in question, those of other files are left out.
    """
    if not program.lines:
        return message
    current, written = None, []
    is_kept = True
    for text in message.split("\n"):
        excerpt = _EXCERPT.match(text)
        if excerpt is not None and current is not None:
            line = program.line(int(excerpt["number"]))
            is_kept = (line.file, line.includer) == (current.file, current.includer)
            if is_kept:
                written.append(f"{line.number:6d}:{excerpt['text'] or ''}")
            continue
        if text.strip() == "^" and not is_kept:
            continue
        for place in _PLACE.finditer(text):
            current = program.line(int(place["line"]))
        written.append(_PLACE.sub(lambda place: _in_file(place, program), text))
    return "\n".join(written)


def _in_file(place: re.Match[str], program: ProgramText) -> str:
    line = program.line(int(place["line"]))
    name = f"'{line.file}'" if line.file else place["name"]
    to = place["to"] or ""
    if place["last"]:
        to = to.replace(f"line {place['last']}", f"line {program.line(int(place['last'])).number}")
    text = f"{name}, line {line.number}{place['column'] or ''}{to}"
    while line.includer is not None:
        line = line.includer
        name = f"'{line.file}'" if line.file else place["name"]
        text += f", included from {name}, line {line.number}"
    return text


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # longer than a name can be, or with a NUL
        return False


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False
