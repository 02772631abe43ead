"""Evidences that are known: estimates are within their standard errors, and these are honest.

Draws are exact ones of conjugate posteriors, or chains of them that often stay where they are.
examples/benchmarks/evidence.py measures the rates of many more seeds and dimensions.
"""

from __future__ import annotations

import numpy as np
import pytest

import stanadapt
from conjugate import MODELS, drawn

pytestmark = pytest.mark.filterwarnings("ignore::stanadapt.StanAdaptWarning")


def in_standard_errors(name: str, d: int, draws: int, stay: float, seeds: range) -> np.ndarray:
    """Errors of the log evidence in standard errors, from 4 chains of so many draws."""
    model = MODELS[name](d)
    posterior = stanadapt.Posterior(model.code, model.data)
    found = []
    for seed in seeds:
        result = drawn(model, 4, draws, stay, np.random.default_rng([seed, d]))
        evidence = stanadapt.log_evidence(result, posterior, seed=seed)
        found.append((evidence.log_evidence - model.log_evidence) / evidence.standard_error)
    return np.array(found)


@pytest.mark.seeds(1, 2, rate=0.001)  # of 4 standard errors, whose size is not quite known
@pytest.mark.parametrize("stay", [0.0, 0.8])
@pytest.mark.parametrize(
    ("name", "d"),
    [("normal mean", 1), ("regression", 2), ("regression", 20), ("beta-binomial", 5), ("gamma-Poisson", 10)],
)
def test_the_evidence_of_conjugate_models(name: str, d: int, stay: float, seed: int) -> None:
    (z,) = in_standard_errors(name, d, 400, stay, range(seed, seed + 1))
    assert abs(z) < 4.0


# Rate: the mean square of 40 normal numbers with standard deviations of 0.93 to 1.05, as they were measured,
# is outside of these bounds twice in a thousand times, and that more than two are beyond 3 is rarer.
@pytest.mark.thorough
@pytest.mark.seeds(1, rate=0.003)
@pytest.mark.parametrize(("name", "d"), [("regression", 5), ("beta-binomial", 2)])
def test_the_standard_error_is_honest(name: str, d: int, seed: int) -> None:
    """To a factor of 1.5 where draws are autocorrelated, which errors of independent draws miss by 3."""
    z = in_standard_errors(name, d, 400, 0.8, range(40 * seed, 40 * seed + 40))
    assert np.mean(np.abs(z) < 3.0) >= 0.95
    assert 1 / 1.5 < np.sqrt(np.mean(z**2)) < 1.5


@pytest.mark.seeds(1, rate=0.001)
def test_the_proposal_is_fitted_to_other_draws(seed: int) -> None:
    """To 200 draws in 50 dimensions. Fitted to draws that it is bridged to, it is too high there."""
    z = in_standard_errors("normal mean", 50, 100, 0.0, range(10 * seed, 10 * seed + 10))
    assert abs(z.mean()) < 4.0 / np.sqrt(10)


@pytest.mark.seeds(1, rate=0.001)
@pytest.mark.parametrize(("name", "d"), [("regression", 6), ("gamma-Poisson", 4)])
def test_the_evidence_of_a_fit(name: str, d: int, seed: int) -> None:
    """Of fisher_hmc, whose coordinates and metric the proposal takes if they help."""
    model = MODELS[name](d)
    run = {"method": "fisher_hmc", "draws": 500, "seed": seed, "progress": False}
    result = stanadapt.sample(model.code, model.data, **run)
    found = stanadapt.log_evidence(result, model.code, model.data, seed=seed)
    assert abs(found.log_evidence - model.log_evidence) < 4.0 * found.standard_error < 0.1
