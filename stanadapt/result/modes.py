"""Modes that a search has found and that no chain has visited.

Every chain climbs from some random points before it starts (inits.py), and when the draws are made there are
climbs from further out (mode_search.py). Where climbs have ended outside of the draws of all chains, or much
higher than draws tell, they are followed up to a mode here. What is there may be nothing (the end of a ridge
or of a funnel's neck, a wall), or a mode without mass, or the mode that chains have visited.

**The mass of a mode** is told from below. With the mode x*, the negative Hessian N there, and q the normal
law N(x*, N^-1), Jensen's inequality gives for the mass M of the region where q is

    log M >= E_q[log p(x) - log q(x)],

which is Laplace's approximation where log p is quadratic, and less than it elsewhere. The smaller one of
both is taken.

**The mass that chains have visited** is told from above: of all laws with a given covariance S the normal law
has the largest entropy, so that

    log M <= E[log p(x)] + d / 2 (1 + log 2 pi) + 1/2 log det S.

So a share that is said is too small rather than too large. A mode is visited if draws are there: those within
its normal law, and nearer to it than to the mean of their chain.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import digamma, expit

from ..model.posterior import Posterior
from ..numerics.blas import one_thread
from ..run.interrupts import delayed_interrupts
from .mode_search import Known, Surface, normal_pairs, search, surroundings

SHARE = 0.01  # of the mass, from which a mode counts
_AROUND = 0.1  # the same for the surroundings of all draws; less of it may be a heavy tail
_ONE_IN = 20  # evaluations for every one of the run, at most
_SEARCH = 0.5  # of these, for the search; the others are for what it has found
_MOST, _MOST_EACH = 4_000, 80  # evaluations in any case, and a dimension
_LOOK_AROUND = 500  # evaluations from which a run is long enough to look at its surroundings too
_FEWEST = 300  # for what climbs before the first iteration have found, however short the run
_SPAWN_KEY = 2**31 + 3  # of the search's random numbers; seeds of chains have smaller keys
_MOST_DIM = 100  # a Hessian takes 2 d gradients
_MOST_FOLLOWED, _MOST_FAILED = 8, 2  # climbs that are followed up, and of these such that have led nowhere
_FEW_ROWS, _MORE_ROWS = (
    16,
    1_000,
)  # draws that tell of where to look; those of coordinates without a transform
_ROWS, _ROWS_EACH = 120, 3  # draws of a chain that are looked at: at least, and a dimension
_STEPS = 80  # evaluations of a climb's rest
_POINTS = 12  # on the way from the end of a climb to the draws
_DIP = 1.0  # nats that the log density may fall on that way
_UNFINISHED = 1  # what scipy says of a search that is not at its end
_UPHILL = 0.01  # nats that may be left to gain at a mode
_PAIRS = 32  # of points around a mode that tell of its mass
_VISITED = 0.1  # of its share of the mass, from which draws at a mode are enough


class Mode(NamedTuple):
    """A mode that no chain has visited."""

    x: np.ndarray  # (d,)
    logp: float
    rise: float  # above the highest point that the chains have come near; negative where it is lower
    log_mass: float  # relative to the part that chains have visited
    climbs: int  # that have ended there


class Missed(NamedTuple):
    """The result of a search."""

    modes: list[Mode]
    evaluations: int  # of the log density, most with its gradient


class _Peak(NamedTuple):
    """A mode, visited or not."""

    x: np.ndarray  # (d,)
    logp: float
    negative: np.ndarray  # (d, d) Hessian

    def distances(self, points: np.ndarray) -> np.ndarray:
        """Squared distances of points (n, d), by the Hessian."""
        away = points - self.x
        return np.asarray(((away @ self.negative) * away).sum(axis=1))

    def holds(self, points: np.ndarray) -> np.ndarray:
        """Which of the points (n, d) are where nearly all of the mode's normal law is."""
        d = self.x.size
        return np.asarray(self.distances(points) < d + 4.0 * np.sqrt(2.0 * d) + 6.0)


def unvisited(
    tops: np.ndarray, values: np.ndarray, lp: np.ndarray, posterior: Posterior, evaluations: int, seed: int
) -> Missed:
    """Modes with at least 1 % of the mass where climbs have ended and no chain has draws.

    Parameters
    ----------
    tops
        The highest points (k, d) of the climbs of all chains before the first iteration.
    values
        Draws (chain, draw, c), in the order of the posterior's values.
    lp
        Their log densities (chain, draw), up to a constant.
    posterior
        What was drawn from. It is evaluated again, at 5 % of `evaluations` points at most.
    evaluations
        How many evaluations the run took.
    seed
        Of the run.
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
        surface = Surface(posterior, caught)
        modes = _look(tops, drawn, surface, most, seed)
    return Missed(modes, surface.evaluations)


class _Drawn(NamedTuple):
    """The draws of a run."""

    values: np.ndarray  # (chain, draw, c)
    lp: np.ndarray  # (chain, draw)
    low: np.ndarray  # the smallest value of each column of a parameter, and the largest
    high: np.ndarray


def _look(tops: np.ndarray, drawn: _Drawn, surface: Surface, most: int, seed: int) -> list[Mode]:
    """Search, and judge what has been found, beside the tops (k, d) that were known before."""
    d = tops.shape[1]
    known = _known(drawn, surface.posterior)
    peak = -np.inf if known is None else float(surface.heights(known.peak[None])[0])
    if known is None or peak == -np.inf:
        return []
    lp = drawn.lp + (peak - drawn.lp.max())  # methods from outside leave constants out
    if most < _LOOK_AROUND:  # the density may be dear
        tops = tops[_outside(tops, drawn, surface.posterior)]
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
    # A climb stops before the mode. So a mode as high as the draws may have climbs that end far below here.
    near = heights > peak - 10.0 - 7.0 * d
    picked = np.flatnonzero(near & (is_high | _outside(tops, drawn, surface.posterior)))
    picked = picked[np.argsort(-heights[picked], kind="stable")]
    chains = [_Chain(*rows, known, surface.posterior) for rows in zip(drawn.values, lp, strict=True)]
    most = max(most, _FEWEST + 10 * d)
    return modes + _judge(tops[picked], is_high[picked], chains, surface, most, summit)


def _known(drawn: _Drawn, posterior: Posterior) -> Known | None:
    """Where to look, as far as the draws tell."""
    flat, lp = drawn.values.reshape(-1, drawn.values.shape[2]), drawn.lp
    picked = np.concatenate(
        [flat[np.linspace(0, len(flat) - 1, _FEW_ROWS).astype(int)], flat[[np.argmax(lp)]]]
    )
    rows = _unconstrain(picked, posterior)
    if rows is None or not np.isfinite(rows).all():
        return None
    places = {name: i for i, name in enumerate(posterior.names)}
    columns = np.array([places.get(name, -1) for name in posterior.unconstrained_names])
    free = (columns >= 0) & np.isclose(rows, picked[:, columns], rtol=1e-9, atol=0.0).all(axis=0)
    spread = rows.std(axis=0)
    spread[free] = flat[:: len(flat) // _MORE_ROWS + 1, columns[free]].std(axis=0)
    spread = np.where((spread > 0.0) & np.isfinite(spread), spread, 1.0)
    return Known(rows[:-1], spread, rows[-1], free, columns)


def _judge(
    tops: np.ndarray,
    is_high: np.ndarray,
    chains: Sequence[_Chain],
    surface: Surface,
    most: int,
    summit: float,
) -> list[Mode]:
    """Modes above points (k, d), some of them above all draws, by at most so many evaluations."""
    d = surface.posterior.dim
    modes: list[tuple[_Peak, Mode | None]] = []
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
        if not high and any(_is_joined(top, chain.tip, surface) for chain in chains):
            continue
        followed += 1
        found = _follow(top, surface, min(_STEPS, most - surface.evaluations - needed + _STEPS // 4))
        failed += found is None
        if found is not None:
            modes.append((found, _weigh(found, chains, surface, summit)))
    return [mode for _, mode in modes if mode is not None]


def _weigh(peak: _Peak, chains: Sequence[_Chain], surface: Surface, summit: float) -> Mode | None:
    """The mode with its mass, if that is enough and no chain has visited it.

    Chains may have visited each another mode: the largest of their masses counts. If they have visited the
    same one, the mass by all draws together is more certain, and else it is larger.
    """
    log_mass = _least_mass(peak, surface)
    for i in range(len(chains)):  # one after another: to look at the draws of one takes time
        visited = max(chain.log_mass for chain in chains[: i + 1])
        if not _share(log_mass - visited) > SHARE:
            return None
    visited = min(visited, _pooled(chains))
    share = _share(log_mass - visited)
    if np.mean([chain.share_at(peak) for chain in chains]) > _VISITED * share:
        return None
    return Mode(peak.x, peak.logp, peak.logp - summit, log_mass - visited, 1)


def _pooled(chains: Sequence[_Chain]) -> float:
    """The log mass of what all chains have visited at most."""
    rows = [chain.x for chain in chains if chain.x is not None]
    return _most_mass(np.concatenate(rows), np.stack([chain.lp for chain in chains])) if rows else np.inf


def _most_mass(x: np.ndarray, lp: np.ndarray) -> float:
    """The log mass of what draws (n, d) have visited at most, without d / 2 log(2 pi)."""
    n, d = x.shape
    log_det = float(np.linalg.slogdet(np.atleast_2d(np.cov(x.T)))[1])
    # Of independent normal draws it is too small in the mean, by this.
    log_det -= float(np.sum(digamma(0.5 * (n - 1 - np.arange(d))))) - d * np.log(0.5 * (n - 1))
    return float(lp.mean() + 0.5 * (d + log_det))


def _share(log_mass: float) -> float:
    """Of a mode, besides what chains have visited."""
    return float(expit(log_mass))


class _Chain:
    """The draws of a chain, looked at where that is needed."""

    def __init__(self, values: np.ndarray, lp: np.ndarray, known: Known, posterior: Posterior) -> None:
        self.lp, self._values, self._known, self._posterior = lp, values, known, posterior

    @functools.cached_property
    def tip(self) -> np.ndarray | None:
        """The highest draw (1, d)."""
        return _unconstrain(self._values[[np.argmax(self.lp)]], self._posterior, self._known)

    @functools.cached_property
    def x(self) -> np.ndarray | None:
        """Some draws (n, d)."""
        return _unconstrain(self._values, self._posterior, self._known)

    @functools.cached_property
    def log_mass(self) -> float:
        """An upper bound of the log mass of the mode that it has visited."""
        return np.inf if self.x is None else _most_mass(self.x, self.lp)

    def share_at(self, peak: _Peak) -> float:
        """The share of draws within the normal law of a mode, and nearer to it than to their mean."""
        if self.x is None:
            return 1.0
        inside, mean = peak.holds(self.x), self.x.mean(axis=0)
        towards = (peak.x - mean) @ peak.negative
        distance = float(towards @ (peak.x - mean))
        if distance > 16.0:  # else the chain is there
            inside &= (self.x - mean) @ towards > 0.5 * distance
        return float(inside.mean())


def _outside(tops: np.ndarray, drawn: _Drawn, posterior: Posterior) -> np.ndarray:
    """Which of the points (k, d) are outside of the range of all draws, in any parameter."""
    there = np.empty((len(tops), posterior.n_values))
    posterior.model.writer(0)(tops, there, np.arange(len(tops)))
    there = there[:, : len(drawn.low)]
    return np.asarray(((there < drawn.low) | (there > drawn.high)).any(axis=1))


def _unconstrain(rows: np.ndarray, posterior: Posterior, known: Known | None = None) -> np.ndarray | None:
    """The draws (n, c) of a chain as unconstrained points; some of them, where that takes long."""
    is_free = known is not None and known.free.all()
    most = _MORE_ROWS if is_free else max(_ROWS, _ROWS_EACH * posterior.dim)
    picked = rows[np.linspace(0, len(rows) - 1, min(len(rows), most)).astype(int)]
    if known is not None and is_free:
        return np.ascontiguousarray(picked[:, known.columns])
    try:
        return np.array([posterior.model.unconstrain_flat(row[: len(posterior.names)]) for row in picked])
    except RuntimeError:  # rounding has put a value on the boundary of its support
        return None


def _is_joined(top: np.ndarray, tip: np.ndarray | None, surface: Surface) -> bool:
    """Whether the log density has no dip on the straight way from a climb's end to the highest draw (1, d).

    A climb may have ended on the slope of the mode that chains have visited, far out.
    """
    if tip is None:
        return False
    shares = np.linspace(0.0, 1.0, _POINTS)[:, None]
    heights = surface.ray((1.0 - shares) * top + shares * tip[0])
    is_whole = len(heights) == _POINTS
    return is_whole and bool(heights.min() > min(heights[0], heights[-1]) - _DIP)


def _follow(x: np.ndarray, surface: Surface, most: int) -> _Peak | None:
    """The mode above `x`; None where there is none, or none within `most` gradients."""

    def downhill(point: np.ndarray) -> tuple[float, np.ndarray]:
        logp, score = surface.gradient(point)
        return -logp, -score

    with np.errstate(all="ignore"):
        found = minimize(downhill, x, jac=True, method="L-BFGS-B", options={"maxfun": most, "maxiter": most})
        second = None if found.status == _UNFINISHED else surface.hessian(found.x)
        if second is None:
            return None
        try:
            np.linalg.cholesky(-second)
        except np.linalg.LinAlgError:  # a ridge, a saddle or a wall
            return None
        left = 0.5 * found.jac @ np.linalg.solve(-second, found.jac)
    return _Peak(found.x, -float(found.fun), -second) if left < _UPHILL * x.size else None


def _least_mass(peak: _Peak, surface: Surface) -> float:
    """The log mass of a mode from below, without d / 2 log(2 pi)."""
    d = peak.x.size
    normal = normal_pairs(_PAIRS, d, np.random.default_rng(0))  # any points will do
    root = np.linalg.cholesky(peak.negative)
    heights = surface.heights(peak.x + np.linalg.solve(root.T, normal.T).T)
    inside = np.isfinite(heights)
    if not inside.any():
        return -np.inf
    gains = heights[inside] + 0.5 * np.square(normal[inside]).sum(axis=1)
    log_volume = -float(np.log(np.diag(root)).sum())
    return log_volume + min(peak.logp, float(gains.mean()) + float(np.log(inside.mean())))
