"""Finding weights (weights.py): which coordinates are weights, and how their scales depend on the others.

Where all weights are 0, the score of each is e^(a_k + log f / 2) (b_k - G_k g), and their negative Hessian is
I + A D A. So one score at a point where a head has moved tells how all scales have changed, to all digits,
and the product of the Hessian with one vector tells log f, and whether the law holds. A coordinate for which
it holds, and which changes scales, is a head. Any other one whose derivative is mixed with those of the
weights is a coefficient: it belongs to the law if it is one of few, and is among the g otherwise.

How scales depend on a head is seen at some points along it. Scores with several heads moved at once tell
whether log scales are sums of such functions; if not, whether s^-2 is a sum of two products of such
functions, one of which has the heads that act on one weight alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from ..composition import into_x
from ..weights import ALL, ERROR, LIMITS, NO_LIMIT
from ..weights_table import Curve, Weights, weights_rows
from .effects_fit import blocks_at
from .effects_search import POWERS, climb_beside, judge_law
from .probes import Evaluate, ScaledDensity, axes, two_columns

LEAST, MOST = 5, 48  # weights of a variable, and weights and coefficients of the law
MOST_OTHERS = 200  # coordinates beside the weights
_LEAST_ENTRY, _NEIGHBOURS = 1e-7, 3  # of a column, beside its diagonal; those of a series, with its own
# Weights are tied if so many entries of D, as correlations, are not 0. Of weights with smaller scales than
# this share of the largest, differences tell none.
_TIED, _CORRELATED, _SEEN = 0.3, 1e-4, 1e-3
_MANY = 16  # weights of one scale that this law costs too much for
FEW = 10  # entries of a variable whose coefficients belong to the law
# Along a head, in steps: the first three tell whether a function is a line. A step is a unit of the head
# within these limits: units of early draws are small, and log scales have a scale of their own.
_STEPS_OF_HEADS = 0.4, 0.6
_ENDS = np.array([-3.0, 1.0, 4.0])
_GRID = np.array([-8.0, -5.5, -4.0, -3.0, -2.25, -1.5, -0.75, 0.0, 0.75, 1.5, 2.25, 3.0, 4.0, 5.5, 8.0])
_SAME = 1e-5  # change of a log scale that is none
_STRAIGHT = 1e-4  # share of the largest value by which a line may be off
_FEWEST = 4  # points of a curve
_MOVE = 0.7  # of a head, to tell the prior of coefficients from data
_CLOSE = 1e-3  # of points whose difference is a slope, in steps
_WRONG = 1e-4  # share of a product with the Hessian that a law may leave
_OFF = 0.05  # of log scales where several heads have moved, at most
_JOINT, _REACH = 8, 2.0  # such points, and how far heads move, in steps
_MIXED = 1e-6  # a smaller mixed derivative, beside the largest, is none
_STEPS, _NEAR = 8, 1e-6  # of Newton's method, to the mode of weights, and the decrement at its end
_FAINT = 1e-3  # what data tell of a weight is lost in differences below this, where its prior tells 1
_ALONG = 4.0  # how far heads move along lines to see it
_FAR = 3.0  # units from which on heads are not where the law has been fitted
_SHARED = ALL, ERROR  # targets of what `_Along.shared_part` has


class _Scales(NamedTuple):
    """How scales depend on heads."""

    offsets: np.ndarray  # (2, K) of weights
    norms: np.ndarray  # (K,) of weights
    curves: list[Curve]


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
    x = x * density.unit
    for weights in _candidates(density, x, variables):
        law = _fit(density, x, weights, variables)
        if law is not None:
            break
    else:
        return None
    last = False
    while not ((alone and len(law.coefficients)) or _has_axes(law)):
        rows = weights_rows(law, 0)
        inner, middle, top = climb_beside(density, density_in(rows), x, law.own)
        if last or not np.abs((middle - x) / density.unit)[law.heads].max() > _FAR:
            return _judge(density, inner, middle, top, law)
        density.gradients += inner.gradients
        into_x(rows, middle, x)
        again, last = _fit(density, x, weights, variables), True  # once more, where the heads are
        if again is None:
            return None
        law = again
    return None


def _judge(
    density: ScaledDensity, inner: ScaledDensity, middle: np.ndarray, top: float, law: Weights
) -> tuple[np.ndarray, np.ndarray] | None:
    """The rows of the law, with bends of heads that all weights have in common, and the scales (d,) of all
    coordinates, if the law makes weights standard normal; the other arguments are those of `judge_law`.
    """
    shared = sorted({curve.head for curve in law.curves if curve.target in (ALL, LIMITS)})
    judged = judge_law(density, inner, middle, top, law.own, shared)
    density.gradients += inner.gradients
    if judged is None:
        return None
    curves = [curve._replace(middle=float(middle[curve.head])) for curve in law.curves]
    bends, scale = judged
    return np.concatenate((weights_rows(law._replace(curves=curves), density.gradients), bends)), scale


def _has_axes(law: Weights) -> bool:
    """Whether there are many weights, all of one scale."""
    many = np.count_nonzero(law.is_weight) > _MANY
    one_scale = all(curve.target < 0 for curve in law.curves) and law.offsets[1].min() >= NO_LIMIT
    return bool(many and one_scale)


def _candidates(density: ScaledDensity, x: np.ndarray, variables: np.ndarray) -> list[np.ndarray]:
    """The coordinates of all variables that may be weights at `x` (d,), and those of each of them alone:
    variables with a standard normal prior that the data tie.
    """
    counts, found = np.bincount(variables), []
    for number in np.flatnonzero((counts >= LEAST) & (counts <= MOST)):
        own, at_zero = np.flatnonzero(variables == number), x.copy()
        at_zero[own] = 0.0
        if not _are_tied(density, at_zero / density.unit, own):
            continue
        data = blocks_at(density, own[None], at_zero)[0] - np.eye(len(own))
        if np.isfinite(data).all() and _is_of_data(data):
            found.append(own)
    if len(found) > 1:
        found.insert(0, np.concatenate(found))
    return [own for own in found if len(own) <= MOST and x.size - len(own) <= MOST_OTHERS]


def _are_tied(density: ScaledDensity, x: np.ndarray, own: np.ndarray) -> bool:
    """Whether one of two of the coordinates `own` (n,) is tied to more than those of a series are."""
    logp, here = density(x)
    return np.isfinite(logp) and any(
        np.count_nonzero(np.abs(column[own]) > _LEAST_ENTRY * abs(column[own[place]])) > _NEIGHBOURS
        for place, column in two_columns(density, x, own, here)
    )


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
    space = _WeightSpace(density, x, weights)
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


class _WeightSpace:
    """What scores say where all weights are 0."""

    def __init__(self, density: ScaledDensity, x: np.ndarray, weights: np.ndarray) -> None:
        self.density, self.weights = density, weights
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

    def roles(self) -> tuple[dict[int, bool], np.ndarray]:
        """The heads, and whether each changes log f; and the coordinates whose derivatives are mixed with
        those of weights.
        """
        others = np.setdiff1d(np.arange(self.x.size), self.weights)
        points = np.tile(self.x, (len(others), 1))
        points[np.arange(len(others)), others] += self.unit[others]
        scores = self._scores(points)
        change, log_f = self._apart(points, self._log_ratios(scores))
        moved = np.abs(scores - self.score)
        least = _MIXED * np.nanmax(moved, initial=0.0)
        heads, mixed = {}, []
        for k, c, log_value, most in zip(others, change, log_f, moved.max(axis=1), strict=True):
            if not most > least:
                continue
            is_changed = max(np.abs(c).max(), abs(log_value)) > _SAME
            if np.isfinite(log_value) and np.isfinite(c).all() and is_changed:
                heads[int(k)] = abs(log_value) > _SAME
            else:
                mixed.append(k)
        return heads, np.array(mixed, np.int64)

    def scales(self, heads: dict[int, bool]) -> _Scales | None:
        """How log scales and log f depend on all heads; None where they are no sums of functions of one."""
        along: list[_Along] = []
        for head, with_error in heads.items():
            one = self._along(head, with_error)
            if one is None:
                return None
            along.append(one)
        joint = np.tile(self.x, (_JOINT, 1))
        rng = np.random.default_rng(7)
        moves = rng.uniform(-_REACH, _REACH, (_JOINT, len(heads)))
        joint[:, [*heads]] += moves * self.step[[*heads]]
        truth = self.changes(joint, with_error=any(heads.values()))
        found = [form(along, self.x) for form in (_sums, _with_limits, _shares_of_variance)]
        off = [_error(one, joint, truth, np.diag(self.data)) for one in found]
        return found[int(np.argmin(off))] if min(off) < _OFF else None

    def _along(self, head: int, with_error: bool) -> _Along | None:
        """Log scales and log f along a head."""
        away, values = self._points(head, _ENDS, with_error)
        if np.isfinite(values).all() and (line := _line(away, values)) is not None:
            return _Along(head, np.zeros(1), np.zeros((1, len(line))), line[None])
        away, values = self._points(head, _GRID, with_error)
        (_, below), (_, above) = (self._points(head, _GRID + side * _CLOSE, with_error) for side in (-1, 1))
        slopes = (above - below) / (2.0 * _CLOSE * self.step[head])
        known = np.isfinite(values).all(axis=1) & np.isfinite(slopes).all(axis=1)
        if np.count_nonzero(known) < _FEWEST:
            return None
        return _Along(head, away[known], values[known], slopes[known])

    def _points(self, head: int, moves: np.ndarray, with_error: bool) -> tuple[np.ndarray, np.ndarray]:
        """How far (n,) a head has moved, and log scales and log f (n, K + 1) there, NaN where not known."""
        points = np.tile(self.x, (len(moves), 1))
        points[:, head] += moves * self.step[head]
        change, log_f = self.changes(points, with_error=with_error)
        return moves * self.step[head], np.column_stack((change, log_f))


def _line(away: np.ndarray, values: np.ndarray) -> np.ndarray | None:
    """The slopes (c,) of values (n, c) that are 0 where `away` (n,) is; None where they are no lines."""
    slopes = away @ values / (away @ away)
    off = np.abs(values - away[:, None] * slopes).max()
    return np.asarray(slopes) if off < _STRAIGHT * np.abs(values).max() else None


class _Along(NamedTuple):
    """Log scales and log f, the last column, along a head: at some points, or at one where they are lines."""

    head: int
    away: np.ndarray  # (n,) from where the head is at `x`
    values: np.ndarray  # (n, K + 1)
    slopes: np.ndarray  # (n, K + 1)

    def in_use(self) -> np.ndarray:
        """Which columns (K + 1,) change."""
        return np.asarray(
            (np.abs(self.values).max(axis=0) > _SAME) | (np.abs(self.slopes).max(axis=0) > _SAME)
        )

    def is_shared(self) -> bool:
        """Whether all scales change in the same way."""
        columns = np.stack((self.values[:, :-1], self.slopes[:, :-1]))
        return bool(np.ptp(columns, axis=2).max() < _SAME)

    def shared_part(self) -> _Along:
        """What all scales have in common, and log f."""
        return self._replace(values=self.values[:, [0, -1]], slopes=self.slopes[:, [0, -1]])

    def curves(self, x: np.ndarray, targets: Sequence[float]) -> list[Curve]:
        """The curves that are not 0, with a target for each column."""
        place, found = float(x[self.head]), []
        for column in np.flatnonzero(self.in_use()).tolist():
            shape = self.away + place, self.values[:, column], self.slopes[:, column]
            found.append(Curve(self.head, int(targets[column]), *shape, place))
        return found


def _sums(along: Sequence[_Along], x: np.ndarray) -> _Scales | None:
    """Log scales as sums of functions of one head each."""
    k = along[0].values.shape[1] - 1
    curves: list[Curve] = []
    for one in along:
        curves += (
            one.shared_part().curves(x, _SHARED) if one.is_shared() else one.curves(x, (*range(k), ERROR))
        )
    return _Scales(_without_limits(k), np.zeros(k), curves)


def _without_limits(k: int) -> np.ndarray:
    """The offsets (2, K) of log scales that are what they were, and have no upper limits."""
    return np.array([np.zeros(k), np.full(k, NO_LIMIT)])


def _shares_of_variance(along: Sequence[_Along], x: np.ndarray) -> _Scales | None:
    """Log scales whose squares are shares of one variance: those of weights differ by lines in some heads."""
    k = along[0].values.shape[1] - 1
    terms, sums = [np.ones(k)], [np.ones(1)]
    curves: list[Curve] = []
    for one in along:
        if one.is_shared():
            curves += one.shared_part().curves(x, _SHARED)
            continue
        common = one.values[:, :k].mean(axis=1)
        apart = _line(one.away, one.values[:, :k] - common[:, None]) if len(one.away) > 1 else None
        if apart is None or np.abs(one.values[:, k]).max() > _SAME:
            return None
        lines = _Along(one.head, np.zeros(1), np.zeros((1, k)), apart[None])
        curves += lines.curves(x, range(k))
        terms.append(np.exp(2.0 * (one.away[:, None] * apart + common[:, None])))
        sums.append(np.ones(len(one.away)))
    if len(terms) == 1:
        return None
    from scipy.optimize import nnls  # here, since few runs come to it

    design, target = np.concatenate([np.atleast_2d(rows) for rows in terms]), np.concatenate(sums)
    norms, _ = nnls(design, target)
    if not np.abs(design @ norms - target).max() < _WRONG:
        return None
    return _Scales(_without_limits(k), norms, curves)


def _with_limits(along: Sequence[_Along], x: np.ndarray) -> _Scales | None:
    """Log scales with an upper limit: s^-2 is a sum of two products, and heads that act on one weight alone
    are log scales, variances or precisions in the first of them.
    """
    k = along[0].values.shape[1] - 1
    shares, shared = np.full((k, 2), np.nan), []  # of both products in s^-2 at x
    curves: list[Curve] = []
    for one in along:
        own = np.flatnonzero(one.in_use())
        if len(own) == 1 and own[0] < k and np.isnan(shares[own[0], 0]):
            found = _own_power(one.away, one.values[:, own[0]], one.slopes[0, own[0]])
            if found is None:
                return None
            power, shares[own[0]] = found
            line = _Along(one.head, np.zeros(1), np.zeros((1, 1)), np.array([[power]]))
            curves += line.curves(x, own.tolist())
        else:
            shared.append(one)
    if not (np.isfinite(shares).all() and shares[:, 1].max() > 0.0):
        return None
    for one in shared:
        parts = _both_products(one, shares)
        if parts is None:
            return None
        curves += parts.curves(x, (ALL, LIMITS, ERROR))
    with np.errstate(divide="ignore"):
        return _Scales(np.minimum(-0.5 * np.log(shares.T), NO_LIMIT), np.zeros(k), curves)


def _own_power(away: np.ndarray, values: np.ndarray, slope: float) -> tuple[float, np.ndarray] | None:
    """The power with which a head acts on the first product of one weight, and the shares (2,) of both, from
    the log scales (n,) along it; None where it does not act so. With one point they are a line.
    """
    if len(away) == 1:
        return float(slope), np.array([1.0, 0.0])
    for power in POWERS:
        terms = np.column_stack((np.exp(-2.0 * power * away), np.ones(len(away))))
        design = terms * np.exp(2.0 * values)[:, None]
        shares = np.linalg.lstsq(design, np.ones(len(away)))[0]
        if np.abs(design @ shares - 1.0).max() < _WRONG and shares[0] > 0.0:
            shares[1] = max(shares[1], 0.0)
            return power, np.asarray(shares / shares.sum())
    return None


def _both_products(one: _Along, shares: np.ndarray) -> _Along | None:
    """What a head that acts on several weights does to the logs of both limits of scales, and to log f."""
    k = len(shares)
    if len(one.away) == 1:  # lines, which are alike
        slopes = one.slopes[0]
        if np.ptp(slopes[:k]) > _SAME:
            return None
        return one._replace(values=np.zeros((1, 3)), slopes=slopes[None, [0, 0, k]])
    design = shares * np.exp(2.0 * one.values[:, :k, None])
    parts = np.array([np.linalg.lstsq(rows, np.ones(k))[0] for rows in design])
    left = np.einsum("nkp,np->nk", design, parts) - 1.0
    if not (np.abs(left).max() < _OFF and parts.min() > 0.0):
        return None
    values = np.column_stack((-0.5 * np.log(parts), one.values[:, k]))
    # Slopes of log scales are means of those of both limits, with the shares of these as weights.
    both = shares * parts[:, None, :] * np.exp(2.0 * one.values[:, :k, None])
    slopes = np.array([np.linalg.lstsq(rows, s)[0] for rows, s in zip(both, one.slopes[:, :k], strict=True)])
    return one._replace(values=values, slopes=np.column_stack((slopes, one.slopes[:, k])))


def _error(
    found: _Scales | None, points: np.ndarray, truth: tuple[np.ndarray, np.ndarray], data: np.ndarray
) -> float:
    """The largest error of log scales and log f at points (n, d), where these are known.

    Scales so small that the `data` (K,), the precision of weights at `x`, tell nothing count for less.
    """
    change, log_f = truth
    known = np.isfinite(change).all(axis=1) & np.isfinite(log_f)
    if found is None or np.count_nonzero(known) < len(points) // 2:
        return np.inf
    k = found.offsets.shape[1]
    own, nothing = np.arange(k), np.zeros(0)
    law = Weights(
        own, own >= 0, np.zeros((2, k)), *found[:2], np.zeros((k, k)), nothing, own[:0], nothing, found.curves
    )
    off = 0.0
    for point, c, log_value in zip(points[known], change[known], log_f[known], strict=True):
        told, error = law.log_scales(point[law.heads])
        size = data * np.exp(2.0 * c + log_value)
        off = max(off, float((np.abs(told - c) * size / (1.0 + size)).max()), abs(error - log_value))
    return off


def _around_the_mode(
    density: ScaledDensity, x: np.ndarray, own: np.ndarray, n_weights: int, given: np.ndarray, scales: _Scales
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
    offsets, norms = _without_limits(k), np.zeros(k)
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
    theta = _where_scales_are_large(law, x[heads], weak)
    there, log_f_there = law.log_scales(theta)
    point, gain = x.copy(), there - here
    point[heads], point[law.own] = theta, x[law.own] * np.exp(-gain)
    matrix = blocks_at(density, law.own[None], point)[0] - np.diag(law.prior[0])
    if not (np.isfinite(matrix).all() and np.all(np.diag(matrix)[weak] > _FAINT)):
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
        ends = curve.at if len(curve.at) > 1 else curve.at + np.array([-_ALONG, _ALONG])
        places[curve.head] = np.union1d(places.get(curve.head, ends), ends)
    for place, head in enumerate(law.heads):
        trials = np.tile(theta, (len(places[head]) + 1, 1))
        trials[1:, place] = places[head]
        theta = trials[int(np.argmax([law.log_scales(trial)[0][weak].sum() for trial in trials]))]
    return theta


def _prior(
    density: ScaledDensity, x: np.ndarray, own: np.ndarray, n_weights: int, scales: _Scales
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
