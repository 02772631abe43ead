"""Normal laws that approximate a density: draws of them, and how far their weights are from equal."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from ..result.container import smooth_weights
from .density import ClimbedDensity


class NormalLaw(NamedTuple):
    """A normal law by a triangular factor of its precision."""

    mean: np.ndarray  # (d,)
    factor: np.ndarray  # (d, d) lower triangular; factor factor' is the precision

    @classmethod
    def around(cls, mean: np.ndarray, curvature: np.ndarray) -> NormalLaw | None:
        """The law with this precision (d, d); None if it is not positive definite."""
        try:
            return cls(mean, np.linalg.cholesky(curvature))
        except np.linalg.LinAlgError:
            return None

    @property
    def cov(self) -> np.ndarray:
        """The covariance (d, d)."""
        inverse = solve_triangular(self.factor, np.eye(self.mean.size), lower=True)
        return np.asarray(inverse.T @ inverse)

    def draw(self, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Draws (n, d), and the log density of the law at them (n,)."""
        normal = rng.standard_normal((n, self.mean.size))
        steps = solve_triangular(self.factor.T, normal.T, lower=False).T
        return self.mean + steps, standard_log_density(normal) + np.log(np.diag(self.factor)).sum()


class WeightedDraws(NamedTuple):
    """Draws of a law with their importance weights for a density."""

    x: np.ndarray  # (n, d) unconstrained
    logp: np.ndarray  # (n,) log density in x; -inf outside of its support
    logq: np.ndarray  # (n,) log density of the law in x
    log_weights: np.ndarray  # (n,) smoothed, normalised
    pareto_k: float

    @property
    def effective(self) -> float:
        """How many draws of the density they are worth, for a mean: Kish's number."""
        return float(1.0 / np.exp(2.0 * self.log_weights).sum())

    @property
    def elbo(self) -> float:
        """The mean of log p - log q: the evidence's lower bound, up to the constant of log p."""
        return float((self.logp - self.logq).mean())


def weighted_draws(
    density: ClimbedDensity, z: np.ndarray, logq: np.ndarray, log_det: np.ndarray, x: np.ndarray
) -> WeightedDraws:
    """Weigh draws z (n, d) whose law has the log density `logq` (n,) there, at the points x (n, d)."""
    logp = density.values(z)
    log_weights, k = smooth_weights(logp - logq)
    return WeightedDraws(x, logp - log_det, logq - log_det, log_weights, k)


def weigh(density: ClimbedDensity, law: NormalLaw, n: int, rng: np.random.Generator) -> WeightedDraws:
    """Draw from a law in the coordinates of a density, and weigh the draws; those that overflow are left out.

    The draws that are left are those of the law where x is finite.
    """
    z, logq = law.draw(n, rng)
    moved = [density.to_x(point) for point in z]
    log_det = np.array([each for _, each in moved])
    x = np.array([point for point, _ in moved])
    fine = np.isfinite(log_det) & np.isfinite(x).all(axis=1)
    return weighted_draws(density, z[fine], logq[fine], log_det[fine], x[fine])


def standard_log_density(normal: np.ndarray) -> np.ndarray:
    """The log density (n,) of the standard normal law at points (n, d)."""
    return np.asarray(-0.5 * (np.square(normal).sum(axis=1) + normal.shape[1] * np.log(2.0 * np.pi)))
