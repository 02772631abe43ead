"""Ridges in the coordinates that Fisher HMC learns: known laws, chain by chain, down to their last 0.1 %.

A right sampler fails the comparisons of one chain of 4,000 draws that are nearly independent, at seven
quantiles, in about 0.0006 of seeds. With 50 other seeds none of the six comparisons failed; a limit of
LIMIT for each chain alone in its last 0.1 % failed at 0.02. Each test names the fault that it is there to
see.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from scipy import special, stats

import stanadapt
from cases import thorough
from frozen import move_exact_draws
from shares import PROBABILITIES, errors
from stanadapt.result.container import datasets
from stanadapt.transport.map_table import REACH

LIMIT = 4.5  # standard errors
RATE = 0.01
NORMAL = stats.norm.ppf(PROBABILITIES)

BANANA = """
parameters { vector[2] x; }
model { x[1] ~ normal(0, 10); x[2] ~ normal(0.03 * (square(x[1]) - 100), 1); }
"""
ROSENBROCK = """
parameters { vector[18] a; vector[18] b; }
model { a ~ normal(1, 1); b ~ normal(square(a), sqrt(0.1)); }
"""
PRODUCT = """
parameters { real a; real c; real b; }
model { a ~ normal(1, 1); b ~ normal(-2, 1); c ~ normal(a * b, 0.2); }
"""
STUDENT = """
parameters { real a; real b; }
model { a ~ normal(0, 10); b ~ student_t(8, 0.03 * square(a), 1); }
"""
CATENARY = """
parameters { real a; real b; }
model { a ~ normal(0, 1); b ~ student_t(8, cosh(a), 1); }
"""
CHAIN = """
parameters { real c; real b; real a; }
model { a ~ normal(0, 1); b ~ normal(square(a), 0.3); c ~ normal(square(b) - a * b, 0.3); }
"""


def run(model: str, **keywords: Any) -> tuple[Any, Any, set[str]]:
    """Posterior, adaptation and the kinds of findings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stanadapt.StanAdaptWarning)
        idata = stanadapt.sample(model, method="fisher_hmc", progress=False, draws=4_000, **keywords)
    groups = datasets(idata)
    kinds = {finding.kind for finding in stanadapt.diagnose(idata)}
    return groups["posterior"], groups["adaptation"], kinds


def quantiles_around(mean: float, scale: float, square: float, constant: float, noise: float) -> np.ndarray:
    """Quantiles of constant + square x² + noise e, where x is N(mean, scale²) and e is standard normal."""
    at = mean + scale * np.linspace(-9.0, 9.0, 20_001)
    weights = stats.norm.pdf(at, mean, scale)
    weights /= weights.sum()
    centers = constant + square * at * at
    grid = np.linspace(centers.min() - 9 * noise, constant + square * (abs(mean) + 6 * scale) ** 2, 20_001)
    below = np.array([weights @ stats.norm.cdf((y - centers) / noise) for y in grid[::10]])
    return np.interp(PROBABILITIES, below, grid[::10])


def largest(draws: np.ndarray, quantiles: np.ndarray) -> float:
    """The largest error of the chains (chain, draw), together, and each alone but for the last 0.1 %.

    A chain has four draws there, too few for standard errors.
    """
    each = [np.abs(errors(chain[None], quantiles))[1:-1].max() for chain in draws]
    return float(max(np.abs(errors(draws, quantiles)).max(), *each))


@pytest.mark.seeds(1, 2, 3, rate=RATE)
def test_the_banana_is_right_to_both_of_its_tips(seed: int) -> None:
    """A reach where there should be none, or a shift of the wrong parent: the tips come too seldom."""
    posterior, adaptation, findings = run(BANANA, seed=seed)
    assert not findings
    assert np.all(adaptation["ridge_terms"].values == [0, 1])
    assert np.isinf(adaptation["transport"].values[..., REACH]).all()
    x = posterior["x"].values
    assert largest(x[..., 0], 10.0 * NORMAL) < LIMIT
    assert largest(x[..., 1], quantiles_around(0.0, 10.0, 0.03, -3.0, 1.0)) < LIMIT
    assert largest(x[..., 1] - 0.03 * (x[..., 0] ** 2 - 100.0), NORMAL) < LIMIT
    still = (np.diff(x[..., 0], axis=1) == 0.0).astype(int)
    assert max(len(rest) for chain in still for rest in "".join(map(str, chain)).split("0")) < 20


@pytest.mark.seeds(1, 2, 3, rate=RATE)
def test_all_pairs_of_rosenbrocks_function_are_right(seed: int) -> None:
    """54 comparisons of each chain, so that LIMIT is 5: a pair that is left out fails here, or takes long."""
    posterior, adaptation, findings = run(ROSENBROCK, seed=seed)
    assert not findings
    assert np.all((adaptation["ridge_terms"].values > 0).sum(axis=1) == 18)
    a, b = posterior["a"].values, posterior["b"].values
    of_b = quantiles_around(1.0, 1.0, 1.0, 0.0, np.sqrt(0.1))
    for pair in range(18):
        assert largest(a[..., pair], 1.0 + NORMAL) < 5.0
        assert largest(b[..., pair], of_b) < 5.0
        assert largest((b - a * a)[..., pair] / np.sqrt(0.1), NORMAL) < 5.0


@pytest.mark.seeds(1, 2, 3, rate=RATE)
def test_a_location_that_is_a_product_is_right(seed: int) -> None:
    """A sign of one of the two derivatives of a product."""
    posterior, adaptation, findings = run(PRODUCT, seed=seed)
    assert not findings
    np.testing.assert_array_equal(adaptation["ridge_terms"].values, [[0, 1, 0]] * 4)
    a, b, c = (posterior[name].values for name in "abc")
    assert largest(a, 1.0 + NORMAL) < LIMIT
    assert largest(b, NORMAL - 2.0) < LIMIT
    assert largest((c - a * b) / 0.2, NORMAL) < LIMIT


@pytest.mark.seeds(1, 2, 3, rate=RATE)
def test_a_chain_of_ridges_is_right(seed: int) -> None:
    """Rows in the wrong order: the location of c would depend on a b that is not moved yet."""
    posterior, adaptation, findings = run(CHAIN, seed=seed)
    assert not findings
    assert np.all((adaptation["ridge_terms"].values > 0) == [True, True, False])
    a, b, c = (posterior[name].values for name in "abc")
    assert largest(a, NORMAL) < LIMIT
    assert largest((b - a * a) / 0.3, NORMAL) < LIMIT
    assert largest((c - b * b + a * b) / 0.3, NORMAL) < LIMIT


@pytest.mark.seeds(1, 2, 3, rate=RATE)
def test_a_ridge_whose_noise_is_not_normal_is_right(seed: int) -> None:
    """Beyond its reach the law goes on as a straight line: both tips need a trajectory that turns there."""
    posterior, adaptation, _ = run(STUDENT, seed=seed)
    assert np.all(adaptation["ridge_terms"].values == [0, 1])
    a, b = posterior["a"].values, posterior["b"].values
    assert largest(a, 10.0 * NORMAL) < LIMIT
    assert largest(b - 0.03 * a**2, stats.t(8.0).ppf(PROBABILITIES)) < LIMIT


@pytest.mark.seeds(1, 2, 3, rate=RATE)
def test_a_location_that_is_not_of_second_order_is_right(seed: int) -> None:
    """Where cosh turns much, a ridge may be given up; a finding says that the ends are seldom seen then."""
    posterior, _, findings = run(CATENARY, seed=seed)
    a, b = posterior["a"].values, posterior["b"].values
    assert findings or np.abs(errors(a, NORMAL)).max() < LIMIT
    assert findings or np.abs(errors(b - np.cosh(a), stats.t(8.0).ppf(PROBABILITIES))).max() < LIMIT


@pytest.mark.seeds(1, rate=0.001)
@pytest.mark.parametrize(
    "model",
    [thorough(BANANA), STUDENT],
    ids=["exact", "not exact"],
)
def test_a_frozen_chain_leaves_exact_draws_as_they_are(model: str, seed: int) -> None:
    """A score that is not pulled back to the parents, or a wrong inverse."""
    posterior = stanadapt.Posterior(model)
    rng = np.random.default_rng(seed)
    moved = move_exact_draws(posterior, rng.normal(size=2), lambda rng: draw(model, rng), 3_000, rng)
    assert len(moved.transport)
    assert moved.accepted.any(axis=1).mean() > 0.95
    x = moved.ends
    level = 0.001 / 3.0  # of each test: Bonferroni
    first, away = x[:, 0] / 10.0, x[:, 1] - 0.03 * (x[:, 0] ** 2 - (100.0 if model == BANANA else 0.0))
    law = stats.norm if model == BANANA else stats.t(8.0)
    assert stats.kstest(first, "norm").pvalue > level
    assert stats.kstest(away, law.cdf).pvalue > level
    sizes = np.abs(stats.norm.ppf(law.cdf(away)) * first)  # two independent normal variables make this law
    assert stats.kstest(sizes, _product_cdf).pvalue > level


def draw(model: str, rng: np.random.Generator) -> np.ndarray:
    a = 10.0 * rng.normal()
    if model == BANANA:
        return np.array([a, 0.03 * (a * a - 100.0) + rng.normal()])
    return np.array([a, 0.03 * a * a + rng.standard_t(8.0)])


def _product_cdf(values: np.ndarray) -> np.ndarray:
    """P(|u v| <= value) of independent standard normal u and v: the density of |u v| is 2 K0 / pi."""
    integral: np.ndarray = special.iti0k0(values)[1]
    return 2.0 / np.pi * integral
