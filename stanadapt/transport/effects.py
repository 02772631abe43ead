"""The law of effects: latents of groups that share scales and correlations, of one factor or of several.

In a hierarchy with varying intercepts and slopes each group j has K effects x_j with the normal prior
N(a_j(g), C C^T), where C = diag(c e^(beta h(u))) L: h(u) = u are log scales, and c is 1, or a number that
the program multiplies them with; where scales have an upper bound c, h(u) = log(1 / (1 + e^-u)). L is the
Cholesky factor of a matrix of correlations. The means a_j are linear in some coefficients g, the means of all
groups for instance. Given all of these, let the data give the likelihood N(D_j x_j | b_j - E_j g, D_j), with
the precision D_j, for which the estimate of a group alone need not exist. In the effects' own scales w, where
x_j = a_j + C w_j, the precision is

    M_j = I + f C^T D_j C = R_j R_j^T,   the mean m_j = f M_j^-1 C^T (b_j - D_j a_j - E_j g),

so that the law

    x_j = a_j + C (m_j + R_j^-T z_j)

makes z_j standard normal and independent of u, L and g. The factor f = e^(sum of rho (h(v) - middle)) is
there if the precision of the data changes with coordinates v, as with rho = -2 for the log scale of their
error. Effects that different data tell, of two outcomes with errors of their own, have each its own f. Then
f is diagonal, and D_j ties no two effects whose f differ. A program that is not centred has the coordinates
w_j, and its law is w_j = m_j + R_j^-T z_j. Where the data are normal the law is exact at all scales and
correlations; elsewhere D_j and b_j are those at the mode.

Several factors, subjects and items or classes in schools, follow each other: the effects of those that come
later are among the coefficients g of one before them. So the law of the first, largest factor is exact given
all others. D and b of a later one are what is left of the data when the effects of those before it are
integrated out, at one point; f says how this changes with their scales, about. Levels of a later factor are
then tied a little to each other, which is left to the metric.

Stan has the correlations as K (K - 1) / 2 free numbers (Stan Reference Manual, Cholesky factors of
correlation matrices; Lewandowski, Kurowicka and Joe, 2009, Generating random correlation matrices based on
vines and extended onion method). With t = tanh of such a number, and those of a row one after another,

    L_ij = t_ij prod over k < j of (1 - t_ik^2)^1/2,   L_ii = prod over k < i of (1 - t_ik^2)^1/2.

Effects of one scale that the data tie are turned first (rotation.py); the law is that of their axes then.

The law is triangular: effects depend on the other coordinates alone, latents of a field among them. So it
goes last, but for innovations. Its rows are the first ones of a map after these, factor by factor
(effects_factor.py), and the first header has the number of all rows.
effects_table.py writes and reads them, and fields/effects_search.py finds the law.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..jit import kernel
from ..kinds import Real
from .effects_factor import turn_score, write_effects, write_x, write_z
from .map_table import IS_CENTRED, N_EFFECTS, OWN_ROWS, ROWS
from .rotation import rotate


@kernel(ordered=True, late=True)
def into_x(table: Any, x: Any) -> Real:
    """Turn z of effects among the coordinates `x` (d,) into effects, in place. Returns log |dx/dz|."""
    end, log_det = _end_of_factors(table), 0.0
    several = end > int(table[0, OWN_ROWS])
    e = x.copy() if several else x
    while end > 0:
        first = _begin_of_last(table, end)
        log_det += write_x(table[first:end], x, e, several)
        end = first
    _rotate(table, x, True)
    return log_det


@kernel(ordered=True, late=True)
def into_z(table: Any, x: Any) -> None:
    """Turn effects among the coordinates `x` (d,) into their z, in place."""
    _rotate(table, x, False)
    first, last = 0, _end_of_factors(table)
    e = _all_effects(table, x) if last > int(table[0, OWN_ROWS]) else x
    while first < last:
        end = first + int(table[first, OWN_ROWS])
        write_z(table[first:end], x, e)
        first = end


@kernel(ordered=True, late=True)
def pull_back(table: Any, z: Any, x: Any, score: Any) -> None:
    """Turn the score in effects, at `x` (d,), into the one in their z, in place; `z` (d,) has that z."""
    _rotate(table, score, False)
    _turn_scores(table, z, _before_rotations(table, x), score, 1.0)


@kernel(ordered=True, late=True)
def score_in_x(table: Any, z: Any, x: Any, score: Any) -> None:
    """Turn the score in z of effects into the one in the effects, at `x` (d,), in place."""
    _turn_scores(table, z, _before_rotations(table, x), score, -1.0)
    _rotate(table, score, True)


@kernel(ordered=True)
def _turn_scores(table: Any, z: Any, x: Any, score: Any, sign: Any) -> None:
    """What both directions have in common; `sign` is 1 for a score in effects, and -1 for one in z."""
    first, last = 0, _end_of_factors(table)
    several = last > int(table[0, OWN_ROWS])
    e = _all_effects(table, x) if several else x
    by_e = np.zeros(x.size) if several else score
    while first < last:
        end = first + int(table[first, OWN_ROWS])
        turn_score(table[first:end], z, x, e, by_e, score, sign, several)
        first = end
    if several:  # what is left is of coordinates that are no effects
        for i in range(x.size):
            score[i] += by_e[i]


@kernel(ordered=True)
def _all_effects(table: Any, x: Any) -> Any:
    """A copy of `x` (d,) that has effects where programs have other coordinates."""
    e, first, last = x.copy(), 0, _end_of_factors(table)
    while first < last:
        end = first + int(table[first, OWN_ROWS])
        if table[first, IS_CENTRED] == 0.0:
            write_effects(table[first:end], x, e)
        first = end
    return e


@kernel(ordered=True, counted=False)
def _end_of_factors(table: Any) -> Any:
    """The row after the last factor, where rotations begin if there are any."""
    end = 0
    while end < int(table[0, ROWS]) and table[end, N_EFFECTS] > 0.0:
        end += int(table[end, OWN_ROWS])
    return end


@kernel(ordered=True)
def _rotate(table: Any, x: Any, forward: Any) -> None:
    """Turn the coordinates `x` (d,), or a score, by all rotations, in place."""
    first = _end_of_factors(table)
    while first < int(table[0, ROWS]):
        end = first + int(table[first, OWN_ROWS])
        rotate(table[first:end], x, forward)
        first = end


@kernel(ordered=True)
def _before_rotations(table: Any, x: Any) -> Any:
    """The point (d,) of which rotations have made `x`: itself where there are none."""
    if _end_of_factors(table) == int(table[0, ROWS]):
        return x
    w = x.copy()
    _rotate(table, w, False)
    return w


@kernel(ordered=True, counted=False)
def _begin_of_last(table: Any, end: Any) -> Any:
    """The first row of the factor whose rows end before `end`."""
    first = 0
    while first + int(table[first, OWN_ROWS]) < end:
        first += int(table[first, OWN_ROWS])
    return first
