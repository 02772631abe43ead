"""Latent fields: effective draws per gradient and per second of CPU, with and without learned coordinates.

    python examples/benchmarks/fields.py [NAME ...] [--samplers auto off stan_diag nutpie_low_rank]
        [--seeds 1 2 3 4] [--chains 4] [--draws 1000] [--cap 60] [--out fields.csv] [--resume] [--show]
    python examples/benchmarks/fields.py --microcanonical [NAME ...] [--chains 16] [--draws 2000]

NAMEs are models of field_models.py, by default all. `auto` and `off` are `fisher_hmc` with this setting
`transport`; the other samplers are those of the race, see race/samplers.py. Every run has a process of its
own, which may use `--cap` seconds of CPU for warm-up and draws together. Figures are the least effective
sample size over all parameters, of bulk and tail, for every 1,000 gradients and for every second of CPU,
first of the draws alone and then with warm-up. All gradients are counted where stanli is called, so those of
the Hessian and of the search for a field belong to warm-up. Each run is a line of `--out` when it ends.
`--resume` goes on with that file, and `--show` only prints what is in it.

`--microcanonical` has the three targets of ../shared/data/microcanonical and its measure: for each chain and
number n of draws b² = (running mean of x_j² - E x_j²)² / Var x_j², the worst and the mean over j, then the
median over chains. The figures are the gradients up to the last n at which it is over 0.01; "more" where this
is the last draw.
"""

from __future__ import annotations

import argparse
import os

# Before NumPy is imported, here and in the processes.
os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")

import json
import sys
import warnings
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import stanadapt
from field_models import MODELS
from race import problems, samplers, sweep
from race.judge import gradients_until_known, sizes
from race.problems import Problem
from stanadapt.result.container import datasets

OURS = ("auto", "off")  # settings of fisher_hmc's `transport`
COLUMNS = [
    *sweep.KEY,
    "chains",
    "d",
    "status",
    "bulk",
    "tail",
    "r_hat",
    "gradients",
    "draw_gradients",
    "cpu_seconds",
    "draw_cpu_seconds",
    "with_field",
]
UNITS = (("gradients", 1e3, "1,000 gradients"), ("cpu_seconds", 1.0, "s"))
MICROCANONICAL = Path(__file__).parents[3] / "shared" / "data" / "microcanonical"
TARGETS = ("stochastic_volatility", "banana", "rosenbrock")


def fisher_hmc(problem: Problem, transport: str, chains: int, draws: int, seed: int) -> dict[str, Any]:
    """The figures of a run."""
    asked = {"settings": {"transport": transport}, "chains": chains, "draws": draws, "seed": seed}
    measured = sweep.measure(problem, method="fisher_hmc", **asked)
    return judged(problem, measured.draws) | measured.figures


def judged(problem: Problem, draws: np.ndarray) -> dict[str, float]:
    """Effective sizes of draws (chains, n, k), over all parameters that move."""
    bulk, tail, r_hat = sizes(draws[..., : len(problem.parameters)][..., ~problem.steady])
    return {"bulk": bulk, "tail": tail, "r_hat": r_hat}


def work(connection: Connection, given: argparse.Namespace, model: str, sampler: str, seed: int) -> None:
    """The process of a run."""
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    chosen = MODELS[model]
    problem = problems.opened(model, chosen.program, sweep.plain(chosen.data(chosen.size)))
    facts = {"d": problem.d}
    connection.send(facts)
    if sampler in OURS:
        fisher_hmc(problems.small(), sampler, 2, 20, 1)  # loads the kernels
        sweep.limit_cpu(given.cap)
        figures = fisher_hmc(problem, sampler, given.chains, given.draws, seed)
    else:
        drawn, known = sweep.measure_peer(problem, sampler, given.chains, given.draws, seed, given.cap)
        figures = judged(problem, drawn) | known
    connection.send(facts | figures)


def table(rows: pd.DataFrame, column: str, per: float, unit: str) -> str:
    """Markdown: ESS per `per` of a column for each model and sampler, medians over seeds and their range."""
    heads = ["model", "d", "sampler", "seeds"]
    heads += [f"{part} / {unit}{extra}" for extra in ("", ", with warm-up") for part in ("bulk", "tail")]
    heads += ["largest R-hat", "chains with a field"]
    lines = [f"| {' | '.join(heads)} |", "| --- | ---: | --- |" + " ---: |" * (len(heads) - 3)]
    for (model, sampler), runs_of in rows.groupby(["model", "sampler"], sort=False):
        good = runs_of[runs_of["status"] == "ok"]
        cells = [f"{model}", f"{runs_of['d'].iloc[0]:.0f}", f"{sampler}", sweep.seeds_of(runs_of)]
        for prefix in ("draw_", ""):
            cells += [sweep.spread(per * good[part] / good[prefix + column]) for part in ("bulk", "tail")]
        cells.append(f"{good['r_hat'].max():.3f}" if len(good) else "")
        ours = sampler == "auto" and len(good)
        cells.append(f"{good['with_field'].sum():.0f} of {good['chains'].sum():.0f}" if ours else "")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def misses(rows: pd.DataFrame) -> str:
    """The goals that the median of `auto` misses."""
    lines = []
    ours = rows[(rows["sampler"] == "auto") & (rows["status"] == "ok")]
    for model, runs_of in ours.groupby("model", sort=False):
        found, goal = float((1e3 * runs_of["bulk"] / runs_of["draw_gradients"]).median()), MODELS[model].goal
        if found < goal:
            lines.append(f"{model}: {found:.3g} of {goal:g}")
    return "Missed: " + ("; ".join(lines) or "none") + "."


def microcanonical(given: argparse.Namespace) -> None:
    if not MICROCANONICAL.is_dir():
        sys.exit(f"there is no {MICROCANONICAL}")
    truth = np.load(MICROCANONICAL / "truth.npz")
    sizes_of = {"rosenbrock": {"D": 18, "Q": 0.1}}
    print("| target | transport | worst | mean | gradients a draw | warm-up gradients a chain | fields |")
    print("| --- | --- |" + " ---: |" * 5)
    for name in given.names or TARGETS:
        found = MICROCANONICAL / f"{name}.json"
        data = json.loads(found.read_text()) if found.is_file() else sizes_of.get(name)
        mean, variance = known(name, truth)
        for transport in (each for each in given.samplers if each in OURS):
            print(f"| {name} | {transport} | {b_squared(given, name, data, transport, mean, variance)} |")


def known(name: str, truth: Any) -> tuple[np.ndarray, np.ndarray]:
    """E x_j² and Var x_j², in the order of the program's parameters."""
    if name == "banana":
        return np.array([100.0, 19.0]), np.array([20_000.0, 4_610.0])
    if name == "rosenbrock":
        return np.repeat([2.0, 10.1], 18), np.repeat([6.0, 668.0], 18)
    mean, variance = ([truth[key] for key in truth if key.endswith(end)] for end in ("_mean", "_var"))
    return np.ravel(mean[0]), np.ravel(variance[0])


def b_squared(
    given: argparse.Namespace,
    name: str,
    data: Any,
    transport: str,
    mean: np.ndarray,
    variance: np.ndarray,
) -> str:
    """Cells of the table."""
    posterior = stanadapt.Posterior(MICROCANONICAL / f"{name}.stan", data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        groups = datasets(
            stanadapt.sample(
                posterior,
                method="fisher_hmc",
                settings={"transport": transport},
                chains=given.chains,
                draws=given.draws,
                seed=given.seeds[0],
                progress=False,
            )
        )
    draws = samplers.side_by_side(groups["posterior"], posterior.variables)
    pace = float(groups["sample_stats"]["n_steps"].mean())
    cells = gradients_until_known(draws, mean, variance, pace)
    adaptation = groups["adaptation"]
    warmup = float((adaptation["evaluations_warmup"] + adaptation["field_gradients"]).mean())
    fields = int((adaptation["field_role"] > 0).any("unconstrained").sum())
    return " | ".join((*cells, f"{pace:.3g}", f"{warmup:,.0f}", f"{fields} of {given.chains}"))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", choices=[*MODELS, *TARGETS, []])
    add("--samplers", nargs="*", default=[*OURS], choices=[*OURS, *samplers.PEERS])
    add("--seeds", nargs="*", type=int, default=[1, 2, 3, 4])
    add("--chains", type=int)
    add("--draws", type=int)
    add("--cap", type=float, default=np.inf)
    add("--out", type=Path, default=Path("fields.csv"))
    add("--resume", action="store_true")
    add("--show", action="store_true")
    add("--microcanonical", action="store_true")
    given = parser.parse_args()
    given.chains = given.chains or (16 if given.microcanonical else 4)
    given.draws = given.draws or (2_000 if given.microcanonical else 1_000)
    if given.microcanonical:
        microcanonical(given)
        return
    sweep.leave_out_lacking(given, OURS)
    rows = sweep.read(given.out) if given.show else sweep.run_all(work, given, MODELS, COLUMNS)
    for unit in UNITS:
        print(table(rows, *unit), end="\n\n")
    print(misses(rows))


if __name__ == "__main__":
    main()
