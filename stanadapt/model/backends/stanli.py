"""stanli: Stan programs without a C++ compiler, in milliseconds. The default backend."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import stanli

from ... import check
from ...errors import DataError, ModelError, warn
from ..program import with_includes, without_comments
from .base import RefusedError
from .native import NativeModel, strings_for_non_finite, without_notes

# Stan Math and the program itself speak for themselves; so does stanli of constraints. What else stanli says
# in its own name is of the program, or of data in a way that cannot be told from it.
_OWN_WORDS = re.compile(r"stanli (?!MIR check:)")

ATTEMPT = "Running it with stanli"
_PROGRAMS = 16  # compiled programs that are kept: who fits a program again has most likely just fitted it


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
        include = [str(folder)] if folder is not None else None
        return str(stanli.stan_to_mir(code, include_paths=include))
    except RuntimeError as error:
        raise ModelError(f"model: the Stan program does not compile.\n{str(error).strip()}") from error


def open_program(code: str, folder: Path | None, data: str, seed: int) -> NativeModel:
    """Open a Stan program with data (JSON text); `folder` is where its includes are searched.

    Raises
    ------
    ModelError
        The program does not compile; the message is Stan's own, with the line.
    RefusedError
        The program is valid, and stanli does not cover it, or not with these data.
    DataError
        The data do not fit the program: Stan's own checks of them say so, or the program rejects them.
    """
    intermediate = compiled(code, folder)
    try:
        with without_notes() as notes:
            model = stanli.bridgestan_model(
                mir=intermediate, data=strings_for_non_finite(data), seed=seed, name="stanadapt_model"
            )
    except RuntimeError as error:
        reason = check.one_line(error)
        if _OWN_WORDS.match(reason):
            raise RefusedError(
                f"stanli does not cover this program, or not with these data: {reason}"
            ) from error
        raise DataError(f"data do not fit the Stan program: {reason}") from error
    opened = NativeModel(model, "stanli", without_generated(code, folder))
    for note in notes:
        text = note.partition(" Please report")[0]
        if "unavailable" in text:  # it would run, and drop transformed parameters and generated quantities
            raise RefusedError(f"stanli does not cover this program: {text.rstrip('.')}")
        warn(f"stanli: {text}")
    return opened


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
        return str(stanli.stan_to_mir(text[: start.start()]))
    except RuntimeError:  # text that only the compiler can read: then failures of the block leave no values
        return ""
