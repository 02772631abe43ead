"""gadRWM: a random walk whose covariance climbs the generalised speed measure along gradients.

Titsias and Dellaportas (2019), Gradient-based Adaptive Markov Chain Monte Carlo, Algorithm 1 and Section 2.2.

    paper     here                     shape   meaning
    x_t       state.x                  (d,)    position on the unconstrained scale
    L         state.chol_t             (d, d)  lower Cholesky factor of the proposal's covariance, transposed
    eps_t     eps                      (d,)    y = x + L eps
    G_t       state.square             (d, d)  RMSprop's running square of the gradient, transposed
    eta       settings.learning_rate   ()      RMSprop's baseline learning rate
    beta      state.beta               ()      weight of the proposal's entropy
    rho_beta  settings.beta_rate       ()      learning rate of beta
    alpha_*   settings.target_accept   ()      acceptance rate that beta is adapted to

Departures from the paper, the first four off with `faithful=True`:
1. Each row of L is learned in units of its own length, at a learning rate of 0.001. The paper's learning rate
   of 0.00005 is absolute, so that L never reaches the scale of a coordinate with a standard deviation of ten.
2. beta stays between 0.001 and 10, see numerics/speed_measure.py.
3. A random start first climbs out of the far tail, see numerics/ascent.py.
4. `pilot` iterations of Fisher HMC may come first, see run/warmup.py. Then L starts from their metric, and
   the learning rate is a twentieth.
5. An iteration at most halves L_ii, so that it stays positive.
6. The chain learns nothing from a proposal without a log density.

Cost of an iteration: while adapting, one gradient, a product with L and a pass over L and G; when frozen, one
log density and a product with L. Memory: two (d, d) arrays a chain.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from ..jit import kernel
from ..kinds import Flag, Generator, Matrix, Real, Target, Vector
from ..numerics.cholesky import transposed_factor
from ..numerics.linear import scaled_identity
from ..numerics.metropolis import accept_probability
from ..numerics.speed_measure import adapt_beta, climb_speed, first_squares
from ..numerics.walk import gaussian_scale, propose_walk
from ..target import log_density, log_density_gradient
from ..trace import NOTHING, Info
from . import gad
from .base import WALK, Handover, move_with_density
from .loop import make_sweep
from .settings import PROBABILITY, Limit, with_settings_of


@with_settings_of(gad)
class Settings(NamedTuple):
    target_accept: Annotated[float, PROBABILITY, "acceptance rate that beta aims at"] = 0.25
    learning_rate: Annotated[float | None, Limit(0.0, 1.0), "eta; None: 0.001, or 0.00005 if faithful"] = None


FACTS = gad.FACTS._replace(module=__name__, family=WALK, needs="gradients in warm-up")
FAITHFUL_RATE, OWN_RATE = 0.00005, 0.001  # defaults of the learning rate

n_matrices, stages, history, learnt = gad.n_matrices, gad.stages, gad.history, gad.learnt


class State(NamedTuple):
    x: np.ndarray
    logp: float
    chol_t: np.ndarray
    square: np.ndarray
    beta: float


@kernel
def start(target: Target, settings: Any, x: Vector, rng: Generator) -> State:
    """The state at `x` (d,)."""
    d = x.size
    chol_t = scaled_identity(d, settings.initial_scale / np.sqrt(d))
    return State(x.copy(), log_density(target, x), chol_t, first_squares(d), 1.0)


def take_over(state: State, handover: Handover, settings: Settings) -> State:
    """Take L from the pilot: the factor of its metric, times the best step size for a Gaussian."""
    return state._replace(chol_t=gaussian_scale(handover.z.size) * transposed_factor(handover.cov))


@kernel
def step(target: Target, settings: Any, state: State, rng: Generator, adapting: Flag) -> tuple[State, Info]:
    """One iteration of Algorithm 1."""
    x, logp, chol_t, square, beta = state

    y, eps, score_y = np.empty_like(x), np.empty_like(x), np.empty_like(x)
    propose_walk(x, chol_t, 1.0, rng, y, eps)
    logp_y = log_density_gradient(target, y, score_y) if adapting else log_density(target, y)
    accept_prob = accept_probability(logp_y - logp)
    accepted = rng.random() < accept_prob

    if adapting and logp_y > -np.inf:
        learn(chol_t, square, beta, settings, logp_y - logp, score_y, eps)
    if adapting:
        beta = adapt_beta(beta, accepted, settings)
    if accepted:
        x, logp = y, logp_y
    info = Info(accept_prob, accepted, np.nan, 1, NOTHING)
    return State(x, logp, chol_t, square, beta), info


@kernel
def learn(
    chol_t: Matrix, square: Matrix, beta: Real, settings: Any, log_ratio: Real, score_y: Vector, eps: Vector
) -> None:
    """A step of L along [score(y) eps^T]_lower (zero if the log ratio is >= 0) + beta diag(1 / L_ii)."""
    left, right = np.zeros((1, eps.size)), np.zeros((1, eps.size))
    if log_ratio < 0.0:
        left[0], right[0] = score_y, eps
    eta = gad.learning_rate(settings, FAITHFUL_RATE, OWN_RATE)
    climb_speed(chol_t, square, left, right, beta, eta, settings.faithful)


sweep = make_sweep(step)
move = move_with_density
