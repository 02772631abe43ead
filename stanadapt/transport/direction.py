"""The law of a vector that a program uses for its direction alone, as a unit_vector in Stan.

Stan writes a unit vector as u = x / |x|, and gives x (n,) the density exp(-|x|² / 2), so that lengths are
independent of directions. Where data tell the direction, draws of x lie in a cone: across it they are as
narrow as x is short, and steps must be so short that they fit its tip. With

    x = |z|^(p - 1) z

z has the same direction, and the length |z| = |x|^(1/p) varies p times less in proportion. So z stays away
from the tip, and is nearly normal. The matrix dx/dz has the eigenvalue p |z|^(p - 1) once, and |z|^(p - 1)
n - 1 times.

Scores tell such vectors wholly: since the density depends on the length in this way alone,

    x . s = -|x|²

in every draw. Coordinates that are normal a priori, and that no data are about, obey this too. So there is
a law only where directions lie close together.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any, NamedTuple

import numpy as np

from ..jit import kernel
from ..kinds import Integer, Real
from .map_table import COLUMNS, DIRECTION, KIND, LENGTH_POWER, OWN, ROWS, are_blocks, first_row
from .shape import LEAST
from .training import Training

KINDS = (DIRECTION,)

_EXACT = 1e-7  # of |x|², that x . s may be off
# There is a law if the mean of directions is at least as long as if coordinates across it had this variance.
# It stays while it is as long as with the other one.
_CLOSE, _CLOSE_TO_STAY = 0.08, 0.2
_NARROW = 0.16  # the standard deviation of log |z| that powers aim at, where |x| has a chi law
_LARGEST_POWER = 4.0
_LARGEST = 10  # coordinates: the length of a vector of more varies little


@kernel(ordered=True, counted=False, late=True)
def into_x(table: Any, k: Any, z: Any, x: Any, log_det: Any) -> tuple[Real, Integer]:
    """Write x(z) of the vector that begins at row `k`. Returns log |dx/dz| and the row after its last."""
    after, power = k + int(table[k, ROWS]), table[k, LENGTH_POWER]
    log_length = _log_length(table, k, after, z)
    factor = np.exp((power - 1.0) * log_length)
    for row in range(k, after):
        i = int(table[row, OWN])
        x[i] = factor * z[i]
    return log_det + (np.log(power) + (after - k) * (power - 1.0) * log_length), after


@kernel(ordered=True, counted=False, late=True)
def into_z(table: Any, k: Any, x: Any, z: Any) -> Integer:
    """Write z(x) of the vector that begins at row `k`. Returns the row after its last."""
    after, power = k + int(table[k, ROWS]), table[k, LENGTH_POWER]
    factor = np.exp((1.0 / power - 1.0) * _log_length(table, k, after, x))
    for row in range(k, after):
        i = int(table[row, OWN])
        z[i] = factor * x[i]
    return after


@kernel(ordered=True, counted=False, late=True)
def pull_back(table: Any, end: Any, z: Any, x: Any, score: Any) -> Integer:
    """Turn the score in x into the one in z, for the vector that ends before row `end`.

    With the unit vector e of z, it is |z|^(p - 1) (s + (p - 1) (e . s) e) + n (p - 1) e / |z|. Returns the
    vector's first row.
    """
    k = first_row(table, end)
    power = table[k, LENGTH_POWER]
    length = np.exp(_log_length(table, k, end, z))
    factor, along = length ** (power - 1.0), _along(table, k, end, z, score) / length
    more = (power - 1.0) * (factor * along + (end - k) / length) / length
    for row in range(k, end):
        i = int(table[row, OWN])
        score[i] = factor * score[i] + more * z[i]
    return k


@kernel(ordered=True, counted=False, late=True)
def score_in_x(table: Any, k: Any, z: Any, x: Any, score: Any) -> Integer:
    """Turn the score in z into the one in x, for the vector that begins at row `k`.

    Returns the row after its last.
    """
    after, power = k + int(table[k, ROWS]), table[k, LENGTH_POWER]
    length = np.exp(_log_length(table, k, after, z))
    along = _along(table, k, after, z, score) / length
    own = (after - k) * (power - 1.0) / length  # along z, from the determinant
    more, factor = ((along - own) / power - along) / length, length ** (1.0 - power)
    for row in range(k, after):
        i = int(table[row, OWN])
        score[i] = factor * (score[i] + more * z[i])
    return after


@kernel(ordered=True, counted=False)
def _log_length(table: Any, k: Any, after: Any, z: Any) -> Any:
    total = 0.0
    for row in range(k, after):
        value = z[int(table[row, OWN])]
        total += value * value
    return 0.5 * np.log(total)


@kernel(ordered=True, counted=False)
def _along(table: Any, k: Any, after: Any, z: Any, score: Any) -> Any:
    total = 0.0
    for row in range(k, after):
        i = int(table[row, OWN])
        total += z[i] * score[i]
    return total


def are_valid(rows: np.ndarray, d: int) -> bool:
    """Whether vectors have all their rows, and powers that are over 1."""
    return are_blocks(rows, [LENGTH_POWER], least=2) and bool(np.all(rows[:, LENGTH_POWER] > 1.0))


class Direction(NamedTuple):
    """A vector of which the direction alone matters."""

    own: np.ndarray  # (n,) int64
    power: float  # p


def learn(rows: np.ndarray, training: Training) -> np.ndarray:
    """The rows that the map has next, learned from draws and from `rows`, those in use."""
    if len(training.points) < LEAST:
        return rows
    used = {tuple(law.own.tolist()) for law in directions_of(rows)}
    found = [
        law
        for law in learn_directions(training.points, training.scores, training.variables, used)
        if (training.new or tuple(law.own.tolist()) in used) and not np.isin(law.own, training.taken).any()
    ]
    return direction_rows(found)


@np.errstate(all="ignore")  # the code refuses what is not finite
def learn_directions(
    points: np.ndarray,
    scores: np.ndarray,
    variables: np.ndarray,
    used: Set[tuple[int, ...]] = frozenset(),
) -> list[Direction]:
    """The vectors that draws and scores in x (n, d) tell, each of coordinates of one of the `variables`.

    Those that are `used` stay though their directions vary more.
    """
    squares, pulls = np.square(points), points * scores
    order, found = np.argsort(variables, kind="stable"), []
    for own in np.split(order, np.flatnonzero(np.diff(variables[order])) + 1):
        if len(own) < 2 or not _is_exact(squares[:, own], pulls[:, own], len(own)):
            continue
        for n in range(2, min(len(own), _LARGEST) + 1):
            if len(own) % n == 0 and _is_exact(squares[:, own], pulls[:, own], n):
                found += [
                    Direction(part, _power(n))
                    for part in own.reshape(-1, n)
                    if _is_close(points[:, part], tuple(part.tolist()) in used)
                ]
                break
    return found


def _is_exact(squares: np.ndarray, pulls: np.ndarray, n: int) -> bool:
    """Whether x . s is -|x|² for every `n` coordinates and in each draw."""
    lengths, along = (each.reshape(len(each), -1, n).sum(axis=2) for each in (squares, pulls))
    return bool((np.abs(along + lengths) <= _EXACT * lengths).all())


def _is_close(x: np.ndarray, is_used: bool) -> bool:
    """Whether the directions of vectors (k, n) are close together."""
    directions = x / np.sqrt(np.square(x).sum(axis=1, keepdims=True))
    resultant = np.sqrt(np.square(directions.mean(axis=0)).sum())
    limit = _CLOSE_TO_STAY if is_used else _CLOSE
    return bool(1.0 - resultant < 0.5 * limit * (x.shape[1] - 1))


def _power(n: int) -> float:
    """p for a vector of `n` coordinates: log |x| has half the deviation of the log of a gamma variable."""
    shape, variance = (0.5, np.pi**2 / 2.0) if n % 2 else (1.0, np.pi**2 / 6.0)
    while shape < 0.5 * n:
        variance -= 1.0 / shape**2
        shape += 1.0
    return float(min(0.5 * np.sqrt(variance) / _NARROW, _LARGEST_POWER))


def directions_of(rows: np.ndarray) -> list[Direction]:
    """The vectors that these rows of a map hold."""
    firsts = np.flatnonzero(rows[:, ROWS] > 0.0)
    return [
        Direction(rows[k : k + int(rows[k, ROWS]), OWN].astype(np.int64), float(rows[k, LENGTH_POWER]))
        for k in firsts
    ]


def direction_rows(directions: list[Direction]) -> np.ndarray:
    """The rows of a map, one for each coordinate."""
    parts = [np.empty((0, COLUMNS))]
    for own, power in directions:
        rows = np.zeros((len(own), COLUMNS))
        rows[:, KIND], rows[:, OWN], rows[:, LENGTH_POWER] = DIRECTION, own, power
        rows[0, ROWS] = len(own)
        parts.append(rows)
    return np.concatenate(parts)


def describe(rows: np.ndarray, d: int) -> dict[str, np.ndarray]:
    """`direction_power` (d,) is p, 0 for a coordinate that belongs to no such vector."""
    found = np.zeros(d)
    found[rows[:, OWN].astype(np.int64)] = rows[:, LENGTH_POWER]
    return {"direction_power": found}
