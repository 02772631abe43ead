"""What a policy costs: an iteration frozen and learning, one step of the paper's critic, and pre-training.

    python examples/benchmarks/policies.py

Microseconds an iteration of rlmh and rlmh_mala on a standard Gaussian, whose own cost is next to nothing;
frozen, learning, and learning with `faithful=True`, which is one mini-batch of 64 through actor and critic
for every iteration, ten at a time. Seconds of pre-training, on 3,333 draws. Medians over repeats.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")

import time
from typing import Any

import numpy as np

from kernels import gaussian
from stanadapt import samplers
from stanadapt.run.warmup import warm_up
from stanadapt.trace import empty_trace

DIMENSIONS = (1, 3, 10, 26, 66)
REPEATS = 7
ITERATIONS = 2_000


def prepared(method: str, faithful: bool, target: Any, rng: np.random.Generator, d: int) -> tuple[Any, float]:
    """A state whose policy has learnt for a while, and the seconds of its pre-training."""
    sampler = samplers.sampler(method)
    settings = samplers.resolve(sampler, {"faithful": faithful, "walk_share": 0.0})
    driver = warm_up(sampler, settings, target, np.zeros(d), rng, 30_000)
    pretraining = 0.0
    while driver.next_stage():
        if driver.label == "episodes":
            began = time.perf_counter()
            driver.state = sampler.refit(driver.state, settings, rng)
            pretraining = time.perf_counter() - began
        while driver.n_left:
            driver.run(driver.room(min(driver.n_left, 10_000)))
    return driver.state, pretraining


def microseconds(method: str, faithful: bool, state: Any, target: Any, adapting: bool, rng: Any) -> float:
    sampler = samplers.sampler(method)
    settings = samplers.resolve(sampler, {"faithful": faithful, "walk_share": 0.0})
    trace = empty_trace(ITERATIONS, state.x.size)
    times = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        samplers.advance(sampler, target, settings, state, rng, adapting, trace)
        times.append(time.perf_counter() - began)
    return 1e6 * float(np.median(times)) / ITERATIONS


def main() -> None:
    print(f"{'method':>10s} {'d':>4s} {'frozen':>8s} {'learning':>9s} {'faithful':>9s} {'pre-training':>13s}")
    for method in ("rlmh", "rlmh_mala"):
        for d in DIMENSIONS:
            rng = np.random.default_rng(1)
            model = gaussian(d)
            target = model.target()
            state, pretraining = prepared(method, False, target, rng, d)
            columns = [
                microseconds(method, False, state, target, adapting, rng) for adapting in (False, True)
            ]
            state, _ = prepared(method, True, target, rng, d)
            columns.append(microseconds(method, True, state, target, True, rng))
            times = f"{columns[0]:8.2f} {columns[1]:9.2f} {columns[2]:9.1f} {pretraining:13.2f}"
            print(f"{method:>10s} {d:4d} {times}", flush=True)


if __name__ == "__main__":
    main()
