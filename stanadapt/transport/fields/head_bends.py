"""Bends for the scales and correlations of effects, from the law of all that is no effect.

Where effects are at z = 0 (effects.py), the density is that of scales, correlations, means and errors, with
the effects integrated out: exactly if data are normal, else about. The log of a scale that may be 0 has a
long left tail there, and the number of a correlation that may be near 1 has a long right one. A tail may
begin where a chain comes once in a thousand draws, so that a chain has not seen it in warm-up, and comes back
from it slowly. Along the ridge of each such head, on which all else is at its highest, the density tells the
tail, and a bend (../bend.py) that makes its law normal is fitted to it. How the widths of the rest change
along a ridge matters little there, and is left out.
"""

from __future__ import annotations

import numpy as np

from ..bend import Bend
from .head_law import LOWEST, fit_bend
from .probes import ScaledDensity

# Of a ridge: how far its points are from the middle, in spreads of the head.
_REACHES = 1.0, 2.0, 3.0, 4.5, 6.5, 9.5, 14.0, 21.0
MOST_TO_MODE = 60  # gradients of the way to the mode,
_MOST_ON = 12  # and of that from one point of a ridge to the next
_ENOUGH = 0.01  # a way ends where the next step promises so little
_LONGEST, _SHARES = 5.0, (1.0, 0.4, 0.16, 0.06, 0.02)  # of a step


def head_bends(
    density: ScaledDensity,
    z: np.ndarray,
    top: float,
    others: np.ndarray,
    hessian: np.ndarray,
    heads: np.ndarray,
) -> list[tuple[Bend, float]]:
    """The bends of those `heads`, log scales and the like, that need one, and the deviations that they leave.

    `density` is in the coordinates of effects, in the program's own units. Its mode, with effects at 0, is
    `z` (d,), where it has the log density `top`. The coordinates `others` (m,) are no effects, and have the
    negative `hessian` (m, m) there, which may have NaN.
    """
    if not np.isfinite(hessian).all():
        return []
    values, vectors = np.linalg.eigh(hessian)
    if values[0] <= 0.0:
        return []
    covariance, found = (vectors / values) @ vectors.T, []
    for coordinate in heads:
        a = int(np.flatnonzero(others == coordinate)[0])
        points = _ridge(density, z, top, others, a, hessian, covariance)
        at, heights = (np.array(column) for column in zip(*points, strict=True))
        bent = fit_bend(at, heights, int(coordinate), float(np.sqrt(covariance[a, a])))
        if bent is not None:
            found.append(bent)
    return found


def _ridge(
    density: ScaledDensity,
    z: np.ndarray,
    top: float,
    others: np.ndarray,
    a: int,
    hessian: np.ndarray,
    covariance: np.ndarray,
) -> list[tuple[float, float]]:
    """Values of the coordinate `others[a]` and log densities along its ridge, the middle first."""
    rest = np.delete(np.arange(len(others)), a)
    spread, slope = np.sqrt(covariance[a, a]), covariance[rest, a] / covariance[a, a]
    root = np.linalg.inv(np.linalg.cholesky(hessian[np.ix_(rest, rest)])).T
    points = [(float(z[others[a]]), 0.0)]
    for side in (-1.0, 1.0):
        there, before = z, 0.0
        for reach in _REACHES:
            move = side * spread * (reach - before)
            there, before = there.copy(), reach
            there[others[a]] += move
            there[others[rest]] += move * slope
            there, height = climb(density, there, others[rest], root, _MOST_ON)
            if not np.isfinite(height):
                break
            points.append((float(there[others[a]]), height - top))
            if height < top - LOWEST:
                break
    return points


def climb(
    density: ScaledDensity, z: np.ndarray, moved: np.ndarray, root: np.ndarray, most: int
) -> tuple[np.ndarray, float]:
    """The highest point over the coordinates `moved` (m,), from `z` (d,), and its log density, by BFGS.

    `root` (m, m) gives them, about, from standard normal ones; `most` gradients are taken, about.
    """
    z, inverse = z.copy(), np.eye(len(moved))
    before = density.gradients
    logp, score = density(z)
    slope = root.T @ score[moved]
    while np.isfinite(logp) and density.gradients < before + most:
        move = inverse @ slope
        move *= min(1.0, _LONGEST / np.sqrt(move @ move + 1e-300))
        promise = float(move @ slope)
        if not promise > _ENOUGH:
            break
        for share in _SHARES:
            there = z.copy()
            there[moved] += share * (root @ move)
            height, score = density(there)
            if np.isfinite(height) and height > logp + 1e-4 * share * promise:
                break
        else:
            break
        ahead = root.T @ score[moved]
        step, turn = share * move, slope - ahead
        if (along := float(step @ turn)) > 0.0:
            turned = inverse @ turn
            inverse += (1.0 + turn @ turned / along) / along * np.outer(step, step)
            inverse -= (np.outer(turned, step) + np.outer(step, turned)) / along
        z, logp, slope = there, height, ahead
    return z, logp
