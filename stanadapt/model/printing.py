"""What Stan programs print: whole lines in the log, each with the chain that printed it.

The log is Python's logger `stanadapt`, at level INFO. Where nobody has set logging up, its lines go to
stderr. A line is written once: not again where a chain opens the same program for itself, or where a point is
evaluated a second time for the reason of a failure.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from collections.abc import Iterator
from typing import TypeVar

LOGGER = logging.getLogger("stanadapt")
if LOGGER.level == logging.NOTSET:
    LOGGER.setLevel(logging.INFO)

_Value = TypeVar("_Value")
_here = threading.local()  # chain, whether and where lines are written, and the one that is not complete yet


def prints_of(chain: int) -> contextlib.AbstractContextManager[int]:
    """What this thread prints meanwhile is of this chain."""
    return _meanwhile("chain", chain)


def gather_prints() -> contextlib.AbstractContextManager[list[str]]:
    """Collect the lines that this thread prints meanwhile, in place of logging them."""
    return _meanwhile("lines", [])


def keep_prints() -> contextlib.AbstractContextManager[list[str]]:
    """Collect the lines that this thread would log meanwhile, so that another process can log them."""
    return _meanwhile("kept", [])


def no_prints() -> contextlib.AbstractContextManager[bool]:
    """What this thread prints meanwhile was printed before, or the user did not ask for the evaluation."""
    return _meanwhile("is_silent", True)


@contextlib.contextmanager
def _meanwhile(name: str, value: _Value) -> Iterator[_Value]:
    before = getattr(_here, name, None)
    setattr(_here, name, value)
    try:
        yield value
    finally:
        setattr(_here, name, before)


def print_bytes(text: bytes) -> None:
    """Log the lines that are complete now; other threads may be in the middle of theirs."""
    begun = getattr(_here, "begun", b"") + text
    whole, newline, _here.begun = begun.rpartition(b"\n")
    if newline:
        log_lines(whole.decode("utf-8", errors="replace"))


def log_lines(text: str) -> None:
    """Log lines of this thread's chain."""
    gathered = getattr(_here, "lines", None)
    if gathered is not None:
        gathered += text.split("\n")
        return
    if getattr(_here, "is_silent", False):
        return
    kept = getattr(_here, "kept", None)
    if kept is not None:
        kept += text.split("\n")
        return
    chain = getattr(_here, "chain", None)
    head = "" if chain is None else f"chain {chain}: "
    for line in text.split("\n"):
        if LOGGER.hasHandlers():
            LOGGER.info("%s%s", head, line)
        elif LOGGER.isEnabledFor(logging.INFO) and sys.stderr is not None:
            sys.stderr.write(f"{head}{line}\n")
