"""stanli: Stan programs without a C++ compiler, in milliseconds. The default backend."""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
from pathlib import Path

import stanli

from .... import check
from ....errors import ModelError, warn
from ...program import with_includes, without_comments
from .division import checked_divisions
from .native import NativeModel, strings_for_non_finite, without_notes
from .stanli_words import in_words

ATTEMPT = "Running it with stanli"
_PROGRAMS = 16  # compiled programs that are kept: a program is most likely fitted again soon after

# Stan's compiler in a process of its own: the program and its include folders in, the result or an error out.
_APART = """
import json, sys, stanli
code, include = json.load(sys.stdin)
try:
    found = [stanli.stan_to_mir(code, include_paths=include), None]
except RuntimeError as error:
    found = [None, str(error)]
json.dump(found, sys.stdout)
"""
_begun = False  # whether Stan's compiler has run in this process


def is_at_hand(code: str, folder: Path | None) -> bool:
    """Whether a program can be opened here and now: it always can."""
    return True


def compiled(code: str, folder: Path | None) -> str:
    """The program in stanli's intermediate form. Raises ModelError with Stan's own message and the line."""
    whole = with_includes(code, folder)
    # An include that is still there comes from a place that is not looked at here, and may have changed.
    compile_program = _compile.__wrapped__ if "#include" in whole else _compile
    return str(compile_program(code, folder, whole))


@functools.lru_cache(maxsize=_PROGRAMS)
def _compile(code: str, folder: Path | None, whole: str) -> str:
    """The same; `whole` has the includes written in place, so that an edit of one is noticed."""
    try:
        return _intermediate(code, [str(folder)] if folder is not None else None)
    except RuntimeError as error:
        raise ModelError(f"model: the Stan program does not compile.\n{str(error).strip()}") from error


def _intermediate(code: str, include: list[str] | None = None) -> str:
    """What Stan's compiler makes of a program. Raises RuntimeError with its message.

    It is written in OCaml, whose runtime makes a stack for signals when it starts. Where XLA has asked the
    system for the matrix registers of a processor (AMX), that stack is too small, and the runtime aborts the
    process. So once JAX is there, the compiler does not start in this process any more.
    """
    global _begun
    if _begun or "jaxlib" not in sys.modules or not sys.executable:
        _begun = True
        return str(stanli.stan_to_mir(code, include_paths=include))
    done = subprocess.run(
        [sys.executable, "-P", "-c", _APART],
        input=json.dumps([code, include]),
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"Stan's compiler ended with status {done.returncode}: {done.stderr.strip()}")
    found, message = json.loads(done.stdout)
    if message is not None:
        raise RuntimeError(message)
    return str(found)


def open_program(code: str, folder: Path | None, data: str, seed: int) -> NativeModel:
    """Open a Stan program with data (JSON text); `folder` is where its includes are searched.

    Raises
    ------
    ModelError
        The program does not compile; the message is Stan's own, with the line.
    RefusedError
        The program is valid, and stanli does not cover it.
    RefusedDataError
        In stanli's words, values do not go together.
    DataError
        The data do not fit the program: Stan's own checks of them say so, or the program rejects them.
    """
    intermediate = compiled(code, folder)
    try:
        with without_notes() as notes, checked_divisions():
            model = stanli.bridgestan_model(
                mir=intermediate, data=strings_for_non_finite(data), seed=seed, name="stanadapt_model"
            )
    except RuntimeError as error:
        raise in_words(check.one_line(error), code, folder) from error
    opened = NativeModel(model, "stanli", without_generated(code, folder))
    for note in notes:
        text = note.partition(" Please report")[0]
        if "unavailable" in text:  # it would run, and drop transformed parameters and generated quantities
            raise in_words(_reason(text), code, folder)
        warn(f"stanli: {text}")
    return opened


def _reason(note: str) -> str:
    """Why generated quantities are unavailable, out of what stanli prints of it."""
    found = re.search(r"failed at every probe point \((.*?)\), so transformed", note)
    return found[1] if found else note.rstrip(".")


def without_generated(code: str, folder: Path | None) -> str:
    """stanli's form of the program without its last block, the generated quantities; empty if it has none."""
    return _without_generated(with_includes(code, folder))


@functools.lru_cache(maxsize=_PROGRAMS)
def _without_generated(whole: str) -> str:
    text = without_comments(whole)
    start = re.search(r"\bgenerated\s+quantities\s*\{", text)
    if start is None:
        return ""
    try:
        return _intermediate(text[: start.start()])
    except RuntimeError:  # text that only the compiler can read: then failures of the block leave no values
        return ""
