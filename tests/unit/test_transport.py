"""Coordinates in which heavy tails are light: the map, its density and score, and when one is learnt."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

import stanadapt
from cases import resolve
from stanadapt.numerics.transport import (
    Tails,
    change_coordinates,
    into_x,
    learn_tails,
    no_tails,
    score_in_x,
    transport_draws,
    transported_gradient,
)
from stanadapt.run.warmup import warm_up
from stanadapt.target import log_density_gradient

D = 3
TAILS = Tails(np.array([0, 2]), np.array([1.0, -3.0]), np.array([0.7, 2.5]))
PROGRAM = """
parameters { vector[3] x; }
model { x ~ cauchy(1, 2); x[1] ~ normal(x[2] * x[3], 4); }
"""


@pytest.fixture(scope="module")
def target() -> Any:
    posterior = stanadapt.Posterior(PROGRAM)
    return posterior.model.target(), posterior


def difference(function: Any, z: np.ndarray, h: float = 1e-6) -> np.ndarray:
    """The gradient of `function` by central differences."""
    steps = h * np.eye(len(z))
    return np.array([(function(z + step) - function(z - step)) / (2 * h) for step in steps])


@pytest.mark.parametrize("seed", range(5))
def test_density_and_score_against_their_definition(target: Any, seed: int) -> None:
    kernels, _ = target
    z = np.random.default_rng(seed).normal(scale=1.5, size=D)

    def x_of(point: np.ndarray) -> np.ndarray:
        x = np.empty(D)
        into_x(TAILS, point, x)
        return x

    jacobian = np.array([difference(lambda point, i=i: x_of(point)[i], z) for i in range(D)])
    score, score_x = np.empty(D), np.empty(D)
    logp = transported_gradient(kernels, TAILS, z, score)
    logp_x = log_density_gradient(kernels, x_of(z), score_x)
    assert logp == pytest.approx(logp_x + np.linalg.slogdet(jacobian)[1], rel=1e-7)

    def density(point: np.ndarray) -> float:
        return float(transported_gradient(kernels, TAILS, point, np.empty(D)))

    np.testing.assert_allclose(score, difference(density, z), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(score_in_x(TAILS, z, score), score_x, rtol=1e-9, atol=1e-12)


def test_rows_are_mapped_like_points(target: Any) -> None:
    kernels, _ = target
    z = np.random.default_rng(1).normal(size=(4, D))
    x, scores, scores_z = np.empty((4, D)), np.empty((4, D)), np.empty((4, D))
    for i in range(4):
        into_x(TAILS, z[i], x[i])
        log_density_gradient(kernels, x[i], scores[i])
        transported_gradient(kernels, TAILS, z[i], scores_z[i])
    found, found_scores = transport_draws(TAILS, x, scores)
    np.testing.assert_allclose(found, z, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found_scores, scores_z, rtol=1e-9, atol=1e-12)


def test_without_heavy_tails_nothing_is_changed(target: Any) -> None:
    kernels, _ = target
    z, score, plain = np.array([0.3, -2.0, 5.0]), np.empty(D), np.empty(D)
    assert transported_gradient(kernels, no_tails(), z, score) == log_density_gradient(kernels, z, plain)
    np.testing.assert_array_equal(score, plain)
    x = np.empty(D)
    assert into_x(no_tails(), z, x) == 0.0
    np.testing.assert_array_equal(x, z)


def test_change_of_coordinates_keeps_the_place(target: Any) -> None:
    kernels, _ = target
    other = Tails(np.array([1]), np.array([0.5]), np.array([1.1]))
    z, score = np.array([0.2, 1.0, -0.4]), np.empty(D)
    logp = transported_gradient(kernels, TAILS, z, score)
    moved, logp_moved, score_moved = change_coordinates(TAILS, other, z, logp, score)
    x, x_moved, wanted = np.empty(D), np.empty(D), np.empty(D)
    into_x(TAILS, z, x)
    into_x(other, moved, x_moved)
    np.testing.assert_allclose(x_moved, x, rtol=1e-12)
    assert logp_moved == pytest.approx(transported_gradient(kernels, other, moved, wanted))
    np.testing.assert_allclose(score_moved, wanted, rtol=1e-9)


def test_a_place_that_overflows_has_no_density(target: Any) -> None:
    kernels, _ = target
    for far in (1e4, -1e4, np.inf, np.nan):
        assert transported_gradient(kernels, TAILS, np.array([far, 0.0, 0.0]), np.empty(D)) == -np.inf


def draws_of(law: Any, score: Any, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    x = law.rvs(size=(n, 2), random_state=np.random.default_rng(seed))
    return x, score(x)


HEAVY = {
    "cauchy": (stats.cauchy(), lambda x: -2 * x / (1 + x**2)),
    "t1.5": (stats.t(1.5), lambda x: -2.5 * x / (1.5 + x**2)),
}
LIGHT = {
    "normal": (stats.norm(3, 2), lambda x: -(x - 3) / 4),
    "laplace": (stats.laplace(), lambda x: -np.sign(x)),
    "logistic": (stats.logistic(), lambda x: -np.tanh(x / 2)),
    "gumbel": (stats.gumbel_r(), lambda x: np.exp(-x) - 1),
    "log-gamma": (stats.loggamma(0.5), lambda x: 0.5 - np.exp(x)),
    "t30": (stats.t(30), lambda x: -31 * x / (30 + x**2)),
}


@pytest.mark.parametrize("name", HEAVY)
def test_heavy_tails_are_seen_in_a_window(name: str) -> None:
    """In eight of ten coordinates from 156 independent draws."""
    found = [learn_tails(no_tails(), *draws_of(*HEAVY[name], 156, seed)).places.size for seed in range(50)]
    assert np.mean(found) > 2 * 0.8


@pytest.mark.parametrize("n", [45, 70, 156])
@pytest.mark.parametrize("name", LIGHT)
def test_light_tails_are_left_alone(name: str, n: int) -> None:
    found = [learn_tails(no_tails(), *draws_of(*LIGHT[name], n, seed)).places.size for seed in range(100)]
    assert np.sum(found) <= 1


def test_strong_correlation_is_no_heavy_tail() -> None:
    cov = np.array([[1.0, 0.999], [0.999, 1.0]])
    for seed in range(100):
        x = np.random.default_rng(seed).multivariate_normal(np.zeros(2), cov, size=100)
        assert learn_tails(no_tails(), x, -x @ np.linalg.inv(cov)).places.size == 0


def test_a_rate_that_serves_stays() -> None:
    first = learn_tails(no_tails(), *draws_of(*HEAVY["cauchy"], 156, 1))
    again = learn_tails(first, *draws_of(*HEAVY["cauchy"], 156, 2))
    np.testing.assert_array_equal(again.places, first.places)
    np.testing.assert_array_equal(again.rates, first.rates)


def test_frozen_chain_leaves_a_heavy_tailed_law_as_it_is() -> None:
    """Exact draws stay exact under the kernel with coordinates that were learnt, in the tails too."""
    posterior = stanadapt.Posterior("parameters { vector[2] x; } model { x ~ cauchy(1, 2); }")
    law, rng = stats.cauchy(1, 2), np.random.default_rng(3)
    sampler, settings = resolve("fisher_hmc", {})
    target = posterior.model.target()
    driver = warm_up(sampler, settings, target, np.ones(2), rng, 600)
    state = driver.finish()
    assert state.tails.places.size == 2
    n, end, moved = 4_000, [], 0
    trace = driver.room(10)
    for x in law.rvs(size=(n, 2), random_state=rng):
        z, _ = transport_draws(state.tails, x[None], np.zeros((1, 2)))
        score = np.empty(2)
        logp = transported_gradient(target, state.tails, z[0], score)
        sampler.sweep(target, settings, state._replace(x=z[0], logp=logp, score=score), rng, False, trace)
        end.append(trace.x[-1].copy())
        moved += bool(trace.accepted.any())
    assert moved > 0.99 * n
    uniform = law.cdf(np.array(end))
    for column in uniform.T:
        assert stats.kstest(column, "uniform").pvalue > 0.001
        assert stats.binomtest(int((column > 0.99).sum()), n, 0.01).pvalue > 0.001
        assert stats.binomtest(int((column < 0.01).sum()), n, 0.01).pvalue > 0.001
