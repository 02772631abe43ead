"""Coordinates w of the heads in which their posterior is nearly standard normal.

The logarithm of a scale that may be 0 has a tail that is twenty times as long as its standard deviation in
the middle. A walk over the heads whose steps are as long as that deviation sees little of the tail. In the
coordinates of the heads' own law (head_law.py) this tail is no longer than others. Heads without such a law
have w = C^-1 (theta - theta*), where C C^T is their covariance in the middle theta*.
"""

from __future__ import annotations

import numpy as np

from .. import composition
from .laplace import HeadPosterior


class HeadCoordinates:
    """The coordinates w of heads theta (m,), in units, that have a place and perhaps a law."""

    def __init__(
        self,
        place: HeadPosterior,
        heads: np.ndarray,
        unit: np.ndarray,
        rows: np.ndarray,
        spreads: dict[int, float],
    ) -> None:
        """Of the coordinates `heads` (m,) with such units (m,). `rows` are those of the map of their law, in
        which coordinates that have one have the standard deviations `spreads`.
        """
        self._heads, self._unit, self._rows = heads, unit, rows
        self._middle = self._into_z(place.theta)
        self._root = np.diag([spreads.get(k, 0.0) for k in heads.tolist()])
        rest = np.flatnonzero([k not in spreads for k in heads.tolist()])
        cov = np.outer(unit, unit) * place.covariance()
        self._root[np.ix_(rest, rest)] = np.linalg.cholesky(cov[np.ix_(rest, rest)])

    def into_heads(self, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The heads (k, m) at points `w` (k, m), and log |d theta / d w| (k,) up to a constant."""
        points, less = self._among_all(self._middle + w @ self._root.T), np.zeros(len(w))
        composition.rows_into_x(self._rows, points, less)
        return points[:, self._heads] / self._unit, -less

    def into_w(self, theta: np.ndarray) -> np.ndarray:
        """The coordinates w (m,) of heads `theta` (m,)."""
        return np.linalg.solve(self._root, self._into_z(theta) - self._middle)

    def _into_z(self, theta: np.ndarray) -> np.ndarray:
        x = self._among_all(theta * self._unit)
        z = np.empty_like(x)
        composition.into_z(self._rows, x, z)
        return np.asarray(z[self._heads])

    def _among_all(self, of_heads: np.ndarray) -> np.ndarray:
        """Points with numbers (..., m) at the heads, as far as the last of these."""
        points = np.zeros((*of_heads.shape[:-1], self._heads.max(initial=-1) + 1))
        points[..., self._heads] = of_heads
        return points
