"""The log density that is climbed and approximated, with a count of its evaluations."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from ..model.posterior import Posterior
from ..model.without_jacobian import without_jacobian
from ..transport.composition import into_x, pull_back
from ..transport.map_table import no_transport

_DIFFERENCE = np.finfo(float).eps ** (1 / 3)  # relative step that balances truncation and rounding


def _look_away(words: str) -> None:
    """Nobody wants to know how far it is."""


class ClimbedDensity:
    """The log density of a posterior in coordinates z of its unconstrained parameters x.

    A point where the model rejects, or gives a number that is not finite, has the log density -inf.
    """

    def __init__(
        self, posterior: Posterior, *, jacobian: bool = True, transport: np.ndarray | None = None
    ) -> None:
        """`transport` is the map of the coordinates (see transport/map_table.py); without it z is x."""
        self.posterior, self.dim = posterior, posterior.dim
        self._model = posterior.model if jacobian else without_jacobian(posterior)
        self.transport = no_transport() if transport is None else transport
        self.gradients = 0  # evaluations of the gradient
        self.densities = 0  # evaluations of the log density alone
        self.look: Callable[[str], None] = _look_away  # is told at each evaluation how many there were

    def in_map(self, transport: np.ndarray) -> ClimbedDensity:
        """The same density in other coordinates, with a count of its own."""
        other = ClimbedDensity.__new__(ClimbedDensity)
        other.posterior, other.dim, other._model = self.posterior, self.dim, self._model
        other.transport, other.gradients, other.densities = transport, 0, 0
        other.look = self.look
        return other

    def value(self, z: np.ndarray) -> float:
        """Log density at `z` (d,)."""
        self.densities += 1
        self.look(f"{self.densities} densities")
        x, log_det = self.to_x(z)
        if not np.isfinite(log_det):
            return -np.inf
        try:
            value = self._model.log_density(x)
        except RuntimeError:
            return -np.inf
        return value + log_det if np.isfinite(value) else -np.inf

    def values(self, points: np.ndarray) -> np.ndarray:
        """Log densities (n,) at points (n, d)."""
        return np.array([self.value(z) for z in np.ascontiguousarray(points)])

    def gradient(self, z: np.ndarray) -> tuple[float, np.ndarray]:
        """Log density at `z` (d,) and its gradient (d,); the gradient is zero where the density is."""
        self.gradients += 1
        self.look(f"{self.gradients} gradients")
        nothing = -np.inf, np.zeros(self.dim)
        x, log_det = self.to_x(z)
        if not np.isfinite(log_det):
            return nothing
        try:
            value, score = self._model.log_density_gradient(x)
        except RuntimeError:
            return nothing
        score = np.array(score, dtype=float)
        if not (np.isfinite(value) and np.isfinite(score).all()):
            return nothing
        if len(self.transport):
            pull_back(self.transport, z, x, score)
        return value + log_det, score

    def to_x(self, z: np.ndarray) -> tuple[np.ndarray, float]:
        """The point x (d,) of `z` (d,), and log |dx/dz|, infinite where x overflows."""
        z = np.ascontiguousarray(z, dtype=float)
        if not len(self.transport):
            return z, 0.0
        x = np.empty_like(z)
        return x, float(into_x(self.transport, z, x))

    @functools.cached_property
    def has_bounds(self) -> np.ndarray:
        """Coordinates (d,) of x whose parameter is another number when it is constrained."""
        posterior = self.posterior
        x = np.linspace(-1.9, 1.7, self.dim)
        values = posterior.constrain(x)
        flat = {
            posterior.names[i]: values[variable.name].ravel()[k]
            for variable in posterior.parameters.values()
            for k, i in enumerate(variable.columns.ravel())
        }
        names = posterior.unconstrained_names
        return np.array([flat.get(name) != entry for name, entry in zip(names, x, strict=True)])

    def curvature(self, z: np.ndarray) -> np.ndarray | None:
        """The negative Hessian (d, d) at `z` (d,), from 2 d gradients; None where one of them is not finite.

        It is made of central differences, and symmetric.
        """
        rows = np.empty((self.dim, self.dim))
        for i in range(self.dim):
            width = _DIFFERENCE * max(1.0, abs(z[i]))
            ahead, behind = z.copy(), z.copy()
            ahead[i] += width
            behind[i] -= width
            up, score_up = self.gradient(ahead)
            down, score_down = self.gradient(behind)
            if up == -np.inf or down == -np.inf:
                return None
            rows[i] = (score_down - score_up) / (ahead[i] - behind[i])
        return 0.5 * (rows + rows.T)
