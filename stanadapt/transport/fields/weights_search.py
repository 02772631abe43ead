"""Finding weights (weights.py): which coordinates are weights, and how their scales depend on the others.

weight_space.py says what scores tell where all weights are 0. Programs that are centred are turned to the
other form first (centred_weights.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from ..composition import into_x
from ..weights import ALL, ERROR, LIMITS, NO_LIMIT
from ..weights_table import Weights, weights_rows
from .centred_weights import turning_law
from .effects_fit import blocks_at
from .effects_search import climb_beside, judge_law
from .head_bends import MOST_TO_MODE, climb
from .probes import Evaluate, ScaledDensity, axes, have_ties
from .weight_scales import Scales, without_limits
from .weight_space import WeightSpace, is_of_data

LEAST, MOST = 5, 128  # weights of a variable, and weights and coefficients of the law
MOST_OTHERS = 200  # coordinates beside the weights
_LEAST_ENTRY, _NEIGHBOURS = 1e-7, 3  # of a column, beside its diagonal; those of a series, with its own
_MANY = 16  # weights of one scale that this law costs too much for
FEW = 10  # entries of a variable whose coefficients belong to the law
_MOVE = 0.7  # of a head, to tell the prior of coefficients from data
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
    for at, fit in _candidates(density, density_in, x * density.unit, variables):
        law = fit(at)
        if law is not None:
            break
    else:
        return None
    x, last = at, False
    while not ((alone and len(law.coefficients)) or _has_axes(law)):
        rows = weights_rows(law, 0)
        inner, middle, top = climb_beside(density, density_in(rows), x, law.own)
        if last or not np.abs((middle - x) / density.unit)[law.heads].max() > _FAR:
            return _judge(density, inner, middle, top, law)
        density.gradients += inner.gradients
        into_x(rows, middle, x)
        # Once more, where the heads are; if no law is seen there, as where a limit of scales is far off, the
        # first one is judged.
        law, last = fit(x) or law, True
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
    """Whether there are many weights, all of one scale; in a centred program any number is many."""
    many = law.is_centred or np.count_nonzero(law.is_weight) > _MANY
    one_scale = all(curve.target < 0 for curve in law.curves) and law.offsets[1].min() >= NO_LIMIT
    return bool(many and one_scale)


def _candidates(
    density: ScaledDensity,
    density_in: Callable[[np.ndarray], Evaluate],
    x: np.ndarray,
    variables: np.ndarray,
) -> Iterator[tuple[np.ndarray, Callable[[np.ndarray], Weights | None]]]:
    """Points (d,), and what fits a law around such a point: for the coordinates of all variables that may be
    weights, for those of each of them alone, and then for those of centred programs.

    Weights have a standard normal prior, and the data tie them. This is so at `x` (d,), or where all else is
    at its highest with weights at 0: far from there, data that are not normal may have a Hessian with a
    negative eigenvalue.
    """
    counts, found, centred = np.bincount(variables), [], []
    for number in np.flatnonzero((counts >= LEAST) & (counts <= MOST)):
        own, at_zero = np.flatnonzero(variables == number), x.copy()
        if x.size - len(own) > MOST_OTHERS:
            continue
        at_zero[own] = 0.0
        if not have_ties(density, at_zero / density.unit, own, _NEIGHBOURS + 1, _LEAST_ENTRY):
            continue
        centred.append(own)
        if _have_data(density, at_zero, own):
            found.append((own, x))
            continue
        others = np.setdiff1d(np.arange(x.size), own)
        z, _ = climb(density, at_zero / density.unit, others, np.eye(len(others)), MOST_TO_MODE)
        if _have_data(density, z * density.unit, own):
            found.append((own, z * density.unit))
    if len(found) > 1:
        together = np.concatenate([own for own, _ in found])
        if len(together) <= MOST:
            found.insert(0, (together, x))
    for own, at in found:
        yield at, partial(_fit, density, weights=own, variables=variables)
    for own in centred:
        yield x, partial(_fit_centred, density, density_in, weights=own, variables=variables)


def _have_data(density: ScaledDensity, x: np.ndarray, own: np.ndarray) -> bool:
    """Whether the negative Hessian of the coordinates `own` (n,) at `x` (d,) may be I + A D A."""
    data = blocks_at(density, own[None], x)[0] - np.eye(len(own))
    return bool(np.isfinite(data).all()) and is_of_data(data)


def _fit_centred(
    density: ScaledDensity,
    density_in: Callable[[np.ndarray], Evaluate],
    x: np.ndarray,
    *,
    weights: np.ndarray,
    variables: np.ndarray,
) -> Weights | None:
    """The law of `weights` (K,) of a centred program, as `_fit` has it, found in the other form."""
    turning = turning_law(density, x, weights, variables)
    if turning is None:
        return None
    log_scales, _ = turning.log_scales(x[turning.heads])
    turned, unit = x.copy(), density.unit.copy()
    turned[weights] *= np.exp(-log_scales)
    unit[weights] *= np.exp(-log_scales)
    inner = ScaledDensity(density_in(weights_rows(turning, 0)), unit)
    law = _fit(inner, turned, weights=weights, variables=variables)
    density.gradients += inner.gradients
    # A curve that is not exact leaves something of its head's effect, which passes for that of a coefficient.
    if law is None or not np.isin(turning.heads, law.heads).all():
        return None
    width = np.ones(len(law.own))
    width[: len(weights)] = np.exp(log_scales)
    offsets = np.where(law.offsets < NO_LIMIT, law.offsets + np.log(width), NO_LIMIT)
    data = law.precision / np.outer(width, width), law.pulls / width, law.slopes / width[:, None]
    law = law._replace(precision=data[0], pulls=data[1], slopes=data[2], offsets=offsets)
    return law._replace(is_centred=True)


def _fit(
    density: ScaledDensity, x: np.ndarray, *, weights: np.ndarray, variables: np.ndarray
) -> Weights | None:
    """The law around the mode of `weights` and coefficients given all else, as at `x` (d,)."""
    space = WeightSpace(density, x, weights, variables)
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
