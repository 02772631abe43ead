"""Gaussian process classification of UCI Glass, its likelihood estimated.

Strathmann et al. (2015), Figure 4, left. The authors' published code learns the surrogate from 1,000 draws of
a long run, and so do the rows `oracle`; the paper speaks of 1,000 points of the chain's own history.
Trajectories have 1 to 10 steps.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import gp_classification
import stanadapt
from common import AT_A_TIME, beside, number, table
from ess import geyer_ess
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
)
from mmd import mmd_path
from stanadapt.numerics.surrogate import Surrogate

PUBLISHED = {"KMC lite": 415.0, "KAMH": 35.0, "RW": 25.0}  # minimum ESS in 6,000 iterations
POINTS = 1_000


# Step sizes of trajectories, uniform on a range: the paper's, and ours.
SHORT, LONG = fixed_steps(0.01, 0.1), fixed_steps(0.2, 0.5)
FAITHFUL = {"faithful": True, "subsample": POINTS}
METHODS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("KMC lite, oracle", "kmc_lite", {"faithful": True} | SHORT),
    ("KMC lite, oracle, long steps", "kmc_lite", {"faithful": True} | LONG),
    ("KMC lite", "kmc_lite", FAITHFUL | SHORT),
    ("KMC lite, long steps", "kmc_lite", FAITHFUL | LONG),
    ("KMC lite, our defaults", "kmc_lite", {}),
    ("KAMH", "kamh", FAITHFUL),
    ("RW", "rwm", {}),
)


class Job(NamedTuple):
    chain: Chain
    folder: Path
    oracle: Surrogate | None = None


@functools.cache
def data(folder: Path) -> gp_classification.Labelled:
    return gp_classification.glass(folder)


def measure(job: Job) -> Result:
    chain, known = job.chain, data(job.folder)

    def density(log_scales: np.ndarray, rng: np.random.Generator) -> float:
        estimate = gp_classification.log_likelihood_estimate(known, log_scales, rng)
        return estimate + gp_classification.log_prior(log_scales)

    start = np.zeros(known.inputs.shape[1])
    target = stanadapt.Target.from_python(density, start.size, noisy=True)
    if job.oracle is not None:
        return run_on_surrogate(chain, target, start, job.oracle)
    return run_chain(chain, target, start)


def run(workers: ProcessPoolExecutor, given: argparse.Namespace) -> Found | None:
    if not (given.data / "glass.csv").is_file():
        print(f"Glass is skipped: no glass.csv in {given.data}; --data or CLASSIFICATION names its folder")
        return None
    folder, repeats = given.data.resolve(), given.repeats or (1 if given.quick else 3)
    iterations, long = (300, 1_000) if given.quick else (6_000, 30_000)
    benchmark = [
        Job(Chain("benchmark", "rwm", {}, long // 10, long, i, given.seed, thin=10), folder)
        for i in range(AT_A_TIME)
    ]
    truth = np.concatenate([result.draws for result in gathered(workers, measure, benchmark, "long run")])
    points = np.random.default_rng(given.seed).permutation(truth)[: 100 if given.quick else POINTS]
    oracle = learnt_from(points, len(points))
    methods = sized(METHODS, given)
    # Every iteration adapts, as in the paper: what is looked at is warm-up.
    jobs = [
        Job(
            Chain(label, name, settings, iterations, 1, i, given.seed, adapting=True),
            folder,
            oracle if "oracle" in label else None,
        )
        for i in range(repeats)
        for label, name, settings in methods
    ]
    results = gathered(workers, measure, jobs, "Glass")
    for result in results:
        result.row["min_ess"] = min(geyer_ess(column) for column in result.draws.T)
    rows = pd.DataFrame([result.row for result in results])
    at = np.unique(np.geomspace(10, iterations, 40).astype(int))
    paths = {
        label: np.array([mmd_path(r.draws, truth, at) for r in results if r.row["method"] == label])
        for label in rows["method"].unique()
    }
    print(f"\nFigure 4, left: Glass, {iterations} iterations from 0, {repeats} repeats (1 st.d. over them).")
    print("Distance from a long run in moments up to order 3: median squared MMD. Cells: paper / ours\n")
    steps = [k for k in (100, 500, 1_000, 3_000, 6_000) if k <= iterations]
    header = ("method", "acceptance", "min ESS", *(f"MMD² after {k}" for k in steps), "time (s)")
    lines = [
        _line(label, rows[rows["method"] == label], np.median(paths[label], axis=0), at, steps)
        for label in paths
    ]
    print(table(header, lines), flush=True)
    return Found(rows, paths | {"at": at})


def _line(
    label: str, ours: pd.DataFrame, path: np.ndarray, at: np.ndarray, steps: Sequence[int]
) -> list[str]:
    ess = ours["min_ess"]
    return [
        label,
        f"{ours['acceptance'].mean():.2f}",
        beside(number(PUBLISHED.get(label)), number(ess.mean(), ess.std())),
        *(f"{np.exp(np.interp(np.log(k), np.log(at), np.log(path))):.3g}" for k in steps),
        number(ours["seconds"].median()),
    ]
