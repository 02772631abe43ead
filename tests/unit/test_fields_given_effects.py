"""A field beside effects that follow it: it is learned where these are standard normal."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from test_correlated_effects import ProgramDensity

from densities import in_maps
from stanadapt.run.warmup import variable_groups
from stanadapt.transport import composition
from stanadapt.transport.bend import Bend, bend_rows
from stanadapt.transport.composition import points_in_z
from stanadapt.transport.field_table import (
    bends_of_effects,
    effects_alone,
    factors_in,
    fields_of,
    latents_and_heads,
    split,
    without_effects,
)
from stanadapt.transport.fields import beside_effects, field_learning
from stanadapt.transport.fields.field_learning import learn_field

SHORT, LONG = 30, 60  # walks
EACH = 3  # groups of a time, each with two observations
PROGRAM = """
data { int T; int J; array[J] int t; matrix[J, 2] y; }
parameters { real a; real log_h; real log_b; vector[T] h; vector[J] b; }
model {
  a ~ normal(0, 2); log_h ~ std_normal(); log_b ~ std_normal();
  h[1] ~ normal(0, exp(log_h)); h[2:T] ~ normal(h[1:(T - 1)], exp(log_h));
  b ~ normal(0, exp(log_b));
  for (i in 1:2) y[, i] ~ normal(a + h[t] + b, 0.5);
}
"""


def begin(times: int) -> tuple[Any, list[str], np.ndarray, np.ndarray]:
    """The density, the names of the coordinates, their variables, and the truth."""
    rng, t = np.random.default_rng(3), np.repeat(np.arange(times), EACH)
    h, b = np.cumsum(0.4 * rng.normal(size=times)), rng.normal(size=len(t))
    y = 1.0 + (h[t] + b)[:, None] + 0.5 * rng.normal(size=(len(t), 2))
    density = ProgramDensity(PROGRAM, {"T": times, "J": len(t), "t": (t + 1).tolist(), "y": y.tolist()})
    names = list(density.model.unconstrained_names())
    return density, names, variable_groups(names), np.concatenate(([1.0, np.log(0.4), 0.0], h, b))


@functools.cache
def learn(times: int, good: float) -> np.ndarray:
    """The rows of the map, where a field that is so far off is good enough."""
    density, _, variables, x = begin(times)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(beside_effects, "GOOD", good)
        learned, _ = learn_field(in_maps(density), x, np.full(x.size, 0.5), variables)
    assert learned is not None
    return learned.rows


def how_far_off(rows: np.ndarray, times: int) -> float:
    """Scores of the walk in z beside those of a standard normal, the most over some scales."""
    density, _, _, x = begin(times)
    moved, rng, (law,) = in_maps(density)(rows), np.random.default_rng(8), fields_of(rows)[0]
    off, standard = [], latents_and_heads(rows)[0]
    for move in (-0.5, 0.0, 0.5):
        z, score = points_in_z(rows, x[None])[0], np.empty(x.size)
        z[[1, 2]] += move, -move
        z[standard] = rng.normal(size=len(standard))
        assert np.isfinite(moved(z, score))
        off.append(np.sqrt(np.mean(np.square((score + z)[law.own]))))
    return float(max(off))


def check(rows: np.ndarray, times: int, heads: set[str]) -> None:
    """Effects and the walk have a law each; that of the walk has these heads."""
    names = begin(times)[1]
    (factor,), (law,) = factors_in(rows), fields_of(rows)[0]
    assert {names[i].partition(".")[0] for i in factor.own.ravel()} == {"b"}
    assert {names[i].partition(".")[0] for i in law.own} - {"a"} == {"h"}  # the intercept moves no curvature
    assert {names[i] for i in law.heads} == heads
    assert composition.is_map(rows, len(names))
    assert [len(part) for part in split(rows)] == [len(rows), 0]


def test_the_law_of_a_walk_depends_on_the_scale_of_effects_that_follow_it() -> None:
    """Data hold it by what effects leave, whose variance is that of effects and of errors."""
    first, again = learn(LONG, np.inf), learn(LONG, 0.0)
    check(first, LONG, {"log_h"})
    check(again, LONG, {"log_h", "log_b"})
    assert how_far_off(again, LONG) < 0.3
    assert how_far_off(first, LONG) > 2.0 * how_far_off(again, LONG)


def test_a_short_series_beside_effects_has_a_field_too() -> None:
    """There effects are found alone: the walk has no more coordinates than a regression may have."""
    rows = learn(SHORT, beside_effects.GOOD)
    check(rows, SHORT, {"log_h", "log_b"})
    assert how_far_off(rows, SHORT) < 0.3
    assert not fields_of(learn(SHORT, np.inf))[0]


def test_what_is_better_by_the_scores_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first field is kept where the other one is farther off."""
    first, offs = learn(LONG, np.inf), iter((1.0, 2.0))  # as it is without the change below
    told = beside_effects._how_far_off

    def turned(*given: Any) -> tuple[float, np.ndarray, int]:
        return next(offs), *told(*given)[1:]

    monkeypatch.setattr(beside_effects, "_how_far_off", turned)
    density, _, variables, x = begin(LONG)
    learned, _ = learn_field(in_maps(density), x, np.full(x.size, 0.5), variables)
    assert learned is not None
    np.testing.assert_array_equal(learned.rows[:, 3:], first[:, 3:])


def test_bends_of_effects_stay_where_no_field_has_their_heads() -> None:
    """That of a scale of effects stays beside a field that does not know it, and not where it is a head."""
    first, again = learn(LONG, np.inf), learn(LONG, 0.0)
    effects, scale = effects_alone(first), begin(LONG)[1].index("log_b")
    assert len(factors_in(effects)) == 1
    assert not fields_of(effects)[0]
    bend = bend_rows([Bend(scale, 0.1, 2.0, 0.5, -1.0, 1.0)], apart=True)
    bent = np.concatenate((first, bend))
    np.testing.assert_array_equal(bends_of_effects(bent, without_effects(first)), bend)
    assert not len(bends_of_effects(bent, without_effects(again)))


FEW = """
data { int T; int J; int N; array[N] int t; array[N] int g; array[N] int y; }
parameters { real a; real log_h; real log_b; vector[T] h; vector[J] b; }
model {
  a ~ normal(0, 2); log_h ~ std_normal(); log_b ~ std_normal();
  h[1] ~ normal(0, exp(log_h)); h[2:T] ~ normal(h[1:(T - 1)], exp(log_h));
  b ~ normal(0, exp(log_b));
  y ~ poisson_log(a + h[t] + b[g]);
}
"""


def test_scales_of_few_latents_are_no_heads_where_series_may_have_a_law_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A joint field whose head is the scale of ten effects is no better than the effects with their law."""
    monkeypatch.setattr(field_learning, "find_place", lambda *_, **__: None)
    monkeypatch.setattr(field_learning, "_with_scales_of_few", lambda *_: pytest.fail("scales are tried"))
    rng = np.random.default_rng(4)
    t, g = rng.integers(50, size=150), rng.integers(10, size=150)
    h, b = np.cumsum(0.4 * rng.normal(size=50)), 0.5 * rng.normal(size=10)
    data = {"T": 50, "J": 10, "N": 150, "t": t + 1, "g": g + 1, "y": rng.poisson(np.exp(h[t] + b[g]))}
    density = ProgramDensity(FEW, {name: np.asarray(value).tolist() for name, value in data.items()})
    variables = variable_groups(list(density.model.unconstrained_names()))
    x = np.concatenate(([0.0, np.log(0.4), np.log(0.5)], h, b))
    learned, _ = learn_field(in_maps(density), x, np.full(x.size, 0.5), variables)
    assert learned is None
