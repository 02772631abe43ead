"""A uniform sample of a chain's history, from which a method learns, and the time to learn next.

If iteration t adapts with a probability a_t that goes to zero, the chain keeps its limit law, even if the
adaptation never ends: Roberts and Rosenthal (2007).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..jit import kernel
from ..kinds import Generator, Integer, Real, Vector

NEVER = 2**62


class History(NamedTuple):
    """A uniform sample, of up to n points, of the chain since the last restart (Vitter 1985, algorithm R)."""

    points: np.ndarray  # (n, d)
    times: np.ndarray  # (n,) their iterations
    seen: int  # points since the last restart
    t: int  # adapting iterations so far
    next_fit: int  # value of t at which to learn next
    next_rebuild: int  # value of t from which the next fit learns everything anew


def empty_history(n: Integer, d: Integer) -> History:
    """A history with room for `n` points."""
    return History(np.empty((n, d)), np.zeros(n, np.int64), 0, 0, NEVER, NEVER)


@kernel
def remember(history: History, x: Vector, rng: Generator) -> History:
    """The history after one more iteration, which ended at `x` (d,)."""
    points, times, seen, t, next_fit, next_rebuild = history
    row = seen if seen < len(points) else int(rng.random() * (seen + 1))
    if row < len(points):
        for k in range(x.size):
            points[row, k] = x[k]
        times[row] = t
    return History(points, times, seen + 1, t + 1, next_fit, next_rebuild)


@kernel
def rate(t: Integer, schedule: Real) -> Real:
    """a_t = t^-schedule, at most 1."""
    return max(t, 1) ** -schedule


def sample_history(history: History) -> np.ndarray:
    """The kept points (n, d) in the order of the chain; at first they are fewer."""
    return history.points[np.argsort(history.times[: history.seen])]


def schedule_fit(history: History, schedule: float, rng: np.random.Generator) -> History:
    """Draw the time of the next fit: each iteration has one with probability a_t."""
    t = history.t + 1
    while rng.random() >= rate(t, schedule):
        t += 1
    return history._replace(next_fit=t)


def all_equal(points: np.ndarray) -> bool:
    """Whether there is nothing to learn from `points` (n, d)."""
    return len(points) < 2 or bool(np.all(points == points[0]))


def restart(history: History) -> History:
    """The history without its points."""
    return history._replace(seen=0)
