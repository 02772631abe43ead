"""Coordinates in which what a chain has seen has mean zero and covariance I, and the random walk in them.

Methods that learn from a chain's history begin with this walk. It is that of samplers/arwmh.py, with learning
rates (t + 1)^-0.7 of the covariance and (t / 100 + 1)^-0.7 of the step size: Andrieu and Thoms (2008),
Algorithm 4.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import linalg

from ..jit import kernel
from .cholesky import solve_lower
from .covariance import learn_point
from .linear import add_times, scaled_identity

WALK_ACCEPT = 0.234  # acceptance rate that the walk aims at
_HASTE = 100.0  # iterations over which the walk's step size is adapted at full rate
_POINTS_A_DIMENSION = 3  # fewer give no covariance worth having


class Frame(NamedTuple):
    """x = center + sqrt(scale) L q."""

    center: np.ndarray  # (d,)
    chol_t: np.ndarray  # (d, d) lower L, transposed
    scale: float


@kernel
def plain_frame(center: Any) -> Any:
    """L = I."""
    return Frame(center.copy(), scaled_identity(center.size, 1.0), 1.0)


@kernel
def walk_size_after(walk_size: Any, t: Any, accept_prob: Any, target_accept: Any = WALK_ACCEPT) -> Any:
    """The step size of the walk after its iteration `t`, 1, 2, ...

    It comes to rest later than the covariance does: in a far tail first steps are tiny, and the walk leaves
    it as fast as they grow.
    """
    gain = (t / _HASTE + 1.0) ** -0.7
    return walk_size * np.exp(0.5 * gain * (accept_prob - target_accept))


@kernel
def learn_walk(frame: Any, t: Any, x: Any) -> Any:
    """The frame after iteration `t` of the walk, which ended at `x` (d,)."""
    gamma = (t + 1.0) ** -0.7
    scale, _ = learn_point(frame.center, frame.chol_t, frame.scale, 0.0, x, 1.0 - gamma, gamma, gamma)
    return Frame(frame.center, frame.chol_t, scale)


@kernel
def into_frame(frame: Any, x: Any) -> Any:
    """q (d,) of `x` (d,)."""
    q = np.empty_like(x)
    for i in range(x.size):
        q[i] = (x[i] - frame.center[i]) / np.sqrt(frame.scale)
    solve_lower(frame.chol_t, q)
    return q


@kernel
def out_of_frame(frame: Any, q: Any) -> Any:
    """x (d,) of `q` (d,)."""
    x = frame.center.copy()
    add_times(x, frame.chol_t, np.sqrt(frame.scale) * q)
    return x


def frame_of(points: np.ndarray, before: Frame) -> Frame:
    """The frame of the mean and covariance of `points` (n, d); a copy of `before`, where they are too few."""
    d = points.shape[1]
    before = Frame(before.center.copy(), before.chol_t.copy(), before.scale)  # it may go on learning
    if len(np.unique(points[:, 0])) < _POINTS_A_DIMENSION * d:
        return before
    covariance = np.atleast_2d(np.cov(points.T))
    try:
        chol = linalg.cholesky(covariance, lower=True)
    except linalg.LinAlgError:
        return before
    return Frame(points.mean(axis=0), np.ascontiguousarray(chol.T), 1.0)


def all_into_frame(frame: Frame, points: np.ndarray) -> np.ndarray:
    """The coordinates (n, d) of `points` (n, d)."""
    away = (points - frame.center) / np.sqrt(frame.scale)
    q: np.ndarray = linalg.solve_triangular(frame.chol_t, away.T, trans="T").T
    return np.ascontiguousarray(q)
