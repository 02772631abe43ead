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
import multiprocessing
import resource
import sys
import warnings
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd

import stanadapt
from field_models import MODELS
from race import problems, samplers, shim
from race.judge import sizes
from race.problems import Problem
from race.racer import Clock
from stanadapt import runs
from stanadapt.result.container import datasets

OURS = ("auto", "off")  # settings of fisher_hmc's `transport`
KEY = ["model", "sampler", "seed"]
COLUMNS = [
    *KEY,
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
LIMIT = 0.01  # of b²


def fisher_hmc(problem: Problem, transport: str, chains: int, draws: int, seed: int) -> dict[str, Any]:
    """The figures of a run."""
    posterior = stanadapt.Posterior(shim.opened(problem.bridgestan_data))
    clock, run_chains = Clock(), runs.run

    def timed(*arguments: Any) -> Any:
        with clock:
            return run_chains(*arguments)

    before = shim.gradients()
    with warnings.catch_warnings(), mock.patch.object(runs, "run", timed):
        warnings.simplefilter("ignore")
        groups = datasets(
            stanadapt.sample(
                posterior,
                method="fisher_hmc",
                settings={"transport": transport},
                chains=chains,
                draws=draws,
                seed=seed,
                progress=False,
            )
        )
    gradients = shim.gradients() - before
    adaptation, drawn = groups["adaptation"], groups["posterior"]
    values = np.concatenate(
        [drawn[name].values.reshape(chains, draws, -1) for name in posterior.variables], axis=2
    )
    share = float(adaptation["seconds"].sum() / adaptation["seconds_total"].sum())
    bulk, tail, r_hat = sizes(values[..., : len(problem.parameters)][..., ~problem.steady])
    return {
        "bulk": bulk,
        "tail": tail,
        "r_hat": r_hat,
        "gradients": gradients,
        "draw_gradients": int(groups["sample_stats"]["n_steps"].sum()),
        "cpu_seconds": clock.cpu_seconds,
        "draw_cpu_seconds": share * clock.cpu_seconds,
        "with_field": int((adaptation["field_role"] > 0).any("unconstrained").sum()),
    }


def peer(problem: Problem, name: str, chains: int, draws: int, seed: int, cap: float) -> dict[str, Any]:
    """The figures of a run of a sampler of the race, whose gradients are known for the whole run only."""
    racer = samplers.racer(name)(problem, chains, 2)
    racer.prepare(draws)
    limit_cpu(cap)
    finish = racer.run(draws, seed)
    limit_cpu(np.inf)  # stan_* runs its warm-up again to count gradients
    outcome = finish()
    bulk, tail, r_hat = sizes(outcome.draws[..., : len(problem.parameters)][..., ~problem.steady])
    figures = {"bulk": bulk, "tail": tail, "r_hat": r_hat}
    return figures | {"gradients": outcome.gradients, "cpu_seconds": outcome.cpu_seconds}


def limit_cpu(seconds: float) -> None:
    """Let this process use so many more seconds of CPU; it is killed then."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    limit = resource.RLIM_INFINITY
    if np.isfinite(seconds):
        limit = int(used.ru_utime + used.ru_stime + seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (limit, hard))


def work(connection: Connection, given: argparse.Namespace, model: str, sampler: str, seed: int) -> None:
    """The process of a run."""
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    chosen = MODELS[model]
    problem = problems.opened(model, chosen.program, plain(chosen.data(chosen.size)))
    facts = {"d": problem.d}
    connection.send(facts)
    if sampler in OURS:
        fisher_hmc(problems.small(), sampler, 2, 20, 1)  # loads the kernels
        limit_cpu(given.cap)
        figures = fisher_hmc(problem, sampler, given.chains, given.draws, seed)
    else:
        figures = peer(problem, sampler, given.chains, given.draws, seed, given.cap)
    connection.send(facts | figures)


def plain(data: dict[str, Any]) -> dict[str, Any]:
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in data.items()}


def run(given: argparse.Namespace, model: str, sampler: str, seed: int) -> dict[str, Any]:
    """A run in a process of its own: a row of the file."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=work, args=(theirs, given, model, sampler, seed))
    process.start()
    theirs.close()
    row: dict[str, Any] = {"model": model, "sampler": sampler, "seed": seed, "chains": given.chains}
    row["status"] = "ok"
    try:
        row |= ours.recv()
        row |= ours.recv()
    except EOFError:
        process.join()
        row["status"] = "capped" if process.exitcode in (-9, -24) else "failed"  # SIGKILL, SIGXCPU
    process.join()
    return row


def run_all(given: argparse.Namespace) -> pd.DataFrame:
    """Every sampler on every model, but for runs that the file has."""
    rows = read(given.out) if given.resume else pd.DataFrame(columns=COLUMNS)
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


def read(path: Path) -> pd.DataFrame:
    return pd.read_csv(path)


def table(rows: pd.DataFrame, column: str, per: float, unit: str) -> str:
    """Markdown: ESS per `per` of a column for each model and sampler, medians over seeds and their range."""
    heads = ["model", "d", "sampler", "seeds"]
    heads += [f"{part} / {unit}{extra}" for extra in ("", ", with warm-up") for part in ("bulk", "tail")]
    heads += ["largest R-hat", "chains with a field"]
    lines = [f"| {' | '.join(heads)} |", "| --- | ---: | --- |" + " ---: |" * (len(heads) - 3)]
    for (model, sampler), runs_of in rows.groupby(["model", "sampler"], sort=False):
        good = runs_of[runs_of["status"] == "ok"]
        missing = [f"{count} {why}" for why, count in runs_of["status"].value_counts().items() if why != "ok"]
        seeds = ", ".join([*([str(len(good))] if len(good) else []), *missing])
        cells = [f"{model}", f"{runs_of['d'].iloc[0]:.0f}", f"{sampler}", seeds]
        for prefix in ("draw_", ""):
            cells += [spread(per * good[part] / good[prefix + column]) for part in ("bulk", "tail")]
        cells.append(f"{good['r_hat'].max():.3f}" if len(good) else "")
        ours = sampler == "auto" and len(good)
        cells.append(f"{good['with_field'].sum():.0f} of {good['chains'].sum():.0f}" if ours else "")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def spread(values: pd.Series) -> str:
    """The median, and the least and the largest where there are more than one."""
    values = values.dropna()
    if not len(values):
        return ""
    low, middle, high = (written(value) for value in (values.min(), values.median(), values.max()))
    return middle if len(values) == 1 else f"{middle} ({low} to {high})"


def written(value: float) -> str:
    return f"{value:,.0f}" if value >= 100.0 else f"{value:.3g}"


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
    n = np.arange(1, given.draws + 1)[:, None]
    worst, average = [], []
    for chain in range(given.chains):
        parts = [
            groups["posterior"][each].values[chain].reshape(given.draws, -1) for each in posterior.variables
        ]
        draws = np.concatenate(parts, axis=1)
        b2 = np.square(np.cumsum(np.square(draws), axis=0) / n - mean) / variance
        worst.append(b2.max(axis=1))
        average.append(b2.mean(axis=1))
    pace = float(groups["sample_stats"]["n_steps"].mean())
    cells = []
    for values in (worst, average):
        over = np.flatnonzero(np.median(values, axis=0) > LIMIT)
        last = int(over[-1]) + 2 if over.size else 1
        cells.append(f"{last * pace:,.0f}" if last <= given.draws else f"more than {given.draws * pace:,.0f}")
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
    for name in [name for name in given.samplers if name not in OURS]:
        if lack := samplers.lacking(name):
            print(f"{name} is left out: {lack}", file=sys.stderr)
            given.samplers.remove(name)
    rows = read(given.out) if given.show else run_all(given)
    for unit in UNITS:
        print(table(rows, *unit), end="\n\n")
    print(misses(rows))


if __name__ == "__main__":
    main()
