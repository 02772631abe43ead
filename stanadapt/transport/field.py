"""The law of a latent field: many coordinates that are tied to their neighbours by a few parameters.

In a time series, a random walk or a spatial model many latents x have the normal prior N(mu, Q_0(theta)^-1),
where Q_0 is sparse and theta are a few parameters, the heads: log scales, autocorrelations and the like.
Given the heads and the data, x is nearly normal with some mean c(theta) and a sparse precision
Q(theta) = L L^T, where L is lower triangular in an order that keeps it sparse. So each latent has a
regression on later ones. With y = x - middle, where the middle is the mean at typical heads, the law

    y_j = a_j(theta) - sum over k > j of G_kj(theta) y_k + e^(s_j(theta)) z_j

with s_j = -log L_jj, G_kj = L_kj / L_jj and a_j = c_j - middle_j + sum_k G_kj (c_k - middle_k) makes z nearly
normal and independent of the heads. It is triangular: coordinates with a large j come first. So its log
determinant is the sum of s_j, and draws are exact whatever s, a and G are. If Q is diagonal, the law is a
partial non-centring; for a series it is the filter that runs backwards (Rue and Held, 2005, Gaussian Markov
random fields, chapter 2; Papaspiliopoulos, Roberts and Sköld, 2007, A general framework for the
parametrization of hierarchical models).

The numbers of the law are smooth functions of the heads: combinations of features (`feature_values`). Far out
s is linear in each head, with one slope on either side, since the scale of a latent lies between those of a
centred and of a program that is not centred; a and G are constant there. Where a scale of the prior goes to
0, neighbours are tied by an equation, and a and G go to its numbers faster than s goes to 0. Heads of Stan
programs are logarithms and logits, so both limits are reached like e^(rate theta). Most latents depend on the
heads in about the same way. So for each of s, a and G a few combinations of the features, the basis, are
computed once for a point, and each latent or entry of L has one coefficient for each of them.

A field has the first rows of a map: a header, with the columns N_LATENTS and those that follow it, and rows
that hold all other numbers one after another, in the order of `places`:

    heads, mid, scale, rate   (m,) each       the coordinates theta, their middle, scale and rate
    basis of s, of a, of G    (r, F) each     r combinations of the F features, without the constant one
    middle                    (n,)
    own                       (n,)            the latents, in the order of elimination
    starts, later             (n + 1,), (e,)  the entries of column j of L are starts[j] to starts[j + 1],
                                              and an entry is in the row `later`, a place in `own`
    S, A, G                   (r + 1, n), (r + 1, n), (r + 1, e)    coefficients; the first row is constant
    frame, its inverse        (n, n) each, if the header has a 1 in the column FRAMED
    axes, centres             (m, m), (q, m)    of bumps, of which there may be q

Latents with a dense precision, those of a Gaussian process say, have a frame F with |det F| = 1: the law is
then that of y = F^-1 (x - middle). In the columns of F the precisions at all heads are nearly diagonal
(fields/dense.py), so that G is small, and changes but little from one theta to another. Features alone do not
say how it changes. With a bump beside them for each of some thetas, the law is right at all of these.

In a series most columns follow one pattern, a run (triangular.py). The columns RUN and RUN_END of the header
say where it begins and ends, 0 and 0 for none, and its entries of G are stored in an order of their own.

A soft constraint on the sum of a variable's latents, as for a map whose level an intercept has, couples all
of them. Its direction is the same at all heads in x, but not in z. So it is weakened in x: if the header has
such a variable, its first coordinate, size and a factor in the columns LEVEL to LEVEL_FACTOR, then x - middle
is y with the mean of these latents times the factor (fields/level.py).

Several series, of which none is tied to another, may have a field each, with heads of their own; some heads
may be those of several fields. Their rows follow each other, and all headers but the last have a 1 in the
column MORE. The functions here that take a table go through all fields at its beginning.

The heads may have a law of the same form: all but one of them, the root, are the latents of a second field,
whose only head is the root (fields/head_law.py). Its rows follow those of all fields of latents. Heads that
have nothing to do with each other may have several such laws, each with its own root. A root itself may have
a bend (bend.py), whose row comes after these and has a 1 in the column APART: it belongs to the field, and is
not learned from draws. The heads beside a root may be moved by other laws before the second field.

field_table.py writes and reads these rows, and fields/ learns a field.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..jit import kernel
from ..kinds import Real
from .exponential import replace_by_exponentials
from .map_table import (
    COLUMNS,
    EFFECTS,
    FIELD,
    FRAMED,
    INNOVATIONS,
    KIND,
    LEVEL,
    LEVEL_FACTOR,
    LEVEL_SIZE,
    MORE,
    N_ENTRIES,
    N_FEATURES,
    N_HEADS,
    N_LATENTS,
    ROWS,
    RUN,
    RUN_END,
    SIZE_A,
    SIZE_G,
    SIZE_S,
)
from .triangular import (
    dot,
    order_entries,
    solve,
    solve_transposed,
    total,
)

KNOTS = 4  # of each head, at mid + scale (-3, -1, 1, 3)
OWN_FEATURES = 1 + 2 * KNOTS  # of each head
# Of differences of heads, two log scales say: a precision has no larger power of a head than e^(2 theta).
LARGEST_RATE = 2.0


class Field(NamedTuple):
    """The numbers of a field, see the top of this file."""

    heads: np.ndarray
    mid: np.ndarray
    scale: np.ndarray
    rate: np.ndarray
    bases: tuple[np.ndarray, np.ndarray, np.ndarray]  # of s, a and G
    middle: np.ndarray
    own: np.ndarray
    starts: np.ndarray
    later: np.ndarray
    coefficients: tuple[np.ndarray, np.ndarray, np.ndarray]  # S, A and G
    frame: np.ndarray = np.empty((0, 0))
    axes: np.ndarray = np.empty((0, 0))
    centres: np.ndarray = np.empty((0, 0))
    level: np.ndarray = np.empty(0)  # (3,) first coordinate, size and factor of the variable with a level


def n_features(m: int) -> int:
    """The number of features of `m` heads, without the constant one and bumps."""
    return OWN_FEATURES * m + 3 * m * m - m + n_differences(m)


def n_differences(m: int) -> int:
    """The number of features of differences of `m` heads, the last ones of those."""
    return KNOTS * m * (m - 1) // 2


@kernel(ordered=True)
def feature_values(theta: Any, mid: Any, scale: Any, rate: Any, values: Any, slopes: Any) -> None:
    """Write the features (F,) of heads theta (m,) and their derivatives (F, m).

    For each head they are r = (theta - mid) / scale, and with a = rate (theta - t) at each knot t the
    function log(1 + e^a) / rate, which turns from the slope 0 to 1, and its derivative, which goes from 0 to
    1. For each pair of heads, or a head and itself, they are the products of u = tanh(rate (theta - mid) / 2)
    and of r, and for two different heads also u_a² u_b, u_a u_b², r_a u_b and u_a r_b.

    The last ones are functions 1 / (1 + e^-a) of differences of heads, four for each pair: where a latent is
    the sum of two parts, the ratio of their scales tells how much of it is which.
    """
    m = theta.size
    r, u, bent = np.empty(m), np.empty(m), np.empty(m)
    for i in range(slopes.shape[0]):
        for a in range(m):
            slopes[i, a] = 0.0
    for a in range(m):
        r[a] = (theta[a] - mid[a]) / scale[a]
        u[a] = np.tanh(0.5 * rate[a] * (theta[a] - mid[a]))
        bent[a] = 0.5 * rate[a] * (1.0 - u[a] * u[a])
        k = OWN_FEATURES * a
        values[k], slopes[k, a] = r[a], 1.0 / scale[a]
        for i in range(KNOTS):
            at = rate[a] * (theta[a] - mid[a] - (2 * i + 1 - KNOTS) * scale[a])
            shrunk, share, slope = _turn(at)
            k += 1
            values[k], slopes[k, a] = (max(at, 0.0) + np.log1p(shrunk)) / rate[a], share
            k += 1
            values[k], slopes[k, a] = share, rate[a] * slope
    k = OWN_FEATURES * m
    for a in range(m):
        for b in range(a, m):
            values[k] = u[a] * u[b]
            slopes[k, a] += bent[a] * u[b]
            slopes[k, b] += u[a] * bent[b]
            values[k + 1] = r[a] * r[b]
            slopes[k + 1, a] += r[b] / scale[a]
            slopes[k + 1, b] += r[a] / scale[b]
            k += 2
            if a < b:
                values[k], values[k + 1] = u[a] * u[a] * u[b], u[a] * u[b] * u[b]
                slopes[k, a], slopes[k, b] = 2.0 * u[a] * u[b] * bent[a], u[a] * u[a] * bent[b]
                slopes[k + 1, a], slopes[k + 1, b] = u[b] * u[b] * bent[a], 2.0 * u[a] * u[b] * bent[b]
                values[k + 2], values[k + 3] = r[a] * u[b], u[a] * r[b]
                slopes[k + 2, a], slopes[k + 2, b] = u[b] / scale[a], r[a] * bent[b]
                slopes[k + 3, a], slopes[k + 3, b] = bent[a] * r[b], u[a] / scale[b]
                k += 4
    for b in range(m):
        rate_b = min(rate[b], LARGEST_RATE)
        for a in range(b):
            rate_a = min(rate[a], LARGEST_RATE)
            width = np.hypot(rate_a * scale[a], rate_b * scale[b])
            between = rate_a * (theta[a] - mid[a]) - rate_b * (theta[b] - mid[b])
            for i in range(KNOTS):
                _, share, slope = _turn(between - (2 * i + 1 - KNOTS) * width)
                values[k], slopes[k, a], slopes[k, b] = share, rate_a * slope, -rate_b * slope
                k += 1


@kernel(ordered=True, counted=False)
def _turn(at: Any) -> Any:
    """e^-|a|, and 1 / (1 + e^-a) with its derivative."""
    shrunk = np.exp(-abs(at))
    share = 1.0 / (1.0 + shrunk) if at > 0.0 else shrunk / (1.0 + shrunk)
    return shrunk, share, share * (1.0 - share)


@kernel(ordered=True)
def bump_values(theta: Any, mid: Any, axes: Any, centres: Any, values: Any, slopes: Any) -> None:
    """Write the last q features of heads theta (m,), bumps, and their derivatives.

    They are exp(-|v - c|² / 2) with v = axes (theta - mid), for each of the `centres` c (q, m).
    """
    m, q = theta.size, len(centres)
    v, first = np.empty(m), values.size - q
    for b in range(m):
        v[b] = 0.0
        for a in range(m):
            v[b] += axes[b, a] * (theta[a] - mid[a])
    for i in range(q):
        square = 0.0
        for b in range(m):
            square += (v[b] - centres[i, b]) ** 2
        bump = np.exp(-0.5 * square)
        values[first + i] = bump
        for a in range(m):
            slope = 0.0
            for b in range(m):
                slope -= (v[b] - centres[i, b]) * axes[b, a]
            slopes[first + i, a] = slope * bump


def features_at(theta: np.ndarray, law: Field) -> np.ndarray:
    """The features (F,) of a law at the heads `theta` (m,)."""
    found: np.ndarray = features_at_all(theta[None], law)[0]
    return found


def features_at_all(thetas: np.ndarray, law: Field) -> np.ndarray:
    """The features (p, F) of a law at the heads `thetas` (p, m)."""
    p, m = thetas.shape
    values = np.empty((p, n_features(m) + len(law.centres)))
    write_features(np.ascontiguousarray(thetas), law.mid, law.scale, law.rate, values)
    if len(law.centres):
        slopes = np.empty((values.shape[1], m))
        for theta, row in zip(thetas, values, strict=True):
            bump_values(theta, law.mid, law.axes, law.centres, row, slopes)
    return values


@kernel(ordered=True)
def write_features(thetas: Any, mid: Any, scale: Any, rate: Any, values: Any) -> None:
    """Write the features of the heads in each row of `thetas` (p, m) to a row of `values` (p, F)."""
    slopes = np.empty((values.shape[1], mid.size))
    for row in range(len(thetas)):
        feature_values(thetas[row], mid, scale, rate, values[row], slopes)


@kernel(ordered=True, counted=False)
def lengths(table: Any) -> Any:
    """Where the rows of innovations, effects or weights, of the latents' and of all fields end in a map."""
    outer = end_of_innovations(table)
    if outer < len(table) and table[outer, KIND] >= EFFECTS:
        outer += int(table[outer, ROWS])
    latents = _end_of_fields(table, outer, FIELD)
    return outer, latents, _end_of_fields(table, latents, FIELD) if latents > outer else latents


@kernel(ordered=True, counted=False)
def end_of_innovations(table: Any) -> Any:
    """The row after the innovations, where effects or weights begin if there are any."""
    return _end_of_fields(table, 0, INNOVATIONS)


@kernel(ordered=True, counted=False)
def _end_of_fields(table: Any, first: Any, kind: Any) -> Any:
    """The row after the fields of a kind that begin with row `first`; `first` itself if there is none."""
    k, more = first, True
    while more and k < len(table) and table[k, KIND] == kind:
        more = table[k, MORE] > 0.0
        k += int(table[k, ROWS])
    return k


@kernel(ordered=True, counted=False)
def _next_field(table: Any, k: Any) -> Any:
    """The first row of the field after the one that begins with row `k`; that of none is past the end."""
    return k + int(table[k, ROWS]) if table[k, MORE] > 0.0 else len(table)


@kernel(ordered=True, counted=False)
def n_kept(table: Any) -> Any:
    """How many numbers `into_x` keeps for `pull_back`: e^s, G and y."""
    n, k = 0, 0
    while k < len(table):
        n += _n_kept_of_one(table[k:])
        k = _next_field(table, k)
    return n


@kernel(ordered=True, counted=False)
def _n_kept_of_one(table: Any) -> Any:
    """The same of the first field."""
    return 2 * int(table[0, N_LATENTS]) + int(table[0, N_ENTRIES])


@kernel(ordered=True)
def places(table: Any) -> Any:
    """Where the arrays of a field begin among the numbers of the table, and where it ends."""
    header = table[0]
    m, n, e = int(header[N_HEADS]), int(header[N_LATENTS]), int(header[N_ENTRIES])
    f, s = int(header[N_FEATURES]), (int(header[SIZE_S]), int(header[SIZE_A]), int(header[SIZE_G]))
    at = np.empty(19, np.int64)
    at[0] = COLUMNS
    for i in range(4):
        at[i + 1] = at[i] + m
    at[5] = at[4] + s[0] * f
    at[6] = at[5] + s[1] * f
    at[7] = at[6] + s[2] * f
    at[8] = at[7] + n
    at[9] = at[8] + n
    at[10] = at[9] + n + 1
    at[11] = at[10] + e
    at[12] = at[11] + (s[0] + 1) * n
    at[13] = at[12] + (s[1] + 1) * n
    at[14] = at[13] + (s[2] + 1) * e
    at[15] = at[14] + int(header[FRAMED]) * n * n
    at[16] = at[15] + int(header[FRAMED]) * n * n
    q = f - OWN_FEATURES * m - 3 * m * m + m - KNOTS * m * (m - 1) // 2
    at[17] = at[16] + (m * m if q > 0 else 0)
    at[18] = at[17] + q * m
    return at


@kernel(ordered=True, counted=False)
def _times(out: Any, flat: Any, at: Any, v: Any) -> None:
    """out (n,) = the product of the matrix (n, n) at `at` with `v` (n,)."""
    n = v.size
    for i in range(n):
        here = 0.0
        for j in range(n):
            here += flat[at + i * n + j] * v[j]
        out[i] = here


@kernel(ordered=True, counted=False)
def _transposed_times(out: Any, flat: Any, at: Any, v: Any) -> None:
    """out (n,) = the product of the transposed matrix (n, n) at `at` with `v` (n,)."""
    n = v.size
    for j in range(n):
        out[j] = 0.0
    for i in range(n):
        for j in range(n):
            out[j] += flat[at + i * n + j] * v[i]


@kernel(ordered=True, counted=False)
def _mix(out: Any, flat: Any, values: Any, at_basis: Any, size: Any, at: Any) -> None:
    """out = the sum of the `size` + 1 rows (n,) at `at`, times the basis at `at_basis`."""
    n, f, k = out.size, values.size, size % 3
    constant = flat[at : at + n]
    if k == 0:
        for j in range(n):
            out[j] = constant[j]
    elif k == 1:
        first, a = dot(flat[at_basis : at_basis + f], values), flat[at + n : at + 2 * n]
        for j in range(n):
            out[j] = constant[j] + first * a[j]
    else:
        first, a = dot(flat[at_basis : at_basis + f], values), flat[at + n : at + 2 * n]
        second, b = dot(flat[at_basis + f : at_basis + 2 * f], values), flat[at + 2 * n : at + 3 * n]
        for j in range(n):
            here = constant[j] + first * a[j]
            out[j] = here + second * b[j]
    for r in range(k, size, 3):  # three rows at a time, so that `out` is read and written less often
        begin, row = at_basis + r * f, at + (r + 1) * n
        first, a = dot(flat[begin : begin + f], values), flat[row : row + n]
        second, b = dot(flat[begin + f : begin + 2 * f], values), flat[row + n : row + 2 * n]
        third, c = dot(flat[begin + 2 * f : begin + 3 * f], values), flat[row + 2 * n : row + 3 * n]
        for j in range(n):
            here = out[j] + first * a[j]
            here = here + second * b[j]
            out[j] = here + third * c[j]


@kernel(ordered=True)
def _feature_slopes(table: Any, at: Any, x: Any) -> Any:
    """The features (F,) at the heads in `x` (d,), and their derivatives (F, m)."""
    flat = table.reshape(table.size)
    m, f = int(table[0, N_HEADS]), int(table[0, N_FEATURES])
    theta, values, slopes = np.empty(m), np.empty(f), np.empty((f, m))
    for h in range(m):
        theta[h] = x[int(flat[at[0] + h])]
    mid, scale, rate = flat[at[1] : at[2]], flat[at[2] : at[3]], flat[at[3] : at[4]]
    feature_values(theta, mid, scale, rate, values, slopes)
    if at[18] > at[17]:
        axes, centres = flat[at[16] : at[17]].reshape((m, m)), flat[at[17] : at[18]].reshape((-1, m))
        bump_values(theta, mid, axes, centres, values, slopes)
    return values, slopes


@kernel(ordered=True)
def _write_law(table: Any, at: Any, x: Any, s: Any, a: Any, g: Any) -> None:
    """Write s (n,), a (n,) and G (e,) at the heads in `x` (d,); G that is constant stands in the table."""
    flat, values = table.reshape(table.size), _feature_slopes(table, at, x)[0]
    _mix(s, flat, values, at[4], int(table[0, SIZE_S]), at[11])
    _mix(a, flat, values, at[5], int(table[0, SIZE_A]), at[12])
    if table[0, SIZE_G] > 0.0:
        _mix(g, flat, values, at[6], int(table[0, SIZE_G]), at[13])


@kernel(ordered=True)
def log_scale_at(table: Any, x: Any) -> Real:
    """The sum of s (n,) of all fields at the heads in `x` (d,)."""
    found, k = 0.0, 0
    while k < len(table):
        one = table[k:]
        at, s = places(one), np.empty(int(one[0, N_LATENTS]))
        _mix(s, one.reshape(one.size), _feature_slopes(one, at, x)[0], at[4], int(one[0, SIZE_S]), at[11])
        found += total(s)
        k = _next_field(table, k)
    return found


@kernel(ordered=True)
def _law(table: Any, at: Any, x: Any) -> Any:
    """The same, returned; G column by column."""
    n, e = int(table[0, N_LATENTS]), int(table[0, N_ENTRIES])
    s, a, g = np.empty(n), np.empty(n), np.empty(e)
    _write_law(table, at, x, s, a, g)
    if table[0, SIZE_G] == 0.0:
        g[:] = table.reshape(table.size)[at[13] : at[14]]
    starts = table.reshape(table.size)[at[9] : at[10]]
    order_entries(int(table[0, RUN]), int(table[0, RUN_END]), starts, g, True)
    return s, a, g


@kernel(ordered=True, counted=False)
def _stretch_level(table: Any, own: Any, v: Any, factor: Any) -> None:
    """Multiply the mean of the latents `v` (n,) whose level is constrained by a factor, in place."""
    first, size, level = int(table[0, LEVEL]), int(table[0, LEVEL_SIZE]), 0.0
    for j in range(v.size):
        if first <= own[j] < first + size:
            level += v[j]
    level *= (factor - 1.0) / size
    for j in range(v.size):
        if first <= own[j] < first + size:
            v[j] += level


@kernel(ordered=True)
def _latents(table: Any, at: Any, x: Any) -> Any:
    """y (n,) at `x` (d,)."""
    flat = table.reshape(table.size)
    middle, own = flat[at[7] : at[8]], flat[at[8] : at[9]]
    off = np.empty(own.size)
    for j in range(off.size):
        off[j] = x[int(own[j])] - middle[j]
    if table[0, LEVEL_SIZE] > 0.0:
        _stretch_level(table, own, off, 1.0 / table[0, LEVEL_FACTOR])
    if at[15] == at[14]:
        return off
    y = np.empty(own.size)
    _times(y, flat, at[15], off)
    return y


@kernel(ordered=True, late=True)
def into_x(table: Any, z: Any, x: Any, kept: Any) -> Real:
    """Write x(z) of fields to `x`, and what `pull_back` needs to `kept`. Returns log |dx/dz|."""
    if kept.size == 0:
        kept = np.empty(n_kept(table))
    log_det, k, used = 0.0, 0, 0
    while k < len(table):
        n = _n_kept_of_one(table[k:])
        log_det += _one_into_x(table[k:], z, x, kept[used : used + n])
        k, used = _next_field(table, k), used + n
    return log_det


@kernel(ordered=True, late=True)
def into_x_at_all(table: Any, z: Any, x: Any, kept: Any, log_det: Any) -> None:
    """`into_x` of all points z (k, d); log |dx/dz| (k,) is written, and what `pull_back` needs (k, n)."""
    for row in range(len(z)):
        log_det[row] = into_x(table, z[row], x[row], kept[row])


@kernel(ordered=True)
def _one_into_x(table: Any, z: Any, x: Any, kept: Any) -> Real:
    """The same for the first field."""
    at, flat = places(table), table.reshape(table.size)
    n, e = int(table[0, N_LATENTS]), int(table[0, N_ENTRIES])
    scale, g, y = kept[:n], kept[n : n + e], kept[n + e :]
    if table[0, SIZE_G] == 0.0:
        g = flat[at[13] : at[14]]
    _write_law(table, at, x, scale, y, g)  # s and a, where e^s and y will be
    log_det = total(scale)
    replace_by_exponentials(scale)
    middle, own = flat[at[7] : at[8]], flat[at[8] : at[9]]
    starts, later = flat[at[9] : at[10]], flat[at[10] : at[11]]
    for j in range(n):
        y[j] += scale[j] * z[int(own[j])]
    solve(int(table[0, RUN]), int(table[0, RUN_END]), starts, later, g, y)
    turned = y
    if at[15] > at[14]:
        turned = np.empty(n)
        _times(turned, flat, at[14], y)
    if table[0, LEVEL_SIZE] > 0.0:
        turned = turned.copy()
        _stretch_level(table, own, turned, table[0, LEVEL_FACTOR])
        log_det += np.log(table[0, LEVEL_FACTOR])
    for j in range(n):
        x[int(own[j])] = middle[j] + turned[j]
    return log_det


@kernel(ordered=True, late=True)
def into_z(table: Any, x: Any, z: Any) -> None:
    """Write z(x) of fields to `z`."""
    k = 0
    while k < len(table):
        _one_into_z(table[k:], x, z)
        k = _next_field(table, k)


@kernel(ordered=True)
def _one_into_z(table: Any, x: Any, z: Any) -> None:
    """The same for the first field."""
    at, flat = places(table), table.reshape(table.size)
    s, a, g = _law(table, at, x)
    y = _latents(table, at, x)
    own, starts, later = flat[at[8] : at[9]], flat[at[9] : at[10]], flat[at[10] : at[11]]
    for j in range(s.size - 1, -1, -1):
        here = y[j] - a[j]
        for entry in range(int(starts[j]), int(starts[j + 1])):
            here += g[entry] * y[int(later[entry])]
        z[int(own[j])] = here * np.exp(-s[j])


@kernel(ordered=True, late=True)
def pull_back(table: Any, z: Any, x: Any, score: Any, kept: Any) -> None:
    """Turn the score in x into the one in z, for fields. `kept` comes from `into_x`, or is empty."""
    if kept.size == 0:
        kept = np.empty(n_kept(table))
        into_x(table, z, x.copy(), kept)
    k, used = 0, 0
    while k < len(table):
        n = _n_kept_of_one(table[k:])
        _pull_one_back(table[k:], z, x, score, kept[used : used + n])
        k, used = _next_field(table, k), used + n


@kernel(ordered=True, late=True)
def pull_back_at_all(table: Any, z: Any, x: Any, scores: Any, kept: Any) -> None:
    """`pull_back` of the scores (k, d) at all points (k, d)."""
    for row in range(len(z)):
        pull_back(table, z[row], x[row], scores[row], kept[row])


@kernel(ordered=True)
def _pull_one_back(table: Any, z: Any, x: Any, score: Any, kept: Any) -> None:
    """The same for the first field.

    The pull on y_j is the score of x_j, and what later coordinates have passed on to it: y_k is in y_j for
    all j < k.
    """
    at, flat = places(table), table.reshape(table.size)
    n, e = int(table[0, N_LATENTS]), int(table[0, N_ENTRIES])
    scale, g, y = kept[:n], kept[n : n + e], kept[n + e :]
    pull_y, pull_s, pull_g = np.empty(n), np.empty(n), np.empty(e if table[0, SIZE_G] > 0.0 else 0)
    if table[0, SIZE_G] == 0.0:
        g = flat[at[13] : at[14]]
    own, starts, later = flat[at[8] : at[9]], flat[at[9] : at[10]], flat[at[10] : at[11]]
    for j in range(n):
        pull_y[j] = score[int(own[j])]
    if table[0, LEVEL_SIZE] > 0.0:
        _stretch_level(table, own, pull_y, table[0, LEVEL_FACTOR])
    if at[15] > at[14]:
        pull_x = pull_y.copy()
        _transposed_times(pull_y, flat, at[14], pull_x)
    solve_transposed(int(table[0, RUN]), int(table[0, RUN_END]), starts, later, g, y, pull_y, pull_g)
    for j in range(n):
        i, scaled = int(own[j]), scale[j] * pull_y[j]
        pull_s[j] = 1.0 + z[i] * scaled
        score[i] = scaled
    _add_to_heads(table, at, x, pull_s, pull_y, pull_g, 1.0, score)


@kernel(ordered=True, late=True)
def score_in_x(table: Any, z: Any, x: Any, score: Any) -> None:
    """Turn the score in z into the one in x, for fields."""
    k = 0
    while k < len(table):
        _score_of_one_in_x(table[k:], z, x, score)
        k = _next_field(table, k)


@kernel(ordered=True)
def _score_of_one_in_x(table: Any, z: Any, x: Any, score: Any) -> None:
    """The same for the first field."""
    at, flat = places(table), table.reshape(table.size)
    s, _, g = _law(table, at, x)
    n, e, y = s.size, g.size, _latents(table, at, x)
    pull_y, pull_s, pull_g, found = np.empty(n), np.empty(n), np.empty(e), np.zeros(n)
    own, starts, later = flat[at[8] : at[9]], flat[at[9] : at[10]], flat[at[10] : at[11]]
    for j in range(n):
        i = int(own[j])
        pull_y[j] = score[i] * np.exp(-s[j])
        pull_s[j] = 1.0 + z[i] * score[i]
    for j in range(n):
        pull = pull_y[j]
        found[j] += pull
        for entry in range(int(starts[j]), int(starts[j + 1])):
            there = int(later[entry])
            pull_g[entry] = -y[there] * pull
            found[there] += g[entry] * pull
    if at[15] > at[14]:
        turned = found.copy()
        _transposed_times(found, flat, at[15], turned)
    if table[0, LEVEL_SIZE] > 0.0:
        _stretch_level(table, own, found, 1.0 / table[0, LEVEL_FACTOR])
    for j in range(n):
        score[int(own[j])] = found[j]
    order_entries(int(table[0, RUN]), int(table[0, RUN_END]), starts, pull_g, False)
    _add_to_heads(table, at, x, pull_s, pull_y, pull_g, -1.0, score)


@kernel(ordered=True)
def _add_to_heads(
    table: Any, at: Any, x: Any, pull_s: Any, pull_a: Any, pull_g: Any, sign: Any, score: Any
) -> None:
    """Add to the scores of the heads, times `sign`, what the derivatives in s, a and G pass on to them."""
    flat, slopes, m = table.reshape(table.size), _feature_slopes(table, at, x)[1], int(table[0, N_HEADS])
    of_features = np.zeros(slopes.shape[0])
    _add_pull(flat, at[4], at[11], int(table[0, SIZE_S]), pull_s, of_features)
    _add_pull(flat, at[5], at[12], int(table[0, SIZE_A]), pull_a, of_features)
    _add_pull(flat, at[6], at[13], int(table[0, SIZE_G]), pull_g, of_features)
    for h in range(m):
        head = int(flat[at[0] + h])
        here = score[head]  # a local number, since one in memory is written and read again for each feature
        for i in range(of_features.size):
            here += sign * of_features[i] * slopes[i, h]
        score[head] = here


@kernel(ordered=True, counted=False)
def _add_pull(flat: Any, at_basis: Any, at: Any, size: Any, pull: Any, of_features: Any) -> None:
    """Add what the derivatives (n,) of the `size` + 1 rows at `at` pass on to the features (F,)."""
    n, f = pull.size, of_features.size
    for r in range(size):
        whole, basis = dot(flat[at + (r + 1) * n : at + (r + 2) * n], pull), flat[at_basis + r * f :]
        for i in range(f):
            of_features[i] += whole * basis[i]
