"""Gaussian process classification with its length scales unknown: their posterior, estimated without bias.

Filippone and Girolami (2014), Pseudo-marginal Bayesian inference for Gaussian processes; the target of
Sejdinovic et al. (2014), section 5.1, and of Strathmann et al. (2015), Figure 4.

    f ~ N(0, K + ridge I), K_ij = exp(-sum_k (x_ik - x_jk)² / l_k²)
    y_i = 1 with probability 1 / (1 + exp(-f_i)), else -1

The density of y given the log length scales is an integral over f. The Laplace approximation N(mode, S) of
f given y, S^-1 = K^-1 + W, serves as the proposal of an importance sampler (Rasmussen and Williams 2006,
Algorithm 3.1, finds the mode). Its draws are mode + u, with u by Matheron's rule; the weight of one has no
inverse of K in it, with g the gradient of the log likelihood at the mode:

    log p(y | mode + u) - mode . g / 2 - u . g + u . W u / 2 - log |I + W^(1/2) K W^(1/2)| / 2
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import linalg, special

PRIOR_VARIANCE = 5.0  # of every log length scale, about 0
RIDGE = 1e-3
DRAWS = 100  # of an estimate, as in the authors' code


class Labelled(NamedTuple):
    inputs: np.ndarray  # (n, d)
    labels: np.ndarray  # (n,) of 1 and -1


class Mode(NamedTuple):
    """Of f given y, and what the draws about it need."""

    f: np.ndarray  # (n,)
    slope: np.ndarray  # (n,) g = K^-1 f
    root_w: np.ndarray  # (n,)
    chol_b: np.ndarray  # (n, n) lower, of I + W^(1/2) K W^(1/2)


def glass(folder: Path) -> Labelled:
    """UCI Glass: window glass (types 1 to 4) is 1. Inputs are whitened."""
    table = pd.read_csv(folder / "glass.csv")
    inputs = table.drop(columns=["id", "type"]).to_numpy(float)
    inputs -= inputs.mean(axis=0)
    root = np.linalg.cholesky(np.cov(inputs.T))
    labels = np.where(table["type"] <= 4, 1.0, -1.0)
    return Labelled(linalg.solve_triangular(root, inputs.T, lower=True).T, labels)


def covariance(inputs: np.ndarray, log_scales: np.ndarray) -> np.ndarray:
    """K + ridge I."""
    scaled = inputs * np.exp(-log_scales)
    squares = (scaled**2).sum(axis=1)
    cov = scaled @ scaled.T
    cov *= 2.0
    cov -= squares[:, None]
    cov -= squares
    np.exp(np.minimum(cov, 0.0, out=cov), out=cov)
    cov.flat[:: len(cov) + 1] = 1.0 + RIDGE
    return cov


def mode_of(cov: np.ndarray, labels: np.ndarray) -> Mode:
    """Newton's method; steps that overshoot are halved."""
    n = len(labels)
    f, a, height = np.zeros(n), np.zeros(n), -np.inf
    for _ in range(100):
        p = special.expit(f)
        w = p * (1.0 - p)
        slope = 0.5 * (labels + 1.0) - p
        root_w = np.sqrt(w)
        b = cov * root_w
        b *= root_w[:, None]
        b.flat[:: n + 1] += 1.0
        chol_b = linalg.cholesky(b, lower=True, overwrite_a=True, check_finite=False)
        right = w * f + slope
        solved = linalg.cho_solve((chol_b, True), root_w * (cov @ right), check_finite=False)
        to_a = right - root_w * solved
        to_f, size = cov @ to_a, 1.0
        while True:
            new_a, new_f = a + size * (to_a - a), f + size * (to_f - f)
            new_height = -0.5 * new_a @ new_f + special.log_expit(labels * new_f).sum()
            if new_height > height - 1e-9 or size < 1e-3:
                break
            size *= 0.5
        gained, a, f, height = new_height - height, new_a, new_f, new_height
        if gained < 1e-8:
            break
    return Mode(f, slope, root_w, chol_b)


def log_likelihood_estimate(
    data: Labelled, log_scales: np.ndarray, rng: np.random.Generator, draws: int = DRAWS
) -> float:
    """Log of an unbiased estimate of p(y | length scales)."""
    cov = covariance(data.inputs, log_scales)
    mode = mode_of(cov, data.labels)
    n, root_w = len(data.labels), mode.root_w[:, None]
    root = linalg.cholesky(cov, lower=True, check_finite=False)
    prior = root @ rng.standard_normal((n, draws))  # draws of N(0, K), turned into draws of N(0, S)
    noisy = root_w * prior + rng.standard_normal((n, draws))
    u = prior - cov @ (root_w * linalg.cho_solve((mode.chol_b, True), noisy, check_finite=False))
    log_weights = special.log_expit(data.labels[:, None] * (mode.f[:, None] + u)).sum(axis=0)
    log_weights += 0.5 * ((root_w * u) ** 2).sum(axis=0) - mode.slope @ u
    constant = -0.5 * mode.f @ mode.slope - np.log(np.diag(mode.chol_b)).sum()
    return float(special.logsumexp(log_weights) - np.log(draws) + constant)


def log_prior(log_scales: np.ndarray) -> float:
    return float(-0.5 * log_scales @ log_scales / PRIOR_VARIANCE)
