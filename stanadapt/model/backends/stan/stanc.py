"""Warnings of stanc, Stan's compiler, in its pedantic mode.

stanli has this compiler inside, without a way to ask for its warnings. So they come from a program named
stanc, where one is found: that of the environment variable STANC, of CmdStan, of BridgeStan, on the path, or
of PyStan, whose package httpstan brings one along.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from .... import check
from ....errors import ModelError
from ...includes import ProgramText
from .bridgestan import sources_path
from .native import PROGRAM

_WARNING = re.compile(
    r"^Warning(?: in '[^'\n]*', line (?P<line>\d+), column \d+(?: to (?:line \d+, )?column \d+)?)?:",
    re.MULTILINE,
)
_SECONDS = 60  # that stanc may take
_NOT_FOUND = (
    "the warnings of stanc's pedantic mode are not to be had: stanli has none, and no program named stanc "
    "was found, neither by the environment variable STANC nor in CmdStan, in BridgeStan, on the path or in "
    "the package httpstan. pip install httpstan brings one"
)


def find_stanc() -> Path | None:
    """The first stanc that there is."""
    return next((path for path in _places() if path.is_file() and os.access(path, os.X_OK)), None)


def _places() -> Iterator[Path]:
    name = "stanc.exe" if os.name == "nt" else "stanc"
    if given := os.environ.get("STANC"):
        yield Path(given)
    if given := os.environ.get("CMDSTAN"):
        yield Path(given) / "bin" / name
    # Where CmdStanPy installs it, the newest first.
    found = Path.home().glob(f".cmdstan/cmdstan-*/bin/{name}")
    yield from sorted(found, key=lambda path: _version(path.parents[1].name), reverse=True)
    if (sources := sources_path()) is not None:
        yield sources / "bin" / name
    if on_path := shutil.which("stanc"):
        yield Path(on_path)
    spec = importlib.util.find_spec("httpstan")
    if spec is not None and spec.origin:
        yield Path(spec.origin).parent / name


def _version(name: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", name)]


def pedantic_warnings(program: ProgramText) -> list[str]:
    """What stanc has to say against a program, a sentence or more for each, with lines of the user's files.

    Raises
    ------
    ModelError
        There is no stanc, or it cannot read the program.
    """
    stanc = find_stanc()
    if stanc is None:
        raise ModelError(_NOT_FOUND)
    with tempfile.TemporaryDirectory(prefix="stanadapt-") as folder:
        source = Path(folder) / PROGRAM
        source.write_text(program.code, encoding="utf-8")
        try:
            done = subprocess.run(
                [stanc, "--warn-pedantic", f"--o={Path(folder) / 'program.hpp'}", source],
                capture_output=True,
                text=True,
                encoding="utf-8",
                errors="replace",
                check=False,
                timeout=_SECONDS,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ModelError(f"{stanc} cannot be run: {check.one_line(error)}") from error
    if done.returncode:
        reason = check.one_line(RuntimeError(done.stderr or done.stdout))
        raise ModelError(
            f"{stanc} cannot read the program, perhaps because it is of another version: {reason}"
        )
    return _in_sentences(done.stderr, program)


def _in_sentences(said: str, program: ProgramText) -> list[str]:
    """The warnings in stanc's output, by line, with the line breaks of its terminal taken out."""
    starts = list(_WARNING.finditer(said))
    ends = [*(start.start() for start in starts), len(said)][1:]
    found = []
    for start, end in zip(starts, ends, strict=True):
        number = int(start["line"]) if start["line"] else 0
        text = " ".join(said[start.end() : end].split())
        found.append((number, f"{program.line(number)}: {text}" if number else text))
    return [text for _, text in sorted(found, key=lambda each: each[0])]
