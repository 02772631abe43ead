"""Every law of coordinates has the same functions; these tests hold each function against its definition.

The tests treat the skeleton, which CONTRIBUTING.md tells people to copy, like the laws.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from stanadapt.transport import _law_skeleton, bend, composition, direction, error_scale, group, ridge, tail
from stanadapt.transport.map_table import KIND, OWN
from stanadapt.transport.training import Training

N = 400
Draw = Callable[[np.random.Generator], tuple[np.ndarray, np.ndarray]]


def shifted(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    x = 3.0 + 5.0 * rng.normal(size=(N, 1))
    return x, -(x - 3.0) / 25.0


def heavy(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    x = rng.standard_t(1.0, size=(N, 1))
    return x, -2.0 * x / (1.0 + x * x)


def skew(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The logarithm of an exponential variable."""
    e = rng.exponential(size=(N, 1))
    return np.log(e), 1.0 - e


def funnel(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    u, w = rng.normal(size=(N, 1)), rng.normal(size=(N, 5))
    score_u = -u + np.square(w).sum(axis=1, keepdims=True) - 5.0
    return np.hstack((u, np.exp(u) * w)), np.hstack((score_u, -np.exp(-u) * w))


def cone(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A number, and a unit vector of three coordinates that is near (1, 2, 2) / 3."""
    u, pole = rng.normal(size=(N, 1)), np.array([1.0, 2.0, 2.0]) / 3.0
    directions = pole + 0.1 * rng.normal(size=(N, 3))
    directions /= np.sqrt(np.square(directions).sum(axis=1, keepdims=True))
    x = directions * np.sqrt(rng.chisquare(3.0, size=(N, 1)))
    lengths = np.sqrt(np.square(x).sum(axis=1, keepdims=True))
    pull = 100.0 * (pole - (directions @ pole)[:, None] * directions) / lengths
    return np.hstack((u, x)), np.hstack((-u, pull - x))


def parabola(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A location of second order and noise that is Student's t, so that the law is not exact."""
    a, e = rng.normal(size=(N, 1)), 0.3 * rng.standard_t(8.0, size=(N, 1))
    pull = -9.0 * e / (8.0 * 0.09 + e * e)
    return np.hstack((a, a * a + e)), np.hstack((-a - 2.0 * a * pull, pull))


def regression(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The log of an error and three coefficients around 1, 2 and 3, which vary with it."""
    v, w = 0.4 * rng.normal(size=(N, 1)), rng.normal(size=(N, 3))
    score_v = -v / 0.16 + np.square(w).sum(axis=1, keepdims=True) - 3.0
    return np.hstack((v, [1.0, 2.0, 3.0] + np.exp(v) * w)), np.hstack((score_v, -np.exp(-v) * w))


# Independent draws and scores of a target that suits the law; the first variable has one coordinate.
CASES: dict[ModuleType, Draw] = {
    _law_skeleton: shifted,
    direction: cone,
    tail: heavy,
    bend: skew,
    error_scale: regression,
    ridge: parabola,
    group: funnel,
}
LAWS = [*composition.LAWS, _law_skeleton]


def training(law: ModuleType, seed: int = 1) -> Training:
    points, scores = CASES[law](np.random.default_rng(seed))
    variables = np.array([0, *[1] * (points.shape[1] - 1)])
    return Training(points, scores, variables, 0, True, np.zeros(0, np.int64), set())


def learned(law: ModuleType) -> np.ndarray:
    rows = law.learn(np.empty((0, composition.COLUMNS)), training(law))
    assert len(rows), "the law does not see what it is made for"
    return rows


def x_of(law: ModuleType, rows: np.ndarray, z: np.ndarray) -> tuple[np.ndarray, float]:
    """x (d,) and log |dx/dz|."""
    x, log_det, k = z.copy(), 0.0, 0
    while k < len(rows):
        log_det, k = law.into_x(rows, k, z, x, log_det)
    return x, log_det


def z_of(law: ModuleType, rows: np.ndarray, x: np.ndarray) -> np.ndarray:
    """z (d,)."""
    z, k = x.copy(), 0
    while k < len(rows):
        k = law.into_z(rows, k, x, z)
    return z


def differences(function: Callable[[np.ndarray], Any], z: np.ndarray, h: float = 1e-6) -> np.ndarray:
    """The derivatives of `function`; the last axis belongs to z."""
    steps = h * np.eye(len(z))
    return np.stack([(function(z + step) - function(z - step)) / (2 * h) for step in steps], axis=-1)


@pytest.fixture(params=LAWS, ids=lambda law: law.__name__.rpartition(".")[2])
def law(request: pytest.FixtureRequest) -> ModuleType:
    return request.param


def test_every_law_has_its_own_kinds(law: ModuleType) -> None:
    others = [kind for other in LAWS if other is not law for kind in other.KINDS]
    assert not set(law.KINDS) & set(others)
    assert set(learned(law)[:, KIND]) <= set(law.KINDS)


def test_what_is_learned_is_a_map(law: ModuleType) -> None:
    rows, d = learned(law), training(law).points.shape[1]
    assert law.are_valid(rows, d)
    if law is not _law_skeleton:
        assert composition.is_map(rows, d)
    described = law.describe(rows, d)
    assert described
    assert all(values.shape == (d,) for values in described.values())


@pytest.mark.parametrize("one", [law for law in LAWS if law is not group], ids=lambda law: law.__name__)
def test_coordinates_that_another_law_moves_are_left_alone(one: ModuleType) -> None:
    """Groups are learned before all others, so that none is taken from them."""
    given = training(one)
    taken = given._replace(taken=np.arange(given.points.shape[1]))
    assert not len(one.learn(np.empty((0, composition.COLUMNS)), taken))


@pytest.mark.parametrize("seed", range(3))
def test_log_determinant_and_inverse(law: ModuleType, seed: int) -> None:
    rows, d = learned(law), training(law).points.shape[1]
    z = np.random.default_rng(seed).normal(size=d)
    x, log_det = x_of(law, rows, z)
    jacobian = differences(lambda point: x_of(law, rows, point)[0], z)
    assert log_det == pytest.approx(np.linalg.slogdet(jacobian)[1], abs=1e-6)
    np.testing.assert_allclose(z_of(law, rows, x), z, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_scores_are_the_gradient_of_the_density_there(law: ModuleType, seed: int) -> None:
    """For the density exp(-|x|²/2 + x_1)."""
    rows, d = learned(law), training(law).points.shape[1]
    z = 0.5 * np.random.default_rng(seed).normal(size=d)
    first = np.eye(d)[0]

    def log_density(point: np.ndarray) -> float:
        at, log_det = x_of(law, rows, point)
        return float(-0.5 * at @ at + at[0]) + log_det

    x, _ = x_of(law, rows, z)
    score, end = first - x, len(rows)
    while end > 0:
        end = law.pull_back(rows, end, z, x, score)
    np.testing.assert_allclose(score, differences(log_density, z), rtol=1e-5, atol=1e-5)
    k = 0
    while k < len(rows):
        k = law.score_in_x(rows, k, z, x, score)
    np.testing.assert_allclose(score, first - x, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("one", CASES, ids=lambda law: law.__name__.rpartition(".")[2])
def test_draws_and_scores_agree_better_where_the_law_is_learned(one: ModuleType) -> None:
    """In other draws than the law has learned from; a normal law gives 0, see grouping/groups.py."""
    rows, given = learned(one), training(one, seed=2)
    moved = rows[:, OWN].astype(np.int64)
    if one is _law_skeleton:  # a linear map changes no divergence
        z = np.stack([z_of(one, rows, x) for x in given.points])
        np.testing.assert_allclose([z.mean(), z.std()], [0.0, 1.0], atol=0.2)
        return
    after = divergence(*composition.transport_draws(rows, given.points, given.scores))[moved]
    assert (after < divergence(given.points, given.scores)[moved] - 0.1).all()
    assert (after < 0.5).all()


def divergence(points: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """log V(x) V(s) / 2 (d,)."""
    return 0.5 * np.log(points.var(axis=0) * scores.var(axis=0))


@pytest.mark.parametrize("one", composition.LAWS, ids=lambda law: law.__name__.rpartition(".")[2])
def test_a_map_hands_rows_to_their_law(one: ModuleType) -> None:
    rows, d = learned(one), training(one).points.shape[1]
    z = np.random.default_rng(4).normal(size=d)
    x, log_det = x_of(one, rows, z)
    whole = np.empty(d)
    assert composition.into_x(rows, z, whole) == log_det
    np.testing.assert_array_equal(whole, x)
