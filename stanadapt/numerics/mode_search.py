"""Where else a posterior may have modes: starts that are spread over many scales, and climbs from them.

No search finds all modes of a density. What costs little finds many: a mode whose basin is wide, from boxes
of several sizes; a narrow one, where it lies on a ray from the highest draw, on which the log density must
fall all the way if there is no other mode; and one that the symmetry of a program makes, at the image of the
highest draw. Rays are annealed by their step: it is short near the draws and grows with the distance.

A density that is tempered has the same basins, and the mean of scores over a cloud of points hardly widens
that of a narrow mode, since the cloud misses it. So neither is done.

After the draws of a run this search looks for modes that no chain has visited (result/modes.py). Before the
first round of parallel tempering it looks for those that the path should reach (samplers/tempered.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import cycle, islice
from typing import Any, NamedTuple

import numpy as np

from ..target import Failures, hessian, log_density_gradient
from .ascent import climb, write_heights

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
MOST_CLIMBS = 64  # from boxes, after the draws
_SHELLS = np.geomspace(10.0, _FAR, 10)  # standard deviations of the normal laws that look for surroundings
_PAIRS = 8  # of points of each
_UNFINISHED = 1  # scipy's status of a search that ran out of evaluations or iterations
_UPHILL = 0.01  # a point is a mode if fewer nats than this are left to gain for each dimension
MOST_DENSE = 100  # dimension up to which a mode has its whole Hessian, which takes 2 d gradients
_DIFFERENCE = np.finfo(float).eps ** (1 / 3)
_ON_THE_WAY = 12  # points on the straight way between two points
_SAME, _SAME_SCALE = 4.0, 5.0  # of one mode: standard deviations, and 0.5 sqrt(d) more; factor between scales
_BEYOND = 8.0  # standard deviations from the highest draw in any coordinate, where surroundings begin
_FALL = 2.0  # nats, at most, that the log density falls one standard deviation from a mode, on one side
_NARROWER, _MOST_NARROWER = 4.0, 40  # factor by which a curvature grows until it does; how often
_ROUNDING = 1e-12  # of curvatures in units of those along the coordinates
_EXPECTED = 1.0, 0.1  # nats, and for each dimension, within which a mode's normal law predicts a height


class Surface:
    """A log density that counts how often it is evaluated. Its failures are not those of a chain.

    Parameters
    ----------
    target
        The density.
    d
        Its dimension.
    is_stopped
        Whether the search is to end, so that the user does not wait longer for the result.
    forget
        Called after evaluations, to drop the exception of a Python target: the draws must not be lost for it.
    """

    def __init__(
        self,
        target: Any,
        d: int,
        is_stopped: Callable[[], bool] = lambda: False,
        forget: Callable[[], None] = lambda: None,
    ) -> None:
        self.target = target._replace(failures=Failures(np.zeros(1, np.int64), np.zeros(d)))
        self.d, self.evaluations = d, 0
        self._is_stopped, self._forget = is_stopped, forget

    @property
    def is_stopped(self) -> bool:
        return self._is_stopped()

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
        """The log density and its gradient; -inf and zeros where there is none."""
        self.evaluations += 1
        score = np.zeros(self.d)
        if self.is_stopped:
            return -np.inf, score
        logp = float(log_density_gradient(self.target, np.ascontiguousarray(x), score))
        self._forget()
        return (logp, score) if logp > -np.inf else (logp, np.zeros(self.d))

    def hessian_diagonal(self, x: np.ndarray) -> np.ndarray | None:
        """The diagonal of the Hessian (d,) by differences, or None where it is not finite."""
        diagonal = np.empty(self.d)
        for i in range(self.d):
            ahead, behind = x.copy(), x.copy()
            h = _DIFFERENCE * max(1.0, abs(x[i]))
            ahead[i], behind[i] = x[i] + h, x[i] - h
            (up, over), (down, under) = self.gradient(ahead), self.gradient(behind)
            if min(up, down) == -np.inf:
                return None
            diagonal[i] = (over[i] - under[i]) / (ahead[i] - behind[i])
        return diagonal

    def hessian(self, x: np.ndarray) -> np.ndarray | None:
        """The Hessian of the log density, or None where it is not finite."""
        self.evaluations += 2 * x.size
        second = np.empty((x.size, x.size))
        is_finite = hessian(self.target, x, second)
        self._forget()
        return second if is_finite else None


class Known(NamedTuple):
    """Where to look, as far as the draws tell."""

    rows: np.ndarray  # (n, d) some of them
    spread: np.ndarray  # (d,) standard deviations
    peak: np.ndarray  # (d,) the highest
    free: np.ndarray  # (d,) whether a coordinate has no transform
    groups: np.ndarray  # (d,) the variables that coordinates belong to, numbered

    @property
    def reach(self) -> np.ndarray:
        """How far from zero to look, by coordinate (d,)."""
        known = np.maximum(_REACH, np.abs(self.peak) + _NEAR * self.spread)
        return np.where(self.free, np.inf, known)


class Tops(NamedTuple):
    """Where climbs have ended."""

    points: np.ndarray  # (k, d)
    heights: np.ndarray  # (k,) the log densities there


def search(
    known: Known, surface: Surface, most: int, rng: np.random.Generator, *, climbs: int = MOST_CLIMBS
) -> Tops:
    """Climb from rays, images of the highest draw, and boxes, until `most` evaluations are spent.

    From boxes there are at most `climbs`.
    """
    began = surface.evaluations

    def is_left(share: float) -> bool:
        return surface.evaluations - began < share * most and not surface.is_stopped

    tops = []
    for share, starts in (
        (_RAYS, _on_rays(known, surface, int(_RAYS * most), rng)),
        (_IMAGES, _images(known, rng)),
        (1.0, islice(_in_boxes(known, rng), climbs)),
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


def _images(known: Known, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Images of the highest draw: reflected in zero, as a whole or by variable, and with entries permuted."""
    peak, free = known.peak, known.free
    yield np.where(free, -peak, peak)
    groups = known.groups
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


class Peak(NamedTuple):
    """A mode."""

    x: np.ndarray  # (d,)
    logp: float
    negative: np.ndarray  # (d, d) Hessian, or (d,) its diagonal

    def distances(self, points: np.ndarray) -> np.ndarray:
        """Squared distances of points (n, d) to the mode, in the metric of the negative Hessian."""
        away = points - self.x
        turned = away * self.negative if self.negative.ndim == 1 else away @ self.negative
        return np.asarray((turned * away).sum(axis=1))

    def holds(self, points: np.ndarray) -> np.ndarray:
        """Which of the points (n, d) lie in the ellipsoid that holds nearly all of the mode's normal law."""
        d = self.x.size
        return np.asarray(self.distances(points) < d + 4.0 * np.sqrt(2.0 * d) + 6.0)

    def explains(self, x: np.ndarray, height: float) -> bool:
        """Whether a point (d,) lies at the mode, with the log density that the mode's normal law has there.

        The top of a narrow mode within a wide one lies higher.
        """
        square = float(self.distances(x[None])[0])
        gap = abs(height - (self.logp - 0.5 * square))
        return bool(self.holds(x[None])[0]) and gap < _EXPECTED[0] + _EXPECTED[1] * self.x.size

    @property
    def log_mass(self) -> float:
        """Laplace's approximation of the log of its mass, without d/2 log(2 pi)."""
        if self.negative.ndim == 1:
            return self.logp - 0.5 * float(np.log(self.negative).sum())
        return self.logp - 0.5 * float(np.linalg.slogdet(self.negative)[1])


def climb_to_mode(x: np.ndarray, surface: Surface, most: int) -> Peak | None:
    """Climb from `x` to the mode above it; None if `most` gradients reach no mode.

    Beyond `MOST_DENSE` dimensions the mode has the diagonal of its Hessian only, as far as it can be a mode.
    Where the density is flatter at its top than around it, as along a ring, curvatures are made larger until
    the mode is as wide as the density (`_as_wide_as_the_density`).
    """

    def downhill(point: np.ndarray) -> tuple[float, np.ndarray]:
        logp, score = surface.gradient(point)
        return -logp, -score

    with np.errstate(all="ignore"):
        from scipy.optimize import minimize  # here, since few runs come to it: it takes 0.15 s

        found = minimize(downhill, x, jac=True, method="L-BFGS-B", options={"maxfun": most, "maxiter": most})
        if found.status == _UNFINISHED or not np.isfinite(found.fun):
            return None
        if x.size > MOST_DENSE:
            diagonal = surface.hessian_diagonal(found.x)
            if diagonal is None or not (diagonal < 0.0).all():
                return None
            return _as_wide_as_the_density(Peak(found.x, -float(found.fun), -diagonal), surface)
        second = surface.hessian(found.x)
        if second is None:
            return None
        try:
            np.linalg.cholesky(-second)
            left = 0.5 * found.jac @ np.linalg.solve(-second, found.jac)
        except np.linalg.LinAlgError:  # a ridge, a saddle or a wall
            return None
    if not left < _UPHILL * x.size:
        return None
    return _as_wide_as_the_density(Peak(found.x, -float(found.fun), -second), surface)


def _as_wide_as_the_density(peak: Peak, surface: Surface) -> Peak | None:
    """The mode with curvatures by which the log density falls little within a standard deviation.

    Where the Hessian is singular but for rounding, differences of gradients give a curvature that is positive
    or negative by chance, and a standard deviation of thousands. None if curvatures are then too unlike each
    other for a matrix of them to have a root.
    """
    is_diagonal = peak.negative.ndim == 1
    scale = np.sqrt(peak.negative if is_diagonal else np.diag(peak.negative))
    if is_diagonal:
        axes, values = np.eye(scale.size), np.ones(scale.size)
    else:
        values, vectors = np.linalg.eigh(peak.negative / np.outer(scale, scale))
        axes, values = vectors.T, np.maximum(values, _ROUNDING)
    d = len(scale)
    corner = (axes / np.sqrt(values)[:, None]).sum(axis=0) / scale  # one standard deviation along each axis
    heights = surface.heights(np.array([peak.x + corner, peak.x - corner]))
    as_normal = heights.max() > peak.logp - 0.5 * d - np.sqrt(2.0 * d) - _FALL
    far = np.arange(0 if as_normal else d)
    for _ in range(_MOST_NARROWER):
        if not len(far):
            break
        away = axes[far] / (np.sqrt(values[far])[:, None] * scale)
        heights = surface.heights(np.concatenate([peak.x + away, peak.x - away])).reshape(2, -1).max(axis=0)
        far = far[~(heights > peak.logp - _FALL)]
        values[far] *= _NARROWER
    if is_diagonal:
        return peak._replace(negative=peak.negative * values)
    found = (axes.T * values) @ axes * np.outer(scale, scale)
    found = 0.5 * (found + found.T)
    try:
        np.linalg.cholesky(found)
    except np.linalg.LinAlgError:
        return None
    return peak._replace(negative=found)


def is_joined(x: np.ndarray, other: np.ndarray, surface: Surface, dip: float) -> bool:
    """Whether the log density falls by less than `dip` nats below both ends on the straight way between."""
    shares = np.linspace(0.0, 1.0, _ON_THE_WAY)[:, None]
    heights = surface.ray((1.0 - shares) * x + shares * other)
    is_whole = len(heights) == _ON_THE_WAY
    return is_whole and bool(heights.min() > min(heights[0], heights[-1]) - dip)


def is_same_mode(peak: Peak, other: Peak) -> bool:
    """Whether two modes are near each other in the scales of either, which are about the same."""
    far = (_SAME + 0.5 * np.sqrt(peak.x.size)) ** 2
    if peak.distances(other.x[None])[0] > far and other.distances(peak.x[None])[0] > far:
        return False
    scales = [each.negative if each.negative.ndim == 1 else np.diag(each.negative) for each in (peak, other)]
    return bool(np.abs(np.log(scales[0] / scales[1])).max() < 2.0 * np.log(_SAME_SCALE))


def new_peaks(
    surface: Surface, starts: Iterable[np.ndarray], known: Sequence[Peak], most: float = np.inf
) -> list[Peak]:
    """The modes that climbs from `starts` end at and that are not `known`, the largest first.

    There are as many climbs as `most` evaluations pay for.
    """
    began, new = surface.evaluations, list[Peak]()
    for x in starts:
        if surface.is_stopped or surface.evaluations - began >= most:
            break
        top, height = surface.climb(np.ascontiguousarray(x), _LONGEST)
        new += _peak_above(surface, top, height, [*known, *new])
    return sorted(new, key=lambda peak: -peak.log_mass)


def peaks_above(surface: Surface, tops: Tops, known: Sequence[Peak]) -> list[Peak]:
    """The modes above the ends of climbs that are not `known`, the largest first."""
    new: list[Peak] = []
    for top, height in zip(*tops, strict=True):
        if surface.is_stopped:
            break
        new += _peak_above(surface, top, height, [*known, *new])
    return sorted(new, key=lambda peak: -peak.log_mass)


def _peak_above(surface: Surface, top: np.ndarray, height: float, known: Sequence[Peak]) -> list[Peak]:
    """The mode above the end of a climb, if it is not `known`.

    To follow an end to its mode takes more than the climb, so that ends which known modes explain are left.
    """
    if height == -np.inf or any(peak.explains(top, height) for peak in known):
        return []
    found = climb_to_mode(top, surface, _LONGEST)
    return [] if found is None or any(is_same_mode(found, peak) for peak in known) else [found]
