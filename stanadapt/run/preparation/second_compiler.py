"""A second process that compiles what a first run lacks, from the other end of the list.

numba compiles in one thread at a time, so a second processor helps only a second process. Both share the
cache of kernels. Where both come to the same kernel, one of them waits and loads what the other has compiled
(jit.py). So nothing depends on the second process, not even on its start.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from ... import check
from ...child_processes import blocked_signals, end_with_parent, ignore_signals

_CODE = "from stanadapt.run.preparation import compiling; compiling.compile_for({parent}, {methods})"


@contextlib.contextmanager
def second_compiler(methods: Sequence[str]) -> Iterator[None]:
    """Meanwhile another process compiles what these methods need, if there is a processor for it."""
    process = _start(methods) if methods and check.available_cores() > 1 else None
    try:
        yield
    finally:
        if process is not None:
            process.kill()  # a kernel is written whole or not at all
            process.wait()


def _start(methods: Sequence[str]) -> subprocess.Popen[bytes] | None:
    if not sys.executable or getattr(sys, "frozen", False):  # it is no Python, but a program of the user's
        return None
    code = _CODE.format(parent=os.getpid(), methods=list(methods))
    path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)  # it finds the package that we are
    try:
        with blocked_signals():
            return subprocess.Popen(
                [sys.executable, "-c", code],
                env=os.environ | {"PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
    except OSError:
        return None


def follow(parent: int) -> None:
    """Make this process a second compiler: signals are the parent's matter, and it ends with the parent."""
    ignore_signals()
    end_with_parent(parent)
