"""Modes that a search has found and that no chain has visited.

Every chain climbs from some random points before it starts (inits.py). After all draws have been made,
other climbs start from points further out (numerics/mode_search.py). A climb may end outside of the range
of all draws, or higher than the mode of a normal law would lie above them. This file follows such a climb
up to a mode. There may be no mode (but the end of a ridge or of a funnel's neck, or a wall), or a mode
without mass, or the mode that chains have visited.

**The mass of a mode** is bounded from below. Let x* be the mode, N the negative Hessian there, and q the
normal law with mean x* and covariance N^-1. Jensen's inequality says of the mass M of the region where q lies

    log M >= E_q[log p(x) - log q(x)],

If log p is quadratic, this bound is Laplace's approximation. Otherwise the two differ, and the code takes
the smaller one.

**The mass that chains have visited** is bounded from above. Of all laws with a given covariance S the normal
law has the largest entropy, so that

    log M <= E[log p(x)] + d / 2 (1 + log 2 pi) + 1/2 log det S.

So the share of the mass that the result states for a mode is too small rather than too large. A mode counts
as visited if enough draws are at it: within its normal law, and nearer to it than to the mean of their chain.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import digamma, expit

from ..model.posterior import Posterior
from ..numerics.blas import one_thread
from ..numerics.mode_search import (
    Known,
    Peak,
    Surface,
    climb_to_mode,
    is_joined,
    normal_pairs,
    search,
    surroundings,
)
from ..run.interrupts import delayed_interrupts
from ..run.warmup import variable_groups

SHARE = 0.01  # a mode counts if its share of the mass is larger than this
_AROUND = 0.1  # the same for the surroundings of all draws; a smaller share may be a heavy tail
_ONE_IN = 20  # at most one evaluation for so many evaluations of the run
_SEARCH = 0.5  # share of these that the search may take; the rest serves to judge what it has found
_MOST, _MOST_EACH = 4_000, 80  # most evaluations, however long the run: 4,000, and 80 for each dimension
_LOOK_AROUND = 500  # with more evaluations than this the search looks at the surroundings of the draws, too
_FEWEST = 300  # even a short run may take so many, and 10 d more, to judge what climbs have found
_SPAWN_KEY = 2**31 + 3  # of the search's random numbers; seeds of chains have smaller keys
_MOST_DIM = 100  # a Hessian takes 2 d gradients
_MOST_FOLLOWED, _MOST_FAILED = 8, 2  # after so many followed climbs, or so many that led to no mode, it stops
_FEW_ROWS, _MORE_ROWS = (
    16,
    1_000,
)  # draws that say where to look; most draws to use of coordinates without a transform
_ROWS, _ROWS_EACH = 120, 3  # most draws of a chain to unconstrain: 120, or 3 for each dimension if more
_STEPS = 80  # most gradients to follow a climb up to its mode
_DIP = 1.0  # nats that the log density may fall on that way
_PAIRS = 32  # pairs of points around a mode that show its mass
_VISITED = 0.1  # a mode is visited if its share of draws is above this part of its share of the mass


class Mode(NamedTuple):
    """A mode that no chain has visited."""

    x: np.ndarray  # (d,)
    logp: float
    rise: float  # height above the highest draw, or above the end of a climb from it; may be negative
    log_mass: float  # log of its mass divided by the mass that chains have visited
    climbs: int  # number of climbs that have ended there


class Missed(NamedTuple):
    """The result of a search."""

    modes: list[Mode]
    evaluations: int  # of the log density, most with its gradient


def find_unvisited(
    tops: np.ndarray, values: np.ndarray, lp: np.ndarray, posterior: Posterior, evaluations: int, seed: int
) -> Missed:
    """Find modes with more than 1 % of the mass that no chain has visited, and mass around all draws.

    Parameters
    ----------
    tops
        The highest points (k, d) of the climbs of all chains before the first iteration.
    values
        Draws (chain, draw, c), in the order of the posterior's values.
    lp
        Their log densities (chain, draw), up to a constant.
    posterior
        The posterior of the draws. It is evaluated again: at most 5 % of `evaluations` times, but a
        short run may take up to about 300 + 10 d evaluations.
    evaluations
        How many evaluations the run took.
    seed
        The seed of the run.
    """
    d, model = posterior.dim, posterior.model
    if d > _MOST_DIM or values.shape[1] <= 2 * d or model.noisy or not model.has_gradient:
        return Missed([], 0)
    columns = values[..., : len(posterior.names)]
    drawn = _Drawn(values, lp, columns.min(axis=(0, 1)), columns.max(axis=(0, 1)))
    if not np.isfinite([*drawn.low, *drawn.high, lp.min(), lp.max()]).all():
        return Missed([], 0)
    most = min(evaluations // _ONE_IN, _MOST + _MOST_EACH * d)
    # More threads of BLAS would wait for each other, for longer than these small matrices take.
    with delayed_interrupts() as caught, one_thread():

        def is_stopped() -> bool:
            return bool(caught.signal or caught.before)

        def forget() -> None:
            with contextlib.suppress(Exception):
                model.raise_pending()

        surface = Surface(model.target(), d, is_stopped, forget)
        modes = _look(tops, drawn, posterior, surface, most, seed)
    return Missed(modes, surface.evaluations)


class _Drawn(NamedTuple):
    """The draws of a run."""

    values: np.ndarray  # (chain, draw, c)
    lp: np.ndarray  # (chain, draw)
    low: np.ndarray  # the smallest draw of each scalar parameter; `high` has the largest
    high: np.ndarray


def _look(
    tops: np.ndarray, drawn: _Drawn, posterior: Posterior, surface: Surface, most: int, seed: int
) -> list[Mode]:
    """Search for modes, and judge what the search and `tops` (k, d), the ends of earlier climbs, show."""
    d = tops.shape[1]
    known = _where_to_look(drawn, posterior)
    peak = -np.inf if known is None else float(surface.heights(known.peak[None])[0])
    if known is None or peak == -np.inf:
        return []
    lp = drawn.lp + (peak - drawn.lp.max())  # samplers of other libraries leave constants out of lp
    if most < _LOOK_AROUND:  # too few evaluations to look at ends among the draws
        tops = tops[_outside(tops, drawn, posterior)]
    heights, modes, summit = surface.heights(tops), [], peak
    if (left := most - surface.evaluations) > 0:
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(_SPAWN_KEY,)))
        found = search(known, surface, int(_SEARCH * left), rng)
        tops, heights = np.concatenate([tops, found.points]), np.concatenate([heights, found.heights])
        summit = float(np.max(found.heights[:1], initial=peak))  # the first climb is from the highest draw
        if left > _LOOK_AROUND and not surface.is_stopped:
            x, logp, log_mass = surroundings(known, float(lp.mean()), surface, rng)
            if _share(log_mass) > _AROUND:
                modes.append(Mode(x, logp, logp - summit, log_mass, 0))
    is_high = heights > lp.mean(axis=1).max() + 0.5 * d + 1.5 + 0.5 * np.sqrt(d)
    # A climb stops before its mode. So a climb to a mode as high as the draws may end far below them.
    near = heights > peak - 10.0 - 7.0 * d
    picked = np.flatnonzero(near & (is_high | _outside(tops, drawn, posterior)))
    picked = picked[np.argsort(-heights[picked], kind="stable")]
    chains = [_Chain(*rows, known, posterior) for rows in zip(drawn.values, lp, strict=True)]
    most = max(most, _FEWEST + 10 * d)
    return modes + _judge(tops[picked], is_high[picked], chains, surface, most, summit)


def _where_to_look(drawn: _Drawn, posterior: Posterior) -> Known | None:
    """What the draws say about where to look; None if one of those used cannot be unconstrained."""
    flat, lp = drawn.values.reshape(-1, drawn.values.shape[2]), drawn.lp
    picked = np.concatenate(
        [flat[np.linspace(0, len(flat) - 1, _FEW_ROWS).astype(int)], flat[[np.argmax(lp)]]]
    )
    rows = _unconstrain(picked, posterior)
    if rows is None or not np.isfinite(rows).all():
        return None
    columns = _columns(posterior)
    free = (columns >= 0) & np.isclose(rows, picked[:, columns], rtol=1e-9, atol=0.0).all(axis=0)
    spread = rows.std(axis=0)
    spread[free] = flat[:: len(flat) // _MORE_ROWS + 1, columns[free]].std(axis=0)
    spread = np.where((spread > 0.0) & np.isfinite(spread), spread, 1.0)
    return Known(rows[:-1], spread, rows[-1], free, variable_groups(posterior.unconstrained_names))


def _columns(posterior: Posterior) -> np.ndarray:
    """Columns (d,) of the values with the coordinates' names, -1 for none."""
    places = {name: i for i, name in enumerate(posterior.names)}
    return np.array([places.get(name, -1) for name in posterior.unconstrained_names])


def _judge(
    tops: np.ndarray,
    is_high: np.ndarray,
    chains: Sequence[_Chain],
    surface: Surface,
    most: int,
    summit: float,
) -> list[Mode]:
    """Follow `tops` (k, d) up to unvisited modes, until the search has used about `most` evaluations."""
    d = surface.d
    modes: list[tuple[Peak, Mode | None]] = []
    followed, failed = 0, 0
    needed = 2 * d + 2 * _PAIRS + _STEPS // 4
    for top, high in zip(tops, is_high, strict=True):
        seen = [i for i, (peak, _) in enumerate(modes) if peak.distances(top[None])[0] < 2.0 * d + 10.0]
        if seen:
            peak, mode = modes[seen[0]]
            modes[seen[0]] = (peak, mode and mode._replace(climbs=mode.climbs + 1))
            continue
        if surface.evaluations + needed > most or followed == _MOST_FOLLOWED or failed == _MOST_FAILED:
            break
        if surface.is_stopped:
            break
        if not high and any(
            chain.tip is not None and is_joined(top, chain.tip[0], surface, _DIP) for chain in chains
        ):
            continue
        followed += 1
        found = climb_to_mode(top, surface, min(_STEPS, most - surface.evaluations - needed + _STEPS // 4))
        failed += found is None
        if found is not None:
            modes.append((found, _weigh(found, chains, surface, summit)))
    return [mode for _, mode in modes if mode is not None]


def _weigh(peak: Peak, chains: Sequence[_Chain], surface: Surface, summit: float) -> Mode | None:
    """The mode with its mass; None if that mass is too small or chains have visited the mode.

    Each chain may have visited another mode: then the largest of their masses counts. If all have visited the
    same mode, the mass from all draws together is more certain. If not, that mass is larger. So the smaller
    one of the two is taken.
    """
    log_mass = _least_mass(peak, surface)
    for i in range(len(chains)):  # the first chains may decide it: to unconstrain draws takes time
        visited = max(chain.log_mass for chain in chains[: i + 1])
        if not _share(log_mass - visited) > SHARE:
            return None
    visited = min(visited, _most_mass_of_all(chains))
    share = _share(log_mass - visited)
    if np.mean([chain.share_at(peak) for chain in chains]) > _VISITED * share:
        return None
    return Mode(peak.x, peak.logp, peak.logp - summit, log_mass - visited, 1)


def _most_mass_of_all(chains: Sequence[_Chain]) -> float:
    """An upper bound of the log mass that all chains together have visited."""
    rows = [chain.x for chain in chains if chain.x is not None]
    return _most_mass(np.concatenate(rows), np.stack([chain.lp for chain in chains])) if rows else np.inf


def _most_mass(x: np.ndarray, lp: np.ndarray) -> float:
    """An upper bound of the log mass that draws (n, d) have visited, without the term d/2 log(2 pi)."""
    n, d = x.shape
    log_det = float(np.linalg.slogdet(np.atleast_2d(np.cov(x.T)))[1])
    # From independent normal draws log_det is too small on average; the next line takes out this bias.
    log_det -= float(np.sum(digamma(0.5 * (n - 1 - np.arange(d))))) - d * np.log(0.5 * (n - 1))
    return float(lp.mean() + 0.5 * (d + log_det))


def _share(log_mass: float) -> float:
    """The share of a mode in the sum of its mass and the mass that chains have visited."""
    return float(expit(log_mass))


class _Chain:
    """The draws of a chain, and what they show, which is computed when it is first asked for."""

    def __init__(self, values: np.ndarray, lp: np.ndarray, known: Known, posterior: Posterior) -> None:
        self.lp, self._values, self._known, self._posterior = lp, values, known, posterior

    @functools.cached_property
    def tip(self) -> np.ndarray | None:
        """The highest draw (1, d), unconstrained; None if it cannot be unconstrained."""
        return _unconstrain(self._values[[np.argmax(self.lp)]], self._posterior, self._known)

    @functools.cached_property
    def x(self) -> np.ndarray | None:
        """Some of the draws (n, d), unconstrained; None if one of them cannot be unconstrained."""
        return _unconstrain(self._values, self._posterior, self._known)

    @functools.cached_property
    def log_mass(self) -> float:
        """An upper bound of the log mass of the mode that it has visited."""
        return np.inf if self.x is None else _most_mass(self.x, self.lp)

    def share_at(self, peak: Peak) -> float:
        """The share of draws that are within a mode's normal law and nearer to it than to their own mean."""
        if self.x is None:
            return 1.0
        inside, mean = peak.holds(self.x), self.x.mean(axis=0)
        towards = (peak.x - mean) @ peak.negative
        distance = float(towards @ (peak.x - mean))
        if distance > 16.0:  # else the mean of the chain is at the mode
            inside &= (self.x - mean) @ towards > 0.5 * distance
        return float(inside.mean())


def _outside(tops: np.ndarray, drawn: _Drawn, posterior: Posterior) -> np.ndarray:
    """Which of the points (k, d) are outside of the range of all draws, in any parameter."""
    there = np.empty((len(tops), posterior.n_values))
    posterior.model.writer(0)(tops, there, np.arange(len(tops)))
    there = there[:, : len(drawn.low)]
    return np.asarray(((there < drawn.low) | (there > drawn.high)).any(axis=1))


def _unconstrain(rows: np.ndarray, posterior: Posterior, known: Known | None = None) -> np.ndarray | None:
    """Unconstrain draws (n, c), evenly chosen if there are many; None if one of them cannot be."""
    is_free = known is not None and known.free.all()
    most = _MORE_ROWS if is_free else max(_ROWS, _ROWS_EACH * posterior.dim)
    picked = rows[np.linspace(0, len(rows) - 1, min(len(rows), most)).astype(int)]
    if known is not None and is_free:
        return np.ascontiguousarray(picked[:, _columns(posterior)])
    try:
        return np.array([posterior.model.unconstrain_flat(row[: len(posterior.names)]) for row in picked])
    except RuntimeError:  # rounding has put a value on the boundary of its support
        return None


def _least_mass(peak: Peak, surface: Surface) -> float:
    """A lower bound of the log mass of a mode, estimated from points, without the term d/2 log(2 pi)."""
    d = peak.x.size
    normal = normal_pairs(_PAIRS, d, np.random.default_rng(0))  # a fixed seed, since any points will do
    root = np.linalg.cholesky(peak.negative)
    heights = surface.heights(peak.x + np.linalg.solve(root.T, normal.T).T)
    inside = np.isfinite(heights)
    if not inside.any():
        return -np.inf
    gains = heights[inside] + 0.5 * np.square(normal[inside]).sum(axis=1)
    log_volume = -float(np.log(np.diag(root)).sum())
    return log_volume + min(peak.logp, float(gains.mean()) + float(np.log(inside.mean())))
