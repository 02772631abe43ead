"""Coefficients beside effects, whose widths change with the scales of these.

Where effects are at z = 0 (effects.py), the density is that of scales, means, coefficients and errors, with
the effects integrated out: exactly if data are normal, else about. The mean of J groups is known the better,
the nearer the groups are to each other. With the scale e^u of their effects its variance is

    a + b e^(2u):

e^(2u) / J where data are many. This is exact where all groups have as many data. So the negative Hessian at
two more values of each log scale tells the share of the second part, and with it a law (../error_scale.py) in
which coefficients do not depend on the scale. It is taken where it makes the Hessians much more alike. Where
correlations change instead, as those of the means of crossed factors do, it would not help.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..error_scale import ErrorScale, error_scale_rows
from ..map_table import APART, no_transport
from .probes import ScaledDensity, columns_among

_LEAST_SHARE = 0.1  # of the variance
_NEAREST, _FARTHEST = 0.1, 1.0  # a log scale moves by its standard deviation, if that is between these
_MOST_GRADIENTS = 200
_BETTER = 0.5  # how different the Hessians are with the law, by how much they are without


class ScaleOfEffects(NamedTuple):
    """The log of a scale of effects, as a coordinate."""

    coordinate: int
    power: float  # the scale is proportional to e^(power u)


class _Change(NamedTuple):
    """What becomes of the coefficients where a scale moves."""

    scale: int  # its number
    growth: float  # of its square, less 1
    precision: np.ndarray  # (m, m)


def coefficient_widths(
    density: ScaledDensity,
    z: np.ndarray,
    unit: np.ndarray,
    hessian: np.ndarray,
    others: np.ndarray,
    coefficients: np.ndarray,
    scales: Sequence[ScaleOfEffects],
) -> np.ndarray:
    """The rows of a map in which widths of `coefficients` (m,) do not depend on `scales`; there may be none.

    `density` is in the coordinates of effects, in the program's own units. Its mode, with effects at 0, is
    `z` (d,). The coordinates `others` (k,) are no effects; they have the negative `hessian` (k, k) there,
    which may have NaN, and `unit` (d,) are scales of all coordinates.
    """
    none: np.ndarray = no_transport()
    m = len(coefficients)
    if not 0 < 4 * m * len(scales) <= _MOST_GRADIENTS or not _is_positive(hessian):
        return none
    own = np.searchsorted(others, coefficients)
    here = np.linalg.inv(hessian[np.ix_(own, own)])
    spread = np.sqrt(np.diag(np.linalg.inv(hessian)))
    shares, changes = np.zeros((len(scales), m)), []
    for number, (coordinate, power) in enumerate(scales):
        move = float(np.clip(spread[others == coordinate][0], _NEAREST, _FARTHEST))
        for away in (-move, move):
            there = z.copy()
            there[coordinate] += away
            precision = _precision(density, there, unit, coefficients)
            if not _is_positive(precision):
                return none
            changes.append(_Change(number, float(np.expm1(2.0 * power * away)), precision))
            ratio = np.diag(np.linalg.inv(precision)) / np.diag(here)
            shares[number] += 0.5 * (ratio - 1.0) / changes[-1].growth
    # A coefficient follows one scale, that of the largest part of its variance.
    scale, share = shares.argmax(axis=0), np.minimum(shares.max(axis=0), 1.0)
    share[share < _LEAST_SHARE] = 0.0
    factors = [np.sqrt(1.0 + np.where(scale == one.scale, share, 0.0) * one.growth) for one in changes]
    without = _difference(changes, here, [np.ones(m) for _ in changes])
    if not _difference(changes, here, factors) < _BETTER * without:
        return none
    laws = []
    for i in np.flatnonzero(share):
        coordinate, power = scales[scale[i]]
        laws.append(ErrorScale(coordinate, power, coefficients[[i]], float(1.0 - share[i])))
    rows = error_scale_rows(laws, z[None])
    rows[:, APART] = 1.0
    return rows


def _precision(density: ScaledDensity, z: np.ndarray, unit: np.ndarray, own: np.ndarray) -> np.ndarray:
    """The negative Hessian (m, m) of the coordinates `own` (m,) at `z` (d,)."""
    columns = columns_among(density, z, unit, own) / unit[own][:, None]
    return np.asarray(0.5 * (columns + columns.T))


def _is_positive(matrix: np.ndarray) -> bool:
    return bool(np.isfinite(matrix).all() and np.linalg.eigvalsh(matrix)[0] > 0.0)


def _difference(changes: list[_Change], here: np.ndarray, factors: list[np.ndarray]) -> float:
    """How different from `here`, a covariance (m, m), coefficients are after all changes, if widths grow by
    `factors` (m,) with each.
    """
    root, sum_of_squares = np.linalg.cholesky(here), 0.0
    for change, factor in zip(changes, factors, strict=True):
        left = root.T @ (factor[:, None] * change.precision * factor) @ root
        sum_of_squares += float(np.square(np.log(np.linalg.eigvalsh(left))).sum())
    return sum_of_squares
