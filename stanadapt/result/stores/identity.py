"""Whether a program, data and a density belong to a run: they must not change when the run goes on."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ... import check
from ...errors import StoreError
from ...model.data import read
from ...model.posterior import Posterior
from ...model.source import Contents

_POINTS = (0.1, 0.5, 2.0)  # densities are compared at points at most so far from zero
_CLOSE = 1e-5  # relative; another machine rounds otherwise


def check_code(where: Any, was: str, now: str) -> None:
    """Refuse another program than the run's. Raises StoreError, which names the first line that differs."""
    if was == now:
        return
    lines = itertools.zip_longest(was.splitlines(keepends=True), now.splitlines(keepends=True))
    number, one, other = next((i, *pair) for i, pair in enumerate(lines, 1) if pair[0] != pair[1])
    raise StoreError(
        f"{where} is of another model: line {number} of the run's program is {_line(one)}, and of the one "
        f"given {_line(other)}"
    )


def check_data(where: Any, was: str, now: str) -> None:
    """Refuse other data than the run's; both are JSON. Their order, and 1 in place of 1.0, change nothing.

    Raises
    ------
    StoreError
        It names the first entry that differs.
    """
    if was == now:
        return
    difference = next(_differences("", read(Contents(was)), read(Contents(now))), None)
    if difference is not None:
        raise StoreError(f"{where} is of a run with other data: {difference}")


def density_of(posterior: Posterior) -> list[float | None]:
    """The log density at some points that depend on its dimension alone; None where there is no value."""
    if posterior.model.noisy or not posterior.dim:
        return []
    rng = np.random.default_rng(0)
    return [_log_density(posterior, radius * rng.uniform(-1.0, 1.0, posterior.dim)) for radius in _POINTS]


def check_density(where: Any, was: Sequence[float | None], posterior: Posterior) -> None:
    """Refuse a posterior whose log density, up to a constant, is not the run's. Raises StoreError.

    Functions, libraries and the random numbers of `transformed data` have no text to compare.
    """
    if not was:
        return
    before, now = np.array(was, float), np.array(density_of(posterior), float)
    apart = now - before
    if len(now) != len(before) or not np.isfinite(apart).any():
        return
    # Another backend may leave out other constants.
    far = np.abs(apart - np.nanmedian(apart)) > _CLOSE * (1.0 + np.abs(before))
    if (far & np.isfinite(apart)).any():
        k = int(np.nanargmax(np.where(far, np.abs(apart - np.nanmedian(apart)), -1.0)))
        raise StoreError(
            f"{where} is of another model: at a point where the run's log density is {before[k]:.8g}, that "
            f"of the model given is {now[k]:.8g}. Its function, its library, its data or the seed of its "
            "Posterior have changed since"
        )


def _log_density(posterior: Posterior, x: np.ndarray) -> float | None:
    try:
        value = posterior.log_density(x)
    except Exception:  # a user's function may raise anything where no chain has been
        return None
    return value if np.isfinite(value) else None


def _line(text: str | None) -> str:
    return "missing" if text is None else check.quote(text)


def _differences(label: str, was: Any, now: Any) -> Iterator[str]:
    """In words, what differs between two values of data."""
    if isinstance(was, Mapping) and isinstance(now, Mapping):
        for name in {**was, **now}:
            place = f"{label}.{name}" if label else str(name)
            if name not in now:
                yield f"{place} is missing"
            elif name not in was:
                yield f"{place} is new"
            else:
                yield from _differences(place, was[name], now[name])
        return
    if isinstance(was, Mapping) or isinstance(now, Mapping):
        yield f"{label} is a tuple in one of them only"
        return
    if isinstance(was, list) and any(isinstance(part, Mapping | list) for part in was):  # of tuples
        yield from _differences(label, *({str(i): v for i, v in enumerate(each, 1)} for each in (was, now)))
        return
    one, other = np.asarray(was), np.asarray(now)
    if one.shape != other.shape:
        if one.size or other.size:
            yield f"{label} has shape {other.shape}, and in the run {one.shape}"
        return
    differs = ~((one == other) & (np.signbit(one) == np.signbit(other)) | (np.isnan(one) & np.isnan(other)))
    if differs.any():
        at = tuple(int(i) for i in np.argwhere(differs)[0])
        entry = f"{label}[{', '.join(str(i + 1) for i in at)}]" if at else label
        more = int(differs.sum()) - 1
        also = f", and {more} more of its entries differ" if more else ""
        yield f"{entry} is {other[at]}, and in the run {one[at]}{also}"
