"""Weights of a curve with one scale, which the data tie: programs, data, and what is known."""

from __future__ import annotations

from typing import Any

import numpy as np

from shares import quantiles

WEIGHTS = """
data { int N; int K; matrix[N, K] Z; vector[N] x; vector[N] y; }
parameters { real a; real b; vector[K] w; real<lower=0> tau; real<lower=0> sigma; }
model {
  a ~ normal(0, 3); b ~ normal(0, 3); tau ~ normal(0, 1); sigma ~ normal(0, 1);
  w ~ normal(0, tau); y ~ normal(a + b * x + Z * w, sigma);
}
"""
WEIGHTS_NOT_CENTRED = WEIGHTS.replace("normal(0, tau)", "std_normal()").replace("Z * w", "Z * (tau * w)")


def weights_of(rng: np.random.Generator, n: int, k: int, tau: float) -> dict[str, Any]:
    """A curve of k bumps, which overlap, and a line."""
    x = np.sort(rng.uniform(-1.0, 1.0, n))
    Z = np.exp(-0.5 * np.square((x[:, None] - np.linspace(-1.0, 1.0, k)) * k / 4.0))
    y = 0.5 + x + Z @ (tau * rng.normal(size=k)) + 0.5 * rng.normal(size=n)
    return {"N": n, "K": k, "Z": Z, "x": x, "y": y}


def laws_of_weights(data: dict[str, Any]) -> list[np.ndarray]:
    """Quantiles of log tau and log sigma; all else is integrated out."""
    line = np.column_stack((np.ones(data["N"]), data["x"]))
    u, v = np.linspace(-14.0, 2.0, 400), np.linspace(-2.5, 1.0, 200)
    log_p = np.empty((u.size, v.size))
    for row, log_tau in enumerate(u):
        values, vectors = np.linalg.eigh(
            9.0 * line @ line.T + np.exp(2.0 * log_tau) * data["Z"] @ data["Z"].T
        )
        spread = np.maximum(values, 0.0)[:, None] + np.exp(2.0 * v)
        along = np.square(vectors.T @ data["y"])[:, None]
        log_p[row] = -0.5 * (np.log(spread) + along / spread).sum(axis=0)
    for scale in (u[:, None], v[None, :]):
        log_p += scale - 0.5 * np.exp(2.0 * scale)
    density = np.exp(log_p - log_p.max())
    return [quantiles(u, density.sum(axis=1)), quantiles(v, density.sum(axis=0))]
