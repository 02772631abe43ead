"""Opening a model: from whatever stands for a program to a log density in a backend."""

from __future__ import annotations

import functools
import hashlib
import importlib
import math
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

from .. import check
from ..errors import DataError, ModelError, warn
from . import BACKENDS, OBJECT_BACKENDS, PROGRAM_BACKENDS
from .backends.contract import Model, ObjectBackend, ProgramBackend, RefusedDataError, RefusedError
from .data import EVERY, conform, read, to_json
from .plugins import claim, open_outside
from .program import data_declarations, declarations, undeclared, with_includes
from .source import executable, is_library, is_opened, program_source, read_code

_NUMBER_BYTES = 8  # of a number in `transformed data`
_NAMED = 5  # entries that a warning names


class Opened(NamedTuple):
    """A model with what is known of where it came from."""

    model: Model
    code: str  # the program's text, nothing where it is unknown
    data: dict[str, Any]
    executable: str  # the path of a CmdStanModel's executable, or nothing


# Called with a program and its data as JSON, before a backend may take a minute to compile it.
Check = Callable[[str, str], None]


def open_model(
    model: Any, data: Any, backend: str, seed: int, before_compiling: Check | None = None
) -> Opened:
    """Open what a user gave as a model, with its data; see `Posterior`.

    `before_compiling` may raise an error that refuses a program. A CmdStanModel with its executable is not
    asked about: it has been compiled.

    Raises
    ------
    ArgumentError, ModelError, DataError
    """
    if backend not in BACKENDS:
        return _opened(open_outside(backend, model, data))
    for file in OBJECT_BACKENDS:
        adopted = cast(ObjectBackend, _backend(file)).adopt(model, data)
        if adopted is not None:
            return _opened(adopted)
    if is_opened(model):
        adopted = claim(model, data)
        if adopted is not None:
            return _opened(adopted)
    source = program_source(model)
    if is_library(source):
        return _open_library(source, data, seed)
    given = _read(source, data)
    found = executable(model)
    opened = _open_program(given, backend, seed, None if found else before_compiling)
    code, values = given.code, given.values
    if unused := undeclared(code, values):
        _tell_unused(hashlib.sha256(code.encode()).hexdigest(), tuple(unused))
    return Opened(opened, code, values, found)


@functools.lru_cache(maxsize=256)
def _tell_unused(program: str, names: tuple[str, ...]) -> None:
    """Once in a process for a program, by its hash, and such names: a typing error may be among them."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    warn(f"data have entries that the Stan program does not declare: {', '.join(names[:_NAMED])}{more}")


def _opened(adopted: tuple[Model, dict[str, Any]]) -> Opened:
    """A model that is no program."""
    return Opened(adopted[0], "", adopted[1], "")


def read_program(model: Any, data: Any) -> tuple[str, str]:
    """The text of a Stan program, and its data as JSON, of a model that is one; nothing of another."""
    if is_opened(model):
        return "", ""
    source = program_source(model)
    if is_library(source):
        return "", ""
    given = _read(source, data)
    return given.code, to_json(given.values)


def check_program(model: Any, backend: str) -> None:
    """Refuse a program, as `portable` gives it, that compiles with no data. Raises ModelError."""
    if isinstance(model, str) and backend != "bridgestan":
        from .backends.stan import stanli

        stanli.compiled(model, None)


class _Given(NamedTuple):
    """A Stan program and its data, as they are read."""

    text: str
    folder: Path | None  # to which the paths of its includes are relative
    code: str  # the text with its includes in place
    values: dict[str, Any]


def _read(source: Path | str, data: Any) -> _Given:
    """A program and data that fit it."""
    text, folder = read_code(source)
    code = with_includes(text, folder)
    try:
        return _Given(text, folder, code, _fitting_data(code, data))
    except DataError:
        from .backends.stan import stanli

        stanli.compiled(text, folder)  # where the program does not compile, the user is told that first
        raise


def _open_library(library: Path, data: Any, seed: int) -> Opened:
    """A library that BridgeStan compiled. It does not say which data it declares."""
    from .backends.stan import bridgestan

    readings: list[Container[str]] = [(), EVERY] if isinstance(data, Mapping) else [()]
    failures = []
    for tuples in readings:  # Python's tuples are arrays; or, where the library takes none, Stan tuples
        try:
            values = read(data, tuples=tuples)
            return Opened(bridgestan.open_library(library, to_json(values), seed), "", values, "")
        except DataError as error:
            failures.append(error)
    raise failures[0]


def _backend(file: str) -> Any:
    """The file of a backend. What it runs on is imported with it, so only when it is needed."""
    return importlib.import_module(f"stanadapt.model.backends.{file}")


def _fitting_data(code: str, data: Any) -> dict[str, Any]:
    declared = data_declarations(code)
    tuples = [name for name, declaration in declared.items() if declaration.type == "tuple"]
    values = conform(read(data, tuples=tuples), declared)
    _check_size(code, values)
    return values


def _check_size(code: str, data: Mapping[str, Any]) -> None:
    """Refuse negative sizes, and more values than memory holds: opening them may hang, or crash."""
    for block in ("parameters", "transformed parameters", "generated quantities"):
        for name, declaration in declarations(code, block).items():
            shape = declaration.shape(data)
            if None in shape:
                continue
            sizes = [size for size in shape if size is not None]
            if min(sizes, default=0) < 0:
                raise DataError(
                    f"data do not fit the Stan program: {name} ({declaration}) has the negative size "
                    f"{min(sizes)}; sizes must be at least 0"
                )
            if reason := check.too_many(math.prod(sizes)):
                raise ModelError(f"model: {name} ({declaration}) has {reason}")
    for name, declaration in declarations(code, "transformed data").items():
        shape = declaration.shape(data)
        size = 0 if None in shape else math.prod(abs(size or 0) for size in shape)
        if reason := check.too_many(size, _NUMBER_BYTES):
            raise ModelError(f"model: {name} ({declaration}) has {reason}")


def _open_program(given: _Given, backend: str, seed: int, before_compiling: Check | None) -> Model:
    """Open a program with the backend asked for; "auto" takes the first that does not refuse it."""
    code, folder, data = given.text, given.folder, to_json(given.values)
    refusal: RefusedError | RefusedDataError | None = None
    for name in PROGRAM_BACKENDS if backend == "auto" else (backend,):
        opener = cast(ProgramBackend, _backend(PROGRAM_BACKENDS[name]))
        if before_compiling is not None and name == "bridgestan":
            before_compiling(given.code, data)
        if refusal is not None and opener.is_at_hand(code, folder):
            warn(f"{refusal}. {opener.ATTEMPT} instead.")
        elif isinstance(refusal, RefusedDataError):
            continue
        try:
            return opener.open_program(code, folder, data, seed)
        except (RefusedError, RefusedDataError) as error:
            if backend != "auto" or (before_compiling is not None and isinstance(error, RefusedDataError)):
                raise
            refusal = error
        except DataError as error:
            if refusal is None:
                raise
            raise DataError(f"{error}. {check.one_line(refusal)}") from error
        except ModelError as error:
            if refusal is None:
                raise
            attempt = opener.ATTEMPT[0].lower() + opener.ATTEMPT[1:]
            raise ModelError(
                f"model: no backend can open it: {check.one_line(refusal)}; {attempt} is not possible: "
                f"{error}"
            ) from error
    assert refusal is not None
    raise refusal
