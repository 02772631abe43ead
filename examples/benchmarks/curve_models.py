"""Regressions on curves that are not linear in their parameters, with simulated data, for tails.py.

Thirty observations say little of an asymptote or of an exponent, so that their posteriors are bent.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from tail_models import TailModel

NOISE = 0.45


def curve(declared: str, priors: str, mean: str, likelihood: str = "normal") -> str:
    """A program in which `mean` is the curve at x."""
    return f"""
data {{ int N; vector[N] x; vector[N] y; }}
parameters {{ {declared} real<lower=0> sigma; }}
model {{
  {priors} sigma ~ normal(0, 2);
  y ~ {likelihood}({mean}, sigma);
}}
"""


def around(curve_at: Any, number: int) -> dict[str, Any]:
    """Data around a curve, with additive noise."""
    x = np.linspace(0.2, 5.0, number)
    return {"N": number, "x": x, "y": curve_at(x) + NOISE * np.random.default_rng(1).normal(size=number)}


def concentrations(number: int) -> dict[str, Any]:
    """A drug that is absorbed and eliminated, with multiplicative noise."""
    x = np.linspace(0.2, 5.0, number)
    noise = np.exp(0.2 * np.random.default_rng(1).normal(size=number))
    return {"N": number, "x": x, "y": 3.0 * np.exp(-0.4 * x) * -np.expm1(-1.5 * x) * noise}


def regression(declared: str, priors: str, mean: str, curve_at: Any) -> TailModel:
    return TailModel(curve(declared, priors, mean), functools.partial(around, curve_at), 30, ("sigma",))


CURVES = {
    "decay": regression(
        "real a; real<lower=0> b; real<lower=0> k;",
        "a ~ normal(0, 5); b ~ normal(0, 10); k ~ normal(0, 2);",
        "a + b * exp(-k * x)",
        lambda x: 1.0 + 4.0 * np.exp(-0.7 * x),
    ),
    "saturation": regression(
        "real<lower=0> top; real<lower=0> half;",
        "top ~ normal(0, 20); half ~ normal(0, 10);",
        "top * x ./ (half + x)",
        lambda x: 8.0 * x / (3.0 + x),
    ),
    "logistic_growth": regression(
        "real<lower=0> top; real<lower=0> rate; real middle;",
        "top ~ normal(0, 20); rate ~ normal(0, 3); middle ~ normal(0, 5);",
        "top * inv_logit(rate * (x - middle))",
        lambda x: 9.0 / (1.0 + np.exp(-1.1 * (x - 3.5))),
    ),
    "gompertz": regression(
        "real<lower=0> top; real b; real<lower=0> c;",
        "top ~ normal(0, 20); b ~ normal(0, 3); c ~ normal(0, 2);",
        "top * exp(-exp(b - c * x))",
        lambda x: 9.0 * np.exp(-np.exp(2.0 - 0.8 * x)),
    ),
    "power": regression(
        "real a; real<lower=0> b; real c;",
        "a ~ normal(0, 5); b ~ normal(0, 5); c ~ normal(1, 1);",
        "a + b * pow(x, c)",
        lambda x: 1.0 + 2.0 * x**0.6,
    ),
    "hill": regression(
        "real start; real<lower=0> rise; real<lower=0> half; real<lower=0> h;",
        "start ~ normal(0, 5); rise ~ normal(0, 20); half ~ lognormal(0.5, 1); h ~ lognormal(0, 0.7);",
        "start + rise * inv_logit(h * (log(x) - log(half)))",
        lambda x: 1.0 + 8.0 * x**2 / (4.0 + x**2),
    ),
    "absorption": TailModel(
        curve(
            "real<lower=0> ka; real<lower=0> ke; real<lower=0> V;",
            "ka ~ lognormal(0, 1); ke ~ lognormal(-1, 1); V ~ lognormal(1, 1);",
            "log(10 / V) - ke * x + log1m_exp(-ka * x)",
            likelihood="lognormal",
        ),
        concentrations,
        30,
        ("sigma",),
    ),
}
