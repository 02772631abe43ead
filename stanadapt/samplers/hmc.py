"""Hamiltonian Monte Carlo with identity mass and a fixed number of leapfrog steps.

Duane et al. (1987); Neal (2011), MCMC using Hamiltonian dynamics. It is the baseline HMC-5, HMC-10 and HMC-20
of Titsias and Dellaportas (2019) and of Titsias (2023). The target acceptance rate of 0.651 comes from Beskos
et al. (2013).

    paper     here                     shape  meaning
    x         state.x                  (d,)   position on the unconstrained scale
    s(x)      state.score              (d,)   gradient of the log density at x
    p         momentum                 (d,)   drawn from N(0, I) for every trajectory
    epsilon   state.step_size          ()     step size of the integrator
    L         settings.n_leapfrog      ()     leapfrog steps of a trajectory
              settings.jitter          ()     epsilon is multiplied by 1 + jitter u, u uniform on (-1, 1)
    alpha_*   settings.target_accept   ()     acceptance rate that epsilon is adapted to

If a direction has the length of the trajectory as its period, the trajectory returns to its start in this
direction, and the chain mixes badly there. A `jitter` of 0.1 or more prevents that.

Departures from the paper, all off with `faithful=True`:
1. A search by doubling and halving finds the first step size; the papers name none, and a faithful run takes
   0.1. `initial_step_size` sets it in both modes.
2. A random start first climbs out of the far tail, see numerics/ascent.py.
3. The frozen step size is the geometric mean of the step sizes in the second half of warm-up. Acceptance
   depends strongly on the step size: with the last one of the noisy sequence, acceptance rates would scatter
   by 0.1 about the target.

Cost of an iteration: L gradients, O(L d).
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from ..jit import kernel
from ..kinds import Flag, Generator, Target, Vector
from ..numerics.energy import HARMLESS_SHARE, diverges, energy_of
from ..numerics.langevin import first_step_size
from ..numerics.leapfrog import leapfrog
from ..numerics.linear import dot
from ..numerics.metropolis import accept_probability_if_finite
from ..numerics.step_size import adapt_step_size
from ..target import log_density_gradient
from ..trace import Info
from .base import (
    BOTH_SIDES,
    HAMILTONIAN,
    TRAJECTORY_COLUMNS,
    UNLESS_FAITHFUL,
    Facts,
    Stage,
    move_with_score,
)
from .loop import make_sweep
from .settings import POSITIVE, PROBABILITY, Limit


class Settings(NamedTuple):
    n_leapfrog: Annotated[int, Limit(1, 100_000), "L: leapfrog steps of a trajectory"] = 10
    jitter: Annotated[float, Limit(0.0, 0.99), "share by which epsilon varies at random"] = 0.0
    target_accept: Annotated[float, PROBABILITY, "acceptance rate that epsilon aims at"] = 0.651
    step_rate: Annotated[float, Limit(0.0, 1.0), "learning rate of the squared step size"] = 0.015
    initial_step_size: Annotated[float | None, POSITIVE, "first epsilon; None: search; 0.1 if faithful"] = (
        None
    )
    faithful: Annotated[bool, "follow the paper, without our departures"] = False


FACTS = Facts(
    module=__name__,
    family=HAMILTONIAN,
    needs="gradients",
    learns=("step size",),
    warmup=5_000,
    draws=5_000,
    gradient=True,
    acceptance=BOTH_SIDES,
    climbs=UNLESS_FAITHFUL,
    columns=TRAJECTORY_COLUMNS,
    harmless_divergences=HARMLESS_SHARE,
    takes_step_size=True,
    leapfrogs=1.0,
)


class State(NamedTuple):
    x: np.ndarray
    logp: float
    score: np.ndarray
    step_size: float
    log_sum: float  # sum of the log step sizes over n iterations
    n: float  # -1 before the sum begins


def stages(settings: Settings, warmup: int, d: int) -> list[Stage]:
    gathered = 0 if settings.faithful else warmup // 2
    return [Stage("step_size", warmup - gathered), Stage("averaged", gathered)]


@kernel
def start(target: Target, settings: Any, x: Vector, rng: Generator) -> State:
    """The state at `x` (d,)."""
    score = np.empty_like(x)
    logp = log_density_gradient(target, x, score)
    s = first_step_size(target, settings, x, logp, score, rng)
    return State(x.copy(), logp, score, s, 0.0, -1.0)


def enter(stage: str, state: State, settings: Settings) -> State:
    return state._replace(n=0.0) if stage == "averaged" else state


@kernel
def step(target: Target, settings: Any, state: State, rng: Generator, adapting: Flag) -> tuple[State, Info]:
    """One trajectory."""
    x, logp, score, step_size, log_sum, n = state
    if not adapting and n > 0.0:
        step_size = np.exp(log_sum / n)

    y, score_y, momentum = x.copy(), score.copy(), np.empty_like(x)
    for i in range(x.size):
        momentum[i] = rng.standard_normal()
    epsilon = step_size
    if settings.jitter > 0.0:
        epsilon *= 1.0 + settings.jitter * (2.0 * rng.random() - 1.0)
    energy = energy_of(logp, 0.5 * dot(momentum, momentum))
    logp_y, taken = leapfrog(target, y, momentum, score_y, epsilon, settings.n_leapfrog)
    energy_y = energy_of(logp_y, 0.5 * dot(momentum, momentum))
    rise = energy_y - energy
    accept_prob, diverging = accept_probability_if_finite(-rise), diverges(rise)

    if adapting:
        step_size = adapt_step_size(step_size, accept_prob, settings.target_accept, settings.step_rate)
        if n >= 0.0:
            log_sum, n = log_sum + np.log(step_size), n + 1.0
    accepted = rng.random() < accept_prob
    if accepted:
        x, logp, score, energy = y, logp_y, score_y, energy_y
    info = Info(accept_prob, accepted, step_size, taken, (energy, rise, diverging))
    return State(x, logp, score, step_size, log_sum, n), info


sweep = make_sweep(step)
move = move_with_score
