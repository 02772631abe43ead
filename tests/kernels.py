"""Copies of the cache of kernels, for processes that are not to compile everything, and counts of arrays."""

from __future__ import annotations

import contextlib
import gc
import shutil
from collections.abc import Iterator
from pathlib import Path

from numba.core.runtime import _nrt_python

from stanadapt.compiler.kernel_folder import cache_folder
from stanadapt.garbage import paused_collector


def copy_kernels(folder: Path, without: tuple[str, ...] = ()) -> None:
    """Copy what is compiled of this version of the sources to `folder`, but no files that begin so."""
    for path in cache_folder().rglob("*.code"):
        if not path.name.startswith(without):
            target = folder / path.relative_to(cache_folder())
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):  # another process has replaced it
                shutil.copy(path, target)


@contextlib.contextmanager
def counted_arrays() -> Iterator[None]:
    """numba counts the arrays that kernels make and free; what earlier tests have left is not among them."""
    gc.collect()
    with paused_collector():
        _nrt_python.memsys_enable_stats()
        try:
            yield
        finally:
            _nrt_python.memsys_disable_stats()
