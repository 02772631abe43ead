"""Effects of groups beside series in one map: their law is given the series, whose fields know no effects."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from test_correlated_effects import ProgramDensity, some_law
from test_weights import D
from test_weights import some_law as some_weights

from densities import check_map, in_maps
from programs import MISSING
from stanadapt.numerics.field_search import without_poor_field
from stanadapt.run.warmup import variable_groups
from stanadapt.transport import composition
from stanadapt.transport.effects_table import effects_rows
from stanadapt.transport.field_table import (
    describe,
    factors_in,
    field_of,
    fields_of,
    innovations_of,
    latents_and_heads,
    middle_of_field,
    moved_by,
    split,
    without_effects,
)
from stanadapt.transport.fields import several
from stanadapt.transport.fields.field_learning import learn_field
from stanadapt.transport.fields.innovation_search import find_innovations
from stanadapt.transport.fields.probes import ScaledDensity, couple
from stanadapt.transport.map_table import ROWS
from stanadapt.transport.weights_table import weights_rows

TIMES, GROUPS, N = 24, 9, 240
PROGRAM = """
data {{ int N; int T; int J; vector[N] y; vector[N] w; array[N] int t; array[N] int g; }}
parameters {{
  real a; real log_h; real log_e; vector[2] log_b; cholesky_factor_corr[2] L; vector[T] {series};
  {effects};
}}
transformed parameters {{ {transformed} }}
model {{
  a ~ normal(0, 2); log_h ~ std_normal(); log_b ~ std_normal(); log_e ~ std_normal();
  L ~ lkj_corr_cholesky(2);
  {priors}
  for (n in 1:N) y[n] ~ {likelihood};
}}
"""
SUM = "a + h[t[n]] + b[g[n], 1] + b[g[n], 2] * w[n]"
NORMAL, COUNTS = f"normal({SUM}, exp(log_e))", f"poisson_log({SUM})"
CENTRED = (
    "h[1] ~ normal(0, exp(log_h)); h[2:T] ~ normal(h[1:(T - 1)], exp(log_h));",
    "b ~ multi_normal_cholesky(rep_vector(0, 2), diag_pre_multiply(exp(log_b), L));",
)
NOT_CENTRED = "z ~ std_normal();", "to_vector(v) ~ std_normal();"
FORMS = [(True, True), (True, False), (False, True), (False, False)]


def program(series_centred: bool, effects_centred: bool, likelihood: str = NORMAL) -> str:
    derived = "" if series_centred else "vector[T] h = exp(log_h) * cumulative_sum(z);"
    if not effects_centred:
        derived += " matrix[J, 2] b = (diag_pre_multiply(exp(log_b), L) * v)';"
    priors = (CENTRED if series_centred else NOT_CENTRED)[0] + (CENTRED if effects_centred else NOT_CENTRED)[
        1
    ]
    text = PROGRAM.format(
        series="h" if series_centred else "z",
        effects="array[J] vector[2] b" if effects_centred else "matrix[2, J] v",
        transformed=derived,
        priors=priors,
        likelihood=likelihood,
    )
    return text.replace("vector[N] y;", "array[N] int y;") if likelihood == COUNTS else text


def draw(likelihood: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Data, and the parameters that they have been drawn with, in each form."""
    rng = np.random.default_rng(9)
    t, g, w = rng.integers(TIMES, size=N), rng.integers(GROUPS, size=N), rng.normal(size=N)
    v, z = rng.normal(size=(2, GROUPS)), rng.normal(size=TIMES)
    b, h = 0.7 * v.T, np.cumsum(0.5 * z)
    y = 1.0 + h[t] + b[g, 0] + b[g, 1] * w + 0.5 * rng.normal(size=N)
    if likelihood == COUNTS:
        y = rng.poisson(np.exp(np.minimum(y, 3.0)))
    values = {"N": N, "T": TIMES, "J": GROUPS, "y": y, "w": w, "t": t + 1, "g": g + 1}
    scales = {"log_h": np.log(0.5), "log_e": np.log(0.5), "log_b": np.full(2, np.log(0.7)), "L": np.eye(2)}
    truth = {"a": 1.0, "h": h, "z": z, "b": b, "v": v} | scales
    return {name: np.asarray(value).tolist() for name, value in values.items()}, truth


@functools.cache
def learn(series_centred: bool, effects_centred: bool, likelihood: str) -> tuple[np.ndarray, Any, list[str]]:
    """The rows of the map, the density and the names of the coordinates."""
    data, truth = draw(likelihood)
    density = ProgramDensity(program(series_centred, effects_centred, likelihood), data)
    names = list(density.model.unconstrained_names())
    variables = variable_groups(names)
    x = density.model.unconstrain(truth)
    learned, _ = learn_field(in_maps(density), x, np.full(x.size, 0.5), variables)
    assert learned is not None
    return learned.rows, density, names


FEW = """
data { int N; int T; int J; array[N] int y; array[N] int t; array[N] int g; }
parameters { real a; real log_h; real log_b; vector[T] h; vector[J] b; }
model {
  a ~ std_normal(); log_h ~ std_normal(); log_b ~ std_normal();
  h[1:2] ~ normal(0, 1); h[3:T] ~ normal(2 * h[2:(T - 1)] - h[1:(T - 2)], exp(log_h));
  b ~ normal(0, exp(log_b));
  y ~ poisson_log(a + h[t] + b[g]);
}
"""


# No datum is of both.
FEW_APART = FEW.replace(
    "y ~ poisson_log(a + h[t] + b[g]);",
    "for (n in 1:N) y[n] ~ poisson_log(n % 2 == 0 ? a + h[t[n]] : b[g[n]]);",
)


@pytest.mark.parametrize("program", [FEW, FEW_APART], ids=["together", "apart"])
@pytest.mark.parametrize("groups", [5, 12])
def test_few_effects_are_found(program: str, groups: int) -> None:
    """Their scale has too few neighbours to be a head of one field for all, which would have a neck there."""
    rng = np.random.default_rng(3)
    t, g = rng.integers(TIMES, size=N), rng.integers(groups, size=N)
    h, b = np.cumsum(np.cumsum(0.05 * rng.normal(size=TIMES))), 0.4 * rng.normal(size=groups)
    data = {"N": N, "T": TIMES, "J": groups, "y": rng.poisson(np.exp(h[t] + b[g])), "t": t + 1, "g": g + 1}
    density = ProgramDensity(program, {name: np.asarray(value).tolist() for name, value in data.items()})
    names = list(density.model.unconstrained_names())
    truth = {"a": 0.0, "log_h": np.log(0.05), "log_b": np.log(0.4), "h": h, "b": b}
    x, variables = density.model.unconstrain(truth), variable_groups(names)
    scaled = ScaledDensity(density, np.full(x.size, 0.5))
    coupling = couple(scaled, 2.0 * x, variables)
    assert coupling is not None
    few, _ = several.scales_of_few(scaled, 2.0 * x, coupling, variables)
    assert [names[k] for k in few] == ["log_b"] * (program == FEW)
    tied = several.series_beside_others(coupling, variables)
    assert tied is not None
    assert not len(few) or not several.are_followed(scaled, coupling, 2.0 * x, tied, few)
    learned, _ = learn_field(in_maps(density), x, np.full(x.size, 0.5), variables)
    assert learned is not None
    (factor,) = factors_in(learned.rows)
    assert [names[i] for i in factor.own.ravel()] == [f"b.{j + 1}" for j in range(groups)]
    assert [names[i] for i in factor.heads] == ["log_b"]


STATIONARY = """
data { int N; int T; int J; array[N] int y; array[N] int t; array[N] int g; }
parameters { real a; real log_h; real phi; real log_b; vector[T] h; vector[J] b; }
model {
  a ~ normal(0, 2); log_h ~ std_normal(); phi ~ std_normal(); log_b ~ std_normal();
  h[1] ~ normal(0, exp(log_h) / sqrt(1 - square(tanh(phi))));
  h[2:T] ~ normal(tanh(phi) * h[1:(T - 1)], exp(log_h));
  b ~ normal(0, exp(log_b));
  y ~ poisson_log(a + h[t] + b[g]);
}
"""


def test_an_intercept_that_is_off_moves_no_place_of_heads() -> None:
    """The series would make up for it, by a phi that is larger by three standard deviations."""
    rng, groups, times, n = np.random.default_rng(3), 6, 60, 300
    t, g = rng.integers(times, size=n), rng.integers(groups, size=n)
    h, b = np.zeros(times), 0.4 * rng.normal(size=groups)
    for k in range(1, times):
        h[k] = 0.5 * h[k - 1] + 0.4 * rng.normal()
    y = rng.poisson(np.exp(1.0 + h[t] + b[g]))
    data = {"N": n, "T": times, "J": groups, "y": y, "t": t + 1, "g": g + 1}
    density = ProgramDensity(STATIONARY, {k: np.asarray(value).tolist() for k, value in data.items()})
    names = list(density.model.unconstrained_names())
    truth = {"log_h": np.log(0.4), "phi": 0.55, "log_b": np.log(0.4), "h": h, "b": b}
    places = []
    for off in (-0.6, 0.0, 0.6):
        x = density.model.unconstrain(truth | {"a": 1.0 + off})
        learned, _ = learn_field(in_maps(density), x, np.full(x.size, 0.5), variable_groups(names))
        assert learned is not None
        (law,) = fields_of(split(learned.rows)[0])[0]
        assert [names[k] for k in law.heads] == ["log_h", "phi"]
        assert {names[k].partition(".")[0] for k in law.own} == {"a", "h"}
        places.append(law.mid)
    assert np.all(np.ptp(places, axis=0) < 0.1 * law.scale)


@pytest.mark.parametrize("missing", [6, 15, 30])
def test_missing_data_of_a_series_are_no_effects(missing: int) -> None:
    """Each is tied to its own term alone. The field of a series that took them for data would be wrong
    wherever they are elsewhere.
    """
    rng, times = np.random.default_rng(4), 60
    unseen, h = np.sort(rng.choice(times, missing, replace=False)), np.cumsum(0.3 * rng.normal(size=times))
    seen, y = np.delete(np.arange(times), unseen), h + 0.5 * rng.normal(size=times)
    data = {"T": times, "M": missing, "seen": seen + 1, "unseen": unseen + 1, "y_seen": y[seen]}
    density = ProgramDensity(MISSING, {name: np.asarray(value).tolist() for name, value in data.items()})
    names = list(density.model.unconstrained_names())
    truth = {"log_s": np.log(0.3), "log_e": np.log(0.5), "h": h, "y_unseen": y[unseen]}
    x = density.model.unconstrain(truth)
    learned, _ = learn_field(in_maps(density), x, np.full(x.size, 0.5), variable_groups(names))
    assert learned is not None
    assert not factors_in(learned.rows)
    (law,) = fields_of(learned.rows)[0]
    assert {names[i].partition(".")[0] for i in law.own} == {"h", "y_unseen"}
    assert {names[i] for i in law.heads} == {"log_s", "log_e"}


@pytest.mark.parametrize(("series_centred", "effects_centred"), FORMS)
def test_both_are_found(series_centred: bool, effects_centred: bool) -> None:
    rows, _, names = learn(series_centred, effects_centred, NORMAL)
    (factor,), (law,) = factors_in(rows), fields_of(rows)[0]
    assert {names[i].partition(".")[0] for i in law.own} == {"h" if series_centred else "z"}
    assert {names[i].partition(".")[0] for i in factor.own.ravel()} == {"b" if effects_centred else "v"}
    assert factor.own.shape == (GROUPS, 2)
    assert [names[i] for i in factor.heads] == ["log_b.1", "log_b.2", "L.1"]
    assert names.index("log_h") in law.heads
    assert set(law.own) <= {*factor.coefficients, *factor.ties[:, 0]}
    assert (len(innovations_of(rows)) > 0) == (not series_centred)
    latents, heads = latents_and_heads(rows)
    assert set(latents) == {*law.own, *factor.own.ravel()}
    assert set(heads) == {*law.heads, *factor.heads}
    assert set(latents) <= set(moved_by(rows))
    told = describe(rows, len(names))
    assert (told["field_effects"] == 2).sum() == 2 * GROUPS
    assert (told["field_role"] == 1).sum() == 2 * GROUPS + TIMES
    middle = middle_of_field(rows, len(names))
    assert not middle[latents].any()
    assert [len(part) for part in split(rows)] == [len(rows), 0]


@pytest.mark.parametrize("likelihood", [NORMAL, COUNTS], ids=["normal", "counts"])
@pytest.mark.parametrize(("series_centred", "effects_centred"), FORMS)
def test_the_map_has_an_inverse_a_determinant_and_derivatives(
    series_centred: bool, effects_centred: bool, likelihood: str
) -> None:
    rows, _, names = learn(series_centred, effects_centred, likelihood)
    assert factors_in(rows)
    assert composition.is_map(rows, len(names))
    moves = np.random.default_rng(2).normal(size=len(names))
    check_map(rows, middle_of_field(rows, len(names)) + 0.2 * moves)


@pytest.mark.parametrize(("series_centred", "effects_centred"), FORMS)
def test_effects_are_standard_normal_wherever_all_else_is(
    series_centred: bool, effects_centred: bool
) -> None:
    """Where data are normal the law is exact, and independent of the series too."""
    rows, density, names = learn(series_centred, effects_centred, NORMAL)
    (factor,), moved, rng = factors_in(rows), in_maps(density)(rows), np.random.default_rng(8)
    scores = []
    for away in (0.0, 0.5, 1.0):
        z, score = middle_of_field(rows, len(names)), np.empty(len(names))
        z += away * rng.normal(size=z.size)
        z[factor.own] = rng.normal(size=factor.own.shape)
        assert np.isfinite(moved(z, score))
        scores.append(score[factor.own] + z[factor.own])
    np.testing.assert_allclose(scores, 0.0, atol=2e-3)


@pytest.mark.parametrize("with_law", [True, False])
def test_effects_are_given_up_where_the_field_does_better_alone(with_law: bool) -> None:
    """Draws judge: they are normal in the coordinates of one map or the other."""
    rows, _, names = learn(True, True, NORMAL)
    alone = without_effects(rows)
    assert fields_of(alone)[0][0].own.tolist() == fields_of(rows)[0][0].own.tolist()
    assert not factors_in(alone)
    assert composition.is_map(alone, len(names))
    assert without_effects(alone).tolist() == alone.tolist()
    table, rng = rows if with_law else alone, np.random.default_rng(3)
    middle, spread = middle_of_field(rows, len(names)), np.full(len(names), 0.2)
    spread[latents_and_heads(rows)[0]] = 1.0
    points, scores = np.empty((2, 200, len(names)))
    for x, score in zip(points, scores, strict=True):
        away = rng.normal(size=len(names))
        z = middle + spread * away
        composition.into_x(table, z, x)
        score[:] = composition.score_in_x(table, z, x, -away / spread)
    assert without_poor_field(rows, points, scores, 0).tolist() == table.tolist()


def test_a_map_has_each_coordinate_in_one_of_the_laws() -> None:
    rows, _, names = learn(True, True, NORMAL)
    d, begin = len(names), int(rows[0, ROWS])
    (factor,), (law,) = factors_in(rows), fields_of(rows)[0]
    assert composition.is_map(rows, d)
    assert not composition.is_map(np.concatenate((rows[begin:], rows[:begin])), d)  # in the other order
    for own in (law.own[0], law.heads[0]):
        wrong = factor.own.copy()
        wrong[0, 0] = own
        changed = effects_rows([factor._replace(own=wrong, ties=factor.ties[:0], tied=factor.tied[:0])], 0)
        assert not composition.is_map(np.concatenate((changed, rows[begin:])), d)


def test_other_laws_are_not_in_one_map() -> None:
    """Innovations come with a field, and weights come alone."""
    rows, _, names = learn(False, True, NORMAL)
    series, (factor,) = innovations_of(rows), factors_in(rows)
    assert composition.is_map(effects_rows([factor], 0), len(names))
    assert not composition.is_map(np.concatenate((series, effects_rows([factor], 0))), len(names))
    (law, _), weights = some_law(1), weights_rows(some_weights(), 0)
    assert composition.is_map(weights, D)
    assert composition.is_map(effects_rows([law], 0), D)
    assert not composition.is_map(np.concatenate((effects_rows([law], 0), weights)), D)


def test_pairs_of_effects_are_no_series() -> None:
    """Two effects of a group are tied, as the first terms of a series are; it has more heads than these."""
    groups = 14
    data, truth = draw(NORMAL)
    rng = np.random.default_rng(2)
    data["J"], data["g"] = groups, (rng.integers(groups, size=N) + 1).tolist()
    truth["v"] = rng.normal(size=(2, groups))
    density = ProgramDensity(program(False, False), data)
    names = list(density.model.unconstrained_names())
    variables = variable_groups(names)
    x = density.model.unconstrain(truth)
    series, _ = find_innovations(density, x, np.full(x.size, 0.3), variables)
    assert series is not None
    law = field_of(series.rows)
    assert {names[i].partition(".")[0] for i in law.own} == {"z"}
    assert [names[i] for i in law.heads] == ["log_h"]
    np.testing.assert_allclose(np.diff(series.x[law.own[::-1]]), 0.5 * truth["z"][1:], rtol=1e-6)
