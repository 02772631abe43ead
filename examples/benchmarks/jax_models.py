"""Models in JAX: what a gradient costs, whether the draws are right, and how fast they come.

    python examples/benchmarks/jax_models.py calls              a gradient by way of C, and of Python
    python examples/benchmarks/jax_models.py agree [NAME ...]   beside NumPyro's NUTS and Stan programs
    python examples/benchmarks/jax_models.py race [NAME ...]    ESS/s, beside NumPyro's NUTS and BlackJAX

The models are those of jax_pairs.py. It needs stanadapt[jax], and blackjax for the race. A sampler of the
race has a process of its own, in which it runs twice: the first time compiles, the second is timed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple
from unittest import mock

# Before JAX and NumPy are imported: NumPyro runs chains in parallel on devices of their own, and one thread
# is what BLAS has in our own chains.
os.environ.update(
    XLA_FLAGS="--xla_force_host_platform_device_count=2", OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1"
)

import jax
import numpy as np
from jax import numpy as jnp
from scipy import stats

import stanadapt
from jax_pairs import Pair, columns, pairs, stan_data, z_scores
from race.racer import Clock
from stanadapt.diagnostics.convergence import convergence
from stanadapt.model.backends import jax_exchange
from stanadapt.model.speed import _repeat, seconds_per_gradient
from stanadapt.numerics.blas import one_thread
from stanadapt.result.container import datasets

CHAINS = 2  # as many as there are devices
WARMUP, DRAWS = 1000, 2000
SEED = 11
METHOD = "fisher_hmc"
LONGEST = 1800  # seconds of a sampler's process
SLICE, SLICES = 0.002, 200  # seconds that gradients are timed for, and how often
Draws = dict[str, np.ndarray]  # (chain, draw, ...)


class Runs(NamedTuple):
    """Two runs of a sampler."""

    first: Clock  # with all that is compiled
    later: Clock
    draws: Draws  # of the later one


def ours(posterior: Any, seed: int) -> Draws:
    """Draws of our own."""
    result = stanadapt.sample(
        posterior, method=METHOD, chains=CHAINS, workers=CHAINS, draws=DRAWS, seed=seed, progress=False
    )
    group = datasets(result)["posterior"]
    return {str(name): group[name].values for name in group.data_vars}


def open_pair(pair: Pair, threads: bool) -> Any:
    return stanadapt.Posterior(stanadapt.Target.from_numpyro(pair.model, pair.data, threads=threads))


def by_threads(pair: Pair) -> Runs:
    """Chains in threads of one process."""
    with Clock() as first:
        posterior = open_pair(pair, threads=True)
        ours(posterior, SEED)
    with Clock() as later:
        draws = ours(posterior, SEED + 1)
    return Runs(first, later, draws)


def by_processes(pair: Pair) -> Runs:
    """A process for each chain, which is the default: each imports JAX and compiles, in every run."""
    with Clock() as first:
        posterior = open_pair(pair, threads=False)
        ours(posterior, SEED)
    with Clock() as later:
        draws = ours(posterior, SEED + 1)
    return Runs(first, later, draws)


def by_numpyro(pair: Pair) -> Runs:
    """NumPyro's NUTS at its defaults, chains in parallel."""
    from numpyro.infer import MCMC, NUTS

    options: dict[str, Any] = {"chain_method": "parallel", "progress_bar": False}
    sampler = MCMC(NUTS(pair.model), num_warmup=WARMUP, num_samples=DRAWS, num_chains=CHAINS, **options)
    clocks = []
    for seed in (SEED, SEED + 1):
        with Clock() as clock:
            sampler.run(jax.random.key(seed), **pair.data)
            samples = sampler.get_samples(group_by_chain=True)
            draws = {name: np.asarray(each) for name, each in samples.items()}
        clocks.append(clock)
    return Runs(*clocks, draws)


def by_blackjax(pair: Pair) -> Runs:
    """BlackJAX's NUTS after its window adaptation, on the log density that ours has; chains in threads."""
    from race.blackjax_nuts import chain

    posterior = open_pair(pair, threads=True)
    density, d = posterior.model.source.log_density, posterior.dim
    rng = np.random.default_rng(SEED)
    program = jax.jit(lambda key, x: chain(density, DRAWS, key, x))

    def run(arguments: tuple[Any, np.ndarray]) -> np.ndarray:
        return np.asarray(program(*arguments))

    clocks = []
    for seed in (SEED, SEED + 1):
        starts = rng.uniform(-1.0, 1.0, (CHAINS, d))
        keys = [jax.random.fold_in(jax.random.key(seed), i) for i in range(CHAINS)]
        with Clock() as clock, ThreadPoolExecutor(CHAINS) as pool:
            if not clocks:
                program = program.lower(keys[0], starts[0]).compile()
            x = np.array(list(pool.map(run, zip(keys, starts, strict=True))))
        clocks.append(clock)
    return Runs(*clocks, posterior.constrain(x, transformed=True))


RACERS: dict[str, Callable[[Pair], Runs]] = {
    "threads": by_threads,
    "processes": by_processes,
    "numpyro": by_numpyro,
    "blackjax": by_blackjax,
}


def race(names: list[str]) -> None:
    """A table of the samplers on the models. CPU time is that of the sampler's own process."""
    print("| model | sampler | first run, s (CPU) | later run, s (CPU) | least ESS | ESS/s | ESS/CPU s |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: |")
    for name in names:
        for racer in RACERS:
            command = [sys.executable, __file__, "one", name, racer]
            done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST, check=False)
            if done.returncode:
                print(f"| {name} | {racer} | {done.stderr.strip().splitlines()[-1]} |", flush=True)
                continue
            first, first_cpu, later, later_cpu, ess = json.loads(done.stdout.splitlines()[-1])
            times = f"{first:.1f} ({first_cpu:.1f}) | {later:.2f} ({later_cpu:.2f})"
            per_cpu = f"{ess / later_cpu:.0f}" if racer != "processes" else ""
            print(f"| {name} | {racer} | {times} | {ess:.0f} | {ess / later:.0f} | {per_cpu} |", flush=True)


def one(name: str, racer: str) -> None:
    """A sampler on a model, in this process: its figures as JSON."""
    pair = pairs()[name]
    runs = RACERS[racer](pair)
    ess = float(convergence(columns(runs.draws, pair.compared)).ess_bulk.min())
    times = [each for clock in runs[:2] for each in (clock.seconds, clock.cpu_seconds)]
    print(json.dumps([*times, ess]))


def agree(names: list[str]) -> None:
    """The largest |z| of means and second moments beside two others, and what it may be by chance."""
    print("| model | entries | beside NumPyro's NUTS | beside the Stan program | limit |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for name in names:
        pair = pairs()[name]
        own = columns(ours(open_pair(pair, threads=True), SEED), pair.compared)
        numpyros = columns(by_numpyro(pair).draws, pair.compared)
        program = stanadapt.Posterior(pair.program, stan_data(name, pair.data))
        stan = columns(ours(program, SEED + 1), pair.compared)
        z = [float(np.abs(z_scores(own, other)).max()) for other in (numpyros, stan)]
        limit = stats.norm.isf(0.001 / 2 / (2 * len(own)))
        print(f"| {name} | {len(own)} | {z[0]:.2f} | {z[1]:.2f} | {limit:.2f} |", flush=True)


def calls() -> None:
    """What a gradient costs as samplers call it, by way of C and of Python, in the same process."""
    print("| model | d | by way of C, µs | of Python, µs | Python's part, µs |")
    print("| --- | ---: | ---: | ---: | ---: |")
    with one_thread():
        for name, (density, d) in _densities().items():
            by_c: Any = stanadapt.Target.from_jax(density, d)
            with mock.patch.object(jax_exchange, "is_at_hand", return_value=False):
                by_python: Any = stanadapt.Target.from_jax(density, d)
            c, python = least_seconds([by_c.target(), by_python.target()], np.full(d, 0.1))
            by_c.raise_pending()
            print(
                f"| {name} | {d} | {1e6 * c:.1f} | {1e6 * python:.1f} | {1e6 * (python - c):.1f} |",
                flush=True,
            )


def least_seconds(targets: list[Any], x: np.ndarray) -> np.ndarray:
    """Seconds of a gradient at `x` (d,) of each target: the least of many short times, in turn.

    The least, since the machine may be busy with something else most of the time.
    """
    counts, least = [], np.full(len(targets), np.inf)
    for target in targets:
        _repeat(target, x, 3)  # compiled, or loaded
        counts.append(max(1, int(SLICE / min(seconds_per_gradient(target, x) for _ in range(2)))))
    for _ in range(SLICES):
        for i, (target, count) in enumerate(zip(targets, counts, strict=True)):
            began = time.perf_counter()
            _repeat(target, x, count)
            least[i] = min(least[i], (time.perf_counter() - began) / count)
    return least


def _densities() -> dict[str, tuple[Callable[[Any], Any], int]]:
    """Log densities from cheap to dear."""
    rng = np.random.default_rng(1)
    schools = pairs()["eight_schools"].data
    y, sigma = jnp.array(schools["y"]), jnp.array(schools["sigma"])

    def eight_schools(x: Any) -> Any:
        tau = jnp.exp(x[1])
        theta = x[0] + tau * x[2:]
        prior = -0.5 * (x[0] / 5.0) ** 2 + x[1] - jnp.log1p((tau / 5.0) ** 2) - 0.5 * jnp.sum(x[2:] ** 2)
        return prior - 0.5 * jnp.sum(((y - theta) / sigma) ** 2)

    def logistic(n: int, d: int) -> Callable[[Any], Any]:
        features, labels = rng.normal(size=(n, d)), (rng.random(n) < 0.5).astype(float)

        def density(x: Any) -> Any:
            eta = features @ x
            return jnp.sum(labels * eta - jnp.logaddexp(0.0, eta)) - 0.5 * jnp.sum(x**2)

        return density

    def process(n: int) -> Callable[[Any], Any]:
        t = np.linspace(0.0, 1.0, n)
        seen, apart = np.sin(6.0 * t), (t[:, None] - t) ** 2

        def density(x: Any) -> Any:
            scale, length, noise = jnp.exp(2.0 * x)
            factor = jnp.linalg.cholesky(scale * jnp.exp(-0.5 * apart / length) + (noise + 1e-6) * jnp.eye(n))
            whitened = jax.scipy.linalg.solve_triangular(factor, jnp.array(seen), lower=True)
            return -0.5 * whitened @ whitened - jnp.sum(jnp.log(jnp.diag(factor))) - 0.5 * jnp.sum(x**2)

        return density

    return {
        "eight schools": (eight_schools, 10),
        "logistic regression, 100 x 10": (logistic(100, 10), 10),
        "logistic regression, 1,000 x 20": (logistic(1000, 20), 20),
        "Gaussian process, 50 points": (process(50), 3),
        "logistic regression, 10,000 x 50": (logistic(10_000, 50), 50),
        "Gaussian process, 200 points": (process(200), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["calls", "agree", "race", "one"])
    parser.add_argument("names", nargs="*")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    names = chosen.names or list(pairs())
    if chosen.what == "calls":
        calls()
    elif chosen.what == "one":
        one(*chosen.names)
    else:
        {"agree": agree, "race": race}[chosen.what](names)


if __name__ == "__main__":
    main()
