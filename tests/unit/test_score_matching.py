"""Score matching: its formulas against their definitions, by brute force and by finite differences."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize

from stanadapt.numerics.score_matching import (
    BasisDraws,
    RadialFunction,
    Sums,
    choose,
    derivatives,
    draw_basis,
    empty_sums,
    fit_finite,
    fit_finite_without,
    fit_lite,
    fit_lite_low_rank,
    fit_lite_without,
    fourier_basis,
    incomplete_cholesky,
    lite_system,
    median_sigma,
    objective,
    squared_distances,
    take_in,
    without_each,
)
from stanadapt.numerics.surrogate import FOURIER, GAUSSIAN, RATIONAL_QUADRATIC, Surrogate, surrogate_gradient

D = 3


KERNELS = [RadialFunction(GAUSSIAN, 2.3), RadialFunction(RATIONAL_QUADRATIC, 2.3, 0.7)]


def _points(n: int, seed: int = 1, d: int = D) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, d)) + 0.5


def _finite(
    kernel: RadialFunction, points: np.ndarray, regularisation: float, m: int = 40
) -> tuple[Sums, Surrogate]:
    draws = draw_basis(m, points.shape[1], kernel.shape, np.random.default_rng(2))
    sums = take_in(empty_sums(fourier_basis(kernel, draws), regularisation), points)
    sums, fit = fit_finite(sums)
    return sums, fit.surrogate


def _value(surrogate: Surrogate, x: np.ndarray) -> float:
    """f(x) by its definition."""
    if surrogate.kind == FOURIER:
        return float(surrogate.weights @ np.cos(surrogate.centers_t.T @ x + surrogate.phases))
    squares = ((surrogate.centers_t - x[:, None]) ** 2).sum(axis=0)
    if surrogate.kind == GAUSSIAN:
        return float(surrogate.weights @ np.exp(-squares / surrogate.sigma))
    a = surrogate.shape
    return float(surrogate.weights @ (1.0 + squares / (a * surrogate.sigma)) ** -a)


def _surrogates() -> list[Surrogate]:
    points = _points(30)
    fits = [fit_lite(points, kernel, 0.1).surrogate for kernel in KERNELS]
    return [*fits, *(_finite(kernel, points, 0.1)[1] for kernel in KERNELS)]


SURROGATES = pytest.mark.parametrize("which", range(4), ids=["lite", "lite rq", "finite", "finite rq"])


@SURROGATES
def test_gradients_and_laplacians_against_finite_differences(which: int) -> None:
    surrogate, points = _surrogates()[which], _points(5, seed=3)
    gradients, laplacians = derivatives(surrogate, points)
    for x, gradient, laplacian in zip(points, gradients, laplacians, strict=True):
        by_differences = optimize.approx_fprime(x, lambda y: np.array(_value(surrogate, y)), 1e-6)
        np.testing.assert_allclose(gradient, by_differences, rtol=1e-4, atol=1e-5)
        h, around = 1e-4, -2.0 * D * _value(surrogate, x)
        for step in h * np.eye(D):
            around += _value(surrogate, x + step) + _value(surrogate, x - step)
        assert laplacian == pytest.approx(around / h**2, rel=1e-4, abs=1e-4)
        compiled = np.empty(D)
        surrogate_gradient(surrogate, x, compiled)
        np.testing.assert_allclose(compiled, gradient, rtol=1e-9, atol=1e-12)


def test_lite_is_proposition_1() -> None:
    """C, b and alpha as the paper writes them, dimension by dimension."""
    points, sigma, regularisation = _points(20), 2.3, 0.7
    k = np.exp(-squared_distances(points, points) / sigma)
    ones = np.ones(len(points))
    b, c = np.zeros(20), np.zeros((20, 20))
    for x in points.T:
        s, diagonal = x * x, np.diag(x)
        b += 2.0 / sigma * (k @ s + s * (k @ ones) - 2.0 * x * (k @ x)) - k @ ones
        c += (diagonal @ k - k @ diagonal) @ (k @ diagonal - diagonal @ k)
    ours = lite_system(points, RadialFunction(GAUSSIAN, sigma))
    np.testing.assert_allclose(ours[0], c, atol=1e-12)
    np.testing.assert_allclose(ours[1], b, atol=1e-12)
    alpha = -0.5 * sigma * np.linalg.solve(c + regularisation * np.eye(20), b)
    fit = fit_lite(points, RadialFunction(GAUSSIAN, sigma), regularisation)
    np.testing.assert_allclose(fit.surrogate.weights, alpha, rtol=1e-9)
    assert not fit.repaired


def test_finite_is_proposition_2() -> None:
    """C, b and theta as the paper writes them, point by point, with derivatives of phi by differences."""
    points, regularisation, m = _points(15), 0.2, 10
    sums, surrogate = _finite(KERNELS[0], points, regularisation, m)

    def phi(x: np.ndarray) -> np.ndarray:
        return np.sqrt(2.0 / m) * np.cos(sums.omega @ x + sums.u)

    b, c, h = np.zeros(m), np.zeros((m, m)), 1e-4
    for x in points:
        for step in h * np.eye(D):
            first = (phi(x + step) - phi(x - step)) / (2.0 * h)
            b -= (phi(x + step) - 2.0 * phi(x) + phi(x - step)) / h**2 / len(points)
            c += np.outer(first, first) / len(points)
    np.testing.assert_allclose(sums.b / sums.t, b, atol=1e-6)
    np.testing.assert_allclose(sums.c / sums.t, c, atol=1e-7)
    theta = np.linalg.solve(c + regularisation * np.eye(m), b)
    np.testing.assert_allclose(surrogate.weights, np.sqrt(2.0 / m) * theta, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("kernel", KERNELS, ids=["gaussian", "rational_quadratic"])
def test_lite_minimises_the_regularised_objective(kernel: RadialFunction) -> None:
    """J(alpha) + (2 lambda / (n sigma²)) ||alpha||² is stationary there: the regulariser of Equation 7."""
    points, regularisation = _points(12), 0.05
    best = fit_lite(points, kernel, regularisation).surrogate

    def loss(alpha: np.ndarray) -> float:
        ridge = 2.0 * regularisation / (len(points) * kernel.sigma**2) * alpha @ alpha
        return objective(best._replace(weights=alpha), points) + float(ridge)

    slope = optimize.approx_fprime(best.weights, loss, 1e-6)
    np.testing.assert_allclose(slope, 0.0, atol=1e-5)
    moved = [loss(best.weights + 0.1 * step) for step in np.eye(len(points))]
    assert min(moved) > loss(best.weights)


def test_finite_minimises_the_regularised_objective() -> None:
    points, regularisation = _points(12), 0.05
    best = _finite(KERNELS[1], points, regularisation, 8)[1]

    def loss(weights: np.ndarray) -> float:
        theta = weights / np.sqrt(2.0 / weights.size)
        return objective(best._replace(weights=weights), points) + 0.5 * regularisation * float(theta @ theta)

    np.testing.assert_allclose(optimize.approx_fprime(best.weights, loss, 1e-6), 0.0, atol=1e-5)


@pytest.mark.parametrize("kernel", KERNELS, ids=["gaussian", "rational_quadratic"])
def test_low_rank_form_is_the_same(kernel: RadialFunction) -> None:
    points = _points(60)
    whole = fit_lite(points, kernel, 0.7).surrogate.weights
    low = fit_lite_low_rank(points, kernel, 0.7, tolerance=1e-10).surrogate.weights
    np.testing.assert_allclose(low, whole, atol=2e-4 * np.abs(whole).max())
    rough = fit_lite_low_rank(points, kernel, 0.7, tolerance=0.05).surrogate.weights
    assert np.abs(rough - whole).max() > 1e-3 * np.abs(whole).max()  # the tolerance means something


@pytest.mark.parametrize("kernel", KERNELS, ids=["gaussian", "rational_quadratic"])
def test_incomplete_cholesky(kernel: RadialFunction) -> None:
    points = _points(80, d=2)
    w = kernel.slope(squared_distances(points, points))
    for tolerance in (0.1, 1e-3, 1e-8):
        low = incomplete_cholesky(points, kernel, tolerance)
        left = w - low @ low.T
        assert np.trace(left) <= tolerance * np.trace(w) + 1e-9
        assert np.linalg.eigvalsh(left).min() > -1e-9
        assert low.shape[1] < len(points)


def test_running_sums_are_those_of_all_points() -> None:
    points = _points(90)
    for kernel in KERNELS:
        whole, _ = _finite(kernel, points, 0.3)
        sums, _ = _finite(kernel, points[:40], 0.3)
        for part in (points[40:41], points[41:80], points[80:]):
            sums = take_in(sums, part)
        assert sums.t == whole.t == 90
        np.testing.assert_allclose(sums.b, whole.b, rtol=1e-10)
        np.testing.assert_allclose(sums.c, whole.c, rtol=1e-10, atol=1e-12)


def test_updates_of_the_factor_are_a_new_factor() -> None:
    """One point at a time, d + 1 rank-one updates each; lambda I is whole again after m points."""
    m, points = 130, _points(100 + 130)
    sums, _ = _finite(KERNELS[0], points[:100], 0.3, m)
    for i, x in enumerate(points[100:]):
        sums = take_in(sums, x[None, :])
        assert sums.factored
        if i in (0, 60, 129):
            system = sums.c + np.diag(sums.ridge)
            np.testing.assert_allclose(sums.chol_t.T @ sums.chol_t, system, rtol=1e-9, atol=1e-10)
            assert sums.ridge.mean() == pytest.approx(0.3 * sums.t)
    np.testing.assert_allclose(sums.ridge, 0.3 * sums.t)
    updated = fit_finite(sums)[1].surrogate.weights
    np.testing.assert_allclose(updated, _finite(KERNELS[0], points, 0.3, m)[1].weights, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("kernel", KERNELS, ids=["gaussian", "rational_quadratic"])
def test_features_have_the_kernel_as_their_mean(kernel: RadialFunction) -> None:
    m, points = 200_000, _points(6)
    omega, u = fourier_basis(kernel, draw_basis(m, D, kernel.shape, np.random.default_rng(4)))
    phi = np.sqrt(2.0 / m) * np.cos(points @ omega.T + u)
    exact = kernel.value(squared_distances(points, points))
    np.testing.assert_allclose(phi @ phi.T, exact, atol=5.0 / np.sqrt(m))


def test_kernels_derivatives_by_squared_distance() -> None:
    squares, h = np.linspace(0.1, 20.0, 7), 1e-5
    for kernel in KERNELS:
        first = (kernel.value(squares + h) - kernel.value(squares - h)) / (2.0 * h)
        np.testing.assert_allclose(kernel.slope(squares), -kernel.sigma * first, rtol=1e-6)
        second = (kernel.slope(squares + h) - kernel.slope(squares - h)) / (2.0 * h)
        np.testing.assert_allclose(kernel.curvature(squares), -kernel.sigma * second, rtol=1e-6)


def test_rational_quadratic_kernel_becomes_the_gaussian() -> None:
    squares = np.linspace(0.0, 10.0, 5)
    np.testing.assert_allclose(
        RadialFunction(RATIONAL_QUADRATIC, 2.0, 1e8).value(squares),
        RadialFunction(GAUSSIAN, 2.0).value(squares),
        rtol=1e-6,
    )


def test_objective_is_the_fisher_divergence_up_to_a_constant() -> None:
    """J - J' is half the difference of the mean squared distances to the true score, -(x - 1/2)."""
    points = _points(200_000, seed=6)
    one, other = _surrogates()[0], _surrogates()[2]

    def distance(surrogate: Surrogate) -> float:
        gradients, _ = derivatives(surrogate, points)
        return 0.5 * float(((gradients + points - 0.5) ** 2).sum(axis=1).mean())

    difference = objective(one, points) - objective(other, points)
    assert difference == pytest.approx(distance(one) - distance(other), abs=0.1)
    assert distance(one) != pytest.approx(distance(other), abs=0.3)


def test_gradients_of_a_gaussian_are_learnt() -> None:
    """With n = m = 500 draws the error is a small share of the score's size, for both estimators."""
    points, new = _points(500), _points(2_000, seed=7)
    wide = RadialFunction(GAUSSIAN, 30.0)
    for surrogate in (fit_lite(points, wide, 1.0).surrogate, _finite(wide, points, 1e-4, 500)[1]):
        gradients, _ = derivatives(surrogate, new)
        assert ((gradients + new - 0.5) ** 2).mean() < 0.05


def test_fits_without_each_part_are_those_to_what_is_left() -> None:
    """Points of no part are in all of them."""
    points, basis_of = _points(90), draw_basis(60, D, 1.0, np.random.default_rng(3))
    parts, new = [np.arange(90) // 20 == k for k in range(4)], _points(50, seed=8)
    for kernel in (RadialFunction(GAUSSIAN, 9.0), RadialFunction(RATIONAL_QUADRATIC, 9.0)):
        basis = fourier_basis(kernel, basis_of)
        ways = (
            (fit_lite_without(points, parts, kernel, 0.1), lambda some, k=kernel: fit_lite(some, k, 0.1)),
            (
                fit_finite_without(points, parts, basis, 0.1),
                lambda some, basis=basis: fit_finite(take_in(empty_sums(basis, 0.1), some))[1],
            ),
        )
        for fits, fit in ways:
            for found, part in zip(fits, parts, strict=True):
                wanted = derivatives(fit(points[~part]).surrogate, new)
                for one, other in zip(derivatives(found, new), wanted, strict=True):
                    np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-8)


class TestChoice:
    @staticmethod
    def fit(points: np.ndarray, sigma: float, regularisation: float) -> Surrogate:
        return fit_lite(points, RadialFunction(GAUSSIAN, sigma), regularisation).surrogate

    def test_it_is_better_than_where_it_started(self) -> None:
        points, new = _points(120), _points(5_000, seed=8)
        for start in ((0.5, 1e-4), (2.0, 100.0)):
            chosen = choose(points, without_each(self.fit), start)
            assert objective(self.fit(points, *chosen), new) < objective(self.fit(points, *start), new) - 0.1

    def test_hot_start_needs_fewer_trials(self) -> None:
        points = _points(120)
        chosen = choose(points, without_each(self.fit), (0.5, 1e-4), evaluations=60)
        again = choose(points, without_each(self.fit), chosen, evaluations=8)
        new = _points(5_000, seed=8)
        loss = [objective(self.fit(points, *pair), new) for pair in (chosen, again)]
        assert loss[1] == pytest.approx(loss[0], abs=0.05)

    def test_what_is_set_stays(self) -> None:
        points = _points(60)
        assert choose(points, without_each(self.fit), (3.0, 0.1), fixed=(True, True)) == (3.0, 0.1)
        assert choose(points, without_each(self.fit), (3.0, 0.1), fixed=(True, False))[0] == 3.0
        assert choose(points, without_each(self.fit), (3.0, 0.1), fixed=(False, True))[1] == 0.1

    def test_repeated_points_do_not_shrink_the_kernel(self) -> None:
        """A chain stays where it is at times: folds are runs of it, so that repeats are left out together."""
        points = np.repeat(_points(60), 4, axis=0)
        sigma, _ = choose(points, without_each(self.fit), (median_sigma(points), 1e-3))
        assert sigma > median_sigma(points)


@pytest.mark.parametrize(
    ("points", "message"),
    [
        (np.ones((1, D)), "n of at least 2"),
        (np.ones((0, D)), "n of at least 2"),
        (np.ones(D), "n of at least 2"),
        (np.ones((9, D)), "all 9 points are equal"),
        (np.array([[1.0, np.nan], [0.0, 1.0]]), "NaN or infinite"),
    ],
)
def test_points_that_nothing_can_be_learnt_from(points: np.ndarray, message: str) -> None:
    kernel = KERNELS[0]
    for fit in (fit_lite, fit_lite_low_rank):
        with pytest.raises(ValueError, match=message):
            fit(points, kernel, 1.0)
    with pytest.raises(ValueError, match=message):
        choose(points, without_each(TestChoice.fit), (1.0, 1.0))


def test_singular_systems_are_regularised_and_say_so() -> None:
    """Ten copies of five points, and no lambda: the system has rank five at most."""
    points = np.repeat(_points(5), 10, axis=0)
    fit = fit_lite(points, RadialFunction(GAUSSIAN, 50.0), 0.0)
    assert fit.repaired
    assert np.all(np.isfinite(fit.surrogate.weights))
    basis = fourier_basis(KERNELS[0], draw_basis(40, D, 1.0, np.random.default_rng(1)))
    sums = take_in(empty_sums(basis, 0.0), points)
    finite = fit_finite(sums)[1]
    assert finite.repaired
    assert np.all(np.isfinite(finite.surrogate.weights))


def test_what_has_no_solution_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"singular|not finite"), np.errstate(all="ignore"):
        fit_lite(_points(10) * 1e200, KERNELS[0], 0.0)


def test_basis_is_smooth_in_sigma() -> None:
    """The random numbers are drawn once, so that a search over sigma sees a smooth objective."""
    draws = draw_basis(30, D, 1.0, np.random.default_rng(1))
    assert isinstance(draws, BasisDraws)
    one, other = (fourier_basis(RadialFunction(GAUSSIAN, sigma), draws) for sigma in (2.0, 8.0))
    np.testing.assert_allclose(one.omega, 2.0 * other.omega)
    np.testing.assert_array_equal(one.u, other.u)


def test_median_sigma() -> None:
    points = np.array([[0.0], [1.0], [3.0], [3.0]])
    assert median_sigma(points) == np.median([1.0, 9.0, 9.0, 4.0, 4.0])
    assert median_sigma(np.ones((4, 2))) == 1.0
