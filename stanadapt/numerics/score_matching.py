"""Score matching: learn the gradient of a log density from draws, without its values or gradients.

Strathmann, Sejdinovic, Livingstone, Szabo and Gretton (2015), Sections 4.2 and 4.3; Hyvärinen (2005).

    paper        here               shape   meaning
    z_i          points             (n, d)  draws
    f            Surrogate                  sum_i alpha_i k(z_i, x), or theta . phi(x)
    alpha        weights            (n,)    Proposition 1, `fit_lite`
    theta        weights / sqrt(2/m) (m,)   Proposition 2, `fit_finite`
    sigma        sigma              ()      squared width of the kernel exp(-||x - y||² / sigma)
    lambda       regularisation     ()      ridge of the linear system
    J            objective(...)     ()      Equation 5; on points held out of the fit, lower is better
    omega_j, u_j basis              (m, d), (m,)  random Fourier features, Rahimi and Recht (2007)

Let r be the distance of z_i and z_j, W_ij = exp(-r²/sigma), G = Z Z^T and s = diag(G). For the Gaussian k the
matrices of Proposition 1 then need no sum over dimensions:

    C = G o (W W) - (W o G) W - W (W o G) + W diag(s) W      b_i = sum_j (2/sigma r_ij² V_ij - d W_ij)

where o is the entrywise product and V = W. In general W is -sigma times the first derivative of k with
respect to r², and V is sigma² times the second. For the rational quadratic k they are u^-(shape + 1) and
(shape + 1)/shape u^-(shape + 2), with u = 1 + r²/(shape sigma).

All this runs between blocks of iterations, in NumPy except for the rank-one updates. Compiled samplers use
surrogate.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg, optimize, sparse

from ..jit import kernel
from ..kinds import Matrix, Vector
from .cholesky import rank_one_update
from .surrogate import FOURIER, GAUSSIAN, Surrogate

_UPDATES_A_FACTOR = 30  # a new factor of size m costs as much as m / 30 rank-one updates
_SIGMAS = (0.2, 100.0)  # range of the search for sigma, as multiples of the median squared distance
_LAMBDAS = (1e-6, 1e6)  # range of the search for lambda
_JITTERS = (0.0, 1e-12, 1e-10, 1e-8, 1e-6, 1e-4)  # multiples of the mean diagonal, to be tried in turn


class RadialFunction(NamedTuple):
    """k(r²) = exp(-r²/sigma), or (1 + r²/(shape sigma))^-shape."""

    kind: int  # GAUSSIAN or RATIONAL_QUADRATIC
    sigma: float
    shape: float = 1.0

    def value(self, squares: np.ndarray) -> np.ndarray:
        """k at squared distances."""
        if self.kind == GAUSSIAN:
            return np.exp(-squares / self.sigma)
        return (1.0 + squares / (self.shape * self.sigma)) ** -self.shape

    def slope(self, squares: np.ndarray) -> np.ndarray:
        """W: -sigma times the derivative of k with respect to r²."""
        if self.kind == GAUSSIAN:
            return np.exp(-squares / self.sigma)
        return (1.0 + squares / (self.shape * self.sigma)) ** -(self.shape + 1.0)

    def curvature(self, squares: np.ndarray) -> np.ndarray:
        """V: sigma² times the second derivative of k with respect to r²."""
        if self.kind == GAUSSIAN:
            return np.exp(-squares / self.sigma)
        a = self.shape
        return (a + 1.0) / a * (1.0 + squares / (a * self.sigma)) ** -(a + 2.0)


class SurrogateFit(NamedTuple):
    """A surrogate, and whether its linear system was singular and needed more regularisation."""

    surrogate: Surrogate
    repaired: bool


def squared_distances(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """||x_i - y_j||² (n, m) for points (n, d) and (m, d); none is negative by rounding."""
    squares = (x**2).sum(axis=1)[:, None] + (y**2).sum(axis=1) - 2.0 * (x @ y.T)
    clipped: np.ndarray = np.maximum(squares, 0.0)
    return clipped


def check_points(points: np.ndarray) -> None:
    """Refuse points if no density can be learned from them.

    Raises
    ------
    ValueError
        There are fewer than two, one is not finite, or all are equal.
    """
    if points.ndim != 2 or len(points) < 2:
        raise ValueError(f"points have shape {points.shape}; (n, d) with n of at least 2 is needed")
    if not np.all(np.isfinite(points)):
        raise ValueError("points have entries that are NaN or infinite; all must be finite")
    if np.all(points == points[0]):
        raise ValueError(f"all {len(points)} points are equal; a density cannot be learnt from one point")


class _Pairs(NamedTuple):
    """What the system of Proposition 1 takes from pairs of points."""

    w: np.ndarray  # (n, n) W
    gram: np.ndarray  # (n, n) G
    pulls: np.ndarray  # (n, n) the terms of b, whose sums along rows it is

    def among(self, kept: np.ndarray) -> _Pairs:
        """Those of the points (n,) that are kept."""
        return _Pairs(*(each[np.ix_(kept, kept)] for each in self))

    def system(self) -> tuple[np.ndarray, np.ndarray]:
        """C (n, n) and b (n,)."""
        w, gram = self.w, self.gram
        half = (w * gram) @ w
        scaled = w * np.sqrt(np.diag(gram))
        # W is symmetric: a product with its own transpose takes half of the time.
        return gram * (w @ w.T) - half - half.T + scaled @ scaled.T, self.pulls.sum(axis=1)


def _pairs(points: np.ndarray, k: RadialFunction) -> _Pairs:
    squares = squared_distances(points, points)
    w = k.slope(squares)
    return _Pairs(w, points @ points.T, _terms_of_b(squares, w, k, points.shape[1]))


def _terms_of_b(squares: np.ndarray, w: np.ndarray, k: RadialFunction, d: int) -> np.ndarray:
    """Some rows of the terms of b, from those of the squared distances and of W."""
    bends = w if k.kind == GAUSSIAN else k.curvature(squares)
    terms: np.ndarray = 2.0 / k.sigma * squares * bends - d * w
    return terms


def lite_system(points: np.ndarray, k: RadialFunction) -> tuple[np.ndarray, np.ndarray]:
    """C (n, n) and b (n,) of Proposition 1, in O(n³ + d n²)."""
    return _pairs(points, k).system()


def fit_lite(points: np.ndarray, k: RadialFunction, regularisation: float) -> SurrogateFit:
    """alpha = -(sigma/2) (C + lambda I)^-1 b: Proposition 1.

    Parameters
    ----------
    points
        Draws, shape (n, d).
    k
        Radial function of the surrogate.
    regularisation
        lambda, at least 0.

    Raises
    ------
    ValueError
        See `check_points`.
    """
    check_points(points)
    return _solve_lite(points, lite_system(points, k), k, regularisation)


def _solve_lite(
    points: np.ndarray, system: tuple[np.ndarray, np.ndarray], k: RadialFunction, regularisation: float
) -> SurrogateFit:
    c, b = system
    factor, repaired = _factor(c, regularisation)
    alpha = -0.5 * k.sigma * linalg.cho_solve((factor, True), b, check_finite=False)
    return SurrogateFit(_point_surrogate(points, k, alpha), repaired)


def fit_lite_without(
    points: np.ndarray, parts: Sequence[np.ndarray], k: RadialFunction, regularisation: float
) -> list[Surrogate]:
    """The fits to what is left of `points` (n, d) without each of the `parts` (n,), for `choose`.

    What they have in common is worked out once.
    """
    pairs = _pairs(points, k)
    return [
        _solve_lite(points[~part], pairs.among(~part).system(), k, regularisation).surrogate for part in parts
    ]


def fit_lite_low_rank(
    points: np.ndarray,
    k: RadialFunction,
    regularisation: float,
    *,
    tolerance: float = 1e-4,
    iterations: int = 300,
) -> SurrogateFit:
    """The same fit with W ~ L L^T of rank r by incomplete Cholesky, and conjugate gradients.

    The paper's Appendix A. C is -sum_l M_l² with the antisymmetric M_l = D W - W D, D = diag(z_l). So a
    product with C takes 4 d products with L, O(d n r). This pays if n is in the thousands and r at most in
    the hundreds. The solver stops after `iterations` even if it has not converged, because stopping early is
    also a regularisation.

    Parameters
    ----------
    tolerance
        The trace of W - L L^T is at most this share of the trace of W; the rank is the smallest possible.
    """
    check_points(points)
    n, d = points.shape
    points_0 = points - points.mean(axis=0)
    low = incomplete_cholesky(points_0, k, tolerance)

    def smooth(v: np.ndarray) -> Any:
        return low @ (low.T @ v)

    def product(v: np.ndarray) -> Any:
        moved = points_0 * smooth(v)[:, None] - smooth(points_0 * v[:, None])  # M_l v as columns
        back = points_0 * smooth(moved) - smooth(points_0 * moved)
        return regularisation * v - back.sum(axis=1)

    rows = (squared_distances(part, points) for part in _slices(points))
    b = np.concatenate([_terms_of_b(squares, k.slope(squares), k, d).sum(axis=1) for squares in rows])
    operator = sparse.linalg.LinearOperator((n, n), matvec=product, dtype=float)
    alpha, _ = sparse.linalg.cg(operator, b, rtol=1e-6, maxiter=iterations)
    return SurrogateFit(_point_surrogate(points, k, -0.5 * k.sigma * alpha), False)


def incomplete_cholesky(points: np.ndarray, k: RadialFunction, tolerance: float) -> np.ndarray:
    """L (n, r) with W ~ L L^T; the next pivot is the largest diagonal entry of W - L L^T; O(n r²).

    Shawe-Taylor and Cristianini (2004), Kernel methods for pattern analysis, Section 5.2.
    """
    n = len(points)
    left = np.ones(n)  # diagonal of W - L L^T
    columns: list[np.ndarray] = []
    while len(columns) < n and left.sum() > tolerance * n:
        pivot = int(np.argmax(left))
        column = k.slope(squared_distances(points, points[pivot : pivot + 1]))[:, 0]
        for before in columns:
            column -= before[pivot] * before
        column /= math.sqrt(left[pivot])
        columns.append(column)
        left = np.maximum(left - column**2, 0.0)
    return np.column_stack(columns)


def _slices(points: np.ndarray, size: int = 256) -> list[np.ndarray]:
    """The points (n, d) in parts of at most `size`."""
    return [points[i : i + size] for i in range(0, len(points), size)]


def _check_solution(weights: np.ndarray) -> None:
    """Refuse weights that are not finite."""
    if not np.all(np.isfinite(weights)):
        raise ValueError("the weights that score matching asks for are not finite: sigma is extreme")


def _point_surrogate(points: np.ndarray, k: RadialFunction, alpha: np.ndarray) -> Surrogate:
    """The surrogate with centers `points` (n, d) and weights `alpha` (n,)."""
    _check_solution(alpha)
    centers_t = np.ascontiguousarray(points.T)
    return Surrogate(k.kind, centers_t, alpha, np.zeros(alpha.size), k.sigma, k.shape)


def _factor(c: np.ndarray, regularisation: float) -> tuple[np.ndarray, bool]:
    """The lower Cholesky factor of C + lambda I, and whether rounding made a larger lambda necessary."""
    size = float(np.diag(c).mean()) or 1.0
    for jitter in _JITTERS:
        system = c.copy()
        system.flat[:: len(c) + 1] += regularisation + jitter * size
        try:
            return linalg.cholesky(system, lower=True, overwrite_a=True, check_finite=False), jitter > 0.0
        except linalg.LinAlgError:
            continue
    raise ValueError(f"the system of {len(c)} equations is singular, even with {_JITTERS[-1]:g} added to it")


class Basis(NamedTuple):
    """phi_j(x) = sqrt(2/m) cos(omega_j . x + u_j)."""

    omega: np.ndarray  # (m, d)
    u: np.ndarray  # (m,)


class BasisDraws(NamedTuple):
    """The random numbers of a basis. They do not depend on sigma, so that J is a smooth function of sigma."""

    z: np.ndarray  # (m, d) standard normal
    gamma: np.ndarray  # (m,) gamma variables with the shape of the radial function
    u: np.ndarray  # (m,) uniform on (0, 2 pi)


def draw_basis(m: int, d: int, shape: float, rng: np.random.Generator) -> BasisDraws:
    """Random numbers for `m` features in dimension `d`."""
    return BasisDraws(rng.standard_normal((m, d)), rng.gamma(shape, size=m), rng.uniform(0.0, 2.0 * np.pi, m))


def fourier_basis(k: RadialFunction, draws: BasisDraws) -> Basis:
    """Features phi for which E[phi(x) . phi(y)] = k(||x - y||²).

    exp(-r²/sigma) is the mean of cos(omega . (x - y)) over omega ~ N(0, 2/sigma I). The rational quadratic k
    is a mixture of these: (1 + r²/(shape sigma))^-shape is the mean of exp(-tau r²/sigma) over
    tau ~ Gamma(shape) / shape.
    """
    scale = np.full(len(draws.u), 2.0 / k.sigma)
    if k.kind != GAUSSIAN:
        scale *= draws.gamma / k.shape
    return Basis(np.sqrt(scale)[:, None] * draws.z, draws.u)


class Sums(NamedTuple):
    """t b, t C and t lambda I over the t points so far, and the Cholesky factor of t (C + lambda I).

    A point adds sum_l phi'_l phi'_l^T + lambda I to the matrix. The sum has rank d, but lambda I has rank m.
    So an update of the factor adds m lambda to one entry of the diagonal for each point, to all entries in
    turn; after m points the result is the same. A point then costs d + 1 rank-one updates, O(d m²), whatever
    the number of points before it.
    """

    omega: np.ndarray  # (m, d) of the basis
    u: np.ndarray  # (m,)
    regularisation: float
    t: int
    b: np.ndarray  # (m,)
    c: np.ndarray  # (m, m)
    ridge: np.ndarray  # (m,)
    chol_t: np.ndarray  # (m, m) the factor, transposed
    factored: bool  # whether chol_t is up to date


def empty_sums(basis: Basis, regularisation: float) -> Sums:
    """The sums over no points."""
    m = len(basis.u)
    zero, square = np.zeros(m), np.zeros((m, m))
    return Sums(basis.omega, basis.u, regularisation, 0, zero, square, zero.copy(), square.copy(), False)


def take_in(sums: Sums, points: np.ndarray) -> Sums:
    """Add `points` (n, d) to the sums; their arrays change in place."""
    m, n, d = len(sums.u), *points.shape
    features = math.sqrt(2.0 / m)
    angles = points @ sums.omega.T + sums.u
    sines = features * np.sin(angles)
    sums.b[:] += features * (sums.omega**2).sum(axis=1) * np.cos(angles).sum(axis=0)
    sums.c[:] += (sines.T @ sines) * (sums.omega @ sums.omega.T)
    factored = sums.factored and n * (d + 1) * _UPDATES_A_FACTOR <= m
    ridge = np.full(m, n * sums.regularisation)
    if factored:
        ridge[:] = 0.0
        ridge[(sums.t + np.arange(n)) % m] = m * sums.regularisation
        _update_factor(sums.chol_t, sines, sums.omega, ridge)
    sums.ridge[:] += ridge
    return sums._replace(t=sums.t + n, factored=factored)


@kernel
def _update_factor(chol_t: Matrix, sines: Matrix, omega: Matrix, ridge: Vector) -> None:
    """Rank-one updates with phi'_l of every point, and with the entries that `ridge` adds to the diagonal."""
    m = ridge.size
    for i in range(len(sines)):
        for k in range(omega.shape[1]):
            v = np.empty(m)
            for j in range(m):
                v[j] = sines[i, j] * omega[j, k]
            rank_one_update(chol_t, v)
    for j in range(m):
        if ridge[j] > 0.0:
            rank_one_update(
                chol_t[j:, j:], np.concatenate((np.full(1, np.sqrt(ridge[j])), np.zeros(m - j - 1)))
            )


def fit_finite(sums: Sums) -> tuple[Sums, SurrogateFit]:
    """theta = (C + lambda I)^-1 b: Proposition 2."""
    repaired = False
    if not sums.factored:
        system = sums.c.copy()
        system.flat[:: len(system) + 1] += sums.ridge
        factor, repaired = _factor(system, 0.0)
        sums.chol_t[:] = factor.T
    theta = linalg.cho_solve((sums.chol_t, False), sums.b, check_finite=False)
    weights = math.sqrt(2.0 / theta.size) * theta
    _check_solution(weights)
    surrogate = Surrogate(FOURIER, np.ascontiguousarray(sums.omega.T), weights, sums.u, 1.0, 1.0)
    return sums._replace(factored=True), SurrogateFit(surrogate, repaired)


def fit_finite_without(
    points: np.ndarray, parts: Sequence[np.ndarray], basis: Basis, regularisation: float
) -> list[Surrogate]:
    """The fits to what is left of `points` (n, d) without each of the `parts` (n,), for `choose`.

    The sums over each part, and over what is in none, are made once.
    """
    in_none = points[~np.any(parts, axis=0)]
    over_parts = [
        take_in(empty_sums(basis, regularisation), some)
        for some in (*(points[part] for part in parts), in_none)
    ]
    return [fit_finite(_add_up(over_parts[:i] + over_parts[i + 1 :]))[1].surrogate for i in range(len(parts))]


def _add_up(parts: Sequence[Sums]) -> Sums:
    """The sums over the points of several sums, whose factors are unknown."""
    total = empty_sums(Basis(parts[0].omega, parts[0].u), parts[0].regularisation)
    for part in parts:
        total.b[:] += part.b
        total.c[:] += part.c
        total.ridge[:] += part.ridge
    return total._replace(t=sum(part.t for part in parts))


def derivatives(surrogate: Surrogate, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Gradients (n, d) and Laplacians (n,) of the surrogate at `points` (n, d)."""
    centers, weights, sigma = surrogate.centers_t.T, surrogate.weights, surrogate.sigma
    d = points.shape[1]
    if surrogate.kind == FOURIER:
        angles = points @ centers.T + surrogate.phases
        gradients = -(weights * np.sin(angles)) @ centers
        laplacians = -(weights * np.cos(angles)) @ (centers**2).sum(axis=1)
    else:
        k = RadialFunction(surrogate.kind, sigma, surrogate.shape)
        squares = squared_distances(points, centers)
        pull = 2.0 / sigma * weights * k.slope(squares)
        gradients = pull @ centers - pull.sum(axis=1)[:, None] * points
        bend = 4.0 / sigma**2 * squares * k.curvature(squares) * weights
        laplacians = (bend - d * pull).sum(axis=1)
    return gradients, laplacians


def objective(surrogate: Surrogate, points: np.ndarray) -> float:
    """J at `points` (n, d), Equation 5: the mean of the Laplacian plus half the squared gradient.

    Up to a constant, J is half the mean squared distance to the gradient of the true log density.
    """
    gradients, laplacians = derivatives(surrogate, points)
    return float((laplacians + 0.5 * (gradients**2).sum(axis=1)).mean())


def median_sigma(points: np.ndarray) -> float:
    """The median squared distance between `points` (n, d), without pairs of equal points."""
    squares = squared_distances(points, points)[np.triu_indices(len(points), 1)]
    apart = squares[squares > 0.0]
    return float(np.median(apart)) if apart.size else 1.0


# Fits to what is left of points (n, d) without each of several parts (n,), which are masks; with a sigma and
# a lambda.
FitWithout = Callable[[np.ndarray, Sequence[np.ndarray], float, float], Sequence[Surrogate]]


def without_each(fit: Callable[[np.ndarray, float, float], Surrogate]) -> FitWithout:
    """A `fit` to points, with a sigma and a lambda, for `choose`: to what is left without each part."""
    return lambda points, parts, *pair: [fit(points[~part], *pair) for part in parts]


def choose(
    points: np.ndarray,
    fit: FitWithout,
    start: tuple[float, float],
    *,
    fixed: tuple[bool, bool] = (False, False),
    folds: int = 4,
    evaluations: int = 40,
) -> tuple[float, float]:
    """The sigma and lambda that minimise J in cross-validation.

    Parameters
    ----------
    points
        Draws, shape (n, d), in the order of the chain.
    fit
        A function of points, folds, sigma and lambda that returns a surrogate without each of the folds.
    start
        sigma and lambda at which the search starts.
    fixed
        Whether sigma, and whether lambda, stays as it is.
    folds, evaluations
        The number of folds, and the largest number of pairs to try (Nelder-Mead on the logarithms).

    Raises
    ------
    ValueError
        See `check_points`.
    """
    check_points(points)
    free = [i for i in (0, 1) if not fixed[i]]
    if not free:
        return start
    # Each fold is a run of consecutive points. A chain repeats points and moves in small steps. In random
    # folds most points that are left out would have neighbours in time that are kept, and this favours too
    # small a sigma.
    fold = np.arange(len(points)) * folds // len(points)
    parts = [fold == k for k in range(folds)]
    parts = [part for part in parts if part.any() and not np.all(points[~part] == points[~part][0])]
    left_out = [points[part] for part in parts]

    typical = median_sigma(points)
    low = np.log([_SIGMAS[0] * typical, _LAMBDAS[0]])[free]
    high = np.log([_SIGMAS[1] * typical, _LAMBDAS[1]])[free]

    def pair(logs: np.ndarray) -> tuple[float, float]:
        values = list(start)
        for i, log in zip(free, np.clip(logs, low, high), strict=True):
            values[i] = math.exp(log)
        return values[0], values[1]

    def loss(logs: np.ndarray) -> float:
        with np.errstate(all="ignore"):
            try:
                fits = fit(points, parts, *pair(logs))
                total = sum(
                    objective(one, left) * len(left) for one, left in zip(fits, left_out, strict=True)
                )
            except ValueError:  # the system has no factor
                return math.inf
        return float(total) if math.isfinite(total) else math.inf

    origin = np.log([start[i] for i in free])
    simplex = np.vstack(
        [origin, *(origin + np.eye(len(free))[k] * (1.0, -3.0)[free[k]] for k in range(len(free)))]
    )
    found = optimize.minimize(
        loss,
        origin,
        method="Nelder-Mead",
        options={
            "maxfev": evaluations,
            "initial_simplex": simplex,
            "xatol": 0.1,
            "fatol": 1e-3 * len(points),
        },
    )
    return pair(found.x)
