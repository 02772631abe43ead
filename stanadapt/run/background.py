"""Work in a thread of its own, so that a signal acts at once though the work cannot be cut short.

Python calls handlers of signals in the main thread, between two of its lines. A compiler runs for seconds
between two lines, and an exception within its Python code would leave its state broken. So it works in
another thread. The main thread waits, and can be interrupted at any time. An interrupted work goes on to the
end of its present step, and the next work waits for it.
"""

from __future__ import annotations

import atexit
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

_LOOK_SECONDS = 0.25
_STACK = 16 << 20  # bytes; the stacks of threads are small on some systems, and compilers go deep
_under_way: set[threading.Thread] = set()

Work = Callable[[Callable[[str], None]], Iterator[None]]


class Background:
    """Work that runs in a thread: `work(tell)` is a generator, which yields where it can be stopped."""

    def __init__(self, work: Work) -> None:
        self._events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._is_stopped = False
        self._work = work

    def watch(self, begin: Callable[[str], None], look: Callable[[], None]) -> None:
        """Run the work. `begin` gets what it tells, and `look` is called now and then.

        Raises
        ------
        Exception
            What the work raises, or the handler of a signal.
        """
        while is_under_way():
            next(iter(_under_way)).join(_LOOK_SECONDS)
        thread = threading.Thread(target=self._run, name="stanadapt-compiler", daemon=True)
        try:
            _start(thread)
            while True:
                try:
                    event = self._events.get(timeout=_LOOK_SECONDS)
                except queue.Empty:
                    look()
                    continue
                if isinstance(event, str):
                    begin(event)
                elif event is None:
                    break
                else:
                    raise event
        finally:
            self._is_stopped = True

    def _run(self) -> None:
        thread = threading.current_thread()
        _under_way.add(thread)
        try:
            for _ in self._work(self._events.put):
                if self._is_stopped:
                    break
            self._events.put(None)
        except BaseException as error:
            self._events.put(error)
        finally:
            _under_way.discard(thread)


def _start(thread: threading.Thread) -> None:
    before = threading.stack_size(_STACK)
    try:
        thread.start()
    finally:
        threading.stack_size(before)


def is_under_way() -> bool:
    """Whether interrupted work still goes on."""
    return any(thread.is_alive() for thread in list(_under_way))


@atexit.register
def _wait() -> None:
    """Have the work end before the process does, unless Ctrl-C ends the process, by a signal."""
    if not issubclass(getattr(sys, "last_type", None) or Exception, KeyboardInterrupt):
        for thread in list(_under_way):
            thread.join()
