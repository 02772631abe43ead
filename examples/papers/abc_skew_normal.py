"""Approximate Bayesian computation on a skew normal, and Hamiltonian ABC.

The target of Strathmann et al. (2015), Figure 4. Ten draws of the skew normal of dimension 10 with location
theta and alpha = (10, ..., 10) (Azzalini and Dalla Valle 1996) are summarised by their mean:

    p(y | theta) = 2 N(y; theta, I) Phi(alpha . (y - theta)),  theta ~ N(0, 25 I)

What is observed came from theta = (10, ..., 10). Its likelihood is estimated from ten simulated summaries s_i
as the mean of exp(-||s_i - observed||² / (2 epsilon²)), epsilon = 0.55. These constants are those of the
authors' published code.

Hamiltonian ABC: Meeds, Leenders and Welling (2015), sections 4.3 and 4.4.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import linalg, stats

import stanadapt

D = 10
ALPHA = np.full(D, 10.0)
DATA_SIZE, DATA_SETS = 10, 10  # draws behind a summary; summaries behind an estimate
EPSILON = 0.55
PRIOR_VARIANCE = 25.0
TRUE = np.full(D, 10.0)


def skew_normal(n: int, rng: np.random.Generator) -> np.ndarray:
    """Draws (n, D) with location zero: a normal draw z, turned to -z with probability Phi(-alpha . z)."""
    z = rng.standard_normal((n, D))
    return np.where(rng.standard_normal(n) < z @ ALPHA, 1.0, -1.0)[:, None] * z


def simulate(theta: np.ndarray, rng: np.random.Generator, n: int = DATA_SETS) -> np.ndarray:
    """Summaries (n, D)."""
    return theta + skew_normal(n * DATA_SIZE, rng).reshape(n, DATA_SIZE, D).mean(axis=1)


OBSERVED = simulate(TRUE, np.random.default_rng(0), 1)[0]


def target() -> Any:
    def simulator(values: dict[str, np.ndarray], n: int, rng: np.random.Generator) -> np.ndarray:
        return simulate(values["theta"], rng, n)

    prior = {"theta": stats.norm(np.zeros(D), PRIOR_VARIANCE**0.5)}
    return stanadapt.abc(simulator, OBSERVED, prior, epsilon=EPSILON, n_sim=DATA_SETS, vectorized=True)


def exact_draws(n: int, rng: np.random.Generator) -> np.ndarray:
    """Draws (n, D) of the target: theta is a location, so under a flat prior it is observed minus noise."""
    pool = OBSERVED - simulate(np.zeros(D), rng, 20 * n) - EPSILON * rng.standard_normal((20 * n, D))
    weights = np.exp(-0.5 * (pool**2).sum(axis=1) / PRIOR_VARIANCE)
    return pool[rng.choice(20 * n, n, p=weights / weights.sum())]


# --- Hamiltonian ABC


def synthetic_log_likelihood(theta: np.ndarray, seed: int) -> float:
    """Log density of what was observed under a normal with moments of simulated summaries; Wood (2010)."""
    summaries = simulate(theta, np.random.default_rng(seed))
    cov = np.cov(summaries.T) + EPSILON**2 * np.eye(D)
    factor, _ = linalg.cho_factor(cov, lower=True, check_finite=False)
    away = linalg.solve_triangular(factor, OBSERVED - summaries.mean(axis=0), lower=True)
    return float(-0.5 * away @ away - np.log(np.diag(factor)).sum())


def spas_gradient(theta: np.ndarray, seed: int, rng: np.random.Generator, size: float = 0.1) -> np.ndarray:
    """Gradient of the log posterior, by one simultaneous perturbation of all entries.

    Both simulations have the same seed: common random numbers.
    """
    signs = rng.choice((-1.0, 1.0), theta.size)
    upper, lower = theta + size * signs, theta - size * signs
    rise = synthetic_log_likelihood(upper, seed) - synthetic_log_likelihood(lower, seed)
    return rise / (2.0 * size) * signs - theta / PRIOR_VARIANCE


class Hamiltonian(NamedTuple):
    """Settings: step sizes are uniform on (low, high), one a trajectory."""

    n_leapfrog: int = 50
    low: float = 0.01
    high: float = 0.1
    friction: bool = True

    @property
    def simulations(self) -> int:
        """Summaries simulated for one draw."""
        return 2 * self.n_leapfrog * DATA_SETS


def habc(settings: Hamiltonian, n: int, rng: np.random.Generator) -> np.ndarray:
    """Draws (n, D) from the truth on. No proposal is rejected.

    The seed of the simulations is sticky: it stays for a trajectory. With friction (Chen, Fox and Guestrin
    2014) the momentum is damped by exp(-step_size (v + 1e-5)), v the running variance of the gradients'
    entries, and takes in as much noise as the gradients have not brought, so that its variance stays 1.
    """
    theta, draws = TRUE.copy(), np.empty((n, D))
    mean, spread, seen = np.zeros(D), np.zeros(D), 0
    for i in range(n):
        seed, step_size = int(rng.integers(2**32)), rng.uniform(settings.low, settings.high)
        momentum = rng.standard_normal(D)
        v = float(spread.mean() / (seen - 1)) if settings.friction and seen > 1 else 0.0
        damping = np.exp(-step_size * (v + 1e-5)) if settings.friction else 1.0
        noise = np.sqrt(max(1.0 - damping**2 - step_size**2 * v, 0.0))
        for _ in range(settings.n_leapfrog):
            theta = theta + 0.5 * step_size * momentum
            score = spas_gradient(theta, seed, rng)
            momentum = damping * momentum + step_size * score + noise * rng.standard_normal(D)
            theta = theta + 0.5 * step_size * momentum
            seen += 1
            away = score - mean
            mean = mean + away / seen
            spread = spread + away * (score - mean)
        draws[i] = theta
    return draws
