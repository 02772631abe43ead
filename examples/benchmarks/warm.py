"""Re-fitting after a tenth more data: gradients to an effective sample size of 400, with `warm=` and without.

    python examples/benchmarks/warm.py [NAME ...] [--method fisher_hmc] [--from fisher_hmc] [--seeds 5]
        [--chains 4] [--draws 1000] [--added 0.1] [--reference 0]

NAMEs are posteriors of PosteriorDB whose data are N observations, or a series of T. The first fit has them
without a share of them (some at random; of a series the last ones), the second one has all; it begins anew,
and with what the first one has learnt. The folder `posterior_database` is the one that POSTERIORDB names;
without it, the two in ../shared/data.

What is counted is every gradient of the second fit that the model is asked for, the search for starts and
the look at earlier draws included. To the smallest bulk ESS of 400 over the parameters it takes

    (gradients before the draws) + 400 (gradients of the draws) / (ESS of the draws),

since warm-up ends before the draws. Figures are medians over seeds; `z` is the largest difference of a mean
between the two ways, in standard errors of both, over all seeds and parameters. With `--reference N` each
way is also held against a run of `fisher_hmc` with N draws a chain, and the fits with findings are counted:
where the two ways differ, it says which one is off.
"""

from __future__ import annotations

import argparse
import os
import warnings
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

import stanadapt
from posteriordb import DEFAULT, program_and_data
from race import shim
from race.problems import opened
from stanadapt import runs
from stanadapt.result.container import datasets, statistics

NAMES = (
    "arK-arK",
    "earnings-logearn_interaction",
    "garch-garch11",
    "kidiq-kidscore_momhsiq",
    "low_dim_gauss_mix-low_dim_gauss_mix",
    "mesquite-logmesquite_logvash",
    "nes1980-nes",
    "sblri-blr",
    "radon_mn-radon_hierarchical_intercept_noncentered",
    "radon_mn-radon_variable_slope_centered",
)
SIZES, SERIES = ("N", "T"), "T"  # data that count observations
ENOUGH = 400.0  # effective draws
_LARGE_Z = 4.5  # of some thousand differences, the largest is about 4


class Fit(NamedTuple):
    """A result, and the gradients before its draws and of them."""

    idata: Any
    before: float
    drawing: float
    ess: float
    means: np.ndarray
    errors: np.ndarray

    @property
    def gradients(self) -> float:
        """To the effective sample size."""
        return self.before + ENOUGH * self.drawing / self.ess


def databases() -> list[Path]:
    """PosteriorDB's folders."""
    if given := os.environ.get("POSTERIORDB"):
        return [Path(given)]
    return [DEFAULT, DEFAULT.parents[1] / "posteriordb_hierarchical" / DEFAULT.name]


def read(name: str) -> tuple[Path, dict[str, Any]]:
    """The program and the data of a posterior."""
    for database in databases():
        if (database / "posteriors" / f"{name}.json").is_file():
            return program_and_data(database, name)
    raise SystemExit(f"{name}: not in {', '.join(map(str, databases()))}")


def without(data: dict[str, Any], added: float) -> dict[str, Any]:
    """The data before the last observations were added, which are this share of the others."""
    size = next((key for key in SIZES if key in data), None)
    if size is None:
        raise SystemExit(f"the data count no observations: they have none of {', '.join(SIZES)}")
    n = int(data[size])
    kept = round(n / (1.0 + added))
    rows = np.arange(kept) if size == SERIES else np.sort(np.random.default_rng(1).permutation(n)[:kept])
    fewer = {key: [value[i] for i in rows] if _counts(value, n) else value for key, value in data.items()}
    return fewer | {size: kept}


def _counts(value: Any, n: int) -> bool:
    return isinstance(value, list) and len(value) == n


def posterior_of(program: Path, data: dict[str, Any]) -> stanadapt.Posterior:
    """The posterior, whose gradients are counted."""
    return stanadapt.Posterior(shim.opened(opened(program.stem, program, data).bridgestan_data))


def fit(posterior: stanadapt.Posterior, given: argparse.Namespace, **arguments: Any) -> Fit:
    run, counted = runs.run, []

    def counts(*passed: Any) -> Any:
        began = shim.gradients()
        outcome = run(*passed)
        counted.append(shim.gradients() - began)
        return outcome

    with warnings.catch_warnings(), mock.patch.object(runs, "run", counts):
        warnings.simplefilter("ignore")
        idata = stanadapt.sample(posterior, chains=given.chains, progress=False, **arguments)
    groups = datasets(idata)
    draws = groups["posterior"][list(posterior.parameters)]
    drawing = float(groups["sample_stats"]["n_steps"].sum())
    ess = statistics().ess(draws, method="bulk")
    means, errors = draws.mean(("chain", "draw")), statistics().mcse(draws, method="mean")
    flat = [
        np.concatenate([np.ravel(found[name].values) for name in draws]) for found in (ess, means, errors)
    ]
    return Fit(idata, counted[0] - drawing, drawing, float(np.nanmin(flat[0])), flat[1], flat[2])


def compare(name: str, given: argparse.Namespace) -> tuple[list[str], float, float]:
    """A line of the table, the ratio of gradients, and the largest z."""
    program, data = read(name)
    first, second = posterior_of(program, without(data, given.added)), posterior_of(program, data)
    colds, warms, z = [], [], 0.0
    if given.reference:
        reference = fit(second, given, seed=0, method="fisher_hmc", draws=given.reference)
    for seed in range(1, given.seeds + 1):
        run = {"method": given.method, "draws": given.draws}
        earlier = fit(first, given, method=given.earlier, seed=seed).idata
        cold = fit(second, given, seed=seed, **run)
        warm = fit(second, given, seed=1_000 + seed, warm=earlier, **run)
        z = max(z, _largest_z(cold, warm))
        colds.append(cold)
        warms.append(warm)
    cells = [name, str(second.dim)]
    ratios = [cold.gradients / warm.gradients for cold, warm in zip(colds, warms, strict=True)]
    for fits in (colds, warms):
        iterations = [_iterations(each.idata) for each in fits]
        cells += [f"{np.median(iterations):.0f}"]
        cells += [
            f"{np.median([getattr(each, key) for each in fits]):.0f}" for key in ("before", "gradients")
        ]
    ratio = float(np.median(ratios))
    cells += [f"{ratio:.2f}", f"{min(ratios):.2f} to {max(ratios):.2f}", f"{z:.1f}"]
    if given.reference:
        for fits in (colds, warms):
            cells.append(f"{max(_largest_z(each, reference) for each in fits):.1f}")
            cells.append(f"{sum(bool(stanadapt.diagnose(each.idata)) for each in fits)}")
    return cells, ratio, z


def _largest_z(one: Fit, other: Fit) -> float:
    """The largest difference of two fits' means, in standard errors of both."""
    return float(np.nanmax(np.abs(one.means - other.means) / np.hypot(one.errors, other.errors)))


def _iterations(idata: Any) -> float:
    """Of warm-up, the mean over chains."""
    return float(datasets(idata)["adaptation"]["warmup_iterations"].mean())


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", help="posteriors of PosteriorDB")
    add("--method", default="fisher_hmc", help="of the second fit")
    add("--from", dest="earlier", default="fisher_hmc", metavar="METHOD", help="of the first one")
    add("--seeds", type=int, default=5)
    add("--chains", type=int, default=4)
    add("--draws", type=int, default=1_000, help="of a chain")
    add(
        "--reference", type=int, default=0, metavar="N", help="draws of a chain of a run to hold both against"
    )
    add("--added", type=float, default=0.1, help="share by which observations become more")
    return parser.parse_args()


def main() -> None:
    given = options()
    columns = ["posterior", "d"]
    for kind in ("cold", "warm"):
        columns += [f"{kind}: warm-up", "its gradients", f"to ESS {ENOUGH:.0f}"]
    columns += ["ratio", "over seeds", "z"]
    if given.reference:
        columns += ["cold: z to the reference", "with findings", "warm: z to the reference", "with findings"]
    print("| " + " | ".join(columns) + " |")
    print("| --- |" + " ---: |" * (len(columns) - 1))
    ratios, largest = [], 0.0
    for name in given.names or NAMES:
        cells, ratio, z = compare(name, given)
        ratios.append(ratio)
        largest = max(largest, z)
        print("| " + " | ".join(cells) + " |", flush=True)
    print(
        f"\nRatio of gradients, geometric mean: {np.exp(np.log(ratios).mean()):.2f}; largest z {largest:.1f}"
    )
    if largest > _LARGE_Z:
        print("Means differ between the two ways: one of them is wrong.")


if __name__ == "__main__":
    main()
