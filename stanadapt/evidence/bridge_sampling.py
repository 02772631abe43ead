"""Bridge sampling: the integral of a density from draws of it and of a proposal.

Meng and Wong (1996), Simulating ratios of normalizing constants via a simple identity, with the bridge that
is optimal for independent draws; Gronau et al. (2017), A tutorial on bridge sampling. The error is that of
Frühwirth-Schnatter (2004), Estimating marginal likelihoods for mixture and Markov switching models.

    paper      here                      shape   meaning
    q          exp(log density)                  posterior density that is not normalised
    g          the proposal's density            normalised
    r          exp(log_integral)                 integral of q
    l_1        at_draws                  (C, n)  log q - log g at draws of the posterior, by chain
    l_2        at_proposals              (m,)    log q - log g at draws of the proposal
    N_1        effective                         draws of the posterior, counted by their effective size
    N_2        m
    f_1, f_2   log_share, log_rest               of proposals and draws, up to constants

The paper's iteration has its fixed point where

    N_1 mean 1 / (1 + exp(l_1 - log r + M)) = N_2 mean 1 / (1 + exp(-(l_2 - log r + M))),
    M = log(N_1 / N_2)

The left side increases with log r and the right side decreases. So the point is found as a root, on
logarithms: it exists and is found whatever the densities' scale is.

Departures from the papers: none in the estimate; N_1 is the effective size for the function f_2 itself, and
not a median over parameters.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_expit, logsumexp

from ..diagnostics.convergence import effective_size


class Bridge(NamedTuple):
    """The log of an integral with its error."""

    log_integral: float
    draw_error: float  # the part of the standard error of the log that comes from draws of the posterior
    proposal_error: float  # and that from draws of the proposal
    by_chain: np.ndarray  # (C,) the same from the draws of each chain
    chain_errors: np.ndarray  # (C,) their errors, without that of the proposal's draws, which they share
    effective_draws: float  # of the posterior
    effective_proposals: float

    @property
    def standard_error(self) -> float:
        """Of the log of the integral."""
        return float(np.hypot(self.draw_error, self.proposal_error))


def bridge(at_draws: np.ndarray, at_proposals: np.ndarray) -> Bridge:
    """The integral of q from log ratios of q and g at draws of either.

    Parameters
    ----------
    at_draws
        log q - log g at the posterior's draws, (C, n), finite.
    at_proposals
        The same at the proposal's draws, (m,); -inf where q is zero.

    Returns
    -------
    Bridge
        NaN where q is zero at all of the proposal's draws.
    """
    chains, m = len(at_draws), at_proposals.size
    if not np.isfinite(at_proposals).any():
        nowhere = np.full(chains, np.nan)
        return Bridge(np.nan, np.nan, np.nan, nowhere, nowhere, 0.0, 0.0)
    effective = float(at_draws.size)
    for _ in range(2):  # the effective size depends on the integral, which hardly depends on it
        log_ratio = np.log(effective / m)
        found = log_integral(at_draws.ravel(), at_proposals, log_ratio)
        rest = _weights(log_expit(-(at_draws - found + log_ratio)))
        effective = _size(rest)
    share = _weights(log_expit(at_proposals - found + log_ratio))
    by_chain = np.array([log_integral(each, at_proposals, log_ratio) for each in at_draws])
    chain_errors = [np.sqrt(_relative_variance(each) / _size(each[None])) for each in rest]
    return Bridge(
        found,
        float(np.sqrt(_relative_variance(rest) / effective)),
        float(np.sqrt(_relative_variance(share) / m)),
        by_chain,
        np.array(chain_errors),
        effective,
        float(m / (1.0 + _relative_variance(share))),
    )


def log_integral(at_draws: np.ndarray, at_proposals: np.ndarray, log_ratio: float) -> float:
    """The root, from log ratios (N,) and (m,); `log_ratio` is M."""

    def excess(value: float) -> float:
        left = log_expit(-(at_draws - value + log_ratio))
        right = log_expit(at_proposals - value + log_ratio)
        return float(log_ratio + logsumexp(left) - np.log(left.size) - logsumexp(right) + np.log(right.size))

    known = np.concatenate((at_draws, at_proposals[np.isfinite(at_proposals)]))
    low, high, width = float(known.min()), float(known.max()), 1.0
    while excess(low) > 0.0:
        low, width = low - width, 2.0 * width
    while excess(high) < 0.0:
        high, width = high + width, 2.0 * width
    return float(brentq(excess, low, high, xtol=1e-10)) if low < high else low


def _weights(log_values: np.ndarray) -> np.ndarray:
    """Positive values, given by their logs, in units of the largest."""
    return np.asarray(np.exp(log_values - log_values.max()))


def _relative_variance(values: np.ndarray) -> float:
    return float(values.var() / values.mean() ** 2)


def _size(values: np.ndarray) -> float:
    """Effective sample size for the mean of values (C, n)."""
    return float(effective_size(np.ascontiguousarray(values)[None])[0])
