"""gadMALAe: MALA whose preconditioner climbs the generalised speed measure, with the exact gradient.

Titsias and Dellaportas (2019), Gradient-based Adaptive Markov Chain Monte Carlo, Algorithm 1 and Section 2.3.
With w = L^T (grad(x) + grad(y)) / 2 + eps, g = grad(y) - H(y) L w / 2 and v as below, the log ratio changes
by g . dy - w^T dL^T (grad(x) + grad(y)) / 2 where dy = dL v + L dL^T grad(x) / 2. So its gradient in L is
g v^T + grad(x) (L^T g)^T / 2 - (grad(x) + grad(y)) w^T / 2: the Hessian H enters in one direction only.

    paper      here                     shape   meaning
    x_t        state.x                  (d,)    position on the unconstrained scale
    grad(x_t)  state.score              (d,)    gradient of the log density at x_t
    L          state.chol_t             (d, d)  lower Cholesky factor of the proposal's covariance, transposed
    L^T grad   state.rotated            (d,)    in the state, so that a frozen iteration has two products
    eps_t      v - rotated / 2          (d,)    y = x + L v, v = L^T grad(x) / 2 + eps
    G_t        state.square             (d, d)  RMSprop's running square of the gradient, transposed
    eta        settings.learning_rate   ()      RMSprop's baseline learning rate
    beta       state.beta               ()      weight of the proposal's entropy
    rho_beta   settings.beta_rate       ()      learning rate of beta
    alpha_*    settings.target_accept   ()      acceptance rate that beta is adapted to

Departures from the paper, the first four off with `faithful=True`:
1. Each row of L is learned in units of its own length, at a learning rate of 0.002. The paper's learning rate
   of 0.00015 is absolute, so that L never reaches the scale of a coordinate with a standard deviation of ten.
2. beta stays between 0.001 and 10, see numerics/speed_measure.py.
3. A random start first climbs out of the far tail, see numerics/ascent.py.
4. `pilot` iterations of Fisher HMC may come first, see run/warmup.py. Then L starts from their metric, and
   the learning rate is a twentieth.
5. An iteration at most halves L_ii, so that it stays positive.
6. The chain learns nothing from a proposal where the log density or the Hessian in that direction is not
   finite.

Cost of an iteration: one gradient and two products with L; while adapting, also three more products, a pass
over L and G, and, if the log ratio is negative, two more gradients, which give H(y) L w. Memory:
two (d, d) arrays a chain.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np

from ..jit import kernel
from ..kinds import Flag, Matrix, Target, Vector
from ..numerics.linear import add_times, transposed_times_into
from ..target import hessian_vector
from . import gad
from .base import move_with_root
from .gad import step_along
from .loop import make_sweep
from .settings import PROBABILITY, Limit, with_settings_of


@with_settings_of(gad)
class Settings(NamedTuple):
    target_accept: Annotated[float, PROBABILITY, "acceptance rate that beta aims at"] = 0.55
    learning_rate: Annotated[float | None, Limit(0.0, 1.0), "eta; None: 0.002, or 0.00015 if faithful"] = None


FACTS = gad.FACTS._replace(module=__name__)

State, start, take_over = gad.State, gad.start, gad.take_over
n_matrices, stages, history, learnt = gad.n_matrices, gad.stages, gad.history, gad.learnt


@kernel
def ratio_gradient(
    target: Target,
    chol_t: Matrix,
    score: Vector,
    y: Vector,
    score_y: Vector,
    v: Vector,
    rotated_y: Vector,
    left: Matrix,
    right: Matrix,
) -> Flag:
    """Write grad_L of the log ratio as the sum of three outer products left_m right_m^T.

    Returns whether the Hessian is finite.
    """
    d = y.size
    g, w, along, curved = left[0], np.empty(d), np.zeros(d), np.empty(d)
    for i in range(d):
        w[i] = v[i] + 0.5 * rotated_y[i]
    add_times(along, chol_t, w)
    if not hessian_vector(target, y, along, curved):
        return False
    for i in range(d):
        g[i] = score_y[i] - 0.5 * curved[i]
    transposed_times_into(right[1], chol_t, g)
    for i in range(d):
        right[0, i] = v[i]
        left[1, i], right[1, i] = 0.5 * score[i], right[1, i] - w[i]
        left[2, i], right[2, i] = -0.5 * score_y[i], w[i]
    return True


step = step_along(ratio_gradient, terms=3, gradients=2)
sweep = make_sweep(step)
move = move_with_root("chol_t")
