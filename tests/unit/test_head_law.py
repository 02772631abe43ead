"""The law of the heads of a field, learned from ridges whose law is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.special import expit

from stanadapt.transport import composition
from stanadapt.transport.fields.design import Design, RidgePoint
from stanadapt.transport.fields.head_law import head_coordinates, head_rows, learn_head_laws
from stanadapt.transport.fields.laplace import HeadPosterior

REACHES = np.array([-9.0, -6.0, -4.0, -2.5, 2.5, 4.0])


def design_of(
    heads: int,
    ridges: dict[int, Callable[[float], tuple[np.ndarray, np.ndarray, float]]],
    reaches: np.ndarray,
) -> Design:
    """A design with unit covariance of the heads; a ridge gives heads, widths and height at a reach."""
    mode: Any = None
    design = Design(mode, HeadPosterior(np.zeros(heads), np.eye(heads), mode))
    for a, ridge in ridges.items():
        design.ridges[a] = [RidgePoint(*ridge(float(t))) for t in reaches]
    return design


def normal(a: int, heads: int) -> Callable[[float], tuple[np.ndarray, np.ndarray, float]]:
    return lambda t: (t * np.eye(heads)[a], np.ones(heads), -0.5 * t * t)


def width(t: Any) -> Any:
    return 0.3 + 0.7 * expit(t) / expit(0.0) if np.ndim(t) else 0.3 + 0.7 * float(expit(t) / expit(0.0))


def bent(t: float) -> tuple[np.ndarray, np.ndarray, float]:
    """The second head is narrower where the first one is small, and not on a line."""
    return np.array([t, np.tanh(t)]), np.array([1.0, width(t)]), -0.5 * t * t - np.log(width(t))


def test_a_head_that_narrows_is_as_wide_as_its_law_in_z() -> None:
    (law,) = learn_head_laws(
        design_of(2, {0: bent, 1: normal(1, 2)}, REACHES), np.array([3, 5]), np.array([2.0, 0.5])
    )
    assert law.others is not None
    assert law.root == 3
    np.testing.assert_array_equal(law.others.own, [5])
    np.testing.assert_array_equal(law.others.heads, [3])
    rows = np.concatenate(head_rows([law]))
    z, x = np.zeros(6), np.empty(6)
    for t in (-5.0, -3.0, -1.0, 0.0, 1.0, 3.0):
        z[3], z[5] = 2.0 * t, 0.0
        composition.into_x(rows, z, x)
        assert x[5] / 0.5 == pytest.approx(np.tanh(x[3] / 2.0), abs=0.35)  # half a width
        ahead = np.empty(6)
        z[5] = 1.0
        composition.into_x(rows, z, ahead)
        assert (ahead[5] - x[5]) / 0.5 == pytest.approx(width(x[3] / 2.0), rel=0.15)


@pytest.mark.parametrize("longest", [0, 1])
def test_the_root_is_the_head_with_the_longest_tail(longest: int) -> None:
    def ridge(a: int) -> Callable[[float], tuple[np.ndarray, np.ndarray, float]]:
        def found(t: float) -> tuple[np.ndarray, np.ndarray, float]:
            theta, widths, height = bent(t)
            return (2.0 if a == longest else 1.0) * np.roll(theta, a), np.roll(widths, a), height

        return found

    (law,) = learn_head_laws(design_of(2, {0: ridge(0), 1: ridge(1)}, REACHES), np.arange(2), np.ones(2))
    assert law.root == longest


def test_a_head_with_a_long_tail_is_a_root_though_no_other_changes_with_it() -> None:
    """The log of a scale that may be 0, say. The other tail is shorter, and this head changes along it."""

    def scale(t: float) -> tuple[np.ndarray, np.ndarray, float]:
        return np.array([t, 0.0]), np.ones(2), min(t, 0.0) - max(t, 0.0) ** 2

    def other(t: float) -> tuple[np.ndarray, np.ndarray, float]:
        theta, widths, height = bent(t)
        return theta[::-1], widths[::-1], height

    ridges = {0: scale, 1: other}
    design = design_of(2, ridges, REACHES)
    design.ridges[0] += [RidgePoint(*scale(t)) for t in (-20.0, -14.0)]
    (law,) = learn_head_laws(design, np.arange(2), np.ones(2))
    assert law.root == 0
    assert law.bend is not None
    (short,) = learn_head_laws(design_of(2, ridges, REACHES[2:]), np.arange(2), np.ones(2))
    assert short.root == 1
    # Two long tails: the one that changes along the other's ridge has no law apart from it.
    design.ridges[1] += [RidgePoint(*other(t)) for t in (-14.0, -11.0)]
    (both,) = learn_head_laws(design, np.arange(2), np.ones(2))
    assert both.root == 0
    assert both.others is not None
    np.testing.assert_array_equal(both.others.own, [1])


def test_the_coordinates_of_a_walk_have_short_tails() -> None:
    """Of the log t of a scale that may be 0, with the density e^t, of a head along it, and of one more."""

    def scale(t: float) -> tuple[np.ndarray, np.ndarray, float]:
        along, widths, _ = bent(t)
        return np.append(along, 0.0), np.append(widths, 1.0), min(t, 0.0) - max(t, 0.0) ** 2

    design = design_of(3, {0: scale, 1: normal(1, 3), 2: normal(2, 3)}, np.append(REACHES, [-20.0, -14.0]))
    unit = np.array([2.0, 0.5, 3.0])
    heads = np.array([3, 5, 6])
    laws = learn_head_laws(design, heads, unit)
    coordinates = head_coordinates(design.place, heads, unit, laws)
    rng = np.random.default_rng(1)
    moves, (middle, there) = 1e-5 * np.eye(3), coordinates.into_heads(np.zeros((1, 3)))
    around = coordinates.into_heads(moves)[0] - coordinates.into_heads(-moves)[0]
    np.testing.assert_allclose(middle[0], design.place.theta, atol=1e-12)
    all_w = rng.normal(size=(20, 3))
    for w, theta, log_det in zip(all_w, *coordinates.into_heads(all_w), strict=True):
        np.testing.assert_allclose(coordinates.into_w(theta), w, atol=1e-9)
        slopes = coordinates.into_heads(w + moves)[0] - coordinates.into_heads(w - moves)[0]
        here = np.linalg.slogdet(slopes)[1] - log_det
        assert here == pytest.approx(np.linalg.slogdet(around)[1] - there[0], abs=1e-6)
    far = coordinates.into_w(np.array([-14.0, np.tanh(-14.0), 0.0]))
    assert -6.0 < far[0] < -3.5  # it is e^-14 there
    assert abs(far[1]) < 0.3
    np.testing.assert_allclose(coordinates.into_w(np.array([0.0, 0.0, 2.5]))[2], 2.5)


def test_partial_correlations_of_the_others_are_kept() -> None:
    """Three heads: given the root, the two others have the correlation that they have in the middle."""
    cov = np.eye(3)
    cov[1, 2] = cov[2, 1] = 0.8
    mode: Any = None
    design = Design(mode, HeadPosterior(np.zeros(3), np.linalg.cholesky(cov), mode))
    alone = np.sqrt(1.0 - 0.8**2)  # the standard deviation of one of them, given all others
    for t in REACHES:
        scale = np.array([1.0, width(t), 1.0])
        design.ridges[0].append(RidgePoint(np.array([t, 0.0, 0.0]), alone * scale, -0.5 * t * t))
    (law,) = learn_head_laws(design, np.arange(3), np.ones(3))
    rows = np.concatenate(head_rows([law]))
    for t in (-3.0, 0.0):
        origin, moved = np.empty(3), np.empty((3, 3))
        composition.into_x(rows, np.array([t, 0.0, 0.0]), origin)
        for e, out in zip(np.eye(3), moved, strict=True):
            composition.into_x(rows, np.array([t, 0.0, 0.0]) + e, out)
        jacobian = (moved - origin)[1:, 1:]
        wanted = cov[1:, 1:] * np.outer([width(t), 1.0], [width(t), 1.0])
        np.testing.assert_allclose(jacobian.T @ jacobian, wanted, rtol=0.2, atol=0.02)


def test_heads_that_are_normal_need_no_law() -> None:
    two = design_of(2, {0: normal(0, 2), 1: normal(1, 2)}, REACHES)
    assert not learn_head_laws(two, np.arange(2), np.ones(2))
    assert not learn_head_laws(design_of(1, {0: normal(0, 1)}, REACHES[2:]), np.arange(1), np.ones(1))
    assert not learn_head_laws(design_of(0, {}, REACHES), np.arange(0), np.ones(0))


def test_two_pairs_of_heads_have_a_law_each() -> None:
    """The scales of two series, say: in the tail of one of them the other pair is as it is elsewhere."""

    def ridge(a: int, reach: float) -> Callable[[float], tuple[np.ndarray, np.ndarray, float]]:
        def found(t: float) -> tuple[np.ndarray, np.ndarray, float]:
            (theta, widths), moved = (np.zeros(4), np.ones(4)), bent(t)
            theta[[a, a + 1]], widths[[a, a + 1]] = reach * moved[0][0], moved[1]
            theta[a + 1] = moved[0][1]
            return theta, widths, moved[2]

        return found

    ridges = {0: ridge(0, 1.0), 1: normal(1, 4), 2: ridge(2, 1.5), 3: normal(3, 4)}
    laws = learn_head_laws(design_of(4, ridges, REACHES), np.arange(4), np.ones(4))
    assert [law.root for law in laws] == [2, 0]
    assert [law.others.own.tolist() for law in laws if law.others is not None] == [[3], [1]]
    rows, x = np.concatenate(head_rows(laws)), np.empty(4)
    assert composition.is_map(rows, 4)
    z = np.array([-4.0, 0.3, 1.0, -0.2])
    composition.into_x(rows, z, x)
    assert x[1] == pytest.approx(np.tanh(x[0]) + 0.3 * width(x[0]), abs=0.35)
    assert abs(x[1] - np.tanh(x[2] / 1.5)) > 1.0
    np.testing.assert_allclose(composition.points_in_z(rows, x[None])[0], z, atol=1e-12)


@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_a_long_tail_of_the_root_is_bent(side: float) -> None:
    """The logarithm of a half-normal variable, whose left tail is exponential, or its negative."""

    def log_density(t: Any) -> Any:
        return -side * t - 0.5 * np.exp(-2.0 * side * t) + 0.5

    reaches = side * np.array([-1.5, -1.0, 1.0, 2.0, 3.5, 5.0, 8.0, 11.0])
    ridge = {0: lambda t: (np.array([t]), np.ones(1), log_density(t))}
    (law,) = learn_head_laws(design_of(1, ridge, reaches), np.array([0]), np.ones(1))
    assert law.others is None
    assert law.bend is not None
    assert law.bend.side == side
    (row,) = head_rows([law])
    z, x = np.linspace(-12.0, 12.0, 4_000), np.empty(4_000)
    slopes = np.array([composition.into_x(row, z[i : i + 1], x[i : i + 1]) for i in range(4_000)])
    before, after = moments(z, np.exp(log_density(z))), moments(z, np.exp(log_density(x) + slopes))
    assert side * before[1] > 1.5
    assert abs(after[1]) < 0.5
    assert abs(after[2]) < 0.3 * before[2]
    assert after[0] == pytest.approx(law.spread, rel=0.2)


def moments(at: np.ndarray, density: np.ndarray) -> tuple[float, float, float]:
    """Standard deviation, skewness and excess kurtosis of a density on an even grid."""
    p = density / density.sum()
    u = at - p @ at
    deviation = np.sqrt(p @ u**2)
    return float(deviation), float(p @ u**3 / deviation**3), float(p @ u**4 / deviation**4 - 3.0)


def test_widths_stay_as_they_are_beyond_the_end_of_a_short_ridge() -> None:
    """A chain may be there, far out, when the law is found; with a width near 0 it would not come back."""

    def narrowing(t: float) -> tuple[np.ndarray, np.ndarray, float]:
        return np.array([t, 0.0]), np.array([1.0, np.exp(-0.5 * t)]), -0.5 * t * t

    (law,) = learn_head_laws(
        design_of(2, {0: narrowing, 1: normal(1, 2)}, np.array([-4.0, -2.5, 2.5, 4.0])),
        np.arange(2),
        np.ones(2),
    )
    assert law.others is not None
    rows, x = np.concatenate(head_rows([law])), np.empty(2)
    widths = []
    for t in (2.5, 4.0, 10.0):
        composition.into_x(rows, np.array([t, 1.0]), x)
        above = x[1]
        composition.into_x(rows, np.array([t, -1.0]), x)
        widths.append(0.5 * (above - x[1]))
    assert widths[0] == pytest.approx(np.exp(-1.25), rel=0.3)
    assert widths[2] == pytest.approx(widths[1], rel=0.5)  # it was e^-3 times as wide
