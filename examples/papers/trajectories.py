"""Acceptance along trajectories on a learnt surrogate: Strathmann et al. (2015), Figure 2.

The target is N(0, C), C's eigenvalues drawn from Gamma(1, 1), its eigenvectors uniformly. A surrogate with as
many random features as points is fitted to exact draws; one trajectory starts at another, with a standard
normal momentum, and every point of it is asked whether it would be accepted. HMC follows C's own gradient.

From the authors' published code: 10 to 100 steps of size 0.1; a rational quadratic kernel of exponent 0.6;
lambda. Their features are not quite of that kernel, so that sigma is ours, from a few trials.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import linalg, stats

from common import beside, table
from kernel_common import Found, gathered, with_error
from stanadapt.numerics.score_matching import (
    RadialFunction,
    draw_basis,
    empty_sums,
    fit_finite,
    fourier_basis,
    take_in,
)
from stanadapt.numerics.surrogate import RATIONAL_QUADRATIC, surrogate_leapfrog

STEP_SIZE, STEPS = 0.1, (10, 100)
SHAPE, SIGMA, REGULARISATION = 0.6, 16.0, 4.8e-5

# Mean acceptance of KMC by (d, n), over the first and last rows of the authors' result file, 4 to 16 of each.
PUBLISHED = {
    **{(1, 100): 0.86, (1, 500): 0.91, (1, 2000): 0.97, (2, 100): 0.75, (2, 500): 0.82, (2, 2000): 0.92},
    **{(4, 100): 0.64, (4, 500): 0.65, (4, 2000): 0.81, (8, 100): 0.25, (8, 500): 0.59, (8, 2000): 0.61},
    **{
        (16, 100): 0.06,
        (16, 500): 0.09,
        (16, 2000): 0.27,
        (32, 100): 0.03,
        (32, 500): 0.05,
        (32, 2000): 0.06,
    },
}


class Trial(NamedTuple):
    n: int  # points and features
    d: int
    repeat: int
    seed: int


def covariance_root(d: int, rng: np.random.Generator) -> np.ndarray:
    """Lower Cholesky factor of C."""
    axes = stats.ortho_group.rvs(d, random_state=rng) if d > 1 else np.ones((1, 1))
    return np.linalg.cholesky((axes * rng.gamma(1.0, size=d)) @ axes.T)


def along(
    leap: Callable[[np.ndarray, np.ndarray], None],
    energy: Callable[[np.ndarray, np.ndarray], float],
    x: np.ndarray,
    momentum: np.ndarray,
    steps: int,
) -> float:
    """Mean acceptance probability of the points of one trajectory; `leap` moves (x, momentum) in place."""
    x, momentum = x.copy(), momentum.copy()
    first, total = energy(x, momentum), 0.0
    for _ in range(steps):
        leap(x, momentum)
        change = first - energy(x, momentum)
        total += np.exp(min(change, 0.0)) if np.isfinite(change) else 0.0
    return total / steps


def measure(trial: Trial) -> dict[str, float]:
    """One trial: a target, a fit and a trajectory."""
    n, d, repeat, seed = trial
    rng = np.random.default_rng([seed, n, d, repeat])
    root = covariance_root(d, rng)
    precision = linalg.cho_solve((root, True), np.eye(d))
    kernel = RadialFunction(RATIONAL_QUADRATIC, SIGMA, SHAPE)
    basis = fourier_basis(kernel, draw_basis(n, d, SHAPE, rng))
    sums = take_in(empty_sums(basis, REGULARISATION), rng.standard_normal((n, d)) @ root.T)
    surrogate = fit_finite(sums)[1].surrogate

    def energy(x: np.ndarray, momentum: np.ndarray) -> float:
        return 0.5 * (x @ precision @ x + momentum @ momentum)

    def exact(x: np.ndarray, momentum: np.ndarray) -> None:
        momentum -= 0.5 * STEP_SIZE * (precision @ x)
        x += STEP_SIZE * momentum
        momentum -= 0.5 * STEP_SIZE * (precision @ x)

    def learnt(x: np.ndarray, momentum: np.ndarray) -> None:
        surrogate_leapfrog(surrogate, x, momentum, STEP_SIZE, 1)

    steps = int(rng.integers(STEPS[0], STEPS[1] + 1))
    x, momentum = root @ rng.standard_normal(d), rng.standard_normal(d)
    accepted = [along(leap, energy, x, momentum, steps) for leap in (exact, learnt)]
    return trial._asdict() | {"steps": steps, "hmc": accepted[0], "kmc": accepted[1]}


def run(workers: ProcessPoolExecutor, given: argparse.Namespace) -> Found:
    dims, sizes = ((2, 8), (100, 200)) if given.quick else ((1, 2, 4, 8, 16, 32), (100, 200, 500, 1000, 2000))
    repeats = given.repeats or (5 if given.quick else 100)
    jobs = [Trial(n, d, i, given.seed) for n in reversed(sizes) for d in dims for i in range(repeats)]
    rows = pd.DataFrame(gathered(workers, measure, jobs, "trajectories"))
    print(
        f"\nFigure 2: acceptance along trajectories, {repeats} trials a cell (1 standard error). Paper / ours"
    )
    print("KMC finite, n points and n features\n")
    lines = [
        [str(d), *(_acceptance(rows, d, n) for n in sizes), f"{rows[rows['d'] == d]['hmc'].mean():.2f}"]
        for d in dims
    ]
    print(table(["d", *(f"n = {n}" for n in sizes), "HMC"], lines), flush=True)
    return Found(rows, {})


def _acceptance(rows: pd.DataFrame, d: int, n: int) -> str:
    cell = rows[(rows["d"] == d) & (rows["n"] == n)]["kmc"]
    paper = PUBLISHED.get((d, n))
    return beside(f"{paper:.2f}" if paper else "", with_error(cell, 2))
