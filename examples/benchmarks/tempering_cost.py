"""What a `tempered` run takes beside runs of `fisher_hmc`, on posteriors with one mode.

    python examples/benchmarks/tempering_cost.py [--seeds 2] [--warmup N]

Both at their defaults, four chains. All columns are in units of K runs of `fisher_hmc`, K the rungs of the
path: the draws, warm-up, the search before the run, climbs between rounds, and all of them; evaluations of
the density alone, which is most of the search, count as if they were gradients. `each draw` is a draw beside
K draws, and `same draws` all of it beside K runs of `fisher_hmc` with as many draws as `tempered` makes.
`density` is the time of a density as a share of that of a gradient, and the next two columns are `all` and
`same draws` with densities counted by that. `CPU` is `same draws` in seconds of CPU.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import stanadapt
from stanadapt.jit import kernel
from stanadapt.kinds import Matrix, Target
from stanadapt.numerics.ascent import write_heights
from stanadapt.numerics.mode_search import Surface
from stanadapt.result.container import datasets
from stanadapt.target import log_density_gradient

SCHOOLS = Path(__file__).parents[2] / "models" / "eight_schools" / "eight_schools"
AUTOREGRESSION = (
    "parameters { vector[5] x; } model { x[1] ~ normal(0, 1); x[2:5] ~ normal(0.9 * x[1:4], 0.3); }"
)
LOGISTIC = (
    "data { int n; matrix[n, 10] x; array[n] int y; } parameters { vector[10] b; } "
    "model { b ~ normal(0, 1); y ~ bernoulli_logit(x * b); }"
)


def logistic_data() -> dict[str, Any]:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((1_000, 10))
    y = rng.random(1_000) < 1.0 / (1.0 + np.exp(-x @ rng.standard_normal(10)))
    return {"n": 1_000, "x": x, "y": y.astype(int)}


PROBLEMS: dict[str, tuple[Any, Any]] = {
    "eight schools": (SCHOOLS.with_suffix(".stan"), SCHOOLS.with_suffix(".json")),
    "normal, d = 10": ("parameters { vector[10] x; } model { x ~ normal(0, 1); }", None),
    "autoregression, d = 5": (AUTOREGRESSION, None),
    "Student t, 5 degrees, d = 20": ("parameters { vector[20] x; } model { x ~ student_t(5, 0, 1); }", None),
    "logistic regression, d = 10, 1,000 rows": (LOGISTIC, logistic_data()),
}
COLUMNS = ("K", "draws", "warm-up", "search", "climbs", "all", "each draw", "same draws", "density")
BY_COST = ("all, by cost", "same draws, by cost", "CPU")


@kernel
def write_slopes(target: Target, points: Matrix, slopes: Matrix) -> None:
    """Write the gradients at points (n, d)."""
    for i in range(len(points)):
        log_density_gradient(target, points[i], slopes[i])


def density_share(posterior: stanadapt.Posterior) -> float:
    """The time of a density, as a share of that of a gradient: the median of 15 turns of 2,000 of each."""
    target, points = posterior.model.target(), np.random.default_rng(1).uniform(-1, 1, (2_000, posterior.dim))
    heights, slopes = np.empty(len(points)), np.empty_like(points)

    def seconds(work: Callable[[], None]) -> float:
        began = time.process_time()
        work()
        return time.process_time() - began

    turns = [
        (
            seconds(lambda: write_heights(target, points, heights)),
            seconds(lambda: write_slopes(target, points, slopes)),
        )
        for _ in range(16)
    ]
    return float(np.median([density / gradient for density, gradient in turns[1:]]))


def taken(posterior: stanadapt.Posterior, seed: int, **run: Any) -> dict[str, float]:
    """What the parts of a run take, in evaluations; `densities` of these are of the density alone."""
    counts, evaluate = list[int](), Surface._up_to_failure

    def counting(surface: Surface, points: np.ndarray, heights: np.ndarray) -> np.ndarray:
        found = evaluate(surface, points, heights)
        counts.append(len(found))
        return found

    began = time.process_time()
    with mock.patch.object(Surface, "_up_to_failure", counting):
        groups = datasets(stanadapt.sample(posterior, seed=seed, progress=False, **run))
    seconds = time.process_time() - began
    learnt, sizes = groups["adaptation"], groups["posterior"].sizes
    found = {
        "draws": float(learnt["evaluations"].sum()),
        "warm-up": float(learnt["evaluations_warmup"].sum()),
        "count": float(sizes["chain"] * sizes["draw"]),
        "densities": float(sum(counts)),
        "seconds": seconds,
    }
    if "tempering" in groups:
        found["K"] = float(groups["tempering"].sizes["rung"])
        found["search"] = float(groups["posterior"].attrs["modes_search_evaluations"])
        found["climbs"] = float(learnt["search_gradients"].sum())
    return found


def measure(posterior: stanadapt.Posterior, seed: int, warmup: int | None, density: float) -> list[float]:
    """The columns for one seed. A density takes the share `density` of a gradient's time."""
    one = taken(posterior, seed, method="fisher_hmc")
    path = taken(posterior, seed, method="tempered", warmup=warmup)
    equal = taken(posterior, seed, method="fisher_hmc", draws=round(path["count"] / 4))
    unit = path["K"] * (one["draws"] + one["warm-up"])
    shares = [path[part] / unit for part in ("draws", "warm-up", "search", "climbs")]
    draw = path["draws"] / path["count"] / (path["K"] * one["draws"] / one["count"])
    same = path["K"] * (one["draws"] * path["count"] / one["count"] + one["warm-up"])
    every, saved = sum(shares), path["densities"] * (1.0 - density) / unit
    cpu = path["seconds"] / (path["K"] * equal["seconds"])
    by_cost = every - saved, (every - saved) * unit / same, cpu
    return [path["K"], *shares, every, draw, every * unit / same, density, *by_cost]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--warmup", type=int, help="iterations of warm-up of tempered")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    columns = (*COLUMNS, *BY_COST)
    print(f"| posterior | {' | '.join(columns)} |\n| --- |" + " ---: |" * len(columns))
    for name, (program, data) in PROBLEMS.items():
        posterior = stanadapt.Posterior(program, data)
        density = density_share(posterior)
        measure(posterior, 0, asked.warmup, density)  # what is compiled is not counted
        rows = [measure(posterior, seed, asked.warmup, density) for seed in range(1, asked.seeds + 1)]
        print(f"| {name} | {' | '.join(f'{value:.2f}' for value in np.mean(rows, axis=0))} |", flush=True)


if __name__ == "__main__":
    main()
