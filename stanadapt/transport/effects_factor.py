"""The kernels of the law of effects (effects.py), for one factor.

The rows of a factor are a header, with the columns N_LATENTS, N_HEADS and those of effects, and rows that
hold all other numbers one after another, in the order of `places`. With K effects of each of J groups, these
are

    heads        (K (K + 1) / 2,)    the coordinates of u, and those of the correlations, row by row of L;
                                     (K,) without these, where effects are independent
    coefficients (p,)                those of g
    own          (K, J)              those of the effects
    changing     (r,), (r, K), (r,)  coordinates v, their rates rho for each effect and their middles
                 (r,), (r, J)        their powers epsilon and the shares w_j
    D            (K (K + 1) / 2, J)  row by row of its lower triangle
    b, E         (K, J), (K, p, J)   where programs are centred, b_j - E_j g stands for b_j - D_j a_j - E_j g
    ties         (t,), (t,), (K, t)  coordinates, groups and what they take off b_j, one by one: columns of E
                                     that are nearly empty
    offset, A    (K, J), (K, p, J)   of a_j = offset_j + A_j g, in programs that are centred
    log c        (K,)                of the scales c e^(beta h(u))
    bounded      (r,)                1 for a coordinate v of a scale with an upper bound, else 0
    middle       (K (K + 1) / 2,)    where the heads are, for a chain that comes from far out

Numbers of all groups follow each other in memory, so that the compiler makes fast loops over groups.

The gradient of a factor R by M is that of Murray (2016), Differentiation of the Cholesky decomposition,
arXiv 1602.07527.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..jit import kernel
from .map_table import (
    BOUNDED,
    COLUMNS,
    IS_CENTRED,
    N_CHANGING,
    N_COEFFICIENTS,
    N_EFFECTS,
    N_HEADS,
    N_LATENTS,
    N_TIES,
    POWER,
    TURN,
)


@kernel(ordered=True)
def write_x(rows: Any, x: Any, e: Any, several: Any) -> Any:
    """Turn z of the factor among the coordinates `x` (d,) into the program's own, in place.

    Where there are `several` factors `e` (d,) gives the effects of others, and takes those of this one; with
    one factor it is `x` itself. Returns log |dx/dz|.
    """
    header, flat, at = rows[0], rows.reshape(-1), places(rows[0])
    k, groups = int(header[N_EFFECTS]), int(header[N_LATENTS]) // int(header[N_EFFECTS])
    root, arrays, vectors = np.zeros((k, k)), np.empty((3, k, k, groups)), np.empty((4, k, groups))
    f = np.empty((k, groups))
    log_det = _write_root(header, flat, at, x, root) * header[IS_CENTRED] * groups
    _condition(header, flat, at, x, e, f, root, arrays, vectors)
    factor, mean, w, effects = arrays[2], vectors[1], vectors[2], vectors[3]
    _gather(flat[at[2] : at[3]], x, w)
    log_det -= _log_diagonal(factor)
    _solve_transposed(factor, w)
    for i in range(k):
        _add(w[i], 1.0, mean[i])
    if header[IS_CENTRED] > 0.0:
        _write_means(header, flat, at, e, effects)
        for i in range(k):
            for m in range(i + 1):
                _add(effects[i], root[i, m], w[m])
        w = effects
    _scatter(flat[at[2] : at[3]], w, x)
    if several:
        write_effects(rows, x, e)
    return log_det


@kernel(ordered=True)
def write_effects(rows: Any, x: Any, e: Any) -> None:
    """Write the effects to `e` (d,), from the program's own coordinates `x` (d,)."""
    header, flat, at = rows[0], rows.reshape(-1), places(rows[0])
    k, groups = int(header[N_EFFECTS]), int(header[N_LATENTS]) // int(header[N_EFFECTS])
    root, w, effects = np.zeros((k, k)), np.empty((k, groups)), np.zeros((k, groups))
    _gather(flat[at[2] : at[3]], x, w)
    if header[IS_CENTRED] > 0.0:
        _scatter(flat[at[2] : at[3]], w, e)
        return
    _write_root(header, flat, at, x, root)
    for i in range(k):
        for m in range(i + 1):
            _add(effects[i], root[i, m], w[m])
    _scatter(flat[at[2] : at[3]], effects, e)


@kernel(ordered=True)
def write_z(rows: Any, x: Any, e: Any) -> None:
    """Turn the factor's coordinates among `x` (d,) into their z, in place, with all effects in `e` (d,)."""
    header, flat, at = rows[0], rows.reshape(-1), places(rows[0])
    k, groups = int(header[N_EFFECTS]), int(header[N_LATENTS]) // int(header[N_EFFECTS])
    root, arrays, vectors = np.zeros((k, k)), np.empty((3, k, k, groups)), np.empty((4, k, groups))
    f = np.empty((k, groups))
    _write_root(header, flat, at, x, root)
    _condition(header, flat, at, x, e, f, root, arrays, vectors)
    factor, mean, w, z = arrays[2], vectors[1], vectors[2], vectors[3]
    _gather(flat[at[2] : at[3]], x, w)
    if header[IS_CENTRED] > 0.0:
        _write_means(header, flat, at, e, z)
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


@kernel(ordered=True)
def turn_score(rows: Any, z: Any, x: Any, e: Any, by_e: Any, score: Any, sign: Any, several: Any) -> None:
    """Turn the `score` (d,) of the factor's coordinates, in place; heads and coefficients get their shares.

    `sign` is 1 for a score in x, which becomes one in z, and -1 for the other way. `z`, `x` and `e` (d,) have
    the z, the program's own coordinates and the effects. `by_e` (d,) takes what coefficients get. Where there
    are `several` factors it has what the laws of others gave to the effects of this one, and this is used up;
    with one factor it is `score` itself.
    """
    header, flat, at = rows[0], rows.reshape(-1), places(rows[0])
    k, groups = int(header[N_EFFECTS]), int(header[N_LATENTS]) // int(header[N_EFFECTS])
    root, arrays, vectors = np.zeros((k, k)), np.empty((4, k, k, groups)), np.empty((9, k, groups))
    f, by_factor, by_rates = np.empty((k, groups)), np.empty(groups), np.zeros(k)
    _write_root(header, flat, at, x, root)
    _condition(header, flat, at, x, e, f, root, arrays, vectors)
    tied, rest, factor, by_m = arrays[0], arrays[1], arrays[2], arrays[3]
    pull, mean, w, moved = vectors[0], vectors[1], vectors[2], vectors[3]
    s_x, g, a, along, by_effects = vectors[4], vectors[5], vectors[6], vectors[7], vectors[8]
    own, centred = flat[at[2] : at[3]], header[IS_CENTRED] > 0.0
    _gather(own, z, moved)
    _gather(own, score, s_x)
    if several:
        _gather(own, by_e, by_effects)
        for j in range(own.size):
            by_e[int(own[j])] = 0.0
        for i in range(k):
            for j in range(groups):
                by_effects[i, j] *= sign
    for i in range(k):
        _copy(w[i], moved[i])
    _solve_transposed(factor, w)
    for i in range(k):
        _add(w[i], 1.0, mean[i])
    if sign > 0.0:
        if several:
            _add_by_effects(1.0, centred, root, by_effects, s_x)
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
        if several:
            _add_by_effects(-1.0, centred, root, by_effects, s_x)
        _scatter(own, s_x, score)
        if several and centred:  # what follows needs the whole score in effects
            _add_by_effects(1.0, centred, root, by_effects, s_x)
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
    by_root, by_f = np.zeros((k, k)), by_factor  # times f
    _clear(by_f)
    for i in range(k):
        for m in range(i + 1):
            _add_product(by_f, 1.0 if i == m else 2.0, by_m[i, m], rest[i, m])
        _clear(along[i])  # C a
        for m in range(i + 1):
            _add(along[i], root[i, m], a[m])
        _add_product(by_f, 1.0, along[i], pull[i])
        by_rates[i] = _dot(along[i], pull[i])  # in log f of an effect, for all groups together
        for j in range(groups):
            along[i, j] *= f[i, j]
        for m in range(i + 1):
            by_root[i, m] += _dot(pull[i], a[m])
            for q in range(k):
                here = 2.0 * _dot(tied[i, q], by_m[q, m])
                by_root[i, m] += here
                by_rates[i] += 0.5 * root[i, m] * here
            if centred:
                by_root[i, m] += _dot(s_x[i], w[m])
            elif several:
                by_root[i, m] += _dot(by_effects[i], w[m])
        for q in range(int(header[N_COEFFICIENTS])):
            begin = (i * int(header[N_COEFFICIENTS]) + q) * groups
            here = -_dot(flat[at[10] + begin : at[10] + begin + groups], along[i])
            if centred:
                here += _dot(flat[at[15] + begin : at[15] + begin + groups], s_x[i])
            by_e[int(flat[at[1] + q])] += sign * here
        for q in range(int(header[N_TIES])):
            group, value = int(flat[at[12] + q]), flat[at[13] + i * int(header[N_TIES]) + q]
            by_e[int(flat[at[11] + q])] -= sign * value * along[i, group]
    _add_to_heads(header, flat, at, x, root, by_root, groups if centred else 0, sign, score)
    for q in range(int(header[N_CHANGING])):
        score[int(flat[at[3] + q])] += sign * _slope_of_factor(flat, at, q, x, f, by_f, by_rates)


@kernel(ordered=True, counted=False)
def _add_by_effects(sign: Any, centred: Any, root: Any, by_effects: Any, score: Any) -> None:
    """Add a score in effects (K, J), times a sign, to the one in the program's own coordinates."""
    for i in range(len(root)):
        if centred:
            _add(score[i], sign, by_effects[i])
        else:
            for m in range(i, len(root)):
                _add(score[i], sign * root[m, i], by_effects[m])


@kernel(ordered=True, counted=False)
def places(header: Any) -> Any:
    """Where the arrays begin among the numbers of a factor, and where it ends."""
    k, n, p = int(header[N_EFFECTS]), int(header[N_LATENTS]), int(header[N_COEFFICIENTS])
    triangle, centred = k * (k + 1) // 2, int(header[IS_CENTRED])
    coefficients = COLUMNS + int(header[N_HEADS])
    own = coefficients + p
    changing = own + n
    rates = changing + int(header[N_CHANGING])
    middles = rates + int(header[N_CHANGING]) * k
    powers = middles + int(header[N_CHANGING])
    shares = powers + int(header[N_CHANGING])
    precision = shares + int(header[N_CHANGING]) * (n // k)
    pulls = precision + n // k * triangle
    slopes = pulls + n
    ties = slopes + n * p
    groups = ties + int(header[N_TIES])
    tied = groups + int(header[N_TIES])
    offsets = tied + k * int(header[N_TIES])
    means = offsets + centred * n
    log_units = means + centred * n * p
    bounds = log_units + k
    place = bounds + int(header[N_CHANGING])
    end = place + int(header[N_HEADS])
    inner = (
        coefficients,
        own,
        changing,
        rates,
        middles,
        powers,
        shares,
        precision,
        pulls,
        slopes,
        ties,
        groups,
        tied,
    )
    return COLUMNS, *inner, offsets, means, log_units, bounds, place, end


@kernel(ordered=True, counted=False)
def _write_root(header: Any, flat: Any, at: Any, x: Any, root: Any) -> Any:
    """Write C to the lower triangle of `root` (K, K). Returns log |C|."""
    k, heads, angle, log_det = len(root), at[0], at[0] + len(root), 0.0
    log_units = flat[at[16] : at[17]]
    for i in range(k):
        log_scale = log_units[i] + header[POWER] * log_of_scale(header[BOUNDED], x[int(flat[heads + i])])
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
def log_of_scale(bounded: Any, u: Any) -> Any:
    """h(u): u, and log(1 / (1 + e^-u)) for a scale with an upper bound."""
    if bounded == 0.0:
        return u
    return min(u, 0.0) - np.log1p(np.exp(-abs(u)))


@kernel(ordered=True, counted=False)
def _slope_of_log(bounded: Any, u: Any) -> Any:
    """The derivative of h."""
    if bounded == 0.0:
        return 1.0
    small = np.exp(-abs(u))
    return (small if u > 0.0 else 1.0) / (1.0 + small)


@kernel(ordered=True, counted=False)
def _log_sech(v: Any) -> Any:
    """log (1 - tanh(v)^2)^1/2, which does not lose its digits where tanh is nearly 1."""
    size = abs(v)
    return np.log(2.0) - size - np.log1p(np.exp(-2.0 * size))


@kernel(ordered=True, counted=False)
def _add_to_heads(
    header: Any,
    flat: Any,
    at: Any,
    x: Any,
    root: Any,
    by_root: Any,
    groups: Any,
    sign: Any,
    score: Any,
) -> None:
    """Add to the scores of the heads what derivatives in C, and in log |C| of so many `groups`, give."""
    k, heads, angle = len(root), at[0], at[0] + len(root)
    for i in range(k):
        whole = 0.0
        for m in range(i + 1):
            whole += by_root[i, m] * root[i, m]
        u = x[int(flat[heads + i])]
        slope = header[POWER] * _slope_of_log(header[BOUNDED], u)
        score[int(flat[heads + i])] += sign * slope * (whole + groups)
        rest = np.exp(flat[at[16] + i] + header[POWER] * log_of_scale(header[BOUNDED], u))
        for j in range(i if header[N_HEADS] > k else 0):
            turned = header[TURN] * x[int(flat[angle])]
            t, sech = np.tanh(turned), np.exp(_log_sech(turned))
            whole -= by_root[i, j] * root[i, j]  # of the entries behind this one
            here = by_root[i, j] * rest * sech * sech - t * (whole + groups)
            score[int(flat[angle])] += sign * header[TURN] * here
            rest *= sech
            angle += 1


@kernel(ordered=True, counted=False)
def _write_factors(header: Any, flat: Any, at: Any, x: Any, f: Any) -> None:
    """Write f of each effect and group to `f` (K, J)."""
    k, groups = f.shape
    for i in range(k):
        log_f = 0.0
        for j in range(groups):
            f[i, j] = 1.0
        for q in range(int(header[N_CHANGING])):
            away = log_of_scale(flat[at[17] + q], x[int(flat[at[3] + q])]) - flat[at[5] + q]
            log_f += flat[at[4] + q * k + i] * away
            if flat[at[6] + q] != 0.0:
                change = _power(flat[at[6] + q] * away) - 1.0
                for j in range(groups):
                    f[i, j] += flat[at[7] + q * groups + j] * change
        for j in range(groups):
            f[i, j] = np.exp(log_f) / f[i, j]


@kernel(ordered=True, counted=False)
def _power(log_value: Any) -> Any:
    """e to this power; beyond what matters a constant, so that no quotient is infinite by infinite."""
    return np.exp(min(log_value, 300.0))


@kernel(ordered=True, counted=False)
def _slope_of_factor(flat: Any, at: Any, q: Any, x: Any, f: Any, by_f: Any, by_rates: Any) -> Any:
    """The derivative in the changing coordinate `q`; `by_f` (J,) is that in log f of a group's effects
    together, and `by_rates` (K,) that in log f of an effect for all groups together.
    """
    v, power, total, log_f = x[int(flat[at[3] + q])], flat[at[6] + q], 0.0, 0.0
    k, groups = f.shape
    first, are_alike = at[4] + q * k, True
    for i in range(1, k):
        are_alike = are_alike and flat[first + i] == flat[first]
    if are_alike:
        for j in range(groups):
            total += by_f[j]
        total *= flat[first]
    else:
        for i in range(k):
            total += flat[first + i] * by_rates[i]
    if power != 0.0:
        for r in range(at[4] - at[3]):
            log_value = log_of_scale(flat[at[17] + r], x[int(flat[at[3] + r])])
            log_f += flat[at[4] + r * k] * (log_value - flat[at[5] + r])
        away = log_of_scale(flat[at[17] + q], v) - flat[at[5] + q]
        scaled = power * _power(power * away) / np.exp(log_f)
        for j in range(groups):
            total -= by_f[j] * f[0, j] * flat[at[7] + q * groups + j] * scaled
    return total * _slope_of_log(flat[at[17] + q], v)


@kernel(ordered=True, counted=False)
def _condition(
    header: Any, flat: Any, at: Any, x: Any, e: Any, f: Any, root: Any, arrays: Any, vectors: Any
) -> None:
    """Write f to `f` (K, J), f D C, C^T f D C and R, its lower triangle, to the first `arrays` (3, K, K, J)
    or more, and f (b - E g) and m to the first `vectors` (2, K, J) or more. Where effects have different f,
    nothing ties them in D.
    """
    k, groups, p, ties = len(root), arrays.shape[3], int(header[N_COEFFICIENTS]), int(header[N_TIES])
    tied, rest, factor, pull, mean = arrays[0], arrays[1], arrays[2], vectors[0], vectors[1]
    _write_factors(header, flat, at, x, f)
    for i in range(k):
        for m in range(k):
            _clear(tied[i, m])
            for q in range(m, k):
                begin = at[8] + (max(i, q) * (max(i, q) + 1) // 2 + min(i, q)) * groups
                _add(tied[i, m], root[q, m], flat[begin : begin + groups])
            for j in range(groups):
                tied[i, m, j] *= f[i, j]
    for i in range(k):
        for m in range(i + 1):
            _clear(rest[i, m])
            for q in range(i, k):
                _add(rest[i, m], root[q, i], tied[q, m])
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
        _copy(pull[i], flat[at[9] + i * groups : at[9] + (i + 1) * groups])
        for q in range(p):
            begin = at[10] + (i * p + q) * groups
            _add(pull[i], -e[int(flat[at[1] + q])], flat[begin : begin + groups])
        for q in range(ties):
            pull[i, int(flat[at[12] + q])] -= e[int(flat[at[11] + q])] * flat[at[13] + i * ties + q]
        for j in range(groups):
            pull[i, j] *= f[i, j]
    for i in range(k):
        _clear(mean[i])
        for m in range(i, k):
            _add(mean[i], root[m, i], pull[m])
    _solve(factor, mean)
    _solve_transposed(factor, mean)


@kernel(ordered=True, counted=False)
def _write_means(header: Any, flat: Any, at: Any, e: Any, means: Any) -> None:
    """Write a to `means` (K, J)."""
    groups, p = means.shape[1], int(header[N_COEFFICIENTS])
    for i in range(len(means)):
        _copy(means[i], flat[at[14] + i * groups : at[14] + (i + 1) * groups])
        for q in range(p):
            begin = at[15] + (i * p + q) * groups
            _add(means[i], e[int(flat[at[1] + q])], flat[begin : begin + groups])


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
