"""Learning a map from a few hundred draws and scores: which law moves which coordinates.

Groups are learned first (group.py), because a member of a group can look heavy-tailed although it has no
heavy tail: only its scale varies. Then the groups are undone in the draws, and from these draws the map
learns first tails and then bends. At most one law moves a coordinate.

No law covers these cases:

- a scale whose logarithm is neither a coordinate nor a sum of two coordinates
- a location that is a regression whose coefficients differ from member to member (the metric learns the
  linear part of it)
- a group whose members are correlated given scale and location (the metric learns the linear part here, too)
- an autoregression, where each member lies around the one before
- a scale parameter that is a member of a group itself
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ..jit import kernel
from . import bend, group, tail
from .bend import may_have_bends
from .composition import LAWS, change_coordinates, rows_into_x, transport_draws
from .grouping.choice import exact_groups
from .grouping.detection import FEW, LEAST_GAIN, NEED, screen
from .grouping.exact_laws import CERTAIN
from .map_table import KIND, OWN, no_transport
from .shape import LEAST
from .tail import may_have_tails
from .training import Training


@np.errstate(all="ignore")  # the code refuses results that are not finite
def learn_transport(
    table: np.ndarray,
    points: np.ndarray,
    scores: np.ndarray,
    variables: np.ndarray,
    before: int,
    *,
    new: bool = True,
    wholly: bool = True,
) -> np.ndarray:
    """Learn the next map from draws and scores in x (n, d), the older ones first.

    The first `before` draws are from the window before; `table` is the map of the present window. `variables`
    (d,) are the numbers of the variables that coordinates belong to; if it is empty, nothing is learned.
    If `new` is false, no group is added: so it is in the last window, since no later window would judge its
    new groups. If `wholly` is false and there is no map yet, laws that explain scores wholly
    (grouping/groups.py) are looked for only if the quick test `_is_plain` finds something to look at.
    """
    if not (len(variables) and len(points) >= LEAST):
        return table
    points, scores = np.ascontiguousarray(points), np.ascontiguousarray(scores)
    if not (np.isfinite(points).all() and np.isfinite(scores).all()):
        return table
    plain = not len(table) and _is_plain(points, scores, variables, new)
    if plain and not (wholly and new and len(points) >= CERTAIN):
        return table
    training = Training(points, scores, variables, before, new, np.zeros(0, np.int64))
    if plain:
        return exact_groups(training)
    moves = group.learn(_rows_of(group, table), training)
    points, scores = transport_draws(moves, points, scores)
    training = training._replace(points=points, scores=scores, taken=_coordinates(moves))
    tails = tail.learn(_rows_of(tail, table), training)
    training = training._replace(taken=np.concatenate((training.taken, _coordinates(tails))))
    return np.concatenate((tails, bend.learn(_rows_of(bend, table), training), moves))


def _rows_of(law: Any, table: np.ndarray) -> np.ndarray:
    """The rows of a map that belong to a law."""
    return table[np.isin(table[:, KIND], law.KINDS)]


def _coordinates(rows: np.ndarray) -> np.ndarray:
    """The coordinates that these rows of a map move."""
    return rows[:, OWN].astype(np.int64)


@kernel(ordered=True)
def _is_plain(points: Any, scores: Any, variables: Any, new: Any) -> Any:
    """Whether `learn_transport`, without a map so far, would find nothing to try in draws and scores (n, d).

    In most posteriors there is nothing. NumPy would take as long to find that out as a hundred draws of a
    small model take. If this function returns True, `detect`, `learn_tails` and `learn_bends` would detect
    nothing. If it returns False, they may still detect nothing.
    """
    n, d = points.shape
    if may_have_tails(points, scores) or may_have_bends(points, scores):
        return False
    if not new:
        return True
    last = variables.max()
    sizes = np.zeros(last + 1, np.int64)
    for j in range(d):
        sizes[variables[j]] += 1
    for g in range(last + 1):
        for h in range(g):
            if sizes[g] == sizes[h] and sizes[g] > FEW:  # one may hold the scale parameters of the other
                return False
    members, group, as_is = np.arange(d), np.arange(d), np.zeros(d, np.bool_)
    scales, k = np.empty(d, np.int64), 0
    for j in range(d):
        if last > 0:
            group[j] = variables[j]
        if last == 0 or sizes[variables[j]] <= FEW:
            as_is[j] = True
            scales[k] = j
            k += 1
    if k == 0:
        return True
    gain, derivative = np.zeros((k, group.max() + 1)), np.zeros((k, group.max() + 1))
    screen(points, scores, members, group, scales[:k], as_is, gain, derivative)
    least = max(NEED / n, LEAST_GAIN)
    for h in range(k):
        total = 0.0  # the largest gain of a group; with one variable, the sum over all coordinates
        for g in range(gain.shape[1]):
            if g != group[scales[h]] and np.isfinite(gain[h, g]) and np.isfinite(derivative[h, g]):
                total = max(total, gain[h, g]) if last > 0 else total + gain[h, g]
        if total >= least:
            return False
    return True


@functools.cache
def learn_funnel() -> np.ndarray:
    """The map of a small hierarchy, x_i ~ N(p, e^(2u)) with a long left tail of u, from exact draws.

    A process calls this function once, before chains start (run/preparation/compiling.py). The call compiles
    or loads the functions that learning needs, so that no chain waits for them during its warm-up.
    """
    rng, n, m = np.random.default_rng(1), 100, 6
    e, p, w = rng.exponential(size=(n, 1)), rng.normal(size=(n, 1)), rng.normal(size=(n, m))
    u = np.log(e)
    points = np.concatenate((u, p, p + e * w), axis=1)
    pulls = np.square(w).sum(axis=1, keepdims=True) - m, (w / e).sum(axis=1, keepdims=True)
    scores = np.concatenate((1.0 - e + pulls[0], -p + pulls[1], -w / e), axis=1)
    variables = np.array([0, 1, *[2] * m])
    table = learn_transport(no_transport(), points, scores, variables, n // 2)
    table = learn_transport(table, points, scores, variables, n // 2)
    rows_into_x(table, transport_draws(table, points, scores)[0], np.zeros(n))
    change_coordinates(table, table, points[0], 0.0, scores[0])
    return table


def describe(table: np.ndarray, d: int) -> dict[str, np.ndarray]:
    """Describe a map for results: arrays (d,) of what it does to each coordinate; `transport` is the map."""
    found: dict[str, np.ndarray] = {}
    for law in LAWS:
        found |= law.describe(_rows_of(law, table), d)
    return found | {"transport": table}
