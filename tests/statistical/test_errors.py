"""Regressions with an unknown error in the coordinates that Fisher HMC learns: known laws, down to 0.1 %.

With flat priors of the coefficients and of the log of the error, the variance of the error is a scaled
inverse chi-squared variable, and each coefficient is Student's t, both with as many degrees of freedom as
there are observations more than coefficients (Gelman et al. 2013, section 14.2). The fourteen observations
here leave eight.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from scipy import stats

import stanadapt
from shares import PROBABILITIES, errors
from stanadapt.result.container import datasets

LIMIT = 4.5  # standard errors
RATE = 0.01
N, K = 14, 6

PROGRAM = """
data {{ int N; int K; matrix[N, K] X; vector[N] y; }}
parameters {{ vector[K] beta; real<lower=0> {scale}; }}
model {{
  target += -log({scale});
  y ~ normal(X * beta, {error});
}}
"""
# The parameter, the error that it makes, and the power b of the law.
SCALES = {"sigma": ("sigma", 1.0), "variance": ("sqrt(variance)", 0.5), "tau": ("1 / sqrt(tau)", -0.5)}


def data() -> tuple[np.ndarray, np.ndarray]:
    """Predictors that correlate, and observations."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(N, K)) @ (np.eye(K) + 0.4 * rng.normal(size=(K, K)))
    return x, x @ np.arange(K) + 2.0 * rng.normal(size=N)


def run(scale: str, seed: int) -> tuple[Any, Any, set[str]]:
    """Posterior, adaptation and the kinds of findings."""
    x, y = data()
    program = PROGRAM.format(scale=scale, error=SCALES[scale][0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stanadapt.StanAdaptWarning)
        idata = stanadapt.sample(
            program,
            {"N": N, "K": K, "X": x.tolist(), "y": y.tolist()},
            method="fisher_hmc",
            progress=False,
            draws=4_000,
            seed=seed,
        )
    groups = datasets(idata)
    return groups["posterior"], groups["adaptation"], {finding.kind for finding in stanadapt.diagnose(idata)}


def largest(draws: np.ndarray, quantiles: np.ndarray) -> float:
    """The largest error of the chains (chain, draw), together, and each alone but for the last 0.1 %."""
    each = [np.abs(errors(chain[None], quantiles))[1:-1].max() for chain in draws]
    return float(max(np.abs(errors(draws, quantiles)).max(), *each))


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.seeds(1, 2, rate=RATE)
def test_coefficients_and_errors_are_right_far_out(scale: str, seed: int) -> None:
    """A log determinant that is wrong by one coefficient of six: shares are off by 15 errors."""
    posterior, adaptation, findings = run(scale, seed)
    assert not findings
    alone = adaptation["error_scale"].values == K  # one chain of 600 takes coefficients for a group instead
    assert np.all((alone | (adaptation["scale_head"].values == K)) == [True] * K + [False])
    assert np.all(adaptation["error_slope"].values == alone * SCALES[scale][1])
    assert np.count_nonzero(alone.any(axis=1)) >= 3
    x, y = data()
    inverse = np.linalg.inv(x.T @ x)
    means = inverse @ x.T @ y
    rest = float(np.square(y - x @ means).sum())
    variances = rest / stats.chi2.ppf(PROBABILITIES[::-1], N - K)
    known = {"sigma": np.sqrt(variances), "variance": variances, "tau": 1.0 / variances[::-1]}
    assert largest(posterior[scale].values, known[scale]) < LIMIT
    for k, (mean, unit) in enumerate(zip(means, np.sqrt(rest / (N - K) * np.diag(inverse)), strict=True)):
        quantiles = stats.t.ppf(PROBABILITIES, N - K, mean, unit)
        assert largest(posterior["beta"].values[..., k], quantiles) < LIMIT, k
