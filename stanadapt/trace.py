"""What a sweep writes: one row an iteration, in arrays that the chain owns."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .jit import kernel


class Trace(NamedTuple):
    """A block of n iterations."""

    x: np.ndarray  # (n, d) position after the iteration, unconstrained
    logp: np.ndarray  # (n,) log density there
    accept_prob: np.ndarray  # (n,) acceptance probability of the proposal
    accepted: np.ndarray  # (n,) whether it was accepted
    step_size: np.ndarray  # (n,) after the iteration's adaptation
    n_steps: np.ndarray  # (n,) evaluations of the density or its gradient


def empty_trace(n: int, d: int) -> Trace:
    """Room for `n` iterations in dimension `d`."""
    return Trace(
        np.empty((n, d)),
        np.empty(n),
        np.empty(n),
        np.empty(n, np.bool_),
        np.empty(n),
        np.empty(n, np.int32),
    )


@kernel
def record(
    trace: Any, i: Any, x: Any, logp: Any, accept_prob: Any, accepted: Any, step_size: Any, n_steps: Any
) -> None:
    """Write iteration `i`."""
    for j in range(x.size):  # faster than assigning the row
        trace.x[i, j] = x[j]
    trace.logp[i] = logp
    trace.accept_prob[i] = accept_prob
    trace.accepted[i] = accepted
    trace.step_size[i] = step_size
    trace.n_steps[i] = n_steps
