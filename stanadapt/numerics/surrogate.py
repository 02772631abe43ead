"""A surrogate, a log density learned from draws: its gradient, and Hamiltonian trajectories along it.

Strathmann, Sejdinovic, Livingstone, Szabo and Gretton (2015), Gradient-free Hamiltonian Monte Carlo with
Efficient Kernel Exponential Families. score_matching.py learns the surrogate.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..jit import kernel
from ..kinds import Integer, Real, Vector

RADIAL_FUNCTIONS = ("gaussian", "rational_quadratic")
GAUSSIAN, RATIONAL_QUADRATIC = 0, 1
FOURIER = 2  # a surrogate with finitely many random features, of either radial function


class Surrogate(NamedTuple):
    """f(x) = sum_i w_i k(z_i, x) or sum_j w_j cos(omega_j . x + u_j): the log density up to a constant.

    With r = ||z - x||, k is the radial function exp(-r²/sigma) or (1 + r²/(shape sigma))^-shape. The first is
    the limit of the second for a large shape.
    """

    kind: int  # GAUSSIAN, RATIONAL_QUADRATIC or FOURIER
    centers_t: np.ndarray  # (d, n) z_i or omega_j as columns, so that loops over them run along memory
    weights: np.ndarray  # (n,)
    phases: np.ndarray  # (n,) u_j; not used by the other kinds
    sigma: float
    shape: float


def empty_surrogate(kind: Integer, d: Integer) -> Surrogate:
    """The surrogate without centers; its gradient is zero."""
    return Surrogate(kind, np.empty((d, 0)), np.empty(0), np.empty(0), 1.0, 1.0)


@kernel
def surrogate_gradient(surrogate: Surrogate, x: Vector, out: Vector) -> None:
    """Write the gradient of the surrogate at `x` (d,) to `out` (d,); O(d n)."""
    kind, centers_t, weights, phases, sigma, shape = surrogate
    n = weights.size
    pull = np.empty(n)  # each center contributes pull times (center - x)
    if kind == FOURIER:
        for i in range(n):
            pull[i] = phases[i]
        for k in range(x.size):
            row, at = centers_t[k], x[k]
            for i in range(n):
                pull[i] += row[i] * at
        for i in range(n):
            pull[i] = -weights[i] * np.sin(pull[i])
    else:
        for i in range(n):
            pull[i] = 0.0
        for k in range(x.size):
            row, at = centers_t[k], x[k]
            for i in range(n):
                away = row[i] - at
                pull[i] += away * away
        if kind == GAUSSIAN:
            for i in range(n):
                pull[i] = 2.0 / sigma * weights[i] * np.exp(-pull[i] / sigma)
        else:
            for i in range(n):
                pull[i] = 2.0 / sigma * weights[i] * (1.0 + pull[i] / (shape * sigma)) ** -(shape + 1.0)
    total = 0.0
    for i in range(n):
        total += pull[i]
    for k in range(x.size):
        row, along = centers_t[k], 0.0
        for i in range(n):
            along += pull[i] * row[i]
        out[k] = along if kind == FOURIER else along - total * x[k]


@kernel
def surrogate_leapfrog(
    surrogate: Surrogate, x: Vector, momentum: Vector, step_size: Real, n_leapfrog: Integer
) -> None:
    """`n_leapfrog` steps along the surrogate from (x, momentum); both (d,) change in place.

    The integrator is the same as in leapfrog.py. No step can fail, because the surrogate is defined
    everywhere. The caller evaluates the target at the end.
    """
    half = 0.5 * step_size
    score = np.empty(x.size)
    surrogate_gradient(surrogate, x, score)
    for i in range(x.size):
        momentum[i] += half * score[i]
    for taken in range(1, n_leapfrog + 1):
        for i in range(x.size):
            x[i] += step_size * momentum[i]
        surrogate_gradient(surrogate, x, score)
        push = half if taken == n_leapfrog else step_size
        for i in range(x.size):
            momentum[i] += push * score[i]
