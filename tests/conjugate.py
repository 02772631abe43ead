"""Models whose evidence has a closed form, with exact draws of their posteriors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import xarray
from scipy.special import betaln, gammaln

from stanadapt.result.container import container

NORMAL_MEAN = """
data { int N; int d; array[N] vector[d] y; }
parameters { vector[d] mu; }
model { mu ~ normal(1, 3); for (i in 1:N) y[i] ~ normal(mu, 2); }
"""
REGRESSION = """
data { int N; int K; matrix[N, K] X; vector[N] y; }
parameters { vector[K] beta; real<lower=0> v; }
model { v ~ inv_gamma(3, 2); beta ~ normal(0, 1.5 * sqrt(v)); y ~ normal(X * beta, sqrt(v)); }
"""
BETA_BINOMIAL = """
data { int d; array[d] int n; array[d] int k; }
parameters { vector<lower=0, upper=1>[d] p; }
model { p ~ beta(2, 3); k ~ binomial(n, p); }
"""
GAMMA_POISSON = """
data { int N; int d; array[N, d] int y; }
parameters { vector<lower=0>[d] rate; }
model { rate ~ gamma(2, 0.5); for (i in 1:N) y[i] ~ poisson(rate); }
"""


class Conjugate(NamedTuple):
    """A model with data, its log evidence, and a function that draws n times from its posterior."""

    code: str
    data: dict[str, Any]
    log_evidence: float
    draw: Callable[[int, np.random.Generator], dict[str, np.ndarray]]


def normal_mean(d: int) -> Conjugate:
    rng, n = np.random.default_rng(d), 5
    y = rng.normal(rng.normal(1.0, 3.0, d), 2.0, (n, d))
    precision = 1.0 / 9.0 + n / 4.0
    mean = (1.0 / 9.0 + y.sum(axis=0) / 4.0) / precision
    quadratic = 1.0 / 9.0 + (y**2).sum(axis=0) / 4.0 - precision * mean**2
    log_z = -0.5 * (n * np.log(2.0 * np.pi * 4.0) + np.log(9.0) + np.log(precision) + quadratic)

    def draw(count: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"mu": mean + rng.normal(size=(count, d)) / np.sqrt(precision)}

    return Conjugate(NORMAL_MEAN, {"N": n, "d": d, "y": y}, float(log_z.sum()), draw)


def regression(d: int) -> Conjugate:
    """With d parameters: d - 1 slopes of correlated predictors, and a variance."""
    rng, k = np.random.default_rng(d), d - 1
    n = 2 * k + 10
    x = rng.normal(size=(n, k)) + rng.normal(size=(n, 1))
    y = x @ rng.normal(size=k) + rng.normal(size=n)
    a, b = 3.0, 2.0
    precision = x.T @ x + np.eye(k) / 1.5**2
    mean = np.linalg.solve(precision, x.T @ y)
    a_n, b_n = a + n / 2, b + 0.5 * (y @ y - mean @ precision @ mean)
    log_z = -0.5 * n * np.log(2.0 * np.pi) - k * np.log(1.5) - 0.5 * np.linalg.slogdet(precision)[1]
    log_z += a * np.log(b) - a_n * np.log(b_n) + gammaln(a_n) - gammaln(a)
    root = np.linalg.cholesky(np.linalg.inv(precision)) if k else np.zeros((0, 0))

    def draw(count: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        v = b_n / rng.gamma(a_n, size=count)
        return {"beta": mean + np.sqrt(v)[:, None] * (rng.normal(size=(count, k)) @ root.T), "v": v}

    return Conjugate(REGRESSION, {"N": n, "K": k, "X": x, "y": y}, float(log_z), draw)


def beta_binomial(d: int) -> Conjugate:
    rng = np.random.default_rng(d)
    n = rng.integers(5, 40, d)
    k = rng.binomial(n, rng.beta(2.0, 3.0, d))
    log_choose = gammaln(n + 1.0) - gammaln(k + 1.0) - gammaln(n - k + 1.0)
    log_z = log_choose + betaln(2.0 + k, 3.0 + n - k) - betaln(2.0, 3.0)

    def draw(count: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"p": rng.beta(2.0 + k, 3.0 + n - k, (count, d))}

    return Conjugate(BETA_BINOMIAL, {"d": d, "n": n, "k": k}, float(log_z.sum()), draw)


def gamma_poisson(d: int) -> Conjugate:
    rng, n = np.random.default_rng(d), 3
    y = rng.poisson(rng.gamma(2.0, 2.0, d), (n, d))
    total = y.sum(axis=0)
    log_z = 2.0 * np.log(0.5) - gammaln(2.0) + gammaln(2.0 + total) - (2.0 + total) * np.log(0.5 + n)
    log_z -= gammaln(y + 1.0).sum(axis=0)

    def draw(count: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"rate": rng.gamma(2.0 + total, 1.0 / (0.5 + n), (count, d))}

    return Conjugate(GAMMA_POISSON, {"N": n, "d": d, "y": y}, float(log_z.sum()), draw)


MODELS = {
    "normal mean": normal_mean,
    "regression": regression,
    "beta-binomial": beta_binomial,
    "gamma-Poisson": gamma_poisson,
}


def drawn(model: Conjugate, chains: int, draws: int, stay: float, rng: np.random.Generator) -> Any:
    """A result of exact draws. A chain stays where it is with the probability `stay` at each iteration."""
    fresh = model.draw(chains * draws, rng)
    moves = rng.random((chains, draws)) >= stay
    moves[:, 0] = True
    rows = np.maximum.accumulate(np.where(moves, np.arange(draws), 0), axis=1)
    held = {}
    for name, values in fresh.items():
        array = values.reshape(chains, draws, *values.shape[1:])
        array = np.stack([each[own] for each, own in zip(array, rows, strict=True)])
        held[name] = (("chain", "draw", *(f"{name}_dim_{i}" for i in range(array.ndim - 2))), array)
    coords = {"chain": range(chains), "draw": range(draws)}
    return container({"posterior": xarray.Dataset(held, coords=coords)})
