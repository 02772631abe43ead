"""How heavy the tails of a posterior are, by its scores where draws are furthest out.

Walks, Langevin steps and trajectories leave the middle of a heavy-tailed target too rarely and stay out for
too long. Their draws look light-tailed, so an index of their largest values, such as the Pareto k of Vehtari,
Simpson, Gelman, Yao and Gabry (2024), Pareto smoothed importance sampling, is small where they are most
wrong. The scores are right wherever the draws are. In the tail of a generalised Pareto distribution, with
scale s and index k, the score at a distance e beyond a threshold is

    -(1 + k) / (s + k e),

which falls towards zero where k > 0, is constant where k = 0 (an exponential tail), and grows where k < 0.
The mean of an entry of the score, given the entry of x, is the score of that entry's marginal distribution,
so (s, k) is fitted to single entries by least squares. Student's t with n degrees of freedom has k = 1 / n.

Parameters with a transform are left out: the logarithm of a half-Cauchy scale has light tails.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..model.posterior import Posterior

# Of the distances of the 1 % and 10 % quantiles from the median. Laplace's distribution has 2.4, Student's t
# with 3 degrees of freedom has 2.8 and with 2 degrees 3.7.
SUSPECT_RATIO = 2.6
_TAIL = 0.05  # probability of a tail
_FEWEST, _MOST = 20, 40  # draws of a tail whose scores are looked at
_ONE_IN = 100  # gradients for every gradient of the draws, at most
_ERRORS = 3.0  # standard errors
_BENDS = np.geomspace(1e-3, 1e3, 300)  # k / s, in inverse median distances
_INDICES = np.arange(1, 61) / 20.0  # the smallest one that agrees with the scores is returned
_TILE = 64  # columns that are looked at together
_DIFFERENCE = 1e-5  # relative step of a difference, where there is no gradient


class _Suspect(NamedTuple):
    """A tail that seems longer than an exponential one."""

    ratio: float
    column: int
    sign: int  # of the direction in which it lies


def tail_indices(values: np.ndarray, posterior: Posterior, evaluations: int) -> np.ndarray:
    """A lower bound of the tail index of each unconstrained parameter (d,), three standard errors down.

    NaN where quantiles of the draws do not make a heavy tail suspect, where a parameter has a transform, or
    where scores do not tell.

    Parameters
    ----------
    values
        Draws (chain, draw, c), in the order of the posterior's values.
    posterior
        What was drawn from. It is evaluated again, at 1 % of `evaluations` points at most.
    evaluations
        How many evaluations the draws took.
    """
    indices = np.full(posterior.dim, np.nan)
    names, places = posterior.names, {name: j for j, name in enumerate(posterior.unconstrained_names)}
    columns = [i for i, name in enumerate(names) if name in places]
    if posterior.model.noisy or values.shape[0] * values.shape[1] * _TAIL < _FEWEST:
        return indices
    rows = values.reshape(-1, values.shape[2])
    budget = evaluations // _ONE_IN
    for suspect in sorted(_suspects(rows, columns), reverse=True):
        place = places[names[suspect.column]]
        picked = _pick(rows[:, suspect.column] * suspect.sign)
        if len(picked) > budget:
            break
        points = _unconstrain(rows[picked, : len(names)], posterior)
        if points is None or not np.allclose(points[:, place], rows[picked, suspect.column], rtol=1e-9):
            continue
        budget -= len(picked)
        scores = np.array([_score(posterior, x, place) for x in points]) * suspect.sign
        beyond = points[:, place] * suspect.sign
        index = smallest_index(beyond - beyond.min(), scores)
        indices[place] = np.fmax(indices[place], index)
    return indices


def _suspects(rows: np.ndarray, columns: list[int]) -> list[_Suspect]:
    found = []
    for first in range(0, len(columns), _TILE):
        tile = columns[first : first + _TILE]
        with np.errstate(all="ignore"):  # draws that are constant, infinite or NaN are no suspects
            quantiles = np.quantile(rows[:, tile], [0.01, 0.1, 0.5, 0.9, 0.99], axis=0)
            far, near = np.abs(quantiles[[0, 4]] - quantiles[2]), np.abs(quantiles[[1, 3]] - quantiles[2])
            ratios = far / near
        for side, sign in enumerate((-1, 1)):
            heavy = np.flatnonzero((ratios[side] > SUSPECT_RATIO) & (ratios[side] < np.inf))
            found += [_Suspect(float(ratios[side, i]), tile[i], sign) for i in heavy]
    return found


def _pick(values: np.ndarray) -> np.ndarray:
    """Rows of the upper tail, evenly spaced in their order."""
    order = np.argsort(values)[-int(_TAIL * values.size) :]
    return np.asarray(order[np.linspace(0, order.size - 1, min(_MOST, order.size)).astype(int)])


def _unconstrain(rows: np.ndarray, posterior: Posterior) -> np.ndarray | None:
    try:
        return np.array([posterior.model.unconstrain_flat(row) for row in rows])
    except RuntimeError:  # rounding has put a value on the boundary of its support
        return None


def _score(posterior: Posterior, x: np.ndarray, place: int) -> float:
    """The entry of the score, NaN where it cannot be evaluated."""
    model = posterior.model
    try:
        if model.has_gradient:
            return float(model.log_density_gradient(x)[1][place])
        step = np.zeros(x.size)
        step[place] = _DIFFERENCE * max(1.0, abs(x[place]))
        rise = model.log_density(x + step) - model.log_density(x - step)
        return float(rise / (2.0 * step[place]))
    except Exception:  # whatever a Python target raises: the draws must not be lost for it
        return np.nan


def smallest_index(beyond: np.ndarray, scores: np.ndarray) -> float:
    """The smallest index k > 0 that goes with scores (n,) at distances `beyond` (n,) a threshold.

    It is three standard errors below the best fit. NaN where an exponential tail goes with them as well, or a
    lighter one.
    """
    usable = np.isfinite(scores) & np.isfinite(beyond)
    beyond, scores = beyond[usable], scores[usable]
    middle = float(np.median(beyond)) if beyond.size else 0.0
    if beyond.size < _FEWEST or not 0.0 < middle < np.inf:
        return np.nan
    bends = _BENDS[:, None] / middle
    shapes = 1.0 / (1.0 + bends * beyond)
    # Misfits are quadratic in the score's size at the threshold, which k and a bend give.
    quadratic, linear = (shapes**2).sum(axis=1), (shapes * scores).sum(axis=1)
    heights = bends * (1.0 + 1.0 / _INDICES)
    misfits = (heights**2 * quadratic[:, None] + 2.0 * heights * linear[:, None]).min(axis=0)
    misfits += float(scores @ scores)
    flat = float(scores @ scores - scores.sum() ** 2 / scores.size)  # of an exponential tail
    best = min(float(misfits.min()), flat)
    limit = best + _ERRORS**2 * best / (scores.size - 2)
    if flat <= limit or not scores.mean() < 0.0:
        return np.nan
    return float(_INDICES[np.argmax(misfits <= limit)])
