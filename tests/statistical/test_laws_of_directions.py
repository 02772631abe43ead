"""Unit vectors in the coordinates of directions: angles from their poles have their known law.

Each test names the fault that it is there to see.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fits import run
from shares import PROBABILITIES, largest_error

LIMIT = 5.0  # standard errors; some of the hundred shares of a run are of two draws in a chain
RATE = 0.01
POLES = np.array([[0.6, 0.8, 0.0], [-1.0, 0.0, 0.0]])
CONCENTRATION, SPREAD = 40.0, 0.5

# Laws of von Mises and Fisher around known poles, with one concentration, which varies.
PROGRAM = f"""
functions {{
  real log_norm(int n, real k) {{
    if (n == 2) return log_modified_bessel_first_kind(0, k);
    return k + log1m_exp(-2 * k) - log(k);
  }}
}}
data {{ int n; matrix[2, n] poles; }}
parameters {{ array[2] unit_vector[n] m; real log_s; }}
model {{
  real k = {CONCENTRATION} * exp(log_s);
  log_s ~ normal(0, {SPREAD});
  for (j in 1:2) target += k * (poles[j] * m[j]) - log_norm(n, k);
}}
"""


@pytest.mark.seeds(1, 2, 3, rate=RATE)
@pytest.mark.parametrize("n", [2, 3])
def test_angles_and_their_concentration_have_their_law(n: int, seed: int) -> None:
    """A law in which angles depend on lengths; a tip that is cut off, where concentrations are small."""
    data = {"n": n, "poles": POLES[:, :n]}
    posterior, adaptation, findings = run(PROGRAM, data, seed=seed, draws=2_000)
    assert (adaptation["direction_power"].values[:, : 2 * n] > 1.0).all()
    log_s = posterior["log_s"].values
    assert largest_error(log_s, stats.norm.ppf(PROBABILITIES, scale=SPREAD), findings) < LIMIT
    cosines = np.einsum("cdjn,jn->cdj", posterior["m"].values, POLES[:, :n])
    for j in range(2):
        beyond = probability_beyond(n, cosines[..., j], CONCENTRATION * np.exp(log_s))
        assert largest_error(beyond, PROBABILITIES, findings) < LIMIT


def probability_beyond(n: int, cosine: np.ndarray, k: np.ndarray) -> np.ndarray:
    """Of a larger angle from the pole, given the concentration k; uniform where the law is right."""
    if n == 3:  # the cosine t has the density e^(k t) on (-1, 1)
        return np.asarray(np.expm1(-k * (1.0 + cosine)) * np.exp(k * (cosine - 1.0)) / np.expm1(-2.0 * k))
    angle = np.arccos(np.clip(cosine, -1.0, 1.0))
    return np.asarray(2.0 * stats.vonmises.cdf(-angle, k))
