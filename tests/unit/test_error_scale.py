"""The law of coordinates with the scale of errors: when it is learned, and what other laws do beside it."""

from __future__ import annotations

import numpy as np
import pytest

from stanadapt.transport import bend, composition, error_scale
from stanadapt.transport.error_scale import ErrorScale, error_scale_rows, error_scales_of
from stanadapt.transport.grouping.groups import (
    Group,
    ScoredDraws,
    group_rows,
    groups_of,
    pull_draws,
    same_law,
)
from stanadapt.transport.map_table import COLUMNS, FLOOR, OWN, SCALE
from stanadapt.transport.training import Training

NONE = np.empty((0, COLUMNS))


def training(points: np.ndarray, scores: np.ndarray, variables: list[int]) -> Training:
    none = np.zeros(0, np.int64)
    return Training(points, scores, np.array(variables), 0, True, none, set())


def regression(
    seed: int, n: int = 60, d: int = 5, observations: int = 30, slope: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Draws and scores (n, d + 1) of correlated coefficients and of v; slope * v is the log of the error."""
    rng = np.random.default_rng(seed)
    v = np.log(rng.gamma(0.5 * observations, 2.0 / observations, size=(n, 1))) / (-2.0 * slope)
    mixed = np.eye(d) + 0.5 * np.random.default_rng(1).normal(size=(d, d))
    w = rng.normal(size=(n, d))
    points = np.hstack((np.arange(d) + np.exp(slope * v) * (w @ mixed.T), v))
    scores = -np.exp(-slope * v) * (w @ np.linalg.inv(mixed))
    rate = slope * (observations * np.expm1(-2.0 * slope * v) + np.square(w).sum(axis=1, keepdims=True) - d)
    return points, np.hstack((scores, rate))


@pytest.mark.parametrize("slope", [1.0, 0.5, -0.5])
@pytest.mark.parametrize("seed", range(10))
def test_the_scale_of_a_regression_is_found(seed: int, slope: float) -> None:
    points, scores = regression(seed, slope=slope)
    rows = error_scale.learn(NONE, training(points, scores, [0] * 5 + [1]))
    (law,) = error_scales_of(rows)
    assert (law.scale, law.slope, law.members.tolist()) == (5, slope, [0, 1, 2, 3, 4])
    assert composition.is_map(rows, 6)


@pytest.mark.parametrize("seed", range(10))
def test_the_score_of_the_scale_then_depends_on_it_alone(seed: int) -> None:
    """The law is learned from other draws; a cubic in v leaves nothing of the score of v."""
    points, scores = regression(seed)
    rows = error_scale.learn(NONE, training(points, scores, [0] * 5 + [1]))
    points, scores = regression(100 + seed, n=400)
    left = []
    for x, s in ((points, scores), composition.transport_draws(rows, points, scores)):
        fit = np.polynomial.Polynomial.fit(x[:, 5], s[:, 5], 3)
        left.append(np.var(s[:, 5] - fit(x[:, 5])) / np.var(s[:, 5]))
    assert left[0] > 0.1
    assert left[1] < 0.1 * left[0]


@pytest.mark.parametrize("seed", range(50))
def test_independent_coordinates_have_no_law(seed: int) -> None:
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(45, 8)) * np.array([1.0, 2.0, 0.3, 1.0, 1.0, 0.2, 0.1, 5.0])
    scores = -points / np.square([1.0, 2.0, 0.3, 1.0, 1.0, 0.2, 0.1, 5.0])
    scores += 0.5 * rng.standard_t(4.0, size=points.shape) * scores.std(axis=0)
    assert not len(error_scale.learn(NONE, training(points, scores, [0, 0, 0, 0, 0, 1, 2, 3])))


def test_a_scale_that_correlates_with_coefficients_is_found() -> None:
    """The score of v has a part that is linear in those of the coefficients, and larger than the sum."""
    points, scores = regression(5, n=80, observations=100)
    given = training(points.copy(), scores.copy(), [0] * 5 + [1])
    given.points[:, :5] += 2.0 * given.points[:, 5:]  # x + a v has the scores s_x, and s_v - a sum s_x
    given.scores[:, 5] -= 2.0 * scores[:, :5].sum(axis=1)
    (law,) = error_scales_of(error_scale.learn(NONE, given))
    assert (law.scale, law.slope, len(law.members)) == (5, 1.0, 5)


def test_slopes_that_are_not_plain_enough_are_refused() -> None:
    """Three coefficients have b = 1.3, which no error has. Without them the law would leave too much."""
    points, scores = regression(8)
    pulls = scores[:, :5] * (points[:, :5] - points[:, :5].mean(axis=0)) + 1.0
    scores[:, 5] -= 0.3 * pulls[:, 2:].sum(axis=1)
    assert not len(error_scale.learn(NONE, training(points, scores, [0] * 2 + [1] * 3 + [2])))


def test_a_coordinate_that_another_law_moves_is_no_scale_but_may_have_one() -> None:
    points, scores = regression(3)
    given = training(points, scores, [0] * 5 + [1])
    assert not len(error_scale.learn(NONE, given._replace(taken=np.array([5]))))
    assert len(error_scale.learn(NONE, given._replace(taken=np.array([0, 1])))) == 5


def test_the_last_window_brings_no_law_and_keeps_those_in_use() -> None:
    points, scores = regression(4)
    given = training(points, scores, [0] * 5 + [1])
    rows = error_scale.learn(NONE, given)
    assert not len(error_scale.learn(NONE, given._replace(new=False)))
    np.testing.assert_array_equal(error_scale.learn(rows, given._replace(new=False)), rows)


def test_the_scale_is_found_among_many_parameters() -> None:
    """Thirty other variables of one coordinate each might be the scale, too."""
    (points, scores), rng = regression(9, n=120), np.random.default_rng(9)
    others = rng.normal(size=(120, 30))
    points, scores = np.hstack((others, points)), np.hstack((-others, scores))
    rows = error_scale.learn(NONE, training(points, scores, [*range(30), *[30] * 5, 31]))
    (law,) = error_scales_of(rows)
    assert (law.scale, law.members.tolist()) == (35, [30, 31, 32, 33, 34])


def test_two_scales_have_a_law_each() -> None:
    one, other = regression(5, d=3), regression(6, d=4)
    points, scores = (np.hstack(parts) for parts in zip(one, other, strict=True))
    rows = error_scale.learn(NONE, training(points, scores, [0] * 3 + [1] + [2] * 4 + [3]))
    found = sorted((law.scale, law.members.tolist()) for law in error_scales_of(rows))
    assert found == [(3, [0, 1, 2]), (8, [4, 5, 6, 7])]


_PLACE, _NUMBERS = (np.array([4]), 1.0), (np.array([0.1, -0.2]), np.array([0.5, -1.0]))
GROUP = Group(np.array([2, 3]), np.array([6]), 1.0, -1, 0.0, *_PLACE, 0.0, *_NUMBERS)
WITH_ERROR = [GROUP._replace(beta=beta, slope=2.0, error=7, middle=0.3) for beta in (1.0, -1.0)]


def maps() -> dict[str, np.ndarray]:
    """Maps of eight coordinates: 7 is a scale of errors, 6 that of a group."""
    points = np.random.default_rng(8).normal(size=(50, 8))
    laws = [ErrorScale(7, 1.0, np.array([0, 1, 2, 3])), ErrorScale(7, -0.5, np.array([4]))]
    scaled = error_scale_rows(laws, points)
    in_part = error_scale_rows([law._replace(floor=0.3) for law in laws], points)
    one = group_rows([GROUP], points)
    bends = bend.bend_rows([bend.Bend(0, 0.1, 0.5, 0.7, -1.0, 4.0), bend.Bend(7, 0.2, 0.3, 0.5, 1.0, np.inf)])
    return {
        "alone": scaled,
        "in part": in_part,
        "with bends": np.concatenate((bends, scaled)),
        "before a group": np.concatenate((scaled, one)),
        "between bends and a group": np.concatenate((bends, scaled, one)),
        "in part, between bends and a group": np.concatenate((bends, in_part, one)),
        "a group with an error": group_rows([WITH_ERROR[0]], points),
        "a group that is not centred, with an error": np.concatenate(
            (bends, group_rows(WITH_ERROR[1:], points))
        ),
    }


@pytest.mark.parametrize("name", maps())
@pytest.mark.parametrize("seed", range(3))
def test_laws_one_after_another_have_their_determinant_inverse_and_scores(name: str, seed: int) -> None:
    rows = maps()[name]
    assert composition.is_map(rows, 8)
    rng = np.random.default_rng(seed)
    z, weights = 0.7 * rng.normal(size=8), rng.normal(size=8)

    def x_of(point: np.ndarray) -> tuple[np.ndarray, float]:
        x = np.empty(8)
        return x, composition.into_x(rows, point, x)

    def log_density(point: np.ndarray) -> float:
        x, log_det = x_of(point)
        return float(weights @ x - 0.5 * x @ x) + log_det

    steps = 1e-6 * np.eye(8)
    jacobian = np.stack([(x_of(z + step)[0] - x_of(z - step)[0]) / 2e-6 for step in steps], axis=1)
    x, log_det = x_of(z)
    assert log_det == pytest.approx(np.linalg.slogdet(jacobian)[1], abs=1e-6)
    back = np.empty(8)
    composition.into_z(rows, x, back)
    np.testing.assert_allclose(back, z, atol=1e-10)
    slopes = [(log_density(z + step) - log_density(z - step)) / 2e-6 for step in steps]
    kept = np.empty(composition.n_kept(rows, 8))
    composition.into_x_keeping(rows, z, x, kept)
    for arguments in ((), (kept,)):
        score = weights - x
        pull_back = composition.pull_back_kept if arguments else composition.pull_back
        pull_back(rows, z, x, score, *arguments)
        np.testing.assert_allclose(score, slopes, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(composition.score_in_x(rows, z, x, score), weights - x, atol=1e-9)


@pytest.mark.parametrize("name", maps())
def test_what_is_no_map_is_refused(name: str) -> None:
    rows = maps()[name]
    own_scale = rows.copy()
    own_scale[:, SCALE] = rows[-1, OWN]
    assert not composition.is_map(own_scale, 8)
    assert not composition.is_map(rows[::-1], 8)
    assert not composition.is_map(np.concatenate((rows, rows)), 8)


@pytest.mark.parametrize("floor", [-0.1, 1.0, np.nan])
def test_a_part_that_is_no_share_is_refused(floor: float) -> None:
    rows = maps()["in part"]
    assert [law.floor for law in error_scales_of(rows)] == [0.3, 0.3]
    rows[-1, FLOOR] = floor
    assert not composition.is_map(rows, 8)


@pytest.mark.parametrize("one", WITH_ERROR, ids=["centred", "not centred"])
def test_a_group_with_an_error_is_the_same_in_rows_and_where_it_is_learned(one: Group) -> None:
    rng = np.random.default_rng(11)
    points, scores = rng.normal(size=(2, 30, 8))
    rows = group_rows([one], points)
    (again,) = groups_of(rows)
    for name, value in one._asdict().items():
        np.testing.assert_allclose(getattr(again, name), value, atol=1e-12, err_msg=name)
    assert not same_law(rows, group_rows([one._replace(error=-1)], points))
    z, score_z = composition.transport_draws(rows, points, scores)
    undone = pull_draws(ScoredDraws(points, scores), [one])
    units = undone.points[:, one.members] / z[:, one.members]
    np.testing.assert_allclose(units, np.broadcast_to(units[:1], units.shape))  # a map keeps the unit of x
    others = [0, 1, 4, 5, 6, 7]
    np.testing.assert_allclose(undone.points[:, others], z[:, others])
    np.testing.assert_allclose(undone.scores[:, others], score_z[:, others])
