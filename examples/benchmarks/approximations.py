"""Laplace's approximation and Pathfinder against PosteriorDB's reference draws.

    python examples/benchmarks/approximations.py
    python examples/benchmarks/approximations.py arK-arK eight_schools-eight_schools_noncentered

For each posterior with reference draws: Pareto k; what the 1,000 draws are worth by their weights (Kish's
number; of Pathfinder that of the 4,000 draws that are resampled); the largest error of a mean in posterior
standard deviations, and the range of the ratios of standard deviations; gradients, densities and CPU seconds.
Draws of `laplace` are weighted. "plain" is `laplace` in the program's own coordinates (learn=False).
Quantities are those of the reference.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import stanadapt

sys.path.insert(0, str(Path(__file__).parents[1] / "papers"))
from posteriors import DATABASE, opened, unzipped

RUNS = {
    "plain": lambda model, seed: stanadapt.laplace(model, seed=seed, learn=False),
    "laplace": lambda model, seed: stanadapt.laplace(model, seed=seed),
    "pathfinder": lambda model, seed: stanadapt.pathfinder(model, seed=seed),
}


def errors(idata: Any, reference: list[dict[str, list[float]]]) -> tuple[float, float, float]:
    """The largest error of a mean, and the smallest and the largest ratio of standard deviations."""
    stats = idata["sample_stats"]
    n = stats.sizes["draw"]
    weights = np.exp(stats["log_weight"].values[0]) if "log_weight" in stats else np.full(n, 1.0 / n)
    apart, ratios = [], []
    for flat in reference[0]:
        known = np.concatenate([chain[flat] for chain in reference])
        base, _, index = flat.partition("[")
        values = idata["posterior"][base].values[0]
        if index:
            values = values[(slice(None), *(int(i) - 1 for i in index.rstrip("]").split(",")))]
        mean = weights @ values
        apart.append(abs(mean - known.mean()) / known.std())
        ratios.append(np.sqrt(weights @ np.square(values - mean)) / known.std())
    return max(apart), min(ratios), max(ratios)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="posteriors; by default all with reference draws")
    parser.add_argument("--database", type=Path, default=DATABASE)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    folder = given.database / "reference_posteriors" / "draws" / "draws"
    names = given.names or sorted(path.name.removesuffix(".json.zip") for path in folder.glob("*.json.zip"))
    warnings.simplefilter("ignore", stanadapt.StanAdaptWarning)
    print("| posterior | | k | effective | mean | sd | gradients | densities | CPU s |")
    print("| --- | --- | ---: | ---: | ---: | --- | ---: | ---: | ---: |")
    for name in names:
        posterior, reference = opened(given.database, name), unzipped(folder / f"{name}.json.zip")
        for kind, run in RUNS.items():
            began = time.process_time()
            try:
                idata = run(posterior, given.seed)
            except stanadapt.ArgumentError:  # there is no mode
                print(f"| {name} | {kind} | | | | | | | |", flush=True)
                continue
            spent, attrs = time.process_time() - began, idata.attrs
            mean, low, high = errors(idata, reference)
            k, effective = attrs["pareto_k"], attrs["effective_draws"]
            print(
                f"| {name} | {kind} | {k:.2f} | {effective:.0f} | {mean:.2f} | "
                f"{low:.2f} to {high:.2f} | {attrs['gradients']} | {attrs['densities']} | {spent:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
