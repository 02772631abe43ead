"""The law of series of innovations, from regressions on the terms before at a design of their heads."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from ..field import KNOTS, OWN_FEATURES, Field, n_features, write_features
from .law_fit import bounded_features, scale_features

FIRST = 1e-3  # a smaller regression, beside the largest, is none
_RATES = 1.0, 2.0  # of logistic functions of the heads
_TEMPER, _LEAST_WEIGHT = 6.0, 0.05  # a point counts by the normal density, to the power 1 / _TEMPER
_CUTOFF = 1e-7


def fit_innovations(
    moves: np.ndarray,
    rho: np.ndarray,
    heads: np.ndarray,
    middle: np.ndarray,
    unit: np.ndarray,
    own: np.ndarray,
    scales: np.ndarray,
) -> Field:
    """The law of series with regressions `rho` (q, order, n), after `moves` (q, m) of their heads from the
    `middle` (m,), in `unit` (m,); the first move is none.

    `own` (n,) are the innovations, and `scales` (n,) those of the heads by whose exponentials they are
    multiplied; -1 for none.
    """
    rho, heights, places = rho.copy(), -0.5 * np.square(moves).sum(axis=1), middle + moves * unit
    order, n = rho.shape[1:]
    log_scales = _separate_first(rho[:, 0]) if order == 1 else np.zeros((len(rho), n))
    # A field's order is that of elimination: the last innovation first. Each has entries for those before.
    lags = [(t, lag) for t in range(n - 1, -1, -1) for lag in range(1, min(order, t) + 1)]
    times, steps = np.array(lags).T
    best = _best_fit(places, -rho[:, steps - 1, times], heights, unit)
    of_s = _fit_features(
        places,
        log_scales[:, ::-1],
        heights,
        best.mid,
        unit,
        best.rate,
        scale_features(len(heads)),
    )
    none, zeros = np.zeros((0, best.basis.shape[1])), np.zeros((1, n))
    by_scales, of_scales = _log_scale_features(heads, best.mid, unit, scales[::-1])
    of_scales[0] += of_s.coefficients[0]
    basis_of_s = np.concatenate((of_s.basis, by_scales))
    of_scales = np.concatenate((of_scales[:1], of_s.coefficients[1:], of_scales[1:]))
    return Field(
        heads,
        best.mid,
        unit,
        best.rate,
        (basis_of_s, none, best.basis),
        np.zeros(n),
        own[::-1].copy(),
        np.append(0, np.cumsum(np.minimum(np.arange(n - 1, -1, -1), order))),
        n - 1 - times + steps,
        (of_scales, zeros, best.coefficients),
    )


def scaling_law(
    heads: np.ndarray, middle: np.ndarray, unit: np.ndarray, own: np.ndarray, scales: np.ndarray
) -> Field:
    """The law of innovations `own` (n,) without regressions, each multiplied by the exponential of a head.

    `scales` (n,) has the head of each. The `heads` (m,) are at `middle` (m,), in `unit` (m,).
    """
    n, f = len(own), n_features(len(heads))
    basis, coefficients = _log_scale_features(heads, middle, unit, scales)
    return Field(
        heads,
        middle,
        unit,
        np.ones(len(heads)),
        (basis, np.zeros((0, f)), np.zeros((0, f))),
        np.zeros(n),
        own,
        np.zeros(n + 1, np.int64),
        np.zeros(0, np.int64),
        (coefficients, np.zeros((1, n)), np.zeros((1, 0))),
    )


def _log_scale_features(
    heads: np.ndarray, mid: np.ndarray, unit: np.ndarray, scales: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The basis (r, F) and coefficients (r + 1, n) of log scales that are themselves heads: `scales` (n,), -1
    for none.
    """
    basis, coefficients = np.zeros((0, n_features(len(heads)))), np.zeros((1, len(scales)))
    for j in np.flatnonzero(np.isin(heads, scales)):
        own_feature = np.zeros((1, basis.shape[1]))
        own_feature[0, OWN_FEATURES * j] = 1.0  # (theta - mid) / scale
        scaled = (scales == heads[j]).astype(float)
        basis = np.concatenate((basis, own_feature))
        coefficients = np.concatenate((coefficients, unit[j] * scaled[None]))
        coefficients[0] += mid[j] * scaled
    return basis, coefficients


def _separate_first(rho: np.ndarray) -> np.ndarray:
    """The log scales s (q, n) with which a second term follows the first one as the third does the second.

    A series that begins with its stationary law has a first term whose scale grows without bounds, and so
    does its second rho (q, n), which is changed. A series begins where rho is 0.
    """
    log_scales = np.zeros(rho.shape)
    is_first = np.abs(rho[0]) < FIRST * np.abs(rho[0]).max()
    for begin in np.flatnonzero(is_first[:-2] & ~is_first[1:-1] & ~is_first[2:]):
        second, third = rho[:, begin + 1], rho[:, begin + 2]
        if np.all(second * third > 0.0):
            log_scales[:, begin] = np.log(second / third)
            rho[:, begin + 1] = third
    return log_scales


class _Fit(NamedTuple):
    """Entries as combinations of features."""

    mid: np.ndarray  # (m,) of the features
    rate: np.ndarray  # (m,)
    basis: np.ndarray  # (r, F)
    coefficients: np.ndarray  # (r + 1, e)
    lost: float  # the weighted sum of squared errors of an entry


def _best_fit(thetas: np.ndarray, entries: np.ndarray, heights: np.ndarray, scale: np.ndarray) -> _Fit:
    """The best fit to entries (p, e) at the heads (p, m), exact at the first of them.

    An autocorrelation is mostly a logistic function of a head. With a knot at 0 features have it exactly.
    """
    m = thetas.shape[1]
    mids = [
        (theta, *(-(2 * i + 1 - KNOTS) * one for i in range(KNOTS)))
        for theta, one in zip(thetas[0], scale, strict=True)
    ]
    fits = [
        _fit_features(thetas, entries, heights, np.array(mid), scale, np.array(rate), bounded_features(m))
        for mid in itertools.product(*mids)
        for rate in itertools.product(_RATES, repeat=m)
    ]
    return min(fits, key=lambda fit: fit.lost)


def _fit_features(
    thetas: np.ndarray,
    entries: np.ndarray,
    heights: np.ndarray,
    mid: np.ndarray,
    scale: np.ndarray,
    rate: np.ndarray,
    chosen: np.ndarray,
) -> _Fit:
    """The fit by least squares, by some of these features."""
    weights = np.maximum(np.exp(heights / _TEMPER), _LEAST_WEIGHT)
    f = n_features(len(mid))
    values = np.empty((len(thetas), f))
    write_features(thetas, mid, scale, rate, values)
    moves, changes = values[1:, chosen] - values[0, chosen], entries[1:] - entries[0]
    root = np.sqrt(weights[1:, None])
    found = np.linalg.lstsq(root * moves, root * changes, rcond=_CUTOFF)[0]
    # The first steps of a series may depend on the heads in another way than all others do.
    lost = float(np.median(np.square(root * (moves @ found - changes)).sum(axis=0)))
    left, sizes, right = np.linalg.svd(found, full_matrices=False)
    r = int(np.count_nonzero(sizes > _CUTOFF * max(sizes.max(initial=0.0), 1.0)))
    basis = np.zeros((r, f))
    basis[:, chosen] = left[:, :r].T
    coefficients = sizes[:r, None] * right[:r]
    constant = entries[0] - (basis @ values[0]) @ coefficients
    return _Fit(mid, rate, basis, np.concatenate((constant[None], coefficients)), lost)
