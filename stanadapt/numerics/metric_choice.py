"""The choice of the metric's form beyond `EARLY` dimensions, where a dense metric may not pay.

Up to `EARLY` dimensions a dense metric costs little, and the metric of the Hessian at the start saves most of
warm-up. Beyond that there are three candidates:

    diagonal    costs nothing
    low rank    the diagonal and k directions (metric.py); it costs O(d k) a step
    dense       the Hessian's metric, corrected by draws; it costs 2 d gradients once, O(d²) a step and
                O(d³) a window

At the start a few products of the Hessian with random signs tell how far each of its rows is from the row of
a diagonal matrix. If most rows are far from it, warm-up begins with the metric of this Hessian; otherwise it
begins with a diagonal. At the end of a window the candidates are compared by the Fisher divergence between
the normal law with covariance A and the posterior,

    E |s + A^-1 (x - mu)|²_A / d,

which is 0 if A is right. If the variance of A in a direction is wrong by the factor v, that direction adds
v + 1/v - 2 to the sum. Candidates are fitted to the older half of the window, and the mean is taken over the
newer half, which they have not seen. So the divergence tells how good a metric these draws can give. If it is
far from 0 after many draws, a few directions cannot describe the correlations. If trajectories are also long,
the next window begins with the Hessian at the point where the chain is. At the end of that window the
Hessian's metric is compared with the others. A dense metric is given up if it is worse than the metric that
half a window of draws gives.

The choice depends on counts and never on times, so that draws depend on the seed alone.

A dense metric of many dimensions is learned without its spectrum. In coordinates in which the present metric
is the identity, the solution differs from a diagonal only in the span of the draws and scores. So it takes
O(d² n) for n draws, and one triangular factorisation.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import lapack, solve_triangular

from ..jit import kernel
from ..kinds import Flag, Generator, Target, Vector
from ..target import hessian_vector
from .metric import (
    CUTOFF,
    Metric,
    compress,
    dense_metric,
    distance,
    finite_or_none,
    hessian_metric,
    learn_metric,
)

EARLY = 100  # up to this dimension the metric is dense from the start, and the first one is the Hessian's
LARGEST_DENSE = 2_000  # up to this dimension it may become dense; then a chain holds three (d, d) arrays
FAR = 0.4  # the Hessian is asked for if the better metric of the draws has a larger divergence than this
GAIN = 0.7  # the divergence of the Hessian's metric must be less than this share of the others'
TIE = 1.015  # low rank wins unless its divergence is larger by this factor: few draws show weak directions
LONG = 8.0  # a better metric can save gradients only if a trajectory takes at least this many
# The Hessian takes 2 d gradients. They may be at most this multiple of the gradients of the window that has
# ended. The first multiple is for early windows, up to this many draws, because most of the run is still to
# come. The second one is for later windows, because a Hessian may have been refused before.
_FIRST_SHARE, _LATER_SHARE, _FIRST_ROWS = 4.0, 0.5, 40
_LEAST_ROWS = 30  # a window with fewer draws asks for no Hessian: they come from the way to the posterior
_JUDGES = 64  # about this many draws are used to compare candidates
_DIRECTIONS = 100.0  # this many directions double the cost of a gradient of some 50 ns a dimension
_TRAJECTORY = 1.9  # length of the trajectory for which `prune` weighs directions against their cost
PROBES = (2, 2, 6)  # products with the Hessian at the start, in each round; together 20 gradients
COUPLED = 0.15  # a row is coupled if its other entries, squared, sum to more than this share of its diagonal
_ROUNDS = 60  # rounds of the power iteration
_CURVATURE = 1e-8  # smallest square of a pivot of a scaled Hessian; below, differences of gradients are noise


class MetricChoice(NamedTuple):
    """The chosen metric, None if draws give none, and whether the next window should begin with a Hessian."""

    metric: Metric | None
    wanted: bool


@kernel
def begins_dense(target: Target, settings: Any, x: Vector, rng: Generator) -> Flag:
    """Whether the metric is dense from the start at `x` (d,); beyond `EARLY` only with the Hessian there."""
    if x.size <= EARLY:
        return True
    return settings.curvature and x.size <= LARGEST_DENSE and is_coupled(target, x, rng)


@kernel(late=True)
def is_coupled(target: Target, x: Vector, rng: Generator) -> Flag:
    """Whether the Hessian H of the log density at `x` (d,) is far from a diagonal.

    It is far if the sum of H_ij² / |H_ii H_jj| over all other columns j exceeds `COUPLED` in most rows i. If
    a product H z is not finite, the answer is no. For random signs z, z_i (H z)_i has the mean H_ii and the
    variance sum H_ij² (Bekas, Kokiopoulou and Saad, 2007, An estimator for the diagonal of a matrix). Each
    round scales the parameters with the H_ii of the round before.
    """
    d = x.size
    scale, signs, out = np.ones(d), np.empty(d), np.empty(d)
    mean, square = np.empty(d), np.empty(d)
    for m in PROBES:
        for i in range(d):
            mean[i] = square[i] = 0.0
        for _ in range(m):
            for i in range(d):
                signs[i] = scale[i] if rng.random() < 0.5 else -scale[i]
            if not hessian_vector(target, x, signs, out):
                return False
            for i in range(d):
                product = signs[i] * out[i]
                mean[i] += product / m
                square[i] += product * product / m
        rows = 0
        for i in range(d):
            size = mean[i] * mean[i]
            if (square[i] - size) * m / (m - 1.0) > COUPLED * size:
                rows += 1
            if size > 0.0:
                scale[i] /= size**0.25
    return 2 * rows > d


def unit_metric(d: int) -> Metric:
    """The identity, in low-rank form."""
    return _diagonal_metric(np.ones(d))


def _diagonal_metric(scale: np.ndarray) -> Metric:
    none = np.empty((0, 0))
    return Metric(none, none, scale, np.empty((0, scale.size)), np.empty(0))


def metric_of(cov: np.ndarray, *, dense: bool, compressing: bool) -> Metric:
    """The metric A = `cov` (d, d), or with the diagonal `cov` (d,), in the form that is asked for.

    With `dense` it is the dense form. With `compressing` it is `compress` of the dense form up to `EARLY`
    dimensions, and beyond them if a few directions cannot describe A. In all other cases the form is low
    rank. A matrix that is not positive definite is replaced by its diagonal.
    """
    d = len(cov)
    always = dense or (compressing and d <= EARLY)
    diagonal = cov if cov.ndim == 1 else np.diag(cov)
    whole = _dense_of(cov) if cov.ndim == 2 else None
    if whole is None and always:
        whole = _dense_of(np.diag(diagonal))
    if whole is not None and dense:
        return whole
    found = None if whole is None else compress(whole)
    if found is not None and (always or not len(found.inverse_mass)):
        return found if always else found._replace(chol_t=np.empty((0, 0)))
    return found if found is not None and compressing else _diagonal_metric(np.sqrt(diagonal))


@np.errstate(all="ignore")
def _dense_of(cov: np.ndarray) -> Metric | None:
    """The dense metric A = `cov` (d, d); None if `cov` is not positive definite."""
    factor, info = lapack.dpotrf(cov, lower=1, clean=1)
    if info != 0:
        return None
    inverse, info = lapack.dtrtri(factor, lower=1)
    return None if info != 0 else finite_or_none(dense_metric(np.asarray(np.linalg.qr(inverse, mode="r"))))


def choose_metric(
    metric: Metric,
    hessian: np.ndarray,
    points: np.ndarray,
    scores: np.ndarray,
    before: int,
    *,
    gradients: float,
) -> MetricChoice:
    """The metric after a window, from draws and scores (n, d); the first `before` are from the window before.

    `hessian` is the Hessian at the window's first point, or empty. `gradients` is the number of gradients
    that a trajectory takes at the window's end; if it is 0, no Hessian is asked for.
    """
    rows, d = len(points) - before, points.shape[1]
    older = slice(before, before + rows // 2, max(1, rows // 2 // _JUDGES))
    newer = slice(before + rows // 2, None, max(1, rows // 2 // _JUDGES))
    judges = points[newer], scores[newer]
    without = divergence(learn_diagonal(points[older], scores[older]), *judges)
    within = divergence(learn_metric(unit_metric(d), points[older], scores[older]), *judges)
    best = min(without, within)
    dense = _choose_dense(metric, hessian, points, scores, before, best, judges)
    if dense is not None:
        # Compressing takes a spectrum. If a metric could not be compressed once, this is not tried again.
        once = before == 0 or not len(metric.inverse_mass)
        return MetricChoice(compress(dense) if once else dense, False)
    if within < TIE * without:
        found = learn_metric(unit_metric(d), points, scores)
        found = None if found is None else prune(found)
    else:
        found = learn_diagonal(points, scores)
    share = _FIRST_SHARE if rows <= _FIRST_ROWS else _LATER_SHARE
    pays = rows >= _LEAST_ROWS and gradients >= LONG and 2 * d <= share * rows * gradients
    return MetricChoice(found, pays and d <= LARGEST_DENSE and FAR < best < np.inf)


def _choose_dense(
    metric: Metric,
    hessian: np.ndarray,
    points: np.ndarray,
    scores: np.ndarray,
    before: int,
    best: float,
    judges: tuple[np.ndarray, np.ndarray],
) -> Metric | None:
    """The dense metric of all draws if the draws support one, else None.

    If the present metric is dense, its divergence must be smaller than `best`. Otherwise the Hessian's metric
    is taken, corrected by the window before. Its divergence must be below `GAIN` times `best`, because each
    step with it costs O(d²).
    """
    if len(metric.chol_t):
        return learn_dense(metric, points, scores) if divergence(metric, *judges) < best else None
    base = curvature_metric(hessian) if len(hessian) else None
    if base is None:
        return None
    trial = learn_dense(base, points[:before], scores[:before]) or base
    return learn_dense(base, points, scores) if divergence(trial, *judges) < GAIN * best else None


@np.errstate(all="ignore")
def learn_diagonal(points: np.ndarray, scores: np.ndarray) -> Metric | None:
    """The diagonal solution: the ratio of the standard deviations of draws and scores (n, d)."""
    if len(points) < 3:
        return None
    scale = np.sqrt(points.std(axis=0) / scores.std(axis=0))
    return _diagonal_metric(scale) if np.all(np.isfinite(scale)) and np.all(scale > 0.0) else None


@np.errstate(all="ignore")
def divergence(metric: Metric | None, points: np.ndarray, scores: np.ndarray) -> float:
    """The mean of |s + A^-1 (x - mean)|²_A / d over draws and scores (n, d); infinity if there is none."""
    if metric is None or len(points) < 2:
        return float("inf")
    u, t = whiten_by_metric(metric, points - points.mean(axis=0), scores)
    found = float(np.square(u + t).sum(axis=1).mean() / points.shape[1])
    return found if np.isfinite(found) else float("inf")


def whiten_by_metric(metric: Metric, points: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Points and scores (n, d) in coordinates in which the metric is the identity."""
    if len(metric.chol_t):
        t = solve_triangular(metric.chol_t, scores.T, trans="T", check_finite=False).T
        return points @ metric.chol_t.T, t
    u, t, root = points / metric.scale, scores * metric.scale, np.sqrt(metric.variances)
    u += (u @ metric.directions.T * (1.0 / root - 1.0)) @ metric.directions
    t += (t @ metric.directions.T * (root - 1.0)) @ metric.directions
    return u, t


def prune(metric: Metric) -> Metric:
    """The metric with its strongest directions only: as many as are worth their cost.

    Suppose that the variance of a Gaussian in a direction differs from the diagonal's by the factor c. The
    period of trajectories is then sqrt(c) times as long in this direction. The end of a trajectory of length
    T has the correlation r = cos(T / sqrt(c)) with its start, and the mean needs
    (1 + r) / (1 - r) = cot²(T / (2 sqrt(c))) draws for each effective one. Only the strongest direction that
    is left out matters.
    """
    strength = np.abs(np.log(metric.variances))
    order = np.argsort(-strength, kind="stable")
    ratio = np.append(np.exp(strength[order]), CUTOFF)  # at k: the strongest left out if k are kept
    cost = 1.0 / np.square(np.tan(0.5 * _TRAJECTORY / np.sqrt(ratio)))
    kept = np.sort(order[: int(np.argmin((1.0 + np.arange(len(ratio)) / _DIRECTIONS) * cost))])
    return metric._replace(directions=metric.directions[kept], variances=metric.variances[kept])


@np.errstate(all="ignore")
def learn_dense(metric: Metric, points: np.ndarray, scores: np.ndarray) -> Metric | None:
    """The result of `learn_metric` from a dense metric and draws and scores (n, d), in O(d² n) if n < d / 2.

    With A = M M^T, the draws u = M^-1 x and their scores have the low-rank solution A_u. Then M A_u M^T is
    the solution for x, and G L^T with G² = A_u^-1 is a root of its inverse.
    """
    n, d = points.shape
    if 2 * n >= d or not len(metric.chol_t):
        return learn_metric(metric, points, scores)
    u, t = whiten_by_metric(metric, points - points.mean(axis=0), scores - scores.mean(axis=0))
    low = learn_metric(unit_metric(d), u, t)
    if low is None:
        return None
    root = metric.chol_t / low.scale[:, None]
    root += low.directions.T @ ((1.0 / np.sqrt(low.variances) - 1.0)[:, None] * (low.directions @ root))
    return finite_or_none(dense_metric(np.asarray(np.linalg.qr(root, mode="r"))))


@np.errstate(all="ignore")
def curvature_metric(hessian: np.ndarray) -> Metric | None:
    """The result of `hessian_metric`; if the density is log-concave, a Cholesky factor alone gives it."""
    scale = np.sqrt(np.abs(np.diag(hessian)))
    if not np.all(np.isfinite(hessian)) or not np.all(scale > 0.0):
        return None
    factor, info = lapack.dpotrf(-hessian / np.outer(scale, scale))
    if info == 0 and np.square(np.diag(factor)).min() > _CURVATURE:
        return finite_or_none(dense_metric(factor * scale))
    return hessian_metric(hessian)


def is_same(one: Metric, other: Metric, points: np.ndarray, before: int, most: float, drift: float) -> bool:
    """Whether two metrics agree, and the first `before` points (n, d) agree with the other points.

    The log variances of the metrics must differ by less than `most` in every direction. The squared distance
    between the means of the points must be less than `drift` times its expectation for independent draws.
    Metrics of different forms do not agree.
    """
    gap = points[:before].mean(axis=0) - points[before:].mean(axis=0)
    u = whiten_by_metric(other, gap[None], gap[None])[0]
    expected = gap.size * (1.0 / before + 1.0 / (len(points) - before))
    return bool(np.square(u).sum() < drift * expected and change(one, other) < most)


@np.errstate(all="ignore")
def change(one: Metric, other: Metric) -> float:
    """The largest absolute log ratio of the variances of two metrics in any direction."""
    if len(one.chol_t) and len(other.chol_t):
        return distance(one, other)
    if len(one.chol_t) or len(other.chol_t):
        return float("inf")
    return float(np.abs(np.log([_largest_ratio(one, other), _largest_ratio(other, one)])).max())


def _largest_ratio(one: Metric, other: Metric) -> float:
    """The largest eigenvalue of A_1^-1 A_2, both of low rank, by power iteration from a fixed start."""
    other = other._replace(scale=other.scale / one.scale)  # no eigenvalue changes if both are scaled
    one = one._replace(scale=np.ones_like(one.scale))
    v, size = np.random.default_rng(0).standard_normal((1, one.scale.size)), 0.0
    for _ in range(_ROUNDS):
        v /= np.sqrt(np.square(v).sum())
        v = _stretch(one, _stretch(other, v, 1.0), -1.0)
        size = float(np.sqrt(np.square(v).sum()))
    return size


def _stretch(metric: Metric, rows: np.ndarray, power: float) -> np.ndarray:
    """Every row (n, d) multiplied by A, or by its inverse if the power is -1, for the low-rank form."""
    scale = metric.scale**power
    u = rows * scale
    u += (u @ metric.directions.T * (metric.variances**power - 1.0)) @ metric.directions
    return np.asarray(u * scale)
