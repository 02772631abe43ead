"""Mixtures of Student t laws: normalised densities that are easy to draw from, at the ends of a path.

    symbol  here           shape       meaning
    w_m     log_weights    (M,)        weights of the components, as logs
    mu_m    means          (M, d)      their middles
    R_m     roots          (M, d, d)   upper triangular, R_m^T R_m is the inverse matrix of scales; or
                           (M, 1, d)   its diagonal, where the matrix is diagonal
    nu      degrees        ()          degrees of freedom, the same for all

One component alone is a Student t law, and with very large nu a normal law.

Sums keep their order here (`ordered`). Otherwise the compiler makes two versions of a loop that writes and
sums, and takes one or the other by where the arrays are in memory: last digits would differ from run to run.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import gammaln, logsumexp

from ..jit import kernel
from ..kinds import Generator, Integer, Real, Vector
from .random_numbers import draw_normal, draw_uniform

NORMAL = 1e12  # degrees of freedom that make a normal law, to the last digits


class Mixture(NamedTuple):
    """A mixture; the head of the file has the symbols."""

    log_weights: np.ndarray
    means: np.ndarray
    roots: np.ndarray
    degrees: float
    log_tops: np.ndarray  # (M,) log density of each component at its middle, with its weight


@kernel(ordered=True, counted=False)
def _whiten(law: Mixture, m: Integer, x: Vector, away: Vector, white: Vector) -> Real:
    """Write x - mu_m to `away` and R_m (x - mu_m) to `white`, both (d,). Returns its square length."""
    d, root = x.size, law.roots[m]
    square = 0.0
    for i in range(d):
        away[i] = x[i] - law.means[m, i]
    if len(root) == 1 and d > 1:
        for i in range(d):
            white[i] = root[0, i] * away[i]
            square += white[i] * white[i]
        return square
    for i in range(d):
        total = 0.0
        for j in range(i, d):
            total += root[i, j] * away[j]
        white[i] = total
        square += total * total
    return square


@kernel(ordered=True, counted=False, copied=False)
def mixture_log_density(law: Mixture, x: Vector, slope: Vector, away: Vector, white: Vector) -> Real:
    """Log density at `x` (d,); its gradient is written to `slope` (d,). Two more (d,) are work space."""
    d, nu = x.size, law.degrees
    for i in range(d):
        slope[i] = 0.0
    highest, total = -np.inf, 0.0
    for m in range(law.log_tops.size):
        square = _whiten(law, m, x, away, white)
        height = law.log_tops[m] - 0.5 * (nu + d) * np.log1p(square / nu)
        part = 1.0
        if height > highest:
            shrink = np.exp(highest - height)
            total *= shrink
            for i in range(d):
                slope[i] *= shrink
            highest = height
        else:
            part = np.exp(height - highest)
        total += part
        pull, root = -part * (nu + d) / (nu + square), law.roots[m]
        if len(root) == 1 and d > 1:
            for i in range(d):
                slope[i] += pull * root[0, i] * white[i]
        else:
            for i in range(d):
                a = pull * white[i]
                for j in range(i, d):
                    slope[j] += a * root[i, j]
    for i in range(d):
        slope[i] /= total
    return highest + np.log(total)


@kernel(ordered=True, counted=False)
def component_of(law: Mixture, x: Vector, away: Vector, white: Vector) -> Integer:
    """The component that `x` (d,) belongs to: the one with the largest part of the density there."""
    best, highest = 0, -np.inf
    for m in range(law.log_tops.size):
        square = _whiten(law, m, x, away, white)
        height = law.log_tops[m] - 0.5 * (law.degrees + x.size) * np.log1p(square / law.degrees)
        if height > highest:
            best, highest = m, height
    return best


@kernel(ordered=True, counted=False, copied=False, seldom=True)
def highest_normal(law: Mixture, x: Vector, away: Vector, white: Vector) -> Real:
    """The largest part of the log density at `x` (d,), up to a constant, if components were normal laws."""
    highest = -np.inf
    for m in range(law.log_tops.size):
        highest = max(highest, law.log_tops[m] - 0.5 * _whiten(law, m, x, away, white))
    return highest


@kernel(ordered=True, counted=False)
def _draw_gamma(shape: Real, rng: Generator) -> Real:
    """A draw of the gamma law with this shape, above 1, and scale 1: Marsaglia and Tsang (2000).

    It is what `rng.standard_gamma` gives, bit for bit. But that one also has a way for small shapes, which
    takes longer to compile than all of `draw_mixture`.
    """
    b = shape - 1.0 / 3.0
    c = 1.0 / np.sqrt(9.0 * b)
    while True:
        x = draw_normal(rng)
        v = 1.0 + c * x
        if v <= 0.0:
            continue
        v, u = v * v * v, draw_uniform(rng)
        if u < 1.0 - 0.0331 * (x * x) * (x * x) or np.log(u) < 0.5 * x * x + b * (1.0 - v + np.log(v)):
            return b * v


@kernel(ordered=True, counted=False, copied=False, seldom=True)
def draw_mixture(law: Mixture, x: Vector, rng: Generator) -> None:
    """Write a draw to `x` (d,)."""
    d, u, m = x.size, draw_uniform(rng), 0
    last = law.log_weights.size - 1
    while m < last and u > np.exp(law.log_weights[m]):
        u -= np.exp(law.log_weights[m])
        m += 1
    root = law.roots[m]
    spread = np.sqrt(law.degrees / (2.0 * _draw_gamma(0.5 * law.degrees, rng)))
    for i in range(d):
        x[i] = draw_normal(rng)
    if len(root) == 1 and d > 1:
        for i in range(d):
            x[i] /= root[0, i]
    else:  # x = R^-1 x
        for i in range(d - 1, -1, -1):
            total = x[i]
            for j in range(i + 1, d):
                total -= root[i, j] * x[j]
            x[i] = total / root[i, i]
    for i in range(d):
        x[i] = law.means[m, i] + spread * x[i]


def mixture(log_weights: np.ndarray, means: np.ndarray, roots: np.ndarray, degrees: float) -> Mixture:
    """The mixture with these parts; the weights need not sum to one."""
    log_weights = np.asarray(log_weights - logsumexp(log_weights))
    diagonals = roots[:, 0, :] if roots.shape[1] == 1 else np.diagonal(roots, axis1=1, axis2=2)
    log_tops = log_weights + student_log_top(means.shape[1], degrees) + np.log(diagonals).sum(axis=1)
    return Mixture(log_weights, np.ascontiguousarray(means), np.ascontiguousarray(roots), degrees, log_tops)


def student_log_top(d: int, degrees: float) -> float:
    """The log density of a Student t law with unit scales in `d` dimensions at its middle."""
    if degrees >= NORMAL:  # where the difference of log gammas would have lost all digits
        return float(-0.5 * d * np.log(2.0 * np.pi))
    return float(gammaln(0.5 * (degrees + d)) - gammaln(0.5 * degrees) - 0.5 * d * np.log(degrees * np.pi))


def root_of_covariance(cov: np.ndarray) -> np.ndarray:
    """R (d, d) with R^T R the inverse of `cov` (d, d); R (1, d) for a diagonal `cov` (d,).

    Raises
    ------
    numpy.linalg.LinAlgError
        `cov` is not positive definite.
    """
    if cov.ndim == 1:
        return np.asarray(1.0 / np.sqrt(cov)[None])
    scale = np.sqrt(np.diag(cov))
    factor = np.linalg.cholesky(cov / np.outer(scale, scale))
    # inverse of cov = L^-T L^-1 with L^-1 lower; the upper factor of it comes from a QR decomposition.
    inverse = np.linalg.solve(factor, np.diag(1.0 / scale))
    upper = np.linalg.qr(inverse, mode="r")
    return np.asarray(upper * np.sign(np.diag(upper))[:, None])


def log_parts(law: Mixture, points: np.ndarray) -> np.ndarray:
    """The log density (n, M) of each component, with its weight, at points (n, d)."""
    heights = np.empty((len(points), len(law.means)))
    for m, (mean, root) in enumerate(zip(law.means, law.roots, strict=True)):
        away = points - mean
        white = away * root[0] if root.shape[0] == 1 and points.shape[1] > 1 else away @ root.T
        squares = (white**2).sum(axis=1)
        heights[:, m] = law.log_tops[m] - 0.5 * (law.degrees + points.shape[1]) * np.log1p(
            squares / law.degrees
        )
    return heights


def fit_components(law: Mixture, points: np.ndarray, fewest: int, *, weight: float = 1.0) -> Mixture:
    """The mixture with weights, middles and scales of draws `points` (n, d), each given to a component.

    A component with fewer than `fewest` draws keeps its middle and scales. Its weight is that of as many
    draws as it has, and of `weight` more, so that no component is lost.
    """
    n, d = points.shape
    heights = log_parts(law, points)
    owner = heights.argmax(axis=1)
    means, roots = law.means.copy(), law.roots.copy()
    counts = np.bincount(owner, minlength=len(means)).astype(float)
    is_diagonal = roots.shape[1] == 1 and d > 1
    for m in range(len(means)):
        own = points[owner == m]
        if len(own) < fewest:
            continue
        cov = own.var(axis=0) if is_diagonal else np.atleast_2d(np.cov(own.T))
        # A covariance from few draws is drawn to the one that it replaces.
        keep = d / (d + len(own))
        before = roots[m][0] ** -2 if is_diagonal else np.linalg.inv(roots[m].T @ roots[m])
        try:
            roots[m] = root_of_covariance((1.0 - keep) * cov + keep * before)
        except np.linalg.LinAlgError:
            continue
        means[m] = own.mean(axis=0)
    return mixture(np.log((counts + weight) / (n + weight * len(means))), means, roots, law.degrees)
