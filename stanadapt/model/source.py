"""What a user gave for a model or for data: the path of a file, the contents of such a file, or an object."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

from .. import check
from ..errors import ArgumentError, ModelError
from .includes import ProgramText, check_include_paths, write_in_place

LIBRARIES = (".so", ".dll", ".dylib")  # endings of the files that BridgeStan compiles
_LIBRARY_OF = "_model"  # BridgeStan writes NAME_model.so for NAME.stan


class Contents(str):
    """The text of a program or of data itself, which is never taken for the path of a file.

    This package uses it for texts that it has read from a file or from a store.
    """

    __slots__ = ()


class ProgramSource(NamedTuple):
    """A program as it is read: a library that BridgeStan compiled, or text."""

    library: Path | None
    program: ProgramText  # with its includes in place; empty for a library
    executable: str  # the path of a CmdStanModel's executable, or nothing
    name: str  # see `model_name`

    @property
    def code(self) -> str:
        """The program's text."""
        return self.program.code


def is_path(given: str | os.PathLike[str], endings: tuple[str, ...], *, looks_like_contents: bool) -> bool:
    """Whether a model or data are the path of a file.

    A text is one if it ends like the name of such a file, if it does not look like the contents of one, or
    if there is a file of that name.
    """
    if not isinstance(given, str):
        return True
    if isinstance(given, Contents):
        return False
    if given.endswith(endings) or not looks_like_contents:
        return True
    try:
        return Path(given).is_file()
    except (OSError, ValueError):  # longer than a name can be, or with a NUL
        return False


def is_opened(model: Any) -> bool:
    """Whether a model is an object that only a backend for such objects can open, rather than a program."""
    is_program = isinstance(model, str | os.PathLike) or hasattr(model, "stan_file")
    return model is not None and not is_program


def is_function(model: Any) -> bool:
    """Whether a model is a function whose arguments are data, like a model of NumPyro."""
    return is_opened(model) and callable(model) and not isinstance(model, type)


def executable(model: Any) -> str:
    """The path of a CmdStanModel's executable, if it is one and has it; nothing otherwise."""
    found = getattr(model, "exe_file", None) if hasattr(model, "stan_file") else None
    return str(found) if isinstance(found, str | os.PathLike) else ""


def model_name(model: Any) -> str:
    """Return the name of a file without its ending, of an object or of a function; empty if it has none.

    It is for the titles of pages. No run depends on it.
    """
    given = getattr(model, "stan_file", None) or model
    if isinstance(given, Contents) or (isinstance(given, str) and any(sign in given for sign in "\n{")):
        return ""  # the text of a program
    name: Any
    if isinstance(given, str | os.PathLike):
        path = Path(given)
        name = path.stem if path.suffix == ".stan" else path.stem.removesuffix(_LIBRARY_OF)
    else:
        name = getattr(given, "name", None) or getattr(given, "__name__", "")
    is_name = isinstance(name, str) and name.isprintable() and name != "<lambda>"
    return name.encode(errors="replace").decode() if is_name else ""


def model_error(model: Any) -> ArgumentError:
    """The error that says what a model may be."""
    return check.refusal(
        "model",
        model,
        "a path to a .stan file, Stan program text, a library that BridgeStan compiled, a StanModel, "
        "a CmdStanModel, a PyMC model, a NumPyro model (with numpyro imported), a Target or a Posterior",
    )


def _locate(model: Any) -> Path | str:
    """The path or the program text that `model` stands for."""
    if isinstance(model, str):
        looks_like_code = "\n" in model or "{" in model or not model.strip()
        endings = (".stan", *LIBRARIES)
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
    raise model_error(model)


def read_source(model: Any, include_paths: Any = ()) -> ProgramSource:
    """Read what stands for a program, and the files that it includes.

    `include_paths` are more folders for these, see `includes.write_in_place`. Those of a CmdStanModel come
    after them.

    Raises
    ------
    ArgumentError, ModelError
        It is no model, or its file or an included one cannot be read.
    """
    folders = check_include_paths(include_paths)
    found = _locate(model)
    if isinstance(found, Path) and found.suffix in LIBRARIES:
        if folders:
            raise include_paths_error("a library that is compiled")
        return ProgramSource(found, ProgramText(""), "", model_name(model))
    text, folder = _read_code(found)
    program = write_in_place(text, folder, (*folders, *_own_include_paths(model)))
    return ProgramSource(None, program, executable(model), model_name(model))


def include_paths_error(what: str) -> ArgumentError:
    """The error for `include_paths` where nothing is included any more."""
    return ArgumentError(f"include_paths are not allowed with {what}: it includes no files")


def _own_include_paths(model: Any) -> list[Path]:
    """The folders in which a CmdStanModel looks for included files."""
    options = getattr(model, "stanc_options", None) if hasattr(model, "stan_file") else None
    given = options.get("include-paths", ()) if isinstance(options, dict) else ()
    folders = given.split(",") if isinstance(given, str) else given
    return [Path(each).resolve() for each in folders]


def _read_code(source: Path | str) -> tuple[str, Path | None]:
    """Program text and the folder that its includes are relative to."""
    if isinstance(source, str):
        return _checked_code("model", source), None
    label = f"model={check.quote(str(source))}"
    try:
        if source.is_dir():
            raise ModelError(f"{label} is a directory; a .stan file is needed")
        if not source.exists():
            raise ModelError(f"{label}: there is no such file (working directory {Path.cwd()})")
        if source.suffix != ".stan":
            raise ModelError(f"{label} does not end in .stan or in one of {', '.join(LIBRARIES)}")
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
