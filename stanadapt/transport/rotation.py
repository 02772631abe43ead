"""Axes in which effects of one scale are independent: the rotation that comes after the law of effects.

Where the data tie all effects of one scale, weights of a spline or coefficients of a regression, the negative
Hessian of these is P + D, with a prior's part P that is a multiple of I, and a matrix D of the data. In the
coordinates w of x = U w, with the eigenvectors U of D in columns, both are diagonal at all scales. So
w has the law of effects of groups that are not tied (effects.py). A rotation has no determinant.

The rows of a rotation are a header, with a size N_LATENTS and no effects, and rows that hold own (n,), the
coordinates that are turned, and U (n, n).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..jit import kernel
from .map_table import COLUMNS, EFFECTS, KIND, N_LATENTS, OWN_ROWS, ROWS, are_coordinates, pack_rows

_CLOSE = 1e-8  # of U^T U to I


class Rotation(NamedTuple):
    """The axes of some coordinates."""

    own: np.ndarray  # (n,)
    axes: np.ndarray  # (n, n) U, in columns


@kernel(ordered=True)
def rotate(rows: Any, x: Any, forward: Any) -> None:
    """Turn w among the coordinates `x` (d,) into U w, in place; into U^T x if not `forward`."""
    n, flat = int(rows[0, N_LATENTS]), rows.reshape(-1)
    own, axes = flat[COLUMNS : COLUMNS + n], flat[COLUMNS + n : COLUMNS + n + n * n]
    v, turned = np.empty(n), np.zeros(n)
    for i in range(n):
        v[i] = x[int(own[i])]
    for i in range(n):
        row = axes[i * n : (i + 1) * n]
        if forward:
            for j in range(n):
                turned[i] += row[j] * v[j]
        else:
            for j in range(n):
                turned[j] += row[j] * v[i]
    for i in range(n):
        x[int(own[i])] = turned[i]


def rotation_rows(rotations: Sequence[Rotation]) -> np.ndarray:
    """The rows of a map that hold rotations, and no effects."""
    parts = []
    for own, axes in rotations:
        rows = pack_rows({KIND: EFFECTS, N_LATENTS: len(own)}, (own, axes))
        rows[0, OWN_ROWS] = len(rows)
        parts.append(rows)
    together = np.concatenate(parts)
    together[0, ROWS] = len(together)
    return together


def with_rotations(rows: np.ndarray, rotations: np.ndarray) -> np.ndarray:
    """The rows of a map that has effects, or none, with rows of rotations after the effects."""
    if not len(rows):
        return rotations
    end = int(rows[0, ROWS])
    found = np.concatenate((rows[:end], rotations, rows[end:]))
    found[0, ROWS], found[end, ROWS] = end + len(rotations), 0.0
    return found


def rotation_of(rows: np.ndarray) -> Rotation:
    """The rotation that these rows hold, its header first."""
    n, flat = int(rows[0, N_LATENTS]), rows.reshape(-1)[COLUMNS:]
    return Rotation(flat[:n].astype(np.int64), flat[n : n + n * n].reshape(n, n))


def is_valid(rows: np.ndarray, d: int) -> bool:
    """Whether rows, which may come from a file, hold a rotation of `d` coordinates."""
    size = rows[[0], N_LATENTS]
    if not are_coordinates(size, d + 1) or rows[0, OWN_ROWS] != len(rows):
        return False
    n = int(size[0])
    if n == 0 or len(rows) != 1 + -(-(n + n * n) // COLUMNS):
        return False
    if not are_coordinates(rows.reshape(-1)[COLUMNS : COLUMNS + n], d):
        return False
    own, axes = rotation_of(rows)
    return len(set(own)) == n and bool(np.abs(axes.T @ axes - np.eye(n)).max() < _CLOSE * n)
