"""The form in which kernels hold a map of coordinates: a table (r, 19) of numbers.

To pass one array on costs a kernel nothing; seven arrays cost a tenth of a gradient. A row moves one
coordinate. The rows of a group, of coordinates with the scale of an error, and of a direction follow each
other, and the first of them holds their number:

    symbol        column           meaning
                  KIND             the law: TAIL, BEND, and for groups CENTRED (beta > 0) and NOT_CENTRED
                  ROWS             number of rows of the group, on its first row, else 0
    i             OWN              the coordinate
    u, u', p      SCALE, SECOND, LOCATION       coordinates too, -1 for none
                  APART            1 in a group with a location for each row; and in what belongs to the first
                                   rows: bends of their heads, and coordinates with the scale of effects
    beta, beta'   BETA, BETA_2
    a             REFERENCE, THRESHOLD          r, which the group shares, and e^(2 (a_i - r))
    o             UNIT             and LOG_UNITS: the sum of log o_i of the group, on its first row
    y             DATA
    C, c          SLOPE, OFFSET    C e^(a_i) and 0 where beta < 0
    q, v, b       PART, PART_SCALE, PART_BETA   of a location that is not centred itself: p + e^(b v) x_q
    v, m          SECOND, ERROR_MIDDLE   of an unknown error; beta' then has the other sign than beta
    c, delta      CENTER, RATE     of a tail, in the columns of DATA and UNIT
    c, v, b, m    CENTER, SCALE, BETA, REFERENCE    of coordinates with the scale of errors,
    f             FLOOR            and in the column of SLOPE
    k, q, omega   KNOT, STRENGTH, WIDTH    of a bend, in the columns of DATA, UNIT and REFERENCE
    sigma, l      SIDE, REACH      of a bend, in the columns of BETA and THRESHOLD
    a, b          PARENT_A, PARENT_B       of a term of a ridge, in the columns of SCALE and SECOND
    m_a, m_b, q   CENTER_A, CENTER_B, STRENGTH    of a term, in those of DATA, OFFSET and UNIT
    r_a, r_b      REACH, REACH_B   of a term, in those of THRESHOLD and SLOPE
    p             LENGTH_POWER     of a direction, in the column of UNIT

A field (field.py) has the first rows, after those of the innovations of a series if it has any
(innovations.py): a header, which holds their number and counts in the columns N_LATENTS to LEVEL_FACTOR, and
rows that hold numbers in all columns. MORE is 1 if a field of other latents follows. Fields of the heads and
bends may belong to these. Before a field, or in place of it, there may be effects (effects.py), with a header
and such rows for each factor; or weights (weights.py) in its place.

direction.py, tail.py, bend.py, error_scale.py, ridge.py, group.py, field.py, effects.py and weights.py
explain the symbols.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..jit import kernel

COLUMNS = 19
KIND, ROWS, OWN, SCALE, SECOND, LOCATION, APART = range(7)
BETA, BETA_2, REFERENCE, LOG_UNITS, THRESHOLD, UNIT, DATA, SLOPE, OFFSET = range(7, 16)
PART, PART_SCALE, PART_BETA = range(16, COLUMNS)
CENTER, RATE = DATA, UNIT
ERROR_MIDDLE = PART_BETA  # a group with an error has no parts
KNOT, STRENGTH, WIDTH, SIDE, REACH = DATA, UNIT, REFERENCE, BETA, THRESHOLD
FLOOR = SLOPE
LENGTH_POWER = UNIT
PARENT_A, PARENT_B, CENTER_A, CENTER_B, REACH_B = SCALE, SECOND, DATA, OFFSET, SLOPE
# Of a field.
N_LATENTS, N_HEADS, N_FEATURES, N_ENTRIES, SIZE_S, SIZE_A, SIZE_G, N_GRADIENTS = range(2, 10)
RUN, RUN_END, FRAMED = range(10, 13)
LEVEL, LEVEL_SIZE, LEVEL_FACTOR, MORE = range(13, 17)
# Of effects, beside the first two and the last one of these.
N_EFFECTS, N_COEFFICIENTS, IS_CENTRED, N_CHANGING, N_TIES, TURN, POWER, OWN_ROWS = 4, 5, 6, 7, 8, 10, 11, 12
BOUNDED = 13
# Of weights, beside N_LATENTS, N_COEFFICIENTS and N_GRADIENTS.
N_CURVES, N_POINTS = 3, 4
DIRECTION, TAIL, CENTRED, NOT_CENTRED, BEND, FIELD, RIDGE = -2.0, 0.0, 1.0, -1.0, 2.0, 3.0, 4.0  # kinds
INNOVATIONS, ERROR_SCALE, EFFECTS, WEIGHTS = 5.0, 6.0, 7.0, 8.0


@kernel(ordered=True)
def no_transport() -> Any:
    """The map without rows: z is x."""
    return np.empty((0, COLUMNS))


@kernel(ordered=True, counted=False)
def first_row(table: Any, end: Any) -> Any:
    """The first of the rows that belong together and end before row `end`."""
    k = end - 1
    while table[k, ROWS] == 0.0:
        k -= 1
    return k


@kernel(ordered=True, counted=False)
def has_error(second: Any, beta: Any, beta_2: Any) -> Any:
    """Whether the second scale of a group is that of the error of its data."""
    return second >= 0.0 and beta * beta_2 < 0.0


def pack_rows(header: Mapping[int, float], numbers: Iterable[Any]) -> np.ndarray:
    """Rows that hold all numbers, one array after another, below a header with these columns."""
    flat = np.concatenate([np.ravel(np.asarray(v, float)) for v in numbers])
    rows = np.zeros((1 + -(-flat.size // COLUMNS), COLUMNS))
    rows[1:].reshape(-1)[: flat.size] = flat
    for column, value in header.items():
        rows[0, column] = value
    return rows


def is_of_group(table: np.ndarray) -> np.ndarray:
    """Which rows (r,) belong to groups."""
    return np.asarray(np.abs(table[:, KIND]) == CENTRED)


def without_error_scales(table: np.ndarray) -> np.ndarray:
    """The rows of a map without those of scales of errors."""
    return np.asarray(table[table[:, KIND] != ERROR_SCALE])


def have_scale_of_effects(table: np.ndarray) -> np.ndarray:
    """Which rows (r,) move coefficients whose widths change with the scales of effects, in the first rows."""
    return np.asarray((table[:, KIND] == ERROR_SCALE) & (table[:, APART] == 1.0))


def scales_of_groups(table: np.ndarray) -> np.ndarray:
    """The coordinates that are scale parameters of groups, errors of data left out."""
    rows = table[is_of_group(table)]
    second = rows[:, SECOND][rows[:, BETA] * rows[:, BETA_2] > 0.0]
    return np.unique(np.concatenate((rows[:, SCALE], second))).astype(np.int64)


def depends(table: np.ndarray) -> np.ndarray:
    """Which rows (r,), without those of a field, move a coordinate by others, their parents."""
    return np.asarray(is_of_group(table) | (table[:, KIND] == RIDGE) | (table[:, KIND] == ERROR_SCALE))


def are_coordinates(values: np.ndarray, d: int, least: int = 0) -> bool:
    """Whether all values are whole numbers from `least` to d - 1."""
    return bool(np.all((values == np.floor(values)) & (values >= least) & (values < d)))


def are_blocks(rows: np.ndarray, shared: Sequence[int], least: int = 1) -> bool:
    """Whether rows are whole blocks of at least so many rows, each with the same in `shared` columns."""
    if not are_coordinates(rows[:, ROWS], len(rows) + 1):
        return False
    k = 0
    while k < len(rows):
        length = int(rows[k, ROWS])
        part = rows[k : k + length]
        if length < least or len(part) < length or np.any(part[1:, ROWS] > 0.0):
            return False
        if np.any(part[:, shared] != part[0, shared]):
            return False
        k += length
    return True
