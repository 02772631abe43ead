"""Mixing on the 8-d banana with a surrogate that is learnt from n exact draws.

Strathmann et al. (2015), Figure 3. As in the authors' published code, kmc_finite has as many random features
as it has points, kamh the points as its subsample, and neither learns on the way. HMC takes step sizes from
(0.6, 1.3), for an acceptance of about 80%, and KMC the same; the random walk's standard deviation is 1, and
kamh's nu is adapted to an acceptance of 23%.
Departures: trajectories have 55 steps instead of 10 to 100, and chains start at a draw instead of at
(10, ..., 10).
"""

from __future__ import annotations

import argparse
import functools
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import stanadapt
from common import number, table
from ess import geyer_ess
from kernel_common import Found, frozen, gathered, there
from stanadapt.numerics.frame import plain_frame
from stanadapt.numerics.score_matching import (
    RadialFunction,
    choose,
    draw_basis,
    empty_sums,
    fit_finite,
    fourier_basis,
    median_sigma,
    take_in,
    without_each,
)
from stanadapt.numerics.surrogate import GAUSSIAN, Surrogate
from stanadapt.trace import Trace
from targets import ROOT

D, BEND, SD = 8, 0.03, 10.0
TUNING, DISCARDED, KEPT = 2_000, 200, 2_000
STEPS, STEP_SIZES = 55, (0.6, 1.3)
SIGMA, REGULARISATION = 178.7, 1e-6  # the authors', from 500 points on; below, by cross-validation


class Published(NamedTuple):
    """Of Figure 3: means over the first rows of the authors' result files, the norm's median."""

    acceptance: float
    norm_of_mean: float
    min_ess: float


PUBLISHED = {
    ("hmc", 0): Published(0.78, 1.39, 22.1),
    ("rwm", 0): Published(0.22, 3.88, 3.0),
    ("kmc_finite", 50): Published(0.15, 4.99, 5.4),
    ("kmc_finite", 100): Published(0.44, 2.24, 14.5),
    ("kmc_finite", 200): Published(0.60, 1.51, 17.8),
    ("kmc_finite", 500): Published(0.57, 1.71, 20.9),
    ("kmc_finite", 1000): Published(0.66, 1.48, 23.2),
    ("kmc_finite", 2000): Published(0.72, 1.37, 26.2),
    ("kamh", 50): Published(0.18, 3.62, 2.8),
    ("kamh", 100): Published(0.17, 4.36, 2.4),
    ("kamh", 200): Published(0.17, 3.80, 2.4),
    ("kamh", 500): Published(0.25, 6.40, 3.6),
    ("kamh", 1000): Published(0.19, 3.56, 4.3),
    ("kamh", 2000): Published(0.17, 3.54, 3.6),
}
NAMES = {"hmc": "HMC", "kmc_finite": "KMC finite", "kamh": "KAMH", "rwm": "RW"}


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
        basis = fourier_basis(RadialFunction(GAUSSIAN, sigma), features)
        return fit_finite(take_in(empty_sums(basis, regularisation), some))[1].surrogate

    pair = SIGMA, REGULARISATION
    if n < 500:
        pair = choose(points, without_each(fitted), pair)
    return fitted(points, *pair)


def chain(run: Run, rng: np.random.Generator) -> Trace:
    low, high = STEP_SIZES
    settings: dict[str, Any] = {"faithful": True}
    learnt: dict[str, Any] = {}
    tuning = 0
    if run.method in ("kmc_finite", "kamh"):
        points, learnt = draws(run.n, rng), {"frame": plain_frame(np.zeros(D))}
    if run.method == "kmc_finite":
        settings |= {"n_leapfrog_min": STEPS, "n_leapfrog_max": STEPS}
        settings |= {"initial_step_size": high, "step_low": low / high}
        learnt |= {"surrogate": surrogate(points, rng)}
    elif run.method == "kamh":
        tuning = TUNING
        learnt |= {"points_t": np.ascontiguousarray(points.T), "sigma": median_sigma(points)}
    elif run.method == "hmc":
        settings |= {"n_leapfrog": STEPS, "initial_step_size": (low + high) / 2}
        settings |= {"jitter": (high - low) / (high + low)}
    else:
        settings = {"initial_step_size": 1.0}
    x, target = draws(1, rng)[0], banana().model.target()
    return frozen(target, run.method, settings, x, DISCARDED + KEPT, rng, tuning, **learnt)


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


def run(workers: ProcessPoolExecutor, given: argparse.Namespace) -> Found:
    sizes = (100, 200) if given.quick else (50, 100, 200, 500, 1000, 2000)
    repeats = given.repeats or (2 if given.quick else 30)
    methods = [("hmc", 0), ("rwm", 0)]
    methods += [(name, n) for name in ("kmc_finite", "kamh") if there(name) for n in sizes]
    jobs = [Run(*method, i, given.seed) for method in methods for i in range(repeats)]
    rows = pd.DataFrame(gathered(workers, measure, jobs, "banana"))
    print(f"\nFigure 3: 8-d banana, {KEPT} draws, {repeats} repeats (1 st.d. over them).")
    print("The paper's ESS are of shorter or thinned chains: only ratios compare. Cells: paper / ours\n")
    hmc = rows[rows["method"] == "hmc"]["min_ess"].mean()
    header = ("method", "n", "acceptance", "median norm of mean", "min ESS", "min ESS over HMC's", "time (s)")
    lines = [
        _banana_line(method, n, rows[(rows["method"] == method) & (rows["n"] == n)], hmc)
        for method, n in methods
    ]
    print(table(header, lines), flush=True)
    return Found(rows, {})


def _banana_line(method: str, n: int, ours: pd.DataFrame, hmc: float) -> list[str]:
    paper = PUBLISHED[method, n]
    ess = ours["min_ess"]
    return [
        NAMES[method],
        str(n or ""),
        f"{paper.acceptance:.2f} / {ours['acceptance'].mean():.2f}",
        f"{paper.norm_of_mean:.2f} / {ours['norm_of_mean'].median():.2f}",
        f"{paper.min_ess:.1f} / {number(ess.mean(), ess.std())}",
        f"{paper.min_ess / PUBLISHED['hmc', 0].min_ess:.2f} / {ess.mean() / hmc:.2f}",
        number(ours["seconds"].median()),
    ]
