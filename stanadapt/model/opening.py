"""Opening a model: from whatever stands for a program to a log density in a backend."""

from __future__ import annotations

import functools
import hashlib
import importlib
import math
import os
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

from .. import check
from ..errors import DataError, ModelError, warn
from . import BACKENDS, OBJECT_BACKENDS, PROGRAM_BACKENDS
from .backends.contract import Model, ObjectBackend, ProgramBackend, RefusedDataError, RefusedError
from .data import EVERY, conform, read, to_json
from .plugins import claim, open_outside
from .program import data_declarations, declarations, undeclared, with_includes
from .source import Contents, is_path

_NUMBER_BYTES = 8  # of a number in `transformed data`
_LIBRARIES = (".so", ".dll", ".dylib")
_NAMED = 5  # entries that a warning names


class Opened(NamedTuple):
    """A model with what is known of where it came from."""

    model: Model
    code: str  # the program's text, nothing where it is unknown
    data: dict[str, Any]
    executable: str  # the path of a CmdStanModel's executable, or nothing


def open_model(model: Any, data: Any, backend: str, seed: int) -> Opened:
    """Open what a user gave as a model, with its data; see `Posterior`.

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
    source = _stan_file(model)
    if isinstance(source, Path) and source.suffix in _LIBRARIES:
        return _open_library(source, data, seed)
    text, folder, code, values = _program_and_data(source, data)
    opened = _open_program(text, folder, to_json(values), backend, seed)
    if unused := undeclared(code, values):
        _tell_unused(hashlib.sha256(code.encode()).hexdigest(), tuple(unused))
    return Opened(opened, code, values, executable(model))


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
    source = _stan_file(model)
    if isinstance(source, Path) and source.suffix in _LIBRARIES:
        return "", ""
    _, _, code, values = _program_and_data(source, data)
    return code, to_json(values)


def is_opened(model: Any) -> bool:
    """Whether a model is an object that only a backend for such objects can open, rather than a program."""
    is_program = isinstance(model, str | os.PathLike) or hasattr(model, "stan_file")
    return model is not None and not is_program


def is_function(model: Any) -> bool:
    """Whether a model is a function whose arguments are data, as those of NumPyro are."""
    return is_opened(model) and callable(model) and not isinstance(model, type)


def portable(model: Any) -> Any:
    """A program in the form in which another process or machine can open it, without the user's files.

    That is its text with includes written in place; a library that BridgeStan compiled, and a CmdStanModel,
    whose executable may be wanted, stay what they are, and so does a model that is opened.

    Raises
    ------
    ArgumentError, ModelError
        It is no model, or its file cannot be read.
    """
    if is_opened(model) or executable(model):
        return model
    source = _stan_file(model)
    if isinstance(source, Path) and source.suffix in _LIBRARIES:
        return source.resolve()
    return Contents(with_includes(*_program(source)))


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
        return program_digest(with_includes(*_program(_stan_file(model))))
    try:
        return hashlib.sha256(model.read_bytes()).hexdigest()
    except OSError as error:
        raise ModelError(f"model={str(model)!r} cannot be read: {error}") from error


def check_program(model: Any, backend: str) -> None:
    """Refuse a program, as `portable` gives it, that compiles with no data. Raises ModelError."""
    if isinstance(model, str) and backend != "bridgestan":
        from .backends.stan import stanli

        stanli.compiled(model, None)


def _program_and_data(source: Path | str, data: Any) -> tuple[str, Path | None, str, dict[str, Any]]:
    """Program text, the folder of its includes, the text with these written in place, and fitting data."""
    text, folder = _program(source)
    code = with_includes(text, folder)
    try:
        return text, folder, code, _fitting_data(code, data)
    except DataError:
        from .backends.stan import stanli

        stanli.compiled(text, folder)  # a program that does not compile is to be told of first
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


def _stan_file(model: Any) -> Path | str:
    """The path or the program text that `model` stands for."""
    if isinstance(model, str):
        looks_like_code = "\n" in model or "{" in model or not model.strip()
        endings = (".stan", *_LIBRARIES)
        return Path(model) if is_path(model, endings, looks_like_contents=looks_like_code) else model
    if isinstance(model, os.PathLike) and isinstance(os.fspath(model), str):
        return Path(model)
    if hasattr(model, "stan_file") and hasattr(model, "exe_file"):
        if model.stan_file is None:
            raise ModelError(
                "model: this CmdStanModel has only an executable; its Stan file is needed, "
                "CmdStanModel(stan_file=...)"
            )
        return Path(model.stan_file)
    raise check.refused(
        "model",
        model,
        "a path to a .stan file, Stan program text, a library that BridgeStan compiled, a StanModel, "
        "a CmdStanModel, a PyMC model, a NumPyro model (with numpyro imported), a Target or a Posterior",
    )


def executable(model: Any) -> str:
    """The path of a CmdStanModel's executable, if it is one and has it; nothing otherwise."""
    found = getattr(model, "exe_file", None) if hasattr(model, "stan_file") else None
    return str(found) if isinstance(found, str | os.PathLike) else ""


def _program(source: Path | str) -> tuple[str, Path | None]:
    """Program text and the folder that its includes are relative to."""
    if isinstance(source, str):
        return _checked_code("model", source), None
    label = f"model={check.shown(str(source))}"
    try:
        if source.is_dir():
            raise ModelError(f"{label} is a directory; a .stan file is needed")
        if not source.exists():
            raise ModelError(f"{label}: there is no such file (working directory {Path.cwd()})")
        if source.suffix != ".stan":
            raise ModelError(f"{label} does not end in .stan or in one of {', '.join(_LIBRARIES)}")
        code = source.read_text(encoding="utf-8-sig")  # with or without the mark that some editors write
        return _checked_code(label, code), source.resolve().parent
    except (OSError, ValueError) as error:
        raise ModelError(f"{label} cannot be read: {error}") from error


def _checked_code(label: str, code: str) -> str:
    """Program text that can go to a compiler: native code would read it up to the first NUL only."""
    if not code.strip():
        raise ModelError(f"{label}: the Stan program is empty")
    if "\0" in code:
        raise ModelError(f"{label}: the Stan program has a NUL character at position {code.index(chr(0))}")
    try:
        code.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ModelError(f"{label}: the Stan program is not valid Unicode: {error}") from error
    return code


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


def _open_program(code: str, folder: Path | None, data: str, backend: str, seed: int) -> Model:
    """Open a program with the backend asked for; "auto" takes the first that does not refuse it."""
    refusal: RefusedError | RefusedDataError | None = None
    for name in PROGRAM_BACKENDS if backend == "auto" else (backend,):
        opener = cast(ProgramBackend, _backend(PROGRAM_BACKENDS[name]))
        if refusal is not None and opener.is_at_hand(code, folder):
            warn(f"{refusal}. {opener.ATTEMPT} instead.")
        elif isinstance(refusal, RefusedDataError):
            continue
        try:
            return opener.open_program(code, folder, data, seed)
        except (RefusedError, RefusedDataError) as error:
            if backend != "auto":
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
