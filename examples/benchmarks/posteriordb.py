"""Every posterior of PosteriorDB up to a dimension, from random starts, against its reference draws.

    python examples/benchmarks/posteriordb.py [--max-dim 26] [--method fisher_mala] [--name NAME ...]
        [--pilot 500] [--warmup 1000]

Runs a method at its defaults and again with `faithful=True` (the warm-up of its paper), or with so many
iterations of `pilot`: 4 chains, one seed. Prints for both the smallest bulk ESS and the largest R-hat over
the reference's parameters, the largest |z| of their means (in standard errors of both), and the seconds. The
folder `posterior_database` is the one in ../shared/data, or the one that POSTERIORDB names.
"""

from __future__ import annotations

import argparse
import json
import os
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import xarray

import stanadapt
from stanadapt.result.container import datasets, statistics

DEFAULT = Path(__file__).parents[3] / "shared" / "data" / "posteriordb" / "posterior_database"


def unzipped(path: Path) -> Any:
    with zipfile.ZipFile(path) as archive:
        return json.loads(archive.read(archive.namelist()[0]))


def program_and_data(database: Path, name: str) -> tuple[Path, Any]:
    """The Stan file and the data of a posterior."""
    entry = json.loads((database / "posteriors" / f"{name}.json").read_text())
    data = unzipped(database / "data" / "data" / f"{entry['data_name']}.json.zip")
    return database / "models" / "stan" / f"{entry['model_name']}.stan", data


def parameters(idata: Any, names: list[str]) -> xarray.Dataset:
    """The scalars that the reference names, `beta[2]` from 1, as a dataset of (chain, draw)."""
    posterior = datasets(idata)["posterior"]
    scalars = {}
    for name in names:
        base, _, index = name.partition("[")
        place = tuple(int(i) - 1 for i in index.rstrip("]").split(",")) if index else ()
        values = posterior[base].values[(slice(None), slice(None), *place)]
        scalars[name] = (("chain", "draw"), values)
    return xarray.Dataset(scalars)


def mean_and_error(draws: xarray.Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Means and their standard errors."""
    mean = draws.mean()
    error = statistics().mcse(draws, method="mean")
    return mean.to_array().values, error.to_array().values


def figures(idata: Any, reference: xarray.Dataset | None, names: list[str]) -> tuple[float, float, float]:
    """Smallest bulk ESS, largest R-hat, largest |z| against the reference (NaN without one)."""
    draws = parameters(idata, names)
    ess = float(statistics().ess(draws, method="bulk").to_array().min())
    r_hat = float(statistics().rhat(draws).to_array().max())
    if reference is None:
        return ess, r_hat, float("nan")
    mean, error = mean_and_error(draws)
    known, known_error = mean_and_error(reference)
    return ess, r_hat, float(np.abs((mean - known) / np.hypot(error, known_error)).max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--max-dim", type=int, default=26)
    parser.add_argument("--method", default="fisher_mala")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--name", nargs="*")
    parser.add_argument("--pilot", type=int, default=0)
    parser.add_argument("--warmup", type=int)
    options = parser.parse_args()
    other = {"pilot": options.pilot} if options.pilot else {"faithful": True}
    label = f"pilot={options.pilot}" if options.pilot else "faithful"
    database = Path(os.environ.get("POSTERIORDB", DEFAULT))
    print(f"| posterior | d | {options.method}: ESS | R-hat | max z | s | {label}: ESS | R-hat | max z | s |")
    print("| --- |" + " ---: |" * 9)
    for path in sorted((database / "posteriors").glob("*.json")):
        if options.name and path.stem not in options.name:
            continue
        posterior = stanadapt.Posterior(*program_and_data(database, path.stem))
        if posterior.dim > options.max_dim:
            continue
        reference, names = None, list(posterior.names)
        draws = database / "reference_posteriors" / "draws" / "draws" / f"{path.stem}.json.zip"
        if draws.exists():
            chains = unzipped(draws)
            names = list(chains[0])
            reference = xarray.Dataset(
                {name: (("chain", "draw"), [chain[name] for chain in chains]) for name in names}
            )
        else:
            names = [f"{n.split('.')[0]}[{','.join(n.split('.')[1:])}]" if "." in n else n for n in names]
        cells = []
        for settings in ({}, other):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                idata = stanadapt.sample(
                    posterior,
                    method=options.method,
                    settings=settings,
                    warmup=options.warmup,
                    seed=options.seed,
                    progress=False,
                )
                ess, r_hat, z = figures(idata, reference, names)
            seconds = datasets(idata)["posterior"].attrs["sampling_time"]
            cells.append(f"{ess:.0f} | {r_hat:.3f} | {z:.1f} | {seconds:.1f}")
        print(f"| {path.stem} | {posterior.dim} | {cells[0]} | {cells[1]} |", flush=True)


if __name__ == "__main__":
    main()
