"""Which coordinates are heads, and which are locations, that latents follow."""

from __future__ import annotations

import numpy as np
import pytest
from test_correlated_effects import ProgramDensity

from field_models import MODELS
from stanadapt.transport.fields.heads import HEAD, choose_heads, strengths_of, without_locations
from stanadapt.transport.fields.precision import Precision
from stanadapt.transport.fields.probes import ScaledDensity, couple


@pytest.mark.parametrize(
    ("name", "start", "heads", "locations"),
    [
        ("autoregression", {"mu": 1.0, "phi": 2.5, "sigma": -1.2}, ["phi", "sigma"], ["mu"]),
        ("volatility_noncentred", {"mu": -1.0, "phi": 4.0, "sigma": -1.5}, ["phi", "sigma"], ["mu"]),
        ("walk", {"step": -1.0, "noise": -0.5, "nu": 1.0}, ["noise", "nu", "step"], []),
    ],
)
def test_a_location_is_no_head(
    name: str, start: dict[str, float], heads: list[str], locations: list[str]
) -> None:
    """It changes the curvature while the latents stay, but not once they have followed it."""
    model, rng = MODELS[name], np.random.default_rng(1)
    data = {key: np.asarray(each).tolist() for key, each in model.data(80).items()}
    density = ProgramDensity(model.program, data)
    names = list(density.model.unconstrained_names())
    variables = np.unique([each.partition(".")[0] for each in names], return_inverse=True)[1]
    x = 0.3 * rng.normal(size=len(names))
    x[[names.index(each) for each in start]] = list(start.values())
    if name == "autoregression":
        x[-80:] = np.log(np.array(data["y"]) + 0.5)
    scaled = ScaledDensity(density, np.ones(len(names)))
    coupling = couple(scaled, x, variables)
    assert coupling is not None
    coupling = coupling._replace(wide=np.isin(names, [*heads, *locations]))
    strengths = strengths_of(scaled, x, coupling)
    assert {names[k] for k, strength in strengths.items() if strength > HEAD} == {*heads, *locations}
    left = without_locations(scaled, x, coupling, strengths)
    assert [names[k] for k in choose_heads(left)] == sorted(heads, key=names.index)


LEVELS = """
data { int T; int N; array[N] int at; vector[N] y; }
parameters { real a; real<lower=0> s; vector[T] h; real<lower=0> sigma; }
model {
  a ~ normal(0, 2);
  s ~ normal(0, 1);
  h[1] ~ normal(0, s);
  h[2:T] ~ normal(h[1:T - 1], s);
  sigma ~ normal(0, 1);
  y ~ student_t(4, a + h[at], sigma);
}
"""


@pytest.mark.parametrize("seed", [2, 3])
def test_a_location_is_no_head_where_latents_are_far_from_their_mode(seed: int) -> None:
    """In the flanks of Student errors the precision is not positive definite, and tells of no location."""
    rng, terms = np.random.default_rng(1), 20
    at = np.repeat(np.arange(terms), 15)
    h = np.cumsum(0.5 * rng.normal(size=terms))
    y = 0.7 + h[at] + 0.6 * rng.standard_t(4, size=at.size)
    data = {"T": terms, "N": at.size, "at": (at + 1).tolist(), "y": y.tolist()}
    density = ProgramDensity(LEVELS, data)
    off = np.random.default_rng(seed).normal(size=terms)
    x = np.concatenate(([0.7, np.log(0.5)], h + off, [np.log(0.6)]))
    scaled = ScaledDensity(density, np.ones(x.size))
    coupling = couple(scaled, x, np.repeat([0, 1, 2, 3], [1, 1, terms, 1]))
    assert coupling is not None
    coupling = coupling._replace(wide=np.isin(np.arange(x.size), [0, 1, x.size - 1]))
    strengths = strengths_of(scaled, x, coupling)
    precision = Precision(scaled, coupling, choose_heads(strengths))
    matrix = precision.at(x, scaled(x)[1])
    assert matrix is not None
    assert precision.factor(matrix) is None
    left = without_locations(scaled, x, coupling, strengths)
    assert choose_heads(left).tolist() == [1, x.size - 1]
