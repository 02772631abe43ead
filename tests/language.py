"""Which features of Stan's language run without a C++ compiler: a small program for each, and the page on them.

    python tests/language.py

writes docs/how/coverage.md from what stanli does with each program here: it opens it, and evaluates the log
density, its gradient and all values that it writes; or it refuses it. A test sees that the page says so.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stanadapt import Posterior
from stanadapt.errors import StanAdaptError

PAGE = Path(__file__).parents[1] / "docs" / "how" / "coverage.md"
_SEEDS = 5  # points at which a program is tried
NORMAL = "parameters { real x; } model { x ~ normal(0, 1); }"


class Feature(NamedTuple):
    """A feature of the language with a program that uses it, and little else."""

    name: str
    code: str
    data: dict[str, Any] = {}


def _parameter(declaration: str, block: str = "") -> str:
    return f"parameters {{ {declaration} }} model {{ {block} }}"


def _function(body: str, use: str, declaration: str = "real<lower=0> x;") -> str:
    return f"functions {{ {body} }} {_parameter(declaration, use)}"


def _generated(statement: str) -> str:
    return f"{NORMAL} generated quantities {{ {statement} }}"


def _transformed(statement: str, use: str = "x ~ normal(0, 1);") -> str:
    return f"transformed data {{ {statement} }} parameters {{ real x; }} model {{ {use} }}"


_DECAY = "vector decay(real t, vector y, real k) { return -k * y; }"
_DAE = "vector still(real t, vector y, vector dy, real k) { return dy + k * y; }"
_ODE = "array[1] vector[1] y = {solver}(decay, [1.0]', 0.0, {{1.0}}, x); x ~ normal(y[1][1], 1);"
_ODE_TOL = "array[1] vector[1] y = ode_rk45_tol(decay, [1.0]', 0.0, {1.0}, 1e-6, 1e-6, 1000, x); "
_ROOT = "vector root(vector y, real k) { return y .* y - k; }"
_OLD_ROOT = "vector root(vector y, vector k, array[] real r, array[] int i) { return y .* y - k; }"
_MAP = "vector part(vector phi, vector theta, array[] real r, array[] int i) { return [theta[1] * r[1]]'; }"
_SUM = "real part(array[] real y, int first, int last, real x) { return normal_lpdf(y | x, 1); }"
_LAPLACE = "real ll(vector theta, array[] int y) { return poisson_log_lpmf(y | theta); }"
_COVER = "matrix cover(real s, int n) { return add_diag(rep_matrix(0, n, n), s * s); }"

SECTIONS: dict[str, list[Feature]] = {
    "Types of parameters": [
        Feature("`real`, `vector`, `row_vector`, `matrix`", _parameter(
            "real a; vector[2] b; row_vector[2] c; matrix[2, 2] d;",
            "a ~ normal(0, 1); b ~ normal(0, 1); c ~ normal(0, 1); to_vector(d) ~ normal(0, 1);")),
        Feature("`array`", _parameter("array[2, 2] vector[2] a;", "for (i in 1:2) for (j in 1:2) a[i, j] ~ normal(0, 1);")),
        Feature("`lower`, `upper`", _parameter("real<lower=0> a; real<upper=1> b; vector<lower=-1, upper=1>[2] c;", "a ~ exponential(1); b ~ normal(0, 1);")),
        Feature("`offset`, `multiplier`", _parameter("vector<offset=1, multiplier=2>[2] a;", "a ~ normal(1, 2);")),
        Feature("`simplex`", _parameter("simplex[3] a;")),
        Feature("`unit_vector`", _parameter("unit_vector[3] a;")),
        Feature("`ordered`", _parameter("ordered[3] a;", "a ~ normal(0, 1);")),
        Feature("`positive_ordered`", _parameter("positive_ordered[3] a;", "a ~ exponential(1);")),
        Feature("`sum_to_zero_vector`", _parameter("sum_to_zero_vector[3] a;", "a ~ normal(0, 1);")),
        Feature("`sum_to_zero_matrix`", _parameter("sum_to_zero_matrix[2, 3] a;", "to_vector(a) ~ normal(0, 1);")),
        Feature("`corr_matrix`", _parameter("corr_matrix[3] a;", "a ~ lkj_corr(2);")),
        Feature("`cov_matrix`", _parameter("cov_matrix[2] a;", "a ~ wishart(4, identity_matrix(2));")),
        Feature("`cholesky_factor_corr`", _parameter("cholesky_factor_corr[3] a;", "a ~ lkj_corr_cholesky(2);")),
        Feature("`cholesky_factor_cov`", _parameter("cholesky_factor_cov[3] a;", "to_vector(a) ~ normal(0, 1);")),
        Feature("`cholesky_factor_cov` of more rows than columns", _parameter("cholesky_factor_cov[3, 2] a;", "to_vector(a) ~ normal(0, 1);")),
        Feature("`column_stochastic_matrix`", _parameter("column_stochastic_matrix[3, 2] a;")),
        Feature("`row_stochastic_matrix`", _parameter("row_stochastic_matrix[2, 3] a;")),
        Feature("arrays of constrained types", _parameter("array[2] simplex[3] a; array[2] cov_matrix[2] b;", "for (i in 1:2) b[i] ~ wishart(4, identity_matrix(2));")),
        Feature("`complex`", _parameter("complex z;", "target += -0.5 * norm(z);")),
        Feature("`complex_vector`, `complex_matrix`", _parameter("vector[2] x;", "complex_vector[2] z = to_complex(x, x); x ~ normal(get_real(z), 1);")),
        Feature("`tuple`", _parameter("tuple(real, vector[2]) t;", "t.1 ~ normal(0, 1); t.2 ~ normal(0, 1);")),
    ],
    "Data": [
        Feature("sizes from other data", "data { int n; vector[n] y; } parameters { real x; } model { y ~ normal(x, 1); }", {"n": 2, "y": [0.0, 1.0]}),
        Feature("constrained data", "data { simplex[2] p; cov_matrix[2] s; } parameters { vector[2] x; } model { x ~ multi_normal(p, s); }", {"p": [0.4, 0.6], "s": [[1.0, 0.5], [0.5, 1.0]]}),
        Feature("`complex` data", "data { complex z; } parameters { real x; } model { x ~ normal(get_real(z), 1); }", {"z": [1.0, 2.0]}),
        Feature("`tuple` data", "data { tuple(int, real) t; } parameters { real x; } model { x ~ normal(t.2, 1); }", {"t": {"1": 1, "2": 2.0}}),
    ],
    "Statements": [
        Feature("`target +=`, `~`, `_lupdf`", _parameter("real x;", "target += normal_lupdf(x | 0, 1); x ~ normal(0, 1);")),
        Feature("`jacobian +=`", "parameters { real x; } transformed parameters { real y = exp(x); jacobian += x; } model { y ~ gamma(2, 1); }"),
        Feature("`for`, `while`, `break`, `continue`, `if`", _transformed("int n = 0; for (i in 1:9) { if (i == 3) continue; if (i > 5) break; n += i; } while (n > 3) n -= 1;", "x ~ normal(n, 1);")),
        Feature("`for` over elements", _parameter("vector[3] x;", "for (each in x) each ~ normal(0, 1);")),
        Feature("branches on parameters", _parameter("real x;", "if (x > 0) x ~ normal(0, 1); else x ~ normal(0, 2);")),
        Feature("`while` on parameters", _parameter("real<lower=0, upper=4> x;", "real y = x; while (y > 1) y -= 1; y ~ normal(0, 1);")),
        Feature("truncation `T[,]`", _parameter("real<lower=0> x;", "x ~ normal(0, 1) T[0, ];")),
        Feature("`print`", _parameter("real x;", 'if (x > 1e9) print("far: ", x); x ~ normal(0, 1);')),
        Feature("`reject`", _parameter("real x;", 'if (x > 1e9) reject("far: ", x); x ~ normal(0, 1);')),
        Feature("`fatal_error`", _parameter("real x;", 'if (x > 1e9) fatal_error("far: ", x); x ~ normal(0, 1);')),
        Feature("`profile`", _parameter("real x;", 'profile("prior") { x ~ normal(0, 1); }')),
        Feature("`#include`", '#include "prior.stan"\nparameters { real x; } model { x ~ prior(); }'),
        Feature("slices, multiple indexes, ranges", _parameter("matrix[3, 3] x;", "to_vector(x[{1, 3}, 2:]) ~ normal(0, 1); x[, 1] ~ normal(0, 1); x[2, 2:3] ~ normal(0, 1);")),
        Feature("unpacking of tuples", _parameter("matrix[2, 2] x;", "matrix[2, 2] q; matrix[2, 2] r; (q, r) = qr_thin(x); to_vector(x) ~ normal(0, 1);")),
        Feature("`lb`, `ub` of local constraints as functions", "parameters { real z; } transformed parameters { real x = lower_bound_constrain(z, 0); } model { x ~ exponential(1); }"),
    ],
    "Functions of users": [
        Feature("functions, overloading", _function("real f(real x) { return x; } real f(real x, real y) { return x + y; }", "x ~ normal(f(x) + f(x, x), 9);")),
        Feature("recursion", _function("real f(int n, real x); real f(int n, real x) { return n == 0 ? 0 : x + f(n - 1, x); }", "f(3, x) ~ normal(0, 1);")),
        Feature("`_lpdf`, `_lp`, `_rng`", _function("real own_lpdf(real x, real m) { return normal_lpdf(x | m, 1); } void more_lp(real x) { x ~ normal(0, 2); }", "x ~ own(1); more_lp(x);")),
        Feature("functions of tuples", _function("tuple(real, real) f(real x) { return (x, 2 * x); }", "f(x).2 ~ normal(0, 1);")),
    ],
    "Solvers and parallel functions": [
        *[Feature(f"`{solver}`", _function(_DECAY, _ODE.format(solver=solver))) for solver in ("ode_rk45", "ode_ckrk", "ode_bdf", "ode_adams")],
        Feature("`ode_rk45_tol`", _function(_DECAY, _ODE_TOL + "x ~ normal(y[1][1], 1);")),
        Feature("`ode_adjoint_tol_ctl`", _function(_DECAY, "array[1] vector[1] y = ode_adjoint_tol_ctl(decay, [1.0]', 0.0, {1.0}, 1e-6, [1e-6]', 1e-6, [1e-6]', 1e-6, 1e-6, 1000, 100, 1, 1, 1, x); x ~ normal(y[1][1], 1);")),
        Feature("`integrate_ode_rk45` (old)", _function("array[] real decay(real t, array[] real y, array[] real k, array[] real r, array[] int i) { return {-k[1] * y[1]}; }", "array[1, 1] real y = integrate_ode_rk45(decay, {1.0}, 0.0, {1.0}, {x}, {0.0}, {0}); x ~ normal(y[1, 1], 1);")),
        Feature("`dae`", _function(_DAE, "array[1] vector[1] y = dae(still, [1.0]', [-x]', 0.0, {1.0}, x); x ~ normal(y[1][1], 1);")),
        Feature("`solve_newton`", _function(_ROOT, "vector[1] y = solve_newton(root, [1.0]', x); x ~ normal(y[1], 1);")),
        Feature("`solve_powell`", _function(_ROOT, "vector[1] y = solve_powell(root, [1.0]', x); x ~ normal(y[1], 1);")),
        Feature("`algebra_solver` (old)", _function(_OLD_ROOT, "vector[1] y = algebra_solver(root, [1.0]', [x]', {0.0}, {0}); x ~ normal(y[1], 1);")),
        Feature("`integrate_1d`", _function("real f(real t, real tc, array[] real k, data array[] real r, data array[] int i) { return exp(-k[1] * t * t); }", "real y = integrate_1d(f, 0, 1, {x}, {0.0}, {0}, 1e-8); x ~ normal(y, 1);")),
        Feature("`reduce_sum`", _function(_SUM, "target += reduce_sum(part, {0.1, 0.2}, 1, x); x ~ normal(0, 1);")),
        Feature("`map_rect`", f"functions {{ {_MAP} }} transformed data {{ array[2, 1] real r = {{{{1.0}}, {{2.0}}}}; array[2, 0] int i; }} parameters {{ array[2] vector[1] x; }} model {{ map_rect(part, [0.0]', x, r, i) ~ normal(0, 1); x[1] ~ normal(0, 1); x[2] ~ normal(0, 1); }}"),
        Feature("`laplace_marginal`", f"functions {{ {_LAPLACE} {_COVER} }} data {{ array[2] int y; }} parameters {{ real<lower=0> s; }} model {{ target += laplace_marginal(ll, (y), rep_vector(0.0, 2), cover, (s, 2)); s ~ normal(0, 1); }}", {"y": [1, 2]}),
        Feature("`hmm_marginal`", _parameter("simplex[2] p;", "target += hmm_marginal(rep_matrix(-1.0, 2, 3), rep_matrix(0.5, 2, 2), p);")),
    ],
    "Functions of matrices and numbers": [
        Feature("`cholesky_decompose`, `mdivide_left_tri_low`, `log_determinant`", _parameter("real<lower=0, upper=0.9> r;", "matrix[2, 2] s = [[1, r], [r, 1]]; target += sum(mdivide_left_tri_low(cholesky_decompose(s), [1.0, 2.0]')) + log_determinant(s);")),
        Feature("`eigenvalues_sym`, `eigenvectors_sym`", _parameter("real<lower=0, upper=0.9> r;", "matrix[2, 2] s = [[1, r], [r, 1]]; target += eigenvalues_sym(s)[1] + eigenvectors_sym(s)[1, 1];")),
        Feature("`singular_values`, `svd_U`", _parameter("matrix[2, 2] x;", "target += -singular_values(x)[1]; to_vector(svd_U(x)) ~ normal(0, 1);")),
        Feature("`qr_thin_Q`, `qr_thin_R`", _parameter("matrix[3, 2] x;", "target += -sum(qr_thin_R(x) .* qr_thin_R(x)) + qr_thin_Q(x)[1, 1];")),
        Feature("`matrix_exp`", _parameter("matrix[2, 2] x;", "to_vector(x) ~ normal(0, 1); target += -sum(matrix_exp(x));")),
        Feature("`matrix_power`", _parameter("matrix[2, 2] x;", "to_vector(x) ~ normal(0, 1); target += sum(matrix_power(x, 2));")),
        Feature("`gp_exp_quad_cov`, `gp_matern32_cov`", _parameter("real<lower=0> x;", "array[2] real t = {0.1, 0.5}; target += sum(gp_exp_quad_cov(t, 1.0, x)) + sum(gp_matern32_cov(t, 1.0, x)); x ~ exponential(1);")),
        Feature("`csr_matrix_times_vector`", _parameter("vector[2] x;", "x ~ normal(csr_matrix_times_vector(2, 2, [1.0, 2.0]', {1, 2}, {1, 2, 3}, x), 1);")),
        Feature("`fft`, `eigenvalues`", _parameter("vector[2] x;", "x ~ normal(0, 1); target += -norm(fft(to_complex(x, x))[1]);")),
        Feature("`cumulative_sum`, `sort_asc`, `log_softmax`", _parameter("vector[3] x;", "cumulative_sum(x) ~ normal(0, 1); target += log_softmax(sort_asc(x))[1];")),
        Feature("`to_int`", "data { real a; } transformed data { int n = to_int(a); } parameters { real x; } model { x ~ normal(n, 1); }", {"a": 2.0}),
        Feature("`modulus`, `%`, `%/%`", _transformed("int a = 7 %/% 2; int b = 7 % 2; int c = modulus(7, 2);", "x ~ normal(a + b + c, 1);")),
        Feature("`lmgamma`, `bessel_first_kind`, `owens_t`, `lambert_w0`", _parameter("real<lower=2> x;", "x ~ normal(0, 1); target += lmgamma(2, x) + bessel_first_kind(1, x) + owens_t(x, 1) + lambert_w0(x);")),
        Feature("`hypergeometric_pFq`, `inc_beta`", _parameter("real<lower=0, upper=0.5> x;", "target += inc_beta(1.0, 2.0, x) + hypergeometric_pFq([1.0]', [2.0]', x);")),
    ],
    "Distributions": [
        Feature("of real numbers: `normal` to `wiener`", _parameter("real<lower=0> x; real<lower=0, upper=1> p; real<lower=0.5> w;", "x ~ gamma(2, 1); x ~ weibull(1, 2); x ~ skew_normal(0, 1, 2); x ~ exp_mod_normal(0, 1, 1); x ~ von_mises(0, 1); x ~ frechet(1, 1); x ~ loglogistic(1, 2); p ~ beta_proportion(0.5, 2); w ~ wiener(1, 0.1, 0.5, 0.1); w ~ exponential(1);")),
        Feature("of counts: `poisson` to `beta_neg_binomial`", _parameter("real<lower=0, upper=1> p;", "3 ~ poisson(p); 3 ~ binomial(5, p); 3 ~ neg_binomial_2(1, p); 2 ~ beta_binomial(5, p, 1); 1 ~ bernoulli_logit(p); 2 ~ categorical([p, 1 - p]'); 2 ~ ordered_logistic(p, [0.0, 1.0]');")),
        Feature("`beta_neg_binomial`", _parameter("real<lower=0> a;", "3 ~ beta_neg_binomial(2, a, 1); a ~ exponential(1);")),
        Feature("of several: `multi_normal`, `multi_student_t`, `dirichlet`, `multinomial`", _parameter("vector[2] x; simplex[2] p;", "x ~ multi_normal([0.0, 0.0]', identity_matrix(2)); x ~ multi_student_t(3, [0.0, 0.0]', identity_matrix(2)); p ~ dirichlet([1.0, 2.0]'); {1, 2} ~ multinomial(p);")),
        Feature("of matrices: `wishart`, `inv_wishart`, `lkj_corr`, `matrix_normal_prec`", _parameter("cov_matrix[2] s; corr_matrix[2] c;", "s ~ wishart(4, identity_matrix(2)); s ~ inv_wishart(4, identity_matrix(2)); c ~ lkj_corr(2);")),
        Feature("of generalised linear models: `normal_id_glm` to `ordered_logistic_glm`", "data { matrix[2, 1] z; array[2] int y; } parameters { real a; vector[1] b; } model { [0.1, 0.2]' ~ normal_id_glm(z, a, b, 1.0); y ~ poisson_log_glm(z, a, b); y ~ bernoulli_logit_glm(z, a, b); a ~ normal(0, 1); b ~ normal(0, 1); }", {"z": [[1.0], [2.0]], "y": [0, 1]}),
        Feature("`_cdf`, `_lcdf`, `_lccdf`", _parameter("real x;", "x ~ normal(0, 1); target += normal_lcdf(x | 0, 1) + normal_lccdf(x | 0, 1) + student_t_lcdf(x | 3, 0, 1);")),
    ],
    "Generated quantities": [
        Feature("random numbers of real numbers", _generated("real y = normal_rng(x, 1); real z = gamma_rng(2, 1); vector[2] v = multi_normal_rng([0.0, 0.0]', identity_matrix(2));")),
        Feature("random numbers of counts", _generated("int y = poisson_rng(3); int z = binomial_rng(5, 0.5); int c = categorical_rng([0.5, 0.5]');")),
        Feature("`dirichlet_rng`, `lkj_corr_rng`, `wishart_rng`", _generated("vector[2] p = dirichlet_rng([1.0, 2.0]'); matrix[2, 2] c = lkj_corr_rng(2, 1); matrix[2, 2] w = wishart_rng(3, identity_matrix(2));")),
        Feature("`multinomial_rng`", _generated("array[2] int y = multinomial_rng([0.5, 0.5]', 3);")),
        Feature("`hypergeometric_rng`", _generated("int y = hypergeometric_rng(2, 3, 4);")),
        Feature("random numbers of users' functions", "functions { real own_rng(real x) { return normal_rng(x, 1); } } " + _generated("real y = own_rng(x);")),
        Feature("`complex` and `tuple` generated quantities", _generated("complex z = to_complex(x, 1); tuple(real, int) t = (x, 1);")),
        Feature("integers, and sizes from data", "data { int n; } " + _generated("array[n] int y; for (i in 1:n) y[i] = i;"), {"n": 3}),
    ],
}  # fmt: skip


def runs(feature: Feature) -> str:
    """What stanli says in refusing the program of a feature; nothing where it runs, at every point tried."""
    try:
        posterior = Posterior(feature.code, feature.data, backend="stanli")
    except StanAdaptError as error:
        return str(error)
    for seed in range(_SEEDS):
        x = np.random.default_rng(seed).uniform(-1.0, 1.0, posterior.dim)
        try:
            value, score = posterior.log_density_gradient(x)
        except StanAdaptError as error:
            return str(error)
        values = posterior.constrain(x, transformed=True, generated=True).values()
        if not (np.isfinite(value) and np.isfinite(score).all()):
            return f"log density {value}, gradient {score}"
        if not all(np.isfinite(each).all() for each in values):
            return f"values {values}"
    return ""


if __name__ == "__main__":
    for title, features in SECTIONS.items():
        print("##", title)
        for feature in features:
            print(" ", feature.name, "|", runs(feature)[:400])
