"""The preconditioned Langevin proposal and its acceptance, for any root of the preconditioner.

The whole package has one convention: y = x + (s²/2) A score(x) + s A^(1/2) z, with A = R R^T. R is kept
transposed, as `root_t`, see linear.py. The state carries the rotated score R^T score of the current point, so
that a frozen iteration costs two products with R: one for the proposal, and one for the score there.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..jit import kernel
from ..kinds import Generator, Matrix, Real, Target, Vector
from ..target import log_density_gradient
from .linear import add_times, transposed_times_into
from .metropolis import accept_probability_if_finite
from .step_size import double_or_halve


@kernel(counted=False)
def propose(
    x: Vector, rotated: Vector, root_t: Matrix, s: Real, rng: Generator, y: Vector, v: Vector
) -> None:
    """Write y = x + R ((s²/2) R^T score + s z), with z (d,) standard normal; `v` (d,) is work space."""
    for i in range(x.size):
        v[i] = 0.5 * s * s * rotated[i] + s * rng.standard_normal()
        y[i] = x[i]
    add_times(y, root_t, v)


@kernel(counted=False)
def propose_isotropic(x: Vector, score: Vector, s: Real, rng: Generator, y: Vector) -> None:
    """Write y = x + (s²/2) score + s z: the proposal with A = I."""
    for i in range(x.size):
        y[i] = x[i] + (0.5 * s * s * score[i] + s * rng.standard_normal())


@kernel(counted=False)
def log_proposal_ratio(
    x: Vector, score: Vector, rotated: Vector, y: Vector, score_y: Vector, rotated_y: Vector, s: Real
) -> Real:
    """log q(x | y) - log q(y | x) = h(x, y) - h(y, x), which needs A but not its inverse.

    h(z, v) = (z - v - (s²/4) A score(v)) . score(v) / 2: Titsias (2023), Proposition 1. If A = I, the rotated
    scores are the scores themselves.
    """
    along, size, size_y = 0.0, 0.0, 0.0
    for i in range(x.size):
        along += (x[i] - y[i]) * (score_y[i] + score[i])
        size += rotated[i] * rotated[i]
        size_y += rotated_y[i] * rotated_y[i]
    return 0.5 * along - s * s / 8.0 * (size_y - size)


@kernel
def langevin_proposal(
    target: Target,
    x: Vector,
    logp: Real,
    score: Vector,
    rotated: Vector,
    root_t: Matrix,
    s: Real,
    rng: Generator,
    y: Vector,
    score_y: Vector,
    rotated_y: Vector,
) -> tuple[Real, Real]:
    """Write a proposal, its score and its rotated score to `y`, `score_y` and `rotated_y` (d,).

    Returns the proposal's log density and acceptance probability. If the log density is -inf, the two scores
    are meaningless.
    """
    propose(x, rotated, root_t, s, rng, y, rotated_y)
    logp_y = log_density_gradient(target, y, score_y)
    if logp_y == -np.inf:
        return logp_y, 0.0
    transposed_times_into(rotated_y, root_t, score_y)
    ratio = log_proposal_ratio(x, score, rotated, y, score_y, rotated_y, s)
    return logp_y, accept_probability_if_finite(logp_y - logp + ratio)


@kernel
def first_step_size(
    target: Target, settings: Any, x: Vector, logp: Real, score: Vector, rng: Generator
) -> Real:
    """The `initial_step_size` of the settings; if there is none, a search by doubling and halving finds it.

    The search ends where an isotropic Langevin proposal from `x` has about the target acceptance. A faithful
    run has no search and starts from 0.1.
    """
    if settings.initial_step_size > 0.0:
        return settings.initial_step_size
    if settings.faithful:
        return 0.1
    z, y, score_y = np.empty(x.size), np.empty(x.size), np.empty(x.size)
    for i in range(x.size):
        z[i] = rng.standard_normal()
    s, direction, done = 1.0, 0, False
    for _ in range(100):
        for i in range(x.size):
            y[i] = x[i] + 0.5 * s * s * score[i] + s * z[i]
        logp_y = log_density_gradient(target, y, score_y)
        accept_prob = 0.0
        if logp_y > -np.inf:
            ratio = log_proposal_ratio(x, score, score, y, score_y, score_y, s)
            accept_prob = accept_probability_if_finite(logp_y - logp + ratio)
        s, direction, done = double_or_halve(s, accept_prob, settings.target_accept, direction)
        if done:
            break
    return s


def gaussian_step_size(d: int) -> float:
    """The best s, with acceptance 0.574, if the target is a Gaussian with covariance A in many dimensions.

    The log ratio is then normal with standard deviation u = s^3 d^(1/2) / 4 and mean -u^2 / 2.
    """
    return float(1.65 * d ** (-1 / 6))
