"""Paths of laws from references to a posterior: their densities, exchanges along them, and what these tell.

A rung of a path has the density

    pi_j  proportional to  q_0^a q_1^b p^beta,        (a, b, beta) = weights[j],

with the posterior p, a broad reference q_0 and a fitted one q_1. The first rung is q_0 and the last is q_1.
On the leg from q_0 to p it is a = 1 - beta and b = 0, on the leg from p to q_1 it is b = 1 - beta and a = 0.
Both references are normalised.

The *schedule* spaces the rungs of a leg so that exchanges between neighbours are refused equally often. If
r_j is the rate of refusals between rungs j and j + 1, the sum of r_j up to beta is about Lambda(beta), which
does not depend on the schedule, and Lambda(1) is the barrier of the leg: Syed, Bouchard-Côté, Deligiannidis
and Doucet (2022), Non-reversible parallel tempering, Sections 4 and 5, Algorithm 4. With N rungs a round trip
takes about 2 + 2 sum r_j / (1 - r_j) scans, and the cost of one is least near N = 2 Lambda.

The *ratio of the integrals* of neighbours, Z_(j+1) / Z_j, is estimated from draws of both (Bennett, 1976;
Meng and Wong, 1996): with D = log of the unnormalised densities' ratio pi_(j+1) / pi_j and any constant c,

    Z_(j+1) / Z_j = e^c E_j[sigma(D - c)] / E_(j+1)[sigma(c - D)],       sigma(t) = 1 / (1 + e^-t).

Both means are of numbers between 0 and 1. The best c is the log of the ratio itself, which warm-up estimates.
Their logs are what is kept: integrals of posteriors with thousands of observations differ by thousands of
nats from rung to rung, and until c is known one of the means is a number that would be rounded to zero.
The product over a leg is the integral of p: stepping stones (Xie, Lewis, Fan, Kuo and Chen, 2011).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.interpolate import PchipInterpolator

from ..jit import kernel
from ..kinds import Integer, Matrix, Real, Target, Vector
from ..target import log_density, log_density_gradient
from .mixtures import Mixture, mixture_log_density

BROAD, FITTED, POSTERIOR = 0, 1, 2  # columns of weights, heights and slopes
BATCHES = 128  # of the draws, at most; two become one where there would be more
_LEAST_RATE = 1e-3  # of refusals: with less, a schedule would depend on noise
_SHUT = 0.95  # rate of refusals from which neighbours hardly ever exchange
_DEEPEST = 1e-8  # factor between neighbours' betas, at least, where they hardly ever exchange
_LONG = 8  # batches, at least, whose means show long correlations
_LEAST_VARIANCE = 0.25  # of a mean, as a share of that of independent terms: noise could make it negative


class Rung(NamedTuple):
    """The density of a rung, as trajectories evaluate it, and the parts of the last evaluation."""

    target: Target
    broad: Mixture
    fitted: Mixture
    weights: np.ndarray  # (3,)
    heights: np.ndarray  # (3,) log densities of q_0, q_1 and p
    slopes: np.ndarray  # (3, d) their gradients
    away: np.ndarray  # (d,) work space, as is the next one
    white: np.ndarray
    sloped: bool  # whether gradients are asked for


@kernel(ordered=True, counted=False, copied=False)
def evaluate_at(rung: Rung, z: Vector) -> None:
    """Write the log densities of q_0, q_1 and p at `z` (d,), and their gradients, to the rung.

    If gradients are not asked for, that of p is not evaluated and stays as it is.
    """
    if rung.sloped:
        rung.heights[POSTERIOR] = log_density_gradient(rung.target, z, rung.slopes[POSTERIOR])
    else:
        rung.heights[POSTERIOR] = log_density(rung.target, z)
    rung.heights[BROAD] = mixture_log_density(rung.broad, z, rung.slopes[BROAD], rung.away, rung.white)
    rung.heights[FITTED] = mixture_log_density(rung.fitted, z, rung.slopes[FITTED], rung.away, rung.white)


@kernel(ordered=True, counted=False)
def rung_density(rung: Rung, z: Vector, score: Vector) -> Real:
    """Log density of a rung at `z` (d,); its gradient is written to `score` (d,). -inf where p is zero."""
    evaluate_at(rung, z)
    if rung.heights[POSTERIOR] == -np.inf:
        return -np.inf
    slope_of_rung(rung.weights, rung.slopes, score)
    return height_of_rung(rung.weights, rung.heights)


@kernel(ordered=True, counted=False)
def height_of_rung(weights: Vector, heights: Vector) -> Real:
    """The log density of a rung from those of q_0, q_1 and p, (3,); a weight of zero takes no part."""
    total = 0.0
    for k in range(3):
        if weights[k] != 0.0:
            total += weights[k] * heights[k]
    return total


@kernel(ordered=True, counted=False)
def slope_of_rung(weights: Vector, slopes: Matrix, score: Vector) -> None:
    """Write the gradient of a rung's log density to `score` (d,)."""
    for i in range(score.size):
        score[i] = 0.0
    for k in range(3):
        if weights[k] != 0.0:
            for i in range(score.size):
                score[i] += weights[k] * slopes[k, i]


@kernel(ordered=True, counted=False)
def step_up(weights: Matrix, j: Integer, heights: Vector) -> Real:
    """D at a point with these log densities (3,): log pi_(j+1) - log pi_j, both unnormalised."""
    total = 0.0
    for k in range(3):
        change = weights[j + 1, k] - weights[j, k]
        if change != 0.0:
            total += change * heights[k]
    return total


@kernel(ordered=True, counted=False)
def log_logistic(t: Real) -> Real:
    """log sigma(t) = -log(1 + e^-t), also where sigma itself would be rounded to zero."""
    if t >= 0.0:
        return -np.log1p(np.exp(-t))
    return t - np.log1p(np.exp(t))


@kernel(ordered=True, counted=False)
def log_add(a: Real, b: Real) -> Real:
    """log(e^a + e^b)."""
    if a == -np.inf:
        return b
    if b == -np.inf:
        return a
    return max(a, b) + np.log1p(np.exp(-np.abs(a - b)))


def path_weights(betas_broad: np.ndarray, betas_fitted: np.ndarray) -> np.ndarray:
    """The weights (K, 3) of a path. Betas of both legs begin with 0 and end with 1, the posterior's rung."""
    broad = np.array([(1.0 - beta, 0.0, beta) for beta in betas_broad])
    fitted = np.array([(0.0, 1.0 - beta, beta) for beta in betas_fitted])[::-1]
    return np.concatenate((broad, fitted[1:]))


def betas_of(weights: np.ndarray, cold: int) -> tuple[np.ndarray, np.ndarray]:
    """The betas of the broad leg and of the fitted one, each from 0 to 1."""
    return weights[: cold + 1, POSTERIOR].copy(), weights[cold:, POSTERIOR][::-1].copy()


def first_betas(n: int) -> np.ndarray:
    """Betas (n + 1,) before anything is known: many are small, since laws change most near a reference.

    Without a rung beside the posterior's there is no reference.
    """
    return np.linspace(0.0, 1.0, n + 1) ** 3 if n else np.ones(1)


def barrier(rates: np.ndarray) -> float:
    """Lambda of a leg from its rates of refusals."""
    return float(np.sum(rates))


def spread_betas(betas: np.ndarray, rates: np.ndarray, n: int) -> np.ndarray:
    """The schedule of `n` + 1 betas with equal rates, from the `rates` between the present ones.

    Where neighbours hardly ever exchange, their rate tells neither how far the laws are apart nor where
    between them the law changes. There the new betas are orders of magnitude apart, so that the next rounds
    find the place. Parameters with a lower limit need it: the logs of their densities fall like -e^u, so that
    a broad reference may exchange with a rung whose beta is 1e-10 only.
    """
    rates = np.maximum(rates, _LEAST_RATE)
    along, places = np.concatenate(([0.0], np.cumsum(rates))), np.linspace(0.0, np.sum(rates), n + 1)
    found = np.asarray(PchipInterpolator(along, betas)(places))
    edge = np.clip(np.searchsorted(along, places) - 1, 0, len(rates) - 1)
    high, share = betas[edge + 1], (places - along[edge]) / rates[edge]
    low = np.maximum(betas[edge], _DEEPEST * high)
    found = np.where(rates[edge] > _SHUT, low ** (1.0 - share) * high**share, found)
    found[0], found[-1] = 0.0, 1.0
    return np.maximum.accumulate(found)


def count_rungs(lambdas: Sequence[float], most: int) -> list[int]:
    """The numbers of rungs of legs, without the posterior's, at which round trips cost least.

    Where they would be more than `most` together, the longest legs have fewer.
    """
    numbers = [max(int(np.ceil(2.0 * own + 1.0)), 2) for own in lambdas]
    while sum(numbers) > most:
        numbers[int(np.argmax(numbers))] -= 1
    return numbers


def log_ratios(constants: np.ndarray, log_sums: np.ndarray) -> np.ndarray:
    """Logs of Z_(j+1) / Z_j (K - 1,), from logs of sums (B, K - 1, 2) of both logistic terms."""
    totals = np.logaddexp.reduce(log_sums, axis=0)
    with np.errstate(invalid="ignore"):
        return np.asarray(constants + totals[:, 0] - totals[:, 1])


class LegEvidence(NamedTuple):
    """An estimate of the log of the integral of p, up to the constants that the program leaves out."""

    log_integral: float
    standard_error: float


def leg_evidence(constants: np.ndarray, log_sums: np.ndarray, edges: slice, sign: float) -> LegEvidence:
    """What a leg says of the integral of p; `sign` is -1.0 where its edges lead away from the posterior.

    The standard error is that of the sum of all terms to first order, by the batches of draws, whose
    correlation counts.
    """
    log_sums = log_sums[:, edges]
    estimate = sign * float(log_ratios(constants[edges], log_sums).sum())
    b = len(log_sums)
    if b < 4:
        return LegEvidence(estimate, np.nan)
    with np.errstate(all="ignore"):
        shares = b * np.exp(log_sums - np.logaddexp.reduce(log_sums, axis=0)) - 1.0
    influence = (shares[..., 0] - shares[..., 1]).sum(axis=1)
    return LegEvidence(estimate, float(np.sqrt(long_run_variance(influence) / b)))


def long_run_variance(series: np.ndarray) -> float:
    """b times the variance of the mean of a series (b,).

    It is the larger one of two estimates. Geyer's initial monotone sequence (1992) sees correlations that are
    strong and short. But the rungs of the broad leg change slowly, and the posterior's rung exchanges with
    them, which makes a correlation that is weak and long. The means of `_LONG` long batches see that.
    """
    away = series - series.mean()
    b = len(away)
    covariances = np.array([away[: b - lag] @ away[lag:] / b for lag in range(b)])
    pairs = covariances[: b - b % 2].reshape(-1, 2).sum(axis=1)
    negative = np.flatnonzero(pairs <= 0.0)
    pairs = np.minimum.accumulate(pairs[: negative[0] if len(negative) else len(pairs)])
    found = max(2.0 * float(pairs.sum()) - covariances[0], _LEAST_VARIANCE * covariances[0])
    length = b // _LONG
    if length > 1:
        means = series[b % length :].reshape(-1, length).mean(axis=1)
        found = max(found, length * float(means.var(ddof=1)))
    return float(found)


def combine_legs(broad: LegEvidence, fitted: LegEvidence) -> LegEvidence:
    """Both legs in one estimate. Each has the weight of its precision."""
    errors = np.array([broad.standard_error, fitted.standard_error])
    logs = np.array([broad.log_integral, fitted.log_integral])
    usable = np.isfinite(logs) & np.isfinite(errors) & (errors > 0.0)
    if not usable.all():
        return fitted if usable[1] or not usable[0] else broad
    weights = errors**-2 / np.sum(errors**-2)
    # Draws of the posterior's rung are in both, so that the errors are not independent: the sum is on the
    # safe side.
    return LegEvidence(float(weights @ logs), float(weights @ errors))
