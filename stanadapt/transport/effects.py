"""The law of correlated effects: a few latents of each group that share scales and correlations.

In a hierarchy with varying intercepts and slopes each group j has K effects x_j with the normal prior
N(a_j(g), C C^T), where C = diag(e^(beta u)) L: u are log scales, and L is the Cholesky factor of a matrix of
correlations. The means a_j are linear in some coefficients g, the means of all groups for instance. Given all
of these, let the data give the likelihood N(D_j x_j | b_j - E_j g, D_j), with the precision D_j, for which
the estimate of a group alone need not exist. In the effects' own scales w, where x_j = a_j + C w_j, the
precision is

    M_j = I + f C^T D_j C = R_j R_j^T,   the mean m_j = f M_j^-1 C^T (b_j - D_j a_j - E_j g),

so that the law

    x_j = a_j + C (m_j + R_j^-T z_j)

makes z_j standard normal and independent of u, L and g. The factor f = e^(-2 (v - middle)) is there if a log
scale v of the error of the data is a coordinate. A program that is not centred has the coordinates w_j, and
its law is w_j = m_j + R_j^-T z_j. Where the data are normal the law is exact at all scales and correlations;
elsewhere D_j and b_j are those at the mode.

Stan has the correlations as K (K - 1) / 2 free numbers (Stan Reference Manual, Cholesky factors of
correlation matrices; Lewandowski, Kurowicka and Joe, 2009, Generating random correlation matrices based on
vines and extended onion method). With t = tanh of such a number, and those of a row one after another,

    L_ij = t_ij prod over k < j of (1 - t_ik^2)^1/2,   L_ii = prod over k < i of (1 - t_ik^2)^1/2.

The law is triangular: effects depend on the other coordinates alone. So it goes last. Its rows are the first
ones of a map: a header, with the columns N_LATENTS, N_HEADS and those of effects, and rows that hold all
other numbers one after another, in the order of `_places`:

    heads        (K (K + 1) / 2,)    the coordinates of u, and those of the correlations, row by row of L;
                                     (K,) without these, where effects are independent
    coefficients (p,)                those of g
    own          (K, J)              those of the effects
    D            (K (K + 1) / 2, J)  row by row of its lower triangle
    b, E         (K, J), (K, p, J)   where programs are centred, b_j - E_j g stands for b_j - D_j a_j - E_j g
    offset, A    (K, J), (K, p, J)   of a_j = offset_j + A_j g, in programs that are centred

The gradient of a factor R by M is that of Murray (2016), Differentiation of the Cholesky decomposition,
arXiv 1602.07527. fields/effects_search.py finds this law.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..jit import kernel
from ..kinds import Real
from .map_table import (
    COLUMNS,
    EFFECTS,
    IS_CENTRED,
    KIND,
    N_COEFFICIENTS,
    N_EFFECTS,
    N_GRADIENTS,
    N_HEADS,
    N_LATENTS,
    NOISE,
    NOISE_MIDDLE,
    POWER,
    ROWS,
    TURN,
    are_coordinates,
)

LARGEST = 8  # effects of a group
LEAST_GROUPS, LEAST_EFFECTS = 4, 10  # of groups, and of the effects of all of them


class Effects(NamedTuple):
    """The numbers of the law, see the top of this file."""

    heads: np.ndarray  # (K (K + 1) / 2,)
    coefficients: np.ndarray  # (p,)
    own: np.ndarray  # (J, K)
    precision: np.ndarray  # (J, K, K) D
    pulls: np.ndarray  # (J, K) b, the means of effects taken off
    slopes: np.ndarray  # (J, K, p) E, the same
    offsets: np.ndarray  # (J, K)
    means: np.ndarray  # (J, K, p) A
    centred: bool
    noise: int  # the coordinate v, or -1
    middle: float  # of v
    turn: float  # t is tanh of this multiple of the coordinate
    power: float  # beta: 1 for log scales, 1/2 for log variances and -1/2 for log precisions


@kernel(ordered=True, late=True)
def into_x(table: Any, x: Any) -> Real:
    """Turn z of effects among the coordinates `x` (d,) into effects, in place. Returns log |dx/dz|."""
    header, flat, at = table[0], table.reshape(-1), _places(table[0])
    k, groups = int(header[N_EFFECTS]), int(header[N_LATENTS]) // int(header[N_EFFECTS])
    root, arrays, vectors = np.zeros((k, k)), np.empty((3, k, k, groups)), np.empty((4, k, groups))
    log_det = _write_root(header, flat, at[0], x, root) * header[IS_CENTRED] * groups
    _condition(header, flat, at, x, root, arrays, vectors)
    factor, mean, w, effects = arrays[2], vectors[1], vectors[2], vectors[3]
    _gather(flat[at[2] : at[3]], x, w)
    log_det -= _log_diagonal(factor)
    _solve_transposed(factor, w)
    for i in range(k):
        _add(w[i], 1.0, mean[i])
    if header[IS_CENTRED] > 0.0:
        _write_means(header, flat, at, x, effects)
        for i in range(k):
            for m in range(i + 1):
                _add(effects[i], root[i, m], w[m])
        w = effects
    _scatter(flat[at[2] : at[3]], w, x)
    return log_det


@kernel(ordered=True, late=True)
def into_z(table: Any, x: Any) -> None:
    """Turn effects among the coordinates `x` (d,) into their z, in place."""
    header, flat, at = table[0], table.reshape(-1), _places(table[0])
    k, groups = int(header[N_EFFECTS]), int(header[N_LATENTS]) // int(header[N_EFFECTS])
    root, arrays, vectors = np.zeros((k, k)), np.empty((3, k, k, groups)), np.empty((4, k, groups))
    _write_root(header, flat, at[0], x, root)
    _condition(header, flat, at, x, root, arrays, vectors)
    factor, mean, w, z = arrays[2], vectors[1], vectors[2], vectors[3]
    _gather(flat[at[2] : at[3]], x, w)
    if header[IS_CENTRED] > 0.0:
        _write_means(header, flat, at, x, z)
        for i in range(k):
            _add(w[i], -1.0, z[i])
            for m in range(i):
                _add(w[i], -root[i, m], w[m])
            for j in range(groups):
                w[i, j] /= root[i, i]
    for i in range(k):
        _add(w[i], -1.0, mean[i])
    for i in range(k):
        _clear(z[i])
        for m in range(i, k):
            _add_product(z[i], 1.0, factor[m, i], w[m])
    _scatter(flat[at[2] : at[3]], z, x)


@kernel(ordered=True, late=True)
def pull_back(table: Any, z: Any, x: Any, score: Any) -> None:
    """Turn the score in effects, at `x` (d,), into the one in their z, in place; `z` (d,) has that z."""
    _turn_score(table, z, x, score, 1.0)


@kernel(ordered=True, late=True)
def score_in_x(table: Any, z: Any, x: Any, score: Any) -> None:
    """Turn the score in z of effects into the one in the effects, at `x` (d,), in place."""
    _turn_score(table, z, x, score, -1.0)


@kernel(ordered=True)
def _turn_score(table: Any, z: Any, x: Any, score: Any, sign: Any) -> None:
    """What both directions have in common; `sign` is 1 for a score in effects, and -1 for one in z."""
    header, flat, at = table[0], table.reshape(-1), _places(table[0])
    k, groups = int(header[N_EFFECTS]), int(header[N_LATENTS]) // int(header[N_EFFECTS])
    root, arrays, vectors = np.zeros((k, k)), np.empty((4, k, k, groups)), np.empty((8, k, groups))
    _write_root(header, flat, at[0], x, root)
    _condition(header, flat, at, x, root, arrays, vectors)
    tied, rest, factor, by_m = arrays[0], arrays[1], arrays[2], arrays[3]
    pull, mean, w, moved = vectors[0], vectors[1], vectors[2], vectors[3]
    s_x, g, a, along = vectors[4], vectors[5], vectors[6], vectors[7]
    own, centred, f = flat[at[2] : at[3]], header[IS_CENTRED] > 0.0, _precision_factor(header, x)
    _gather(own, z, moved)
    _gather(own, score, s_x)
    for i in range(k):
        _copy(w[i], moved[i])
    _solve_transposed(factor, w)
    for i in range(k):
        _add(w[i], 1.0, mean[i])
    if sign > 0.0:
        for i in range(k):
            _copy(g[i], s_x[i])
            if centred:
                _clear(g[i])
                for m in range(i, k):
                    _add(g[i], root[m, i], s_x[m])
        _solve(factor, g)
        _scatter(own, g, score)
    else:
        for i in range(k):
            _copy(g[i], s_x[i])
        for back in range(k):
            i = k - 1 - back
            _clear(s_x[i])
            for m in range(i + 1):
                _add_product(s_x[i], 1.0, factor[i, m], g[m])
            if centred:
                for m in range(i + 1, k):
                    _add(s_x[i], -root[m, i], s_x[m])
                for j in range(groups):
                    s_x[i, j] /= root[i, i]
        _scatter(own, s_x, score)
    for i in range(k):
        _copy(a[i], g[i])
    _solve_transposed(factor, a)  # M^-1 times the score in w
    # The derivative in M: first that in R^-1 dM R^-T.
    for i in range(k):
        for m in range(i + 1):
            _clear(by_m[i, m])
            _add_product(by_m[i, m], -0.5, moved[i], g[m])
            if i == m:
                for j in range(groups):
                    by_m[i, i, j] -= 0.5
            else:
                _copy(by_m[m, i], by_m[i, m])
    for m in range(k):
        _solve_transposed(factor, by_m[:, m])
    for i in range(k):
        _solve_transposed(factor, by_m[i])
        for m in range(k):
            _add_product(by_m[i, m], -0.5, a[i], mean[m])
            _add_product(by_m[i, m], -0.5, mean[i], a[m])
    by_root, by_f = np.zeros((k, k)), 0.0
    for i in range(k):
        for m in range(i + 1):
            by_f += (1.0 if i == m else 2.0) * _dot(by_m[i, m], rest[i, m])
        _clear(along[i])  # f C a
        for m in range(i + 1):
            _add(along[i], f * root[i, m], a[m])
        by_f += _dot(along[i], pull[i])
        for m in range(i + 1):
            by_root[i, m] += f * _dot(pull[i], a[m])
            for q in range(k):
                by_root[i, m] += 2.0 * f * _dot(tied[i, q], by_m[q, m])
            if centred:
                by_root[i, m] += _dot(s_x[i], w[m])
        for q in range(int(header[N_COEFFICIENTS])):
            begin = (i * int(header[N_COEFFICIENTS]) + q) * groups
            here = -_dot(flat[at[5] + begin : at[5] + begin + groups], along[i])
            if centred:
                here += _dot(flat[at[7] + begin : at[7] + begin + groups], s_x[i])
            score[int(flat[at[1] + q])] += sign * here
    _add_to_heads(header, flat, at[0], x, root, by_root, groups if centred else 0, sign, score)
    if header[NOISE] >= 0.0:
        score[int(header[NOISE])] -= 2.0 * sign * by_f


@kernel(ordered=True, counted=False)
def _places(header: Any) -> Any:
    """Where the arrays begin among the numbers of the table, and where it ends."""
    k, n, p = int(header[N_EFFECTS]), int(header[N_LATENTS]), int(header[N_COEFFICIENTS])
    triangle, centred = k * (k + 1) // 2, int(header[IS_CENTRED])
    coefficients = COLUMNS + int(header[N_HEADS])
    own = coefficients + p
    precision = own + n
    pulls = precision + n // k * triangle
    slopes = pulls + n
    offsets = slopes + n * p
    means = offsets + centred * n
    return COLUMNS, coefficients, own, precision, pulls, slopes, offsets, means, means + centred * n * p


@kernel(ordered=True, counted=False)
def _write_root(header: Any, flat: Any, heads: Any, x: Any, root: Any) -> Any:
    """Write C to the lower triangle of `root` (K, K). Returns log |C|."""
    k, angle, log_det = len(root), heads + len(root), 0.0
    for i in range(k):
        log_scale = header[POWER] * x[int(flat[heads + i])]
        scale, rest = np.exp(log_scale), 1.0
        log_det += log_scale
        for j in range(i if header[N_HEADS] > k else 0):
            turned = header[TURN] * x[int(flat[angle])]
            root[i, j] = scale * rest * np.tanh(turned)
            log_rest = _log_sech(turned)
            log_det += log_rest
            rest *= np.exp(log_rest)
            angle += 1
        root[i, i] = scale * rest
    return log_det


@kernel(ordered=True, counted=False)
def _log_sech(v: Any) -> Any:
    """log (1 - tanh(v)^2)^1/2, which does not lose its digits where tanh is nearly 1."""
    size = abs(v)
    return np.log(2.0) - size - np.log1p(np.exp(-2.0 * size))


@kernel(ordered=True, counted=False)
def _add_to_heads(
    header: Any,
    flat: Any,
    heads: Any,
    x: Any,
    root: Any,
    by_root: Any,
    groups: Any,
    sign: Any,
    score: Any,
) -> None:
    """Add to the scores of the heads what derivatives in C, and in log |C| of so many `groups`, give."""
    k, angle = len(root), heads + len(root)
    for i in range(k):
        whole = 0.0
        for m in range(i + 1):
            whole += by_root[i, m] * root[i, m]
        score[int(flat[heads + i])] += sign * header[POWER] * (whole + groups)
        rest = np.exp(header[POWER] * x[int(flat[heads + i])])
        for j in range(i if header[N_HEADS] > k else 0):
            turned = header[TURN] * x[int(flat[angle])]
            t, sech = np.tanh(turned), np.exp(_log_sech(turned))
            whole -= by_root[i, j] * root[i, j]  # of the entries behind this one
            here = by_root[i, j] * rest * sech * sech - t * (whole + groups)
            score[int(flat[angle])] += sign * header[TURN] * here
            rest *= sech
            angle += 1


@kernel(ordered=True, counted=False)
def _precision_factor(header: Any, x: Any) -> Any:
    """f, 1 where there is no v."""
    if header[NOISE] < 0.0:
        return 1.0
    return np.exp(-2.0 * (x[int(header[NOISE])] - header[NOISE_MIDDLE]))


@kernel(ordered=True, counted=False)
def _condition(header: Any, flat: Any, at: Any, x: Any, root: Any, arrays: Any, vectors: Any) -> None:
    """Write D C, f C^T D C and R, its lower triangle, to the first `arrays` (3, K, K, J) or more; and
    b - E g and m to the first `vectors` (2, K, J) or more.
    """
    k, groups, p = len(root), arrays.shape[3], int(header[N_COEFFICIENTS])
    tied, rest, factor, pull, mean = arrays[0], arrays[1], arrays[2], vectors[0], vectors[1]
    f = _precision_factor(header, x)
    for i in range(k):
        for m in range(k):
            _clear(tied[i, m])
            for q in range(m, k):
                begin = at[3] + (max(i, q) * (max(i, q) + 1) // 2 + min(i, q)) * groups
                _add(tied[i, m], root[q, m], flat[begin : begin + groups])
    for i in range(k):
        for m in range(i + 1):
            _clear(rest[i, m])
            for q in range(i, k):
                _add(rest[i, m], f * root[q, i], tied[q, m])
    for i in range(k):
        for m in range(i + 1):
            _copy(factor[i, m], rest[i, m])
            for q in range(m):
                _add_product(factor[i, m], -1.0, factor[i, q], factor[m, q])
            for j in range(groups):
                if i == m:
                    factor[i, i, j] = np.sqrt(1.0 + factor[i, i, j])
                else:
                    factor[i, m, j] /= factor[m, m, j]
    for i in range(k):
        _copy(pull[i], flat[at[4] + i * groups : at[4] + (i + 1) * groups])
        for q in range(p):
            begin = at[5] + (i * p + q) * groups
            _add(pull[i], -x[int(flat[at[1] + q])], flat[begin : begin + groups])
    for i in range(k):
        _clear(mean[i])
        for m in range(i, k):
            _add(mean[i], f * root[m, i], pull[m])
    _solve(factor, mean)
    _solve_transposed(factor, mean)


@kernel(ordered=True, counted=False)
def _write_means(header: Any, flat: Any, at: Any, x: Any, means: Any) -> None:
    """Write a to `means` (K, J)."""
    groups, p = means.shape[1], int(header[N_COEFFICIENTS])
    for i in range(len(means)):
        _copy(means[i], flat[at[6] + i * groups : at[6] + (i + 1) * groups])
        for q in range(p):
            begin = at[7] + (i * p + q) * groups
            _add(means[i], x[int(flat[at[1] + q])], flat[begin : begin + groups])


@kernel(ordered=True, counted=False)
def _log_diagonal(factor: Any) -> Any:
    """The sum of log R_ii of all groups."""
    log_det, product = 0.0, 1.0
    for i in range(len(factor)):
        diagonal = factor[i, i]
        for j in range(diagonal.size):
            product *= diagonal[j]  # at least 1
            if product > 1e150:  # a logarithm is slow, and a product overflows
                log_det += np.log(product)
                product = 1.0
    return log_det + np.log(product)


@kernel(ordered=True, counted=False)
def _gather(own: Any, x: Any, v: Any) -> None:
    """Write the coordinates `own` (K J,) of `x` (d,) to `v` (K, J)."""
    groups = v.shape[1]
    for i in range(len(v)):
        for j in range(groups):
            v[i, j] = x[int(own[i * groups + j])]


@kernel(ordered=True, counted=False)
def _scatter(own: Any, v: Any, x: Any) -> None:
    """Write `v` (K, J) to the coordinates `own` (K J,) of `x` (d,)."""
    groups = v.shape[1]
    for i in range(len(v)):
        for j in range(groups):
            x[int(own[i * groups + j])] = v[i, j]


# One number of each group follows the other in memory, so that the compiler makes fast loops of these.


@kernel(ordered=True, counted=False)
def _clear(out: Any) -> None:
    for j in range(out.size):
        out[j] = 0.0


@kernel(ordered=True, counted=False)
def _copy(out: Any, v: Any) -> None:
    for j in range(out.size):
        out[j] = v[j]


@kernel(ordered=True, counted=False)
def _add(out: Any, factor: Any, v: Any) -> None:
    for j in range(out.size):
        out[j] += factor * v[j]


@kernel(ordered=True, counted=False)
def _add_product(out: Any, factor: Any, v: Any, u: Any) -> None:
    for j in range(out.size):
        out[j] += factor * v[j] * u[j]


@kernel(ordered=True, counted=False)
def _dot(v: Any, u: Any) -> Any:
    total = 0.0
    for j in range(v.size):
        total += v[j] * u[j]
    return total


@kernel(ordered=True, counted=False)
def _solve(lower: Any, v: Any) -> None:
    """Replace `v` (K, J) by the solutions of lower y = v, where `lower` is (K, K, J)."""
    for i in range(len(v)):
        here = v[i]
        for m in range(i):
            _add_product(here, -1.0, lower[i, m], v[m])
        for j in range(here.size):
            here[j] /= lower[i, i, j]


@kernel(ordered=True, counted=False)
def _solve_transposed(lower: Any, v: Any) -> None:
    """Replace `v` (K, J) by the solutions of lower^T y = v, where `lower` is (K, K, J)."""
    for back in range(len(v)):
        i = len(v) - 1 - back
        here = v[i]
        for m in range(i + 1, len(v)):
            _add_product(here, -1.0, lower[m, i], v[m])
        for j in range(here.size):
            here[j] /= lower[i, i, j]


def root_at(log_scales: np.ndarray, angles: np.ndarray) -> np.ndarray:
    """C (K, K) from log scales (K,) and the numbers whose tanh is t, (K (K - 1) / 2,), or (0,) for none."""
    k, at = len(log_scales), 0
    lower = np.eye(k)
    for i in range(1, k if len(angles) else 1):
        t = np.tanh(angles[at : at + i])
        rest = np.sqrt(np.cumprod(np.append(1.0, 1.0 - np.square(t))))
        lower[i, :i], lower[i, i] = t * rest[:-1], rest[-1]
        at += i
    return np.asarray(np.exp(log_scales)[:, None] * lower)


def log_scales_at(law: Effects, theta: np.ndarray) -> np.ndarray:
    """The log standard deviations (J, K) of effects given the heads `theta`, with v in its middle."""
    k = law.own.shape[1]
    root = root_at(law.power * theta[:k], law.turn * theta[k:])
    inverse = np.linalg.inv(np.eye(k) + root.T @ law.precision @ root)
    covariance = root @ inverse @ root.T if law.centred else inverse
    return np.asarray(0.5 * np.log(np.diagonal(covariance, axis1=1, axis2=2)))


def effects_rows(law: Effects, gradients: int) -> np.ndarray:
    """The rows of a map that hold the law; `gradients` is the number that learning it took."""
    groups, k = law.own.shape
    lower = np.tril_indices(k)
    numbers = [law.heads, law.coefficients]
    by_groups = [law.own, law.precision[:, lower[0], lower[1]], law.pulls, law.slopes]
    if law.centred:
        by_groups += [law.offsets, law.means]
    numbers += [np.moveaxis(v, 0, -1) for v in by_groups]
    flat = np.concatenate([np.ravel(np.asarray(v, float)) for v in numbers])
    rows = np.zeros((1 + -(-flat.size // COLUMNS), COLUMNS))
    rows[1:].reshape(-1)[: flat.size] = flat
    header = {
        KIND: EFFECTS,
        ROWS: len(rows),
        N_LATENTS: groups * k,
        N_HEADS: len(law.heads),
        N_EFFECTS: k,
        N_COEFFICIENTS: len(law.coefficients),
        IS_CENTRED: law.centred,
        NOISE: law.noise,
        NOISE_MIDDLE: law.middle,
        TURN: law.turn,
        POWER: law.power,
        N_GRADIENTS: gradients,
    }
    for column, value in header.items():
        rows[0, column] = value
    return rows


def effects_of(rows: np.ndarray) -> Effects:
    """The law that these rows of a map hold, header first."""
    header, flat, at = rows[0], rows.reshape(-1), [int(place) for place in _places(rows[0])]
    k, p, centred = int(header[N_EFFECTS]), int(header[N_COEFFICIENTS]), header[IS_CENTRED] > 0.0
    groups, lower = int(header[N_LATENTS]) // k, np.tril_indices(k)

    def part(number: int, *shape: int) -> np.ndarray:
        """An array (J, ...), which has its groups last among the numbers of the rows."""
        return np.moveaxis(flat[at[number] : at[number + 1]].reshape(*shape, groups), -1, 0)

    packed, precision = part(3, len(lower[0])), np.zeros((groups, k, k))
    precision[:, lower[0], lower[1]] = precision[:, lower[1], lower[0]] = packed
    return Effects(
        heads=flat[at[0] : at[1]].astype(np.int64),
        coefficients=flat[at[1] : at[2]].astype(np.int64),
        own=part(2, k).astype(np.int64),
        precision=precision,
        pulls=part(4, k),
        slopes=part(5, k, p),
        offsets=part(6, k) if centred else np.zeros((groups, k)),
        means=part(7, k, p) if centred else np.zeros((groups, k, p)),
        centred=bool(centred),
        noise=int(header[NOISE]),
        middle=float(header[NOISE_MIDDLE]),
        turn=float(header[TURN]),
        power=float(header[POWER]),
    )


def are_valid(rows: np.ndarray, d: int) -> bool:
    """Whether rows, which may come from a file, hold a law of `d` coordinates."""
    header = rows[0]
    counts = header[[N_LATENTS, N_HEADS, N_EFFECTS, N_COEFFICIENTS]]
    if not (np.isfinite(rows).all() and are_coordinates(counts, rows.size) and header[ROWS] == len(rows)):
        return False
    n, heads, k, p = (int(count) for count in counts)
    if not 1 <= k <= LARGEST or n == 0 or n % k or heads not in (k, k * (k + 1) // 2):
        return False
    if header[IS_CENTRED] not in (0.0, 1.0) or not are_coordinates(header[[NOISE]], d, -1):
        return False
    end = int(_places(header)[-1])
    if not (rows.size - COLUMNS < end <= rows.size and header[TURN] > 0.0 and header[POWER] != 0.0):
        return False
    law = effects_of(rows)
    others = np.concatenate((law.heads, law.coefficients, [law.noise] if law.noise >= 0 else []))
    whole = np.concatenate((others, law.own.ravel()))
    if not are_coordinates(whole, d) or len(set(whole)) < len(whole) or p > d:
        return False
    return bool(np.linalg.eigvalsh(law.precision).min() >= -1e-6 * max(float(law.precision.max()), 1.0))
