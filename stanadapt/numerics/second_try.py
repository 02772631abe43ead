"""A second, shorter try where a trajectory has failed: delayed rejection.

In the neck of a funnel, or near a wall, the step size that is right elsewhere may be so long that hardly any
trajectory is accepted. The chain then stands still there for hundreds of draws. So a trajectory whose end has
practically no chance is tried again from the same point with the same momentum and a shorter step, and its
end y is accepted with a probability that keeps the posterior. This is the rule of Tierney and Mira (1999),
Some adaptive Monte Carlo methods for Bayesian inference, for proposals that are functions of point and
momentum, see Modi, Barnett and Carpenter (2023), Delayed rejection Hamiltonian Monte Carlo for sampling
multiscale distributions:

    min(1, e^(H(x) - H(y)) (1 - a(y)) / (1 - a(x))),

where a is the acceptance probability of the first trajectory, and a(y) that of the one which begins at y with
the momentum turned round. The way back from y must be a second try too. So the probability is 0 if that
trajectory has a chance.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..jit import kernel
from ..kinds import Generator, Integer, Real, Target, Vector
from .energy import energy_of
from .linear import dot
from .metric import velocity_into
from .metropolis import accept_probability_if_finite
from .splitting import ACCEPTED, ENERGY, LENGTH, STEPS, split_steps

# An end is tried again if the energy has risen by more than this: it would be accepted once in 20 times.
HOPELESS = 3.0
HALVINGS = 1.0, 4.0  # the step is halved so many times at least and at most, by chance


@kernel(seldom=True)
def try_again(
    target: Target,
    metric: Any,
    x: Vector,
    score: Vector,
    logp: Real,
    energy: Real,
    rise: Real,
    room: Any,
    rng: Generator,
) -> tuple[Real, Integer]:
    """Try a trajectory from `x` (d,) again that `trajectory` has just rejected, as `room` knows it.

    `energy` is that at its start, and `rise` what it rose by. If the new end is accepted, it replaces point
    and score in place, and `room` has its energy. Returns the log density and the number of gradients.
    """
    y, momentum, its_score, drawn = room.y, room.momentum, room.score, room.drawn
    h, n, drawn[ACCEPTED] = drawn[LENGTH], int(drawn[STEPS]), 0.0
    halvings = HALVINGS[0] + (HALVINGS[1] - HALVINGS[0]) * rng.random()
    length, taken, logp_y, ratio = h * 0.5**halvings, 0, logp, 0.0
    chance = rng.random() * (1.0 - accept_probability_if_finite(-rise))
    for i in range(x.size):
        y[i], momentum[i], its_score[i] = x[i], room.first[i], score[i]
    for is_way_back in (False, True):
        logp_end, more = split_steps(target, metric, y, momentum, its_score, room.velocity, length, n)
        taken += more
        energy_end = np.inf
        if logp_end > -np.inf:
            velocity_into(room.z, metric, momentum)
            energy_end = energy_of(logp_end, 0.5 * dot(momentum, room.z))
        if is_way_back:
            back = energy_end - drawn[ENERGY]
            if back <= HOPELESS or not chance < ratio * (1.0 - accept_probability_if_finite(-back)):
                return logp, taken
        else:
            ratio = np.exp(energy - energy_end)
            if not chance < ratio:  # whatever a(y) is
                return logp, taken
            logp_y, drawn[ENERGY], length = logp_end, energy_end, h
            for i in range(x.size):
                room.second[i], room.second_score[i], momentum[i] = y[i], its_score[i], -momentum[i]
    for i in range(x.size):
        x[i], score[i] = room.second[i], room.second_score[i]
    drawn[ACCEPTED] = 1.0
    return logp_y, taken
