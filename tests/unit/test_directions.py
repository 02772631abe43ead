"""Vectors of which the direction alone matters: they are told by scores, and chains move around them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fits import run
from stanadapt.transport import composition, direction, learning
from stanadapt.transport.direction import Direction, direction_rows, directions_of, learn_directions
from stanadapt.transport.map_table import DIRECTION, KIND, OWN, ROWS
from stanadapt.transport.tail import Tails, tail_rows

N = 60


def cones(n: int, number: int, wide: float, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Draws and scores (N, number n) of unit vectors around poles: u ~ exp(-|u - pole|² / (2 wide²))."""
    rng = np.random.default_rng(seed)
    points, scores = [], []
    for _ in range(number):
        pole = rng.normal(size=n)
        pole /= np.sqrt(pole @ pole)
        u = pole + wide * rng.normal(size=(N, n))
        u /= np.sqrt(np.square(u).sum(axis=1, keepdims=True))
        lengths = np.sqrt(rng.chisquare(n, size=(N, 1)))
        across = (pole - (u @ pole)[:, None] * u) / wide**2
        points.append(lengths * u)
        scores.append(across / lengths - lengths * u)
    return np.hstack(points), np.hstack(scores)


def found(
    points: np.ndarray, scores: np.ndarray, variables: Any = 0, used: frozenset[tuple[int, ...]] = frozenset()
) -> list[list[int]]:
    laws = learn_directions(points, scores, np.zeros(points.shape[1], int) + variables, used)
    return [law.own.tolist() for law in laws]


@pytest.mark.parametrize(("n", "number"), [(2, 1), (2, 3), (3, 1), (3, 4), (5, 2)])
def test_vectors_are_told_by_their_scores(n: int, number: int) -> None:
    whole = np.arange(n * number).reshape(number, n).tolist()
    assert found(*cones(n, number, 0.1)) == whole


def test_vectors_of_other_variables_are_told_apart() -> None:
    (points, scores), (more, their) = cones(2, 2, 0.1), cones(3, 1, 0.1)
    seen = np.hstack((points, more)), np.hstack((scores, their))
    assert found(*seen, np.array([0, 0, 0, 0, 1, 1, 1])) == [[0, 1], [2, 3], [4, 5, 6]]


def test_normal_coordinates_that_no_data_are_about_are_no_direction() -> None:
    """Though x . s is -|x|² for them."""
    x = np.random.default_rng(1).normal(size=(N, 6))
    assert found(x, -x) == []


def test_one_score_that_is_off_refuses_a_vector() -> None:
    points, scores = cones(2, 1, 0.1)
    scores[7] += 1e-4 * points[7]
    assert found(points, scores) == []


@pytest.mark.parametrize(
    ("wide", "begins", "stays"), [(0.2, True, True), (0.35, False, True), (1.0, False, False)]
)
def test_directions_must_be_close_together(wide: float, begins: bool, stays: bool) -> None:
    seen = cones(2, 1, wide)
    assert bool(found(*seen)) == begins
    assert bool(found(*seen, used=frozenset({(0, 1)}))) == stays


def test_long_vectors_have_lengths_that_vary_little() -> None:
    """The power makes the logarithm of a length vary by about 0.16."""
    assert found(*cones(20, 1, 0.05)) == []
    for n, power in ((2, 4.0), (3, 3.0), (4, 2.5)):
        (law,) = learn_directions(*cones(n, 1, 0.05), np.zeros(n, int))
        assert law.power == pytest.approx(power, abs=0.05)
        lengths = np.sqrt(np.random.default_rng(1).chisquare(n, 100_000))
        assert np.log(lengths).std() / law.power == pytest.approx(0.16, rel=0.02)


def test_rows_hold_their_vectors() -> None:
    laws = [Direction(np.array([3, 4]), 4.0), Direction(np.array([0, 1, 2]), 3.0)]
    rows = direction_rows(laws)
    assert composition.is_map(rows, 5)
    for one, other in zip(directions_of(rows), laws, strict=True):
        np.testing.assert_array_equal(one.own, other.own)
        assert one.power == other.power


@pytest.mark.parametrize(
    ("row", "column", "value"),
    [
        (0, ROWS, 1.0),
        (0, ROWS, 4.0),
        (0, ROWS, 0.0),
        (1, ROWS, 2.0),
        (1, direction.LENGTH_POWER, 3.5),
        (1, OWN, 0),
    ],
)
def test_rows_from_a_file_are_refused(row: int, column: int, value: float) -> None:
    rows = direction_rows([Direction(np.arange(3), 3.0)])
    rows[row, column] = value
    assert not composition.is_map(rows, 3)


def test_other_laws_are_learned_beside_directions() -> None:
    """A Cauchy coordinate before them and one after, and no law of the vector's own coordinates."""
    points, scores = cones(2, 1, 0.1)
    cauchy = np.random.default_rng(2).standard_t(1.0, size=(N, 2))
    pull = -2.0 * cauchy / (1.0 + np.square(cauchy))
    points = np.hstack((cauchy[:, :1], points, cauchy[:, 1:]))
    scores = np.hstack((pull[:, :1], scores, pull[:, 1:]))
    variables = np.array([0, 1, 1, 2])
    rows = learning.learn_transport(np.empty((0, composition.COLUMNS)), points, scores, variables, 0)
    assert rows[:, OWN].tolist() == [1, 2, 0, 3]
    assert (rows[:2, KIND] == DIRECTION).all()
    assert composition.is_map(rows, 4)
    again = learning.learn_transport(rows, points, scores, variables, 0, new=False)
    np.testing.assert_array_equal(again[:, :3], rows[:, :3])
    assert not learning.is_straight(np.empty((0, composition.COLUMNS)), points, scores, variables, set())


def test_a_vector_alone_ends_no_warm_up_before_it_has_its_law() -> None:
    points, scores = cones(2, 1, 0.01)
    assert not learning.is_straight(
        np.empty((0, composition.COLUMNS)), points, scores, np.zeros(2, int), set()
    )


def test_a_law_that_moved_the_vector_before_is_left_out() -> None:
    tails = tail_rows(Tails(np.array([0]), np.zeros(1), np.ones(1)))
    rows = learning.learn_transport(tails, *cones(2, 1, 0.1), np.zeros(2, int), 0)
    assert (rows[:, KIND] == DIRECTION).all()


# A walk and a season whose phase is a direction.
SEASON = """
data { int T; vector[T] y; }
transformed data { matrix[T, 2] c; for (t in 1:T) c[t] = [cos(2 * pi() * t / 12), sin(2 * pi() * t / 12)]; }
parameters { vector[T] h; real<lower=0> a; unit_vector[2] m; real<lower=0> s; real<lower=0> e; }
model {
  s ~ std_normal(); e ~ std_normal(); a ~ normal(0, 3);
  h[1] ~ normal(0, 2); h[2:] ~ normal(h[:T - 1], s); y ~ normal(h + a * (c * m), e);
}
"""


def seasons(length: int) -> dict[str, Any]:
    rng, t = np.random.default_rng(5), np.arange(1, length + 1)
    level = np.cumsum(0.3 * rng.normal(size=length))
    return {"T": length, "y": level + 2.0 * np.cos(np.pi / 6.0 * t - 1.0) + 0.5 * rng.normal(size=length)}


def test_a_walk_beside_a_direction_has_a_field_alone() -> None:
    """All latents together have no mode: that of the vector is at its tip."""
    _, adaptation, findings = run(SEASON, seasons(80), seed=1)
    role, power = adaptation["field_role"].values, adaptation["direction_power"].values
    assert (role[:, :80] == 1).all()
    assert (role[:, 80:83] == 0).all()
    np.testing.assert_array_equal(role[:, 83:], 2)
    assert (power[:, 81:83] > 1.0).all()
    assert "divergences" not in findings


PROGRAM = """
data { int J; }
parameters { array[J] unit_vector[2] m; real x; }
model { x ~ std_normal(); for (j in 1:J) target += 50 * m[j, 1]; }
"""


def test_a_run_says_what_it_found_and_takes_few_gradients() -> None:
    posterior, adaptation, findings = run(PROGRAM, {"J": 3}, seed=1)
    assert adaptation.attrs["coordinates"] == "6 m as directions"
    assert (adaptation["direction_power"].values[:, :6] > 1.0).all()
    assert (adaptation["direction_power"].values[:, 6] == 0.0).all()
    assert (adaptation["evaluations"] < 10_000).all()
    assert "divergences" not in findings
    angle = np.arctan2(posterior["m"].values[..., 1], posterior["m"].values[..., 0])
    assert angle.std() == pytest.approx(1.0 / np.sqrt(50.0), rel=0.05)
