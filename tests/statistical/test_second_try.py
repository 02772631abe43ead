"""Second tries of fisher_hmc (numerics/second_try.py) leave laws as they are, and chains leave necks.

In the suites of all methods hardly any trajectory is without a chance, so that a wrong second try would not
be seen. Here steps are much too long.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stanadapt
from broken import edited_sampler
from cases import p_values_after, partly_thorough, resolve
from exact import skewed
from stanadapt.run.warmup import warm_up
from stanadapt.trace import empty_trace

LEVEL = 0.001
TRIES = "numerics/second_try.py"
FAULTS = {
    "nothing": {},
    "no way back": {"back <= HOPELESS or not chance < ratio * (1.0": "not chance < ratio * (1.0"},
    "a way back that goes on": {"= y[i], its_score[i], -momentum[i]": "= y[i], its_score[i], momentum[i]"},
    "a step that depends on where it begins": {
        "    for is_way_back in": "    length *= 1.0 + 0.8 * (x[0] > 0.0)\n    for is_way_back in"
    },
}
NECK = """
parameters { real u; vector[10] x; }
model {
  u ~ normal(0, 2);
  x ~ normal(0, exp(u));
}
"""
DEEP = -3.0  # where steps that are right at u = 0 are twenty times too long for x


def with_long_steps(state: Any) -> Any:
    """A metric with variances that are six times too large, so that a quarter of first tries are kept."""
    metric = state.metric
    metric = metric._replace(inverse_mass=6.0 * metric.inverse_mass, chol_t=metric.chol_t / np.sqrt(6.0))
    search = state.search._replace(t=0.0)  # else the frozen kernel takes the step that was found
    return state._replace(step_size=1.0, search=search, metric=metric)


@pytest.mark.seeds(1, rate=0.01)
@pytest.mark.parametrize("what", partly_thorough(FAULTS, ("nothing",)))
def test_a_second_try_keeps_the_law(what: str, tmp_path: Path, seed: int) -> None:
    sound, settings = resolve("fisher_hmc", {"transport": "off"})
    sampler = edited_sampler("fisher_hmc", {TRIES: FAULTS[what]}, tmp_path, frozen=True)
    known = {"learner": sound, "change": with_long_steps}
    p_values = p_values_after(sampler, settings, skewed(), n=8_000, steps=10, seed=seed, **known)
    assert bool(p_values.min() > LEVEL / p_values.size) == (what == "nothing")


@pytest.mark.seeds(1, rate=0.01)
@pytest.mark.parametrize("tries", [True, False])
def test_a_chain_leaves_a_neck_by_second_tries(tries: bool, seed: int) -> None:
    """Without them it stands still there, with steps for the mouth of the funnel."""
    sampler, settings = resolve("fisher_hmc", {"transport": "off", "second_tries": tries})
    posterior, rng = stanadapt.Posterior(NECK, {}), np.random.default_rng(seed)
    target, begin = posterior.model.target(), np.append(DEEP, np.exp(DEEP) * rng.standard_normal(10))
    state = warm_up(sampler, settings, target, np.zeros(11), rng, 0).finish()
    state = state._replace(step_size=0.5)
    trace = empty_trace(300, 11)
    sampler.sweep(target, settings, sampler.move(target, settings, state, begin, None), rng, False, trace)
    moves = np.diff(trace.x[:, 0], prepend=DEEP) != 0.0
    assert moves[:20].any() if tries else not moves.any()
