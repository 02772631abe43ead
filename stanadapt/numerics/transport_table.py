"""Whether a table of numbers is a map of transport.py: one that was read from a file may be anything."""

from __future__ import annotations

import numpy as np

from ..transport import (
    BEND,
    CENTRED,
    COLUMNS,
    HEAD,
    KIND,
    KNEE,
    LOCATION,
    NOT_CENTRED,
    OWN,
    PART,
    PART_HEAD,
    RATE,
    REACH,
    ROWS,
    SECOND,
    SIDE,
    STRENGTH,
    TAIL,
    UNIT,
    WIDTH,
    is_pair,
)


def is_map(table: np.ndarray, d: int) -> bool:
    """Whether `table` is a map of `d` coordinates whose kernels stay inside of their arrays.

    Each coordinate is moved once, rows that move one alone come first, pairs have all their rows, and what
    rules a coordinate is not moved after it, so that the map is triangular.
    """
    if table.ndim != 2 or table.shape[1] != COLUMNS:
        return False
    finite = np.delete(table, REACH, axis=1)
    if not np.isfinite(finite).all() or np.isnan(table[:, REACH]).any():
        return False
    if not np.isin(table[:, KIND], (TAIL, BEND, CENTRED, NOT_CENTRED)).all():
        return False
    own = table[:, OWN]
    if not _are_places(own, d, 0) or len(set(own)) < len(own):
        return False
    alone, pairs = table[~is_pair(table)], table[is_pair(table)]
    if is_pair(table)[: len(alone)].any():
        return False
    return _are_alone(alone) and _are_pairs(pairs, d)


def _are_places(values: np.ndarray, d: int, least: int) -> bool:
    """Whether all are whole numbers from `least` to d - 1."""
    return bool(np.all((values == np.floor(values)) & (values >= least) & (values < d)))


def _are_alone(rows: np.ndarray) -> bool:
    """Whether rows that move one coordinate alone are increasing functions of it."""
    tails, bends = rows[rows[:, KIND] == TAIL], rows[rows[:, KIND] == BEND]
    return bool(
        np.all(tails[:, RATE] > 0.0)
        and np.all(bends[:, WIDTH] > 0.0)
        and np.all(bends[:, STRENGTH] >= 0.0)
        and np.all(bends[:, REACH] >= 0.0)
        and np.all(np.abs(bends[:, SIDE]) == 1.0)
    )


def _are_pairs(rows: np.ndarray, d: int) -> bool:
    """Whether rows of pairs follow each other as they should, and nothing is moved after it rules."""
    knees = rows[:, KNEE]
    if not (_are_places(rows[:, HEAD], d, 0) and np.all(rows[:, UNIT] > 0.0)):
        return False
    if not np.all((knees >= 0.0) & np.isfinite(knees)):
        return False
    if not all(_are_places(rows[:, column], d, -1) for column in (SECOND, LOCATION, PART, PART_HEAD)):
        return False
    if not _are_places(rows[:, ROWS], len(rows) + 1, 0):
        return False
    k = 0
    while k < len(rows):
        length = int(rows[k, ROWS])
        part, later = rows[k : k + length], rows[k:, OWN]
        if length == 0 or len(part) < length or np.any(part[1:, ROWS] > 0.0):
            return False
        rulers = part[:, [HEAD, SECOND, LOCATION, PART, PART_HEAD]]
        if np.any(part[:, KIND] != part[0, KIND]) or np.isin(rulers, later).any():
            return False
        if np.any((part[:, PART] >= 0.0) & (part[:, PART_HEAD] < 0.0)):
            return False
        k += length
    return True
