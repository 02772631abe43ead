"""BridgeStan: Stan programs compiled by the user's C++ toolchain, or libraries that were compiled before."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import re
import tempfile
from pathlib import Path
from typing import Any

import bridgestan
from bridgestan.compile import compile_model, get_bridgestan_path
from bridgestan.download import CURRENT_BRIDGESTAN

from ....cache import cache_folder, private_folder
from ....errors import DataError, ModelError
from ...data import load, read
from ...includes import ProgramText
from ...program import has_fixed_bounds
from .division import checked_divisions
from .native import PROGRAM, NativeModel, in_plain_words, open_model

# Without it a library's autodiff stack is shared by all threads, and a second thread crashes the process.
MAKE_ARGS = ("STAN_THREADS=true",)
_LINES = 20  # of a compiler's output that an error shows
ATTEMPT = "Compiling it with BridgeStan"
_UNKNOWN = ProgramText("")  # of a library that was compiled elsewhere


def adopt(model: Any, data: Any) -> tuple[NativeModel, dict[str, Any]] | None:
    """An open `bridgestan.StanModel`, from BridgeStan or from stanli, with the data it was opened with."""
    if not (hasattr(model, "param_unc_num") and hasattr(model, "stanlib")):
        return None
    if data is not None:
        raise DataError("data are not allowed with an open StanModel: it was opened with its data")
    held = load(model.data, "model.data") if model.data else {}
    backend = "stanli" if held.pop("__stanli", None) else "bridgestan"
    return NativeModel(model, backend), read(held)


def open_program(program: ProgramText, data: str, seed: int) -> NativeModel:
    """Compile a Stan program (once per program, flags and version) and open it with data (JSON text)."""
    return open_library(compile_library(program), data, seed, program)


def open_library(library: Path, data: str, seed: int, program: ProgramText = _UNKNOWN) -> NativeModel:
    """Open a library that BridgeStan compiled; its messages name lines of `program`.

    Raises
    ------
    ModelError
        It cannot be loaded, or was compiled by a version with another C interface.
    DataError
        The data do not fit the program in it.
    """
    if not library.is_file():
        raise ModelError(f"model={str(library)!r}: there is no such file (working directory {Path.cwd()})")
    try:
        with checked_divisions():
            model = open_model(library, data, seed)
    except (OSError, AttributeError, ValueError) as error:
        raise ModelError(
            f"model={str(library)!r} is not a library that BridgeStan "
            f"{bridgestan.__version__} can open: {error}"
        ) from error
    except RuntimeError as error:
        reason = in_plain_words(str(error), program)
        raise DataError(f"data do not fit the Stan program: {reason}") from error
    return NativeModel(model, "bridgestan", program=program, fixed_bounds=has_fixed_bounds(program.code))


def compile_library(program: ProgramText) -> Path:
    """The library of a program, from the cache or the compiler.

    BridgeStan itself returns an existing library when only the flags changed, so the folder is named by a
    hash of everything that goes in: the program, what it includes, the flags, BridgeStan's version and
    where its sources are. It is built beside that folder and moved there when it is whole, so an interrupted
    build leaves nothing.

    Raises
    ------
    ModelError
        BridgeStan's sources or the compiler are missing, or the program does not compile.
    """
    try:
        library = _library(program.code)
        if library.exists():
            private_folder(library.parent)
            return library
    except OSError as error:
        raise ModelError(f"there is no safe place for the compiled program: {error}") from error
    if not sources_present():  # checked here because BridgeStan would download them, and wait for a server
        raise ModelError(_no_sources())
    home = library.parent
    with tempfile.TemporaryDirectory(prefix=f"{home.name}-", dir=home.parent) as scratch:
        building = Path(scratch) / "model"
        building.mkdir(mode=0o700)
        source = building / PROGRAM
        source.write_text(program.code, encoding="utf-8")
        try:
            compile_model(source, make_args=list(MAKE_ARGS))
        except (RuntimeError, ValueError, OSError) as error:
            reason = in_plain_words(_shorten(str(error)), program)
            raise ModelError(f"BridgeStan cannot compile the program: {reason}") from error
        with contextlib.suppress(OSError):  # another process has put the same library there meanwhile
            building.rename(home)
    return library


def is_at_hand(program: ProgramText) -> bool:
    """Whether a program can be opened without a download: it is compiled, or the sources are here."""
    return _library(program.code).exists() or sources_present()


def sources_path() -> Path | None:
    """Where BridgeStan's C++ sources are: in `BRIDGESTAN`, or where it downloads them; None without any."""
    with contextlib.redirect_stdout(io.StringIO()):
        path = get_bridgestan_path(download=False)
    return Path(path) if path and (Path(path) / "Makefile").exists() else None


def sources_present() -> bool:
    """Whether BridgeStan's C++ sources are on this machine."""
    return sources_path() is not None


def _library(code: str) -> Path:
    """Where the library of a program, includes written in place, is or will be."""
    return cache_folder("models") / _key(code) / "program_model.so"


def _no_sources() -> str:
    given = os.environ.get("BRIDGESTAN")
    looked = (
        f"the environment variable BRIDGESTAN is {given!r}, which holds no Makefile"
        if given
        else f"they are not in {CURRENT_BRIDGESTAN}, and the environment variable BRIDGESTAN is not set"
    )
    return (
        f"BridgeStan's C++ sources are not on this machine: {looked}. To download them: "
        'python -c "import bridgestan.compile as b; b.get_bridgestan_path()"'
    )


def _key(code: str) -> str:
    """The name of a program's folder in the cache."""
    where = os.environ.get("BRIDGESTAN", "")
    digest = hashlib.sha256()
    for part in (code, *MAKE_ARGS, bridgestan.__version__, where):
        digest.update(part.encode())
        digest.update(b"\0")
    return digest.hexdigest()[:24]


def _shorten(message: str) -> str:
    """The message of a failed build on stderr; of a long text only the lines with errors, and the end."""
    lines = [line for line in message.rpartition("\nstderr:\n")[2].splitlines() if line.strip()]
    if len(lines) > _LINES:
        errors = [line for line in lines[:-3] if re.search(r"\berror\b", line, re.IGNORECASE)]
        lines = [*errors[: _LINES - 3], *lines[-3:]]
    return "\n".join(lines)
