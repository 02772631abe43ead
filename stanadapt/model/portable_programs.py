"""Programs that other processes open: the form in which they get them, and what is seen before they begin."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..errors import ModelError
from .backends.contract import RefusedDataError, RefusedError
from .includes import ProgramText
from .opening import open_model
from .source import Contents, executable, is_opened, read_source


def portable(model: Any, include_paths: Any = ()) -> Any:
    """A program in the form in which another process or machine can open it, without the user's files.

    A program becomes its text with includes written in place. A library that BridgeStan compiled becomes its
    whole path. A CmdStanModel, whose executable may be needed, and an opened model stay what they are.

    Raises
    ------
    ArgumentError, ModelError
        It is no model, or its file cannot be read.
    """
    if is_opened(model) or executable(model):
        return model
    source = read_source(model, include_paths)
    return Contents(source.code) if source.library is None else source.library.resolve()


def program_digest(model: Any) -> str:
    """A hash of what `portable` gives for a program, for the record: 64 hexadecimal digits.

    Raises
    ------
    ModelError
        A library cannot be read.
    """
    if isinstance(model, str):
        return hashlib.sha256(model.encode()).hexdigest()
    if not isinstance(model, Path):
        return program_digest(read_source(model).code)
    try:
        return hashlib.sha256(model.read_bytes()).hexdigest()
    except OSError as error:
        raise ModelError(f"model={str(model)!r} cannot be read: {error}") from error


def check_program(model: Any, backend: str, include_paths: Any = ()) -> None:
    """Refuse a program that compiles with no data. Raises ModelError."""
    if is_opened(model) or executable(model) or backend == "bridgestan":
        return
    source = read_source(model, include_paths)
    if source.library is None:
        from .backends.stan import stanli

        stanli.compile_program(source.program)


def compile_program(model: Any, backend: str, is_refused: Callable[[], bool]) -> None:
    """Have the library of a program, as `portable` gives it, in the cache, where a C++ compiler makes one.

    Nothing of the program runs in this process: with its data it may be endless. With "auto" a compiler is
    asked where `is_refused` says that stanli does not take the program.

    Raises
    ------
    ModelError
        BridgeStan's sources or the compiler are missing, or the program does not compile.
    """
    if backend not in ("auto", "bridgestan") or not isinstance(model, str):
        return
    from .backends.stan import bridgestan

    if backend == "bridgestan" or (bridgestan.is_at_hand(ProgramText(model)) and is_refused()):
        bridgestan.compile_library(ProgramText(model))


def is_refused(model: Any, data: Any) -> bool:
    """Whether stanli refuses a program, as `portable` gives it, with its data."""
    try:
        open_model(model, data, "stanli")
    except (RefusedError, RefusedDataError):
        return True
    return False
