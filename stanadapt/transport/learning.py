"""Learning a map from a few hundred draws and scores: which law moves which coordinates.

Ridges that explain scores wholly are learned first (ridge.py says why they are the last law of a map), and
undone in the draws. Then groups are learned (group.py), because a member of a group can look heavy-tailed
although it has no heavy tail: only its scale varies. The groups are undone too, and from these draws the map
learns first other ridges, then scales of errors (error_scale.py), tails and bends. At most one law moves a
coordinate, but that any coordinate may have the scale of an error as well. Where groups and ridges are looked
for, scales of errors are not undone: near the middle of the draws one of them can do what a group does, but
not in the neck of the group. A field (field.py) comes from elsewhere, since it takes more than draws
(fields/); the other laws are then learned for the coordinates that are no latents, and no root with a bend of
its own. So heads may be moved twice: by one of these laws, and then by their law given the root.

No law covers these cases:

- a scale whose logarithm is neither a coordinate nor a sum of two coordinates
- a location of a group's members that is a regression whose coefficients differ from member to member (the
  metric learns the linear part of it)
- a group whose members are correlated given scale and location (the metric learns the linear part here, too)
- a scale parameter that is a member of a group itself
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from . import bend, direction, error_scale, group, ridge, tail
from . import field_table as fields
from .bend import may_have_bends
from .composition import LAWS, change_coordinates, coordinates_of, rows_into_x, transport_draws
from .grouping.choice import MARGIN, exact_groups
from .grouping.detection import FEW, LEAST_GAIN, NEED, scale_candidates, slope_gains
from .grouping.exact_laws import CERTAIN, question_of_more, spread_scales
from .map_table import (
    DIRECTION,
    ERROR_SCALE,
    KIND,
    LOCATION,
    OWN,
    PART,
    PART_SCALE,
    REACH,
    RIDGE,
    ROWS,
    SCALE,
    SECOND,
    depends,
    have_scale_of_effects,
    is_of_group,
    no_transport,
    scales_of_groups,
    without_error_scales,
)
from .ridge_fit import LEAST_GAIN as RIDGE_MARGIN
from .ridge_fit import pursue
from .ridge_learning import NONE_EXACT, RidgeSearch
from .ridge_terms import Ridge, RidgeDraws, make_atoms, undone_parts
from .shape import LEAST, divergence_of_all
from .tail import may_have_tails
from .training import Training

# A metric alone will do where the divergence of all draws and scores from a normal law is less than this: a
# law must decrease the divergence of some coordinates by 0.1 or more, a ridge by 0.12, and a group by 0.3.
# Fewer draws for each coordinate tell nothing.
NORMAL, DRAWS_EACH = 0.1, 3
MANY = 64  # coordinates: a map of more leaves more than the margins in any case
# In many dimensions a look for new laws takes as long as the first windows, whose draws tell little.
LARGE, DRAWS_IF_LARGE = 1_500, 64


@np.errstate(all="ignore")  # the code refuses results that are not finite
def learn_transport(
    table: np.ndarray,
    points: np.ndarray,
    scores: np.ndarray,
    variables: np.ndarray,
    before: int,
    *,
    new: bool = True,
    refused: set[int] | None = None,
) -> np.ndarray:
    """Learn the next map from draws and scores in x (n, d), the older ones first.

    The first `before` draws are from the window before; `table` is the map of the present window. `variables`
    (d,) are the numbers of the variables that coordinates belong to; if it is empty, nothing is learned.
    If `new` is false, no group is added: so it is in the last window, since no later window would judge its
    new groups. `refused` are questions of earlier windows that need not be asked again
    (grouping/exact_laws.py); those of this one are added to it.
    """
    if not len(variables):
        return table
    latents, rows = fields.split(table)
    refused = set() if refused is None else refused
    if len(latents):
        rest = (points, scores, variables, before)
        if len(points) < LEAST:
            return table
        return _learn_beside_field(rows, latents, *rest, new=new, refused=refused)
    points, scores = np.ascontiguousarray(points), np.ascontiguousarray(scores)
    new = new and (points.shape[1] < LARGE or len(points) >= DRAWS_IF_LARGE)
    if not (np.isfinite(points).all() and np.isfinite(scores).all()):
        return table
    directions, table = _rows_of(direction, table), table[table[:, KIND] != DIRECTION]
    training = Training(points, scores, variables, before, new, np.zeros(0, np.int64), refused)
    directions = direction.learn(directions, training)
    if len(directions):  # other laws know nothing of them
        moved = _coordinates(directions)
        others = np.setdiff1d(np.arange(points.shape[1]), moved)
        return np.concatenate((directions, _learn_among(others, _without(table, moved), training)))
    inner, outer = _split_ridges(table)
    groups = _rows_of(group, inner)
    known = _coordinates(groups) if question_of_more(groups) in refused else np.zeros(0, np.int64)
    training = Training(points, scores, variables, before, new, known, refused)
    found = ridge.learn_exact(outer, training)
    outer, inner = found.rows, _without(inner, _coordinates(found.rows))
    if len(points) < LEAST:
        return np.concatenate((inner, outer))
    points, scores = transport_draws(outer, points, scores)
    scaled, others = _rows_of(error_scale, inner), without_error_scales(inner)
    left = _remaining_divergence(others, points, scores)
    room, room_for_ridges = left > MARGIN, left > RIDGE_MARGIN
    plain = not len(others) and (
        left < NORMAL
        or (
            _is_plain(points, scores, variables, new and room)
            and not (new and room_for_ridges and found.may_be_more())
        )
    )
    certain = new and len(points) >= CERTAIN
    taken = _coordinates(outer)
    training = training._replace(points=points, scores=scores, taken=taken)
    training = training._replace(room=room, room_for_ridges=room_for_ridges)
    if plain:
        moves = _without(exact_groups(training), taken) if certain else no_transport()
        if len(moves):
            return np.concatenate((moves, outer))
        return np.concatenate((error_scale.learn(scaled, training), outer))
    with_groups = room or certain or len(inner) > 0
    return np.concatenate((_learn_inner(inner, training, found.search, with_groups=with_groups), outer))


def _learn_inner(
    table: np.ndarray, training: Training, begun: RidgeSearch | None, *, with_groups: bool
) -> np.ndarray:
    """The next rows of a map, without those of exact ridges, which move the coordinates that are taken.

    Groups are looked for if `with_groups`. `begun` is a search for ridges that has begun where no group is
    undone.
    """
    points, scores, fixed = training.points, training.scores, training.taken
    moves = _rows_of(group, table)
    if with_groups:
        moves = _without(group.learn(moves, training), fixed)
    points, scores = transport_draws(moves, points, scores)
    taken = np.concatenate((fixed, _coordinates(moves)))
    training = training._replace(points=points, scores=scores, taken=taken)
    ridges = ridge.learn(_rows_of(ridge, table), training, begun)
    points, scores = transport_draws(ridges, points, scores)
    taken = np.concatenate((taken, _coordinates(ridges)))
    heads = scales_of_groups(moves)
    training = training._replace(points=points, scores=scores, taken=taken, heads=heads)
    scaled = error_scale.learn(_rows_of(error_scale, table), training)
    points, scores = transport_draws(scaled, points, scores)
    training = training._replace(points=points, scores=scores)
    tails = tail.learn(_rows_of(tail, table), training)
    training = training._replace(taken=np.concatenate((taken, _coordinates(tails))))
    bends = bend.learn(_rows_of(bend, table), training)
    return np.concatenate((tails, bends, scaled, ridges, moves))


def _split_ridges(table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows of a map without those of exact ridges at its end, and these."""
    end = len(table)
    while end and table[end - 1, KIND] == RIDGE and np.isinf(table[end - 1, REACH]):
        end -= 1
    return table[:end], table[end:]


def _without(table: np.ndarray, moved: np.ndarray) -> np.ndarray:
    """The rows of a map without laws that move or depend on coordinates that an exact ridge moves."""
    if not len(moved):
        return table
    kept = [rows for rows in _split_laws(table) if not np.isin(coordinates_of(rows), moved).any()]
    return np.concatenate((table[:0], *kept))


def _split_laws(table: np.ndarray) -> Iterator[np.ndarray]:
    """The rows of each group, of each ridge, and of each coordinate that is moved by itself."""
    of_groups, k = is_of_group(table), 0
    while k < len(table):
        n = 1
        if of_groups[k] or table[k, KIND] == ERROR_SCALE:
            n = max(int(table[k, ROWS]), 1)
        elif table[k, KIND] == RIDGE:
            n = int(np.argmin(np.append(table[k:, OWN] == table[k, OWN], False)))
        yield table[k : k + n]
        k += n


def _learn_beside_field(
    table: np.ndarray,
    field: np.ndarray,
    points: np.ndarray,
    scores: np.ndarray,
    variables: np.ndarray,
    before: int,
    *,
    new: bool,
    refused: set[int],
) -> np.ndarray:
    """The next map where there is a field: laws for the other coordinates, in draws in which it is undone.

    Coefficients with the scale of effects, and these scales, keep what they have.
    """
    z, score_z = transport_draws(field, points, scores)
    own = have_scale_of_effects(table)
    widths, table = table[own], table[~own]
    kept = np.concatenate((fields.moved_by(field), coordinates_of(widths)))
    others = np.setdiff1d(np.arange(points.shape[1]), kept)
    training = Training(z, score_z, variables, before, new, kept, refused)
    learned = _learn_among(others, table, training)
    refused.discard(NONE_EXACT)  # another field has other coordinates, whose scores are to be asked again
    outer = depends(learned) & (learned[:, KIND] != ERROR_SCALE)
    return np.concatenate((field, learned[~outer], widths, learned[outer]))


def _learn_among(others: np.ndarray, table: np.ndarray, training: Training) -> np.ndarray:
    """The rows that laws of the coordinates `others` have next, where no law knows the rest."""
    if not others.size:
        return table[:0]
    seen = training.points[:, others], training.scores[:, others], training.variables[others], training.before
    rows = _renumber(table, others, into=True)
    learned = learn_transport(rows, *seen, new=training.new, refused=training.refused)
    return _renumber(learned, others, into=False)


def _renumber(table: np.ndarray, others: np.ndarray, *, into: bool) -> np.ndarray:
    """Rows of a map of the coordinates `others`, from their numbers to their places in it or back."""
    if not len(table):
        return table
    numbers = np.full(int(others.max()) + 1, -1)
    numbers[others] = np.arange(len(others))
    new, found = (numbers, table.copy()) if into else (others, table.copy())
    for column in (OWN, SCALE, SECOND, LOCATION, PART, PART_SCALE):
        rows = np.ones(len(table), bool) if column == OWN else is_of_group(table)
        if column in (SCALE, SECOND):
            rows = depends(table)
        there = rows & (table[:, column] >= 0.0)
        found[there, column] = new[table[there, column].astype(np.int64)]
    return found


def _rows_of(law: Any, table: np.ndarray) -> np.ndarray:
    """The rows of a map that belong to a law."""
    own = np.zeros(len(table), bool)
    for kind in law.KINDS:
        own |= table[:, KIND] == kind
    return table[own]


def _coordinates(rows: np.ndarray) -> np.ndarray:
    """The coordinates that these rows of a map move."""
    return rows[:, OWN].astype(np.int64)


def _remaining_divergence(table: np.ndarray, points: np.ndarray, scores: np.ndarray) -> float:
    """How far a map leaves draws and scores (n, d) from a normal law, which no law could decrease by more.

    The draws themselves are as many numbers as a regression of scores on points has, d for each score, and
    what it leaves of few draws is too little by the share d / n. Where draws tell nothing, and where there
    is a map of many coordinates, which always leaves more, it is infinite.
    """
    n, d = points.shape
    if n < DRAWS_EACH * d or (len(table) and d > MANY):
        return np.inf
    points, scores = transport_draws(table, points, scores)
    left = divergence_of_all(points, scores) * n / (n - d)
    return left if np.isfinite(left) else np.inf


def is_straight(
    table: np.ndarray, points: np.ndarray, scores: np.ndarray, variables: np.ndarray, refused: set[int]
) -> bool:
    """Whether draws and scores (n, d) in x show nothing that asks for other laws than a map has.

    Groups are not judged: the last window did so. Scales of errors are left out of the map where there may be
    another scale, since they can hide that a group is needed. Where there is no group then, one that explains
    scores wholly is asked for; `refused` as in `learn_transport`.
    """
    latents, rows = fields.split(table)
    if len(latents) or np.isin(rows[:, KIND], (RIDGE, DIRECTION)).any():
        return False
    if direction.learn_directions(points, scores, variables):
        return False
    of_errors, others = _rows_of(error_scale, rows), without_error_scales(rows)
    moved = _coordinates(_rows_of(group, others))
    scales = np.setdiff1d(spread_scales(points, variables), of_errors[:, SCALE])
    undone = others if len(moved) or scales.size else rows  # with no other scale there is no group to hide
    points, scores = transport_draws(undone, points, scores)
    training = Training(points, scores, variables, 0, True, moved, refused)
    if not len(moved) and scales.size and len(exact_groups(training)):
        return False
    if _remaining_divergence(no_transport(), points, scores) < NORMAL:
        return True
    if not _is_plain(points, scores, variables, new=True, moved=moved):
        return False
    found = ridge.learn_exact(no_transport(), training)
    return not (len(found.rows) or found.may_be_more())


def _is_plain(
    points: np.ndarray,
    scores: np.ndarray,
    variables: np.ndarray,
    new: bool,
    moved: np.ndarray | None = None,
) -> bool:
    """Whether draws and scores (n, d) show nothing that `learn_transport` would look at.

    Most posteriors show nothing. This function finds that out in a fraction of the time that `detect`,
    `learn_tails` and `learn_bends` take; it detects all that they detect, or more. The coordinates `moved`
    are in groups already.
    """
    if may_have_tails(points, scores) or may_have_bends(points, scores):
        return False
    if not new:
        return True
    sizes = np.bincount(variables)
    alone = sizes if moved is None else sizes - np.bincount(variables[moved], minlength=len(sizes))
    large = sizes[alone > FEW]
    if np.unique(large).size < large.size:  # a variable may hold the scale parameters of another one
        return False
    scales = scale_candidates(points, scores, variables)
    if not scales.size:
        return True
    members, named = np.arange(variables.size), len(sizes) > 1
    numbers = np.unique(variables, return_inverse=True)[1] if named else members
    gain, _ = slope_gains(points, scores, members, numbers, scales)
    gain[np.arange(scales.size), numbers[scales]] = 0.0
    most = gain.max() if named else gain.sum(axis=1).max()  # with one variable, the coordinates are one group
    return bool(most < max(NEED / len(points), LEAST_GAIN))


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
    scaled = error_scale.error_scale_rows([error_scale.ErrorScale(0, 1.0, np.array([1]))], points)
    for rows in (table, np.concatenate((scaled, _rows_of(group, table)))):
        rows_into_x(rows, transport_draws(rows, points, scores)[0], np.zeros(n))
        change_coordinates(rows, rows, points[0], 0.0, scores[0])
    draws, free = RidgeDraws(points, scores), np.ones(points.shape[1], bool)
    pursue(draws, 0, make_atoms(draws, np.flatnonzero(free)), free, exact=True)  # no score here asks for it
    one = np.ones(1, np.int64)
    undone_parts(draws, Ridge(0, one, one, np.ones(1), np.zeros((1, 2)), np.ones((1, 2))))
    return table


def describe(table: np.ndarray, d: int) -> dict[str, np.ndarray]:
    """Describe a map for results: arrays (d,) of what it does to each coordinate; `transport` is the map."""
    latents, rows = fields.split(table)
    found = fields.describe(latents, d)
    rows = np.concatenate((rows, fields.bends_of_heads(latents)))
    for law in LAWS:
        found |= law.describe(_rows_of(law, rows), d)
    return found | {"transport": table}
