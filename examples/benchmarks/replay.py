"""How often `stanadapt.replay` speaks of sound runs, and how often of broken ones.

    python examples/benchmarks/replay.py [--seeds 100] [--method NAME ...] [--target NAME ...]
    python examples/benchmarks/replay.py --broken [--seeds 20] [--fault NAME ...] [--target NAME ...]

The first table has sound methods at their defaults, 4 chains: the smallest effective sample size of a
parameter (median over seeds), the shares of runs whose p-value, corrected for the number of tests, is under
0.05 and 0.01, how many have a finding at the default error rate of 0.001, the smallest p-value, and seconds
of a run and of its replay. The second has kernels that are broken on purpose, as tests/broken.py has them,
and a method that goes on adapting without vanishing: in how many runs there is a finding, which of the two
checks fails, the median p-value, how many of the runs `stanadapt.diagnose` says something of, and how many
were refused because a chain stood still.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import stanadapt

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from broken import (  # noqa: E402
    FAULTS,
    GOES_ON_ADAPTING,
    NEVER_LESS,
    SLIGHTLY_BROKEN,
    WITH_FAULTS,
    edited_sampler,
    offered,
)

PROGRAMS = {
    "funnel": "parameters { real v; vector[4] x; } model { v ~ normal(0, 3); x ~ normal(0, exp(v / 2)); }",
    "t, 3": "parameters { vector[5] x; } model { x ~ student_t(3, 0, 1); }",
    "exponential": "parameters { vector<lower=0>[5] x; } model { x ~ exponential(1); }",
    "half-line": """parameters { real x; vector[4] y; }
        model { if (x < 0) target += negative_infinity(); x ~ normal(0, 1); y ~ normal(0, 1); }""",
}
SHIPPED = {
    "Gaussian": "correlated_gaussian",
    "eight schools": "eight_schools",
    "centred eight schools": "eight_schools_centered",
}
METHODS = ["fisher_hmc", "fisher_mala", "hmc", "mala", "arwmh", "rwm", "kmc_finite", "nuts"]
BROKEN_ON = ["Gaussian", "eight schools"]


class Fault(NamedTuple):
    """A broken method."""

    method: str
    edits: dict[str, dict[str, str]]
    settings: dict[str, Any]


def faults() -> dict[str, Fault]:
    slight = {
        name: Fault(method, {file: {text: other}}, {})
        for name, (method, file, text, other) in SLIGHTLY_BROKEN.items()
    }
    ratio = "accept_prob = accept_probability(logp_y - logp)"
    slighter = ratio.replace("logp_y - logp", "0.95 * (logp_y - logp)")
    slight["rwm with 0.95 of the log ratio"] = Fault("rwm", {"samplers/rwm.py": {ratio: slighter}}, {})
    trajectories = {
        f"fisher_hmc: {name}": Fault("fisher_hmc", WITH_FAULTS, {"fault": i}) for i, name in enumerate(FAULTS)
    }
    memories = {
        f"am that learns for ever from {n} points": Fault(
            "am", GOES_ON_ADAPTING, NEVER_LESS | {"learning_rate": 1 / n}
        )
        for n in (20, 50, 200)
    }
    return slight | trajectories | memories


def target(name: str) -> stanadapt.Posterior:
    if name in PROGRAMS:
        return stanadapt.Posterior(PROGRAMS[name])
    folder = ROOT / "models" / SHIPPED[name]
    data = json.loads((folder / f"{folder.name}.json").read_text())
    return stanadapt.Posterior(folder / f"{folder.name}.stan", data)


class Outcome(NamedTuple):
    """What one replay came to."""

    p_value: float
    by_check: dict[str, float]  # the smallest p-value of each
    ess: float
    diagnosed: bool
    seconds: tuple[float, float]  # of the run, and of its replay


def run(posterior: stanadapt.Posterior, method: str, settings: Any, seed: int) -> Outcome:
    began = time.perf_counter()
    idata = stanadapt.sample(posterior, method=method, settings=settings, seed=seed, progress=False)
    ended = time.perf_counter()
    outcome = stanadapt.replay(idata, posterior, seed=seed, progress=False)
    spent = time.perf_counter() - ended
    frame = stanadapt.summary(idata, list(posterior.parameters))
    by_check = outcome.tests.groupby("check")["p_corrected"].min().to_dict()
    found = bool(stanadapt.diagnose(idata, list(posterior.parameters)))
    ess = float(frame[["ess_bulk", "ess_tail"]].min().min())
    return Outcome(outcome.p_value, by_check, ess, found, (ended - began, spent))


def measure(method: str, name: str, seeds: int) -> str:
    """A row of the first table."""
    posterior = target(name)
    runs = [run(posterior, method, None, seed) for seed in range(seeds)]
    p = np.array([each.p_value for each in runs])
    ess, seconds = np.median([each.ess for each in runs]), np.median([each.seconds for each in runs], axis=0)
    rates = f"{np.mean(p < 0.05):.2f} | {np.mean(p < 0.01):.2f} | {np.sum(p < 0.001)}"
    spent = f"{seconds[0]:.2f} / {seconds[1]:.2f}"
    return f"| {method} | {name} | {seeds} | {ess:.0f} | {rates} | {p.min():.1e} | {spent} |"


@contextlib.contextmanager
def broken(fault: Fault) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        module = edited_sampler(fault.method, fault.edits, Path(folder))
        with offered(module) as name:
            yield name


def measure_fault(what: str, method: str, settings: dict[str, Any], name: str, seeds: int) -> str:
    """A row of the second table."""
    posterior, runs = target(name), []
    for seed in range(seeds):
        with contextlib.suppress(stanadapt.errors.ArgumentError):  # a chain stands still
            runs.append(run(posterior, method, settings, seed))
    if not runs:
        return f"| {what} | {name} | | | | | | | {seeds} |"
    p = np.array([each.p_value for each in runs])
    checks = [
        sum(each.by_check[check] < 0.001 for each in runs) for check in ("reference kernel", "frozen kernel")
    ]
    ess, seen = np.median([each.ess for each in runs]), sum(each.diagnosed for each in runs)
    found = f"{np.sum(p < 0.001)} of {len(runs)} | {checks[0]} | {checks[1]} | {np.median(p):.1e} | {seen}"
    return f"| {what} | {name} | {ess:.0f} | {found} | {seeds - len(runs)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--broken", action="store_true")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--method", nargs="+", default=METHODS)
    parser.add_argument("--target", nargs="+", choices=[*SHIPPED, *PROGRAMS])
    parser.add_argument("--fault", nargs="+", choices=faults(), default=list(faults()))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if not options.broken:
        print("| method | target | runs | ESS | p < 0.05 | p < 0.01 | findings | smallest p | seconds |")
        print("| --- | --- |" + " ---: |" * 7)
        for method in options.method:
            for name in options.target or [*SHIPPED, *PROGRAMS]:
                print(measure(method, name, options.seeds or 100), flush=True)
        return
    print(
        "| fault | target | ESS | found | by the reference | by the frozen kernel | p | diagnosed | refused |"
    )
    print("| --- | --- |" + " ---: |" * 7)
    for what in options.fault:
        fault = faults()[what]
        with broken(fault) as method:
            for name in options.target or BROKEN_ON:
                print(measure_fault(what, method, fault.settings, name, options.seeds or 20), flush=True)


if __name__ == "__main__":
    main()
