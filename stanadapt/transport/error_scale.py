"""The law of coordinates that observations determine with errors of an unknown scale.

If y ~ N(X x, e^(2 v)), the coordinates x are normal given the log scale v of the errors, and all their
standard deviations are proportional to e^v. Then v has to follow |x|², which changes with every trajectory,
and draws of v are worse than those of x: of a regression with eight coefficients and 46 observations, half as
many effective draws. With the means c_i of the draws and m of v, the law

    x_i = c_i + e^(b (v - m)) (z_i - c_i)

makes z and v independent. b is 1 for a log scale, 1/2 for a log variance, -1/2 for a log precision, and
between these and 0 where a prior bounds x_i, too. If v varies much, group.py has the laws: a threshold
belongs to them.

The variance of a mean of effects has one part that is proportional to theirs, and one that is not. With the
log scale v of effects, and the share f of the latter where v is m, the factor is

    e^g = (f + (1 - f) e^(2 b (v - m)))^½.

fields/coefficient_widths.py finds these laws. Those that are learned here have f = 0, so that g is b (v - m).

The log determinant is the sum of g. A gradient costs one exponential for all coordinates that share v, b and
f, and a logarithm and another exponential where f is not 0.

Learning takes only scores, which are exact where draws are random. If x is normal given v, then with a
function f of v alone

    s_v = f(v) - sum_i b_i (s_i (x_i - c_i) + 1).

So the score of each v that may be such a scale is regressed on 1, v, v², v³ and one sum for each variable of
the program, over its coordinates. There is a law where f leaves a share of the score and the sums explain
nearly all of it; in the examples that the law is made for they leave some thousandths. If there are draws
enough, f may also be linear in the other scores.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..jit import kernel
from ..kinds import Integer, Real
from .grouping.detection import scale_candidates
from .grouping.regressions import orthonormalise
from .map_table import (
    APART,
    BETA,
    CENTER,
    COLUMNS,
    ERROR_SCALE,
    FLOOR,
    KIND,
    OWN,
    REFERENCE,
    ROWS,
    SCALE,
    SECOND,
    are_blocks,
    are_coordinates,
    first_row,
)
from .shape import LEAST
from .training import Training

KINDS = (ERROR_SCALE,)

# There is a law if sums explain more than the share WORTH of the score of v, and leave at most the share LEFT
# of what f(v) leaves; or, where they leave next to NOTHING, if they explain more than the share LITTLE. A law
# in use stays with half and twice of these: to come and go would keep warm-up from its end.
WORTH, LEFT = 0.02, 0.25
LITTLE, NOTHING = 0.001, 0.05
LEAST_SLOPE = 0.35  # a variable with a smaller b does not belong to the law
PLAIN, NEAR = (0.5, 1.0), 0.15  # b becomes ±1 or ±1/2 if it is nearer to it than this
WIDEST = 0.5  # largest standard deviation of b v: an error has three degrees of freedom at least
MOST_SCALES, MOST = 16, 2  # scales that are tried, and with a linear part of f, which takes long
_POWERS = 4  # of v in f, with the constant
_SPARE = 15  # a regression needs so many draws more than it has terms
_SHARED = [SCALE, APART, BETA, REFERENCE, FLOOR]  # columns in which the rows of a law are the same


@kernel(ordered=True, counted=False, late=True)
def into_x(table: Any, k: Any, z: Any, x: Any, log_det: Any) -> tuple[Real, Integer]:
    """Write x(z) of the block that begins at row `k`, where x has z or what tails and bends have made of it.

    Returns log |dx/dz| and the row after its last.
    """
    grown, _, after = _growth(table, k, x)
    factor = np.exp(grown)
    log_det += table[k, ROWS] * grown
    while k < after:
        i, center = int(table[k, OWN]), table[k, CENTER]
        x[i] = center + factor * (x[i] - center)
        k += 1
    return log_det, after


@kernel(ordered=True, counted=False, late=True)
def into_z(table: Any, k: Any, x: Any, z: Any) -> Integer:
    """Write z(x) of the block that begins at row `k`. Returns the row after its last."""
    grown, _, after = _growth(table, k, x)
    factor = np.exp(-grown)
    while k < after:
        i, center = int(table[k, OWN]), table[k, CENTER]
        z[i] = center + factor * (x[i] - center)
        k += 1
    return after


@kernel(ordered=True, counted=False, late=True)
def pull_back(table: Any, end: Any, z: Any, x: Any, score: Any) -> Integer:
    """Turn the score in x into the one in z, for the block that ends before row `end`.

    Returns its first row.
    """
    k = first_row(table, end)
    grown, slope, _ = _growth(table, k, x)
    factor, pull = np.exp(grown), table[k, ROWS]
    for row in range(k, end):
        i = int(table[row, OWN])
        pull += score[i] * (x[i] - table[row, CENTER])
        score[i] *= factor
    score[int(table[k, SCALE])] += slope * pull
    return k


@kernel(ordered=True, counted=False, late=True)
def score_in_x(table: Any, k: Any, z: Any, x: Any, score: Any) -> Integer:
    """Turn the score in z into the one in x, for the block that begins at row `k`.

    Returns the row after its last.
    """
    grown, slope, after = _growth(table, k, x)
    factor, pull = np.exp(-grown), table[k, ROWS]
    for row in range(k, after):
        i = int(table[row, OWN])
        score[i] *= factor
        pull += score[i] * (x[i] - table[row, CENTER])
    score[int(table[k, SCALE])] -= slope * pull
    return after


@kernel(ordered=True, counted=False)
def _growth(table: Any, k: Any, x: Any) -> Any:
    """g of the block that begins at row `k`, its derivative by v, and the row after its last."""
    first = table[k]
    slope, floor, after = first[BETA], first[FLOOR], k + int(first[ROWS])
    grown = slope * (x[int(first[SCALE])] - first[REFERENCE])
    if floor > 0.0:
        part = (1.0 - floor) * np.exp(2.0 * grown)
        grown = 0.5 * np.log(floor + part)
        slope *= part / (floor + part)
    return grown, slope, after


def are_valid(rows: np.ndarray, d: int) -> bool:
    """Whether blocks have all their rows, and no coordinate is its own scale."""
    floors = rows[:, FLOOR]
    return (
        are_coordinates(rows[:, SCALE], d)
        and are_blocks(rows, _SHARED)
        and bool(np.all((floors >= 0.0) & (floors < 1.0)))
    )


class ErrorScale(NamedTuple):
    """Coordinates with the scale e^g."""

    scale: int  # v
    slope: float  # b
    members: np.ndarray  # (m,) int64
    floor: float = 0.0  # f


def learn(rows: np.ndarray, training: Training) -> np.ndarray:
    """The rows that the map has next, learned from draws and from `rows`, those in use."""
    points = training.points
    if len(points) < LEAST:
        return rows
    return error_scale_rows(learn_error_scales(error_scales_of(rows), training), points)


@np.errstate(all="ignore")  # the code refuses results that are not finite
def learn_error_scales(used: list[ErrorScale], training: Training) -> list[ErrorScale]:
    """The laws that draws and scores ask for; `used` are those in use.

    Coordinates that another law moves may have this law before it, but none of them can be the scale. Scales
    of groups have no part in it: the law would hold in the middle of the draws, and not in the group's neck.
    """
    points, scores, variables = training.points, training.scores, training.variables
    heads = training.heads.tolist()
    scales = scale_candidates(points, scores, variables, {*training.taken.tolist(), *heads})
    limits = {law.scale: 2.0 for law in used}  # of laws in use they are wider by this factor
    if not training.new:
        scales = scales[np.isin(scales, list(limits))]
    number = np.unique(variables, return_inverse=True)[1]
    draws = _Draws(points, scores, scores * (points - points.mean(axis=0)) + 1.0, number)
    found: list[ErrorScale] = []
    for trial in _clear_trials(draws, scales, limits):
        v, done = trial.scale, {*heads, *(i for law in found for i in (law.scale, *law.members.tolist()))}
        slopes = _with_slopes_before(trial.slopes, number, [law for law in used if law.scale == v])
        wide = np.abs(slopes).max() * points[:, v].std() > WIDEST
        if v in done or wide or not trial.left_by(slopes) < LEFT * limits.get(v, 1.0):
            continue
        members = np.array([i for i in range(len(number)) if i != v and i not in done], np.int64)
        of = slopes[number[members]]
        found += [ErrorScale(v, float(b), members[of == b]) for b in np.unique(of) if b != 0.0]
    return found


def _clear_trials(draws: _Draws, scales: np.ndarray, limits: dict[int, float]) -> list[_Trial]:
    """The trials whose sums explain enough, the most promising first.

    The likeliest of the others are tried once more, with a linear part of f.
    """
    trials = _try(draws, _likeliest(draws, scales, list(limits)), linear=False)
    clear = [trial for trial in trials if trial.is_clear(limits.get(trial.scale, 1.0))]
    done = {trial.scale for trial in clear}
    rest = [trial for trial in trials if trial.scale not in done]
    rest = [trial for trial in rest if trial.promise * limits.get(trial.scale, 1.0) > LITTLE]
    likely = [trial.scale for trial in sorted(rest, key=lambda trial: -trial.promise)]
    again = _try(draws, np.array(likely[:MOST], np.int64), linear=True)
    clear += [trial for trial in again if trial.is_clear(limits.get(trial.scale, 1.0))]
    return sorted(clear, key=lambda trial: -trial.promise)


def _likeliest(draws: _Draws, scales: np.ndarray, used: list[int]) -> np.ndarray:
    """The scales to try. Where there are many, they are those in use, and those whose scores correlate most
    with the sum of all pulls.
    """
    if len(scales) <= MOST_SCALES:
        return scales
    sums, own = draws.pulls.sum(axis=1)[:, None] - draws.pulls[:, scales], draws.scores[:, scales]
    sums, own = sums - sums.mean(axis=0), own - own.mean(axis=0)
    related = np.square((sums * own).sum(axis=0)) / (np.square(sums).sum(axis=0) * np.square(own).sum(axis=0))
    related = np.where(np.isin(scales, used), np.inf, np.nan_to_num(related))
    return np.sort(scales[np.argsort(-related, kind="stable")[:MOST_SCALES]])


def _with_slopes_before(slopes: np.ndarray, number: np.ndarray, before: list[ErrorScale]) -> np.ndarray:
    """The slopes b (g,) of variables, plain; where they are not, those of laws `before` stay if near."""
    found = np.array([_plain(slope) for slope in slopes.tolist()])
    for law in before:
        own = np.unique(number[law.members])
        stay = own[(np.abs(slopes[own] - law.slope) < NEAR) & ~np.isin(np.abs(found[own]), PLAIN)]
        found[stay] = law.slope
    return found


class _Draws(NamedTuple):
    """Draws and scores, and what the score of v gets from each coordinate that has b = 1."""

    points: np.ndarray  # (n, d)
    scores: np.ndarray  # (n, d)
    pulls: np.ndarray  # (n, d) s_i (x_i - c_i) + 1
    number: np.ndarray  # (d,) the variable of each coordinate, counted from 0


class _Trial(NamedTuple):
    """The regression of the score of a coordinate on f and on sums over g variables."""

    scale: int
    promise: float  # the share of the score that the sums explain beside f
    left: float  # the share of what f leaves that they leave
    slopes: np.ndarray  # (g,) b of each variable
    triangle: np.ndarray  # (g, g + 1) the sums and the score without f, in a basis of the sums
    rest: float  # what the sums leave of the squares of the score

    def is_clear(self, wider: float) -> bool:
        """Whether the sums explain enough of the score, with limits that are wider by a factor."""
        least = LITTLE if self.left < NOTHING * wider else WORTH
        return self.promise * wider > least and self.left < LEFT * wider

    def left_by(self, slopes: np.ndarray) -> float:
        """The share of what f leaves of the score that remains with slopes b (g,)."""
        along = np.square(self.triangle[:, -1] + self.triangle[:, :-1] @ slopes).sum()
        return float((along + self.rest) / (np.square(self.triangle[:, -1]).sum() + self.rest))


def _try(draws: _Draws, scales: np.ndarray, *, linear: bool) -> list[_Trial]:
    """The trials of coordinates as scales; of none where there are too few draws.

    With `linear`, f may have a part that is linear in the scores of the other coordinates. Where x correlates
    with v, and where the means c are not right yet, the score of v has such a part.
    """
    (n, d), count = draws.points.shape, int(draws.number.max()) + 1
    of_f = _POWERS + (d if linear else 0)
    terms = of_f + count
    if not scales.size or n < terms + _SPARE:
        return []
    rows = np.empty((len(scales), terms + 1, n))
    v = draws.points[:, scales]
    u = ((v - v.mean(axis=0)) / v.std(axis=0)).T
    for power in range(_POWERS):
        rows[:, power] = u**power
    if linear:
        rows[:, _POWERS:of_f] = draws.scores.T
        rows[np.arange(len(scales)), _POWERS + scales] = 0.0
    sums = rows[:, of_f:terms]
    sums[:] = ((draws.number == np.arange(count)[:, None]).astype(float) @ draws.pulls.T)[None]
    sums[np.arange(len(scales)), draws.number[scales]] -= draws.pulls[:, scales].T
    rows[:, terms] = draws.scores[:, scales].T
    triangle, total = np.zeros((len(scales), terms + 1, terms + 1)), np.empty(len(scales))
    orthonormalise(rows, triangle, total)
    found = []
    for k, r in enumerate(triangle):
        own, rest = r[of_f:terms, of_f:], float(np.square(r[terms, terms]))
        alone = float(np.square(own[:, -1]).sum()) + rest
        together = rest / (n - terms)
        if not (np.isfinite(r).all() and alone > 0.0):
            continue
        slopes = -np.linalg.solve(own[:, :-1], own[:, -1])
        promise = (alone / (n - of_f) - together) * n / total[k]
        found.append(_Trial(int(scales[k]), promise, together * (n - of_f) / alone, slopes, own.copy(), rest))
    return found


def _plain(slope: float) -> float:
    """±1 or ±1/2 if b is near it, 0 if it is small or larger than it can be, else b with two digits."""
    size = abs(slope)
    if not LEAST_SLOPE < size < 1.0 + NEAR:
        return 0.0
    nearest = min(PLAIN, key=lambda plain: abs(size - plain))
    return float(np.sign(slope) * (nearest if abs(size - nearest) < NEAR else round(size, 2)))


def error_scales_of(rows: np.ndarray) -> list[ErrorScale]:
    """The laws that rows hold."""
    found = []
    for k in np.flatnonzero(rows[:, ROWS] > 0.0):
        part = rows[k : k + int(rows[k, ROWS])]
        scale, slope, floor = int(part[0, SCALE]), float(part[0, BETA]), float(part[0, FLOOR])
        found.append(ErrorScale(scale, slope, part[:, OWN].astype(np.int64), floor))
    return found


def error_scale_rows(laws: list[ErrorScale], points: np.ndarray) -> np.ndarray:
    """The rows of a map (r, COLUMNS), with the means of the draws `points` (n, d) for c and m."""
    tables = [np.zeros((0, COLUMNS))]
    for law in laws:
        rows = np.zeros((len(law.members), COLUMNS))
        rows[:, KIND], rows[:, OWN], rows[0, ROWS] = ERROR_SCALE, law.members, len(rows)
        rows[:, SCALE], rows[:, SECOND], rows[:, BETA] = law.scale, -1, law.slope
        rows[:, FLOOR] = law.floor
        rows[:, REFERENCE] = points[:, law.scale].mean()
        rows[:, CENTER] = points[:, law.members].mean(axis=0)
        tables.append(rows)
    return np.concatenate(tables)


def describe(rows: np.ndarray, d: int) -> dict[str, np.ndarray]:
    """What the law does to each coordinate, as arrays (d,) for results.

    `error_scale` is the index of v, -1 for a coordinate that is not moved, and `error_slope` is b, else 0.
    """
    scale, slope = np.full(d, -1), np.zeros(d)
    for law in error_scales_of(rows):
        scale[law.members], slope[law.members] = law.scale, law.slope
    return {"error_scale": scale, "error_slope": slope}
