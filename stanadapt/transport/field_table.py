"""Fields as rows of a map: written, read, checked and told.

field.py has the law and the order of its numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from . import effects_table, weights_table
from .bend import are_valid as are_bends
from .bend import bends_of, undo_bend
from .effects_table import Effects
from .field import Field, n_features, places
from .map_table import (
    APART,
    BEND,
    COLUMNS,
    EFFECTS,
    FIELD,
    FRAMED,
    INNOVATIONS,
    KIND,
    LEVEL,
    LEVEL_FACTOR,
    LEVEL_SIZE,
    MORE,
    N_ENTRIES,
    N_FEATURES,
    N_GRADIENTS,
    N_HEADS,
    N_LATENTS,
    OWN,
    ROWS,
    RUN,
    RUN_END,
    SIZE_A,
    SIZE_G,
    SIZE_S,
    WEIGHTS,
    are_coordinates,
    pack_rows,
)
from .triangular import is_run, longest_run, run_order

_CLOSE = 1e-6  # of a frame's determinant to 1, and of frame times inverse to I


def split(table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows of a map that hold its fields, with their innovations, its effects or weights, and the bends
    of their heads; and the others. There are none of the first if it has none of these laws.
    """
    parts = _parts(table)
    fields = *parts.innovations, parts.effects, parts.weights, *parts.latents, *parts.heads
    end = sum(map(len, fields)) + len(parts.bends)
    return table[:end], table[end:]


def _block(table: np.ndarray, kind: float) -> np.ndarray:
    """The rows of the field or the innovations that begin with the first row, as many as there are."""
    if not len(table) or table[0, KIND] != kind:
        return table[:0]
    return table[: int(max(table[0, ROWS], 1.0))] if np.isfinite(table[0, ROWS]) else table


def _fields(table: np.ndarray, kind: float = FIELD) -> list[np.ndarray]:
    """The rows of each of the fields, of latents, heads or innovations, that begin with the first row."""
    found: list[np.ndarray] = []
    while not found or (len(found[-1]) and found[-1][0, MORE] != 0.0):
        found.append(_block(table, kind))
        table = table[len(found[-1]) :]
    return [rows for rows in found if len(rows)]


class _Parts(NamedTuple):
    """The rows of fields by what they are for. Weights have bends alone, and so may effects."""

    innovations: list[np.ndarray]  # of each law of innovations,
    effects: np.ndarray
    weights: np.ndarray
    latents: list[np.ndarray]  # of each field of latents,
    heads: list[np.ndarray]  # and of heads
    bends: np.ndarray  # of heads


def _parts(rows: np.ndarray) -> _Parts:
    innovations = _fields(rows, INNOVATIONS)
    left = rows[sum(map(len, innovations)) :]
    effects = _block(left, EFFECTS)
    left = left[len(effects) :]
    weights = _block(left, WEIGHTS)
    left = left[len(weights) :]
    latents = _fields(left)
    left = left[sum(map(len, latents)) :]
    heads = _fields(left)
    left = left[sum(map(len, heads)) :]
    is_bend = (left[:, KIND] == BEND) & (left[:, APART] == 1.0)
    return _Parts(innovations, effects, weights, latents, heads, left[: int(np.argmin([*is_bend, False]))])


def innovations_of(rows: np.ndarray) -> np.ndarray:
    """The rows of the innovations, among the rows of fields, if these are series of innovations."""
    return rows[: sum(map(len, _parts(rows).innovations))]


def factors_in(rows: np.ndarray) -> list[Effects]:
    """The laws of correlated effects that these rows of a map hold, factor by factor; there may be none."""
    return effects_table.effects_of(_parts(rows).effects)


def effects_alone(rows: np.ndarray) -> np.ndarray:
    """The rows of the law of effects, among those of fields, without bends of its heads."""
    return _parts(rows).effects


def bends_of_effects(rows: np.ndarray, fields: np.ndarray) -> np.ndarray:
    """The bends of heads of effects, among `rows`, that the rows of other `fields` leave to them."""
    moved, bends = np.concatenate((moved_by(fields), latents_and_heads(fields)[1])), _parts(rows).bends
    return np.asarray(bends[_belong_to_effects(rows, moved)])


def without_effects(rows: np.ndarray) -> np.ndarray:
    """The rows of fields without the law of effects and the bends of its heads; none if there is no field."""
    parts = _parts(rows)
    if not parts.latents:
        return rows[:0]
    of_fields = np.concatenate([field_of(part).heads for part in (*parts.latents, *parts.heads)])
    bends = parts.bends[~_belong_to_effects(rows, of_fields)]
    return np.concatenate((*parts.innovations, *parts.latents, *parts.heads, bends))


def _belong_to_effects(rows: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Which bends are those of heads of effects that are none of the coordinates `others` (n,)."""
    of_effects = np.concatenate([np.zeros(0, np.int64), *(factor.heads for factor in factors_in(rows))])
    return np.isin(_parts(rows).bends[:, OWN], np.setdiff1d(of_effects, others))


def has_weights(rows: np.ndarray) -> bool:
    """Whether these rows of a map hold the law of weights, in place of a field."""
    return len(_parts(rows).weights) > 0


def fields_of(rows: np.ndarray) -> tuple[list[Field], list[Field]]:
    """The fields that these rows of a map hold: those of latents, and those of heads."""
    parts = _parts(rows)
    return [*map(field_of, parts.latents)], [*map(field_of, parts.heads)]


def bends_of_heads(rows: np.ndarray) -> np.ndarray:
    """The rows of the bends of heads, among the rows of fields, effects or weights."""
    return _parts(rows).bends


def latents_and_heads(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The coordinates that are latents and heads of the fields, of effects or of weights."""
    if has_weights(rows):
        law = weights_table.weights_of(rows)
        return law.own, law.heads
    laws: list[Effects | Field] = [*factors_in(rows), *fields_of(rows)[0]]
    none = np.zeros(0, np.int64)
    heads = np.unique(np.concatenate([none, *(law.heads for law in laws)]))
    return np.concatenate([none, *(law.own.ravel() for law in laws)]), heads


def middle_of_field(rows: np.ndarray, d: int) -> np.ndarray:
    """The point z (d,) at which latents are at their means and heads in the middle, among rows of fields."""
    middle, (laws, of_heads) = np.zeros(d), fields_of(rows)
    for factor in factors_in(rows):
        middle[factor.heads] = factor.middle
    if has_weights(rows):
        for curve in weights_table.weights_of(rows).curves:
            middle[curve.head] = curve.middle
    for law in laws:
        middle[law.heads] = law.mid
    for bend in bends_of(bends_of_heads(rows)):
        middle[bend.place] = undo_bend(middle[[bend.place]], np.zeros(1), *bend[1:])[0][0]
    for law in of_heads:
        middle[law.own] = 0.0
    return middle


def moved_by(rows: np.ndarray) -> np.ndarray:
    """The coordinates that the rows of fields move and no other law does: latents, those that are turned, and
    heads with a bend.

    The heads that have a law given the root may have other laws before it: what is left of them, given the
    root, may have a long tail.
    """
    parts = _parts(rows)
    moved = [latents_and_heads(rows)[0], *(field_of(part).own for part in parts.innovations)]
    # The axes of some that are turned may have no effects.
    moved += [turned for turned, _ in effects_table.rotations_of(parts.effects)]
    return np.unique(np.concatenate((parts.bends[:, OWN].astype(np.int64), *moved)))


def moved_beside_latents(rows: np.ndarray) -> np.ndarray:
    """The heads that the rows of fields move: those that have a law given the root, and those with a bend."""
    parts = _parts(rows)
    bent = parts.bends[:, OWN].astype(np.int64)
    return np.unique(np.concatenate((bent, *(field_of(part).own for part in parts.heads))))


def field_rows(field: Field, gradients: int, kind: float = FIELD) -> np.ndarray:
    """The rows of a map that hold a field; `gradients` is the number that learning it took."""
    begin, end = longest_run(field.starts, field.later)
    numbers = [field.heads, field.mid, field.scale, field.rate, *field.bases]
    numbers += [field.middle, field.own, field.starts, field.later, *field.coefficients[:2]]
    numbers.append(field.coefficients[2][:, run_order(begin, end, field.starts, len(field.later))])
    if field.frame.size:
        numbers += [field.frame, np.linalg.inv(field.frame)]
    if len(field.centres):
        numbers += [field.axes, field.centres]
    header = {
        KIND: kind,
        N_LATENTS: len(field.own),
        N_HEADS: len(field.heads),
        N_FEATURES: n_features(len(field.heads)) + len(field.centres),
        N_ENTRIES: len(field.later),
        SIZE_S: len(field.bases[0]),
        SIZE_A: len(field.bases[1]),
        SIZE_G: len(field.bases[2]),
        N_GRADIENTS: gradients,
        RUN: begin,
        RUN_END: end,
        FRAMED: bool(field.frame.size),
    }
    if len(field.level):
        header |= dict(zip((LEVEL, LEVEL_SIZE, LEVEL_FACTOR), field.level, strict=True))
    rows = pack_rows(header, numbers)
    rows[0, ROWS] = len(rows)
    return rows


def join_fields(parts: Sequence[np.ndarray], places: Sequence[np.ndarray]) -> np.ndarray:
    """The rows of a map that hold the fields and bends of several parts of its coordinates.

    Each of the `parts` has rows of its own, in which coordinates are numbers in its entry of `places`.
    """
    latents: list[np.ndarray] = []
    heads: list[np.ndarray] = []
    bends: list[np.ndarray] = []
    for rows, place in zip(parts, places, strict=True):
        own = _parts(rows)
        latents += [_in_coordinates(part, place) for part in own.latents]
        heads += [_in_coordinates(part, place) for part in own.heads]
        bends.append(own.bends.copy())
        bends[-1][:, OWN] = place[own.bends[:, OWN].astype(np.int64)]
    return np.concatenate((*in_one_chain(latents), *in_one_chain(heads), *bends))


def in_one_chain(fields: list[np.ndarray]) -> list[np.ndarray]:
    """The rows of several fields, whose headers say from now on that another one follows."""
    for rows in fields[:-1]:
        rows[0, MORE] = 1.0
    return fields


def _in_coordinates(rows: np.ndarray, place: np.ndarray) -> np.ndarray:
    """The rows of a field whose coordinates are numbers in `place` (k,), with the coordinates there."""
    law = field_of(rows)
    level = law.level.copy()
    if len(level):
        level[0] = place[int(level[0])]
    law = law._replace(heads=place[law.heads], own=place[law.own], level=level)
    return field_rows(law, int(rows[0, N_GRADIENTS]))


def field_of(rows: np.ndarray) -> Field:
    """The field that these rows of a map hold, header first."""
    at, flat = places(rows), rows.reshape(-1)
    m, n, e = (int(rows[0, column]) for column in (N_HEADS, N_LATENTS, N_ENTRIES))
    f, sizes = int(rows[0, N_FEATURES]), [int(rows[0, column]) for column in (SIZE_S, SIZE_A, SIZE_G)]
    parts = [flat[at[i] : at[i + 1]] for i in range(len(at) - 1)]
    indices = [part.astype(np.int64) for part in (parts[0], *parts[8:11])]
    bases = tuple(part.reshape(size, f) for part, size in zip(parts[4:7], sizes, strict=True))
    shapes = [(size + 1, length) for size, length in zip(sizes, (n, n, e), strict=True)]
    coefficients = tuple(part.reshape(shape) for part, shape in zip(parts[11:14], shapes, strict=True))
    heads, own, starts, later = indices
    order = run_order(int(rows[0, RUN]), int(rows[0, RUN_END]), starts, e)
    by_columns = np.empty_like(coefficients[2])
    by_columns[:, order] = coefficients[2]
    frame = parts[14].reshape((n, n) if len(parts[14]) else (0, 0))
    axes, centres = (part.reshape((-1, m) if len(part) else (0, 0)) for part in parts[16:18])
    level = rows[0, [LEVEL, LEVEL_SIZE, LEVEL_FACTOR]] if rows[0, LEVEL_SIZE] else np.empty(0)
    return Field(
        heads=heads,
        mid=parts[1],
        scale=parts[2],
        rate=parts[3],
        bases=(bases[0], bases[1], bases[2]),
        middle=parts[7],
        own=own,
        starts=starts,
        later=later,
        coefficients=(coefficients[0], coefficients[1], by_columns),
        frame=frame,
        axes=axes,
        centres=centres,
        level=level,
    )


def are_valid(rows: np.ndarray, d: int) -> bool:
    """Whether rows, which may come from a file, hold fields of `d` coordinates; or nothing."""
    if not len(rows):
        return True
    parts = _parts(rows)
    bends, bent = parts.bends, parts.bends[:, OWN]
    if not (are_coordinates(bent, d) and np.isfinite(bends).all() and are_bends(bends, d)):
        return False
    if len(set(bent)) < len(bent):
        return False
    if len(parts.weights):
        alone = not (parts.innovations or len(parts.effects) or parts.latents)
        valid = alone and weights_table.are_valid(parts.weights, d)
        return valid and not np.isin(bent, weights_table.weights_of(parts.weights).own).any()
    if len(parts.effects) and not effects_table.are_valid(parts.effects, d):
        return False
    own_effects = np.concatenate([np.zeros(0, np.int64), *(one.own.ravel() for one in factors_in(rows))])
    if np.isin(bent, own_effects).any():
        return False
    innovations = parts.innovations
    if not parts.latents:
        return len(parts.effects) > 0 and not innovations
    if not all(_is_valid(part, d) for part in (*innovations, *parts.latents, *parts.heads)):
        return False
    if any(part[-1][0, MORE] != 0.0 for part in (innovations, parts.latents, parts.heads) if part):
        return False
    laws, of_heads = fields_of(rows)
    # Each coordinate is a latent once, and no head of such a field is a latent of another one; and the same
    # for the fields of heads, whose roots and latents are no latents. None of them is an effect, which may
    # depend on all of them.
    latents, of_series = np.concatenate([law.own for law in laws]), [*map(field_of, innovations)]
    for these in (of_series, laws, of_heads):
        own = np.concatenate([law.own for law in these] or [latents[:0]])
        heads = np.concatenate([law.heads for law in these] or [latents[:0]])
        if len(set(own)) < len(own) or np.isin(heads, own).any() or np.isin(bent, own).any():
            return False
        if np.isin(np.concatenate((own, heads)), own_effects).any():
            return False
        if these is of_heads and np.isin(np.concatenate((own, heads)), latents).any():
            return False
    return True


def _is_valid(rows: np.ndarray, d: int) -> bool:
    """Whether rows hold one field."""
    counts = rows[0, [N_LATENTS, N_HEADS, N_FEATURES, N_ENTRIES, SIZE_S, SIZE_A, SIZE_G, RUN, RUN_END]]
    if not (
        np.isfinite(rows).all()
        and are_coordinates(counts, rows.size + 1)
        and rows[0, ROWS] == len(rows)
        and rows[0, MORE] in (0.0, 1.0)
    ):
        return False
    bumps = rows[0, N_FEATURES] - n_features(int(rows[0, N_HEADS]))
    if bumps < 0.0 or (bumps and not rows[0, N_HEADS]) or rows[0, FRAMED] not in (0.0, 1.0):
        return False
    end = int(places(rows)[-1])
    if not (rows.size - COLUMNS < end <= rows.size):
        return False
    at, flat = places(rows), rows.reshape(-1)
    heads, own, starts, later = (flat[at[i] : at[i + 1]] for i in (0, 8, 9, 10))
    n = len(own)
    if not (are_coordinates(np.concatenate((heads, own)), d) and are_coordinates(starts, len(later) + 1)):
        return False
    if len(set(heads) | set(own)) < len(heads) + n or n == 0 or np.any(flat[at[2] : at[4]] <= 0.0):
        return False
    if starts[0] != 0 or starts[-1] != len(later) or np.any(np.diff(starts) < 0):
        return False
    columns = np.repeat(np.arange(n), np.diff(starts).astype(np.int64))
    if not (are_coordinates(later, n) and np.all(later > columns)):
        return False
    if not is_run(int(rows[0, RUN]), int(rows[0, RUN_END]), starts.astype(np.int64), later):
        return False
    return _is_level(rows[0], own) and _is_frame(flat[at[14] : at[16]], n)


def _is_level(header: np.ndarray, own: np.ndarray) -> bool:
    """Whether a header has a variable with a level, all of it among the latents `own` (n,); or none."""
    first, size, factor = header[[LEVEL, LEVEL_SIZE, LEVEL_FACTOR]]
    if size == 0.0:
        return bool(first == 0.0 and factor == 0.0)
    if not are_coordinates(np.array([first, size]), int(own.max()) + 2) or not factor > 0.0:
        return False
    return int(np.count_nonzero((own >= first) & (own < first + size))) == int(size)


def _is_frame(numbers: np.ndarray, n: int) -> bool:
    """Whether numbers are a matrix (n, n) with the determinant 1 or -1, and its inverse; or nothing."""
    if not len(numbers):
        return True
    frame, inverse = numbers.reshape(2, n, n)
    log_det = np.linalg.slogdet(frame)[1]
    return bool(abs(log_det) < _CLOSE * n and np.abs(frame @ inverse - np.eye(n)).max() < _CLOSE)


def describe(rows: np.ndarray, d: int) -> dict[str, np.ndarray]:
    """What a field does to each coordinate, as arrays (d,) for results.

    `field_role` is 0 for a coordinate outside of the field, 1 for a latent and 2 for a head; `field_entries`
    is the number of later latents that a latent depends on, and of all others in a frame, or with which it is
    turned. `field_root` is the coordinate on which a head's law depends, -1 for none. `field_effects` is the
    number of effects that the group of a latent has, 0 for other latents; `field_weights` is 1 for weights
    with scales that depend on the heads, 2 for coefficients beside them, and 0 for all others.
    `field_gradients` is what learning all of this took.
    """
    role, entries, together, weights = (np.zeros(d, np.int64) for _ in range(4))
    root = np.full(d, -1)
    found = {
        "field_role": role,
        "field_entries": entries,
        "field_root": root,
        "field_effects": together,
        "field_weights": weights,
        "field_gradients": np.zeros(()),
    }
    if not len(rows):
        return found
    parts = _parts(rows)
    for factor in factors_in(rows):
        own, k = factor.own, factor.own.shape[1]
        role[own], role[factor.heads], together[own], entries[own] = 1, 2, k, k - 1
    for turned, _ in effects_table.rotations_of(parts.effects):
        entries[turned] = len(turned) - 1
    if has_weights(rows):
        of_weights = weights_table.weights_of(rows)
        role[of_weights.own], role[of_weights.heads] = 1, 2
        entries[of_weights.own] = len(of_weights.own) - 1
        weights[of_weights.own] = np.where(of_weights.is_weight, 1, 2)
        return found | {"field_gradients": np.array(rows[0, N_GRADIENTS])}
    laws, of_heads = fields_of(rows)
    for law in laws:
        role[law.own], role[law.heads] = 1, 2
        entries[law.own] = np.diff(law.starts) if not law.frame.size else len(law.own) - 1
    for law in of_heads:
        root[law.own] = law.heads[0]
    taken = sum(part[0, N_GRADIENTS] for part in (*parts.innovations, *parts.latents))
    taken += parts.effects[:1, N_GRADIENTS].sum()
    return found | {"field_gradients": np.array(taken)}
