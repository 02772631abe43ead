"""The leapfrog integrator of Hamiltonian dynamics, with identity mass."""

from __future__ import annotations

import numpy as np

from ..jit import kernel
from ..kinds import Integer, Real, Target, Vector
from ..target import log_density_gradient


@kernel
def leapfrog(
    target: Target, x: Vector, momentum: Vector, score: Vector, step_size: Real, n_leapfrog: Integer
) -> tuple[Real, Integer]:
    """`n_leapfrog` steps from (x, momentum) and the score there; all three (d,) change in place.

    The first and the last step of the momentum are half steps: Neal (2011), Section 5.2.3.3. Returns the log
    density at the end and the number of gradients. A trajectory that meets a point without a log density ends
    there and returns -inf, because the way back would meet that point too.
    """
    half = 0.5 * step_size
    logp, taken = -np.inf, 0
    for i in range(x.size):
        momentum[i] += half * score[i]
    while taken < n_leapfrog:
        for i in range(x.size):
            x[i] += step_size * momentum[i]
        logp = log_density_gradient(target, x, score)
        taken += 1
        if logp == -np.inf:
            return logp, taken
        push = half if taken == n_leapfrog else step_size
        for i in range(x.size):
            momentum[i] += push * score[i]
    return logp, taken
