"""Regressions whose weights have scales that are functions of parameters, and the same with these integrated
out: programs and data.
"""

from __future__ import annotations

from typing import Any

import numpy as np

HORSESHOE = (
    "vector<lower=0>[K] lam; real<lower=0> tau; real<lower=0> c2;",
    (
        "vector[K] s = tau * sqrt(c2 * square(lam) ./ (c2 + square(tau * lam)));"
        " lam ~ student_t(1, 0, 1); tau ~ student_t(1, 0, 0.3); c2 ~ inv_gamma(2, 8);"
    ),
)
SHARES = (
    "simplex[K] phi; real<lower=0, upper=1> R2;",
    (
        "vector[K] s = sqrt(phi * square(sigma) * R2 / (1 - R2));"
        " phi ~ dirichlet(rep_vector(1, K)); R2 ~ beta(1, 2);"
    ),
)
PROCESS = (
    "real<lower=0> alpha; real<lower=0> rho;",
    (
        "vector[K] s; for (k in 1:K) s[k] = alpha * sqrt(rho) * exp(-0.25 * square(rho * k));"
        " alpha ~ std_normal(); rho ~ inv_gamma(5, 5);"
    ),
)
LOCAL = (
    "vector<lower=0>[K] lam; real<lower=0> tau;",
    "vector[K] s = tau * lam; lam ~ student_t(1, 0, 1); tau ~ student_t(1, 0, 0.3);",
)
BY_ERROR = LOCAL[0], LOCAL[1].replace("tau * lam", "sigma * tau * lam")
FORMS = {
    "horseshoe": HORSESHOE,
    "shares": SHARES,
    "process": PROCESS,
    "local": LOCAL,
    "by error": BY_ERROR,
}

_DATA = "data { int N; int K; matrix[N, K] X; vector[N] y; }"


def program_of(form: str, likelihood: str = "normal", *, centred: bool = False) -> str:
    """The program with standard normal z, and weights s z; or with weights z that have the scales s."""
    if centred:
        program = program_of(form, likelihood).replace("z ~ std_normal()", "z ~ normal(0, s)")
        return program.replace("(s .* z)", "z")
    parameters, model = FORMS[form]
    data, sigma, y = _DATA, "real<lower=0> sigma;", "y ~ normal(a + X * (s .* z), sigma);"
    if likelihood == "poisson":
        data, sigma, y = (
            _DATA.replace("vector[N] y", "array[N] int y"),
            "",
            "y ~ poisson_log(a + X * (s .* z));",
        )
    prior = "sigma ~ normal(0, 2);" if sigma else ""
    return f"""
{data}
parameters {{ real a; vector[K] z; {parameters} {sigma} }}
model {{ {model} {prior} a ~ normal(0, 3); z ~ std_normal(); {y} }}
"""


def integrated(form: str) -> str:
    """The program for heads and sigma alone, where data are normal."""
    parameters, model = FORMS[form]
    return f"""
{_DATA}
transformed data {{ matrix[N, K + 1] all = append_col(rep_vector(1, N), X); }}
parameters {{ {parameters} real<lower=0> sigma; }}
model {{
  {model} sigma ~ normal(0, 2);
  vector[K + 1] precision = append_row(1.0 / 9, 1 / square(s));
  matrix[K + 1, K + 1] L = cholesky_decompose(add_diag(crossprod(all) / square(sigma), precision));
  vector[K + 1] m = mdivide_left_tri_low(L, all' * y / square(sigma));
  target += -N * log(sigma) - 0.5 * dot_self(y) / square(sigma) + 0.5 * dot_self(m);
  target += -sum(log(s)) - sum(log(diagonal(L)));
}}
"""


def data_of(form: str, n: int = 40, k: int = 6) -> dict[str, Any]:
    """Columns that are not independent, and weights of which few are large; or waves."""
    rng = np.random.default_rng(11)
    if form == "process":
        at = np.sort(rng.uniform(0.0, 1.0, n))
        X = np.sqrt(2.0) * np.sin(np.pi * np.outer(at + 0.2, np.arange(1, k + 1)) / 1.4)
        weights = np.exp(-0.25 * np.square(0.6 * np.arange(1, k + 1))) * rng.normal(size=k)
    else:
        X = rng.normal(size=(n, k)) + 0.7 * rng.normal(size=(n, 1))
        weights = np.where(np.arange(k) < 2, [1.5, -0.8] + [0.0] * (k - 2), 0.05)
    return {"N": n, "K": k, "X": X, "y": 0.5 + X @ weights + 0.7 * rng.normal(size=n)}
