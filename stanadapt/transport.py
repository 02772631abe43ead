"""Coordinates in which a posterior is nearly normal, and the density and its score in them.

A chain moves in z, and the density is known in x = T(z). Draws of z are exact for the density
p(T(z)) |dT/dz|, whatever T is; a good T makes trajectories and random walks short. T has three parts, learnt
from draws and scores (numerics/transport_learning.py, heavy_tails.py, bends.py) and frozen when warm-up
ends.

**Heavy tails.** For a coordinate whose tails fall like a power, x = c + sinh(delta z) / delta.

**Bends.** The log of a scale of which the data say only that it is small has an exponential tail on the left
and nearly none on the right. With S(t) = log(1 + e^t)² / 2, which is 0 on one side and t²/2 on the other,

    x = z + sigma q omega (S(t) - S(t - l)),  t = sigma (z - k) / omega,                  (sigma = ±1)

is x = z on one side of the knot k. On the other one x goes like z², so that an exponential tail becomes a
normal one, as far as draws have been: from t = l on the slope is 1 + q l and grows no more.

**Scales that vary.** In a hierarchy the scale of many coordinates is itself a parameter, and no linear map
straightens that: the posterior is a funnel. Suppose that x_i has the normal prior N(C p + c, e^(2u)) and that
the data say N(y_i, sigma_i²), where the location p and the log scale u are coordinates too. Given them,

    x_i ~ N((1 - w) (C p + c) + w y_i, sigma_i² w),  w = 1 / (1 + e^(-2 eta)),  eta = u - a_i,

with w the weight of the data and a_i = log sigma_i. So, with a number o_i that keeps z_i on the scale of x_i,

    x_i = (1 - w) (C p + c) + w y_i + o_i w^½ z_i                                           (beta > 0)

has z_i normal and independent of u and p. Where w is near 1 this is the centred program, where it is near 0
the other one; a coordinate finds its own place by its knee a_i. In a program that is not centred x_i is N(0,
1) in the prior, the data speak of p + e^u x_i, and the law is

    x_i = (w (1 - w))^½ (y_i + C e^(a_i) p) + o_i w^½ z_i,  eta = -u - a_i,                 (beta < 0)

where w is the weight of the prior. In general eta_i = beta u + beta' u' - a_i with one or two heads: beta is
±1 for a log scale, ±½ for a log variance or precision, and two heads make a product of scales.

A map is a table (r, 19) of numbers, since kernels hand one array on for nothing and seven for a tenth of a
gradient. A row moves one coordinate, and rows of the same law, a pair, follow each other:

    symbol        column           meaning
                  KIND             TAIL, BEND, or for beta > 0 CENTRED, for beta < 0 NOT_CENTRED
                  ROWS             number of rows of the pair, on its first row
    i             OWN              the coordinate
    u, u', p      HEAD, SECOND, LOCATION        coordinates too, -1 for none
                  APART            1 in a pair whose rows have a location each, else 0
    beta, beta'   BETA, BETA_2
    a             REFERENCE, KNEE  r, which the pair shares, and e^(2 (a_i - r))
    o             UNIT             and LOG_UNITS: the sum of log o_i of the pair, on its first row
    y             DATA
    C, c          SLOPE, OFFSET    C e^(a_i) and 0 where beta < 0
    q, v, b       PART, PART_HEAD, PART_BETA    of a location that is not centred itself: p + e^(b v) x_q
    c, delta      CENTER, RATE     of a tail, in the columns of DATA and UNIT
    k, q, omega   KNOT, STRENGTH, WIDTH    of a bend, in the columns of DATA, UNIT and REFERENCE
    sigma, l      SIDE, REACH      of a bend, in the columns of BETA and KNEE

Products are added one at a time, to what is a sum already, so that every copy of a kernel rounds alike
(jit.py). Pairs come in an order in which a coordinate is moved before it is a head or location of others. T
is triangular: its log determinant is the sum of log(o_i w_i^½). A gradient costs O(r) more, with one
exponential a pair.

Gorinova, Moore and Hoffman (2020), Automatic reparameterisation of probabilistic programs, learn a partial
centring from the program; here the map comes from draws and scores alone. It is exact in both limits and in
between, where a partial centring x = C p (1 - lambda) + e^(lambda u) z is right at one value of u.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .jit import bare_exact, exact

COLUMNS = 19
KIND, ROWS, OWN, HEAD, SECOND, LOCATION, APART = range(7)
BETA, BETA_2, REFERENCE, LOG_UNITS, KNEE, UNIT, DATA, SLOPE, OFFSET = range(7, 16)
PART, PART_HEAD, PART_BETA = range(16, COLUMNS)
CENTER, RATE = DATA, UNIT
KNOT, STRENGTH, WIDTH, SIDE, REACH = DATA, UNIT, REFERENCE, BETA, KNEE
TAIL, CENTRED, NOT_CENTRED, BEND = 0.0, 1.0, -1.0, 2.0  # kinds
FARTHEST = 700.0  # |delta z|, beyond which sinh overflows
_MOST_NEWTON = 60  # steps; seven do, and a point that is not finite has no end


@exact
def no_transport() -> Any:
    """z is x."""
    return np.empty((0, COLUMNS))


def is_pair(table: np.ndarray) -> np.ndarray:
    """Which rows (r,) are those of pairs; the others change one coordinate alone, and come first."""
    return np.asarray(np.abs(table[:, KIND]) == CENTRED)


@bare_exact
def _half_square(t: Any) -> Any:
    """S(t), and its first and second derivatives."""
    small = np.exp(-abs(t))
    soft, share = max(t, 0.0) + np.log1p(small), 1.0 / (1.0 + small)
    if t < 0.0:
        share *= small
    second = 0.0 + share * share
    second += soft * share * (1.0 - share)
    return 0.5 * soft * soft, soft * share, second


@bare_exact
def bend(t: Any, strength: Any, reach: Any) -> Any:
    """t + q (S(t) - S(t - l)), and its first and second derivatives."""
    near, near_1, near_2 = _half_square(t)
    far, far_1, far_2 = 0.0, 0.0, 0.0
    if reach < np.inf:
        far, far_1, far_2 = _half_square(t - reach)
    value, slope = t, 1.0
    value += strength * (near - far)
    slope += strength * (near_1 - far_1)
    return value, slope, strength * (near_2 - far_2)


@bare_exact
def _alone(row: Any, z: Any) -> Any:
    """x of a coordinate that is changed alone, dx/dz, the logarithm of that, and its derivative."""
    if row[KIND] == TAIL:
        rate = row[RATE]
        a = rate * z
        if not abs(a) < FARTHEST:
            return np.nan, np.nan, np.nan, np.nan
        log_slope = abs(a) + np.log1p(np.exp(-2.0 * abs(a))) - np.log(2.0)
        return row[CENTER] + np.sinh(a) / rate, np.cosh(a), log_slope, rate * np.tanh(a)
    scale = row[SIDE] * row[WIDTH]
    t = (z - row[KNOT]) / scale
    value, slope, second = bend(t, row[STRENGTH], row[REACH])
    x = row[KNOT]
    x += scale * value
    return x, slope, np.log(slope), second / slope / scale


@bare_exact
def unbend(y: Any, strength: Any, reach: Any) -> Any:
    """The t whose `bend` is `y`, by Newton's method; from there it comes from above."""
    t = y if y < 0.0 or strength == 0.0 else (np.sqrt(1.0 + 2.0 * strength * y) - 1.0) / strength
    if reach < np.inf:
        t = max(t, y / (1.0 + strength * reach))
    for _ in range(_MOST_NEWTON):
        value, slope, _ = bend(t, strength, reach)
        change = (value - y) / slope
        t -= change
        if not abs(change) > 1e-14 * (1.0 + abs(t)):
            break
    return t


@bare_exact
def _alone_into_z(row: Any, x: Any) -> Any:
    """z of a coordinate that is changed alone."""
    if row[KIND] == TAIL:
        rate = row[RATE]
        return np.arcsinh(rate * (x - row[CENTER])) / rate
    scale = row[SIDE] * row[WIDTH]
    z = row[KNOT]
    z += scale * unbend((x - row[KNOT]) / scale, row[STRENGTH], row[REACH])
    return z


@bare_exact
def _law(table: Any, k: Any, x: Any) -> Any:
    """Of the pair that begins at row `k`: e^(-2 (eta + a_i - r)), and the row after its last."""
    first = table[k]
    eta = first[BETA] * x[int(first[HEAD])] - first[REFERENCE]
    if first[SECOND] >= 0.0:
        eta += first[BETA_2] * x[int(first[SECOND])]
    return np.exp(-2.0 * eta), k + int(first[ROWS])


@bare_exact
def _stretch(table: Any, k: Any, after: Any, x: Any) -> Any:
    """p of row `k`, 0 where there is none, and the row after the last one that shares it."""
    p = x[int(table[k, LOCATION])] if table[k, LOCATION] >= 0.0 else 0.0
    if table[k, PART] >= 0.0:
        p += np.exp(table[k, PART_BETA] * x[int(table[k, PART_HEAD])]) * x[int(table[k, PART])]
    return p, k + 1 if table[k, APART] > 0.0 else after


@bare_exact
def _add_drag(row: Any, x: Any, score: Any, drag: Any) -> None:
    """Add to the scores of what the location of a row is made of, whose derivative is `drag`."""
    if row[LOCATION] >= 0.0:
        score[int(row[LOCATION])] += drag
    if row[PART] >= 0.0:
        part, head = int(row[PART]), int(row[PART_HEAD])
        scaled = drag * np.exp(row[PART_BETA] * x[head])
        score[part] += scaled
        score[head] += scaled * x[part] * row[PART_BETA]


@bare_exact
def into_x(table: Any, z: Any, x: Any) -> Any:
    """Write x(z) to `x` (d,). Returns log |dx/dz|, infinite where x overflows."""
    log_det, k = 0.0, 0
    for i in range(z.size):
        x[i] = z[i]
    while k < len(table):
        kind = table[k, KIND]
        if abs(kind) != CENTRED:
            i = int(table[k, OWN])
            x[i], _, log_slope, _ = _alone(table[k], z[i])
            log_det += log_slope
            k += 1
            continue
        ratio, after = _law(table, k, x)
        log_det += table[k, LOG_UNITS]
        product = 1.0
        while k < after:  # rows with the same p at once, which the compiler makes the most of
            p, last = _stretch(table, k, after, x)
            while k < last:
                row = table[k]
                i = int(row[OWN])
                inverse = 1.0 + ratio * row[KNEE]
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
        log_det -= 0.5 * np.log(product)
    return log_det if np.isfinite(log_det) else np.inf


@bare_exact
def _derivatives(row: Any, kind: Any, ratio: Any, p: Any) -> Any:
    """Of where x_i is for z_i = 0, in eta and in p; dx_i/dz_i; and 1 - w, which is that of its log in eta."""
    w = 1.0 / (1.0 + ratio * row[KNEE])
    root, left, slope = np.sqrt(w), 1.0 - w, row[SLOPE]
    if kind == CENTRED:
        at = row[OFFSET] + slope * p
        return 2.0 * w * left * (row[DATA] - at), left * slope, root * row[UNIT], left
    middle = root * np.sqrt(left)
    return (left - w) * middle * (row[DATA] + slope * p), middle * slope, root * row[UNIT], left


@bare_exact
def pull_back(table: Any, z: Any, x: Any, score: Any) -> None:
    """The gradient of the log density in z, from the score in x; `score` (d,) changes in place."""
    end = len(table)
    while end > 0:
        k = end - 1
        kind = table[k, KIND]
        if abs(kind) != CENTRED:
            i = int(table[k, OWN])
            _, slope, _, change = _alone(table[k], z[i])
            change += score[i] * slope
            score[i] = change
            end = k
            continue
        while table[k, ROWS] == 0.0:
            k -= 1
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
        end = k


@bare_exact
def _add(first: Any, score: Any, pull: Any) -> None:
    """Add to the scores of a pair's heads."""
    score[int(first[HEAD])] += first[BETA] * pull
    if first[SECOND] >= 0.0:
        score[int(first[SECOND])] += first[BETA_2] * pull


@exact
def score_in_x(table: Any, z: Any, x: Any, score: Any) -> Any:
    """The score (d,) in x, from `score` in z."""
    found, k = score.copy(), 0
    while k < len(table):
        kind = table[k, KIND]
        if abs(kind) != CENTRED:
            i = int(table[k, OWN])
            _, slope, _, change = _alone(table[k], z[i])
            found[i] = (score[i] - change) / slope
            k += 1
            continue
        first = k
        ratio, after = _law(table, k, x)
        pull = 0.0
        while k < after:
            p, last = _stretch(table, k, after, x)
            drag, shared = 0.0, k
            while k < last:
                i = int(table[k, OWN])
                change, slope, scale, left = _derivatives(table[k], kind, ratio, p)
                s = found[i] / scale
                pull += left
                pull += s * change
                pull += s * left * scale * z[i]
                drag += s * slope
                found[i] = s
                k += 1
            _add_drag(table[shared], x, found, -drag)
        _add(table[first], found, -pull)
    return found


@bare_exact
def into_z(table: Any, x: Any, z: Any) -> None:
    """Write z to `z` (d,), from `x`."""
    for i in range(x.size):
        z[i] = x[i]
    k = 0
    while k < len(table):
        kind = table[k, KIND]
        if abs(kind) != CENTRED:
            i = int(table[k, OWN])
            z[i] = _alone_into_z(table[k], x[i])
            k += 1
            continue
        ratio, after = _law(table, k, x)
        while k < after:
            p, last = _stretch(table, k, after, x)
            while k < last:
                row = table[k]
                i = int(row[OWN])
                w = 1.0 / (1.0 + ratio * row[KNEE])
                root, here = np.sqrt(w), row[OFFSET] + row[SLOPE] * p
                if kind == CENTRED:
                    here += w * (row[DATA] - here)
                else:
                    here = root * np.sqrt(1.0 - w) * (row[DATA] + here)
                z[i] = (x[i] - here) / (root * row[UNIT])
                k += 1


@exact
def rows_into_x(table: Any, points: Any, logp: Any) -> None:
    """Draws (n, d) and log densities (n,) in z become those in x, in place."""
    z = np.empty(points.shape[1])
    for row in range(len(points)):
        z[:] = points[row]
        logp[row] -= into_x(table, z, points[row])


@exact
def _rows_into_z(table: Any, points: Any, scores: Any, z: Any, scores_z: Any) -> None:
    for row in range(len(points)):
        into_z(table, points[row], z[row])
        scores_z[row] = scores[row]
        pull_back(table, z[row], points[row], scores_z[row])


def transport_draws(
    table: np.ndarray, points: np.ndarray, scores: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Draws and scores (n, d) in z, from those in x."""
    if not len(table):
        return points, scores
    z, scores_z = np.empty_like(points), np.empty_like(scores)
    _rows_into_z(table, np.ascontiguousarray(points), np.ascontiguousarray(scores), z, scores_z)
    return z, scores_z


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
