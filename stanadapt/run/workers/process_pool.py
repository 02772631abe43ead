"""Processes of this machine that work for this one; a session may keep them from one run to the next.

loky's workers start from scratch (no fork) and do not run the user's script again, so a script needs no
`if __name__ == "__main__"`.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from multiprocessing import resource_tracker
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

from ...child_processes import blocked_signals, end_with_parent, ignore_signals

_EXIT_PRIORITY = 10  # among the finalizers of multiprocessing; from 0 on they are called before it waits
_IDLE_SECONDS = 60.0  # after which a process that is kept ends by itself
_RESTED_SECONDS = 0.9 * _IDLE_SECONDS  # until when all of them are there for sure


class ProcessPool:
    """Processes and a folder that they share."""

    def __init__(self, workers: int, idle_seconds: float | None = None) -> None:
        from loky import ProcessPoolExecutor

        self.workers, self._surroundings = workers, _surroundings()
        self.idle_since = 0.0
        self.folder = Path(tempfile.mkdtemp(prefix="stanadapt-"))
        begin = {"initializer": _begin, "initargs": (os.getpid(), self.folder)}
        try:
            self._executor = ProcessPoolExecutor(workers, timeout=idle_seconds, **begin)
        except BaseException:  # the system has no semaphores, say
            shutil.rmtree(self.folder)
            raise
        # At the latest before this process waits for its children. In a fork of it, it does nothing.
        ends = self._executor, self.folder
        self._end = Finalize(self, _end, args=ends, exitpriority=_EXIT_PRIORITY)

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Have a process call a function; processes start when they are first needed.

        Raises an exception of loky's where a process has died, and so does the future.
        """
        with blocked_signals():
            resource_tracker.ensure_running()  # which undoes the block, in older Pythons
        with blocked_signals():
            future: Future[Any] = self._executor.submit(function, *arguments)
        return future

    def fits(self, workers: int) -> bool:
        """Whether these are so many processes, and new ones would see the same surroundings."""
        return (self.workers, self._surroundings) == (workers, _surroundings())

    def is_alive(self) -> bool:
        """Whether none of the processes has died."""
        try:
            self.submit(os.getpid)
        except Exception as error:
            if death(error):
                return False
            raise
        return True

    def close(self) -> None:
        """End the processes at once."""
        self._end()


def death(error: BaseException) -> str:
    """What has become of a process, in words, by an exception of a pool or its futures; empty for others."""
    from loky.process_executor import BrokenProcessPool, ShutdownExecutorError

    if not isinstance(error, BrokenProcessPool | ShutdownExecutorError | CancelledError):
        return ""
    codes = re.search(r"\{(.*)\}", str(error))
    return (
        f"a worker process died ({codes[1] if codes else 'no exit code'}): the model crashed in it, or "
        "memory ran out"
    )


def take_pool(workers: int) -> ProcessPool:
    """So many processes: those that are kept, if new ones would be like them, or new ones."""
    pool = _exchange(None)
    if pool is not None and pool.fits(workers) and pool.is_alive():
        return pool
    if pool is not None:
        pool.close()
    return ProcessPool(workers, _IDLE_SECONDS)


@contextlib.contextmanager
def lease_pool(workers: int, keeps: bool) -> Iterator[ProcessPool]:
    """So many processes for a run. They end with it, unless it `keeps` them; after an exception anyway."""
    pool = take_pool(workers) if keeps else ProcessPool(workers)
    try:
        yield pool
    except BaseException:
        pool.close()
        raise
    if keeps:
        keep_pool(pool)
    else:
        pool.close()


def keep_pool(pool: ProcessPool | None) -> None:
    """Keep processes that have nothing to do, for the next run. Those that have been kept end."""
    if pool is not None:
        pool.idle_since = time.monotonic()
    before = _exchange(pool)
    if before is not None:
        before.close()


def has_kept(workers: int) -> bool:
    """Whether so many processes are kept, and have not ended by themselves."""
    pool = _kept
    return pool is not None and pool.fits(workers) and time.monotonic() - pool.idle_since < _RESTED_SECONDS


def _exchange(pool: ProcessPool | None) -> ProcessPool | None:
    global _kept
    with _lock:
        before, _kept = _kept, pool
    return before


def _surroundings() -> tuple[int, str, dict[str, str]]:
    """The parent, and what processes have from it at their start and would not see change."""
    try:
        folder = str(Path.cwd())
    except FileNotFoundError:
        folder = ""
    return os.getpid(), folder, dict(os.environ)


def _end(executor: Any, folder: Path) -> None:
    executor.shutdown(wait=True, kill_workers=True)
    shutil.rmtree(folder, ignore_errors=True)


def _begin(parent: int, folder: Path) -> None:
    """In a process, before all else."""
    end_with_parent(parent, folder)
    ignore_signals()


_lock = threading.Lock()
_kept: ProcessPool | None = None
