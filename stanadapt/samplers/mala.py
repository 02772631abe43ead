"""The Metropolis-adjusted Langevin algorithm, isotropic.

Roberts and Tweedie (1996). The target acceptance rate of 0.574 comes from Roberts and Rosenthal (1998). The
method is the baseline "simple MALA" of Titsias (2023), and its step size follows the rule in Algorithm 1
there.

    paper     here                   shape  meaning
    x_n       state.x                (d,)   position on the unconstrained scale
    s(x_n)    state.score            (d,)   gradient of the log density at x_n
    sigma     state.step_size        ()     y = x + (sigma²/2) s(x) + sigma z
    alpha_*   settings.target_accept ()     acceptance rate that sigma is adapted to
    rho_n     settings.step_rate     ()     learning rate of sigma²

Departures from the paper, both off with `faithful=True`:
1. A search by doubling and halving finds the first step size; the paper names none, and a faithful run takes
   0.1. `initial_step_size` sets it in both modes.
2. A random start first climbs out of the far tail, see numerics/ascent.py.

Cost of an iteration: one gradient, O(d).
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from ..jit import kernel
from ..kinds import Flag, Generator, Target, Vector
from ..numerics.langevin import first_step_size, log_proposal_ratio, propose_isotropic
from ..numerics.metropolis import accept_probability_if_finite
from ..numerics.step_size import adapt_step_size
from ..target import log_density_gradient
from ..trace import NOTHING, Info
from .base import BOTH_SIDES, LANGEVIN, UNLESS_FAITHFUL, Facts, Stage, move_with_score
from .loop import make_sweep
from .settings import POSITIVE, PROBABILITY, Limit


class Settings(NamedTuple):
    target_accept: Annotated[float, PROBABILITY, "acceptance rate that the step size aims at"] = 0.574
    step_rate: Annotated[float, Limit(0.0, 1.0), "learning rate of the squared step size"] = 0.015
    initial_step_size: Annotated[float | None, POSITIVE, "first sigma; None: search; 0.1 if faithful"] = None
    faithful: Annotated[bool, "follow the paper, without our departures"] = False


FACTS = Facts(
    module=__name__,
    family=LANGEVIN,
    needs="gradients",
    learns=("step size",),
    warmup=10_000,
    draws=10_000,
    gradient=True,
    acceptance=BOTH_SIDES,
    climbs=UNLESS_FAITHFUL,
    takes_step_size=True,
)


class State(NamedTuple):
    x: np.ndarray
    logp: float
    score: np.ndarray
    step_size: float


def stages(settings: Settings, warmup: int, d: int) -> list[Stage]:
    return [Stage("step_size", warmup)]


@kernel
def start(target: Target, settings: Any, x: Vector, rng: Generator) -> State:
    """The state at `x` (d,)."""
    score = np.empty_like(x)
    logp = log_density_gradient(target, x, score)
    s = first_step_size(target, settings, x, logp, score, rng)
    return State(x.copy(), logp, score, s)


@kernel
def step(target: Target, settings: Any, state: State, rng: Generator, adapting: Flag) -> tuple[State, Info]:
    """One iteration."""
    x, logp, score, step_size = state

    y, score_y = np.empty_like(x), np.empty_like(x)
    propose_isotropic(x, score, step_size, rng, y)
    logp_y = log_density_gradient(target, y, score_y)
    ratio = log_proposal_ratio(x, score, score, y, score_y, score_y, step_size)
    accept_prob = accept_probability_if_finite(logp_y - logp + ratio)  # 0 if y has no log density
    accepted = rng.random() < accept_prob

    if accepted:
        x, logp, score = y, logp_y, score_y
    if adapting:
        step_size = adapt_step_size(step_size, accept_prob, settings.target_accept, settings.step_rate)
    return State(x, logp, score, step_size), Info(accept_prob, accepted, step_size, 1, NOTHING)


sweep = make_sweep(step)
move = move_with_score
