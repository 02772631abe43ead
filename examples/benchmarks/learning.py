"""What the learning of coordinates takes of a run: CPU of its parts over that of the whole run.

    python examples/benchmarks/learning.py [NAME ...] [--seeds 1 2] [--chains 2] [--draws 2000] [--windows]

NAMEs are models of field_models.py, by default those of fields.py's goals. Each run is `fisher_hmc` at its
defaults, in one thread, after a short run has loaded the kernels. Times are those of the thread's CPU:

    search    looking for a latent field, its gradients included
    map       the map: groups, ridges, tails and bends, and whether a field is kept
    metric    the metric, from draws in the coordinates of the map
    settled   whether warm-up may end
    share     all of these over the whole run

`--windows` prints for each window of the first chain its draws, the gradients of a draw, and milliseconds.
"""

from __future__ import annotations

import argparse
import os

os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")

import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from unittest import mock

import stanadapt
from field_models import MODELS
from race.sweep import plain
from stanadapt.numerics import windows
from stanadapt.result.container import datasets
from stanadapt.run import warmup
from stanadapt.samplers import fisher_hmc, windowed

NAMES = (
    "volatility",
    "volatility_long",
    "volatility_noncentred",
    "autoregression",
    "trend",
    "walk",
    "icar",
    "process",
)
PARTS = "search", "map", "metric", "settled"


class Stopwatch:
    """Seconds of CPU of functions by the name of their part; a part inside of another one is not counted."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PARTS, 0.0)
        self.inside = False

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **named: Any) -> Any:
            if self.inside:
                return function(*arguments, **named)
            self.inside, began = True, time.thread_time()
            try:
                return function(*arguments, **named)
            finally:
                self.inside = False
                self.seconds[part] += time.thread_time() - began

        return run


def watched(watch: Stopwatch, lines: list[str]) -> ExitStack:
    """While it is open, parts of learning are timed, and a line is added at the end of each window."""
    stack = ExitStack()
    for part, module, name in (
        ("search", windowed, "search_field"),
        ("map", windows, "learn_transport"),
        ("map", windows, "without_poor_field"),
        ("metric", windows, "choose_metric"),
        ("metric", windows, "learn_metric"),
        ("settled", fisher_hmc, "is_settled"),
    ):
        stack.enter_context(mock.patch.object(module, name, watch.timed(part, getattr(module, name))))
    advance, next_stage = warmup.WarmUp.run, warmup.WarmUp.next_stage
    state: dict[str, Any] = {"seconds": 0.0, "steps": 0, "draws": 0}

    def run(self: Any, trace: Any) -> None:
        began = time.thread_time()
        advance(self, trace)
        state["seconds"] += time.thread_time() - began
        state["steps"] += int(trace.n_steps.sum())
        state["draws"] += len(trace.logp)

    def following(self: Any) -> bool:
        before = dict(watch.seconds)
        more = next_stage(self)
        took = [f"{1e3 * (watch.seconds[part] - before[part]):8.1f}" for part in PARTS]
        if state["draws"]:
            pace = state["steps"] / state["draws"]
            rank = len(self.state.metric.variances) or len(self.state.metric.inverse_mass)
            lines.append(
                f"{state['draws']:6d} {pace:8.1f} {1e3 * state['seconds']:9.1f} {' '.join(took)} "
                f"{rank:5d} {len(self.state.transport):6d}"
            )
        state.update(seconds=0.0, steps=0, draws=0)
        return more

    stack.enter_context(mock.patch.object(warmup.WarmUp, "run", run))
    stack.enter_context(mock.patch.object(warmup.WarmUp, "next_stage", following))
    return stack


def measured(
    posterior: Any, given: argparse.Namespace, seed: int
) -> tuple[dict[str, float], float, float, list[str]]:
    """Seconds of each part, of the draws and of the whole run, and the lines of its windows."""
    watch, lines = Stopwatch(), []
    with warnings.catch_warnings(), watched(watch, lines):
        warnings.simplefilter("ignore")
        began = time.process_time()
        result = stanadapt.sample(
            posterior,
            method="fisher_hmc",
            chains=given.chains,
            draws=given.draws,
            seed=seed,
            workers=1,
            progress=False,
        )
        whole = time.process_time() - began
    adaptation = datasets(result)["adaptation"]
    total = float(adaptation["seconds_total"].sum())
    share = float(adaptation["seconds"].sum()) / total
    return watch.seconds, share * whole, whole, lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", choices=[*MODELS, []])
    add("--seeds", nargs="*", type=int, default=[1, 2])
    add("--chains", type=int, default=2)
    add("--draws", type=int, default=2_000)
    add("--windows", action="store_true")
    given = parser.parse_args()
    print(f"| model | seconds | draws | {' | '.join(PARTS)} | share |")
    print("| --- |" + " ---: |" * (len(PARTS) + 3))
    for name in given.names or NAMES:
        chosen = MODELS[name]
        posterior = stanadapt.Posterior(chosen.program, plain(chosen.data(chosen.size)))
        loading = argparse.Namespace(chains=1, draws=20)
        measured(stanadapt.Posterior(chosen.program, plain(chosen.data(min(chosen.size, 40)))), loading, 1)
        for seed in given.seeds:
            seconds, drawing, whole, lines = measured(posterior, given, seed)
            cells = [f"{each:.3f}" for each in (whole, drawing, *seconds.values())]
            print(f"| {name} | {' | '.join(cells)} | {sum(seconds.values()) / whole:.3f} |", flush=True)
            if given.windows:
                print("\n".join(lines), flush=True)


if __name__ == "__main__":
    main()
