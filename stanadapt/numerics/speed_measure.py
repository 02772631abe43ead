"""The generalised speed measure of Titsias and Dellaportas (2019), and how a proposal climbs it.

    log s(x) >= F(x) = E[min{0, log ratio}] + beta sum_i log L_ii      (their Equations 5 to 7)

where L is the lower Cholesky factor of the proposal's covariance. Their samplers differ in the gradient of
the log ratio with respect to L, which is always a sum of a few outer products.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..jit import kernel
from ..kinds import Flag, Integer, Matrix, Real, Vector

DECAY = 0.9  # decay rate of RMSprop's running square of the gradient
LEAST_BETA, LARGEST_BETA = 0.001, 10.0  # once L is learned, beta is 0.1 to 3 in 2 to 100 dimensions
FIRST_SQUARE = 0.01  # first value of the running square, as in the authors' published code


@kernel
def climb_speed(
    chol_t: Matrix,
    square: Matrix,
    left: Matrix,
    right: Matrix,
    beta: Real,
    learning_rate: Real,
    faithful: Flag,
) -> None:
    """One RMSprop step of L, in place: G <- 0.9 G + 0.1 grad², L <- L + eta / (1 + sqrt(G)) o grad.

    grad = [sum_m left_m right_m^T]_lower + beta diag(1 / L_ii): Section 2.1. Products and roots are entry by
    entry. `left` and `right` are (m, d); `chol_t` and `square` (d, d) are L and G transposed. A step at most
    halves a diagonal entry, so that L stays a Cholesky factor. If the gradient is not finite, L stays
    the same.

    Unless `faithful`, row i of L is learned in units of its own length r_i, the standard deviation of
    coordinate i in the proposal: L_ij = r_i L'_ij, and the step is taken for L'. The paper's step has the
    same size for coordinates of all scales.
    """
    terms, d = left.shape
    total = 0.0
    for m in range(terms):
        for i in range(d):
            total += left[m, i] + right[m, i]
    if not np.isfinite(total):
        return
    gradient, units = np.empty(d), np.ones(d)
    if not faithful:
        row_lengths(chol_t, units)
    for j in range(d):
        factor, past, slope, unit = chol_t[j, j:], square[j, j:], gradient[j:], units[j:]
        first, a = left[0, j:], right[0, j]
        for i in range(slope.size):
            slope[i] = a * first[i]
        for m in range(1, terms):
            further, b = left[m, j:], right[m, j]
            for i in range(slope.size):
                slope[i] += b * further[i]
        slope[0] += beta / factor[0]
        least = 0.5 * factor[0]
        for i in range(slope.size):
            g = unit[i] * slope[i]
            past[i] = DECAY * past[i] + (1.0 - DECAY) * g * g
            factor[i] += learning_rate * unit[i] * g / (1.0 + np.sqrt(past[i]))
        factor[0] = max(factor[0], least)


@kernel
def row_lengths(chol_t: Matrix, lengths: Vector) -> None:
    """Write the lengths of the rows of L to `lengths` (d,)."""
    lengths[:] = 0.0
    for j in range(lengths.size):
        column, rest = chol_t[j, j:], lengths[j:]
        for i in range(rest.size):
            rest[i] += column[i] * column[i]
    for i in range(lengths.size):
        lengths[i] = np.sqrt(lengths[i])


@kernel
def adapt_beta(beta: Real, accepted: Flag, settings: Any) -> Real:
    """beta <- beta [1 + rho_beta (alpha_t - alpha_*)], with alpha_t = 1 for an accepted proposal, else 0.

    Unless faithful, beta stays between 0.001 and 10. While L is far too small, every proposal is accepted.
    Without a bound beta would grow to 1e30 meanwhile, and would need more than the warm-up to come back.
    """
    beta *= 1.0 + settings.beta_rate * ((1.0 if accepted else 0.0) - settings.target_accept)
    if not settings.faithful:
        beta = min(max(beta, LEAST_BETA), LARGEST_BETA)
    return beta


@kernel
def first_squares(d: Integer) -> Matrix:
    """RMSprop's G (d, d) before the first step."""
    return np.full((d, d), FIRST_SQUARE)
