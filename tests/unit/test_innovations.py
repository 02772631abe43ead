"""Series that are written in their innovations: found from probes, and turned into the series."""

from __future__ import annotations

import numpy as np
import pytest
from test_correlated_effects import ProgramDensity, find

import field_models
from densities import in_maps
from stanadapt.transport import composition, innovations
from stanadapt.transport.field_table import field_of, field_rows, fields_of, innovations_of, split
from stanadapt.transport.fields.field_learning import learn_field
from stanadapt.transport.fields.innovation_law import fit_innovations
from stanadapt.transport.fields.innovation_search import (
    Innovations,
    Series,
    find_innovations,
    predict,
    series_at,
    solve_probes,
)
from stanadapt.transport.fields.probes import ScaledDensity
from stanadapt.transport.map_table import INNOVATIONS, KIND

T = 40
D = T + 2
START = np.concatenate(([-0.3, 1.5], 0.3 * np.random.default_rng(4).normal(size=T)))
UNIT = np.concatenate(([0.4, 0.5], np.ones(T)))
VARIABLES = np.array([0, 1, *[2] * T])


class Autoregression:
    """y_t ~ N(h_t, 1) around h_t = phi h_t-1 + sigma x_t with normal x: all of it is known.

    The coordinates are log sigma, the logit of (1 + phi) / 2, and x.
    """

    def __init__(self, stationary: bool = False) -> None:
        """If it is `stationary`, so is h_1."""
        rng, self.stationary = np.random.default_rng(1), stationary
        self.y = self.root(0.0, 2.0) @ rng.normal(size=T) + rng.normal(size=T)

    @staticmethod
    def root(log_sigma: float, a: float) -> np.ndarray:
        """R (T, T), where h = R x."""
        lags = np.subtract.outer(np.arange(T), np.arange(T))
        return np.exp(log_sigma) * np.where(lags >= 0, np.tanh(0.5 * a) ** np.maximum(lags, 0), 0.0)

    def __call__(self, at: np.ndarray, score: np.ndarray) -> float:
        phi, x = np.tanh(0.5 * at[1]), at[2:]
        root = self.root(at[0], at[1])
        wide = np.append(1.0 / np.sqrt(1.0 - phi * phi) if self.stationary else 1.0, np.ones(T - 1))
        root = root * wide
        h = root @ x
        misses = self.y - h
        score[2:] = root.T @ misses - x
        before = np.insert(h, 0, 0.0)[:-1]
        by_phi = (root / wide) @ before / np.exp(at[0])  # the derivative of h in phi
        if self.stationary:
            by_phi = by_phi + root[:, 0] * x[0] * phi / (1.0 - phi * phi)
        score[0] = misses @ h - at[0] / 0.36
        score[1] = 0.5 * (1.0 - phi * phi) * misses @ by_phi - (at[1] - 1.5)
        prior = -0.5 * (x @ x) - 0.5 * at[0] ** 2 / 0.36 - 0.5 * (at[1] - 1.5) ** 2
        return float(prior - 0.5 * misses @ misses)


def found(density: Autoregression | None = None) -> Innovations:
    series, gradients = find_innovations(density or Autoregression(), START, UNIT, VARIABLES)
    assert series is not None
    assert gradients == series.gradients < 300
    return series


@pytest.mark.parametrize(
    "unseen", [[], [3, 20, 21, 22], [T - 3, T - 2, T - 1]], ids=["all", "gaps", "no end"]
)
def test_probes_give_the_series_and_its_curvature(unseen: list[int]) -> None:
    """Of terms without data too; but those that no data come after are no part of a series."""
    rng = np.random.default_rng(2)
    rho, curvature = rng.uniform(-1.1, 1.1, T), rng.uniform(0.1, 2.0, T)
    curvature[unseen] = 0.0
    rho[0] = 0.0
    if T - 1 in unseen:
        rho[unseen] = 0.0
    into_series = np.linalg.inv(np.eye(T) - np.diag(rho[1:], -1))
    matrix = into_series.T @ np.diag(curvature) @ into_series
    probes = rng.normal(size=(6, T))
    series = solve_probes(probes, probes @ matrix)
    np.testing.assert_allclose(series.rho, rho[None], atol=1e-7)
    np.testing.assert_allclose(series.curvature, curvature, rtol=1e-6, atol=1e-9)
    probe = rng.normal(size=T)
    np.testing.assert_allclose(
        predict(Series(rho[None], curvature), probe), matrix @ probe, rtol=1e-10, atol=1e-10
    )


@pytest.mark.parametrize("stationary", [False, True])
@pytest.mark.parametrize("move", [-2.0, -1.0, 0.0, 0.7, 2.0, 4.0])
def test_the_series_is_known_wherever_its_head_is(move: float, stationary: bool) -> None:
    density = Autoregression(stationary)
    rows, at = found(density).rows, START.copy()
    at[1] += move * UNIT[1]
    law = field_of(rows)
    np.testing.assert_array_equal(law.heads, [0, 1])
    np.testing.assert_array_equal(law.own, np.arange(D)[:1:-1])
    x = at.copy()
    innovations.into_x(rows, x)
    steps = (at[3:] - np.tanh(0.5 * at[1]) * at[2:-1]) / np.exp(at[0])
    np.testing.assert_allclose(x[3:], steps, atol=1e-5)
    wide = -0.5 * np.log1p(-(np.tanh(0.5 * at[1]) ** 2)) if density.stationary else 0.0
    np.testing.assert_allclose(x[2], at[2] / np.exp(at[0] + wide), rtol=1e-4)


@pytest.mark.parametrize("unit", [0.02, 0.5])
def test_the_series_is_known_far_from_a_point_at_which_data_hold_it(unit: float) -> None:
    """Units of such a point, in which heads hardly move, say nothing of where draws will go."""
    density, units = Autoregression(stationary=True), UNIT.copy()
    units[1] = unit
    series, _ = find_innovations(density, START, units, VARIABLES)
    assert series is not None
    for move in (-3.0, 3.0):
        at = START.copy()
        at[1] += move
        x, phi = at.copy(), np.tanh(0.5 * at[1])
        innovations.into_x(series.rows, x)
        np.testing.assert_allclose(x[3:], (at[3:] - phi * at[2:-1]) / np.exp(at[0]), atol=1e-5)
        np.testing.assert_allclose(x[2], at[2] * np.sqrt(1.0 - phi**2) / np.exp(at[0]), rtol=1e-4)


@pytest.mark.parametrize("lower", [-1.0, -0.2, 0.0, 0.5])
@pytest.mark.parametrize("middle", [-1.1, 0.9, 2.3])
def test_the_first_term_has_its_scale_whatever_the_bounds_of_phi(lower: float, middle: float) -> None:
    """Between 0 and 1, say, it is no function with all its knots at 0, and was off by 0.05."""

    def phi(at: np.ndarray) -> np.ndarray:
        return lower + (1.0 - lower) / (1.0 + np.exp(-at))

    n, unit, moves = (
        6,
        0.8,
        np.array([0.0, *(s * r for r in (0.5, 1.0, 1.75, 2.5, 4.0, 6.0) for s in (-1.0, 1.0))]),
    )
    at = middle + unit * moves
    rho = np.zeros((len(at), 1, n))
    rho[:, 0, 1:] = phi(at)[:, None]
    rho[:, 0, 1] /= np.sqrt(1.0 - phi(at) ** 2)
    law = fit_innovations(
        moves[:, None],
        rho,
        np.array([0]),
        np.array([middle]),
        np.array([unit]),
        np.arange(1, n + 1),
        np.full(n, -1),
    )
    for place in np.linspace(middle - 5.0, middle + 5.0, 11):
        x = np.concatenate(([place], np.ones(n)))
        innovations.into_x(field_rows(law, 0, INNOVATIONS), x)
        assert x[1] == pytest.approx(np.sqrt(1.0 - phi(place) ** 2), rel=1e-4)
        np.testing.assert_allclose(x[2:], 1.0 - phi(place), atol=1e-6)


@pytest.mark.parametrize("stationary", [False, True])
def test_the_density_of_the_series_is_that_of_the_innovations(stationary: bool) -> None:
    """The scores are its derivatives, those of the heads too."""
    density = Autoregression(stationary)
    series = found(density)
    x = series.x.copy()
    log_det = innovations.into_x(series.rows, x)
    np.testing.assert_allclose(x, START, atol=1e-12)
    score, none = np.empty(D), np.empty(D)
    evaluate = in_maps(density)(series.rows)
    assert evaluate(series.x, score) == pytest.approx(density(START, none) + log_det)
    step = 1e-5
    wanted = [
        (evaluate(series.x + step * e, none) - evaluate(series.x - step * e, none)) / (2.0 * step)
        for e in np.eye(D)
    ]
    np.testing.assert_allclose(score, wanted, atol=1e-6)
    innovations.score_in_x(series.rows, x, score)
    density(START, none)
    np.testing.assert_allclose(score, none, atol=1e-10)


def test_the_precision_of_the_series_is_sparse() -> None:
    series = found()
    density = ScaledDensity(in_maps(Autoregression())(series.rows), np.ones(D))
    columns = np.array([density.curvature(series.x, e) for e in np.eye(D)[2:]])[:, 2:]
    far = np.abs(np.subtract.outer(np.arange(T), np.arange(T))) > 1
    assert np.abs(columns[far]).max() < 1e-6


@pytest.mark.parametrize("move", [(0.0, 0.0), (-1.0, 1.0), (1.0, -1.5), (0.5, 1.5)])
def test_a_field_makes_innovations_standard_normal(move: tuple[float, float]) -> None:
    """Given the heads z is normal, with a mean and a covariance that follow from the exact ones of x."""
    density = Autoregression()
    learned, _ = learn_field(in_maps(density), START, UNIT, VARIABLES)
    assert learned is not None
    rows = learned.rows
    assert len(innovations_of(rows))
    assert composition.is_map(rows, D)
    assert len(split(rows)[0]) == len(rows)
    heads = np.array([-0.1, 1.6]) + np.array(move) * UNIT[:2]
    root = density.root(*heads)
    precision = np.eye(T) + root.T @ root
    mean = np.linalg.solve(precision, root.T @ density.y)

    def in_z(x: np.ndarray) -> np.ndarray:
        z = np.empty(D)
        composition.into_z(rows, np.concatenate((heads, x)), z)
        return z[2:]

    at_mean = in_z(mean)
    columns = np.linalg.cholesky(np.linalg.inv(precision)).T
    moved = np.array([in_z(mean + column) - at_mean for column in columns])
    assert np.sqrt(np.mean(np.square(at_mean))) < 0.1
    assert np.linalg.norm(moved.T @ moved - np.eye(T)) / np.sqrt(T) < 0.1


@pytest.mark.parametrize("in_rows", [False, True])
@pytest.mark.parametrize("k", [2, 3])
def test_a_matrix_has_a_series_in_each_column_or_row(k: int, in_rows: bool) -> None:
    """Walks that data of each day tie, as coefficients of a regression on k columns."""
    days = 24
    rng, n = np.random.default_rng(5), days * k
    places = np.arange(n).reshape(days, k).T if in_rows else np.arange(n).reshape(k, days)
    sums, columns = np.tril(np.ones((days, days))), rng.normal(size=(days, k))
    design = np.zeros((days, n))
    for own, column in zip(places, columns.T, strict=True):
        design[:, own] = column[:, None] * sums
    precision, score_at_zero = np.eye(n) + design.T @ design, design.T @ rng.normal(size=days)

    def evaluate(x: np.ndarray, score: np.ndarray) -> float:
        score[:] = score_at_zero - precision @ x
        return float(x @ (score + score_at_zero) / 2.0)

    x = rng.normal(size=n)
    series, _ = find_innovations(evaluate, x, np.ones(n), np.zeros(n, np.int64))
    assert series is not None
    for own in places:
        np.testing.assert_allclose(series.x[own], np.cumsum(x[own]), atol=1e-6)


PANEL = """
data { int J; int T; matrix[J, T] y; }
parameters { real log_s; matrix[J, T] z; }
model {
  log_s ~ std_normal(); to_vector(z) ~ std_normal();
  for (j in 1:J) y[j] ~ normal(exp(log_s) * cumulative_sum(z[j]), 0.5);
}
"""


def test_series_that_data_do_not_tie_have_one_field() -> None:
    """Each series is a small part of all latents, but all of them are in series."""
    data = {"J": 6, "T": 16, "y": np.random.default_rng(7).normal(size=(6, 16)).tolist()}
    rows, _, names = find(PANEL, data)
    series, law = innovations_of(rows), fields_of(rows)[0][0]
    assert len(series)
    assert [names[i] for i in law.heads] == ["log_s"]
    assert len(law.own) == 96
    density, rng = in_maps(ProgramDensity(PANEL, data))(rows), np.random.default_rng(8)
    for move in (-0.5, 0.0, 0.5):
        z, score = rng.normal(size=97), np.empty(97)
        z[0] = law.mid[0] + move
        assert np.isfinite(density(z, score))
        assert np.sqrt(np.mean(np.square(score + z)[law.own])) < 0.3


EACH = """
data { int J; int T; matrix[J, T] y; }
parameters { vector[J] a; matrix[J, T] z; }
model {
  a ~ std_normal(); to_vector(z) ~ std_normal();
  for (j in 1:J) {
    row_vector[T] h = z[j];
    for (t in 2:T) h[t] += tanh(a[j]) * h[t - 1];
    y[j] ~ normal(h, 0.5);
  }
}
"""


def test_series_with_regressions_of_their_own_have_a_law_each() -> None:
    """A law of all would have four heads. Each is right where all of these have moved, each by itself."""
    j, t = 4, 20
    density = ProgramDensity(
        EACH, {"J": j, "T": t, "y": np.random.default_rng(7).normal(size=(j, t)).tolist()}
    )
    names = list(density.model.unconstrained_names())
    rng, variables = np.random.default_rng(9), np.repeat([0, 1], [j, j * t])
    x = rng.normal(size=len(names))
    found, _ = find_innovations(density, x, np.ones(x.size), variables)
    assert found is not None
    laws = [
        field_of(part)
        for part in np.split(found.rows, np.flatnonzero(found.rows[1:, KIND] == INNOVATIONS) + 1)
    ]
    assert [[names[i] for i in law.heads] for law in laws] == [[f"a.{k}"] for k in range(1, j + 1)]
    x[:j] += rng.uniform(-1.0, 1.0, j)
    u = x.copy()
    innovations.into_u(found.rows, u)
    for k, a in enumerate(x[:j], 1):
        own = [names.index(f"z.{k}.{time}") for time in range(1, t + 1)]
        wanted = x[own].copy()
        for time in range(1, t):
            wanted[time] += np.tanh(a) * wanted[time - 1]
        np.testing.assert_allclose(u[own], wanted, atol=1e-2)
    back = u.copy()
    assert innovations.into_x(found.rows, back) == pytest.approx(0.0, abs=0.05)
    np.testing.assert_allclose(back, x, atol=1e-12)


FEW_YEARS = """
data { int T; int n; array[n] int at; vector[n] y; }
parameters { real log_s; real a; vector[T] x; vector[T] z; }
model {
  a ~ std_normal(); log_s ~ std_normal(); z ~ std_normal();
  vector[T] h = x;
  STEPS
  y ~ normal(h[at], 0.01);
}
"""
INNOVATIONS_OF_STEPS = "x ~ std_normal(); for (t in 2:T) h[t] += {} * h[t - 1]; h *= exp(log_s);"
CENTRED_STEPS = "x[1] ~ std_normal(); x[2:T] ~ normal(x[1:T-1], exp(log_s));"


@pytest.mark.parametrize(
    ("steps", "has_effects", "found"),
    [
        (INNOVATIONS_OF_STEPS.format("tanh(a)"), False, True),
        (INNOVATIONS_OF_STEPS.format("tanh(a)"), True, False),
        (INNOVATIONS_OF_STEPS.format("1"), False, False),
        (CENTRED_STEPS, False, False),
    ],
    ids=["autoregression", "beside effects", "walk", "centred walk"],
)
def test_a_short_series_alone_has_a_law_where_its_regressions_have_a_head(
    steps: str, has_effects: bool, found: bool
) -> None:
    """Others are left to a metric. A centred walk without data at two times is no series of innovations."""
    assert heads_of_innovations(steps, 8, has_effects=has_effects) == (["log_s", "a"] if found else None)


@pytest.mark.parametrize(
    ("log_s", "a"), [(0.2, 0.8), (3.0, 0.8), (0.2, 0.0)], ids=["faint", "held", "no ties"]
)
def test_a_field_of_a_short_series_has_its_heads(log_s: float, a: float) -> None:
    """However little they change the precision of terms that data tell, and also where a search begins at an
    autocorrelation of 0. It has no other head, and is looked for before effects.
    """
    program = (
        "data { int T; vector[T] y; } parameters { real log_s; real a; real m; vector[T] x; } model { a ~ "
    )
    program += "std_normal(); log_s ~ std_normal(); m ~ std_normal(); vector[T] h = x; "
    program += INNOVATIONS_OF_STEPS.format("tanh(a)") + " y ~ normal(m + h, 0.05); }"
    density = ProgramDensity(program, {"T": 9, "y": np.random.default_rng(3).normal(size=9).tolist()})
    assert list(density.model.unconstrained_names())[:3] == ["log_s", "a", "m"]
    x = np.concatenate(([log_s, a, 0.1], 0.3 * np.random.default_rng(6).normal(size=9)))
    learned, _ = learn_field(in_maps(density), x, np.full(12, 0.1), np.minimum(np.arange(12), 3))
    assert learned is not None
    assert len(innovations_of(learned.rows))
    np.testing.assert_array_equal(fields_of(learned.rows)[0][0].heads, [0, 1])


@pytest.mark.parametrize("log_s", [-1.0, 0.2])
def test_a_centred_walk_with_precise_data_and_a_gap_is_no_series_of_innovations(log_s: float) -> None:
    """Data tell its terms so well that -H is a matrix with next to no ties, but in the gap."""
    assert heads_of_innovations(CENTRED_STEPS, 40, has_effects=False, gap=6, log_s=log_s) is None


def test_a_regression_with_some_precise_coefficients_is_no_series_of_innovations() -> None:
    """Precise priors hide that -H has the ties of all others."""
    rng, n = np.random.default_rng(3), 40
    columns = rng.normal(size=(2 * n, n))
    precise = np.exp(rng.normal(size=n) * 2.0)
    precise[[4, 11, 30]] = 1e6
    density = ScaledDensity(Gaussian(np.diag(1.0 + precise) + columns.T @ columns), np.ones(n))
    assert series_at(density, np.zeros(n), np.arange(n)) is None


class Gaussian:
    """A normal density with a precision (n, n)."""

    def __init__(self, precision: np.ndarray) -> None:
        self.precision = precision

    def __call__(self, x: np.ndarray, score: np.ndarray) -> float:
        score[:] = -self.precision @ x
        return float(0.5 * x @ score)


def heads_of_innovations(
    steps: str, t: int, *, has_effects: bool, gap: int = 2, log_s: float = 0.2
) -> list[str] | None:
    """The heads of the law of `t` terms, some without data, if they are innovations; None if they are not."""
    program = FEW_YEARS.replace("STEPS", steps)
    if not has_effects:
        program = program.replace("vector[T] z;", "real z;")
    at = [1, 1, 2, *range(3 + gap, t + 1)]
    density = ProgramDensity(program, {"T": t, "n": len(at), "at": at, "y": [0.3] * len(at)})
    names = list(density.model.unconstrained_names())
    variables = np.unique([name.partition(".")[0] for name in names], return_inverse=True)[1]
    x = 0.3 * np.random.default_rng(6).normal(size=len(names))
    x[names.index("a")], x[names.index("log_s")] = 0.8, log_s
    series, _ = find_innovations(density, x, np.ones(x.size), variables)
    return None if series is None else [names[i] for i in field_of(series.rows).heads]


def test_scales_that_do_nothing_where_a_search_begins_are_heads() -> None:
    """Of three walks: while their scales are small, the curvature hardly depends on them."""
    model = field_models.MODELS["coefficients"]
    density = ProgramDensity(
        model.program, {name: np.asarray(each).tolist() for name, each in model.data(40).items()}
    )
    names = list(density.model.unconstrained_names())
    variables = np.unique([name.partition(".")[0] for name in names], return_inverse=True)[1]
    x = 0.1 * np.random.default_rng(4).normal(size=len(names))
    x[[names.index(f"tau.{k}") for k in (1, 2, 3)]] = [-1.5, -3.0, -4.0]
    learned, _ = learn_field(in_maps(density), x, np.full(x.size, 0.5), variables)
    assert learned is not None
    law = fields_of(split(learned.rows)[0])[0][0]
    assert [names[i] for i in law.heads] == ["tau.1", "tau.2", "tau.3", "sigma"]


SUMS_OF_SUMS = """
data { int T; vector[T] y; }
parameters { real log_v; real log_e; vector[T] z; }
model {
  log_v ~ normal(-4, 1); log_e ~ normal(0, 0.3); z ~ std_normal();
  y ~ normal(exp(0.5 * log_v) * cumulative_sum(cumulative_sum(z)), exp(log_e));
}
"""


@pytest.mark.parametrize("log_v", [-8.0, -6.0, -4.0])
def test_a_head_that_hardly_changes_the_diagonal_is_found(log_v: float) -> None:
    """A variance tells how far sums of sums go. As a latent it has a mode, but is far from normal there."""
    rng, n = np.random.default_rng(1), 40
    y = np.exp(-3.5) * np.cumsum(np.cumsum(rng.normal(size=n))) + rng.normal(size=n)
    density = ProgramDensity(SUMS_OF_SUMS, {"T": n, "y": y.tolist()})
    names = list(density.model.unconstrained_names())
    variables = np.unique([name.partition(".")[0] for name in names], return_inverse=True)[1]
    x = 0.3 * rng.normal(size=len(names))
    x[names.index("log_v")], x[names.index("log_e")] = log_v, 0.0
    learned, _ = learn_field(in_maps(density), x, np.full(x.size, 0.5), variables)
    assert learned is not None
    law = fields_of(split(learned.rows)[0])[0][0]
    assert [names[i] for i in law.heads] == ["log_v", "log_e"]


@pytest.mark.parametrize(
    ("rho", "second"),
    [((2.0, -1.0), 2.0), ((2.0, -1.0), 1.0), ((1.2, -0.5), 1.2), ((0.4, 0.5), 0.4)],
    ids=["sums", "sums from a slope of 0", "waves", "slow"],
)
def test_a_term_may_depend_on_the_two_before(rho: tuple[float, float], second: float) -> None:
    """Sums of sums, whose answers hardly change with time, and autoregressions; some terms have no data.

    The second term has a regression of its own on the first one.
    """
    rng = np.random.default_rng(6)
    from_series = np.eye(T) - rho[0] * np.eye(T, k=-1) - rho[1] * np.eye(T, k=-2)
    from_series[1, 0] = -second
    into_series = np.linalg.inv(from_series)
    curvature = rng.uniform(0.1, 2.0, T)
    curvature[[0, 7, 8, T - 1]] = 0.0
    precision = np.eye(T) + into_series.T @ np.diag(curvature) @ into_series

    def evaluate(x: np.ndarray, score: np.ndarray) -> float:
        score[:] = -precision @ x
        return float(0.5 * x @ score)

    x = rng.normal(size=T)
    series, _ = find_innovations(evaluate, x, np.ones(T), np.zeros(T, np.int64))
    assert series is not None
    np.testing.assert_allclose(series.x, into_series @ x, rtol=1e-4, atol=1e-4)
    square = np.square(from_series).sum(axis=0)
    np.testing.assert_allclose(1.0 / series.unit[:-2] ** 2, (square + curvature)[:-2], rtol=1e-3)


def test_other_densities_have_no_series() -> None:
    """Independent innovations, a sparse precision, a full one, and innovations that are not standard."""
    rng = np.random.default_rng(3)
    root = Autoregression.root(0.0, 2.0)
    full = rng.normal(size=(T, T)) / np.sqrt(T)
    walk = np.eye(T) - np.eye(T, k=-1)
    for matrix in (
        np.diag(rng.uniform(1.0, 2.0, T)),
        np.eye(T) + walk.T @ walk,
        np.eye(T) + full.T @ full,
        2.0 * np.eye(T) + root.T @ root,
    ):

        def evaluate(x: np.ndarray, score: np.ndarray, matrix: np.ndarray = matrix) -> float:
            score[:] = -matrix @ x
            return float(-0.5 * x @ matrix @ x)

        assert find_innovations(evaluate, START[2:], UNIT[2:], VARIABLES[2:])[0] is None

    def failing(x: np.ndarray, score: np.ndarray) -> float:
        score[:] = np.nan
        return -np.inf

    assert series_at(ScaledDensity(failing, np.ones(D)), START, np.arange(2, D)) is None


def test_rows_of_another_form_are_no_innovations() -> None:
    learned, _ = learn_field(in_maps(Autoregression()), START, UNIT, VARIABLES)
    assert learned is not None
    rows = learned.rows
    series = innovations_of(rows)
    law, rest = field_of(series), rows[len(series) :]
    assert not composition.is_map(series, D)  # innovations without a field
    for damaged in (
        law._replace(later=law.later - 1),
        law._replace(heads=law.own[:1]),
        law._replace(own=np.append(law.own[:-1], law.own[0])),
    ):
        again = np.concatenate((field_rows(damaged, 0, INNOVATIONS), rest))
        assert not composition.is_map(again, D)
    assert composition.is_map(np.concatenate((field_rows(law, 0, INNOVATIONS), rest)), D)
