"""The Gaussian synthetic likelihood: the density of observed summaries, from simulated ones.

    paper        here       shape   meaning
    s_y          observed   (p,)    summaries of the data
    s_1:n        simulated  (n, p)  summaries of n simulations
    mu_n         mean       (p,)    their mean
    (n-1) S_n    M          (p, p)  their scatter around it, M = sum (s_i - mu_n)(s_i - mu_n)^T

M is scaled to a unit diagonal and decomposed, so that summaries of different scales do not look singular.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

_EPS = float(np.finfo(float).eps)


class SingularScatterError(ValueError):
    """Simulated and observed summaries share a linear dependence, so no density is finite."""


def log_unbiased_density(simulated: np.ndarray, observed: np.ndarray) -> float:
    """Log of the unbiased estimate of a Gaussian density by Ghurye and Olkin (1969); n >= p + 4.

    Price, Drovandi, Lee and Nott (2018), Bayesian synthetic likelihood, equation 5. If the estimate is zero,
    the result is -inf: the data are then further from the mean than any of n simulations can be.
    """
    n, p = simulated.shape
    scatter = _scatter(simulated, observed)
    inside = 1.0 - scatter.distance * n / (n - 1)
    if inside <= 0.0:
        return -math.inf
    return float(
        -0.5 * p * math.log(2.0 * math.pi)
        + _log_c(p, n - 2)
        - _log_c(p, n - 1)
        - 0.5 * p * math.log1p(-1.0 / n)
        - 0.5 * scatter.log_det
        + 0.5 * (n - p - 3) * math.log(inside)
    )


def log_plugin_density(simulated: np.ndarray, observed: np.ndarray) -> float:
    """Log density at `observed` of the Gaussian with the mean and covariance of `simulated`; n >= p + 1.

    Wood (2010), Statistical inference for noisy nonlinear ecological dynamic systems. The
    estimate is biased for finite n.
    """
    n, p = simulated.shape
    scatter = _scatter(simulated, observed)
    if scatter.distance == math.inf:
        return -math.inf
    log_det = scatter.log_det - p * math.log(n - 1)
    return float(-0.5 * (p * math.log(2.0 * math.pi) + log_det + (n - 1) * scatter.distance))


def _log_c(k: int, v: int) -> float:
    """log c(k, v), where c is the constant of the Wishart density."""
    gammas = sum(math.lgamma(0.5 * (v - i)) for i in range(k))
    return -0.5 * k * v * math.log(2.0) - 0.25 * k * (k - 1) * math.log(math.pi) - gammas


class _Scatter(NamedTuple):
    log_det: float  # log|M|
    distance: float  # (s_y - mu_n)^T M^-1 (s_y - mu_n); infinite outside of the span of M


def _scatter(simulated: np.ndarray, observed: np.ndarray) -> _Scatter:
    """The scatter M of the simulations.

    Raises
    ------
    SingularScatterError
        M is singular and the data are in its span.
    """
    mean = simulated.mean(axis=0)
    centred, away = simulated - mean, observed - mean
    scale = np.sqrt(np.square(centred).sum(axis=0))
    constant = scale <= len(simulated) * _EPS * np.abs(mean)
    if constant.any():
        if np.any(np.abs(away[constant]) > len(simulated) * _EPS * np.abs(mean[constant])):
            return _Scatter(-math.inf, math.inf)
        raise SingularScatterError
    values, vectors = np.linalg.eigh((centred / scale).T @ (centred / scale))
    along = vectors.T @ (away / scale)
    null = values <= 10.0 * len(values) * _EPS * values[-1]
    if null.any():
        if np.any(np.abs(along[null]) > math.sqrt(_EPS) * np.linalg.norm(along)):
            return _Scatter(-math.inf, math.inf)
        raise SingularScatterError
    log_det = float(np.log(values).sum() + 2.0 * np.log(scale).sum())
    return _Scatter(log_det, float(np.sum(along**2 / values)))
