"""How the exception that ended a chain reaches the user; a worker process sends it as bytes and text."""

from __future__ import annotations

import contextlib
import pickle
import traceback
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from ... import check
from ...errors import ChainError, StanAdaptError
from .pickling import dump

_PACKAGE = Path(__file__).parents[2]
_CALLERS = ("stanadapt.model.backends.python", "stanadapt.simulators.abc")  # call users' functions


class ChainFailure(NamedTuple):
    """The exception that ended a chain; or a whole fit, and then `chain` is None."""

    chain: int | None
    error: BaseException
    traceback: str  # as Python prints it; empty for an error of this package, whose message is enough

    @classmethod
    def of(cls, chain: int | None, error: BaseException) -> ChainFailure:
        frames = _users_frames(error)
        if frames is None and isinstance(error, StanAdaptError):
            return cls(chain, error, "")
        text = "".join(traceback.format_exception(type(error), error, frames or error.__traceback__))
        return cls(chain, error, text.rstrip())

    def pack(self) -> PackedFailure:
        """Pack the failure, so that a worker process can send it to its parent."""
        forms = []
        for form in (self.error, (type(self.error), self.error.args)):
            with contextlib.suppress(Exception):  # an exception may hold what cannot be pickled
                forms.append(dump(form))
        line = "".join(traceback.format_exception_only(self.error)).strip()
        return PackedFailure(self.chain, forms, line, self.traceback)


class PackedFailure(NamedTuple):
    """A failure that a worker process sends. The exception is still pickled, so receiving it cannot fail."""

    chain: int | None
    forms: list[bytes]  # pickles of the exception, and of its class and arguments in case the first fails
    line: str  # its type and message
    traceback: str
    printed: tuple[str, ...] = ()  # by the program, before

    def unpack(self) -> ChainFailure:
        """Unpack the failure: with the exception itself if possible, else a ChainError that quotes it."""
        for form in self.forms:
            with contextlib.suppress(Exception):  # unpickling a user's class may raise anything
                error = pickle.loads(form)
                if isinstance(error, tuple):
                    kind, arguments = error
                    error = kind.__new__(kind, *arguments)
                if isinstance(error, BaseException):
                    return ChainFailure(self.chain, error, self.traceback)
        where = "" if self.chain is None else f"chain {self.chain}: "
        return ChainFailure(self.chain, ChainError(f"{where}{self.line}"), self.traceback)


def raise_first(failures: list[ChainFailure], *, in_processes: bool) -> None:
    """Raise the exception of the failed chain with the lowest number, if any; its notes have the others."""
    if not failures:
        return
    first, *others = sorted(failures, key=lambda failure: failure.chain or 0)
    if first.traceback:
        where = f", in a worker process:\n{first.traceback}" if in_processes else "."
        first.error.add_note(f"It was raised in chain {first.chain}{where}")
    for other in others:
        if other.error is not first.error:
            text = f"\n{other.traceback}" if other.traceback else f" {check.one_line(other.error)}"
            first.error.add_note(f"Chain {other.chain} failed as well:{text}")
    raise first.error


def _users_frames(error: BaseException) -> TracebackType | None:
    """The traceback from the user's function on; None if the error did not come out of such a function."""
    frames, last = error.__traceback__, None
    while frames is not None and Path(frames.tb_frame.f_code.co_filename).is_relative_to(_PACKAGE):
        frames, last = frames.tb_next, frames
    return frames if last is not None and last.tb_frame.f_globals["__name__"] in _CALLERS else None
