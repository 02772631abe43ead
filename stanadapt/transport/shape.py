"""The shape of draws and scores: of a coordinate its median, its width, and how heavy its tails are; and how
far all of them together are from a normal law."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import lapack

LEAST = 45  # fewest draws to learn from
POWER = 0.65  # in a coordinate with a heavy tail, the mean of -s u grows by this power of |u| at most


@np.errstate(all="ignore")  # callers refuse results that are not finite
def shape_of(x: np.ndarray, s: np.ndarray) -> tuple[float, float, float]:
    """The median, the spread by quartiles, and the power of |u| by which the mean of -s u grows.

    u is x minus the median; the growth is measured from the middle draws to the outer ones. `x` and `s` are
    the draws and scores (n,) of a coordinate.
    """
    ordered = np.sort(x)
    center = quantile(ordered, 0.5)
    spread = (quantile(ordered, 0.75) - quantile(ordered, 0.25)) / 1.35
    size = np.abs(x - center)
    pull = -s * (x - center)
    ordered = np.sort(size)
    inner = (quantile(ordered, 0.3) <= size) & (size <= quantile(ordered, 0.6))
    outer = size >= quantile(ordered, 0.85)
    rise = np.log(_mean(pull[outer]) / _mean(pull[inner]))
    return float(center), float(spread), float(rise / np.log(_mean(size[outer]) / _mean(size[inner])))


def quantile(ordered: np.ndarray, p: float) -> Any:
    """The quantile of ordered values (n,), or of ordered columns (n, d), with linear interpolation."""
    place = p * (len(ordered) - 1)
    below = int(place)
    after = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[after] - ordered[below])


def hermite(at: np.ndarray, values: np.ndarray, slopes: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The piecewise cubic through `values` (p,) with `slopes` (p,) at increasing `at` (p,), at `x` (n,).

    SciPy has it too, but loading that takes a fifth of a second.
    """
    k = np.clip(np.searchsorted(at, x, side="right") - 1, 0, len(at) - 2)
    width = at[k + 1] - at[k]
    t = (x - at[k]) / width
    rest = 1.0 - t
    ends = values[k] * rest**2 * (1.0 + 2.0 * t) + values[k + 1] * t**2 * (1.0 + 2.0 * rest)
    return np.asarray(ends + width * t * rest * (slopes[k] * rest - slopes[k + 1] * t))


def _mean(values: np.ndarray) -> np.float64:
    """The mean; not a number, and no warning, if there are no values."""
    return np.float64(values.sum()) / values.size


def orthonormal(columns: np.ndarray) -> np.ndarray:
    """An orthonormal basis (n, k) of the span of columns (n, k), k <= n. NumPy would make R, too."""
    reflections, scales, _, _ = lapack.dgeqrf(columns)
    return np.asarray(lapack.dorgqr(reflections, scales)[0])


@np.errstate(all="ignore")  # callers refuse results that are not finite
def divergence_of_all(points: np.ndarray, scores: np.ndarray) -> float:
    """How far draws and scores (n, d), n > d, are from any normal law: F = log(|V(x)| |V(s)|) / 2 at best.

    In expectation Cov(x, s) = -I, so that F is minus the sum of the logs of the canonical correlations of
    draws and scores. These are 1 in any draws of a normal law, however few and wherever they are.
    """
    bases = (orthonormal(values - values.mean(axis=0)) for values in (points, scores))
    of_points, of_scores = bases
    try:
        return float(-np.log(np.linalg.svd(of_points.T @ of_scores, compute_uv=False)).sum())
    except np.linalg.LinAlgError:
        return float("nan")
