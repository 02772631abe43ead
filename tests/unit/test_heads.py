"""Which coordinates are heads, and which are locations, that latents follow."""

from __future__ import annotations

import numpy as np
import pytest
from test_correlated_effects import ProgramDensity

from field_models import MODELS
from stanadapt.transport.fields.heads import HEAD, choose_heads, strengths_of, without_locations
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
