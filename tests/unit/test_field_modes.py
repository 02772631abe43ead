"""Modes of latents whose log density is quadratic, and features of differences of heads."""

from __future__ import annotations

import numpy as np
import pytest
from test_field_learning import DATA, START, UNIT, Trend, Walk, band, off_in_z, precision_of, quadratic

from densities import in_maps
from stanadapt.transport.field_table import field_of
from stanadapt.transport.fields import law_fit
from stanadapt.transport.fields.field_learning import learn_field
from stanadapt.transport.fields.laplace import mode_at
from stanadapt.transport.fields.precision import Precision
from stanadapt.transport.fields.probes import ScaledDensity, couple


def test_a_mode_of_normal_latents_takes_one_precision_of_one_sided_differences() -> None:
    walk = Walk(DATA)
    precision, x = precision_of(walk), START / UNIT
    assert mode_at(precision, np.array([-0.5]) / UNIT[0], x) is not None
    assert precision.quadratic
    before, theta = precision.density.gradients, 0.7
    mode = mode_at(precision, np.array([theta]) / UNIT[0], x)
    assert mode is not None
    assert precision.density.gradients - before == 2 + precision.cost // 2  # beside those of two points
    wanted = walk.precision(theta)
    np.testing.assert_allclose(mode.x[1:] * UNIT[1:], np.linalg.solve(wanted, DATA), atol=1e-6)
    scaled = (wanted * np.outer(UNIT[1:], UNIT[1:]))[np.ix_(precision.latents - 1, precision.latents - 1)]
    found = mode.factor.lower.toarray()
    np.testing.assert_allclose(found * mode.factor.pivots @ found.T, scaled, atol=1e-5 * np.abs(scaled).max())


def pulled(matrix: np.ndarray, quartic: float, pull: np.ndarray) -> Precision:
    """Of a quartic density, whose precision at x is A + q diag(x^2)."""
    n, bare = len(pull), quadratic(matrix, quartic)

    def evaluate(x: np.ndarray, score: np.ndarray) -> float:
        height = bare(x, score)
        score += pull
        return height + float(pull @ x)

    density = ScaledDensity(evaluate, np.ones(n))
    coupling = couple(density, np.ones(n), np.zeros(n, int))
    assert coupling is not None
    return Precision(density, coupling, np.zeros(0, np.int64))


def test_a_mode_of_other_latents_has_the_precision_at_the_mode() -> None:
    """The precision of a quartic density is another one where the search begins."""
    n, quartic = 20, 0.5
    matrix, pull = band(n, 1), np.linspace(1.0, 4.0, n)
    precision = pulled(matrix, quartic, pull)
    precision.quadratic = True  # as it would be after another mode
    mode = mode_at(precision, np.zeros(0), np.zeros(n))
    assert mode is not None
    assert not precision.quadratic
    wanted = (matrix + quartic * np.diag(mode.x**2))[np.ix_(precision.latents, precision.latents)]
    found = mode.factor.lower.toarray()
    np.testing.assert_allclose(found * mode.factor.pivots @ found.T, wanted, atol=0.05)
    np.testing.assert_allclose(mode.x, _mode(matrix, quartic, pull), atol=1e-2)


def test_a_mode_near_another_takes_one_precision() -> None:
    """It is approached with the factor of the other one, a gradient a step."""
    n, quartic = 60, 0.5
    matrix, pull = band(n, 1), np.linspace(1.0, 4.0, n)
    precision = pulled(matrix, quartic, pull)
    other = mode_at(precision, np.zeros(0), np.zeros(n))
    assert other is not None
    near, taken = other.x + 0.4 * np.cos(np.arange(n)), []
    for factor in (None, other.factor):
        before = precision.density.gradients
        mode = mode_at(precision, np.zeros(0), near, factor)
        taken.append(precision.density.gradients - before)
        assert mode is not None
        np.testing.assert_allclose(mode.x, _mode(matrix, quartic, pull), atol=1e-2)
    assert precision.cost < taken[1] < 2 * precision.cost < taken[0]


def _mode(matrix: np.ndarray, quartic: float, pull: np.ndarray) -> np.ndarray:
    x = np.zeros(len(pull))
    for _ in range(30):
        score = pull - matrix @ x - quartic * x**3 / 3.0
        x = x + np.linalg.solve(matrix + quartic * np.diag(x * x), score)
    return x


def test_differences_of_heads_make_the_law_of_a_sum_better(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a trend each observation is a level with noise, and each step of the level a slope with noise."""
    trend = Trend(25)
    d = 3 + 2 * trend.n
    start = np.append([-0.5, -1.5, 0.2], 0.3 * np.random.default_rng(4).normal(size=d - 3))
    errors = []
    for worth in (law_fit._WORTH, 0.0):
        monkeypatch.setattr(law_fit, "_WORTH", worth)
        learned, _ = learn_field(in_maps(trend), start, np.ones(d), np.array([0, 1, 2, *[3, 4] * trend.n]))
        assert learned is not None
        law = field_of(learned.rows)
        assert law_fit._has_differences(law) == (worth > 0.0)
        moves = np.random.default_rng(1).normal(size=(200, 3)) * learned.scale[:3]
        errors.append(np.median([off_in_z(trend, learned.rows, law.mid + move)[0] for move in moves]))
    assert errors[0] < 0.8 * errors[1]


def test_differences_are_left_out_where_they_do_not_help() -> None:
    """The heads of an autoregression, its coefficient and its log scale, are no scales of two parts."""
    n = 60
    noise = np.random.default_rng(5).normal(size=(2, n))
    data = noise[1] + [float(noise[0, : t + 1] @ 0.8 ** np.arange(t, -1, -1)) for t in range(n)]

    def evaluate(at: np.ndarray, score: np.ndarray) -> float:
        phi, unit, x = np.tanh(at[0]), np.exp(-2.0 * at[1]), at[2:]
        before = np.append(0.0, x[:-1])
        steps, misses, off = x - phi * before, data - x, at[:2] - (1.0, 0.0)
        score[0] = unit * (steps @ before) * (1.0 - phi**2) - off[0] / 0.25
        score[1] = unit * (steps @ steps) - n - off[1] / 0.25
        score[2:] = misses - unit * (steps - phi * np.append(steps[1:], 0.0))
        return float(-0.5 * (unit * steps @ steps + misses @ misses + off @ off / 0.25) - n * at[1])

    start, variables = np.append([0.5, 0.3], data), np.array([0, 1, *[2] * n])
    score = np.empty(n + 2)
    check = [evaluate(start + step, score) for step in 1e-6 * np.eye(n + 2)[:3]]
    height = evaluate(start, score)
    np.testing.assert_allclose((np.array(check) - height) / 1e-6, score[:3], rtol=1e-3, atol=1e-3)
    learned, _ = learn_field(in_maps(evaluate), start, np.ones(n + 2), variables)
    assert learned is not None
    law = field_of(learned.rows)
    np.testing.assert_array_equal(law.heads, [0, 1])
    assert not law_fit._has_differences(law)
