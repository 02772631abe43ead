"""What the coordinates of Fisher HMC cost, and what they look like.

    python examples/benchmarks/coordinates.py [--repeats 20] [--picture funnel.png]

Microseconds that the map adds to a gradient, by the number of coordinates that it moves, on a hierarchy of 90
parameters; then milliseconds of learning in a whole warm-up, and of looking where there is nothing to learn.
All are the smallest of the repeats, on one core. The picture is a funnel in x and in the z that a chain has
learnt.
"""

from __future__ import annotations

import argparse
import os

os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")

import functools
import time
from pathlib import Path
from typing import Any
from unittest import mock

import numba
import numpy as np

import stanadapt
from diagnosis import seconds
from stanadapt.numerics import windows
from stanadapt.run.warmup import pilot, variable_groups, warm_up
from stanadapt.target import log_density_gradient
from stanadapt.transport import learning
from stanadapt.transport.composition import into_z
from stanadapt.transport.grouping.groups import Group, group_rows

MODELS = Path(__file__).parents[2] / "models"
GROUP = 86  # effects of the hierarchy
CENTRED = """
data { int J; vector[J] y; }
parameters { real mu; real<lower=0> tau; vector[J] theta; }
model { mu ~ normal(0, 5); tau ~ normal(0, 5); theta ~ normal(mu, tau); y ~ normal(theta, 2); }
"""
REGRESSION = """
data { int J; vector[J] y; }
parameters { vector[J] b; real<lower=0> s; }
model { b ~ normal(0, 1); s ~ normal(0, 1); y ~ normal(b, s); }
"""


@numba.njit
def gradients(target: Any, z: Any, score: Any, n: int) -> float:
    total = 0.0
    for _ in range(n):
        total += log_density_gradient(target, z, score)
    return total


def of_a_gradient(repeats: int) -> None:
    posterior = stanadapt.Posterior(CENTRED, {"J": GROUP, "y": np.zeros(GROUP)})
    rng, d, n = np.random.default_rng(1), posterior.dim, 2_000
    z, score = 0.1 * rng.normal(size=d), np.empty(d)
    plain = None
    print("| moved | µs a gradient | µs added |\n| ---: | ---: | ---: |")
    for m in (0, 1, 10, 40, 85):
        members = np.arange(2, 2 + m)
        law = Group(members, np.array([1]), 1.0, -1, 0.0, np.array([0]), 1.0, 0.0, *rng.normal(size=(2, m)))
        table = group_rows([law] if m else [], rng.normal(size=(50, d)))
        target = posterior.model.target()._replace(transport=table)
        gradients(target, z, score, 1)
        took = seconds(functools.partial(gradients, target, z, score, n), repeats) * 1e6 / n
        plain = took if plain is None else plain
        print(f"| {m} | {took:.2f} | {took - plain:.2f} |")


def of_learning(repeats: int) -> None:
    rng, learn = np.random.default_rng(2), learning.learn_transport
    print("\n| program | d | ms of learning | calls | ms of warm-up |\n| --- | ---: | ---: | ---: | ---: |")
    for name, program, size in (
        ("hierarchy", CENTRED, 8),
        ("hierarchy", CENTRED, 98),
        ("hierarchy", CENTRED, 398),
        ("no hierarchy", REGRESSION, 9),
        ("no hierarchy", REGRESSION, 99),
    ):
        data = {"J": size, "y": rng.normal(size=size) * 2.5}
        posterior = stanadapt.Posterior(program, data)
        best: tuple[float, int, float] = (np.inf, 0, np.inf)
        for _ in range(repeats):
            spent: list[float] = []

            def timed(*arguments: Any, spent: list[float] = spent, **keywords: Any) -> Any:
                began = time.perf_counter()
                table = learn(*arguments, **keywords)
                spent.append(time.perf_counter() - began)
                return table

            began = time.perf_counter()
            with mock.patch.object(windows, "learn_transport", timed):
                chain(posterior).finish()
            best = min(best, (sum(spent), len(spent), time.perf_counter() - began))
        print(f"| {name} | {posterior.dim} | {1e3 * best[0]:.1f} | {best[1]} | {1e3 * best[2]:.0f} |")


def chain(posterior: stanadapt.Posterior, seed: int = 3) -> Any:
    """A warm-up of Fisher HMC."""
    sampler, settings = pilot()
    rng = np.random.default_rng(seed)
    groups = variable_groups(posterior.unconstrained_names)
    start = 0.5 * rng.normal(size=posterior.dim)
    return warm_up(sampler, settings, posterior.model.target(), start, rng, 600, groups)


def draw(path: str) -> None:
    from matplotlib import pyplot

    posterior = stanadapt.Posterior(MODELS / "funnel" / "funnel.stan", MODELS / "funnel" / "funnel.json")
    driver = chain(posterior)
    driver.finish()
    rng, head = np.random.default_rng(4), posterior.unconstrained_names.index("v")
    other = 1 - head
    v = 3.0 * rng.normal(size=4_000)
    x = np.exp(0.5 * v)[:, None] * rng.normal(size=(4_000, posterior.dim))
    x[:, head] = v
    z = np.empty_like(x)
    for row, out in zip(x, z, strict=True):
        into_z(driver.target.transport, row, out)
    figure, axes = pyplot.subplots(1, 2, figsize=(9, 4), sharey=True, layout="constrained")
    for axis, points, name in zip(axes, (x, z), "xz", strict=True):
        axis.scatter(points[:, other], points[:, head], s=3, alpha=0.4, linewidths=0)
        axis.set_xlabel(f"${name}_1$")
        axis.set_xlim(*(np.quantile(points[:, other], [0.01, 0.99]) * 1.2))
    axes[0].set_ylabel("v")
    axes[0].set_title("a funnel, exact draws")
    axes[1].set_title("the same draws where the chain moves")
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--picture")
    options = parser.parse_args()
    of_a_gradient(options.repeats)
    of_learning(max(1, options.repeats // 4))
    if options.picture:
        draw(options.picture)


if __name__ == "__main__":
    main()
