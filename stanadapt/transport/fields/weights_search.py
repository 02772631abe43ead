"""Finding weights (weights.py): which coordinates are weights, and how their scales depend on the others.

Where all weights are 0, the score of each is e^(a_k + log f / 2) (b_k - G_k g), and their negative Hessian is
I + A D A. So one score at a point where a head has moved tells how all scales have changed, to all digits,
and the product of the Hessian with one vector tells log f, and whether the law holds. A coordinate for which
it holds, and which changes scales, is a head. Any other one whose derivative is mixed with those of the
weights is a coefficient: it belongs to the law if it is one of few, and is among the g otherwise.

How scales depend on a head is seen at some points along it. Scores with several heads moved at once tell
which of the forms of weight_scales.py is right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..composition import into_x
from ..weights import ALL, ERROR, LIMITS, NO_LIMIT
from ..weights_table import Weights, weights_rows
from .effects_fit import blocks_at
from .effects_search import climb_beside, judge_law
from .head_bends import MOST_TO_MODE, climb
from .probes import Evaluate, ScaledDensity, axes, have_ties
from .weight_scales import (
    CLOSE,
    SAME,
    Along,
    Scales,
    largest_error,
    line_through,
    shares_of_variance,
    sums_of_curves,
    with_limits,
    without_limits,
)

LEAST, MOST = 5, 128  # weights of a variable, and weights and coefficients of the law
MOST_OTHERS = 200  # coordinates beside the weights
_LEAST_ENTRY, _NEIGHBOURS = 1e-7, 3  # of a column, beside its diagonal; those of a series, with its own
# Weights are tied if so many entries of D, as correlations, are not 0. Of weights with smaller scales than
# this share of the largest, differences tell none.
_TIED, _CORRELATED, _SEEN = 0.3, 1e-4, 1e-3
_MANY = 16  # weights of one scale that this law costs too much for
FEW = 10  # entries of a variable whose coefficients belong to the law
# Along a head, in steps: the first ones tell whether a function is a line. A step is a unit of the head within
# these limits: units of early draws are small, and log scales have a scale of their own. Heads of one weight
# move farther, since a small scale is far from its upper limit.
_STEPS_OF_HEADS = 0.4, 0.6
_ENDS = np.array([-3.0, 1.0, 4.0])
_GRID = np.array([-8.0, -5.5, -4.0, -3.0, -2.25, -1.5, -0.75, 0.0, 0.75, 1.5, 2.25, 3.0, 4.0, 5.5, 8.0])
_BEYOND = np.array([-20.0, -15.0, -11.0, 11.0, 15.0, 20.0])
_ENOUGH, _FEWEST = 2, 4  # more points than this tell a line; those of a curve
_MOVE = 0.7  # of a head, to tell the prior of coefficients from data
_APART = 1e-3  # of points whose difference is a slope, in steps
_WRONG = 1e-4  # share of a product with the Hessian that a law may leave
_JOINT, _REACH = 8, 2.0  # points at which all heads have moved, and how far these move, in steps
_UNMOVED = 1e-9  # a smaller change of a log scale is none; but a parameter alone may be a limit that is far off
_MIXED = 1e-6  # a smaller mixed derivative, beside the largest, is none
_STEPS, _NEAR = 8, 1e-6  # of Newton's method, to the mode of weights, and the decrement at its end
_FAINT = 1e-3  # what data tell of a weight is lost in differences below this, where its prior tells 1
_ALONG, _MOVES = 4.0, 4  # how far heads move along lines to see it, and how often
_FAR = 3.0  # units from which on heads are not where the law has been fitted


def find_weights(
    density: ScaledDensity,
    density_in: Callable[[np.ndarray], Evaluate],
    x: np.ndarray,
    variables: np.ndarray,
    *,
    alone: bool,
) -> tuple[np.ndarray, np.ndarray] | None:
    """The rows of a map with the law of weights, and the scales (d,) of all coordinates in it; None if there
    are no weights, or if they have one scale and are so many that axes (rotation.py) are a cheaper law.

    `x` (d,) is in units, as `density` is; `density_in` gives the density in the coordinates of a map.
    `variables` (d,) are the numbers of the variables that coordinates belong to. If weights are to be
    `alone`, there are none beside other variables that are large and not independent of them.
    """
    for weights, at in _candidates(density, x * density.unit, variables):
        law = _fit(density, at, weights, variables)
        if law is not None:
            break
    else:
        return None
    x = at
    last = False
    while not ((alone and len(law.coefficients)) or _has_axes(law)):
        rows = weights_rows(law, 0)
        inner, middle, top = climb_beside(density, density_in(rows), x, law.own)
        if last or not np.abs((middle - x) / density.unit)[law.heads].max() > _FAR:
            return _judge(density, inner, middle, top, law)
        density.gradients += inner.gradients
        into_x(rows, middle, x)
        # Once more, where the heads are; if no law is seen there, as where a limit of scales is far off, the
        # first one is judged.
        law, last = _fit(density, x, weights, variables) or law, True
    return None


def _judge(
    density: ScaledDensity, inner: ScaledDensity, middle: np.ndarray, top: float, law: Weights
) -> tuple[np.ndarray, np.ndarray] | None:
    """The rows of the law, with bends of heads that all weights have in common, and the scales (d,) of all
    coordinates, if the law makes weights standard normal; the other arguments are those of `judge_law`.
    """
    shared = np.unique([curve.head for curve in law.curves if curve.target in (ALL, LIMITS)]).astype(np.int64)
    judged = judge_law(density, inner, middle, top, law.own, shared)
    density.gradients += inner.gradients
    if judged is None:
        return None
    curves = [curve._replace(middle=float(middle[curve.head])) for curve in law.curves]
    bends, scale, _ = judged
    return np.concatenate((weights_rows(law._replace(curves=curves), density.gradients), bends)), scale


def _has_axes(law: Weights) -> bool:
    """Whether there are many weights, all of one scale."""
    many = np.count_nonzero(law.is_weight) > _MANY
    one_scale = all(curve.target < 0 for curve in law.curves) and law.offsets[1].min() >= NO_LIMIT
    return bool(many and one_scale)


def _candidates(
    density: ScaledDensity, x: np.ndarray, variables: np.ndarray
) -> list[tuple[np.ndarray, np.ndarray]]:
    """The coordinates of all variables that may be weights, and those of each of them alone, with the points
    (d,) at which they are: variables with a standard normal prior that the data tie.

    These are at `x` (d,), or where all else is at its highest with weights at 0: far from there, data that
    are not normal may have a Hessian with a negative eigenvalue.
    """
    counts, found = np.bincount(variables), []
    for number in np.flatnonzero((counts >= LEAST) & (counts <= MOST)):
        own, at_zero = np.flatnonzero(variables == number), x.copy()
        at_zero[own] = 0.0
        if not have_ties(density, at_zero / density.unit, own, _NEIGHBOURS + 1, _LEAST_ENTRY):
            continue
        if _have_data(density, at_zero, own):
            found.append((own, x))
        else:
            others = np.setdiff1d(np.arange(x.size), own)
            z, _ = climb(density, at_zero / density.unit, others, np.eye(len(others)), MOST_TO_MODE)
            if _have_data(density, z * density.unit, own):
                found.append((own, z * density.unit))
    if len(found) > 1:
        found.insert(0, (np.concatenate([own for own, _ in found]), x))
    return [(own, at) for own, at in found if len(own) <= MOST and x.size - len(own) <= MOST_OTHERS]


def _have_data(density: ScaledDensity, x: np.ndarray, own: np.ndarray) -> bool:
    """Whether the negative Hessian of the coordinates `own` (n,) at `x` (d,) may be I + A D A."""
    data = blocks_at(density, own[None], x)[0] - np.eye(len(own))
    return bool(np.isfinite(data).all()) and _is_of_data(data)


def _is_of_data(matrix: np.ndarray) -> bool:
    """Whether a matrix (K, K) may be A D A: it has no negative eigenvalue, and many entries are not 0, in
    contrast to that of effects of groups.
    """
    values, size = np.linalg.eigvalsh(matrix), np.sqrt(np.maximum(np.diag(matrix), 0.0))
    if not values[0] > -_WRONG * values[-1] or not values[-1] > 0.0:
        return False
    seen = size > _SEEN * size.max()
    tied = np.abs(matrix) > _CORRELATED * np.outer(size, size)
    return bool(np.mean(tied[np.ix_(seen, seen)]) > _TIED)


def _fit(density: ScaledDensity, x: np.ndarray, weights: np.ndarray, variables: np.ndarray) -> Weights | None:
    """The law around the mode of `weights` and coefficients given all else, as at `x` (d,)."""
    space = _WeightSpace(density, x, weights, variables)
    if not space.is_possible():
        return None
    heads, mixed = space.roles()
    scales = space.scales(heads) if heads else None
    if scales is None:
        return None
    few = np.bincount(variables)[variables[mixed]] <= FEW
    own = np.concatenate((weights, mixed[few]))
    if len(own) > MOST:
        return None
    return _around_the_mode(density, x, own, len(weights), mixed[~few], scales)


class _Head(NamedTuple):
    """A coordinate that scales depend on."""

    place: int
    moves: np.ndarray  # (K,) whether it may change the scale of each weight
    moves_error: bool  # whether it changes log f


def _groups_of(heads: list[_Head]) -> list[list[_Head]]:
    """The heads in groups that may move at once: no two of a group change the same scale, or log f.

    A horseshoe with 80 weights has 80 scales of one weight each, and points along one of them tell all.
    """
    groups: list[tuple[list[_Head], np.ndarray]] = []
    for head in heads:
        moved = np.append(head.moves, head.moves_error)
        for group, taken in groups:
            if not (taken & moved).any():
                group.append(head)
                taken |= moved
                break
        else:
            groups.append(([head], moved.copy()))
    return [group for group, _ in groups]


class _WeightSpace:
    """What scores say where all weights are 0."""

    def __init__(
        self, density: ScaledDensity, x: np.ndarray, weights: np.ndarray, variables: np.ndarray
    ) -> None:
        self.density, self.weights = density, weights
        self._is_alone = np.bincount(variables)[variables] == 1
        self.x = x.copy()
        self.x[weights] = 0.0
        self.unit, self.step = density.unit, np.clip(density.unit, *_STEPS_OF_HEADS)
        self.score = self._scores(self.x[None])[0]
        block = blocks_at(density, weights[None], self.x)[0]
        self.data = block - np.eye(len(weights))
        signs = np.random.default_rng(5).choice([-1.0, 1.0], len(weights))  # no random numbers of the chain
        self._probe = signs / np.sqrt(np.abs(np.diag(block)))

    def is_possible(self) -> bool:
        """Whether the Hessian is that of a standard normal prior and of data."""
        if not (np.isfinite(self.data).all() and np.isfinite(self.score).all() and np.all(self.score != 0.0)):
            return False
        return _is_of_data(self.data)

    def _scores(self, points: np.ndarray) -> np.ndarray:
        """The scores (n, K) of weights at points (n, d), NaN where there are none."""
        logp, scores = self.density.at_all(points / self.unit)
        found = (scores / self.unit)[:, self.weights]
        found[~np.isfinite(logp)] = np.nan
        return np.asarray(found)

    def changes(self, points: np.ndarray, *, with_error: bool) -> tuple[np.ndarray, np.ndarray]:
        """How much log scales (n, K) and log f (n,) differ at points (n, d) from those at `x`; NaN where the
        law does not hold. Without `with_error` log f is taken to be the same.
        """
        change = self._log_ratios(self._scores(points))
        return self._apart(points, change) if with_error else (change, np.zeros(len(points)))

    def _log_ratios(self, scores: np.ndarray) -> np.ndarray:
        """The changes of log s + log f (n, K) from those at `x`, by scores (n, K); NaN where signs differ."""
        ratios = scores / self.score
        return np.asarray(np.log(np.where(ratios > 0.0, ratios, np.nan)))

    def _apart(self, points: np.ndarray, change: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The changes of log s (n, K) and of log f (n,) at points (n, d), from those of their sums (n, K)."""
        direction = np.zeros(self.x.size)
        direction[self.weights] = self._probe
        products = self.density.curvatures(
            points / self.unit, np.tile(direction / self.unit, (len(points), 1))
        )
        products = (products / self.unit)[:, self.weights] - self._probe
        scales = np.exp(change)  # s f, so that the data's part is this, less a factor f
        parts = scales * (scales * self._probe @ self.data)
        f = np.square(parts).sum(axis=1) / (parts * products).sum(axis=1)
        size = np.abs(self._probe)  # a weight with much larger data than the others hides none of them then
        left = np.linalg.norm((products - parts / f[:, None]) * size, axis=1)
        holds = (f > 0.0) & (left < _WRONG * np.linalg.norm(products * size, axis=1))
        log_f = np.log(np.where(holds, f, np.nan))
        return change - log_f[:, None], log_f

    def roles(self) -> tuple[list[_Head], np.ndarray]:
        """The heads, and the coordinates whose derivatives are mixed with those of weights."""
        others = np.setdiff1d(np.arange(self.x.size), self.weights)
        points = np.tile(self.x, (len(others), 1))
        points[np.arange(len(others)), others] += self.unit[others]
        scores = self._scores(points)
        change, log_f = self._apart(points, self._log_ratios(scores))
        moved = np.abs(scores - self.score)
        least = _MIXED * np.nanmax(moved, initial=0.0)
        heads, mixed = [], []
        for k, c, log_value, most in zip(others, change, log_f, moved.max(axis=1), strict=True):
            if not most > least:
                continue
            is_changed = max(np.abs(c).max(), abs(log_value)) > SAME
            if np.isfinite(log_value) and np.isfinite(c).all() and is_changed:
                moves = (np.abs(c) > _UNMOVED) | self._is_alone[k]
                heads.append(_Head(int(k), moves, bool(abs(log_value) > SAME)))
            else:
                mixed.append(k)
        return heads, np.array(mixed, np.int64)

    def scales(self, heads: list[_Head]) -> Scales | None:
        """How log scales and log f depend on all heads; None where they are no sums of functions of one."""
        along: dict[int, Along] = {}
        for group in _groups_of(heads):
            of_group = self._along(group)
            if of_group is None:
                return None
            along |= of_group
        places = [head.place for head in heads]
        joint = np.tile(self.x, (_JOINT, 1))
        rng = np.random.default_rng(7)
        moves = rng.uniform(-_REACH, _REACH, (_JOINT, len(heads)))
        joint[:, places] += moves * self.step[places]
        truth = self.changes(joint, with_error=any(head.moves_error for head in heads))
        found = [
            form([along[place] for place in places], self.x)
            for form in (sums_of_curves, with_limits, shares_of_variance)
        ]
        off = [largest_error(one, joint, truth, np.diag(self.data)) for one in found]
        return found[int(np.argmin(off))] if min(off) < CLOSE else None

    def _along(self, heads: list[_Head]) -> dict[int, Along] | None:
        """Log scales and log f along each of some heads, none of which moves what another one does."""
        far = _BEYOND if all(head.moves.sum() == 1 for head in heads) else _BEYOND[:0]
        found, bent = {}, []
        for head, (away, values) in zip(heads, self._points(heads, np.append(_ENDS, far)), strict=True):
            known = np.isfinite(values).all(axis=1)
            line = line_through(away[known], values[known]) if known.sum() > _ENOUGH else None
            if line is None:
                bent.append(head)
            else:
                found[head.place] = Along(head.place, np.zeros(1), np.zeros((1, len(line))), line[None])
        if not bent:
            return found
        grid = np.sort(np.append(_GRID, far))
        here, below, above = (self._points(bent, grid + side * _APART) for side in (0, -1, 1))
        for head, (away, values), (_, low), (_, high) in zip(bent, here, below, above, strict=True):
            slopes = (high - low) / (2.0 * _APART * self.step[head.place])
            known = np.isfinite(values).all(axis=1) & np.isfinite(slopes).all(axis=1)
            if np.count_nonzero(known) < _FEWEST:
                return None
            found[head.place] = Along(head.place, away[known], values[known], slopes[known])
        return found

    def _points(self, heads: list[_Head], moves: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """How far (n,) each of the heads has moved, and log scales and log f (n, K + 1) that it moves there,
        NaN where not known.
        """
        points, places = np.tile(self.x, (len(moves), 1)), [head.place for head in heads]
        points[:, places] += moves[:, None] * self.step[places]
        change, log_f = self.changes(points, with_error=any(head.moves_error for head in heads))
        found = []
        for head in heads:
            errors = log_f if head.moves_error else np.zeros(len(moves))
            own = np.column_stack((np.where(head.moves, change, 0.0), errors))
            found.append((moves * self.step[head.place], own))
        return found


def _around_the_mode(
    density: ScaledDensity, x: np.ndarray, own: np.ndarray, n_weights: int, given: np.ndarray, scales: Scales
) -> Weights | None:
    """The law with the data's precision at the mode of the coordinates `own` (K,), given all else."""
    x, unit, k = x.copy(), density.unit, len(own)
    is_weight, of_prior = np.arange(k) < n_weights, _prior(density, x, own, n_weights, scales)
    if of_prior is None:
        return None
    prior = np.diag(of_prior[0])
    for _ in range(_STEPS):
        matrix = blocks_at(density, own[None], x)[0]
        logp, score = density(x / unit)
        score = (score / unit)[own]
        if not (np.isfinite(matrix).all() and np.isfinite(logp)):
            return None
        values, vectors = np.linalg.eigh(matrix - prior)
        data = (vectors * np.maximum(values, 0.0)) @ vectors.T
        move = np.linalg.solve(prior + data, score)
        gain = float(move @ score)
        if gain < _NEAR * k:
            break
        for share in (1.0, 0.5, 0.25, 0.1, 0.03):
            there = x.copy()
            there[own] += share * move
            if density(there / unit)[0] > logp:
                break
        else:
            return None
        x = there
    else:
        return None
    slopes = np.zeros((k, 0))
    if len(given):
        columns = density.curvatures(x / unit, axes(x.size, given))
        slopes = (columns / unit / unit[given][:, None])[:, own].T
        if not np.isfinite(slopes).all():
            return None
    offsets, norms = without_limits(k), np.zeros(k)
    offsets[:, :n_weights], norms[:n_weights] = scales.offsets, scales.norms
    law = Weights(own, is_weight, of_prior, offsets, norms, data, score, given, slopes, scales.curves)
    whole = _precision(density, x, law)
    if whole is None:
        return None
    pulls = score + (prior + whole) @ x[own] - of_prior[1] + slopes @ x[given]
    return law._replace(precision=whole, pulls=pulls)


def _precision(density: ScaledDensity, x: np.ndarray, law: Weights) -> np.ndarray | None:
    """D (K, K) of a law that has it from differences at `x` (d,); None where these do not tell it.

    Where a scale is small, D is lost there in the prior's part of the Hessian, and would be far too large
    where the scale is not. So heads move to where such scales are larger, and weights with them so that the
    linear predictor, and D with it, stays the same.
    """
    data = law.precision
    weak = law.is_weight & ~(np.diag(data) > _FAINT)
    if not weak.any():
        return data
    heads = law.heads
    here, log_f = law.log_scales(x[heads])
    theta = x[heads]
    for _ in range(_MOVES):
        theta = _where_scales_are_large(law, theta, weak)
        there, log_f_there = law.log_scales(theta)
        point, gain = x.copy(), there - here
        point[heads], point[law.own] = theta, x[law.own] * np.exp(-gain)
        matrix = blocks_at(density, law.own[None], point)[0] - np.diag(law.prior[0])
        if not np.isfinite(matrix).all():
            return None
        if np.all(np.diag(matrix)[weak] > _FAINT):
            break
    else:
        return None
    factor = np.exp(-gain - 0.5 * (log_f_there - log_f))
    seen = np.where(weak[:, None] | weak, factor[:, None] * matrix * factor, data)
    size = np.sqrt(np.maximum(np.diag(seen), 1e-300))
    values, vectors = np.linalg.eigh(seen / np.outer(size, size))
    return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T * np.outer(size, size))


def _where_scales_are_large(law: Weights, theta: np.ndarray, weak: np.ndarray) -> np.ndarray:
    """A point of the heads, from `theta` (m,), at which the scales of the `weak` weights (K,) are larger."""
    theta = theta.copy()
    places: dict[int, np.ndarray] = {}
    for curve in law.curves:
        here = theta[np.searchsorted(law.heads, curve.head)]
        ends = curve.at if len(curve.at) > 1 else here + np.array([-_ALONG, _ALONG])
        places[curve.head] = np.union1d(places.get(curve.head, ends), ends)
    for place, head in enumerate(law.heads):
        trials = np.tile(theta, (len(places[head]) + 1, 1))
        trials[1:, place] = places[head]
        theta = trials[int(np.argmax([law.log_scales(trial)[0][weak].sum() for trial in trials]))]
    return theta


def _prior(
    density: ScaledDensity, x: np.ndarray, own: np.ndarray, n_weights: int, scales: Scales
) -> np.ndarray | None:
    """E and h (2, K): the precision and the score of the prior, at 0, of weights and coefficients.

    Those of coefficients are told by what does not change with log f. Where nothing changes it, they are 0,
    and count as data.
    """
    found, k = np.zeros((2, len(own))), len(own)
    found[0, :n_weights] = 1.0
    curve = next((one for one in scales.curves if one.target == ERROR), None)
    if curve is None or n_weights == k:
        return found
    points = np.tile(x, (2, 1))
    points[:, own] = 0.0
    points[1, curve.head] += _MOVE
    here, there = curve.value(points[:, curve.head])
    ratio = np.exp(there - here) - 1.0
    logp, scores = density.at_all(points / density.unit)
    scores = (scores / density.unit)[:, own[n_weights:]]
    coefficients = own[n_weights:]
    diagonals = np.array(
        [
            np.diag(density.curvatures(point / density.unit, axes(x.size, coefficients))[:, coefficients])
            for point in points
        ]
    )
    diagonals /= np.square(density.unit[coefficients])
    if not (np.isfinite(logp).all() and np.isfinite(diagonals).all()):
        return None
    changes = np.array([np.diff(diagonals, axis=0)[0], np.diff(scores, axis=0)[0]]) / ratio
    found[:, n_weights:] = np.array([diagonals[0], scores[0]]) - changes
    found[0] = np.maximum(found[0], 0.0)
    return found
