"""The law of a group of coordinates with a scale that is itself a parameter.

In a hierarchy the scale of many coordinates is itself a parameter. The posterior is then a funnel, which no
linear map straightens. Suppose that x_i has the normal prior N(C p + c, e^(2u)), where the location p and the
log scale u are coordinates too, and that the likelihood of x_i is N(y_i, sigma_i²). Given p and u,

    x_i ~ N((1 - w) (C p + c) + w y_i, sigma_i² w),  w = 1 / (1 + e^(-2 eta)),  eta = u - a_i,

where w is the weight of the data and a_i = log sigma_i. Let o_i be a number that keeps z_i on the scale of
x_i. Then the law

    x_i = (1 - w) (C p + c) + w y_i + o_i w^½ z_i                                           (beta > 0)

makes z_i normal and independent of u and p. If w is near 1, this is the centred program, and if w is near 0,
the one that is not centred; the threshold a_i says for each coordinate where one turns into the other. In a
program that is not centred x_i has the prior N(0, 1), the likelihood depends on p + e^u x_i, and the law is

    x_i = (w (1 - w))^½ (y_i + C e^(a_i) p) + o_i w^½ z_i,  eta = -u - a_i,                 (beta < 0)

where w is the weight of the prior. In general eta_i = beta u + beta' u' - a_i with one or two scale
parameters: beta is ±1 for a log scale, ±½ for a log variance or precision, and two scale parameters make a
product of scales.

If the error of the data has an unknown log scale v, sigma_i is proportional to e^v. With a middle m of v and
f = e^(v - m), eta_i = u - (v - m) - a_i and o_i f take the places of eta_i and o_i where beta > 0. Where
beta < 0, eta_i = -u + (v - m) - a_i, and (y_i + C e^(a_i) p) / f takes that of y_i + C e^(a_i) p. Then z_i
does not depend on v either.

The log determinant is the sum of log(o_i w_i^½). A gradient costs O(rows) more, with one exponential a group.
Kernels add one product at a time to a sum, so that every copy of a kernel rounds alike (jit.py). grouping/
learns groups from draws and scores.

Gorinova, Moore and Hoffman (2020), Automatic reparameterisation of probabilistic programs, learn a partial
centring from the program; here the map comes from draws and scores alone. This law is exact in both limits
and between them, while a partial centring x = C p (1 - lambda) + e^(lambda u) z is right at one value of u.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..jit import kernel
from ..kinds import Integer, Real
from .grouping.choice import choose_groups
from .grouping.groups import groups_of
from .map_table import (
    APART,
    BETA,
    BETA_2,
    CENTRED,
    DATA,
    ERROR_MIDDLE,
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
    first_row,
    has_error,
)
from .training import Training

KINDS = CENTRED, NOT_CENTRED


@kernel(ordered=True, counted=False, late=True)
def into_x(table: Any, k: Any, z: Any, x: Any, log_det: Any) -> tuple[Real, Integer]:
    """Write x(z) of the group that begins at row `k`. Returns log |dx/dz| and the row after its last."""
    kind = table[k, KIND]
    ratio, after = _law(table, k, x)
    factor, log_factor = _error_factor(table[k], x)
    log_det += table[k, LOG_UNITS]
    if kind == CENTRED:
        log_det += table[k, ROWS] * log_factor
    product = 1.0
    while k < after:  # rows with the same p together, so that the compiler makes a fast loop
        p, last = _stretch(table, k, after, x)
        while k < last:
            row = table[k]
            i = int(row[OWN])
            inverse = 1.0 + ratio * row[THRESHOLD]
            w = 1.0 / inverse
            root, here = np.sqrt(w), row[OFFSET] + row[SLOPE] * p
            if kind == CENTRED:
                here += w * (row[DATA] - here)
                root *= factor
            else:
                here = 0.0 + root * np.sqrt(1.0 - w) * factor * (row[DATA] + here)
            x[i] = here + root * row[UNIT] * z[i]
            product *= inverse
            if product > 1e150:  # a logarithm is slow, and a product overflows
                log_det -= 0.5 * np.log(product)
                product = 1.0
            k += 1
    return log_det - 0.5 * np.log(product), after


@kernel(ordered=True, counted=False, late=True)
def into_z(table: Any, k: Any, x: Any, z: Any) -> Integer:
    """Write z(x) of the group that begins at row `k`. Returns the row after its last."""
    kind = table[k, KIND]
    ratio, after = _law(table, k, x)
    factor, _ = _error_factor(table[k], x)
    while k < after:
        p, last = _stretch(table, k, after, x)
        while k < last:
            row = table[k]
            i = int(row[OWN])
            w = 1.0 / (1.0 + ratio * row[THRESHOLD])
            root, here = np.sqrt(w), row[OFFSET] + row[SLOPE] * p
            if kind == CENTRED:
                here += w * (row[DATA] - here)
                root *= factor
            else:
                here = root * np.sqrt(1.0 - w) * factor * (row[DATA] + here)
            z[i] = (x[i] - here) / (root * row[UNIT])
            k += 1
    return after


@kernel(ordered=True, counted=False, late=True)
def pull_back(table: Any, end: Any, z: Any, x: Any, score: Any) -> Integer:
    """Turn the score in x into the one in z, for the group that ends before row `end`.

    Returns its first row.
    """
    k = first_row(table, end)
    kind = table[k, KIND]
    ratio, _ = _law(table, k, x)
    factor, _ = _error_factor(table[k], x)
    pull, growth, m = 0.0, 0.0, k
    while m < end:
        p, last = _stretch(table, m, end, x)
        drag, first = 0.0, m
        while m < last:
            row = table[m]
            i = int(row[OWN])
            s = score[i]
            change, slope, scale, left, grown = _derivatives(row, kind, ratio, p, factor)
            pull += left
            pull += s * change
            pull += s * left * scale * z[i]
            growth += s * grown
            if kind == CENTRED:
                growth += 1.0
                growth += s * scale * z[i]
            drag += s * slope
            score[i] = s * scale
            m += 1
        _add_drag(table[first], x, score, drag)
    _add(table[k], score, pull, growth)
    return k


@kernel(ordered=True, counted=False, late=True)
def score_in_x(table: Any, k: Any, z: Any, x: Any, score: Any) -> Integer:
    """Turn the score in z into the one in x, for the group that begins at row `k`.

    Returns the row after its last.
    """
    first, kind = k, table[k, KIND]
    ratio, after = _law(table, k, x)
    factor, _ = _error_factor(table[k], x)
    pull, growth = 0.0, 0.0
    while k < after:
        p, last = _stretch(table, k, after, x)
        drag, shared = 0.0, k
        while k < last:
            i = int(table[k, OWN])
            change, slope, scale, left, grown = _derivatives(table[k], kind, ratio, p, factor)
            s = score[i] / scale
            pull += left
            pull += s * change
            pull += s * left * scale * z[i]
            growth += s * grown
            if kind == CENTRED:
                growth += 1.0
                growth += s * scale * z[i]
            drag += s * slope
            score[i] = s
            k += 1
        _add_drag(table[shared], x, score, -drag)
    _add(table[first], score, -pull, -growth)
    return after


@kernel(ordered=True, counted=False)
def _law(table: Any, k: Any, x: Any) -> Any:
    """e^(-2 (eta + a_i - r)) of the group that begins at row `k`, and the row after its last."""
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
    """Add to the scores of the coordinates in a row's location; `drag` is the derivative in the location."""
    if row[LOCATION] >= 0.0:
        score[int(row[LOCATION])] += drag
    if row[PART] >= 0.0:
        part, scale = int(row[PART]), int(row[PART_SCALE])
        scaled = drag * np.exp(row[PART_BETA] * x[scale])
        score[part] += scaled
        score[scale] += scaled * x[part] * row[PART_BETA]


@kernel(ordered=True, counted=False)
def _error_factor(row: Any, x: Any) -> Any:
    """f, or 1 / f where beta < 0, of the group with this first row, and its logarithm; 1 without an error."""
    if not has_error(row[SECOND], row[BETA], row[BETA_2]):
        return 1.0, 0.0
    log_factor = -row[BETA_2] * (x[int(row[SECOND])] - row[ERROR_MIDDLE])
    return np.exp(log_factor), log_factor


@kernel(ordered=True, counted=False)
def _derivatives(row: Any, kind: Any, ratio: Any, p: Any, factor: Any) -> Any:
    """dx_i/deta and dx_i/dp at z_i = 0; dx_i/dz_i; 1 - w, the derivative of log dx_i/dz_i in eta; and the one
    of x_i in the logarithm of the factor at z_i = 0.
    """
    w = 1.0 / (1.0 + ratio * row[THRESHOLD])
    root, left, slope = np.sqrt(w), 1.0 - w, row[SLOPE]
    if kind == CENTRED:
        at = row[OFFSET] + slope * p
        return 2.0 * w * left * (row[DATA] - at), left * slope, root * factor * row[UNIT], left, 0.0
    middle = root * np.sqrt(left) * factor
    here = middle * (row[DATA] + slope * p)
    return (left - w) * here, middle * slope, root * row[UNIT], left, here


@kernel(ordered=True, counted=False)
def _add(first: Any, score: Any, pull: Any, growth: Any) -> None:
    """Add `pull`, a derivative in eta, to the scores of a group's scale parameters, and `growth`, the one in
    the logarithm of the factor, to that of its error.
    """
    score[int(first[SCALE])] += first[BETA] * pull
    if first[SECOND] >= 0.0:
        if has_error(first[SECOND], first[BETA], first[BETA_2]):
            pull -= growth
        score[int(first[SECOND])] += first[BETA_2] * pull


def are_valid(rows: np.ndarray, d: int) -> bool:
    """Whether groups have all their rows, and move no coordinate after others that depend on it."""
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
        if has_error(*part[0, [SECOND, BETA, BETA_2]]) and np.any(part[:, PART] >= 0.0):
            return False
        k += length
    return True


def learn(rows: np.ndarray, training: Training) -> np.ndarray:
    """The rows that the map has next, learned from draws and from `rows`, those in use."""
    return choose_groups(rows, training)


def describe(rows: np.ndarray, d: int) -> dict[str, np.ndarray]:
    """What groups do to each coordinate, as arrays (d,) for results.

    `scale_head` and `scale_location` are the indices of the scale parameter u and of the location p,
    `scale_part` is the index q in a location p + e^(b v) x_q, and `data_error` that of the log scale of an
    unknown error of the data; -1 where there is none. `scale_beta` and `scale_knee` are the law's beta and
    its threshold a. `data_weight` is the weight of the data at the mean of the scale parameter: near 1 the
    coordinate is sampled as in a centred program, near 0 as in one that is not centred. The last three are
    NaN where no group moves the coordinate.
    """
    found, own = {}, rows[:, OWN].astype(np.int64)
    for name, column in (("scale_head", SCALE), ("scale_location", LOCATION), ("scale_part", PART)):
        found[name] = np.full(d, -1)
        found[name][own] = rows[:, column]
    groups, weight = groups_of(rows), 1.0 / np.square(rows[:, UNIT])
    found["data_error"] = np.full(d, -1)
    for group in groups:
        found["data_error"][group.members] = group.error
    thresholds = [group.thresholds for group in groups]
    numbers = {
        "scale_beta": rows[:, BETA],
        "scale_knee": np.concatenate(thresholds) if thresholds else np.zeros(0),
        "data_weight": np.where(rows[:, BETA] > 0.0, weight, 1.0 - weight),
    }
    for name, values in numbers.items():
        found[name] = np.full(d, np.nan)
        found[name][own] = values
    return found
