"""Time of a diagnosis beside the run it belongs to, of a summary, and of a short call.

    python examples/benchmarks/diagnosis.py [--dimensions 10 100 1000 3000] [--repeats 3]

First a call on eight schools with 4 chains of 100 draws after 100 iterations of warm-up, everything warm,
with the opening of the program and the diagnosis that are part of it. Then a standard Gaussian of dimension
d, compiled, with 4 chains of 1,000 draws by mala: the whole call, a diagnosis as it is part of it, and a
summary; after 1,000 iterations of warm-up, and without any from far away, where R-hat without each chain is
asked for. All are processor time, over all threads, since other programs may be running; the smallest of the
repeats.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np

import stanadapt
from stanadapt import Target

SCHOOLS = Path(__file__).parents[2] / "models" / "eight_schools"


def gaussian(d: int) -> Target:
    """A standard Gaussian, compiled."""

    @numba.cfunc(Target.LOG_DENSITY)
    def log_density(x: Any) -> float:
        total = 0.0
        for value in numba.carray(x, (d,)):
            total -= 0.5 * value * value
        return total

    @numba.cfunc(Target.LOG_DENSITY_GRADIENT)
    def gradient(x: Any, out: Any) -> float:
        values, score, total = numba.carray(x, (d,)), numba.carray(out, (d,)), 0.0
        for i in range(d):
            score[i] = -values[i]
            total -= 0.5 * values[i] * values[i]
        return total

    return Target.from_python(log_density, d, gradient)


def seconds(function: Callable[[], Any], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        began = time.process_time()
        function()
        times.append(time.process_time() - began)
    return min(times)


def large(d: int, repeats: int) -> None:
    posterior = stanadapt.Posterior(gaussian(d))
    for name, warmup, radius in (("agree", 1000, 0.5), ("disagree", 0, 1e3)):

        def call(warmup: int = warmup, radius: float = radius) -> Any:
            return stanadapt.sample(
                posterior,
                method="mala",
                warmup=warmup,
                draws=1000,
                seed=1,
                init_radius=radius,
                progress=False,
            )

        idata = call()
        whole = seconds(call, repeats)
        found = seconds(lambda idata=idata: stanadapt.diagnose(idata), repeats)  # type: ignore[misc]
        table = seconds(lambda idata=idata: stanadapt.summary(idata), repeats)  # type: ignore[misc]
        print(f"| {d} | {name} | {whole:.3f} | {found:.3f} | {found / whole:.0%} | {table:.3f} |", flush=True)


def short(method: str, repeats: int) -> None:
    program, data = SCHOOLS / "eight_schools.stan", SCHOOLS / "eight_schools.json"

    def call() -> Any:
        return stanadapt.sample(program, data, method=method, warmup=100, draws=100, seed=1, progress=False)

    idata = call()
    whole = seconds(call, 10 * repeats)
    posterior = stanadapt.Posterior(program, data)
    opened = seconds(lambda: stanadapt.Posterior(program, data), 10 * repeats)
    found = seconds(lambda: stanadapt.diagnose(idata, list(posterior.parameters)), 10 * repeats)
    print(f"| {method} | {1e3 * whole:.1f} | {1e3 * opened:.1f} | {1e3 * found:.1f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--dimensions", type=int, nargs="*", default=[10, 100, 1000, 3000])
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    print("| method | call, ms | opening | diagnosis |\n| --- | ---: | ---: | ---: |")
    for method in ("fisher_mala", "fisher_hmc"):
        short(method, options.repeats)
    print("\n| d | chains | call, s | diagnosis, s | share | summary, s |\n| ---: | --- |" + " ---: |" * 4)
    for d in options.dimensions:
        large(d, options.repeats)


if __name__ == "__main__":
    main()
