"""The law of correlated effects: a few latents of each group that share scales and correlations.

In a hierarchy with varying intercepts and slopes each group j has K effects x_j with the normal prior
N(a_j(g), C C^T), where C = diag(e^u) L: u are log scales, and L is the Cholesky factor of a matrix of
correlations. The means a_j are linear in some coefficients g, the means of all groups for instance. Given all
of these, let the data give the likelihood N(D_j x_j | b_j - E_j g, D_j), with the precision D_j, for which
the estimate of a group alone need not exist. In the effects' own scales w, where x_j = a_j + C w_j, the
precision is

    M_j = I + f C^T D_j C = R_j R_j^T,   the mean m_j = f M_j^-1 C^T (b_j - D_j a_j - E_j g),

so that the law

    x_j = a_j + C (m_j + R_j^-T z_j)

makes z_j standard normal and independent of u, L and g. The factor f = e^(-2 (v - middle)) is there if a log
scale v of the error of the data is a coordinate. A program that is not centred has the coordinates w_j, and
its law is w_j = m_j + R_j^-T z_j. With K = 1 this is the law of a group (group.py); neither has K an influence
on what the law is far out, where it is exact as well.

Stan has the correlations as K (K - 1) / 2 free numbers (Stan Reference Manual, Cholesky factors of correlation
matrices, after Lewandowski, Kurowicka and Joe, 2009, Generating random correlation matrices based on vines and
extended onion method): with t = tanh of such a number, and those of a row one after another,

    L_ij = t_ij prod over k < j of (1 - t_ik^2)^1/2,   L_ii = prod over k < i of (1 - t_ik^2)^1/2.

The law is triangular: groups depend on the other coordinates alone. So it goes last, and its rows are the first
ones of a map: a header, with the columns N_LATENTS, N_HEADS and those that follow them, and rows that hold all
other numbers one after another:

    heads        (K (K + 1) / 2,)    the coordinates of u, and those of the correlations, row by row of L; without
                                     them, (K,), effects are independent
    coefficients (p,)                those of g
    own          (J, K)              those of the effects
    D            (J, K (K + 1) / 2)  row by row of its lower triangle
    b, E         (J, K), (J, K, p)   where programs are centred, b_j - E_j g stands for b_j - D_j a_j - E_j g
    offset, A    (J, K), (J, K, p)   of a_j = offset_j + A_j g, in programs that are centred

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
    ROWS,
    TURN,
    are_coordinates,
)

LARGEST = 8  # effects of a group


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


@kernel(ordered=True, late=True)
def into_x(table: Any, x: Any) -> Real:
    """Turn z of effects among the coordinates `x` (d,) into effects, in place. Returns log |dx/dz|."""
    header, flat = table[0], table.reshape(-1)
    k, at = int(header[N_EFFECTS]), _places(header)
    root, rest, factor = np.zeros((k, k)), np.empty((k, k)), np.empty((k, k))
    tied, mean, pull, mover = np.empty((k, k)), np.empty(k), np.empty(k), np.empty(k)
    log_det = _write_root(header, flat, at[0], x, root) * header[IS_CENTRED]
    f, groups = _precision_factor(header, x), int(header[N_LATENTS]) // k
    log_det *= groups
    for j in range(groups):
        _condition(header, flat, at, j, x, root, f, tied, rest, factor, pull, mean)
        for i in range(k):
            mover[i] = x[int(flat[at[2] + j * k + i])]
            log_det -= np.log(factor[i, i])
        _solve_transposed(factor, mover)
        for i in range(k):
            mover[i] += mean[i]
        for i in range(k):
            here = mover[i]
            if header[IS_CENTRED] > 0.0:
                here = _mean_of(header, flat, at, j * k + i, x)
                for m in range(i + 1):
                    here += root[i, m] * mover[m]
            x[int(flat[at[2] + j * k + i])] = here
    return log_det


@kernel(ordered=True, late=True)
def into_z(table: Any, x: Any) -> None:
    """Turn effects among the coordinates `x` (d,) into their z, in place."""
    header, flat = table[0], table.reshape(-1)
    k, at = int(header[N_EFFECTS]), _places(header)
    root, rest, factor = np.zeros((k, k)), np.empty((k, k)), np.empty((k, k))
    tied, mean, pull, mover = np.empty((k, k)), np.empty(k), np.empty(k), np.empty(k)
    _write_root(header, flat, at[0], x, root)
    f = _precision_factor(header, x)
    for j in range(int(header[N_LATENTS]) // k):
        _condition(header, flat, at, j, x, root, f, tied, rest, factor, pull, mean)
        for i in range(k):
            here = x[int(flat[at[2] + j * k + i])]
            if header[IS_CENTRED] > 0.0:
                here -= _mean_of(header, flat, at, j * k + i, x)
                for m in range(i):
                    here -= root[i, m] * mover[m]
                here /= root[i, i]
            mover[i] = here
        for i in range(k):
            here = 0.0
            for m in range(i, k):
                here += factor[m, i] * (mover[m] - mean[m])
            x[int(flat[at[2] + j * k + i])] = here


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
    header, flat = table[0], table.reshape(-1)
    k, p, at = int(header[N_EFFECTS]), int(header[N_COEFFICIENTS]), _places(header)
    root, rest, factor = np.zeros((k, k)), np.empty((k, k)), np.empty((k, k))
    tied, mean, pull = np.empty((k, k)), np.empty(k), np.empty(k)
    by_root, by_m = np.zeros((k, k)), np.empty((k, k))
    s_x, s_w, g, a, w, moved = (
        np.empty(k),
        np.empty(k),
        np.empty(k),
        np.empty(k),
        np.empty(k),
        np.empty(k),
    )
    _write_root(header, flat, at[0], x, root)
    centred, f, by_f = header[IS_CENTRED] > 0.0, _precision_factor(header, x), 0.0
    groups = int(header[N_LATENTS]) // k
    for j in range(groups):
        _condition(header, flat, at, j, x, root, f, tied, rest, factor, pull, mean)
        first = at[2] + j * k
        for i in range(k):
            moved[i] = z[int(flat[first + i])]
            w[i] = moved[i]
            s_x[i] = score[int(flat[first + i])]
        _solve_transposed(factor, w)
        for i in range(k):
            w[i] += mean[i]
        if sign > 0.0:
            for i in range(k):
                s_w[i] = s_x[i]
                if centred:
                    s_w[i] = 0.0
                    for m in range(i, k):
                        s_w[i] += root[m, i] * s_x[m]
                g[i] = s_w[i]
            _solve(factor, g)
        else:
            for i in range(k):
                g[i] = s_x[i]
            for i in range(k):
                s_w[i] = 0.0
                for m in range(i + 1):
                    s_w[i] += factor[i, m] * g[m]
                s_x[i] = s_w[i]
            if centred:
                _solve_transposed(root, s_x)
        for i in range(k):
            a[i] = g[i]
        _solve_transposed(factor, a)  # M^-1 times the score in w
        for i in range(k):  # the derivative in M, first that of R^-1 dM R^-T
            for m in range(i):
                by_m[i, m] = by_m[m, i] = -0.5 * moved[i] * g[m]
            by_m[i, i] = -0.5 * moved[i] * g[i] - 0.5
        for m in range(k):
            _solve_transposed(factor, by_m[:, m])
        for i in range(k):
            _solve_transposed(factor, by_m[i])
        for i in range(k):
            for m in range(k):
                by_m[i, m] -= 0.5 * (a[i] * mean[m] + mean[i] * a[m])
        for i in range(k):
            for m in range(k):
                by_f += by_m[i, m] * rest[i, m]  # f C^T D C
        for i in range(k):
            along = 0.0  # f C a, and a times f C^T e
            for m in range(i + 1):
                along += root[i, m] * a[m]
            along *= f
            by_f += along * pull[i]
            for m in range(i + 1):
                here = f * pull[i] * a[m]
                for q in range(k):
                    here += 2.0 * f * tied[i, q] * by_m[q, m]
                if centred:
                    here += s_x[i] * w[m]
                by_root[i, m] += here
            for q in range(p):
                here = -flat[at[5] + (j * k + i) * p + q] * along
                if centred:
                    here += flat[at[7] + (j * k + i) * p + q] * s_x[i]
                score[int(flat[at[1] + q])] += sign * here
        for i in range(k):
            score[int(flat[first + i])] = g[i] if sign > 0.0 else s_x[i]
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
        log_scale = x[int(flat[heads + i])]
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
    """Add what derivatives in C, and in log |C| of so many `groups`, give to the scores of its coordinates."""
    k, angle = len(root), heads + len(root)
    for i in range(k):
        whole = 0.0
        for m in range(i + 1):
            whole += by_root[i, m] * root[i, m]
        score[int(flat[heads + i])] += sign * (whole + groups)
        rest = np.exp(x[int(flat[heads + i])])
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
def _condition(
    header: Any,
    flat: Any,
    at: Any,
    j: Any,
    x: Any,
    root: Any,
    f: Any,
    tied: Any,
    rest: Any,
    factor: Any,
    pull: Any,
    mean: Any,
) -> None:
    """Write of group `j` D C to `tied`, f C^T D C to `rest`, R to the lower triangle of `factor`, all (K, K);
    and b - E g to `pull` and m to `mean`, both (K,).
    """
    k, p = len(root), int(header[N_COEFFICIENTS])
    first = at[3] + j * (k * (k + 1) // 2)
    for i in range(k):
        for m in range(k):
            here = 0.0
            for q in range(m, k):
                low, high = min(i, q), max(i, q)
                here += flat[first + high * (high + 1) // 2 + low] * root[q, m]
            tied[i, m] = here
    for i in range(k):
        for m in range(i + 1):
            here = 0.0
            for q in range(i, k):
                here += root[q, i] * tied[q, m]
            rest[i, m] = rest[m, i] = f * here
    for i in range(k):
        for m in range(i + 1):
            here = rest[i, m]
            if i == m:
                here += 1.0
            for q in range(m):
                here -= factor[i, q] * factor[m, q]
            factor[i, m] = np.sqrt(here) if i == m else here / factor[m, m]
    for i in range(k):
        pull[i] = flat[at[4] + j * k + i]
        for q in range(p):
            pull[i] -= flat[at[5] + (j * k + i) * p + q] * x[int(flat[at[1] + q])]
    for i in range(k):
        mean[i] = 0.0
        for m in range(i, k):
            mean[i] += f * root[m, i] * pull[m]
    _solve(factor, mean)
    _solve_transposed(factor, mean)


@kernel(ordered=True, counted=False)
def _mean_of(header: Any, flat: Any, at: Any, effect: Any, x: Any) -> Any:
    """a of an effect, by its number."""
    p, here = int(header[N_COEFFICIENTS]), flat[at[6] + effect]
    for q in range(p):
        here += flat[at[7] + effect * p + q] * x[int(flat[at[1] + q])]
    return here


@kernel(ordered=True, counted=False)
def _solve(lower: Any, v: Any) -> None:
    """Replace `v` (K,) by the solution of lower y = v."""
    for i in range(v.size):
        here = v[i]
        for m in range(i):
            here -= lower[i, m] * v[m]
        v[i] = here / lower[i, i]


@kernel(ordered=True, counted=False)
def _solve_transposed(lower: Any, v: Any) -> None:
    """Replace `v` (K,) by the solution of lower^T y = v."""
    for back in range(v.size):
        i = v.size - 1 - back
        here = v[i]
        for m in range(i + 1, v.size):
            here -= lower[m, i] * v[m]
        v[i] = here / lower[i, i]


def effects_rows(law: Effects, gradients: int) -> np.ndarray:
    """The rows of a map that hold the law; `gradients` is the number that learning it took."""
    groups, k = law.own.shape
    lower = np.tril_indices(k)
    numbers = [law.heads, law.coefficients, law.own, law.precision[:, lower[0], lower[1]]]
    numbers += [law.pulls, law.slopes]
    if law.centred:
        numbers += [law.offsets, law.means]
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
        N_GRADIENTS: gradients,
    }
    for column, value in header.items():
        rows[0, column] = value
    return rows


def effects_of(rows: np.ndarray) -> Effects:
    """The law that these rows of a map hold, header first."""
    header, flat, at = rows[0], rows.reshape(-1), [int(place) for place in _places(rows[0])]
    k, p, centred = int(header[N_EFFECTS]), int(header[N_COEFFICIENTS]), header[IS_CENTRED] > 0.0
    parts = [flat[begin:end] for begin, end in zip(at, at[1:], strict=False)]
    groups, lower = int(header[N_LATENTS]) // k, np.tril_indices(k)
    precision = np.zeros((groups, k, k))
    precision[:, lower[0], lower[1]] = parts[3].reshape(groups, -1)
    precision[:, lower[1], lower[0]] = precision[:, lower[0], lower[1]]
    return Effects(
        heads=parts[0].astype(np.int64),
        coefficients=parts[1].astype(np.int64),
        own=parts[2].astype(np.int64).reshape(groups, k),
        precision=precision,
        pulls=parts[4].reshape(groups, k),
        slopes=parts[5].reshape(groups, k, p),
        offsets=parts[6].reshape(groups, k) if centred else np.zeros((groups, k)),
        means=parts[7].reshape(groups, k, p) if centred else np.zeros((groups, k, p)),
        centred=bool(centred),
        noise=int(header[NOISE]),
        middle=float(header[NOISE_MIDDLE]),
        turn=float(header[TURN]),
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
    if not (rows.size - COLUMNS < end <= rows.size and header[TURN] > 0.0):
        return False
    law = effects_of(rows)
    others = np.concatenate((law.heads, law.coefficients, [law.noise] if law.noise >= 0 else []))
    whole = np.concatenate((others, law.own.ravel()))
    if not are_coordinates(whole, d) or len(set(whole)) < len(whole) or p > d:
        return False
    return bool(np.linalg.eigvalsh(law.precision).min() >= -1e-6 * max(float(law.precision.max()), 1.0))
