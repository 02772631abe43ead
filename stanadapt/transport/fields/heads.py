"""Which coordinates are heads: of those that are coupled to many, those that change the others' curvature.

A location does so too where it meets a likelihood that is not normal: an intercept changes the curvature of
counts while their latents stay. But if the latents follow it to their new mode, the curvature there is what
it was. So a location is no head: it is a latent, and a search has one direction less to go through.
"""

from __future__ import annotations

import numpy as np

from .laplace import find_mode
from .precision import Precision
from .probes import Coupling, ScaledDensity

MOST_HEADS = 4
# One field for all, with a sparse precision, may have more, but strong ones: each takes half as many modes
# again. Those of walks in a regression have 0.36 to 1.3. Weaker ones, 0.02 to 0.24, have other laws.
MOST_OF_ONE, STRONG_HEAD = 6, 0.3
HEAD = 0.02  # a wide coordinate is a head if it changes the curvature by this, when it moves by DELTA
FAINT_HEAD = 1e-4  # or by this, if no modes are found: the scale of a walk does nothing while it is small
DELTA = 0.5
_STEPS = 3  # of the latents towards their new mode
# Share of the change that is left with a location after each of these steps, 0.02 to 0.44, and what is left
# at most, 0.01 to 0.16. With heads it is more after one of them at least, since such steps go too far where a
# head changes the precision.
_FOLLOWED, _LEFT = 0.5, 0.2


def choose_heads(strengths: dict[int, float], least: float = HEAD, most: int = MOST_HEADS) -> np.ndarray:
    """The coordinates that change the curvature of the others by `least` or more, the strongest `most`."""
    chosen = sorted((k for k in strengths if strengths[k] > least), key=lambda k: -strengths[k])
    return np.array(sorted(chosen[:most]), np.int64)


class _Change:
    """The change of the curvature between two points, over coordinates that are not wide.

    It is the root mean square of the change of -H v, for random signs v, in units in which the diagonal of -H
    is 1. The signs come from a fixed seed, since they are no random numbers of the chain.
    """

    def __init__(self, density: ScaledDensity, coupling: Coupling) -> None:
        self._density, self._narrow = density, ~coupling.wide
        self._scale = 1.0 / np.sqrt(np.maximum(np.abs(coupling.diagonal), 1e-12))
        signs = np.random.default_rng(1).choice([-1.0, 1.0], len(self._scale))
        self._direction = signs * self._scale * self._narrow

    def __call__(self, ahead: np.ndarray, behind: np.ndarray) -> float | None:
        """Between points (d,), in units; None where scores are missing."""
        found = [self._density.curvature(point, self._direction) for point in (ahead, behind)]
        if found[0] is None or found[1] is None:
            return None
        if not self._narrow.any():
            return 0.0
        change = (found[0] - found[1])[self._narrow] * self._scale[self._narrow]
        return float(np.sqrt(np.mean(np.square(change))))


def strengths_of(density: ScaledDensity, x: np.ndarray, coupling: Coupling) -> dict[int, float]:
    """How much each wide coordinate changes the curvature of the others when it moves by DELTA."""
    change, found = _Change(density, coupling), {}
    for k in np.flatnonzero(coupling.wide):
        strength = change(*_sides(density, x, int(k)))
        if strength is not None:
            found[int(k)] = strength
    return found


def without_locations(
    density: ScaledDensity,
    x: np.ndarray,
    coupling: Coupling,
    strengths: dict[int, float],
    scales: np.ndarray | None = None,
) -> dict[int, float]:
    """The strengths of the coordinates that are no locations.

    All of them, if there is but one that may be a head, or if the precision does not tell: neither that at
    `x` (d,) nor that at the mode of the latents. The `scales` (m,) of a few latents stay where they are, for
    latents and their scale have no mode together.
    """
    candidates = choose_heads(strengths, most=2 * MOST_HEADS)
    if len(candidates) < 2:
        return strengths
    heads = candidates if scales is None else np.union1d(candidates, scales)
    precision = Precision(density, coupling, heads)
    logp, score = density(x)
    matrix = precision.at(x, score) if np.isfinite(logp) else None
    factor = None if matrix is None else precision.factor(matrix)
    at_x = strengths
    if factor is None and matrix is not None:  # latents are far from their mode: with Student errors, say
        mode = find_mode(precision, x)
        if mode is not None:
            x, factor, score = mode.x, mode.factor, density(mode.x)[1]
            at_x = strengths_of(density, x, coupling)
    if factor is None:
        return strengths
    change = _Change(density, coupling)

    def is_followed(k: int) -> bool:
        sides = _sides(density, x, k)
        for _ in range(_STEPS):
            for point in sides:
                point[precision.latents] += factor.solve((density(point)[1] - score)[precision.latents])
            left = change(*sides)
            if left is None or not left < min(_FOLLOWED * at_x[k], _LEFT):
                return False
        return True

    locations = {k for k in candidates.tolist() if is_followed(k)}
    return {k: strength for k, strength in strengths.items() if k not in locations}


def without_all_locations(
    density: ScaledDensity,
    x: np.ndarray,
    coupling: Coupling,
    strengths: dict[int, float],
    scales: np.ndarray,
) -> dict[int, float]:
    """The same where there may be more locations than one look is at, such as the means of many persons; but
    those of one look if more remain than one field may have as heads.
    """
    first = found = without_locations(density, x, coupling, strengths, scales)
    known = len(strengths)
    while len(found) < known:
        known = len(found)
        found = without_locations(density, x, coupling, found, scales)
    return found if len(choose_heads(found, most=len(found))) <= MOST_HEADS else first


def _sides(density: ScaledDensity, x: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The points (d,) on both sides of `x` (d,), where coordinate `k` has moved by DELTA."""
    move = np.zeros(x.size)
    move[k] = DELTA / density.unit[k]
    return x + move, x - move
