"""Modes that no chain visits: how often they are said, and whether any is said where there is none.

    python examples/benchmarks/modes.py [--method fisher_mala fisher_hmc] [--seeds 5] [--name NAME ...]
    python examples/benchmarks/modes.py --data [--method fisher_hmc]

Ten targets with two modes, at a method's defaults. Of every target: in how many runs a mode has less than a
tenth of its share of the draws; how many of these have the finding `modes`, how many only another one, and of
how many nothing is said; and what the search costs, in evaluations and in time, beside its run. With --data
all posteriors of ../shared/data of at most 100 dimensions, one seed each: beyond that nothing is searched.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import stanadapt
from posteriordb import DEFAULT, program_and_data
from stanadapt.result import build
from stanadapt.result.container import datasets

SHARED = Path(os.environ.get("POSTERIORDB", DEFAULT)).parents[1]
LARGEST = 100  # dimensions


class Case(NamedTuple):
    """A target, and its second mode."""

    program: str
    weight: float  # of the second mode
    is_there: Callable[[dict[str, np.ndarray]], np.ndarray]  # draws -> whether they are in the second mode
    data: Any = None


def mixture(d: int, weight: float, first: str, second: str, is_there: Callable[[np.ndarray], Any]) -> Case:
    """A mixture of two laws of a vector x."""
    program = f"parameters {{ vector[{d}] x; }} model {{ target += log_mix({weight}, {second}, {first}); }}"
    return Case(program, weight, lambda draws: is_there(draws["x"]))


LABELS = """data { int n; vector[n] y; }
parameters { vector[2] mu; vector<lower=0>[2] sigma; real<lower=0, upper=1> share; }
model { mu ~ normal(0, 10); sigma ~ lognormal(0, 1); share ~ beta(2, 2);
  for (i in 1:n) target += log_mix(share, normal_lpdf(y[i] | mu[1], sigma[1]),
                                          normal_lpdf(y[i] | mu[2], sigma[2])); }"""
FACTOR = """data { int n; matrix[n, 4] y; }
parameters { vector[4] loading; vector<lower=0>[4] noise; }
model { loading ~ normal(0, 2); noise ~ lognormal(-1, 0.5);
  for (i in 1:n) y[i] ~ multi_normal(rep_vector(0, 4), add_diag(loading * loading', square(noise))); }"""
WIDE = """parameters { real<lower=0> s; vector[3] x; }
model { target += log_mix(0.4, lognormal_lpdf(s | 5, 0.1), lognormal_lpdf(s | 0, 0.3)); x ~ normal(0, 1); }"""
_rng = np.random.default_rng(1)
_away = _rng.standard_normal(10)
_away *= 15.0 / np.linalg.norm(_away)
_point = ", ".join(f"{entry:.4f}" for entry in _away)
_y = np.concatenate([_rng.normal(-3.0, 1.0, 40), _rng.normal(3.0, 0.5, 60)])
_scores = _rng.standard_normal((80, 1)) * [1.0, 1.5, -0.8, 1.2] + 0.4 * _rng.standard_normal((80, 4))

CASES: dict[str, Case] = {
    "narrow, to the right": mixture(
        1, 0.3, "normal_lpdf(x | -8, 1)", "normal_lpdf(x | 8, 0.3)", lambda x: x[..., 0] > 3.0
    ),
    "narrow, 5 dimensions": mixture(
        5, 0.1, "normal_lpdf(x | 0, 1)", "normal_lpdf(x | 10, 0.2)", lambda x: x.mean(axis=-1) > 5.0
    ),
    "spike at 3": mixture(
        1, 0.5, "normal_lpdf(x | 0, 1)", "normal_lpdf(x | 3, 0.01)", lambda x: abs(x[..., 0] - 3.0) < 0.05
    ),
    "spike in the middle": mixture(
        1, 0.5, "normal_lpdf(x | 0, 1)", "normal_lpdf(x | 0, 0.001)", lambda x: abs(x[..., 0]) < 0.005
    ),
    "50 dimensions": mixture(
        50, 0.25, "normal_lpdf(x | 0, 1)", "normal_lpdf(x | 10, 1)", lambda x: x.mean(axis=-1) > 5.0
    ),
    "50 dimensions, one axis": mixture(
        50,
        0.25,
        "normal_lpdf(x | 0, 1)",
        "normal_lpdf(x[1] | 10, 1) + normal_lpdf(x[2:] | 0, 1)",
        lambda x: x[..., 0] > 5.0,
    ),
    "10 dimensions, any direction": mixture(
        10,
        0.5,
        "normal_lpdf(x | 0, 1)",
        f"normal_lpdf(x | [{_point}]', 0.7)",
        lambda x: np.linalg.norm(x - _away, axis=-1) < 6.0,
    ),
    "a bounded scale": Case(WIDE, 0.4, lambda draws: draws["s"] > 20.0),
    "labels": Case(LABELS, 0.5, lambda draws: draws["mu"][..., 0] > 0.0, {"n": len(_y), "y": _y}),
    "signs": Case(FACTOR, 0.5, lambda draws: draws["loading"][..., 0] > 0.0, {"n": 80, "y": _scores}),
}


class Watch:
    """What the search of the latest run has taken."""

    def __init__(self) -> None:
        self.seconds, self.evaluations, self._search = 0.0, 0, build.unvisited
        vars(build)["unvisited"] = self

    def __call__(self, *given: Any) -> Any:
        began = time.perf_counter()
        found = self._search(*given)
        self.seconds, self.evaluations = time.perf_counter() - began, found.evaluations
        return found


class Outcome(NamedTuple):
    """A run, what was found, and what the search took as shares of the run."""

    draws: dict[str, np.ndarray]
    found: dict[str, str]
    evaluations: float
    time: float


def run(posterior: stanadapt.Posterior, method: str, seed: int, watch: Watch) -> Outcome:
    idata = stanadapt.sample(posterior, method=method, seed=seed, progress=False)
    groups = datasets(idata)
    draws, learnt = groups["posterior"], groups["adaptation"]
    found = {finding.kind: finding.text for finding in stanadapt.diagnose(idata, list(posterior.parameters))}
    counts = [learnt[name].sum() for name in ("evaluations_warmup", "evaluations") if name in learnt]
    share = watch.evaluations / max(float(sum(counts)), 1.0)
    seconds = draws.attrs["sampling_time"]
    values = {str(name): draws[name].values for name in posterior.parameters}
    return Outcome(values, found, share, watch.seconds / seconds)


def measure(method: str, name: str, seeds: int, watch: Watch) -> str:
    """A row of the table."""
    case = CASES[name]
    posterior = stanadapt.Posterior(case.program, case.data)
    lacking, said, other, silent, costs, times = 0, 0, 0, 0, [], []
    for seed in range(1, seeds + 1):
        outcome = run(posterior, method, seed, watch)
        share = float(case.is_there(outcome.draws).mean())
        costs.append(100.0 * outcome.evaluations)
        times.append(100.0 * outcome.time)
        if min(share / case.weight, (1.0 - share) / (1.0 - case.weight)) < 0.1:
            lacking += 1
            said += "modes" in outcome.found
            other += bool(outcome.found) and "modes" not in outcome.found
            silent += not outcome.found
    cost = f"{np.median(costs):.1f} | {np.median(times):.1f}"
    return f"| {method} | {name} | {lacking} | {said} | {other} | {silent} | {cost} |"


def posteriors() -> Iterator[tuple[str, stanadapt.Posterior]]:
    """All of ../shared/data that are not too large."""
    for name in ("posteriordb", "posteriordb_hierarchical"):
        folder = SHARED / name / "posterior_database"
        for path in sorted((folder / "posteriors").glob("*.json")):
            yield path.stem, stanadapt.Posterior(*program_and_data(folder, path.stem))
    for path in sorted((SHARED / "microcanonical").glob("*.stan")):
        data = path.with_suffix(".json")
        yield path.stem, stanadapt.Posterior(path, data if data.exists() else {"D": 18, "Q": 0.1})


def all_data(method: str, watch: Watch) -> None:
    print("| posterior | d | s | % evaluations of the search | % time | findings |")
    print("| --- | ---: | ---: | ---: | ---: | --- |")
    for name, posterior in posteriors():
        if posterior.dim > LARGEST:
            print(f"| {name} | {posterior.dim} | | | | not searched |", flush=True)
            continue
        began = time.perf_counter()
        outcome = run(posterior, method, 1, watch)
        seconds = time.perf_counter() - began
        cost = f"{100.0 * outcome.evaluations:.1f} | {100.0 * outcome.time:.1f}"
        text = f": {outcome.found['modes']}" if "modes" in outcome.found else ""
        kinds = ", ".join(outcome.found)
        print(f"| {name} | {posterior.dim} | {seconds:.2f} | {cost} | {kinds}{text} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--method", nargs="+", default=["fisher_mala", "fisher_hmc", "rwm", "nuts"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--name", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--data", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    watch = Watch()
    if options.data:
        for method in options.method:
            all_data(method, watch)
        return
    print("| method | target | lack a mode | `modes` | only others | nothing | % evaluations | % time |")
    print("| --- | --- |" + " ---: |" * 6)
    for method in options.method:
        for name in options.name:
            print(measure(method, name, options.seeds, watch), flush=True)


if __name__ == "__main__":
    main()
