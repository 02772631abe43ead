"""Time of an iteration beyond the gradients it calls, against what cannot be avoided; all in one run.

    python examples/benchmarks/kernels.py

Part 1, d = 10 (eight schools): microseconds an iteration, minus as many calls of the same C function in a
compiled loop. Part 2, d = 25 to 200 (standard Gaussian, compiled): the same, with the power of d by which it
grows from 50 to 200. Part 3, d = 100 to 800: the ratio to the linear algebra that cannot be avoided, which is
two matrix-vector products for a frozen iteration, three and a rank-one update for one that adapts. That
reference is the faster of BLAS (through numba, one thread) and the package's own loops; the ratio to BLAS
alone stands beside it. kamh and kmc_* are in surrogates.py.
Times are medians over repeats that alternate between what is compared.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np

import stanadapt
from stanadapt import samplers
from stanadapt.model.backends.python import LOG_DENSITY, LOG_DENSITY_GRADIENT
from stanadapt.numerics.linear import add_outer, times, transposed_times
from stanadapt.run.warmup import warm_up
from stanadapt.target import log_density, log_density_gradient
from stanadapt.trace import empty_trace

MODELS = Path(__file__).parents[2] / "models"
# Without the methods that refit between blocks: a sweep of theirs may not go beyond the room for points.
METHODS = [
    name
    for name in samplers.METHODS
    if not samplers.is_engine(samplers.sampler(name)) and not samplers.sampler(name).FACTS.refits
]
DIMENSIONS = (25, 50, 100, 200)
REPEATS = 9


@numba.njit
def raw_gradients(target: Any, x: Any, n: int) -> float:
    score, total = np.empty_like(x), 0.0
    for _ in range(n):
        total += log_density_gradient(target, x, score)
    return total


@numba.njit
def raw_densities(target: Any, x: Any, n: int) -> float:
    total = 0.0
    for _ in range(n):
        total += log_density(target, x)
    return total


@numba.njit
def blas(root: Any, v: Any, n: int, adapting: bool) -> float:
    total = 0.0
    for _ in range(n):
        a = root @ v
        b = root.T @ a
        total += b[0]
        if adapting:
            total += (root @ b)[0]
            add_outer(root, 1.0, 1e-9, v, v)
    return total


@numba.njit
def loops(root: Any, v: Any, n: int, adapting: bool) -> float:
    total = 0.0
    for _ in range(n):
        a = times(root, v)
        b = transposed_times(root, a)
        total += b[0]
        if adapting:
            total += times(root, b)[0]
            add_outer(root, 1.0, 1e-9, v, v)
    return total


def medians(jobs: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]], per: int) -> dict[str, float]:
    """Median microseconds of each job (function, arguments), run in turn, `per` iterations a run."""
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(REPEATS + 1):
        for name, (function, arguments) in jobs.items():
            began = time.perf_counter()
            function(*arguments)
            seconds[name].append(time.perf_counter() - began)
    return {name: float(np.median(s[1:])) / per * 1e6 for name, s in seconds.items()}


Sweeps = dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]


def sweeps(method: str, model: Any, n: int) -> Sweeps:
    """Jobs of `n` frozen and `n` adapting iterations after a warm-up, and of `n` raw calls of the model."""
    sampler = samplers.sampler(method)
    settings = samplers.resolve(sampler, None)
    target = model.target()
    rng, d = np.random.default_rng(1), model.dim
    state = warm_up(sampler, settings, target, rng.uniform(-0.5, 0.5, d), rng, 2_000).finish()
    trace = empty_trace(n, d, len(sampler.FACTS.columns))
    x = state.x.copy()
    return {
        "frozen": (sampler.sweep, (target, settings, state, rng, False, trace)),
        "adapting": (sampler.sweep, (target, settings, state, rng, True, trace)),
        "density": (raw_densities, (target, x, n)),
        "gradient": (raw_gradients, (target, x, n)),
    }


DENSITY_WHEN_FROZEN = ("gad_rwm",)  # it needs gradients to learn from, and only then


def beyond(method: str, jobs: Sweeps, n: int) -> tuple[dict[str, float], float, float]:
    """Times of the jobs, and microseconds beyond the calls of the model, frozen and adapting."""
    t = medians(jobs, n)
    needs = samplers.facts(method).gradient
    calls = [_calls(*jobs[phase]) for phase in ("frozen", "adapting")]
    one = t["gradient"] if needs and method not in DENSITY_WHEN_FROZEN else t["density"]
    return t, t["frozen"] - calls[0] * one, t["adapting"] - calls[1] * (t["gradient"] if needs else one)


def _calls(sweep: Callable[..., Any], arguments: tuple[Any, ...]) -> float:
    """Calls of the model in an iteration, on average."""
    sweep(*arguments)
    return float(arguments[-1].n_steps.mean())


def small() -> None:
    n = 20_000
    folder = MODELS / "eight_schools"
    model = stanadapt.Posterior(folder / "eight_schools.stan", folder / "eight_schools.json").model
    print("d = 10, eight schools: microseconds an iteration\n")
    print("method          frozen  adapting  density  gradient  beyond its calls: frozen  adapting")
    for method in METHODS:
        t, frozen, adapting = beyond(method, sweeps(method, model, n), n)
        print(
            f"{method:14s} {t['frozen']:7.2f} {t['adapting']:9.2f} {t['density']:8.2f} {t['gradient']:9.2f} "
            f"{frozen:25.2f} {adapting:9.2f}"
        )


def growth() -> None:
    print("\nmicroseconds beyond its calls, frozen and adapting, and the power of d from 50 to 200\n")
    print("method        " + "".join(f"{f'd = {d}':>16s}" for d in DIMENSIONS) + "          power")
    for method in METHODS:
        rows = []
        for d in DIMENSIONS:
            n = 100 if method == "mmala" else max(200, 2_000_000 // d**2)
            model = gaussian(d)  # held while kernels have its addresses
            rows.append(beyond(method, sweeps(method, model, n), n)[1:])
        power = np.log(np.array(rows[-1]) / np.array(rows[1])) / np.log(DIMENSIONS[-1] / DIMENSIONS[1])
        cells = "".join(f"{frozen:8.1f}{adapting:8.1f}" for frozen, adapting in rows)
        print(f"{method:14s}{cells}{power[0]:10.1f}{power[1]:6.1f}", flush=True)


def gaussian(d: int) -> Any:
    @numba.cfunc(LOG_DENSITY)
    def density(x):
        total = 0.0
        for i in range(d):
            total -= 0.5 * x[i] * x[i]
        return total

    @numba.cfunc(LOG_DENSITY_GRADIENT)
    def gradient(x, score):
        total = 0.0
        for i in range(d):
            score[i] = -x[i]
            total -= 0.5 * x[i] * x[i]
        return total

    return stanadapt.Target.from_python(density, d, gradient)


def large() -> None:
    print("\ntime beyond the gradient as a ratio to the linear algebra that cannot be avoided\n")
    print("method          d   frozen  adapting   to BLAS alone: frozen  adapting   microseconds")
    for d in (100, 200, 400, 800):
        n = max(20, 8_000_000 // d**2)
        rng = np.random.default_rng(2)
        root, v = rng.normal(size=(d, d)), 1e-3 * rng.normal(size=d)
        model = gaussian(d)
        references: Sweeps = {
            "blas": (blas, (root, v, n, False)),
            "loops": (loops, (root, v, n, False)),
            "blas adapting": (blas, (root, v, n, True)),
            "loops adapting": (loops, (root, v, n, True)),
        }
        for method in ("ada_mala", "fisher_mala"):
            t = medians(sweeps(method, model, n) | references, n)
            t["raw"] = t["gradient"]
            least = min(t["blas"], t["loops"])
            least_adapting = min(t["blas adapting"], t["loops adapting"])
            print(
                f"{method:12s} {d:4d} {(t['frozen'] - t['raw']) / least:8.2f} "
                f"{(t['adapting'] - t['raw']) / least_adapting:9.2f} "
                f"{(t['frozen'] - t['raw']) / t['blas']:23.2f} "
                f"{(t['adapting'] - t['raw']) / t['blas adapting']:9.2f}   "
                f"{t['frozen']:.1f}, {t['adapting']:.1f}; references {least:.1f}, {least_adapting:.1f}"
            )


if __name__ == "__main__":
    small()
    growth()
    large()
