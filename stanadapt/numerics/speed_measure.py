"""The generalised speed measure of Titsias and Dellaportas (2019), and how a proposal climbs it.

    log s(x) >= F(x) = E[min{0, log ratio}] + beta sum_i log L_ii      (their Equations 5 to 7)

where L is the lower Cholesky factor of the proposal's covariance. What differs between their samplers is the
gradient of the log ratio in L; it is always a sum of few outer products.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..jit import kernel

DECAY = 0.9  # of RMSprop's running square of the gradient
LEAST_BETA, LARGEST_BETA = 0.001, 10.0  # where L has settled beta is 0.1 to 3 in 2 to 100 dimensions
FIRST_SQUARE = 0.01  # which it starts from, in the authors' published code


@kernel
def climb_speed(
    chol_t: Any, square: Any, left: Any, right: Any, beta: Any, learning_rate: Any, faithful: Any
) -> None:
    """One RMSprop step of L, in place: G <- 0.9 G + 0.1 grad², L <- L + eta / (1 + sqrt(G)) o grad.

    grad = [sum_m left_m right_m^T]_lower + beta diag(1 / L_ii): Section 2.1, with products and roots entry by
    entry. `left` and `right` are (m, d); `chol_t` and `square` (d, d) are L and G transposed. A step
    that would bring a diagonal entry below half of itself halves it, so that L stays a Cholesky factor.
    Nothing happens where the gradient is not finite.

    Unless `faithful`, row i of L is learnt in units of its own length, the standard deviation of coordinate i
    in the proposal: L_ij = r_i L'_ij, and the step is one of L'. The paper's step is the same for coordinates
    of all scales.
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
def row_lengths(chol_t: Any, lengths: Any) -> None:
    """Write the lengths of the rows of L to `lengths` (d,)."""
    lengths[:] = 0.0
    for j in range(lengths.size):
        column, rest = chol_t[j, j:], lengths[j:]
        for i in range(rest.size):
            rest[i] += column[i] * column[i]
    for i in range(lengths.size):
        lengths[i] = np.sqrt(lengths[i])


@kernel
def towards_acceptance(beta: Any, accepted: Any, settings: Any) -> Any:
    """beta <- beta [1 + rho_beta (alpha_t - alpha_*)], alpha_t = 1 for an accepted proposal and else 0.

    Unless faithful, beta stays within 0.001 and 10. While L is far too small every proposal is accepted, and
    a beta that has grown to 1e30 by then takes longer to come back than the whole warm-up.
    """
    beta *= 1.0 + settings.beta_rate * ((1.0 if accepted else 0.0) - settings.target_accept)
    if not settings.faithful:
        beta = min(max(beta, LEAST_BETA), LARGEST_BETA)
    return beta


@kernel
def first_squares(d: Any) -> Any:
    """RMSprop's G (d, d) before the first step."""
    return np.full((d, d), FIRST_SQUARE)
