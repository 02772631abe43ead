"""One step of a plain Metropolis kernel from every draw, which checks the law of the draws.

This kernel is written separately on purpose. It shares no line with the samplers, so that one error cannot
make both wrong in the same way. From the model it takes only the density, and the gradient if there is one.

    symbol  here       shape     meaning
    x       point      (d,)      a draw
    R       root       (k, k)    root of a correlation matrix; k = 0 stands for the identity
    S       scale      (d,)      standard deviations, so that A = S R R^T S is about the covariance
    w(x)    pull       (d,)      R^T S score(x), or 0 where there is no gradient
    h       step       ()        length of a step
    z       noise      (d,)      standard normal

The proposals are y = x + S R ((h²/2) w(x) + h z): MALA (Roberts and Tweedie, 1996) with a gradient, and a
random walk without. The noise that leads from y back to x is -z - (h/2) (w(x) + w(y)), so the proposal is
accepted with probability

    a(x, y) = min(1, exp(log p(y) - log p(x) + |z|²/2 - |z + (h/2) (w(x) + w(y))|²/2)).

The kernel leaves p invariant for all A, h and w: a wrong gradient or a density with jumps only costs power.
Every draw gets two proposals, with noises z and -z, because most of the effect of the noise on a mean then
cancels.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..jit import kernel
from ..kinds import Flag, Generator, Matrix, Real, Target, Vector
from ..target import log_density, log_density_gradient


@kernel
def _pull(score: Vector, scale: Vector, root: Matrix, out: Vector) -> None:
    """out = R^T S score."""
    d = scale.size
    for i in range(d):
        out[i] = scale[i] * score[i]
    if len(root) > 0:
        for k in range(d):  # R is lower triangular, so entry k needs only entries from k on
            total = 0.0
            for i in range(k, d):
                total += root[i, k] * out[i]
            out[k] = total


@kernel
def _push(move: Vector, scale: Vector, root: Matrix, out: Vector) -> None:
    """out = S R move."""
    d = scale.size
    for i in range(d):
        total = move[i]
        if len(root) > 0:
            total = 0.0
            for k in range(i + 1):
                total += root[i, k] * move[k]
        out[i] = scale[i] * total


@kernel
def _look(
    target: Target, x: Vector, with_gradient: Flag, scale: Vector, root: Matrix, score: Vector, pull: Vector
) -> Real:
    """The log density at `x` (d,). It writes w(x) to `pull` (d,), which stays 0 without a gradient."""
    if not with_gradient:
        return log_density(target, x)
    logp = log_density_gradient(target, x, score)
    if logp > -np.inf:
        _pull(score, scale, root, pull)
    return logp


@kernel
def reference_steps(
    target: Target,
    points: Matrix,
    scale: Vector,
    root: Matrix,
    step: Real,
    with_gradient: Flag,
    rng: Generator,
    proposals: Any,
    logp: Matrix,
    accept: Matrix,
) -> None:
    """Make two proposals from every point (n, d), with opposite noise.

    It writes `proposals` (n, 2, d), the log densities `logp` (n, 3) at the point and at both proposals, and
    the acceptance probabilities `accept` (n, 2) of the proposals.
    """
    d = scale.size
    score, here, there = np.empty(d), np.zeros(d), np.zeros(d)
    noise, move, shift = np.empty(d), np.empty(d), np.empty(d)
    for i in range(len(points)):
        logp[i, 0] = _look(target, points[i], with_gradient, scale, root, score, here)
        for j in range(d):
            noise[j] = rng.standard_normal()
        for side in range(2):
            sign = 1.0 - 2.0 * side
            y = proposals[i, side]
            for j in range(d):
                move[j] = 0.5 * step * step * here[j] + sign * step * noise[j]
            _push(move, scale, root, shift)
            for j in range(d):
                y[j] = points[i, j] + shift[j]
            logp[i, side + 1] = _look(target, y, with_gradient, scale, root, score, there)
            log_ratio = logp[i, side + 1] - logp[i, 0]
            for j in range(d):
                back = sign * noise[j] + 0.5 * step * (here[j] + there[j])
                log_ratio += 0.5 * (noise[j] * noise[j] - back * back)
            accept[i, side] = np.exp(min(0.0, log_ratio)) if log_ratio > -np.inf else 0.0
