"""The proposal of a bridge: a normal or Student t law in the coordinates that the fit has learnt.

Its mean and covariance are those of draws. Where there are few of them for the dimension, the covariance
moves towards the metric that the chains have learnt, which knows the scores too, or towards its own diagonal.
How far it moves, the degrees of freedom, and whether the learnt coordinates are used, is decided by the
density of draws that the law was not fitted to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from ..numerics.mixtures import student_log_top
from ..transport.composition import into_x, transport_draws

SHRINKAGES = (0.0, 0.02, 0.1, 0.3, 0.6, 1.0)  # of the covariance towards its target
DEGREES = (np.inf, 50.0, 20.0, 10.0, 6.0, 4.0, 3.0)  # of freedom; below 3 a covariance says little


class Coordinates(NamedTuple):
    """Coordinates z of points x, and a guess of the covariance there."""

    transport: np.ndarray  # the map, see transport/map_table.py; no rows if z is x
    metric: np.ndarray | None  # (d, d) or (d,), up to a factor


class Proposal(NamedTuple):
    """A law with a density that is normalised."""

    transport: np.ndarray
    mean: np.ndarray  # (d,) in z
    root: np.ndarray  # (d, d) lower triangular; root root' is the covariance for a normal law
    degrees: float  # of freedom of Student's t; infinite for a normal law
    shrinkage: float

    def draw(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draws (n, d), in z."""
        steps = rng.normal(size=(n, self.mean.size)) @ self.root.T
        if np.isfinite(self.degrees):
            steps *= np.sqrt((self.degrees - 2.0) / rng.chisquare(self.degrees, n))[:, None]
        return np.asarray(self.mean + steps)

    def log_density(self, z: np.ndarray) -> np.ndarray:
        """Log densities (n,) at points z (n, d), in z."""
        return _log_density(_squares(z, self.mean, self.root), self.root, self.degrees)

    def describe(self) -> str:
        law = "normal" if np.isinf(self.degrees) else f"Student t with {self.degrees:g} degrees of freedom"
        return f"{law}, in {'the coordinates that the fit learnt' if len(self.transport) else 'x'}"


def fit_proposal(x: np.ndarray, candidates: Sequence[Coordinates]) -> Proposal:
    """The law for draws `x` (C, n, d), in those of the coordinates that suit them best.

    A half of the draws of each chain judges the laws that the other half gives, and the other way round.
    """
    half = x.shape[1] // 2
    best, choice = -np.inf, None
    for coordinates in candidates:
        z, log_det = to_z(coordinates.transport, x.reshape(-1, x.shape[-1]))
        if not (np.isfinite(z).all() and np.isfinite(log_det).all()):
            continue
        z, log_det = z.reshape(x.shape), log_det.reshape(x.shape[:-1])
        folds = z[:, :half].reshape(-1, x.shape[-1]), z[:, half:].reshape(-1, x.shape[-1])
        volume = float(log_det.mean())
        first = _judge(folds[0], folds[1], coordinates.metric)
        second = _judge(folds[1], folds[0], coordinates.metric)
        for (shrinkage, degrees, one), (_, _, other) in zip(first, second, strict=True):
            score = 0.5 * (one + other) - volume
            if score > best:
                best, choice = score, (coordinates, z, shrinkage, degrees)
    if choice is None:  # draws that hardly vary
        coordinates = candidates[-1]
        z = to_z(coordinates.transport, x.reshape(-1, x.shape[-1]))[0].reshape(x.shape)
        choice = coordinates, z, 1.0, np.inf
    coordinates, z, shrinkage, degrees = choice
    points = z.reshape(-1, x.shape[-1])
    mean, root = next(_laws(points, coordinates.metric, (shrinkage,)))[1:]
    return Proposal(coordinates.transport, mean, root, degrees, shrinkage)


def to_z(transport: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Points z (n, d) of x (n, d), and log |dx/dz| (n,) there."""
    if not len(transport):
        return x, np.zeros(len(x))
    z = transport_draws(transport, x, np.zeros_like(x))[0]
    return z, to_x(transport, z)[1]


def to_x(transport: np.ndarray, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Points x (n, d) of z (n, d), and log |dx/dz| (n,), infinite where x overflows."""
    if not len(transport):
        return z, np.zeros(len(z))
    x = np.empty_like(z)
    return x, np.array([into_x(transport, row, out) for row, out in zip(z, x, strict=True)])


def _judge(
    own: np.ndarray, others: np.ndarray, metric: np.ndarray | None
) -> Iterator[tuple[float, float, float]]:
    """Shrinkage, degrees of freedom, and mean log density of `others` (k, d), of laws fitted to `own`."""
    for shrinkage, mean, root in _laws(own, metric, SHRINKAGES):
        squares = _squares(others, mean, root)
        for degrees in DEGREES:
            yield shrinkage, degrees, float(_log_density(squares, root, degrees).mean())


def _laws(
    points: np.ndarray, metric: np.ndarray | None, shrinkages: Sequence[float]
) -> Iterator[tuple[float, np.ndarray, np.ndarray]]:
    """Shrinkage, mean and root of covariances of points (n, d); NaN in roots of those that are singular."""
    mean = points.mean(axis=0)
    own = np.atleast_2d(np.cov(points.T))
    target = np.diag(np.maximum(np.diag(own), np.finfo(float).tiny))
    if metric is not None:
        given = np.diag(metric) if metric.ndim == 1 else metric
        with np.errstate(all="ignore"):
            given = given * np.exp(np.mean(np.log(np.diag(own) / np.diag(given))))
        target = given if np.isfinite(given).all() else target
    for shrinkage in shrinkages:
        try:
            root = np.linalg.cholesky((1.0 - shrinkage) * own + shrinkage * target)
        except np.linalg.LinAlgError:
            root = np.full_like(own, np.nan)
        yield shrinkage, mean, root


def _squares(z: np.ndarray, mean: np.ndarray, root: np.ndarray) -> np.ndarray:
    """Squared lengths (n,) of z - mean in units of the covariance."""
    if np.isnan(root).any():
        return np.full(len(z), np.nan)
    steps = solve_triangular(root, (z - mean).T, lower=True, check_finite=False)
    return np.asarray((steps**2).sum(axis=0))


def _log_density(squares: np.ndarray, root: np.ndarray, degrees: float) -> np.ndarray:
    """Log densities of a law with the covariance root root', of either kind."""
    d = len(root)
    top = student_log_top(d, degrees) - np.log(np.diag(root)).sum()
    if np.isinf(degrees):
        return np.asarray(top - 0.5 * squares)
    # The matrix of scales is (degrees - 2) / degrees times the covariance.
    top -= 0.5 * d * np.log((degrees - 2.0) / degrees)
    return np.asarray(top - 0.5 * (degrees + d) * np.log1p(squares / (degrees - 2.0)))
