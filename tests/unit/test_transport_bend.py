"""Draws and scores show which coordinates have one long tail, and the law of a bend."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from cases import partly_thorough
from stanadapt.transport.bend import Bend, bend, bend_rows, bends_of, learn_bends, unbend
from stanadapt.transport.composition import points_in_z, transport_draws
from stanadapt.transport.fields.head_law import LOWEST, fit_bend

NOBODY = np.zeros(0, np.int64)


def draws_of(law: Any, score: Any, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    x = law.rvs(size=(n, 2), random_state=np.random.default_rng(seed))
    return x, score(x)


def log_scale_score(x: np.ndarray) -> np.ndarray:
    return 1.0 - np.exp(2.0 * x)


class LogHalfNormal:
    """The log of the absolute value of a standard normal variable."""

    def rvs(self, size: tuple[int, int], random_state: np.random.Generator) -> np.ndarray:
        return np.log(np.abs(random_state.normal(size=size)))


LONG = {
    "log-gamma(1/2)": (stats.loggamma(0.5), lambda x: 0.5 - np.exp(x), -1.0),
    "log-gamma(1)": (stats.loggamma(1.0), lambda x: 1.0 - np.exp(x), -1.0),
    "gumbel": (stats.gumbel_r(), lambda x: np.exp(-x) - 1, 1.0),
    "log of a half-normal": (LogHalfNormal(), log_scale_score, -1.0),
}
SYMMETRIC = {
    "normal": (stats.norm(3, 2), lambda x: -(x - 3) / 4),
    "laplace": (stats.laplace(), lambda x: -np.sign(x)),
    "logistic": (stats.logistic(), lambda x: -np.tanh(x / 2)),
    "t5": (stats.t(5), lambda x: -6 * x / (5 + x**2)),
    "log-gamma(50)": (stats.loggamma(50.0), lambda x: 50.0 - np.exp(x)),
}


def divergence(x: np.ndarray, s: np.ndarray) -> np.ndarray:
    return np.asarray(0.5 * np.log(x.var(axis=0) * s.var(axis=0)))


def test_bends_are_rows_of_a_map() -> None:
    bends = [Bend(0, 1.0, 0.5, 0.3, -1.0, 4.0), Bend(7, -2.0, 8.0, 2.0, 1.0, 3.0)]
    assert bends_of(bend_rows(bends)) == bends


@pytest.mark.parametrize("name", partly_thorough(LONG, ("log-gamma(1/2)", "gumbel")))
def test_one_long_tail_is_seen_in_a_window_and_made_normal(name: str) -> None:
    """100 draws show it in nine of ten coordinates; a quarter of the divergence is left in other draws."""
    law, score, side = LONG[name]
    found = [learn_bends([], *draws_of(law, score, 100, seed), NOBODY) for seed in range(40)]
    assert np.mean([len(bends) for bends in found]) > 2 * 0.9
    assert {one.side for bends in found for one in bends} == {side}
    x, s = draws_of(law, score, 20_000, 100)
    left = []
    for bends in found:
        z, s_z = transport_draws(bend_rows(bends), x, s)
        left += [divergence(z, s_z)[one.place] / divergence(x, s)[one.place] for one in bends]
    assert np.mean(left) < 0.25
    assert max(left) < 1.0


@pytest.mark.parametrize("n", [45, 70, 156])
@pytest.mark.parametrize("name", SYMMETRIC)
def test_two_like_tails_are_left_alone(name: str, n: int) -> None:
    """Only a few of 200 coordinates get a bend; where a score jumps, few draws tell its curvature."""
    found = [learn_bends([], *draws_of(*SYMMETRIC[name], n, seed), NOBODY) for seed in range(100)]
    assert sum(map(len, found)) <= (12 if name == "laplace" else 5)


def test_what_is_changed_already_is_left_alone() -> None:
    x, s = draws_of(*LONG["log-gamma(1)"][:2], 156, 1)
    assert [one.place for one in learn_bends([], x, s, NOBODY)] == [0, 1]
    assert [one.place for one in learn_bends([], x, s, np.array([1]))] == [0]


def test_draws_that_are_skew_by_chance_are_no_long_tail() -> None:
    """The scores show a normal law before the draws do: a chain may be on its way."""
    for seed in range(50):
        rng = np.random.default_rng(seed)
        x = -rng.exponential(size=(100, 2))
        assert not learn_bends([], x, -x + 0.3 * rng.normal(size=x.shape), NOBODY)


def test_a_ridge_is_not_bent() -> None:
    """Two coordinates stay as they are if their sum has a long tail and their difference is small.

    A bend of one coordinate alone would also bend the ridge between them.
    """
    found = []
    for seed in range(50):
        rng = np.random.default_rng(seed)
        total, gap = stats.loggamma(0.5).rvs(size=120, random_state=rng), 0.5 * rng.normal(size=120)
        along, across = 0.5 * (0.5 - np.exp(total)), gap / 0.5
        x, s = (
            np.stack([total + gap, total - gap], axis=1),
            np.stack([along - across, along + across], axis=1),
        )
        found.append(learn_bends([], x, s, NOBODY))
    assert sum(map(len, found)) <= 2  # of 100


def test_a_bend_that_serves_stays_and_another_one_goes() -> None:
    first = learn_bends([], *draws_of(*LONG["log-gamma(1)"][:2], 156, 1), NOBODY)
    assert learn_bends(first, *draws_of(*LONG["log-gamma(1)"][:2], 156, 2), NOBODY) == first
    assert learn_bends(first, *draws_of(*SYMMETRIC["normal"], 156, 2), NOBODY) == []


def test_a_bend_reaches_beyond_the_draws_and_no_farther() -> None:
    x, s = draws_of(*LONG["log-gamma(1)"][:2], 156, 1)
    for one in learn_bends([], x, s, NOBODY):
        last = unbend((x[:, one.place].min() - one.knot) / (one.side * one.width), one.strength, one.reach)
        assert 1.0 < one.reach - last < 2.5
        slopes = [bend(t, one.strength, one.reach)[1] for t in (one.reach + 10.0, one.reach + 1_000.0)]
        np.testing.assert_allclose(slopes, 1.0 + one.strength * one.reach, rtol=1e-3)


@pytest.mark.parametrize("strength", [0.0, 0.125, 1.0, 8.0, 100.0])
@pytest.mark.parametrize("reach", [0.5, 5.0, np.inf])
def test_unbend_is_the_inverse(strength: float, reach: float) -> None:
    for t in np.concatenate((np.linspace(-40.0, 40.0, 401), [-1e6, 1e6])):
        assert unbend(bend(t, strength, reach)[0], strength, reach) == pytest.approx(t, rel=1e-10, abs=1e-10)


@pytest.mark.parametrize("shape", [0.05, 0.1, 0.5, 1.0])
def test_a_bend_that_is_fitted_to_a_log_density_makes_a_law_nearly_normal(shape: float) -> None:
    """Of log-gamma variables: the smaller the shape, the longer the left tail beside the steep right end."""
    middle, spread = np.log(shape), shape**-0.5
    reaches = np.array([1.0, 2.0, 3.0, 4.5, 6.5, 9.5, 14.0, 21.0, 32.0])
    at = middle + spread * np.concatenate(([0.0], -reaches, reaches))
    heights = shape * at - np.exp(at)
    heights -= heights[0]
    kept = heights > -LOWEST - 1.0
    fitted = fit_bend(at[kept], heights[kept], 0, spread)
    assert fitted is not None
    draws = stats.loggamma(shape).rvs(size=(20_000, 1), random_state=np.random.default_rng(1))
    z = points_in_z(bend_rows([fitted[0]], apart=True), draws)[:, 0]
    assert stats.skew(draws[:, 0]) < -1.1
    assert abs(stats.skew(z)) < 0.3
    assert abs(stats.kurtosis(z)) < 0.8
    assert fitted[1] == pytest.approx(z.std(), rel=0.25)
