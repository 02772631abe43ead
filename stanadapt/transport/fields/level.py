"""Soft constraints on the sum of a variable's latents: what becomes of them in the coordinates of a law.

A constraint couples all latents u of the variable, by the background c 1 1^T beside their sparse precision Q.
It would make the direction of B = sqrt(c) 1 narrow in z, by the factor 1 + |L^-1 B|², which may be thousands.
That direction turns with the heads, so that no metric fits. In x it does not turn. So the law is that of u
with its mean times 1 / f, in which the constraint is weak (field.py). With v = 1 / sqrt(n), q = v^T Q v and
f² = q / (q + c n), the mean has the precision q again, as without the constraint. But in Q it may be tied to
others, to an intercept, say, which takes all of its part. So this is done only where the precision in z,

    L^-1 (I - (1 - f) v v^T) (Q + B B^T) (I - (1 - f) v v^T) L^-T,

which differs from I in two directions, is much closer to I than without it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.sparse.linalg import spsolve_triangular

from .precision import Factor, Precision, background_directions

_BETTER = 4.0  # factor by which the largest variance, or its inverse, must be closer to 1


class Level(NamedTuple):
    """The level of a variable in a law, and where z is not standard normal because of constraints."""

    numbers: np.ndarray  # (3,) its first coordinate, size and factor; (0,) for none
    directions: np.ndarray  # (b, n) orthonormal, of the latents in z
    variances: np.ndarray  # (b,) there


def find_level(precision: Precision, factor: Factor) -> Level:
    """The level of a law, from the factor of the precision at the middle of the heads."""
    none = Level(np.empty(0), *background_directions(factor))
    members, own, unit = precision.coupling.members, precision.latents, precision.density.unit
    if precision.dense or len(members) != 1 or not _is_block(members[0], own):
        return none
    n, chosen = len(members[0]), np.isin(own, members[0])
    v, u = np.zeros((2, len(own)))  # the constraint is on v^T x, and moves along u
    v[chosen], u[chosen] = unit[own[chosen]] / np.sqrt(n), 1.0 / (unit[own[chosen]] * np.sqrt(n))
    roots = np.sqrt(factor.pivots)
    along = roots * (factor.lower.T @ u)
    w = factor.lower @ (roots * along)
    q, stiff = float(u @ w), float(precision.coupling.levels[0]) * n
    if not 0.0 < q < np.inf:
        return none
    f = np.sqrt(q / (q + stiff))
    across = spsolve_triangular(factor.lower.tocsr(), v, lower=True) / roots
    basis, triangle = np.linalg.qr(np.column_stack((across, along)))
    between = np.array([[(1.0 - f) ** 2 * q + f * f * stiff, f - 1.0], [f - 1.0, 0.0]])
    sizes, vectors = np.linalg.eigh(np.eye(2) + triangle @ between @ triangle.T)
    if not sizes[0] > 0.0 or _BETTER * max(sizes[1], 1.0 / sizes[0]) > 1.0 / none.variances.min():
        return none
    return Level(np.array([members[0][0], n, f]), (basis @ vectors).T, 1.0 / sizes)


def _is_block(members: np.ndarray, own: np.ndarray) -> bool:
    """Whether coordinates follow each other, and are all among the latents `own` (n,)."""
    return bool(members[-1] - members[0] == len(members) - 1 and np.isin(members, own).all())
