"""Signals that end a run: Ctrl-C, and what schedulers (SIGTERM) and closed terminals (SIGHUP) send.

Handlers note the signals, because an exception that can come between any two lines would sometimes lose the
draws. Outside of the main thread Python allows no handlers, and delivers no signals either.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ..child_processes import SIGNALS

if TYPE_CHECKING:
    from .workers.board import Board


class Caught:
    """The first signal that has come while a handler of ours stood; 0 while none has."""

    def __init__(self, act: Callable[[int], None], around: Caught | None) -> None:
        self.signal = 0
        self._act = act
        self._around = around  # whose handler is replaced meanwhile

    def handle(self, number: int, _: object) -> None:
        """The handler that a signal calls; `act` gets the first signal before it is noted."""
        try:
            self._act(number)
        finally:
            self._note(number)

    @property
    def before(self) -> int:
        """The signal that has come to a handler around this one, before it stood; 0 where none has."""
        around = self._around
        return 0 if around is None else around.signal or around.before

    def raise_again(self) -> None:
        """Raise the exception of the signal that has come, if one has."""
        if self.signal:
            give_up(self.signal)

    def _note(self, number: int) -> None:
        self.signal = self.signal or number
        if self._around is not None:
            self._around._note(number)


def give_up(number: int) -> None:
    """Raise KeyboardInterrupt for Ctrl-C; for the others SystemExit with the status that a shell reports."""
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + number)


@contextlib.contextmanager
def interrupts(board: Board) -> Iterator[Caught]:
    """A signal meanwhile asks all chains to stop, on the board; the second one is raised.

    A signal that an outer handler has noted before counts as well.
    """

    def stop(number: int) -> None:
        if caught.signal:
            give_up(number)
        board.stop()

    with _handled(stop) as caught:
        if caught.before:
            board.stop()
        yield caught


@contextlib.contextmanager
def delayed_interrupts() -> Iterator[Caught]:
    """Meanwhile signals are only noted, so that the present work is finished."""
    with _handled(lambda _: None) as caught:
        yield caught


@contextlib.contextmanager
def raised_interrupts() -> Iterator[Caught]:
    """Meanwhile signals are raised as exceptions, so that the present work is cleaned up."""
    with _handled(give_up) as caught:
        yield caught


@contextlib.contextmanager
def _handled(act: Callable[[int], None]) -> Iterator[Caught]:
    """`act` handles the signals; at the end the earlier handlers are put back.

    A signal that is ignored stays so (nohup, background jobs), and so does a handler of the user's own for
    one that ends a process.
    """
    if threading.current_thread() is not threading.main_thread():
        yield Caught(act, None)
        return
    present = {number: signal.getsignal(number) for number in SIGNALS}
    owners = [getattr(handler, "__self__", None) for handler in present.values()]
    around = [owner for owner in owners if isinstance(owner, Caught)]
    caught = Caught(act, around[0] if around else None)
    taken = {number: handler for number, handler in present.items() if _is_free(number, handler)}
    try:
        for number in taken:
            signal.signal(number, caught.handle)
        yield caught
    finally:
        for number, handler in taken.items():
            signal.signal(number, handler)


def _is_free(number: int, handler: object) -> bool:
    if number == signal.SIGINT:
        return handler not in (None, signal.SIG_IGN)
    return handler == signal.SIG_DFL or isinstance(getattr(handler, "__self__", None), Caught)
