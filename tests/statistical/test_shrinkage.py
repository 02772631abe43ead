"""Weights in the coordinates that Fisher HMC learns: the heads have the law that they have where the weights
are integrated out.

With normal data they can be, in the program itself. So draws of both programs are compared, which have no
coordinates in common but the heads. Each test names the fault that it is there to see.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from scipy import stats

from fits import run
from shrinkage import data_of, integrated, program_of

RATE = 0.01
HEADS = {
    "horseshoe": ("lam", "tau", "c2", "sigma"),
    "shares": ("phi", "R2", "sigma"),
    "process": ("alpha", "rho", "sigma"),
    "local": ("lam", "tau", "sigma"),
    "by error": ("lam", "tau", "sigma"),
}
CENTRED = "horseshoe", "local", "by error"


@functools.cache
def known(form: str) -> dict[str, Any]:
    return data_of(form)


def heads_of(posterior: Any, form: str) -> np.ndarray:
    """Draws (n, m) of the logs of all heads."""
    values = [posterior[name].values for name in HEADS[form]]
    return np.concatenate([np.log(one).reshape(-1, int(np.prod(one.shape[2:]))) for one in values], axis=1)


@pytest.mark.seeds(1, 2, rate=RATE)
@pytest.mark.parametrize(
    ("form", "centred"),
    [*((form, False) for form in ("horseshoe", "shares", "process")), *((form, True) for form in CENTRED)],
)
def test_heads_have_their_law_without_the_weights(form: str, centred: bool, seed: int) -> None:
    """A map without its log determinant, or without the derivative of a limit, of a norm, of a curve, or of
    the scale of centred weights.
    """
    data = known(form)
    posterior, adaptation, _ = run(program_of(form, centred=centred), data, seed=seed, draws=2_000)
    weights = adaptation["field_weights"].values
    # Three of 120 chains did not look for weights, since their trajectories were short or had no partners.
    found = weights[weights.any(axis=-1)]
    assert len(found) >= 3
    assert ((found == 1).sum(axis=-1) == data["K"]).all()
    assert ((found == 2).sum(axis=-1) == 1).all()
    alone, _, _ = run(integrated(form), data, seed=seed + 100, draws=2_000)
    own, expected = heads_of(posterior, form), heads_of(alone, form)
    for one, other in zip(own.T, expected.T, strict=True):
        assert stats.ks_2samp(one[::8], other[::8]).pvalue > 0.01 / (9 * 6)
