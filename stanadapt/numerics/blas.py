"""BLAS on one thread, where chains compute with it."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator
from typing import Any

_lock = threading.Lock()
_inside = 0
_limit: Any = None


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Keep BLAS to one thread meanwhile, in the whole process.

    Chains run side by side already, and the last bits of a sum depend on how many threads shared it: draws
    would depend on the number of workers. The limit is that of the process, so those inside are counted, and
    the last one out lifts it.
    """
    global _inside, _limit
    with _lock:
        if _inside == 0:
            _limit = _controller().limit(limits=1, user_api="blas")
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                _limit.restore_original_limits()


@functools.cache
def _controller() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
