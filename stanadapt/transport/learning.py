"""Learning a map from a few hundred draws and scores: which law moves which coordinates.

Groups come first (group.py): what spreads their members is a scale that varies, and no tail. Tails and bends
are learned from draws in which the groups have been undone, tails before bends. A coordinate is moved by one
law alone.

What the laws do not reach: scales whose logarithm is not a coordinate or a sum of two; locations that are
regressions with other coefficients for every coordinate, and groups whose own correlations matter, of which
the metric learns what is linear; autoregressions, whose members are around the ones before; scale parameters
that are moved themselves.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ..jit import kernel
from . import bend, group, tail
from .bend import may_have_bends
from .columns import KIND, OWN, no_transport
from .composition import LAWS, change_coordinates, rows_into_x, transport_draws
from .grouping.choice import exact_groups
from .grouping.detection import FEW, LEAST_GAIN, NEED, screen
from .grouping.exact_laws import CERTAIN
from .shape import LEAST
from .tail import may_have_tails
from .training import Training


@np.errstate(all="ignore")  # what is not finite is not taken
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
    """The map that draws and scores in x (n, d), the older ones first, show.

    The first `before` of them are those of the window before; `table` is the map of the present one.
    `variables` (d,) are the variables that coordinates belong to; where it is empty, nothing is learned.
    Without `new` no group is added: one of the last window would be judged by nobody. Unless `wholly`, laws
    that explain scores wholly are looked for only where F shows something.
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
    """The coordinates that rows move."""
    return rows[:, OWN].astype(np.int64)


@kernel(ordered=True)
def _is_plain(points: Any, scores: Any, variables: Any, new: Any) -> Any:
    """Whether draws and scores (n, d) show nothing that `learn_transport` would look at, if there is no map.

    Most posteriors show nothing, and to find that out by NumPy's calls takes as long as a hundred draws of a
    small model. What is detected is what `detect`, `learn_tails` and `learn_bends` detect, or more.
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
            if sizes[g] == sizes[h] and sizes[g] > FEW:  # one may have its scale parameters in the other
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
        total = 0.0  # without names, the groups of one scale parameter are taken together
        for g in range(gain.shape[1]):
            if g != group[scales[h]] and np.isfinite(gain[h, g]) and np.isfinite(derivative[h, g]):
                total = max(total, gain[h, g]) if last > 0 else total + gain[h, g]
        if total >= least:
            return False
    return True


@functools.cache
def learn_funnel() -> np.ndarray:
    """The map of a small hierarchy, x_i ~ N(p, e^(2u)) with a long left tail of u, from exact draws.

    It is learned once in a process before chains start, so that no chain waits in the middle of its warm-up
    until what learning calls is compiled or loaded.
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
    """What a map does to each coordinate (d,), as results have it, and the map itself, `transport`."""
    found: dict[str, np.ndarray] = {}
    for law in LAWS:
        found |= law.describe(_rows_of(law, table), d)
    return found | {"transport": table}
