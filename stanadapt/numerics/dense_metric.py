"""Compiled algebra of dense metrics: for small d, a call of NumPy costs ten times as much as its work.

numba calls LAPACK, on matrices only. Results depend on the arguments alone. metric.py says what is computed,
and why.
"""

from __future__ import annotations

import numpy as np

from ..jit import kernel
from ..kinds import Flag, Integer, Matrix, Real, Vector

_SMALLEST = 1e-14  # relative eigenvalue; smaller ones are rounding errors


@kernel(ordered=True)
def solve_equation(chol_t: Matrix, points: Matrix, scores: Matrix, weight: Real) -> tuple[Matrix, Flag]:
    """L^T (d, d) with A^-1 = L L^T, for the metric A of draws and scores (n, d), and whether it exists.

    The equation is solved in the coordinates u = L^T x of the metric `chol_t`, where the scores are L^-1 s.
    Each coordinate is scaled so that draws and scores have equal spreads. Covariances are shrunk to their
    diagonals: all other entries are multiplied by `weight`.
    """
    d = points.shape[1]
    u, t, scale = np.zeros((d, len(points))), np.empty((d, len(points))), np.empty(d)
    _deviations(points, t)
    for i in range(d):
        for j in range(i, d):
            _add(u[i], chol_t[i, j], t[j])
    _deviations(scores, t)
    for i in range(d):
        for j in range(i):
            _add(t[i], -chol_t[j, i], t[j])
        _scale(t[i], 1.0 / chol_t[i, i])
    for i in range(d):
        scale[i] = np.sqrt(_spread(u[i]) / _spread(t[i]))
        if not 0.0 < scale[i] < np.inf:
            return u, False
        _scale(u[i], 1.0 / scale[i])
        _scale(t[i], scale[i])
    cov, fisher = _shrunk(u, weight), _shrunk(t, weight)
    if not (is_finite(cov) and is_finite(fisher)):
        return u, False
    root = np.linalg.cholesky(fisher)
    values, vectors = np.linalg.eigh(_symmetric(root.T @ cov @ root))
    turned = root @ vectors
    # A^-1 is L R^-1 K K^T R^-1 L^T with R = diag(scale) and K = F V v^-1/4, where cov(s) = F F^T. Its factor
    # comes from K, so that A^-1 is never formed.
    for i in range(d):
        for k in range(d):
            turned[i, k] /= scale[i] * max(values[k], _SMALLEST * values[-1]) ** 0.25
    return triangular_factor(turned) @ chol_t, True


@kernel(ordered=True)
def curvature_factor(hessian: Matrix, smallest: Real) -> tuple[Matrix, Flag]:
    """K (d, d) with |H| = K K^T for `metric.hessian_metric`, and whether it exists."""
    d = len(hessian)
    scaled, scale = np.empty((d, d)), np.empty(d)
    for i in range(d):
        scale[i] = np.sqrt(abs(hessian[i, i]))
        if not 0.0 < scale[i] < np.inf:
            return scaled, False
    for i in range(d):
        for j in range(d):
            scaled[i, j] = hessian[i, j] / (scale[i] * scale[j])
    if not is_finite(scaled):
        return scaled, False
    values, vectors = np.linalg.eigh(scaled)
    largest = max(abs(values[0]), abs(values[-1]))
    for k in range(d):
        size = np.sqrt(max(abs(values[k]), smallest * largest))
        for i in range(d):
            scaled[i, k] = vectors[i, k] * size * scale[i]
    return triangular_factor(scaled), True


@kernel(ordered=True)
def inverse_mass(factor: Matrix) -> tuple[Matrix, Matrix, Flag]:
    """A and L^T (d, d) from an L^T with rows of any sign, and whether both are finite.

    The returned L^T has a positive diagonal and zeros below it.
    """
    d = len(factor)
    chol_t, root = np.zeros((d, d)), np.zeros((d, d))
    for i in range(d):
        sign = 1.0 if factor[i, i] > 0.0 else -1.0
        for j in range(i, d):
            chol_t[i, j] = sign * factor[i, j]
    for i in range(d - 1, -1, -1):  # the rows of L^-T, from the last
        root[i, i] = 1.0
        for j in range(i + 1, d):
            _add(root[i], -chol_t[i, j], root[j])
        _scale(root[i], 1.0 / chol_t[i, i])
    a = root @ root.T
    return a, chol_t, is_finite(a) and is_finite(chol_t)


@kernel(ordered=True)
def largest_ratio(one_t: Matrix, other_t: Matrix) -> Real:
    """The largest absolute log ratio of the variances of two metrics, given their L^T (d, d)."""
    d = len(one_t)
    root = other_t.T.copy()
    for i in range(d):  # L^-1 of the first metric, times L of the second
        for j in range(i):
            _add(root[i], -one_t[j, i], root[j])
        _scale(root[i], 1.0 / one_t[i, i])
    ratios = root @ root.T
    if not is_finite(ratios):
        return np.inf
    values, _ = np.linalg.eigh(ratios)
    return max(abs(np.log(values[-1])), abs(np.log(values[0]))) if values[0] > 0.0 else np.inf


@kernel(ordered=True)
def mean_shift(chol_t: Matrix, points: Matrix, before: Integer) -> Real:
    """Squared distance between the mean of the first `before` points (n, d) and the mean of the others."""
    n, d = points.shape
    gap = np.zeros(d)
    for t in range(n):
        _add(gap, 1.0 / before if t < before else -1.0 / (n - before), points[t])
    total = 0.0
    for i in range(d):
        part = 0.0
        for j in range(i, d):
            part += chol_t[i, j] * gap[j]
        total += part * part
    return total


@kernel(ordered=True)
def is_informative(rows: Matrix) -> Flag:
    """Whether rows (n, d) are finite and no column is constant."""
    if not is_finite(rows):
        return False
    for j in range(rows.shape[1]):
        same = True
        for t in range(1, len(rows)):
            same = same and rows[t, j] == rows[0, j]
        if same:
            return False
    return True


@kernel(ordered=True)
def triangular_factor(root: Matrix) -> Matrix:
    """The upper triangular U with U^T U = K K^T, for K (d, d); U^T is the lower factor L of K K^T."""
    return np.ascontiguousarray(np.linalg.qr(np.ascontiguousarray(root.T))[1])


@kernel(ordered=True)
def _deviations(rows: Matrix, out: Matrix) -> None:
    """Write rows (n, d), minus their mean, to the columns of `out` (d, n)."""
    n, d = rows.shape
    for j in range(d):
        mean = 0.0
        for t in range(n):
            mean += rows[t, j]
        mean /= n
        for t in range(n):
            out[j, t] = rows[t, j] - mean


@kernel(ordered=True)
def _spread(v: Vector) -> Real:
    """The standard deviation of centred numbers."""
    squares = 0.0
    for t in range(v.size):
        squares += v[t] * v[t]
    return np.sqrt(squares / v.size)


@kernel(ordered=True)
def _shrunk(u: Matrix, weight: Real) -> Matrix:
    """The covariance of centred columns (d, n), shrunk to its diagonal."""
    cov = u @ u.T
    for i in range(len(cov)):
        for j in range(i + 1):
            cov[i, j] = cov[i, j] / u.shape[1] * (weight if j < i else 1.0)
            cov[j, i] = cov[i, j]
    return cov


@kernel(ordered=True)
def _symmetric(matrix: Matrix) -> Matrix:
    for i in range(len(matrix)):
        for j in range(i):
            matrix[i, j] = matrix[j, i] = 0.5 * (matrix[i, j] + matrix[j, i])
    return matrix


@kernel(ordered=True)
def is_finite(matrix: Matrix) -> Flag:
    """Whether all entries of a matrix are finite."""
    finite = True
    for i in range(len(matrix)):
        for j in range(matrix.shape[1]):
            finite = finite and np.isfinite(matrix[i, j])
    return finite


@kernel(ordered=True)
def _add(out: Vector, weight: Real, v: Vector) -> None:
    """out += weight * v."""
    for t in range(v.size):
        out[t] += weight * v[t]


@kernel(ordered=True)
def _scale(v: Vector, factor: Real) -> None:
    """v *= factor."""
    for t in range(v.size):
        v[t] *= factor
