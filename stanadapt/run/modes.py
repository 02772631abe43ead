"""Modes that climbs before the first iteration have found and that no chain has visited.

Every chain climbs from some random points before it starts (inits.py). Where climbs have ended outside of the
draws of all chains, they are followed up to a mode here. What is there may be nothing (the end of a ridge or
of a funnel's neck), or a mode without mass. Its mass is told by Laplace's approximation, that of the visited
part by the Gaussian with the covariance of its draws, which has the largest entropy of all that have it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from ..model.posterior import Posterior
from ..numerics.ascent import write_heights
from ..numerics.blas import one_thread
from ..target import hessian

SHARE = 0.01  # of the mass, from which a mode counts
_MOST_DIM = 100  # a Hessian takes 2 d gradients
_MOST_CLIMBS = 5  # that are followed up
_MOST_ROWS = 250  # draws of a chain that are looked at
_FURTHER = 1.5  # than the furthest draw, by the square of the distance
_STEPS = 200
_POINTS = 12  # on the way from the end of a climb to the draws
_DIP = 1.0  # nats that the log density may fall on that way
_UPHILL = 0.01  # nats that may be left to gain at a mode


class Mode(NamedTuple):
    """A mode that no chain has visited."""

    x: np.ndarray  # (d,)
    logp: float
    log_mass: float  # relative to the part that chains have visited
    climbs: int  # that have ended there, of all


def unvisited(tops: np.ndarray, values: np.ndarray, lp: np.ndarray, posterior: Posterior) -> list[Mode]:
    """Modes with at least 1 % of the mass at which climbs have ended and where no chain has draws.

    Parameters
    ----------
    tops
        The highest points (k, d) of the climbs of all chains.
    values
        Draws (chain, draw, c), in the order of the posterior's values.
    lp
        Their log densities (chain, draw).
    posterior
        What was drawn from. It is evaluated again only where climbs have ended outside of all draws.
    """
    d = posterior.dim
    if not len(tops) or d > _MOST_DIM or values.shape[1] <= 2 * d:
        return []
    outside = _outside(tops, values, posterior)
    if not outside.any():
        return []
    with one_thread():  # more wait for each other, for longer than these small matrices take
        return _compare(tops[outside], values, lp, posterior)


def _compare(tops: np.ndarray, values: np.ndarray, lp: np.ndarray, posterior: Posterior) -> list[Mode]:
    """The same for points (k, d) that are outside of the draws in some parameter."""
    d = posterior.dim
    peaks = [
        _unconstrain(rows[[np.argmax(heights)]], posterior) for rows, heights in zip(values, lp, strict=True)
    ]
    tops = np.array([top for top in tops if not any(_is_joined(top, peak, posterior) for peak in peaks)])
    if not len(tops):
        return []
    chains = [_unconstrain(rows, posterior) for rows in values]
    if any(rows is None for rows in chains):
        return []
    clouds = [_Cloud.of(rows) for rows in chains if rows is not None]
    mass = _visited_mass(clouds, lp)
    modes: list[tuple[Mode, np.ndarray]] = []
    followed = 0
    for top in tops:
        for i, (mode, negative) in enumerate(modes):
            if (top - mode.x) @ negative @ (top - mode.x) < 2.0 * d + 10.0:
                modes[i] = (mode._replace(climbs=mode.climbs + 1), negative)
                break
        else:
            if followed == _MOST_CLIMBS or any(cloud.holds(top) for cloud in clouds):
                continue
            followed += 1
            found = _follow(top, posterior)
            if found is None or any(cloud.holds(found[0]) for cloud in clouds):
                continue
            x, logp, negative = found
            log_mass = logp - 0.5 * float(np.linalg.slogdet(negative)[1]) - mass
            modes.append((Mode(x, logp, log_mass, 1), negative))
    return [mode for mode, _ in modes if mode.log_mass > np.log(SHARE / (1.0 - SHARE))]


class _Cloud(NamedTuple):
    """The draws of a chain."""

    mean: np.ndarray
    inverse: np.ndarray  # of their covariance
    log_det: float
    furthest: float  # the largest squared distance from the mean

    @classmethod
    def of(cls, x: np.ndarray) -> _Cloud:
        mean = x.mean(axis=0)
        cov = np.atleast_2d(np.cov(x.T))
        inverse = np.linalg.pinv(cov, hermitian=True)
        distances = np.einsum("ij,jk,ik->i", x - mean, inverse, x - mean)
        return cls(mean, inverse, float(np.linalg.slogdet(cov)[1]), float(distances.max()))

    def holds(self, x: np.ndarray) -> bool:
        """Whether `x` (d,) is among the draws, or not far beyond."""
        away = x - self.mean
        return not away @ self.inverse @ away > _FURTHER * self.furthest


def _outside(tops: np.ndarray, values: np.ndarray, posterior: Posterior) -> np.ndarray:
    """Which of the points (k, d) are outside of the range of all draws, in any parameter."""
    there = np.empty((len(tops), posterior.n_values))
    posterior.model.writer(0)(tops, there, np.arange(len(tops)))
    n = len(posterior.names)
    low, high = values[..., :n].min(axis=(0, 1)), values[..., :n].max(axis=(0, 1))
    return np.asarray(((there[:, :n] < low) | (there[:, :n] > high)).any(axis=1))


def _unconstrain(rows: np.ndarray, posterior: Posterior) -> np.ndarray | None:
    """Some of the draws (n, c) of a chain as unconstrained points."""
    picked = rows[np.linspace(0, len(rows) - 1, min(len(rows), _MOST_ROWS)).astype(int)]
    try:
        return np.array([posterior.model.unconstrain_flat(row[: len(posterior.names)]) for row in picked])
    except RuntimeError:  # rounding has put a value on the boundary of its support
        return None


def _visited_mass(clouds: Sequence[_Cloud], lp: np.ndarray) -> float:
    """Log mass of what the chains have visited, up to the constant d / 2 log(2 pi) of Laplace's mass.

    Chains may have visited the same mode, or each another one: the largest of the chains' is taken.
    """
    d = len(clouds[0].mean)
    return max(
        float(heights.mean()) + 0.5 * (d + cloud.log_det) for cloud, heights in zip(clouds, lp, strict=True)
    )


def _is_joined(top: np.ndarray, peak: np.ndarray | None, posterior: Posterior) -> bool:
    """Whether the log density has no dip on the straight way from a climb's end to the highest draw (1, d).

    A climb may have ended on the slope of the mode that chains have visited, far out.
    """
    if peak is None:
        return False
    shares = np.linspace(0.0, 1.0, _POINTS)[:, None]
    heights = np.full(_POINTS, -np.inf)
    write_heights(posterior.model.target(), (1.0 - shares) * top + shares * peak[0], heights)
    with contextlib.suppress(Exception):  # of a Python target: the draws must not be lost for it
        posterior.model.raise_pending()
    return bool(heights.min() > min(heights[0], heights[-1]) - _DIP)


def _follow(x: np.ndarray, posterior: Posterior) -> tuple[np.ndarray, float, np.ndarray] | None:
    """The mode above `x`, its log density and negative Hessian; None where there is none."""

    def downhill(point: np.ndarray) -> tuple[float, np.ndarray]:
        try:
            logp, score = posterior.model.log_density_gradient(point)
        except Exception:  # outside of the support, or whatever a Python target raises
            return np.inf, np.zeros(point.size)
        return -logp, -score

    with np.errstate(all="ignore"):
        found = minimize(downhill, x, jac=True, method="L-BFGS-B", options={"maxiter": _STEPS})
        negative = np.empty((x.size, x.size))
        if not hessian(posterior.model.target(), found.x, negative):
            with contextlib.suppress(Exception):  # of a Python target: the draws must not be lost for it
                posterior.model.raise_pending()
            return None
        negative *= -1.0
        try:
            np.linalg.cholesky(negative)
        except np.linalg.LinAlgError:  # a ridge, a saddle or a wall
            return None
        left = 0.5 * found.jac @ np.linalg.solve(negative, found.jac)
    return (found.x, -float(found.fun), negative) if left < _UPHILL * x.size else None
