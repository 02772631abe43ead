"""Where else a posterior may have modes: starts that are spread over many scales, and climbs from them.

No search finds all modes of a density. What costs little finds many: a mode whose basin is wide, from boxes
of several sizes; a narrow one, where it lies on a ray from the highest draw, on which the log density must
fall all the way if there is no other mode; and one that the symmetry of a program makes, at the image of the
highest draw. Rays are annealed by their step: it is short near the draws and grows with the distance.

A density that is tempered has the same basins, and the mean of scores over a cloud of points hardly widens
that of a narrow mode, since the cloud misses it. So neither is done.

All of it has random numbers of its own and comes after the draws, so that it changes none of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from itertools import cycle, islice
from typing import NamedTuple

import numpy as np

from ..model.posterior import Posterior
from ..numerics.ascent import climb, write_heights
from ..run.interrupts import Caught
from ..run.warmup import variable_groups
from ..target import hessian

_RAYS, _IMAGES = 0.5, 0.6  # shares of the evaluations at which rays end, and images; boxes have the rest
_POINTS, _MOST_POINTS = 20, 400  # of a ray
_FAR_POINTS = 14  # of these beyond `_NEAR`, at least
_NEAR, _FAR = 6.0, 1e4  # standard deviations: within, points of a ray have equal distances; where it ends
_GROWTH = 1.28  # of the steps beyond, at most
_SIGNS = 12  # rays along random signs
_RISE = 1.0  # nats that the log density must rise on a ray for a climb
_BOXES = (4.0, 8.0, 16.0, 32.0)  # half the width of boxes around zero
_WIDTHS = (6.0, 20.0)  # of boxes around the highest draw, in standard deviations
_REACH, _BOX = 10.0, 8.0  # of a coordinate with a transform, and its box: e^8 is 3,000
_MOST_VARIABLES = 8  # that are reflected each by itself
_SHUFFLES = 3
_LONGEST = 200  # gradients of a climb
_MOST_CLIMBS = 64  # from boxes
_SHELLS = np.geomspace(10.0, _FAR, 10)  # standard deviations of the normal laws that look for surroundings
_PAIRS = 8  # of points of each
_BEYOND = 8.0  # standard deviations from the highest draw in any coordinate, where surroundings begin


class Surface:
    """The log density of a posterior, which counts how often it is evaluated.

    A signal ends the search, so that the user does not wait longer for the result.
    """

    def __init__(self, posterior: Posterior, caught: Caught) -> None:
        self.posterior, self.target, self.evaluations = posterior, posterior.model.target(), 0
        self._caught = caught

    @property
    def is_stopped(self) -> bool:
        return bool(self._caught.signal or self._caught.before)

    def heights(self, points: np.ndarray) -> np.ndarray:
        """The log density at points (n, d)."""
        heights = np.full(len(points), -np.inf)
        first = 0
        while first < len(points):
            first += len(self._up_to_failure(points[first:], heights[first:]))
        return heights

    def ray(self, points: np.ndarray) -> np.ndarray:
        """The log density at points of a ray, up to where there is none."""
        heights = np.full(len(points), -np.inf)
        return self._up_to_failure(points, heights)

    def _up_to_failure(self, points: np.ndarray, heights: np.ndarray) -> np.ndarray:
        write_heights(self.target, np.ascontiguousarray(points), heights)
        self._forget()
        failed = np.flatnonzero(heights == -np.inf)
        n = int(failed[0]) + 1 if len(failed) else len(heights)
        self.evaluations += n
        return heights[:n]

    def climb(self, x: np.ndarray, most: int) -> tuple[np.ndarray, float]:
        """The highest point of a climb from `x` (d,), and the log density there."""
        found = climb(self.target, x, most)
        self._forget()
        self.evaluations += found.gradients
        return found.top, found.logp

    def gradient(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """The log density and its gradient; -inf where there is none."""
        self.evaluations += 1
        try:
            if self.is_stopped:
                return -np.inf, np.zeros(x.size)
            return self.posterior.model.log_density_gradient(x)
        except Exception:  # outside of the support, or whatever a Python target raises
            return -np.inf, np.zeros(x.size)

    def hessian(self, x: np.ndarray) -> np.ndarray | None:
        """The Hessian of the log density, or None where it is not finite."""
        self.evaluations += 2 * x.size
        second = np.empty((x.size, x.size))
        is_finite = hessian(self.target, x, second)
        self._forget()
        return second if is_finite else None

    def _forget(self) -> None:
        """Drop the exception of a Python target: the draws must not be lost for it."""
        with contextlib.suppress(Exception):
            self.posterior.model.raise_pending()


class Known(NamedTuple):
    """Where to look, as far as the draws tell."""

    rows: np.ndarray  # (n, d) some of them, unconstrained
    spread: np.ndarray  # (d,) standard deviations
    peak: np.ndarray  # (d,) the highest
    free: np.ndarray  # (d,) whether a coordinate has no transform
    columns: np.ndarray  # (d,) columns of the values with the coordinates' names, -1 for none

    @property
    def reach(self) -> np.ndarray:
        """How far from zero to look, by coordinate (d,)."""
        known = np.maximum(_REACH, np.abs(self.peak) + _NEAR * self.spread)
        return np.where(self.free, np.inf, known)


class Tops(NamedTuple):
    """Where climbs have ended."""

    points: np.ndarray  # (k, d)
    heights: np.ndarray  # (k,) the log densities there


def search(known: Known, surface: Surface, most: int, rng: np.random.Generator) -> Tops:
    """Climb from rays, images of the highest draw, and boxes, until `most` evaluations are spent."""
    began = surface.evaluations

    def is_left(share: float) -> bool:
        return surface.evaluations - began < share * most and not surface.is_stopped

    tops = []
    for share, starts in (
        (_RAYS, _on_rays(known, surface, int(_RAYS * most), rng)),
        (_IMAGES, _images(known, surface.posterior.unconstrained_names, rng)),
        (1.0, islice(_in_boxes(known, rng), _MOST_CLIMBS)),
    ):
        while is_left(share) and (start := next(starts, None)) is not None:
            left = most - (surface.evaluations - began)
            if left <= 0:  # to find this start has taken the rest
                break
            tops.append(surface.climb(start, min(_LONGEST, left)))
    points = np.array([point for point, _ in tops]).reshape(-1, known.peak.size)
    return Tops(points, np.array([height for _, height in tops]))


def _on_rays(known: Known, surface: Surface, most: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """The highest draw itself, and points of rays from it where the log density has risen."""
    yield known.peak
    directions = _directions(known, rng)[: max(most // _POINTS, 2)]
    count = int(np.clip(most // len(directions), _POINTS, _MOST_POINTS))
    beyond = max(_FAR_POINTS, count // 3)
    steps = np.concatenate(
        [
            np.linspace(0.0, _NEAR, count - beyond + 1),
            _NEAR * min(_GROWTH, (_FAR / _NEAR) ** (1.0 / beyond)) ** np.arange(1, beyond + 1),
        ]
    )
    spread, reach = known.spread, known.reach
    for direction in directions:
        if surface.is_stopped:
            return
        points = known.peak + steps[:, None] * (spread * direction)
        heights = surface.ray(points[(np.abs(points) <= reach).all(axis=1)])
        heights = heights[heights > -np.inf]
        rises = heights - np.minimum.accumulate(heights)
        if len(rises) and rises.max() > _RISE:
            yield points[np.argmax(rises)]


def surroundings(
    known: Known, mean_height: float, surface: Surface, rng: np.random.Generator
) -> tuple[np.ndarray, float, float]:
    """Mass around all draws, many times as wide as these: a wide law beneath a spike has no mode to climb to.

    Returns a point in the middle of it, its log density, and the log of the mass relative to that of the
    draws, from below: modes.py has the inequality. Here the normal law is as wide as a multiple of the draws,
    without what is near them, and correlations of the draws are left out, which makes their mass larger.
    """
    d = known.peak.size
    normal = normal_pairs(_PAIRS, d, rng)
    point, height, most, best = known.peak, -np.inf, -np.inf, -1
    for shell, width in enumerate(_SHELLS):
        away = width * normal
        points = known.peak + away * known.spread
        inside = (np.abs(away) > _BEYOND).any(axis=1) & (np.abs(points) <= known.reach).all(axis=1)
        heights = surface.heights(points[inside])
        gains = heights + 0.5 * np.square(normal[inside]).sum(axis=1)
        finite = np.isfinite(gains)
        if not finite.any():
            continue
        mass = float(gains[finite].mean()) + np.log(finite.sum() / len(normal)) + d * np.log(width)
        if mass > most:
            most, best = mass, shell
            middle = np.argsort(heights, kind="stable")[len(heights) // 2]
            height, point = float(heights[middle]), points[inside][middle]
    if best == len(_SHELLS) - 1:  # there may be no end of it
        return known.peak, -np.inf, -np.inf
    return point, height, most - mean_height - 0.5 * d


def normal_pairs(pairs: int, d: int, rng: np.random.Generator) -> np.ndarray:
    """Normal points and their reflections (2 pairs, d), with the variance 1 in each coordinate."""
    half = rng.standard_normal((pairs, d))
    half /= np.sqrt(np.mean(np.square(half), axis=0))
    return np.concatenate([half, -half])


def _directions(known: Known, rng: np.random.Generator) -> np.ndarray:
    """Directions (k, d) in units of standard deviations, each followed by its opposite."""
    d, spread = known.peak.size, known.spread
    if d == 1:
        return np.array([[1.0], [-1.0]])
    away = (known.rows - known.rows.mean(axis=0)) / spread
    furthest = np.argsort(-np.square(away).sum(axis=1), kind="stable")[:2]
    axes = np.eye(d)[rng.permutation(d)]
    others = [*map(_of_length, away[furthest]), *rng.choice([-1.0, 1.0], (_SIGNS, d))]
    mixed = [row for pair in zip(axes, others, strict=False) for row in pair]
    ahead = [np.ones(d), _of_length(known.peak / spread), *mixed, *axes[len(others) :], *others[d:]]
    return np.array([sign * direction for direction in ahead for sign in (1.0, -1.0)])


def _of_length(direction: np.ndarray) -> np.ndarray:
    """The direction with a mean square of one."""
    length = np.sqrt(np.mean(np.square(direction)))
    return direction / length if 0.0 < length < np.inf else np.ones(direction.size)


def _images(known: Known, names: list[str], rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Images of the highest draw: reflected in zero, as a whole or by variable, and with entries permuted."""
    peak, free = known.peak, known.free
    yield np.where(free, -peak, peak)
    groups = variable_groups(names)
    sizes = np.bincount(groups)
    vectors = [np.flatnonzero(groups == group) for group in np.flatnonzero(sizes > 1)]
    for shuffle in range(_SHUFFLES + 1 if vectors else 0):
        orders = {
            size: np.arange(size)[::-1] if shuffle == 0 else rng.permutation(size)
            for size in sorted({len(places) for places in vectors})
        }
        image = peak.copy()
        for places in vectors:  # vectors of one length keep their order: they may describe the same groups
            image[places] = peak[places][orders[len(places)]]
        yield image
    for group in rng.permutation(len(sizes))[:_MOST_VARIABLES] if len(sizes) > 1 else ():
        yield np.where(free & (groups == group), -peak, peak)


def _in_boxes(known: Known, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Random points in boxes of several sizes, around zero and around the highest draw; without end."""
    peak, spread, reach = known.peak, known.spread, known.reach
    boxes = [(np.zeros(peak.size), np.where(known.free, width, min(width, _BOX))) for width in _BOXES]
    boxes += [(peak, width * spread) for width in _WIDTHS]
    for middle, half in cycle(boxes):
        yield np.clip(middle + half * rng.uniform(-1.0, 1.0, peak.size), -reach, reach)
