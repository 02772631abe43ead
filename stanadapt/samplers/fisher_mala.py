"""Fisher adaptive MALA: learn the preconditioner from the scores that the chain sees.

Titsias (2023), Optimal Preconditioning and Fisher Adaptive Langevin Sampling, Algorithm 1.

    paper        here                     shape   meaning
    x_n          state.x                  (d,)    position on the unconstrained scale
    s(x_n)       state.score              (d,)    gradient of the log density at x_n
    R_n          state.root_t             (d, d)  transposed square root of the preconditioner, A = R R^T
    R^T s(x_n)   state.rotated            (d,)    in the state, so that a frozen iteration has two products
    tr(A)        state.tr                 ()      sum of the squares of R
    sigma        state.step_size          ()      global step size; a proposal uses sigma² / (tr(A)/d)
    lambda       settings.damping         ()      Tikhonov damping of the first estimate
    alpha_*      settings.target_accept   ()      acceptance rate that sigma² is adapted to
    rho_n        settings.step_rate       ()      learning rate of sigma²
    n_0          settings.simple_mala     ()      iterations of simple MALA before R is learned
    s_n          settings.signal                  what R learns from: "score", Equations (8) to (11);
                                                  "increment", Equation (15); "rao_blackwell", Equation (16)

Departures from the paper, all off with `faithful=True`:
1. The transient is forgotten. The paper gives all signals the same weight. But the signals on the way to the
   typical set can be many orders of magnitude too large, and then later ones never outweigh them. In the
   first share `forgetting` of warm-up the past is discounted before a signal is added:
   A_n^-1 = f A_n-1^-1 + s s^T with f = 1 - alpha / (memory d), so that the sum remembers `memory` d accepted
   signals. Afterwards f = 1, which is the paper's recursion.
2. A search by doubling and halving finds the first step size; the paper names none, and a faithful run takes
   0.1. `initial_step_size` sets it in both modes.
3. A random start first climbs out of the far tail, see numerics/ascent.py.
4. `pilot` iterations of Fisher HMC may take the place of simple MALA and of forgetting, see run/warmup.py.
   Then the recursion starts with their metric, which counts for as many signals.

Cost of an iteration: one gradient, two products with R and O(d); while adapting, also one more product and a
rank-one update. Memory: one (d, d) array a chain.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from ..jit import kernel
from ..kinds import Flag, Generator, Matrix, Real, Target, Vector
from ..numerics.cholesky import transposed_factor
from ..numerics.langevin import first_step_size, gaussian_step_size, langevin_proposal
from ..numerics.linear import add_outer, dot, scaled_identity, times
from ..numerics.spectrum import summarise_preconditioner
from ..numerics.step_size import adapt_step_size
from ..target import log_density_gradient
from ..trace import NOTHING, Info
from . import preconditioned
from .base import BOTH_SIDES, LANGEVIN, UNLESS_FAITHFUL, Facts, Handover, Stage, move_with_root
from .loop import make_sweep
from .settings import POSITIVE, Choice, Limit, with_settings_of

SIGNALS = Choice(("score", "increment", "rao_blackwell"))
SCORE, INCREMENT = 0, 1  # indices of the first two


@with_settings_of(preconditioned)
class Settings(NamedTuple):
    damping: Annotated[float, POSITIVE, "lambda: damping of the first estimate"] = 10.0
    signal: Annotated[str | int, SIGNALS, "s_n: what the preconditioner learns from"] = "rao_blackwell"
    memory: Annotated[float, Limit(2.0, float("inf")), "signals remembered there, over d"] = 10.0


FACTS = Facts(
    module=__name__,
    family=LANGEVIN,
    needs="gradients",
    learns=("step size", "preconditioner"),
    warmup=10_000,
    draws=10_000,
    gradient=True,
    acceptance=BOTH_SIDES,
    climbs=UNLESS_FAITHFUL,
    unscaled=True,
)


class State(NamedTuple):
    x: np.ndarray
    logp: float
    score: np.ndarray
    rotated: np.ndarray
    root_t: np.ndarray
    tr: float
    step_size: float
    memory: float  # signals to remember: 0 learns nothing, infinity forgets nothing


def n_matrices(settings: Any) -> int:
    return 1


def stages(settings: Settings, warmup: int, d: int) -> list[Stage]:
    return preconditioned.stages(settings, warmup, "fisher")


@kernel
def start(target: Target, settings: Any, x: Vector, rng: Generator) -> State:
    """The state at `x` (d,): R = I and nothing learned, which is simple MALA."""
    d = x.size
    score = np.empty_like(x)
    logp = log_density_gradient(target, x, score)
    s = first_step_size(target, settings, x, logp, score, rng)
    return State(x.copy(), logp, score, score.copy(), scaled_identity(d, 1.0), float(d), s, 0.0)


def take_over(state: State, handover: Handover, settings: Any) -> State:
    """Take A from the pilot; A^-1 is then a sum of as many signals, at the best step size."""
    d = handover.z.size
    s = gaussian_step_size(d)
    size = 1.0 if settings.signal == SCORE else s**2 + s**4 / 4.0  # a Gaussian's E[s s^T] is this times A^-1
    root_t = transposed_factor(handover.cov) / np.sqrt(size * handover.n)
    tr = float(np.square(root_t).sum())
    if np.isnan(settings.initial_step_size):
        state = state._replace(step_size=float(s * np.sqrt(size * handover.n * tr / d)))
    return state._replace(rotated=root_t @ state.score, root_t=root_t, tr=tr, memory=np.inf)


def enter(stage: str, state: State, settings: Settings) -> State:
    """Before the first signal set R = I / sqrt(lambda), Equation (12); the proposal does not change."""
    if state.memory == 0.0 and stage != "simple_mala":
        shrink = 1.0 / np.sqrt(settings.damping)
        state = state._replace(
            root_t=state.root_t * shrink,
            rotated=state.rotated * shrink,
            tr=state.tr / settings.damping,
        )
    memory = {"simple_mala": 0.0, "forgetting": settings.memory * state.x.size, "fisher": np.inf}
    return state._replace(memory=memory[stage])


@kernel
def step(target: Target, settings: Any, state: State, rng: Generator, adapting: Flag) -> tuple[State, Info]:
    """One iteration of Algorithm 1."""
    x, logp, score, rotated, root_t, tr, step_size, memory = state

    # Propose y = x + (s²/2) A score + s R eta, with s² = sigma² / (tr(A)/d).
    s = step_size / np.sqrt(tr / x.size)
    d = x.size
    y, score_y, rotated_y = np.empty(d), np.empty(d), np.empty(d)
    logp_y, accept_prob = langevin_proposal(
        target, x, logp, score, rotated, root_t, s, rng, y, score_y, rotated_y
    )
    accepted = rng.random() < accept_prob

    if adapting and memory > 0.0:
        weight, phi = rotated_signal(settings.signal, rotated, rotated_y, accept_prob, accepted)
        if weight > 0.0:
            current = rotated_y if accepted else rotated
            tr = learn(root_t, current, phi, 1.0 - weight / memory)
    if adapting:
        step_size = adapt_step_size(step_size, accept_prob, settings.target_accept, settings.step_rate)
    if accepted:
        x, logp, score, rotated = y, logp_y, score_y, rotated_y
    info = Info(accept_prob, accepted, step_size, 1, NOTHING)
    return State(x, logp, score, rotated, root_t, tr, step_size, memory), info


@kernel
def rotated_signal(
    signal: Any, rotated: Vector, rotated_y: Vector, accept_prob: Real, accepted: Flag
) -> tuple[Real, Vector]:
    """The weight of the signal s_n in the sum of outer products, and phi_n = R^T s_n."""
    if signal == SCORE:
        return 1.0, (rotated_y.copy() if accepted else rotated.copy())
    weight = accept_prob
    if signal == INCREMENT:
        weight = 1.0 if accepted else 0.0
    return weight, np.sqrt(weight) * (rotated_y - rotated)


@kernel
def learn(root_t: Matrix, rotated: Vector, phi: Vector, forget: Real) -> Real:
    """The root of (f A^-1 + s s^T)^-1 in O(d²), with phi = R^T s: Proposition 4, where f = 1.

    `root_t` and the score `rotated` by it change in place, and `phi` is overwritten. Returns tr(A).
    """
    grow = 1.0 / np.sqrt(forget)
    phi *= grow
    scale = 1.0 + dot(phi, phi)
    weight = 1.0 / (1.0 + np.sqrt(1.0 / scale)) / scale
    tr = add_outer(root_t, grow, -weight, times(root_t, phi), phi)
    along = dot(phi, rotated)
    for i in range(phi.size):
        rotated[i] = grow * (rotated[i] - weight * along * phi[i])
    return tr


sweep = make_sweep(step)
move = move_with_root("root_t")


def history(state: State) -> dict[str, float]:
    return summarise_preconditioner(state.root_t)


def learnt(state: State) -> dict[str, Any]:
    return {"preconditioner": state.root_t.T @ state.root_t}
