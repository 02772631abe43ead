"""Ctrl-C: the first asks all chains to stop, the second gives up."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from multiprocessing import resource_tracker

from .board import Board


@contextlib.contextmanager
def interrupts(board: Board) -> Iterator[None]:
    """Ctrl-C meanwhile: the first asks all to stop, on the board; the second is raised as KeyboardInterrupt.

    A handler, because an exception that can come between any two lines would now and then lose the run.
    Outside the main thread Python allows none, and delivers no Ctrl-C either.
    """

    seen = False

    def handle(*_: object) -> None:
        nonlocal seen
        if seen:
            raise KeyboardInterrupt
        seen = True
        board.stop()

    present = signal.getsignal(signal.SIGINT)
    ours = threading.current_thread() is threading.main_thread() and present not in (None, signal.SIG_IGN)
    if not ours:
        yield
        return
    signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, present)


@contextlib.contextmanager
def blocked_interrupts() -> Iterator[None]:
    """Processes started meanwhile never see Ctrl-C; ours is kept until the end.

    `ignore_interrupts` alone would come too late for a worker that is still importing.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # starting it later would undo the block
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore_interrupts() -> None:
    """Ctrl-C reaches the whole process group; only the parent acts on it, and tells through the board."""
    if threading.current_thread() is threading.main_thread():
        with contextlib.suppress(ValueError):
            signal.signal(signal.SIGINT, signal.SIG_IGN)
