"""Out of the far tail: a short climb of the log density before the first iteration of a sampler.

From a start uniform on (-2, 2) the log density can be -1e13 and its gradient 1e13, and a Langevin chain whose
step fits there needs tens of thousands of iterations to come home. A quasi-Newton climb needs tens of
gradients. It stops long before a mode: a mode may be an infinite spike (the neck of a funnel), and finding
the typical set is the sampler's own work.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import OptimizeResult, minimize

from ..target import NativeTarget, log_density_gradient

_LOOK_BACK = 5  # L-BFGS iterations over which the gain is looked at
_GAIN = 5.0  # a climb goes on while those gain more than this many nats per dimension
_MAX_ITERATIONS = 200
_RESTARTS = 5


def climb(target: NativeTarget, x: np.ndarray) -> tuple[np.ndarray, float]:
    """Climb from `x` (d,) while the log density still rises by tens of nats an iteration.

    Returns the best point found and its log density, which is never below that of `x`.
    Method: L-BFGS (Liu and Nocedal, 1989) as scipy has it. Its line search breaks down where values span a
    hundred orders of magnitude, so it is started afresh from where it stopped as long as that helps.
    """
    score = np.empty_like(x)
    best_x, best = x.copy(), log_density_gradient(target, x, score)

    def descend(z: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal best_x, best
        z = np.ascontiguousarray(z)
        value = log_density_gradient(target, z, score)
        if value > best:
            best_x, best = z.copy(), value
        return -value, -score if value > -np.inf else np.zeros_like(score)

    recent: list[float] = []

    # scipy hands over the result only to a callback whose one argument has this name.
    def stop_when_flat(intermediate_result: OptimizeResult) -> None:
        recent.append(-intermediate_result.fun)
        if len(recent) > _LOOK_BACK and recent[-1] - recent[-1 - _LOOK_BACK] < _GAIN * x.size:
            raise StopIteration

    for _ in range(_RESTARTS):
        before = best
        recent[:] = [before]
        options = {"maxiter": _MAX_ITERATIONS, "maxcor": 20, "maxls": 50, "ftol": 0.0, "gtol": 0.0}
        with np.errstate(all="ignore"):
            minimize(descend, best_x, jac=True, method="L-BFGS-B", callback=stop_when_flat, options=options)
        if not best - before > _GAIN * x.size:
            break
    return best_x, best


def far_below(logp: float, other: float, d: int) -> bool:
    """Whether a mode at `logp` has no share of the mass beside one at `other`, unless vastly wider."""
    return other - logp > 10.0 + 2.0 * d
