"""What the energy errors of trajectories look like, and what rules on them make of good and bad posteriors.

    python examples/benchmarks/divergences.py [--method fisher_hmc] [--seeds 20] [--first-seed 101]
        [--posteriordb-seeds 2] [--name NAME ...]

Runs a method at its defaults, 4 chains, from random starts. The first table has for every posterior the share
of draws, in per cent, whose trajectory rose in energy by more than some limits (median over seeds), or ended
where there is no energy; the smallest and the largest E-BFMI of a chain; and how many runs have a finding on
it. The second has for rules "more than this share of the draws rose by more than this limit" the misses and
the false alarms. A miss is a run on a bad posterior that the rule does not name; beside it stand those that
have no other finding either, E-BFMI among them. A false alarm is a run on a good posterior that the rule
names and no other finding does.

Bad are necks (the funnel, centred eight schools, a hierarchy without data, a scale that changes with place),
a ridge that bends (the banana), and walls (a ball, a half-line). Hard are two Gaussian processes of
PosteriorDB, on which Stan's own sampler reports some divergences: they count as neither. All others are good.
The folder `posterior_database` is the one in ../shared/data, or the one that POSTERIORDB names.
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import stanadapt
from posteriordb import DEFAULT, program_and_data
from stanadapt.diagnostics.statistics import e_bfmi
from stanadapt.result.container import datasets

MODELS = Path(__file__).parents[2] / "models"
SHIPPED = {
    "eight_schools_centered": "bad",
    "funnel": "bad",
    "banana": "bad",
    "eight_schools": "good",
    "hierarchical": "good",
    "linear_regression": "good",
    "logistic_regression": "good",
    "correlated_gaussian": "good",
}
PROGRAMS = {
    "neck": """
        parameters { real mu; real<lower=0> tau; vector[4] theta; }
        model { mu ~ normal(0, 5); tau ~ normal(0, 5); theta ~ normal(mu, tau); }""",
    "changing scale": """
        parameters { real x; real y; }
        model { x ~ normal(0, 1); y ~ normal(0, 0.001 + exp(2 * x)); }""",
    "ball": """
        parameters { vector[3] x; }
        model { if (dot_self(x) > 1) reject("outside of the ball"); }""",
    "half-line": """
        parameters { real x; vector[4] y; }
        model { if (x < 0) target += negative_infinity(); x ~ normal(0, 1); y ~ normal(0, 1); }""",
}
BAD = {"eight_schools-eight_schools_centered"}  # of PosteriorDB
HARD = {"gp_pois_regr-gp_pois_regr", "mcycle_gp-accel_gp"}
SHOWN = (10.0, 50.0, 200.0, 1_000.0)
LIMITS = (20.0, 50.0, 100.0, 200.0, 400.0, 1_000.0)
SHARES = (0.0, 0.0005, 0.001, 0.002, 0.003, 0.005)


class Problem(NamedTuple):
    """A posterior, and what is known of it."""

    name: str
    kind: str  # "good", "bad" or "hard"
    model: Any
    data: Any
    n_seeds: int


class Outcome(NamedTuple):
    """What one run came to."""

    rises: np.ndarray  # (n,) energy errors of all draws' trajectories
    bfmi: np.ndarray  # (chains,)
    gradients: float  # of a draw
    findings: set[str]


def problems(n_seeds: int, of_posteriordb: int) -> Iterator[Problem]:
    for name, kind in SHIPPED.items():
        folder = MODELS / name
        yield Problem(name, kind, folder / f"{name}.stan", folder / f"{name}.json", n_seeds)
    for name, program in PROGRAMS.items():
        yield Problem(name, "bad", program, None, n_seeds)
    database = Path(os.environ.get("POSTERIORDB", DEFAULT))
    for path in sorted((database / "posteriors").glob("*.json")) if of_posteriordb else []:
        kind = "bad" if path.stem in BAD else "hard" if path.stem in HARD else "good"
        yield Problem(path.stem, kind, *program_and_data(database, path.stem), of_posteriordb)


def run(problem: Problem, method: str, seed: int) -> Outcome:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stanadapt.StanAdaptWarning)
        idata = stanadapt.sample(problem.model, problem.data, method=method, seed=seed, progress=False)
        findings = {finding.kind for finding in stanadapt.diagnose(idata)}
    stats = datasets(idata)["sample_stats"]
    bfmi = e_bfmi(stats["energy"].transpose("chain", "draw").values)
    return Outcome(stats["energy_error"].values.ravel(), bfmi, float(stats["n_steps"].mean()), findings)


def row(problem: Problem, outcomes: list[Outcome]) -> str:
    """Of the first table."""
    shares = [
        f"{100 * np.median([np.mean(outcome.rises > limit) for outcome in outcomes]):.2f}"
        for limit in (*SHOWN, np.finfo(float).max)
    ]
    bfmi = np.concatenate([outcome.bfmi for outcome in outcomes])
    low = sum("energy" in outcome.findings for outcome in outcomes)
    gradients = np.mean([outcome.gradients for outcome in outcomes])
    cells = [problem.name, problem.kind, str(len(outcomes)), f"{gradients:.1f}", *shares]
    cells += [f"{bfmi.min():.2f}", f"{bfmi.max():.2f}", str(low)]
    return f"| {' | '.join(cells)} |"


def print_rules(outcomes: dict[str, list[Outcome]]) -> None:
    """The second table."""
    print("\n| limit | share, % | misses | and no other finding | false alarms |")
    print("| ---: |" + " ---: |" * 4)
    for limit in LIMITS:
        for share in SHARES:
            missed = [o for o in outcomes["bad"] if np.mean(o.rises > limit) <= share]
            alone = [o for o in missed if not o.findings - {"divergences"}]
            accused = [
                o
                for o in outcomes["good"]
                if np.mean(o.rises > limit) > share and not o.findings - {"divergences"}
            ]
            print(
                f"| {limit:.0f} | {100 * share:.2f} | {len(missed)} of {len(outcomes['bad'])} | {len(alone)} "
                f"| {len(accused)} of {len(outcomes['good'])} |"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--method", default="fisher_hmc", choices=["fisher_hmc", "hmc"])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=101)
    parser.add_argument("--posteriordb-seeds", type=int, default=2)
    parser.add_argument("--name", nargs="*")
    options = parser.parse_args()
    limits = " | ".join(f"> {limit:.0f}" for limit in SHOWN)
    print(
        f"| posterior | kind | runs | gradients | {limits} | no energy | E-BFMI: least | most | found low |"
    )
    print("| --- | --- |" + " ---: |" * 10)
    outcomes: dict[str, list[Outcome]] = {"good": [], "bad": [], "hard": []}
    for problem in problems(options.seeds, options.posteriordb_seeds):
        if options.name and problem.name not in options.name:
            continue
        seeds = range(options.first_seed, options.first_seed + problem.n_seeds)
        found = [run(problem, options.method, seed) for seed in seeds]
        outcomes[problem.kind] += found
        print(row(problem, found), flush=True)
    print_rules(outcomes)


if __name__ == "__main__":
    main()
