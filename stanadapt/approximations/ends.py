"""The ends of climbs: which of them are maxima, and which are the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .density import ClimbedDensity
from .quasi_newton import Way

MAXIMUM, EDGE, FLAT, UNFINISHED = "maximum", "edge", "flat", "unfinished"
MOST_CURVED = 500  # largest dimension in which Hessians are computed
_STEPS = 8  # of Newton's method
_SMALL_GAIN = 1e-6  # nats that a Newton step promises at a maximum
_SMALL_STEP = 5e-3  # its length there, relative to 1 + |x|
_DONE = 1e-9  # and its length where no further one is worth its gradients
_NO_CURVATURE = 1e-7  # smallest eigenvalue of the curvature, scaled to a unit diagonal
_FAR = 8.0  # unconstrained; beyond it a parameter with bounds is near one of them: e^-8 is 0.0003
_FALL = 0.02  # nats by which a density falls at least, one standard deviation beyond its maximum
_BEYOND = 2.0  # unconstrained; how much further out than an end is looked, where a deviation is too far
_SAME_HEIGHT = 1e-3  # nats between ends that are one maximum
_SAME_PLACE = 0.1  # standard deviations between them
_NEAR = 1e-2  # relative to 1 + |x|, where the curvature is not known


class End(NamedTuple):
    """A place where climbs have ended."""

    x: np.ndarray  # (d,)
    logp: float
    kind: str
    curvature: np.ndarray | None  # (d, d) the negative Hessian; positive definite at a maximum
    coordinates: tuple[int, ...] = ()  # in which it is no maximum, the worst first


class Ends(NamedTuple):
    """The different ends of several climbs."""

    places: list[End]  # proper maxima come first, and higher ones before lower ones
    of_climb: np.ndarray  # (k,) the place of each climb's end


def sort_ends(density: ClimbedDensity, ways: Sequence[Way]) -> Ends:
    """Find out which climbs have ended at the same place, and what is there."""
    places: list[End] = []
    of_climb = np.zeros(len(ways), dtype=int)
    for i in sorted(range(len(ways)), key=lambda i: -ways[i].logps[-1]):
        x, logp = ways[i].end, float(ways[i].logps[-1])
        place = next((k for k, known in enumerate(places) if _is_at(known, x, logp)), None)
        if place is None:
            end = settle(density, ways[i])
            place = next((k for k, known in enumerate(places) if _is_same(known, end)), None)
            if place is None:
                place = len(places)
                places.append(end)
        of_climb[i] = place
    order = sorted(range(len(places)), key=lambda k: (places[k].kind != MAXIMUM, -places[k].logp))
    rank = np.argsort(order)
    return Ends([places[k] for k in order], rank[of_climb])


def settle(density: ClimbedDensity, way: Way) -> End:
    """The end of a climb, moved on by Newton's method, and whether it is a maximum.

    At a maximum the curvature is positive definite, and the steps of Newton's method become ever shorter.
    Where the density tends to its supremum at the edge of the support, or at infinity, they do not: in a
    density that approaches it like e^-x, each step has the length 1.
    """
    x, logp = way.end, float(way.logps[-1])
    if x.size > MOST_CURVED:
        return _in_many_dimensions(density, way)
    score, before = way.scores[-1], np.inf
    curvature = density.curvature(x)
    for _ in range(_STEPS):
        if curvature is None:
            return _no_maximum(density, x, logp, None, np.abs(x))
        weak, smallest = _weakest(curvature)
        if smallest < _NO_CURVATURE:
            return _no_maximum(density, x, logp, curvature, weak, flat=smallest > -_NO_CURVATURE)
        step = np.linalg.solve(curvature, score)
        size, gain = np.abs(step) / (1.0 + np.abs(x)), 0.5 * float(score @ step)
        if size.max() < _DONE or (size.max() > 0.5 * before and gain < _SMALL_GAIN):
            break
        moved, its_logp, its_score = _higher(density, x, logp, step)
        if moved is None:
            break
        x, logp, score, before = moved, its_logp, its_score, size.max()
        curvature = density.curvature(x)
    if curvature is None:
        return _no_maximum(density, x, logp, None, np.abs(x))
    open_ones = _open_coordinates(density, x, logp, np.diag(curvature))
    if open_ones.any():
        return _no_maximum(density, x, logp, curvature, open_ones * np.abs(x))
    if gain < _SMALL_GAIN and size.max() < _SMALL_STEP:
        return End(x, logp, MAXIMUM, curvature)
    return _no_maximum(density, x, logp, curvature, size)


def _in_many_dimensions(density: ClimbedDensity, way: Way) -> End:
    """The end of a climb where Hessians are too dear: it is what scipy takes it for, unless it is an edge."""
    x, logp = way.end, float(way.logps[-1])
    curvatures = np.where(density.has_bounds, _BEYOND**-2, 0.0)  # unknown; of real parameters so is the scale
    open_ones = _open_coordinates(density, x, logp, curvatures)
    if open_ones.any():
        return _no_maximum(density, x, logp, None, open_ones * np.abs(x))
    return End(x, logp, MAXIMUM if way.is_finished else UNFINISHED, None)


def _open_coordinates(
    density: ClimbedDensity, x: np.ndarray, logp: float, curvatures: np.ndarray
) -> np.ndarray:
    """Coordinates (d,) far from zero along which the density does not fall further out."""
    found = np.zeros(x.size, dtype=bool)
    for i in np.flatnonzero((np.abs(x) > _FAR) & (curvatures > 0.0)):
        out = x.copy()
        out[i] += np.sign(x[i]) / np.sqrt(curvatures[i])
        fall = logp - density.value(out)
        if not np.isfinite(fall):
            out[i] = x[i] + np.sign(x[i]) * _BEYOND
            found[i] = logp - density.value(out) < _SMALL_GAIN
        else:
            found[i] = fall < _FALL
    return found


def _weakest(curvature: np.ndarray) -> tuple[np.ndarray, float]:
    """The direction with the smallest curvature (d,), and this, where the diagonal is scaled to one."""
    diagonal = np.diag(curvature)
    if not (diagonal > 0.0).all():
        return (diagonal == diagonal.min()).astype(float), min(float(diagonal.min()), 0.0)
    scale = 1.0 / np.sqrt(diagonal)
    values, vectors = np.linalg.eigh(curvature * scale * scale[:, None])
    return np.abs(vectors[:, 0]), float(values[0])


def _higher(
    density: ClimbedDensity, x: np.ndarray, logp: float, step: np.ndarray
) -> tuple[np.ndarray | None, float, np.ndarray]:
    """The end of a step, or of a part of it, that does not lower the log density; None if there is none."""
    for share in (1.0, 0.25, 0.05):
        moved = x + share * step
        its_logp, its_score = density.gradient(moved)
        if its_logp >= logp - 1e-12 * (1.0 + abs(logp)):
            return moved, its_logp, its_score
    return None, logp, step


def _no_maximum(
    density: ClimbedDensity,
    x: np.ndarray,
    logp: float,
    curvature: np.ndarray | None,
    weights: np.ndarray,
    *,
    flat: bool = False,
) -> End:
    """An end that is no maximum, by `weights` (d,) in some coordinates.

    It is an edge if one of these is far out, or a parameter with bounds is near one of them: in a funnel the
    density rises without end while a scale tends to zero, and what it scales goes with it.
    """
    order = np.argsort(-weights, kind="stable")
    worst = tuple(int(i) for i in order[:3] if weights[i] > 0.3 * weights.max())
    far = np.abs(x) > _FAR
    edges = tuple(i for i in worst if far[i]) or tuple(np.flatnonzero(far & density.has_bounds)[:3].tolist())
    if edges:
        return End(x, logp, EDGE, curvature, edges)
    return End(x, logp, FLAT if flat else UNFINISHED, curvature, worst)


def _is_at(known: End, x: np.ndarray, logp: float) -> bool:
    """Whether a climb that ended at `x` (d,) was on its way to a known maximum."""
    if known.kind != MAXIMUM or known.logp - logp > _SAME_HEIGHT:
        return False
    away = x - known.x
    if known.curvature is None:
        return bool((np.abs(away) <= _NEAR * (1.0 + np.abs(known.x))).all())
    return float(away @ known.curvature @ away) < _SAME_PLACE**2


def _is_same(known: End, end: End) -> bool:
    """Whether two ends are one place: an edge is the same wherever on the way to it a climb has stopped."""
    if known.kind != end.kind:
        return False
    if end.kind == EDGE:
        shared = sorted(set(known.coordinates) & set(end.coordinates))
        return bool(shared) and bool((np.sign(known.x[shared]) == np.sign(end.x[shared])).all())
    if end.kind == FLAT:
        return abs(known.logp - end.logp) < _SAME_HEIGHT
    if end.kind == MAXIMUM and _is_at(known, end.x, end.logp):
        return True
    return bool((np.abs(end.x - known.x) <= _NEAR * (1.0 + np.abs(known.x))).all())
