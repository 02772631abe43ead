"""Posteriors whose gradient jumps, on which Fisher HMC takes long steps: quantiles have their known law.

Each test names the fault that it is there to see.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.special import log_ndtr

from fits import run
from shares import largest_error, quantiles, quantiles_of_two

LIMIT = 5.0  # standard errors; some of the hundred shares of a run are of two draws in a chain
RATE = 0.01
GROUPS, EACH, ERROR, SCALE = 30, 4, 1.0, 0.5

# Effects with a double exponential law whose scale is known, all of whose data are 0.
ALL_AT_THE_KINK = f"""
parameters {{ vector[{GROUPS}] u; }}
model {{ u ~ double_exponential(0, {SCALE}); u ~ normal(0, {ERROR} / 2); }}
"""
# The same with a scale and a mean that are not known, and data.
EFFECTS = f"""
data {{ int J; int n; matrix[n, J] y; }}
parameters {{ real mu; real log_s; vector[J] u; }}
model {{
  mu ~ normal(0, 5); log_s ~ normal(-0.5, 1); u ~ double_exponential(mu, exp(log_s));
  for (j in 1:J) y[, j] ~ normal(u[j], {ERROR});
}}
"""


def run_with_kinks(program: str, data: Any, seed: int) -> tuple[Any, set[str]]:
    posterior, adaptation, findings = run(program, data, seed=seed, draws=2_000)
    assert adaptation["kinks"].all()
    return posterior, findings


@pytest.mark.seeds(1, 2, 3, rate=RATE)
def test_each_effect_and_the_largest_one_have_their_law(seed: int) -> None:
    """Long steps over kinks whose errors are accepted, or refused, where they should not be."""
    posterior, findings = run_with_kinks(ALL_AT_THE_KINK, {}, seed)
    grid = np.linspace(-3.0, 3.0, 4_001)
    density = stats.laplace.pdf(grid, scale=SCALE) * stats.norm.pdf(grid, scale=ERROR / 2.0)
    u = posterior["u"].values
    for k in (0, GROUPS - 1):
        assert largest_error(u[:, :, k], quantiles(grid, density), findings) < LIMIT
    sizes = grid[2_000:]
    below = np.cumsum(density[2_000:]) / density[2_000:].sum()
    of_largest = np.diff(below**GROUPS, prepend=0.0)
    assert largest_error(np.abs(u).max(axis=-1), quantiles(sizes, of_largest), findings) < LIMIT


def data_of(groups: int) -> dict[str, Any]:
    rng = np.random.default_rng(4)
    u = 0.3 + rng.laplace(scale=SCALE, size=groups)
    return {"J": groups, "n": EACH, "y": u + ERROR * rng.normal(size=(EACH, groups))}


def log_mean_likelihood(means: np.ndarray, mu: float, s: float) -> float:
    """Of group means (J,) with a double exponential law of scale s around mu: a sum of two halves."""
    sd, away = ERROR / np.sqrt(EACH), means - mu
    up = -away / s + log_ndtr(away / sd - sd / s)
    down = away / s + log_ndtr(-away / sd - sd / s)
    return float((np.logaddexp(up, down) + 0.5 * (sd / s) ** 2 - np.log(2.0 * s)).sum())


@pytest.mark.seeds(1, 2, 3, rate=RATE)
def test_the_scale_and_the_mean_of_effects_have_their_law(seed: int) -> None:
    """Where the scale is small steps are short for two reasons, and tails come out wrong."""
    data = data_of(GROUPS)
    posterior, findings = run_with_kinks(EFFECTS, data, seed)
    means = data["y"].mean(axis=0)

    def log_density(mu: float, log_s: float) -> float:
        prior = stats.norm.logpdf(mu, 0.0, 5.0) + stats.norm.logpdf(log_s, -0.5, 1.0)
        return float(prior + log_mean_likelihood(means, mu, np.exp(log_s)))

    of_mu, of_scale = quantiles_of_two(log_density, (-2.0, 2.0), (-6.0, 2.5))
    assert largest_error(posterior["mu"].values, of_mu, findings) < LIMIT
    assert largest_error(posterior["log_s"].values, of_scale, findings) < LIMIT
