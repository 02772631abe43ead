"""Opening a model: from a user's program or object to a log density in a backend."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

from .. import check
from ..errors import ArgumentError, DataError, ModelError, warn
from . import BACKENDS, OBJECT_BACKENDS, PROGRAM_BACKENDS
from .backends.contract import Model, ObjectBackend, ProgramBackend, RefusedDataError, RefusedError
from .data import EVERY, read, to_json
from .includes import check_include_paths
from .labelled_data import DataLabels, is_table, unpack
from .plugins import check_backend, claim, open_outside
from .program_data import read_labelled, tell_unused
from .source import (
    ProgramSource,
    include_paths_error,
    is_opened,
    model_error,
    model_name,
    read_source,
)

NO_LABELS = DataLabels.none()


class Opened(NamedTuple):
    """A model, and where it came from: all that a `Posterior` holds."""

    model: Model
    code: str  # the program's text, nothing where it is unknown
    data: dict[str, Any]
    executable: str  # the path of a CmdStanModel's executable, or nothing
    name: str  # what the model is called, or nothing
    seed: int  # of the random numbers in `transformed data`
    labels: DataLabels = NO_LABELS


_NOT_PEDANTIC = ArgumentError(
    "pedantic=True is not allowed with a model that is no Stan program: stanc reads the text of a program"
)


# Called with a program and its data as JSON, before a backend may take a minute to compile it.
Check = Callable[[str, str], None]


def open_model(
    model: Any,
    data: Any,
    backend: str,
    seed: int = 0,
    before_compiling: Check | None = None,
    include_paths: Any = (),
    pedantic: bool = False,
) -> Opened:
    """Open a user's model with its data; see `Posterior`.

    `before_compiling` may raise an error that refuses a program. It is not called for a CmdStanModel with
    its executable, which is already compiled.

    Raises
    ------
    ArgumentError, ModelError, DataError
    """
    if check_backend(backend) in BACKENDS and not is_opened(model):
        source = read_source(model, include_paths)
        if pedantic:
            tell_pedantic(source)
        return open_source(source, data, backend, seed, before_compiling)
    if pedantic:
        raise _NOT_PEDANTIC
    if check_include_paths(include_paths):
        raise include_paths_error("a model that is no Stan program")
    adopted, held = _adopt(model, data) if backend in BACKENDS else open_outside(backend, model, data)
    return Opened(adopted, "", held, "", model_name(model), seed)


def tell_pedantic(source: ProgramSource) -> None:
    """Warn of what stanc's pedantic mode finds; or that it cannot be asked."""
    from .backends.stan.stanc import pedantic_warnings

    if source.library is not None:
        raise _NOT_PEDANTIC
    try:
        for text in pedantic_warnings(source.program):
            warn(f"stanc: {text}")
    except ModelError as error:
        warn(f"pedantic=True: {error}")


def _adopt(model: Any, data: Any) -> tuple[Model, dict[str, Any]]:
    """An object and its data, by the first backend that takes it. Raises ArgumentError where none does."""
    for file in OBJECT_BACKENDS:
        adopted = cast(ObjectBackend, _backend(file)).adopt(model, data)
        if adopted is not None:
            return adopted
    adopted = claim(model, data)
    if adopted is None:
        raise model_error(model)
    return adopted


def open_source(
    source: ProgramSource, data: Any, backend: str, seed: int, before_compiling: Check | None = None
) -> Opened:
    """Open a program, or a library, that has been read; see `open_model`."""
    if source.library is not None:
        model, values = _open_library(source.library, data, seed)
        labels = NO_LABELS
    else:
        values, labels = read_labelled(source, data)
        model = _open_program(source, values, backend, seed, before_compiling)
        tell_unused(source.code, values)
    return Opened(model, source.code, values, source.executable, source.name, seed, labels)


def _open_library(library: Path, data: Any, seed: int) -> tuple[Model, dict[str, Any]]:
    """A library that BridgeStan compiled. It does not say which data it declares."""
    from .backends.stan import bridgestan

    if is_table(data):
        raise DataError(
            "data are a table, and a library does not say which of its columns it declares: pass a dict"
        )
    data, _ = unpack(data, {}, "")
    readings: list[Container[str]] = [(), EVERY] if isinstance(data, Mapping) else [()]
    failures = []
    for tuples in readings:  # Python's tuples are arrays; or, where the library takes none, Stan tuples
        try:
            values = read(data, tuples=tuples)
            return bridgestan.open_library(library, to_json(values), seed), values
        except DataError as error:
            failures.append(error)
    raise failures[0]


def _backend(file: str) -> Any:
    """The file of a backend. It imports the libraries of the backend, so it is imported only when needed."""
    return importlib.import_module(f"stanadapt.model.backends.{file}")


def _open_program(
    source: ProgramSource, values: dict[str, Any], backend: str, seed: int, before_compiling: Check | None
) -> Model:
    """Open a program with the backend asked for; "auto" takes the first that does not refuse it."""
    program, data = source.program, to_json(values)
    if source.executable:  # it has been compiled
        before_compiling = None
    refusal: RefusedError | RefusedDataError | None = None
    for name in PROGRAM_BACKENDS if backend == "auto" else (backend,):
        opener = cast(ProgramBackend, _backend(PROGRAM_BACKENDS[name]))
        if before_compiling is not None and name == "bridgestan":
            before_compiling(source.code, data)
        if refusal is not None and opener.is_at_hand(program):
            warn(f"{refusal}. {opener.ATTEMPT} instead.")
        elif isinstance(refusal, RefusedDataError):
            continue
        try:
            return opener.open_program(program, data, seed)
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
