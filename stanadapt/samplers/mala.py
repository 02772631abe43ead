"""The Metropolis-adjusted Langevin algorithm, isotropic.

Roberts and Tweedie (1996); the acceptance rate to aim at is 0.574, Roberts and Rosenthal (1998). It is the
baseline "simple MALA" of Titsias (2023), from whose Algorithm 1 comes the rule for the step size.

    paper     here                   shape  meaning
    x_n       state.x                (d,)   position on the unconstrained scale
    s(x_n)    state.score            (d,)   gradient of the log density at x_n
    sigma     state.step_size        ()     y = x + (sigma²/2) s(x) + sigma z
    alpha_*   settings.target_accept ()     acceptance rate that the step size is adapted to
    rho_n     settings.step_rate     ()     learning rate of sigma²

Departures from the paper, both off with `faithful=True`:
1. The first step size is found by doubling and halving (the paper names none; when faithful it is 0.1);
   `initial_step_size` sets it in both modes.
2. A random start first climbs out of the far tail, see numerics/ascent.py.

Cost of an iteration: one gradient, O(d).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..jit import kernel
from ..numerics.langevin import first_step_size, log_proposal_ratio, propose_isotropic
from ..numerics.metropolis import accept_probability
from ..numerics.step_size import towards_target
from ..target import log_density_gradient
from ..trace import record
from .base import NOT_NEGATIVE, PROBABILITY, Limit, Stage


class Settings(NamedTuple):
    target_accept: float = 0.574
    step_rate: float = 0.015
    initial_step_size: float = 0.0  # 0: found by doubling and halving; 0.1 when faithful
    faithful: bool = False


CHOICES: dict[str, tuple[str, ...]] = {}
LIMITS = {
    "target_accept": PROBABILITY,
    "step_rate": Limit(0.0, 1.0),
    "initial_step_size": NOT_NEGATIVE,
}
NEEDS_GRADIENT, NEEDS_HESSIAN = True, False
WARMUP, DRAWS = 10_000, 10_000


class State(NamedTuple):
    x: np.ndarray
    logp: float
    score: np.ndarray
    step_size: float


def n_matrices(settings: Any) -> int:
    return 0


def stages(settings: Settings, warmup: int, d: int) -> list[Stage]:
    return [Stage("step_size", warmup)]


@kernel
def start(target: Any, settings: Any, x: Any, rng: Any) -> Any:
    """The state at `x` (d,)."""
    score = np.empty_like(x)
    logp = log_density_gradient(target, x, score)
    s = first_step_size(target, settings, x, logp, score, rng)
    return State(x.copy(), logp, score, s)


def enter(stage: str, state: State, settings: Settings) -> State:
    return state


@kernel
def step(target: Any, settings: Any, state: Any, rng: Any, adapting: Any) -> Any:
    """One iteration. Returns the next state, the acceptance probability and whether it accepted."""
    x, logp, score, step_size = state

    y = propose_isotropic(x, score, step_size, rng)
    score_y = np.empty_like(x)
    logp_y = log_density_gradient(target, y, score_y)
    accept_prob = 0.0
    if logp_y > -np.inf:
        ratio = log_proposal_ratio(x, score, score, y, score_y, score_y, step_size)
        accept_prob = accept_probability(logp_y - logp + ratio)

    if adapting:
        step_size = towards_target(step_size, accept_prob, settings.target_accept, settings.step_rate)
    accepted = rng.random() < accept_prob
    if accepted:
        x, logp, score = y, logp_y, score_y
    return State(x, logp, score, step_size), accept_prob, accepted


@kernel
def sweep(target: Any, settings: Any, state: Any, rng: Any, adapting: Any, trace: Any) -> Any:
    """Run one iteration for every row of `trace`."""
    for i in range(trace.logp.size):
        state, accept_prob, accepted = step(target, settings, state, rng, adapting)
        record(trace, i, state.x, state.logp, accept_prob, accepted, state.step_size, 1)
    return state


def history(state: State) -> dict[str, float]:
    return {}


def learnt(state: State) -> dict[str, Any]:
    return {}
