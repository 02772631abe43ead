"""Approximate Bayesian computation on a skew normal.

Strathmann et al. (2015), Figure 4, middle and right. As in the authors' published code, trajectories of KMC
and HABC have 50 steps, of (0.01, 0.1), and KMC learns from exact draws (here: in the row `oracle`). HABC
without friction diverges at such steps, and has those of (0.01, 0.05).
"""

from __future__ import annotations

import argparse
import functools
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
import pandas as pd

import abc_skew_normal
from common import number, table
from ess import autocorrelation, geyer_ess
from kernel_common import (
    Chain,
    Found,
    Result,
    fixed_steps,
    gathered,
    learnt_from,
    run_chain,
    run_on_surrogate,
    sized,
    with_error,
)
from stanadapt.numerics.surrogate import Surrogate

TRAJECTORIES = {"faithful": True, "n_leapfrog_min": 50, "n_leapfrog_max": 50} | fixed_steps(0.01, 0.1)
METHODS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("KMC lite, oracle", "kmc_lite", TRAJECTORIES),
    ("KMC lite", "kmc_lite", TRAJECTORIES | {"subsample": 1_000}),
    ("KMC lite, our defaults", "kmc_lite", {}),
    ("RW", "rwm", {}),
)
HABC = {
    "HABC": abc_skew_normal.Hamiltonian(),
    "HABC, no friction": abc_skew_normal.Hamiltonian(high=0.05, friction=False),
}


@functools.cache
def oracle() -> Surrogate:
    """Learnt from 1,000 exact draws."""
    return learnt_from(abc_skew_normal.exact_draws(1_000, np.random.default_rng(0)), 300)


def measure(chain: Chain) -> Result:
    if chain.label == "KMC lite, oracle":
        return run_on_surrogate(chain, abc_skew_normal.target(), abc_skew_normal.TRUE, oracle())
    if chain.label not in HABC:
        return run_chain(chain, abc_skew_normal.target(), abc_skew_normal.TRUE)
    rng, began = np.random.default_rng([chain.seed, chain.repeat]), time.perf_counter()
    draws = abc_skew_normal.habc(HABC[chain.label], chain.warmup + chain.draws, rng)[chain.warmup :]
    row = {"method": chain.label, "repeat": chain.repeat, "acceptance": 1.0}
    return Result(row | {"seconds": time.perf_counter() - began}, draws)


def run(workers: ProcessPoolExecutor, given: argparse.Namespace) -> Found:
    repeats = given.repeats or (1 if given.quick else 5)
    warmup, draws, hamiltonian = (200, 300, (10, 50)) if given.quick else (10_000, 5_000, (200, 1_000))
    jobs = [
        Chain(label, name, settings, warmup, draws, i, given.seed)
        for label, name, settings in sized(METHODS, given)
        for i in range(repeats)
    ]
    jobs += [Chain(label, "habc", {}, *hamiltonian, i, given.seed) for label in HABC for i in range(repeats)]
    results = gathered(workers, measure, jobs, "ABC")
    exact = abc_skew_normal.exact_draws(100_000, np.random.default_rng(given.seed))
    print(f"\nFigure 4, middle and right: ABC, {repeats} repeats (1 standard error). Exact: mean of theta_1")
    print(f"{exact[:, 0].mean():.3f}, standard deviation, over all entries, {exact.std(axis=0).mean():.3f}\n")
    header = (
        *("method", "draws", "acceptance", "simulations a proposal", "mean of theta_1", "standard deviation"),
        *("ESS of theta_1 in 1,000", "correlation at lag 10", "time (s)"),
    )
    rows = pd.DataFrame([_row(result) for result in results])
    chains = {
        label: [result.draws for result in results if result.row["method"] == label]
        for label in rows["method"].unique()
    }
    lines = [_line(label, rows[rows["method"] == label], len(chains[label][0])) for label in chains]
    print(table(header, lines), flush=True)
    return Found(rows, chains | {"exact": exact})


def _row(result: Result) -> dict[str, Any]:
    x = result.draws
    return result.row | {
        "mean": x[:, 0].mean(),
        "spread": x.std(axis=0).mean(),
        "ess": geyer_ess(x[:, 0]) * 1_000 / len(x),
        "correlation": autocorrelation(x[:, 0])[10],
    }


def _line(label: str, ours: pd.DataFrame, draws: int) -> list[str]:
    mean = ours.mean(numeric_only=True)
    simulations = HABC[label].simulations if label in HABC else abc_skew_normal.DATA_SETS
    return [
        *(label, str(draws), f"{mean['acceptance']:.2f}", str(simulations)),
        *(with_error(ours["mean"], 3), with_error(ours["spread"], 3)),
        *(number(mean["ess"]), f"{mean['correlation']:.2f}", number(mean["seconds"])),
    ]
