"""The law of a coordinate with heavy tails, learned from draws and scores.

Trajectories and random walks do not come back from tails that decrease like a power: no method here is
geometrically ergodic there (Roberts and Tweedie, 1996; Livingstone, Betancourt, Byrne and Girolami, 2019).
For a coordinate with such tails let

    x = c + sinh(delta z) / delta,

which is x = c + z near the centre c. A tail |x|^-(nu+1) becomes exp(-nu delta |z|). Draws of z are exact for
the density p(x(z)) |dx/dz|, whatever c and delta are. Johnson and Geyer (2012), Variable transformation to
obtain geometric ergodicity in the random-walk Metropolis algorithm, study transformations of this kind.

Learning takes the delta with the smallest log V(z) V(s_z) / 2 in draws and their scores s. This divergence is
0 for a normal law of any scale, and it grows with every way in which draws and scores disagree: it is the
Fisher divergence from a normal law, without its scale. Few draws tell what a tail is like, because their
scores tell it: with u = x - c, the mean of -s u grows like u² for a normal law and like |u| for an
exponential tail, and stays at nu + 1 for a power. Only a power is mapped: in an exponential tail sinh would
make a wall, which short trajectories run into.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..jit import kernel
from .map_table import CENTER, COLUMNS, KIND, OWN, RATE, TAIL
from .shape import LEAST, POWER, quantile, shape_of
from .training import Training

KINDS = (TAIL,)
FARTHEST = 700.0  # |delta z|, beyond which sinh overflows

GAIN = 0.15  # a delta must decrease the divergence by at least this in all draws,
GAIN_DRAWS = 15.0  # by at least this over their number, and by a quarter of it in the older and newer half
# Warm-up goes on while a coordinate has a slope and a power below these: it may have heavy tails. In one of
# forty chains on a Cauchy law the first hundred draws do not reach the tails.
DOUBT, POWER_OF_DOUBT = -2.0, 0.85
STAY = 0.05  # a delta in use is replaced if another one decreases the divergence by this more
_RATES = np.array([0.3, 0.5, 0.8, 1.2, 1.8, 2.7, 4.0])  # the deltas that are tried, times the spread
SUSPECT = -0.5  # deltas are tried if the slope of the divergence in delta² at 0, at variance 1, is less


@kernel(ordered=True, counted=False)
def into_x(table: Any, k: Any, z: Any, x: Any, log_det: Any) -> Any:
    """Write x(z) of row `k`. Returns log |dx/dz| and the next row."""
    i = int(table[k, OWN])
    x[i], _, log_slope, _ = _value(table[k], z[i])
    return log_det + log_slope, k + 1


@kernel(ordered=True, counted=False)
def into_z(table: Any, k: Any, x: Any, z: Any) -> Any:
    """Write z(x) of row `k`. Returns the next row."""
    i = int(table[k, OWN])
    z[i] = _inverse(table[k], x[i])
    return k + 1


@kernel(ordered=True, counted=False)
def pull_back(table: Any, end: Any, z: Any, x: Any, score: Any) -> Any:
    """Turn the score in x into the one in z, for the row before `end`. Returns that row."""
    i = int(table[end - 1, OWN])
    _, slope, _, change = _value(table[end - 1], z[i])
    change += score[i] * slope
    score[i] = change
    return end - 1


@kernel(ordered=True, counted=False)
def score_in_x(table: Any, k: Any, z: Any, x: Any, score: Any) -> Any:
    """Turn the score in z into the one in x, for row `k`. Returns the next row."""
    i = int(table[k, OWN])
    _, slope, _, change = _value(table[k], z[i])
    score[i] = (score[i] - change) / slope
    return k + 1


@kernel(ordered=True, counted=False)
def _value(row: Any, z: Any) -> Any:
    """x, dx/dz, log dx/dz, and the derivative of log dx/dz in z."""
    rate = row[RATE]
    a = rate * z
    if not abs(a) < FARTHEST:
        return np.nan, np.nan, np.nan, np.nan
    log_slope = abs(a) + np.log1p(np.exp(-2.0 * abs(a))) - np.log(2.0)
    return row[CENTER] + np.sinh(a) / rate, np.cosh(a), log_slope, rate * np.tanh(a)


@kernel(ordered=True, counted=False)
def _inverse(row: Any, x: Any) -> Any:
    rate = row[RATE]
    return np.arcsinh(rate * (x - row[CENTER])) / rate


def are_valid(rows: np.ndarray, d: int) -> bool:
    """Whether rows give increasing functions."""
    return bool(np.all(rows[:, RATE] > 0.0))


def learn(rows: np.ndarray, training: Training) -> np.ndarray:
    """The rows that the map has next, learned from draws and from `rows`, those in use."""
    return tail_rows(learn_tails(tails_of(rows), training.points, training.scores, training.taken))


def describe(rows: np.ndarray, d: int) -> dict[str, np.ndarray]:
    """`tail_rate` (d,) is delta, 0 for a coordinate without heavy tails."""
    tails = tails_of(rows)
    found = np.zeros(d)
    found[tails.places] = tails.rates
    return {"tail_rate": found}


class Tails(NamedTuple):
    """The coordinates with heavy tails."""

    places: np.ndarray  # (b,) int64
    centers: np.ndarray  # (b,)
    rates: np.ndarray  # (b,)


_NO_TAILS = Tails(np.zeros(0, np.int64), np.zeros(0), np.zeros(0))


def tails_of(table: np.ndarray) -> Tails:
    """The tails of a map."""
    rows = table[table[:, KIND] == TAIL]
    return Tails(rows[:, OWN].astype(np.int64), rows[:, CENTER].copy(), rows[:, RATE].copy())


def tail_rows(tails: Tails) -> np.ndarray:
    """The rows of a map (b, COLUMNS)."""
    rows = np.zeros((tails.places.size, COLUMNS))
    rows[:, KIND] = TAIL
    rows[:, OWN], rows[:, CENTER], rows[:, RATE] = tails
    return rows


@np.errstate(all="ignore")  # the code refuses results that are not finite
def learn_tails(
    tails: Tails, points: np.ndarray, scores: np.ndarray, moved: np.ndarray | None = None
) -> Tails:
    """The coordinates with heavy tails, by draws and scores (n, d), the older ones first.

    A rate that is in use stays unless another one is clearly better. The coordinates `moved` stay as they
    are: a group moves them, and they look heavy-tailed because their scale varies.
    """
    n = len(points)
    if n < LEAST:
        return tails
    slope = tail_slopes(points, scores)
    suspects = np.flatnonzero(slope < SUSPECT)
    if tails.places.size:
        suspects = np.union1d(suspects, tails.places)
    if not suspects.size:
        return _NO_TAILS
    still = set() if moved is None else set(moved.tolist())
    taken: list[tuple[int, float, float]] = []
    for i in suspects.tolist():
        found = None if i in still else _coordinate(tails, i, points[:, i], scores[:, i])
        if found is not None:
            taken.append((i, *found))
    if not taken:
        return _NO_TAILS
    places, centers, rates = zip(*taken, strict=True)
    return Tails(np.array(places, np.int64), np.array(centers), np.array(rates))


@np.errstate(all="ignore")
def tail_slopes(points: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """The derivative (d,) of the divergence in delta² at 0, times 2 / variance, of draws and scores (n, d).

    It is 0 for every normal law, correlated ones too, where E[(s u)²] = V(s) V(u) + 2.
    """
    u, s = points - quantile(np.sort(points, axis=0), 0.5), scores - scores.mean(axis=0)
    squares = np.square(u)
    variance, information = squares.mean(axis=0), np.square(s).mean(axis=0)
    slopes = (np.square(s * u).mean(axis=0) - 2.0) / (information * variance)
    return np.asarray(slopes - np.square(squares).mean(axis=0) / (3.0 * np.square(variance)))


def may_have_tails(
    points: np.ndarray, scores: np.ndarray, slope: float = SUSPECT, power: float = POWER
) -> bool:
    """Whether `learn_tails` would try rates for any coordinate of draws and scores (n, d).

    It does if the slope of the coordinate is below `slope` and the mean of -s u grows by less than `power`.
    """
    for j in np.flatnonzero(tail_slopes(points, scores) < slope):
        _, spread, growth = shape_of(points[:, j], scores[:, j])
        if 0.0 < spread < np.inf and growth < power:
            return True
    return False


def _coordinate(tails: Tails, i: int, x: np.ndarray, s: np.ndarray) -> tuple[float, float] | None:
    """Centre and rate of one coordinate, from its draws and scores (n,); None if its tails are not heavy."""
    center, spread, growth = shape_of(x, s)
    if not (np.isfinite(spread) and spread > 0.0 and growth < POWER):
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
