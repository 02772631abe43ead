"""Checks of arguments, made once, at the front: native code crashes or hangs on what these refuse.

Each check returns the value in the type that the rest of the package relies on.
"""

from __future__ import annotations

import difflib
import math
import numbers
from collections.abc import Iterable
from typing import Any

import numpy as np

from .errors import ArgumentError


def integer(name: str, value: Any, low: int, high: int | None = None) -> int:
    """`value` as an int between `low` and `high`; no floats, strings or booleans."""
    allowed = f"an integer of at least {low}" if high is None else f"an integer from {low} to {high}"
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Integral):
        raise refused(name, value, allowed)
    whole = int(value)
    if whole < low or (high is not None and whole > high):
        raise refused(name, value, allowed)
    return whole


def number(
    name: str, value: Any, low: float = -math.inf, high: float = math.inf, *, open_low: bool = False
) -> float:
    """`value` as a finite float between `low` and `high` (above `low` when `open_low`)."""
    allowed = "a finite number"
    if low > -math.inf:
        allowed += f" {'above' if open_low else 'of at least'} {low:g}"
    if high < math.inf:
        allowed += f"{' and' if low > -math.inf else ''} at most {high:g}"
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
        raise refused(name, value, allowed)
    real = float(value)
    if not math.isfinite(real) or real < low or real > high or (open_low and real <= low):
        raise refused(name, value, allowed)
    return real


def boolean(name: str, value: Any) -> bool:
    """`value` as a bool."""
    if not isinstance(value, bool | np.bool_):
        raise refused(name, value, "True or False")
    return bool(value)


def choice(name: str, value: Any, allowed: Iterable[str]) -> str:
    """`value` if it is one of `allowed`; the error names the nearest ones."""
    allowed = list(allowed)
    if isinstance(value, str) and value in allowed:
        return value
    near = difflib.get_close_matches(str(value).lower().replace("-", "_"), allowed, n=3, cutoff=0.4)
    hint = f" (nearest: {', '.join(near)})" if near else ""
    raise refused(name, value, f"one of {', '.join(allowed)}{hint}")


def refused(name: str, value: Any, allowed: str) -> ArgumentError:
    """The error for an argument's value, in the one form that all of them have."""
    shown = repr(value)
    if len(shown) > 80:
        shown = shown[:77] + "..."
    return ArgumentError(f"{name}={shown} is not allowed: {name} must be {allowed}")
