"""Reports of iterations: an `Info` from every step, and a `Trace` with a row for each step of a block."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .jit import kernel
from .kinds import Integer, Matrix, Real, Vector

NOTHING = None  # `Info.own` of a method that has no columns of its own


class Info(NamedTuple):
    """The report of a step on its iteration; the step returns the next state beside it."""

    accept_prob: float  # acceptance probability of the proposal
    accepted: bool
    step_size: float  # after the iteration's adaptation; NaN for a method without one
    n_steps: int  # evaluations of the density or its gradient
    own: tuple[float, ...] | None  # the columns that the method declares in its FACTS, as numbers; or NOTHING


class Trace(NamedTuple):
    """A block of n iterations."""

    x: np.ndarray  # (n, d) position after the iteration, unconstrained
    logp: np.ndarray  # (n,) log density there
    accept_prob: np.ndarray  # (n,) from here on: the fields of Info
    accepted: np.ndarray  # (n,)
    step_size: np.ndarray  # (n,)
    n_steps: np.ndarray  # (n,)
    own: np.ndarray  # (n, k)

    def part(self, rows: slice) -> Trace:
        """Some of the rows, as views."""
        return Trace(*(column[rows] for column in self))


def empty_trace(n: int, d: int, k: int = 0) -> Trace:
    """A trace with room for `n` iterations in dimension `d`, and for `k` columns of the method's own."""
    return Trace(
        np.empty((n, d)),
        np.empty(n),
        np.empty(n),
        np.empty(n, np.bool_),
        np.empty(n),
        np.empty(n, np.int32),
        np.empty((n, k)),
    )


@kernel(counted=False)
def record(trace: Trace, i: Integer, x: Vector, logp: Real, info: Info) -> None:
    """Write iteration `i`, which ended at `x` (d,)."""
    for j in range(x.size):  # faster than assigning the row
        trace.x[i, j] = x[j]
    trace.logp[i] = logp
    trace.accept_prob[i] = info.accept_prob
    trace.accepted[i] = info.accepted
    trace.step_size[i] = info.step_size
    trace.n_steps[i] = info.n_steps
    _record_own(trace.own, i, info.own)


@kernel(counted=False)
def _record_own(rows: Matrix, i: Integer, own: Any) -> None:
    """Write the columns of the method's own. If it has none, `own` is None and numba drops the branch.

    Rows may have more columns, of the method that goes on after a pilot; they are zero.
    """
    if own is not None:
        for j in range(rows.shape[1]):
            rows[i, j] = own[j] if j < len(own) else 0.0
