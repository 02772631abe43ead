"""Random-walk Metropolis with an isotropic Gaussian proposal.

Metropolis et al. (1953). The target acceptance rate of 0.234 comes from Roberts, Gelman and Gilks (1997).
Titsias and Dellaportas (2019) and Titsias (2023) have the method as a plain baseline. Its step size follows
the rule in Algorithm 1 of Titsias (2023).

    paper     here                   shape  meaning
    x         state.x                (d,)   position on the unconstrained scale
    sigma     state.step_size        ()     standard deviation of the proposal: y = x + sigma z
    alpha_*   settings.target_accept ()     acceptance rate that sigma is adapted to
    rho_n     settings.step_rate     ()     learning rate of sigma²

Departures from the paper:
1. A search that halves from 1 finds the first step size, unless `initial_step_size` sets it; the paper names
   none. The search does not double: from a bad start a step of any length may improve the density, and a long
   one leads far into another tail.

Cost of an iteration: one log density, O(d).
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from ..jit import kernel
from ..kinds import Flag, Generator, Target, Vector
from ..numerics.metropolis import accept_probability
from ..numerics.step_size import adapt_step_size
from ..numerics.walk import first_scale
from ..target import log_density
from ..trace import NOTHING, Info
from .base import BOTH_SIDES, WALK, Facts, Stage, move_with_density
from .loop import make_sweep
from .settings import POSITIVE, PROBABILITY, Limit


class Settings(NamedTuple):
    target_accept: Annotated[float, PROBABILITY, "acceptance rate that the step size aims at"] = 0.234
    step_rate: Annotated[float, Limit(0.0, 1.0), "learning rate of the squared step size"] = 0.015
    initial_step_size: Annotated[float | None, POSITIVE, "first sigma; None: search by halving from 1"] = None


FACTS = Facts(
    module=__name__,
    family=WALK,
    needs="densities",
    learns=("step size",),
    warmup=20_000,
    draws=20_000,
    gradient=False,
    acceptance=BOTH_SIDES,
    takes_step_size=True,
)


class State(NamedTuple):
    x: np.ndarray
    logp: float
    step_size: float


def stages(settings: Settings, warmup: int, d: int) -> list[Stage]:
    return [Stage("step_size", warmup)]


@kernel
def start(target: Target, settings: Any, x: Vector, rng: Generator) -> State:
    """The state at `x` (d,)."""
    logp = log_density(target, x)
    s = settings.initial_step_size
    if np.isnan(s):
        s = first_scale(target, x, logp, settings.target_accept, rng)
    return State(x.copy(), logp, s)


@kernel
def step(target: Target, settings: Any, state: State, rng: Generator, adapting: Flag) -> tuple[State, Info]:
    """One iteration."""
    x, logp, step_size = state

    y = np.empty_like(x)
    for i in range(x.size):
        y[i] = x[i] + step_size * rng.standard_normal()
    logp_y = log_density(target, y)
    accept_prob = accept_probability(logp_y - logp)

    if adapting:
        step_size = adapt_step_size(step_size, accept_prob, settings.target_accept, settings.step_rate)
    accepted = rng.random() < accept_prob
    if accepted:
        x, logp = y, logp_y
    info = Info(accept_prob, accepted, step_size, 1, NOTHING)
    return State(x, logp, step_size), info


sweep = make_sweep(step)
move = move_with_density
