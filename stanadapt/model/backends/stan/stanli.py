"""stanli: Stan programs without a C++ compiler, in milliseconds. The default backend."""

from __future__ import annotations

import contextlib
import functools
import json
import re
import subprocess
import sys

import stanli

from .... import check
from ....errors import ModelError, warn
from ...includes import ProgramText, in_files
from ...program import has_fixed_bounds, without_comments
from .division import checked_divisions
from .native import NativeModel, hear, strings_for_non_finite, without_notes
from .stanli_words import in_words

ATTEMPT = "Running it with stanli"
_PROGRAMS = 16  # compiled programs that are kept: a program is most likely fitted again soon after

# Stan's compiler in a process of its own: the program in, the result or an error out.
_APART = """
import json, sys, stanli
code = json.load(sys.stdin)
try:
    found = [stanli.stan_to_mir(code), None]
except RuntimeError as error:
    found = [None, str(error)]
json.dump(found, sys.stdout)
"""
_begun = False  # whether Stan's compiler has run in this process


def is_at_hand(program: ProgramText) -> bool:
    """Whether a program can be opened here and now: it always can."""
    return True


def compile_program(program: ProgramText) -> str:
    """The program in stanli's intermediate form. Raises ModelError with Stan's own message and the line."""
    try:
        return _compile(program.code)
    except RuntimeError as error:
        said = in_files(str(error).strip(), program)
        raise ModelError(f"model: the Stan program does not compile.\n{said}") from error


@functools.lru_cache(maxsize=_PROGRAMS)
def _compile(code: str) -> str:
    return _intermediate(code)


def _intermediate(code: str) -> str:
    """What Stan's compiler makes of a program. Raises RuntimeError with its message.

    It is written in OCaml, whose runtime makes a stack for signals when it starts. Where XLA has asked the
    system for the matrix registers of a processor (AMX), that stack is too small, and the runtime aborts the
    process. So once JAX is there, the compiler does not start in this process any more.
    """
    global _begun
    if _begun or "jaxlib" not in sys.modules or not sys.executable:
        _begun = True
        return str(stanli.stan_to_mir(code))
    done = subprocess.run(
        [sys.executable, "-P", "-c", _APART],
        input=json.dumps(code),
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


def open_program(program: ProgramText, data: str, seed: int) -> NativeModel:
    """Open a Stan program with data (JSON text).

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
    intermediate = compile_program(program)
    try:
        with without_notes() as notes, checked_divisions():
            _hear()
            model = stanli.bridgestan_model(
                mir=intermediate,
                data=strings_for_non_finite(data),
                seed=seed,
                name="stanadapt_model",
                capture_stan_prints=False,
            )
    except RuntimeError as error:
        raise in_words(check.one_line(error), program) from error
    fixed = has_fixed_bounds(program.code)
    opened = NativeModel(model, "stanli", without_generated(program.code), fixed_bounds=fixed)
    for note in notes:
        text = note.partition(" Please report")[0]
        if "unavailable" in text:  # it would run, and drop transformed parameters and generated quantities
            raise in_words(_reason(text), program)
        warn(f"stanli: {text}")
    return opened


def _hear() -> None:
    """Have stanli's library print where others do, from the first program on that is opened in it."""
    with contextlib.suppress(AttributeError):  # of another version; the second program's lines are heard
        hear(stanli._runtime_lib_path())


def _reason(note: str) -> str:
    """Why generated quantities are unavailable, out of what stanli prints of it."""
    found = re.search(r"failed at every probe point \((.*?)\), so transformed", note)
    return found[1] if found else note.rstrip(".")


@functools.lru_cache(maxsize=_PROGRAMS)
def without_generated(code: str) -> str:
    """stanli's form of the program without its last block, the generated quantities; empty if it has none."""
    text = without_comments(code)
    start = re.search(r"\bgenerated\s+quantities\s*\{", text)
    if start is None:
        return ""
    try:
        return _intermediate(text[: start.start()])
    except RuntimeError:  # text that only the compiler can read: then failures of the block leave no values
        return ""
