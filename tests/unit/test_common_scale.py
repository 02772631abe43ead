"""Standard normal latents that a program multiplies by a scale, where data tie them all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_correlated_effects import ProgramDensity

from densities import in_maps
from stanadapt.run.warmup import variable_groups
from stanadapt.transport import innovations
from stanadapt.transport.composition import points_in_z
from stanadapt.transport.field_table import field_of, fields_of, innovations_of, split
from stanadapt.transport.fields import field_learning
from stanadapt.transport.fields.common_scale import find_common_scales
from stanadapt.transport.fields.field_learning import learn_field

N = 30
# Counts of cases, each day's in proportion to those of days before, with logarithms of rates that are a walk.
EPIDEMIC = """
data { int N; array[N] int y; }
parameters { real log_s; real log_first; real log_k; vector[N] z; }
model {
  vector[N] cases; vector[N] rate = cumulative_sum(append_row(0.5 * z[1], exp(log_s) * z[2:N]));
  for (t in 1:N) {
    if (t <= 5) cases[t] = exp(log_first);
    else cases[t] = exp(rate[t]) * (0.2 * cases[t - 1] + 0.5 * cases[t - 2] + 0.3 * cases[t - 4]);
  }
  log_s ~ normal(-2, 1); log_first ~ normal(3, 1); log_k ~ normal(2, 1); z ~ std_normal();
  y ~ neg_binomial_2(cases, exp(log_k));
}
"""
# All observations sum over all latents, of which the last third have a scale of their own, or a power of one.
SUMS = """
data {{ int N; matrix[N, N] M; vector[N] y; }}
parameters {{ real a; real u; real v; vector[N] z; }}
model {{
  vector[N] scale = append_row(rep_vector(exp(u), 20), rep_vector({last}, 10));
  a ~ std_normal(); u ~ std_normal(); v ~ std_normal(); z ~ std_normal();
  y ~ normal(M * (scale .* z), exp(v));
}}
"""


def epidemic() -> tuple[Any, list[str], np.ndarray]:
    """The density, the names of its coordinates, and a point."""
    rng, cases = np.random.default_rng(2), np.full(N, 20.0)
    z = np.concatenate(([0.2], rng.normal(size=N - 1)))
    rate = np.cumsum(np.append(0.5 * z[0], 0.1 * z[1:]))
    for t in range(5, N):
        cases[t] = np.exp(rate[t]) * (0.2 * cases[t - 1] + 0.5 * cases[t - 2] + 0.3 * cases[t - 4])
    y = rng.negative_binomial(10, 10 / (10 + cases)).tolist()
    density = ProgramDensity(EPIDEMIC, {"N": N, "y": y})
    return density, list(density.model.unconstrained_names()), np.concatenate(([-2.3, 3.0, 2.0], z))


def scales_found(last: str, n_silent: int = 0) -> list[str] | None:
    """The scale of each latent of SUMS that is multiplied by one; None if nothing is found.

    Data say nothing of the first `n_silent` latents.
    """
    rng = np.random.default_rng(3)
    M = rng.normal(size=(N, N))
    M[:, :n_silent] = 0.0
    data = {"N": N, "M": M.tolist(), "y": (M @ rng.normal(size=N)).tolist()}
    density = ProgramDensity(SUMS.format(last=last), data)
    names = list(density.model.unconstrained_names())
    x = np.concatenate((np.zeros(3), rng.normal(size=N)))
    found, _ = find_common_scales(density, x, np.full(x.size, 0.5), variable_groups(names))
    if found is None:
        return None
    rates = np.empty((3, N))
    for k in range(3):
        at, ahead = x.copy(), x.copy()
        ahead[k] += 0.5
        innovations.into_u(found.rows, at)
        innovations.into_u(found.rows, ahead)
        rates[k] = np.log(ahead[3:] / at[3:]) / 0.5
    assert np.allclose(rates, np.round(rates))
    return ["".join(names[k] for k in np.flatnonzero(of_each > 0.5)) for of_each in rates.T]


def test_those_without_the_scale_keep_their_units() -> None:
    assert scales_found("1.0") == ["u"] * 20 + [""] * 10


@pytest.mark.parametrize("last", ["exp(2 * u)", "inv_logit(u)", "exp(0.5 * u)"])
def test_what_changes_with_a_scale_in_another_way_is_left(last: str) -> None:
    assert scales_found(last) is None


def test_each_has_its_own_scale() -> None:
    assert scales_found("exp(a)") == ["u"] * 20 + ["a"] * 10


@pytest.mark.filterwarnings("error")
def test_latents_of_which_data_say_nothing_are_left() -> None:
    assert scales_found("1.0", 5) == [""] * 5 + ["u"] * 15 + [""] * 10


def test_the_point_in_its_units() -> None:
    density, names, x = epidemic()
    unit = np.full(x.size, 0.5)
    found, gradients = find_common_scales(density, x, unit, variable_groups(names))
    assert found is not None
    assert gradients < N
    multiplied = slice(4, None)
    assert np.allclose(found.x[multiplied], np.exp(x[0]) * x[multiplied])
    assert np.allclose(found.unit[multiplied], np.exp(x[0]) * 0.5)
    assert np.array_equal(found.x[:4], x[:4])
    assert np.array_equal(found.unit[:4], unit[:4])


def test_latents_are_normal_at_all_scales(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the law of weights, which is tried before, does not do for them."""
    monkeypatch.setattr(field_learning, "look_for_weights_or_axes", lambda *_, **__: (None, 0))
    density, names, x = epidemic()
    learned, _ = learn_field(in_maps(density), x, np.full(x.size, 0.5), variable_groups(names))
    assert learned is not None
    fields, _ = split(learned.rows)
    (law,) = fields_of(fields)[0]
    assert {"log_s"} <= {names[k] for k in law.heads}
    assert [names[k] for k in field_of(innovations_of(fields)).heads] == ["log_s"]
    moved = in_maps(density)(learned.rows)
    rng, z, score = np.random.default_rng(8), points_in_z(learned.rows, x[None])[0], np.empty(x.size)
    for log_s in (-4.0, -3.0, -2.0, -1.5):
        z[law.heads[np.array([names[k] for k in law.heads]) == "log_s"]] = log_s
        z[law.own] = 0.7 * rng.normal(size=len(law.own))
        assert np.isfinite(moved(z, score))
        assert np.sqrt(np.mean(np.square(score + z)[law.own])) < 0.3
