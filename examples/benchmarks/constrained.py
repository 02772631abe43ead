"""Constrained types of every kind against closed forms: means, squares and tails, in standard errors.

    python examples/benchmarks/constrained.py [METHOD ...] [--seeds N]

Each line is a program with one type and a law whose moments are known. `worst` is the largest distance of a
mean from its closed form, in Monte Carlo standard errors, of so many means; a right sampler has one of over
4.5 in fewer than one in a thousand lines.
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from arviz import ess
from scipy import stats

import stanadapt
from stanadapt.errors import StanAdaptWarning

LIMIT = 4.5
Means = Iterator[tuple[np.ndarray, float]]  # values (chain, draw), and the mean that they have
S = np.array([[1.0, 0.5], [0.5, 2.0]])
SIGMA = "transformed data { matrix[2, 2] s = [[1, 0.5], [0.5, 2]]; } "


def entries(x: np.ndarray, mean: Any, square: Any) -> Means:
    """The means of all entries, and of their squares."""
    shape = x.shape[2:]
    for index in np.ndindex(shape):
        value = x[(..., *index)]
        yield value, float(np.broadcast_to(mean, shape)[index])
        yield value**2, float(np.broadcast_to(square, shape)[index])


def tails(x: np.ndarray, law: Any) -> Means:
    """The shares beyond the 2 % quantiles of a law of one number."""
    yield (x < law.ppf(0.02)).astype(float), 0.02
    yield (x > law.ppf(0.98)).astype(float), 0.02


def interval(x: np.ndarray) -> Means:
    yield from entries(x, 0.5, 0.25 + 9 / 12)
    yield from tails(x, stats.uniform(-1, 3))


def positive(x: np.ndarray) -> Means:
    yield from entries(x, 1.0, 2.0)
    yield from tails(x, stats.expon())


def below(x: np.ndarray) -> Means:
    yield from positive(1.0 - x)


def scaled(x: np.ndarray) -> Means:
    yield from entries(x, 3.0, 13.0)
    yield from tails(x[..., 0], stats.norm(3, 2))


def simplex(x: np.ndarray) -> Means:
    a = np.array([2.0, 3.0, 5.0])
    yield from entries(x, a / 10, a * (a + 1) / 110)
    for i in range(3):
        yield from tails(x[..., i], stats.beta(a[i], 10 - a[i]))


def ordered(x: np.ndarray) -> Means:
    outer, inner = 3 / (2 * math.sqrt(math.pi)), 1 - math.sqrt(3) / math.pi  # order statistics of three
    side = 1 + math.sqrt(3) / (2 * math.pi)
    yield from entries(x, [-outer, 0.0, outer], [side, inner, side])


def positive_ordered(x: np.ndarray) -> Means:
    mean = np.cumsum([1 / 3, 1 / 2, 1])
    yield from entries(x, mean, np.cumsum([1 / 9, 1 / 4, 1]) + mean**2)


def unit_vector(x: np.ndarray) -> Means:
    yield from entries(x, 0.0, 1 / 3)
    yield from tails(x[..., 0], stats.uniform(-1, 2))


def sum_to_zero(x: np.ndarray) -> Means:
    yield from entries(x, 0.0, 0.75)
    yield x[..., 0] * x[..., 1], -0.25
    yield from tails(x[..., 3], stats.norm(0, math.sqrt(0.75)))


def sum_to_zero_matrix(x: np.ndarray) -> Means:
    yield from entries(x, 0.0, 1 / 3)
    yield x[..., 0, 0] * x[..., 1, 0], -1 / 3
    yield x[..., 0, 0] * x[..., 1, 1], 1 / 6


def correlations(c: np.ndarray) -> Means:
    law = stats.beta(2.5, 2.5, -1, 2)
    for i, j in ((1, 0), (2, 0), (2, 1)):
        yield from entries(c[..., i, j], 0.0, 1 / 6)
        yield from tails(c[..., i, j], law)


def correlation_factor(x: np.ndarray) -> Means:
    yield from correlations(x @ np.swapaxes(x, -1, -2))


def wishart(x: np.ndarray) -> Means:
    scale = np.outer(np.diag(S), np.diag(S))
    yield from entries(x, 5 * S, 5 * (S**2 + scale) + 25 * S**2)
    yield from tails(x[..., 0, 0], stats.chi2(5))
    yield from tails(x[..., 1, 1], stats.chi2(5, scale=2))


def wishart_factor(x: np.ndarray) -> Means:
    yield from wishart(x @ np.swapaxes(x, -1, -2))


def inverse_wishart(x: np.ndarray) -> Means:
    for i in range(2):  # an inverse gamma
        law = stats.invgamma(4.5, scale=S[i, i] / 2)
        yield x[..., i, i], float(law.mean())
        yield from tails(x[..., i, i], law)
    yield x[..., 0, 1], S[0, 1] / 7


def tall_factor(x: np.ndarray) -> Means:
    half = math.sqrt(2 / math.pi)
    for i, j in ((0, 0), (1, 0), (1, 1), (2, 0), (2, 1)):
        yield from entries(x[..., i, j], half if i == j else 0.0, 1.0)
        yield from tails(x[..., i, j], stats.halfnorm() if i == j else stats.norm())


def simplexes(x: np.ndarray) -> Means:
    yield from entries(x, 1 / 3, 1 / 6)


Case = tuple[str, str, Callable[[np.ndarray], Means]]
CASES: dict[str, Case] = {
    "lower and upper": ("real<lower=-1, upper=2> x;", "", interval),
    "lower": ("real<lower=0> x;", "x ~ exponential(1);", positive),
    "upper": ("real<upper=1> x;", "1 - x ~ exponential(1);", below),
    "offset and multiplier": ("vector<offset=1, multiplier=5>[2] x;", "x ~ normal(3, 2);", scaled),
    "simplex": ("simplex[3] x;", "x ~ dirichlet([2.0, 3.0, 5.0]');", simplex),
    "array of simplexes": ("array[2] simplex[3] x;", "", simplexes),
    "ordered": ("ordered[3] x;", "x ~ normal(0, 1);", ordered),
    "positive_ordered": ("positive_ordered[3] x;", "x ~ exponential(1);", positive_ordered),
    "unit_vector": ("unit_vector[3] x;", "", unit_vector),
    "sum_to_zero_vector": ("sum_to_zero_vector[4] x;", "x ~ normal(0, 1);", sum_to_zero),
    "sum_to_zero_matrix": ("sum_to_zero_matrix[2, 3] x;", "to_vector(x) ~ normal(0, 1);", sum_to_zero_matrix),
    "corr_matrix": ("corr_matrix[3] x;", "x ~ lkj_corr(2);", correlations),
    "cholesky_factor_corr": (
        "cholesky_factor_corr[3] x;",
        "x ~ lkj_corr_cholesky(2);",
        correlation_factor,
    ),
    "cov_matrix, Wishart": ("cov_matrix[2] x;", "x ~ wishart(5, s);", wishart),
    "cov_matrix, inverse Wishart": ("cov_matrix[2] x;", "x ~ inv_wishart(10, s);", inverse_wishart),
    "cholesky_factor_cov": (
        "cholesky_factor_cov[2] x;",
        "x ~ wishart_cholesky(5, cholesky_decompose(s));",
        wishart_factor,
    ),
    "cholesky_factor_cov, tall": (
        "cholesky_factor_cov[3, 2] x;",
        "to_vector(x) ~ normal(0, 1);",
        tall_factor,
    ),
}


def distances(name: str, method: str, seed: int, draws: int | None = None) -> np.ndarray:
    """How far the means of a case are from their closed forms, in standard errors."""
    declaration, statement, means = CASES[name]
    code = f"{SIGMA}parameters {{ {declaration} }} model {{ {statement} }}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StanAdaptWarning)
        idata = stanadapt.sample(code, method=method, chains=4, draws=draws, seed=seed, progress=False)
    found = []
    for values, truth in means(idata["posterior"]["x"].values):
        size = float(ess(np.ascontiguousarray(values), method="mean"))
        found.append((values.mean() - truth) / (values.std() / math.sqrt(size)))
    return np.array(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("methods", nargs="*", default=["fisher_hmc"])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--draws", type=int)
    given = parser.parse_args()
    print("| type | method | means | worst | |\n| --- | --- | --- | --- | --- |")
    for name in CASES:
        for method in given.methods:
            for seed in range(given.seeds):
                found = distances(name, method, seed, given.draws)
                worst = float(np.max(np.abs(found)))
                verdict = "held" if worst < LIMIT else "fell"
                print(f"| {name} | {method} | {found.size} | {worst:.1f} | {verdict} |", flush=True)


if __name__ == "__main__":
    main()
