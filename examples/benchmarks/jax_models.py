"""Models in JAX: what a gradient costs, whether the draws are right, and how fast they come.

    python examples/benchmarks/jax_models.py calls              a gradient by way of C, and of Python
    python examples/benchmarks/jax_models.py agree [NAME ...]   beside NumPyro's NUTS and Stan programs
    python examples/benchmarks/jax_models.py race [NAME ...]    ESS/s, beside NumPyro's NUTS and BlackJAX

The models are those of jax_pairs.py. It needs stanadapt[jax], and blackjax for the race. A sampler of the
race has a process of its own, in which it runs six times: the first time compiles, the others are timed.
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
from stanadapt.model.backends.jax import jax_exchange
from stanadapt.model.speed import _repeat, seconds_per_gradient
from stanadapt.numerics.blas import one_thread
from stanadapt.result.container import datasets

CHAINS = 2  # as many as there are devices
WARMUP, DRAWS = 1000, 2000
SEED = 11
LATER = range(SEED + 1, SEED + 6)
METHOD = "fisher_hmc"
LONGEST = 1800  # seconds of a sampler's process
SLICE, SLICES = 0.002, 200  # seconds that gradients are timed for, and how often
Draws = dict[str, np.ndarray]  # (chain, draw, ...)


class Runs(NamedTuple):
    """Runs of a sampler, one after another in a process."""

    first: Clock  # with all that is compiled
    later: list[tuple[Clock, Draws]]  # with other seeds


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
    return by_ours(pair, threads=True)


def by_processes(pair: Pair) -> Runs:
    """A process for each chain, which is the default: each imports JAX and compiles, in every run."""
    return by_ours(pair, threads=False)


def by_ours(pair: Pair, threads: bool) -> Runs:
    with Clock() as first:
        posterior = open_pair(pair, threads)
        ours(posterior, SEED)
    return Runs(first, [clocked(lambda seed=seed: ours(posterior, seed)) for seed in LATER])


def by_numpyro(pair: Pair) -> Runs:
    """NumPyro's NUTS at its defaults, chains in parallel."""
    from numpyro.infer import MCMC, NUTS

    options: dict[str, Any] = {"chain_method": "parallel", "progress_bar": False}
    sampler = MCMC(NUTS(pair.model), num_warmup=WARMUP, num_samples=DRAWS, num_chains=CHAINS, **options)

    def run(seed: int) -> Draws:
        sampler.run(jax.random.key(seed), **pair.data)
        samples = sampler.get_samples(group_by_chain=True)
        return {name: np.asarray(each) for name, each in samples.items()}

    return Runs(clocked(lambda: run(SEED))[0], [clocked(lambda seed=seed: run(seed)) for seed in LATER])


def by_blackjax(pair: Pair) -> Runs:
    """BlackJAX's NUTS after its window adaptation, on the log density that ours has; chains in threads."""
    from race.blackjax_nuts import chain

    posterior = open_pair(pair, threads=True)
    density, d = posterior.model.source.log_density, posterior.dim
    program = jax.jit(lambda key, x: chain(density, DRAWS, key, x))
    points: dict[int, np.ndarray] = {}  # seed -> draws on the unconstrained scale

    def run(seed: int) -> None:
        starts = np.random.default_rng(seed).uniform(-1.0, 1.0, (CHAINS, d))
        keys = [jax.random.fold_in(jax.random.key(seed), i) for i in range(CHAINS)]
        with ThreadPoolExecutor(CHAINS) as pool:
            points[seed] = np.array([np.asarray(each) for each in pool.map(compiled, keys, starts)])

    with Clock() as first:
        compiled = program.lower(jax.random.key(0), np.zeros(d)).compile()
        run(SEED)
    clocks = [clocked(lambda seed=seed: run(seed))[0] for seed in LATER]
    draws = [posterior.constrain(points[seed], transformed=True) for seed in LATER]
    return Runs(first, list(zip(clocks, draws, strict=True)))


def clocked(run: Callable[[], Any]) -> tuple[Clock, Any]:
    with Clock() as clock:
        result = run()
    return clock, result


RACERS: dict[str, Callable[[Pair], Runs]] = {
    "threads": by_threads,
    "processes": by_processes,
    "numpyro": by_numpyro,
    "blackjax": by_blackjax,
}


def race(names: list[str]) -> None:
    """A table of the samplers on the models: medians of the later runs, and their range in seconds.

    CPU time is that of the sampler's own process.
    """
    print("| model | sampler | first run, s | later runs, s | least ESS | ESS/s | ESS/CPU s |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: |")
    for name in names:
        for racer in RACERS:
            command = [sys.executable, __file__, "one", name, racer]
            done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST, check=False)
            if done.returncode:
                print(f"| {name} | {racer} | {done.stderr.strip().splitlines()[-1]} |", flush=True)
                continue
            first, later = json.loads(done.stdout.splitlines()[-1])
            seconds, cpu, ess = np.array(later).T
            per_cpu = f"{np.median(ess / cpu):,.0f}" if racer != "processes" else ""
            times = f"{first:.1f} | {np.median(seconds):.2f} ({min(seconds):.2f} to {max(seconds):.2f})"
            rates = f"{np.median(ess):,.0f} | {np.median(ess / seconds):,.0f} | {per_cpu}"
            print(f"| {name} | {racer} | {times} | {rates} |", flush=True)


def one(name: str, racer: str) -> None:
    """A sampler on a model, in this process: its figures as JSON."""
    pair = pairs()[name]
    runs = RACERS[racer](pair)
    later = [
        (clock.seconds, clock.cpu_seconds, float(convergence(columns(draws, pair.compared)).ess_bulk.min()))
        for clock, draws in runs.later
    ]
    print(json.dumps([runs.first.seconds, later]))


def agree(names: list[str]) -> None:
    """The largest |z| of means and second moments beside two others, and what it may be by chance."""
    print("| model | entries | beside NumPyro's NUTS | beside the Stan program | limit |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for name in names:
        pair = pairs()[name]
        own = columns(ours(open_pair(pair, threads=True), SEED), pair.compared)
        numpyros = columns(by_numpyro(pair).later[0][1], pair.compared)
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
