"""Programs whose parameters each follow from one coordinate by a bound, an offset or a multiplier.

Most programs without transformed parameters are like that. Stan's C ABI constrains one draw a call, which
takes several times what a gradient of a small posterior takes; for these programs all draws of a block are a
few operations on arrays instead. Bounds must not depend on parameters, which the text of the program tells
(`has_fixed_bounds`). The transforms are read off a few points, and looked at again at others: where one value
is off by more than rounding, as in ordered vectors, Stan constrains the draws.

The transforms are those of the Stan Reference Manual: L + e^x and U - e^x with one bound, L + (U - L) / (1 +
e^-x) with two, and a + b x with an offset and a multiplier.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

_FAR = 1_000.0  # e^-x is 0 there
_ROUNDING = 1e-13  # of values, beside the largest number in their transform


class Elementwise(NamedTuple):
    """The transforms of coordinates (d,)."""

    affine: np.ndarray  # (i,) coordinates with a + b x, without those that are as they are
    offsets: np.ndarray  # (i,) a
    multipliers: np.ndarray  # (i,) b
    exponential: np.ndarray  # (j,) coordinates with one bound
    bounds: np.ndarray  # (j,)
    signs: np.ndarray  # (j,) 1 for a lower bound, -1 for an upper one
    logistic: np.ndarray  # (k,) coordinates with two bounds
    lowest: np.ndarray  # (k,)
    widths: np.ndarray  # (k,)

    @np.errstate(over="ignore", under="ignore")
    def constrain(self, x: np.ndarray, values: np.ndarray) -> None:
        """Write the parameters of points (n, d) to `values` (n, d)."""
        values[:] = x
        if self.affine.size:
            values[:, self.affine] = self.offsets + self.multipliers * x[:, self.affine]
        if self.exponential.size:
            values[:, self.exponential] = self.bounds + self.signs * np.exp(x[:, self.exponential])
        if self.logistic.size:
            values[:, self.logistic] = self.lowest + self.widths * (
                1.0 / (1.0 + np.exp(-x[:, self.logistic]))
            )


@np.errstate(all="ignore")
def find_elementwise(constrain: Callable[[np.ndarray], np.ndarray], d: int) -> Elementwise | None:
    """The transforms of a program with `d` parameters, as many as coordinates; None if they are others.

    `constrain` gives the parameters (d,) of a point (d,), and may raise RuntimeError.
    """
    far = np.full(d, _FAR)
    others = np.random.default_rng(1).normal(size=(3, d))  # no random numbers of a chain
    try:
        low, high, offset, at_one, *wanted = map(constrain, (-far, far, 0.0 * far, np.ones(d), *others))
    except RuntimeError:
        return None
    without_end = np.isinf(high) & np.isfinite(low)
    multiplier = (high - low) / (2.0 * _FAR)  # from far out, where an offset takes fewest of its digits
    straight = (np.abs(at_one - offset - multiplier) < 1e-6 * np.abs(multiplier)) & ~without_end
    moved = np.flatnonzero(straight & ((offset != 0.0) | (multiplier != 1.0)))
    one_bound, two_bounds = np.flatnonzero(without_end), np.flatnonzero(~(straight | without_end))
    found = Elementwise(
        *(moved, offset[moved], multiplier[moved]),
        *(one_bound, low[one_bound], np.sign(high[one_bound])),
        *(two_bounds, low[two_bounds], (high - low)[two_bounds]),
    )
    values = np.empty_like(others)
    found.constrain(others, values)
    size = np.maximum(np.abs(wanted), np.abs(np.where(straight, offset, low)))
    return found if np.all(np.abs(values - wanted) <= _ROUNDING * size) else None
