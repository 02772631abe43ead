"""AMALA: MALA that updates its step size and covariance between epochs.

Wang, Chen, Kanagawa and Oates (2024), Reinforcement Learning for Adaptive MCMC, Algorithms 4 and 5. It is the
gradient-based competitor there, and comes from Wang, Karvonen, Oates and others (2023).

    paper     here                   shape   meaning
    x_i       state.x                (d,)    position on the unconstrained scale
    Sigma_i   state.cov, .chol_t     (d, d)  preconditioner, and its lower Cholesky factor, transposed
    epsilon   state.step_size        ()      epsilon = s²/2: y = x + (s²/2) Sigma s(x) + s Sigma^(1/2) z
    E         settings.epochs        ()      number of epochs; the draws go on with the last one
    alpha_i   settings.alpha         ()      weight of the old covariance in a new one
    rho_i     state.accepted / n     ()      acceptance rate of the epoch
    0.574     settings.target_accept ()      epsilon <- epsilon exp(rho - 0.574)

An epoch is 1/E of the warm-up, by default 1,000 iterations. Between epochs Sigma <- alpha Sigma +
(1 - alpha) cov(states of the epoch). Each iteration adds its state to this covariance by a rank-one update.

Departures from the paper, all off with `faithful=True`:
1. A search by doubling and halving finds the first step size; a faithful run takes sqrt(2), which is
   epsilon = 1. `initial_step_size` sets it in both modes.
2. The step size follows the acceptance in every iteration, by the rule of Titsias (2023), Algorithm 1. One
   factor per epoch, at most exp(0.426 / 2), cannot follow when 70 % of the covariance is replaced.
3. A random start first climbs out of the far tail, see numerics/ascent.py.
4. `pilot` iterations of Fisher HMC may come before the first epoch, see run/warmup.py. Then Sigma starts as
   their metric.

Cost of an iteration: one gradient and two products with the factor; while adapting, also a rank-one update of
the covariance of the epoch. Memory: three (d, d) arrays a chain.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from ..jit import kernel
from ..kinds import Flag, Generator, Matrix, Real, Target, Vector
from ..numerics.cholesky import transposed_factor
from ..numerics.langevin import first_step_size, gaussian_step_size, langevin_proposal
from ..numerics.linear import add_outer, scaled_identity, transposed_times
from ..numerics.spectrum import summarise_preconditioner
from ..numerics.step_size import adapt_step_size
from ..target import log_density_gradient
from ..trace import NOTHING, Info
from .base import BOTH_SIDES, LANGEVIN, UNLESS_FAITHFUL, Facts, Handover, Stage, move_with_root
from .loop import make_sweep
from .settings import NOT_NEGATIVE, POSITIVE, PROBABILITY, Limit


class Settings(NamedTuple):
    target_accept: Annotated[float, PROBABILITY, "acceptance rate that the step size aims at"] = 0.574
    step_rate: Annotated[float, Limit(0.0, 1.0), "learning rate of s²; not used if faithful"] = 0.015
    epochs: Annotated[int, Limit(1, 10_000), "E: number of epochs of warm-up"] = 10
    alpha: Annotated[float, Limit(0.001, 1.0), "weight of the old covariance in a new one"] = 0.3
    initial_step_size: Annotated[float | None, POSITIVE, "first s; None: search, or sqrt(2) if faithful"] = (
        None
    )
    faithful: Annotated[bool, "follow the paper, without our departures"] = False
    pilot: Annotated[int, NOT_NEGATIVE, "iterations of Fisher HMC that begin warm-up"] = 0


FACTS = Facts(
    module=__name__,
    family=LANGEVIN,
    needs="gradients",
    learns=("step size", "covariance"),
    warmup=10_000,
    draws=10_000,
    gradient=True,
    acceptance=BOTH_SIDES,
    climbs=UNLESS_FAITHFUL,
)


class State(NamedTuple):
    x: np.ndarray
    logp: float
    score: np.ndarray
    rotated: np.ndarray
    cov: np.ndarray
    chol_t: np.ndarray
    step_size: float
    mean: np.ndarray  # of the states of this epoch; so are the next three fields
    squares: np.ndarray  # (d, d) sum of (x - mean)(x - mean)^T
    n: float
    accepted: float


def n_matrices(settings: Any) -> int:
    return 3


def stages(settings: Settings, warmup: int, d: int) -> list[Stage]:
    ends = [warmup * i // settings.epochs for i in range(settings.epochs + 1)]
    return [Stage(f"epoch_{i}", ends[i + 1] - ends[i]) for i in range(settings.epochs)]


@kernel
def start(target: Target, settings: Any, x: Vector, rng: Generator) -> State:
    """The state at `x` (d,), with Sigma = I."""
    d = x.size
    score = np.empty_like(x)
    logp = log_density_gradient(target, x, score)
    s = np.sqrt(2.0)
    if settings.initial_step_size > 0.0 or not settings.faithful:
        s = first_step_size(target, settings, x, logp, score, rng)
    one = scaled_identity(d, 1.0)
    nothing = np.zeros((d, d))
    return State(x.copy(), logp, score, score.copy(), one, one.copy(), s, np.zeros(d), nothing, 0.0, 0.0)


def take_over(state: State, handover: Handover, settings: Any) -> State:
    """Take Sigma from the pilot."""
    chol_t = transposed_factor(handover.cov)
    if np.isnan(settings.initial_step_size):
        state = state._replace(step_size=gaussian_step_size(handover.z.size))
    return state._replace(rotated=chol_t @ state.score, cov=handover.cov.copy(), chol_t=chol_t)


def enter(stage: str, state: State, settings: Settings) -> State:
    """Update covariance and step size between two epochs, as Algorithm 5 does."""
    if state.n < 2.0:
        return state
    cov = settings.alpha * state.cov + (1.0 - settings.alpha) * state.squares / (state.n - 1.0)
    step_size = state.step_size
    if settings.faithful:
        step_size *= np.exp(0.5 * (state.accepted / state.n - settings.target_accept))
    try:
        chol_t = np.ascontiguousarray(np.linalg.cholesky(cov).T)
    except np.linalg.LinAlgError:  # states over many orders of magnitude can have a singular covariance
        cov, chol_t = state.cov, state.chol_t
    return state._replace(
        cov=cov,
        chol_t=chol_t,
        rotated=transposed_times(chol_t, state.score),
        step_size=float(step_size),
        mean=np.zeros_like(state.mean),
        squares=np.zeros_like(state.squares),
        n=0.0,
        accepted=0.0,
    )


@kernel
def step(target: Target, settings: Any, state: State, rng: Generator, adapting: Flag) -> tuple[State, Info]:
    """One iteration of Algorithm 4."""
    x, logp, score, rotated, cov, chol_t, s, mean, squares, n, n_accepted = state

    d = x.size
    y, score_y, rotated_y = np.empty(d), np.empty(d), np.empty(d)
    logp_y, accept_prob = langevin_proposal(
        target, x, logp, score, rotated, chol_t, s, rng, y, score_y, rotated_y
    )
    accepted = rng.random() < accept_prob
    if accepted:
        x, logp, score, rotated = y, logp_y, score_y, rotated_y

    if adapting:
        n += 1.0
        n_accepted += accept_prob
        gather(mean, squares, x, n)
        if not settings.faithful:
            s = adapt_step_size(s, accept_prob, settings.target_accept, settings.step_rate)
    state = State(x, logp, score, rotated, cov, chol_t, s, mean, squares, n, n_accepted)
    info = Info(accept_prob, accepted, s, 1, NOTHING)
    return state, info


@kernel
def gather(mean: Vector, squares: Matrix, x: Vector, n: Real) -> None:
    """Add the n-th state of an epoch to its mean and sum of squares, in place (Welford's recursion)."""
    away = x - mean
    for i in range(x.size):
        mean[i] += away[i] / n
    add_outer(squares, 1.0, (n - 1.0) / n, away, away)


sweep = make_sweep(step)
move = move_with_root("chol_t")


def history(state: State) -> dict[str, float]:
    return summarise_preconditioner(state.chol_t)


def learnt(state: State) -> dict[str, Any]:
    return {"preconditioner": state.cov.copy()}
