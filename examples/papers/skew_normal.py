"""Approximate Bayesian computation on a skew normal.

Strathmann et al. (2015), Figure 4, middle and right. Trajectories of KMC and HABC have 50 steps, as in the
authors' published code; HABC's are of (0.01, 0.1). Without friction it diverges at such steps, and has those of
(0.01, 0.05).
"""

from __future__ import annotations

import argparse
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
import pandas as pd

import abc_skew_normal
from common import number, table
from ess import autocorrelation, geyer_ess
from kernel_common import Chain, Found, Result, gathered, run_chain, sized, with_error

LEAPFROG = {"n_leapfrog_min": 50, "n_leapfrog_max": 50}
METHODS = (
    ("KMC lite", "kmc_lite", {"faithful": True, "subsample": 1_000} | LEAPFROG),
    ("RW", "rwm", {}),
)
HABC = {
    "HABC": abc_skew_normal.Hamiltonian(),
    "HABC, no friction": abc_skew_normal.Hamiltonian(high=0.05, friction=False),
}


def measure(chain: Chain) -> Result:
    if chain.label not in HABC:
        return run_chain(chain, abc_skew_normal.density, abc_skew_normal.TRUE)
    rng, began = np.random.default_rng([chain.seed, chain.repeat]), time.perf_counter()
    draws = abc_skew_normal.habc(HABC[chain.label], chain.warmup + chain.draws, rng)[chain.warmup :]
    row = {"method": chain.label, "repeat": chain.repeat, "acceptance": 1.0}
    return Result(row | {"seconds": time.perf_counter() - began}, draws)


def run(workers: ProcessPoolExecutor, given: argparse.Namespace) -> Found:
    repeats = given.repeats or (1 if given.quick else 10)
    warmup, draws, hamiltonian = (200, 300, (10, 50)) if given.quick else (2_000, 5_000, (200, 1_000))
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
    labels = dict.fromkeys(job.label for job in jobs)
    draws = {label: [r.draws for r in results if r.row["method"] == label] for label in labels}
    rows = pd.DataFrame([_abc_row(result) for result in results])
    lines = [_abc_line(label, rows[rows["method"] == label], len(draws[label][0])) for label in labels]
    print(table(header, lines), flush=True)
    return Found(rows, draws | {"exact": exact})


def _abc_row(result: Result) -> dict[str, Any]:
    x = result.draws
    return result.row | {
        "mean": x[:, 0].mean(),
        "spread": x.std(axis=0).mean(),
        "ess": geyer_ess(x[:, 0]) * 1_000 / len(x),
        "correlation": autocorrelation(x[:, 0])[10],
    }


def _abc_line(label: str, ours: pd.DataFrame, draws: int) -> list[str]:
    mean = ours.mean(numeric_only=True)
    simulations = HABC[label].simulations if label in HABC else abc_skew_normal.DATA_SETS
    return [
        *(label, str(draws), f"{mean['acceptance']:.2f}", str(simulations)),
        *(with_error(ours["mean"], 3), with_error(ours["spread"], 3)),
        *(number(mean["ess"]), f"{mean['correlation']:.2f}", number(mean["seconds"])),
    ]
