"""What a `tempered` run takes beside runs of `fisher_hmc`, on posteriors with one mode.

    python examples/benchmarks/tempering_cost.py [--seeds 2] [--warmup N]

Both at their defaults, four chains. All columns are in units of K runs of `fisher_hmc`, K the rungs of the
path: the draws, warm-up, the search before the run, climbs between rounds, and all of them; evaluations of
the density alone, which is most of the search, count as if they were gradients. `each draw` is a draw beside
K draws, and `same draws` all of it beside K runs of `fisher_hmc` with as many draws as `tempered` makes.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import stanadapt
from stanadapt.result.container import datasets

SCHOOLS = Path(__file__).parents[2] / "models" / "eight_schools" / "eight_schools"
AUTOREGRESSION = (
    "parameters { vector[5] x; } model { x[1] ~ normal(0, 1); x[2:5] ~ normal(0.9 * x[1:4], 0.3); }"
)
PROBLEMS: dict[str, tuple[Any, Any]] = {
    "eight schools": (SCHOOLS.with_suffix(".stan"), SCHOOLS.with_suffix(".json")),
    "normal, d = 10": ("parameters { vector[10] x; } model { x ~ normal(0, 1); }", None),
    "autoregression, d = 5": (AUTOREGRESSION, None),
    "Student t, 5 degrees, d = 20": ("parameters { vector[20] x; } model { x ~ student_t(5, 0, 1); }", None),
}
COLUMNS = ("K", "draws", "warm-up", "search", "climbs", "all", "each draw", "same draws")


def taken(posterior: stanadapt.Posterior, seed: int, **run: Any) -> dict[str, float]:
    """What the parts of a run take, in evaluations."""
    groups = datasets(stanadapt.sample(posterior, seed=seed, progress=False, **run))
    learnt, sizes = groups["adaptation"], groups["posterior"].sizes
    found = {
        "draws": float(learnt["evaluations"].sum()),
        "warm-up": float(learnt["evaluations_warmup"].sum()),
        "count": float(sizes["chain"] * sizes["draw"]),
    }
    if "tempering" in groups:
        found["K"] = float(groups["tempering"].sizes["rung"])
        found["search"] = float(groups["posterior"].attrs["modes_search_evaluations"])
        found["climbs"] = float(learnt["search_gradients"].sum())
    return found


def measure(posterior: stanadapt.Posterior, seed: int, warmup: int | None) -> list[float]:
    """The columns for one seed."""
    one = taken(posterior, seed, method="fisher_hmc")
    path = taken(posterior, seed, method="tempered", warmup=warmup)
    unit = path["K"] * (one["draws"] + one["warm-up"])
    shares = [path[part] / unit for part in ("draws", "warm-up", "search", "climbs")]
    draw = path["draws"] / path["count"] / (path["K"] * one["draws"] / one["count"])
    same = path["K"] * (one["draws"] * path["count"] / one["count"] + one["warm-up"])
    return [path["K"], *shares, sum(shares), draw, sum(shares) * unit / same]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--warmup", type=int, help="iterations of warm-up of tempered")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"| posterior | {' | '.join(COLUMNS)} |\n| --- |" + " ---: |" * len(COLUMNS))
    for name, (program, data) in PROBLEMS.items():
        posterior = stanadapt.Posterior(program, data)
        rows = [measure(posterior, seed, asked.warmup) for seed in range(1, asked.seeds + 1)]
        print(f"| {name} | {' | '.join(f'{value:.2f}' for value in np.mean(rows, axis=0))} |", flush=True)


if __name__ == "__main__":
    main()
