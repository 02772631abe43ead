"""The law of weights: coefficients of a regression, some with scales that are functions of parameters.

A program has standard normal w, and its linear predictor has the weights s_k(theta) w_k of some columns:
shrinkage as by a horseshoe or R2-D2, processes in a basis of functions, coefficients in groups with a scale
each. Other coefficients, an intercept for instance, have no such scale: s_k = 1. Let theta be the heads, on
which scales and the precision f(theta) of the data depend, and g all other coordinates. Where the data are
normal, the negative Hessian of w is

    M = E + A D A,   A = diag(e^a),   a_k = log s_k + log f / 2,

with the data's D and the prior's diagonal E, which is 1 for weights, and the score at w = 0 is
q = h + e^(a + log f / 2) (b - G g), where h is the prior's, 0 for weights. So the law

    w = M^-1 q + R^-T z,   M = R R^T,

makes z standard normal and independent of theta and g at all scales, so that heads have their law with the
weights integrated out. Where the data are not normal, D and b are those at the mode.

Log scales are sums of functions of one head each: u_k(theta) = o_k + sum of c_ki(theta_i), which are curves
through points, and lines beyond these. There are two more forms. A scale may have an upper limit that is a
parameter too, as the slab of a regularised horseshoe is (Piironen and Vehtari, 2017, Sparsity information and
regularization in the horseshoe and other shrinkage priors): then s^-2 = e^(-2 u) + e^(-2 u'), with a second
sum u'. Or squares of scales are shares of one variance, as in an R2-D2 prior (Zhang, Naughton, Bondell and
Reich, 2022, Bayesian regression using a prior on the model fit): then log(sum of pi_j e^(2 c_j)) / 2 is taken
off all u_k, where c_k are the curves of weight k alone.

Where the program is centred instead, x_k = s_k w_k with b_k ~ N(0, s_k^2), w is turned into x at the end. The
derivative of x in a scale is then that of the mean and of R alone.

The law is triangular: weights depend on the other coordinates alone. So it goes last, and its rows are the
first ones of a map. They are a header and rows that hold all numbers one after another, in the order of
`places`. With K weights and other coefficients, C curves through P points, p coordinates g, these are

    own          (K,)               the coordinates w
    is_weight    (K,)               1 for weights, 2 for those of a centred program, else 0
    prior        (K,), (K,)         the diagonal of E, and h
    offsets      (K,), (K,)         o of u and of u'; of u' `NO_LIMIT` where it is not there
    norms        (K,)               pi, 0 for all where scales are not normalised
    D, b         (K, K), (K,)
    g, G         (p,), (K, p)
    curves       (C,), (C,), (C,)   their heads, their targets, and where their points begin
    points       (P,), (P,), (P,)   places, values and slopes
    middle       (C,)               where the heads are, for a chain that comes from far out

The target of a curve is a weight's number, or `ALL`, `LIMITS` or `ERROR`: the u or u' of all weights, or
log f. weights_table.py writes and reads the rows, and fields/weights_search.py finds the law. The gradient of
a factor is that of Murray (2016), Differentiation of the Cholesky decomposition, arXiv 1602.07527.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..jit import kernel
from ..kinds import Real
from .map_table import COLUMNS, N_COEFFICIENTS, N_CURVES, N_LATENTS, N_POINTS

ALL, LIMITS, ERROR = -1.0, -2.0, -3.0  # targets of curves
CENTRED = 2.0  # what `is_weight` has for weights of a centred program
NO_LIMIT = 400.0  # the log of an upper limit that is none


@kernel(ordered=True, late=True)
def into_x(table: Any, x: Any, kept: Any) -> Real:
    """Turn z of weights among the coordinates `x` (d,) into the weights, in place. Returns log |dx/dz|.

    `kept` (n_kept(table),), or (0,), takes what `pull_back` needs of it.
    """
    flat, at, k = table.reshape(-1), places(table[0]), int(table[0, N_LATENTS])
    room = kept if kept.size > 0 else np.empty(n_kept(table))
    vectors, factor = room[: 6 * k].reshape(6, k), room[6 * k :].reshape(k, k)
    _condition(flat, at, x, vectors, factor)
    w, log_det = np.empty(k), 0.0
    for i in range(k):
        w[i] = x[int(flat[at[0] + i])]
        log_det += np.log(vectors[5, i] / factor[i, i])
    _solve(factor, w)
    for i in range(k):
        x[int(flat[at[0] + i])] = (vectors[3, i] + w[i]) * vectors[5, i]
    return log_det


@kernel(ordered=True, late=True)
def into_z(table: Any, x: Any) -> None:
    """Turn weights among the coordinates `x` (d,) into their z, in place."""
    flat, at, k = table.reshape(-1), places(table[0]), int(table[0, N_LATENTS])
    vectors, factor = np.empty((6, k)), np.empty((k, k))
    _condition(flat, at, x, vectors, factor)
    for i in range(k):
        vectors[0, i] = x[int(flat[at[0] + i])] / vectors[5, i] - vectors[3, i]
    for i in range(k):
        z = 0.0
        for j in range(i, k):
            z += factor[i, j] * vectors[0, j]
        x[int(flat[at[0] + i])] = z


@kernel(ordered=True, late=True)
def pull_back(table: Any, z: Any, x: Any, score: Any, kept: Any) -> None:
    """Turn the score in weights, at `x` (d,), into the one in their z, in place; `z` (d,) has that z.

    `kept` is that of `into_x` at the same point, or (0,).
    """
    _turn_scores(table, z, x, score, kept, 1.0)


@kernel(ordered=True, late=True)
def score_in_x(table: Any, z: Any, x: Any, score: Any) -> None:
    """Turn the score in z of weights into the one in the weights, at `x` (d,), in place."""
    _turn_scores(table, z, x, score, z[:0], -1.0)


@kernel(ordered=True)
def _turn_scores(table: Any, z: Any, x: Any, score: Any, kept: Any, sign: Any) -> None:
    """What both directions have in common; `sign` is 1 for a score in weights, and -1 for one in z."""
    flat, at, k = table.reshape(-1), places(table[0]), int(table[0, N_LATENTS])
    room = kept if kept.size > 0 else np.empty(n_kept(table))
    vectors, factor = room[: 6 * k].reshape(6, k), room[6 * k :].reshape(k, k)
    if kept.size == 0:
        _condition(flat, at, x, vectors, factor)
    share, pull, mean, width = vectors[1], vectors[2], vectors[3], vectors[5]
    of_z, of_w, by_pull, by_prior = np.empty(k), np.zeros(k), np.empty(k), np.empty(k)
    for i in range(k):
        of_z[i] = score[int(flat[at[0] + i])]
    if sign > 0.0:
        for i in range(k):
            of_z[i] *= width[i]
            of_w[i] = of_z[i]
        _solve_transposed(factor, of_z)
    else:
        for i in range(k):
            for j in range(i, k):
                of_w[j] += factor[i, j] * of_z[i]
    for i in range(k):
        score[int(flat[at[0] + i])] = of_z[i] if sign > 0.0 else of_w[i] / width[i]
        by_pull[i] = of_z[i]
    _solve(factor, by_pull)  # M^-1 times the score in w
    _by_prior(flat, at, factor, z, of_z, by_prior)
    by_scale, by_error = np.empty(k), 0.0
    for i in range(k):
        place = int(flat[at[0] + i])
        prior, from_prior = flat[at[1] + k + i], by_pull[i] * flat[at[1] + 2 * k + i]
        by_scale[i] = 2.0 * prior * (by_pull[i] * mean[i] - by_prior[i]) - from_prior
        by_width = 1.0 + x[place] / width[i] * of_w[i]
        by_error += 0.5 * (by_scale[i] - by_width + by_pull[i] * pull[i] - from_prior)
        if flat[at[1] + i] != CENTRED:
            by_scale[i] -= by_width
    p = at[5] - at[4]
    for q in range(p):
        total = 0.0
        for i in range(k):
            total += flat[at[5] + i * p + q] * by_pull[i] * vectors[0, i]
        score[int(flat[at[4] + q])] -= sign * total
    by_all, by_limits = 0.0, 0.0
    for i in range(k):
        if flat[at[1] + i] > 0.0:
            by_all += by_scale[i] * share[i]
            by_limits += by_scale[i] * (1.0 - share[i])
    for i in range(at[7] - at[6]):
        target = flat[at[7] + i]
        if target == ERROR:
            by_target = by_error
        elif target == ALL:
            by_target = by_all
        elif target == LIMITS:
            by_target = by_limits
        else:
            own = int(target)
            by_target = by_scale[own] * share[own] - vectors[4, own] * by_all
        head = int(flat[at[6] + i])
        score[head] += sign * by_target * _curve(flat, at, i, x[head])[1]


@kernel(ordered=True)
def _by_prior(flat: Any, at: Any, factor: Any, z: Any, of_z: Any, found: Any) -> None:
    """Write the derivatives in M_ii by R alone to `found` (K,): column i of R^-1 to the left and right of
    R^-1 dM R^-T, which is -(z_p s_q + delta_pq) / 2 for p >= q, and symmetric.
    """
    k = len(factor)
    inverse, before = np.empty((k, k)), np.zeros(k)
    _invert(factor, inverse)
    for i in range(k):
        found[i] = 0.0
    for p in range(k):
        row, here, score = inverse[p], z[int(flat[at[0] + p])], of_z[p]
        for i in range(p + 1):
            entry = row[i]
            found[i] -= entry * here * (before[i] + 0.5 * entry * score) + 0.5 * entry * entry
            before[i] += entry * score


@kernel(ordered=True, counted=False)
def n_kept(table: Any) -> Any:
    """How many numbers `into_x` keeps for `pull_back`: six for each weight, and R."""
    k = int(table[0, N_LATENTS])
    return 6 * k + k * k


@kernel(ordered=True, counted=False)
def places(header: Any) -> Any:
    """Where the arrays begin among the numbers of the rows, and where they end."""
    k, p, curves = int(header[N_LATENTS]), int(header[N_COEFFICIENTS]), int(header[N_CURVES])
    points = int(header[N_POINTS])
    of_data = COLUMNS + 7 * k
    coefficients = of_data + k * k + k
    heads = coefficients + p + k * p
    at = heads + 3 * curves
    middle = at + 3 * points
    return (
        COLUMNS,
        COLUMNS + k,
        COLUMNS + 4 * k,
        of_data,
        coefficients,
        coefficients + p,
        heads,
        heads + curves,
        heads + 2 * curves,
        at,
        middle,
        middle + curves,
    )


@kernel(ordered=True)
def _condition(flat: Any, at: Any, x: Any, vectors: Any, factor: Any) -> None:
    """Write e^(a + log f / 2), the shares of e^(-2 u) in s^-2, q, M^-1 q, the shares of weights in their norm
    and x / w to `vectors` (6, K), and R^T to the upper triangle of `factor` (K, K).
    """
    k, p, first, limit, log_f = at[1] - at[0], at[5] - at[4], 0.0, 0.0, 0.0
    scale, share, pull, mean, in_norm = vectors[0], vectors[1], vectors[2], vectors[3], vectors[4]
    for i in range(k):
        mean[i] = 0.0
    for i in range(at[7] - at[6]):
        target, value = flat[at[7] + i], _curve(flat, at, i, x[int(flat[at[6] + i])])[0]
        if target == ERROR:
            log_f += value
        elif target == ALL:
            first += value
        elif target == LIMITS:
            limit += value
        else:
            mean[int(target)] += value
    first -= _log_norm(flat[at[2] + 2 * k : at[3]], mean, in_norm)
    for i in range(k):
        a = 0.5 * log_f
        if flat[at[1] + i] > 0.0:
            u, its_limit = mean[i] + first + flat[at[2] + i], limit + flat[at[2] + k + i]
            a += min(u, its_limit) - 0.5 * np.log1p(np.exp(-2.0 * abs(u - its_limit)))
            share[i] = 1.0 / (1.0 + np.exp(2.0 * (u - its_limit)))
        vectors[5, i] = np.exp(a - 0.5 * log_f) if flat[at[1] + i] == CENTRED else 1.0
        mean[i] = np.exp(a)
        scale[i] = mean[i] * np.exp(0.5 * log_f)
        pull[i] = flat[at[3] + k * k + i]
        for q in range(p):
            pull[i] -= flat[at[5] + i * p + q] * x[int(flat[at[4] + q])]
        pull[i] = pull[i] * scale[i] + flat[at[1] + 2 * k + i]
    for i in range(k):
        row, beside, data = factor[i, i:], mean[i:], flat[at[3] + i * k + i : at[3] + (i + 1) * k]
        for j in range(row.size):
            row[j] = mean[i] * beside[j] * data[j]
        row[0] += flat[at[1] + k + i]
    _factorise(factor)
    for i in range(k):
        mean[i] = pull[i]
    _solve_transposed(factor, mean)
    _solve(factor, mean)


@kernel(ordered=True)
def _log_norm(norms: Any, curves: Any, in_norm: Any) -> Any:
    """log(sum of pi_j e^(2 c_j)) / 2, with the share of each in `in_norm` (K,); 0 where all pi are."""
    most, total = -np.inf, 0.0
    for i in range(norms.size):
        in_norm[i] = 0.0
        if norms[i] > 0.0:
            most = max(most, curves[i])
    if most == -np.inf:
        return 0.0
    for i in range(norms.size):
        if norms[i] > 0.0:
            in_norm[i] = norms[i] * np.exp(2.0 * (curves[i] - most))
            total += in_norm[i]
    for i in range(norms.size):
        in_norm[i] /= total
    return most + 0.5 * np.log(total)


@kernel(ordered=True, counted=False)
def _curve(flat: Any, at: Any, i: Any, x: Any) -> Any:
    """The value of a curve at `x`, and its slope there."""
    n = at[10] - at[9]
    total = n // 3
    first = int(flat[at[8] + i])
    last = (int(flat[at[8] + i + 1]) if i + 1 < at[9] - at[8] else total) - 1
    here, values, slopes = at[9], at[9] + total, at[9] + 2 * total
    if x <= flat[here + first]:
        return flat[values + first] + flat[slopes + first] * (x - flat[here + first]), flat[slopes + first]
    if x >= flat[here + last]:
        return flat[values + last] + flat[slopes + last] * (x - flat[here + last]), flat[slopes + last]
    j = first
    while flat[here + j + 1] < x:
        j += 1
    width = flat[here + j + 1] - flat[here + j]
    t = (x - flat[here + j]) / width
    low, high = flat[values + j], flat[values + j + 1]
    before, after = width * flat[slopes + j], width * flat[slopes + j + 1]
    rise = high - low
    square, cube = 3.0 * rise - 2.0 * before - after, before + after - 2.0 * rise
    value = low + t * (before + t * (square + t * cube))
    return value, (before + t * (2.0 * square + 3.0 * t * cube)) / width


@kernel(ordered=True)
def _factorise(matrix: Any) -> None:
    """Replace the upper triangle of a `matrix` (K, K) by that of R^T, where it is R R^T."""
    for i in range(len(matrix)):
        row = matrix[i, i:]
        _take_off(row, matrix, matrix, i, i)
        pivot = np.sqrt(row[0])
        for j in range(row.size):
            row[j] /= pivot


@kernel(ordered=True)
def _invert(upper: Any, inverse: Any) -> None:
    """Write R^-1 to `inverse` (K, K), zeros above its diagonal included, where `upper` (K, K) is R^T."""
    for i in range(len(upper)):
        row, pivot = inverse[i], upper[i, i]
        for j in range(row.size):
            row[j] = 0.0
        _take_off(row[:i], inverse, upper, i, 0)
        for j in range(i):
            row[j] /= pivot
        row[i] = 1.0 / pivot


@kernel(ordered=True)
def _take_off(row: Any, rows: Any, shares: Any, i: Any, start: Any) -> None:
    """Take the first i `rows` (K, K), from column `start` on, times column i of `shares`, off a `row` (n,).

    Eight rows are taken at once, since reading and writing `row` takes most of the time. Those that start at
    0 are the rows of a lower triangle.
    """
    whole = i - i % 8
    for first in range(0, whole, 8):
        fifth = first + 4
        a, b = rows[first, start:], rows[first + 1, start:]
        c, d = rows[first + 2, start:], rows[first + 3, start:]
        e, f = rows[fifth, start:], rows[fifth + 1, start:]
        g, h = rows[fifth + 2, start:], rows[fifth + 3, start:]
        by_a, by_b = shares[first, i], shares[first + 1, i]
        by_c, by_d = shares[first + 2, i], shares[first + 3, i]
        by_e, by_f = shares[fifth, i], shares[fifth + 1, i]
        by_g, by_h = shares[fifth + 2, i], shares[fifth + 3, i]
        for j in range(row.size if start > 0 else first + 8):
            left = row[j] - (by_a * a[j] + by_b * b[j] + by_c * c[j] + by_d * d[j])
            row[j] = left - (by_e * e[j] + by_f * f[j] + by_g * g[j] + by_h * h[j])
    for m in range(whole, i):
        last, by_last = rows[m, start:], shares[m, i]
        for j in range(row.size):
            row[j] -= by_last * last[j]


@kernel(ordered=True)
def _solve(upper: Any, v: Any) -> None:
    """Replace `v` (K,) by the solution of R^T y = v, where `upper` (K, K) is R^T."""
    for back in range(v.size):
        i = v.size - 1 - back
        row, solved, total = upper[i, i + 1 :], v[i + 1 :], v[i]
        for j in range(row.size):
            total -= row[j] * solved[j]
        v[i] = total / upper[i, i]


@kernel(ordered=True)
def _solve_transposed(upper: Any, v: Any) -> None:
    """Replace `v` (K,) by the solution of R y = v, where `upper` (K, K) is R^T."""
    for i in range(v.size):
        v[i] /= upper[i, i]
        row, below, here = upper[i, i + 1 :], v[i + 1 :], v[i]
        for j in range(below.size):
            below[j] -= here * row[j]
