"""Time of a gradient with the map of a latent field, against that of the gradient alone.

    python examples/benchmarks/field_maps.py [NAME ...] [--seconds 2] [--save FOLDER] [--load FOLDER]

NAMEs are models of field_models.py, by default five of them. A field is learned from a random point, and log
densities with gradients are computed in a compiled loop, at points that are standard normal in the
coordinates of the map, and at the same points in the program's own. The two alternate; microseconds are
medians of CPU time, and so is their ratio. The last columns are the sizes of the map. `--save` keeps the maps
that were learned and `--load` takes them, so that two versions of the package have the same maps.
"""

from __future__ import annotations

import argparse
import os

os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")

import time
from pathlib import Path
from typing import Any

import numba
import numpy as np

import stanadapt
from field_models import MODELS
from race.sweep import plain
from stanadapt.target import log_density_gradient
from stanadapt.transport.composition import into_x
from stanadapt.transport.field_table import bend_of_root, field_rows, fields_of
from stanadapt.transport.fields.field_learning import learn_field
from stanadapt.transport.map_table import N_ENTRIES, N_LATENTS, SIZE_A, SIZE_G, SIZE_S

NAMES = "volatility", "volatility_long", "trend", "walk", "icar"
POINTS, LEAST_REPEATS = 20, 9


@numba.njit(nogil=True)
def total_of(target: Any, points: Any, score: Any, rounds: int) -> float:
    """The sum of all log densities, so that none of them is left out."""
    total = 0.0
    for _ in range(rounds):
        for i in range(len(points)):
            total += log_density_gradient(target, points[i], score)
    return total


def seconds_of(target: Any, points: np.ndarray, rounds: int) -> float:
    """CPU seconds of a gradient."""
    score = np.empty(points.shape[1])
    begin = time.process_time()
    total_of(target, points, score, rounds)
    return (time.process_time() - begin) / (rounds * len(points))


def learned_map(posterior: stanadapt.Posterior) -> tuple[np.ndarray, np.ndarray]:
    """The map, and the standard deviations of points in its coordinates."""
    d, target = posterior.dim, posterior.model.target()
    names = [name.split(".")[0] for name in posterior.unconstrained_names]
    variables = np.unique(names, return_inverse=True)[1]

    def evaluate(at: np.ndarray, score: np.ndarray) -> float:
        return float(log_density_gradient(target, at, score))

    start = 0.5 * np.random.default_rng(2).normal(size=d)  # at 0 a series may have no neighbours
    found, _ = learn_field(evaluate, start, np.ones(d), variables)
    if found is None or not len(found.rows):
        raise SystemExit("no field was found")
    return found.rows, found.scale


def cells(name: str, given: argparse.Namespace) -> list[str]:
    chosen = MODELS[name]
    posterior = stanadapt.Posterior(chosen.program, plain(chosen.data(chosen.size)))
    if given.load:
        kept = np.load(given.load / f"{name}.npz")
        laws = [field_rows(law, 0) for law in fields_of(kept["rows"])]
        rows, scale = np.concatenate((*laws, bend_of_root(kept["rows"]))), kept["scale"]
    else:
        rows, scale = learned_map(posterior)
    if given.save:
        np.savez(given.save / f"{name}.npz", rows=rows, scale=scale)
    with_map, alone = posterior.model.target()._replace(transport=rows), posterior.model.target()
    # Heads stay close to the middle, so that no point is where the density cannot be computed.
    z = np.random.default_rng(1).normal(size=(POINTS, posterior.dim))
    for law in fields_of(rows):
        z[:, law.heads] = law.mid + 0.3 * scale[law.heads] * z[:, law.heads]
    x = np.empty_like(z)
    for one, other in zip(z, x, strict=True):
        into_x(rows, one, other)
    seconds_of(with_map, z, 1), seconds_of(alone, x, 1)
    rounds = max(1, int(given.seconds / LEAST_REPEATS / 2 / POINTS / seconds_of(with_map, z, 5)))
    pairs = np.array(
        [(seconds_of(with_map, z, rounds), seconds_of(alone, x, rounds)) for _ in range(LEAST_REPEATS)]
    )
    moved, plain_one = np.median(pairs, axis=0)
    ratio = np.median(pairs[:, 0] / pairs[:, 1]) - 1.0
    sizes = [f"{rows[0, column]:.0f}" for column in (N_LATENTS, N_ENTRIES, SIZE_S, SIZE_A, SIZE_G)]
    return [name, f"{1e6 * plain_one:.1f}", f"{1e6 * (moved - plain_one):.1f}", f"{ratio:.2f}", *sizes]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", choices=[*MODELS, []])
    add("--seconds", type=float, default=2.0)
    add("--save", type=Path)
    add("--load", type=Path)
    given = parser.parse_args()
    heads = [
        "model",
        "gradient (µs)",
        "map (µs)",
        "ratio",
        "latents",
        "entries",
        "basis of s",
        "of a",
        "of G",
    ]
    print(f"| {' | '.join(heads)} |", "| --- |" + " ---: |" * (len(heads) - 1), sep="\n")
    for name in given.names or NAMES:
        print(f"| {' | '.join(cells(name, given))} |", flush=True)


if __name__ == "__main__":
    main()
