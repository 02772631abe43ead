"""Fields with five and six heads, as in a regression whose coefficients are walks."""

from __future__ import annotations

import numpy as np
import pytest
from test_correlated_effects import ProgramDensity

from densities import in_maps
from stanadapt.run.warmup import variable_groups
from stanadapt.transport.composition import points_in_z
from stanadapt.transport.field_table import fields_of, split
from stanadapt.transport.fields import effects_search
from stanadapt.transport.fields.field_learning import learn_field

DAYS = 40
REGRESSION = """
data { int T; int K; matrix[T, K] x; vector[T] y; }
parameters { vector[K] log_s; real log_e; matrix[T, K] b; }
model {
  log_s ~ normal(-1.5, 0.7); log_e ~ std_normal(); b[1] ~ std_normal();
  for (k in 1:K) b[2:T, k] ~ normal(b[1:(T - 1), k], exp(log_s[k]));
  y ~ normal(rows_dot_product(x, b), exp(log_e));
}
"""


def laws_of(predictors: int) -> tuple[list[set[str]], list[float]]:
    """The names of the heads of each law, and how far scores are off at heads around their place."""
    rng, n = np.random.default_rng(4), predictors * DAYS
    x = rng.normal(size=(DAYS, predictors))
    b = np.cumsum(0.2 * rng.normal(size=(DAYS, predictors)), axis=0)
    y = (x * b).sum(axis=1) + 0.5 * rng.normal(size=DAYS)
    density = ProgramDensity(REGRESSION, {"T": DAYS, "K": predictors, "x": x.tolist(), "y": y.tolist()})
    names = list(density.model.unconstrained_names())
    point = np.concatenate((np.full(predictors, np.log(0.2)), [np.log(0.5)], b.T.ravel()))
    unit = np.concatenate((np.full(predictors + 1, 0.4), np.full(n, 0.3)))
    learned, _ = learn_field(in_maps(density), point, unit, variable_groups(names), most_dense=30_000.0)
    assert learned is not None
    laws = fields_of(split(learned.rows)[0])[0]
    moved, off, score = in_maps(density)(learned.rows), [], np.empty(point.size)
    start = points_in_z(learned.rows, point[None])[0]
    for _ in range(12):
        z = start.copy()
        z[: predictors + 1] += 0.3 * rng.normal(size=predictors + 1)
        z[predictors + 1 :] = rng.normal(size=n)
        assert np.isfinite(moved(z, score))
        off.append(float(np.sqrt(np.mean(np.square(score + z)[predictors + 1 :]))))
    return [{names[k] for k in law.heads} for law in laws], off


def test_all_scales_of_five_walks_and_noise_are_heads_of_one_field(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given all of them latents are normal, which they are not given the strongest four."""
    looked_at = list[object]()
    monkeypatch.setattr(effects_search, "_find_roles", lambda _, x, own, *others: looked_at.append(own))
    heads, off = laws_of(5)
    assert not looked_at  # five scales look like effects of five groups
    assert heads == [{"log_e", *(f"log_s.{k}" for k in range(1, 6))}]
    assert np.median(off) < 0.1


def test_a_regression_with_more_has_a_field_for_each_coefficient() -> None:
    heads, _ = laws_of(7)
    assert len(heads) == 7
    assert all(len({name for name in one if name.startswith("log_s")}) <= 2 for one in heads)
