"""BLAS on one thread, while our own threads compute with it."""

from __future__ import annotations

import functools
import importlib
from contextlib import AbstractContextManager
from typing import Any


def one_thread() -> AbstractContextManager[Any]:
    """A context in which BLAS uses one thread, in the whole process.

    The thread that waits for the chains enters it. Chains already run side by side, so more threads of BLAS
    would only wait for each other, and they wait in loops that keep a core busy. Also, the last bits of a sum
    depend on the number of threads that share it, and then draws would depend on the number of workers.
    """
    limit: AbstractContextManager[Any] = _controller().limit(limits=1, user_api="blas")
    return limit


@functools.cache
def _controller() -> Any:
    """The object that controls BLAS. Making it takes as long as thousands of draws of a small model."""
    from threadpoolctl import ThreadpoolController

    importlib.import_module("scipy.linalg")  # so that both copies of BLAS are loaded
    return ThreadpoolController()
