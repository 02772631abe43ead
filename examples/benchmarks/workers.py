"""Seconds of four chains: in one thread, in threads, and in processes that an earlier run has left.

    python examples/benchmarks/workers.py [NAME ...] [--workers 2] [--repeats 3]

NAMEs are models of field_models.py or tail_models.py. Each run is `fisher_hmc` with 1,000 draws a chain. Ways
alternate, and the least of the repeats counts. Columns:

    one       workers=1
    threads   as many workers, where no process starts
    first     where processes start when chains have learned for a while
    later     where an earlier run has left them
"""

from __future__ import annotations

import argparse
import os

os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")

import math
import time
import warnings

import field_models
import stanadapt
import tail_models
from race.sweep import plain
from stanadapt.run.workers import migration
from stanadapt.run.workers.process_pool import keep_pool

MODELS = tail_models.MODELS | field_models.MODELS
NAMES = ("nowcast", "studies", "lasso", "teams", "joint", "county_lkj")
WAYS = ("one", "threads", "first", "later")


def run(posterior: stanadapt.Posterior, workers: int, patience: float = migration.PATIENCE_SECONDS) -> float:
    """Seconds of a run, where processes start after so many seconds of learning."""
    migration.PATIENCE_SECONDS = patience
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        stanadapt.sample(posterior, method="fisher_hmc", seed=1, workers=workers, progress=False)
    return time.perf_counter() - began


def seconds(posterior: stanadapt.Posterior, way: str, workers: int) -> float:
    """Seconds of a run, before which no process is there but for the way "later"."""
    keep_pool(None)
    if way == "one":
        return run(posterior, 1)
    if way == "threads":
        return run(posterior, workers, math.inf)
    if way == "later":
        for _ in range(2):  # start the processes, and have both load the kernels
            run(posterior, workers, -1.0)
    return run(posterior, workers)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", choices=[*MODELS, []])
    add("--workers", type=int, default=2)
    add("--repeats", type=int, default=3)
    given = parser.parse_args()
    print(f"| model | {' | '.join(WAYS)} |")
    print("| --- |" + " ---: |" * len(WAYS))
    for name in given.names or NAMES:
        model = MODELS[name]
        posterior = stanadapt.Posterior(model.program, plain(model.data(model.size)))
        least = dict.fromkeys(WAYS, math.inf)
        for repeat in range(given.repeats + 1):
            for way in WAYS:
                took = seconds(posterior, way, given.workers)
                if repeat:  # the first loads kernels
                    least[way] = min(least[way], took)
        print(f"| {name} | {' | '.join(f'{least[way]:.2f}' for way in WAYS)} |", flush=True)


if __name__ == "__main__":
    main()
