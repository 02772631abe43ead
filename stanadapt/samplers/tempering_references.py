"""The references of parallel tempering, and the modes that they are made of. See tempered.py.

The fitted reference has a component for each mode that is known. Modes come from three places: a search
before the run, whose finds all chains begin with (`find_modes`); climbs between the rounds of warm-up; and
draws of the posterior that no component explains.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.special import logsumexp

from ..kinds import Target
from ..numerics.metric import PRIOR
from ..numerics.mixtures import Mixture, draw_mixture, fit_components, log_parts, mixture, root_of_covariance
from ..numerics.mode_search import Known, Peak, Surface, is_same_mode, new_peaks, peaks_above, search
from ..numerics.replicas import replicas_at
from ..numerics.strange_points import Cloud, cloud_around, narrowest_visible_mode, strangest_first
from .base import FoundModes, Handover

LARGEST_DENSE = 100  # dimension up to which metrics and components have full matrices
BROAD_DEGREES = 10.0
_UNEXPLAINED = 10.0  # nats below the usual, and d / 2 more: a draw that no component of the mixture explains
_MOST_MODES, _MOST_NEW = 40, 4  # components in all, and new ones in a round
_LEAST_MASS = 1e-8  # share of a mode's mass from which it has a component
_WARM = 10  # rungs of the broad leg whose draws climbs start from after a round
_CLIMBS = 0.25  # share of a round's evaluations that these climbs take
_GRADIENTS = 2  # of a trajectory, about
_SEARCH_EACH = 100  # evaluations of the search for each dimension, beside those of the settings
_USUAL = 1_000  # iterations of warm-up; with more of them the search is longer
_RAYS = 0.1  # share of the search before the run that rays, images and boxes take, beside strange points
_CLOUDS, _CLOUDS_OF_ONE = 9, 3  # clouds of points, and how many where they show no second mode
_CLOUD_CLIMBS = 0.1  # share of a cloud's evaluations that climbs take
_MOST_NUMBERS = 4_000_000  # in the points of a cloud, which all stay in memory until the search ends
_NEXT_RUNGS = 3  # beside the posterior's, whose draws may show a law without a mode
_HOME_ROWS = 40  # draws of the pilot's law, which give the search directions
_FEWEST, _FEWEST_EACH = 10, 4  # draws, and for each dimension, from which a component is fitted to them


def count_evaluations(settings: Any, warmup: int, d: int) -> int:
    """What the search for modes may take for a chain, which grows with what its warm-up takes."""
    if not settings.search:
        return 0
    return int(settings.search * max(1.0, warmup / _USUAL)) + _SEARCH_EACH * d


def first_reference(cov: np.ndarray, mean: np.ndarray, settings: Any) -> Mixture:
    """A fitted reference of one component with a pilot's mean (d,) and covariance (d, d) or (d,)."""
    d = mean.size
    if d > LARGEST_DENSE and cov.ndim == 2:
        cov = np.diag(cov).copy()
    elif d <= LARGEST_DENSE and cov.ndim == 1:
        cov = np.diag(cov)
    return mixture(np.zeros(1), mean[None], root_of_covariance(cov)[None], settings.degrees)


def find_modes(
    target: Target, handover: Handover, settings: Any, most: int, rng: np.random.Generator, ticked: Any
) -> FoundModes:
    """Modes that a search of at most about `most` evaluations finds around a pilot's last draws.

    They are in the pilot's coordinates. `handover.modes` are ends of climbs that begin elsewhere. `ticked` is
    called now and then, and says whether the search is to end. Where the first clouds show no second mode,
    there are no more of them.
    """
    surface = Surface(target, handover.z.size, ticked)
    home = first_reference(np.asarray(handover.cov), np.asarray(handover.mean), settings)
    peaks = _modes_of_search(home, [], surface, handover.z, int(_RAYS * most), rng)
    peaks += new_peaks(surface, handover.modes, peaks or _peaks(home, surface))
    each, clouds = (most - surface.evaluations) / _CLOUDS, list[Cloud]()
    n = int(min((1.0 - _CLOUD_CLIMBS) * each + 1.0, _MOST_NUMBERS // surface.d))
    while each >= 1.0 and len(clouds) < (_CLOUDS if len(peaks) > 1 else _CLOUDS_OF_ONE):
        if surface.is_stopped:
            break
        known = peaks or _peaks(home, surface)
        points = cloud_around(known, n, rng)
        clouds.append(Cloud(points, surface.heights(points)))
        peaks += new_peaks(surface, strangest_first(known, clouds[-1]), known, _CLOUD_CLIMBS * each)
    narrowest = narrowest_visible_mode(peaks or _peaks(home, surface), clouds, rng) if clouds else np.inf
    largest = sorted(peaks, key=lambda peak: -peak.log_mass)[:_MOST_MODES]
    # Where the pilot's law explains all, its middle tells chains that there has been a search.
    found = np.array([peak.x for peak in largest] or [home.means[0]])
    return FoundModes(found, surface.evaluations, narrowest)


def _modes_of_search(
    home: Mixture, known: list[Peak], surface: Surface, x: np.ndarray, most: int, rng: np.random.Generator
) -> list[Peak]:
    """Modes around the law `home` of a pilot's last draws, of which `x` (d,) is one, and beyond.

    Those that are `known` are left out.
    """
    rows = np.array([draw_new(home, rng) for _ in range(_HOME_ROWS)])
    spread = np.sqrt(diagonal_of(covariance_of(home.roots[0])))
    seen = Known(rows, spread, x, np.ones(x.size, bool), np.zeros(x.size, np.int64))
    tops = search(seen, surface, most, rng, climbs=most)
    own = new_peaks(surface, [home.means[0], x], known)
    return [*own, *peaks_above(surface, tops, [*known, *own])]


def begin_references(target: Target, state: Any, settings: Any) -> Any:
    """The state with references of the modes that it was given; without any, it looks for some."""
    home, surface = state.fitted, Surface(target, state.x.size)
    rng = np.random.default_rng(state.seed)
    found: list[Peak] = []
    if len(state.known):
        found = new_peaks(surface, [home.means[0], state.x, *state.known], _peaks(home, surface))
    elif settings.search:
        most = count_evaluations(settings, 0, state.x.size)
        found = _modes_of_search(home, _peaks(home, surface), surface, state.x, most, rng)
    fitted = _with_modes(home, sorted(found, key=lambda peak: -peak.log_mass), surface)
    points = np.array([draw_new(fitted, rng) for _ in state.weights])
    points[state.cold] = state.x
    return state._replace(
        fitted=fitted,
        broad=broad_reference(fitted, settings),
        replicas=replicas_at(points),
        gradients=state.gradients + float(surface.evaluations),
        known=state.known[:0],
        seed=state.seed + 1,
    )


def draw_new(law: Mixture, rng: np.random.Generator) -> np.ndarray:
    """A draw (d,) of a mixture."""
    x = np.empty(law.means.shape[1])
    draw_mixture(law, x, rng)
    return x


def covariance_of(root: np.ndarray) -> np.ndarray:
    """The covariance (d, d), or (d,), with this root of its inverse."""
    if root.shape[0] == 1:
        return np.asarray(root[0] ** -2)
    inverse = np.linalg.inv(root)
    return np.asarray(inverse @ inverse.T)


def diagonal_of(cov: np.ndarray) -> np.ndarray:
    return cov if cov.ndim == 1 else np.diagonal(cov).copy()


def _root_of_peak(peak: Peak) -> np.ndarray:
    """R with R^T R the negative Hessian, (d, d), or (1, d) where only its diagonal is known."""
    if peak.negative.ndim == 1:
        return np.asarray(np.sqrt(peak.negative)[None])
    return np.ascontiguousarray(np.linalg.cholesky(peak.negative).T)


def broad_reference(fitted: Mixture, settings: Any) -> Mixture:
    """One wide component over all modes."""
    widths = np.array([np.sqrt(diagonal_of(covariance_of(root))) for root in fitted.roots])
    low, high = fitted.means.min(axis=0), fitted.means.max(axis=0)
    spread = settings.heat * (0.5 * (high - low) + widths.max(axis=0))
    root = 1.0 / np.maximum(spread, settings.reach)
    return mixture(np.zeros(1), (0.5 * (low + high))[None], root[None, None], BROAD_DEGREES)


def shrunk_covariance(present: np.ndarray, points: np.ndarray) -> np.ndarray:
    """The covariance (d, d), or (d,), of points (n, d) around zero, drawn to the present one."""
    n, d = points.shape
    own = (points**2).mean(axis=0) if present.ndim == 1 else points.T @ points / n
    keep = (PRIOR + d) / (PRIOR + d + n)
    return np.asarray((1.0 - keep) * own + keep * present)


def learn_references(target: Any, state: Any, settings: Any) -> Any:
    """New components for modes that rungs have come near; then all are fitted to draws of the posterior."""
    n, d = int(state.notes.clock[0]), state.x.size
    if n < 4:
        return state
    surface, draws = Surface(target, d), state.notes.points[state.cold, :n]
    excess = surface.heights(draws) - _log_density(state.fitted, draws)
    limit = float(np.median(excess)) + _UNEXPLAINED + 0.5 * d
    strange = np.flatnonzero(excess > limit)
    strange = strange[np.argsort(-excess[strange], kind="stable")][:_MOST_NEW]
    found, law = list[Peak](), state.fitted
    if state.sloped or settings.pilot or settings.search:  # else nothing may call a gradient
        found = new_peaks(surface, draws[strange], _peaks(law, surface))
        law = _with_modes(law, found, surface)
        most = _CLIMBS * _GRADIENTS * float(state.counts.clock[0]) * len(state.weights)
        new = new_peaks(surface, _warm_draws(state), _peaks(law, surface), most)
        law, found = _with_modes(law, new, surface), [*found, *new]
    wide = _peak_without_top(surface, state, law, limit)
    law, found = _with_modes(law, wide, surface), [*found, *wide]
    law = _with_masses(fit_components(law, draws, _FEWEST + _FEWEST_EACH * d), surface)
    gradients = state.gradients + float(surface.evaluations)
    broad = broad_reference(law, settings) if found else state.broad
    return state._replace(fitted=law, broad=broad, gradients=gradients)


def _log_density(law: Mixture, points: np.ndarray) -> np.ndarray:
    return np.asarray(logsumexp(log_parts(law, points), axis=1))


def _peak_without_top(surface: Surface, state: Any, law: Mixture, limit: float) -> list[Peak]:
    """The law of draws near the posterior's rung that no component explains, as if it were a mode.

    A wide law beneath a spike has no mode to climb to. The posterior may be stuck in the spike, while the
    rungs of the broad leg are in the wide law, which has more room. The mass is that of a normal law with the
    same entropy.
    """
    n, d = int(state.notes.clock[0]), state.x.size
    for j in range(state.cold - 1, max(state.cold - 1 - _NEXT_RUNGS, 0), -1):
        draws = state.notes.points[j, :n]
        heights = surface.heights(draws)
        strange = np.isfinite(heights) & (heights - _log_density(law, draws) > limit)
        if np.count_nonzero(strange) < _FEWEST + n // 5:
            continue
        own = draws[strange]
        variances = own.var(axis=0)
        if not (variances > 0.0).all():
            continue
        if d <= LARGEST_DENSE:
            covariance = shrunk_covariance(np.diag(variances), own - own.mean(axis=0))
            negative = np.linalg.inv(covariance)
        else:
            negative = 1.0 / variances
        peak = Peak(own.mean(axis=0), float(heights[strange].mean()) + 0.5 * d, negative)
        others = _peaks(law, surface)
        if not any(is_same_mode(peak, other) for other in others):
            return [peak]
    return []


def _warm_draws(state: Any) -> Iterator[np.ndarray]:
    """Draws of the broad leg: first those that known modes explain least, then the last ones.

    They are at every scale. A mode with s times the scale of others has about s^(d (1 - beta)) times the
    draws that it has with beta = 1. So a narrow one is reached by few draws of thousands, too few to climb
    from any draws.
    """
    notes = state.notes
    for rank in range(notes.excess.shape[1]):
        for j in range(1, state.cold):
            row = np.argsort(-notes.excess[j], kind="stable")[rank]
            if notes.excess[j, row] > -np.inf:
                yield notes.strange[j, row]
    rungs = np.linspace(0, state.cold, min(state.cold, _WARM), endpoint=False).astype(int)
    for row in range(int(state.notes.clock[0]) - 1, -1, -1):
        for j in rungs:
            yield state.notes.points[j, row]


def _peaks(law: Mixture, surface: Surface) -> list[Peak]:
    """The components as modes."""
    d, found = law.means.shape[1], []
    for mean, root, height in zip(law.means, law.roots, surface.heights(law.means), strict=True):
        is_diagonal = len(root) == 1 and d > 1
        found.append(Peak(mean, float(height), root[0] ** 2 if is_diagonal else root.T @ root))
    return found


def _with_masses(law: Mixture, surface: Surface) -> Mixture:
    """The mixture with weights half from draws and half from Laplace masses.

    While few replicas travel, draws alone would make the weight of a mode ever smaller that none has visited.
    """
    masses = np.array([peak.log_mass for peak in _peaks(law, surface)])
    if not np.isfinite(masses).any():
        return law
    weights = np.logaddexp(law.log_weights, masses - logsumexp(masses))
    return mixture(weights, law.means, law.roots, law.degrees)


def _with_modes(law: Mixture, peaks: list[Peak], surface: Surface) -> Mixture:
    """The mixture with components for new modes, whose weights are Laplace masses beside those it has."""
    peaks = peaks[: _MOST_MODES - len(law.means)]
    if not peaks:
        return law
    known = [peak.log_mass for peak in _peaks(law, surface)]
    biggest = int(np.argmax(known))
    unit = law.log_weights[biggest] - known[biggest]
    shares = np.array([unit + peak.log_mass for peak in peaks])
    weights = np.concatenate((law.log_weights, shares))
    means = np.array([*law.means, *(peak.x for peak in peaks)])
    kept = weights > weights.max() + np.log(_LEAST_MASS)
    kept[: len(law.means)] = True
    least = weights.max() + np.log(_LEAST_MASS)
    roots = np.array([*law.roots, *map(_root_of_peak, peaks)])
    return mixture(np.maximum(weights[kept], least), means[kept], roots[kept], law.degrees)
