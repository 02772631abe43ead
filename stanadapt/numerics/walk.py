"""The Gaussian random walk with a full covariance."""

from __future__ import annotations

import numpy as np

from ..jit import kernel
from ..kinds import Generator, Matrix, Real, Target, Vector
from ..target import log_density
from .linear import add_outer, add_times, dot, times
from .metropolis import accept_probability


@kernel
def propose_walk(x: Vector, root_t: Matrix, s: Real, rng: Generator, y: Vector, z: Vector) -> None:
    """Write y = x + s R z to `y` (d,), and the standard normal z to `z` (d,).

    `root_t` (d, d) is R transposed, see linear.py.
    """
    step = np.empty(x.size)
    for i in range(x.size):
        z[i] = rng.standard_normal()
        y[i], step[i] = x[i], s * z[i]
    add_times(y, root_t, step)


@kernel
def coerce(root_t: Matrix, z: Vector, rate: Real, accept_prob: Real, target_accept: Real) -> None:
    """R R^T <- R [I + rate (alpha - alpha*) z z^T / |z|²] R^T, in place, in O(d²).

    Vihola (2012), Robust adaptive Metropolis algorithm with coerced acceptance rate. Steps become longer or
    shorter in the direction z (d,) of the proposal. So no direction is lost, but a covariance that is learned
    from few points loses some.
    """
    size = dot(z, z)
    if size > 0.0:
        gain = np.sqrt(max(1e-6, 1.0 + rate * (accept_prob - target_accept))) - 1.0
        add_outer(root_t, 1.0, gain / size, times(root_t, z), z)


@kernel
def first_scale(target: Target, x: Vector, logp: Real, target_accept: Real, rng: Generator) -> Real:
    """The first s = 1, 1/2, 1/4, ... at which x + s z, for one z, has more than the target acceptance."""
    s, z, y = 1.0, np.empty(x.size), np.empty(x.size)
    for i in range(x.size):
        z[i] = rng.standard_normal()
    for _ in range(100):
        for i in range(x.size):
            y[i] = x[i] + s * z[i]
        if accept_probability(log_density(target, y) - logp) > target_accept:
            break
        s *= 0.5
    return s


def gaussian_scale(d: int) -> float:
    """The best s, with acceptance 0.234, for a Gaussian with covariance R R^T in many dimensions."""
    return float(2.38 * d**-0.5)
