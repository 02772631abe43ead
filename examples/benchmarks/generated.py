"""Time of generated quantities over 100,000 saved draws of eight schools, and of the parts of it.

    python examples/benchmarks/generated.py [--draws 25000] [--repeats 7]

Four chains of draws are made from points at random. Rows: from constrained draws, which have to be taken to
the unconstrained scale, and from a result that kept its unconstrained draws; with one thread and with two.
Each is the least time of the repeats, which alternate, since other programs may be running: seconds that
pass, and seconds of processors, of all threads.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import xarray

import stanadapt
from stanadapt.result.container import container
from stanadapt.result.labels import Labels

SCHOOLS = Path(__file__).parents[2] / "models" / "eight_schools"
PROGRAM, DATA = SCHOOLS / "eight_schools.stan", SCHOOLS / "eight_schools.json"
CHAINS = 4


def results(draws: int) -> dict[str, Any]:
    """The same draws, with and without unconstrained ones."""
    posterior = stanadapt.Posterior(PROGRAM, DATA)
    x = np.random.default_rng(1).normal(size=(CHAINS, draws, posterior.dim))
    head = {"chain": np.arange(CHAINS), "draw": np.arange(draws)}
    groups = {"posterior": Labels({}, {}).dataset(posterior.constrain(x), head)}
    coords = {**head, "unconstrained": posterior.unconstrained_names}
    kept = xarray.Dataset({"x": (("chain", "draw", "unconstrained"), x)}, coords=coords)
    return {
        "constrained draws": container(dict(groups)),
        "unconstrained draws kept": container({**groups, "unconstrained_posterior": kept}),
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--draws", type=int, default=25_000, help="of each of four chains")
    parser.add_argument("--repeats", type=int, default=7)
    given = parser.parse_args()
    held = results(given.draws)
    seconds: dict[tuple[str, int], list[tuple[float, float]]] = {
        (name, workers): [] for name in held for workers in (1, 2)
    }
    for _ in range(given.repeats + 1):
        for (name, workers), times in seconds.items():
            began, worked = time.perf_counter(), time.process_time()
            stanadapt.generate_quantities(
                PROGRAM,
                held[name],
                DATA,
                seed=1,
                workers=workers,
                log_likelihood={"y": "log_lik"},
                posterior_predictive={"y": "y_rep"},
                progress=False,
            )
            times.append((time.perf_counter() - began, time.process_time() - worked))
    print(f"{CHAINS * given.draws} draws of eight schools, seconds, least of {given.repeats}")
    for (name, workers), times in seconds.items():
        passed, of_processors = np.min(times[1:], axis=0)
        print(
            f"{name}, {workers} thread{'s' * (workers > 1)}: {passed:.2f}, of processors {of_processors:.2f}"
        )


if __name__ == "__main__":
    main()
