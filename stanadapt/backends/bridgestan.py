"""BridgeStan: Stan programs compiled by the user's C++ toolchain, or libraries that were compiled before."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import re
import shutil
import tempfile
from pathlib import Path

import bridgestan
from bridgestan.compile import compile_model, get_bridgestan_path

from ..cache import cache_home
from ..errors import DataError, ModelError
from .native import NativeModel

# Without it a library's autodiff stack is shared by all threads, and a second thread crashes the process.
MAKE_ARGS = ("STAN_THREADS=true",)
_INCLUDE = re.compile(r"^\s*#include\s+[<\"]?([^\s>\"]+)", re.MULTILINE)


def open_program(code: str, folder: Path | None, data: str, seed: int) -> NativeModel:
    """Compile a Stan program (once per program, flags and version) and open it with data (JSON text)."""
    return open_library(compiled(code, folder), data, seed)


def open_library(library: Path, data: str, seed: int) -> NativeModel:
    """Open a library that BridgeStan compiled.

    Raises
    ------
    ModelError
        It cannot be loaded, or was compiled by a version with another C interface.
    DataError
        The data do not fit the program in it.
    """
    try:
        model = bridgestan.StanModel(library, data, seed=seed, warn=False)
    except (OSError, AttributeError, ValueError) as error:
        raise ModelError(
            f"model={str(library)!r} is not a library that BridgeStan "
            f"{bridgestan.__version__} can open: {error}"
        ) from error
    except RuntimeError as error:
        raise DataError(f"data do not fit the Stan program: {str(error).strip()}") from error
    return NativeModel(model, "bridgestan")


def compiled(code: str, folder: Path | None) -> Path:
    """The library of a program, from the cache or the compiler.

    BridgeStan itself returns an existing library when only the flags changed, so the folder is named by a
    hash of everything that goes in: the program, what it includes, the flags and BridgeStan's version. It is
    built beside that folder and moved there when it is whole, so an interrupted build leaves nothing.
    """
    key = _key(code, folder)
    home = cache_home() / "models" / key
    library = home / "program_model.so"
    if library.exists():
        return library
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{key}-", dir=home.parent) as building:
        source = Path(building) / "program.stan"
        source.write_text(code, encoding="utf-8")
        include = [f"--include-paths={folder}"] if folder is not None else []
        said = io.StringIO()
        try:
            with contextlib.redirect_stdout(said):
                compile_model(source, stanc_args=include, make_args=list(MAKE_ARGS))
        except (RuntimeError, ValueError, OSError) as error:
            raise ModelError(f"BridgeStan cannot compile the program: {_shortened(str(error))}") from error
        with contextlib.suppress(OSError):  # another process has put the same library there meanwhile
            shutil.copytree(building, home, dirs_exist_ok=False)
    return library


def sources_present() -> bool:
    """Whether BridgeStan's C++ sources are on this machine, in `BRIDGESTAN` or where it downloads them."""
    with contextlib.redirect_stdout(io.StringIO()):
        path = get_bridgestan_path(download=False)
    return bool(path) and (Path(path) / "Makefile").exists()


def _key(code: str, folder: Path | None) -> str:
    digest = hashlib.sha256()
    for part in (code, *_included(code, folder), *MAKE_ARGS, bridgestan.__version__):
        digest.update(part.encode())
        digest.update(b"\0")
    digest.update(os.environ.get("BRIDGESTAN", "").encode())
    return digest.hexdigest()[:24]


def _included(code: str, folder: Path | None) -> list[str]:
    """Texts of the files that a program includes, and of those that they include."""
    texts: list[str] = []
    for name in _INCLUDE.findall(code):
        path = (folder or Path()) / name
        if path.is_file():
            text = path.read_text(encoding="utf-8")
            texts += [text, *_included(text, folder)]
    return texts


def _shortened(message: str) -> str:
    """The compiler's own lines of a long build log."""
    lines = [line for line in message.strip().splitlines() if line.strip()]
    telling = [line for line in lines if re.search(r"error|Error|does not|not found|Failed", line)]
    return "\n".join((telling or lines)[:12])
