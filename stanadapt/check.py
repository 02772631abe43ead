"""Checks of arguments, made once, before a run: native code would crash or hang on values they refuse.

Each check returns the value in the type that the rest of the package relies on.
"""

from __future__ import annotations

import difflib
import math
import numbers
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .errors import ArgumentError, OutputError

LARGEST_RADIUS = 1e100  # NumPy cannot draw uniform numbers from a range that overflows
LARGEST_COUNT = 2**31 - 1  # of iterations and chains: kernels count in machine integers
# Names of arguments and settings in CmdStanPy, nutpie, PyMC and NumPyro, and the names that they have here.
ELSEWHERE = {
    "adapt_delta": "target_accept",
    "cores": "workers",
    "init": "inits",
    "initvals": "inits",
    "iter_sampling": "draws",
    "iter_warmup": "warmup",
    "max_treedepth": "max_tree_depth",
    "maxdepth": "max_tree_depth",
    "num_chains": "chains",
    "num_samples": "draws",
    "num_warmup": "warmup",
    "parallel_chains": "workers",
    "progress_bar": "progress",
    "progressbar": "progress",
    "random_seed": "seed",
    "show_progress": "progress",
    "target_accept_prob": "target_accept",
    "tune": "warmup",
}


def integer(name: str, value: Any, low: int, high: int | None = None, *, orelse: str = "") -> int:
    """`value` as an int between `low` and `high`; no floats, strings or booleans.

    `orelse` is the end of the text that says what is allowed.
    """
    allowed = f"an integer of at least {low}" if high is None else f"an integer from {low} to {high}"
    allowed += orelse
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Integral):
        raise refusal(name, value, allowed)
    whole = int(value)
    if whole < low or (high is not None and whole > high):
        raise refusal(name, value, allowed)
    return whole


def number(
    name: str,
    value: Any,
    low: float = -math.inf,
    high: float = math.inf,
    *,
    open_low: bool = False,
    orelse: str = "",
) -> float:
    """`value` as a finite float between `low` and `high` (above `low` when `open_low`).

    `orelse` is the end of the text that says what is allowed.
    """
    allowed = "a finite number"
    if low > -math.inf:
        allowed += f" {'above' if open_low else 'of at least'} {low:g}"
    if high < math.inf:
        allowed += f"{' and' if low > -math.inf else ''} at most {high:g}"
    allowed += orelse
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
        raise refusal(name, value, allowed)
    try:
        real = float(value)
    except OverflowError:
        real = math.inf
    if not math.isfinite(real) or real < low or real > high or (open_low and real <= low):
        raise refusal(name, value, allowed)
    return real


def boolean(name: str, value: Any) -> bool:
    """`value` as a bool."""
    if not isinstance(value, bool | np.bool_):
        raise refusal(name, value, "True or False")
    return bool(value)


def choice(name: str, value: Any, allowed: Iterable[str]) -> str:
    """`value` if it is one of `allowed`; the error names the nearest ones."""
    allowed = list(allowed)
    if isinstance(value, str) and value in allowed:
        return value
    if not allowed:
        raise ArgumentError(f"{name}={quote(value)} is not allowed: the model has none")
    raise refusal(name, value, f"one of {', '.join(allowed)}{nearest(value, allowed)}")


def names(name: str, value: Any, meaning: str) -> list[Any]:
    """`value`, a name or a list of names, as a list that is not empty; `meaning` says what is named."""
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list | tuple) or not value:
        raise refusal(name, value, f"a list of {meaning}")
    return list(value)


def label(name: str, value: str) -> str:
    """`value` if a variable or a dimension can have this name in a file."""
    if not is_label(value):
        allowed = "a name without a slash and without control characters, and not . or .."
        raise refusal(name, value, allowed)
    return value


def is_label(value: str) -> bool:
    """Whether a variable or a dimension can have this name in a file."""
    return value not in ("", ".", "..") and "/" not in value and value.isprintable()


def nearest(value: Any, allowed: Iterable[str]) -> str:
    """The names most similar to `value`, as the end of an error message; empty if no name is similar.

    If `value` is the name of an argument in another program, the text gives our name of it.
    """
    written, allowed = quote(value).strip("'").lower().replace("-", "_"), list(allowed)
    if ELSEWHERE.get(written) in allowed:
        return f" (it is called {ELSEWHERE[written]} here)"
    near = difflib.get_close_matches(written, allowed, n=3, cutoff=0.4)
    return f" (nearest: {', '.join(near)})" if near else ""


def output(path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
    """`path` with links resolved, if a file can be written there; to find out, a file is written beside it.

    Raises
    ------
    OutputError
        It is a directory or a device, its folder is missing or not writable, or the file exists and
        `overwrite` is not set.
    """
    target = Path(path).resolve()
    try:
        obstacle = _obstacle(target, overwrite)
    except OSError as error:
        obstacle = f"cannot be written: {error.strerror or error}"
    if obstacle:
        raise OutputError(f"{path} {obstacle}")
    return target


def _obstacle(target: Path, overwrite: bool) -> str:
    """The reason why no file can be written at `target`; empty if one can."""
    if target.is_dir():
        return "is a directory; the name of a file is needed"
    if target.exists() and not target.is_file():
        return "is no regular file"
    if target.exists() and not overwrite:
        return "exists already"
    if not target.parent.is_dir():
        return f"cannot be written: there is no folder {target.parent}"
    partial_path(target).touch()
    partial_path(target).unlink()
    return ""


def partial_path(target: Path) -> Path:
    """The path at which a file is written until it is complete."""
    return target.with_name(f"{target.name}.{os.getpid()}.part")


_VALUE_BYTES = 250  # of memory for each value before the first draw: its name, its index, and native copies


def too_many(count: int, each: int = _VALUE_BYTES) -> str:
    """The reason why a model cannot have `count` values, as a text to follow "has"; empty if it can.

    `each` is the number of bytes that one value takes while the model is opened.
    """
    needed, free = count * each, free_memory()
    if needed <= free:
        return ""
    return (
        f"{count} values, which take about {needed / 2**30:.0f} GiB to open, and {free / 2**30:.1f} GiB are "
        "free"
    )


def refusal(name: str, value: Any, allowed: str) -> ArgumentError:
    """The error for a value of an argument, in the form that all such errors share."""
    return ArgumentError(f"{name}={quote(value)} is not allowed: {name} must be {allowed}")


def one_line(error: BaseException) -> str:
    """The message of an error on one line, or its type if it has no message."""
    return " ".join(str(error).split()) or type(error).__name__


def printable(text: str, keep: str = "") -> str:
    """`text` for a terminal: control characters are escaped as in Python, except those in `keep`."""
    return "".join(
        character
        if character in keep or character.isprintable()
        else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def quote(value: Any) -> str:
    """A value for an error message: on one line, and not long."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # an int of 5,000 digits has no repr, and users' classes may fail
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= 80 else text[:77] + "..."


def join_names(names: Sequence[str]) -> str:
    """`a`, `a and b`, or `a, b and c`; nothing of no names."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def free_memory() -> float:
    """Bytes that this process can still get, or infinity if the system does not say."""
    try:
        available = float("inf")
        with open("/proc/meminfo", encoding="ascii") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    available = 1024.0 * int(line.split()[1])
        if math.isinf(available):
            available = float(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
        return min(available, _free_in_container())
    except (OSError, ValueError, AttributeError):
        return math.inf


def _free_in_container() -> float:
    """Bytes left below the memory limit of a container; the system kills a process that exceeds it."""
    folder = Path("/sys/fs/cgroup")
    versions = (
        ("memory.max", "memory.current"),
        (
            "memory/memory.limit_in_bytes",
            "memory/memory.usage_in_bytes",
        ),
    )
    for limit, used in versions:
        try:
            return float(int((folder / limit).read_text()) - int((folder / used).read_text()))
        except (OSError, ValueError):  # no such file, or "max": no limit
            continue
    return math.inf


def available_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
