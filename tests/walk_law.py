"""The exact law of the scales of a random walk with noise: the walk is integrated out, scales lie on a grid.

The walk begins at N(0, 5), its steps are N(0, s) and the noise is N(0, o), with half-normal priors of
scale 1. So y has the covariance 25 1 1^T + s² M + o² I with M_tu = min(t, u), from t = 0 on: in the axes of M
it is a diagonal and one direction more.
"""

from __future__ import annotations

import numpy as np
from scipy.interpolate import CubicSpline

_FIRST = 25.0  # the variance of the walk where it begins
_WIDEST = np.linspace(-14.0, 2.2, 82)  # the logs of both scales
# Of the finer grid, which covers where the density is not lower, beside its top: shares are right to 2e-4.
_POINTS, _LOWEST = 200, 1e-13


def scale_shares(y: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """The exact distribution functions of s and of o given y (t,), at their draws (n, 2)."""
    steps = noise = _WIDEST
    for _ in range(2):
        weight = _density(y, steps, noise)
        inside = weight > _LOWEST
        steps, noise = _around(steps, inside.any(axis=1)), _around(noise, inside.any(axis=0))
    weight = _density(y, steps, noise)
    columns = []
    for k, (grid, other) in enumerate(((steps, 1), (noise, 0))):
        below = CubicSpline(grid, weight.sum(axis=other)).antiderivative()
        places = np.clip(np.log(scales[:, k]), grid[0], grid[-1])
        columns.append(below(places) / below(grid[-1]))
    return np.column_stack(columns)


def _around(grid: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """A finer grid over the points that are inside, and one more on either side."""
    places = np.flatnonzero(inside)
    return np.linspace(grid[max(places[0] - 1, 0)], grid[min(places[-1] + 1, len(grid) - 1)], _POINTS)


def _density(y: np.ndarray, log_s: np.ndarray, log_o: np.ndarray) -> np.ndarray:
    """The density of the logs on a grid, beside its top."""
    times = np.arange(len(y))
    sizes, axes = np.linalg.eigh(np.minimum.outer(times, times).astype(float))
    along, first = axes.T @ y, axes.T @ np.ones(len(y))
    s, o = np.exp(log_s)[:, None], np.exp(log_o)[None]
    diagonal = s[..., None] ** 2 * np.maximum(sizes, 0.0) + o[..., None] ** 2
    parts = (1.0 / diagonal) @ np.column_stack((along * first, first**2, along**2))
    both, of_first, of_y = np.moveaxis(parts, -1, 0)
    squares = of_y - _FIRST * both**2 / (1.0 + _FIRST * of_first)
    # Logarithms of products of eight take less time, and these do not underflow.
    products = np.multiply.reduceat(diagonal, np.arange(0, len(y), 8), axis=-1)
    log_det = np.log(products).sum(axis=-1) + np.log1p(_FIRST * of_first)
    logp = -0.5 * (log_det + squares + s**2 + o**2) + np.log(s) + np.log(o)
    return np.asarray(np.exp(logp - logp.max()))
