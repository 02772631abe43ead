"""Targets whose law is known exactly: draws, distribution functions, and compiled densities."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from scipy import stats

import stanadapt
from stanadapt.model.backends.python import LOG_DENSITY, LOG_DENSITY_GRADIENT

D = 3
CHOL = np.array([[1.0, 0.0, 0.0], [0.9, 0.5, 0.0], [-0.6, 0.4, 2.0]])  # condition number of the law: 40
PRECISION = np.linalg.inv(CHOL @ CHOL.T)
MIX = np.array([[1.0, 0.3, 0.0], [-0.5, 1.5, 0.2], [0.4, 0.0, 0.7]])
UNMIX = np.linalg.inv(MIX)
SHAPE = 1.5  # of the gamma variables whose logarithms make the skewed law; skewness -0.9


@dataclass(frozen=True)
class Exact:
    """A law that can be drawn from, and projections of it with known distribution functions."""

    name: str
    target: Any  # what stanadapt samples
    draw: Callable[[int, np.random.Generator], np.ndarray]  # (n, d) exact draws
    probabilities: Callable[[np.ndarray], np.ndarray]  # (n, d) -> (n, m), each column uniform under the law


@numba.cfunc(LOG_DENSITY)
def _gaussian(x):  # type: ignore[no-untyped-def]
    total = 0.0
    for i in range(D):
        for j in range(D):
            total -= 0.5 * x[i] * PRECISION[i, j] * x[j]
    return total


@numba.cfunc(LOG_DENSITY_GRADIENT)
def _gaussian_gradient(x, score):  # type: ignore[no-untyped-def]
    total = 0.0
    for i in range(D):
        score[i] = 0.0
        for j in range(D):
            score[i] -= PRECISION[i, j] * x[j]
        total += 0.5 * x[i] * score[i]
    return total


@numba.cfunc(LOG_DENSITY)
def _skewed(x):  # type: ignore[no-untyped-def]
    total = 0.0
    for i in range(D):
        u = 0.0
        for j in range(D):
            u += UNMIX[i, j] * x[j]
        total += SHAPE * u - np.exp(u)
    return total


@numba.cfunc(LOG_DENSITY_GRADIENT)
def _skewed_gradient(x, score):  # type: ignore[no-untyped-def]
    total = 0.0
    for j in range(D):
        score[j] = 0.0
    for i in range(D):
        u = 0.0
        for j in range(D):
            u += UNMIX[i, j] * x[j]
        total += SHAPE * u - np.exp(u)
        for j in range(D):
            score[j] += (SHAPE - np.exp(u)) * UNMIX[i, j]
    return total


@numba.cfunc(LOG_DENSITY)
def _no_jacobian(x):  # type: ignore[no-untyped-def]
    total = 0.0
    for i in range(D):
        total += (SHAPE - 1.0) * x[i] - np.exp(x[i])
    return total


@numba.cfunc(LOG_DENSITY_GRADIENT)
def _no_jacobian_gradient(x, score):  # type: ignore[no-untyped-def]
    total = 0.0
    for i in range(D):
        total += (SHAPE - 1.0) * x[i] - np.exp(x[i])
        score[i] = SHAPE - 1.0 - np.exp(x[i])
    return total


def gaussian() -> Exact:
    """A correlated Gaussian; projected on its own whitened axes, on mixtures of them, and on its radius."""
    directions = np.array([[1.0, 1.0, 1.0], [1.0, -1.0, 0.0], [0.0, 1.0, -2.0]])
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)

    def probabilities(x: np.ndarray) -> np.ndarray:
        z = np.linalg.solve(CHOL, x.T).T
        radius = stats.chi2(D).cdf((z**2).sum(axis=1))
        return np.column_stack([stats.norm.cdf(z), stats.norm.cdf(z @ directions.T), radius])

    return Exact(
        "gaussian",
        stanadapt.Target.from_python(_gaussian, D, _gaussian_gradient),
        lambda n, rng: rng.standard_normal((n, D)) @ CHOL.T,
        probabilities,
    )


def _log_gamma_probabilities(u: np.ndarray) -> np.ndarray:
    law = stats.gamma(SHAPE)
    total = stats.gamma(D * SHAPE).cdf(np.exp(u).sum(axis=1))
    share = stats.beta(SHAPE, SHAPE).cdf(np.exp(u[:, 0]) / np.exp(u[:, :2]).sum(axis=1))
    return np.column_stack([law.cdf(np.exp(u)), total, share])


def skewed() -> Exact:
    """A linear mixture of logarithms of gamma variables: skewed, with one exponential and one steep tail."""
    return Exact(
        "skewed",
        stanadapt.Target.from_python(_skewed, D, _skewed_gradient),
        lambda n, rng: np.log(rng.gamma(SHAPE, size=(n, D))) @ MIX.T,
        lambda x: _log_gamma_probabilities(x @ UNMIX.T),
    )


POSITIVE = f"""
parameters {{ vector<lower=0>[{D}] g; }}
model {{ g ~ gamma({SHAPE}, 1); }}
"""


def constrained() -> Exact:
    """Gamma variables in a Stan program, on the logarithmic scale: right only with the Jacobian."""
    return Exact(
        "constrained",
        stanadapt.Posterior(POSITIVE).model,
        lambda n, rng: np.log(rng.gamma(SHAPE, size=(n, D))),
        _log_gamma_probabilities,
    )


def without_jacobian() -> Exact:
    """The same law, with a density that forgets the Jacobian; only to see the suite go red."""
    target = stanadapt.Target.from_python(_no_jacobian, D, _no_jacobian_gradient)
    exact = constrained()
    return Exact("without_jacobian", target, exact.draw, exact.probabilities)


TARGETS = {"gaussian": gaussian, "skewed": skewed, "constrained": constrained}


@dataclass(frozen=True)
class StanLaw:
    """One of these laws as a Stan program, for samplers that run nothing else."""

    code: str
    data: dict[str, Any]
    exact: Callable[[], Exact]
    constrain: Callable[[np.ndarray], np.ndarray]  # from x to the program's parameters
    unconstrain: Callable[[np.ndarray], np.ndarray]


def _same(x: np.ndarray) -> np.ndarray:
    return x


STAN_LAWS = {
    "gaussian": StanLaw(
        """data { int d; matrix[d, d] chol; }
        parameters { vector[d] x; }
        model { x ~ multi_normal_cholesky(rep_vector(0, d), chol); }""",
        {"d": D, "chol": CHOL},
        gaussian,
        _same,
        _same,
    ),
    "skewed": StanLaw(
        """data { int d; matrix[d, d] unmix; real shape; }
        parameters { vector[d] x; }
        model { vector[d] u = unmix * x; target += sum(shape * u - exp(u)); }""",
        {"d": D, "unmix": UNMIX, "shape": SHAPE},
        skewed,
        _same,
        _same,
    ),
    "constrained": StanLaw(POSITIVE, {}, constrained, np.exp, np.log),
}
# The law `constrained` again, with a density that takes the Jacobian away; only to see a suite go red.
STAN_WITHOUT_JACOBIAN = StanLaw(
    POSITIVE.replace("model {", "model { target += -sum(log(g));"), {}, constrained, np.exp, np.log
)
