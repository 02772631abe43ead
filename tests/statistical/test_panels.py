"""Panels of series in the fields that Fisher HMC learns: the scales have their law.

Series with a scale each have a field each, and short ones have one together. With normal data the latents can
be integrated out, and given the scale that all share the series are independent, so that the laws are
integrals over grids.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from cases import partly_thorough
from fits import run
from shares import finer, largest_error, quantiles, quantiles_of_two

LIMIT = 4.5  # standard errors
RATE = 0.01
SERIES, LENGTH = 5, 20
PROGRAM = """
data {{ int T; int K; matrix[T, K] y; {} }}
parameters {{ vector[K] log_s; {} matrix[T, K] x; }}
model {{
  log_s ~ std_normal(); {}
  for (k in 1:K) {{
    x[1, k] ~ normal(0, exp(log_s[k])); x[2:T, k] ~ normal(x[1:T-1, k], exp(log_s[k]));
    y[, k] ~ normal(x[, k], exp(log_e));
  }}
}}
"""
PROGRAMS = {
    "each for itself": PROGRAM.format("real log_e;", "", ""),
    "one noise": PROGRAM.format("", "real log_e;", "log_e ~ std_normal();"),
}

MANY = 10
ONE_SCALE = """
data { int T; int K; matrix[T, K] y; }
parameters { real log_s; vector[K] log_e; matrix[T, K] x; }
model {
  log_s ~ std_normal(); log_e ~ std_normal();
  for (k in 1:K) {
    x[1, k] ~ normal(0, exp(log_s)); x[2:T, k] ~ normal(x[1:T-1, k], exp(log_s));
    y[, k] ~ normal(x[, k], exp(log_e[k]));
  }
}
"""

PERSONS, WEEKS = 20, 6
SHORT = """
data { int N; int T; array[N] vector[T] y; }
parameters { real log_s; real log_e; array[N] vector[T] x; }
model {
  log_s ~ std_normal(); log_e ~ std_normal();
  for (n in 1:N) {
    x[n, 1] ~ normal(0, exp(log_s)); x[n, 2:T] ~ normal(x[n, 1:T-1], exp(log_s));
    y[n] ~ normal(x[n], exp(log_e));
  }
}
"""


def axes_of_a_walk(length: int) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues (n,) and vectors (n, n) of the covariance of a walk with unit steps."""
    days = np.arange(length)
    values, vectors = np.linalg.eigh(np.minimum.outer(days, days) + 1.0)
    return values, vectors


@functools.cache
def panel() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Walks with noise, their eigenvalues, and the squares (n, K) of y in the directions of these."""
    rng = np.random.default_rng(12)
    scales = np.exp(np.linspace(-2.5, 0.5, SERIES))
    y = np.cumsum(rng.normal(size=(LENGTH, SERIES)) * scales, axis=0)
    y += 0.5 * rng.normal(size=y.shape)
    values, vectors = axes_of_a_walk(LENGTH)
    return y, values, np.square(vectors.T @ y)


def log_likelihoods(
    values: np.ndarray, squares: np.ndarray, log_s: np.ndarray, log_e: np.ndarray
) -> list[np.ndarray]:
    """Of each walk with noise whose `squares` (n, K) are given, for scales (u,) and noises (v,): (u, v)."""
    variances = np.exp(2.0 * log_s)[:, None, None] * values + np.exp(2.0 * log_e)[:, None]  # (u, v, n)
    log_det = np.log(variances).sum(axis=2)
    return [-0.5 * (log_det + (1.0 / variances) @ square) for square in squares.T]


def marginals(of_each: list[np.ndarray], own: np.ndarray, shared: np.ndarray) -> list[np.ndarray]:
    """Quantiles of what each series has of its own, and of what all share, by grids (u,) and (v,) of these.

    `of_each` are the log likelihoods (u, v) of the series. In the prior all of these are standard normal.
    """
    each = [one - 0.5 * own[:, None] ** 2 for one in of_each]
    largest = max(one.max() for one in each)
    joint = [np.exp(one - largest) for one in each]
    of_shared = np.array([one.sum(axis=0) for one in joint])
    prior = np.exp(-0.5 * shared**2)
    found = []
    for k, one in enumerate(joint):
        density = one @ (prior * np.delete(of_shared, k, axis=0).prod(axis=0))
        fine = finer(own, density, 400)
        log_density = np.log(np.maximum(density, 1e-300))
        found.append(quantiles(fine, np.exp(np.interp(fine, own, log_density))))
    return [*found, quantiles(shared, prior * of_shared.prod(axis=0))]


@functools.cache
def laws(shared: bool) -> list[np.ndarray]:
    """Quantiles of log_s of each series, and of log_e if it is `shared`; else it is log 0.5."""
    _, values, squares = panel()
    log_s = np.linspace(-7.0, 3.0, 600)
    log_e = np.linspace(-3.0, 1.5, 300) if shared else np.array([np.log(0.5)])
    found = marginals(log_likelihoods(values, squares, log_s, log_e), log_s, log_e)
    return found if shared else found[:-1]


@pytest.mark.parametrize("name", partly_thorough(PROGRAMS, ("one noise",)))
@pytest.mark.seeds(1, 2, rate=RATE)
def test_walks_with_a_scale_each_have_the_law_of_their_scales(seed: int, name: str) -> None:
    """Five heads and more, of which one may be that of all series: all fields pass their scores on to it."""
    shared = name == "one noise"
    data: dict[str, Any] = {"T": LENGTH, "K": SERIES, "y": panel()[0], "log_e": np.log(0.5)}
    posterior, adaptation, findings = run(PROGRAMS[name], data, seed=seed, draws=3_000, chains=2)
    heads = np.count_nonzero(np.atleast_2d(adaptation["field_role"].values) == 2, axis=1)
    assert (heads == SERIES + shared).any()
    found = laws(shared)
    for k, law in enumerate(found[:SERIES]):
        assert largest_error(posterior["log_s"].values[..., k], law, findings) < LIMIT
    for law in found[SERIES:]:
        assert largest_error(posterior["log_e"].values, law, findings) < LIMIT


@functools.cache
def one_scale() -> tuple[dict[str, Any], list[np.ndarray]]:
    """Walks of one scale, each with a noise of its own, and quantiles of log_e of each, and of log_s."""
    rng = np.random.default_rng(15)
    y = np.cumsum(0.3 * rng.normal(size=(LENGTH, MANY)), axis=0)
    y += np.exp(np.linspace(-0.7, 0.5, MANY)) * rng.normal(size=y.shape)
    values, vectors = axes_of_a_walk(LENGTH)
    log_s, log_e = np.linspace(-5.0, 1.5, 400), np.linspace(-4.0, 3.0, 500)
    each = log_likelihoods(values, np.square(vectors.T @ y), log_s, log_e)
    return {"T": LENGTH, "K": MANY, "y": y}, marginals([one.T for one in each], log_e, log_s)


# `make test` has the walks with a noise that all share above.
@pytest.mark.thorough
@pytest.mark.seeds(1, 2, rate=RATE)
def test_many_walks_of_one_scale_have_its_law(seed: int) -> None:
    """While the field of one is learned, the latents of all others hold the scale, which is loosened."""
    data, found = one_scale()
    posterior, adaptation, findings = run(ONE_SCALE, data, seed=seed, draws=3_000, chains=2)
    heads = np.count_nonzero(np.atleast_2d(adaptation["field_role"].values) == 2, axis=1)
    assert (heads >= MANY).any()  # the scale, and the noises of all series but one or none
    for k, law in enumerate(found[:MANY]):
        assert largest_error(posterior["log_e"].values[..., k], law, findings) < LIMIT
    assert largest_error(posterior["log_s"].values, found[MANY], findings) < LIMIT


@functools.cache
def short() -> tuple[dict[str, Any], tuple[np.ndarray, np.ndarray]]:
    """Walks of six weeks of 20 persons, and quantiles of the logarithms of both scales."""
    rng = np.random.default_rng(13)
    y = np.cumsum(0.4 * rng.normal(size=(PERSONS, WEEKS)), axis=1) + 0.6 * rng.normal(size=(PERSONS, WEEKS))
    values, vectors = axes_of_a_walk(WEEKS)
    squares = np.square(y @ vectors).sum(axis=0)

    def log_density(u: float, v: float) -> float:
        variances = np.exp(2.0 * u) * values + np.exp(2.0 * v)
        likelihood = PERSONS * np.log(variances).sum() + (squares / variances).sum()
        return float(-0.5 * (u * u + v * v + likelihood))

    data = {"N": PERSONS, "T": WEEKS, "y": y}
    return data, quantiles_of_two(log_density, (-5.0, 1.0), (-3.0, 1.0))


@pytest.mark.seeds(1, 2, rate=RATE)
def test_short_series_have_the_law_of_their_scales(seed: int) -> None:
    """Each is a small part of all latents, and one field is for all of them."""
    data, found = short()
    posterior, adaptation, findings = run(SHORT, data, seed=seed, draws=3_000, chains=2)
    roles = np.atleast_2d(adaptation["field_role"].values)
    assert (roles == [2, 2, *[1] * PERSONS * WEEKS]).all(axis=1).any()
    for name, law in zip(("log_s", "log_e"), found, strict=True):
        assert largest_error(posterior[name].values, law, findings) < LIMIT
