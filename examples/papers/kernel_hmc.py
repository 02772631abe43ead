"""Strathmann et al. (2015), Gradient-free Hamiltonian Monte Carlo: the paper's figures beside ours.

    python examples/papers/kernel_hmc.py [--part 1 2 3 4] [--repeats N] [--quick] [--figures] [--out FOLDER]

    1  acceptance along trajectories on a learnt surrogate, Gaussian targets (Figure 2)
    2  the 8-d banana (Figure 3)
    3  Gaussian process classification of UCI Glass, its likelihood estimated (Figure 4, left)
    4  approximate Bayesian computation on a skew normal (Figure 4, middle and right)

What the text of the paper leaves open is as in the authors' published code.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from tqdm import tqdm

import abc_skew_normal
import banana
import gp_classification
import stanadapt
import trajectories
from common import AT_A_TIME, beside, number, pool, table
from ess import autocorrelation, geyer_ess
from mmd import mmd_path
from stanadapt import samplers
from stanadapt.results import datasets
from targets import CLASSIFICATION

# Mean acceptance of KMC by (d, n), over the first and last rows of the authors' result file, 4 to 16 of each.
FIGURE_2 = {
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


class Published(NamedTuple):
    """Of Figure 3: means over the first rows of the authors' result files, the norm's median."""

    acceptance: float
    norm_of_mean: float
    min_ess: float


FIGURE_3 = {
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
NAMES = {"hmc": "HMC", "kmc_finite": "KMC finite", "kmc_lite": "KMC lite", "kamh": "KAMH", "rwm": "RW"}


class Found(NamedTuple):
    """What a part has measured; `curves` is what its figure shows beside."""

    rows: pd.DataFrame  # one a repeat
    curves: dict[str, Any]


def gathered(
    workers: ProcessPoolExecutor, measure: Callable[[Any], Any], jobs: Sequence[Any], name: str
) -> list[Any]:
    """What `measure` gives for all jobs; one that failed leaves a line that says why."""
    futures = [workers.submit(measure, job) for job in jobs]
    results = []
    for job, future in zip(jobs, tqdm(futures, name, disable=None, leave=False), strict=True):
        try:
            results.append(future.result())
        except stanadapt.StanAdaptError as error:
            print(f"{name}: {job} failed: {error}")
    return results


def with_error(values: pd.Series, digits: int) -> str:
    """The mean, and its standard error in brackets."""
    error = f" ({values.sem():.{digits}f})" if len(values) > 1 else ""
    return f"{values.mean():.{digits}f}{error}"


def there(name: str) -> bool:
    if name not in samplers.METHODS:
        print(f"{name} is skipped: it is not among this stanadapt's methods")
    return name in samplers.METHODS


# --- 1: acceptance along trajectories


def part_1(workers: ProcessPoolExecutor, given: argparse.Namespace) -> Found:
    dims, sizes = ((2, 8), (100, 200)) if given.quick else ((1, 2, 4, 8, 16, 32), (100, 200, 500, 1000, 2000))
    repeats = given.repeats or (5 if given.quick else 100)
    jobs = [
        trajectories.Trial(n, d, i, given.seed) for n in reversed(sizes) for d in dims for i in range(repeats)
    ]
    rows = pd.DataFrame(gathered(workers, trajectories.measure, jobs, "trajectories"))
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
    paper = FIGURE_2.get((d, n))
    return beside(f"{paper:.2f}" if paper else "", with_error(cell, 2))


# --- 2: the banana


def part_2(workers: ProcessPoolExecutor, given: argparse.Namespace) -> Found:
    sizes = (100, 200) if given.quick else (50, 100, 200, 500, 1000, 2000)
    repeats = given.repeats or (2 if given.quick else 30)
    methods = [("hmc", 0), ("rwm", 0)]
    methods += [(name, n) for name in ("kmc_finite", "kamh") if there(name) for n in sizes]
    jobs = [banana.Run(*method, i, given.seed) for method in methods for i in range(repeats)]
    rows = pd.DataFrame(gathered(workers, banana.measure, jobs, "banana"))
    print(f"\nFigure 3: 8-d banana, {banana.KEPT} draws, {repeats} repeats (1 st.d. over them).")
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
    paper = FIGURE_3[method, n]
    ess = ours["min_ess"]
    return [
        NAMES[method],
        str(n or ""),
        f"{paper.acceptance:.2f} / {ours['acceptance'].mean():.2f}",
        f"{paper.norm_of_mean:.2f} / {ours['norm_of_mean'].median():.2f}",
        f"{paper.min_ess:.1f} / {number(ess.mean(), ess.std())}",
        f"{paper.min_ess / FIGURE_3['hmc', 0].min_ess:.2f} / {ess.mean() / hmc:.2f}",
        number(ours["seconds"].median()),
    ]


# --- Targets that are Python functions: one chain


class Chain(NamedTuple):
    """A chain on a target whose density is estimated."""

    label: str
    method: str
    settings: dict[str, Any]
    warmup: int
    draws: int
    repeat: int
    seed: int
    folder: Path | None = None  # with glass.csv
    thin: int = 1


class Result(NamedTuple):
    row: dict[str, Any]
    draws: np.ndarray  # (n, d)
    warmup: np.ndarray  # (w, d)


def run_chain(chain: Chain, density: Callable[..., float], start: np.ndarray) -> Result:
    target = stanadapt.Target.from_python(density, start.size, noisy=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the table shows what a finding would say
        groups = datasets(
            stanadapt.sample(
                target,
                method=chain.method,
                settings=chain.settings,
                warmup=chain.warmup,
                draws=chain.draws,
                thin=chain.thin,
                chains=1,
                seed=chain.seed + chain.repeat,
                inits=start[None],
                save_warmup=True,
                progress=False,
            )
        )
    stats, before = groups["sample_stats"], groups.get("warmup_sample_stats")
    row = {
        "method": chain.label,
        "repeat": chain.repeat,
        "acceptance": float(stats["acceptance_rate"].mean()),
        "acceptance_adapting": np.nan if before is None else float(before["acceptance_rate"].mean()),
        "seconds": float(groups["adaptation"]["seconds_total"].sum()),
    }
    warmup = np.empty((0, start.size)) if before is None else groups["warmup_posterior"]["x"].values[0]
    return Result(row, groups["posterior"]["x"].values[0], warmup)


# --- 3: Gaussian process classification

GLASS_ESS = {"KMC lite": 415.0, "KAMH": 35.0, "RW": 25.0}  # minimum, in 6,000 iterations
GLASS = (
    ("KMC lite", "kmc_lite", {"faithful": True, "subsample": 1_000, "regularisation": 0.001}),
    ("KMC lite, our defaults", "kmc_lite", {}),
    ("KAMH", "kamh", {"faithful": True, "subsample": 1_000}),
    ("RW", "rwm", {}),
)


def glass_chain(chain: Chain) -> Result:
    assert chain.folder is not None
    data = gp_classification.glass(chain.folder)

    def density(log_scales: np.ndarray, rng: np.random.Generator) -> float:
        estimate = gp_classification.log_likelihood_estimate(data, log_scales, rng)
        return estimate + gp_classification.log_prior(log_scales)

    return run_chain(chain, density, np.zeros(data.inputs.shape[1]))


def part_3(workers: ProcessPoolExecutor, given: argparse.Namespace) -> Found | None:
    if not (given.data / "glass.csv").is_file():
        print(f"Glass is skipped: no glass.csv in {given.data}; --data or CLASSIFICATION names its folder")
        return None
    repeats = given.repeats or (1 if given.quick else 10)
    iterations, long = (300, 1_000) if given.quick else (6_000, 50_000)
    chosen = [of for of in GLASS if there(of[1])]
    if given.quick:
        chosen = [(label, name, _small(settings)) for label, name, settings in chosen]
    folder = given.data.resolve()
    # All iterations adapt, as in the paper: what is looked at is the warm-up.
    jobs = [
        Chain(label, name, settings, iterations, 1, i, given.seed, folder)
        for i in range(repeats)
        for label, name, settings in chosen
    ]
    benchmark = [
        Chain("benchmark", "arwmh", {}, long // 10, long, i, given.seed, folder, thin=10)
        for i in range(AT_A_TIME)
    ]
    kept = gathered(workers, glass_chain, benchmark, "benchmark")
    results = gathered(workers, glass_chain, jobs, "glass")
    truth = np.concatenate([result.draws for result in kept])
    at = np.unique(np.geomspace(10, iterations, 40).astype(int))
    for result in results:
        result.row["min_ess"] = min(geyer_ess(column) for column in result.warmup.T)
    rows = pd.DataFrame([result.row for result in results])
    rows["acceptance"] = rows.pop("acceptance_adapting")
    paths = {
        label: np.array([mmd_path(r.warmup, truth, at) for r in results if r.row["method"] == label])
        for label, _, _ in chosen
    }
    print(f"\nFigure 4, left: Glass, {iterations} iterations from 0, {repeats} repeats (1 st.d. over them).")
    print("Distance from a long run in moments up to order 3: median squared MMD. Cells: paper / ours\n")
    steps = [k for k in (100, 500, 1_000, 3_000, 6_000) if k <= iterations]
    header = ("method", "acceptance", "min ESS", *(f"MMD² after {k}" for k in steps), "time (s)")
    lines = [
        _glass_line(label, rows[rows["method"] == label], np.median(paths[label], axis=0), at, steps)
        for label in paths
    ]
    print(table(header, lines), flush=True)
    return Found(rows, paths | {"at": at})


def _small(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: 100 if name == "subsample" else value for name, value in settings.items()}


def _glass_line(
    label: str, ours: pd.DataFrame, path: np.ndarray, at: np.ndarray, steps: Sequence[int]
) -> list[str]:
    ess = ours["min_ess"]
    return [
        label,
        f"{ours['acceptance'].mean():.2f}",
        beside(number(GLASS_ESS.get(label)), number(ess.mean(), ess.std())),
        *(f"{np.exp(np.interp(np.log(k), np.log(at), np.log(path))):.3g}" for k in steps),
        number(ours["seconds"].mean()),
    ]


# --- 4: approximate Bayesian computation

ABC_LEAPFROG = {"n_leapfrog_min": 50, "n_leapfrog_max": 50}
ABC = (
    ("KMC lite", "kmc_lite", {"faithful": True, "subsample": 1_000} | ABC_LEAPFROG),
    ("RW", "rwm", {}),
)
HABC = {
    "HABC": abc_skew_normal.Hamiltonian(),
    "HABC, no friction": abc_skew_normal.Hamiltonian(high=0.05, friction=False),
}


def abc_chain(chain: Chain) -> Result:
    if chain.label not in HABC:
        return run_chain(chain, abc_skew_normal.density, abc_skew_normal.TRUE)
    rng, began = np.random.default_rng([chain.seed, chain.repeat]), time.perf_counter()
    draws = abc_skew_normal.habc(HABC[chain.label], chain.warmup + chain.draws, rng)[chain.warmup :]
    row = {"method": chain.label, "repeat": chain.repeat, "acceptance": 1.0}
    return Result(row | {"seconds": time.perf_counter() - began}, draws, draws[:0])


def part_4(workers: ProcessPoolExecutor, given: argparse.Namespace) -> Found:
    repeats = given.repeats or (1 if given.quick else 10)
    warmup, draws, hamiltonian = (200, 300, (10, 50)) if given.quick else (2_000, 5_000, (200, 1_000))
    chosen = [of for of in ABC if there(of[1])]
    if given.quick:
        chosen = [(label, name, _small(settings)) for label, name, settings in chosen]
    jobs = [
        Chain(label, name, settings, warmup, draws, i, given.seed)
        for label, name, settings in chosen
        for i in range(repeats)
    ]
    jobs += [Chain(label, "habc", {}, *hamiltonian, i, given.seed) for label in HABC for i in range(repeats)]
    results = gathered(workers, abc_chain, jobs, "ABC")
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


PARTS = {1: part_1, 2: part_2, 3: part_3, 4: part_4}


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    add = parser.add_argument
    add("--part", type=int, nargs="+", choices=sorted(PARTS), default=sorted(PARTS))
    add("--repeats", type=int, help="of every row; default 100, 30, 10 and 10")
    add("--quick", action="store_true", help="few and short chains: shows that everything runs")
    add("--figures", action="store_true", help="draw the paper's figures into pictures/ too")
    add(
        "--out", type=Path, metavar="FOLDER", help="write the measured rows, one a repeat, to csv files in it"
    )
    data = Path(os.environ.get("CLASSIFICATION", CLASSIFICATION))
    add("--data", type=Path, default=data, metavar="FOLDER", help="with glass.csv; CLASSIFICATION")
    add("--seed", type=int, default=1)
    given = parser.parse_args()
    if given.repeats is not None and given.repeats < 1:
        parser.error(f"--repeats {given.repeats}: it must be at least 1")
    if given.out and not given.out.is_dir():
        parser.error(f"--out {given.out}: no such folder")
    return given


def main() -> None:
    given = options()
    print(f"At most {AT_A_TIME} chains at a time, one core each. Times are wall times.")
    if given.quick:
        print("Chains are too short here to be compared with the paper's.")
    with pool() as workers:
        for part in given.part:
            began = time.perf_counter()
            found = PARTS[part](workers, given)
            if found is None:
                continue
            print(f"\n{time.perf_counter() - began:.0f} s for part {part}")
            if given.out:
                found.rows.to_csv(given.out / f"kernel_hmc_{part}.csv", index=False)
            if given.figures:
                import kernel_figures

                kernel_figures.DRAW[part](*found)


if __name__ == "__main__":
    main()
