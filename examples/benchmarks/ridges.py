"""Ridges: what coordinates for locations of second order bring, and what they cost where there are none.

    python examples/benchmarks/ridges.py [--chains 48] [--draws 8000] [--seeds 1 2 3]
    python examples/benchmarks/ridges.py --posteriors [NAME ...] [--seeds 1 2 3]

First the banana and Rosenbrock's function of ../shared/data/microcanonical, by the measure of `fields.py`:
gradients until b² stays under 0.01, a median over the chains of a seed, for the worst coordinate and for the
mean over all; gradients of warm-up a chain; how many chains have found all ridges; and the longest time, in
draws, that a chain stood still. `--without` leaves ridges out, as they were before.

`--posteriors` has the programs of models/ and of PosteriorDB in ../shared/data: bulk effective draws for
every 1,000 gradients, the least over all variables, with ridges over without, for the draws alone and with
warm-up; the chains that have learned a ridge, and of how many; and the CPU time of warm-up and draws with
ridges over that without. Each is a geometric mean over seeds, of 4 chains with 1,000 draws.
"""

from __future__ import annotations

import argparse
import os

os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")

import contextlib
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import stanadapt
from posteriordb import program_and_data
from race import samplers
from race.judge import gradients_until_known, longest_rest, sizes
from stanadapt.result.container import datasets
from stanadapt.transport import ridge_learning

ROOT = Path(__file__).parents[2]
SHARED = Path(__file__).parents[3] / "shared" / "data"
# E x_j² and Var x_j², and the number of ridges
TARGETS: dict[str, tuple[Any, np.ndarray, np.ndarray, int]] = {
    "banana": (None, np.array([100.0, 19.0]), np.array([20_000.0, 4_610.0]), 1),
    "rosenbrock": ({"D": 18, "Q": 0.1}, np.repeat([2.0, 10.1], 18), np.repeat([6.0, 668.0], 18), 18),
}


def sample(posterior: Any, chains: int, draws: int, seed: int) -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return datasets(
            stanadapt.sample(
                posterior, method="fisher_hmc", chains=chains, draws=draws, seed=seed, progress=False
            )
        )


@contextlib.contextmanager
def without_ridges() -> Iterator[None]:
    nothing = ridge_learning.Suspects([], {}, [])
    with mock.patch.object(ridge_learning, "find_suspects", return_value=nothing):
        yield


def microcanonical(given: argparse.Namespace) -> None:
    print("| target | seed | worst | mean | gradients a draw | warm-up, mean | largest | ridges | still |")
    print("| --- |" + " ---: |" * 8)
    for name, (data, mean, variance, ridges) in TARGETS.items():
        posterior = stanadapt.Posterior(SHARED / "microcanonical" / f"{name}.stan", data)
        for seed in given.seeds:
            with without_ridges() if given.without else contextlib.nullcontext():
                groups = sample(posterior, given.chains, given.draws, seed)
            draws = samplers.side_by_side(groups["posterior"], posterior.variables)
            pace = float(groups["sample_stats"]["n_steps"].mean())
            cells = [*gradients_until_known(draws, mean, variance, pace), f"{pace:.3g}"]
            adaptation = groups["adaptation"]
            warmup = (adaptation["evaluations_warmup"] + adaptation["field_gradients"]).values
            found = (adaptation["ridge_terms"].values > 0).sum(axis=1)
            whole = int(np.count_nonzero(found == ridges))
            cells += [f"{warmup.mean():,.0f}", f"{warmup.max():,.0f}", f"{whole} of {len(found)}"]
            cells.append(str(longest_rest(draws)))
            print(f"| {name} | {seed} | {' | '.join(cells)} |", flush=True)


def posteriors_of(names: list[str]) -> Iterator[tuple[str, Any]]:
    """Names and posteriors, of models/ first."""
    for path in sorted((ROOT / "models").glob("*/*.stan")):
        if not names or path.stem in names:
            data = path.with_suffix(".json")
            yield path.stem, stanadapt.Posterior(path, data if data.is_file() else None)
    for folder in ("posteriordb", "posteriordb_hierarchical"):
        database = SHARED / folder / "posterior_database"
        for path in sorted((database / "posteriors").glob("*.json")):
            if names and path.stem not in names:
                continue
            yield path.stem, stanadapt.Posterior(*program_and_data(database, path.stem))


def posteriors(given: argparse.Namespace) -> None:
    print("| posterior | d | chains with a ridge | ESS / gradient | with warm-up | CPU |")
    print("| --- |" + " ---: |" * 5)
    for name, posterior in posteriors_of(given.names):
        ratios, with_ridge, chains = [], 0, 0
        for seed in given.seeds:
            figures = []
            for law in (False, True):
                start = time.process_time()
                with contextlib.nullcontext() if law else without_ridges():
                    groups = sample(posterior, 4, 1_000, seed)
                cpu = time.process_time() - start
                drawn, adaptation = groups["posterior"], groups["adaptation"]
                bulk = sizes(samplers.side_by_side(drawn, posterior.variables))[0]
                gradients = float(groups["sample_stats"]["n_steps"].sum())
                warmup = float((adaptation["evaluations_warmup"] + adaptation["field_gradients"]).sum())
                figures.append((bulk / gradients, bulk / (gradients + warmup), cpu))
                if law:
                    with_ridge += int((adaptation["ridge_terms"].values > 0).any(axis=1).sum())
                    chains += 4
            ratios.append(np.log(figures[1]) - np.log(figures[0]))
        cells = " | ".join(f"{value:.2f}" for value in np.exp(np.mean(ratios, axis=0)))
        print(f"| {name} | {posterior.dim} | {with_ridge} of {chains} | {cells} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME")
    add("--posteriors", action="store_true")
    add("--without", action="store_true")
    add("--chains", type=int, default=48)
    add("--draws", type=int, default=8_000)
    add("--seeds", nargs="*", type=int, default=[1, 2, 3])
    given = parser.parse_args()
    if given.posteriors:
        posteriors(given)
    else:
        microcanonical(given)


if __name__ == "__main__":
    main()
