"""Worker processes ignore signals, and end when their parent has ended."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

# Those that end a run: Ctrl-C, and what schedulers and closed terminals send.
SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
_LOOK_SECONDS = 0.25


@contextlib.contextmanager
def blocked_signals() -> Iterator[None]:
    """Processes that this thread starts meanwhile never see the signals; ours are kept until the end.

    Signals reach the whole process group. Only the parent acts on them, and a worker that ignores them itself
    does so too late while it is still importing.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore_signals() -> None:
    """The same from inside of a worker, where signals cannot be blocked."""
    if threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            with contextlib.suppress(ValueError):
                signal.signal(number, signal.SIG_IGN)


def end_with_parent(parent: int, folder: Path | None = None) -> None:
    """Have this process end, and remove `folder`, soon after the process `parent` that started it has ended.

    A parent that is killed cannot end its workers. A thread checks for it, since no portable signal exists.
    The thread gets its turn, because kernels and Stan run without Python's lock.
    """

    def look() -> None:
        while os.getppid() == parent:
            time.sleep(_LOOK_SECONDS)
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        os._exit(1)

    threading.Thread(target=look, name="stanadapt-parent", daemon=True).start()
