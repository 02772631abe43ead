"""The skeleton that CONTRIBUTING.md tells people to copy is a sampler: it runs, learns and is invariant."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import stanadapt
from cases import learnt_state, p_values_after, thorough
from exact import Exact, gaussian, skewed
from stanadapt import samplers
from stanadapt.result.container import datasets
from stanadapt.samplers import _skeleton
from stanadapt.trace import empty_trace

LEVEL = 0.001  # family-wise, of each test of invariance; see test_invariance.py


def test_it_is_no_method() -> None:
    assert "_skeleton" not in samplers.METHODS


@pytest.mark.parametrize("make", [thorough(gaussian), skewed])
def test_frozen_it_leaves_the_law_invariant(make: Callable[[], Exact]) -> None:
    exact = make()
    settings = samplers.resolve(_skeleton, None)
    p_values = p_values_after(_skeleton, settings, exact, n=4_000, steps=10, seed=1)
    assert p_values.min() > LEVEL / p_values.size


def test_it_learns_the_acceptance_rate_that_it_is_asked_for() -> None:
    exact, rng = gaussian(), np.random.default_rng(2)
    settings = samplers.resolve(_skeleton, {"target_accept": 0.4})
    state = learnt_state(_skeleton, settings, exact, rng)
    trace = empty_trace(20_000, 3)
    frozen = _skeleton.sweep(exact.target.target(), settings, state, rng, False, trace)
    assert (frozen.step_size, frozen.n) == (state.step_size, state.n) == (state.step_size, 3_000)
    assert abs(trace.accept_prob.mean() - 0.4) < 0.03


def test_a_line_in_methods_is_all_that_a_run_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(samplers.METHODS, "_skeleton", "random walk with a global scale")
    code = "parameters { real x; } model { x ~ normal(3, 2); }"
    idata = stanadapt.sample(code, method="_skeleton", chains=2, draws=5_000, seed=1, progress=False)
    groups = datasets(idata)
    x = groups["posterior"]["x"].to_numpy()
    assert x.shape == (2, 5_000)
    table = stanadapt.summary(idata)
    assert abs(x.mean() - 3.0) < 4.0 * float(table.loc["x", "mcse_mean"])
    rate = groups["sample_stats"]["acceptance_rate"].to_numpy().mean()
    assert abs(rate - 0.234) < 0.05
    assert "_skeleton" in stanadapt.methods().index
