"""Standard normal latents that a program multiplies by one scale, before data tie them all to each other.

Innovations of a walk are so where each observation sums over the past, as in a model of an epidemic, and the
values of a process. With the data's part D of the curvature at scale 1, the negative Hessian of the latents z
where they are 0 is I + e^(2s) D. Given the scale, the latents u = e^s z have the precision e^(-2s) I + D, of
which the first part alone changes with s. Latents that have no part in the scale, a first term of the walk or
the number of cases before it, keep their units: beside them the law of z would change in all its entries.

This is the law of innovations (innovations.py) without regressions on those before.
"""

from __future__ import annotations

import numpy as np

from ..field_table import field_rows
from ..map_table import INNOVATIONS
from .innovation_law import scaling_law
from .innovation_search import MOST_CANDIDATES, Innovations, as_innovations
from .probes import FEW_NEIGHBOURS, NOISE, Evaluate, ScaledDensity, have_ties, two_columns

_MOVE = 0.5  # of a candidate, in units
_RATE_ERROR = 1e-3  # of the rate at which what data say of a latent changes with a scale, 0 or 1
_LEAST_SHARE = 0.5  # of a variable's coordinates that are multiplied, of those of which data say something
_FAINT = 1e-4  # of the largest entry of a column; data say nothing of a coordinate whose entries are smaller


def find_common_scales(
    evaluate: Evaluate, x: np.ndarray, unit: np.ndarray, variables: np.ndarray
) -> tuple[Innovations | None, int]:
    """The latents that are multiplied by a scale, if there are any, and the number of gradients it took.

    The arguments are those of `find_innovations`.
    """
    density = ScaledDensity(evaluate, np.ones(x.size))
    counts = np.bincount(variables)
    few, scales = np.flatnonzero(counts[variables] <= FEW_NEIGHBOURS), np.full(x.size, -1)
    if len(few) > MOST_CANDIDATES:
        return None, 0
    for number in np.flatnonzero(counts > FEW_NEIGHBOURS):
        own = np.flatnonzero(variables == number)
        if have_ties(density, x, own, len(own) // 2, NOISE):
            scales[own] = _scales_of(density, x, unit, own, few)
    own = np.flatnonzero(scales >= 0)
    if not len(own):
        return None, density.gradients
    heads = np.unique(scales[own])
    rows = field_rows(scaling_law(heads, x[heads], unit[heads], own, scales[own]), 0, INNOVATIONS)
    scale = unit.copy()
    scale[own] *= np.exp(x[scales[own]])
    return as_innovations(rows, x, scale, density.gradients), density.gradients


def _scales_of(
    density: ScaledDensity, x: np.ndarray, unit: np.ndarray, own: np.ndarray, few: np.ndarray
) -> np.ndarray:
    """The coordinate among `few` (m,) whose exponential multiplies each of the coordinates `own` (n,); -1 for
    those that none does, or of which data say nothing, and for all if these are the most.
    """
    middle = x.copy()
    middle[own] = 0.0

    def of_data(point: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What data add to columns (2, n) of the negative Hessian, and their places (2,)."""
        places, columns = zip(*two_columns(density, point, own, None), strict=True)
        added = np.array(columns)[:, own]
        added[[0, 1], places] -= 1.0
        return added, np.array(places)

    first, places = of_data(middle)
    says = np.abs(first) > _FAINT * np.nanmax(np.abs(first), axis=1, initial=0.0)[:, None]
    is_known, found = says.any(axis=0), np.full(len(own), -1)
    for k in few:
        moved = middle.copy()
        moved[k] += _MOVE * unit[k]
        with np.errstate(all="ignore"):
            rates = np.log(of_data(moved)[0] / first) / (_MOVE * unit[k])
        rates -= 0.5 * rates[[0, 1], places][:, None]  # of the column's own coordinate
        of_each = np.where(says, rates, 0.0).sum(axis=0) / np.maximum(says.sum(axis=0), 1)
        are_multiplied = is_known & (np.abs(of_each - 1.0) < _RATE_ERROR)
        if np.all(are_multiplied | (np.abs(of_each) < _RATE_ERROR)):
            found[are_multiplied] = k
    is_most = np.count_nonzero(found >= 0) >= _LEAST_SHARE * np.count_nonzero(is_known)
    return found if is_most else np.full(len(own), -1)
