"""fisher_hmc on a rotated Gaussian of many dimensions: its law, and what an effective draw costs."""

from __future__ import annotations

import numpy as np
import pytest

from cases import resolve
from rotated import Rotated
from stanadapt.run.warmup import warm_up
from stanadapt.samplers import advance
from stanadapt.trace import empty_trace

D, DRAWS, BATCHES = 500, 1_000, 40
LIMIT = 4.5  # standard errors; 60 comparisons with Student's t of 39 degrees of freedom: 0.0036 of seeds fail


def _z_score(series: np.ndarray, wanted: float, largest_error: float) -> float:
    """How far the mean of a chain (n,) is from what it should be, in standard errors by batch means."""
    means = series.reshape(BATCHES, -1).mean(axis=1)
    error = means.std(ddof=1) / np.sqrt(BATCHES)
    assert error < largest_error  # else the comparison would tell nothing
    return abs(float(means.mean()) - wanted) / error


@pytest.mark.seeds(1, rate=0.004)
def test_means_variances_tails_and_cost_of_a_rotated_gaussian(seed: int) -> None:
    law, (sampler, settings) = Rotated(D), resolve("fisher_hmc", {})
    _model, target = law.target()
    rng = np.random.default_rng(seed)
    driver = warm_up(sampler, settings, target, rng.normal(size=D), rng, 600)
    gradients = 2 * D + 20  # the Hessian at the start, and whether it pays
    while driver.next_stage():
        trace = driver.room(driver.n_left)
        driver.run(trace)
        gradients += int(trace.n_steps.sum())
    trace = empty_trace(DRAWS, D, len(sampler.FACTS.columns))
    before = [array.copy() for array in driver.state.metric]
    state = advance(sampler, driver.target, settings, driver.state, rng, False, trace)
    for kept, now in zip(before, state.metric, strict=True):
        np.testing.assert_array_equal(kept, now)
    gradients += int(trace.n_steps.sum())
    z = law.standardize(trace.x)
    # On the axes, from the smallest variance to the largest, in bands of 25.
    for band in z.T.reshape(20, D // 20, DRAWS):
        assert _z_score(band.mean(axis=0), 0.0, 0.02) < LIMIT
        assert _z_score(np.square(band).mean(axis=0), 1.0, 0.03) < LIMIT
        assert _z_score((np.abs(band) > 2.576).mean(axis=0), 0.01, 0.002) < LIMIT
    error = z.reshape(BATCHES, -1, D).mean(axis=1).std(axis=0, ddof=1) / np.sqrt(BATCHES)
    assert gradients * np.quantile(np.square(error), 0.99) < 20.0  # gradients an effective draw of the mean
