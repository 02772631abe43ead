"""Scores show which coordinates have a location of second order, and its numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from stanadapt.transport.composition import is_map, transport_draws
from stanadapt.transport.learning import learn_funnel, learn_transport
from stanadapt.transport.map_table import CENTER_A, OWN, PARENT_A, PARENT_B, REACH, no_transport
from stanadapt.transport.ridge import learn, learn_exact, ridge_rows, ridges_of
from stanadapt.transport.ridge_learning import learn_exact_ridges, learn_ridges
from stanadapt.transport.ridge_terms import Ridge, RidgeDraws, undo, undone_parts
from stanadapt.transport.training import Training

Drawn = tuple[np.ndarray, np.ndarray]
NOBODY = np.zeros(0, np.int64)


def given(drawn: Drawn, before: int = 0, new: bool = True, taken: np.ndarray = NOBODY) -> Training:
    points, scores = drawn
    return Training(points, scores, np.arange(points.shape[1]), before, new, taken, set())


def banana(rng: np.random.Generator, n: int) -> Drawn:
    a, e = 10.0 * rng.normal(size=n), rng.normal(size=n)
    points = np.stack((a, 0.03 * (a * a - 100.0) + e), axis=1)
    return points, np.stack((-a / 100.0 + 0.06 * a * e, -e), axis=1)


def rosenbrock(rng: np.random.Generator, n: int) -> Drawn:
    """18 pairs, all a first."""
    a, e = 1.0 + rng.normal(size=(n, 18)), rng.normal(size=(n, 18))
    pull = -e / np.sqrt(0.1)
    return np.hstack((a, a * a + np.sqrt(0.1) * e)), np.hstack((1.0 - a - 2.0 * a * pull, pull))


def product(rng: np.random.Generator, n: int) -> Drawn:
    (a, b, e), other = rng.normal(size=(3, n)), rng.normal(size=n)
    pull = -e / 0.2
    points = np.stack((other, a, a * b + 0.2 * e, b), axis=1)
    return points, np.stack((-other, -a - b * pull, pull, -b - a * pull), axis=1)


def chain(rng: np.random.Generator, n: int) -> Drawn:
    """b around a², and c around b² - 2 a b."""
    a, e, f = rng.normal(size=(3, n))
    b = a * a + 0.3 * e
    of_c, of_b = -f / 0.3, -e / 0.3
    score_b = of_b - (2.0 * b - 2.0 * a) * of_c
    score_a = -a - 2.0 * a * of_b + 2.0 * b * of_c
    return np.stack((b * b - 2.0 * a * b + 0.3 * f, a, b), axis=1), np.stack((of_c, score_a, score_b), axis=1)


def related(rng: np.random.Generator, n: int) -> Drawn:
    """Two children of one parent that correlate, given the parent."""
    a, e = rng.normal(size=n), rng.normal(size=(n, 2)) @ np.linalg.cholesky([[1.0, 0.9], [0.9, 1.0]]).T
    pulls = -e @ np.linalg.inv([[1.0, 0.9], [0.9, 1.0]])
    points = np.stack((a, a * a + e[:, 0], -0.5 * a * a + e[:, 1]), axis=1)
    return points, np.stack((-a - 2.0 * a * pulls[:, 0] + a * pulls[:, 1], *pulls.T), axis=1)


EXACT: dict[str, tuple[Callable[[np.random.Generator, int], Drawn], int, set[int]]] = {
    "banana": (banana, 15, {1}),
    "Rosenbrock's function": (rosenbrock, 100, set(range(18, 36))),
    "a product": (product, 60, {2}),
    "a chain": (chain, 60, {0, 2}),
    "children that correlate": (related, 60, {1, 2}),
}


def student(rng: np.random.Generator, n: int) -> Drawn:
    a, e = 10.0 * rng.normal(size=n), rng.standard_t(5.0, size=n)
    pull = -6.0 * e / (5.0 + e * e)
    points = np.stack((a, 0.03 * (a * a - 100.0) + e), axis=1)
    return points, np.stack((-a / 100.0 - 0.06 * a * pull, pull), axis=1)


def catenary(rng: np.random.Generator, n: int) -> Drawn:
    """A location that is not of second order."""
    a, e = rng.normal(size=(2, n))
    return np.stack((a, np.cosh(a) + 0.5 * e), axis=1), np.stack(
        (-a + 2.0 * np.sinh(a) * e, -2.0 * e), axis=1
    )


def correlated(rng: np.random.Generator, n: int) -> Drawn:
    """A normal law of 30 coordinates."""
    root = np.linalg.cholesky(0.3 * np.eye(30) + 0.7)
    w = rng.normal(size=(n, 30))
    return w @ root.T, -w @ np.linalg.inv(root)


def funnel(rng: np.random.Generator, n: int) -> Drawn:
    """The score of the scale is of second order in members, and they are not its parents."""
    v, w = 3.0 * rng.normal(size=n), rng.normal(size=(n, 9))
    score = -v / 9.0 - 4.5 + 0.5 * np.square(w).sum(axis=1)
    scale = np.exp(0.5 * v)[:, None]
    return np.column_stack((v, scale * w)), np.column_stack((score, -w / scale))


def skew(rng: np.random.Generator, n: int) -> Drawn:
    e = rng.gamma(3.0, size=(n, 8))
    return np.log(e), 3.0 - e


def regression(rng: np.random.Generator, n: int) -> Drawn:
    """Near the mode of a logistic regression with 5 coefficients; its curvature varies a little."""
    design = np.random.default_rng(7).normal(size=(200, 5))
    root = np.linalg.cholesky(np.linalg.inv(0.25 * design.T @ design))
    points = rng.normal(size=(n, 5)) @ root.T
    return points, (0.5 - 1.0 / (1.0 + np.exp(-points @ design.T))) @ design


@pytest.mark.parametrize("name", EXACT)
def test_exact_ridges_are_found_from_few_draws(name: str) -> None:
    """In every one of 20 sets; in other draws, z is standard but for scales, and independent."""
    draw, n, children = EXACT[name]
    for seed in range(20):
        rng = np.random.default_rng(seed)
        rows = learn_exact(np.empty((0, no_transport().shape[1])), given(draw(rng, n))).rows
        assert set(rows[:, OWN].astype(int)) == children
        assert np.isinf(rows[:, REACH]).all()
        points, scores = draw(rng, 1_000)
        assert is_map(rows, points.shape[1])
        z, pulls = transport_draws(rows, points, scores)
        precision = np.linalg.inv(np.cov(z.T))
        expected = -(z - z.mean(axis=0)) @ precision
        own = sorted(children)
        noise = np.square(pulls[:, own] - expected[:, own]).mean(axis=0)
        assert (
            np.max(noise / np.square(pulls[:, own]).mean(axis=0)) < 0.3
        )  # of 1,000 draws; without ridges it is over 10


def test_the_numbers_are_those_of_the_program_wherever_the_draws_are() -> None:
    """A chain on its way, far out in the tail of the banana, tells all of it."""
    rng = np.random.default_rng(1)
    a = 60.0 + rng.normal(size=30)
    b = 0.03 * (a * a - 100.0) + 3.0 + 0.5 * rng.normal(size=30)
    e = b - 0.03 * (a * a - 100.0)
    drawn = np.stack((a, b), axis=1), np.stack((-a / 100.0 + 0.06 * a * e, -e), axis=1)
    (found,) = learn_exact_ridges([], given(drawn)).ridges
    points = np.array([[-30.0, 0.0], [0.0, 0.0], [30.0, 0.0]])
    value = points[:, 1] - undo(RidgeDraws(points, points), found).points[:, 1]
    np.testing.assert_allclose(value - value[1], [27.0, 0.0, 27.0], atol=1e-6)


def test_a_chain_that_stands_still_shows_nothing() -> None:
    """Few points fit any law; and close to each other they make every law nearly of second order."""
    drawn = tuple(np.repeat(values[:5], 9, axis=0) for values in correlated(np.random.default_rng(1), 5))
    assert not learn_exact_ridges([], given(drawn)).ridges
    a, e = 1e-3 * np.random.default_rng(2).normal(size=(2, 40))
    near = np.stack((a, np.cosh(a) + e), axis=1), np.stack((-a + np.sinh(a) * e / 0.04, -e / 0.04), axis=1)
    assert not learn_exact_ridges([], given(near)).ridges


@pytest.mark.parametrize(("draw", "least"), [(student, 36), (catenary, 20)])
def test_other_ridges_are_found_and_judged(
    draw: Callable[[np.random.Generator, int], Drawn], least: int
) -> None:
    """In at least so many of 40 sets. What is far from second order in the draws is left alone."""
    found = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        assert not learn_exact_ridges([], given(draw(rng, 100))).ridges
        ridges = learn_ridges([], given(draw(rng, 100)))
        found += len(ridges)
        for one in ridges:
            assert (one.child, set(one.parents)) == (1, {0})
            fresh = RidgeDraws(*draw(rng, 1_000))
            after = undo(fresh, one)
            assert np.linalg.slogdet(np.cov(after.scores.T))[1] < np.linalg.slogdet(np.cov(fresh.scores.T))[1]
    assert found >= least


@pytest.mark.parametrize("n", [15, 30, 45, 100, 156])
@pytest.mark.parametrize("draw", [correlated, funnel, skew, regression])
def test_what_is_no_ridge_is_left_alone(draw: Callable[[np.random.Generator, int], Drawn], n: int) -> None:
    """None of 50 sets each has an exact one, and at most two another."""
    others = 0
    for seed in range(50):
        drawn = draw(np.random.default_rng(seed), n)
        assert not learn_exact_ridges([], given(drawn)).ridges
        others += bool(learn_ridges([], given(drawn)))
    assert others <= 2


def test_what_is_far_from_second_order_is_left_alone() -> None:
    """At most in six of 40 sets: steps that suit the middle of such a ridge are too long at its ends."""
    found = 0
    for seed in range(40):
        a, e = np.random.default_rng(seed).normal(size=(2, 150))
        scores = np.stack((-a + 10.0 * np.sinh(a) * e, -10.0 * e), axis=1)
        found += len(learn_ridges([], given((np.stack((a, np.cosh(a) + 0.1 * e), axis=1), scores))))
    assert found <= 6


def slight(rng: np.random.Generator, n: int, rise: float, width: float, turn: float = 0.0) -> Drawn:
    """A location that rises as a², and turns where |a| > 1; log noise has the standard deviation `width`."""
    a, v, e = rng.normal(size=(3, n))
    beyond = np.maximum(np.abs(a) - 1.0, 0.0)
    slope = 2.0 * (rise * a - turn * beyond * np.sign(a))
    noise = np.exp(width * v)
    points = np.stack((a, v, rise * a * a - turn * beyond**2 + noise * e), axis=1)
    return points, np.stack((-a + slope * e / noise, -v - width + width * e * e, -e / noise), axis=1)


def test_a_slight_ridge_is_found_if_it_holds_outside() -> None:
    """In at least 15 of 40 sets; where the location turns outside, in twelve at most."""
    rngs = [np.random.default_rng(seed) for seed in range(40)]
    assert sum(len(learn_ridges([], given(slight(rng, 120, 0.3, 0.1)))) for rng in rngs) >= 15
    assert sum(len(learn_ridges([], given(slight(rng, 120, 0.45, 0.25, 0.6)))) for rng in rngs) <= 12


def test_parts_of_a_ridge_are_those_of_the_draws_in_which_it_is_undone() -> None:
    rng = np.random.default_rng(5)
    draws = RidgeDraws(*rng.normal(size=(2, 9, 5)))
    firsts, seconds = np.array([1, 0, 0, 1]), np.array([1, 3, -1, -1])
    for reach in (0.7, np.inf):
        numbers = rng.normal(size=4), rng.normal(size=(4, 2)), np.full((4, 2), reach)
        straight = Ridge(4, firsts[2:], seconds[2:], *(values[2:] for values in numbers))
        ridge = Ridge(4, firsts, seconds, *numbers)
        for one, part in zip((straight, ridge), undone_parts(draws, ridge), strict=True):
            undone = undo(draws, one)
            np.testing.assert_allclose(part[0], undone.points.T[[0, 1, 3, 4]], rtol=1e-12)
            np.testing.assert_allclose(part[1], undone.scores.T[[0, 1, 3, 4]], rtol=1e-12)


def test_a_ridge_that_serves_stays_and_another_one_goes() -> None:
    rng = np.random.default_rng(1)
    first = learn(np.empty((0, no_transport().shape[1])), given(student(rng, 100)))
    assert len(first)
    again = learn(first, given(student(rng, 156), 60, new=False))
    np.testing.assert_array_equal(again[:, [OWN, PARENT_A, PARENT_B]], first[:, [OWN, PARENT_A, PARENT_B]])
    assert not len(learn(first, given(correlated_pair(rng, 156), 60)))
    exact = learn_exact(no_transport(), given(banana(rng, 30))).rows
    np.testing.assert_array_equal(learn_exact(exact, given(banana(rng, 100))).rows, exact)
    assert not len(learn_exact(exact, given(correlated_pair(rng, 100))).rows)


def correlated_pair(rng: np.random.Generator, n: int) -> Drawn:
    points = rng.normal(size=(n, 2)) * (10.0, 5.0)
    return points, -points / (100.0, 25.0)


def test_beyond_its_reach_a_ridge_goes_on_as_a_straight_line() -> None:
    one = Ridge(1, np.array([0]), np.array([0]), np.array([0.5]), np.zeros((1, 2)), np.full((1, 2), 3.0))
    a = np.array([-1e6, -3.0, -2.0, 0.0, 3.0, 4.0, 1e6])
    undone = undo(RidgeDraws(np.zeros((7, 2)) + a[:, None], np.ones((7, 2))), one)
    value, slope = a - undone.points[:, 1], undone.scores[:, 0] - 1.0
    np.testing.assert_allclose(value[[1, 2, 3, 4]], 0.5 * a[[1, 2, 3, 4]] ** 2)
    np.testing.assert_allclose(value[[5, 6]], 4.5 + 3.0 * (a[[5, 6]] - 3.0))
    np.testing.assert_allclose(slope, np.clip(a, -3.0, 3.0))
    for ridge in learn_ridges([], given(student(np.random.default_rng(3), 100))):
        assert np.all((ridge.reaches > 15.0) & (ridge.reaches < 70.0))


def test_ridges_are_rows_of_a_map_and_undone_as_the_map_undoes_them() -> None:
    rng = np.random.default_rng(4)
    for draw in (student, product, rosenbrock):
        drawn = draw(rng, 100)
        ridges = learn_ridges([], given(drawn))
        rows = ridge_rows(ridges)
        for one, other in zip(ridges, ridges_of(rows), strict=True):
            assert one.child == other.child
            for values, same in zip(one[1:], other[1:], strict=True):
                np.testing.assert_array_equal(values, same)
        draws = RidgeDraws(*drawn)
        for one in reversed(ridges):
            draws = undo(draws, one)
        z, scores = transport_draws(rows, *drawn)
        np.testing.assert_allclose(draws.points, z, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(draws.scores, scores, rtol=1e-7, atol=1e-7)


def test_an_exact_ridge_comes_after_a_group_that_moves_its_parent() -> None:
    """b around the square of a member, whose scale varies: both laws are found, in an order that is a map."""
    rng = np.random.default_rng(5)
    u, w, e = rng.normal(size=(200, 1)), rng.normal(size=(200, 6)), rng.normal(size=200)
    x = np.exp(u) * w
    b, pull = x[:, 0] ** 2 + 0.3 * e, -e / 0.3
    scores = np.hstack((-u + np.square(w).sum(axis=1, keepdims=True) - 6.0, -w * np.exp(-u), pull[:, None]))
    scores[:, 1] -= 2.0 * x[:, 0] * pull
    points, variables = np.hstack((u, x, b[:, None])), np.array([0, *[1] * 6, 2])
    rows = learn_transport(no_transport(), points, scores, variables, 100)
    assert list(rows[:, OWN]) == [1, 2, 3, 4, 5, 6, *[7] * (len(rows) - 6)]
    assert is_map(rows, 8)
    z, _ = transport_draws(rows, points, scores)
    assert np.all(np.abs(np.corrcoef(np.square(z).T) - np.eye(8)) < 0.3)


def test_what_is_no_map_is_refused() -> None:
    rows = learn_exact(no_transport(), given(chain(np.random.default_rng(6), 60))).rows
    assert is_map(rows, 3)
    assert not is_map(rows[::-1].copy(), 3)  # a parent after its child
    assert not is_map(np.concatenate((rows, rows)), 3)
    assert not is_map(rows, 2)
    wrong = (PARENT_A, -1.0), (PARENT_B, 0.5), (REACH, 0.0), (REACH, np.nan), (CENTER_A, np.inf)
    for column, value in wrong:
        broken = rows.copy()
        broken[-1, column] = value
        assert not is_map(broken, 3)


def test_a_wrong_group_gives_way_to_an_exact_ridge() -> None:
    """Draws that hardly move may show a group of what is a child of a ridge."""
    table, rng = learn_funnel(), np.random.default_rng(8)
    a, e = rng.normal(size=(60, 7)), rng.normal(size=60)
    b = a[:, 0] ** 2 + 0.1 * e
    points, scores = np.column_stack((a, b)), np.column_stack((-a, -e / 0.1))
    scores[:, 0] += 2.0 * a[:, 0] * e / 0.1
    rows = learn_transport(table, points, scores, np.array([0, 1, *[2] * 6]), 30)
    assert is_map(rows, 8)
    assert 7 in rows[:, OWN]


def test_a_ridge_goes_as_a_whole_where_one_of_its_parents_gets_an_exact_ridge() -> None:
    """Not the rows of that parent alone."""
    rng = np.random.default_rng(9)
    old = ridge_rows([_of_two(2, 0, 1)])
    a, e, f = rng.normal(size=(3, 100))
    points = np.stack((a, a * a + 0.3 * e, f), axis=1)
    scores = np.stack((-a + 2.0 * a * e / 0.3, -e / 0.3, -f), axis=1)
    rows = learn_transport(old, points, scores, np.arange(3), 50)
    assert set(rows[:, OWN]) == {1.0}
    assert is_map(rows, 3)


def _of_two(child: int, a: int, b: int) -> Ridge:
    """A ridge, not exact, with a square of one parent and a linear term of another."""
    firsts, seconds = np.array([a, b]), np.array([a, -1])
    return Ridge(child, firsts, seconds, np.ones(2), np.zeros((2, 2)), np.full((2, 2), 3.0))


def test_numbers_that_overflow_leave_the_ridges_in_use() -> None:
    rng = np.random.default_rng(10)
    rows = learn_exact(no_transport(), given(banana(rng, 30))).rows
    points, scores = banana(rng, 60)
    points[::2] *= 1e200
    assert is_map(learn_transport(rows, points, scores, np.arange(2), 30), 2)
