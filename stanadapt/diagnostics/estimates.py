"""Estimates from draws with their Monte Carlo standard errors: means, standard deviations and quantiles.

The errors are those of Vehtari, Gelman, Simpson, Carpenter and Bürkner (2021), Section 4, and equal arviz's.
A standard error is an estimate itself, and a bad one from few effective draws, or of heavy tails. Its degrees
of freedom say how good: of n independent draws whose kurtosis is k, the estimated variance of the mean has
2 n / (k - 1) of them (Satterthwaite), which is n for normal draws. Effective draws stand in for n here, and
count for a share `_SHARE` only, because autocorrelations are estimated too. The error of a quantile is read
from the distance of two draws, and is as good as the number of effective draws between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import betaincinv, ndtr, stdtr

from .convergence import effective_size, indicator_size, quantiles

QUANTILES = {"q5": 0.05, "q50": 0.5, "q95": 0.95}
STATISTICS = ("mean", "sd", *QUANTILES)
_SHARE = 0.25  # tests/unit/test_estimates.py has how often chance is taken for a difference with it
_ONE_SD = (float(ndtr(-1.0)), float(ndtr(1.0)))


class Estimates(NamedTuple):
    """The statistics of k scalars, arrays (k, s) in the order of STATISTICS. NaN: it is not known."""

    value: np.ndarray
    error: np.ndarray  # standard errors; 0 where the value is exact
    size: np.ndarray  # effective sample sizes; infinity where it is exact
    dof: np.ndarray  # degrees of freedom of the squared errors

    @classmethod
    def of(cls, draws: np.ndarray) -> Estimates:
        """Of draws (k, chains, n), at least four of each chain."""
        k = len(draws)
        flat = draws.reshape(k, -1)
        with np.errstate(all="ignore"):  # constants, and draws that overflow
            mean = flat.mean(axis=1)
            columns = [_mean(draws, flat)]
            squares = np.square(draws - mean[:, None, None])
            of_squares = _mean(squares, squares.reshape(k, -1))
            sd = flat.std(axis=1, ddof=1)
            columns.append((sd, of_squares[1] / (2.0 * sd), *of_squares[2:]))
            ordered = np.sort(flat, axis=1)
            columns += [_quantile(draws, ordered, p) for p in QUANTILES.values()]
        return cls(*(np.stack(parts, axis=1) for parts in zip(*columns, strict=True)))

    def part(self, chosen: np.ndarray) -> Estimates:
        """Of some of the scalars."""
        return Estimates(*(array[chosen] for array in self))


def combine(parts: Sequence[Estimates]) -> Estimates:
    """What independent estimates of the same quantities say together.

    They are weighed by effective sample sizes rather than by errors, which are the noisier ones. What one of
    them does not know is taken from the others.
    """
    value, error, size, dof = (np.stack(arrays) for arrays in zip(*parts, strict=True))
    known = np.isfinite(value) & np.isfinite(error) & (size > 0.0)
    weight = np.where(known, size, 0.0)
    exact = np.isinf(weight)
    weight = np.where(exact.any(axis=0), exact.astype(float), weight)
    with np.errstate(all="ignore"):
        weight /= weight.sum(axis=0)
        variance = np.where(known, (weight * error) ** 2, 0.0)
        total = variance.sum(axis=0)
        together = np.where(known, weight * value, 0.0).sum(axis=0)
        freedom = total**2 / np.where(known, variance**2 / dof, 0.0).sum(axis=0)
    unknown = ~known.any(axis=0)
    return Estimates(
        np.where(unknown, np.nan, together),
        np.where(unknown, np.nan, np.sqrt(total)),
        np.where(known, size, 0.0).sum(axis=0),
        np.where(total > 0.0, freedom, np.inf),
    )


class Contrast(NamedTuple):
    """Estimates against others, arrays (k, s)."""

    z: np.ndarray  # difference in standard errors of both; NaN where one is not known
    p_value: np.ndarray  # of a difference of that size by chance; 1 where one is not known


def contrast(one: Estimates, other: Estimates) -> Contrast:
    """How far two independent estimates of the same quantities are from each other.

    The law of z is taken for Student's, with the degrees of freedom of Welch (1947).
    """
    with np.errstate(all="ignore"):
        variances = np.stack((one.error**2, other.error**2))
        total = variances.sum(axis=0)
        difference = one.value - other.value
        z = np.where(difference == 0.0, 0.0, difference / np.sqrt(total))
        dof = total**2 / (variances**2 / np.stack((one.dof, other.dof))).sum(axis=0)
        p_value = 2.0 * stdtr(np.where(np.isfinite(dof), dof, 1e12), -np.abs(z))
    unknown = np.isnan(z)
    return Contrast(z, np.where(unknown, 1.0, p_value))


def _mean(draws: np.ndarray, flat: np.ndarray) -> tuple[np.ndarray, ...]:
    """Value, error, effective size and degrees of freedom (k,) of the mean of draws (k, chains, n)."""
    mean, sd, size = flat.mean(axis=1), flat.std(axis=1, ddof=1), effective_size(draws)
    centred = np.square((flat - mean[:, None]) / sd[:, None])
    kurtosis = np.square(centred).mean(axis=1)
    return mean, sd / np.sqrt(size), size, _freedom(size, kurtosis)


def _quantile(draws: np.ndarray, ordered: np.ndarray, p: float) -> tuple[np.ndarray, ...]:
    """The same for a quantile.

    The share of draws up to it is like that of independent ones, so the quantile is where one standard error
    around p is in the order of draws.
    """
    n = ordered.shape[1]
    value = quantiles(ordered, p)
    size = indicator_size(draws, value)
    ends = betaincinv(size * p + 1.0, size * (1.0 - p) + 1.0, np.array(_ONE_SD)[:, None])
    known = np.isfinite(ends).all(axis=0)
    low, high = np.where(known, ends, p) * n
    rows = np.arange(len(ordered))
    below = ordered[rows, np.clip(np.floor(low).astype(int), 1, n) - 1]
    above = ordered[rows, np.clip(np.ceil(high).astype(int), 1, n) - 1]
    error = np.where(known, (above - below) / 2.0, np.nan)
    between = 2.0 * np.sqrt(size * p * (1.0 - p))  # effective draws that the error is measured by
    dof = 1.0 / (1.0 / _freedom(size, 1.0 / (p * (1.0 - p)) - 3.0) + 1.0 / between)
    return value, error, size, dof


def _freedom(size: np.ndarray, kurtosis: np.ndarray | float) -> np.ndarray:
    """Degrees of freedom of a squared error from so many effective draws: at least one.

    A kurtosis below the normal's earns no more, since the law of a mean of few draws is not quite normal.
    """
    return np.asarray(np.maximum(_SHARE * 2.0 * size / np.maximum(kurtosis - 1.0, 2.0), 1.0))
