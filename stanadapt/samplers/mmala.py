"""mMALA: manifold MALA, simplified, with the SoftAbs metric of the Hessian.

Girolami and Calderhead (2011), Riemann manifold Langevin and Hamiltonian Monte Carlo methods, Section 5, in
the simplified form without derivatives of the metric; it is the competitor "mMALA" of Titsias (2023), whose
metric is the negative Hessian. SoftAbs: Betancourt (2013), A general metric for Riemannian manifold HMC.

    paper     here                     shape   meaning
    x         state.x                  (d,)    position on the unconstrained scale
    s(x)      state.score              (d,)    gradient of the log density at x
    G(x)      state.root_t,            (d, d)  metric at x; root_t is R transposed, R R^T = G(x)^-1
              state.curvature          (d,)    its eigenvalues
    R^T s(x)  state.rotated            (d,)    rotated score
    sigma     state.step_size          ()      y = x + (sigma²/2) G(x)^-1 s(x) + sigma G(x)^(-1/2) z
    alpha     settings.softabs         ()      an eigenvalue l of -H becomes l coth(alpha l) >= 1 / alpha
    alpha_*   settings.target_accept   ()      acceptance rate that sigma² is adapted to

Departures from the paper: 1. the metric is the SoftAbs of the Hessian rather than the Fisher information,
which a Stan program does not give; for a logistic regression with a normal prior they are the same. 2. the
Hessian comes from central differences of the gradient. 3. and 4., off with `faithful=True`: the first step
size is found by doubling and halving from 1 (when faithful it is 1), `initial_step_size` sets it in both
modes; a random start first climbs out of the far tail, see numerics/ascent.py.

Cost of an iteration: 2 d + 1 gradients and O(d³) for the eigenvectors of the Hessian, frozen or not. A
proposal whose Hessian is not finite is rejected. Memory: one (d, d) array a chain,
and three more for a while.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..jit import kernel
from ..numerics.langevin import propose
from ..numerics.linear import dot, transposed_times, transposed_times_into
from ..numerics.metropolis import accept_probability
from ..numerics.softabs import softabs_root
from ..numerics.step_size import doubled_or_halved, towards_target
from ..target import hessian, log_density_gradient
from ..trace import record
from .base import NOT_NEGATIVE, POSITIVE, PROBABILITY, Limit, Stage


class Settings(NamedTuple):
    target_accept: float = 0.574
    step_rate: float = 0.015
    softabs: float = 1e3
    initial_step_size: float = 0.0  # 0: found by doubling and halving; 1 when faithful
    faithful: bool = False


CHOICES: dict[str, tuple[str, ...]] = {}
LIMITS = {
    "target_accept": PROBABILITY,
    "step_rate": Limit(0.0, 1.0),
    "softabs": POSITIVE,
    "initial_step_size": NOT_NEGATIVE,
}
NEEDS_GRADIENT, NEEDS_HESSIAN = True, True
WARMUP, DRAWS = 5_000, 5_000


class State(NamedTuple):
    x: np.ndarray
    logp: float
    score: np.ndarray
    rotated: np.ndarray
    root_t: np.ndarray
    curvature: np.ndarray
    step_size: float


def n_matrices() -> int:
    return 4


def stages(settings: Settings, warmup: int, d: int) -> list[Stage]:
    return [Stage("step_size", warmup)]


@kernel
def start(target: Any, settings: Any, x: Any, rng: Any) -> Any:
    """The state at `x` (d,), where the Hessian is finite."""
    s = settings.initial_step_size if settings.initial_step_size > 0.0 else 1.0
    state = at(target, settings, x.copy(), s)
    if settings.initial_step_size > 0.0 or settings.faithful:
        return state
    direction, done = 0, False
    for _ in range(100):
        _, accept_prob = proposed(target, settings, state, rng)
        s, direction, done = doubled_or_halved(s, accept_prob, settings.target_accept, direction)
        state = State(state.x, state.logp, state.score, state.rotated, state.root_t, state.curvature, s)
        if done:
            break
    return state


@kernel
def at(target: Any, settings: Any, x: Any, step_size: Any) -> Any:
    """The state at `x` (d,); its log density is -inf where the metric cannot be had."""
    d = x.size
    score, curvature, root_t = np.empty(d), np.ones(d), np.zeros((d, d))
    logp = log_density_gradient(target, x, score)
    if logp > -np.inf:
        h = np.empty((d, d))
        if hessian(target, x, h):
            softabs_root(h, settings.softabs, root_t, curvature)
        else:
            logp = -np.inf
    return State(x, logp, score, transposed_times(root_t, score), root_t, curvature, step_size)


def enter(stage: str, state: State, settings: Settings) -> State:
    return state


@kernel
def proposed(target: Any, settings: Any, state: Any, rng: Any) -> Any:
    """The state at a proposal, and its acceptance probability."""
    x, s = state.x, state.step_size
    y, v = np.empty_like(x), np.empty_like(x)
    propose(x, state.rotated, state.root_t, s, rng, y, v)
    there = at(target, settings, y, s)
    if there.logp == -np.inf:
        return there, 0.0

    # log q(y | x) = log|G(x)|/2 - |R(x)^-1 (y - x) - (s²/2) R(x)^T s(x)|² / (2 s²), and y - x = R(x) v.
    log_ratio = there.logp - state.logp
    back = np.empty_like(x)
    transposed_times_into(back, there.root_t, x - y)
    for k in range(x.size):
        log_ratio += 0.5 * np.log(there.curvature[k] / state.curvature[k])
        v[k] = v[k] / s - 0.5 * s * state.rotated[k]
        back[k] = back[k] * there.curvature[k] / s - 0.5 * s * there.rotated[k]
    return there, accept_probability(log_ratio - 0.5 * dot(back, back) + 0.5 * dot(v, v))


@kernel
def step(target: Any, settings: Any, state: Any, rng: Any, adapting: Any) -> Any:
    """One iteration. Returns the next state, the acceptance probability and whether it accepted."""
    there, accept_prob = proposed(target, settings, state, rng)
    accepted = rng.random() < accept_prob
    x, logp, score, rotated, root_t, curvature, step_size = there if accepted else state
    if adapting:
        step_size = towards_target(step_size, accept_prob, settings.target_accept, settings.step_rate)
    return State(x, logp, score, rotated, root_t, curvature, step_size), accept_prob, accepted


@kernel
def sweep(target: Any, settings: Any, state: Any, rng: Any, adapting: Any, trace: Any) -> Any:
    """Run one iteration for every row of `trace`."""
    for i in range(trace.logp.size):
        state, accept_prob, accepted = step(target, settings, state, rng, adapting)
        n_gradients = 2 * state.x.size + 1
        record(trace, i, state.x, state.logp, accept_prob, accepted, state.step_size, n_gradients)
    return state


def history(state: State) -> dict[str, float]:
    return {}


def learnt(state: State) -> dict[str, Any]:
    return {}
