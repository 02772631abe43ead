"""Copies of the cache of kernels, for processes that have another cache and are not to compile everything."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

from stanadapt.compiler.kernel_folder import cache_folder


def copy_kernels(folder: Path, without: tuple[str, ...] = ()) -> None:
    """Copy what is compiled of this version of the sources to `folder`, but no files that begin so."""
    for path in cache_folder().rglob("*.code"):
        if not path.name.startswith(without):
            target = folder / path.relative_to(cache_folder())
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):  # another process has replaced it
                shutil.copy(path, target)
