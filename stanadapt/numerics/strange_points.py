"""Points that lie higher than known modes explain: starts of climbs to narrow modes.

A climb ends at a narrow mode if it begins in the mode's basin. Wide modes are higher nearly everywhere, so
that the basin of a narrow one is small: with 0.6 times the scale of seven others, in ten dimensions, some
points in ten thousand of a wide normal law lie in it. A climb from each would take tens of gradients a
point. But the density tells of a point where it lies: in the basin of a known mode it falls with the distance
from that mode, in its metric, as it does at other points of that basin. So the density is evaluated alone at
many points, and climbs begin at those that stand out from points at about the same distance from the same
mode. A heavy tail, or a mode that is not quite normal, moves all of these points alike.

A mode in whose basin no point lies is missed, and outside of its basin the density tells nothing of it. So
the points themselves say how narrow a mode they would have shown (`narrowest_visible_mode`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.ndimage import median_filter

from .mode_search import Peak

_WIDTHS = (2.0, 30.0)  # of clouds around a mode, in its standard deviations
_WHOLE = (0.75, 3.0)  # of clouds around all modes, in the standard deviation of their mixture
_CROSSED = (0.3, 1.0)  # the same of clouds around points with each coordinate of another mode
_LEAST_SINGLE = 1 / 6  # share of points around single modes, where there are many
_WINDOW = 51  # neighbours by distance that a point is held against
_FLOOR = 1.0  # nats that points differ by without standing out
SHARE = 0.1  # of the mass, of the modes that are imagined to have been missed
_PLACES = 40  # where they are imagined
_CLEAR = 10.0  # nats by which a point in their basin must stand out
_NARROWEST, _HALVINGS = 1e-2, 9  # least scale that is looked at, and steps of the search for it


class Cloud(NamedTuple):
    """Points around known modes, and what the density is there."""

    points: np.ndarray  # (n, d)
    heights: np.ndarray  # (n,) log densities


def cloud_around(peaks: Sequence[Peak], n: int, rng: np.random.Generator) -> np.ndarray:
    """Points (n, d) of many widths around `peaks`.

    Of k modes, a share of 1 / k of the points is around single ones, but at least a sixth. Half of the others
    is around all modes, and half around points that have each coordinate of a mode drawn at random: where
    modes differ by single parameters, there are others with new combinations of these.
    """
    d, k = peaks[0].x.size, len(peaks)
    own = rng.integers(0, k, (n, d))
    points = rng.standard_normal((n, d))
    middles = np.array([peak.x for peak in peaks])
    spread = np.sqrt(middles.var(axis=0) + np.mean([_variances(peak) for peak in peaks], axis=0))
    width, whole, crossed = (low * (high / low) ** rng.random(n) for low, high in (_WIDTHS, _WHOLE, _CROSSED))
    kind, single = rng.random(n), max(1.0 / k, _LEAST_SINGLE)
    is_single, is_whole = kind < single, (kind >= single) & (kind < 0.5 + 0.5 * single)
    for m, peak in enumerate(peaks):
        there = is_single & (own[:, 0] == m)
        points[there] = peak.x + width[there, None] * _with_covariance(peak, points[there])
    points[is_whole] = middles.mean(axis=0) + whole[is_whole, None] * spread * points[is_whole]
    rest = kind >= 0.5 + 0.5 * single
    points[rest] = middles[own[rest], np.arange(d)] + crossed[rest, None] * spread * points[rest]
    return points


def strangest_first(peaks: Sequence[Peak], cloud: Cloud) -> np.ndarray:
    """The points (k, d) that have a density, those first that `peaks` explain least."""
    points, heights = cloud
    distances = np.array([peak.distances(points) for peak in peaks])  # (k, n)
    falls = np.array([[peak.logp] for peak in peaks]) - 0.5 * distances
    nearest = falls.argmax(axis=0)
    columns = np.arange(len(points))
    excess = heights - falls[nearest, columns]
    score = np.full(len(points), -np.inf)
    for m in range(len(peaks)):
        rows = np.flatnonzero((nearest == m) & np.isfinite(excess))
        rows = rows[np.argsort(distances[m, rows], kind="stable")]
        score[rows] = _out_of_line(excess[rows])
    order = np.argsort(-score, kind="stable")
    return np.asarray(points[order[score[order] > -np.inf]])


def narrowest_visible_mode(peaks: Sequence[Peak], clouds: Sequence[Cloud], rng: np.random.Generator) -> float:
    """The scale of the narrowest mode that every second time would have shown itself in `clouds`.

    Modes are imagined at places that are drawn as the points are. Each has a tenth of the mass and the shape
    of the largest known mode. It would have been seen if its normal law lies clearly above the density at one
    of the points. Returns the median over places of the least scale, in scales of that mode, at which it
    would; infinity where modes of the same scale are missed at half of the places.
    """
    largest = max(peaks, key=lambda peak: peak.log_mass)
    d, known = largest.x.size, np.logaddexp.reduce([peak.log_mass for peak in peaks])
    top = known + np.log(SHARE / (1.0 - SHARE)) + largest.logp - largest.log_mass - _CLEAR
    places = cloud_around(peaks, _PLACES, rng)
    points, heights = (np.concatenate(parts) for parts in zip(*clouds, strict=True))
    points, heights = points[np.isfinite(heights)], heights[np.isfinite(heights)]
    if not len(points) or not np.isfinite(top):
        return np.inf
    least = np.full(_PLACES, np.inf)
    points, places = _in_units(largest, points), _in_units(largest, places)
    lengths = np.square(points).sum(axis=1)
    for place, middle in enumerate(places):
        squares = lengths - 2.0 * (points @ middle) + middle @ middle
        near = squares < 2.0 * (top - heights)  # a narrower mode is seen by fewer of them
        if not near.any():
            continue
        own, below, low, high = squares[near], top - heights[near], np.log(_NARROWEST), 0.0
        for _ in range(_HALVINGS):
            between = 0.5 * (low + high)
            is_seen = (own < 2.0 * np.exp(2.0 * between) * (below - d * between)).any()
            low, high = (low, between) if is_seen else (between, high)
        least[place] = np.exp(high)
    return float(np.sort(least)[_PLACES // 2])


def _variances(peak: Peak) -> np.ndarray:
    """The variances (d,) of a mode's normal law."""
    return 1.0 / peak.negative if peak.negative.ndim == 1 else np.diag(np.linalg.inv(peak.negative))


def _in_units(peak: Peak, points: np.ndarray) -> np.ndarray:
    """Points (n, d) as seen from a mode, in the coordinates in which its normal law is standard normal."""
    if peak.negative.ndim == 1:
        return np.asarray((points - peak.x) * np.sqrt(peak.negative))
    return np.asarray((points - peak.x) @ np.linalg.cholesky(peak.negative))


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
