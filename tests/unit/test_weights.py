"""Weights with scales that are functions of parameters: the map, its rows, and which programs have them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from test_correlated_effects import ProgramDensity, find

from densities import in_maps
from shrinkage import data_of, program_of
from stanadapt.plots.field_plot import _log_scales
from stanadapt.transport import composition
from stanadapt.transport.field_table import (
    describe,
    has_weights,
    latents_and_heads,
    middle_of_field,
    moved_by,
    split,
)
from stanadapt.transport.fields.field_learning import learn_field
from stanadapt.transport.fields.probes import ScaledDensity
from stanadapt.transport.fields.weight_space import WeightSpace
from stanadapt.transport.map_table import N_CURVES, N_LATENTS, N_POINTS, ROWS
from stanadapt.transport.weights import ALL, ERROR, LIMITS, NO_LIMIT
from stanadapt.transport.weights_table import Curve, Weights, weights_of, weights_rows

D = 12


def some_law(limited: bool = True, normalised: bool = True, *, is_centred: bool = False) -> Weights:
    """Four weights and a coefficient among 12 coordinates, with curves of all kinds."""
    rng, k = np.random.default_rng(1), 5
    is_weight = np.array([True, True, True, False, True])
    columns = rng.normal(size=(20, k))

    def curve(head: int, target: float, points: int) -> Curve:
        at = np.sort(rng.normal(size=points))
        return Curve(head, int(target), at, *(0.5 * rng.normal(size=(2, points))), float(rng.normal()))

    return Weights(
        own=np.array([3, 1, 7, 8, 10]),
        is_weight=is_weight,
        prior=np.array([np.where(is_weight, 1.0, 0.2), np.where(is_weight, 0.0, -0.7)]),
        offsets=np.array([0.3 * rng.normal(size=k), 0.3 * rng.normal(size=k) if limited else [NO_LIMIT] * k]),
        norms=np.where(is_weight, 0.25, 0.0) * normalised,
        precision=columns.T @ columns,
        pulls=rng.normal(size=k),
        coefficients=np.array([6, 9]),
        slopes=rng.normal(size=(k, 2)),
        curves=[
            curve(0, ALL, 4),
            curve(0, 2, 3),
            curve(2, ERROR, 1),
            curve(4, LIMITS, 2),
            curve(5, 0, 5),
            curve(0, ERROR, 2),
            curve(5, ALL, 2),
        ],
        is_centred=is_centred,
    )


@pytest.mark.parametrize(("limited", "normalised", "centred"), [*itertools.product([True, False], repeat=3)])
def test_the_map_has_an_inverse_a_determinant_and_derivatives(
    limited: bool, normalised: bool, centred: bool
) -> None:
    check_map(weights_rows(some_law(limited, normalised, is_centred=centred), 7), D)


@pytest.mark.parametrize("k", [7, 8, 21])
def test_so_has_that_of_many_weights(k: int) -> None:
    """Solves take eight rows at once, and the rest one by one."""
    rng, one = np.random.default_rng(k), np.ones(1)
    columns = rng.normal(size=(2 * k, k))
    law = Weights(
        own=np.arange(k),
        is_weight=np.ones(k, bool),
        prior=np.array([np.ones(k), np.zeros(k)]),
        offsets=np.array([0.3 * rng.normal(size=k), np.full(k, NO_LIMIT)]),
        norms=np.zeros(k),
        precision=columns.T @ columns,
        pulls=rng.normal(size=k),
        coefficients=np.zeros(0, np.int64),
        slopes=np.zeros((k, 0)),
        curves=[Curve(k + i, i, 0.0 * one, 0.0 * one, one, 0.0) for i in range(k)],
    )
    check_map(weights_rows(law, 7), 2 * k)


def check_map(rows: np.ndarray, d: int) -> None:
    """Fail unless the map of d coordinates, its inverse, determinant and derivatives agree at some points."""
    rng, step = np.random.default_rng(2), 1e-6
    assert composition.is_map(rows, d)
    for _ in range(3):
        z, x, back = rng.normal(size=d), np.empty(d), np.empty(d)
        log_det = composition.into_x(rows, z, x)
        composition.into_z(rows, x, back)
        np.testing.assert_allclose(back, z, rtol=1e-9, atol=1e-10)
        ends = np.empty((2, d, d))
        dets = np.empty((2, d))
        for side, sign in enumerate((-1.0, 1.0)):
            for i, axis in enumerate(np.eye(d)):
                dets[side, i] = composition.into_x(rows, z + sign * step * axis, ends[side, i])
        jacobian, slope = (ends[1] - ends[0]).T / (2 * step), (dets[1] - dets[0]) / (2 * step)
        np.testing.assert_allclose(np.linalg.slogdet(jacobian)[1], log_det, atol=1e-6)
        score = rng.normal(size=d)
        found, kept = score.copy(), np.empty(composition.n_kept(rows, d))
        composition.pull_back(rows, z, x, found)
        np.testing.assert_allclose(found, jacobian.T @ score + slope, atol=1e-6)
        np.testing.assert_allclose(composition.score_in_x(rows, z, x, found), score, atol=1e-10)
        composition.into_x_keeping(rows, z, back, kept)
        again = score.copy()
        composition.pull_back_kept(rows, z, back, again, kept)
        np.testing.assert_array_equal(again, found)


def test_rows_hold_all_numbers() -> None:
    law = some_law()
    rows = weights_rows(law, 7)
    field, others = split(np.concatenate((rows, np.zeros((1, rows.shape[1])))))
    assert len(field) == len(rows)
    assert len(others) == 1
    assert has_weights(rows)
    found = weights_of(rows)
    assert weights_of(weights_rows(some_law(is_centred=True), 7)).is_centred
    for one, other in zip(found._replace(curves=()), law._replace(curves=()), strict=True):
        np.testing.assert_array_equal(one, other)
    for one, other in zip(found.curves, law.curves, strict=True):
        for number, same in zip(one, other, strict=True):
            np.testing.assert_array_equal(number, same)
    own, heads = latents_and_heads(rows)
    np.testing.assert_array_equal(own, law.own)
    np.testing.assert_array_equal(heads, [0, 2, 4, 5])
    np.testing.assert_array_equal(moved_by(rows), np.sort(law.own))
    assert middle_of_field(rows, D)[2] == law.curves[2].middle
    told = describe(rows, D)
    np.testing.assert_array_equal(told["field_weights"][law.own], [1, 1, 1, 2, 1])
    np.testing.assert_array_equal(told["field_entries"][law.own], 4)
    assert told["field_gradients"] == 7


@pytest.mark.parametrize("centred", [False, True])
def test_deviations_are_those_of_the_map(centred: bool) -> None:
    """What a picture shows, from Python's reading of the curves, is what kernels make of z."""
    law = some_law(is_centred=centred)
    rows, rng = weights_rows(law, 7), np.random.default_rng(3)
    for _ in range(3):
        z, x = rng.normal(size=D), np.empty(D)
        composition.into_x(rows, z, x)
        moved = np.empty((len(law.own), len(law.own)))
        for row, k in enumerate(law.own):
            there, ahead = z.copy(), np.empty(D)
            there[k] += 1.0  # the map is linear in these
            composition.into_x(rows, there, ahead)
            moved[row] = (ahead - x)[law.own]
        told = _log_scales(law, z[law.heads])
        np.testing.assert_allclose(told, 0.5 * np.log(np.square(moved).sum(axis=0)), atol=1e-9)


@pytest.mark.parametrize(
    "change",
    [
        {N_LATENTS: 6.0},
        {N_LATENTS: 0.0},
        {N_CURVES: 8.0},
        {N_CURVES: np.nan},
        {N_POINTS: 400.0},
        {ROWS: 3.0},
    ],
)
def test_headers_from_a_file_that_hold_no_law_are_refused(change: dict[int, float]) -> None:
    rows = weights_rows(some_law(), 7)
    for column, value in change.items():
        rows[0, column] = value
    assert not composition.is_map(rows, D)


@pytest.mark.parametrize(
    "wrong",
    [
        {"own": np.array([3, 1, 7, 8, 3])},
        {"own": np.array([3, 1, 7, 8, D])},
        {"own": np.array([3, 1, 7, 8, 0])},
        {"coefficients": np.array([6, 3])},
        {"precision": -np.eye(5)},
        {"precision": np.full((5, 5), np.nan)},
        {"norms": np.full(5, -0.1)},
        {"prior": np.full((2, 5), -0.1)},
        {"norms": np.full(5, 0.2)},
        {"is_weight": np.array([1.0, 1.0, 0.5, 0.0, 1.0])},
        {"curves": [Curve(0, 5, np.zeros(1), np.zeros(1), np.ones(1), 0.0)]},
        {"curves": [Curve(0, -4, np.zeros(1), np.zeros(1), np.ones(1), 0.0)]},
        {"curves": [Curve(0, 3, np.zeros(1), np.zeros(1), np.ones(1), 0.0)]},
        {"curves": [Curve(D, 0, np.zeros(1), np.zeros(1), np.ones(1), 0.0)]},
        {"curves": [Curve(0, 0, np.zeros(2), np.zeros(2), np.ones(2), 0.0)]},
    ],
)
def test_numbers_from_a_file_that_are_no_law_are_refused(wrong: dict[str, Any]) -> None:
    law = some_law()
    assert composition.is_map(weights_rows(law, 7), D)
    assert not composition.is_map(weights_rows(law._replace(**wrong), 7), D)


@pytest.mark.parametrize("form", ["horseshoe", "shares", "process"])
def test_weights_are_standard_normal_where_data_are_normal(form: str) -> None:
    """Their scales are known far from where the search began: with limits, as shares, and as curves."""
    data = data_of(form, 50, 8)
    rows, gradients, names = find(program_of(form), data)
    law = weights_of(rows)
    assert [names[i] for i in law.own] == [*(f"z.{k + 1}" for k in range(8)), "a"]
    np.testing.assert_array_equal(law.is_weight, np.arange(9) < 8)
    np.testing.assert_allclose(law.prior, [[*[1.0] * 8, 1.0 / 9.0], np.full(9, 0.0)], atol=1e-4)
    expected = {
        "horseshoe": {"lam", "tau", "c2", "sigma"},
        "shares": {"phi", "R2", "sigma"},
        "process": {"alpha", "rho", "sigma"},
    }
    assert {names[i].partition(".")[0] for i in law.heads} == expected[form]
    assert gradients < 1_500
    assert (law.offsets[1, :8] < NO_LIMIT).all() == (form == "horseshoe")
    assert law.norms.any() == (form == "shares")
    density = in_maps(ProgramDensity(program_of(form), data))(rows)
    rng = np.random.default_rng(5)
    others = np.setdiff1d(np.arange(len(names)), law.own)
    for _ in range(4):
        z, score = rng.normal(size=len(names)), np.empty(len(names))
        z[others] *= 0.8
        assert np.isfinite(density(z, score))
        assert np.abs(score + z)[law.own].max() < (0.1 if form == "process" else 0.01)


@pytest.mark.parametrize("form", ["horseshoe", "local", "by error"])
def test_weights_of_centred_programs_are_turned_to_the_other_form(form: str) -> None:
    """The Hessian tells their scales beside data: with limits, as products, and with that of errors."""
    program, data = program_of(form, centred=True), data_of("horseshoe", 50, 8)
    rows, gradients, names = find(program, data)
    law = weights_of(rows)
    assert law.is_centred
    assert [names[i] for i in law.own] == [*(f"z.{k + 1}" for k in range(8)), "a"]
    limit = {"c2"} if form == "horseshoe" else set()
    assert {names[i].partition(".")[0] for i in law.heads} == {"lam", "tau", "sigma"} | limit
    assert (law.offsets[1, :8] < NO_LIMIT).all() == (form == "horseshoe")
    assert gradients < 1_500
    assert_standard_normal(program, data, rows, 0.01)


def assert_standard_normal(program: str, data: dict[str, Any], rows: np.ndarray, most: float) -> None:
    """Fail unless scores are those of a standard normal law of weights, up to `most`, at points far apart."""
    density, law, rng = (
        in_maps(ProgramDensity(program, data))(rows),
        weights_of(rows),
        np.random.default_rng(5),
    )
    d = len(density_names(program, data))
    others = np.setdiff1d(np.arange(d), law.own)
    for _ in range(4):
        z, score = rng.normal(size=d), np.empty(d)
        z[others] *= 1.5
        assert np.isfinite(density(z, score))
        assert np.abs(score + z)[law.own].max() < most


def density_names(program: str, data: dict[str, Any]) -> list[str]:
    return list(ProgramDensity(program, data).model.unconstrained_names())


@pytest.mark.parametrize("centred", [False, True])
def test_scales_of_one_weight_each_are_looked_at_together(centred: bool) -> None:
    """Points along one of 60 tell all. Each alone would take some 50 gradients."""
    program, data = program_of("horseshoe", centred=centred), data_of("horseshoe", 150, 60)
    rows, gradients, _ = find(program, data)
    assert len(weights_of(rows).own) == 61
    assert gradients < (2_800 if centred else 2_200)
    assert_standard_normal(program, data, rows, 0.01)


@pytest.mark.parametrize("log_scale", [-7.0, -14.0])
def test_a_weight_with_a_small_scale_has_its_limit_and_its_data(log_scale: float) -> None:
    """Where the search begins neither can be seen. Its scale may be large in other places."""
    program, data = program_of("horseshoe"), data_of("horseshoe", 50, 8)
    density, names = ProgramDensity(program, data), density_names(program, data)
    x, variables = 0.3 * np.random.default_rng(4).normal(size=len(names)), numbers_of(names)
    x[names.index("lam.4")] = log_scale
    weights = np.flatnonzero(variables == variables[names.index("z.1")])
    space = WeightSpace(ScaledDensity(density, np.ones(x.size)), x, weights, variables)
    scales = space.scales(space.roles()[0])
    assert scales is not None
    assert (scales.offsets[1] < NO_LIMIT).all()
    found, _ = learn_field(in_maps(density), x, np.ones(x.size), variables)
    assert found is not None
    assert_standard_normal(program, data, found.rows, 0.01)


def numbers_of(names: list[str]) -> np.ndarray:
    """The numbers (d,) of the variables of coordinates."""
    return np.unique([name.partition(".")[0] for name in names], return_inverse=True)[1]


def test_data_of_weights_with_small_scales_are_seen_where_these_are_large() -> None:
    """Where the search begins some scales are e^-25, so that the Hessian there has nothing of their data."""
    data = data_of("process", 60, 10)
    rows, _, names = find(program_of("process"), data)
    law = weights_of(rows)
    density, rho = in_maps(ProgramDensity(program_of("process"), data))(rows), names.index("rho")
    rng = np.random.default_rng(6)
    for log_rho in (-2.5, -1.5, -0.5):
        z, score = np.zeros(len(names)), np.empty(len(names))
        z[law.own], z[rho] = rng.normal(size=11), log_rho
        assert np.isfinite(density(z, score))
        assert np.abs(score + z)[law.own].max() < 0.05


def test_counts_have_the_law_at_the_mode() -> None:
    data = data_of("process", 50, 8)
    rng = np.random.default_rng(8)
    data["y"] = rng.poisson(np.exp(1.0 + 0.5 * data["X"][:, 0])).tolist()
    rows, _, names = find(program_of("process", "poisson"), data)
    law = weights_of(rows)
    assert {names[i] for i in law.heads} == {"alpha", "rho"}
    assert not [curve for curve in law.curves if curve.target == ERROR]
    density = in_maps(ProgramDensity(program_of("process", "poisson"), data))(rows)
    z, off = np.zeros(len(names)), []
    for _ in range(4):
        z[law.own], score = rng.normal(size=9), np.empty(len(names))
        density(z, score)
        off.append(np.sqrt(np.mean(np.square(score + z)[law.own])))
    assert np.median(off) < 0.3


def test_far_out_data_that_are_not_normal_are_those_at_the_mode() -> None:
    """Errors of Student's distribution are so far from the data that the Hessian has negative eigenvalues."""
    program, data = program_of("process"), data_of("process", 50, 8)
    program = program.replace(
        "y ~ normal(a + X * (s .* z), sigma)", "y ~ student_t(4, a + X * (s .* z), 0.6)"
    )
    program = program.replace("real<lower=0> sigma;", "").replace("sigma ~ normal(0, 2);", "")
    near, far = (find(program, data | {"y": [y + shift for y in data["y"]]})[0] for shift in (0.0, 6.0))
    for rows in (near, far):
        assert has_weights(rows)
    law, other = weights_of(near), weights_of(far)
    np.testing.assert_array_equal(other.own, law.own)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("z ~ std_normal()", "z ~ student_t(3, 0, 1)"),  # not normal
        ("z ~ std_normal()", "z ~ normal(0, tau)"),  # scales twice
        ("X * (s .* z)", "X * (s .* square(z))"),  # not linear
    ],
)
def test_programs_of_another_form_have_none(old: str, new: str) -> None:
    program = program_of("horseshoe")
    assert old in program
    rows, _, _ = find(program.replace(old, new), data_of("horseshoe", 50, 8))
    assert not has_weights(rows)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("z ~ normal(0, s)", "z ~ double_exponential(0, s)"),  # not normal
        ("z ~ normal(0, s)", "z ~ normal(a, s)"),  # not around 0
        ("s = tau * lam", "s = tau * lam + 0.3 * square(lam)"),  # no sum of functions of one head
    ],
)
def test_nor_have_centred_programs_of_another_form(old: str, new: str) -> None:
    program = program_of("local", centred=True)
    assert old in program
    rows, _, _ = find(program.replace(old, new), data_of("horseshoe", 50, 8))
    assert not has_weights(rows)
