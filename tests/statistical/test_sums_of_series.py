"""Sums of series that Fisher HMC learns a field each for, or of a series and effects: scales have their law.

With normal data the latents can be integrated out, and the law of two scales is an integral over a grid.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from cases import partly_thorough
from fits import run
from shares import largest_error, log_normal, quantiles_of_two

LIMIT = 4.5  # standard errors
RATE = 0.01
N, TIMES, OTHERS = 160, 24, 15
PROGRAM = """
data {{ int N; int T; int S; vector[N] y; array[N] int t; array[N] int s; }}
parameters {{ real log_h; real log_u; vector[T] {h}; vector[S] {u}; }}
transformed parameters {{ {transformed} }}
model {{
  log_h ~ std_normal(); log_u ~ std_normal();
  {priors}
  y ~ normal(h[t] + u[s], {noise});
}}
"""
CENTRED = "h[1] ~ normal(0, exp(log_h)); h[2:T] ~ normal(h[1:(T - 1)], exp(log_h));"
PROGRAMS = {
    "two walks": PROGRAM.format(
        h="h",
        u="z",
        noise=0.5,
        transformed="vector[S] u = exp(log_u) * cumulative_sum(z);",
        priors=f"{CENTRED} z ~ std_normal();",
    ),
    "a walk and effects": PROGRAM.format(
        h="h", u="u", noise=0.5, transformed="", priors=f"{CENTRED} u ~ normal(0, exp(log_u));"
    ),
    "a walk and effects, not centred": PROGRAM.format(
        h="e",
        u="z",
        noise=0.1,
        transformed="vector[T] h = exp(log_h) * cumulative_sum(e); vector[S] u = exp(log_u) * z;",
        priors="e ~ std_normal(); z ~ std_normal();",
    ),
}
PROGRAMS["a walk and effects that follow it"] = PROGRAMS["a walk and five effects"] = PROGRAMS[
    "a walk and effects"
]
IN_MAKE_TEST = "two walks", "a walk and five effects"


@functools.cache
def law(name: str) -> tuple[dict[str, Any], tuple[np.ndarray, np.ndarray]]:
    """Data, and quantiles of the logarithms of both scales."""
    rng, noise = np.random.default_rng(14), 0.1 if "not" in name else 0.5
    n, n_others = N, 5 if "five" in name else OTHERS
    t, s = rng.integers(TIMES, size=n), rng.integers(n_others, size=n)
    if "follow" in name:  # three at each time, with two data each
        t, s = np.repeat(np.arange(TIMES), 6), np.repeat(np.arange(3 * TIMES), 2)
        n, n_others = len(t), 3 * TIMES
    of_h = np.minimum.outer(t, t) + 1.0
    of_u = np.minimum.outer(s, s) + 1.0 if name == "two walks" else np.equal.outer(s, s).astype(float)
    whole = 0.3**2 * of_h + 0.2**2 * of_u + noise**2 * np.eye(n)
    y = np.linalg.cholesky(whole) @ rng.normal(size=n)

    # All that scales change is in the few directions that the series and the others span.
    span, sizes, _ = np.linalg.svd(of_h + of_u)
    span = span[:, sizes > 1e-9 * sizes[0]]
    in_h, in_u, in_y = span.T @ of_h @ span, span.T @ of_u @ span, span.T @ y
    of_noise = noise**2 * np.eye(len(in_y))

    def log_density(v: float, w: float) -> float:
        covariance = np.exp(2.0 * v) * in_h + np.exp(2.0 * w) * in_u + of_noise
        return -0.5 * (v * v + w * w) + log_normal(in_y, covariance)

    data = {"N": n, "T": TIMES, "S": n_others, "y": y, "t": t + 1, "s": s + 1}
    return data, quantiles_of_two(log_density, (-6.0, 1.5), (-6.0, 1.5))


@pytest.mark.parametrize("name", partly_thorough(PROGRAMS, IN_MAKE_TEST))
@pytest.mark.seeds(1, 2, rate=RATE)
def test_scales_of_a_sum_have_their_law(seed: int, name: str) -> None:
    data, found = law(name)
    posterior, adaptation, findings = run(PROGRAMS[name], data, seed=seed, draws=3_000, chains=2)
    roles = np.atleast_2d(adaptation["field_role"].values)
    # Effects alone are looked for where trajectories are short: with one of 24 seeds if they follow the walk.
    latents = (roles == 1).sum(axis=1)
    assert (latents == TIMES + data["S"]).any() or ("follow" in name and (latents == data["S"]).all())
    for which, quantiles in zip(("log_h", "log_u"), found, strict=True):
        assert largest_error(posterior[which].values, quantiles, findings) < LIMIT
