"""The law of series of innovations, from regressions on the terms before at a design of their heads."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from ..field import KNOTS, OWN_FEATURES, Field, feature_values, n_features, write_features
from .law_fit import bounded_features, scale_features

FIRST = 1e-3  # a smaller regression, beside the largest, is none
_RATES = 1.0, 2.0  # of logistic functions of the heads
_TEMPER, _LEAST_WEIGHT = 6.0, 0.05  # a point counts by the normal density, to the power 1 / _TEMPER
_CUTOFF = 1e-7
# Of the features of a first term, whose scale is one of these, in units, or lies between; the places that are
# tried with each.
_SPREADS, _SPREAD_STEP = tuple(np.geomspace(0.125, 1.0, 7)), np.log(2.0) / 2.0
_FEW_PLACES = 8
_SOME = 50  # entries that tell which features are best


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
    `middle` (m,), in `unit` (m,); the first move is none. On a head that never moves rho does not depend.

    `own` (n,) are the innovations, and `scales` (n,) those of the heads by whose exponentials they are
    multiplied; -1 for none.
    """
    rho, heights, places = rho.copy(), -0.5 * np.square(moves).sum(axis=1), middle + moves * unit
    order, n = rho.shape[1:]
    log_scales = _separate_first(rho[:, 0]) if order == 1 else np.zeros((len(rho), n))
    # A field's order is that of elimination: the last innovation first. Each has entries for those before.
    lags = [(t, lag) for t in range(n - 1, -1, -1) for lag in range(1, min(order, t) + 1)]
    times, steps = np.array(lags).T
    best, of_rho, of_s = _best_fits(places, -rho[:, steps - 1, times], log_scales[:, ::-1], heights, unit)
    none, zeros = np.zeros((0, of_rho.basis.shape[1])), np.zeros((1, n))
    by_scales, of_scales = _log_scale_features(heads, best.mid, best.scale, scales[::-1])
    of_scales[0] += of_s.coefficients[0]
    basis_of_s = np.concatenate((of_s.basis, by_scales))
    of_scales = np.concatenate((of_scales[:1], of_s.coefficients[1:], of_scales[1:]))
    return Field(
        heads,
        best.mid,
        best.scale,
        best.rate,
        (basis_of_s, none, of_rho.basis),
        np.zeros(n),
        own[::-1].copy(),
        np.append(0, np.cumsum(np.minimum(np.arange(n - 1, -1, -1), order))),
        n - 1 - times + steps,
        (of_scales, zeros, of_rho.coefficients),
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


class _Place(NamedTuple):
    """Of the features."""

    knots: tuple[int, ...]  # of each head, which one is at 0; if it is KNOTS, the middle is the first point
    rates: tuple[float, ...]


class _Features(NamedTuple):
    """At a design."""

    mid: np.ndarray  # (m,)
    scale: np.ndarray  # (m,)
    rate: np.ndarray  # (m,)
    values: np.ndarray  # (p, F)


class _Fit(NamedTuple):
    """Entries as combinations of features."""

    basis: np.ndarray  # (r, F)
    coefficients: np.ndarray  # (r + 1, e)


def _best_fits(
    thetas: np.ndarray, entries: np.ndarray, log_scales: np.ndarray, heights: np.ndarray, unit: np.ndarray
) -> tuple[_Features, _Fit, _Fit]:
    """The features of the best fits, and these: to entries (p, e) and to log scales (p, n) at the heads
    (p, m), exact at the first of them.

    An autocorrelation phi is mostly a logistic function of a head. With a knot at 0 features have it exactly.
    The log scale of the first term, -log(1 - phi) / 2 - log(1 + phi) / 2, has a second knot, where it is
    depends on the bounds of phi. If two knots are as far from each other, features have it exactly, too.
    Precise data hold the first term as closely as all others.
    """
    m, moved = thetas.shape[1], np.ptp(thetas, axis=0) > 0.0
    weights = np.maximum(np.exp(heights / _TEMPER), _LEAST_WEIGHT)
    of_entries, of_scales = _features_of(moved, bounded_features(m)), _features_of(moved, scale_features(m))
    some, first = entries[:, :: 1 + entries.shape[1] // _SOME], log_scales[:, log_scales.any(axis=0)]

    def features(place: _Place, spread: float) -> _Features:
        at, scale = np.array(place.knots), spread * unit
        mid, rate = np.where(at < KNOTS, (KNOTS - 1 - 2 * at) * scale, thetas[0]), np.array(place.rates)
        values = np.empty((len(thetas), n_features(m)))
        write_features(thetas, mid, scale, rate, values)
        return _Features(mid, scale, rate, values)

    def loss(place: _Place, spread: float) -> float:
        values = features(place, spread).values
        of_rho = _least_squares(values[:, of_entries], some, weights)[1]
        of_first = _least_squares(values[:, of_scales], first, weights)[1]
        # The first steps of a series may depend on the heads in another way than all others do.
        return float(np.median(of_rho) + of_first.sum())

    places = [
        _Place(knots, rates)
        for knots in itertools.product(*([KNOTS, *range(KNOTS)] if moves else [KNOTS] for moves in moved))
        for rates in itertools.product(*(_RATES if moves else _RATES[:1] for moves in moved))
    ]
    places, spread = sorted(places, key=lambda place: loss(place, 1.0)), 1.0
    place = places[0]
    if first.size:
        from scipy.optimize import minimize_scalar  # here, since few runs come to it

        spreads = itertools.product(places[:_FEW_PLACES], _SPREADS)
        place, spread = min(spreads, key=lambda choice: loss(*choice))
        around = np.log(spread) - _SPREAD_STEP, np.log(spread) + _SPREAD_STEP
        found = minimize_scalar(
            lambda log: loss(place, np.exp(log)), bounds=around, method="bounded", options={"xatol": 1e-5}
        )
        spread = float(np.exp(found.x))
    best = features(place, spread)
    values = best.values
    return best, _fit(values, entries, weights, of_entries), _fit(values, log_scales, weights, of_scales)


def _features_of(moved: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Of the features `chosen` (c,), those that depend on no head but those that are `moved` (m,)."""
    m = len(moved)
    values, slopes = np.empty(n_features(m)), np.empty((n_features(m), m))
    feature_values(np.full(m, 0.3), np.zeros(m), np.ones(m), np.ones(m), values, slopes)  # any place does
    return np.asarray([feature for feature in chosen if not slopes[feature, ~moved].any()], np.int64)


def _fit(values: np.ndarray, entries: np.ndarray, weights: np.ndarray, chosen: np.ndarray) -> _Fit:
    """The fit to entries (p, e) by those of the features (p, F) that are `chosen`, with weights (p,)."""
    found, _ = _least_squares(values[:, chosen], entries, weights)
    left, sizes, right = np.linalg.svd(found, full_matrices=False)
    r = int(np.count_nonzero(sizes > _CUTOFF * max(sizes.max(initial=0.0), 1.0)))
    basis = np.zeros((r, values.shape[1]))
    basis[:, chosen] = left[:, :r].T
    coefficients = sizes[:r, None] * right[:r]
    constant = entries[0] - (basis @ values[0]) @ coefficients
    return _Fit(basis, np.concatenate((constant[None], coefficients)))


def _least_squares(
    values: np.ndarray, entries: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients (c, e) of features (p, c) that fit entries (p, e), exactly at the first point, and the
    weighted sum of squared errors (e,) of each.
    """
    root = np.sqrt(weights[1:, None])
    moves, changes = root * (values[1:] - values[0]), root * (entries[1:] - entries[0])
    found = np.linalg.lstsq(moves, changes, rcond=_CUTOFF)[0]
    return found, np.square(moves @ found - changes).sum(axis=0)
