"""Which statements of a program are its likelihood, and which programs leave that open."""

from __future__ import annotations

import pytest

import stanadapt
from stanadapt.errors import ArgumentError, ModelError
from stanadapt.model.likelihood import without_likelihood
from stanadapt.model.without_jacobian import term_program

HEAD = """
functions { real own(real a, real b) { return a * b; } void add_lp(real a) { target += a; } }
data { int N; int K; vector[N] y; array[N] int g; vector[N] x; real scale; vector[K] z; }
transformed data { vector[N] w = y - 1; }
parameters { real mu; real<lower=0> s; real<lower=0, upper=1> p; }
transformed parameters { real t = mu * scale; vector[N] r = y - mu; }
"""
PRIOR = "mu ~ normal(0, scale); s ~ exponential(1);"


def model(text: str) -> str:
    return f"{HEAD}model {{ {PRIOR} {text}\n}}\n"


@pytest.mark.parametrize(
    ("text", "left_out"),
    [
        ("y ~ normal(mu, s);", ["y ~ normal(mu, s);"]),
        ("w ~ normal(mu, s); // y ~ in a comment", ["w ~ normal(mu, s);"]),
        ("y ~ normal(mu + x * t, s) T[0, ];", ["y ~ normal(mu + x * t, s) T[0, ];"]),
        ("for (n in 1:N) y[n] ~ normal(mu, s);", ["y[n] ~ normal(mu, s);"]),
        ("for (v in y) v ~ normal(mu, s);", ["v ~ normal(mu, s);"]),
        ("target += normal_lpdf(y | mu, s);", ["target += normal_lpdf(y | mu, s);"]),
        (
            "target += normal_lpdf(y | mu, s) - N * normal_lccdf(0 | mu, s);",
            ["target += normal_lpdf(y | mu, s) - N * normal_lccdf(0 | mu, s);"],
        ),
        ("t ~ normal(0, 1); y ~ normal(mu, s);", None),  # a covariate's data in what is modelled
        ("target += log(s); y ~ normal(mu, s);", ["y ~ normal(mu, s);"]),
        (
            "target += normal_lpdf(s | 0, 1) - normal_lccdf(0 | 0, 1); y ~ normal(mu, s);",
            ["y ~ normal(mu, s);"],
        ),
        (
            "for (n in 1:N) { if (g[n] == 0) target += log(p); else g[n] ~ poisson(s); }",
            ["target += log(p);", "g[n] ~ poisson(s);"],
        ),
        (
            "for (n in 1:N) { vector[2] l; l[1] = normal_lpdf(y[n] | mu, 1); target += log_sum_exp(l); }",
            ["target += log_sum_exp(l);"],
        ),
        ("real l = 0; l += normal_lpdf(mu | 0, 1); target += l; y ~ normal(mu, s);", ["y ~ normal(mu, s);"]),
        ("y ~ normal(mu, s); target += own(y[1], mu);", ["y ~ normal(mu, s);", "target += own(y[1], mu);"]),
        ('y ~ normal(mu, s); print("y ~ ", mu);', ["y ~ normal(mu, s);"]),
    ],
)
def test_statements(text: str, left_out: list[str] | None) -> None:
    code = model(text)
    if left_out is None:
        with pytest.raises(ModelError, match="it cannot be told"):
            without_likelihood(code)
        return
    prior = without_likelihood(code)
    assert list(prior.likelihood) == left_out
    expected = code
    for statement in left_out:
        expected = expected.replace(statement, ";")
    assert prior.code == expected


def test_what_is_left_compiles() -> None:
    code = model("for (n in 1:N) if (n > 1) y[n] ~ normal(mu, s); else y[n] ~ normal(0, s);")
    data = {"N": 1, "K": 1, "y": [1.0], "g": [1], "x": [1.0], "scale": 2.0, "z": [0.0]}
    posterior = stanadapt.Posterior(without_likelihood(code).code, data)
    whole = stanadapt.Posterior(code, data)
    first, second = [0.3, -0.2, 0.1], [0.5, 0.2, -0.1]
    prior = [-(x[0] ** 2) / 8 for x in (first, second)]
    assert posterior.dim == whole.dim == 3
    change = posterior.log_density([0.5, *first[1:]]) - posterior.log_density(first)
    assert change == pytest.approx(-(0.25) / 8 - prior[0])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it cannot be told which data are observed: none stands on the left of a ~"),
        ("y ~ normal(mu, s); p ~ beta(1, y[1]);", "a parameter's density depends on observed data"),
        (
            "target += normal_lpdf(y | mu, s) + normal_lpdf(mu | 0, 1);",
            "prior and likelihood are in one statement",
        ),
        ("target += normal_lpdf(y | mu, s) - log(s);", "prior and likelihood are in one statement"),
        ("y - mu ~ normal(0, s);", "whether data or parameters are modelled"),
        ("y ~ normal(mu, s); r ~ normal(0, s);", "whether data or parameters are modelled"),
        ("N ~ poisson(s);", "whether a size is observed"),
        ("y ~ normal(mu, s); 1 ~ bernoulli(p);", "the outcome is a constant"),
        ("y ~ normal(mu, s); target += own(x[1], mu);", "it cannot be told whether x are observed"),
        ("y ~ normal(mu, s); add_lp(mu);", r"whether add_lp\(\) is prior or likelihood"),
        ("y ~ normal(mu, s); if (target() > 0) reject(1);", r"whether target\(\) is prior or likelihood"),
    ],
)
def test_what_cannot_be_told_is_refused(text: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        without_likelihood(model(text))


def test_a_sum_in_a_local_variable_is_refused() -> None:
    text = "real l = normal_lpdf(mu | 0, 1); l += normal_lpdf(y | mu, s); target += l;"
    with pytest.raises(ModelError, match="a parameter's density depends on observed data"):
        without_likelihood(model(text))


def test_observed_data_that_are_named() -> None:
    code = model("y - mu ~ normal(0, s); t ~ normal(0, 1); x ~ normal(mu, 1);")
    prior = without_likelihood(code, ["y"])
    assert prior.likelihood == ("y - mu ~ normal(0, s);",)
    assert prior.observed == {"y"}
    both = without_likelihood(code, ["y", "x"])
    assert both.likelihood == ("y - mu ~ normal(0, s);", "x ~ normal(mu, 1);")
    with pytest.raises(ArgumentError, match=r"observed='yy' is not allowed: .*nearest: y"):
        without_likelihood(code, ["yy"])
    with pytest.raises(ArgumentError, match="at least one name"):
        without_likelihood(code, [])


def test_every_parameter_needs_a_prior() -> None:
    code = HEAD + "model { s ~ exponential(1); y ~ normal(mu, s); }"
    with pytest.raises(ModelError, match="no prior is left for mu without the likelihood"):
        without_likelihood(code)
    assert without_likelihood(code, is_proper=False).likelihood == ("y ~ normal(mu, s);",)


def test_an_empty_model_block() -> None:
    code = term_program(model("y ~ normal(mu, s);"))
    assert "~" not in code
    assert code.rstrip().endswith("model { }") or code.rstrip().endswith("model {}")
