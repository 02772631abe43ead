"""The metric on which draws and scores agree, and how Hamiltonian dynamics use it.

For a Gaussian with covariance A the scores are s = -A^-1 (x - mu). So cov(x) = A, cov(s) = A^-1 and
A cov(s) A = cov(x). The only positive definite solution of this equation,

    A = cov(s)^-1/2 (cov(s)^1/2 cov(x) cov(s)^1/2)^1/2 cov(s)^-1/2,

is the geometric mean of the covariance and the inverse Fisher matrix. It is exact for a Gaussian after d + 1
draws, and lies between the two for other targets. Titsias (2023) learns cov(s)^-1 alone. nutpie's low-rank
metric solves the same equation (Seyboldt, Carlson and Carpenter, Preconditioning Hamiltonian Monte Carlo by
minimizing Fisher divergence).

The equation keeps its form in other coordinates. It is solved in coordinates in which the present metric is
the identity. There all numbers have a similar size, even if the parameters are strongly correlated. And if an
estimate from few draws is shrunk to its diagonal there, it stays near the present metric.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack, solve_triangular

from ..jit import kernel
from ..kinds import Matrix, Real, Vector
from .linear import transposed_times_into

PRIOR = 5.0  # weight of the present metric, as a number of draws
CUTOFF = 1.5  # a direction is dropped if its variance differs from the diagonal's by less than this factor
SMALL = 32  # below this dimension a dense product costs no more than the calls around it
_SMALLEST = 1e-14  # relative eigenvalue; smaller ones are rounding errors
_CURVATURE = 1e-8  # the same for a Hessian, because differences of gradients have fewer digits


class Metric(NamedTuple):
    """A, in one of two forms. The arrays that a form does not use are empty.

    The dense form has A itself, and the factor of its inverse, with which momenta are drawn. The low-rank
    form is A = D (I + V diag(v - 1) V^T) D with D = diag(scale), so that products take O(d k). A dense metric
    that was compressed to low rank keeps its factor, because the next metric is learned in its coordinates.
    """

    inverse_mass: np.ndarray  # (d, d) A
    chol_t: np.ndarray  # (d, d) L^T, upper triangular, with A^-1 = L L^T
    scale: np.ndarray  # (d,)
    directions: np.ndarray  # (k, d) orthonormal rows V^T
    variances: np.ndarray  # (k,) v


@kernel(counted=False)
def velocity_into(out: Vector, metric: Metric, momentum: Vector) -> None:
    """out = A p."""
    if len(metric.inverse_mass) > 0:
        transposed_times_into(out, metric.inverse_mass, momentum)
        return
    for i in range(out.size):
        out[i] = metric.scale[i] * momentum[i]
    if metric.variances.size > 0:
        _stretch(out, metric.directions, metric.variances, 1.0)
    for i in range(out.size):
        out[i] *= metric.scale[i]


@kernel(counted=False)
def momentum_into(out: Vector, metric: Metric, z: Vector) -> None:
    """out = p with covariance A^-1, made from `z` (d,) standard normal; p^T A p = z^T z."""
    if len(metric.inverse_mass) > 0:
        chol_t = metric.chol_t
        for i in range(out.size):
            out[i] = z[0] * chol_t[0, i]
        for k in range(1, out.size):
            a, below, row = z[k], out[k:], chol_t[k, k:]  # views that start at 0 let the compiler vectorise
            for i in range(row.size):
                below[i] += a * row[i]
        return
    for i in range(out.size):
        out[i] = z[i]
    if metric.variances.size > 0:
        _stretch(out, metric.directions, metric.variances, -0.5)
    for i in range(out.size):
        out[i] /= metric.scale[i]


@kernel(counted=False)
def _excess(variance: Real, power: Real) -> Real:
    """How much more than the identity a direction has."""
    return (variance if power > 0.0 else 1.0 / np.sqrt(variance)) - 1.0


@kernel(counted=False, copied=False)
def _stretch(v: Vector, directions: Matrix, variances: Vector, power: Real) -> None:
    """Multiply the components of v along orthonormal rows by `variances` to the `power` 1 or -1/2, in place.

    Four rows are taken in a pass, so that v is read and written a quarter as often: in thousands of
    dimensions v and the rows do not fit into the fastest cache, and reading is what takes the time. Most
    metrics have no rows, so that this is not copied into all that use one.
    """
    d, whole = v.size, variances.size - variances.size % 4
    for k in range(0, whole, 4):
        a, b, c, e = 0.0, 0.0, 0.0, 0.0
        for i in range(d):
            a += directions[k, i] * v[i]
            b += directions[k + 1, i] * v[i]
            c += directions[k + 2, i] * v[i]
            e += directions[k + 3, i] * v[i]
        a *= _excess(variances[k], power)
        b *= _excess(variances[k + 1], power)
        c *= _excess(variances[k + 2], power)
        e *= _excess(variances[k + 3], power)
        for i in range(d):
            v[i] += (a * directions[k, i] + b * directions[k + 1, i]) + (
                c * directions[k + 2, i] + e * directions[k + 3, i]
            )
    for k in range(whole, variances.size):
        a = 0.0
        for i in range(d):
            a += directions[k, i] * v[i]
        a *= _excess(variances[k], power)
        for i in range(d):
            v[i] += a * directions[k, i]


@np.errstate(all="ignore")  # a metric that is not finite is refused at the end
def learn_metric(metric: Metric, points: np.ndarray, scores: np.ndarray) -> Metric | None:
    """The metric of `points` and their `scores`, (n, d) each; few points leave it near `metric`.

    It is None if there are fewer than three points, if a coordinate is constant, or if numbers overflow.
    """
    if len(points) < 3 or not (_is_informative(points) and _is_informative(scores)):
        return None
    try:
        if not len(metric.chol_t):
            return finite_or_none(_learn_low_rank(points, scores))
        found = _learn_dense(metric.chol_t, points, scores)
    except (np.linalg.LinAlgError, ValueError):  # functions that call LAPACK raise these after an overflow
        return None
    return None if found is None else finite_or_none(dense_metric(found))


def _is_informative(rows: np.ndarray) -> bool:
    """Whether rows (n, d) are finite and no column is constant."""
    return bool(np.isfinite(rows).all() and (rows != rows[0]).any(axis=0).all())


def finite_or_none(metric: Metric) -> Metric | None:
    """The metric if all its numbers are finite, else None."""
    return metric if all(np.all(np.isfinite(array)) for array in metric) else None


def dense_metric(chol_t: np.ndarray) -> Metric:
    """The metric with A^-1 = L L^T, from an upper triangular L^T (d, d) with rows of any sign.

    A is not finite if a number on the diagonal of L^T is zero.
    """
    chol_t = np.triu(chol_t) * np.where(np.diag(chol_t) > 0.0, 1.0, -1.0)[:, None]
    inverse, info = lapack.dpotri(chol_t)
    if info != 0:
        inverse = np.full_like(chol_t, np.nan)
    a = np.triu(inverse)
    return dense_form(np.ascontiguousarray(a + np.triu(a, 1).T), np.ascontiguousarray(chol_t))


def dense_form(a: np.ndarray, chol_t: np.ndarray) -> Metric:
    """The dense form, from A and its factor (d, d)."""
    d = len(a)
    return Metric(a, chol_t, np.ones(d), np.empty((0, d)), np.empty(0))


def distance(one: Metric, other: Metric) -> float:
    """The largest absolute log ratio of the variances of two dense metrics in any direction."""
    root = solve_triangular(one.chol_t, other.chol_t.T, trans="T", check_finite=False)
    if not np.all(np.isfinite(root)):
        return float("inf")
    values = np.linalg.eigvalsh(root.T @ root)
    return float(np.abs(np.log(np.maximum(values[[0, -1]], 1e-300))).max())


def drift(metric: Metric, points: np.ndarray, before: int) -> float:
    """Squared distance between the mean of the first `before` points (n, d) and the mean of the others.

    It is measured in the metric and divided by its expectation for independent draws.
    """
    n, d = points.shape
    gap = metric.chol_t @ (points[:before].mean(axis=0) - points[before:].mean(axis=0))
    return float(np.square(gap).sum() / d / (1.0 / before + 1.0 / (n - before)))


def _learn_dense(chol_t: np.ndarray, points: np.ndarray, scores: np.ndarray) -> np.ndarray | None:
    """L^T (d, d) with A^-1 = L L^T, its rows of any sign, for the metric A of draws and scores (n, d).

    The equation is solved in the coordinates u = L^T x of the metric `chol_t`, where the scores are L^-1 s.
    Each coordinate is scaled so that draws and scores have equal spreads. Covariances are shrunk to their
    diagonals: all other entries are multiplied by the weight of the draws.
    """
    u = chol_t @ (points - points.mean(axis=0)).T
    t = solve_triangular(chol_t, (scores - scores.mean(axis=0)).T, trans="T", check_finite=False)
    scale = np.sqrt(u.std(axis=1) / t.std(axis=1))[:, None]
    if not np.all((scale > 0.0) & (scale < np.inf)):
        return None
    cov, fisher = _shrunk(u / scale), _shrunk(t * scale)
    if not (np.all(np.isfinite(cov)) and np.all(np.isfinite(fisher))):
        return None
    root = np.linalg.cholesky(fisher)
    values, vectors = _positive_spectrum(root.T @ cov @ root)
    # A^-1 is L R^-1 K K^T R^-1 L^T with R = diag(scale) and K = F V v^-1/4, where cov(s) = F F^T. Its factor
    # comes from K, so that A^-1 is never formed.
    return np.asarray(_triangular_factor(root @ vectors / values**0.25 / scale) @ chol_t)


def _shrunk(centred: np.ndarray) -> np.ndarray:
    """The covariance of centred draws (d, n), shrunk to its diagonal."""
    n = centred.shape[1]
    cov = centred @ centred.T / n
    variances = np.diag(cov).copy()
    cov *= _weight(n)
    np.fill_diagonal(cov, variances)
    return np.asarray(cov)


def _triangular_factor(root: np.ndarray) -> np.ndarray:
    """The upper triangular U with U^T U = K K^T, for K (d, d); U^T is the lower factor L of K K^T."""
    return np.asarray(np.linalg.qr(root.T, mode="r"))


def _inverse_root(cov: np.ndarray, fisher: np.ndarray) -> np.ndarray:
    """K with K K^T = A^-1, where A fisher A = cov."""
    values, vectors = _positive_spectrum(fisher)
    root = (vectors * np.sqrt(values)) @ vectors.T
    values, vectors = _positive_spectrum(root @ cov @ root)
    return np.asarray(root @ vectors * values**-0.25)


def _positive_spectrum(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues and eigenvectors of a positive definite matrix; rounding makes no eigenvalue zero."""
    values, vectors = np.linalg.eigh(0.5 * (matrix + matrix.T))
    return np.maximum(values, _SMALLEST * values[-1]), vectors


def _weight(n: int) -> float:
    """The weight of an estimate from `n` draws against `PRIOR`."""
    return n / (n + PRIOR)


def _learn_low_rank(points: np.ndarray, scores: np.ndarray) -> Metric:
    """The low-rank form: a diagonal, and the directions in which the solution differs from it.

    It costs O(d n²), and no (d, d) matrix if n < d / 2. Then the equation is solved in the span of the draws
    and scores; in the directions outside of it the metric is the diagonal.
    """
    n, d = points.shape
    scale = np.sqrt(points.std(axis=0) / scores.std(axis=0))
    u = (points - points.mean(axis=0)) / scale
    t = (scores - scores.mean(axis=0)) * scale
    basis = np.linalg.qr(np.concatenate([u, t]).T)[0] if 2 * n < d else np.eye(d)
    weight = _weight(n)
    level = (basis.T * np.var(u, axis=0)) @ basis * (1.0 - weight)
    u, t = u @ basis, t @ basis
    root = _inverse_root(weight * u.T @ u / n + level, weight * t.T @ t / n + level)
    precisions, vectors = _positive_spectrum(root @ root.T)
    kept = np.abs(np.log(precisions)) > np.log(CUTOFF)
    directions = np.ascontiguousarray((basis @ vectors[:, kept]).T)
    return Metric(np.empty((0, 0)), np.empty((0, 0)), scale, directions, 1.0 / precisions[kept])


@np.errstate(all="ignore")
def hessian_metric(hessian: np.ndarray) -> Metric | None:
    """A = |H|^-1, where H (d, d) is the Hessian of the log density; None if |H| has no inverse.

    Parameters are scaled so that |H_ii| = 1, and |H| has the absolute eigenvalues of the scaled H. This is
    the metric of Betancourt (2013), A general metric for Riemannian manifold HMC, without its softening.
    """
    scale = np.sqrt(np.abs(np.diag(hessian)))
    scaled = hessian / np.outer(scale, scale)
    if not (np.all((scale > 0.0) & (scale < np.inf)) and np.all(np.isfinite(scaled))):
        return None
    try:
        values, vectors = np.linalg.eigh(scaled)
    except np.linalg.LinAlgError:
        return None
    sizes = np.maximum(np.abs(values), _CURVATURE * np.abs(values).max())
    return finite_or_none(dense_metric(_triangular_factor(vectors * np.sqrt(sizes) * scale[:, None])))


def compress(metric: Metric) -> Metric:
    """The metric in low-rank form if that saves time, else the metric itself.

    The diagonal is the geometric mean of the marginal and the conditional variances.
    """
    a = metric.inverse_mass
    d = len(a)
    if d < SMALL:
        return metric
    scale = (np.diag(a) / np.square(metric.chol_t).sum(axis=0)) ** 0.25
    values, vectors = np.linalg.eigh(a / np.outer(scale, scale))
    kept = np.abs(np.log(np.maximum(values, _SMALLEST))) > np.log(CUTOFF)
    if 4 * kept.sum() > d:
        return metric
    return metric._replace(
        inverse_mass=np.empty((0, 0)),
        scale=scale,
        directions=np.ascontiguousarray(vectors[:, kept].T),
        variances=values[kept],
    )


def as_matrix(metric: Metric) -> np.ndarray:
    """A (d, d), from either form."""
    if len(metric.inverse_mass):
        return metric.inverse_mass
    inner = np.eye(metric.scale.size)
    inner += metric.directions.T @ ((metric.variances - 1.0)[:, None] * metric.directions)
    return np.asarray(inner * np.outer(metric.scale, metric.scale))


def diagonal(metric: Metric) -> np.ndarray:
    """The diagonal of A (d,), from either form."""
    if len(metric.inverse_mass):
        return np.diag(metric.inverse_mass).copy()
    added = np.square(metric.directions).T @ (metric.variances - 1.0)
    return np.asarray(np.square(metric.scale) * (1.0 + added))
