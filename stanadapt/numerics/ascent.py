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
_NEAR = 5.0  # nats per dimension below the highest point at which the tail is left
_MAX_ITERATIONS = 200
_RESTARTS = 5


def climb(target: NativeTarget, x: np.ndarray) -> tuple[np.ndarray, float]:
    """Climb from `x` (d,) while the log density still rises by tens of nats an iteration.

    Returns the first point of the way up that is at most 5 nats a dimension below the highest found, which is
    `x` itself for a start that is not far out, and the highest log density. So chains still start apart from
    each other and further out than the bulk: for a Gaussian that is up to three standard deviations.

    Method: L-BFGS (Liu and Nocedal, 1989) as scipy has it. Its line search breaks down where values span a
    hundred orders of magnitude, so it is started afresh from where it stopped as long as that helps.
    """
    score = np.empty_like(x)
    best = log_density_gradient(target, x, score)
    way = [(x.copy(), best)]  # points that were higher than all before

    def descend(z: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal best
        z = np.ascontiguousarray(z)
        value = log_density_gradient(target, z, score)
        if value > best:
            best = value
            way.append((z.copy(), value))
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
            minimize(
                descend, way[-1][0], jac=True, method="L-BFGS-B", callback=stop_when_flat, options=options
            )
        if not best - before > _GAIN * x.size:
            break
    return next(point for point, value in way if value >= best - _NEAR * x.size), best


def far_below(logp: float, other: float, d: int) -> bool:
    """Whether a mode at `logp` has no share of the mass beside one at `other`, unless vastly wider."""
    return other - logp > 10.0 + 2.0 * d
