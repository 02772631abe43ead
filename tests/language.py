"""Which features of Stan's language run without a compiler: a small program for each, and the page on them.

    python tests/language.py

writes docs/how/coverage.md from what stanli does with each program here: it opens it, and evaluates the log
density, its gradient and all values that it writes; or it refuses it. A test sees that the page says so.
"""

# ruff: noqa: E501 (a program is one line)
from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stanadapt import Posterior
from stanadapt.errors import EvaluationError
from stanadapt.model.backends.contract import RefusedError

PAGE = Path(__file__).parents[1] / "docs" / "how" / "coverage.md"
_SEEDS = 5  # points at which a program is tried
NORMAL = "parameters { real x; } model { x ~ normal(0, 1); }"


PRIOR = "functions { real prior_lpdf(real x) { return normal_lpdf(x | 0, 1); } }\n"


class Feature(NamedTuple):
    """A feature of the language with a program that uses it, and little else."""

    name: str
    code: str
    data: Mapping[str, Any] | None = None


def _parameter(declaration: str, block: str = "") -> str:
    return f"parameters {{ {declaration} }} model {{ {block} }}"


def _function(body: str, use: str, declaration: str = "real<lower=0> x;") -> str:
    return f"functions {{ {body} }} {_parameter(declaration, use)}"


def _generated(statement: str) -> str:
    return f"{NORMAL} generated quantities {{ {statement} }}"


def _transformed(statement: str, use: str = "x ~ normal(0, 1);") -> str:
    return f"transformed data {{ {statement} }} parameters {{ real x; }} model {{ {use} }}"


def _each(declaration: str, before: str, uses: dict[str, str]) -> list[Feature]:
    """A feature for each function, whose value is added to the log density."""
    return [
        Feature(f"`{name}`", _parameter(declaration, f"{before} target += {use};"))
        for name, use in uses.items()
    ]


_DECAY = "vector decay(real t, vector y, real k) { return -k * y; }"
_DAE = "vector still(real t, vector y, vector dy, real k) { return dy + k * y; }"
_ODE = "array[1] vector[1] y = {solver}(decay, [1.0]', 0.0, {{1.0}}, x); x ~ normal(y[1][1], 1);"
_ODE_TOL = "array[1] vector[1] y = ode_rk45_tol(decay, [1.0]', 0.0, {1.0}, 1e-6, 1e-6, 1000, x); "
_ROOT = "vector root(vector y, real k) { return y .* y - k; }"
_OLD_ROOT = "vector root(vector y, vector k, array[] real r, array[] int i) { return y .* y - k; }"
_MAP = "vector part(vector phi, vector theta, array[] real r, array[] int i) { return [theta[1] * r[1]]'; }"
_SUM = "real part(array[] real y, int first, int last, real x) { return normal_lpdf(y | x, 1); }"
_LAPLACE = "real ll(vector theta, array[] int y, int n) { return poisson_log_lpmf(y | theta); }"
_COVER = "matrix cover(real s, int n) { return add_diag(rep_matrix(0, n, n), s * s); }"

SECTIONS: dict[str, list[Feature]] = {
    "Types of parameters": [
        Feature(
            "`real`, `vector`, `row_vector`, `matrix`",
            _parameter(
                "real a; vector[2] b; row_vector[2] c; matrix[2, 2] d;",
                "a ~ normal(0, 1); b ~ normal(0, 1); c ~ normal(0, 1); to_vector(d) ~ normal(0, 1);",
            ),
        ),
        Feature(
            "`array`",
            _parameter("array[2, 2] vector[2] a;", "for (i in 1:2) for (j in 1:2) a[i, j] ~ normal(0, 1);"),
        ),
        Feature(
            "`lower`, `upper`",
            _parameter(
                "real<lower=0> a; real<upper=1> b; vector<lower=-1, upper=1>[2] c;",
                "a ~ exponential(1); b ~ normal(0, 1);",
            ),
        ),
        Feature(
            "`offset`, `multiplier`", _parameter("vector<offset=1, multiplier=2>[2] a;", "a ~ normal(1, 2);")
        ),
        Feature("`simplex`", _parameter("simplex[3] a;")),
        Feature("`unit_vector`", _parameter("unit_vector[3] a;")),
        Feature("`ordered`", _parameter("ordered[3] a;", "a ~ normal(0, 1);")),
        Feature("`positive_ordered`", _parameter("positive_ordered[3] a;", "a ~ exponential(1);")),
        Feature("`sum_to_zero_vector`", _parameter("sum_to_zero_vector[3] a;", "a ~ normal(0, 1);")),
        Feature(
            "`sum_to_zero_matrix`", _parameter("sum_to_zero_matrix[2, 3] a;", "to_vector(a) ~ normal(0, 1);")
        ),
        Feature("`corr_matrix`", _parameter("corr_matrix[3] a;", "a ~ lkj_corr(2);")),
        Feature("`cov_matrix`", _parameter("cov_matrix[2] a;", "a ~ wishart(4, identity_matrix(2));")),
        Feature(
            "`cholesky_factor_corr`", _parameter("cholesky_factor_corr[3] a;", "a ~ lkj_corr_cholesky(2);")
        ),
        Feature(
            "`cholesky_factor_cov`", _parameter("cholesky_factor_cov[3] a;", "to_vector(a) ~ normal(0, 1);")
        ),
        Feature(
            "`cholesky_factor_cov` of more rows than columns",
            _parameter("cholesky_factor_cov[3, 2] a;", "to_vector(a) ~ normal(0, 1);"),
        ),
        Feature("`column_stochastic_matrix`", _parameter("column_stochastic_matrix[3, 2] a;")),
        Feature("`row_stochastic_matrix`", _parameter("row_stochastic_matrix[2, 3] a;")),
        Feature(
            "arrays of constrained types",
            _parameter(
                "array[2] simplex[3] a; array[2] cov_matrix[2] b;",
                "for (i in 1:2) b[i] ~ wishart(4, identity_matrix(2));",
            ),
        ),
        Feature("`complex`", _parameter("complex z;", "target += -0.5 * norm(z);")),
        Feature(
            "`complex_vector`, `complex_matrix`",
            _parameter("vector[2] x;", "complex_vector[2] z = to_complex(x, x); x ~ normal(get_real(z), 1);"),
        ),
        Feature(
            "`tuple`", _parameter("tuple(real, vector[2]) t;", "t.1 ~ normal(0, 1); t.2 ~ normal(0, 1);")
        ),
    ],
    "Data": [
        Feature(
            "sizes from other data",
            "data { int n; vector[n] y; } parameters { real x; } model { y ~ normal(x, 1); }",
            {"n": 2, "y": [0.0, 1.0]},
        ),
        Feature(
            "constrained data",
            "data { simplex[2] p; cov_matrix[2] s; } parameters { vector[2] x; } model { x ~ multi_normal(p, s); }",
            {"p": [0.4, 0.6], "s": [[1.0, 0.5], [0.5, 1.0]]},
        ),
        Feature(
            "`complex` data",
            "data { complex z; } parameters { real x; } model { x ~ normal(get_real(z), 1); }",
            {"z": [1.0, 2.0]},
        ),
        Feature(
            "`tuple` data",
            "data { tuple(int, real) t; } parameters { real x; } model { x ~ normal(t.2, 1); }",
            {"t": {"1": 1, "2": 2.0}},
        ),
    ],
    "Statements": [
        Feature(
            "`target +=`, `~`, `_lupdf`",
            _parameter("real x;", "target += normal_lupdf(x | 0, 1); x ~ normal(0, 1);"),
        ),
        Feature(
            "`jacobian +=`",
            "parameters { real x; } transformed parameters { real y = exp(x); jacobian += x; } model { y ~ gamma(2, 1); }",
        ),
        Feature(
            "`for`, `while`, `break`, `continue`, `if`",
            _transformed(
                "int n = 0; for (i in 1:9) { if (i == 3) continue; if (i > 5) break; n += i; } while (n > 3) n -= 1;",
                "x ~ normal(n, 1);",
            ),
        ),
        Feature("`for` over elements", _parameter("vector[3] x;", "for (each in x) each ~ normal(0, 1);")),
        Feature(
            "branches on parameters",
            _parameter("real x;", "if (x > 0) x ~ normal(0, 1); else x ~ normal(0, 2);"),
        ),
        Feature(
            "`while` on parameters",
            _parameter("real<lower=0, upper=4> x;", "real y = x; while (y > 1) y -= 1; y ~ normal(0, 1);"),
        ),
        Feature("truncation `T[,]`", _parameter("real<lower=0> x;", "x ~ normal(0, 1) T[0, ];")),
        Feature("`print`", _parameter("real x;", 'if (x > 1e9) print("far: ", x); x ~ normal(0, 1);')),
        Feature("`reject`", _parameter("real x;", 'if (x > 1e9) reject("far: ", x); x ~ normal(0, 1);')),
        Feature(
            "`fatal_error`", _parameter("real x;", 'if (x > 1e9) fatal_error("far: ", x); x ~ normal(0, 1);')
        ),
        Feature("`profile`", _parameter("real x;", 'profile("prior") { x ~ normal(0, 1); }')),
        Feature("`#include`", '#include "prior.stan"\nparameters { real x; } model { x ~ prior(); }'),
        Feature(
            "slices, multiple indexes, ranges",
            _parameter(
                "matrix[3, 3] x;",
                "to_vector(x[{1, 3}, 2:]) ~ normal(0, 1); x[, 1] ~ normal(0, 1); x[2, 2:3] ~ normal(0, 1);",
            ),
        ),
        Feature(
            "unpacking of tuples",
            _parameter(
                "matrix[2, 2] x;",
                "matrix[2, 2] q; matrix[2, 2] r; (q, r) = qr_thin(x); to_vector(x) ~ normal(0, 1);",
            ),
        ),
        Feature(
            "`lower_bound_constrain` and the other transforms as functions",
            "parameters { real z; } transformed parameters { real x = lower_bound_constrain(z, 0); } model { x ~ exponential(1); }",
        ),
    ],
    "Functions of users": [
        Feature(
            "functions, overloading",
            _function(
                "real f(real x) { return x; } real f(real x, real y) { return x + y; }",
                "x ~ normal(f(x) + f(x, x), 9);",
            ),
        ),
        Feature(
            "recursion",
            _function(
                "real f(int n, real x); real f(int n, real x) { return n == 0 ? 0 : x + f(n - 1, x); }",
                "f(3, x) ~ normal(0, 1);",
            ),
        ),
        Feature(
            "`_lpdf`, `_lp`, `_rng`",
            _function(
                "real own_lpdf(real x, real m) { return normal_lpdf(x | m, 1); } void more_lp(real x) { x ~ normal(0, 2); }",
                "x ~ own(1); more_lp(x);",
            ),
        ),
        Feature(
            "functions of tuples",
            _function("tuple(real, real) f(real x) { return (x, 2 * x); }", "f(x).2 ~ normal(0, 1);"),
        ),
    ],
    "Solvers and parallel functions": [
        *[
            Feature(f"`{solver}`", _function(_DECAY, _ODE.format(solver=solver)))
            for solver in ("ode_rk45", "ode_ckrk", "ode_bdf", "ode_adams")
        ],
        Feature("`ode_rk45_tol`", _function(_DECAY, _ODE_TOL + "x ~ normal(y[1][1], 1);")),
        Feature(
            "`ode_adjoint_tol_ctl`",
            _function(
                _DECAY,
                "array[1] vector[1] y = ode_adjoint_tol_ctl(decay, [1.0]', 0.0, {1.0}, 1e-6, [1e-6]', 1e-6, [1e-6]', 1e-6, 1e-6, 1000, 100, 1, 1, 1, x); x ~ normal(y[1][1], 1);",
            ),
        ),
        Feature(
            "`integrate_ode_rk45` (old)",
            _function(
                "array[] real decay(real t, array[] real y, array[] real k, array[] real r, array[] int i) { return {-k[1] * y[1]}; }",
                "array[1, 1] real y = integrate_ode_rk45(decay, {1.0}, 0.0, {1.0}, {x}, {0.0}, {0}); x ~ normal(y[1, 1], 1);",
            ),
        ),
        Feature(
            "`dae`",
            _function(
                _DAE,
                "array[1] vector[1] y = dae(still, [1.0]', [-x]', 0.0, {1.0}, x); x ~ normal(y[1][1], 1);",
            ),
        ),
        Feature(
            "`solve_newton`",
            _function(_ROOT, "vector[1] y = solve_newton(root, [1.0]', x); x ~ normal(y[1], 1);"),
        ),
        Feature(
            "`solve_powell`",
            _function(_ROOT, "vector[1] y = solve_powell(root, [1.0]', x); x ~ normal(y[1], 1);"),
        ),
        Feature(
            "`algebra_solver` (old)",
            _function(
                _OLD_ROOT,
                "vector[1] y = algebra_solver(root, [1.0]', [x]', {0.0}, {0}); x ~ normal(y[1], 1);",
            ),
        ),
        Feature(
            "`integrate_1d`",
            _function(
                "real f(real t, real tc, array[] real k, data array[] real r, data array[] int i) { return exp(-k[1] * t * t); }",
                "real y = integrate_1d(f, 0, 1, {x}, {0.0}, {0}, 1e-8); x ~ normal(y, 1);",
            ),
        ),
        Feature(
            "`reduce_sum`", _function(_SUM, "target += reduce_sum(part, {0.1, 0.2}, 1, x); x ~ normal(0, 1);")
        ),
        Feature(
            "`map_rect`",
            f"functions {{ {_MAP} }} transformed data {{ array[2, 1] real r = {{{{1.0}}, {{2.0}}}}; array[2, 0] int i; }} parameters {{ array[2] vector[1] x; }} model {{ map_rect(part, [0.0]', x, r, i) ~ normal(0, 1); x[1] ~ normal(0, 1); x[2] ~ normal(0, 1); }}",
        ),
        Feature(
            "`laplace_marginal`",
            f"functions {{ {_LAPLACE} {_COVER} }} data {{ array[2] int y; }} parameters {{ real<lower=0> s; }} model {{ target += laplace_marginal(ll, (y, 2), 1, cover, (s, 2)); s ~ normal(0, 1); }}",
            {"y": [1, 2]},
        ),
        Feature(
            "`hmm_marginal`",
            _parameter(
                "simplex[2] p;", "target += hmm_marginal(rep_matrix(-1.0, 2, 3), rep_matrix(0.5, 2, 2), p);"
            ),
        ),
    ],
    "Functions of matrices": [
        *_each(
            "matrix[2, 2] m;",
            "to_vector(m) ~ normal(0, 1);",
            {
                "singular_values": "sum(singular_values(m))",
                "svd_U": "svd_U(m)[1, 1]",
                "svd_V": "svd_V(m)[1, 1]",
                "qr_thin_Q": "qr_thin_Q(m)[1, 1]",
                "qr_thin_R": "qr_thin_R(m)[1, 1]",
                "qr_Q": "qr_Q(m)[1, 1]",
                "matrix_exp": "sum(matrix_exp(m))",
                "matrix_power": "sum(matrix_power(m, 2))",
                "determinant": "determinant(m)",
                "trace": "trace(m)",
                "log_determinant": "log_determinant(m)",
                "inverse": "sum(inverse(m + 3 * identity_matrix(2)))",
                "generalized_inverse": "sum(generalized_inverse(m))",
                "mdivide_left": "sum(mdivide_left(m + 3 * identity_matrix(2), [1.0, 2.0]'))",
                "quad_form": "quad_form(m, [1.0, 2.0]')",
                "crossprod": "sum(crossprod(m))",
                "multiply_lower_tri_self_transpose": "sum(multiply_lower_tri_self_transpose(m))",
                "append_row": "sum(append_row(m, m))",
                "diag_pre_multiply": "sum(diag_pre_multiply([1.0, 2.0]', m))",
                "matrix_exp_multiply": "sum(matrix_exp_multiply(m, m))",
                "trace_quad_form": "trace_quad_form(m, m)",
                "csr_matrix_times_vector": "sum(csr_matrix_times_vector(2, 2, [1.0, 2.0]', {1, 2}, {1, 2, 3}, m[, 1]))",
                "eigenvalues": "get_real(eigenvalues(m)[1])",
                "norm2": "norm2(m[, 1])",
            },
        ),
        *_each(
            "real<lower=0, upper=0.9> r;",
            "matrix[2, 2] m = [[1, r], [r, 1]];",
            {
                "cholesky_decompose": "sum(cholesky_decompose(m))",
                "mdivide_left_tri_low": "sum(mdivide_left_tri_low(cholesky_decompose(m), [1.0, 2.0]'))",
                "mdivide_left_spd": "sum(mdivide_left_spd(m, [1.0, 2.0]'))",
                "inverse_spd": "sum(inverse_spd(m))",
                "log_determinant_spd": "log_determinant_spd(m)",
                "chol2inv": "sum(chol2inv(cholesky_decompose(m)))",
                "eigenvalues_sym": "eigenvalues_sym(m)[1]",
                "eigenvectors_sym": "eigenvectors_sym(m)[1, 1]",
            },
        ),
        *_each(
            "real<lower=0.1> x;",
            "array[2] real t = {0.1, 0.5}; x ~ exponential(1);",
            {
                f"gp_{kind}_cov": f"sum(gp_{kind}_cov(t, 1.0, x))"
                for kind in ("exp_quad", "exponential", "matern32", "matern52")
            }
            | {
                "gp_dot_prod_cov": "sum(gp_dot_prod_cov(t, x))",
                "gp_periodic_cov": "sum(gp_periodic_cov(t, 1.0, x, 2.0))",
            },
        ),
    ],
    "Functions of vectors and numbers": [
        *_each(
            "vector[3] v;",
            "v ~ normal(0, 1);",
            {
                "cumulative_sum": "sum(cumulative_sum(v))",
                "sort_asc": "sort_asc(v)[1]",
                "rank": "rank(v, 1)",
                "log_softmax": "log_softmax(v)[1]",
                "log_sum_exp": "log_sum_exp(v)",
                "reverse": "reverse(v)[1]",
                "quantile": "quantile(to_array_1d([0.1, 0.2]), 0.5)",
                "distance": "distance(v, 2 * v)",
                "fft": "get_real(fft(to_complex(v, v))[1])",
                "linspaced_vector": "dot_product(linspaced_vector(3, 0, 1), v)",
                "one_hot_vector": "dot_product(one_hot_vector(3, 1), v)",
            },
        ),
        *_each(
            "real<lower=0.1, upper=0.5> x;",
            "",
            {
                "lgamma": "lgamma(x)",
                "digamma": "digamma(x)",
                "lmgamma": "lmgamma(2, 1 + x)",
                "lbeta": "lbeta(x, 1)",
                "inc_beta": "inc_beta(1.0, 2.0, x)",
                "gamma_p": "gamma_p(1.0, x)",
                "Phi": "Phi(x)",
                "inv_Phi": "inv_Phi(x)",
                "owens_t": "owens_t(x, 1)",
                "lambert_w0": "lambert_w0(x)",
                "erfc": "erfc(x)",
                "bessel_first_kind": "bessel_first_kind(1, x)",
                "modified_bessel_second_kind": "modified_bessel_second_kind(1, x)",
                "log_modified_bessel_first_kind": "log_modified_bessel_first_kind(1.0, x)",
                "hypergeometric_pFq": "hypergeometric_pFq([1.0]', [2.0]', x)",
                "hypergeometric_2F1": "hypergeometric_2F1(1.0, 2.0, 3.0, x)",
                "log_mix": "log_mix(x, 1.0, 2.0)",
                "fma": "fma(x, 1.0, 2.0)",
                "fmod": "fmod(x, 1.0)",
                "ldexp": "ldexp(x, 2)",
                "falling_factorial": "falling_factorial(x, 2)",
                "inv_inc_beta": "inv_inc_beta(1.0, 2.0, x)",
            },
        ),
        *[
            Feature(f"`{name}`", _transformed(f"real y = {use};", "x ~ normal(y, 1);"))
            for name, use in {
                "%": "7 % 2",
                "%/%": "7 %/% 2",
                "modulus": "modulus(7, 2)",
                "choose": "choose(5, 2)",
                "to_int": "to_int(2.0)",
                "size": "size({1, 2})",
                "num_elements": "num_elements([1, 2])",
            }.items()
        ],
    ],
    "Distributions": [
        *_each(
            "real<lower=0.1, upper=0.9> x;",
            "",
            {
                name: f"{name}_lpdf(x | {given})"
                for name, given in {
                    "normal": "0, 1",
                    "student_t": "3, 0, 1",
                    "cauchy": "0, 1",
                    "double_exponential": "0, 1",
                    "logistic": "0, 1",
                    "gumbel": "0, 1",
                    "skew_normal": "0, 1, 2",
                    "skew_double_exponential": "0, 1, 0.3",
                    "exp_mod_normal": "0, 1, 1",
                    "lognormal": "0, 1",
                    "chi_square": "2",
                    "inv_chi_square": "2",
                    "scaled_inv_chi_square": "2, 1",
                    "exponential": "1",
                    "gamma": "2, 1",
                    "inv_gamma": "2, 1",
                    "weibull": "1, 2",
                    "frechet": "1, 1",
                    "rayleigh": "1",
                    "loglogistic": "1, 2",
                    "pareto": "0.05, 1",
                    "pareto_type_2": "0, 1, 1",
                    "wiener": "1, 0.05, 0.5, 0.1",
                    "beta": "2, 2",
                    "beta_proportion": "0.5, 2",
                    "von_mises": "0, 1",
                    "uniform": "0, 1",
                }.items()
            },
        ),
        *_each(
            "real<lower=0.1, upper=0.9> x;",
            "",
            {
                name: f"{name}_lpmf({given})"
                for name, given in {
                    "bernoulli": "1 | x",
                    "bernoulli_logit": "1 | x",
                    "binomial": "2 | 5, x",
                    "binomial_logit": "2 | 5, x",
                    "beta_binomial": "2 | 5, x, 1",
                    "hypergeometric": "2 | 3, 4, 5",
                    "categorical": "1 | [x, 1 - x]'",
                    "categorical_logit": "1 | [x, 1]'",
                    "ordered_logistic": "2 | x, [0.0, 1.0]'",
                    "ordered_probit": "2 | x, [0.0, 1.0]'",
                    "discrete_range": "2 | 1, 3",
                    "neg_binomial": "3 | x, 1",
                    "neg_binomial_2": "3 | x, 1",
                    "neg_binomial_2_log": "3 | x, 1",
                    "poisson": "3 | x",
                    "poisson_log": "3 | x",
                    "beta_neg_binomial": "3 | 2, x, 1",
                    "multinomial": "{1, 2} | [x, 1 - x]'",
                    "multinomial_logit": "{1, 2} | [x, 1]'",
                    "dirichlet_multinomial": "{1, 2} | [x, 1]'",
                }.items()
            },
        ),
        *_each(
            "vector[2] v; simplex[2] p;",
            "matrix[2, 2] e = identity_matrix(2); v ~ normal(0, 1);",
            {
                name: f"{name}_lpdf({given})"
                for name, given in {
                    "multi_normal": "v | v, e",
                    "multi_normal_prec": "v | v, e",
                    "multi_normal_cholesky": "v | v, e",
                    "multi_student_t": "v | 3, v, e",
                    "multi_student_t_cholesky": "v | 3, v, e",
                    "multi_gp": "[v'] | e, [1.0]'",
                    "multi_gp_cholesky": "[v'] | e, [1.0]'",
                    "dirichlet": "p | [1.0, 2.0]'",
                    "gaussian_dlm_obs": "[v'] | [[1.0]], [[1.0]], [1.0]', [[1.0]], [0.0]', [[1.0]]",
                }.items()
            },
        ),
        *_each(
            "cov_matrix[2] s; corr_matrix[2] c;",
            "matrix[2, 2] e = identity_matrix(2); s ~ wishart(4, e);",
            {
                name: f"{name}_lpdf({given})"
                for name, given in {
                    "wishart": "s | 4, e",
                    "inv_wishart": "s | 4, e",
                    "wishart_cholesky": "cholesky_decompose(s) | 4, e",
                    "inv_wishart_cholesky": "cholesky_decompose(s) | 4, e",
                    "lkj_corr": "c | 2",
                    "lkj_corr_cholesky": "cholesky_decompose(c) | 2",
                }.items()
            },
        ),
        *[
            Feature(
                f"`{name}`",
                "data { matrix[2, 1] z; array[2] int y; } parameters { real a; vector[1] b; vector[2] k; } model { "
                f"a ~ normal(0, 1); b ~ normal(0, 1); k ~ normal(0, 1); target += {name}{given}; }}",
                {"z": [[1.0], [2.0]], "y": [1, 2 if "ordered" in name or "categorical" in name else 0]},
            )
            for name, given in {
                "normal_id_glm": "_lpdf(k | z, a, b, 1.0)",
                "poisson_log_glm": "_lpmf(y | z, a, b)",
                "bernoulli_logit_glm": "_lpmf(y | z, a, b)",
                "binomial_logit_glm": "_lpmf(y | y, z, a, b)",
                "neg_binomial_2_log_glm": "_lpmf(y | z, a, b, 1.0)",
                "categorical_logit_glm": "_lpmf(y | z, k, [[b[1], 0]])",
                "ordered_logistic_glm": "_lpmf(y | z, b, [0.0, 1.0]')",
            }.items()
        ],
        *[
            Feature(
                f"`{name}`", _parameter("real<lower=0.1, upper=0.9> x;", f"target += {name}(x | {given});")
            )
            for name, given in {
                "normal_lcdf": "0, 1",
                "normal_lccdf": "0, 1",
                "student_t_lcdf": "3, 0, 1",
                "gamma_lcdf": "2, 1",
                "beta_lccdf": "2, 2",
                "weibull_lccdf": "2, 1",
                "exponential_lccdf": "1",
                "lognormal_lccdf": "0, 1",
                "cauchy_lcdf": "0, 1",
                "logistic_cdf": "0, 1",
            }.items()
        ],
        Feature(
            "`poisson_lcdf`",
            _parameter("real<lower=0> x;", "x ~ normal(0, 1); target += poisson_lcdf(3 | x);"),
        ),
    ],
    "Generated quantities": [
        *[
            Feature(f"`{name}_rng`", _generated(f"{kind} y = {name}_rng({given});"))
            for name, (kind, given) in {
                "normal": ("real", "x, 1"),
                "gamma": ("real", "2, 1"),
                "student_t": ("real", "3, 0, 1"),
                "von_mises": ("real", "0, 1"),
                "skew_normal": ("real", "0, 1, 1"),
                "pareto_type_2": ("real", "0, 1, 1"),
                "poisson": ("int", "3"),
                "binomial": ("int", "5, 0.5"),
                "beta_binomial": ("int", "5, 1, 1"),
                "neg_binomial_2": ("int", "1, 1"),
                "categorical": ("int", "[0.5, 0.5]'"),
                "ordered_logistic": ("int", "0, [0.0, 1.0]'"),
                "hypergeometric": ("int", "2, 3, 4"),
                "multinomial": ("array[2] int", "[0.5, 0.5]', 3"),
                "dirichlet": ("vector[2]", "[1.0, 2.0]'"),
                "multi_normal": ("vector[2]", "[0.0, 0.0]', identity_matrix(2)"),
                "multi_normal_cholesky": ("vector[2]", "[0.0, 0.0]', identity_matrix(2)"),
                "multi_student_t": ("vector[2]", "3, [0.0, 0.0]', identity_matrix(2)"),
                "lkj_corr": ("matrix[2, 2]", "2, 1"),
                "lkj_corr_cholesky": ("matrix[2, 2]", "2, 1"),
                "wishart": ("matrix[2, 2]", "3, identity_matrix(2)"),
                "inv_wishart": ("matrix[2, 2]", "3, identity_matrix(2)"),
            }.items()
        ],
        Feature(
            "random numbers of users' functions",
            "functions { real own_rng(real x) { return normal_rng(x, 1); } } "
            + _generated("real y = own_rng(x);"),
        ),
        Feature(
            "`complex` and `tuple` generated quantities",
            _generated("complex z = to_complex(x, 1); tuple(real, int) t = (x, 1);"),
        ),
        Feature(
            "integers, and sizes from data",
            "data { int n; } " + _generated("array[n] int y; for (i in 1:n) y[i] = i;"),
            {"n": 3},
        ),
    ],
}


def refusal(feature: Feature) -> str:
    """What stanli says in refusing the program of a feature, or to evaluate it; nothing where it runs, at every
    point tried.
    """
    with tempfile.TemporaryDirectory() as name:
        program = Path(name) / "program.stan"
        program.write_text(feature.code, "utf-8")
        (program.parent / "prior.stan").write_text(PRIOR, "utf-8")
        try:
            posterior = Posterior(program, feature.data, backend="stanli")
        except RefusedError as error:
            return str(error)
    for seed in range(_SEEDS):
        x = np.random.default_rng(seed).uniform(-1.0, 1.0, posterior.dim)
        try:
            value, score = posterior.log_density_gradient(x)
        except EvaluationError as error:
            return str(error)
        values = posterior.constrain(x, transformed=True, generated=True).values()
        assert np.isfinite(value), feature.name
        assert np.isfinite(score).all(), feature.name
        assert all(np.isfinite(each).all() for each in values), feature.name
    return ""


def page() -> str:
    """The page on what runs and what does not."""
    lines = [_HEAD]
    for title, features in SECTIONS.items():
        reasons = {feature.name: refusal(feature) for feature in features}
        lines += [
            f"## {title}",
            "",
            "Run: " + ", ".join(name for name, why in reasons.items() if not why) + ".",
        ]
        refused = [f"{name}{_advice(why)}" for name, why in reasons.items() if why]
        lines += ["", "Do not run: " + ", ".join(refused) + "."] if refused else []
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _advice(reason: str) -> str:
    """What a refusal says of what is covered instead."""
    found = re.search(r"\([^()]*(is covered|are covered|does the same)\)$", reason)
    return f" {found[0]}" if found else ""


_HEAD = """# What of Stan's language runs without a compiler

stanli runs Stan programs without a C++ compiler. What it does not cover it refuses, in a sentence with the
line and, where there is one, another way to say the same; with BridgeStan's sources at hand the program is
compiled instead. This page is made by `python tests/language.py`, which opens a small program for every
feature named here and evaluates its log density, gradient and values at some points; a program that opens and
cannot be evaluated does not run, as `multi_gp` of data with fewer rows than columns. A test sees that the
page is what it makes. A feature that is not named has not been tried.
"""


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
