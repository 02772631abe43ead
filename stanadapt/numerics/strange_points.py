"""Points that lie higher than known modes explain: starts of climbs to narrow modes.

A climb ends at a narrow mode if it begins in the mode's basin. Wide modes are higher nearly everywhere, so
that the basin of a narrow one is small: with 0.6 times the scale of seven others, in ten dimensions, some
points in ten thousand of a wide normal law lie in it. A climb from each would take tens of gradients a
point. But the density tells of a point where it lies: in the basin of a known mode it falls with the distance
from that mode, in its metric, as it does at other points of that basin. So the density is evaluated alone at
many points, and climbs begin at those that stand out from points at about the same distance from the same
mode. A heavy tail, or a mode that is not quite normal, moves all of these points alike.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.ndimage import median_filter

from .mode_search import Peak, Surface

_WIDTHS = (2.0, 30.0)  # of clouds around a mode, in its standard deviations
_WHOLE = (0.75, 3.0)  # of clouds around all modes, in the standard deviation of their mixture
_WINDOW = 51  # neighbours by distance that a point is held against
_FLOOR = 1.0  # nats that points differ by without standing out


def strange_points(peaks: Sequence[Peak], surface: Surface, n: int, rng: np.random.Generator) -> np.ndarray:
    """Points (k, d), of `n` where the density is evaluated, those first that `peaks` explain least.

    Half of the points are around single modes and half around all, in clouds of many widths.
    """
    d, k = peaks[0].x.size, len(peaks)
    own = rng.integers(0, k, n)
    points = rng.standard_normal((n, d))
    middles = np.array([peak.x for peak in peaks])
    spread = np.sqrt(middles.var(axis=0) + np.mean([_variances(peak) for peak in peaks], axis=0))
    width, whole = (low * (high / low) ** rng.random(n) for low, high in (_WIDTHS, _WHOLE))
    is_whole = np.arange(n) % 2 == 1
    for m, peak in enumerate(peaks):
        there = ~is_whole & (own == m)
        points[there] = peak.x + width[there, None] * _with_covariance(peak, points[there])
    points[is_whole] = middles.mean(axis=0) + whole[is_whole, None] * spread * points[is_whole]
    heights = surface.heights(points)
    distances = np.array([peak.distances(points) for peak in peaks])  # (k, n)
    falls = np.array([[peak.logp] for peak in peaks]) - 0.5 * distances
    nearest = falls.argmax(axis=0)
    columns = np.arange(n)
    excess = heights - falls[nearest, columns]
    score = np.full(n, -np.inf)
    for m in range(k):
        rows = np.flatnonzero((nearest == m) & np.isfinite(excess))
        rows = rows[np.argsort(distances[m, rows], kind="stable")]
        score[rows] = _out_of_line(excess[rows])
    order = np.argsort(-score, kind="stable")
    return np.asarray(points[order[score[order] > -np.inf]])


def _variances(peak: Peak) -> np.ndarray:
    """The variances (d,) of a mode's normal law."""
    return 1.0 / peak.negative if peak.negative.ndim == 1 else np.diag(np.linalg.inv(peak.negative))


def _with_covariance(peak: Peak, normal: np.ndarray) -> np.ndarray:
    """Standard normal points (n, d), with the covariance of a mode."""
    if peak.negative.ndim == 1:
        return np.asarray(normal / np.sqrt(peak.negative))
    return np.asarray(np.linalg.solve(np.linalg.cholesky(peak.negative).T, normal.T).T)


def _out_of_line(series: np.ndarray) -> np.ndarray:
    """How far each number of a series (n,) lies above its neighbours' median, in units of their spread."""
    if len(series) < 3:
        return series - np.median(series) if len(series) else series
    above = series - median_filter(series, _WINDOW, mode="nearest")
    return np.asarray(above / (_FLOOR + median_filter(np.abs(above), _WINDOW, mode="nearest")))
