"""What second tries of fisher_hmc bring and cost, with and without them in one run.

    python examples/benchmarks/second_tries.py [NAME ...] [--seeds 1 2 3] [--draws 1000] [--chains 4]

A NAME is the end of a posterior's name in the two folders of PosteriorDB in ../shared/data, or a model of
field_models.py, or one of rank_models.py with the number of a data set, as missing:1. A row is the geometric
mean over seeds: effective draws in 1,000 gradients of the draws, the least of all quantities, bulk and tail;
the gradients of warm-up; divergences, the most draws at one point, the largest R-hat, and runs with findings
other than those of sizes.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
import pandas as pd

import stanadapt
from field_models import MODELS as FIELDS
from posteriordb import DEFAULT, program_and_data
from race.judge import longest_rest, sizes
from race.samplers import side_by_side
from rank_models import MODELS as RANKS
from rank_models import simulate
from stanadapt.result.container import datasets

FOLDERS = [DEFAULT, DEFAULT.parents[1] / "posteriordb_hierarchical" / DEFAULT.name]
NAMES = [
    *("accel_gp", "accel_splines", "eight_schools_noncentered", "garch11", "rats_model", "surgical_model"),
    *("seeds_stanified_model", "trend", "seasons:1", "missing:1", "missing:3"),
]
OF_SIZE = {"ess_bulk", "ess_tail"}  # findings that more draws would put right


def open_posterior(name: str) -> stanadapt.Posterior:
    """A posterior by its name."""
    if ":" in name:
        kind, number = name.split(":")
        return stanadapt.Posterior(RANKS[kind].program, simulate(kind, int(number))[1])
    if name in FIELDS:
        model = FIELDS[name]
        return stanadapt.Posterior(model.program, model.data(model.size))
    for folder in FOLDERS:
        for path in sorted((folder / "posteriors").glob(f"*{name}.json")):
            return stanadapt.Posterior(*program_and_data(folder, path.stem))
    raise SystemExit(f"there is no posterior or model {name!r}")


def figures(
    posterior: stanadapt.Posterior, seed: int, tries: bool, given: argparse.Namespace
) -> dict[str, float]:
    """What one run comes to."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = stanadapt.sample(
            posterior,
            method="fisher_hmc",
            chains=given.chains,
            draws=given.draws,
            seed=seed,
            progress=False,
            settings={"second_tries": tries},
        )
    groups = datasets(result)
    draws, adaptation = side_by_side(groups["posterior"], posterior.variables), groups["adaptation"]
    bulk, tail, r_hat = sizes(draws)
    per = 1e3 / float(adaptation["evaluations"].sum())
    return {
        "bulk": per * bulk,
        "tail": per * tail,
        "warm-up": float(adaptation["evaluations_warmup"].sum()),
        "divergences": float(groups["sample_stats"]["diverging"].sum()),
        "longest": longest_rest(draws),
        "R-hat": r_hat,
        "findings": float(bool({finding.kind for finding in stanadapt.diagnose(result)} - OF_SIZE)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5, 6])
    parser.add_argument("--draws", type=int, default=1_000)
    parser.add_argument("--chains", type=int, default=4)
    given = parser.parse_args()
    print("| posterior | second tries | bulk | tail | warm-up | divergences | longest | R-hat | findings |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name in given.names:
        posterior = open_posterior(name)
        for tries in (False, True):
            rows = pd.DataFrame([figures(posterior, seed, tries, given) for seed in given.seeds])
            mean = np.exp(np.log(rows[["bulk", "tail", "warm-up"]]).mean())
            print(
                f"| {name} | {'with' if tries else 'without'} | {mean['bulk']:.3g} | {mean['tail']:.3g} "
                f"| {mean['warm-up']:.0f} | {rows['divergences'].sum():.0f} | {rows['longest'].max():.0f} "
                f"| {rows['R-hat'].max():.3f} | {rows['findings'].sum():.0f} of {len(rows)} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
