"""Draws and scores show which coordinates have heavy tails."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from stanadapt.transport.tail import Tails, learn_tails, tail_rows, tail_slopes, tails_of

NONE = Tails(np.zeros(0, np.int64), np.zeros(0), np.zeros(0))


def test_tails_are_rows_of_a_map():
    tails = Tails(np.array([0, 2]), np.array([1.0, -3.0]), np.array([0.7, 2.5]))
    for one, other in zip(tails_of(tail_rows(tails)), tails, strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_is_moved_is_left_alone():
    x, s = draws_of(*HEAVY["cauchy"], 156, 1)
    assert learn_tails(NONE, x, s).places.size == 2
    assert learn_tails(NONE, x, s, np.array([1])).places.tolist() == [0]


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
    """156 independent draws show them in eight of ten coordinates."""
    found = [learn_tails(NONE, *draws_of(*HEAVY[name], 156, seed)).places.size for seed in range(50)]
    assert np.mean(found) > 2 * 0.8


@pytest.mark.parametrize("n", [45, 70, 156])
@pytest.mark.parametrize("name", LIGHT)
def test_light_tails_are_left_alone(name: str, n: int) -> None:
    found = [learn_tails(NONE, *draws_of(*LIGHT[name], n, seed)).places.size for seed in range(100)]
    assert np.sum(found) <= 1


def test_strong_correlation_is_no_heavy_tail() -> None:
    cov = np.array([[1.0, 0.999], [0.999, 1.0]])
    for seed in range(100):
        x = np.random.default_rng(seed).multivariate_normal(np.zeros(2), cov, size=100)
        assert learn_tails(NONE, x, -x @ np.linalg.inv(cov)).places.size == 0


def test_a_rate_that_serves_stays() -> None:
    first = learn_tails(NONE, *draws_of(*HEAVY["cauchy"], 156, 1))
    again = learn_tails(first, *draws_of(*HEAVY["cauchy"], 156, 2))
    np.testing.assert_array_equal(again.places, first.places)
    np.testing.assert_array_equal(again.rates, first.rates)


@pytest.mark.parametrize("n", [50, 51])
def test_the_slope_by_which_tails_are_suspected(n: int) -> None:
    rng = np.random.default_rng(n)
    points, scores = rng.standard_t(2, size=(n, 3)), rng.normal(size=(n, 3))
    u, s = points - np.median(points, axis=0), scores - scores.mean(axis=0)
    variance, information = np.square(u).mean(axis=0), np.square(s).mean(axis=0)
    wanted = (np.square(u * s).mean(axis=0) - 2.0) / (information * variance)
    wanted -= np.square(u * u).mean(axis=0) / (3.0 * np.square(variance))
    np.testing.assert_allclose(tail_slopes(points, scores), wanted, rtol=1e-12)
