"""Whether a field is worth gradients that its latents alone would not take.

A metric does for latents that are hardly tied to each other, and that tell little of the heads. In a panel of
25 autoregressions of 16 counts each, correlations of the latents have a condition number of 2 to 3, and they
tell up to 1.7 times as much of the heads as all else does: fields bring twice the effective draws then, for
ten times the gradients of a warm-up. Walks, volatilities and growth curves, in which fields bring 6 to 40
times the draws, have condition numbers of 10 to 800, or 4 to 97 times the information.
"""

from __future__ import annotations

import numpy as np

from .dense import dense_precision
from .design import Design

_TIED = 6.0  # condition number of correlations from which on a metric does not do,
_TOLD = 4.0  # and information of latents on a head, beside that of all else
_LARGEST = 500  # more latents than this are not looked at: so long a series has always been tied


def is_worth_more(design: Design) -> bool:
    """Whether a metric does not do for the latents of a `design`, around the place of the heads."""
    place, (thetas, modes) = design.place, design.points()
    n = len(design.precision.latents)
    if n > _LARGEST:
        return True
    first = dense_precision(place.mode)
    covariance = np.linalg.inv(first)
    spread = np.sqrt(np.diag(covariance))
    sizes = np.linalg.eigvalsh(covariance / np.outer(spread, spread))
    if sizes[-1] > _TIED * sizes[0]:
        return True
    told = [0.0]
    for theta, mode in zip(thetas[1:], modes[1:], strict=True):
        precision, reach = dense_precision(mode), np.linalg.solve(place.root, theta - place.theta)
        # The divergence of one normal law from the other is half of the information times the squared reach.
        change = mode.factor.log_det() - place.mode.factor.log_det()
        divergence = 0.5 * (np.sum(covariance * precision) - n - change)
        told.append(float(2.0 * divergence / (reach @ reach)))
    return max(told) > _TOLD
