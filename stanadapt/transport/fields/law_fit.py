"""The numbers of a field's law, from modes of the latents at a design of the heads."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
import scipy.sparse as sparse

from ..field import (
    KNOTS,
    LARGEST_RATE,
    OWN_FEATURES,
    Field,
    features_at_all,
    n_differences,
    n_features,
)
from .dense import dense_precision, find_frame
from .design import Design
from .heads import MOST_HEADS
from .laplace import HeadPosterior, LatentMode
from .least_squares import products_of_pairs, weighted_least_squares
from .level import Level
from .precision import Precision

_TEMPER = 6.0  # a point counts by the density of the heads there, to the power 1 / _TEMPER,
_TEMPER_DENSE = 2.0  # of a dense law, which is never exact
_LEAST_WEIGHT = 1e-3  # but at least so much, because far out the law must have the right limits
# Of the limits: e^theta for logits and log variances, e^(2 theta) for log scales.
_POWERS = 1.0, LARGEST_RATE
# Features of differences of heads are used if they leave at most this share of the squared errors: 0.4 to 0.7
# where latents are the sum of two parts, with a scale each, and 0.9 or more elsewhere.
_WORTH = 0.8
_LEAST_TURN = 0.6  # rates are larger than this over the scale of a head, so that few heads look linear
_LEAST_UNIT = 8.0  # logarithm of the smallest unit of errors, beside the one in the middle
_RIDGE, _CUTOFF = 1e-7, 1e-6
_CUTOFF_SMOOTH = 1e-3  # so that a law does not swing between points that are near each other, or few
_COLUMNS = 60  # about so many tell the rates
_CHUNK = 2_000  # columns that are fitted at once
_NOTHING = 0.02  # an entry of a dense factor with a smaller effect, in z, at all points is left out
# Errors that a shorter basis may make, over the design: root mean square over latents, and length over all.
_TOLERANCE, _LENGTH = 0.01, 0.2
_TOLERANCE_DENSE = 0.003


class Regressions(NamedTuple):
    """What a law is fitted to: the regression of each latent on later ones, at p points of a design."""

    thetas: np.ndarray  # (p, m) the heads; the first point is the middle of the design
    heights: np.ndarray  # (p,) the log density of the heads, beside the one in the middle
    means: np.ndarray  # (p, n)
    log_scales: np.ndarray  # (p, n) s
    entries: np.ndarray  # (p, e) G, column by column
    starts: np.ndarray  # (n + 1,) where columns begin among the entries
    later: np.ndarray  # (e,) the rows of the entries
    deviations: np.ndarray  # (p, n) standard deviations of the latents


def fit_law(
    precision: Precision,
    place: HeadPosterior,
    design: Design,
    before: Field | None = None,
    *,
    smooth: bool = False,
) -> Field:
    """The law of the latents, fitted to the modes and factors of a design.

    The rates at which it reaches its limits, and whether it has features of differences, are chosen by
    trial. If there is a law that was fitted `before`, they are those of that law. It shall be `smooth` where
    the design has few points beside the features.
    """
    if precision.dense:
        return _fit_dense(precision, place, design)
    level = design.level
    thetas, modes = design.points()
    unit, own = precision.density.unit, precision.latents
    heads, scales = unit[precision.heads], unit[own]
    columns, later, entries = _entries_below([mode.factor.lower for mode in modes])
    scaled = Regressions(
        thetas * heads,
        np.array([mode.logp for mode in modes]) - place.mode.logp,
        _means_of(modes, precision, level),
        np.array([-0.5 * np.log(mode.factor.pivots) for mode in modes]),
        entries,
        np.searchsorted(columns, np.arange(own.size + 1)),
        later,
        design.deviations(),
    )
    spread = np.sqrt(np.square(place.root).sum(axis=1)) * heads
    law = fit_regressions(scaled, precision.heads, own, spread, before=before, smooth=smooth)
    s, a, g = law.coefficients
    s[0] += np.log(scales)
    coefficients = s, a * scales, g * (scales[columns] / scales[later])
    return law._replace(middle=law.middle * scales, coefficients=coefficients, level=level.numbers)


def _means_of(modes: list[LatentMode], precision: Precision, level: Level) -> np.ndarray:
    """The modes (p, n) of the latents, in units; where there is a level, as it is before it is weakened."""
    own = precision.latents
    means = np.array([mode.x[own] for mode in modes])
    if not len(level.numbers):
        return means
    first, size, factor = level.numbers
    scales, constrained = precision.density.unit[own], (own >= first) & (own < first + size)
    levels = ((means - means[0]) * scales)[:, constrained].mean(axis=1)
    means[:, constrained] += (1.0 / factor - 1.0) * levels[:, None] / scales[constrained]
    return means


def _fit_dense(precision: Precision, place: HeadPosterior, design: Design) -> Field:
    """The law of latents with a dense precision, in a frame."""
    thetas, modes = design.points()
    heads, scales = precision.density.unit[precision.heads], precision.density.unit[precision.latents]
    heights = np.array([mode.logp for mode in modes]) - place.mode.logp
    precisions = [dense_precision(mode) for mode in modes]
    frame = find_frame(precisions, np.clip(np.exp(heights / _TEMPER), _LEAST_WEIGHT, 1.0))
    n = len(frame)
    frame *= np.exp(-(np.linalg.slogdet(frame)[1] + np.log(scales).sum()) / n)
    moved = [frame.T @ one @ frame for one in precisions]
    roots = np.array([np.linalg.cholesky(one) for one in moved])
    pivots = np.diagonal(roots, axis1=1, axis2=2)
    deviations = np.sqrt([np.diag(np.linalg.inv(one)) for one in moved])
    columns, later = np.triu_indices(n, 1)  # the entries below the diagonal, column by column
    entries = (roots / pivots[:, None, :])[:, later, columns]
    effects = np.abs(entries) * deviations[:, later] * pivots[:, columns]
    kept = effects.max(axis=0) > _NOTHING
    at = np.array([mode.x[precision.latents] for mode in modes])
    data = Regressions(
        thetas * heads,
        heights,
        np.linalg.solve(frame, (at - at[0]).T).T,
        -np.log(pivots),
        entries[:, kept],
        np.concatenate(([0], np.cumsum(np.bincount(columns[kept], minlength=n)))).astype(np.int64),
        later[kept].astype(np.int64),
        deviations,
    )
    scale = np.sqrt(np.square(place.root).sum(axis=1)) * heads
    axes = design.axes / heads
    law = fit_regressions(data, precision.heads, precision.latents, scale, axes)
    return law._replace(middle=at[0] * scales, frame=frame * scales[:, None])


def fit_regressions(
    data: Regressions,
    heads: np.ndarray,
    own: np.ndarray,
    scale: np.ndarray,
    axes: np.ndarray | None = None,
    before: Field | None = None,
    *,
    smooth: bool = False,
) -> Field:
    """The law of the coordinates `own` (n,), given `heads` (m,) with standard deviations `scale` (m,).

    The precision is dense if there are `axes` (m, m), possibly 0: G may then have more features, since all of
    it changes with the heads. If the axes are not 0, each point has a bump.
    """
    m, n, none, dense = scale.size, own.size, np.empty((0, 0)), axes is not None
    columns = np.repeat(np.arange(n), np.diff(data.starts))
    weights = np.clip(np.exp(data.heights / (_TEMPER_DENSE if dense else _TEMPER)), _LEAST_WEIGHT, 1.0)
    mid, middle = data.thetas[0], data.means[0]
    offsets = data.means - middle
    # Errors count in units of z: of the scale of a latent given later ones, at each point of the design.
    units = np.exp(-np.maximum(data.log_scales, data.log_scales[0] - _LEAST_UNIT))
    units_g = data.deviations[:, data.later] * units[:, columns]
    bumps = (none, none) if axes is None or not axes.any() else (axes, (data.thetas - mid) @ axes.T)
    plain = _combinations(m, len(bumps[1]), dense)
    with_differences = _combinations(m, len(bumps[1]), dense, differences=True)

    def intercepts_with(entries: np.ndarray) -> np.ndarray:
        intercepts: np.ndarray = offsets.copy()
        for offset, intercept, row in zip(offsets, intercepts, entries, strict=True):
            np.add.at(intercept, columns, row * offset[data.later])
        return intercepts

    def values_at(rate: np.ndarray) -> np.ndarray:
        bare = Field(heads, mid, scale, rate, (none,) * 3, middle, own, none, none, (none,) * 3, none, *bumps)
        return features_at_all(data.thetas, bare)

    def fit(values: np.ndarray, wanted: np.ndarray, chosen: np.ndarray, units: np.ndarray) -> _Fit:
        cutoff = _CUTOFF_SMOOTH if smooth or len(bumps[1]) else _CUTOFF
        tolerance = _TOLERANCE_DENSE if dense else max(_TOLERANCE, _LENGTH / np.sqrt(max(wanted.shape[1], 1)))
        return _fit(values, wanted, chosen, weights[:, None] * np.square(units), tolerance, cutoff)

    def lost_with(rate: np.ndarray, chosen: list[np.ndarray]) -> float:
        values, some = values_at(rate), np.s_[:, ::share]
        wanted = data.log_scales, intercepts, data.entries
        parts = zip(wanted, chosen, (np.ones_like(units), units, units_g), strict=True)
        return sum(fit(values, one[some], features, unit[some]).lost for one, features, unit in parts)

    def choose_form() -> tuple[np.ndarray, bool]:
        """The rates, and whether features of differences pay."""
        first = _rates(_POWERS[:1] * m, scale)
        if dense:
            return first, False
        if m > MOST_HEADS:
            return choose_each(first), False
        rates = [_rates(powers, scale) for powers in itertools.product(_POWERS, repeat=m)]
        lost, k = min((lost_with(rate, plain), k) for k, rate in enumerate(rates))
        pays = m > 1 and not smooth and lost_with(rates[k], with_differences) < _WORTH * lost
        return rates[k], pays

    def choose_each(rate: np.ndarray) -> np.ndarray:
        """The rates of heads that have too many combinations: of one head after another."""
        lost, others = lost_with(rate, plain), [_rates((power,) * m, scale) for power in _POWERS[1:]]
        for head, other in itertools.product(range(m), others):
            tried = np.where(np.arange(m) == head, other, rate)
            lost, rate = min((lost, rate), (lost_with(tried, plain), tried), key=lambda found: found[0])
        return rate

    intercepts, share = intercepts_with(data.entries), 1 + max(n, len(data.later)) // _COLUMNS
    rate, pays = choose_form() if before is None else (before.rate, _has_differences(before))
    of_s, of_a, of_g = with_differences if pays else plain
    values = values_at(rate)
    fit_s = fit(values, data.log_scales, of_s, np.ones_like(units))
    fit_g = fit(values, data.entries, of_g, units_g)
    # In a neck, a and G cancel each other in the mean of a latent. So a belongs to the G that was fitted.
    fit_a = fit(values, intercepts_with(data.entries + fit_g.error), of_a, units)
    bases = fit_s.basis, fit_a.basis, fit_g.basis
    coefficients = fit_s.coefficients, fit_a.coefficients, fit_g.coefficients
    places = data.starts, data.later
    return Field(heads, mid, scale, rate, bases, middle, own, *places, coefficients, none, *bumps)


def _has_differences(law: Field) -> bool:
    """Whether a law without bumps has features of differences of heads."""
    m = len(law.heads)
    return any(basis[:, n_features(m) - n_differences(m) :].any() for basis in law.bases)


def _rates(powers: tuple[float, ...], scale: np.ndarray) -> np.ndarray:
    return np.asarray(np.maximum(np.array(powers), _LEAST_TURN / scale))


def _entries_below(lowers: list[sparse.csc_array]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Columns (e,) and rows (e,) of all entries below the diagonals of triangular matrices (n, n), column by
    column, and the entries (p, e) of each matrix there.
    """
    n, places, values = lowers[0].shape[0], [], []
    for lower in lowers:
        columns = np.repeat(np.arange(n), np.diff(lower.indptr))
        below = (lower.indices > columns) & (lower.data != 0.0)
        places.append(columns[below] * n + lower.indices[below])
        values.append(lower.data[below])
    found = places[0]
    if not all(np.array_equal(found, place) for place in places):
        found = np.unique(np.concatenate(places))
    entries = np.zeros((len(lowers), found.size))
    for row, place, value in zip(entries, places, values, strict=True):
        row[np.searchsorted(found, place)] = value
    return found // n, found % n, entries


def _chosen_features(m: int, *, differences: bool = False) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Which features s, a and G are combinations of (field.py has their order).

    s is linear far out, G is bounded, and a may be both, since a location moves latents without bounds, and
    in a neck by less and less. Features of `differences` of heads are among them if they are asked for.
    """
    linear = OWN_FEATURES * np.arange(m)
    turning = (linear[:, None] + np.arange(1, OWN_FEATURES, 2)).ravel()
    bounded, unbounded, k = [], [], OWN_FEATURES * m
    for a in range(m):
        for b in range(a, m):
            bounded += [k] if a == b else [k, k + 2, k + 3]
            unbounded += [] if a == b else [k + 4, k + 5]
            k += 2 if a == b else 6
    bounded += range(k, k + n_differences(m)) if differences else []
    return (
        np.concatenate((linear, turning, bounded)).astype(np.int64),
        np.concatenate((linear, turning + 1, bounded, unbounded)).astype(np.int64),
        np.concatenate((turning + 1, bounded)).astype(np.int64),
    )


def scale_features(m: int) -> np.ndarray:
    """The features of `m` heads that s is a combination of: it is linear far out."""
    return _chosen_features(m)[0]


def bounded_features(m: int) -> np.ndarray:
    """The features of `m` heads that G is a combination of: those without a limit far out are not."""
    return _chosen_features(m)[2]


def _combinations(m: int, bumps: int, dense: bool, *, differences: bool = False) -> list[np.ndarray]:
    """The combinations (q, F) of features that s, a and G may consist of.

    For a dense law, that is each bump for all three, and for G also differences of features of neighbouring
    knots, which go from 0 to a constant.
    """
    f = n_features(m)
    chosen = _chosen_features(m, differences=differences)
    parts = [np.eye(f + bumps)[np.append(features, f + np.arange(bumps))] for features in chosen]
    if dense:
        first = (OWN_FEATURES * np.arange(m)[:, None] + 1 + 2 * np.arange(KNOTS - 1)).ravel()
        eye = np.eye(f + bumps)
        parts[2] = np.concatenate((parts[2], eye[first] - eye[first + 2]))
    return parts


class _Fit(NamedTuple):
    """Combinations of features that explain numbers at the points of a design."""

    basis: np.ndarray  # (r, F)
    coefficients: np.ndarray  # (r + 1, n)
    error: np.ndarray  # (p, n)
    lost: float  # the sum of the squared errors of a point, weighted


def _fit(
    values: np.ndarray,
    wanted: np.ndarray,
    chosen: np.ndarray,
    weights: np.ndarray,
    tolerance: float,
    cutoff: float,
) -> _Fit:
    """Explain `wanted` (p, n) by features, combinations `chosen` (q, F) of the `values` (p, F).

    The fit of each column is by least squares with weights (p, n), in combinations of the features that are
    orthonormal over the design, without those that are smaller than `cutoff`. The basis has as many of its
    principal combinations as it takes to keep all but an error of `tolerance`, in the root mean square over
    columns.
    """
    p, f, n = len(values), values.shape[1], wanted.shape[1]
    constant = np.average(wanted, axis=0, weights=np.maximum(weights, 1e-300)) if n else np.zeros(0)
    error = constant - wanted
    lost = float((weights * np.square(error)).sum() / p)
    if not len(chosen) or lost <= tolerance**2 * n:  # features would explain nothing that matters
        return _Fit(np.zeros((0, f)), constant[None].copy(), error, lost if len(chosen) else 0.0)
    moved = values @ chosen.T
    centre = moved[0]  # at the middle of the design
    spread = np.sqrt(np.square(moved - centre).mean(axis=0)) + 1e-12
    left, sizes, right = np.linalg.svd((moved - centre) / spread, full_matrices=False)
    kept = sizes > cutoff * sizes[0]
    terms = np.column_stack((np.ones(p), left[:, kept] * np.sqrt(p)))
    q = terms.shape[1]
    found, penalty = np.empty((n, q)), np.full(q, _RIDGE * p)
    penalty[0] = 0.0
    products = products_of_pairs(terms)
    for start in range(0, n, _CHUNK):
        part = slice(start, start + _CHUNK)
        relative = weights[:, part].T  # a latent's weights are relative to the middle of the design
        relative = relative / np.maximum(relative[:, :1], 1e-300)
        found[part] = weighted_least_squares(terms, products, relative, penalty, wanted[:, part].T)
    importance = np.sqrt(weights.mean(axis=0))
    whole_left, whole_sizes, whole_right = np.linalg.svd(
        (found[:, 1:] * importance[:, None]).T, full_matrices=False
    )
    left_out = np.sqrt(np.append(np.cumsum(np.square(whole_sizes)[::-1])[::-1], 0.0) / n)
    r = int(np.argmax(left_out < tolerance))
    mixed = (whole_left[:, :r].T * (np.sqrt(p) / sizes[kept])) @ right[kept] / spread
    basis = mixed @ chosen
    coefficients = whole_sizes[:r, None] * whole_right[:r] / importance
    constant = found[:, 0] - (mixed @ centre) @ coefficients
    error = constant + (values @ basis.T) @ coefficients - wanted
    lost = float((weights * np.square(error)).sum() / p)
    return _Fit(basis, np.concatenate((constant[None], coefficients)), error, lost)
