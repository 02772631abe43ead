"""Series with a scale each, which Fisher HMC gives a field each: the scales have their law.

With normal data the latents can be integrated out, and given the scale of the noise the series are
independent, so that the laws are integrals over grids.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from fits import run
from shares import finer, largest_error, quantiles

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


@functools.cache
def panel() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Walks with noise, their eigenvalues, and the squares (n, K) of y in the directions of these."""
    rng, days = np.random.default_rng(12), np.arange(LENGTH)
    scales = np.exp(np.linspace(-2.5, 0.5, SERIES))
    y = np.cumsum(rng.normal(size=(LENGTH, SERIES)) * scales, axis=0)
    y += 0.5 * rng.normal(size=y.shape)
    values, vectors = np.linalg.eigh(np.minimum.outer(days, days) + 1.0)
    return y, values, np.square(vectors.T @ y)


@functools.cache
def laws(shared: bool) -> tuple[np.ndarray, ...]:
    """Quantiles of log_s of each series, and of log_e if it is `shared`; else it is log 0.5."""
    _, values, squares = panel()
    u = np.linspace(-7.0, 3.0, 600)
    v = np.linspace(-3.0, 1.5, 300) if shared else np.array([np.log(0.5)])
    variances = np.exp(2.0 * u)[:, None, None] * values + np.exp(2.0 * v)[:, None]  # (u, v, n)
    log_det = np.log(variances).sum(axis=2)
    each = [-0.5 * (log_det + (1.0 / variances) @ square) - 0.5 * u[:, None] ** 2 for square in squares.T]
    joint = [np.exp(one - max(one.max() for one in each)) for one in each]
    of_v = np.array([one.sum(axis=0) for one in joint])
    prior = np.exp(-0.5 * v * v)
    found = []
    for k, one in enumerate(joint):
        density = one @ (prior * np.delete(of_v, k, axis=0).prod(axis=0))
        fine = finer(u, density, 400)
        found.append(quantiles(fine, np.exp(np.interp(fine, u, np.log(np.maximum(density, 1e-300))))))
    return (*found, quantiles(v, prior * of_v.prod(axis=0))) if shared else tuple(found)


@pytest.mark.parametrize("name", PROGRAMS)
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
