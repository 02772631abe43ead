"""Parameters of many draws at once: the same as Stan gives, and left to Stan where they are others."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import stanadapt
from stanadapt.model.backends.stan.elementwise import find_elementwise

N = 200
DATA = {"low": [-0.3, 2.0], "high": 7.5}
BOUNDS = """
data {{ vector[2] low; real high; }}
parameters {{ real m; real<lower=0> s; {declared} }}
model {{ m ~ normal(0, 1); s ~ normal(0, 1); }}
"""
ELEMENTWISE = {
    "plain": "vector[2] a;",
    "matrix": "matrix<lower=0.1>[2, 3] a;",
    "upper": "array[2] real<upper=-3.7> a;",
    "both": "real<lower=-0.1, upper=0.3> a; vector<lower=0, upper=1>[3] b;",
    "data": "vector<lower=low, upper=high>[2] a; real<lower=low[1] + high> b;",
    "multiplier": "vector<offset=1e6, multiplier=0.003>[2] a; real<multiplier=high> b;",
}
OTHERS = {
    "simplex": "simplex[3] a;",
    "ordered": "ordered[3] a;",
    "positive ordered": "positive_ordered[3] a;",
    "unit vector": "unit_vector[3] a;",
    "correlations": "corr_matrix[3] a;",
    "bounds that are parameters": "real<lower=m> a;",
    "bounds that are parameters far out": "real<lower=fmax(0, m - 1e4)> a;",
    "multipliers that are parameters": "vector<offset=m, multiplier=s>[2] a;",
    "transformed parameters": "} transformed parameters { real a = m;",
}


def draws(d: int) -> np.ndarray:
    """Points as draws may be, and some far out."""
    rng = np.random.default_rng(1)
    return rng.normal(size=(N, d)) * np.array([1.0, 8.0, 60.0, 900.0])[np.arange(N) % 4, None]


def values_of(posterior: stanadapt.Posterior, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What a writer gives for draws (n, d), and what Stan gives for each of them."""
    model = posterior.model
    with np.errstate(all="raise"):
        values = np.full((len(x), len(model.names(transformed=True, generated=True))), np.nan)
        model.writer(1)(x, values, np.arange(len(x)))
    return values, np.array([model.model.param_constrain(point, include_tp=True) for point in x])


@pytest.mark.parametrize("declared", ELEMENTWISE.values(), ids=ELEMENTWISE)
def test_values_are_those_of_stan(declared: str) -> None:
    posterior = stanadapt.Posterior(BOUNDS.format(declared=declared), DATA)
    assert posterior.model._elementwise is not None
    values, wanted = values_of(posterior, draws(posterior.dim))
    np.testing.assert_allclose(values, wanted, rtol=1e-15, atol=1e-16)
    assert not np.isnan(values).any()


@pytest.mark.parametrize("declared", OTHERS.values(), ids=OTHERS)
def test_other_programs_are_left_to_stan(declared: str) -> None:
    posterior = stanadapt.Posterior(BOUNDS.format(declared=declared), DATA)
    assert posterior.model._elementwise is None
    values, wanted = values_of(posterior, np.random.default_rng(1).normal(size=(9, posterior.dim)))
    np.testing.assert_array_equal(values, wanted)


def test_a_program_without_text_is_left_to_stan() -> None:
    """Its bounds could be those of other parameters, far out."""
    posterior = stanadapt.Posterior(BOUNDS.format(declared=ELEMENTWISE["plain"]), DATA)
    adopted = stanadapt.Posterior(posterior.model.model)
    assert adopted.model._elementwise is None
    copied = pickle.loads(pickle.dumps(posterior))
    assert copied.model._elementwise is not None


def test_values_do_not_depend_on_blocks() -> None:
    """A run that is taken up again writes other blocks, and has the same numbers."""
    posterior = stanadapt.Posterior(BOUNDS.format(declared=ELEMENTWISE["data"]), DATA)
    x = draws(posterior.dim)
    write = posterior.model.writer(1)
    whole, parts = np.empty((2, *x.shape))
    write(x, whole, np.arange(N))
    for first, last in ((0, 1), (1, 4), (4, 13), (13, 77), (77, N)):
        write(x[first:last], parts[first:last], np.arange(first, last))
    np.testing.assert_array_equal(parts, whole)


@pytest.mark.parametrize("wrong", range(3))
def test_one_parameter_that_is_off_leaves_all_to_stan(wrong: int) -> None:
    """Here one that is not elementwise, by a little, or that has no values far out."""

    def constrain(x: np.ndarray) -> np.ndarray:
        values = np.array([2.0 + np.exp(x[0]), x[1], 1.0 / (1.0 + np.exp(-x[2])), 3.0 * x[3]])
        if wrong == 1:
            values[1] += 1e-9 * x[0]
        if wrong == 2 and np.abs(x).max() > 100.0:
            raise RuntimeError("overflow")
        return values

    with np.errstate(over="ignore"):
        assert (find_elementwise(constrain, 4) is None) == (wrong > 0)
