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
        self, place: HeadPosterior, unit: np.ndarray, rows: np.ndarray, spreads: dict[int, float]
    ) -> None:
        """`unit` (m,) are the units of the heads. `rows` are those of the map of their law, in which they are
        coordinates 0 to m - 1; those that have one have the standard deviations `spreads` in that map.
        """
        self._unit, self._rows, m = unit, rows, len(unit)
        self._middle = np.empty(m)
        composition.into_z(rows, place.theta * unit, self._middle)
        self._root = np.diag([spreads.get(a, 0.0) for a in range(m)])
        rest = np.array([a for a in range(m) if a not in spreads], np.int64)
        cov = np.outer(unit, unit) * place.covariance()
        self._root[np.ix_(rest, rest)] = np.linalg.cholesky(cov[np.ix_(rest, rest)])

    def into_heads(self, w: np.ndarray) -> tuple[np.ndarray, float]:
        """The heads (m,) at `w` (m,), and log |d theta / d w| up to a constant."""
        x = np.empty_like(w)
        log_det = composition.into_x(self._rows, self._middle + self._root @ w, x)
        return x / self._unit, float(log_det)

    def into_w(self, theta: np.ndarray) -> np.ndarray:
        """The coordinates w (m,) of heads `theta` (m,)."""
        z = np.empty_like(theta)
        composition.into_z(self._rows, theta * self._unit, z)
        return np.linalg.solve(self._root, z - self._middle)
