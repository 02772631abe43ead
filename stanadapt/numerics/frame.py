"""Coordinates in which the points of a chain have mean zero and covariance I, and the random walk in them.

Methods that learn from a chain's history begin with this walk. It is Algorithm 4 of Andrieu and Thoms (2008),
as in samplers/arwmh.py, with the learning rates (t + 1)^-0.7 for the covariance and (t / 100 + 1)^-0.7 for
the step size.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import linalg

from ..jit import kernel
from ..kinds import Real, Vector
from .cholesky import solve_lower
from .covariance import learn_point
from .linear import add_times

WALK_ACCEPT = 0.234  # acceptance rate that the walk's step size is adapted to
_HASTE = 100.0  # iterations after which the walk's step size is adapted more slowly
_POINTS_A_DIMENSION = 3  # fewer give no useful covariance


class Frame(NamedTuple):
    """x = center + sqrt(scale) L q."""

    center: np.ndarray  # (d,)
    chol_t: np.ndarray  # (d, d) lower L, transposed
    scale: float


def plain_frame(center: Vector) -> Frame:
    """The frame with L = I."""
    return Frame(center.copy(), np.eye(center.size), 1.0)


@kernel
def adapt_walk_size(walk_size: Real, t: Any, accept_prob: Real, target_accept: Real = WALK_ACCEPT) -> Real:
    """The step size of the walk after its iteration `t`, 1, 2, ...

    Its learning rate decreases later than the learning rate of the covariance. In a far tail the first steps
    are tiny, and the walk leaves the tail only as fast as the steps grow.
    """
    gain = (t / _HASTE + 1.0) ** -0.7
    return walk_size * np.exp(0.5 * gain * (accept_prob - target_accept))


@kernel
def learn_walk(frame: Frame, t: Any, x: Vector) -> Frame:
    """The frame after iteration `t` of the walk, which ended at `x` (d,)."""
    gamma = (t + 1.0) ** -0.7
    scale, _ = learn_point(frame.center, frame.chol_t, frame.scale, 0.0, x, 1.0 - gamma, gamma, gamma)
    return Frame(frame.center, frame.chol_t, scale)


@kernel
def whiten(frame: Frame, x: Vector) -> Vector:
    """The coordinates q (d,) of `x` (d,)."""
    q = np.empty(x.size)
    for i in range(x.size):
        q[i] = (x[i] - frame.center[i]) / np.sqrt(frame.scale)
    solve_lower(frame.chol_t, q)
    return q


@kernel
def unwhiten(frame: Frame, q: Vector) -> Vector:
    """The point x (d,) with the coordinates `q` (d,)."""
    x, away = np.empty(q.size), np.empty(q.size)
    for i in range(q.size):
        x[i], away[i] = frame.center[i], np.sqrt(frame.scale) * q[i]
    add_times(x, frame.chol_t, away)
    return x


def estimate_frame(points: np.ndarray, before: Frame) -> Frame:
    """The frame of the mean and covariance of `points` (n, d), or a copy of `before` if they are too few."""
    d = points.shape[1]
    before = Frame(before.center.copy(), before.chol_t.copy(), before.scale)  # the walk may go on changing it
    if len(np.unique(points[:, 0])) < _POINTS_A_DIMENSION * d:
        return before
    covariance = np.atleast_2d(np.cov(points.T))
    try:
        chol = linalg.cholesky(covariance, lower=True)
    except linalg.LinAlgError:
        return before
    return Frame(points.mean(axis=0), np.ascontiguousarray(chol.T), 1.0)


def whiten_points(frame: Frame, points: np.ndarray) -> np.ndarray:
    """The coordinates (n, d) of `points` (n, d)."""
    away = (points - frame.center) / np.sqrt(frame.scale)
    q: np.ndarray = linalg.solve_triangular(frame.chol_t, away.T, trans="T").T
    return np.ascontiguousarray(q)
