"""Signals that end a run: Ctrl-C, and what schedulers (SIGTERM) and closed terminals (SIGHUP) send.

Handlers note the signals, because an exception that can come between any two lines would sometimes lose the
draws. Outside of the main thread Python allows no handlers, and delivers no signals either.

Ctrl-C is for the run: Python goes on after it. The other signals are for the process. When the outermost of
our handlers is put back, the process ends by the signal, as it would have without our handlers. So a script
that loops over fits ends, too.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ..child_processes import SIGNALS
from ..errors import StanAdaptError

if TYPE_CHECKING:
    from .workers.board import Board


class Caught:
    """The first signal that has come while a handler of ours stood; 0 while none has."""

    def __init__(self, act: Callable[[int], None], around: Caught | None, *, finishes: bool = False) -> None:
        self.signal = 0
        self._act = act
        self._around = around  # whose handler is replaced meanwhile
        self._finishes = finishes  # whether the work here has a use for the results of inner work

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

    @property
    def ends_process(self) -> bool:
        """Whether the process ends after this work, and no work around it has a use for the result."""
        around = self._around
        is_awaited = False
        while around is not None:
            is_awaited = is_awaited or around._finishes
            around = around._around
        return _ends_process(self.signal or self.before) and not is_awaited

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

    with _handler(stop) as caught:
        if caught.before:
            board.stop()
        yield caught


@contextlib.contextmanager
def delayed_interrupts() -> Iterator[Caught]:
    """Meanwhile signals are only noted, so that the present work is finished."""
    with _handler(lambda _: None, finishes=True) as caught:
        yield caught


@contextlib.contextmanager
def raised_interrupts(*, ending: bool = True) -> Iterator[Caught]:
    """Meanwhile signals are raised as exceptions, so that the present work is cleaned up.

    With `ending` false the caller ends the process after a signal.
    """
    with _handler(give_up, ending=ending) as caught:
        yield caught


@contextlib.contextmanager
def _handler(act: Callable[[int], None], *, finishes: bool = False, ending: bool = True) -> Iterator[Caught]:
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
    caught = Caught(act, around[0] if around else None, finishes=finishes)
    taken = {number: handler for number, handler in present.items() if _is_free(number, handler)}
    error: BaseException | None = None
    try:
        for number in taken:
            signal.signal(number, caught.handle)
        yield caught
    except BaseException as raised:
        error = raised
        raise
    finally:
        for number, handler in taken.items():
            signal.signal(number, handler)
        if ending and not around and _ends_process(caught.signal):
            end_process(caught.signal, error)


def end_process(number: int, error: BaseException | None = None) -> None:
    """End the process by a signal whose action is the system's own; say an error of ours that is lost so."""
    if isinstance(error, StanAdaptError):  # it may name the file that has the draws
        with contextlib.suppress(Exception):
            print(f"stanadapt: {error}", file=sys.stderr)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # closed, or None
            stream.flush()
    signal.raise_signal(number)
    os._exit(128 + number)  # the first process of a container does not end by signals


def _ends_process(number: int) -> bool:
    """Whether a signal asks for the end of the process. Ctrl-C only asks for the end of the run."""
    return number not in (0, signal.SIGINT)


def _is_free(number: int, handler: object) -> bool:
    if number == signal.SIGINT:
        return handler not in (None, signal.SIG_IGN)
    return handler == signal.SIG_DFL or isinstance(getattr(handler, "__self__", None), Caught)
