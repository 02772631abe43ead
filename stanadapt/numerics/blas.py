"""BLAS on one thread, where chains compute with it."""

from __future__ import annotations

import functools
import importlib
from contextlib import AbstractContextManager
from typing import Any


def one_thread() -> AbstractContextManager[Any]:
    """Keep BLAS to one thread meanwhile, in the whole process; for the thread that waits for the others.

    Chains run side by side already, so more threads only wait for each other; and the last bits of a sum
    depend on how many threads shared it, so that draws would depend on the number of workers.
    """
    limit: AbstractContextManager[Any] = _controller().limit(limits=1, user_api="blas")
    return limit


@functools.cache
def _controller() -> Any:
    """What knows the libraries; looking for them takes as long as thousands of draws from a small model."""
    from threadpoolctl import ThreadpoolController

    importlib.import_module("scipy.linalg")  # that both copies of BLAS are loaded
    return ThreadpoolController()
