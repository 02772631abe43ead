"""The metric, the integrator and the step size of fisher_hmc, against their definitions."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from scipy import linalg

import stanadapt
from exact import CHOL, TARGETS
from stanadapt.numerics import metric as of_metric
from stanadapt.numerics import splitting
from stanadapt.numerics.leapfrog import leapfrog
from stanadapt.numerics.metric import (
    Metric,
    as_matrix,
    compress,
    dense_metric,
    diagonal,
    hessian_metric,
    learn_metric,
    momentum_into,
    velocity_into,
)
from stanadapt.numerics.step_size import average_step_size, dual_averaging, final_step_size
from stanadapt.target import log_density_gradient

NONE = np.empty((0, 0))


@pytest.fixture(autouse=True)
def _no_warnings() -> Iterator[None]:
    """What these functions cannot use is to be refused without a word from NumPy."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        yield


def _cov(rng: np.random.Generator, d: int, condition: float = 100.0) -> np.ndarray:
    """A covariance whose correlations make its condition, not its scales alone."""
    vectors = np.linalg.qr(rng.normal(size=(d, d)))[0]
    return np.asarray((vectors * np.geomspace(1.0, condition, d)) @ vectors.T)


def _of(a: np.ndarray) -> Metric:
    """The dense metric A."""
    return dense_metric(np.linalg.cholesky(np.linalg.inv(a)).T)


def _like(form: str, d: int) -> Metric:
    """The identity in the form that is to be learnt."""
    if form == "dense":
        return _of(np.eye(d))
    return Metric(NONE, NONE, np.ones(d), np.empty((0, d)), np.empty(0))


def _gaussian(rng: np.random.Generator, n: int, cov: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Draws and their scores, around a mean that is far from zero."""
    away = rng.normal(size=(n, len(cov))) @ np.linalg.cholesky(cov).T
    return away + 10.0, -np.linalg.solve(cov, away.T).T


def _distances(a: np.ndarray, cov: np.ndarray) -> np.ndarray:
    """Factors by which variances differ, in all directions at once: eigenvalues of A^-1 cov, sorted."""
    return np.asarray(linalg.eigh(cov, a, eigvals_only=True))


@pytest.fixture
def _all_that_draws_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_metric, "PRIOR", 0.0)
    monkeypatch.setattr(of_metric, "CUTOFF", 1.0)


@pytest.mark.usefixtures("_all_that_draws_tell")
@pytest.mark.parametrize("form", ["dense", "low_rank", "dense from another"])
@pytest.mark.parametrize("d", [1, 2, 5, 40])
def test_learnt_metric_solves_its_equation(d: int, form: str) -> None:
    """A cov(s) A = cov(x), whatever draws and scores are, by the formula with matrix roots."""
    rng = np.random.default_rng(d)
    points, scores = (rng.normal(size=(3 * d + 3, d)) @ rng.normal(size=(d, d)) for _ in range(2))
    before = _of(_cov(rng, d)) if form.endswith("another") else _like(form, d)
    found = learn_metric(before, points, scores)
    assert found is not None
    a, cov, fisher = as_matrix(found), np.cov(points.T).reshape(d, d), np.cov(scores.T).reshape(d, d)
    np.testing.assert_allclose(a @ fisher @ a, cov, rtol=1e-6, atol=1e-7 * np.abs(cov).max())
    root = linalg.sqrtm(fisher).real
    inverse = np.linalg.inv(root)
    wanted = inverse @ linalg.sqrtm(root @ cov @ root).real @ inverse
    np.testing.assert_allclose(a, wanted, rtol=1e-5, atol=1e-6 * np.abs(wanted).max())


@pytest.mark.usefixtures("_all_that_draws_tell")
@pytest.mark.parametrize("form", ["dense", "low_rank"])
def test_gaussian_is_learnt_exactly_from_d_plus_1_draws(form: str) -> None:
    rng = np.random.default_rng(1)
    cov = _cov(rng, 8)
    found = learn_metric(_like(form, 8), *_gaussian(rng, 9, cov))
    assert found is not None
    np.testing.assert_allclose(_distances(as_matrix(found), cov), 1.0, rtol=1e-6)


def test_what_few_draws_tell_is_drawn_to_the_metric_so_far() -> None:
    rng = np.random.default_rng(2)
    cov = _cov(rng, 8)
    points, scores = _gaussian(rng, 400, cov)
    worst = []
    for n in (3, 12, 50, 400):
        found = learn_metric(_of(cov), points[:n], scores[:n])
        assert found is not None
        apart = np.log(_distances(as_matrix(found), cov))
        worst.append(np.abs(apart).max())
    np.testing.assert_array_less(worst, [1.0, 0.7, 0.2, 0.05])


@pytest.mark.parametrize("d", [1, 4, 30])
def test_distance_is_the_largest_log_ratio_of_variances(d: int) -> None:
    rng = np.random.default_rng(d)
    one, other = _cov(rng, d), 3.0 * _cov(rng, d)
    ratios = np.log(_distances(one, other))
    assert of_metric.distance(_of(one), _of(other)) == pytest.approx(np.abs(ratios).max(), rel=1e-8)
    assert of_metric.distance(_of(one), _of(one)) == pytest.approx(0.0, abs=1e-9)


def test_drift_is_the_distance_of_means_over_its_expectation() -> None:
    rng = np.random.default_rng(7)
    cov, points = _cov(rng, 4), rng.normal(size=(50, 4))
    gap = points[:20].mean(axis=0) - points[20:].mean(axis=0)
    wanted = gap @ np.linalg.solve(cov, gap) / 4 / (1 / 20 + 1 / 30)
    assert of_metric.drift(_of(cov), points, 20) == pytest.approx(wanted, rel=1e-10)


def test_other_coordinates_give_the_same_metric() -> None:
    """x -> T x with T upper triangular leaves the coordinates in which the equation is solved alone."""
    rng = np.random.default_rng(3)
    cov, t = _cov(rng, 5), np.triu(rng.normal(size=(5, 5)), 1) + np.diag(np.geomspace(1e-2, 1e2, 5))
    points, scores = _gaussian(rng, 12, cov)
    one = learn_metric(_of(cov), points, scores)
    before = dense_metric(_of(cov).chol_t @ np.linalg.inv(t))
    other = learn_metric(before, points @ t.T, np.linalg.solve(t.T, scores.T).T)
    assert one is not None
    assert other is not None
    back = np.linalg.solve(t, np.linalg.solve(t, as_matrix(other)).T)
    np.testing.assert_allclose(back, as_matrix(one), rtol=1e-6)


def test_extreme_correlations_are_learnt_from_nothing() -> None:
    """Condition 1e10 from draws of thirty iterations at a time: every round takes a tenth at the least."""
    rng = np.random.default_rng(4)
    cov = _cov(rng, 6, condition=1e10)
    metric, spread = _like("dense", 6), 1e10
    for _ in range(7):
        found = learn_metric(metric, *_gaussian(rng, 30, cov))
        assert found is not None
        metric = found
        apart = _distances(as_matrix(metric), cov)
        assert apart[-1] / apart[0] < max(3.0, 0.1 * spread)
        spread = apart[-1] / apart[0]
    assert 0.5 < apart[0] < apart[-1] < 2.0


def test_few_directions_are_found_among_many() -> None:
    """A Gaussian that is a diagonal plus rank two, from fewer draws than dimensions."""
    rng = np.random.default_rng(5)
    d, n = 80, 30
    scale, spikes = np.geomspace(1e-3, 1e3, d), np.linalg.qr(rng.normal(size=(d, 2)))[0]
    cov = (np.eye(d) + spikes @ np.diag([99.0, -0.99]) @ spikes.T) * np.outer(scale, scale)
    found = learn_metric(_like("low_rank", d), *_gaussian(rng, n, cov))
    assert found is not None
    assert len(found.variances) < 2 * n
    np.testing.assert_allclose(found.directions @ found.directions.T, np.eye(len(found.variances)), atol=1e-9)
    before, after = _distances(np.diag(np.diag(cov)), cov), _distances(as_matrix(found), cov)
    assert before[-1] / before[0] > 1000.0
    assert after[-1] / after[0] < 200.0


def _rows(rng: np.random.Generator, n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    points = rng.normal(size=(n, d))
    return points, -points


NOTHING: dict[str, Callable[[np.ndarray, np.ndarray], Any]] = {
    "two draws": lambda x, s: (x[:2], s[:2]),
    "no draws": lambda x, s: (x[:0], s[:0]),
    "a chain that stood still": lambda x, s: (x[:1] + 0.0 * x, s[:1] + 0.0 * s),
    "a parameter that did": lambda x, s: (x * [1, 1, 0, 1], s),
    "a score that did": lambda x, s: (x, s * [1, 0, 1, 1]),
    "NaN": lambda x, s: (np.where(x == x.max(), np.nan, x), s),
    "infinite": lambda x, s: (x, np.where(s == s.max(), np.inf, s)),
    "too large to square": lambda x, s: (1e200 * x, s),
    "too small to square": lambda x, s: (1e-170 * x, 1e-170 * s),
}


@pytest.mark.parametrize("form", ["dense", "low_rank"])
@pytest.mark.parametrize("what", NOTHING)
def test_draws_that_tell_nothing(what: str, form: str) -> None:
    rows = NOTHING[what](*_rows(np.random.default_rng(6), 20, 4))
    assert learn_metric(_like(form, 4), *rows) is None


@pytest.mark.parametrize("form", ["dense", "low_rank"])
@pytest.mark.parametrize("n", [3, 4, 10, 39])
def test_fewer_draws_than_dimensions(n: int, form: str) -> None:
    rng = np.random.default_rng(n)
    cov = _cov(rng, 40)
    for points, scores in (_gaussian(rng, n, cov), (rng.normal(size=(n, 40)), rng.normal(size=(n, 40)))):
        found = learn_metric(_like(form, 40), points, scores)
        assert found is not None
        assert np.linalg.eigvalsh(as_matrix(found))[0] > 0.0


@pytest.mark.parametrize("form", ["dense", "low_rank"])
def test_draws_of_two_points_and_of_wild_scales(form: str) -> None:
    rng = np.random.default_rng(7)
    two = np.where(np.arange(20)[:, None] < 7, 0.0, rng.normal(size=6))
    points, scores = _rows(rng, 20, 6)
    wild = np.geomspace(1e-100, 1e100, 6)
    for rows in ((two, -two), (points * wild, scores / wild), (1e-50 * points, 1e120 * scores)):
        found = learn_metric(_like(form, 6), *rows)
        assert found is not None
        assert np.all(np.isfinite(as_matrix(found)))
        assert np.all(np.diag(as_matrix(found)) > 0.0)


# ---- the first metric


@pytest.mark.parametrize("d", [1, 2, 7])
def test_metric_of_a_hessian(d: int) -> None:
    cov = _cov(np.random.default_rng(d), d)
    found = hessian_metric(-np.linalg.inv(cov))
    assert found is not None
    np.testing.assert_allclose(as_matrix(found), cov, rtol=1e-8)


def test_metric_of_an_indefinite_hessian_has_its_absolute_eigenvalues() -> None:
    """After the diagonal is scaled to ones, so that units do not matter."""
    rng = np.random.default_rng(8)
    a = rng.normal(size=(5, 5))
    a = a + a.T
    scale = np.sqrt(np.abs(np.diag(a)))
    values, vectors = np.linalg.eigh(a / np.outer(scale, scale))
    assert values[0] < -0.1 < 0.1 < values[-1]
    wanted = (vectors / np.abs(values)) @ vectors.T / np.outer(scale, scale)
    units = np.geomspace(1e-6, 1e6, 5)
    for unit in (np.ones(5), units):
        found = hessian_metric(a * np.outer(unit, unit))
        assert found is not None
        np.testing.assert_allclose(as_matrix(found) * np.outer(unit, unit), wanted, rtol=1e-7)


def test_metric_of_a_hessian_with_hardly_any_curvature() -> None:
    cov = _cov(np.random.default_rng(9), 4, condition=1e12)
    found = hessian_metric(-np.linalg.inv(cov))
    assert found is not None
    values = np.linalg.eigvalsh(as_matrix(found))
    assert values[0] > 0.0
    assert values[-1] / values[0] < 1e10  # differences of gradients do not tell more
    steep = hessian_metric(-np.diag(np.geomspace(1e-6, 1e6, 4)))
    assert steep is not None
    np.testing.assert_allclose(np.diag(as_matrix(steep)), np.geomspace(1e6, 1e-6, 4), rtol=1e-9)


@pytest.mark.parametrize(
    "hessian", [np.zeros((1, 1)), np.diag([-1.0, 0.0]), np.full((2, 2), np.nan), np.diag([-1.0, -np.inf])]
)
def test_hessians_that_tell_nothing(hessian: np.ndarray) -> None:
    assert hessian_metric(hessian) is None


# ---- products


def _spiked(d: int, spikes: int) -> np.ndarray:
    """A covariance whose scaled eigenvalues are all but `spikes` near one."""
    rng = np.random.default_rng(d)
    vectors = np.linalg.qr(rng.normal(size=(d, spikes)))[0]
    inner = np.eye(d) + (vectors * (np.geomspace(4.0, 10.0, spikes) - 1.0)) @ vectors.T
    scale = np.geomspace(0.1, 10.0, d)
    return np.asarray(inner * np.outer(scale, scale))


def _low_rank(d: int, k: int, ratio: float = 100.0) -> Metric:
    """Scales and variances from 1 / ratio to ratio."""
    directions = np.linalg.qr(np.random.default_rng(d).normal(size=(d, k)))[0].T
    scale, variances = np.geomspace(1 / ratio, ratio, d), np.geomspace(1 / ratio, ratio, k)
    return Metric(NONE, NONE, scale, np.ascontiguousarray(directions), variances)


FORMS: dict[str, Callable[[], Metric]] = {
    "dense, one dimension": lambda: _of(np.array([[4.0]])),
    "dense": lambda: _of(_cov(np.random.default_rng(1), 5)),
    "diagonal": lambda: _low_rank(5, 0),
    "low rank": lambda: _low_rank(9, 3),
    "full rank": lambda: _low_rank(5, 5),
    "compressed": lambda: compress(_of(_spiked(60, 3))),
}


@pytest.mark.parametrize("form", FORMS)
def test_momenta_have_the_mass_as_covariance(form: str) -> None:
    metric = FORMS[form]()
    assert (len(metric.inverse_mass) > 0) == form.startswith("dense")
    a = as_matrix(metric)
    d = len(a)
    columns = np.empty((2, d, d))
    for z, velocity, momentum in zip(np.eye(d), *columns, strict=True):
        velocity_into(velocity, metric, z)
        momentum_into(momentum, metric, z)
    np.testing.assert_allclose(columns[0].T, a, rtol=1e-10, atol=1e-12 * np.abs(a).max())
    mass = columns[1].T @ columns[1]
    np.testing.assert_allclose(mass @ a, np.eye(d), atol=1e-8)
    z, p, v = np.random.default_rng(1).normal(size=d), np.empty(d), np.empty(d)
    momentum_into(p, metric, z)
    velocity_into(v, metric, p)
    np.testing.assert_allclose(p @ v, z @ z, rtol=1e-10)


def test_compression_keeps_what_matters() -> None:
    cov = _spiked(60, 3)
    whole = _of(cov)
    small = compress(whole)
    assert len(small.variances) == 3
    apart = _distances(as_matrix(small), cov)
    assert 1 / of_metric.CUTOFF - 1e-9 < apart[0] < apart[-1] < of_metric.CUTOFF + 1e-9
    np.testing.assert_array_equal(small.chol_t, whole.chol_t)  # in whose coordinates the next is learnt


def test_metrics_that_compression_leaves_alone() -> None:
    for whole in (_of(_spiked(of_metric.SMALL - 1, 1)), _of(_cov(np.random.default_rng(2), 40))):
        assert compress(whole) is whole


def test_what_a_compressed_metric_learns_is_what_the_whole_one_would() -> None:
    rng = np.random.default_rng(10)
    cov = _spiked(60, 3)
    rows = _gaussian(rng, 60, cov)
    whole, small = learn_metric(_of(cov), *rows), learn_metric(compress(_of(cov)), *rows)
    assert whole is not None
    assert small is not None
    np.testing.assert_array_equal(as_matrix(small), as_matrix(whole))


# ---- the integrator


def _trajectory(
    metric: Metric, x: np.ndarray, p: np.ndarray, h: float, n: int, target: str = "skewed"
) -> tuple[np.ndarray, np.ndarray, float]:
    """Position, momentum and log density after `n` steps."""
    exact = TARGETS[target]()
    native = exact.target.target()
    x, p, score = x.copy(), p.copy(), np.empty_like(x)
    log_density_gradient(native, x, score)
    logp, taken = splitting.split_steps(native, metric, x, p, score, np.empty_like(x), h, n)
    assert taken == 2 * n
    again = np.empty_like(x)
    assert logp == log_density_gradient(native, x, again)
    np.testing.assert_array_equal(score, again)
    return x, p, logp


X, P = np.array([0.3, -0.5, 0.2]), np.array([0.4, 1.0, -0.7])
THREE = {"dense": lambda: _of(CHOL @ CHOL.T), "low_rank": lambda: _low_rank(3, 2, ratio=1.5)}


@pytest.mark.parametrize("n", [1, 2, 9])
@pytest.mark.parametrize("form", THREE)
def test_the_way_back(form: str, n: int) -> None:
    metric = THREE[form]()
    x, p, _ = _trajectory(metric, X, P, 0.2, n)
    assert np.linalg.norm(x - X) > 0.1
    x, p, _ = _trajectory(metric, x, -p, 0.2, n)
    np.testing.assert_allclose(x, X, rtol=1e-10)
    np.testing.assert_allclose(-p, P, rtol=1e-10)


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("form", THREE)
def test_volumes_are_kept(form: str, n: int) -> None:
    """The determinant of the Jacobian of (x, p), by central differences."""
    metric, at, width = THREE[form](), np.concatenate([X, P]), 1e-5

    def end(z: np.ndarray) -> np.ndarray:
        return np.concatenate(_trajectory(metric, z[:3], z[3:], 0.3, n)[:2])

    jacobian = [(end(at + width * e) - end(at - width * e)) / (2.0 * width) for e in np.eye(6)]
    np.testing.assert_allclose(np.linalg.det(jacobian), 1.0, rtol=1e-7)


@pytest.mark.parametrize("n", [1, 4])
def test_a_quarter_is_leapfrog_with_half_the_step(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    exact = TARGETS["skewed"]()
    native = exact.target.target()
    x, p, score = X.copy(), P.copy(), np.empty(3)
    log_density_gradient(native, x, score)
    wanted = leapfrog(native, x, p, score, 0.1, 2 * n)
    monkeypatch.setattr(splitting, "B", 0.25)
    y, q = X.copy(), P.copy()
    log_density_gradient(native, y, score)
    found = splitting.split_steps.py_func(native, _of(np.eye(3)), y, q, score, np.empty(3), 0.2, n)
    np.testing.assert_allclose(y, x, rtol=1e-12)
    np.testing.assert_allclose(q, p, rtol=1e-12)
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_the_kernel_is_what_was_written() -> None:
    """Compiled or not; the test above looks at what is not."""
    metric = THREE["dense"]()
    x, p, _ = _trajectory(metric, X, P, 0.2, 3)
    native = (exact := TARGETS["skewed"]()).target.target()
    y, q, score = X.copy(), P.copy(), np.empty(3)
    log_density_gradient(native, y, score)
    splitting.split_steps.py_func(native, metric, y, q, score, np.empty(3), 0.2, 3)
    np.testing.assert_allclose(np.concatenate([y, q]), np.concatenate([x, p]), rtol=1e-12)
    assert exact.target.dim == 3


def test_both_forms_of_a_metric_give_one_trajectory() -> None:
    metric = _low_rank(3, 2, ratio=1.5)
    one, other = (_trajectory(form, X, P, 0.2, 5) for form in (metric, _of(as_matrix(metric))))
    for found, wanted in zip(one, other, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-9)


def test_trajectories_end_where_there_is_no_density() -> None:
    wall = stanadapt.Target.from_python(
        lambda x: -0.5 * float(x @ x) if x[0] < 1.0 else -np.inf, 3, lambda x: -x
    )
    native = wall.target()
    x, p, score = X.copy(), np.array([1.0, 0.0, 0.0]), -X
    assert splitting.split_steps(native, _of(np.eye(3)), x, p, score, np.empty(3), 1.0, 50) == (-np.inf, 2)


def _largest_energy_error(b: float) -> float:
    """Of one dimension of a standard Gaussian over 0 < h < 2.1, the mean over its stationary law.

    The largest over numbers of steps too: the bound of Blanes, Casas and Sanz-Serna (2014).
    """
    worst = 0.0
    for h in np.linspace(0.01, 2.1, 400):
        drift = np.array([[1.0, 0.5 * h], [0.0, 1.0]])
        outer, inner = (np.array([[1.0, 0.0], [-c * h, 1.0]]) for c in (b, 1.0 - 2.0 * b))
        step = outer @ drift @ inner @ drift @ outer
        worst = max(worst, (step[0, 1] + step[1, 0]) ** 2 / (2.0 * (1.0 - step[0, 0] ** 2)))
    return float(worst)


def test_the_coefficient_is_the_best_one() -> None:
    ours = _largest_energy_error(splitting.B)
    assert ours < min(_largest_energy_error(splitting.B + apart) for apart in (-0.01, -5e-4, 5e-4, 0.01))
    np.testing.assert_allclose([ours, _largest_energy_error(0.25)], [7e-4, 5e-2], rtol=0.06)


# ---- the step size


def _search(curve: Callable[[float], float], n: int, longest: float, begin: float) -> Any:
    """The search after `n` moves with noisy acceptances, and its step sizes."""
    rng = np.random.default_rng(1)
    search, h, steps = dual_averaging(begin), begin, []
    for _ in range(n):
        rate = min(1.0, max(0.0, curve(h) + rng.uniform(-0.2, 0.2)))
        search, h = average_step_size(search, rate, 0.8, longest)
        steps.append(h)
    return search, np.array(steps)


def _curve(h: float) -> float:
    """80 % at 0.47, and none of it left at 2."""
    return float(np.exp(-(h**2)))


@pytest.mark.parametrize("begin", [1e-3, 0.1, 1.9])
def test_search_finds_the_acceptance_it_aims_at(begin: float) -> None:
    search, _ = _search(_curve, 500, 1.9, begin)
    assert abs(_curve(final_step_size(search, 1.9)) - 0.8) < 0.05


def test_search_goes_no_further_than_the_longest_step() -> None:
    search, steps = _search(lambda h: 0.99, 200, 1.9, 0.5)
    assert steps.max() == 1.9
    assert final_step_size(search, 1.9) == 1.9


def test_search_comes_back_from_a_long_stay_at_the_longest_step() -> None:
    rates = iter(range(1_200))
    _, steps = _search(lambda h: 0.99 if next(rates) < 600 else _curve(h), 1_200, 1.9, 0.5)
    assert np.all(steps[100:600] == 1.9)
    assert np.all(steps[640:] < 1.0)
    assert abs(np.mean([_curve(h) for h in steps[700:]]) - 0.8) < 0.05


def test_the_diagonal_of_low_rank() -> None:
    rng = np.random.default_rng(8)
    directions = np.linalg.qr(rng.standard_normal((7, 3)))[0].T
    metric = Metric(
        np.empty((0, 0)), np.empty((0, 0)), rng.uniform(0.1, 3.0, 7), directions, np.array([0.1, 4.0, 30.0])
    )
    np.testing.assert_allclose(diagonal(metric), np.diag(as_matrix(metric)))
