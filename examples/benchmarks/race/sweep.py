"""Runs of many samplers on many models, each in a process of its own: what fields.py and tails.py share."""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import sys
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pandas as pd

import stanadapt
from stanadapt import runs
from stanadapt.result.container import datasets

from . import samplers, shim
from .problems import Problem
from .racer import Clock

KEY = ["model", "sampler", "seed"]


class Measured(NamedTuple):
    """A run of this package."""

    result: Any
    groups: dict[str, Any]  # of the result
    draws: np.ndarray  # (chains, n, k)
    # Gradients and seconds, of the whole run and of the draws; and the number of chains with a field.
    figures: dict[str, Any]


def measure(problem: Problem, **asked: Any) -> Measured:
    """Run `stanadapt.sample` on a problem, and count gradients and seconds of CPU."""
    posterior = stanadapt.Posterior(shim.opened(problem.bridgestan_data))
    clock, run_chains = Clock(), runs.run

    def timed(*arguments: Any) -> Any:
        with clock:
            return run_chains(*arguments)

    before = shim.gradients()
    with warnings.catch_warnings(), mock.patch.object(runs, "run", timed):
        warnings.simplefilter("ignore")
        result = stanadapt.sample(posterior, progress=False, **asked)
    gradients = shim.gradients() - before
    groups = datasets(result)
    adaptation = groups["adaptation"]
    share = float(adaptation["seconds"].sum() / adaptation["seconds_total"].sum())
    found = "field_role" in adaptation
    figures = {
        "gradients": gradients,
        "draw_gradients": int(groups["sample_stats"]["n_steps"].sum()),
        "cpu_seconds": clock.cpu_seconds,
        "draw_cpu_seconds": share * clock.cpu_seconds,
        "with_field": int((adaptation["field_role"] > 0).any("unconstrained").sum()) if found else 0,
    }
    draws = samplers.side_by_side(groups["posterior"], posterior.variables)
    return Measured(result, groups, draws, figures)


def measure_peer(
    problem: Problem, name: str, chains: int, draws: int, seed: int, cap: float
) -> tuple[np.ndarray, dict[str, Any]]:
    """Draws and figures of a run of a sampler of the race; its gradients are known for the whole run only."""
    racer = samplers.racer(name)(problem, chains, 2)
    racer.prepare(draws)
    limit_cpu(cap)
    finish = racer.run(draws, seed)
    limit_cpu(np.inf)  # stan_* runs its warm-up again to count gradients
    outcome = finish()
    return outcome.draws, {"gradients": outcome.gradients, "cpu_seconds": outcome.cpu_seconds}


def limit_cpu(seconds: float) -> None:
    """Let this process use so many more seconds of CPU; it is killed then."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    limit = resource.RLIM_INFINITY
    if np.isfinite(seconds):
        limit = int(used.ru_utime + used.ru_stime + seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (limit, hard))


def plain(data: dict[str, Any]) -> dict[str, Any]:
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in data.items()}


def run(
    work: Callable[..., None], given: argparse.Namespace, model: str, sampler: str, seed: int
) -> dict[str, Any]:
    """A run in a process of its own, which is `work`: a row of the file."""
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


def run_all(
    work: Callable[..., None], given: argparse.Namespace, models: Iterable[str], columns: list[str]
) -> pd.DataFrame:
    """Every sampler on every model, but for runs that the file has."""
    rows = read(given.out) if given.resume and given.out.is_file() else pd.DataFrame(columns=columns)
    rows.to_csv(given.out, index=False)
    done = set(rows[KEY].itertuples(index=False, name=None))
    for model in given.names or models:
        for sampler in given.samplers:
            for seed in given.seeds:
                if (model, sampler, seed) in done:
                    continue
                row = pd.DataFrame([run(work, given, model, sampler, seed)], columns=columns)
                row.to_csv(given.out, mode="a", header=False, index=False)
                print(", ".join(row.iloc[0].dropna().astype(str)), file=sys.stderr, flush=True)
    return read(given.out)


def leave_out_lacking(given: argparse.Namespace, ours: Iterable[str]) -> None:
    """Take the samplers from the list whose packages are not here, and say so."""
    for name in [name for name in given.samplers if name not in ours]:
        if lack := samplers.lacking(name):
            print(f"{name} is left out: {lack}", file=sys.stderr)
            given.samplers.remove(name)


def read(path: Path) -> pd.DataFrame:
    return pd.read_csv(path)


def seeds_of(rows: pd.DataFrame) -> str:
    """How many runs ended, and how many did not and why."""
    good = int((rows["status"] == "ok").sum())
    missing = [f"{count} {why}" for why, count in rows["status"].value_counts().items() if why != "ok"]
    return ", ".join([*([str(good)] if good else []), *missing])


def spread(values: pd.Series) -> str:
    """The median, and the least and the largest where there are more than one."""
    values = values.dropna()
    if not len(values):
        return ""
    low, middle, high = (written(value) for value in (values.min(), values.median(), values.max()))
    return middle if len(values) == 1 else f"{middle} ({low} to {high})"


def written(value: float) -> str:
    return f"{value:,.0f}" if value >= 100.0 else f"{value:.3g}"
