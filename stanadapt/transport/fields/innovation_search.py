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

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from .. import innovations
from ..field import Field
from ..field_table import field_rows, in_one_chain
from ..map_table import INNOVATIONS, N_GRADIENTS
from .innovation_law import FIRST, fit_innovations
from .probes import FEW_NEIGHBOURS, NOISE, Evaluate, ScaledDensity, have_ties

PROBES = 6  # and one more that judges
_FAINT = 1e-8  # a smaller answer, beside all, is a rounding error
_WRONG = 1e-3  # share of an answer that may be unexplained
_TIED = 0.1  # a series has regressions as large as this, by their root mean square
# Series of one variable: so many terms has each of them at least, and so many of them may be tied by data.
_SHORTEST, _MOST_TIED = 10, 8
MOST_CANDIDATES = 80  # coordinates that rho may depend on
MOST_HEADS = 2  # of them, for one series
_MOVE = 0.5  # of a candidate, in units; rho has to change by more than _CHANGES
_CHANGES = 1e-4
_REACHES = 0.5, 1.0, 1.75, 2.5, 4.0, 6.0  # the design, in units: on each axis,
_PAIRS = 1.0, 2.5  # and between two
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


def find_innovations(
    evaluate: Evaluate, x: np.ndarray, unit: np.ndarray, variables: np.ndarray
) -> tuple[Innovations | None, int]:
    """Series of innovations among the variables, if there are any, and the number of gradients it took.

    `evaluate` is the density in x; the other arguments are those of `learn_field`.
    """
    density = ScaledDensity(evaluate, np.ones(x.size))
    found: list[tuple[np.ndarray, Series]] = []
    for number in np.unique(variables):
        own = np.flatnonzero(variables == number)
        if len(own) > FEW_NEIGHBOURS:
            found += _series_of(density, x, own)
    if not found:
        return None, density.gradients
    laws = _fit(density, x, unit, variables, [own for own, _ in found], [series for _, series in found])
    if not laws:
        return None, density.gradients
    parts = [field_rows(law, 0, INNOVATIONS) for law in laws]
    parts[0][0, N_GRADIENTS] = density.gradients
    rows = np.concatenate(in_one_chain(parts))

    there, scale = x.copy(), unit.copy()
    innovations.into_u(rows, there)
    for own, series in found:
        of_later = sum(
            np.append(np.square(rho[lag:]), np.zeros(lag)) for lag, rho in enumerate(series.rho, 1)
        )
        scale[own] = 1.0 / np.sqrt(1.0 + of_later + np.maximum(series.curvature, 0.0))
    return Innovations(rows, there, scale, density.gradients), density.gradients


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
    for members in _divisions(own):
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
        if series is None or not np.sqrt(np.mean(np.square(series.rho))) > _TIED:
            return []
        found.append((own, series))
    return found


def _divisions(own: np.ndarray) -> Iterator[np.ndarray]:
    """The coordinates `own` (n,), divided into several series (k, n / k)."""
    for k in range(2, len(own) // _SHORTEST + 1):
        if len(own) % k == 0:
            yield own.reshape(k, -1)
            yield own.reshape(-1, k).T


def series_at(density: ScaledDensity, x: np.ndarray, own: np.ndarray) -> Series | None:
    """The series that the coordinates `own` (n,) are innovations of at `x` (d,); None if they are not.

    `density` has units of 1, since innovations are standard normal in a program's own coordinates.
    """
    rng, n = np.random.default_rng(4), len(own)  # the search takes no random numbers of the chain
    probes = rng.standard_normal((PROBES + 1, n))
    directions = np.zeros((len(probes), x.size))
    directions[:, own] = probes
    answers = density.curvatures(x, directions)[:, own] - probes
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
        if np.linalg.norm(left) < _WRONG * np.linalg.norm(answers[0]):
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
    answers are not so.

    Sums of sums are such a series. Answers change slowly with time then, so that those of one time tell rho
    to few digits; those of all times together do.
    """
    n = probes.shape[1]
    first = np.column_stack((answers[:, 1], answers[:, 2], probes[:, 0]))
    found = np.linalg.lstsq(first, answers[:, 0])[0]
    if not np.linalg.norm(first @ found - answers[:, 0]) < _WRONG * np.linalg.norm(answers[:, 0]):
        return None
    rho = found[:2]

    def residual(rho: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        u, own = _into_series(np.outer(rho, np.ones(n)), probes), answers.copy()
        for lag, one in enumerate(rho, 1):
            own[:, :-lag] -= one * answers[:, lag:]
        curvature = (u * own).sum(axis=0) / np.square(u).sum(axis=0)
        return (own - curvature * u).ravel(), curvature

    for _ in range(_NEWTON):
        left = residual(rho)[0]
        slopes = [(residual(rho + _APART * axis)[0] - left) / _APART for axis in np.eye(2)]
        rho = rho - np.linalg.lstsq(np.column_stack(slopes), left)[0]
    regressions = np.outer(rho, np.ones(n))
    regressions[0, :1] = regressions[1, :2] = 0.0
    return Series(regressions, residual(rho)[1])


def _into_series(rho: np.ndarray, probes: np.ndarray) -> np.ndarray:
    """B w (k, n) for probes w (k, n)."""
    u = probes.copy()
    for t in range(1, u.shape[1]):
        for lag in range(1, min(len(rho), t) + 1):
            u[:, t] += rho[lag - 1, t] * u[:, t - lag]
    return u


def predict(series: Series, probe: np.ndarray) -> np.ndarray:
    """The answer (n,) to a probe (n,)."""
    rho, n = series.rho, len(probe)
    answer: np.ndarray = series.curvature * _into_series(rho, probe[None])[0]
    for t in range(n - 1, -1, -1):
        for lag in range(1, min(len(rho), n - 1 - t) + 1):
            answer[t] += rho[lag - 1, t + lag] * answer[t + lag]
    return answer


def _fit(
    density: ScaledDensity,
    x: np.ndarray,
    unit: np.ndarray,
    variables: np.ndarray,
    members: list[np.ndarray],
    found: list[Series],
) -> list[Field]:
    """rho as a function of its heads, exact at `x` (d,): a law for all series with the same heads.

    There is none if a series has too many heads.
    """
    counts = np.bincount(variables)
    few = np.flatnonzero(counts[variables] <= FEW_NEIGHBOURS)
    if len(few) > MOST_CANDIDATES:
        return []

    def rho_at(theta: np.ndarray, heads: np.ndarray) -> np.ndarray | None:
        point = x.copy()
        point[heads] = theta
        series = [series_at(density, point, own) for own in members]
        known = [one for one in series if one is not None and len(one.rho) <= order]
        return _rho_of(known, order) if len(known) == len(members) else None

    order = max(len(one.rho) for one in found)
    middle = _rho_of(found, order)
    each = _divide(middle[0], members)
    found_heads: list[list[int]] = [[] for _ in each]
    for k in few:
        ahead = rho_at(x[[k]] + _MOVE * unit[k], np.array([k]))
        if ahead is None:
            return []
        for of_series, times in zip(found_heads, each, strict=True):
            if np.sqrt(np.mean(np.square(ahead - middle)[:, times])) > _CHANGES:
                of_series.append(int(k))
    groups = _group(found_heads, each)
    if not groups:
        return []
    m = max(len(heads) for heads, _ in groups)
    all_heads = np.concatenate([heads for heads, _ in groups])
    moves, values = [np.zeros(m)], [middle]
    for move in _design(m):  # of all series at once, each by its own heads
        theta = np.concatenate([x[heads] + move[: len(heads)] * unit[heads] for heads, _ in groups])
        rho = rho_at(theta, all_heads)
        if rho is not None:
            moves.append(move)
            values.append(rho)
    innovations_of = np.concatenate(members)
    return [
        fit_innovations(
            np.array(moves)[:, : len(heads)],
            np.array(values)[:, :, times],
            heads,
            x[heads],
            unit[heads],
            innovations_of[times],
        )
        for heads, times in groups
    ]


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
