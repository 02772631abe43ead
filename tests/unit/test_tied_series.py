"""Series of which the sum is observed: each has a field, given all other latents."""

from __future__ import annotations

from typing import Any

import numpy as np
from test_correlated_effects import ProgramDensity

from densities import in_maps
from stanadapt.transport.composition import points_in_z
from stanadapt.transport.field_table import fields_of, split
from stanadapt.transport.fields.field_learning import LARGEST_COST, learn_field
from stanadapt.transport.fields.probes import ScaledDensity, couple
from stanadapt.transport.fields.several import (
    Part,
    find_tied_parts,
    is_precision_sparse,
    series_beside_others,
)

TIMES, PLACES, GROUPS = 24, 18, 8
PROGRAM = """
data {
  int N; int T; int S; int J; vector[N] y;
  array[N] int t; array[N] int s; array[N] int g;
}
parameters {
  real a; real log_h; real log_u; real log_b; real log_e; vector[T] h; vector[S] u; vector[J] b;
}
model {
  a ~ normal(0, 2); log_h ~ std_normal(); log_u ~ std_normal(); log_b ~ std_normal(); log_e ~ std_normal();
  h[1] ~ normal(0, exp(log_h)); h[2:T] ~ normal(h[1:(T - 1)], exp(log_h));
  u[1] ~ normal(0, exp(log_u)); u[2:S] ~ normal(u[1:(S - 1)], exp(log_u));
  b ~ normal(0, exp(log_b));
  y ~ normal(a + h[t] + u[s] + b[g], exp(log_e));
}
"""


def begin(n: int) -> tuple[Any, list[str], np.ndarray, np.ndarray]:
    """The density with `n` observations, the coordinates' names, their variables, and the truth."""
    rng = np.random.default_rng(5)
    h, u = np.cumsum(rng.normal(size=TIMES)), np.cumsum(0.5 * rng.normal(size=PLACES))
    b, a = rng.normal(size=GROUPS), 1.0
    t, s, g = (rng.integers(size, size=n) for size in (TIMES, PLACES, GROUPS))
    data = {"N": n, "T": TIMES, "S": PLACES, "J": GROUPS, "t": t + 1, "s": s + 1, "g": g + 1}
    y = a + h[t] + u[s] + b[g] + 0.5 * rng.normal(size=n)
    density = ProgramDensity(PROGRAM, {k: np.asarray(v).tolist() for k, v in (data | {"y": y}).items()})
    names = list(density.model.unconstrained_names())
    bases = [name.partition(".")[0] for name in names]
    variables = np.array([list(dict.fromkeys(bases)).index(base) for base in bases])
    return density, names, variables, np.concatenate(([a, 0.0, np.log(0.5), 0.0, np.log(0.5)], h, u, b))


def parts_of(n: int) -> tuple[list[Part], list[str]]:
    density, names, variables, x = begin(n)
    scaled = ScaledDensity(density, np.full(x.size, 0.5))
    coupling = couple(scaled, x / 0.5, variables)
    assert coupling is not None
    series = series_beside_others(coupling, variables)
    if is_precision_sparse(scaled, coupling, variables, LARGEST_COST):
        return [], names
    return find_tied_parts(scaled, coupling, x / 0.5, variables, series), names


def test_each_series_has_its_scale_and_that_of_the_noise() -> None:
    """Effects of groups are none, and the intercept is a location: it moves no curvature."""
    parts, names = parts_of(300)
    found = [{names[i].partition(".")[0] for i in part.places} for part in parts]
    assert found == [{"h", "log_h", "log_e"}, {"u", "log_u", "log_e"}]
    assert [{names[i] for i in part.places[part.heads]} for part in parts] == [
        {"log_h", "log_e"},
        {"log_u", "log_e"},
    ]
    assert not any(part.alone for part in parts)  # both have the noise


def test_few_data_leave_one_field() -> None:
    """The precision of all latents is sparse then, and a joint law is the better one."""
    assert not parts_of(16)[0]


def test_scores_are_normal_given_the_other_latents() -> None:
    """Where the heads of a series move, as far as its own latents go."""
    density, names, variables, x = begin(300)
    learned, _ = learn_field(in_maps(density), x, np.full(x.size, 0.5), variables)
    assert learned is not None
    laws = fields_of(split(learned.rows)[0])[0]
    assert [{names[i].partition(".")[0] for i in law.own} for law in laws] == [{"h"}, {"u"}]
    moved, rng = in_maps(density)(learned.rows), np.random.default_rng(8)
    for law in laws:
        for move in (-0.5, 0.0, 0.5):
            z, score = points_in_z(learned.rows, x[None])[0], np.empty(x.size)
            z[law.heads] += move
            z[law.own] = rng.normal(size=len(law.own))
            assert np.isfinite(moved(z, score))
            assert np.sqrt(np.mean(np.square(score + z)[law.own])) < 0.3
