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
from typing import Any
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
from stanadapt.diagnostics.convergence import convergence
from stanadapt.model.backends import jax_exchange
from stanadapt.model.speed import seconds_per_gradient
from stanadapt.numerics.blas import one_thread
from stanadapt.result.container import datasets

CHAINS = 2  # as many as there are devices
WARMUP, DRAWS = 1000, 2000
SEED = 11
METHOD = "fisher_hmc"
LONGEST = 1800  # seconds of a sampler's process
Draws = dict[str, np.ndarray]  # (chain, draw, ...)


def ours(pair: Pair, seed: int, threads: bool = False) -> tuple[Draws, float, float]:
    """Draws, seconds of the run, and seconds to open the model."""
    began = time.perf_counter()
    posterior = stanadapt.Posterior(pair.model, pair.data)
    posterior.model.thread_safe = threads
    opened = time.perf_counter()
    return *_timed(posterior, seed), opened - began


def _timed(posterior: Any, seed: int) -> tuple[Draws, float]:
    began = time.perf_counter()
    result = stanadapt.sample(
        posterior, method=METHOD, chains=CHAINS, workers=CHAINS, draws=DRAWS, seed=seed, progress=False
    )
    seconds = time.perf_counter() - began
    group = datasets(result)["posterior"]
    return {str(name): group[name].values for name in group.data_vars}, seconds


def by_threads(pair: Pair) -> tuple[float, float, Draws]:
    """First seconds, later seconds, draws; chains in threads of one process."""
    draws, first, opening = ours(pair, SEED, threads=True)
    posterior = stanadapt.Posterior(pair.model, pair.data)
    posterior.model.thread_safe = True
    _timed(posterior, SEED)
    draws, later = _timed(posterior, SEED + 1)
    return opening + first, later, draws


def by_processes(pair: Pair) -> tuple[float, float, Draws]:
    """The same with a process for each chain, which is the default: each imports JAX and compiles anew."""
    draws, first, opening = ours(pair, SEED)
    return opening + first, first, draws


def by_numpyro(pair: Pair) -> tuple[float, float, Draws]:
    """NumPyro's NUTS at its defaults, chains in parallel."""
    from numpyro.infer import MCMC, NUTS

    sampler = MCMC(
        NUTS(pair.model),
        num_warmup=WARMUP,
        num_samples=DRAWS,
        num_chains=CHAINS,
        chain_method="parallel",
        progress_bar=False,
    )
    seconds = []
    for seed in (SEED, SEED + 1):
        began = time.perf_counter()
        sampler.run(jax.random.key(seed), **pair.data)
        draws = {name: np.asarray(each) for name, each in sampler.get_samples(group_by_chain=True).items()}
        seconds.append(time.perf_counter() - began)
    return seconds[0], seconds[1], draws


def by_blackjax(pair: Pair) -> tuple[float, float, Draws]:
    """BlackJAX's NUTS after its window adaptation, on the log density that ours has; chains in threads."""
    from race.blackjax_nuts import chain

    posterior = stanadapt.Posterior(pair.model, pair.data)
    density, d = posterior.model.source.log_density, posterior.dim
    began = time.perf_counter()
    compiled = (
        jax.jit(lambda key, x: chain(density, DRAWS, key, x)).lower(jax.random.key(0), jnp.zeros(d)).compile()
    )
    rng = np.random.default_rng(SEED)
    seconds = []
    for seed in (SEED, SEED + 1):
        starts = rng.uniform(-1.0, 1.0, (CHAINS, d))
        keys = [jax.random.fold_in(jax.random.key(seed), i) for i in range(CHAINS)]
        with ThreadPoolExecutor(CHAINS) as pool:
            x = np.array(
                list(pool.map(lambda pair: np.asarray(compiled(*pair)), zip(keys, starts, strict=True)))
            )
        seconds.append(time.perf_counter() - began)
        began = time.perf_counter()
    return seconds[0], seconds[1], posterior.constrain(x)


RACERS: dict[str, Callable[[Pair], tuple[float, float, Draws]]] = {
    "threads": by_threads,
    "processes": by_processes,
    "numpyro": by_numpyro,
    "blackjax": by_blackjax,
}


def race(names: list[str]) -> None:
    """A table of the samplers on the models."""
    print("| model | sampler | first, s | later, s | least ESS | ESS/s |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    for name in names:
        for racer in RACERS:
            command = [sys.executable, __file__, "one", name, racer]
            done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST, check=False)
            if done.returncode:
                print(
                    f"| {name} | {racer} | failed: {done.stderr.strip().splitlines()[-1]} | | | |", flush=True
                )
                continue
            first, later, ess = json.loads(done.stdout.splitlines()[-1])
            print(
                f"| {name} | {racer} | {first:.1f} | {later:.2f} | {ess:.0f} | {ess / later:.0f} |",
                flush=True,
            )


def one(name: str, racer: str) -> None:
    """A sampler on a model, in this process: its figures as JSON."""
    pair = pairs()[name]
    first, later, draws = RACERS[racer](pair)
    ess = convergence(columns(draws, pair.compared)).ess_bulk.min()
    print(json.dumps([first, later, float(ess)]))


def agree(names: list[str]) -> None:
    """The largest |z| of means and second moments beside two others, and what it may be by chance."""
    print("| model | entries | beside NumPyro's NUTS | beside the Stan program | limit |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for name in names:
        pair = pairs()[name]
        own = columns(ours(pair, SEED, threads=True)[0], pair.compared)
        numpyros = columns(by_numpyro(pair)[2], pair.compared)
        stan = columns(
            _timed(stanadapt.Posterior(pair.program, stan_data(name, pair.data)), SEED + 1)[0], pair.compared
        )
        z = [float(np.abs(z_scores(own, other)).max()) for other in (numpyros, stan)]
        limit = stats.norm.isf(0.001 / 2 / (2 * len(own)))
        print(f"| {name} | {len(own)} | {z[0]:.2f} | {z[1]:.2f} | {limit:.2f} |", flush=True)


def calls() -> None:
    """What a gradient costs as samplers call it, by way of C and of Python, in the same process."""
    print("| model | d | by way of C, µs | of Python, µs | Python's part, µs |")
    print("| --- | ---: | ---: | ---: | ---: |")
    with one_thread():
        for name, (density, d) in _densities().items():
            model: Any = stanadapt.Target.from_jax(density, d)
            x = np.full(d, 0.1)
            by_c = [seconds_per_gradient(model.target(), x) for _ in range(3)]
            model.raise_pending()
            with mock.patch.object(jax_exchange, "is_at_hand", return_value=False):
                model._bind()
            by_python = [seconds_per_gradient(model.target(), x) for _ in range(3)]
            c, python = 1e6 * min(by_c), 1e6 * min(by_python)
            print(f"| {name} | {d} | {c:.1f} | {python:.1f} | {python - c:.1f} |", flush=True)


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
