"""Climbs of a log density by scipy's L-BFGS-B, with the way that they have taken.

Byrd, Lu, Nocedal and Zhu (1995), A limited memory algorithm for bound constrained optimization. There are no
bounds here: the parameters are unconstrained.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from .density import ClimbedDensity

_STEEP = 2.0  # rises of a failed step, in units of what the slope promised, see `_Descent`
_SEARCHES = 50  # evaluations of one line search
_EVALUATIONS = 3  # for each iteration on average, beyond which a climb ends: the density rises for ever
_FLAT = 1e-13  # relative gain of an iteration that ends a climb
_SLOPE = 1e-8  # of the steepest coordinate, which ends a climb


class Way(NamedTuple):
    """A climb: its points in order, from the start on."""

    points: np.ndarray  # (L + 1, d)
    logps: np.ndarray  # (L + 1,) rising
    scores: np.ndarray  # (L + 1, d)
    is_finished: bool  # False if the number of iterations has ended it
    message: str  # why it ended, as scipy says it

    @property
    def end(self) -> np.ndarray:
        """The highest point (d,)."""
        return np.asarray(self.points[-1])


class _Descent:
    """The negative log density as scipy wants it, which has a finite value everywhere.

    The line search interpolates between values. For a point without a density it gets one at which the next
    step is about a sixth as long: a value that is above that of the last iterate by twice of what the slope
    there had promised.
    """

    def __init__(self, density: ClimbedDensity, x: np.ndarray) -> None:
        self.density = density
        logp, score = density.gradient(x)
        self.last = x.copy(), logp, score  # the last point with a density
        self.points, self.logps, self.scores = [x.copy()], [logp], [score]

    def __call__(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        known, logp, score = self.last
        if not np.array_equal(known, x):
            logp, score = self.density.gradient(x)
            if logp == -np.inf:
                promised = abs(float(self.scores[-1] @ (x - self.points[-1])))
                return -self.logps[-1] + _STEEP * promised, self.scores[-1].copy()
            self.last = x.copy(), logp, score
        return -logp, -score

    def keep(self, x: np.ndarray) -> None:
        """Note an iterate, which is a point that has been evaluated."""
        known, logp, score = self.last
        if not np.array_equal(known, x):
            logp, score = self.density.gradient(x)
        if logp >= self.logps[-1] and not np.array_equal(self.points[-1], x):
            self.points.append(x.copy())
            self.logps.append(logp)
            self.scores.append(score)


def climb_from(density: ClimbedDensity, x: np.ndarray, *, memory: int, most: int) -> Way:
    """Climb from `x` (d,), where the density must be finite.

    `memory` is the number of pairs that L-BFGS keeps, and `most` the largest number of iterations.
    """
    descent = _Descent(density, np.ascontiguousarray(x, dtype=float))
    found = minimize(
        descent,
        x,
        jac=True,
        method="L-BFGS-B",
        callback=descent.keep,
        options={
            "maxcor": memory,
            "maxiter": most,
            "maxfun": most * _EVALUATIONS + _SEARCHES,
            "maxls": _SEARCHES,
            "ftol": _FLAT,
            "gtol": _SLOPE,
        },
    )
    descent.keep(found.x)
    return Way(
        np.array(descent.points),
        np.array(descent.logps),
        np.array(descent.scores),
        found.status != 1,
        str(found.message),
    )
