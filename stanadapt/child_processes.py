"""Worker processes ignore signals, and end when their parent has ended."""

from __future__ import annotations

import atexit
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

    def end_if_orphan() -> None:
        if os.getppid() != parent:
            if folder is not None:
                _remove(folder)
            os._exit(1)

    def look() -> None:
        while True:
            end_if_orphan()
            time.sleep(_LOOK_SECONDS)

    end_if_orphan()  # the parent may have ended while this process was importing
    threading.Thread(target=look, name="stanadapt-parent", daemon=True).start()
    # A process that ends by itself stops the thread wherever it is, also in the middle of the removal.
    atexit.register(end_if_orphan)


def _remove(folder: Path) -> None:
    """Remove a folder to which other threads and processes may write meanwhile.

    They write by its name. Without the name they fail, and no new file holds the removal up. Where several
    remove it at once, all but the first find no folder of this name: each removes what is under the new one.
    """
    orphan = folder.with_name(f"{folder.name}-orphan")
    with contextlib.suppress(OSError):
        folder.rename(orphan)
    shutil.rmtree(orphan, ignore_errors=True)
