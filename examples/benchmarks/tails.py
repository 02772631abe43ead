"""Tails of large hierarchies and of bent regressions: effective draws of scales and of all parameters.

    python examples/benchmarks/tails.py [NAME ...] [--samplers auto nutpie_low_rank stan_diag]
        [--seeds 1 2 3] [--chains 4] [--draws 1000] [--cap 120] [--out tails.csv] [--resume] [--show]

NAMEs are models of tail_models.py and curve_models.py, by default all. `auto` and `off` are `fisher_hmc`
with this setting `transport`; `no_field` is `auto` that never looks for a latent field; the other samplers
are those of the race (race/samplers.py). Every run has a process of its own, which may use `--cap` seconds
of CPU for warm-up and draws together. A line of `--out` has the least effective sample size, of bulk and
tail, over the scales and over all parameters, gradients and seconds of CPU, of the draws alone and of the
whole run; the names of the findings; and the longest time, in draws, in which a chain did not move.
Gradients of the draws alone are known of this package's samplers.
"""

from __future__ import annotations

import argparse
import os

# Before NumPy is imported, here and in the processes.
os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")

from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd

import stanadapt
from curve_models import CURVES
from race import problems, samplers, sweep
from race.judge import longest_rest, sizes
from race.problems import Problem
from stanadapt.numerics import field_search
from stanadapt.samplers import windowed
from tail_models import MODELS

ALL = {**MODELS, **CURVES}

OURS = ("auto", "off", "no_field")
SIZES = ["scales_bulk", "scales_tail", "bulk", "tail"]
COLUMNS = [
    *sweep.KEY,
    "chains",
    "d",
    "status",
    *SIZES,
    "r_hat",
    "gradients",
    "draw_gradients",
    "cpu_seconds",
    "draw_cpu_seconds",
    "still",
    "with_field",
    "findings",
]


def ours(problem: Problem, sampler: str, scales: np.ndarray, chains: int, draws: int, seed: int) -> Any:
    """The figures of a run of this package."""
    settings = {"transport": "off" if sampler == "off" else "auto"}
    looks = field_search.seeks_field if sampler != "no_field" else never
    asked = {"method": "fisher_hmc", "settings": settings, "chains": chains, "draws": draws, "seed": seed}
    with mock.patch.object(windowed, "seeks_field", looks):
        measured = sweep.measure(problem, **asked)
    kinds = {finding.kind for finding in stanadapt.diagnose(measured.result)}
    return judged(problem, scales, measured.draws) | measured.figures | {"findings": " ".join(sorted(kinds))}


def never(*_: Any, **__: Any) -> bool:
    """In place of `seeks_field`."""
    return False


def judged(problem: Problem, scales: np.ndarray, draws: np.ndarray) -> dict[str, Any]:
    """Effective sizes of draws (chains, n, k), over the scales and over all parameters that move."""
    draws = draws[..., : len(problem.parameters)]
    bulk, tail, r_hat = sizes(draws[..., ~problem.steady])
    scales_bulk, scales_tail, _ = sizes(draws[..., scales])
    found = {"scales_bulk": scales_bulk, "scales_tail": scales_tail, "bulk": bulk, "tail": tail}
    return found | {"r_hat": r_hat, "still": longest_rest(draws)}


def work(connection: Connection, given: argparse.Namespace, model: str, sampler: str, seed: int) -> None:
    """The process of a run."""
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    chosen = ALL[model]
    problem = problems.opened(model, chosen.program, sweep.plain(chosen.data(chosen.size)))
    scales = np.array([name.split(".")[0] in chosen.scales for name in problem.parameters])
    facts = {"d": problem.d}
    connection.send(facts)
    if sampler in OURS:
        ours(problems.small(), sampler, np.ones(2, bool), 2, 20, 1)  # loads the kernels
        sweep.limit_cpu(given.cap)
        figures = ours(problem, sampler, scales, given.chains, given.draws, seed)
    else:
        drawn, known = sweep.measure_peer(problem, sampler, given.chains, given.draws, seed, given.cap)
        figures = judged(problem, scales, drawn) | known
    connection.send(facts | figures)


def table(rows: pd.DataFrame, column: str, per: float, unit: str, prefix: str) -> str:
    """Markdown: ESS per `per` of a column for each model and sampler, medians over seeds and their range."""
    heads = ["model", "d", "sampler", "seeds", *(f"{name.replace('_', ' ')} / {unit}" for name in SIZES)]
    heads += ["R-hat", "still", "findings"]
    lines = [f"| {' | '.join(heads)} |", "| --- | ---: | --- |" + " ---: |" * (len(heads) - 4) + " --- |"]
    for (model, sampler), runs_of in rows.groupby(["model", "sampler"], sort=False):
        good = runs_of[runs_of["status"] == "ok"]
        cells = [f"{model}", f"{runs_of['d'].iloc[0]:.0f}", f"{sampler}", sweep.seeds_of(runs_of)]
        cells += [sweep.spread(per * good[name] / good[prefix + column]) for name in SIZES]
        cells.append(f"{good['r_hat'].max():.3f}" if len(good) else "")
        cells.append(f"{good['still'].max():.0f}" if len(good) else "")
        kinds = {kind for found in good["findings"].dropna() for kind in found.split()}
        cells.append(", ".join(sorted(kinds)))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", choices=[*ALL, []])
    add("--samplers", nargs="*", default=["auto"], choices=[*OURS, *samplers.PEERS])
    add("--seeds", nargs="*", type=int, default=[1, 2, 3])
    add("--chains", type=int, default=4)
    add("--draws", type=int, default=1_000)
    add("--cap", type=float, default=np.inf)
    add("--out", type=Path, default=Path("tails.csv"))
    add("--resume", action="store_true")
    add("--show", action="store_true")
    given = parser.parse_args()
    sweep.leave_out_lacking(given, OURS)
    rows = sweep.read(given.out) if given.show else sweep.run_all(work, given, ALL, COLUMNS)
    for column, per, unit in (("gradients", 1e3, "1,000 gradients"), ("cpu_seconds", 1.0, "s")):
        print(f"Warm-up counted, for each {unit}:\n\n{table(rows, column, per, unit, '')}\n")
        known = rows[rows["draw_" + column].notna()]
        print(f"The draws alone, for each {unit}:\n\n{table(known, column, per, unit, 'draw_')}\n")


if __name__ == "__main__":
    main()
