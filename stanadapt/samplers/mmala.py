"""mMALA: manifold MALA, simplified, with the SoftAbs metric of the Hessian.

Girolami and Calderhead (2011), Riemann manifold Langevin and Hamiltonian Monte Carlo methods, Section 5, in
the simplified form without derivatives of the metric. It is the competitor "mMALA" of Titsias (2023), where
the metric is the negative Hessian. SoftAbs: Betancourt (2013), A general metric for Riemannian manifold HMC.

    paper     here                     shape   meaning
    x         state.x                  (d,)    position on the unconstrained scale
    s(x)      state.score              (d,)    gradient of the log density at x
    G(x)      state.metric             (d, d)  metric at x
    |G(x)|    state.log_det            ()      the logarithm of its determinant
    R(x)      state.root_t             (d, d)  transposed root of its inverse, R R^T = G(x)^-1
    R^T s(x)  state.rotated            (d,)    rotated score
    sigma     state.step_size          ()      y = x + (sigma²/2) G(x)^-1 s(x) + sigma G(x)^(-1/2) z
    alpha     settings.softabs         ()      an eigenvalue l of -H becomes l coth(alpha l) >= 1 / alpha
    alpha_*   settings.target_accept   ()      acceptance rate that sigma² is adapted to

Departures from the paper, 3 to 5 off with `faithful=True`:
1. The metric is the SoftAbs of the Hessian instead of the Fisher information, which a Stan program does not
   give. For a logistic regression with a normal prior they are the same.
2. The Hessian comes from central differences of the gradient.
3. A search by doubling and halving from 1 finds the first step size; a faithful run takes 1.
   `initial_step_size` sets it in both modes.
4. A random start first climbs out of the far tail, see numerics/ascent.py.
5. `pilot` iterations of Fisher HMC may come first, see run/warmup.py.

Cost of an iteration, frozen or not: 2 d + 1 gradients, and O(d³) for the root of the metric. The root is a
Cholesky factor if -H is positive definite, and comes from eigenvectors elsewhere. A proposal is rejected if
its Hessian is not finite. Memory: two (d, d) arrays a chain, and five more during an iteration.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from ..jit import kernel
from ..kinds import Flag, Generator, Real, Target, Vector
from ..numerics.langevin import propose
from ..numerics.linear import dot, times, transposed_times
from ..numerics.metropolis import accept_probability_if_finite
from ..numerics.softabs import softabs_metric
from ..numerics.step_size import adapt_step_size, double_or_halve
from ..target import hessian, log_density_gradient
from ..trace import NOTHING, Info
from .base import BOTH_SIDES, LANGEVIN, UNLESS_FAITHFUL, Facts, Handover, Stage
from .loop import make_sweep
from .settings import NOT_NEGATIVE, POSITIVE, PROBABILITY, Limit


class Settings(NamedTuple):
    target_accept: Annotated[float, PROBABILITY, "acceptance rate that the step size aims at"] = 0.574
    step_rate: Annotated[float, Limit(0.0, 1.0), "learning rate of the squared step size"] = 0.015
    softabs: Annotated[float, POSITIVE, "alpha: eigenvalues of the metric are at least 1 / alpha"] = 1e3
    initial_step_size: Annotated[float | None, POSITIVE, "first sigma; None: search, or 1 if faithful"] = None
    faithful: Annotated[bool, "follow the paper, without our departures"] = False
    pilot: Annotated[int, NOT_NEGATIVE, "iterations of Fisher HMC that begin warm-up"] = 0


FACTS = Facts(
    module=__name__,
    family=LANGEVIN,
    needs="2 d + 1 gradients",
    learns=("step size",),
    warmup=5_000,
    draws=5_000,
    gradient=True,
    acceptance=BOTH_SIDES,
    climbs=UNLESS_FAITHFUL,
    hessian=True,
)


class State(NamedTuple):
    x: np.ndarray
    logp: float
    score: np.ndarray
    rotated: np.ndarray
    root_t: np.ndarray
    metric: np.ndarray
    log_det: float
    step_size: float


def n_matrices(settings: Any) -> int:
    return 7


def stages(settings: Settings, warmup: int, d: int) -> list[Stage]:
    return [Stage("step_size", warmup)]


@kernel
def start(target: Target, settings: Any, x: Vector, rng: Generator) -> Any:
    """The state at `x` (d,), where the Hessian is finite."""
    s = settings.initial_step_size if settings.initial_step_size > 0.0 else 1.0
    state = state_at(target, settings, x.copy(), s)
    if settings.initial_step_size > 0.0 or settings.faithful:
        return state
    direction, done = 0, False
    for _ in range(100):
        _, accept_prob = draw_proposal(target, settings, state, rng)
        s, direction, done = double_or_halve(s, accept_prob, settings.target_accept, direction)
        state = replace_step_size(state, s)
        if done:
            break
    return state


@kernel
def state_at(target: Target, settings: Any, x: Vector, step_size: Real) -> State:
    """The state at `x` (d,); its log density is -inf if the Hessian is not finite."""
    d = x.size
    score, root_t, metric, log_det = np.empty(d), np.zeros((d, d)), np.zeros((d, d)), 0.0
    logp = log_density_gradient(target, x, score)
    if logp > -np.inf:
        h = np.empty((d, d))
        if hessian(target, x, h):
            log_det = softabs_metric(h, settings.softabs, metric, root_t)
        else:
            logp = -np.inf
    return State(x, logp, score, transposed_times(root_t, score), root_t, metric, log_det, step_size)


@kernel
def replace_step_size(state: State, step_size: Real) -> State:
    """The state with another step size."""
    x, logp, score, rotated, root_t, metric, log_det, _ = state
    return State(x, logp, score, rotated, root_t, metric, log_det, step_size)


def take_over(state: State, handover: Handover, settings: Settings) -> State:
    """Take only the pilot's last point, because the metric depends on the point alone."""
    return state


@kernel
def draw_proposal(target: Target, settings: Any, state: State, rng: Generator) -> Any:
    """The state at a proposal, and its acceptance probability."""
    x, s = state.x, state.step_size
    y, v = np.empty_like(x), np.empty_like(x)
    propose(x, state.rotated, state.root_t, s, rng, y, v)
    there = state_at(target, settings, y, s)
    if there.logp == -np.inf:
        return there, 0.0

    # log q(y | x) = log|G(x)|/2 - |y - x - (s²/2) G(x)^-1 s(x)|²_G(x) / (2 s²) + a constant. y - x = R(x) v,
    # so this is the norm of v - (s²/2) R^T s(x). For the way back the norm is written out, with u = x - y.
    u = x - y
    forth = v - 0.5 * s * s * state.rotated
    log_forth = 0.5 * state.log_det - 0.5 * dot(forth, forth) / (s * s)
    size_back = dot(u, times(there.metric, u)) - s * s * dot(u, there.score)
    size_back += 0.25 * s**4 * dot(there.rotated, there.rotated)
    log_back = 0.5 * there.log_det - 0.5 * size_back / (s * s)
    return there, accept_probability_if_finite(there.logp - state.logp + log_back - log_forth)


@kernel
def step(target: Target, settings: Any, state: State, rng: Generator, adapting: Flag) -> tuple[State, Info]:
    """One iteration."""
    step_size = state.step_size
    there, accept_prob = draw_proposal(target, settings, state, rng)
    accepted = rng.random() < accept_prob
    if adapting:
        step_size = adapt_step_size(step_size, accept_prob, settings.target_accept, settings.step_rate)
    info = Info(accept_prob, accepted, step_size, 2 * state.x.size + 1, NOTHING)
    return replace_step_size(there if accepted else state, step_size), info


sweep = make_sweep(step)


def move(target: Target, settings: Settings, state: State, x: np.ndarray, logp: float | None) -> State:
    """The state at `x`, with the metric at `x`."""
    there: State = state_at(target, settings, x.copy(), state.step_size)
    return there
