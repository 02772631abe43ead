"""One trajectory of Hamiltonian Monte Carlo in the two-stage splitting integrator, and its acceptance."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..jit import kernel
from ..kinds import Flag, Generator, Integer, Real, Target, Vector
from ..trace import Info
from .energy import diverges, energy_of
from .linear import dot
from .metric import momentum_into, velocity_into
from .metropolis import accept_probability_if_finite
from .splitting import LENGTH, STEPS, draw_steps, split_steps


@kernel(counted=False)
def trajectory(
    target: Target,
    settings: Any,
    metric: Any,
    x: Vector,
    score: Vector,
    logp: Real,
    step_size: Real,
    most: Integer,
    d: Integer,
    room: Any,
    rng: Generator,
) -> tuple[Real, Info, Flag]:
    """One trajectory from `x` (d,) and the score there. If the end is accepted, it replaces both in place.

    A trajectory has `most` steps at most, and `d` tells `draw_steps` whether to make it longer. Returns the
    log density, the Info, and whether the trajectory met a point without a log density.
    """
    z, y = room.z, room.y
    for i in range(x.size):
        z[i] = rng.standard_normal()
        y[i] = x[i]
        room.score[i] = score[i]
    momentum_into(room.momentum, metric, z)
    energy = energy_of(logp, 0.5 * dot(z, z))
    h = step_size * (1.0 + settings.jitter * (2.0 * rng.random() - 1.0))
    n = draw_steps(settings, step_size, most, d, rng)
    room.drawn[LENGTH], room.drawn[STEPS] = h, n
    for i in range(x.size):
        room.first[i] = room.momentum[i]
    logp_y, taken = split_steps(target, metric, y, room.momentum, room.score, room.velocity, h, n)
    energy_y, met = np.inf, logp_y == -np.inf
    if not met:
        velocity_into(z, metric, room.momentum)
        energy_y = energy_of(logp_y, 0.5 * dot(room.momentum, z))
    rise = energy_y - energy
    accept_prob, diverging = accept_probability_if_finite(-rise), diverges(rise)
    accepted = rng.random() < accept_prob
    if accepted:
        logp, energy = logp_y, energy_y
        for i in range(x.size):
            x[i] = y[i]
            score[i] = room.score[i]
    return logp, Info(accept_prob, accepted, step_size, taken, (energy, rise, diverging)), met
