"""The skeleton of a law: copy this file to begin a new one. It moves a coordinate by its mean and scale.

No map uses this law, since it is linear and the metric learns what is linear. With the mean c and the
standard deviation e^a of the draws,

    x = c + e^a z.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..jit import kernel
from .map_table import COLUMNS, DATA, KIND, OWN, UNIT
from .training import Training

KINDS = (9.0,)  # a number that no other law has
CENTER, LOG_SCALE = DATA, UNIT  # columns of map_table.py
_FAR = 0.1  # a coordinate is moved if a, or c over its scale, is farther from 0 than this


@kernel(ordered=True, counted=False)
def into_x(table: Any, k: Any, z: Any, x: Any, log_det: Any) -> Any:
    """Write x(z) of row `k`. Returns log |dx/dz| and the next row."""
    i = int(table[k, OWN])
    x[i] = table[k, CENTER] + np.exp(table[k, LOG_SCALE]) * z[i]
    return log_det + table[k, LOG_SCALE], k + 1


@kernel(ordered=True, counted=False)
def into_z(table: Any, k: Any, x: Any, z: Any) -> Any:
    """Write z(x) of row `k`. Returns the next row."""
    i = int(table[k, OWN])
    z[i] = (x[i] - table[k, CENTER]) * np.exp(-table[k, LOG_SCALE])
    return k + 1


@kernel(ordered=True, counted=False)
def pull_back(table: Any, end: Any, z: Any, x: Any, score: Any) -> Any:
    """Turn the score in x into the one in z, for the row before `end`. Returns that row.

    The score in z is the score in x times dx/dz, plus the derivative of log |dx/dz|, which is 0 here.
    """
    score[int(table[end - 1, OWN])] *= np.exp(table[end - 1, LOG_SCALE])
    return end - 1


@kernel(ordered=True, counted=False)
def score_in_x(table: Any, k: Any, z: Any, x: Any, score: Any) -> Any:
    """Turn the score in z into the one in x, for row `k`. Returns the next row."""
    score[int(table[k, OWN])] *= np.exp(-table[k, LOG_SCALE])
    return k + 1


def are_valid(rows: np.ndarray, d: int) -> bool:
    """Whether rows, which may come from a file, give increasing functions."""
    return bool(np.all(np.abs(rows[:, LOG_SCALE]) < 700.0))


def learn(rows: np.ndarray, training: Training) -> np.ndarray:
    """The rows that the map has next, learned from draws and from `rows`, those in use."""
    center, log_scale = training.points.mean(axis=0), np.log(training.points.std(axis=0))
    far = (np.abs(log_scale) > _FAR) | (np.abs(center) > _FAR * np.exp(log_scale))
    chosen = np.setdiff1d(np.flatnonzero(far), training.taken)
    found = np.zeros((chosen.size, COLUMNS))
    found[:, KIND] = KINDS[0]
    found[:, OWN], found[:, CENTER], found[:, LOG_SCALE] = chosen, center[chosen], log_scale[chosen]
    return found


def describe(rows: np.ndarray, d: int) -> dict[str, np.ndarray]:
    """`log_scale` (d,) is a, 0 where a coordinate is not moved."""
    found = np.zeros(d)
    found[rows[:, OWN].astype(np.int64)] = rows[:, LOG_SCALE]
    return {"log_scale": found}
