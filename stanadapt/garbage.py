"""A pause of Python's garbage collector where much is made that stays: imports and compilation.

Imports make half a million objects, and a compilation makes a few million, of which most are still needed.
Python looks through all of them again and again for circles that nobody needs: a sixth of the time of an
import or of a compilation goes there.
"""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator

_lock = threading.Lock()
_open = 0  # contexts in which the collector pauses
_was_on = False  # before the first of them


@contextlib.contextmanager
def paused_collector() -> Iterator[None]:
    """A context without garbage collections. A collector that the user has switched off stays off.

    Contexts of several threads may overlap: the last one that ends switches the collector on.
    """
    global _open, _was_on
    with _lock:
        if not _open:
            _was_on = gc.isenabled()
            gc.disable()
        _open += 1
    try:
        yield
    finally:
        with _lock:
            _open -= 1
            if not _open and _was_on:
                gc.enable()
