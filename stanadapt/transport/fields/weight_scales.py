"""The forms of the scales of weights (weights.py): what fits log scales that are seen along each head.

They are sums of functions of one head each; or s^-2 is a sum of two products of such functions, one of which
has the heads that act on one weight alone; or squares of scales are shares of one variance.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..weights import ALL, ERROR, LIMITS, NO_LIMIT
from ..weights_table import Curve, Weights
from .effects_search import POWERS

SAME = 1e-5  # change of a log scale that is none
CLOSE = 0.05  # error of log scales that a form may have
_STRAIGHT = 1e-4  # share of the largest value by which a line may be off
_WRONG = 1e-4  # share of s^-2, or of one variance, that a form may leave
_SHARED = ALL, ERROR  # targets of what `Along.shared_part` has


class Scales(NamedTuple):
    """How scales depend on heads."""

    offsets: np.ndarray  # (2, K) of weights
    norms: np.ndarray  # (K,) of weights
    curves: list[Curve]


def line_through(away: np.ndarray, values: np.ndarray) -> np.ndarray | None:
    """The slopes (c,) of values (n, c) that are 0 where `away` (n,) is; None where they are no lines."""
    slopes = away @ values / (away @ away)
    off = np.abs(values - away[:, None] * slopes).max()
    return np.asarray(slopes) if off < _STRAIGHT * np.abs(values).max() else None


class Along(NamedTuple):
    """Log scales and log f, the last column, along a head: at some points, or at one where they are lines."""

    head: int
    away: np.ndarray  # (n,) from where the head is at `x`
    values: np.ndarray  # (n, K + 1)
    slopes: np.ndarray  # (n, K + 1)

    def in_use(self) -> np.ndarray:
        """Which columns (K + 1,) change."""
        return np.asarray((np.abs(self.values).max(axis=0) > SAME) | (np.abs(self.slopes).max(axis=0) > SAME))

    def is_shared(self) -> bool:
        """Whether all scales change in the same way."""
        columns = np.stack((self.values[:, :-1], self.slopes[:, :-1]))
        return bool(np.ptp(columns, axis=2).max() < SAME)

    def shared_part(self) -> Along:
        """What all scales have in common, and log f."""
        return self._replace(values=self.values[:, [0, -1]], slopes=self.slopes[:, [0, -1]])

    def curves(self, x: np.ndarray, targets: Sequence[float]) -> list[Curve]:
        """The curves that are not 0, with a target for each column."""
        place, found = float(x[self.head]), []
        for column in np.flatnonzero(self.in_use()).tolist():
            shape = self.away + place, self.values[:, column], self.slopes[:, column]
            found.append(Curve(self.head, int(targets[column]), *shape, place))
        return found


def sums_of_curves(along: Sequence[Along], x: np.ndarray) -> Scales | None:
    """Log scales as sums of functions of one head each."""
    k = along[0].values.shape[1] - 1
    curves: list[Curve] = []
    for one in along:
        curves += (
            one.shared_part().curves(x, _SHARED) if one.is_shared() else one.curves(x, (*range(k), ERROR))
        )
    return Scales(without_limits(k), np.zeros(k), curves)


def without_limits(k: int) -> np.ndarray:
    """The offsets (2, K) of log scales that are what they were, and have no upper limits."""
    return np.array([np.zeros(k), np.full(k, NO_LIMIT)])


def shares_of_variance(along: Sequence[Along], x: np.ndarray) -> Scales | None:
    """Log scales whose squares are shares of one variance: those of weights differ by lines in some heads."""
    k = along[0].values.shape[1] - 1
    terms, sums = [np.ones(k)], [np.ones(1)]
    curves: list[Curve] = []
    for one in along:
        if one.is_shared():
            curves += one.shared_part().curves(x, _SHARED)
            continue
        common = one.values[:, :k].mean(axis=1)
        apart = line_through(one.away, one.values[:, :k] - common[:, None]) if len(one.away) > 1 else None
        if apart is None or np.abs(one.values[:, k]).max() > SAME:
            return None
        lines = Along(one.head, np.zeros(1), np.zeros((1, k)), apart[None])
        curves += lines.curves(x, range(k))
        terms.append(np.exp(2.0 * (one.away[:, None] * apart + common[:, None])))
        sums.append(np.ones(len(one.away)))
    if len(terms) == 1:
        return None
    from scipy.optimize import nnls  # here, since few runs come to it

    design, target = np.concatenate([np.atleast_2d(rows) for rows in terms]), np.concatenate(sums)
    norms, _ = nnls(design, target)
    if not np.abs(design @ norms - target).max() < _WRONG:
        return None
    return Scales(without_limits(k), norms, curves)


def with_limits(along: Sequence[Along], x: np.ndarray) -> Scales | None:
    """Log scales with an upper limit: s^-2 is a sum of two products, and heads that act on one weight alone
    are log scales, variances or precisions in the first of them.
    """
    k = along[0].values.shape[1] - 1
    shares, shared = np.full((k, 2), np.nan), []  # of both products in s^-2 at x
    curves: list[Curve] = []
    for one in along:
        own = np.flatnonzero(one.in_use())
        if len(own) == 1 and own[0] < k and np.isnan(shares[own[0], 0]):
            found = _own_power(one.away, one.values[:, own[0]], one.slopes[0, own[0]])
            if found is None:
                return None
            power, shares[own[0]] = found
            line = Along(one.head, np.zeros(1), np.zeros((1, 1)), np.array([[power]]))
            curves += line.curves(x, own.tolist())
        else:
            shared.append(one)
    if not (np.isfinite(shares).all() and shares[:, 1].max() > 0.0):
        return None
    for one in shared:
        parts = _both_products(one, shares)
        if parts is None:
            return None
        curves += parts.curves(x, (ALL, LIMITS, ERROR))
    with np.errstate(divide="ignore"):
        return Scales(np.minimum(-0.5 * np.log(shares.T), NO_LIMIT), np.zeros(k), curves)


def _own_power(away: np.ndarray, values: np.ndarray, slope: float) -> tuple[float, np.ndarray] | None:
    """The power with which a head acts on the first product of one weight, and the shares (2,) of both, from
    the log scales (n,) along it; None where it does not act so. With one point they are a line.
    """
    if len(away) == 1:
        return float(slope), np.array([1.0, 0.0])
    for power in POWERS:
        terms = np.column_stack((np.exp(-2.0 * power * away), np.ones(len(away))))
        design = terms * np.exp(2.0 * values)[:, None]
        shares = np.linalg.lstsq(design, np.ones(len(away)))[0]
        if np.abs(design @ shares - 1.0).max() < _WRONG and shares[0] > 0.0:
            shares[1] = max(shares[1], 0.0)
            return power, np.asarray(shares / shares.sum())
    return None


def _both_products(one: Along, shares: np.ndarray) -> Along | None:
    """What a head that acts on several weights does to the logs of both limits of scales, and to log f."""
    k = len(shares)
    if len(one.away) == 1:  # lines, which are alike
        slopes = one.slopes[0]
        if np.ptp(slopes[:k]) > SAME:
            return None
        return one._replace(values=np.zeros((1, 3)), slopes=slopes[None, [0, 0, k]])
    design = shares * np.exp(2.0 * one.values[:, :k, None])
    parts = np.array([np.linalg.lstsq(rows, np.ones(k))[0] for rows in design])
    left = np.einsum("nkp,np->nk", design, parts) - 1.0
    if not (np.abs(left).max() < CLOSE and parts.min() > 0.0):
        return None
    values = np.column_stack((-0.5 * np.log(parts), one.values[:, k]))
    # Slopes of log scales are means of those of both limits, with the shares of these as weights.
    both = shares * parts[:, None, :] * np.exp(2.0 * one.values[:, :k, None])
    slopes = np.array([np.linalg.lstsq(rows, s)[0] for rows, s in zip(both, one.slopes[:, :k], strict=True)])
    return one._replace(values=values, slopes=np.column_stack((slopes, one.slopes[:, k])))


def largest_error(
    found: Scales | None, points: np.ndarray, truth: tuple[np.ndarray, np.ndarray], data: np.ndarray
) -> float:
    """The largest error of log scales and log f at points (n, d), where these are known.

    Scales so small that the `data` (K,), the precision of weights at `x`, tell nothing count for less.
    """
    change, log_f = truth
    known = np.isfinite(change).all(axis=1) & np.isfinite(log_f)
    if found is None or np.count_nonzero(known) < len(points) // 2:
        return np.inf
    k = found.offsets.shape[1]
    own, nothing = np.arange(k), np.zeros(0)
    law = Weights(
        own, own >= 0, np.zeros((2, k)), *found[:2], np.zeros((k, k)), nothing, own[:0], nothing, found.curves
    )
    change, log_f = change[known], log_f[known]
    told, errors = law.log_scales_at_all(points[known][:, law.heads])
    size = data * np.exp(2.0 * change + log_f[:, None])
    off = np.abs(told - change) * size / (1.0 + size)
    return float(max(off.max(initial=0.0), np.abs(errors - log_f).max(initial=0.0)))
