"""The pilot: Fisher HMC runs the first iterations of another method's warm-up, where its `pilot` says so.

A chain of short steps finds the typical set slowly while its preconditioner is wrong, and its preconditioner
is wrong until it has been there for long. Trajectories with a metric that is renewed in windows get out of
this in some hundreds of iterations, see fisher_hmc.py. So for `pilot` iterations the chain is one of
Fisher HMC, at its defaults, window after window. Then the method starts where that chain is, with
a preconditioner made of its metric, and goes on adapting as it does. A sampler that can be handed a chain has
`piloted` (`Piloted` in base.py); without a pilot nothing of Fisher HMC is compiled.
"""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple, cast

import numpy as np

from ..errors import ArgumentError
from ..numerics.metric import as_matrix
from .base import NOT_NEGATIVE, Piloted, Sampler, resolve

METHOD = "fisher_hmc"
LIMIT = NOT_NEGATIVE


class Found(NamedTuple):
    """What a pilot hands over."""

    x: np.ndarray  # (d,) where its chain is
    mean: np.ndarray  # (d,) of its last window
    cov: np.ndarray  # (d, d) its metric, which is the covariance where the target is a Gaussian
    n: int  # its iterations


def length(sampler: Any, settings: Any, warmup: int) -> int:
    """Iterations of warm-up that belong to the pilot.

    Raises
    ------
    ArgumentError
        They are more than there are, or the run is to be faithful to a paper.
    """
    n = int(settings.pilot) if isinstance(sampler, Piloted) else 0
    if n and settings.faithful:
        raise ArgumentError(
            f"settings['pilot']={n} is not allowed with faithful=True: no paper has a "
            "pilot; leave one of them out"
        )
    if n > warmup:
        raise ArgumentError(
            f"settings['pilot']={n} is not allowed with warmup={warmup}: its iterations are among "
            "those of warm-up; use fewer, or a longer warm-up"
        )
    return n


def module() -> tuple[Sampler, Any]:
    """Fisher HMC and its settings."""
    fisher_hmc = cast(Sampler, importlib.import_module(f".{METHOD}", __package__))
    return fisher_hmc, resolve(fisher_hmc, None)


def wanted(settings: Any) -> bool:
    """Whether a method's settings ask for a pilot."""
    return getattr(settings, "pilot", 0) > 0


def found(sampler: Sampler, settings: Any, state: Any, n: int) -> Found:
    """What there is after the last window, from which the metric is learnt as from those before."""
    state = sampler.enter("handover", state, settings)
    mean = state.windows.points[: state.windows.seen].mean(axis=0)
    return Found(state.x.copy(), mean, as_matrix(state.metric), n)
