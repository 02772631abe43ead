"""Random walk with a global scale: the skeleton of a sampler. Copy this file to begin a new one.

No run can ask for it. Metropolis et al. (1953); the scale follows Andrieu and Thoms (2008), Algorithm 4,
without its covariance.

    paper     here                   shape  meaning
    X_i       state.x                (d,)   position on the unconstrained scale
    lambda_i  state.step_size²       ()     scale of the proposal: y = x + sqrt(lambda) z
    gamma_i   (n + 1)^(-beta)        ()     learning rate of log lambda
    alpha_*   settings.target_accept ()     acceptance rate that the scale is adapted to

Departures from the paper: 1. halving from 1 finds the first scale (the paper names none).

Cost of an iteration: one log density, O(d).
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from ..jit import kernel
from ..kinds import Flag, Generator, Target, Vector
from ..numerics.metropolis import accept_probability
from ..numerics.walk import first_scale
from ..target import log_density
from ..trace import NOTHING, Info
from .base import BOTH_SIDES, WALK, Facts, Stage, move_with_density
from .loop import make_sweep
from .settings import PROBABILITY, Limit


class Settings(NamedTuple):
    target_accept: Annotated[float, PROBABILITY, "acceptance rate that the scale is adapted to"] = 0.234
    beta: Annotated[float, Limit(0.5, 1.0, True), "how fast the learning rate decreases: n^(-beta)"] = 0.6


FACTS = Facts(
    module=__name__,
    family=WALK,
    needs="densities",
    learns=("step size",),
    warmup=20_000,
    draws=20_000,
    gradient=False,
    acceptance=BOTH_SIDES,
)


class State(NamedTuple):
    x: np.ndarray
    logp: float
    step_size: float
    n: int  # iterations of warm-up so far


def stages(settings: Settings, warmup: int, d: int) -> list[Stage]:
    return [Stage("scale", warmup)]


@kernel
def start(target: Target, settings: Any, x: Vector, rng: Generator) -> State:
    """The state at `x` (d,)."""
    logp = log_density(target, x)
    return State(x.copy(), logp, first_scale(target, x, logp, settings.target_accept, rng), 0)


@kernel
def step(target: Target, settings: Any, state: State, rng: Generator, adapting: Flag) -> tuple[State, Info]:
    """One iteration."""
    x, logp, step_size, n = state

    y = x + step_size * rng.standard_normal(x.size)
    logp_y = log_density(target, y)
    accept_prob = accept_probability(logp_y - logp)
    accepted = rng.random() < accept_prob
    if accepted:
        x, logp = y, logp_y

    if adapting:
        n += 1
        gamma = (n + 1.0) ** -settings.beta
        step_size *= np.exp(0.5 * gamma * (accept_prob - settings.target_accept))
    return State(x, logp, step_size, n), Info(accept_prob, accepted, step_size, 1, NOTHING)


sweep = make_sweep(step)
move = move_with_density
