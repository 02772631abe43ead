"""Time of what kmc_lite and kmc_finite do beside the target: leapfrog steps, refits and updates; one core.

    python examples/benchmarks/surrogates.py

A leapfrog step is one gradient of the surrogate. A refit of the lite estimator is O(n³ + d n²); beside it
stands C by the literal sum over dimensions of Proposition 1, O(d n³). An update of the finite estimator takes
one point in, O(d m²), whatever their number so far; beside it stands a new factor, O(m³). Medians.

The last part is what that buys: the smallest bulk ESS of 4 x 10,000 draws after as many evaluations of the
density in warm-up (20,000 a chain) for all methods, on models that random walks find in that time.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")

import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import stanadapt
from stanadapt.numerics import score_matching
from stanadapt.numerics.score_matching import RadialFunction, Sums
from stanadapt.numerics.surrogate import GAUSSIAN, RATIONAL_QUADRATIC, Surrogate, surrogate_leapfrog

REPEATS = 9
STEPS = 2_000


def median(job: Callable[..., Any], *arguments: Any, repeats: int = REPEATS) -> float:
    """Median seconds of a call, after one that is not counted."""
    seconds = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        job(*arguments)
        seconds.append(time.perf_counter() - began)
    return float(np.median(seconds[1:]))


def step_of(surrogate: Surrogate, d: int) -> float:
    """Microseconds of a leapfrog step of size zero, which goes on for ever."""
    x, momentum = np.full(d, 0.3), np.ones(d)
    return 1e6 * median(surrogate_leapfrog, surrogate, x, momentum, 0.0, STEPS) / STEPS


def finite(points: np.ndarray, m: int, kernel: RadialFunction) -> Sums:
    rng = np.random.default_rng(2)
    draws = score_matching.draw_basis(m, points.shape[1], kernel.shape, rng)
    sums = score_matching.empty_sums(score_matching.fourier_basis(kernel, draws), 1e-3)
    return score_matching.fit_finite(score_matching.take_in(sums, points))[0]


def steps() -> None:
    print("microseconds a leapfrog step, Gaussian and rational quadratic kernel\n")
    print("   n = m    d     lite  lite, rational quadratic   finite")
    for n, d in ((100, 10), (300, 10), (500, 10), (1_000, 10), (500, 2), (500, 50)):
        points = np.random.default_rng(1).standard_normal((n, d))
        gaussian, quadratic = RadialFunction(GAUSSIAN, 2.0 * d), RadialFunction(RATIONAL_QUADRATIC, 2.0 * d)
        lite = [score_matching.fit_lite(points, kernel, 1.0).surrogate for kernel in (gaussian, quadratic)]
        other = score_matching.fit_finite(finite(points, n, gaussian))[1].surrogate
        times = [step_of(surrogate, d) for surrogate in (*lite, other)]
        print(f"{n:8d} {d:4d} {times[0]:8.1f} {times[1]:25.1f} {times[2]:8.1f}", flush=True)


def literal(points: np.ndarray, sigma: float) -> np.ndarray:
    """C of Proposition 1, dimension by dimension."""
    k = np.exp(-score_matching.squared_distances(points, points) / sigma)
    c = np.zeros_like(k)
    for x in points.T:
        moved = x[:, None] * k - k * x
        c += moved @ -moved
    return c


def refits() -> None:
    print("\nmilliseconds a refit of the lite estimator, d = 10\n")
    print("       n    refit   C alone   C by the literal sum   low rank   of rank")
    for n in (100, 300, 500, 1_000, 2_000):
        points, kernel = np.random.default_rng(1).standard_normal((n, 10)), RadialFunction(GAUSSIAN, 60.0)
        repeats = 3 if n >= 1_000 else REPEATS
        low = score_matching.incomplete_cholesky(points, kernel, 1e-4).shape[1]
        jobs: list[tuple[Any, ...]] = [
            (score_matching.fit_lite, points, kernel, 1.0),
            (score_matching.lite_system, points, kernel),
            (literal, points, 60.0),
            (score_matching.fit_lite_low_rank, points, kernel, 1.0),
        ]
        times = [1e3 * median(*job, repeats=repeats) for job in jobs]
        print(
            f"{n:8d} {times[0]:8.1f} {times[1]:9.1f} {times[2]:22.1f} {times[3]:10.1f} {low:9d}", flush=True
        )


def updates() -> None:
    print("\nmilliseconds an update of the finite estimator with one point, and a new factor\n")
    print("       m    d   update, after 1,000 points   after 100,000   new factor")
    for m, d in ((300, 2), (300, 10), (500, 10), (1_000, 10)):
        rng = np.random.default_rng(1)
        times = []
        for t in (1_000, 100_000):
            sums = finite(rng.standard_normal((1_000, d)), m, RadialFunction(GAUSSIAN, 2.0 * d))._replace(t=t)
            point = rng.standard_normal((1, d))
            times.append(1e3 * median(updated, sums, point))
        times.append(1e3 * median(score_matching.fit_finite, sums._replace(factored=False)))
        print(f"{m:8d} {d:4d} {times[0]:28.2f} {times[1]:15.2f} {times[2]:12.2f}", flush=True)


def updated(sums: Sums, point: np.ndarray) -> None:
    """Rank-one updates and the solution."""
    sums = score_matching.take_in(sums, point)
    score_matching.fit_finite(sums)


def models() -> None:
    print("\nsmallest bulk ESS of 40,000 draws (seconds), at the defaults, seed 1\n")
    methods = ("rwm", "arwmh", "rlmh", "kamh", "kmc_lite", "kmc_finite")
    print(f"{'model':24s}" + "".join(f"{method:>18s}" for method in methods))
    for name in MODELS:
        folder = Path(__file__).parents[2] / "models" / name
        posterior = stanadapt.Posterior(folder / f"{name}.stan", folder / f"{name}.json")
        cells = ""
        for method in methods:
            began = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", stanadapt.StanAdaptWarning)
                idata = stanadapt.sample(
                    posterior, method=method, warmup=20_000, draws=10_000, seed=1, progress=False
                )
            seconds = time.perf_counter() - began
            ess = stanadapt.summary(idata, list(posterior.parameters))["ess_bulk"].min()
            cells += f"{ess:10.0f} ({seconds:5.1f})"
        print(f"{name:24s}{cells}", flush=True)


MODELS = (
    "correlated_gaussian",
    "linear_regression",
    "logistic_regression",
    "eight_schools",
    "hierarchical",
)

if __name__ == "__main__":
    steps()
    refits()
    updates()
    models()
