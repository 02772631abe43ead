"""The law of a group of coordinates whose scale is itself a parameter.

In a hierarchy the scale of many coordinates is itself a parameter, and no linear map
straightens that: the posterior is a funnel. Suppose that x_i has the normal prior N(C p + c, e^(2u)) and that
the data say N(y_i, sigma_i²), where the location p and the log scale u are coordinates too. Given them,

    x_i ~ N((1 - w) (C p + c) + w y_i, sigma_i² w),  w = 1 / (1 + e^(-2 eta)),  eta = u - a_i,

with w the weight of the data and a_i = log sigma_i. So, with a number o_i that keeps z_i on the scale of x_i,

    x_i = (1 - w) (C p + c) + w y_i + o_i w^½ z_i                                           (beta > 0)

has z_i normal and independent of u and p. Where w is near 1 this is the centred program, where it is near 0
the other one; a coordinate finds its own place by its threshold a_i. In a program that is not centred x_i is
N(0, 1) in the prior, the data speak of p + e^u x_i, and the law is

    x_i = (w (1 - w))^½ (y_i + C e^(a_i) p) + o_i w^½ z_i,  eta = -u - a_i,                 (beta < 0)

where w is the weight of the prior. In general eta_i = beta u + beta' u' - a_i with one or two scale
parameters: beta is ±1 for a log scale, ±½ for a log variance or precision, and two scale parameters make a
product of scales.

The log determinant is the sum of log(o_i w_i^½). A gradient costs O(rows) more, with one exponential a group.
Products are added one at a time, to what is a sum already, so that every copy of a kernel rounds alike
(jit.py). grouping/ learns groups from draws and scores.

Gorinova, Moore and Hoffman (2020), Automatic reparameterisation of probabilistic programs, learn a partial
centring from the program; here the map comes from draws and scores alone. It is exact in both limits and in
between, where a partial centring x = C p (1 - lambda) + e^(lambda u) z is right at one value of u.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..jit import kernel
from .columns import (
    APART,
    BETA,
    BETA_2,
    CENTRED,
    DATA,
    KIND,
    LOCATION,
    LOG_UNITS,
    NOT_CENTRED,
    OFFSET,
    OWN,
    PART,
    PART_BETA,
    PART_SCALE,
    REFERENCE,
    ROWS,
    SCALE,
    SECOND,
    SLOPE,
    THRESHOLD,
    UNIT,
    are_coordinates,
)
from .grouping.choice import choose_groups
from .grouping.groups import groups_of
from .training import Training

KINDS = CENTRED, NOT_CENTRED


@kernel(ordered=True, counted=False)
def into_x(table: Any, k: Any, z: Any, x: Any, log_det: Any) -> Any:
    """Write x(z) of the group that begins at row `k`. Returns log |dx/dz| and the row after its last."""
    kind = table[k, KIND]
    ratio, after = _law(table, k, x)
    log_det += table[k, LOG_UNITS]
    product = 1.0
    while k < after:  # rows with the same p at once, which the compiler makes the most of
        p, last = _stretch(table, k, after, x)
        while k < last:
            row = table[k]
            i = int(row[OWN])
            inverse = 1.0 + ratio * row[THRESHOLD]
            w = 1.0 / inverse
            root, here = np.sqrt(w), row[OFFSET] + row[SLOPE] * p
            if kind == CENTRED:
                here += w * (row[DATA] - here)
            else:
                here = 0.0 + root * np.sqrt(1.0 - w) * (row[DATA] + here)
            x[i] = here + root * row[UNIT] * z[i]
            product *= inverse
            if product > 1e150:  # logarithms are dear, and products overflow
                log_det -= 0.5 * np.log(product)
                product = 1.0
            k += 1
    return log_det - 0.5 * np.log(product), after


@kernel(ordered=True, counted=False)
def into_z(table: Any, k: Any, x: Any, z: Any) -> Any:
    """Write z(x) of the group that begins at row `k`. Returns the row after its last."""
    kind = table[k, KIND]
    ratio, after = _law(table, k, x)
    while k < after:
        p, last = _stretch(table, k, after, x)
        while k < last:
            row = table[k]
            i = int(row[OWN])
            w = 1.0 / (1.0 + ratio * row[THRESHOLD])
            root, here = np.sqrt(w), row[OFFSET] + row[SLOPE] * p
            if kind == CENTRED:
                here += w * (row[DATA] - here)
            else:
                here = root * np.sqrt(1.0 - w) * (row[DATA] + here)
            z[i] = (x[i] - here) / (root * row[UNIT])
            k += 1
    return after


@kernel(ordered=True, counted=False)
def pull_back(table: Any, end: Any, z: Any, x: Any, score: Any) -> Any:
    """Turn the score in x into the one in z, for the group that ends before row `end`.

    Returns its first row.
    """
    k = end - 1
    while table[k, ROWS] == 0.0:
        k -= 1
    kind = table[k, KIND]
    ratio, _ = _law(table, k, x)
    pull, m = 0.0, k
    while m < end:
        p, last = _stretch(table, m, end, x)
        drag, first = 0.0, m
        while m < last:
            row = table[m]
            i = int(row[OWN])
            s = score[i]
            change, slope, scale, left = _derivatives(row, kind, ratio, p)
            pull += left
            pull += s * change
            pull += s * left * scale * z[i]
            drag += s * slope
            score[i] = s * scale
            m += 1
        _add_drag(table[first], x, score, drag)
    _add(table[k], score, pull)
    return k


@kernel(ordered=True, counted=False)
def score_in_x(table: Any, k: Any, z: Any, x: Any, score: Any) -> Any:
    """Turn the score in z into the one in x, for the group that begins at row `k`.

    Returns the row after its last.
    """
    first, kind = k, table[k, KIND]
    ratio, after = _law(table, k, x)
    pull = 0.0
    while k < after:
        p, last = _stretch(table, k, after, x)
        drag, shared = 0.0, k
        while k < last:
            i = int(table[k, OWN])
            change, slope, scale, left = _derivatives(table[k], kind, ratio, p)
            s = score[i] / scale
            pull += left
            pull += s * change
            pull += s * left * scale * z[i]
            drag += s * slope
            score[i] = s
            k += 1
        _add_drag(table[shared], x, score, -drag)
    _add(table[first], score, -pull)
    return after


@kernel(ordered=True, counted=False)
def _law(table: Any, k: Any, x: Any) -> Any:
    """Of the group that begins at row `k`: e^(-2 (eta + a_i - r)), and the row after its last."""
    first = table[k]
    eta = first[BETA] * x[int(first[SCALE])] - first[REFERENCE]
    if first[SECOND] >= 0.0:
        eta += first[BETA_2] * x[int(first[SECOND])]
    return np.exp(-2.0 * eta), k + int(first[ROWS])


@kernel(ordered=True, counted=False)
def _stretch(table: Any, k: Any, after: Any, x: Any) -> Any:
    """p of row `k`, 0 where there is none, and the row after the last one that shares it."""
    p = x[int(table[k, LOCATION])] if table[k, LOCATION] >= 0.0 else 0.0
    if table[k, PART] >= 0.0:
        p += np.exp(table[k, PART_BETA] * x[int(table[k, PART_SCALE])]) * x[int(table[k, PART])]
    return p, k + 1 if table[k, APART] > 0.0 else after


@kernel(ordered=True, counted=False)
def _add_drag(row: Any, x: Any, score: Any, drag: Any) -> None:
    """Add to the scores of what the location of a row is made of, whose derivative is `drag`."""
    if row[LOCATION] >= 0.0:
        score[int(row[LOCATION])] += drag
    if row[PART] >= 0.0:
        part, scale = int(row[PART]), int(row[PART_SCALE])
        scaled = drag * np.exp(row[PART_BETA] * x[scale])
        score[part] += scaled
        score[scale] += scaled * x[part] * row[PART_BETA]


@kernel(ordered=True, counted=False)
def _derivatives(row: Any, kind: Any, ratio: Any, p: Any) -> Any:
    """Of where x_i is for z_i = 0, in eta and in p; dx_i/dz_i; and 1 - w, which is that of its log in eta."""
    w = 1.0 / (1.0 + ratio * row[THRESHOLD])
    root, left, slope = np.sqrt(w), 1.0 - w, row[SLOPE]
    if kind == CENTRED:
        at = row[OFFSET] + slope * p
        return 2.0 * w * left * (row[DATA] - at), left * slope, root * row[UNIT], left
    middle = root * np.sqrt(left)
    return (left - w) * middle * (row[DATA] + slope * p), middle * slope, root * row[UNIT], left


@kernel(ordered=True, counted=False)
def _add(first: Any, score: Any, pull: Any) -> None:
    """Add to the scores of a group's scale parameters."""
    score[int(first[SCALE])] += first[BETA] * pull
    if first[SECOND] >= 0.0:
        score[int(first[SECOND])] += first[BETA_2] * pull


def are_valid(rows: np.ndarray, d: int) -> bool:
    """Whether rows of groups follow each other as they should, and nothing is moved after it rules."""
    thresholds = rows[:, THRESHOLD]
    if not (are_coordinates(rows[:, SCALE], d, 0) and np.all(rows[:, UNIT] > 0.0)):
        return False
    if not np.all((thresholds >= 0.0) & np.isfinite(thresholds)):
        return False
    if not all(are_coordinates(rows[:, column], d, -1) for column in (SECOND, LOCATION, PART, PART_SCALE)):
        return False
    if not are_coordinates(rows[:, ROWS], len(rows) + 1, 0):
        return False
    k = 0
    while k < len(rows):
        length = int(rows[k, ROWS])
        part, later = rows[k : k + length], rows[k:, OWN]
        if length == 0 or len(part) < length or np.any(part[1:, ROWS] > 0.0):
            return False
        parents = part[:, [SCALE, SECOND, LOCATION, PART, PART_SCALE]]
        if np.any(part[:, KIND] != part[0, KIND]) or np.isin(parents, later).any():
            return False
        if np.any((part[:, PART] >= 0.0) & (part[:, PART_SCALE] < 0.0)):
            return False
        k += length
    return True


def learn(rows: np.ndarray, training: Training) -> np.ndarray:
    """The rows that draws ask for, from those in use."""
    return choose_groups(rows, training)


def describe(rows: np.ndarray, d: int) -> dict[str, np.ndarray]:
    """What groups do to each coordinate (d,), as results have it.

    `scale_head` and `scale_location` are the places of the scale parameter and the location, -1 for none, and
    `scale_part` is that of the coordinate that a location which is not centred itself has times a scale;
    `scale_beta` and `scale_knee` are the law's beta and a; `data_weight` is the weight of the data where the
    scale parameter has its mean: near 1 the coordinate is sampled as in a centred program, near 0 as in the
    other one. NaN where the coordinate is not moved.
    """
    found, own = {}, rows[:, OWN].astype(np.int64)
    for name, column in (("scale_head", SCALE), ("scale_location", LOCATION), ("scale_part", PART)):
        found[name] = np.full(d, -1)
        found[name][own] = rows[:, column]
    weight = 1.0 / np.square(rows[:, UNIT])
    thresholds = [group.thresholds for group in groups_of(rows)]
    numbers = {
        "scale_beta": rows[:, BETA],
        "scale_knee": np.concatenate(thresholds) if thresholds else np.zeros(0),
        "data_weight": np.where(rows[:, BETA] > 0.0, weight, 1.0 - weight),
    }
    for name, values in numbers.items():
        found[name] = np.full(d, np.nan)
        found[name][own] = values
    return found
