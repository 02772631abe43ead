"""The law of a coordinate with one long and one short tail, learned from draws and scores.

The log of a scale often has an exponential tail on the left, where the data cannot tell the scale from 0, and
nearly no tail on the right, where they exclude it. Trajectories of one length are too short for the left side
or too long for the right one. With S(t) = log(1 + e^t)² / 2, which is 0 on one side and t²/2 on the other,

    x = z + sigma q omega (S(t) - S(t - l)),  t = sigma (z - k) / omega,                  (sigma = ±1)

is x = z on one side of the knot k. On the other side x grows like z², so that an exponential tail becomes a
normal one, as far as draws have been: beyond t = l the slope stays at 1 + q l. In z the log of a gamma
variable of any shape, or of a half-normal variable, is normal to a hundredth of the divergence.

Learning minimises log(V(z) V(s_z)) / 2, as tail.py does, but first it regresses z and s_z on the draws and
scores of the coordinates that correlate with them, and takes the variances of the residuals. For the metric
learns linear relations, and to bend one coordinate of a ridge does more harm than good.

A coordinate is a suspect if the derivative of the divergence in the strength q of a wide bend,

    E[u³] / (2 V(u)^(3/2)) - E[t² u] / (V(t) V(u)^½)    for draws u and scores t less their means,

is far from 0; its sign tells the side. The draws of a slow chain may be skew by chance, but the score at a
point does not depend on the chain. So the regression of the score on 1, u and u² must show the curvature of
a law with one long tail, too. Tails that decrease like a power are left to tail.py. The width of a bend is
half the spread of the draws. Knots and strengths are tried on a grid, which is fine enough: between its
points the divergence changes by less than its error. A bend reaches little farther than the draws.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..jit import kernel
from .map_table import APART, BEND, COLUMNS, KIND, KNOT, OWN, REACH, SIDE, STRENGTH, WIDTH
from .shape import LEAST, POWER, shape_of
from .training import Training

KINDS = (BEND,)

GAIN = 0.1  # a bend must decrease the divergence by at least this in all draws,
GAIN_DRAWS = 8.0  # by at least this over their number, and by a quarter of it in the older and newer half
STAY = 0.05  # a bend in use is replaced if another one decreases the divergence by this more
CURVED, STILL_CURVED = 4.0, 2.5  # least curvature of the score, in standard errors, of a new and a used bend
_MOST_NEWTON = 60  # steps; seven are enough, but for a point that is not finite they would never end
_CURVATURE = 5.0  # twice the second derivative of the divergence in q, for a normal law
# What the grid has: distances of knots from the median, towards the short tail, in spreads; and strengths.
_KNOTS = np.array([0.0, 0.5, 1.0, 1.5])
_STRENGTHS = np.array([0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0])
_BEYOND = 2.0  # a bend reaches so many widths farther than the last draw
_OTHERS, _RELATED = 6, 0.3  # most coordinates to regress on, and their least correlation


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
    scale = row[SIDE] * row[WIDTH]
    t = (z - row[KNOT]) / scale
    value, slope, second = bend(t, row[STRENGTH], row[REACH])
    x = row[KNOT]
    x += scale * value
    return x, slope, np.log(slope), second / slope / scale


@kernel(ordered=True, counted=False)
def _inverse(row: Any, x: Any) -> Any:
    scale = row[SIDE] * row[WIDTH]
    z = row[KNOT]
    z += scale * unbend((x - row[KNOT]) / scale, row[STRENGTH], row[REACH])
    return z


@kernel(ordered=True, counted=False)
def bend(t: Any, strength: Any, reach: Any) -> Any:
    """t + q (S(t) - S(t - l)), and its first and second derivatives."""
    near, near_1, near_2 = _half_square(t)
    far, far_1, far_2 = 0.0, 0.0, 0.0
    if reach < np.inf:
        far, far_1, far_2 = _half_square(t - reach)
    value, slope = t, 1.0
    value += strength * (near - far)
    slope += strength * (near_1 - far_1)
    return value, slope, strength * (near_2 - far_2)


@kernel(ordered=True, counted=False)
def unbend(y: Any, strength: Any, reach: Any) -> Any:
    """The t for which `bend` gives `y`, by Newton's method; from the first t here it comes from above."""
    t = y if y < 0.0 or strength == 0.0 else (np.sqrt(1.0 + 2.0 * strength * y) - 1.0) / strength
    if reach < np.inf:
        t = max(t, y / (1.0 + strength * reach))
    for _ in range(_MOST_NEWTON):
        value, slope, _ = bend(t, strength, reach)
        change = (value - y) / slope
        t -= change
        if not abs(change) > 1e-14 * (1.0 + abs(t)):
            break
    return t


@kernel(ordered=True, counted=False)
def _half_square(t: Any) -> Any:
    """S(t), and its first and second derivatives."""
    small = np.exp(-abs(t))
    soft, share = max(t, 0.0) + np.log1p(small), 1.0 / (1.0 + small)
    if t < 0.0:
        share *= small
    second = 0.0 + share * share
    second += soft * share * (1.0 - share)
    return 0.5 * soft * soft, soft * share, second


def are_valid(rows: np.ndarray, d: int) -> bool:
    """Whether rows give increasing functions."""
    return bool(
        np.all(rows[:, WIDTH] > 0.0)
        and np.all(rows[:, STRENGTH] >= 0.0)
        and np.all(rows[:, REACH] >= 0.0)
        and np.all(np.abs(rows[:, SIDE]) == 1.0)
    )


def learn(rows: np.ndarray, training: Training) -> np.ndarray:
    """The rows that the map has next, learned from draws and from `rows`, those in use."""
    return bend_rows(learn_bends(bends_of(rows), training.points, training.scores, training.taken))


def describe(rows: np.ndarray, d: int) -> dict[str, np.ndarray]:
    """`bend` (d,) is sigma q, 0 where there is no bend."""
    found = np.zeros(d)
    for one in bends_of(rows):
        found[one.place] = one.side * one.strength
    return {"bend": found}


class Bend(NamedTuple):
    """A coordinate with a bend."""

    place: int
    knot: float
    strength: float
    width: float
    side: float
    reach: float


def bends_of(table: np.ndarray) -> list[Bend]:
    """The bends of a map."""
    columns = [KNOT, STRENGTH, WIDTH, SIDE, REACH]
    return [
        Bend(int(row[OWN]), *(float(row[column]) for column in columns))
        for row in table[table[:, KIND] == BEND]
    ]


def bend_rows(bends: list[Bend], *, apart: bool = False) -> np.ndarray:
    """The rows of a map (b, COLUMNS); if `apart`, they belong to a field or to effects."""
    rows = np.zeros((len(bends), COLUMNS))
    rows[:, KIND], rows[:, APART] = BEND, apart
    for row, one in zip(rows, bends, strict=True):
        row[[OWN, KNOT, STRENGTH, WIDTH, SIDE, REACH]] = one
    return rows


@np.errstate(all="ignore")  # the code refuses results that are not finite
def learn_bends(bends: list[Bend], points: np.ndarray, scores: np.ndarray, others: np.ndarray) -> list[Bend]:
    """The bends that coordinates need, by draws and scores (n, d), the older ones first.

    A bend that is in use stays unless another one is clearly better. The coordinates `others` stay as they
    are, since another law moves them already.
    """
    n = len(points)
    if n < LEAST:
        return bends
    used = {one.place: one for one in bends}
    found = []
    for i, side in _suspects(points, scores, np.array(sorted(used), np.int64), others):
        one = _coordinate(used.get(i), i, side, points, scores)
        if one is not None:
            found.append(one)
    return found


def _suspects(
    points: np.ndarray, scores: np.ndarray, used: np.ndarray, others: np.ndarray
) -> list[tuple[int, float]]:
    """The coordinates to look at, and the sides of their long tails."""
    slopes = _slopes(points, scores)
    clear = np.square(slopes) > _clear(len(points))
    clear[used] = True
    clear[others] = False
    return [(int(i), float(np.sign(slopes[i]))) for i in np.flatnonzero(clear & np.isfinite(slopes))]


def _clear(n: int) -> float:
    """A coordinate is a suspect if the square of its slope from `n` draws is larger than this."""
    return _CURVATURE * max(0.5 * GAIN, GAIN_DRAWS / n)


@np.errstate(all="ignore")
def _slopes(points: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """The derivative (d,) of the divergence in the strength of a wide bend, for draws and scores (n, d)."""
    u, t = points - points.mean(axis=0), scores - scores.mean(axis=0)
    squares, products = np.square(u), np.square(t)
    variance, information = squares.sum(axis=0), products.sum(axis=0)
    root = np.sqrt(variance / len(points))
    cubes = (squares * u).sum(axis=0)
    return np.asarray(0.5 * cubes / (variance * root) - (products * u).sum(axis=0) / (information * root))


def may_have_bends(points: np.ndarray, scores: np.ndarray) -> bool:
    """Whether `learn_bends` would try bends of any coordinate of draws and scores (n, d)."""
    slopes = _slopes(points, scores)
    for j in np.flatnonzero(np.square(slopes) > _clear(len(points))):
        if np.sign(slopes[j]) * _score_curvature(points[:, j], scores[:, j]) > CURVED:
            return True
    return False


def _coordinate(
    used: Bend | None, i: int, side: float, points: np.ndarray, scores: np.ndarray
) -> Bend | None:
    """The bend of coordinate `i`, with its long tail on a `side`; None if it needs no bend."""
    x, s = np.ascontiguousarray(points[:, i]), np.ascontiguousarray(scores[:, i])
    n, half = len(x), len(x) // 2
    side = side if used is None else used.side
    if not side * _score_curvature(x, s) > (CURVED if used is None else STILL_CURVED):
        return None
    center, spread, growth = shape_of(x, s)
    if growth < POWER or not (np.isfinite(spread) and spread > 0.0):
        return None
    of_x, of_s = _basis(points, i), _basis(scores, i)
    plain, now = _divergence(x, s, of_x, of_s), np.inf
    if used is not None:
        now = _divergence(*undo_bend(x, s, *used[1:]), of_x, of_s)
        if now < min(plain, STAY):
            return used
    knots, width = center - side * spread * _KNOTS, 0.5 * spread
    values = _grid(x, s, side, knots, width, _STRENGTHS, of_x, of_s)
    values[~np.isfinite(values)] = np.inf
    k, q = np.unravel_index(int(values.argmin()), values.shape)
    if used is not None and now - values[k, q] < STAY and now < plain:
        return used
    last = unbend(float((side * (x - knots[k])).max()) / width, _STRENGTHS[q], np.inf)
    one = Bend(i, float(knots[k]), float(_STRENGTHS[q]), width, side, max(last, 0.0) + _BEYOND)
    least = max(GAIN, GAIN_DRAWS / n)
    if not plain - values[k, q] > least:
        return None
    z, s_z = undo_bend(x, s, *one[1:])
    for part in (slice(None, half), slice(half, None)):
        none = np.empty((len(x[part]), 0))
        decrease = _divergence(x[part], s[part], none, none) - _divergence(z[part], s_z[part], none, none)
        if not decrease > 0.25 * least:
            return None
    return one


def _basis(columns: np.ndarray, i: int) -> np.ndarray:
    """An orthonormal basis (n, k) of the columns, less their means, that correlate most with column `i`."""
    v = columns - columns.mean(axis=0)
    r = np.abs(v.T @ v[:, i]) / np.sqrt(np.square(v).sum(axis=0) * np.square(v[:, i]).sum())
    r[i] = 0.0
    r[~(r > _RELATED)] = 0.0
    strongest = np.argsort(-r, kind="stable")[: min(_OTHERS, np.count_nonzero(r))]
    return np.ascontiguousarray(np.linalg.qr(v[:, strongest])[0])


@np.errstate(all="ignore")
def _score_curvature(x: np.ndarray, s: np.ndarray) -> float:
    """The coefficient of x² in the regression of scores on 1, x and x² (n,), in its standard errors."""
    u, v = x - x.mean(), s - s.mean()
    squares = np.square(u)
    m2, m3, m4 = squares.mean(), (squares * u).mean(), np.square(squares).mean()
    s0, s1, s2 = np.square(v).mean(), (v * u).mean(), (v * squares).mean()
    own = m4 - m2 * m2 - m3 * m3 / m2  # mean square of x² after its regression on 1 and x
    with_it = s2 - s1 * m3 / m2
    rest = s0 - s1 * s1 / m2 - with_it * with_it / own
    return float(with_it / np.sqrt(own * max(rest, 1e-12 * s0) / len(x)))


@kernel(ordered=True)
def _rest(values: Any, basis: Any) -> Any:
    """The mean square of the residuals of values (n,) after their regression on 1 and a basis (n, k)."""
    n, k = basis.shape
    mean, total = 0.0, 0.0
    for row in range(n):
        mean += values[row]
    mean /= n
    for row in range(n):
        total += (values[row] - mean) ** 2
    for column in range(k):
        along = 0.0
        for row in range(n):
            along += basis[row, column] * (values[row] - mean)
        total -= along * along
    return total / n


@kernel(ordered=True)
def _divergence(z: Any, s: Any, of_z: Any, of_s: Any) -> Any:
    """log(V(z) V(s)) / 2, with the variances that the bases leave."""
    return 0.5 * np.log(_rest(z, of_z) * _rest(s, of_s))


@kernel(ordered=True)
def undo_bend(x: Any, s: Any, knot: Any, strength: Any, width: Any, side: Any, reach: Any) -> Any:
    """z and s_z (n,) under a bend."""
    z, s_z, scale = np.empty_like(x), np.empty_like(s), side * width
    for row in range(x.size):
        t = unbend((x[row] - knot) / scale, strength, reach)
        _, slope, second = bend(t, strength, reach)
        z[row] = knot + scale * t
        s_z[row] = s[row] * slope + second / slope / scale
    return z, s_z


@kernel(ordered=True)
def _grid(x: Any, s: Any, side: Any, knots: Any, width: Any, strengths: Any, of_x: Any, of_s: Any) -> Any:
    """The divergence for each knot and strength, for bends with an infinite reach."""
    values = np.empty((knots.size, strengths.size))
    for k in range(knots.size):
        for q in range(strengths.size):
            z, s_z = undo_bend(x, s, knots[k], strengths[q], width, side, np.inf)
            values[k, q] = _divergence(z, s_z, of_x, of_s)
    return values


@kernel(ordered=True)
def left_by_bends(
    x: Any, log_law: Any, knots: Any, strengths: Any, widths: Any, side: Any, reach: Any
) -> Any:
    """By how much a law is not normal under each of k bends, and the coefficients of the square, (k,) each.

    The law has the log densities (n,) at the points `x` (n,).
    """
    left, squares = np.empty(knots.size), np.empty(knots.size)
    for k in range(knots.size):
        left[k], squares[k] = _left_by_bend(x, log_law, knots[k], strengths[k], widths[k], side, reach)
    return left, squares


@kernel(ordered=True)
def _left_by_bend(x: Any, log_law: Any, knot: Any, strength: Any, width: Any, side: Any, reach: Any) -> Any:
    """The mean square of what a quadratic leaves of the log of a law under a bend, and its coefficient."""
    n, scale = x.size, side * width
    u, v = np.empty(n), np.empty(n)
    for i in range(n):
        t = unbend((x[i] - knot) / scale, strength, reach)
        u[i] = knot + scale * t
        v[i] = log_law[i] + np.log(bend(t, strength, reach)[1])
    mean_u, mean_v = u.mean(), v.mean()
    sd = np.sqrt(np.square(u - mean_u).mean())
    s, v = (u - mean_u) / sd, v - mean_v
    squares = s * s
    m3, own = (squares * s).mean(), (squares * squares).mean()
    own -= 1.0 + m3 * m3
    along, along_square = (v * s).mean(), (v * squares).mean()
    square = (along_square - m3 * along) / own
    slope = along - square * m3
    left = (v * v).mean() - slope * along - square * along_square
    return left, square / (sd * sd)
