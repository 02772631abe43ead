"""Log densities without the Jacobian of the transforms, for each of Stan's types."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stanadapt
from stanadapt.errors import ModelError
from stanadapt.model.without_jacobian import term_program, without_jacobian

# Declarations of Stan's Reference Manual, "Constraint transforms"; `t` is the parameter. stanli has no
# stochastic matrices, and BridgeStan is asked for the density without the Jacobian.
TYPES = {
    "real": "real t;",
    "lower": "real<lower=1.5> t;",
    "upper": "real<upper=-0.5> t;",
    "both bounds": "vector<lower=-1, upper=3>[3] t;",
    "offset and multiplier": "vector<offset=2, multiplier=3>[2] t;",
    "bounds by another parameter": "real<lower=0> u; vector<upper=u>[2] t;",
    "ordered": "ordered[4] t;",
    "positive ordered": "positive_ordered[3] t;",
    "simplex": "simplex[4] t;",
    "simplexes": "array[2] simplex[3] t;",
    "sum to zero": "sum_to_zero_vector[4] t;",
    "unit vector": "unit_vector[3] t;",
    "correlations": "corr_matrix[3] t;",
    "covariances": "cov_matrix[3] t;",
    "Cholesky factor of correlations": "cholesky_factor_corr[4] t;",
    "Cholesky factor of covariances": "cholesky_factor_cov[4, 3] t;",
}
# A sum over all entries, of which no type fixes more than the sum or the squares.
MODEL = "model { real s = 0; for (v in WHERE) s += sin(2 * v) + 0.3 * v; target += s; }"


def program(declaration: str) -> str:
    """With a parameter t of any type, over whose entries the model sums."""
    own = declaration.rpartition("; ")[2]
    if own.startswith("real"):
        entries = "{t}"
    elif own.startswith("array"):
        entries = "to_array_1d(append_row(t[1], t[2]))"
    else:
        entries = "to_array_1d(t)"
    return f"parameters {{ {declaration} }}\n{MODEL.replace('WHERE', entries)}"


def sum_of(values: dict[str, Any]) -> float:
    entries = np.ravel(values["t"])
    return float(np.sum(np.sin(2.0 * entries) + 0.3 * entries))


@pytest.mark.parametrize("declaration", TYPES.values(), ids=TYPES)
def test_the_density_is_that_of_the_constrained_values(declaration: str) -> None:
    """The program adds a function of the constrained values, so that this is the whole density."""
    posterior = stanadapt.Posterior(program(declaration))
    density = without_jacobian(posterior)
    rng = np.random.default_rng(1)
    for x in rng.uniform(-2.0, 2.0, (5, posterior.dim)):
        expected = sum_of(posterior.constrain(x))
        assert density.log_density(x) == pytest.approx(expected, rel=1e-10, abs=1e-10)
        value, score = density.log_density_gradient(x)
        assert value == pytest.approx(expected, rel=1e-10, abs=1e-10)
        steps = 1e-5 * np.eye(posterior.dim)
        differences = [(density.log_density(x + h) - density.log_density(x - h)) / 2e-5 for h in steps]
        assert score == pytest.approx(np.array(differences), rel=1e-6, abs=1e-6)


def test_types_but_linear_ones_have_a_jacobian() -> None:
    """Else the test before would pass with nothing taken away."""
    x_of = np.random.default_rng(2)
    without = []
    for name, declaration in TYPES.items():
        posterior = stanadapt.Posterior(program(declaration))
        x = x_of.uniform(-2.0, 2.0, posterior.dim)
        if abs(posterior.log_density(x) - sum_of(posterior.constrain(x))) < 1e-6:
            without.append(name)
    assert without == ["real", "sum to zero"]


def test_blocks_beside_the_parameters_are_left_out() -> None:
    code = """
    functions { real f(real a) { return a; } }
    data { int n; } // with a comment { and a brace
    transformed data { real low = f(n); }
    parameters { real<lower=low> s; }
    transformed parameters { real t = s; if (t > 1e9) reject("never"); }
    model { s ~ normal(0, 1); }
    generated quantities { real y = normal_rng(0, s); }
    """
    words = term_program(code)
    assert "transformed data { real low" in words
    assert "transformed parameters" not in words
    assert "generated" not in words
    assert words.endswith("model {}")


@pytest.mark.parametrize("added", ["jacobian += x;", "s += f_jacobian(x);"])
def test_a_program_that_adds_to_the_jacobian_itself_is_refused(added: str) -> None:
    code = f"parameters {{ real x; }} transformed parameters {{ real s = exp(x); {added} }} model {{ }}"
    with pytest.raises(ModelError, match="add to the Jacobian themselves"):
        term_program(code)


def test_an_opened_model_without_its_text_is_refused() -> None:
    opened = stanadapt.Posterior("parameters { real<lower=0> s; } model { s ~ normal(0, 1); }")
    bare = stanadapt.Posterior(opened.model.model)
    assert bare.code == ""
    with pytest.raises(ModelError, match=r"its text is not known: .* jacobian=True"):
        without_jacobian(bare)


def test_a_target_in_python_has_no_transforms() -> None:
    target = stanadapt.Target.from_python(lambda x: -float(x @ x), 2, lambda x: -2.0 * x)
    density = without_jacobian(stanadapt.Posterior(target))
    assert density.log_density(np.ones(2)) == -2.0


def test_a_model_of_another_backend_with_transforms_is_refused() -> None:
    posterior = stanadapt.Posterior("parameters { real<lower=0> s; } model { s ~ normal(0, 1); }")
    posterior.model.backend = "numpyro"
    with pytest.raises(ModelError, match="with the Jacobian alone"):
        without_jacobian(posterior)
