"""Time of many fits of eight schools, and of the parts of one.

    python examples/benchmarks/many.py [--fits 1000] [--draws 500] [--workers 2] [--method fisher_hmc] [--out]

First the parts of a fit in this process, processor time, the mean over 40 seeds: what `sample` does before,
during and after its chains, and what it takes to hand a result over to another process and to write its file.
Then `stanadapt.sample_many` on that many data sets, kernels compiled before: seconds to the first result and
to the last, and processor time of all processes, their start included, since other programs may be running.
With --out the results go to a folder too, which is then resumed.
"""

from __future__ import annotations

import argparse
import functools
import json
import pickle
import resource
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import stanadapt
from stanadapt import api, runs
from stanadapt.result import build
from stanadapt.result.files import read, write

SCHOOLS = Path(__file__).parents[2] / "models" / "eight_schools"
PROGRAM = SCHOOLS / "eight_schools.stan"
REPEATS = 40
# Of `sample`, with the module that calls them.
PARTS: dict[str, tuple[Any, str]] = {
    "open the program with its data": (api, "_open"),
    "check that a result can be built": (api, "try_build"),
    "plan, load kernels": (api, "prepare"),
    "all chains: climbs, warm-up, draws": (runs, "run"),
    "build the result": (runs, "_build"),
    "- of this, tails and modes": (build, "_missed"),
    "diagnose": (runs, "_warn"),
}


def data(i: int) -> dict[str, Any]:
    """Eight schools with other effects for every `i`."""
    held = json.loads((SCHOOLS / "eight_schools.json").read_text())
    rng = np.random.default_rng(i)
    return {**held, "y": list(rng.normal(rng.normal(5.0, 5.0, 8), held["sigma"]))}


def parts(arguments: dict[str, Any]) -> dict[str, float]:
    """Milliseconds of the parts of a fit."""
    spent: Counter[str] = Counter()

    def timed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def run(*given: Any, **named: Any) -> Any:
            began = time.process_time()
            try:
                return function(*given, **named)
            finally:
                spent[name] += time.process_time() - began

        return run

    originals = {name: getattr(*place) for name, place in PARTS.items()}
    fit = functools.partial(stanadapt.sample, PROGRAM, workers=1, progress=False, **arguments)
    fit(data(0), seed=0)
    for name, (module, function) in PARTS.items():
        setattr(module, function, timed(name, originals[name]))
    whole = timed("the whole call of sample", fit)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "fit.nc"
        for i in range(REPEATS):
            result = whole(data(i), seed=i)
            timed("hand it over (pickle)", lambda held=result: pickle.loads(pickle.dumps(held)))()
            timed("write its file", write)(result, file)
            timed("read its file", read)(file)
    for name, (module, function) in PARTS.items():
        setattr(module, function, originals[name])
    return {name: 1e3 * seconds / REPEATS for name, seconds in spent.items()}


def processor() -> float:
    """Seconds of processor time of this process and of those that it has started and that have ended."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def many(fits: int, workers: int, out: str | None, arguments: dict[str, Any]) -> tuple[float, float, float]:
    """Seconds to the first result and to the last, and of processor time."""
    began, spent = time.perf_counter(), processor()
    datasets: Iterator[tuple[int, Any]] = ((i, data(i)) for i in range(fits))
    results = stanadapt.sample_many(
        PROGRAM, datasets, seed=1, workers=workers, out=out, progress=False, **arguments
    )
    first, count = 0.0, 0
    for _, result in results:
        if isinstance(result, Exception):
            raise result
        first, count = first or time.perf_counter() - began, count + 1
    assert count == fits
    return first, time.perf_counter() - began, processor() - spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--fits", type=int, default=1000)
    parser.add_argument("--draws", type=int, default=500)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--method", default="fisher_hmc")
    parser.add_argument("--out", action="store_true", help="write a folder too")
    asked = parser.parse_args()
    warnings.simplefilter("ignore", stanadapt.StanAdaptWarning)
    arguments = {"method": asked.method, "draws": asked.draws, "chains": 4}
    print(f"| part of a fit with {asked.method}, 4 x {asked.draws} draws | ms |\n| --- | ---: |")
    for name, milliseconds in parts(arguments).items():
        print(f"| {name} | {milliseconds:.1f} |")
    heads = [f"{asked.fits} fits, {asked.workers} workers", "first, s", "all, s", "processor, s", "a fit, ms"]
    print(f"\n| {' | '.join(heads)} |\n| --- | ---: | ---: | ---: | ---: |")

    def show(name: str, out: str | None) -> None:
        first, seconds, spent = many(asked.fits, asked.workers, out, arguments)
        each = 1e3 * spent / asked.fits
        print(f"| {name} | {first:.1f} | {seconds:.1f} | {spent:.1f} | {each:.1f} |", flush=True)

    show("results to the caller", None)
    if asked.out:
        with tempfile.TemporaryDirectory() as folder:
            show("and to a folder", f"{folder}/fits")
            show("the same, resumed", f"{folder}/fits")


if __name__ == "__main__":
    main()
