"""AdaMALA: MALA whose preconditioner is the running covariance of the chain.

Haario, Saksman and Tamminen (2001), An adaptive Metropolis algorithm, applied to MALA. It is a competitor in
Titsias (2023), Section 5.1, Equation (17).

    paper        here                     shape   meaning
    x_n          state.x                  (d,)    position on the unconstrained scale
    mu_n         state.mean               (d,)    running mean of the chain
    Sigma_n      state.chol_t, .scale     (d, d)  running covariance scale L L^T; chol_t is L transposed
    L^T s(x_n)   state.rotated            (d,)    in the state, so that a frozen iteration has two products
    tr(A)        state.tr                 ()      trace of A = L L^T; a proposal does not depend on its scale
    n            state.n                  ()      number of points in the mean and the covariance
    sigma        state.step_size          ()      global step size; a proposal uses sigma² / (tr(A)/d)
    lambda       settings.damping         ()      damping: Sigma_2 = (x_2 - mu_1)(x_2 - mu_1)^T / 2 + lambda I
    alpha_*      settings.target_accept   ()      acceptance rate that sigma² is adapted to
    rho_n        settings.step_rate       ()      learning rate of sigma²
    n_0          settings.simple_mala     ()      iterations of simple MALA before Sigma is learned

Departures from the paper, all off with `faithful=True`:
1. The transient is forgotten: in the first share `forgetting` of warm-up n grows to `memory` d at most, so
   that older points fade. Afterwards n grows without a bound, which is Equation (17).
2. A search by doubling and halving finds the first step size; the paper names none, and a faithful run takes
   0.1. `initial_step_size` sets it in both modes.
3. A random start first climbs out of the far tail, see numerics/ascent.py.
4. `pilot` iterations of Fisher HMC may take the place of simple MALA and of forgetting, see run/warmup.py.
   Then the recursion starts with their mean and metric, which count for as many points.

Cost of an iteration: one gradient, two products with the factor and O(d); while adapting, also one more
product and a rank-one update. Memory: one (d, d) array a chain.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from ..jit import kernel
from ..kinds import Flag, Generator, Matrix, Real, Target, Vector
from ..numerics.cholesky import transposed_factor
from ..numerics.covariance import learn_point
from ..numerics.langevin import first_step_size, gaussian_step_size, langevin_proposal
from ..numerics.linear import scaled_identity, transposed_times
from ..numerics.spectrum import summarise_preconditioner
from ..numerics.step_size import adapt_step_size
from ..target import log_density_gradient
from ..trace import NOTHING, Info
from . import preconditioned
from .base import BOTH_SIDES, LANGEVIN, UNLESS_FAITHFUL, Facts, Handover, Stage, move_with_root
from .loop import make_sweep
from .settings import POSITIVE, Limit, with_settings_of


@with_settings_of(preconditioned)
class Settings(NamedTuple):
    damping: Annotated[float, POSITIVE, "lambda: damping of the first covariance"] = 10.0
    memory: Annotated[float, Limit(3.0, float("inf")), "points remembered there, over d"] = 10.0


FACTS = Facts(
    module=__name__,
    family=LANGEVIN,
    needs="gradients",
    learns=("step size", "covariance"),
    warmup=20_000,
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
    mean: np.ndarray
    chol_t: np.ndarray
    scale: float
    tr: float
    n: float
    step_size: float
    memory: float  # largest n: 0 learns nothing, infinity forgets nothing


def n_matrices(settings: Any) -> int:
    return 1


def stages(settings: Settings, warmup: int, d: int) -> list[Stage]:
    return preconditioned.stages(settings, warmup, "covariance")


@kernel
def start(target: Target, settings: Any, x: Vector, rng: Generator) -> State:
    """The state at `x` (d,): A = I and nothing learned, which is simple MALA."""
    d = x.size
    score = np.empty_like(x)
    logp = log_density_gradient(target, x, score)
    s = first_step_size(target, settings, x, logp, score, rng)
    chol_t = scaled_identity(d, 1.0)
    return State(x.copy(), logp, score, score.copy(), x.copy(), chol_t, 1.0, float(d), 0.0, s, 0.0)


def take_over(state: State, handover: Handover, settings: Any) -> State:
    """Take mean and covariance from the pilot; they count for as many points as it had iterations."""
    d = handover.z.size
    chol_t = transposed_factor(handover.cov)
    tr = float(np.square(chol_t).sum())
    if np.isnan(settings.initial_step_size):
        state = state._replace(step_size=float(gaussian_step_size(d) * np.sqrt(tr / d)))
    return state._replace(
        rotated=chol_t @ state.score,
        mean=handover.mean,
        chol_t=chol_t,
        tr=tr,
        n=float(handover.n),
        memory=np.inf,
    )


def enter(stage: str, state: State, settings: Settings) -> State:
    """After simple MALA start the recursion at mu_1 = x_1 and lambda I; the proposal does not change."""
    if state.memory == 0.0 and stage != "simple_mala":
        grow = np.sqrt(settings.damping)
        state = state._replace(
            mean=state.x.copy(),
            chol_t=state.chol_t * grow,
            rotated=state.rotated * grow,
            tr=state.tr * settings.damping,
            n=1.0,
        )
    memory = {"simple_mala": 0.0, "forgetting": settings.memory * state.x.size, "covariance": np.inf}
    return state._replace(memory=memory[stage])


@kernel
def step(target: Target, settings: Any, state: State, rng: Generator, adapting: Flag) -> tuple[State, Info]:
    """One iteration."""
    x, logp, score, rotated, mean, chol_t, scale, tr, n, step_size, memory = state

    # Propose y = x + (s²/2) A score + s L eta, with s² = sigma² / (tr(A)/d).
    s = step_size / np.sqrt(tr / x.size)
    d = x.size
    y, score_y, rotated_y = np.empty(d), np.empty(d), np.empty(d)
    logp_y, accept_prob = langevin_proposal(
        target, x, logp, score, rotated, chol_t, s, rng, y, score_y, rotated_y
    )
    accepted = rng.random() < accept_prob

    if accepted:
        x, logp, score, rotated = y, logp_y, score_y, rotated_y
    if adapting:
        step_size = adapt_step_size(step_size, accept_prob, settings.target_accept, settings.step_rate)
        if memory > 0.0:
            n = min(n + 1.0, max(memory, 3.0))
            scale, tr = learn(mean, chol_t, scale, tr, x, n)
            rotated = transposed_times(chol_t, score)
    state = State(x, logp, score, rotated, mean, chol_t, scale, tr, n, step_size, memory)
    info = Info(accept_prob, accepted, step_size, 1, NOTHING)
    return state, info


@kernel
def learn(mean: Vector, chol_t: Matrix, scale: Real, tr: Real, x: Vector, n: Real) -> Any:
    """Equation (17) for the n-th point x, in place. Returns the scale and tr(L L^T)."""
    keep = (n - 2.0) / (n - 1.0) if n > 2.0 else 1.0  # Sigma_2 keeps all of lambda I
    return learn_point(mean, chol_t, scale, tr, x, keep, 1.0 / n, 1.0 / n)


sweep = make_sweep(step)
move = move_with_root("chol_t")


def history(state: State) -> dict[str, float]:
    return summarise_preconditioner(np.sqrt(state.scale) * state.chol_t)


def learnt(state: State) -> dict[str, Any]:
    return {"preconditioner": state.scale * state.chol_t.T @ state.chol_t, "mean": state.mean.copy()}
