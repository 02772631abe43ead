"""The errors and warnings of stanadapt. Every message names the fault, the value, and what is allowed."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from types import FrameType


class StanAdaptError(Exception):
    """Base of every error that stanadapt raises on purpose."""


class ArgumentError(StanAdaptError, ValueError):
    """An argument or a setting has a value that is not allowed."""


class ModelError(StanAdaptError, RuntimeError):
    """The Stan program cannot be found, compiled or opened."""


class DataError(StanAdaptError, ValueError):
    """The data do not fit the Stan program, or cannot be written as JSON."""


class InitializationError(StanAdaptError, RuntimeError):
    """No starting point with a finite log density and gradient was found."""


class EvaluationError(StanAdaptError, RuntimeError):
    """The log density has no finite value or gradient at a point that the user asked about."""


class ChainError(StanAdaptError, RuntimeError):
    """A chain died: its worker process crashed, or it needs more memory than there is."""


class OutputError(StanAdaptError, OSError):
    """The result cannot be written where the user wants it."""


class StoreError(StanAdaptError, RuntimeError):
    """The folder of a run cannot be used: it is damaged, in use, of another version, or the disk is full."""


class StanAdaptWarning(UserWarning):
    """Something that the user should know about a run; the run continues."""


class FindingsWarning(StanAdaptWarning):
    """The findings of `diagnose` in a new result; the attribute `findings` holds them."""

    def __init__(self, findings: Sequence[object]) -> None:
        super().__init__(findings)
        self.findings = findings

    def __str__(self) -> str:
        lines = "".join(f"\n- {finding}" for finding in self.findings)
        return f"{lines}\nSee stanadapt.diagnose(idata)."


def warn(message: str | Warning) -> None:
    """Warn, and give as the place of the warning the line of the user's code that called this package."""
    frame: FrameType | None = sys._getframe(1)
    level = 2
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == __package__:
        frame, level = frame.f_back, level + 1
    given = message if isinstance(message, Warning) else StanAdaptWarning(message)
    warnings.warn(given, stacklevel=level)
