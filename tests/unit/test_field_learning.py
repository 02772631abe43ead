"""What transport/fields/ learns, against dense matrices and against laws that are known exactly."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import scipy.sparse as sparse
from test_correlated_effects import ProgramDensity

import rank_models
from densities import in_maps
from shares import log_normal
from stanadapt.numerics.field_search import MOST_SEARCHES, NO_MORE, seeks_field
from stanadapt.run.warmup import variable_groups
from stanadapt.transport import composition
from stanadapt.transport.field_table import field_of
from stanadapt.transport.fields import design, field_learning
from stanadapt.transport.fields.dense import dense_coupling
from stanadapt.transport.fields.design import Design, find_design, follow_tails, how_far_off, widen_design
from stanadapt.transport.fields.field_learning import HOPELESS, learn_field
from stanadapt.transport.fields.head_coordinates import HeadCoordinates
from stanadapt.transport.fields.head_law import head_coordinates, learn_head_laws
from stanadapt.transport.fields.heads import HEAD, MOST_HEADS, choose_heads, strengths_of
from stanadapt.transport.fields.laplace import find_mode, find_place
from stanadapt.transport.fields.law_fit import fit_law
from stanadapt.transport.fields.least_squares import products_of_pairs, weighted_least_squares
from stanadapt.transport.fields.precision import Precision
from stanadapt.transport.fields.probes import STEP, Coupling, ScaledDensity, colours_of, couple
from stanadapt.transport.fields.rotation_search import find_rotations
from stanadapt.transport.map_table import COLUMNS, KIND, NOT_CENTRED

T = 30
HEADS_FIRST = np.array([-1.2, 0.6])
Evaluate = Callable[[np.ndarray, np.ndarray], float]


def quadratic(matrix: np.ndarray, quartic: float = 0.0) -> Evaluate:
    """-x^T A x / 2 - q sum(x^4) / 12, whose negative Hessian is A + q diag(x^2)."""

    def evaluate(x: np.ndarray, score: np.ndarray) -> float:
        score[:] = -matrix @ x - quartic * x**3 / 3.0
        return float(-0.5 * x @ matrix @ x - quartic * np.sum(x**4) / 12.0)

    return evaluate


def band(n: int, seed: int) -> np.ndarray:
    """A positive definite matrix (n, n) with random entries beside the diagonal, in a random order."""
    rng = np.random.default_rng(seed)
    matrix = np.diag(rng.uniform(3.0, 5.0, n))
    for j in range(n - 1):
        matrix[j, j + 1] = matrix[j + 1, j] = rng.uniform(0.5, 1.0) * rng.choice([-1.0, 1.0])
    order = rng.permutation(n)
    return matrix[np.ix_(order, order)]


class Walk:
    """y_t ~ N(x_t, 1) around a random walk with the log scale theta ~ N(middle, sd^2): all of it is known.

    Without data the posterior of theta is its prior. The coordinates are theta, x_1 ... x_T.
    """

    def __init__(self, y: np.ndarray | None, middle: float = -0.5, sd: float = 0.8) -> None:
        self.y, self.middle, self.sd = y, middle, sd

    def __call__(self, at: np.ndarray, score: np.ndarray) -> float:
        theta, x = at[0], at[1:]
        steps, unit = np.diff(x, prepend=0.0), np.exp(-2.0 * at[0])
        r = (theta - self.middle) / self.sd
        score[0] = -r / self.sd + unit * steps @ steps - T
        score[1:] = -unit * (steps - np.append(steps[1:], 0.0))
        logp = -0.5 * r * r - 0.5 * unit * steps @ steps - T * theta
        if self.y is not None:
            score[1:] += self.y - x
            logp -= 0.5 * np.sum(np.square(self.y - x))
        return float(logp)

    def precision(self, theta: float) -> np.ndarray:
        difference = np.eye(T) - np.eye(T, k=-1)
        return np.exp(-2.0 * theta) * difference.T @ difference + (self.y is not None) * np.eye(T)

    def mean(self, theta: float) -> np.ndarray:
        return np.zeros(T) if self.y is None else np.linalg.solve(self.precision(theta), self.y)


DATA = np.cumsum(0.6 * np.random.default_rng(1).normal(size=T)) + np.random.default_rng(2).normal(size=T)
UNIT = np.random.default_rng(3).uniform(0.5, 2.0, T + 1)
START = 0.3 * np.random.default_rng(4).normal(size=T + 1)


def precision_of(walk: Walk) -> Precision:
    density = ScaledDensity(walk, UNIT)
    coupling = couple(density, START / UNIT, np.array([0, *[1] * T]))
    assert coupling is not None
    return Precision(density, coupling, np.array([0]))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_pattern_of_a_sparse_precision_is_seen(seed: int) -> None:
    matrix, n = band(40, seed), 40
    density = ScaledDensity(quadratic(matrix, 0.3), np.random.default_rng(seed).uniform(0.1, 10.0, n))
    found = couple(density, np.ones(n), np.zeros(n, int))
    assert found is not None
    np.testing.assert_array_equal(found.pattern.toarray(), matrix != 0.0)
    assert not found.wide.any()
    assert not found.members
    assert density.gradients == n + 1


def test_a_coordinate_with_many_neighbours_is_wide() -> None:
    n = 60
    matrix = band(n, 1)
    matrix[7, :25] += 0.1
    matrix[:25, 7] += 0.1
    found = couple(ScaledDensity(quadratic(matrix), np.ones(n)), np.ones(n), np.zeros(n, int))
    assert found is not None
    np.testing.assert_array_equal(np.flatnonzero(found.wide), [7])


def test_a_head_of_few_latents_in_many_dimensions_is_wide() -> None:
    """A narrow one with 80 neighbours would ask for 80 probes, which are more than a search can take."""
    n = 1_000
    matrix = band(n, 1)
    matrix[7, :80] += 0.01
    matrix[:80, 7] += 0.01
    matrix[7, 7] = 30.0
    density = ScaledDensity(quadratic(matrix), np.ones(n))
    found = couple(density, np.ones(n), np.zeros(n, int))
    assert found is not None
    np.testing.assert_array_equal(np.flatnonzero(found.wide), [7])
    assert Precision(density, found, np.array([7])).cost < 30


def test_what_few_others_share_is_wide_in_a_small_posterior() -> None:
    """A regression of 21 plates: each has an effect of its own, and two coefficients are for all of them."""
    n = 23
    matrix = 5.0 * np.eye(n)
    matrix[:2, :] = matrix[:, :2] = 0.5
    matrix[:2, :2] += 30.0 * np.eye(2)
    found = couple(ScaledDensity(quadratic(matrix), np.ones(n)), np.ones(n), np.minimum(np.arange(n), 2))
    assert found is not None
    np.testing.assert_array_equal(np.flatnonzero(found.wide), [0, 1])
    assert (
        learn_field(in_maps(quadratic(matrix)), np.ones(n), np.ones(n), np.minimum(np.arange(n), 2))[0]
        is None
    )


def test_wide_neighbours_do_not_make_a_coordinate_wide() -> None:
    """A series of 60 beside 25 coefficients of a regression: each latent has 27 neighbours."""
    n, k = 85, 25
    matrix = 5.0 * np.eye(n)
    matrix[k:, k:] += np.eye(n - k, k=1) + np.eye(n - k, k=-1)
    matrix[:k, :] = matrix[:, :k] = 0.1
    matrix[:k, :k] += 30.0 * np.eye(k)
    found = couple(ScaledDensity(quadratic(matrix), np.ones(n)), np.ones(n), np.repeat([0, 1], [k, n - k]))
    assert found is not None
    np.testing.assert_array_equal(np.flatnonzero(found.wide), np.arange(k))


def test_a_soft_sum_to_zero_is_kept_apart() -> None:
    """The second variable, of 30 coordinates, has one; the pattern is that without it."""
    n, level = 45, 3.0
    matrix, own = band(n, 2), np.arange(15, n)
    dense = matrix.copy()
    dense[np.ix_(own, own)] += level
    density = ScaledDensity(quadratic(dense), np.random.default_rng(1).uniform(0.5, 2.0, n))
    found = couple(density, np.zeros(n), np.array([0] * 15 + [1] * 30))
    assert found is not None
    np.testing.assert_array_equal(found.members[0], own)
    assert found.levels == pytest.approx([level], rel=1e-6)
    np.testing.assert_array_equal(found.pattern.toarray(), matrix != 0.0)
    u = np.random.default_rng(2).normal(size=n)
    wanted = np.zeros(n)
    wanted[own] = level * u[own].sum()
    np.testing.assert_allclose(found.background(u), wanted, rtol=1e-6)
    # It ties all coordinates, but is no reason to turn them to axes; a full block is.
    variables, x = np.array([0] * 15 + [1] * 30), np.zeros(n)
    assert not find_rotations(density, x, variables)
    dense[np.ix_(own, own)] += np.cov(np.random.default_rng(3).normal(size=(30, 60)))
    assert len(find_rotations(ScaledDensity(quadratic(dense), density.unit), x, variables)) == 1
    # So is that of a walk in its innovations, where entries before a column are the same too.
    ones = np.tril(np.ones((30, 30)))
    dense[np.ix_(own, own)] = np.eye(30) + ones.T @ ones
    assert len(find_rotations(ScaledDensity(quadratic(dense), density.unit), x, variables)) == 1


def test_no_coupling_without_scores() -> None:
    def evaluate(x: np.ndarray, score: np.ndarray) -> float:
        score[:] = -x
        return -np.inf if x[3] > 0.0 else 0.0

    assert couple(ScaledDensity(evaluate, np.ones(20)), np.zeros(20), np.zeros(20, int)) is None


@pytest.mark.parametrize("seed", range(5))
def test_columns_of_one_colour_share_no_row(seed: int) -> None:
    rng = np.random.default_rng(seed)
    pattern = rng.random((30, 30)) < 0.05
    pattern |= pattern.T | np.eye(30, dtype=bool)
    colours = colours_of(sparse.csc_matrix(pattern))
    assert colours.min() == 0
    for colour in range(colours.max() + 1):
        assert pattern[:, colours == colour].sum(axis=1).max() <= 1


def test_a_series_takes_three_colours() -> None:
    pattern = sparse.csc_matrix(abs(np.subtract.outer(np.arange(100), np.arange(100))) <= 1)
    assert colours_of(pattern).max() == 2


def test_strengths_tell_who_acts_on_the_curvature() -> None:
    """theta rules the scale of the walk; a location that all have in common changes no curvature."""

    def evaluate(at: np.ndarray, score: np.ndarray) -> float:
        inner = np.empty(T + 1)
        moved = np.append(at[0], at[1:-1] - at[-1])
        logp = Walk(DATA)(moved, inner)
        score[:-1] = inner
        score[-1] = -inner[1:].sum() - at[-1]
        return logp - 0.5 * at[-1] ** 2

    density, x = ScaledDensity(evaluate, np.ones(T + 2)), np.append(START, 0.1)
    narrow = np.zeros(T + 2, bool)
    narrow[[0, T + 1]] = True
    coupling = couple(density, x, np.array([0, *[1] * T, 2]))
    assert coupling is not None
    strengths = strengths_of(density, x, coupling._replace(wide=narrow))
    assert strengths[0] > 0.5
    assert strengths[T + 1] < 1e-4
    np.testing.assert_array_equal(choose_heads(strengths), [0])


def test_the_strongest_heads_are_chosen() -> None:
    strengths = {3: 0.5, 9: HEAD / 2, 4: 0.1, 12: 2.0, 1: 0.3, 7: 0.2, 20: 0.15}
    assert MOST_HEADS == 4
    np.testing.assert_array_equal(choose_heads(strengths), [1, 3, 7, 12])
    np.testing.assert_array_equal(choose_heads(strengths, 0.25), [1, 3, 12])


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_precision_and_factor_are_those_of_the_dense_hessian(seed: int) -> None:
    """With heads, a wide latent, units, a soft sum to zero, and a Hessian that changes with the point."""
    n, level, quartic, rng = 60, 0.2, 0.7, np.random.default_rng(seed)
    matrix, heads, wide, own = band(n, seed), np.array([11, 40]), 5, np.arange(20, n)
    matrix[wide, :] += 0.05
    matrix[:, wide] += 0.05
    dense = matrix.copy()
    dense[np.ix_(own, own)] += level
    unit = rng.uniform(0.5, 2.0, n)
    density = ScaledDensity(quadratic(dense, quartic), unit)
    coupling = couple(density, rng.normal(size=n) / unit, np.repeat([0, 1], [20, n - 20]))
    assert coupling is not None
    assert coupling.members
    np.testing.assert_array_equal(np.flatnonzero(coupling.wide), [wide])
    precision, x = Precision(density, coupling, heads), rng.normal(size=n)
    np.testing.assert_array_equal(np.sort(precision.latents), np.setdiff1d(np.arange(n), heads))
    assert precision.latents[-1] == wide
    before = density.gradients
    found = precision.at(x / unit, np.zeros(n))
    assert density.gradients - before == precision.cost < 30
    assert found is not None
    hessian = (dense + quartic * np.diag(x * x)) * np.outer(unit, unit)
    wanted = hessian[np.ix_(precision.latents, precision.latents)]
    background = precision.background @ precision.background.T
    # differences of a cubic score are off by STEP² times its third derivative
    np.testing.assert_allclose(found.toarray() + background, wanted, atol=100.0 * STEP**2 + 1e-6)
    factor = precision.factor(found)
    assert factor is not None
    lower = factor.lower.toarray()
    np.testing.assert_array_equal(np.diag(lower), 1.0)
    np.testing.assert_array_equal(np.triu(lower, 1), 0.0)
    np.testing.assert_allclose(lower * factor.pivots @ lower.T, found.toarray(), atol=1e-10)
    v = rng.normal(size=n - 2)
    np.testing.assert_allclose(factor.solve(v), np.linalg.solve(wanted, v), rtol=1e-4, atol=1e-5)
    assert factor.log_det() == pytest.approx(np.linalg.slogdet(wanted)[1], abs=1e-4)


def test_columns_with_many_entries_have_a_probe_alone() -> None:
    """Effects of persons with a series each: with colours alone a series would take as many as it is long."""
    persons, times, rng = 4, 15, np.random.default_rng(5)
    n = persons * (times + 1)
    matrix = np.diag(rng.uniform(3.0, 5.0, n))
    for person in range(persons):
        series = persons + person * times + np.arange(times)
        matrix[person, series] = matrix[series, person] = 0.3
        matrix[series[1:], series[:-1]] = matrix[series[:-1], series[1:]] = -1.0
    density = ScaledDensity(quadratic(matrix, 0.0), np.ones(n))
    coupling = couple(density, rng.normal(size=n), np.repeat([0, 1], [persons, n - persons]))
    assert coupling is not None
    assert not coupling.wide.any()
    precision = Precision(density, coupling, np.zeros(0, np.int64))
    assert precision.cost == 2 * (persons + 3)
    found = precision.at(rng.normal(size=n), np.zeros(n))
    assert found is not None
    wanted = matrix[np.ix_(precision.latents, precision.latents)]
    np.testing.assert_allclose(found.toarray(), wanted, atol=1e-6)


def test_an_indefinite_precision_has_no_factor() -> None:
    precision = precision_of(Walk(DATA))
    matrix = precision.at(START / UNIT, np.zeros(START.size))
    assert matrix is not None
    assert precision.factor(matrix) is not None
    assert precision.factor((matrix - 2.0 * sparse.diags(matrix.diagonal())).tocsc()) is None


@pytest.mark.parametrize("theta", [-4.0, -1.0, 1.0])
def test_the_mode_of_latents_is_their_mean_and_its_height_their_marginal(theta: float) -> None:
    walk = Walk(DATA)
    x = START / UNIT
    x[0] = theta / UNIT[0]
    mode = find_mode(precision_of(walk), x)
    assert mode is not None
    assert mode.x[0] == x[0]
    np.testing.assert_allclose((mode.x * UNIT)[1:], walk.mean(theta), atol=0.02 * np.exp(min(theta, 0.0)))
    at = np.append(theta, walk.mean(theta))
    units = np.log(UNIT[1:]).sum()
    wanted = walk(at, np.empty(T + 1)) - 0.5 * np.linalg.slogdet(walk.precision(theta))[1] - units
    assert mode.logp == pytest.approx(wanted, abs=0.02)


@pytest.mark.parametrize(("middle", "sd"), [(-0.5, 0.8), (1.5, 0.3), (0.0, 2.0)])
def test_heads_are_where_their_law_is(middle: float, sd: float) -> None:
    """Without data Laplace's approximation is exact, and the law of theta is its prior."""
    place = find_place(precision_of(Walk(None, middle, sd)), START / UNIT)
    assert place is not None
    assert place.theta[0] * UNIT[0] == pytest.approx(middle, abs=0.05 * sd)
    assert abs(place.root[0, 0]) * UNIT[0] == pytest.approx(sd, rel=0.05)


def test_covariance_of_heads() -> None:
    """Two heads with the correlation 0.8; the second is the log scale of independent latents."""
    cov = np.array([[0.5, 0.8 * np.sqrt(0.5) * 0.6], [0.8 * np.sqrt(0.5) * 0.6, 0.36]])
    inverse = np.linalg.inv(cov)

    def evaluate(x: np.ndarray, score: np.ndarray) -> float:
        heads, rest = x[:2] - HEADS_FIRST, x[2:]
        unit = np.exp(-2.0 * x[1])
        score[:2] = -inverse @ heads
        score[1] += unit * rest @ rest - len(rest)
        score[2:] = -unit * rest
        return float(-0.5 * heads @ inverse @ heads - 0.5 * unit * rest @ rest - len(rest) * x[1])

    n = 40
    unit = np.random.default_rng(6).uniform(0.5, 2.0, n)
    density = ScaledDensity(evaluate, unit)
    narrow = Coupling(
        sparse.csc_matrix(np.eye(n, dtype=bool)), np.ones(n), np.arange(n) < 2, members=(), levels=()
    )
    place = find_place(Precision(density, narrow, np.array([0, 1])), np.full(n, 0.2))
    assert place is not None
    root = place.root * unit[:2, None]
    np.testing.assert_allclose(place.theta * unit[:2], HEADS_FIRST, atol=0.05)
    np.testing.assert_allclose(root @ root.T, cov, rtol=0.1)


def test_a_search_that_spends_all_its_gradients_finds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = np.array([0, *[1] * T])
    learned, gradients = learn_field(in_maps(Walk(DATA)), START, UNIT, variables)
    assert learned is not None
    monkeypatch.setattr(field_learning, "MOST_GRADIENTS", 100)
    found, spent = learn_field(in_maps(Walk(DATA)), START, UNIT, variables)
    assert found is None
    # One tells that there is a density, three that there may be effects, two that none are tied to all, and
    # three that there are no weights.
    assert spent == 100 + T + 2 + 1 + 3 + 2 + 3 < gradients


def test_a_design_does_not_grow_until_all_gradients_are_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its law is not used then, however good it is: where some gradients give a field, more do too."""
    found = []
    for most in range(80, 500, 20):
        monkeypatch.setattr(field_learning, "MOST_GRADIENTS", most)
        found.append(learn_field(in_maps(Walk(DATA)), START, UNIT, np.array([0, *[1] * T]))[0] is not None)
    assert found == sorted(found)
    assert sum(found) > 12


def test_a_search_for_heads_leaves_gradients_for_their_law() -> None:
    most = 2 * (T + 1) + 50
    density = ScaledDensity(Walk(None, 30.0, 1.0), UNIT, most)
    coupling = couple(density, START / UNIT, np.array([0, *[1] * T]))
    assert coupling is not None
    assert find_place(Precision(density, coupling, np.array([0])), START / UNIT) is None
    assert 0.5 * most < density.gradients < most


@pytest.mark.parametrize("theta", [-7.0, -4.0, 3.0])
def test_heads_are_found_from_far_away(theta: float) -> None:
    """A walk without data, whose scale has a half-normal prior: on one side the density is that of a line.

    Steps along that line grow until one goes too far.
    """

    def evaluate(at: np.ndarray, score: np.ndarray) -> float:
        logp = Walk(None, 0.0, np.inf)(at, score)
        square = np.exp(2.0 * at[0])
        score[0] += 1.0 - square
        return logp + at[0] - 0.5 * float(square)

    start = np.append(theta, np.exp(theta) * START[1:])
    density, variables = ScaledDensity(evaluate, UNIT), np.array([0, *[1] * T])
    coupling = couple(density, start / UNIT, variables)
    assert coupling is not None
    place = find_place(Precision(density, coupling, np.array([0])), start / UNIT)
    assert place is not None
    assert place.theta[0] * UNIT[0] == pytest.approx(0.0, abs=0.4)


@pytest.mark.parametrize("theta", [-9.0, -6.0, -3.0])
def test_heads_are_found_where_their_density_rises_ever_more_steeply(theta: float) -> None:
    """The log scale of an effect that much data tell: its log density curves upwards below log 1/2.

    A step along an axis that curves upwards is not as short as the curvature is large.
    """

    def evaluate(at: np.ndarray, score: np.ndarray) -> float:
        size, rest = np.exp(at[0]), at[1:]
        score[0] = 4_000.0 * size * (1.0 - size)
        score[1:] = -rest
        return float(2_000.0 * size * (2.0 - size) - 0.5 * rest @ rest)

    n = 12
    density = ScaledDensity(evaluate, np.ones(n))
    narrow = Coupling(
        sparse.csc_matrix(np.eye(n, dtype=bool)), np.ones(n), np.arange(n) < 1, members=(), levels=()
    )
    place = find_place(Precision(density, narrow, np.array([0])), np.append(theta, np.full(n - 1, 0.2)))
    assert place is not None
    assert place.theta[0] == pytest.approx(0.0, abs=0.01)
    assert abs(place.root[0, 0]) == pytest.approx(1.0 / np.sqrt(4_000.0), rel=0.1)


class Widening:
    """Latents with the precision e^theta A + g(theta) B and theta ~ N(0.5, 0.3^2), where g is 0 below -1.

    A is tridiagonal, and B has the entries of neighbours five places away.
    """

    far = 4.0 * np.eye(T) + np.eye(T, k=5) + np.eye(T, k=-5)
    near = 3.0 * np.eye(T) + np.eye(T, k=1) + np.eye(T, k=-1)

    def precision(self, theta: float) -> np.ndarray:
        return np.asarray(np.exp(theta) * self.near + max(theta + 1.0, 0.0) ** 2 * self.far)

    def __call__(self, at: np.ndarray, score: np.ndarray) -> float:
        theta, x = float(at[0]), at[1:]
        matrix, r = self.precision(theta), (theta - 0.5) / 0.3
        slope = np.exp(theta) * self.near + 2.0 * max(theta + 1.0, 0.0) * self.far
        score[0] = -r / 0.3 - 0.5 * x @ slope @ x + 0.5 * np.trace(np.linalg.solve(matrix, slope))
        score[1:] = -matrix @ x
        return float(-0.5 * r * r - 0.5 * x @ matrix @ x + 0.5 * np.linalg.slogdet(matrix)[1])


def test_neighbours_are_looked_for_again_where_there_are_more() -> None:
    """At the start, theta = -2, neighbours are next to each other. In the middle others are as near."""
    target = Widening()
    start = np.append(-2.0, START[1:])
    learned, _ = learn_field(in_maps(target), start, np.ones(T + 1), np.array([0, *[1] * T]))
    assert learned is not None
    for x in np.random.default_rng(1).normal(size=(5, T)):
        z = in_z(learned.rows, 0.5, x)
        assert z @ z == pytest.approx(x @ target.precision(0.5) @ x, rel=0.01)


def law_of(walk: Walk) -> tuple[np.ndarray, float, float]:
    """The rows of the field that is learned, and the mean and standard deviation of its head."""
    learned, gradients = learn_field(in_maps(walk), START, UNIT, np.array([0, *[1] * T]))
    assert learned is not None
    np.testing.assert_array_equal(field_of(learned.rows).heads, [0])
    assert 2 * T < gradients < 2_000
    return learned.rows, float(field_of(learned.rows).mid[0]), float(learned.scale[0])


def in_z(rows: np.ndarray, theta: float, x: np.ndarray) -> np.ndarray:
    z = np.empty(T + 1)
    composition.into_z(rows, np.append(theta, x), z)
    return z[1:]


@pytest.mark.parametrize("data", [True, False], ids=["with data", "without"])
def test_latents_are_standard_normal_in_z_wherever_the_head_is(data: bool) -> None:
    """Given theta, z is normal with a mean and a covariance that follow from the exact ones of x.

    The rms of the mean and of the covariance's difference from I stay small from -3 to 3 standard deviations.
    """
    walk = Walk(DATA if data else None)
    rows, mid, sd = law_of(walk)
    for r in np.linspace(-3.0, 3.0, 13):
        theta = mid + r * sd
        mean, root = walk.mean(theta), np.linalg.cholesky(np.linalg.inv(walk.precision(theta)))
        at_mean = in_z(rows, theta, mean)
        moved = np.array([in_z(rows, theta, mean + column) - at_mean for column in root.T])
        assert np.sqrt(np.mean(np.square(at_mean))) < 0.3
        assert np.linalg.norm(moved.T @ moved - np.eye(T)) / np.sqrt(T) < 0.4


class Trend:
    """y_t ~ N(l_t, s_y^2) with l_t ~ N(l_t-1 + b_t-1, s_l^2) and b_t ~ N(b_t-1, s_b^2): all of it is known.

    The coordinates are the logarithms of s_l, s_b and s_y, whose priors are half-normal, and l and b in turn.
    Where s_l or s_b is small, latents are tied by equations, and data do not say how small it is.
    """

    def __init__(self, n: int) -> None:
        rng = np.random.default_rng(8)
        slope = np.cumsum(0.1 * rng.normal(size=n))
        self.y = np.cumsum(slope + 0.3 * rng.normal(size=n)) + rng.normal(size=n)
        levels, slopes = 2 * np.arange(n), 2 * np.arange(n) + 1
        rows: list[tuple[np.ndarray, int]] = [(np.eye(2 * n)[levels[0]] / 5.0, -1), (np.eye(2 * n)[1], -1)]
        for t in range(1, n):
            step, turn = np.zeros(2 * n), np.zeros(2 * n)
            step[levels[t]], step[levels[t - 1]], step[slopes[t - 1]] = 1.0, -1.0, -1.0
            turn[slopes[t]], turn[slopes[t - 1]] = 1.0, -1.0
            rows += [(step, 0), (turn, 1)]
        self.parts = [np.array([row for row, k in rows if k == head]) for head in (-1, 0, 1)]
        self.parts.append(np.eye(2 * n)[levels])
        self.limits, self.n = np.array([1.0, 0.5, 2.0]), n

    def __call__(self, at: np.ndarray, score: np.ndarray) -> float:
        theta, x = at[:3], at[3:]
        shares = np.exp(2.0 * theta) / self.limits**2
        logp, score[:3] = float(np.sum(theta - 0.5 * shares)), 1.0 - shares
        errors = [part @ x for part in self.parts]
        errors[3] = errors[3] - self.y
        score[3:] = -self.parts[0].T @ errors[0]
        logp -= 0.5 * errors[0] @ errors[0]
        for head, (part, error) in enumerate(zip(self.parts[1:], errors[1:], strict=True)):
            unit = np.exp(-2.0 * theta[head])
            score[3:] -= unit * (part.T @ error)
            score[head] += unit * error @ error - len(error)
            logp -= 0.5 * unit * error @ error + len(error) * theta[head]
        return float(logp)

    def precision(self, theta: np.ndarray) -> np.ndarray:
        units = np.exp(-2.0 * np.append(0.0, theta))
        return np.asarray(sum(u * part.T @ part for u, part in zip(units, self.parts, strict=True)))

    def mean(self, theta: np.ndarray) -> np.ndarray:
        return np.linalg.solve(self.precision(theta), np.exp(-2.0 * theta[2]) * self.parts[3].T @ self.y)

    def marginal(self, theta: np.ndarray) -> float:
        logp = self(np.append(theta, self.mean(theta)), np.empty(3 + 2 * self.n))
        return float(logp - 0.5 * np.linalg.slogdet(self.precision(theta))[1])


def off_in_z(trend: Trend, rows: np.ndarray, theta: np.ndarray) -> tuple[float, float]:
    """How far the mean of the latents is off in z, and their covariance there from I, by singular values."""
    d = 3 + 2 * trend.n
    root = np.linalg.cholesky(np.linalg.inv(trend.precision(theta)))
    mean, at_mean, moved = trend.mean(theta), np.empty(d), np.empty((d, d - 3))
    composition.into_z(rows, np.append(theta, mean), at_mean)
    for column, out in zip(root.T, moved.T, strict=True):
        composition.into_z(rows, np.append(theta, mean + column), out)
    sizes = np.linalg.svd((moved - at_mean[:, None])[3:], compute_uv=False)
    return float(np.linalg.norm(at_mean[3:])), float(np.abs(np.log(sizes)).max())


def test_a_law_is_right_where_several_heads_have_necks() -> None:
    """A design along straight lines: the law was off by tens where s_l is small and s_b is as data want it.

    The points are where the exact density of the heads is within e^-6 of its largest value, on walks through
    the necks of s_l and s_b.
    """
    trend = Trend(25)
    d = 3 + 2 * trend.n
    start = np.append([-0.5, -1.5, 0.2], 0.3 * np.random.default_rng(4).normal(size=d - 3))
    learned, gradients = learn_field(
        in_maps(trend), start, np.ones(d), np.array([0, 1, 2, *[3, 4] * trend.n])
    )
    assert learned is not None
    field = field_of(learned.rows)
    np.testing.assert_array_equal(field.heads, [0, 1, 2])
    assert gradients < 12_000
    rng, theta, spreads_of_heads = np.random.default_rng(1), field.mid.copy(), np.array([0.33, 1.0, 1.0])
    top, here = trend.marginal(theta), trend.marginal(theta)
    seen = []
    for _ in range(4_000):
        there = theta + rng.normal(size=3) * rng.choice([0.3, 1.0, 3.0]) * spreads_of_heads
        height = trend.marginal(there)
        if height > top - 6.0 and np.log(rng.uniform()) < 0.5 * (height - here):
            theta, here = there, height
            seen.append(theta)
    necks = [theta for theta in seen if np.any((theta < field.mid - 2.5 * spreads_of_heads)[:2])]
    lowest = np.min(necks, axis=0)
    assert lowest[0] < field.mid[0] - 3.0
    assert lowest[1] < field.mid[1] - 3.0
    means, spreads = np.array([off_in_z(trend, learned.rows, theta) for theta in necks]).T
    assert np.median(means) < 0.6
    assert np.quantile(means, 0.9) < 1.0
    assert np.quantile(spreads, 0.9) < 0.5


def coordinates_of(design: Design) -> HeadCoordinates:
    heads = design.precision.heads
    unit = design.precision.density.unit[heads]
    return head_coordinates(design.place, heads, unit, learn_head_laws(design, heads, unit))


def test_a_design_grows_where_its_law_is_off() -> None:
    walk = Walk(DATA)
    precision = precision_of(walk)
    place = find_place(precision, START / UNIT)
    assert place is not None
    narrow = Design(precision, place)
    for step in (-0.3, 0.3):
        assert narrow.add(place.theta + place.root @ [step], place.mode) is not None
    rng = np.random.default_rng(1)
    assert widen_design(narrow, fit_law(precision, place, narrow), coordinates_of(narrow), rng) > 3
    design = find_design(precision, place)
    assert widen_design(design, fit_law(precision, place, design), coordinates_of(design), rng) <= 2


def test_deviations_are_those_of_all_modes_of_a_design_that_has_grown() -> None:
    precision = precision_of(Walk(DATA))
    place = find_place(precision, START / UNIT)
    assert place is not None
    design, again = Design(precision, place), Design(precision, place)
    assert design.deviations().shape == (1, len(precision.latents))
    for step in (-1.0, 1.0):
        theta = place.theta + place.root @ [step]
        mode = design.add(theta, place.mode)
        assert mode is not None
        again.keep(theta, mode)
    np.testing.assert_array_equal(design.deviations(), again.deviations())
    for row, mode in zip(design.deviations(), design.points()[1], strict=True):
        root = np.linalg.inv(mode.factor.lower.toarray() * np.sqrt(mode.factor.pivots))
        ratios = row / np.sqrt(np.square(root).sum(axis=0))
        assert 0.8 < np.sqrt(np.square(ratios).mean()) < 1.25


def test_a_design_grows_first_where_its_law_is_off_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """Points near each other would teach the law the same, and one far out nothing that matters."""
    precision = precision_of(Walk(DATA))
    place = find_place(precision, START / UNIT)
    assert place is not None
    narrow = Design(precision, place)
    near, far = (place.theta + place.root @ [step] for step in (0.6, 1.2))
    beside, out = far + place.root @ [0.1], place.theta + place.root @ [-60.0]
    walks = [(0.6, near), (2.0, beside), (9.0, out), (3.0, far)]
    straight = coordinates_of(narrow)
    found = [design.Wrong(off, theta, straight.into_w(theta), place.mode.x) for off, theta in walks]
    monkeypatch.setattr(design, "_walk", lambda *_: found)
    law = fit_law(precision, place, narrow)
    assert widen_design(narrow, law, straight, np.random.default_rng(1)) == 2
    np.testing.assert_array_equal(narrow.points()[0][1:], [far, near])


def test_a_law_is_right_where_data_hardly_tell_a_scale_from_0() -> None:
    """A design that got the first points where its law was off had few there.

    An autoregression with noise and missing data, at heads of its posterior whose marginal density is exact.
    """
    truth, data = rank_models.simulate("missing", 1)
    density = ProgramDensity(rank_models.MISSING, {k: np.asarray(v).tolist() for k, v in data.items()})
    x = density.model.unconstrain({name: np.asarray(value) for name, value in truth.items()})
    variables = variable_groups(list(density.model.unconstrained_names()))
    learned, _ = learn_field(in_maps(density), x, np.full(x.size, 0.5), variables)
    assert learned is not None
    field = field_of(learned.rows)
    np.testing.assert_array_equal(field.heads, [1, 2, 3])
    seen, y = data["seen"], data["y_seen"]
    apart = np.abs(np.subtract.outer(seen, seen))

    def log_density(heads: np.ndarray) -> float:
        phi, (s, noise) = np.tanh(0.5 * heads[0]), np.exp(heads[1:])
        covariance = s**2 / (1.0 - phi**2) * phi**apart + 4.0 + noise**2 * np.eye(len(y))
        of_phi = -5.0 * np.logaddexp(0.0, -heads[0]) - 1.5 * np.logaddexp(0.0, heads[0])
        return float(of_phi - 0.5 * (s**2 + noise**2) + heads[1:].sum() + log_normal(y, covariance))

    def off(heads: np.ndarray) -> float:
        z, score = np.empty(x.size), np.empty(x.size)
        composition.into_z(learned.rows, np.concatenate((x[:1], heads, x[4:])), z)
        z[field.own] = 0.0
        there = np.empty(x.size)
        composition.into_x(learned.rows, z, there)
        density(there, score)
        composition.pull_back(learned.rows, z, there, score)
        return float(np.linalg.norm(score[field.own]))

    rng, heads, necks = np.random.default_rng(1), field.mid, []
    here = log_density(heads)
    for _ in range(10_000):
        moved = heads + rng.choice([0.3, 1.0, 3.0]) * rng.normal(size=3) * [0.5, 0.7, 0.7]
        height = log_density(moved)
        if np.log(rng.uniform()) < height - here:
            heads, here = moved, height
            if heads[1:].min() < -3.0:
                necks.append(heads)
    assert len(necks) > 40
    assert np.quantile([off(heads) for heads in necks], 0.9) < 0.7


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_the_longest_tail_goes_on_first_where_gradients_are_few(sign: float) -> None:
    """A tail goes on only while its density has fallen less than that of the other one, which has not ended.

    The data exclude a large scale, and cannot tell a small one from 0; the head is the log or minus it.
    """
    walk, mirror = Walk(DATA, sd=3.0), np.append(sign, np.ones(T))

    def evaluate(at: np.ndarray, score: np.ndarray) -> float:
        logp = walk(mirror * at, score)
        score *= mirror
        return logp

    def follow(most: float) -> tuple[list[list[float]], int, int]:
        """Heights of the stars of both tails, from the middle on, and gradients before and after them."""
        density = ScaledDensity(evaluate, UNIT, most)
        coupling = couple(density, START / UNIT, np.array([0, *[1] * T]))
        assert coupling is not None
        place = find_place(precision := Precision(density, coupling, np.array([0])), mirror * START / UNIT)
        assert place is not None
        design, before = find_design(precision, place, tails=False), density.gradients
        follow_tails(design)
        heights: list[list[float]] = [[0.0], [0.0]]
        for point in design.ridges[0]:
            heights[int(point.theta[0] > place.theta[0])].append(point.height)
        return heights, before, density.gradients

    whole, before, after = follow(np.inf)
    for share in (0.3, 0.5, 0.7):
        few, _, _ = follow((before + share * (after - before)) / 0.6)
        assert sum(map(len, few)) < sum(map(len, whole))
        for one, other in ((0, 1), (1, 0)):
            if len(few[one]) > 1 and len(few[other]) < len(whole[other]):
                assert few[one][-2] >= few[other][-1]


def test_a_law_that_is_far_off_is_told_before_the_tails(monkeypatch: pytest.MonkeyPatch) -> None:
    precision = precision_of(Walk(DATA))
    place = find_place(precision, START / UNIT)
    assert place is not None
    design = find_design(precision, place, tails=False)
    assert len(design.points()[1]) < len(find_design(precision, place).points()[1])
    law = fit_law(precision, place, design)
    assert how_far_off(design, law) < 0.3
    assert how_far_off(design, law._replace(middle=law.middle + 3.0)) > HOPELESS
    variables = np.array([0, *[1] * T])
    whole, all_gradients = learn_field(in_maps(Walk(DATA)), START, UNIT, variables)
    assert whole is not None
    monkeypatch.setattr(field_learning, "HOPELESS", 1e-3)
    found, gradients = learn_field(in_maps(Walk(DATA)), START, UNIT, variables)
    assert found is not None
    assert not len(found.rows)
    assert gradients < 0.8 * all_gradients


def test_far_out_latents_are_not_centred_on_one_side_and_centred_on_the_other() -> None:
    """The slope of s in the log scale is 1 where the walk rules, and 0 where the data do.

    Both limits hold beyond the design too, which ends at 5 standard deviations.
    """
    rows, mid, sd = law_of(Walk(DATA))
    far = 30.0 * sd

    def log_det(theta: float) -> float:
        return float(composition.into_x(rows, np.append(theta, np.zeros(T)), np.empty(T + 1)))

    left = (log_det(mid - far + 0.5) - log_det(mid - far - 0.5)) / T
    right = (log_det(mid + far + 0.5) - log_det(mid + far - 0.5)) / T
    assert left == pytest.approx(1.0, abs=0.05)
    assert right == pytest.approx(0.0, abs=0.1)
    without, mid, sd = law_of(Walk(None))
    for side in (-30.0, 30.0):
        ahead, behind = (
            float(composition.into_x(without, np.append(mid + side * sd + h, np.zeros(T)), np.empty(T + 1)))
            for h in (0.5, -0.5)
        )
        assert (ahead - behind) / T == pytest.approx(1.0, abs=0.01)


def test_the_law_at_a_point_of_the_design_has_its_factor() -> None:
    """s = -log(D) / 2, and z = 0 is the mode, at the middle of the design."""
    walk = Walk(DATA)
    precision = precision_of(walk)
    place = find_place(precision, START / UNIT)
    assert place is not None
    law = fit_law(precision, place, find_design(precision, place))
    theta = float(law.mid[0])
    learned, _ = learn_field(in_maps(walk), START, UNIT, np.array([0, *[1] * T]))
    assert learned is not None
    z = np.zeros(T + 1)
    z[0] = theta
    x = np.empty(T + 1)
    log_det = composition.into_x(learned.rows, z, x)
    assert log_det == pytest.approx(-0.5 * np.linalg.slogdet(walk.precision(theta))[1], abs=0.02 * T)
    np.testing.assert_allclose(x[1:], walk.mean(theta), atol=0.05)


def test_a_field_without_heads_whitens_a_fixed_precision() -> None:
    matrix = band(40, 4)
    learned, _ = learn_field(in_maps(quadratic(matrix)), np.ones(40), np.ones(40), np.zeros(40, int))
    assert learned is not None
    assert not len(field_of(learned.rows).heads)
    jacobian = np.empty((40, 40))
    for j, e in enumerate(np.eye(40)):
        x = np.empty(40)
        composition.into_x(learned.rows, e, x)
        jacobian[:, j] = x
    np.testing.assert_allclose(jacobian.T @ matrix @ jacobian, np.eye(40), atol=1e-5)


def test_a_field_is_looked_for_where_other_laws_move_coordinates() -> None:
    """A process of 11 points may get the law of a hierarchy first, which makes trajectories shorter."""
    row = np.zeros((1, COLUMNS))
    row[0, KIND] = NOT_CENTRED
    assert seeks_field(13, row, 0, 0.0, 30, 6.0)
    assert not seeks_field(13, row, 0, 0.0, 30, 4.0)
    assert not seeks_field(8, row, 0, 0.0, 30, 6.0)


def test_a_large_posterior_needs_more_draws_before_the_look_for_neighbours() -> None:
    """It takes a gradient for each coordinate or so, at most twice those of the last two windows."""
    none = np.zeros((0, COLUMNS))
    assert seeks_field(1_200, none, 0, 0.0, 60, 10.0)
    assert not seeks_field(1_201, none, 0, 0.0, 60, 10.0)
    assert seeks_field(1_201, none, 0, 0.0, 60, 10.0, before=1)
    assert not seeks_field(1_201, none, 0, 0.0, 29, 10.0, before=60)


def test_the_look_for_neighbours_leaves_a_search_all_its_gradients() -> None:
    density = ScaledDensity(Walk(DATA), UNIT, 100)
    for _ in range(40):
        density(START)
    density.has_looked()
    assert density.spent == 0.0
    for _ in range(30):
        density(START)
    assert density.spent == 0.5


def test_normal_equations_give_what_least_squares_do() -> None:
    """Weights of a neck differ by many orders of magnitude."""
    rng = np.random.default_rng(1)
    terms = np.column_stack((np.ones(60), np.linalg.qr(rng.normal(size=(60, 12)))[0] * np.sqrt(60.0)))
    weights = np.exp(8.0 * rng.normal(size=(5, 60)))
    wanted = rng.normal(size=(5, 60))
    penalty = np.append(0.0, np.full(12, 1e-7 * 60))
    products, upper = products_of_pairs(terms), np.triu_indices(13)
    np.testing.assert_array_equal(products, terms[:, upper[0]] * terms[:, upper[1]])
    found = weighted_least_squares(terms, products, weights, penalty, wanted)
    for weight, row, own in zip(weights, wanted, found, strict=True):
        rows = np.concatenate((np.sqrt(weight)[:, None] * terms, np.diag(np.sqrt(penalty))))
        right = np.append(np.sqrt(weight) * row, np.zeros(13))
        np.testing.assert_allclose(own, np.linalg.lstsq(rows, right, rcond=None)[0], rtol=1e-7, atol=1e-9)


def test_a_dear_search_in_vain_is_not_made_again_soon() -> None:
    """It took more than twice the gradients of the window that has ended."""
    assert seeks_field(100, np.zeros((0, COLUMNS)), 1, 2_000.0, 60, 20.0)
    assert not seeks_field(100, np.zeros((0, COLUMNS)), 1, 3_000.0, 60, 20.0)


def test_a_chain_that_takes_many_gradients_looks_again_after_cheap_searches_in_vain() -> None:
    """On its way from far out it may have looked twice where there is no law. But a field that was given up
    is not looked for again.
    """
    none = np.zeros((0, COLUMNS))
    assert seeks_field(100, none, MOST_SEARCHES, 500.0, 100, 100.0)
    assert not seeks_field(100, none, MOST_SEARCHES, 501.0, 100, 100.0)
    assert not seeks_field(100, none, NO_MORE, 500.0, 100, 100.0)


def test_latents_that_are_not_coupled_are_no_dense_block() -> None:
    """A hierarchy: ten effects, each coupled to their scale and their mean alone."""
    matrix = np.diag(np.full(12, 3.0))
    matrix[:2, 2:] = matrix[2:, :2] = 0.4
    variables = np.array([0, 1, *[2] * 10])
    coupling = couple(ScaledDensity(quadratic(matrix), np.ones(12)), np.ones(12), variables)
    assert coupling is not None
    assert dense_coupling(coupling, variables) is None


def test_a_dense_precision_is_no_field() -> None:
    root = np.random.default_rng(5).normal(size=(60, 60))
    assert (
        learn_field(in_maps(quadratic(root @ root.T)), np.ones(60), np.ones(60), np.zeros(60, int))[0] is None
    )


def test_nothing_is_found_where_the_density_fails() -> None:
    def evaluate(x: np.ndarray, score: np.ndarray) -> float:
        score[:] = np.nan
        return float("nan")

    found, gradients = learn_field(in_maps(evaluate), np.zeros(30), np.ones(30), np.zeros(30, int))
    assert found is None
    assert gradients <= 4


class Counts:
    """Poisson counts on a ring of regions: BYM2, the structured part with a soft constraint on its sum.

    The coordinates are mu, log sigma, logit rho, theta (n,) and phi (n,).
    """

    n, tight = 24, 1e-3

    def __init__(self) -> None:
        rng = np.random.default_rng(5)
        waves = np.sin(2.0 * np.pi * np.arange(self.n) / self.n)
        self.y = rng.poisson(np.exp(1.5 + 0.6 * waves + 0.2 * rng.standard_normal(self.n)))

    def __call__(self, at: np.ndarray, score: np.ndarray) -> float:
        mu, log_sigma, logit = at[:3]
        theta, phi = at[3 : 3 + self.n], at[3 + self.n :]
        sigma, rho = np.exp(log_sigma), 1.0 / (1.0 + np.exp(-logit))
        alone, tied = sigma * np.sqrt(1.0 - rho), sigma * np.sqrt(rho / 2.0)
        eta = mu + alone * theta + tied * phi
        rest, steps, level = self.y - np.exp(eta), phi - np.roll(phi, 1), phi.mean() / self.tight
        score[0] = rest.sum() - mu / 9.0
        score[1] = rest @ (eta - mu) - sigma**2 + 1.0
        score[2] = 0.5 * (rest @ (tied * phi) * (1.0 - rho) - rest @ (alone * theta) * rho) + 0.5 - rho
        score[3 : 3 + self.n] = alone * rest - theta
        score[3 + self.n :] = tied * rest - steps + np.roll(steps, -1) - level / self.tight / self.n
        prior = mu**2 / 9.0 + sigma**2 + theta @ theta + steps @ steps + level**2
        of_heads = log_sigma + 0.5 * np.log(rho * (1.0 - rho))
        return float(self.y @ eta - np.exp(eta).sum() - 0.5 * prior + of_heads)


def test_a_constraint_on_a_sum_is_weak_in_z_wherever_the_heads_are() -> None:
    """And all three heads are found from where rho is near 1, so that it does next to nothing there.

    In z of a law without the constraint a direction is narrow by a factor of hundreds, and turns.
    """
    counts, d = Counts(), 2 * Counts.n + 3
    variables = np.array([0, 1, 2, *[3] * counts.n, *[4] * counts.n])
    start = np.append([1.5, -0.5, 7.0], 0.1 * np.random.default_rng(4).standard_normal(d - 3))
    learned, _ = learn_field(in_maps(counts), start, np.ones(d), variables)
    assert learned is not None
    law = field_of(learned.rows)
    np.testing.assert_array_equal(law.heads, [0, 1, 2])
    first, size, factor = law.level
    assert (first, size) == (3 + counts.n, counts.n)
    assert 0.0 < factor < 0.05
    moved = learned.directions[:, law.own]
    for off in (-0.7, 0.0, 0.7):
        z, scores = np.zeros(d), np.empty((len(law.own), d))
        z[law.heads] = law.mid + off * np.array([0.05, 0.2, 0.5])
        for k, i in enumerate(law.own):
            sides = []
            for step in (-1e-4, 1e-4):
                near, x, score = z.copy(), np.empty(d), np.empty(d)
                near[i] += step
                composition.into_x(learned.rows, near, x)
                counts(x, score)
                composition.pull_back(learned.rows, near, x, score)
                sides.append(score)
            scores[k] = (sides[0] - sides[1]) / 2e-4
        precision = scores[:, law.own]
        root = np.eye(len(law.own)) + moved.T @ ((np.sqrt(learned.variances) - 1.0)[:, None] * moved)
        sizes = np.linalg.eigvalsh(root @ (0.5 * (precision + precision.T)) @ root)
        assert np.abs(np.log(sizes)).max() < np.log(3.0)
