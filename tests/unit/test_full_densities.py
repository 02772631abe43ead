"""A Stan program rewritten so that its log density keeps all constants."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

import language
import stanadapt
from stanadapt.errors import ModelError
from stanadapt.model.full_densities import keep_constants
from stanadapt.model.program import without_comments

HEAD = "data { int n; array[n] int k; vector[n] y; } parameters { real x; real<lower=0> s; } model { "


def written(statement: str) -> str:
    """A statement of the model block as it is rewritten."""
    code = keep_constants(f"{HEAD}{statement}\n}}")
    assert code.startswith(HEAD)
    return code.removeprefix(HEAD).removesuffix("\n}")


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("y ~ normal(x, s);", "target += normal_lpdf(y | x, s);"),
        ("k ~ poisson(s);", "target += poisson_lpmf(k | s);"),
        ("x ~ std_normal();", "target += std_normal_lpdf(x | );"),
        ("y[1] - x ~ normal(0, 1);", "target += normal_lpdf(y[1] - x | 0, 1);"),
        ("{x, 1} ~ normal({0, 1}, 2);", "target += normal_lpdf({x, 1} | {0, 1}, 2);"),
        ("if (n > 1) x ~ normal(0, 1);", "if (n > 1) target += normal_lpdf(x | 0, 1);"),
        (
            "if (n > 1) x ~ normal(0, 1); else { y ~ cauchy(x, 1); }",
            "if (n > 1) target += normal_lpdf(x | 0, 1); else { target += cauchy_lpdf(y | x, 1); }",
        ),
        ("for (i in 1:n) y[i] ~ normal(x, 1);", "for (i in 1:n) target += normal_lpdf(y[i] | x, 1);"),
        ("while (n > 9) { { x ~ normal(0, 1); } }", "while (n > 9) { { target += normal_lpdf(x | 0, 1); } }"),
        ('profile("a") { x ~ normal(0, 1); }', 'profile("a") { target += normal_lpdf(x | 0, 1); }'),
        ("target += normal_lupdf(x | 0, 1);", "target += normal_lpdf(x | 0, 1);"),
        ("target += reduce_sum(f_lupmf, k, 1, s);", "target += reduce_sum(f_lpmf, k, 1, s);"),
        ("x ~ normal(poisson_lupmf(2 | s), 1);", "target += normal_lpdf(x | poisson_lpmf(2 | s), 1);"),
        ('print("a ~ b(", x, ");"); // x ~ c();', 'print("a ~ b(", x, ");"); // x ~ c();'),
        ("x /* ~ a() */ ~ normal(0, // ~\n 1);", "target += normal_lpdf(x /* ~ a() */ | 0, // ~\n 1);"),
        (
            "real e = 1.e-3 + .5E2; x ~ normal(e', 1);",
            "real e = 1.e-3 + .5E2; target += normal_lpdf(x | e', 1);",
        ),
        (
            "if (n > 1) s ~ cauchy(0, 1) T[0, ];",
            (
                "if (n > 1) { target += cauchy_lpdf(s | 0 , 1) - cauchy_lupdf(s | 0 , 1); "
                "s ~ cauchy(0, 1) T[0, ]; }"
            ),
        ),
    ],
)
def test_statements(statement: str, expected: str) -> None:
    assert written(statement) == expected


def test_functions_that_the_program_defines() -> None:
    functions = """functions {
      real half_lpdf(real x, real a);
      real half_lpdf(real x, real a) { return normal_lupdf(x | a, 1); }
      tuple(real, array[,] real) pair(real x) { return (x, {{1}}); }
      real count_lpmf(int k, real a) { if (k > 3) return 0; return poisson_lupmf(k | a); }
      void add_lp(real x) { x ~ normal(0, 3); }
    } """
    code = keep_constants(functions + HEAD + "x ~ half(1); k[1] ~ count(2); add_lp(x); }")
    assert "return normal_lpdf(x | a, 1)" in code
    assert "return poisson_lpmf(k | a)" in code
    assert "{ target += normal_lpdf(x | 0, 3); }" in code
    assert code.endswith("target += half_lpdf(x | 1); target += count_lpmf(k[1] | 2); add_lp(x); }")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (HEAD + "x ~ normal(0, 1) S[0, ]; }", "line 1 of the program: what follows the distribution"),
        (HEAD + "x ~ normal; }", "line 1 of the program: the statement with ~ cannot be read"),
        (HEAD + "x ~ normal(0, 1) }", "a statement has no end"),
        (HEAD + "x ~ normal((0, 1); }", "closes nothing"),
        (HEAD + "x ~ normal(0, 1);", "a bracket is not closed"),
        ("#include a.stan\n" + HEAD + "}", "'#' cannot be read here"),
        ("transformed parameters { x ~ normal(0, 1); }", "a statement with ~ cannot be read"),
        (
            "functions { void f_lp(real x) {\n x ~ normal(0, 1) T[0, ]; } }",
            "line 2 of the program: a truncation",
        ),
        (
            "functions { real f_lpdf(real x) { return x; } real f_lpmf(int x) { return x; } }"
            + HEAD
            + "x ~ f(); }",
            "defines both f_lpdf and f_lpmf",
        ),
    ],
)
def test_what_cannot_be_read_is_refused(code: str, words: str) -> None:
    with pytest.raises(stanadapt.ModelError, match=words.replace("(", "\\(")):
        keep_constants(code)


def test_every_feature_of_the_language_can_be_read() -> None:
    """Programs of all features that tests/language.py knows; one has an include, which is read before."""
    programs = {each.name: each.code for section in language.SECTIONS.values() for each in section}
    assert len(programs) > 200
    for name, code in programs.items():
        if name != "`#include`":
            left = without_comments(keep_constants(code)).count("~")
            assert left == (name == "truncation `T[,]`"), name


DATA = {"n": 3, "k": [2, 0, 5], "y": [0.3, -1.2, 2.5]}
K, Y = np.array(DATA["k"]), np.array(DATA["y"])
X, S = 0.7, 1.3


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("y ~ normal(x, s);", stats.norm(X, S).logpdf(Y).sum()),
        ("y ~ normal(1, 2);", stats.norm(1, 2).logpdf(Y).sum()),  # of data alone: `~` drops all of it
        ("y ~ student_t(4, x, s);", stats.t(4, X, S).logpdf(Y).sum()),
        ("y ~ cauchy(x, s);", stats.cauchy(X, S).logpdf(Y).sum()),
        ("y ~ double_exponential(x, s);", stats.laplace(X, S).logpdf(Y).sum()),
        ("s ~ gamma(3, 2);", stats.gamma(3, scale=0.5).logpdf(S)),
        ("s ~ inv_gamma(3, 2);", stats.invgamma(3, scale=2).logpdf(S)),
        ("s ~ lognormal(1, 2);", stats.lognorm(2, scale=math.e).logpdf(S)),
        ("s ~ weibull(2, 3);", stats.weibull_min(2, scale=3).logpdf(S)),
        ("s ~ normal(0, 2) T[0, ];", stats.halfnorm(0, 2).logpdf(S)),
        ("k ~ poisson(s);", stats.poisson(S).logpmf(K).sum()),
        ("k ~ poisson_log(x);", stats.poisson(math.exp(X)).logpmf(K).sum()),
        ("k ~ binomial(7, inv_logit(x));", stats.binom(7, 1 / (1 + math.exp(-X))).logpmf(K).sum()),
        ("k ~ neg_binomial_2(4, s);", stats.nbinom(S, S / (S + 4)).logpmf(K).sum()),
        (
            "k ~ poisson_log_glm(to_matrix(y), 0.5, [x]');",
            stats.poisson(np.exp(0.5 + X * Y)).logpmf(K).sum(),
        ),
        (
            "y ~ normal_id_glm(to_matrix(to_vector(k)), 0.5, [x]', s);",
            stats.norm(0.5 + X * K, S).logpdf(Y).sum(),
        ),
        (
            "y ~ multi_normal(rep_vector(x, n), s * identity_matrix(n));",
            stats.multivariate_normal([X] * 3, S * np.eye(3)).logpdf(Y),
        ),
        (
            "k ~ multinomial(softmax([x, 0, s]'));",
            stats.multinomial(7, np.exp([X, 0, S]) / np.exp([X, 0, S]).sum()).logpmf(K),
        ),
        (
            "for (i in 1:n) if (y[i] > 0) y[i] ~ exponential(s);",
            stats.expon(scale=1 / S).logpdf(Y[Y > 0]).sum(),
        ),
    ],
)
def test_rewritten_programs_have_all_constants(statement: str, expected: float) -> None:
    """Against scipy, in the backend that runs them."""
    posterior = stanadapt.Posterior(keep_constants(f"{HEAD}{statement} }}"), DATA)
    at: Any = posterior.unconstrain({"x": X, "s": S})
    assert posterior.log_density(at) == pytest.approx(expected + math.log(S), rel=1e-10)


@pytest.mark.parametrize("outcome", ["y", "y[1:2]", "to_vector(y)", "k"])
def test_a_truncation_of_many_numbers_is_refused(outcome: str) -> None:
    """stanli drops its term where bounds and arguments are constant, which no comparison would notice."""
    with pytest.raises(ModelError, match="more than one number"):
        written(f"{outcome} ~ normal(0, 1) T[0, ];")
    assert "T[0, ]" in written("y[1] ~ normal(x, 1) T[0, ];")
