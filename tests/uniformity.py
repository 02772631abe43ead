"""Tests of ranks that should be uniform on 0, ..., L. All take ranks of n replicates and give a p-value."""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
from scipy import stats

_BINS = 16


class PValues(NamedTuple):
    """What a set of ranks (n, k) is judged by."""

    histogram: np.ndarray  # (k,) for each quantity
    ecdf: np.ndarray  # (k,) for each quantity
    spread: float  # of all parameters together

    def smallest(self) -> tuple[float, str, int]:
        """The smallest p-value, its test, and the index of its quantity (-1: all together)."""
        found = [(self.spread, "spread", -1)]
        for name in ("histogram", "ecdf"):
            column = getattr(self, name)
            found.append((float(column.min()), name, int(column.argmin())))
        return min(found)

    def count(self) -> int:
        return self.histogram.size + self.ecdf.size + 1


def p_values(ranks: np.ndarray, kept: int) -> PValues:
    """All tests of `ranks` (n, k) among `kept` draws; the last quantity is the log likelihood."""
    columns = ranks.T
    return PValues(
        np.array([histogram(column, kept) for column in columns]),
        np.array([ecdf(column, kept) for column in columns]),
        spread(ranks[:, :-1], kept),
    )


def histogram(ranks: np.ndarray, kept: int) -> float:
    """Chi-square test of the rank histogram; Talts et al. (2018) look at its picture."""
    counts = np.bincount(ranks * _BINS // (kept + 1), minlength=_BINS)
    return float(stats.chisquare(counts).pvalue)


def ecdf(ranks: np.ndarray, kept: int) -> float:
    """Test by the simultaneous band around the empirical distribution function of the ranks.

    The statistic is the smallest of the binomial tests at every step of the distribution function; its own
    p-value is exact. Säilynoja, Bürkner and Vehtari (2022), Graphical test for discrete uniformity and its
    applications in goodness-of-fit evaluation and multiple sample comparison.
    """
    pointwise = _pointwise(ranks.size, kept)
    below = np.cumsum(np.bincount(ranks, minlength=kept + 1))[:-1]
    smallest = pointwise[np.arange(kept), below].min()
    inside = _probability_inside(pointwise > smallest * (1 + 1e-9), ranks.size)
    return max(0.0, 1.0 - inside)


@functools.cache
def _pointwise(n: int, kept: int) -> np.ndarray:
    """Two-sided p-value of the number of ranks below i being r: (kept, n + 1), for i = 1, ..., kept."""
    share = np.arange(1, kept + 1)[:, None] / (kept + 1)
    r = np.arange(n + 1)
    return np.minimum(1.0, 2 * np.minimum(stats.binom.cdf(r, n, share), stats.binom.sf(r - 1, n, share)))


def _probability_inside(allowed: np.ndarray, n: int) -> float:
    """Probability that the number of ranks below i is an allowed one at every i.

    Counts of equal cells are Poisson variables given that their sum is n, so the numbers below are a random
    walk with independent steps, that ends at n.
    """
    step = stats.poisson.pmf(np.arange(n + 1), n / (len(allowed) + 1))
    weight = np.zeros(n + 1)
    weight[0] = 1.0
    for row in allowed:
        weight = np.convolve(weight, step)[: n + 1] * row
    return float(np.convolve(weight, step)[n] / stats.poisson.pmf(n, n))


def spread(ranks: np.ndarray, kept: int) -> float:
    """Test of the ranks' mean squared distance from the middle, over all quantities (n, k).

    Draws that are too narrow send ranks to both ends, for all parameters alike: together they show what none
    of them shows alone. Parameters of a replicate depend on one another, replicates do not: hence the t-test
    on the mean of each replicate.
    """
    levels = kept + 1
    square = 12 * ((ranks + 0.5) / levels - 0.5) ** 2
    expected = 1 - 1 / levels**2
    return float(stats.ttest_1samp(square.mean(axis=1), expected).pvalue)
