"""Correlated effects of groups: the map and its derivatives, and which programs have such a law."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import stanadapt
from densities import check_map, in_maps
from hierarchies import lines_program
from stanadapt.run.warmup import variable_groups
from stanadapt.target import log_density_gradient
from stanadapt.transport import composition
from stanadapt.transport.bend import Bend, bend_rows, bends_of
from stanadapt.transport.effects_table import (
    Effects,
    are_told_apart,
    effects_of,
    effects_rows,
    log_of_scales,
    log_scales_at,
    root_at,
    rotations_of,
)
from stanadapt.transport.field_table import (
    bends_of_heads,
    describe,
    effects_alone,
    factors_in,
    fields_of,
    moved_by,
    split,
)
from stanadapt.transport.fields.field_learning import learn_effects, learn_field, learn_tied_effects
from stanadapt.transport.fields.probes import ScaledDensity
from stanadapt.transport.fields.rotation_search import find_rotations
from stanadapt.transport.map_table import (
    APART,
    BEND,
    BOUNDED,
    COLUMNS,
    IS_CENTRED,
    KIND,
    N_EFFECTS,
    N_TIES,
    OWN,
    OWN_ROWS,
    REACH,
    SIDE,
    STRENGTH,
    TURN,
    WIDTH,
)
from stanadapt.transport.rotation import Rotation, rotation_rows, with_rotations
from tail_models import MODELS, effects, grouped, of_days
from weights import WEIGHTS, WEIGHTS_NOT_CENTRED, weights_of

FORMS = [(k, centred, noise) for k in (1, 2, 3, 4) for centred in (True, False) for noise in (True, False)]


def some_law(
    k: int = 3,
    centred: bool = True,
    noise: bool = True,
    power: float = -0.5,
    bounded: bool = False,
    apart: bool = False,
) -> tuple[Effects, int]:
    """A law of 5 groups with two coefficients, of coordinates in any order; and their number.

    With `apart`, data with another error, which is known, tell the last effect.
    """
    rng, groups, heads = np.random.default_rng(0), 5, k * (k + 1) // 2
    order = rng.permutation(groups * k + heads + 3)
    roots = rng.normal(size=(groups, k, max(k - 1, 1)))  # data that do not tell all effects of a group
    offsets, means = rng.normal(size=(groups, k)), rng.normal(size=(groups, k, 2))
    precision, rates = roots @ roots.swapaxes(1, 2), np.full((int(noise), k), -2.0)
    if apart:
        rates[:, -1] = 0.0
        precision[:, are_told_apart(rates)] = 0.0
    law = Effects(
        heads=order[:heads],
        coefficients=order[heads : heads + 2],
        own=order[heads + 3 :].reshape(groups, k),
        precision=precision,
        pulls=rng.normal(size=(groups, k)),
        slopes=rng.normal(size=(groups, k, 2)),
        offsets=offsets if centred else np.zeros_like(offsets),
        means=means if centred else np.zeros_like(means),
        centred=centred,
        ties=np.empty((0, 2), np.int64),
        tied=np.empty((0, k)),
        changing=order[heads + 2 : heads + 3][: int(noise)],
        rates=rates,
        middles=np.array([0.3])[: int(noise)],
        powers=np.zeros(int(noise)),
        shares=np.zeros((int(noise), groups)),
        changing_bounded=np.array([bounded])[: int(noise)],
        log_units=rng.normal(size=k) if bounded else np.zeros(k),
        bounded=bounded,
        middle=rng.normal(size=heads),
        turn=0.5,
        power=power,
    )
    return law, order.size


def some_factors(centred: tuple[bool, ...]) -> tuple[list[Effects], int]:
    """Factors of 6, 5 and so on groups of two effects, which depend on the effects of all later ones."""
    rng, n = np.random.default_rng(5), len(centred)
    sizes = [6 - number for number in range(n)]
    order = rng.permutation(2 * sum(sizes) + 3 * n + 2)
    begins = np.cumsum([0, *(2 * size for size in sizes)])
    owns = [order[a:b].reshape(-1, 2) for a, b in itertools.pairwise(begins)]
    heads = order[begins[-1] : begins[-1] + 3 * n].reshape(n, 3)
    mean, error = order[-2:]
    laws = []
    for number, own in enumerate(owns):
        later = np.concatenate([np.zeros(0, np.int64), *(one.ravel() for one in owns[number + 1 :])])
        kept, tied = later[::2], later[1::2]
        coefficients = np.append(kept, mean)
        groups, roots = len(own), rng.normal(size=(len(own), 2, 2))
        means = rng.normal(size=(groups, 2, len(coefficients)))
        law = Effects(
            heads=heads[number],
            coefficients=coefficients,
            own=own,
            precision=roots @ roots.swapaxes(1, 2),
            pulls=rng.normal(size=(groups, 2)),
            slopes=rng.normal(size=(groups, 2, len(coefficients))),
            ties=np.column_stack((tied, rng.integers(0, groups, len(tied)))),
            tied=rng.normal(size=(len(tied), 2)),
            offsets=rng.normal(size=(groups, 2)) * centred[number],
            means=means * centred[number],
            centred=centred[number],
            changing=np.array([error, *heads[:number, 0]]),
            rates=np.tile([-0.5, *(0.1 for _ in range(number))], (2, 1)).T,
            middles=np.array([0.3, *(0.1 for _ in range(number))]),
            powers=np.array([0.0, 2.0, -1.0])[: number + 1],
            shares=rng.dirichlet(np.ones(number + 1), groups).T
            * np.array([0.0, 1.0, 1.0])[: number + 1, None],
            changing_bounded=np.array([number == 1, True, False])[: number + 1],
            log_units=rng.normal(size=2) * (number == 1),
            bounded=number == 1,
            middle=rng.normal(size=3),
            turn=1.0,
            power=1.0,
        )
        laws.append(law)
    return laws, order.size


@pytest.mark.parametrize(("k", "centred", "noise"), FORMS)
def test_the_map_has_an_inverse_a_determinant_and_derivatives(k: int, centred: bool, noise: bool) -> None:
    law, d = some_law(k, centred, noise)
    check_derivatives([law], d)


@pytest.mark.parametrize("centred", [True, False])
def test_so_has_the_map_where_scales_have_an_upper_bound(centred: bool) -> None:
    law, d = some_law(2, centred, bounded=True)
    check_derivatives([law], d)


@pytest.mark.parametrize("centred", [True, False])
def test_so_has_the_map_where_different_data_tell_effects(centred: bool) -> None:
    law, d = some_law(3, centred, apart=True)
    check_derivatives([law], d)


@pytest.mark.parametrize("centred", [True, False])
def test_so_has_the_map_with_rotations(centred: bool) -> None:
    laws, d = some_factors((centred, True))
    check_derivatives(laws, d, rotation_rows(some_rotations(laws)))


def test_no_other_law_moves_what_is_turned() -> None:
    """Nor coordinates that have no effects, such as those of a map whose axes alone were taken."""
    laws, d = some_factors((True,))
    turned = np.setdiff1d(np.arange(d), np.concatenate((laws[0].own.ravel(), laws[0].heads)))[:2]
    rotation = Rotation(turned, np.array([[0.6, -0.8], [0.8, 0.6]]))
    rows = with_rotations(effects_rows(laws, 7), rotation_rows([rotation]))
    assert composition.is_map(rows, d)
    assert np.isin(turned, moved_by(rows)).all()
    bend = np.zeros((1, COLUMNS))
    bend[0, [KIND, OWN, STRENGTH, WIDTH, SIDE, REACH]] = BEND, turned[0], 1.0, 1.0, 1.0, 3.0
    assert not composition.is_map(np.concatenate((rows, bend)), d)
    bend[0, OWN] = np.setdiff1d(np.arange(d), moved_by(rows))[0]
    assert composition.is_map(np.concatenate((rows, bend)), d)


def some_rotations(laws: list[Effects]) -> list[Rotation]:
    """Of the effects of each factor."""
    rng = np.random.default_rng(8)
    return [Rotation(law.own.ravel(), np.linalg.qr(rng.normal(size=(law.own.size,) * 2))[0]) for law in laws]


@pytest.mark.parametrize("centred", [*itertools.product([True, False], repeat=2), (True, False, True)])
def test_so_has_the_map_of_several_factors(centred: tuple[bool, ...]) -> None:
    check_derivatives(*some_factors(centred))


def check_derivatives(laws: list[Effects], d: int, rotations: np.ndarray | None = None) -> None:
    """The inverse, the log determinant and the scores of both directions."""
    rows = effects_rows(laws, 7)
    if rotations is not None:
        rows = with_rotations(rows, rotations)
    assert composition.is_map(rows, d)
    check_map(rows, np.random.default_rng(2).normal(size=d))


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("bounded", [False, True])
def test_effects_are_standard_normal_where_data_are_normal(bounded: bool, apart: bool) -> None:
    """The law is exact at all scales and correlations, far out too."""
    law, d = some_law(2, bounded=bounded, apart=apart)
    rows, rng = effects_rows([law], 0), np.random.default_rng(3)
    for away in (0.3, 3.0, 12.0):
        z = rng.normal(size=d)
        z[law.heads] *= away
        x, others = np.empty(d), np.setdiff1d(np.arange(d), law.own)
        composition.into_x(rows, z, x)
        f = np.exp((log_of_scales(bounded, x[law.changing]) - law.middles) @ law.rates)
        log_scales = law.log_units + law.power * log_of_scales(bounded, x[law.heads[:2]])
        root = root_at(log_scales, law.turn * x[law.heads[2:]])
        inverse = np.linalg.inv(root)
        score = np.zeros(d)
        for j, own in enumerate(law.own):
            prior = inverse.T @ inverse
            mean = law.offsets[j] + law.means[j] @ x[law.coefficients]
            pull = law.pulls[j] - law.slopes[j] @ x[law.coefficients]  # D a is taken off
            score[own] = -prior @ (x[own] - mean) + f * (pull - law.precision[j] @ (x[own] - mean))
        composition.pull_back(rows, z, x, score)
        np.testing.assert_allclose(score[law.own], -z[law.own], rtol=1e-6, atol=1e-6)
        assert np.isfinite(score[others]).all()


@pytest.mark.parametrize("centred", [True, False])
def test_rows_hold_all_numbers(centred: bool) -> None:
    law, d = some_law(3, centred)
    rows = effects_rows([law], 7)
    several, size = some_factors((centred, True, False))
    for factors in ([law], several):
        for before, after in zip(factors, effects_of(effects_rows(factors, 7)), strict=True):
            for first, second in zip(before, after, strict=True):
                np.testing.assert_array_equal(first, second)
    whole = effects_rows(several, 7)
    assert [len(part) for part in split(whole)] == [len(whole), 0]
    together = np.sort(np.concatenate([one.own.ravel() for one in several]))
    np.testing.assert_array_equal(moved_by(whole), together)
    assert (describe(whole, size)["field_role"][several[2].heads] == 2).all()
    field, others = split(rows)
    assert len(field) == len(rows)
    assert not len(others)
    assert factors_in(field)
    np.testing.assert_array_equal(moved_by(rows), np.sort(law.own.ravel()))
    told = describe(rows, d)
    assert (told["field_effects"][law.own] == 3).all()
    assert (told["field_role"][law.heads] == 2).all()
    assert told["field_gradients"] == 7
    assert not len(bends_of_heads(rows))  # whatever numbers stand where other laws have their kind
    assert fields_of(rows) == ([], [])


@pytest.mark.parametrize(
    "change",
    [
        lambda rows, law: rows.__setitem__((0, N_EFFECTS), 4.0),
        lambda rows, law: rows.__setitem__((0, IS_CENTRED), 0.5),
        lambda rows, law: rows.reshape(-1).__setitem__(place_of(law, 1), float(law.own[0, 0])),
        lambda rows, law: rows.reshape(-1).__setitem__(place_of(law, 1), 1e6),
        lambda rows, law: rows.__setitem__((0, N_TIES), 3.0),
        lambda rows, law: rows.__setitem__((0, OWN_ROWS), 1.0),
        lambda rows, law: rows.__setitem__((0, TURN), 0.0),
        lambda rows, law: rows.__setitem__((0, BOUNDED), 2.0),
        lambda rows, law: rows.reshape(-1).__setitem__(rows.shape[1], float(law.own[0, 0])),
        lambda rows, law: rows.reshape(-1).__setitem__(place_of(law, 12), -9.0),
        lambda rows, law: rows.reshape(-1).__setitem__(place_of(law, 7), -0.1),
        lambda rows, law: rows.reshape(-1).__setitem__(place_of(law, 3), 0.0),
        lambda rows, law: rows.__setitem__((1, 0), np.nan),
    ],
    ids=[
        "size",
        "centred",
        "moved noise",
        "far noise",
        "ties",
        "rows",
        "turn",
        "bounded",
        "head is moved",
        "precision",
        "share",
        "tied effects of different data",
        "NaN",
    ],
)
def test_rows_from_a_file_that_hold_no_law_are_refused(change: Any) -> None:
    law, d = some_law()
    rows = effects_rows([law], 0)
    change(rows, law)
    assert not composition.is_map(rows, d)
    assert not composition.is_map(effects_rows([law], 0)[:-1], d)


def place_of(law: Effects, number: int) -> int:
    """Where the number after the heads, the coefficients and the effects stands, or one behind it."""
    return COLUMNS + len(law.heads) + len(law.coefficients) + law.own.size + number - 1


def test_rows_hold_rotations() -> None:
    laws, d = some_factors((True, False))
    rotations = some_rotations(laws)
    bends = bend_rows([Bend(int(laws[0].heads[0]), 0.1, 2.0, 0.5, -1.0, 1.0)])
    bends[:, APART] = 1.0
    rows = with_rotations(np.concatenate((effects_rows(laws, 7), bends)), rotation_rows(rotations))
    assert composition.is_map(rows, d)
    field, others = split(rows)
    assert len(field) == len(rows)
    assert not len(others)
    np.testing.assert_array_equal(bends_of_heads(rows), bends)
    assert len(effects_of(rows)) == 2
    for before, after in zip(rotations, rotations_of(rows), strict=True):
        np.testing.assert_array_equal(after.own, before.own)
        np.testing.assert_array_equal(after.axes, before.axes)
    np.testing.assert_array_equal(
        moved_by(rows), np.sort([*np.concatenate([law.own.ravel() for law in laws]), laws[0].heads[0]])
    )
    own, axes = rotations[0]
    for wrong in (
        Rotation(own, 1.01 * axes),
        Rotation(np.append(own[:-1], own[0]), axes),
        Rotation(own + d, axes),
    ):
        assert not composition.is_map(with_rotations(effects_rows(laws, 7), rotation_rows([wrong])), d)
    assert not composition.is_map(rotation_rows(rotations), d)  # turned effects need a law
    assert not composition.is_map(rows[:-2], d)


@pytest.mark.parametrize(("program", "k"), [(WEIGHTS, 9), (WEIGHTS_NOT_CENTRED, 18)])
def test_effects_of_one_scale_that_the_data_tie_are_turned(program: str, k: int) -> None:
    """Their axes stay the same at all scales, so that scores there are those of standard normal effects."""
    data = weights_of(np.random.default_rng(3), 40, k, 0.5)
    rows, gradients, names = find(program, data)
    (law,), ((own, axes),) = effects_of(rows), rotations_of(rows)
    assert [names[i] for i in law.heads] == ["tau"]
    assert [names[i] for i in own] == [f"w.{i + 1}" for i in range(k)]
    assert set(law.own.ravel()) == set(own)
    products = axes.T @ data["Z"].T @ data["Z"] @ axes
    np.testing.assert_allclose(products, np.diag(np.diag(products)), atol=1e-4 * products.max())
    assert gradients < 600
    density = in_maps(ProgramDensity(program, data))(rows)
    rng, others = np.random.default_rng(5), np.setdiff1d(np.arange(len(names)), own)
    for _ in range(3):
        z, score = rng.normal(size=len(names)), np.empty(len(names))
        z[others] *= 2.0
        assert np.isfinite(density(z, score))
        np.testing.assert_allclose(score[own], -z[own], atol=1e-3)


def test_scales_with_a_long_tail_get_a_bend() -> None:
    """Few groups do not tell a scale from 0: the left tail of its logarithm goes on where no draw is.

    Along the second scale scores are more nearly linear with the bend, as those of a normal law are.
    """
    model = MODELS["days_centred"]
    data = model.data(8)
    rows, _, names = find(model.program, data)
    bends, (law,) = bends_of(bends_of_heads(rows)), effects_of(rows)
    assert [names[bend.place] for bend in bends] == ["sigma.1", "sigma.2"]
    assert [bend.side for bend in bends] == [-1.0, -1.0]
    bend, z, score = bends[1], np.zeros(len(names)), np.empty(len(names))
    z[law.heads] = law.middle
    left = []
    for map_rows, ends in ((rows, (-4.0, 3.0)), (effects_alone(rows), (-20.0, 3.0))):
        density, at, scores = in_maps(ProgramDensity(model.program, data))(map_rows), [], []
        for u in np.linspace(*ends, 30):
            z[bend.place] = bend.knot + u * bend.width
            density(z, score)
            at.append(u)
            scores.append(score[bend.place])
        left.append(1.0 - np.corrcoef(at, scores)[0, 1] ** 2)
    assert left[0] < 0.1
    assert left[1] > 0.3


@pytest.mark.parametrize("name", ["days_centred", "days"])
def test_a_correlation_that_may_be_near_one_gets_a_bend(name: str) -> None:
    rows, _, names = find(MODELS[name].program, MODELS[name].data(18))
    sides = {names[bend.place]: bend.side for bend in bends_of(bends_of_heads(rows))}
    assert sides == {"sigma.1": -1.0, "sigma.2": -1.0, "L.1": 1.0}
    assert composition.is_map(rows, len(names))


def test_what_has_no_common_scale_is_not_turned() -> None:
    """Coefficients with scales of their own: the search ends, and no rotation is left alone."""
    program = WEIGHTS.replace("real<lower=0> tau", "vector<lower=0>[K] tau")
    rows, _, _ = find(program, weights_of(np.random.default_rng(3), 40, 9, 0.5))
    assert not factors_in(rows)


def test_nothing_is_turned_for_effects_that_need_no_axes() -> None:
    """Coefficients of a regression are tied by the data, and have no scale; effects of groups have one."""
    program = """
data { int N; int K; int J; matrix[N, K] x; array[N] int g; vector[N] y; }
parameters { real mu; real<lower=0> s; vector[K] w; vector[J] d; }
model {
  mu ~ std_normal(); s ~ std_normal(); w ~ normal(0, 2); d ~ normal(0, s);
  y ~ normal(mu + x * w + d[g], 1);
}
"""
    rng, n, k, j = np.random.default_rng(3), 200, 9, 100
    x, g, d = rng.normal(size=(n, k)) / 3.0, np.arange(n) % j, rng.normal(size=j)
    y = x @ rng.normal(size=k) + d[g] + rng.normal(size=n)
    data = {"N": n, "K": k, "J": j, "x": x.tolist(), "g": (g + 1).tolist(), "y": y.tolist()}
    rows, _, names = find(program, data)
    (factor,) = factors_in(rows)
    assert [names[i] for i in factor.own.ravel()] == [f"d.{i}" for i in range(1, j + 1)]
    assert not rotations_of(rows)


def test_factors_that_depend_on_earlier_ones_are_refused() -> None:
    laws, d = some_factors((True, False))
    assert composition.is_map(effects_rows(laws, 0), d)
    assert not composition.is_map(effects_rows(laws[::-1], 0), d)
    assert not composition.is_map(effects_rows([laws[0], laws[0]], 0), d)


ITEMS_2PL = MODELS["items_2pl"].data(10)["y"]


class ProgramDensity:
    """The density of a program, which it holds, and its score."""

    def __init__(self, program: str, data: dict[str, Any]) -> None:
        self.model = stanadapt.Posterior(program, data).model
        self.target = self.model.target()

    def __call__(self, x: np.ndarray, score: np.ndarray) -> float:
        return float(log_density_gradient(self.target, x, score))


def find(program: str, data: dict[str, Any], unit: float = 1.0) -> tuple[np.ndarray, int, list[str]]:
    """The rows that are found from a random point, what it took, and the names of the coordinates."""
    density = ProgramDensity(program, data)
    names = list(density.model.unconstrained_names())
    variables = np.unique([name.partition(".")[0] for name in names], return_inverse=True)[1]
    x = 0.3 * np.random.default_rng(4).normal(size=len(names))
    found, gradients = learn_field(in_maps(density), x, np.full(x.size, unit), variables)
    return (np.empty((0, 19)) if found is None else found.rows), gradients, names


# Effects of groups beside the coefficients of a regression, with Student errors.
BESIDE_COEFFICIENTS = """
data { int N; int K; int J; matrix[N, K] x; array[N] int g; vector[N] y; }
parameters { real a; real log_b; vector[K] b; real log_u; vector[J] u; real log_e; }
model {
  a ~ normal(0, 2); log_b ~ normal(0, 0.5); log_u ~ normal(0, 0.5); log_e ~ normal(0, 0.5);
  b ~ normal(0, exp(log_b)); u ~ normal(0, exp(log_u));
  y ~ student_t(4, a + x * b + u[g], exp(log_e));
}
"""


def test_the_scale_of_errors_turns_no_axes() -> None:
    """That of Student errors changes what data tell by no power of it, but by a factor that is common to all
    coefficients. So these have axes, along which they are effects.
    """
    rng, n, k, j = np.random.default_rng(3), 120, 9, 15
    predictors, g = rng.normal(size=(n, k)), rng.integers(j, size=n)
    b, u = rng.normal(size=k), rng.normal(size=j)
    y = 1.0 + predictors @ b + u[g] + 0.7 * rng.standard_t(4, size=n)
    sizes = {"N": n, "K": k, "J": j}
    data = sizes | {"x": predictors.tolist(), "g": (g + 1).tolist(), "y": y.tolist()}
    density = ProgramDensity(BESIDE_COEFFICIENTS, data)
    names = list(density.model.unconstrained_names())
    x = np.concatenate(([1.0, 0.0], b, [0.0], u, [np.log(0.7)]))
    found, _ = learn_effects(in_maps(density), x, np.full(x.size, 0.2), variable_groups(names))
    assert found is not None
    assert {factor.own.shape for factor in factors_in(found.rows)} == {(j, 1), (k, 1)}
    (axes,) = rotations_of(found.rows)
    assert {names[i].partition(".")[0] for i in axes.own} == {"b"}


@pytest.mark.parametrize(
    "name", ["days_centred", "days", "counts_centred", "three_centred", "three_matrix", "three"]
)
def test_effects_are_found_with_their_scales_and_correlations(name: str) -> None:
    model = MODELS[name]
    rows, gradients, names = find(model.program, model.data(12))
    assert factors_in(rows)
    (law,) = effects_of(rows)
    assert law.centred == (not name.endswith(("days", "three")))
    k = law.own.shape[1]
    assert [names[i] for i in law.heads[:k]] == [f"sigma.{i + 1}" for i in range(k)]
    assert {names[i].partition(".")[0] for i in law.heads[k:]} == {"R" if "matrix" in name else "L"}
    assert [names[i] for i in law.changing] == ["sigma_y"] * ("sigma_y" in names)
    assert gradients < len(names) + 200 * k
    first = names.index("z.1.1" if "z.1.1" in names else "b.1.1")
    np.testing.assert_array_equal(np.sort(law.own.ravel()), first + np.arange(law.own.size))
    assert (np.ptp((law.own - first) // k, axis=1) == 0).all()  # all of one group


@pytest.mark.parametrize(("cholesky", "order"), [(True, "123456"), (False, "124356")])
def test_the_order_of_correlations_is_that_of_stan(cholesky: bool, order: str) -> None:
    """Row by row in Cholesky factors, and column by column in correlation matrices."""
    data = grouped(12, 4, 10, lambda rng, m: m + 0.8 * rng.normal(size=m.size))
    rows, _, names = find(effects("normal", centred=True, cholesky=cholesky), data)
    assert "".join(names[i].rpartition(".")[2] for i in effects_of(rows)[0].heads[4:]) == order


def test_independent_effects_that_the_data_tie_have_no_correlations() -> None:
    rows, _, names = find(MODELS["county_centred"].program, MODELS["county_centred"].data(20))
    (law,) = effects_of(rows)
    assert len(law.heads) == 2
    assert [names[i] for i in law.changing] == ["sigma_y"]
    assert log_scales_at(law, np.zeros(2)).shape == law.own.shape


@pytest.mark.parametrize(("form", "power"), [("sqrt(sigma)", 0.5), ("inv_sqrt(sigma)", -0.5)])
def test_scales_may_be_variances_or_precisions(form: str, power: float) -> None:
    program = effects("normal", centred=True).replace("pre_multiply(sigma,", f"pre_multiply({form},")
    (law,) = effects_of(find(program, of_days(12))[0])
    assert law.power == power


@pytest.mark.parametrize(("name", "log_unit"), [("three_centred", np.log(9.0)), ("three", 0.0)])
def test_scales_may_have_an_upper_bound(name: str, log_unit: float) -> None:
    model = MODELS[name]
    program = model.program.replace("<lower=0>", "<lower=0, upper=9>")
    rows, _, names = find(program, model.data(12))
    (law,) = effects_of(rows)
    assert law.bounded
    assert [names[i] for i in law.heads[:3]] == ["sigma.1", "sigma.2", "sigma.3"]
    np.testing.assert_allclose(law.log_units, log_unit, atol=1e-5)
    assert [names[i] for i in law.changing] == ["sigma_y"]
    assert law.changing_bounded.all()


def test_scales_may_be_multiplied_with_a_number() -> None:
    """Where nothing but errors has a scale that stands alone, each group has another number of data."""
    rng = np.random.default_rng(3)
    group = rng.integers(12, size=80)
    y = 0.8 * rng.normal(size=12)[group] + 0.5 * rng.normal(size=80)
    data = {"J": 12, "N": 80, "g": (group + 1).tolist(), "y": y.tolist()}
    rows, _, names = find(GROUPS.replace("WHAT", "a ~ normal(0, 2.3456 * tau);"), data)
    (law,) = effects_of(rows)
    assert [names[i] for i in law.heads] == ["tau"]
    assert [names[i] for i in law.changing] == ["sigma"]
    np.testing.assert_allclose(law.log_units, np.log(2.3456), atol=1e-5)


@pytest.mark.parametrize("bernoulli", [False, True])
def test_effects_with_a_soft_sum_are_turned(bernoulli: bool) -> None:
    """It ties all of them. A soft sum of a series is no reason to turn it: its law knows of such sums."""
    rng = np.random.default_rng(4)
    group = np.repeat(np.arange(12), rng.integers(5, 9, size=12))
    y = 0.8 * rng.normal(size=12)[group] + 0.5 * rng.normal(size=len(group))
    observed = (y > 0.0).astype(int) if bernoulli else y
    data = {"J": 12, "N": len(y), "g": (group + 1).tolist(), "y": observed.tolist()}
    program = GROUPS.replace("WHAT", "a ~ normal(0, tau); sum(a) ~ normal(0, 0.01);")
    if bernoulli:
        program = program.replace("vector[N] y", "array[N] int y").replace("normal(m + a[g], sigma)", LOGIT)
    rows, gradients, names = find(program, data, unit=0.2)
    (law,), ((own, axes),) = effects_of(rows), rotations_of(rows)
    assert [names[i] for i in law.heads] == ["tau"]
    assert [names[i] for i in own] == [f"a.{i + 1}" for i in range(12)]
    np.testing.assert_allclose(np.abs(axes.sum(axis=0)).max(), np.sqrt(12.0), rtol=1e-4)  # one is the sum
    assert [names[i] for i in law.changing] == ["sigma"] * (not bernoulli)
    assert law.shares.sum() == 11.0 * (not bernoulli)  # of all axes but that one
    assert gradients < 400
    walk = GROUPS.replace("WHAT", "a[2:J] ~ normal(a[1:J - 1], tau); sum(a) ~ normal(0, 0.01);")
    density = ProgramDensity(walk, data | {"y": y.tolist()})
    names = list(density.model.unconstrained_names())
    scaled = ScaledDensity(density, np.ones(len(names)))
    assert not find_rotations(scaled, 0.1 * rng.normal(size=len(names)), variable_groups(names))


@pytest.mark.parametrize(("scale", "most"), [("tau", 130), ("0.5", 15)])
def test_effects_that_are_all_tied_are_looked_for_where_a_scale_is_seen(scale: str, most: int) -> None:
    """By a chain with short trajectories, which has no gradients to lose on coefficients of a regression."""
    rng = np.random.default_rng(6)
    data = {"N": 60, "K": 9, "X": rng.normal(size=(60, 9)).tolist(), "y": rng.integers(2, size=60).tolist()}
    density = ProgramDensity(COEFFICIENTS.replace("SCALE", scale), data)
    x, variables = np.append(0.3 * rng.normal(size=10), -0.5), np.array([0] + [1] * 9 + [2])
    found, gradients = learn_tied_effects(in_maps(density), x, np.full(x.size, 0.2), variables)
    assert (found is not None) == (scale == "tau")
    assert gradients < most


COEFFICIENTS = """
data { int N; int K; matrix[N, K] X; array[N] int y; }
parameters { real m; vector[K] b; real<lower=0> tau; }
model { m ~ normal(0, 2); tau ~ normal(0, 1); b ~ normal(0, SCALE); y ~ bernoulli_logit(m + X * b); }
"""
LOGIT = "bernoulli_logit(m + a[g])"
GROUPS = """
data { int J; int N; array[N] int g; vector[N] y; }
parameters { vector[J] a; real m; real<lower=0> tau; real<lower=0> sigma; }
model {
  m ~ normal(0, 2); tau ~ normal(0, 1); sigma ~ normal(0, 1);
  WHAT
  y ~ normal(m + a[g], sigma);
}
"""


@pytest.mark.parametrize("centred", [True, False])
def test_scales_of_effects_and_errors_with_upper_bounds_do_not_change_places(centred: bool) -> None:
    """Single effects, four data of each: half of the error, with the bound 50, could be the scale."""
    program = CELLS
    if not centred:
        program = program.replace("normal(mu, s_a)", "std_normal()").replace("normal(0, s_b)", "std_normal()")
        program = program.replace("a[i] + b[j]", "mu + s_a * a[i] + s_b * b[j]")
    y = np.random.default_rng(2).normal(size=(8, 4))
    rows, _, names = find(program, {"I": 8, "J": 4, "y": y + np.linspace(-1.0, 1.0, 8)[:, None]})
    larger, smaller = effects_of(rows)
    assert [names[i] for i in (*larger.heads, *smaller.heads)] == ["s_a", "s_b"]
    assert [names[i] for i in larger.changing] == ["sigma"]
    assert {names[i] for i in smaller.changing} == {"s_a", "sigma"}
    assert larger.bounded
    assert smaller.bounded
    assert smaller.changing_bounded.all()


# Effects of groups in measurements y with an unknown error, and w with a known one.
MEASURED_TWICE = """
data { int J; int n; matrix[n, J] y; vector[J] w; vector[J] error; }
parameters { real mu; real<lower=0> tau; real<lower=0> sigma; vector[J] z; }
model {
  tau ~ std_normal(); sigma ~ std_normal(); mu ~ normal(0, 2);
  z ~ normal(PRIOR); vector[J] u = SCALE * z;
  for (j in 1:J) y[, j] ~ normal(mu + u[j], sigma);
  w ~ normal(u, error);
}
"""


def find_for_two_measurements(
    centred: bool, error: np.ndarray, unit: float = 0.2
) -> tuple[np.ndarray, list[str]]:
    prior, scale = ("0, tau", "1.0") if centred else ("0, 1", "tau")
    program = MEASURED_TWICE.replace("PRIOR", prior).replace("SCALE", scale)
    rng = np.random.default_rng(5)
    u = 0.8 * rng.normal(size=12)
    y, w = u + 0.6 * rng.normal(size=(4, 12)), u + error * rng.normal(size=12)
    rows, _, names = find(program, {"J": 12, "n": 4, "y": y, "w": w, "error": error}, unit=unit)
    return rows, names


@pytest.mark.parametrize("centred", [True, False])
def test_the_scale_of_errors_changes_a_share_of_what_data_tell(centred: bool) -> None:
    """The precision of what data tell of an effect is n / sigma² + 1 / error²."""
    error = np.linspace(0.8, 2.0, 12)
    rows, names = find_for_two_measurements(centred, error)
    (law,) = effects_of(rows)
    assert [names[i] for i in law.heads] == ["tau"]
    assert [names[i] for i in law.changing] == ["sigma"]
    assert law.rates == [[0.0]]
    assert law.powers == [2.0]
    of_measurements = 4.0 * np.exp(-2.0 * law.middles[0])
    np.testing.assert_allclose(law.shares[0], of_measurements / (of_measurements + error**-2.0), rtol=1e-4)


@pytest.mark.parametrize("centred", [True, False])
def test_a_share_that_misleads_far_from_the_mode_is_left_out(centred: bool) -> None:
    """Coordinates vary by factors of e there. The law is taken with what data tell at the mode."""
    rows, names = find_for_two_measurements(centred, np.full(12, 0.15), unit=1.0)
    (law,) = effects_of(rows)
    assert [names[i] for i in law.heads] == ["tau"]
    assert not len(law.changing)


def test_means_and_scales_of_four_effects_are_not_four_groups() -> None:
    """Entries of both are tied by their index, like two effects of each of four groups."""
    model = MODELS["two_outcomes"]
    rows, _, names = find(model.program, model.data(20), unit=0.2)
    (law,) = effects_of(rows)
    assert law.own.shape == (20, 4)
    assert {names[i].partition(".")[0] for i in law.heads} == {"s", "L"}
    assert [names[i] for i in law.changing] == ["error_y", "error_w"]
    np.testing.assert_array_equal(law.rates, [[-2.0, -2.0, 0.0, 0.0], [0.0, 0.0, -2.0, -2.0]])


CELLS = """
data { int I; int J; matrix[I, J] y; }
parameters {
  vector[I] a; vector[J] b; real mu;
  real<lower=0, upper=100> s_a; real<lower=0, upper=100> s_b; real<lower=0, upper=100> sigma;
}
model {
  mu ~ normal(0, 5); a ~ normal(mu, s_a); b ~ normal(0, s_b);
  for (i in 1:I) for (j in 1:J) y[i, j] ~ normal(a[i] + b[j], sigma);
}
"""


@pytest.mark.parametrize("normal", [False, True])
def test_groups_with_one_effect_have_this_law(normal: bool) -> None:
    model = MODELS["items_centred"]
    program, data = model.program, model.data(5)
    if normal:
        program = program.replace("bernoulli_logit(theta - b[i])", "normal(theta - b[i], 1)")
        program = program.replace("array[persons, items] int<lower=0, upper=1> y", "matrix[persons, items] y")
    rows, _, names = find(program, data | {"persons": 60, "y": data["y"][:60]})
    (law,) = effects_of(rows)
    assert law.own.shape == (60, 1)
    assert [names[i] for i in law.heads] == ["sigma"]
    assert {names[i].partition(".")[0] for i in law.coefficients} == {"b"}


def lines(first: float) -> dict[str, Any]:
    """Twelve groups seen at six times from `first` to 1; around 0 the data tie no intercept to its slope."""
    rng, t = np.random.default_rng(8), np.linspace(first, 1.0, 6)
    a, b = 1.0 + 0.5 * rng.normal(size=(12, 1)), 0.3 * rng.normal(size=(12, 1))
    return {"J": 12, "T": 6, "t": t, "y": a + b * t + 0.5 * rng.normal(size=(12, 6))}


@pytest.mark.parametrize("centred", [True, False])
def test_intercepts_and_slopes_that_data_do_not_tie_are_two_factors(centred: bool) -> None:
    rows, _, names = find(lines_program(centred), lines(-1.0))
    first, second = effects_of(rows)
    assert {names[first.heads[0]], names[second.heads[0]]} == {"tau.1", "tau.2"}
    for law in (first, second):
        assert law.own.shape == (12, 1)
        assert not len(law.ties)
        assert [names[i].partition(".")[0] for i in law.coefficients] == ["mu"]
    (together,) = effects_of(find(lines_program(centred), lines(0.0))[0])
    assert together.own.shape == (12, 2)


NESTED = """
data { int N; int S; int C; array[N] int group; array[C] int school; vector[N] x; vector[N] y; }
parameters {
  real mu; real slope; vector[S] z_school; vector[C] z; vector[C] z_slope;
  real<lower=0> s_school; real<lower=0> s; real<lower=0> s_slope; real<lower=0> sigma;
}
model {
  vector[C] a = mu + s_school * z_school[school] + s * z;
  vector[C] b = slope + s_slope * z_slope;
  z_school ~ std_normal(); z ~ std_normal(); z_slope ~ std_normal();
  s_school ~ normal(0, 2); s ~ normal(0, 2); s_slope ~ normal(0, 1); sigma ~ normal(0, 2);
  mu ~ normal(0, 5); slope ~ normal(0, 2);
  y ~ normal(a[group] + b[group] .* x, sigma);
}
"""


def nested() -> dict[str, Any]:
    """Six schools with five classes each, and eight pupils in a class."""
    rng, schools, classes = np.random.default_rng(6), 6, 30
    school, group = np.repeat(np.arange(schools), 5), np.repeat(np.arange(classes), 8)
    x = rng.normal(size=group.size)
    a = 0.6 * rng.normal(size=schools)[school] + 0.4 * rng.normal(size=classes)
    y = a[group] + (0.5 + 0.2 * rng.normal(size=classes))[group] * x + rng.normal(size=x.size)
    return {
        "N": x.size,
        "S": schools,
        "C": classes,
        "group": group + 1,
        "school": school + 1,
        "x": x,
        "y": y,
    }


def test_nested_factors_have_a_law_each() -> None:
    """Classes are tied to their schools one by one, and schools are known through the classes."""
    rows, _, names = find(NESTED, nested())
    classes, schools = effects_of(rows)
    assert [names[i] for i in classes.heads] == ["s", "s_slope"]
    assert [names[i] for i in schools.heads] == ["s_school"]
    assert [names[i] for i in classes.changing] == ["sigma"]
    np.testing.assert_array_equal(classes.rates, [[-2.0, -2.0]])
    assert {names[i] for i in classes.coefficients} == {"mu", "slope"}
    assert len(classes.ties) == 30  # each class has one school
    assert sorted(names[i] for i in schools.changing) == ["s", "sigma"]
    np.testing.assert_array_equal(schools.powers, [2.0, 2.0])
    assert (np.abs(schools.shares.sum(axis=0) - 1.0) < 0.1).all()  # both scales twice as large: a quarter


def test_crossed_factors_have_a_law_each() -> None:
    """Each pair of levels is seen, so that all effects of the smaller factor matter to each of the larger."""
    rows, _, names = find(MODELS["crossed_small"].program, MODELS["crossed_small"].data(12))
    larger, smaller = effects_of(rows)
    assert [names[i] for i in (*larger.heads, *smaller.heads)] == ["sigma.2", "sigma.1"]
    assert {names[i].partition(".")[0] for i in larger.coefficients} == {"mu", "a"}
    assert not len(larger.ties)
    assert [names[i] for i in smaller.coefficients] == ["mu"]


@pytest.mark.parametrize(
    ("program", "data"),
    [
        (
            effects("normal", centred=True).replace("pre_multiply(sigma,", "pre_multiply(exp(sigma),"),
            of_days(12),
        ),
        (MODELS["items_2pl"].program, MODELS["items_2pl"].data(10) | {"persons": 60, "y": ITEMS_2PL[:60]}),
        (MODELS["studies"].program, MODELS["studies"].data(20)),
    ],
    ids=["scales", "no scale of the largest", "two levels of single effects, normal data"],
)
def test_programs_of_another_form_have_none(program: str, data: dict[str, Any]) -> None:
    rows, _, _ = find(program, data)
    assert not factors_in(rows)
