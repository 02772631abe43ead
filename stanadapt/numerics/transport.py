"""Coordinates in which heavy tails are light, and the density and its score in them.

Trajectories and random walks do not come back from tails that fall like a power: no method here is
geometrically ergodic there (Roberts and Tweedie, 1996; Livingstone, Betancourt, Byrne and Girolami, 2019).
For a coordinate with such tails let

    x = c + sinh(delta z) / delta,

which is x = c + z near the centre c. A tail |x|^-(nu+1) becomes exp(-nu delta |z|). Draws of z are exact for
the density p(x(z)) |dx/dz|, whatever c and delta are. Transformations of this kind: Johnson and Geyer (2012),
Variable transformation to obtain geometric ergodicity in the random-walk Metropolis algorithm.

    symbol   here            shape   meaning
    z        z               (d,)    where the chain moves
    x        x               (d,)    where the density is known; the same number for all other coordinates
    c        tails.centers   (b,)    centres of the b coordinates with heavy tails
    delta    tails.rates     (b,)    1 / delta is where the bulk ends and the tail begins
             tails.places    (b,)    which coordinates they are

What is learnt from draws and scores s is the delta of the smallest log V(z) V(s_z) / 2. That is 0 for a
normal law of any scale, and it grows with every way in which draws and scores disagree: it is the Fisher
divergence from a normal law, without its scale. Few draws tell what a tail is like, since the scores there
do: with u = x - c, the mean of -s u grows like u² for a normal law and like |u| for an exponential tail, and
comes to rest at nu + 1 for a power. Only the last is mapped: in an exponential tail sinh would make a wall,
which short trajectories run into.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..jit import kernel
from ..target import log_density_gradient

LEAST = 45  # draws to learn from
GAIN = 0.15  # fall of the divergence that a coordinate must bring in all draws; more where they are few:
GAIN_DRAWS = 15.0  # at least this over their number; and a quarter of it in the older and in the newer half
POWER = (
    0.65  # of |u| by which the mean of -s u grows, from the middle of the draws to the outer ones, at most
)
STAY = 0.05  # gain from which on a delta that is in use is replaced
_RATES = np.array([0.3, 0.5, 0.8, 1.2, 1.8, 2.7, 4.0])  # that are tried, in units of one over the spread
_SUSPECT = -0.5  # slope of the divergence in delta² at 0, for a variance of 1, below which rates are tried
_FARTHEST = 700.0  # |delta z|, beyond which sinh overflows


class Tails(NamedTuple):
    """The coordinates with heavy tails; none at first."""

    places: np.ndarray  # (b,) int64
    centers: np.ndarray  # (b,)
    rates: np.ndarray  # (b,)


@kernel
def no_tails() -> Any:
    """z is x."""
    return Tails(np.zeros(0, np.int64), np.zeros(0), np.zeros(0))


@kernel
def into_x(tails: Any, z: Any, x: Any) -> Any:
    """Write x(z) to `x` (d,). Returns log |dx/dz|, infinity where x overflows."""
    log_det = 0.0
    for i in range(z.size):
        x[i] = z[i]
    for k in range(tails.places.size):
        i, rate = tails.places[k], tails.rates[k]
        a = rate * z[i]
        if not abs(a) < _FARTHEST:
            return np.inf
        x[i] = tails.centers[k] + np.sinh(a) / rate
        log_det += abs(a) + np.log1p(np.exp(-2.0 * abs(a))) - np.log(2.0)
    return log_det


@kernel
def transported_gradient(target: Any, tails: Any, z: Any, score: Any) -> Any:
    """Log density at `z` (d,) in these coordinates, its gradient written to `score` (d,).

    It is -inf where `log_density_gradient` is, and where x overflows.
    """
    if tails.places.size == 0:
        return log_density_gradient(target, z, score)
    x = np.empty_like(z)
    log_det = into_x(tails, z, x)
    if log_det == np.inf:
        return -np.inf
    logp = log_density_gradient(target, x, score)
    if logp == -np.inf:
        return logp
    for k in range(tails.places.size):
        i, rate = tails.places[k], tails.rates[k]
        a = rate * z[i]
        score[i] = score[i] * np.cosh(a) + rate * np.tanh(a)
    return logp + log_det


@kernel
def score_in_x(tails: Any, z: Any, score: Any) -> Any:
    """The score (d,) in x, from `score` in z."""
    found = score.copy()
    for k in range(tails.places.size):
        i, rate = tails.places[k], tails.rates[k]
        a = rate * z[i]
        found[i] = (score[i] - rate * np.tanh(a)) / np.cosh(a)
    return found


def transport_draws(tails: Tails, points: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Draws and scores (n, d) in z, from those in x."""
    if not tails.places.size:
        return points, scores
    points, scores = points.copy(), scores.copy()
    a = np.arcsinh(tails.rates * (points[:, tails.places] - tails.centers))
    points[:, tails.places] = a / tails.rates
    scores[:, tails.places] = scores[:, tails.places] * np.cosh(a) + tails.rates * np.tanh(a)
    return points, scores


def change_coordinates(
    before: Tails, after: Tails, z: np.ndarray, logp: float, score: np.ndarray
) -> tuple[np.ndarray, float, np.ndarray]:
    """A point z (d,), its log density and its score in other coordinates."""
    if not (before.places.size or after.places.size):
        return z, logp, score
    x = np.empty_like(z)
    logp_x = logp - into_x(before, z, x)
    points, scores = transport_draws(after, x[None], score_in_x(before, z, score)[None])
    return points[0], logp_x + into_x(after, points[0], x), scores[0]


@np.errstate(all="ignore")  # what is not finite is not taken
def learn_tails(tails: Tails, points: np.ndarray, scores: np.ndarray) -> Tails:
    """The coordinates that draws and scores in x (n, d), the older ones first, show to have heavy tails.

    A rate that is in use stays unless another one is clearly better.
    """
    n = len(points)
    if n < LEAST:
        return tails
    u, t = points - np.median(points, axis=0), scores - scores.mean(axis=0)
    variance, information = np.square(u).mean(axis=0), np.square(t).mean(axis=0)
    # The derivative of the divergence in delta² at 0, times 2 / variance; it is 0 for every normal law,
    # correlated ones too, where E[(s u)²] = V(s) V(u) + 2.
    slope = (np.square(u * t).mean(axis=0) - 2.0) / (information * variance)
    slope -= np.square(u * u).mean(axis=0) / (3.0 * np.square(variance))
    suspects = np.flatnonzero((slope < _SUSPECT) | np.isin(np.arange(u.shape[1]), tails.places))
    taken: list[tuple[int, float, float]] = []
    for i in suspects:
        found = _coordinate(tails, int(i), points[:, i], scores[:, i])
        if found is not None:
            taken.append((int(i), *found))
    if not taken:
        return Tails(np.zeros(0, np.int64), np.zeros(0), np.zeros(0))
    places, centers, rates = zip(*taken, strict=True)
    return Tails(np.array(places, np.int64), np.array(centers), np.array(rates))


def _coordinate(tails: Tails, i: int, x: np.ndarray, s: np.ndarray) -> tuple[float, float] | None:
    """Centre and rate of one coordinate, from its draws and scores (n,); None where it needs none."""
    center = float(np.median(x))
    low, high = np.quantile(x, (0.25, 0.75))
    spread = float(high - low) / 1.35
    if not (np.isfinite(spread) and spread > 0.0 and _growth(x - center, s) < POWER):
        return None
    rates = np.concatenate([[0.0], _RATES / spread])
    values = _divergences(x - center, s, rates)
    best = int(np.nanargmin(values))
    used = np.flatnonzero(tails.places == i)
    if used.size:
        at = float(tails.centers[used[0]]), float(tails.rates[used[0]])
        now = _divergences(x - at[0], s, np.array([0.0, at[1]]))
        if now[1] - values[best] < STAY and now[1] < now[0]:
            return at
    least, half = max(GAIN, GAIN_DRAWS / len(x)), len(x) // 2
    if not values[0] - values[best] > least:
        return None
    for part in (slice(None, half), slice(half, None)):
        old, new = _divergences(x[part] - center, s[part], rates[[0, best]])
        if not old - new > 0.25 * least:
            return None
    return center, float(rates[best])


def _growth(u: np.ndarray, s: np.ndarray) -> float:
    """The power of |u| by which the mean of -s u grows between the middle of the draws and the outer ones."""
    size = np.abs(u)
    low, mid, high = np.quantile(size, (0.3, 0.6, 0.85))
    inner, outer = (size >= low) & (size <= mid), size >= high
    pull = -s * u
    return float(
        np.log(pull[outer].mean() / pull[inner].mean()) / np.log(size[outer].mean() / size[inner].mean())
    )


def _divergences(u: np.ndarray, s: np.ndarray, rates: np.ndarray) -> np.ndarray:
    """log V(z) V(s_z) / 2 for each of the rates (k,), from centred draws and scores (n,)."""
    found = np.empty(len(rates))
    for k, rate in enumerate(rates):
        if rate == 0.0:
            found[k] = 0.5 * np.log(np.var(u) * np.var(s))
            continue
        a = np.arcsinh(rate * u)
        found[k] = 0.5 * np.log(np.var(a / rate) * np.var(s * np.cosh(a) + rate * np.tanh(a)))
    return found
