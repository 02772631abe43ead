"""Coefficients beside effects whose widths change with the scales of these (coefficient_widths.py)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_correlated_effects import ProgramDensity, find

from densities import in_maps
from stanadapt.numerics.field_search import without_poor_field
from stanadapt.transport import composition
from stanadapt.transport.error_scale import error_scales_of
from stanadapt.transport.field_table import factors_in, latents_and_heads, split
from stanadapt.transport.fields import coefficient_widths as widths_beside_effects
from stanadapt.transport.fields.coefficient_widths import ScaleOfEffects, coefficient_widths
from stanadapt.transport.fields.probes import ScaledDensity
from stanadapt.transport.learning import learn_transport
from stanadapt.transport.map_table import OWN, SCALE

GROUPS, EACH = 12, 4
ONE_WAY = """
data { int J; int n; matrix[J, n] y; }
parameters { real mu; real<lower=0> tau; vector[J] a; }
model { a ~ normal(mu, tau); to_vector(y) ~ normal(to_vector(rep_matrix(a, n)), 1); }
"""
FORMS = {
    "centred": ONE_WAY,
    "not centred": ONE_WAY.replace("normal(mu, tau)", "std_normal()").replace("(a, n)", "(mu + tau * a, n)"),
    "variance": ONE_WAY.replace("normal(mu, tau)", "normal(mu, sqrt(tau))"),
    "bounded": ONE_WAY.replace("<lower=0>", "<lower=0, upper=2>"),
}
POWERS = {"variance": 0.5}


def one_way(form: str) -> tuple[str, dict[str, Any]]:
    """A program, and data of groups that differ about as much as observations in one."""
    rng = np.random.default_rng(2)
    y = 3.0 + 0.6 * rng.normal(size=(GROUPS, 1)) + rng.normal(size=(GROUPS, EACH))
    return FORMS[form], {"J": GROUPS, "n": EACH, "y": y}


@pytest.mark.parametrize("form", FORMS)
def test_the_mean_of_groups_has_the_variance_of_effects_in_part(form: str) -> None:
    """That of all groups is (tau² + 1 / 4) / 12 where each has four observations with a unit error."""
    rows, _, names = find(*one_way(form))
    (law,) = error_scales_of(split(rows)[1])
    power = POWERS.get(form, 1.0)
    assert [names[i] for i in law.members] == ["mu"]
    assert names[law.scale] == "tau"
    middle = factors_in(rows)[0].middle[0]
    scale = 2.0 / (1.0 + np.exp(-middle)) if form == "bounded" else np.exp(power * middle)
    assert law.slope == pytest.approx(1.0 - 0.5 * scale if form == "bounded" else power)
    assert law.floor == pytest.approx(0.25 / (scale**2 + 0.25), abs=0.02)
    assert composition.is_map(rows, len(names))


@pytest.mark.parametrize("form", FORMS)
def test_its_width_does_not_depend_on_the_scale_any_more(form: str) -> None:
    program, data = one_way(form)
    rows, _, names = find(program, data)
    density = ProgramDensity(program, data)
    changes = []
    for table in (split(rows)[0], rows):
        moved, (law,), widths = in_maps(density)(table), factors_in(rows), []
        for away in (-1.0, 0.0, 1.0):
            z, scores = np.zeros(len(names)), np.empty((2, len(names)))
            z[names.index("mu")], z[names.index("tau")] = 3.0, law.middle[0] + away
            for sign, score in zip((-1.0, 1.0), scores, strict=True):
                there = z.copy()
                there[names.index("mu")] += 1e-3 * sign
                moved(there, score)
            widths.append(-np.diff(scores[:, names.index("mu")])[0] / 2e-3)
        changes.append(np.log(max(widths) / min(widths)))
    without, with_law = changes
    assert without > 0.8
    assert with_law < (0.25 * without if form == "bounded" else 0.02)


@pytest.mark.parametrize("change", [0.0, 2.0])
def test_coefficients_whose_correlation_changes_have_no_law(change: float) -> None:
    """A third of their variances is that of effects, whether their correlation changes or not."""

    def evaluate(z: np.ndarray, score: np.ndarray) -> float:
        def value(z: np.ndarray) -> float:
            variance, r = (2.0 + np.exp(2.0 * z[0])) / 3.0, 0.5 * np.tanh(change * z[0])
            square = (z[1] ** 2 + z[2] ** 2 - 2.0 * r * z[1] * z[2]) / (1.0 - r * r)
            return float(-0.5 * square / variance - np.log(variance) - 2.0 * z[0] ** 2)

        steps = 1e-5 * np.eye(3)
        score[:] = [(value(z + step) - value(z - step)) / 2e-5 for step in steps]
        return value(z)

    density = ScaledDensity(evaluate, np.ones(3))
    given = np.zeros(3), np.ones(3), np.diag([4.0, 1.0, 1.0]), np.arange(3), np.array([1, 2])
    laws = error_scales_of(coefficient_widths(density, *given, [ScaleOfEffects(0, 1.0)]))
    if change:
        assert not laws
    else:
        assert [law.members.tolist() for law in laws] == [[1], [2]]
        assert [law.floor for law in laws] == pytest.approx([2.0 / 3.0] * 2, rel=1e-3)


def test_a_look_that_takes_too_long_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(widths_beside_effects, "_MOST_GRADIENTS", 3)
    rows, gradients, _ = find(*one_way("centred"))
    assert factors_in(rows)
    assert not len(split(rows)[1])
    monkeypatch.undo()
    assert find(*one_way("centred"))[1] == gradients + 4


def draws(
    rows: np.ndarray, in_z: np.ndarray, d: int, bent: list[int] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Draws that are normal in the coordinates of `in_z`, around the middle of `rows`, in x.

    Those that are `bent` are logs of exponential variables.
    """
    rng, middle = np.random.default_rng(5), np.zeros(d)
    middle[factors_in(rows)[0].heads] = factors_in(rows)[0].middle
    points, scores = np.empty((2, 200, d))
    for x, score in zip(points, scores, strict=True):
        away = rng.normal(size=d)
        score_z = -away
        if bent:
            away[bent] = np.log(rng.exponential(size=len(bent)))
            score_z[bent] = 1.0 - np.exp(away[bent])
        z = middle + 0.4 * away
        composition.into_x(in_z, z, x)
        score[:] = composition.score_in_x(in_z, z, x, score_z / 0.4)
    return points, scores


def test_later_windows_keep_it_and_move_it_no_more() -> None:
    """Draws ask for a bend, as the mean would get without it."""
    rows, _, names = find(*one_way("centred"))
    bent = [names.index("mu")]
    variables = np.unique([name.partition(".")[0] for name in names], return_inverse=True)[1]
    table = learn_transport(rows, *draws(rows, rows, len(names), bent), variables, 50)
    assert table.tolist() == rows.tolist()
    without = split(rows)[0]
    bends = split(learn_transport(without, *draws(rows, without, len(names), bent), variables, 50))[1]
    assert bends[:, OWN].tolist() == bent


def test_it_goes_where_effects_are_given_up() -> None:
    """Draws that are normal as they are need no effects, and no law that goes with these."""
    rows, _, names = find(*one_way("centred"))
    d = len(names)
    assert without_poor_field(rows, *draws(rows, rows, d), 0).tolist() == rows.tolist()
    assert not len(without_poor_field(rows, *draws(rows, rows[:0], d), 0))


def test_no_other_law_moves_latents_or_bent_heads() -> None:
    """Of what the first rows move, coefficients may follow the scale of effects alone."""
    rows, _, names = find(*one_way("centred"))
    (widths,) = split(rows)[1]
    assert widths[SCALE] in latents_and_heads(rows)[1]
    for column, place in ((OWN, factors_in(rows)[0].own[0, 0]), (SCALE, widths[OWN])):
        wrong = rows.copy()
        wrong[-1, column] = place
        assert not composition.is_map(wrong, len(names))


TURNED = """
data { int N; matrix[N, 9] Z; matrix[N, 6] V; vector[N] y; }
parameters { real a; real<lower=0> tau; real<lower=0> kappa; vector[9] w; vector[6] v; }
model {
  tau ~ normal(0, 1); kappa ~ normal(0, 1);
  w ~ normal(0, tau); v ~ normal(0, sqrt(1 + square(kappa)));
  y ~ normal(a + Z * w + V * v, 0.5);
}
"""


def test_what_may_be_turned_is_no_coefficient() -> None:
    """Weights whose scale has no role are turned beside those that have an effect along each axis."""
    rng = np.random.default_rng(3)
    z = rng.normal(size=(40, 9))
    v = z[:, :6] + 0.1 * rng.normal(size=(40, 6))
    y = z @ (0.5 * rng.normal(size=9)) + v @ rng.normal(size=6) + 0.5 * rng.normal(size=40)
    data = {"N": 40, "Z": z.tolist(), "V": v.tolist(), "y": y.tolist()}
    rows, _, names = find(TURNED, data)
    assert [names[i].partition(".")[0] for i in factors_in(rows)[0].own[:, 0]] == ["w"] * 9
    assert {names[int(i)] for i in split(rows)[1][:, OWN]} <= {"a"}
    assert composition.is_map(rows, len(names))
