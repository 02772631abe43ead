"""The map of a chain: laws one after another, and the density and its score in their coordinates.

A chain moves in z, and the program gives the density in x = T(z). Draws of z are exact for the density
p(T(z)) |dT/dz|, whatever T is; a good T makes trajectories and random walks short. T is learned from draws
and scores in warm-up (learning.py), and stays as it is when warm-up ends.

T is triangular: a coordinate is moved before others depend on it, so that its log determinant is a sum. Each
row of the table (map_table.py) belongs to a law, and the functions here hand it to that law's file:

    law        file        what it makes normal
    DIRECTION  direction.py   a vector of which the direction alone matters
    TAIL       tail.py     a coordinate with tails that decrease like a power
    BEND       bend.py     a coordinate with one long and one short tail
    ERROR_SCALE   error_scale.py   coordinates that observations with errors of an unknown scale determine
    RIDGE      ridge.py    a coordinate whose location is of second order in others
    CENTRED, NOT_CENTRED   group.py    coordinates with a scale that is itself a parameter
    FIELD      field.py   latents that are tied to their neighbours by a few parameters, the heads; and heads
                          whose own law depends on one of them (the first rows, latents before heads)
    INNOVATIONS   innovations.py   series that a program writes in their innovations (the first rows)
    EFFECTS    effects.py   effects of groups whose scales and correlations are parameters (after innovations,
                            before fields)
    WEIGHTS    weights.py   weights of a regression whose scales are functions of parameters (the first rows)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..jit import kernel
from . import (
    bend,
    direction,
    effects,
    error_scale,
    field,
    field_table,
    group,
    innovations,
    ridge,
    tail,
    weights,
)
from .map_table import (
    BEND,
    COLUMNS,
    DIRECTION,
    EFFECTS,
    ERROR_SCALE,
    KIND,
    LOCATION,
    OWN,
    PARENT_A,
    PARENT_B,
    PART,
    PART_SCALE,
    REACH,
    RIDGE,
    SCALE,
    SECOND,
    TAIL,
    WEIGHTS,
    are_coordinates,
    depends,
    have_scale_of_effects,
)

# In the order in which a map has their rows; exact ridges are after groups.
LAWS = direction, tail, bend, error_scale, ridge, group


@kernel(ordered=True, counted=False)
def into_x(table: Any, z: Any, x: Any) -> Any:
    """Write x(z) to `x` (d,). Returns log |dx/dz|, infinite where x overflows."""
    return into_x_keeping(table, z, x, z[:0])


@kernel(ordered=True, counted=False)
def into_x_keeping(table: Any, z: Any, x: Any, kept: Any) -> Any:
    """The same; `kept` (n_kept(table, d),), or (0,), takes what `pull_back_kept` needs of it."""
    for i in range(z.size):
        x[i] = z[i]
    start, first, latents = field.lengths(table)
    inner = _end_of_inner(table, latents)
    log_det, k, u = _inner_into_x(table, latents, inner, z, x), inner, z
    if _is_moved_on(table, latents, inner):
        u = x
        if latents == 0 and kept.size > 0:
            for i in range(z.size):
                kept[i] = x[i]
    while k < len(table):
        if table[k, KIND] == RIDGE:
            log_det, k = ridge.into_x(table, k, u, x, log_det)
        else:
            log_det, k = group.into_x(table, k, u, x, log_det)
    if latents > first:  # the heads, which other laws may have moved, before the latents that depend on them
        log_det += field.into_x(table[first:], x, x, z[:0])
    if first > start:
        log_det += field.into_x(table[start:], z, x, kept)
    if start > 0:
        log_det += _outer_into_x(table, x, kept)
    return log_det if np.isfinite(log_det) else np.inf


@kernel(ordered=True, counted=False)
def n_kept(table: Any, d: Any) -> Any:
    """How many numbers `into_x_keeping` keeps in dimension `d`."""
    start, first, latents = field.lengths(table)
    if start > 0 and table[0, KIND] == WEIGHTS:
        return weights.n_kept(table)
    if latents > 0:
        return field.n_kept(table[start:]) if first > start else 0
    return d if _is_moved_on(table, 0, _end_of_inner(table, 0)) else 0


@kernel(ordered=True, counted=False)
def _end_of_inner(table: Any, first: Any) -> Any:
    """The row after the inner ones, from `first` on: directions, tails, bends and scales of errors."""
    k = first
    while k < len(table) and (
        table[k, KIND] == TAIL
        or table[k, KIND] == BEND
        or table[k, KIND] == ERROR_SCALE
        or table[k, KIND] == DIRECTION
    ):
        k += 1
    return k


@kernel(ordered=True, counted=False)
def _is_moved_on(table: Any, first: Any, inner: Any) -> Any:
    """Whether coordinates with the scale of errors may be moved on, by the rows from `inner` on."""
    return first < inner < len(table) and table[inner - 1, KIND] == ERROR_SCALE


@kernel(ordered=True, counted=False)
def _inner_into_x(table: Any, first: Any, inner: Any, z: Any, x: Any) -> Any:
    """Write what the inner rows make of z to `x`, which has z. Returns the log determinant."""
    log_det, k = 0.0, first
    while k < inner:
        if table[k, KIND] == TAIL:
            log_det, k = tail.into_x(table, k, z, x, log_det)
        elif table[k, KIND] == BEND:
            log_det, k = bend.into_x(table, k, z, x, log_det)
        elif table[k, KIND] == DIRECTION:
            log_det, k = direction.into_x(table, k, z, x, log_det)
        else:
            log_det, k = error_scale.into_x(table, k, z, x, log_det)
    return log_det


@kernel(ordered=True)
def _after_inner(table: Any, first: Any, inner: Any, z: Any) -> Any:
    """What the inner rows make of z, as a new array (d,)."""
    u = z.copy()
    _inner_into_x(table, first, inner, z, u)
    return u


@kernel(ordered=True, counted=False)
def into_z(table: Any, x: Any, z: Any) -> None:
    """Write z(x) to `z` (d,)."""
    for i in range(x.size):
        z[i] = x[i]
    start, first, latents = field.lengths(table)
    if start > 0:
        _undo_outer(table, z)
        if first > start:  # while the heads among z are those of x
            field.into_z(table[start:], z, z)
    if latents > first:
        field.into_z(table[first:], x, z)
    if first < latents < len(table):
        _undo_before_heads(table, z)
    else:
        _undo_rows(table, latents, x, z)
    if start == 0 and first > 0:
        field.into_z(table, x, z)


@kernel(ordered=True, counted=False)
def _undo_rows(table: Any, first: Any, x: Any, z: Any) -> None:
    """Write z(x) of the rows from `first` on, those without a field, to `z`, the last laws first."""
    inner = _end_of_inner(table, first)
    k = inner
    while k < len(table):
        k = ridge.into_z(table, k, x, z) if table[k, KIND] == RIDGE else group.into_z(table, k, x, z)
    alone = first
    while alone < inner and table[alone, KIND] != ERROR_SCALE:
        alone += 1
    k = alone
    while k < inner:
        k = error_scale.into_z(table, k, z, z)
    k = first
    while k < alone:
        if table[k, KIND] == TAIL:
            k = tail.into_z(table, k, z, z)
        elif table[k, KIND] == BEND:
            k = bend.into_z(table, k, z, z)
        else:
            k = direction.into_z(table, k, z, z)


@kernel(ordered=True, late=True)
def _undo_before_heads(table: Any, z: Any) -> None:
    """The same where the heads have a law, which is undone in `z` already. Few maps have such a law."""
    _undo_rows(table, field.lengths(table)[2], z.copy(), z)


@kernel(ordered=True, counted=False)
def pull_back(table: Any, z: Any, x: Any, score: Any) -> None:
    """The gradient of the log density in z, from the score in x; `score` (d,) changes in place."""
    pull_back_kept(table, z, x, score, z[:0])


@kernel(ordered=True, counted=False)
def pull_back_kept(table: Any, z: Any, x: Any, score: Any, kept: Any) -> None:
    """The same, after `into_x_keeping` at the same point, or with `kept` (0,)."""
    start, first, latents = field.lengths(table)
    if start > 0:
        _pull_back_outer(table, z, x, score, kept)
    if first > start:
        field.pull_back(table[start:], z, x, score, kept)
    if first < latents < len(table):
        _pull_back_before_heads(table, z, x, score)
        return
    if latents > first:
        field.pull_back(table[first:], z, x, score, z[:0])
    _pull_back_rows(table, latents, z, x, score, kept if latents == 0 else z[:0])


@kernel(ordered=True, counted=False)
def _pull_back_rows(table: Any, first: Any, z: Any, x: Any, score: Any, kept: Any) -> None:
    """Turn the score in x into the one in z, for the rows from `first` on, those without a field."""
    inner = _end_of_inner(table, first)
    u, scaled = z, x
    if _is_moved_on(table, first, inner):
        if kept.size == 0:
            _pull_back_moved_on(table, z, x, score)
            return
        u, scaled = kept, kept
    _pull_back_through(table, first, inner, z, x, u, scaled, score)


@kernel(ordered=True, late=True)
def _pull_back_moved_on(table: Any, z: Any, x: Any, score: Any) -> None:
    """The same where outer rows move on what a scale of errors has made, and that has not been kept."""
    first = field.lengths(table)[2]
    inner = _end_of_inner(table, first)
    u = _after_inner(table, first, inner, z)
    _pull_back_through(table, first, inner, z, x, u, u, score)


@kernel(ordered=True, counted=False)
def _pull_back_through(
    table: Any, first: Any, inner: Any, z: Any, x: Any, u: Any, scaled: Any, score: Any
) -> None:
    """The same: outer rows, from `inner` on, move `u`, and a scale of errors has made `scaled`."""
    end = len(table)
    while end > inner:
        if table[end - 1, KIND] == RIDGE:
            end = ridge.pull_back(table, end, u, x, score)
        else:
            end = group.pull_back(table, end, u, x, score)
    while end > first:
        if table[end - 1, KIND] == TAIL:
            end = tail.pull_back(table, end, z, x, score)
        elif table[end - 1, KIND] == BEND:
            end = bend.pull_back(table, end, z, x, score)
        elif table[end - 1, KIND] == DIRECTION:
            end = direction.pull_back(table, end, z, x, score)
        else:
            end = error_scale.pull_back(table, end, z, scaled, score)


@kernel(ordered=True, late=True)
def _pull_back_before_heads(table: Any, z: Any, x: Any, score: Any) -> None:
    """The same where the heads have a law, which comes after these rows."""
    _, first, latents = field.lengths(table)
    u = _before_heads(table[first:], x)
    field.pull_back(table[first:], u, x, score, z[:0])
    _pull_back_rows(table, latents, z, u, score, z[:0])


@kernel(ordered=True)
def _before_heads(table: Any, x: Any) -> Any:
    """The point (d,) of which the law of the heads, at the beginning of `table`, has made `x`."""
    u = x.copy()
    field.into_z(table, x, u)
    return u


@kernel(ordered=True, counted=False)
def _kind_at(table: Any, k: Any) -> Any:
    """The law of row `k`, that of a tail if there is no such row."""
    return table[k, KIND] if k < len(table) else TAIL


@kernel(ordered=True, counted=False)
def _outer_into_x(table: Any, x: Any, kept: Any) -> Any:
    """The laws of the first rows, which go last: effects or weights, then innovations. Returns log |dx/dz|.

    `kept` is for weights.
    """
    series, log_det = field.end_of_innovations(table), 0.0
    kind = _kind_at(table, series)
    if kind == EFFECTS:
        log_det += effects.into_x(table[series:], x)
    elif kind == WEIGHTS:
        log_det += weights.into_x(table, x, kept)
    if series > 0:
        log_det += innovations.into_x(table, x)
    return log_det


@kernel(ordered=True, counted=False)
def _undo_outer(table: Any, x: Any) -> None:
    """Undo these laws among the coordinates `x` (d,), in place."""
    series = field.end_of_innovations(table)
    if series > 0:
        innovations.into_u(table, x)
    kind = _kind_at(table, series)
    if kind == EFFECTS:
        effects.into_z(table[series:], x)
    elif kind == WEIGHTS:
        weights.into_z(table, x)


@kernel(ordered=True, counted=False)
def _pull_back_outer(table: Any, z: Any, x: Any, score: Any, kept: Any) -> None:
    """Turn the score in x into that before these laws, in place; `z` (d,) has the z of effects or weights."""
    series = field.end_of_innovations(table)
    if series > 0:
        innovations.pull_back(table, x, score)
    kind = _kind_at(table, series)
    if kind == WEIGHTS:
        weights.pull_back(table, z, x, score, kept)
    elif kind == EFFECTS:
        if series > 0:
            _pull_back_effects_of_series(table, z, x, score)
        else:
            effects.pull_back(table, z, x, score)


@kernel(ordered=True, late=True)
def _pull_back_effects_of_series(table: Any, z: Any, x: Any, score: Any) -> None:
    """Turn the score in effects into the one in their z, where these depend on series in innovations."""
    u = x.copy()
    innovations.into_u(table, u)
    effects.pull_back(table[field.end_of_innovations(table) :], z, u, score)


@kernel(ordered=True, counted=False)
def _outer_score_in_x(table: Any, u: Any, x: Any, score: Any) -> None:
    """Turn the score before these laws, at `u` (d,), into the one in x, in place."""
    series = field.end_of_innovations(table)
    kind = _kind_at(table, series)
    if kind == WEIGHTS:
        weights.score_in_x(table, u, x, score)
    elif kind == EFFECTS:
        if series > 0:
            _score_in_effects_of_series(table, u, x, score)
        else:
            effects.score_in_x(table, u, x, score)
    if series > 0:
        innovations.score_in_x(table, x, score)


@kernel(ordered=True, late=True)
def _score_in_effects_of_series(table: Any, u: Any, x: Any, score: Any) -> None:
    """Turn the score in z of effects, at `u` (d,), into the one in effects that depend on such series."""
    w = x.copy()
    innovations.into_u(table, w)
    effects.score_in_x(table[field.end_of_innovations(table) :], u, w, score)


@kernel(ordered=True)
def score_in_x(table: Any, z: Any, x: Any, score: Any) -> Any:
    """The score (d,) in x, from `score` in z."""
    start, first, latents = field.lengths(table)
    found, k, u = score.copy(), latents, x
    if latents > first:
        u = _before_heads(table[first:], x)
    inner = _end_of_inner(table, latents)
    before, scaled = z, u
    if _is_moved_on(table, latents, inner):
        before = _after_inner(table, latents, inner, z)
        scaled = before
    while k < inner:
        if table[k, KIND] == TAIL:
            k = tail.score_in_x(table, k, z, u, found)
        elif table[k, KIND] == BEND:
            k = bend.score_in_x(table, k, z, u, found)
        elif table[k, KIND] == DIRECTION:
            k = direction.score_in_x(table, k, z, u, found)
        else:
            k = error_scale.score_in_x(table, k, z, scaled, found)
    while k < len(table):
        if table[k, KIND] == RIDGE:
            k = ridge.score_in_x(table, k, before, u, found)
        else:
            k = group.score_in_x(table, k, before, u, found)
    if latents > first:
        field.score_in_x(table[first:], u, x, found)
    if start > 0:
        series = x.copy()
        _undo_outer(table, series)
        if first > start:
            field.score_in_x(table[start:], z, series, found)
        _outer_score_in_x(table, series, x, found)
    elif first > 0:
        field.score_in_x(table, z, x, found)
    return found


@kernel(ordered=True)
def rows_into_x(table: Any, points: Any, logp: Any) -> None:
    """Turn draws (n, d) and log densities (n,) in z into those in x, in place."""
    z = np.empty(points.shape[1])
    for row in range(len(points)):
        for i in range(z.size):
            z[i] = points[row, i]
        logp[row] -= into_x(table, z, points[row])


def transport_draws(
    table: np.ndarray, points: np.ndarray, scores: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Draws and scores (n, d) in z, from those in x."""
    if not len(table):
        return points, scores
    z, scores_z = np.empty(points.shape), np.array(scores, order="C")
    _rows_into_z(table, np.ascontiguousarray(points), scores_z, z)
    return z, scores_z


def points_in_z(table: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Points (n, d) in z, from those in x, as a new array.

    The kernel is the one for draws with their scores, so that no run compiles another one for points alone.
    """
    return np.array(transport_draws(table, points, np.zeros(points.shape))[0], order="C")


@kernel(ordered=True)
def _rows_into_z(table: Any, points: Any, scores: Any, z: Any) -> None:
    """Write z of points (n, d) to `z` (n, d), and turn their scores in x into those in z, in place."""
    for row in range(len(points)):
        into_z(table, points[row], z[row])
        pull_back(table, z[row], points[row], scores[row])


def change_coordinates(
    before: np.ndarray, after: np.ndarray, z: np.ndarray, logp: float, score: np.ndarray
) -> tuple[np.ndarray, float, np.ndarray]:
    """A point z (d,), its log density and its score in the coordinates of another map."""
    if not (len(before) or len(after)):
        return z, logp, score
    x = np.empty_like(z)
    logp_x = logp - into_x(before, z, x)
    points, scores = transport_draws(after, x[None], score_in_x(before, z, x, score)[None])
    return points[0], logp_x + into_x(after, points[0], x), scores[0]


def is_map(table: np.ndarray, d: int) -> bool:
    """Whether `table` is a map of `d` coordinates, with which kernels stay inside of their arrays.

    A table that comes from a file may hold anything. In a map each coordinate is moved by one law, but for
    heads that have a law given the root, and coordinates with the scale of errors, which another law may
    move, too; the laws have their order; groups have all their rows; and no coordinate is moved after others
    that depend on it.
    """
    if table.ndim != 2 or table.shape[1] != COLUMNS:
        return False
    latents, table = field_table.split(table)
    if not field_table.are_valid(latents, d):
        return False
    finite = np.delete(table, REACH, axis=1)
    if not np.isfinite(finite).all() or np.isnan(table[:, REACH]).any():
        return False
    if not np.isin(table[:, KIND], [kind for law in LAWS for kind in law.KINDS]).all():
        return False
    own = table[:, OWN]
    if not are_coordinates(own, d):
        return False
    if len(latents):
        beside = have_scale_of_effects(table)
        used = np.concatenate((coordinates_of(table[~beside]), table[beside, OWN]))
        if np.isin(used, field_table.moved_by(latents)).any():
            return False
    ridges = table[:, KIND] == RIDGE  # their rows for a coordinate follow each other
    again = ridges[1:] & ridges[:-1] & (own[1:] == own[:-1])
    scaled = table[:, KIND] == ERROR_SCALE
    if len(set(own[~scaled])) < np.count_nonzero(~scaled) - np.count_nonzero(again):
        return False
    if len(set(own[scaled])) < np.count_nonzero(scaled):
        return False
    outer = depends(table) & ~scaled
    order = np.where(outer, 2, np.where(scaled, 1, 0))
    if np.any(np.diff(order) < 0):
        return False
    if not all(law.are_valid(table[np.isin(table[:, KIND], law.KINDS)], d) for law in LAWS):
        return False
    return not any(np.isin(_parents_of(row), own[k:]).any() for k, row in enumerate(table))


def _parents_of(row: np.ndarray) -> np.ndarray:
    """The coordinates that a row of a map, not of a field, depends on; some may be -1, for none."""
    if row[KIND] == RIDGE:
        return row[[PARENT_A, PARENT_B]]
    if row[KIND] == ERROR_SCALE:
        return row[[SCALE]]
    return row[[SCALE, SECOND, LOCATION, PART, PART_SCALE]] if depends(row[None])[0] else row[:0]


def coordinates_of(table: np.ndarray) -> np.ndarray:
    """All coordinates that rows of a map, without a field, move or depend on."""
    return np.concatenate((table[:, OWN], *(_parents_of(row) for row in table)))
