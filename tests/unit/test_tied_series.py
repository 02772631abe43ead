"""Series of which the sum is observed: each has a field, given all other latents."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sparse
from test_correlated_effects import ProgramDensity

from densities import in_maps
from field_models import MODELS
from stanadapt.run.warmup import variable_groups
from stanadapt.transport.composition import points_in_z
from stanadapt.transport.field_table import fields_of, split, without_effects
from stanadapt.transport.fields.field_learning import LARGEST_COST, learn_field
from stanadapt.transport.fields.heads import HEAD, MOST_HEADS
from stanadapt.transport.fields.innovation_search import NO_HEADS
from stanadapt.transport.fields.probes import Coupling, ScaledDensity, couple
from stanadapt.transport.fields.several import (
    Part,
    Tied,
    cost_of_precision,
    divide_series,
    find_tied_parts,
    series_beside_others,
    strengths_of_all,
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

# A walk beside the coefficients of a regression, and a smooth walk in units of its steps beside another walk.
REGRESSION = """
data { int N; int T; int K; array[N] int t; matrix[N, K] x; vector[N] y; }
parameters { real log_h; real log_b; real log_e; vector[T] h; vector[K] b; }
model {
  log_h ~ std_normal(); log_b ~ std_normal(); log_e ~ std_normal();
  h[1] ~ normal(0, 1); h[2:T] ~ normal(h[1:(T - 1)], exp(log_h));
  b ~ normal(0, exp(log_b));
  y ~ normal(h[t] + x * b, exp(log_e));
}
"""
SMOOTH = """
data { int N; int T; int S; array[N] int t; array[N] int s; vector[N] y; }
parameters { real log_h; real log_u; real log_e; vector[T] h; vector[S] u; }
model {
  log_h ~ std_normal(); log_u ~ std_normal(); log_e ~ std_normal();
  h[1:2] ~ std_normal(); h[3:T] ~ normal(2 * h[2:(T - 1)] - h[1:(T - 2)], 1);
  u[1] ~ normal(0, exp(log_u)); u[2:S] ~ normal(u[1:(S - 1)], exp(log_u));
  y ~ normal(exp(log_h) * h[t] + u[s], exp(log_e));
}
"""
PARTIES, DAYS = 6, 12
SHARES = """
data { int K; int T; array[T, K + 1] int y; }
parameters { vector<lower=0>[K] sigma; matrix[T, K] mu; }
model {
  sigma ~ std_normal(); mu[1] ~ std_normal();
  for (k in 1:K) mu[2:T, k] ~ normal(mu[1:(T - 1), k], sigma[k]);
  for (t in 1:T) y[t] ~ multinomial_logit(append_row(to_vector(mu[t]), 0));
}
"""
SERIES = 3
# Returns of several stocks, whose errors are correlated: data of a day tie their log variances.
VOLATILITIES = """
data { int K; int T; array[T] vector[K] y; }
parameters {
  vector[K] mu; vector[K] a; vector[K] log_s; cholesky_factor_corr[K] L; matrix[T, K] h;
}
model {
  vector[K] phi = inv_logit(a);
  mu ~ std_normal(); a ~ normal(2, 1); log_s ~ normal(-1, 0.5); L ~ lkj_corr_cholesky(2);
  for (k in 1:K) {
    h[1, k] ~ normal(mu[k], exp(log_s[k]) / sqrt(1 - square(phi[k])));
    h[2:T, k] ~ normal(mu[k] + phi[k] * (h[1:(T - 1), k] - mu[k]), exp(log_s[k]));
  }
  for (t in 1:T) y[t] ~ multi_normal_cholesky(rep_vector(0, K), diag_pre_multiply(exp(h[t]' / 2), L));
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
    truth = np.concatenate(([a, 0.0, np.log(0.5), 0.0, np.log(0.5)], h, u, b))
    return density, names, variable_groups(names), truth


def look(density: Any, x: np.ndarray, variables: np.ndarray) -> tuple[ScaledDensity, Coupling]:
    scaled = ScaledDensity(density, np.full(x.size, 0.5))
    coupling = couple(scaled, x / 0.5, variables)
    assert coupling is not None
    return scaled, coupling


def look_beside(density: Any, x: np.ndarray, variables: np.ndarray) -> tuple[ScaledDensity, Coupling, Tied]:
    """The same, and the series beside which there are others."""
    scaled, coupling = look(density, x, variables)
    tied = series_beside_others(coupling, variables)
    assert tied is not None
    return scaled, coupling, tied


def parts_of(n: int) -> tuple[list[Part], list[str]]:
    density, names, variables, x = begin(n)
    scaled, coupling, tied = look_beside(density, x, variables)
    cost, n_heads = cost_of_precision(scaled, coupling, tied)
    if cost <= LARGEST_COST[min(n_heads, MOST_HEADS)]:
        return [], names
    return find_tied_parts(scaled, coupling, x / 0.5, tied), names


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


def test_coefficients_that_data_tie_are_no_series() -> None:
    """Each of them is tied to each other one; those of a walk are tied to the terms beside them alone."""
    rng, n, k = np.random.default_rng(7), 80, 7
    t, predictors = rng.integers(TIMES, size=n), rng.normal(size=(n, k))
    h, b = np.cumsum(rng.normal(size=TIMES)), rng.normal(size=k)
    y = h[t] + predictors @ b + 0.5 * rng.normal(size=n)
    data = {"N": n, "T": TIMES, "K": k, "t": (t + 1).tolist(), "x": predictors.tolist(), "y": y.tolist()}
    density = ProgramDensity(REGRESSION, data)
    names = list(density.model.unconstrained_names())
    variables, x = variable_groups(names), np.concatenate(([0.0, 0.0, np.log(0.5)], h, b))
    scaled, coupling, tied = look_beside(density, x, variables)
    (part,) = find_tied_parts(scaled, coupling, x / 0.5, tied)
    assert {names[i] for i in part.places[part.heads]} == {"log_h", "log_e"}


def test_faint_heads_are_those_of_a_series_without_others() -> None:
    """In units of its steps the scale of a smooth walk changes the diagonal of the precision by next to
    nothing. Without a head it would have no field.
    """
    rng, n = np.random.default_rng(8), 80
    t, s = rng.integers(TIMES, size=n), rng.integers(PLACES, size=n)
    h, u = np.cumsum(np.cumsum(rng.normal(size=TIMES))), np.cumsum(0.5 * rng.normal(size=PLACES))
    y = 0.02 * h[t] + u[s] + 0.5 * rng.normal(size=n)
    data = {"N": n, "T": TIMES, "S": PLACES, "t": (t + 1).tolist(), "s": (s + 1).tolist(), "y": y.tolist()}
    density = ProgramDensity(SMOOTH, data)
    names = list(density.model.unconstrained_names())
    x = np.concatenate((np.log([0.02, 0.5, 0.5]), h, u))
    variables = variable_groups(names)
    scaled, coupling, tied = look_beside(density, x, variables)
    strengths = strengths_of_all(scaled, coupling, x / 0.5, tied, NO_HEADS)
    assert strengths.of_all[names.index("log_h")] < HEAD
    parts = find_tied_parts(scaled, coupling, x / 0.5, tied, strengths)
    assert [{names[i] for i in part.places[part.heads]} for part in parts] == [
        {"log_h", "log_e"},
        {"log_u", "log_e"},
    ]


def test_few_data_leave_one_field() -> None:
    """The precision of all latents is sparse then, and a joint law is the better one."""
    assert not parts_of(16)[0]


def test_scores_are_normal_given_the_other_latents() -> None:
    """Where the heads of a series move, as far as its own latents go."""
    density, names, variables, x = begin(300)
    learned, _ = learn_field(in_maps(density), x, np.full(x.size, 0.5), variables)
    assert learned is not None
    rows = without_effects(learned.rows)  # with which groups would move along
    laws = fields_of(split(rows)[0])[0]
    assert [{names[i].partition(".")[0] for i in law.own} for law in laws] == [{"h"}, {"u"}]
    moved, rng = in_maps(density)(rows), np.random.default_rng(8)
    for law in laws:
        for move in (-0.5, 0.0, 0.5):
            z, score = points_in_z(rows, x[None])[0], np.empty(x.size)
            z[law.heads] += move
            z[law.own] = rng.normal(size=len(law.own))
            assert np.isfinite(moved(z, score))
            assert np.sqrt(np.mean(np.square(score + z)[law.own])) < 0.3


def test_a_matrix_with_many_scales_has_a_field_for_each_series() -> None:
    """Shares of parties: data of a day tie all walks, and each has a scale of its own, six in all."""
    rng = np.random.default_rng(2)
    mu = np.cumsum(0.3 * rng.normal(size=(DAYS, PARTIES)), axis=0)
    weights = np.exp(np.column_stack((mu, np.zeros(DAYS))))
    y = [rng.multinomial(200, row / row.sum()).tolist() for row in weights]
    density = ProgramDensity(SHARES, {"K": PARTIES, "T": DAYS, "y": y})
    names = list(density.model.unconstrained_names())
    variables, x = variable_groups(names), np.concatenate((np.full(PARTIES, np.log(0.3)), mu.T.ravel()))
    scaled, coupling, tied = look_beside(density, x, variables)
    parts = find_tied_parts(scaled, coupling, x / 0.5, tied)
    assert [[names[i] for i in part.places[part.heads]] for part in parts] == [
        [f"sigma.{k}"] for k in range(1, PARTIES + 1)
    ]
    for k, part in enumerate(parts, 1):
        series = {names[i] for i in part.places if names[i].startswith("mu")}
        assert series == {f"mu.{t}.{k}" for t in range(1, DAYS + 1)}


def test_the_mean_of_a_series_is_a_latent_of_its_field() -> None:
    """A matrix whose series have more heads than one field may have, together, though few ties."""
    rng, days = np.random.default_rng(4), 60
    h = np.array([0.5, 0.0, -0.5]) + np.cumsum(0.2 * rng.normal(size=(days, SERIES)), axis=0)
    y = np.exp(h / 2) * rng.multivariate_normal(np.zeros(SERIES), 0.5 + 0.5 * np.eye(SERIES), size=days)
    density = ProgramDensity(VOLATILITIES, {"K": SERIES, "T": days, "y": y.tolist()})
    names = list(density.model.unconstrained_names())
    of_heads = np.repeat([0.0, 2.5, np.log(0.25), 0.5], SERIES)
    variables, x = variable_groups(names), np.concatenate((of_heads, h.T.ravel()))
    scaled, coupling, tied = look_beside(density, x, variables)
    assert cost_of_precision(scaled, coupling, tied)[0] <= LARGEST_COST[MOST_HEADS]
    strengths = strengths_of_all(scaled, coupling, x / 0.5, tied, NO_HEADS)
    assert strengths.are_too_many()
    before = scaled.gradients
    parts = find_tied_parts(scaled, coupling, x / 0.5, tied, strengths)
    assert len(parts) == SERIES
    assert scaled.gradients - before < before  # the strengths are not taken again
    for k, part in enumerate(parts, 1):
        heads = {names[i] for i in part.places[part.heads]}
        assert {f"a.{k}", f"log_s.{k}"} <= heads
        latents = {names[i] for i in part.places} - heads
        assert latents == {f"mu.{k}", *(f"h.{t}.{k}" for t in range(1, days + 1))}


def test_series_are_told_from_a_grid() -> None:
    """Its columns hang together as series do, and are tied to the next columns at the same places."""
    walk = sparse.diags_array([np.ones(7), np.ones(8), np.ones(7)], offsets=[-1, 0, 1]).astype(bool)
    apart = sparse.eye_array(8, dtype=bool)

    def divided(between: Any, *, transposed: bool = False) -> list[np.ndarray]:
        """Of five series of eight, of which those that have an entry in `between` (5, 5) are tied."""
        pattern = (sparse.kron(np.eye(5), walk) + sparse.kron(between, apart)).astype(bool).tocsc()
        order = np.arange(40).reshape(5, 8).T.ravel() if transposed else np.arange(40)
        pattern = pattern[order][:, order]
        coupling = Coupling(pattern, np.ones(40), np.zeros(40, bool), (), ())
        return divide_series(coupling, np.arange(40))

    neighbours = np.eye(5, k=1) + np.eye(5, k=-1)
    assert np.array_equal(divided(np.ones((5, 5))), np.arange(40).reshape(5, 8))
    assert np.array_equal(divided(np.ones((5, 5)), transposed=True), np.arange(40).reshape(8, 5).T)
    assert not divided(neighbours)
    assert not divided(neighbours, transposed=True)


def test_the_scale_of_first_terms_is_a_head_where_there_is_no_mode_without_it() -> None:
    """Few latents depend on it. As one of them it goes to 0 with the first terms of all series."""
    model, rng = MODELS["teams"], np.random.default_rng(6)
    data = {name: np.asarray(value).tolist() for name, value in model.data(16).items()}
    density = ProgramDensity(model.program, data)
    names = list(density.model.unconstrained_names())
    x = np.concatenate(([0.3, 0.2, -1.5, -2.0], 0.2 * rng.normal(size=len(names) - 4)))
    learned, _ = learn_field(in_maps(density), x, np.full(x.size, 0.2), variable_groups(names))
    assert learned is not None
    (law,) = fields_of(split(learned.rows)[0])[0]
    assert {"sigma_first", "sigma"} <= {names[i] for i in law.heads}
