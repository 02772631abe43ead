"""The two-stage splitting integrator of Hamiltonian dynamics.

One step of length h, from half-momentum to half-momentum, is

    p += b h s(x),  x += (h/2) A p,  p += (1 - 2b) h s(x),  x += (h/2) A p,  p += b h s(x)

with the inverse mass matrix A, see metric.py. For b = 1/4 it is two leapfrog steps of length h/2. Any other b
costs the same two gradients, and the step is still reversible and volume-preserving. But the energy error on
a Gaussian can be a hundred times smaller: Blanes, Casas and Sanz-Serna (2014), Numerical integrators for the
hybrid Monte Carlo method.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..jit import kernel
from ..kinds import Generator, Integer, Real, Target, Vector
from ..target import log_density_gradient
from .metric import velocity_into

# This b minimises the largest mean energy error on a standard Gaussian over 0 < h < 2.1. The error is 7e-4 a
# dimension; the error of leapfrog is 5e-2. The value of Blanes et al., 0.21178, is the best for h < 2, but
# beyond that its error grows sooner.
B = 0.2145
FEW_DIMENSIONS = 16.0  # up to so many, short steps come from scales that differ
SHORTEST = 3.0  # beyond this ratio of T/2 to a step, trajectories become longer with twice the exponent


LENGTH, STEPS, ENERGY, ACCEPTED = 0, 1, 2, 3  # places in `Room.drawn`


class Room(NamedTuple):
    """Work space of a trajectory, arrays (d,), and what a second try (second_try.py) has to know of it."""

    z: np.ndarray
    momentum: np.ndarray
    y: np.ndarray
    score: np.ndarray
    velocity: np.ndarray
    first: np.ndarray  # the momentum at its start
    second: np.ndarray  # where a second try has ended, and the score there
    second_score: np.ndarray
    drawn: np.ndarray  # (4,) step, number of steps; energy at the end of a second try, whether accepted


@kernel
def room(d: Integer) -> Room:
    """Work space for trajectories in dimension `d`."""
    z, momentum, y, score, velocity = np.empty(d), np.empty(d), np.empty(d), np.empty(d), np.empty(d)
    return Room(z, momentum, y, score, velocity, np.empty(d), np.empty(d), np.empty(d), np.empty(4))


@kernel(counted=False)
def trajectory_steps(settings: Any, step_size: Real, most: Any) -> Real:
    """The mean number of steps of a trajectory in warm-up, where it has `most` at most."""
    least, largest = _range_of_steps(settings, step_size, most, 1)
    return 0.5 * (least + largest)


@kernel(counted=False)
def draw_steps(settings: Any, step_size: Real, most: Any, d: Integer, rng: Generator) -> Integer:
    """The number of steps of a trajectory, at random, in dimension `d`; in warm-up `d` should be 1.

    Trajectories that are made longer differ in length, from the usual one on. If all had the same length, and
    it was near half a period of some directions, these would change their signs and keep their distances
    from the mean: means of squares and tails would hardly mix.
    """
    n, largest = _range_of_steps(settings, step_size, most, d)
    if largest > n:
        n += (largest - n) * rng.random()
    return max(1, int(n + rng.random()))


@kernel(counted=False)
def _range_of_steps(settings: Any, step_size: Real, most: Any, d: Integer) -> tuple[Real, Real]:
    """The least and the largest number of steps of a trajectory, before rounding.

    The least is the one for a Gaussian. If steps are short compared with the trajectory, scales differ, and
    trajectories are made longer. But steps become shorter in many dimensions too, by the fourth root of their
    number, where all scales are right (Beskos, Pillai, Roberts, Sanz-Serna and Stuart, 2013, Optimal tuning
    of the hybrid Monte Carlo algorithm). With d = 1 all short steps are taken for scales that differ, as they
    do while a metric is being learned.

    The metric is a compromise between narrow directions, which bound the step, and wide ones. If steps are
    very short, the wide ones are that much too long for a trajectory, which then grows in proportion: the
    exponent is twice as large.
    """
    n = min(settings.trajectory / step_size, 1.0 * most)
    short, largest = 0.5 * settings.trajectory / step_size, n
    if d > FEW_DIMENSIONS:
        short *= (FEW_DIMENSIONS / d) ** 0.25
    if short > 1.0:
        longer = (short * max(1.0, short / SHORTEST)) ** settings.stretch
        largest = min(n * (2.0 * longer - 1.0), 1.0 * most)
    return n, largest


@kernel(counted=False)
def split_steps(
    target: Target,
    metric: Any,
    x: Vector,
    momentum: Vector,
    score: Vector,
    velocity: Vector,
    h: Real,
    n: Integer,
) -> tuple[Real, Integer]:
    """`n` steps of length `h` from (x, momentum) and the score there; all three (d,) change in place.

    `velocity` (d,) is work space.

    Returns the log density at the end and the number of gradients. A trajectory that meets a point without a
    log density ends there and returns -inf, because the way back would meet that point too.
    """
    logp, taken = -np.inf, 0
    push = B * h
    for _ in range(n):
        for stage in range(2):
            for i in range(x.size):
                momentum[i] += push * score[i]
            velocity_into(velocity, metric, momentum)
            for i in range(x.size):
                x[i] += 0.5 * h * velocity[i]
            logp = log_density_gradient(target, x, score)
            taken += 1
            if logp == -np.inf:
                return logp, taken
            push = (1.0 - 2.0 * B) * h if stage == 0 else 2.0 * B * h
    for i in range(x.size):
        momentum[i] += B * h * score[i]
    return logp, taken


@kernel(counted=False)
def leapfrog_steps(
    target: Target,
    metric: Any,
    x: Vector,
    momentum: Vector,
    score: Vector,
    velocity: Vector,
    h: Real,
    n: Integer,
) -> tuple[Real, Integer]:
    """`split_steps` with the leapfrog integrator, which takes one gradient a step.

    A trajectory of one step is a proposal of the Langevin algorithm with the preconditioner A.
    """
    logp, taken = -np.inf, 0
    push = 0.5 * h
    while taken < n:
        for i in range(x.size):
            momentum[i] += push * score[i]
        velocity_into(velocity, metric, momentum)
        for i in range(x.size):
            x[i] += h * velocity[i]
        logp = log_density_gradient(target, x, score)
        taken += 1
        if logp == -np.inf:
            return logp, taken
        push = h
    for i in range(x.size):
        momentum[i] += 0.5 * h * score[i]
    return logp, taken
