"""ARWMH: a random walk with global adaptive scaling and the running covariance of the chain.

Andrieu and Thoms (2008), A tutorial on adaptive MCMC, Algorithm 4, in the form of Algorithm 3 of Wang, Chen,
Kanagawa and Oates (2024), Reinforcement Learning for Adaptive MCMC.

    paper     here                   shape   meaning
    x_i       state.x                (d,)    position on the unconstrained scale
    lambda_i  state.step_size²       ()      scale of the proposal's covariance lambda Sigma
    mu_i      state.mean             (d,)    running mean of the chain
    Sigma_i   state.chol_t, .scale   (d, d)  running covariance scale L L^T; chol_t is L transposed
    gamma_i   (i + 1)^-beta          ()      learning rate of lambda, mu and Sigma
    beta      state.beta             ()      exponent of the learning rate
    alpha_*   settings.target_accept ()      acceptance rate that lambda is adapted to

The paper picks beta for each posterior by hand, "to deliver the best performance". With `beta=None` the
warm-up does that. Its first fifth runs with 0.7. Then each of the exponents in BETAS has a trial of a tenth
of warm-up, and all trials start from the same point with the same lambda, mu and Sigma. The rest of warm-up
goes on from the end of the trial with the largest speed, log(mean acceptance) + log|lambda Sigma| / d. This
is the speed measure sigma² alpha for a proposal with a full covariance (Titsias and Dellaportas, 2019, with
beta = 2/d). The squared jump distance is no alternative: it can be as large for a Sigma that is good only in
a few directions, and a small beta gives such a Sigma.

Departures from the paper:
1. Iteration i learns with gamma_i instead of gamma_i-1: gamma_0 = 1 would make Sigma_1 a matrix of rank one,
   and its proposals would never leave a line.
2. mu_0 is the starting point instead of 0, because the posterior may be far from 0.

Cost of an iteration: one log density and a product with L; while adapting, also a rank-one update. Memory:
one (d, d) array a chain, three with `beta=None`.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from ..jit import kernel
from ..kinds import Flag, Generator, Matrix, Real, Target, Vector
from ..numerics.cholesky import transposed_factor
from ..numerics.covariance import learn_point
from ..numerics.linear import scaled_identity
from ..numerics.metropolis import accept_probability
from ..numerics.spectrum import summarise_preconditioner
from ..numerics.walk import gaussian_scale, propose_walk
from ..target import log_density
from ..trace import NOTHING, Info
from .base import BOTH_SIDES, WALK, Facts, Handover, Stage, move_with_density
from .loop import make_sweep
from .settings import PROBABILITY

BETAS = (0.5, 0.6, 0.7, 0.8, 0.9)  # the exponents to be tried
FIRST = 0.7  # exponent before the trials


class Settings(NamedTuple):
    target_accept: Annotated[float, PROBABILITY, "acceptance rate that lambda aims at"] = 0.234
    beta: Annotated[float | None, PROBABILITY, "exponent of the learning rate; None: by trials"] = None


FACTS = Facts(
    module=__name__,
    family=WALK,
    needs="densities",
    learns=("step size", "covariance", "learning rate"),
    warmup=20_000,
    draws=20_000,
    gradient=False,
    acceptance=BOTH_SIDES,
)


class Walk(NamedTuple):
    """The part of the state that a trial starts from and ends with."""

    x: np.ndarray
    logp: float
    step_size: float
    mean: np.ndarray
    chol_t: np.ndarray
    scale: float
    i: float
    beta: float


class State(NamedTuple):
    x: np.ndarray
    logp: float
    step_size: float
    mean: np.ndarray
    chol_t: np.ndarray
    scale: float
    i: float
    beta: float
    accepted: float  # sum of the acceptance probabilities in this trial
    volume: float  # sum of log|lambda Sigma| / d in this trial
    n: float  # iterations of this trial so far
    best_speed: float
    before: Walk
    best: Walk


def n_matrices(settings: Any) -> int:
    return 3


def stages(settings: Any, warmup: int, d: int) -> list[Stage]:
    if not np.isnan(settings.beta):
        return [Stage("covariance", warmup)]
    trial = warmup // 10
    rest = warmup - len(BETAS) * trial
    first = min(2 * trial, rest)
    trials = [Stage(f"beta_{beta}", trial) for beta in BETAS]
    return [Stage("approach", first), *trials, Stage("covariance", rest - first)]


@kernel
def start(target: Target, settings: Any, x: Vector, rng: Generator) -> State:
    """The state at `x` (d,): lambda = 1, mu = x, Sigma = I."""
    d = x.size
    chol_t, logp = scaled_identity(d, 1.0), log_density(target, x)
    beta = FIRST if np.isnan(settings.beta) else settings.beta
    nothing = Walk(np.zeros(0), 0.0, 0.0, np.zeros(0), np.zeros((0, 0)), 0.0, 0.0, beta)
    return State(
        x.copy(), logp, 1.0, x.copy(), chol_t, 1.0, 0.0, beta, 0.0, 0.0, 0.0, -np.inf, nothing, nothing
    )


def take_over(state: State, handover: Handover, settings: Settings) -> State:
    """Take mu and Sigma from an earlier chain; they count for as many iterations."""
    step_size = handover.step_size if handover.step_size > 0.0 else gaussian_scale(state.x.size)
    chol_t = transposed_factor(handover.cov)
    return state._replace(mean=handover.mean, chol_t=chol_t, step_size=step_size, i=float(handover.n))


def enter(stage: str, state: State, settings: Any) -> State:
    """Before a trial go back to where all trials start; after the last one go on from the best."""
    if stage == "approach" or not np.isnan(settings.beta):
        return state
    now = Walk(**{name: getattr(state, name) for name in Walk._fields})
    if state.before.x.size == 0:  # the first trial
        state = state._replace(before=_copy(now), best=_copy(now))
    elif (speed := _speed(state)) > state.best_speed:
        state = state._replace(best=_copy(now), best_speed=speed)
    if stage == "covariance":
        return state._replace(**_copy(state.best)._asdict())
    trial = {"beta": float(stage.partition("_")[2]), "accepted": 0.0, "volume": 0.0, "n": 0.0}
    return state._replace(**_copy(state.before)._asdict() | trial)


def _speed(state: State) -> float:
    """The speed of the trial that has just ended."""
    with np.errstate(divide="ignore"):
        return float(np.log(state.accepted / state.n) + state.volume / state.n)


def _copy(walk: Walk) -> Walk:
    """The walk with arrays of its own, since kernels change arrays in place."""
    return walk._replace(x=walk.x.copy(), mean=walk.mean.copy(), chol_t=walk.chol_t.copy())


@kernel
def step(target: Target, settings: Any, state: State, rng: Generator, adapting: Flag) -> tuple[State, Info]:
    """One iteration of Algorithm 3."""
    x, logp, step_size, mean, chol_t, scale, i, beta, sum_accept, volume, n, best_speed, before, best = state

    y, z = np.empty_like(x), np.empty_like(x)
    propose_walk(x, chol_t, step_size * np.sqrt(scale), rng, y, z)
    logp_y = log_density(target, y)
    accept_prob = accept_probability(logp_y - logp)
    accepted = rng.random() < accept_prob

    if accepted:
        x, logp = y, logp_y
    if adapting:
        sum_accept += accept_prob
        volume += log_volume(chol_t, scale, step_size)
        n += 1.0
        i += 1.0
        gamma = (i + 1.0) ** -beta
        step_size *= np.exp(0.5 * gamma * (accept_prob - settings.target_accept))
        scale, _ = learn_point(mean, chol_t, scale, 0.0, x, 1.0 - gamma, gamma, gamma)
    state = State(
        x, logp, step_size, mean, chol_t, scale, i, beta, sum_accept, volume, n, best_speed, before, best
    )
    info = Info(accept_prob, accepted, step_size, 1, NOTHING)
    return state, info


@kernel
def log_volume(chol_t: Matrix, scale: Real, step_size: Real) -> Real:
    """log|lambda Sigma| / d."""
    total = 0.0
    for k in range(len(chol_t)):
        total += np.log(chol_t[k, k])
    return 2.0 * (total / len(chol_t) + np.log(step_size)) + np.log(scale)


sweep = make_sweep(step)
move = move_with_density


def history(state: State) -> dict[str, float]:
    return {"warmup_beta": state.beta} | summarise_preconditioner(np.sqrt(state.scale) * state.chol_t)


def learnt(state: State) -> dict[str, Any]:
    return {
        "preconditioner": state.scale * state.chol_t.T @ state.chol_t,
        "mean": state.mean.copy(),
        "beta": np.array(state.beta),
    }
