"""Tails of large hierarchies: effective draws of the scales and of all parameters, beside other samplers.

    python examples/benchmarks/tails.py [NAME ...] [--samplers auto nuts nutpie_low_rank stan_diag]
        [--seeds 1 2 3] [--chains 4] [--draws 1000] [--cap 120] [--out tails.csv] [--resume] [--show]

NAMEs are models of tail_models.py, by default all. `auto` and `off` are `fisher_hmc` with this setting
`transport`; `no_field` is `auto` that never looks for a latent field; `nuts` is this package's, which is
Stan's with a diagonal metric; the other samplers are those of the race (race/samplers.py). Every run has a
process of its own, which may use `--cap` seconds of CPU for warm-up and draws together. A line of `--out`
has the least effective sample size, of bulk and tail, over the scales and over all parameters, gradients and
seconds of CPU, of the draws alone and of the whole run; the names of the findings; and the longest time, in
draws, in which a chain did not move. Gradients of the draws alone are known of this package's samplers.
"""

from __future__ import annotations

import argparse
import os

# Before NumPy is imported, here and in the processes.
os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")

import multiprocessing
import sys
import warnings
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd

import stanadapt
from fields import limit_cpu, plain, read, spread
from race import problems, samplers, shim
from race.judge import sizes
from race.problems import Problem
from race.racer import Clock
from stanadapt import runs
from stanadapt.numerics import field_search
from stanadapt.result.container import datasets
from stanadapt.samplers import windowed
from tail_models import MODELS

OURS = ("auto", "off", "no_field", "nuts")
KEY = ["model", "sampler", "seed"]
SIZES = ["scales_bulk", "scales_tail", "bulk", "tail"]
COLUMNS = [
    *KEY,
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
    posterior = stanadapt.Posterior(shim.opened(problem.bridgestan_data))
    clock, run_chains = Clock(), runs.run
    method = "nuts" if sampler == "nuts" else "fisher_hmc"
    settings = {} if sampler == "nuts" else {"transport": "off" if sampler == "off" else "auto"}
    looks = field_search.seeks_field if sampler != "no_field" else never

    def timed(*arguments: Any) -> Any:
        with clock:
            return run_chains(*arguments)

    before = shim.gradients()
    with (
        warnings.catch_warnings(),
        mock.patch.object(runs, "run", timed),
        mock.patch.object(windowed, "seeks_field", looks),
    ):
        warnings.simplefilter("ignore")
        result = stanadapt.sample(
            posterior, method=method, settings=settings, chains=chains, draws=draws, seed=seed, progress=False
        )
    gradients = shim.gradients() - before
    groups = datasets(result)
    adaptation, drawn = groups["adaptation"], groups["posterior"]
    values = samplers.side_by_side(drawn, posterior.variables)
    share = float(adaptation["seconds"].sum() / adaptation["seconds_total"].sum())
    found = "field_role" in adaptation
    return judged(problem, scales, values) | {
        "gradients": gradients,
        "draw_gradients": int(groups["sample_stats"]["n_steps"].sum()),
        "cpu_seconds": clock.cpu_seconds,
        "draw_cpu_seconds": share * clock.cpu_seconds,
        "with_field": int((adaptation["field_role"] > 0).any("unconstrained").sum()) if found else 0,
        "findings": " ".join(sorted({finding.kind for finding in stanadapt.diagnose(result)})),
    }


def never(*_: Any) -> bool:
    """In place of `seeks_field`."""
    return False


def judged(problem: Problem, scales: np.ndarray, draws: np.ndarray) -> dict[str, Any]:
    """Effective sizes of draws (chains, n, k), over the scales and over all parameters that move."""
    draws = draws[..., : len(problem.parameters)]
    bulk, tail, r_hat = sizes(draws[..., ~problem.steady])
    scales_bulk, scales_tail, _ = sizes(draws[..., scales])
    found = {"scales_bulk": scales_bulk, "scales_tail": scales_tail, "bulk": bulk, "tail": tail}
    return found | {"r_hat": r_hat, "still": longest_still(draws)}


def longest_still(draws: np.ndarray) -> int:
    """The largest number of draws (chains, n, k) in a row that are the same point."""
    longest = 0
    for chain in draws:
        moved = np.flatnonzero(np.any(np.diff(chain, axis=0) != 0.0, axis=1)) + 1
        longest = max(longest, int(np.diff(np.concatenate(([0], moved, [len(chain)]))).max()))
    return longest


def peer(problem: Problem, name: str, scales: np.ndarray, given: argparse.Namespace, seed: int) -> Any:
    """The figures of a run of a sampler of the race."""
    racer = samplers.racer(name)(problem, given.chains, 2)
    racer.prepare(given.draws)
    limit_cpu(given.cap)
    finish = racer.run(given.draws, seed)
    limit_cpu(np.inf)  # stan_* runs its warm-up again to count gradients
    outcome = finish()
    figures = {"gradients": outcome.gradients, "cpu_seconds": outcome.cpu_seconds}
    return judged(problem, scales, outcome.draws) | figures


def work(connection: Connection, given: argparse.Namespace, model: str, sampler: str, seed: int) -> None:
    """The process of a run."""
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    chosen = MODELS[model]
    problem = problems.opened(model, chosen.program, plain(chosen.data(chosen.size)))
    scales = np.array([name.split(".")[0] in chosen.scales for name in problem.parameters])
    facts = {"d": problem.d}
    connection.send(facts)
    if sampler in OURS:
        ours(problems.small(), sampler, np.ones(2, bool), 2, 20, 1)  # loads the kernels
        limit_cpu(given.cap)
        figures = ours(problem, sampler, scales, given.chains, given.draws, seed)
    else:
        figures = peer(problem, sampler, scales, given, seed)
    connection.send(facts | figures)


def run(given: argparse.Namespace, model: str, sampler: str, seed: int) -> dict[str, Any]:
    """A run in a process of its own: a row of the file."""
    context = multiprocessing.get_context("spawn")
    ours_end, theirs = context.Pipe()
    process = context.Process(target=work, args=(theirs, given, model, sampler, seed))
    process.start()
    theirs.close()
    row: dict[str, Any] = {"model": model, "sampler": sampler, "seed": seed, "chains": given.chains}
    row["status"] = "ok"
    try:
        row |= ours_end.recv()
        row |= ours_end.recv()
    except EOFError:
        process.join()
        row["status"] = "capped" if process.exitcode in (-9, -24) else "failed"  # SIGKILL, SIGXCPU
    process.join()
    return row


def run_all(given: argparse.Namespace) -> pd.DataFrame:
    """Every sampler on every model, but for runs that the file has."""
    rows = read(given.out) if given.resume and given.out.is_file() else pd.DataFrame(columns=COLUMNS)
    rows.to_csv(given.out, index=False)
    done = set(rows[KEY].itertuples(index=False, name=None))
    for model in given.names or MODELS:
        for sampler in given.samplers:
            for seed in given.seeds:
                if (model, sampler, seed) in done:
                    continue
                row = pd.DataFrame([run(given, model, sampler, seed)], columns=COLUMNS)
                row.to_csv(given.out, mode="a", header=False, index=False)
                print(", ".join(row.iloc[0].dropna().astype(str)), file=sys.stderr, flush=True)
    return read(given.out)


def table(rows: pd.DataFrame, column: str, per: float, unit: str, prefix: str) -> str:
    """Markdown: ESS per `per` of a column for each model and sampler, medians over seeds and their range."""
    heads = ["model", "d", "sampler", "seeds", *(f"{name.replace('_', ' ')} / {unit}" for name in SIZES)]
    heads += ["R-hat", "still", "findings"]
    lines = [f"| {' | '.join(heads)} |", "| --- | ---: | --- |" + " ---: |" * (len(heads) - 4) + " --- |"]
    for (model, sampler), runs_of in rows.groupby(["model", "sampler"], sort=False):
        good = runs_of[runs_of["status"] == "ok"]
        missing = [f"{count} {why}" for why, count in runs_of["status"].value_counts().items() if why != "ok"]
        seeds = ", ".join([*([str(len(good))] if len(good) else []), *missing])
        cells = [f"{model}", f"{runs_of['d'].iloc[0]:.0f}", f"{sampler}", seeds]
        cells += [spread(per * good[name] / good[prefix + column]) for name in SIZES]
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
    add("names", nargs="*", metavar="NAME", choices=[*MODELS, []])
    add("--samplers", nargs="*", default=["auto"], choices=[*OURS, *samplers.PEERS])
    add("--seeds", nargs="*", type=int, default=[1, 2, 3])
    add("--chains", type=int, default=4)
    add("--draws", type=int, default=1_000)
    add("--cap", type=float, default=np.inf)
    add("--out", type=Path, default=Path("tails.csv"))
    add("--resume", action="store_true")
    add("--show", action="store_true")
    given = parser.parse_args()
    for name in [name for name in given.samplers if name not in OURS]:
        if lack := samplers.lacking(name):
            print(f"{name} is left out: {lack}", file=sys.stderr)
            given.samplers.remove(name)
    rows = read(given.out) if given.show else run_all(given)
    for column, per, unit in (("gradients", 1e3, "1,000 gradients"), ("cpu_seconds", 1.0, "s")):
        print(f"Warm-up counted, for each {unit}:\n\n{table(rows, column, per, unit, '')}\n")
        known = rows[rows["draw_" + column].notna()]
        print(f"The draws alone, for each {unit}:\n\n{table(known, column, per, unit, 'draw_')}\n")


if __name__ == "__main__":
    main()
