"""AM: a random walk whose covariance follows the chain, by a recursion over its Cholesky factor.

Haario, Saksman and Tamminen (2001), in the form of Andrieu and Thoms (2008), Section 5.1.1. Titsias and
Dellaportas (2019) compare with it in Section B of their supplement. It needs no matrix decomposition.

    paper     here                   shape   meaning
    x_t       state.x                (d,)    position on the unconstrained scale
    mu        state.mean             (d,)    running mean of the chain
    L         state.chol_t           (d, d)  lower Cholesky factor of the covariance, transposed
    rho_t     learning_rate(...)     ()      0.001 / (1 + t/T)
    T         settings.horizon       ()      iterations in which the learning rate is nearly constant
    sigma     state.step_size        ()      scale of the proposal: y = x + sigma L eps
    alpha_*   settings.target_accept ()      acceptance rate that sigma is adapted to

Departures from the paper:
1. sigma² starts at 1 and follows the rule of Titsias (2023), Algorithm 1. The paper reports acceptance rates
   but names no rule for sigma.

Cost of an iteration: one log density and a product with L; while adapting, also a triangular solve and a pass
over L. Memory: one (d, d) array a chain.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from ..jit import kernel
from ..kinds import Flag, Generator, Matrix, Real, Target, Vector
from ..numerics.cholesky import follow_outer, solve_lower, transposed_factor
from ..numerics.linear import scaled_identity
from ..numerics.metropolis import accept_probability
from ..numerics.spectrum import summarise_preconditioner
from ..numerics.step_size import adapt_step_size
from ..numerics.walk import gaussian_scale, propose_walk
from ..target import log_density
from ..trace import NOTHING, Info
from .base import BOTH_SIDES, WALK, Facts, Handover, Stage, move_with_density
from .loop import make_sweep
from .settings import POSITIVE, PROBABILITY, SCALE, Limit


class Settings(NamedTuple):
    target_accept: Annotated[float, PROBABILITY, "acceptance rate that sigma aims at"] = 0.234
    step_rate: Annotated[float, Limit(0.0, 1.0), "learning rate of the squared step size"] = 0.015
    learning_rate: Annotated[float, Limit(0.0, 0.5), "first learning rate of mean and L"] = 0.001
    horizon: Annotated[float, POSITIVE, "T: iterations of nearly constant learning rate"] = 4000.0
    initial_scale: Annotated[float, SCALE, "L starts at initial_scale / sqrt(d) times I"] = 0.1


FACTS = Facts(
    module=__name__,
    family=WALK,
    needs="densities",
    learns=("step size", "covariance"),
    warmup=20_000,
    draws=20_000,
    gradient=False,
    acceptance=BOTH_SIDES,
)


class State(NamedTuple):
    x: np.ndarray
    logp: float
    mean: np.ndarray
    chol_t: np.ndarray
    step_size: float
    t: float


def n_matrices(settings: Any) -> int:
    return 1


def stages(settings: Settings, warmup: int, d: int) -> list[Stage]:
    return [Stage("covariance", warmup)]


@kernel
def start(target: Target, settings: Any, x: Vector, rng: Generator) -> State:
    """The state at `x` (d,)."""
    chol_t = scaled_identity(x.size, settings.initial_scale / np.sqrt(x.size))
    return State(x.copy(), log_density(target, x), x.copy(), chol_t, 1.0, 0.0)


def take_over(state: State, handover: Handover, settings: Settings) -> State:
    """Take mean and covariance from an earlier chain; they count for as many iterations."""
    step_size = handover.step_size if handover.step_size > 0.0 else gaussian_scale(state.x.size)
    chol_t = transposed_factor(handover.cov)
    return state._replace(mean=handover.mean, chol_t=chol_t, step_size=step_size, t=float(handover.n))


@kernel
def step(target: Target, settings: Any, state: State, rng: Generator, adapting: Flag) -> tuple[State, Info]:
    """One iteration."""
    x, logp, mean, chol_t, step_size, t = state

    y, eps = np.empty_like(x), np.empty_like(x)
    propose_walk(x, chol_t, step_size, rng, y, eps)
    logp_y = log_density(target, y)
    accept_prob = accept_probability(logp_y - logp)
    accepted = rng.random() < accept_prob
    if accepted:
        x, logp = y, logp_y

    if adapting:
        t += 1.0
        learn(mean, chol_t, x, settings.learning_rate / (1.0 + t / settings.horizon))
        step_size = adapt_step_size(step_size, accept_prob, settings.target_accept, settings.step_rate)
    info = Info(accept_prob, accepted, step_size, 1, NOTHING)
    return State(x, logp, mean, chol_t, step_size, t), info


@kernel
def learn(mean: Vector, chol_t: Matrix, x: Vector, rho: Real) -> None:
    """mu <- mu + rho (x - mu), L <- L + rho L [L^-1 (x - mu)(x - mu)^T L^-T - I]_lower, in place.

    Both formulas use the old mu, as in Andrieu and Thoms.
    """
    away = x - mean
    for i in range(x.size):
        mean[i] += rho * away[i]
    solve_lower(chol_t, away)
    follow_outer(chol_t, away, rho)


sweep = make_sweep(step)
move = move_with_density


def history(state: State) -> dict[str, float]:
    return summarise_preconditioner(state.chol_t)


def learnt(state: State) -> dict[str, Any]:
    return {"preconditioner": state.chol_t.T @ state.chol_t, "mean": state.mean.copy()}
