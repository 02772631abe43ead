"""Which form the metric takes where it is not plain that all of A pays: beyond `EARLY` dimensions.

Up to there a dense metric costs little, and that of the Hessian at the start saves most of warm-up. Beyond it
there are three candidates:

    diagonal    costs nothing
    low rank    the diagonal and k directions (metric.py), which cost O(d k) a step
    dense       the Hessian's metric, corrected by draws, which costs 2 d gradients once, O(d²) a step and
                O(d³) a window

At the start a few products of the Hessian with random signs tell how far it is from a diagonal. Where most
rows are, the Hessian is taken there; elsewhere warm-up begins with a diagonal. At the end of a window the
candidates are compared by the Fisher divergence between the normal law with covariance A and the posterior,

    E |s + A^-1 (x - mu)|²_A / d,

which is 0 if A is right; a direction whose variance A has wrong by the factor v adds v + 1/v - 2 to the sum.
It is taken over draws that the candidate was not fitted to: the newer half of the window. A candidate that is
fitted to the older half tells how far draws can take it. Where that is far from 0 although many draws were
seen, correlations are such as no few directions hold. If trajectories are long then, the next window begins
with the Hessian at the point where the chain is, and at its end that metric is judged like the others. A
dense metric that is worse than what half a window tells is given up.

What decides is counted and never timed, so that draws depend on the seed alone.

A dense metric of many dimensions is learnt without its spectrum. In coordinates in which the present metric
is the identity, the solution differs from a diagonal in the span of the draws and scores alone. That takes
O(d² n) for n draws, and one triangular factorisation.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import lapack, solve_triangular

from ..jit import kernel
from ..kinds import Flag, Generator, Target, Vector
from ..target import hessian_vector
from .metric import CUTOFF, Metric, compress, dense_form, hessian_metric, learn_metric

EARLY = 100  # dimension up to which the metric is dense, and the first one the Hessian's, from the start
LARGEST_DENSE = 2_000  # the same up to which it may become dense; then a chain holds three (d, d) arrays
FAR = 0.4  # divergence of the better candidate of the draws, beyond which the Hessian is asked for
GAIN = 0.7  # share of the others' divergence that the Hessian's metric must be below
TIE = 1.015  # low rank may be so much worse than the diagonal: few draws show the weaker directions
LONG = 8.0  # gradients of a trajectory, from which on a better metric can save some
# The Hessian's 2 d gradients may be so many times those of the window that has ended: early, while the run is
# still to come, and in later windows, where a Hessian may have been refused before.
_FIRST_SHARE, _LATER_SHARE, _FIRST_ROWS = 4.0, 0.5, 40
_LEAST_ROWS = 30  # draws of a window that may ask: earlier ones come from the way to the posterior
_JUDGES = 64  # draws that candidates are compared by
_DIRECTIONS = 100.0  # so many double the cost of a gradient, if that is some 50 ns a dimension
_TRAJECTORY = 1.9  # length of a trajectory by which directions are worth their cost
PROBES = (2, 2, 6)  # products with the Hessian at the start, in each round: 20 gradients
COUPLED = 0.15  # share of a row's diagonal that the others may have, squared, before it is coupled to them
_ROUNDS = 60  # of the power iteration
_CURVATURE = 1e-8  # smallest square of a pivot of a scaled Hessian; below, differences of gradients are noise


class MetricChoice(NamedTuple):
    """The metric that is chosen, None where draws tell none, and whether the Hessian is wanted."""

    metric: Metric | None
    wanted: bool


@kernel
def begins_dense(target: Target, settings: Any, x: Vector, rng: Generator) -> Flag:
    """Whether the metric is dense from the start at `x` (d,); beyond `EARLY` only with the Hessian there."""
    if x.size <= EARLY:
        return True
    return settings.curvature and x.size <= LARGEST_DENSE and is_coupled(target, x, rng)


@kernel
def is_coupled(target: Target, x: Vector, rng: Generator) -> Flag:
    """Whether the Hessian H of the log density at `x` (d,) is far from a diagonal.

    It is if the sum of H_ij² / |H_ii H_jj| over all other columns j exceeds `COUPLED` in most rows i, and not
    where H z is not finite. For signs z that are drawn at random, z_i (H z)_i has the mean H_ii and the
    variance sum H_ij² (Bekas, Kokiopoulou and Saad, 2007, An estimator for the diagonal of a matrix). Each
    round scales parameters by the H_ii of the round before.
    """
    d = x.size
    scale, signs, out = np.ones(d), np.empty(d), np.empty(d)
    mean, square = np.empty(d), np.empty(d)
    for m in PROBES:
        mean[:] = 0.0
        square[:] = 0.0
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

    That is the dense form if `dense` is set. With `compressing` it is that up to `EARLY` dimensions, and
    beyond where a few directions do not hold A; low rank elsewhere. A matrix that is not positive definite is
    taken for its diagonal.
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
    """The dense metric A = `cov` (d, d); None where that is not positive definite."""
    factor, info = lapack.dpotrf(cov, lower=1, clean=1)
    if info != 0:
        return None
    inverse, info = lapack.dtrtri(factor, lower=1)
    return None if info != 0 else _dense(np.asarray(np.linalg.qr(inverse, mode="r")))


def choose_metric(
    metric: Metric,
    hessian: np.ndarray,
    points: np.ndarray,
    scores: np.ndarray,
    before: int,
    *,
    gradients: float,
) -> MetricChoice:
    """The metric after a window, from draws and scores (n, d), of which `before` are of the window before.

    `hessian` is that of the window's first point, or empty. `gradients` are those of a trajectory at the
    window's end; where it is 0, no Hessian is asked for.
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
        # To compress takes a spectrum. What could not be compressed once is left alone.
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
    """The dense metric of all draws, if the draws bear one out; else None.

    That is the present one, if it has a smaller divergence than `best`. Or it is the Hessian's, corrected by
    the window before, if it is better by the margin that O(d²) a step are worth.
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
    """The mean of |s + A^-1 (x - mean)|²_A / d over draws and scores (n, d); infinite where it has none."""
    if metric is None or len(points) < 2:
        return float("inf")
    u, t = whiten(metric, points - points.mean(axis=0), scores)
    found = float(np.square(u + t).sum(axis=1).mean() / points.shape[1])
    return found if np.isfinite(found) else float("inf")


def whiten(metric: Metric, points: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Points and scores (n, d) in coordinates in which the metric is the identity."""
    if len(metric.chol_t):
        t = solve_triangular(metric.chol_t, scores.T, trans="T", check_finite=False).T
        return points @ metric.chol_t.T, t
    u, t, root = points / metric.scale, scores * metric.scale, np.sqrt(metric.variances)
    u += (u @ metric.directions.T * (1.0 / root - 1.0)) @ metric.directions
    t += (t @ metric.directions.T * (root - 1.0)) @ metric.directions
    return u, t


def prune(metric: Metric) -> Metric:
    """The metric with as many of its directions, the strongest ones, as are worth their cost.

    A direction whose variance differs from the diagonal's by the factor c is a Gaussian with a period sqrt(c)
    times as long. A trajectory's end has the correlation r = cos(T / sqrt(c)) with its start there, and the
    mean needs (1 + r) / (1 - r) = cot²(T / (2 sqrt(c))) draws for each effective one. The strongest direction
    that is left out is what counts.
    """
    strength = np.abs(np.log(metric.variances))
    order = np.argsort(-strength, kind="stable")
    ratio = np.append(np.exp(strength[order]), CUTOFF)  # the strongest that is left out, by the number kept
    cost = 1.0 / np.square(np.tan(0.5 * _TRAJECTORY / np.sqrt(ratio)))
    kept = np.sort(order[: int(np.argmin((1.0 + np.arange(len(ratio)) / _DIRECTIONS) * cost))])
    return metric._replace(directions=metric.directions[kept], variances=metric.variances[kept])


@np.errstate(all="ignore")
def learn_dense(metric: Metric, points: np.ndarray, scores: np.ndarray) -> Metric | None:
    """What `learn_metric` finds from a dense metric, for draws and scores (n, d), in O(d² n) where n < d / 2.

    With A = M M^T, the draws u = M^-1 x and their scores have the low-rank solution A_u. Then M A_u M^T is
    that of x, and G L^T with G² = A_u^-1 is a root of its inverse.
    """
    n, d = points.shape
    if 2 * n >= d or not len(metric.chol_t):
        return learn_metric(metric, points, scores)
    u, t = whiten(metric, points - points.mean(axis=0), scores - scores.mean(axis=0))
    low = learn_metric(unit_metric(d), u, t)
    if low is None:
        return None
    root = metric.chol_t / low.scale[:, None]
    root += low.directions.T @ ((1.0 / np.sqrt(low.variances) - 1.0)[:, None] * (low.directions @ root))
    return _dense(np.asarray(np.linalg.qr(root, mode="r")))


@np.errstate(all="ignore")
def curvature_metric(hessian: np.ndarray) -> Metric | None:
    """What `hessian_metric` finds; where the density is log-concave, by a Cholesky factor alone."""
    scale = np.sqrt(np.abs(np.diag(hessian)))
    if not np.all(np.isfinite(hessian)) or not np.all(scale > 0.0):
        return None
    factor, info = lapack.dpotrf(-hessian / np.outer(scale, scale))
    if info == 0 and np.square(np.diag(factor)).min() > _CURVATURE:
        return _dense(factor * scale)
    return hessian_metric(hessian)


def _dense(chol_t: np.ndarray) -> Metric | None:
    """What `metric.dense_metric` gives if it is finite, by LAPACK, which is faster where d is large."""
    chol_t = np.triu(chol_t) * np.sign(np.diag(chol_t))[:, None]
    inverse, info = lapack.dpotri(chol_t)
    if info != 0 or not (np.all(np.isfinite(chol_t)) and np.all(np.isfinite(inverse))):
        return None
    inverse = np.triu(inverse)
    whole = np.ascontiguousarray(inverse + np.triu(inverse, 1).T)
    return dense_form(whole, np.ascontiguousarray(chol_t))


def is_same(one: Metric, other: Metric, points: np.ndarray, before: int, most: float, drift: float) -> bool:
    """Whether two metrics agree, and the first `before` of the points (n, d) and the others too.

    No log variance may differ by `most`, and no squared distance of means exceed its expectation for
    independent draws `drift` times. Metrics of different forms do not agree.
    """
    gap = points[:before].mean(axis=0) - points[before:].mean(axis=0)
    u = whiten(other, gap[None], gap[None])[0]
    expected = gap.size * (1.0 / before + 1.0 / (len(points) - before))
    return bool(np.square(u).sum() < drift * expected and change(one, other) < most)


@np.errstate(all="ignore")
def change(one: Metric, other: Metric) -> float:
    """The largest absolute log ratio of the variances of two metrics in any direction.

    `metric.distance` is the same for dense metrics; LAPACK without vectors is faster where d is large.
    """
    if len(one.chol_t) and len(other.chol_t):
        root = solve_triangular(one.chol_t, other.chol_t.T, trans="T", check_finite=False)
        if not np.all(np.isfinite(root)):
            return float("inf")
        values = np.linalg.eigvalsh(root.T @ root)
        return float(np.abs(np.log(np.maximum(values[[0, -1]], 1e-300))).max())
    if len(one.chol_t) or len(other.chol_t):
        return float("inf")
    return float(np.abs(np.log([_largest_ratio(one, other), _largest_ratio(other, one)])).max())


def _largest_ratio(one: Metric, other: Metric) -> float:
    """The largest eigenvalue of A_1^-1 A_2, both of low rank, by power iteration from a fixed start."""
    other = other._replace(scale=other.scale / one.scale)  # which changes no eigenvalue, if both are scaled
    one = one._replace(scale=np.ones_like(one.scale))
    v, size = np.random.default_rng(0).standard_normal((1, one.scale.size)), 0.0
    for _ in range(_ROUNDS):
        v /= np.sqrt(np.square(v).sum())
        v = _stretch(one, _stretch(other, v, 1.0), -1.0)
        size = float(np.sqrt(np.square(v).sum()))
    return size


def _stretch(metric: Metric, rows: np.ndarray, power: float) -> np.ndarray:
    """A, or for the power -1 its inverse, times every row (n, d), for the low-rank form."""
    scale = metric.scale**power
    u = rows * scale
    u += (u @ metric.directions.T * (metric.variances**power - 1.0)) @ metric.directions
    return np.asarray(u * scale)
