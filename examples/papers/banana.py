"""Mixing on the 8-d banana with a surrogate that is learnt from n exact draws.

Strathmann et al. (2015), Figure 3. As in the authors' published code, kmc_finite has as many random features
as it has points, kamh the points as its subsample, and neither learns on the way. HMC takes step sizes from
(0.6, 1.3), for an acceptance of about 80%, and KMC the same; the random walk's standard deviation is 1, and
kamh's nu is adapted to an acceptance of 23%.
Departures: trajectories have 55 steps instead of 10 to 100, and chains start at a draw instead of at
(10, ..., 10).
"""

from __future__ import annotations

import functools
import time
from typing import Any, NamedTuple

import numpy as np

import stanadapt
from ess import geyer_ess
from stanadapt import samplers
from stanadapt.numerics.frame import plain_frame
from stanadapt.numerics.score_matching import (
    Kernel,
    choose,
    draw_basis,
    fit_finite,
    fourier_basis,
    median_sigma,
    no_sums,
    take_in,
)
from stanadapt.numerics.surrogate import GAUSSIAN, Surrogate
from stanadapt.trace import Trace, empty_trace
from targets import ROOT

D, BEND, SD = 8, 0.03, 10.0
TUNING, DISCARDED, KEPT = 2_000, 200, 2_000
STEPS, STEP_SIZES = 55, (0.6, 1.3)
SIGMA, REGULARISATION = 178.7, 1e-6  # the authors', from 500 points on; below, by cross-validation


class Run(NamedTuple):
    method: str  # kmc_finite, kamh, hmc or rwm
    n: int  # points, for the first two
    repeat: int
    seed: int


@functools.cache
def banana() -> stanadapt.Posterior:
    folder = ROOT / "models" / "banana"
    return stanadapt.Posterior(folder / "banana.stan", {"d": D, "b": BEND, "sigma": SD})


def draws(n: int, rng: np.random.Generator) -> np.ndarray:
    """Exact draws (n, D)."""
    x = rng.standard_normal((n, D))
    x[:, 0] *= SD
    x[:, 1] += BEND * (x[:, 0] ** 2 - SD**2)
    return x


def surrogate(points: np.ndarray, rng: np.random.Generator) -> Surrogate:
    """KMC finite's, with as many features as points."""
    n = len(points)
    features = draw_basis(n, D, 1.0, rng)

    def fitted(some: np.ndarray, sigma: float, regularisation: float) -> Surrogate:
        basis = fourier_basis(Kernel(GAUSSIAN, sigma), features)
        return fit_finite(take_in(no_sums(basis, regularisation), some))[1].surrogate

    pair = SIGMA, REGULARISATION
    if n < 500:
        pair = choose(points, fitted, pair)
    return fitted(points, *pair)


def frozen(
    method: str, settings: dict[str, Any], rng: np.random.Generator, tuning: int = 0, **learnt: Any
) -> Trace:
    """A chain from an exact draw with what is put into its state as learnt.

    Only its scale adapts, and only over `tuning` iterations before.
    """
    sampler = samplers.sampler(method)
    resolved = samplers.resolve(sampler, settings)
    target = banana().model.target()
    state = sampler.start(target, resolved, draws(1, rng)[0], rng)._replace(**learnt)
    if tuning:
        state = sampler.sweep(target, resolved, state, rng, True, empty_trace(tuning, D))
    trace = empty_trace(DISCARDED + KEPT, D)
    sampler.sweep(target, resolved, state, rng, False, trace)
    return trace


def chain(run: Run, rng: np.random.Generator) -> Trace:
    low, high = STEP_SIZES
    plain = {"frame": plain_frame(np.zeros(D))}
    if run.method == "kamh":
        points = draws(run.n, rng)
        learnt = plain | {"points_t": np.ascontiguousarray(points.T), "sigma": median_sigma(points)}
        return frozen("kamh", {"faithful": True}, rng, TUNING, **learnt)
    if run.method == "kmc_finite":
        settings = {"n_leapfrog_min": STEPS, "n_leapfrog_max": STEPS, "step_low": low / high}
        settings |= {"initial_step_size": high, "faithful": True}
        return frozen("kmc_finite", settings, rng, surrogate=surrogate(draws(run.n, rng), rng), **plain)
    if run.method == "hmc":
        settings = {"n_leapfrog": STEPS, "initial_step_size": (low + high) / 2}
        return frozen("hmc", settings | {"jitter": (high - low) / (high + low)}, rng)
    return frozen("rwm", {"initial_step_size": 1.0}, rng)


def measure(run: Run) -> dict[str, Any]:
    """Figures of one chain."""
    rng = np.random.default_rng([run.seed, run.repeat, run.n])
    began = time.perf_counter()
    trace = chain(run, rng)
    x = trace.x[DISCARDED:]
    return run._asdict() | {
        "acceptance": trace.accept_prob[DISCARDED:].mean(),
        "norm_of_mean": np.linalg.norm(x.mean(axis=0)),
        "min_ess": min(geyer_ess(column) for column in x.T),
        "seconds": time.perf_counter() - began,
    }
