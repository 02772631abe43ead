"""Finding series that a program writes in their innovations (innovations.py), by few differences of scores.

Let x be standard normal innovations, u = B x with u_t = x_t + rho_t u_t-1 a series of them, and let the data
depend on each u_t by itself, with curvature d_t. Then -H = I + B^T D B. A probe w has the answer
q = -H w - w, with (B^-T q)_t = q_t - rho_t+1 q_t+1 = d_t (B w)_t. For several probes at once
q_t - rho_t+1 q_t+1 is thus parallel to (B w)_t, over the probes, and B w is known as far as rho is: one pass
along the series gives all rho_t and d_t, however long the series is. A probe that took no part tells if this
is the whole of -H. A term may also depend on the two before it. And a variable may have several series, in
the columns or rows of a matrix.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_banded

from .. import innovations
from ..effects_table import LARGEST
from ..field import Field
from ..field_table import field_rows, in_one_chain
from ..map_table import INNOVATIONS, N_GRADIENTS
from .innovation_law import FIRST, fit_innovations
from .probes import (
    FEW_NEIGHBOURS,
    LEAST_ALONE,
    NOISE,
    Evaluate,
    ScaledDensity,
    axes,
    divisions,
    have_ties,
    two_columns,
)

PROBES = 6  # and one more that judges
_FAINT = 1e-8  # a smaller answer, beside all, is a rounding error
_WRONG = 1e-3  # share of an answer that may be unexplained
_HIDDEN = 1e-4  # terms with answers of this size, beside the largest, count for half
_UNSEEN = 1e-3  # a smaller curvature, beside the largest, is of no data
# A series has regressions as large as this, by their root mean square; one that is alone has at one of two
# points.
_TIED, _TIED_ALONE = 0.1, 0.02
# Series of one variable: so many terms has each of them at least, and so many of them may be tied by data.
_SHORTEST, _MOST_TIED = 10, 8
MOST_CANDIDATES = 80  # coordinates that rho may depend on
MOST_HEADS = 2  # of them, for one series
_AWAY = 0.7  # of all candidates at once
_MOVE = 0.5  # of a candidate, in units; rho has to change by more than _CHANGES
_CHANGES = 1e-4
# The unit of a design is such that rho changes by this, but no wider than that. Where precise data hold a
# series of innovations, the heads hardly move, and will go much farther in the coordinates that are found.
_FAR, _WIDE = 0.2, 1.0
_REACHES = 0.5, 1.0, 1.75, 2.5, 4.0, 6.0  # the design, in units: on each axis,
_PAIRS = 1.0, 2.5  # and between two
_RATE = 2.0  # at which the curvature that data give to a series changes with the log of its scale,
_NOT_RATE = 1e-3  # and what it may be off
NO_HEADS = np.zeros(0, np.int64)
_NEWTON, _APART = 4, 1e-4  # steps towards regressions on two terms, and those of differences


class Series(NamedTuple):
    """What probes say of innovations at a point."""

    rho: np.ndarray  # (p, n) regressions on 1 to p terms before; those on terms that there are not are 0
    curvature: np.ndarray  # (n,) d


class Innovations(NamedTuple):
    """Series that are found, and a point in them."""

    rows: np.ndarray  # of a map
    x: np.ndarray  # (d,) the point
    unit: np.ndarray  # (d,)
    gradients: int  # that this took
    heads: np.ndarray  # of a short series, which its field has, however little they change its precision


def find_innovations(
    evaluate: Evaluate, x: np.ndarray, unit: np.ndarray, variables: np.ndarray
) -> tuple[Innovations | None, int]:
    """Series of innovations among the variables, if there are any, and the number of gradients it took.

    `evaluate` is the density in x; the other arguments are those of `learn_field`.
    """
    density = ScaledDensity(evaluate, np.ones(x.size))
    is_short = has_short_variable_alone(variables)
    if is_short:
        found, x = _short_series(density, x, variables)
    else:
        found = _long_series(density, x, variables)
    if not found:
        return None, density.gradients
    members, series = [own for own, _ in found], [one for _, one in found]
    laws, scales = _fit(density, x, unit, variables, members, series)
    # In few coordinates a metric does justice to constant regressions, as those of a walk.
    if not laws or (is_short and not any(len(np.setdiff1d(law.heads, scales)) for law in laws)):
        return None, density.gradients
    rows = np.concatenate(in_one_chain([field_rows(law, 0, INNOVATIONS) for law in laws]))
    scale = unit.copy()
    for own, one in found:
        of_later = sum(np.append(np.square(rho[lag:]), np.zeros(lag)) for lag, rho in enumerate(one.rho, 1))
        scale[own] = 1.0 / np.sqrt(1.0 + of_later + np.maximum(one.curvature, 0.0))
    own = np.concatenate(members)
    scale[own] *= np.where(scales >= 0, np.exp(x[scales]), 1.0)
    # Where precise data hold a short series, its heads hardly change its precision. But so few terms say
    # little of them, so that they are far from normal, as latents should be.
    heads = np.unique(np.concatenate([law.heads for law in laws])) if is_short else NO_HEADS
    return as_innovations(rows, x, scale, density.gradients, heads), density.gradients


def _short_series(
    density: ScaledDensity, x: np.ndarray, variables: np.ndarray
) -> tuple[list[tuple[np.ndarray, Series]], np.ndarray]:
    """The only series of innovations, with its coordinates, if it is one, and a point (d,) where it is seen.

    If its autocorrelation just is small at `x` (d,), it is seen elsewhere.
    """
    is_own = np.bincount(variables)[variables] >= LEAST_ALONE
    own = np.flatnonzero(is_own)
    for at in (x, x + _AWAY * ~is_own):
        if _are_all_tied(density, at, own):
            series = series_at(density, at, own)
            if series is not None and _has_regressions(series, _TIED_ALONE) and _have_data(series):
                return [(own, series)], at
    return [], x


def _long_series(
    density: ScaledDensity, x: np.ndarray, variables: np.ndarray
) -> list[tuple[np.ndarray, Series]]:
    """The series of innovations with the coordinates of each.

    The effects of a group are a series too, a short one, but have more heads. The terms of a centred walk
    would pass for innovations where some have no data and the others have precise ones.
    """
    of_each = {int(number): np.flatnonzero(variables == number) for number in np.unique(variables)}
    series_of = {n: _series_of(density, x, own) for n, own in of_each.items() if len(own) > FEW_NEIGHBOURS}
    found = [n for n in series_of if series_of[n]]
    long = [n for n in found if _has_many_ties(density, x, of_each[n])]
    kept = long or [n for n in found if _are_in_groups(density, x, of_each[n])]
    return [one for n in kept for one in series_of[n]]


def has_short_variable_alone(variables: np.ndarray) -> bool:
    """Whether one of the `variables` (d,) may be a short series, and no other one may be a series."""
    counts = np.bincount(variables)
    large = counts[counts >= LEAST_ALONE]
    return len(large) == 1 and large[0] <= FEW_NEIGHBOURS


def as_innovations(
    rows: np.ndarray, x: np.ndarray, unit: np.ndarray, gradients: int, heads: np.ndarray = NO_HEADS
) -> Innovations:
    """The series that a map's `rows` make, from a point `x` (d,) outside of them; `unit` (d,) is in them.

    A field of them has these `heads` (k,) at least.
    """
    there = x.copy()
    rows[0, N_GRADIENTS] = gradients
    innovations.into_u(rows, there)
    return Innovations(rows, there, unit, gradients, heads)


def _are_in_groups(density: ScaledDensity, x: np.ndarray, own: np.ndarray) -> bool:
    """Whether two coordinates of a variable are tied as effects are: to those of their group, which have the
    same ties. Terms of a series are tied to their neighbours, which have others.
    """
    here = density(x)[1]

    def ties(place: int, column: np.ndarray) -> np.ndarray:
        return np.asarray(np.abs(column[own]) > NOISE * abs(column[own[place]]))

    for place, column in two_columns(density, x, own, here):
        group = ties(place, column)
        if not group[place] or np.count_nonzero(group) > LARGEST:
            return False
        others = np.flatnonzero(group)[np.flatnonzero(group) != place]
        if len(others):
            column = density.curvatures(x, axes(x.size, own[others[:1]]), here)[0]
            if not np.array_equal(ties(int(others[0]), column), group):
                return False
    return True


def _has_many_ties(density: ScaledDensity, x: np.ndarray, own: np.ndarray) -> bool:
    """Whether a coordinate of a variable is tied to more of the others than effects of one group are."""
    return have_ties(density, x, own, LARGEST + 1, NOISE)


def _are_all_tied(density: ScaledDensity, x: np.ndarray, own: np.ndarray) -> bool:
    """Whether a coordinate of a variable is tied to most of the others, as innovations are.

    Terms of a centred walk are tied to the next ones alone.
    """
    return have_ties(density, x, own, len(own) // 2 + 1, NOISE)


def _series_of(density: ScaledDensity, x: np.ndarray, own: np.ndarray) -> list[tuple[np.ndarray, Series]]:
    """The series, at `x` (d,), whose innovations the coordinates `own` (n,) of a variable are, with those of
    each: one series, or several of equal length, in the columns or rows of a matrix; or no series.

    Series that data do not tie are one series, with regressions of 0 where the next one begins. But data of a
    day may depend on all, as in a regression whose coefficients are walks. Then each is probed by itself, and
    probes of one series see the diagonal of that alone.
    """
    found = _each(density, x, own[None])
    if found or not have_ties(density, x, own, _SHORTEST, NOISE):
        return found
    for members in divisions(own, _SHORTEST):
        first = _each(density, x, members[:1])
        if not first:
            continue
        if found := _each(density, x, members.reshape(1, -1)):
            return found
        others = _each(density, x, members[1:]) if len(members) <= _MOST_TIED else []
        if others:
            return first + others
    return []


def _each(density: ScaledDensity, x: np.ndarray, members: np.ndarray) -> list[tuple[np.ndarray, Series]]:
    """The series that rows of coordinates `members` (k, n) are innovations of; none if one of them is not."""
    found: list[tuple[np.ndarray, Series]] = []
    for own in members:
        series = series_at(density, x, own)
        if series is None or not _has_regressions(series):
            return []
        found.append((own, series))
    return found


def _have_data(series: Series) -> bool:
    """Whether most terms have data. Of weights whose scales fall fast only the first ones do."""
    seen = series.curvature > _UNSEEN * series.curvature.max()
    return bool(np.count_nonzero(seen) > len(seen) // 2)


def _has_regressions(series: Series, least: float = _TIED) -> bool:
    """Whether they are not small. Weights of waves, say, whose data hardly tie them, would be a series."""
    return bool(np.sqrt(np.mean(np.square(series.rho))) > least)


def series_at(density: ScaledDensity, x: np.ndarray, own: np.ndarray) -> Series | None:
    """The series that the coordinates `own` (n,) are innovations of at `x` (d,); None if they are not.

    The point is in units. Innovations are standard normal in a program's own coordinates.
    """
    rng, n = np.random.default_rng(4), len(own)  # the search takes no random numbers of the chain
    probes = rng.standard_normal((PROBES + 1, n))
    directions = np.zeros((len(probes), x.size))
    directions[:, own] = probes / density.unit[own]
    answers = density.curvatures(x, directions)[:, own] / density.unit[own] - probes
    if np.isnan(answers).any():
        return None
    for solve in (solve_probes, solve_second_order):
        try:
            series = solve(probes[1:], answers[1:])
        except np.linalg.LinAlgError:  # after an overflow
            continue
        if series is None or not (np.isfinite(series.rho).all() and np.isfinite(series.curvature).all()):
            continue
        left = answers[0] - predict(series, probes[0])
        # Each term is judged by its own answers, too: a few that precise priors hold would hide all others.
        size = np.sqrt(np.mean(np.square(answers), axis=0))
        of_terms = left / (size + _HIDDEN * size.max())
        is_right = np.linalg.norm(left) < _WRONG * np.linalg.norm(answers[0])
        if is_right and np.sqrt(np.mean(np.square(of_terms))) < _WRONG:
            return series
    return None


def solve_probes(probes: np.ndarray, answers: np.ndarray) -> Series:
    """rho and d from probes w and answers q, both (k, n).

    At the end of a series there may be no data any more. No answer tells rho there, and it is 0.
    """
    n = probes.shape[1]
    rho, curvature = np.zeros(n), np.zeros(n)
    u, least = probes[:, 0], _FAINT * np.sqrt(np.mean(np.square(answers)))
    for t in range(n):
        along = u / (u @ u)
        if t < n - 1:
            ahead = answers[:, t + 1] - u * (along @ answers[:, t + 1])
            size = ahead @ ahead
            rho[t + 1] = (ahead @ answers[:, t]) / size if size > least**2 else 0.0
            curvature[t] = along @ (answers[:, t] - rho[t + 1] * answers[:, t + 1])
            u = probes[:, t + 1] + rho[t + 1] * u
        else:
            curvature[t] = along @ answers[:, t]
    return Series(rho[None], curvature)


def solve_second_order(probes: np.ndarray, answers: np.ndarray) -> Series | None:
    """The same, where a term depends on the two before it, in the same way at all times; None where the first
    answers are not so. The second term may have another regression on the first one, its only one before.

    Sums of sums are such a series. Answers change slowly with time then, so that those of one time tell rho
    to few digits; those of all times together do.
    """
    n = probes.shape[1]
    begin = np.column_stack((answers[:, 1], answers[:, 2], probes[:, 0]))
    found = np.linalg.lstsq(begin, answers[:, 0])[0]
    if not np.linalg.norm(begin @ found - answers[:, 0]) < _WRONG * np.linalg.norm(answers[:, 0]):
        return None
    second = probes[:, 1] + found[0] * probes[:, 0]
    ahead = np.column_stack((answers[:, 2], answers[:, 3], second))
    rho = np.array([np.linalg.lstsq(ahead, answers[:, 1])[0][0], found[1], found[0]])

    def residual(rho: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        regressions, own = _of_second_order(rho, n), answers.copy()
        u = _into_series(regressions, probes)
        for lag, one in enumerate(regressions, 1):
            own[:, :-lag] -= one[lag:] * answers[:, lag:]
        curvature = (u * own).sum(axis=0) / np.square(u).sum(axis=0)
        return (own - curvature * u).ravel(), curvature

    for _ in range(_NEWTON):
        left = residual(rho)[0]
        slopes = [(residual(rho + _APART * axis)[0] - left) / _APART for axis in np.eye(3)]
        rho = rho - np.linalg.lstsq(np.column_stack(slopes), left)[0]
    return Series(_of_second_order(rho, n), residual(rho)[1])


def _of_second_order(rho: np.ndarray, n: int) -> np.ndarray:
    """The regressions (2, n) of all terms, where `rho` (3,) has both and that of the second term."""
    regressions = np.outer(rho[:2], np.ones(n))
    regressions[0, 0] = regressions[1, 0] = regressions[1, 1] = 0.0
    regressions[0, 1] = rho[2]
    return regressions


def _into_series(rho: np.ndarray, probes: np.ndarray) -> np.ndarray:
    """B w (k, n) for probes w (k, n): u_t = w_t + the sum over lags of rho_t u_(t - lag)."""
    return np.asarray(solve_banded((len(rho), 0), _diagonals(rho), probes.T, check_finite=False).T)


def predict(series: Series, probe: np.ndarray) -> np.ndarray:
    """The answer (n,) to a probe (n,)."""
    diagonals, answer = _diagonals(series.rho), series.curvature * _into_series(series.rho, probe[None])[0]
    above = np.zeros_like(diagonals)  # the transposed matrix has the entries of a column in its row
    for lag, one in enumerate(diagonals):
        above[-1 - lag, lag:] = one[: len(probe) - lag]
    return np.asarray(solve_banded((0, len(series.rho)), above, answer, check_finite=False))


def _diagonals(rho: np.ndarray) -> np.ndarray:
    """The diagonal of B^-1 (n, n) and those below it (lags + 1, n), each from its first column on."""
    found = np.ones((len(rho) + 1, rho.shape[1]))
    for lag, one in enumerate(rho, 1):
        found[lag] = np.append(-one[lag:], np.zeros(lag))
    return found


def _fit(
    density: ScaledDensity,
    x: np.ndarray,
    unit: np.ndarray,
    variables: np.ndarray,
    members: list[np.ndarray],
    found: list[Series],
) -> tuple[list[Field], np.ndarray]:
    """rho as a function of its heads, exact at `x` (d,): a law for all series with the same heads; and the
    coordinates (n,) that are the log scales of the steps of each series, -1 if some have none.

    Precise data hold a series as it is: in units of its steps it would move with their scale. Effects that
    follow a series do so as it is, too. There is no law if a series has too many heads.
    """
    counts, own = np.bincount(variables), np.concatenate(members)
    few, none = np.setdiff1d(np.flatnonzero(counts[variables] <= FEW_NEIGHBOURS), own), np.full(own.size, -1)
    if len(few) > MOST_CANDIDATES:
        return [], none
    base = x.copy()
    base[own] = 0.0  # there the curvature that data give changes with the scale of the steps alone

    def series_after(theta: np.ndarray, heads: np.ndarray) -> list[Series] | None:
        point = base.copy()
        point[heads] = theta
        series = [series_at(density, point, places) for places in members]
        known = [one for one in series if one is not None and len(one.rho) <= order]
        return known if len(known) == len(members) else None

    order = max(len(one.rho) for one in found)
    first = series_after(base[:0], few[:0])
    if first is None:
        base, first = x, found
    middle, curvature = _rho_of(first, order), np.concatenate([one.curvature for one in first])
    each = _divide(middle[0], members)
    found_heads: list[list[int]] = [[] for _ in each]
    scales, reach = none.copy(), unit.copy()
    for k in few:
        ahead = series_after(x[[k]] + _MOVE * unit[k], np.array([k]))
        if ahead is None:
            return [], none
        change = _rho_of(ahead, order) - middle
        curvature_ahead = np.concatenate([one.curvature for one in ahead])
        for of_series, times in zip(found_heads, each, strict=True):
            size = np.sqrt(np.mean(np.square(change[:, times])))
            if size > _CHANGES:
                of_series.append(int(k))
                reach[k] = max(reach[k], min(_WIDE, _FAR * _MOVE * unit[k] / size))
            elif _is_scale(curvature[times], curvature_ahead[times], _MOVE * unit[k]):
                scales[times] = k
    groups: list[tuple[np.ndarray, np.ndarray]] = []
    if (scales >= 0).all():
        of_steps = [int(scales[times[0]]) for times in each]
        groups = _group([sorted({*heads, k}) for heads, k in zip(found_heads, of_steps, strict=True)], each)
    if not groups:
        scales, groups = none, _group(found_heads, each)
    if not groups:
        return [], none
    changing = [np.setdiff1d(heads, scales) for heads, _ in groups]  # rho does not depend on the scales
    m = max(map(len, changing))
    moves, values = [np.zeros(m)], [middle]
    for move in _design(m):  # of all series at once, each by its own heads
        theta = np.concatenate([x[heads] + move[: len(heads)] * reach[heads] for heads in changing])
        there = series_after(theta, np.concatenate(changing))
        if there is not None:
            moves.append(move)
            values.append(_rho_of(there, order))
    laws = []
    for (heads, times), of_rho in zip(groups, changing, strict=True):
        of_heads = np.zeros((len(moves), len(heads)))
        of_heads[:, np.isin(heads, of_rho)] = np.array(moves)[:, : len(of_rho)]
        rho = np.array(values)[:, :, times]
        laws.append(fit_innovations(of_heads, rho, heads, x[heads], reach[heads], own[times], scales[times]))
    return laws, scales


def _is_scale(curvature: np.ndarray, ahead: np.ndarray, move: float) -> bool:
    """Whether the curvature (n,) that data give to a series of zeros, after a move of a coordinate, says that
    this is the log scale of its steps.
    """
    told = curvature > _FAINT * curvature.max()
    if not (told.any() and np.all(ahead[told] > 0.0)):
        return False
    rates = np.log(ahead[told] / curvature[told]) / move
    return bool(np.abs(rates - _RATE).max() < _NOT_RATE)


def _group(found: list[list[int]], each: list[np.ndarray]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Heads, and the times of all series that have these: all series together if they have few.

    `found` has the heads of each series, and `each` its times. No groups if one series has too many heads, or
    if two groups have a head in common.
    """
    heads = sorted({k for own in found for k in own})
    if len(heads) <= MOST_HEADS:
        return [(np.array(heads, np.int64), np.concatenate(each))]
    together: dict[tuple[int, ...], list[np.ndarray]] = {}
    for own, times in zip(found, each, strict=True):
        together.setdefault(tuple(own), []).append(times)
    if max(map(len, together)) > MOST_HEADS or sum(map(len, together)) > len(heads):
        return []
    return [(np.array(own, np.int64), np.concatenate(times)) for own, times in together.items()]


def _divide(rho: np.ndarray, members: list[np.ndarray]) -> list[np.ndarray]:
    """The times of each series among the regressions `rho` (n,) of all: one begins where there is none.

    So it does with each of the `members`, those that were probed by themselves.
    """
    begins = np.abs(rho) < FIRST * np.abs(rho).max()
    begins[np.cumsum([0, *map(len, members[:-1])])] = True
    begins[1:] &= ~begins[:-1]  # the terms after the last one with data have no regressions
    return np.split(np.arange(len(rho)), np.flatnonzero(begins)[1:])


def _rho_of(found: list[Series], order: int) -> np.ndarray:
    """The regressions (order, n) of several series, one after another."""
    padded = [np.pad(one.rho, ((0, order - len(one.rho)), (0, 0))) for one in found]
    return np.asarray(np.concatenate(padded, axis=1))


def _design(m: int) -> list[np.ndarray]:
    """Moves (m,) of the heads, in units."""
    axes = np.eye(m)
    moves = [sign * reach * axis for axis in axes for sign in (-1.0, 1.0) for reach in _REACHES]
    for a in range(m):
        for b in range(a):
            moves += [
                reach * (one * axes[a] + other * axes[b])
                for reach in _PAIRS
                for one in (-1.0, 1.0)
                for other in (-1.0, 1.0)
            ]
    return moves
