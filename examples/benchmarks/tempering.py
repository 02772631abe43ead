"""Weights of modes by `tempered`, and by methods that stay in a mode, on fourteen posteriors.

    python examples/benchmarks/tempering.py [--seeds 20] [--problem NAME ...] [--method NAME ...] [--kernel K]

At the defaults of each method, four chains; NAME may also be nutpie, where it is installed, which then runs
on the same compiled model (race/shim.py). The columns: the weight of a part of the posterior
(mode_models.py); its mean over seeds, the mean distance of single chains from it, and the share of chains
without a draw of the part; the root mean square of the errors in standard errors of a run (from the
effective size of the part's indicator), and the share of seeds within 3 of them; the same root mean square,
but with standard errors from tours of replicas, and of single chains; the fewest round trips of a chain;
the number of rungs; gradients for a draw; the root mean square error of the log evidence, and of its errors
in standard errors; the share of seeds with a finding, and the kinds of these.
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import numpy as np
import xarray

import stanadapt
from mode_models import ModeProblem, problems
from stanadapt.numerics.replicas import share_errors, squares_of_tours
from stanadapt.result.container import container, datasets, statistics

HEAD = (
    "problem",
    "method",
    "weight",
    "mean",
    "chains off by",
    "chains without",
    "rms of z",
    "within 3",
    "by tours",
    "of chains",
    "trips",
    "rungs",
    "gradients",
    "log Z off by",
    "rms of z",
    "findings",
)


def by_nutpie(problem: ModeProblem, seed: int) -> Any:
    """A result of nutpie: four chains at its defaults, each with 1,000 draws."""
    from race import problems as raced
    from race.samplers import nutpie
    from stanadapt.model.variables import variables

    opened = raced.opened("modes", problem.program, problem.data)
    outcome = nutpie()(opened, 4, 1).run(1_000, seed)()
    held = {
        name: (("chain", "draw", *(f"{name}_dim_{i}" for i in range(len(variable.shape)))), values)
        for name, variable in variables(opened.parameters + opened.transformed).items()
        for values in [variable.take(outcome.draws)]
    }
    stats = xarray.Dataset({"n_steps": (("chain", "draw"), outcome.steps)})
    return container({"posterior": xarray.Dataset(held), "sample_stats": stats})


def tour_errors(inside: np.ndarray, stats: xarray.Dataset) -> np.ndarray:
    """Standard errors (chain,) of the shares of draws `inside` (chain, draw), from tours of replicas."""
    found = []
    for own, names, restarted in zip(inside, stats["replica"].values, stats["restarted"].values, strict=True):
        tours: list[np.ndarray] = []
        present: dict[int, int] = {}
        for is_inside, name, is_new in zip(own, names, restarted, strict=True):
            if is_new or name not in present:
                present[name] = len(tours)
                tours.append(np.zeros(2))
            tours[present[name]] += (is_inside, 1.0 - is_inside)
        visits = np.array(tours)
        found.append(share_errors(squares_of_tours(visits), visits.sum(axis=0))[0])
    return np.array(found)


def measure(problem: ModeProblem, method: str, seed: int, kernel: str | None) -> dict[str, Any]:
    """One run."""
    settings = {"kernel": kernel} if kernel and method == "tempered" else None
    if method == "nutpie":
        result = by_nutpie(problem, seed)
    else:
        run = {"method": method, "seed": seed, "settings": settings, "progress": False}
        result = stanadapt.sample(problem.program, problem.data, **run)
    groups = datasets(result)
    inside = problem.inside(groups["posterior"]).astype(float)
    size = float(statistics().ess(inside)) if inside.std() > 0.0 else 1.0
    weight = problem.weight
    steps = groups["sample_stats"]["n_steps"].values
    found = {
        "shares": inside.mean(axis=1),
        "z": (inside.mean() - weight) / np.sqrt(weight * (1.0 - weight) / max(size, 1.0)),
        "gradients": float(steps.mean()),
        "kinds": {finding.kind for finding in stanadapt.diagnose(result)},
    }
    if "tempering" in groups:
        attrs, errors = groups["posterior"].attrs, tour_errors(inside, groups["sample_stats"])
        found |= {
            "tours_z": (inside.mean() - weight) / np.sqrt(np.sum(errors**2)) * len(errors),
            "chains_z": (inside.mean(axis=1) - weight) / errors,
            "trips": float(groups["tempering"]["round_trips"].sum("leg").min()),
            "rungs": groups["tempering"].sizes["rung"],
        }
        if problem.log_evidence is not None and "log_evidence" in attrs:
            error = attrs["log_evidence"] - problem.log_evidence
            found |= {"evidence": error, "evidence_z": error / attrs["log_evidence_error"]}
    return found


def row(name: str, problem: ModeProblem, method: str, runs: list[dict[str, Any]]) -> str:
    def column(key: str) -> np.ndarray:
        return np.array([run[key] for run in runs if key in run])

    def shown(values: np.ndarray, how: Any, pattern: str) -> str:
        return format(float(how(values)), pattern) if len(values) else ""

    def rms(values: np.ndarray) -> float:
        return float(np.sqrt(np.mean(values**2)))

    shares, z = np.stack(column("shares")), column("z")
    found = [run["kinds"] for run in runs]
    cells = [
        name,
        method,
        f"{problem.weight:.3f}",
        f"{shares.mean():.3f}",
        f"{np.abs(shares - problem.weight).mean():.3f}",
        f"{np.mean(shares == 0.0):.2f}",
        f"{rms(z):.2f}",
        f"{np.mean(np.abs(z) < 3.0):.2f}",
        shown(column("tours_z"), rms, ".2f"),
        shown(column("chains_z"), rms, ".2f"),
        shown(column("trips"), np.min, ".0f"),
        shown(column("rungs"), np.median, ".0f"),
        f"{column('gradients').mean():.0f}",
        shown(column("evidence"), rms, ".2g"),
        shown(column("evidence_z"), rms, ".2f"),
        " ".join([f"{np.mean([bool(kinds) for kinds in found]):.2f}", *sorted(set().union(*found))]),
    ]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--kernel", help="setting kernel of tempered")
    parser.add_argument("--problem", nargs="*", default=list(problems()), choices=list(problems()))
    parser.add_argument("--method", nargs="*", default=["tempered"])
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"| {' | '.join(HEAD)} |\n|{' --- |' * len(HEAD)}", flush=True)
    for name in asked.problem:
        problem = problems()[name]()
        for method in asked.method:
            runs = [measure(problem, method, seed, asked.kernel) for seed in range(asked.seeds)]
            print(row(name, problem, method, runs), flush=True)


if __name__ == "__main__":
    main()
