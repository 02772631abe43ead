"""Time of a leapfrog step of Fisher HMC beyond its gradient, against the linear algebra; all in one run.

    python examples/benchmarks/trajectories.py

On a standard Gaussian (compiled), with the dense metric as warm-up learns it: microseconds for each
gradient beyond the gradient itself, frozen, for trajectories of the default length, which are one step
of two gradients there, and for ten times that length. A step needs one product with the metric, a
trajectory one more and half of one for its momentum. The reference is two products of a matrix with a
vector, by the faster of BLAS (through numba, one thread) and the package's own loops. The aims are 0.5
µs at d = 10, and 1.3 times the reference from d = 50 on. Times are medians over repeats that alternate
between what is compared.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")

from typing import Any

import numpy as np

from kernels import blas, gaussian, loops, medians, raw_gradients
from stanadapt import samplers
from stanadapt.run.warmup import warm_up
from stanadapt.trace import empty_trace

DIMENSIONS = (10, 50, 100, 200, 500)
LENGTHS = (1.9, 19.0)


def frozen(model: Any, trajectory: float, n: int) -> tuple[Any, tuple[Any, ...]]:
    """A job of `n` frozen iterations after a warm-up."""
    sampler = samplers.sampler("fisher_hmc")
    settings = samplers.resolve(sampler, {"metric": "dense", "curvature": False, "trajectory": trajectory})
    target, rng, d = model.target(), np.random.default_rng(1), model.dim
    state = warm_up(sampler, settings, target, rng.standard_normal(d), rng, 200).finish()
    return sampler.sweep, (target, settings, state, rng, False, empty_trace(n, d))


def main() -> None:
    print("| d | gradients of a trajectory | beyond a gradient, µs | two products, µs | ratio |")
    print("| ---: | ---: | ---: | ---: | ---: |")
    for d in DIMENSIONS:
        n = max(20, 2_000_000 // d**2)
        rng = np.random.default_rng(2)
        root, v = rng.normal(size=(d, d)), 1e-3 * rng.normal(size=d)
        model = gaussian(d)
        for trajectory in LENGTHS:
            sweep, arguments = frozen(model, trajectory, n)
            sweep(*arguments)
            gradients = float(arguments[-1].n_steps.mean())
            jobs = {
                "frozen": (sweep, arguments),
                "gradient": (raw_gradients, (model.target(), v, n)),
                "blas": (blas, (root, v, n, False)),
                "loops": (loops, (root, v, n, False)),
            }
            t = medians(jobs, n)
            gradients = 0.5 * (gradients + float(arguments[-1].n_steps.mean()))
            beyond = t["frozen"] / gradients - t["gradient"]
            products = min(t["blas"], t["loops"])
            print(
                f"| {d} | {gradients:.1f} | {beyond:.2f} | {products:.2f} | {beyond / products:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
