"""Which form of metric fisher_hmc takes in many dimensions, on draws and along whole warm-ups."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cases import resolve
from rotated import Rotated
from stanadapt.numerics import metric as of_metric
from stanadapt.numerics import metric_choice
from stanadapt.numerics.metric import Metric, as_matrix, dense_metric, hessian_metric, learn_metric
from stanadapt.numerics.metric_choice import (
    begins_dense,
    choose_metric,
    curvature_metric,
    divergence,
    is_same,
    learn_dense,
    learn_diagonal,
    prune,
    unit_metric,
    whiten_by_metric,
)
from stanadapt.run.warmup import WarmUp, warm_up
from stanadapt.trace import empty_trace

NONE = np.empty((0, 0))


def _cov(rng: np.random.Generator, d: int, condition: float = 100.0) -> np.ndarray:
    vectors = np.linalg.qr(rng.normal(size=(d, d)))[0]
    return np.asarray((vectors * np.geomspace(1.0, condition, d)) @ vectors.T)


def _of(cov: np.ndarray) -> Metric:
    return dense_metric(np.linalg.cholesky(np.linalg.inv(cov)).T)


def _low_rank(rng: np.random.Generator, d: int, variances: Any) -> Metric:
    directions = np.linalg.qr(rng.normal(size=(d, len(variances))))[0].T
    return Metric(
        NONE, NONE, np.geomspace(0.1, 10.0, d), np.ascontiguousarray(directions), np.array(variances)
    )


def _gaussian(rng: np.random.Generator, n: int, cov: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    away = rng.normal(size=(n, len(cov))) @ np.linalg.cholesky(cov).T
    return away + 10.0, -np.linalg.solve(cov, away.T).T


def _form(metric: Metric) -> str:
    if len(metric.inverse_mass):
        return "dense"
    return "low rank" if len(metric.variances) else "diagonal"


# ---- candidates and how they are compared


def test_divergence_of_the_right_metric_is_zero() -> None:
    rng = np.random.default_rng(1)
    cov = _cov(rng, 6)
    points, scores = _gaussian(rng, 200, cov)
    assert divergence(_of(cov), points - points.mean(axis=0), scores - scores.mean(axis=0)) < 1e-20


@pytest.mark.parametrize("form", ["dense", "low rank"])
def test_divergence_counts_wrong_variances(form: str) -> None:
    """v + 1/v - 2 for each direction with the factor v, over d."""
    rng = np.random.default_rng(2)
    metric = _low_rank(rng, 6, [9.0, 0.2])
    if form == "dense":
        metric = _of(as_matrix(metric))
    ratio = np.array([1.0, 4.0, 0.5, 1.0, 0.1, 3.0])
    root = np.linalg.cholesky(as_matrix(metric))
    vectors = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    cov = root @ (vectors * ratio) @ vectors.T @ root.T
    points, scores = _gaussian(rng, 200_000, cov)
    np.testing.assert_allclose(divergence(metric, points, scores), (ratio + 1 / ratio - 2).mean(), rtol=0.02)


def test_what_has_no_divergence() -> None:
    rng = np.random.default_rng(3)
    points, scores = _gaussian(rng, 10, np.eye(4))
    assert divergence(None, points, scores) == np.inf
    assert divergence(unit_metric(4), points[:1], scores[:1]) == np.inf
    assert divergence(unit_metric(4), points * np.inf, scores) == np.inf
    assert learn_diagonal(points, 0.0 * scores) is None
    assert learn_diagonal(points[:2], scores[:2]) is None


def test_whitened_coordinates() -> None:
    rng = np.random.default_rng(4)
    metric = _low_rank(rng, 7, [5.0, 0.3])
    a = as_matrix(metric)
    for one in (metric, _of(a)):
        u, t = whiten_by_metric(one, np.eye(7), np.eye(7))  # x -> W^-1 x and s -> W^T s with A = W W^T
        np.testing.assert_allclose(u @ t.T, np.eye(7), atol=1e-9)
        np.testing.assert_allclose(t @ t.T, a, atol=1e-9)
        np.testing.assert_allclose(u @ u.T, np.linalg.inv(a), rtol=1e-7, atol=1e-7)


def test_directions_are_kept_while_they_are_worth_their_cost() -> None:
    rng = np.random.default_rng(5)
    strong = _low_rank(rng, 400, np.geomspace(10.0, 100.0, 30))
    assert len(prune(strong).variances) == 30
    assert len(prune(_low_rank(rng, 400, [])).variances) == 0
    many = _low_rank(rng, 400, np.concatenate([np.full(150, 1.6), [50.0, 0.02], np.full(150, 1 / 1.6)]))
    few = prune(many)
    np.testing.assert_array_equal(few.variances, [50.0, 0.02])
    np.testing.assert_array_equal(few.directions, many.directions[150:152])


# ---- the dense metric without a spectrum


def test_dense_metric_of_few_draws_solves_its_equation(monkeypatch: pytest.MonkeyPatch) -> None:
    """A s = -(x - mean) on all draws of a Gaussian, from another metric, and the factor is that of A^-1."""
    monkeypatch.setattr(of_metric, "PRIOR", 0.0)
    monkeypatch.setattr(of_metric, "CUTOFF", 1.0)
    rng = np.random.default_rng(6)
    points, scores = _gaussian(rng, 15, _cov(rng, 120))
    found = learn_dense(_of(_cov(rng, 120)), points, scores)
    assert found is not None
    away, pull = points - points.mean(axis=0), scores - scores.mean(axis=0)
    np.testing.assert_allclose(pull @ as_matrix(found), -away, atol=1e-6 * np.abs(away).max())
    inverse = found.chol_t.T @ found.chol_t
    np.testing.assert_allclose(as_matrix(found) @ inverse, np.eye(120), atol=1e-8)
    assert np.all(np.diag(found.chol_t) > 0.0)
    np.testing.assert_array_equal(found.chol_t, np.triu(found.chol_t))


def test_dense_metric_of_few_draws_stays_near_the_one_before() -> None:
    """Beyond the span of the draws it is the present metric, up to the units."""
    rng = np.random.default_rng(7)
    cov = _cov(rng, 120)
    points, scores = _gaussian(rng, 40, cov)
    found = learn_dense(_of(cov), points, scores)
    assert found is not None
    np.testing.assert_allclose(np.linalg.eigvals(np.linalg.solve(cov, as_matrix(found))).real, 1.0, rtol=1e-6)
    assert learn_dense(_of(cov), 0.0 * points, scores) is None


def test_many_draws_are_learnt_from_as_before() -> None:
    rng = np.random.default_rng(8)
    points, scores = _gaussian(rng, 90, _cov(rng, 120))
    one, other = (learn(_of(np.eye(120)), points, scores) for learn in (learn_dense, learn_metric))
    assert one is not None
    assert other is not None
    np.testing.assert_array_equal(one.inverse_mass, other.inverse_mass)


def test_curvature_of_a_log_concave_density_and_of_another() -> None:
    rng = np.random.default_rng(9)
    precision = np.linalg.inv(_cov(rng, 8))
    found, wanted = curvature_metric(-precision), hessian_metric(-precision)
    assert found is not None
    assert wanted is not None
    np.testing.assert_allclose(found.inverse_mass, wanted.inverse_mass, rtol=1e-8)
    np.testing.assert_allclose(found.chol_t, wanted.chol_t, rtol=1e-8, atol=1e-12)
    saddle = -precision + np.diag([0.5, *[0.0] * 7])
    assert np.linalg.eigvalsh(saddle)[-1] > 0.0
    found, wanted = curvature_metric(saddle), hessian_metric(saddle)
    assert found is not None
    assert wanted is not None
    np.testing.assert_array_equal(found.inverse_mass, wanted.inverse_mass)
    for nothing in (np.full((2, 2), np.nan), np.zeros((2, 2)), np.diag([-1.0, 0.0])):
        assert curvature_metric(nothing) is None


# ---- whether two metrics agree


@pytest.mark.parametrize("form", ["dense", "low rank"])
def test_metrics_that_agree_and_that_do_not(form: str) -> None:
    rng = np.random.default_rng(10)
    one = _low_rank(rng, 30, [8.0, 0.3])
    vectors = np.linalg.qr(one.directions.T)[0].T
    other = one._replace(variances=one.variances * np.array([1.4, 1 / 1.4]), directions=one.directions)
    apart = one._replace(directions=np.ascontiguousarray(vectors[:1]), variances=one.variances[:1])
    points = rng.normal(size=(100, 30)) * one.scale
    moved = points + np.where(np.arange(100) < 50, 0.0, 1.0)[:, None] * one.scale
    if form == "dense":
        one, other, apart = (_of(as_matrix(metric)) for metric in (one, other, apart))
    assert is_same(one, other, points, 50, np.log(1.45), 3.0)
    assert not is_same(one, other, points, 50, np.log(1.35), 3.0)
    assert not is_same(other, one, points, 50, np.log(1.35), 3.0)
    assert not is_same(one, apart, points, 50, np.log(1.5), 3.0)
    assert not is_same(one, one, moved, 50, np.log(1.5), 3.0)
    assert not is_same(one, unit_metric(30) if form == "dense" else _of(np.eye(30)), points, 50, 9.0, 3.0)


# ---- what is chosen from draws


def _choice(law: Rotated, metric: Metric, hessian: np.ndarray = NONE, gradients: float = 40.0) -> Any:
    points, scores = law.draw(np.random.default_rng(11), 70)
    return choose_metric(metric, hessian, points, scores, 30, gradients=gradients)


def test_a_diagonal_is_chosen_where_nothing_is_correlated() -> None:
    law = Rotated(388, layers=0)
    metric, wanted = _choice(law, unit_metric(388))
    assert _form(metric) == "diagonal"
    assert not wanted
    np.testing.assert_allclose(metric.scale, law.sd, rtol=1e-9)
    # Nor does a Hessian that is there already make it dense, since it is not better.
    assert _form(_choice(law, unit_metric(388), -law.precision)[0]) == "diagonal"


def test_few_directions_are_chosen_where_there_are_few() -> None:
    """Two of 200, found from 140 draws; with 70 the variances along them are off by 8 to 11."""
    rng = np.random.default_rng(12)
    law = _low_rank(rng, 200, [50.0, 0.02])
    points, scores = _gaussian(rng, 140, as_matrix(law))
    metric, _ = choose_metric(unit_metric(200), NONE, points, scores, 60, gradients=40.0)
    assert _form(metric) == "low rank"
    assert 2 <= len(metric.variances) <= 20
    ratio = np.linalg.eigvals(np.linalg.solve(as_matrix(law), as_matrix(metric))).real
    assert 1 / 7 < ratio.min() < ratio.max() < 7.0


def test_the_hessian_is_wanted_and_taken_where_draws_do_not_tell() -> None:
    law = Rotated(300)
    metric, wanted = _choice(law, unit_metric(300))
    assert wanted
    assert _form(metric) != "dense"
    metric, wanted = _choice(law, metric, -law.precision)
    assert _form(metric) == "dense"
    assert not wanted
    again, wanted = _choice(law, metric)
    assert _form(again) == "dense"
    assert not wanted


def test_a_wrong_hessian_is_refused_and_a_wrong_dense_metric_given_up() -> None:
    law, other = Rotated(300, layers=0), Rotated(300)
    assert _form(_choice(law, unit_metric(300), -other.precision)[0]) == "diagonal"
    wrong = curvature_metric(-other.precision)
    assert wrong is not None
    assert _form(_choice(law, wrong)[0]) == "diagonal"


@pytest.mark.parametrize(("d", "gradients"), [(300, 4.0), (300, 0.0), (2_100, 128.0)])
def test_no_hessian_is_wanted_where_it_cannot_pay(d: int, gradients: float) -> None:
    """Where trajectories are short, none may be taken, or matrices would be too large."""
    assert not _choice(Rotated(d), unit_metric(d), gradients=gradients).wanted


# ---- what is chosen in warm-up


def _begins_dense(law: Rotated, **settings: Any) -> bool:
    _model, target = law.target()
    x = np.random.default_rng(13).normal(size=law.d)
    return bool(begins_dense(target, resolve("fisher_hmc", settings)[1], x, np.random.default_rng(14)))


def test_what_begins_dense() -> None:
    assert _begins_dense(Rotated(100, layers=0))
    assert not _begins_dense(Rotated(388, layers=0))
    assert _begins_dense(Rotated(388))
    assert _begins_dense(Rotated(1_000))
    assert not _begins_dense(Rotated(1_000), curvature=False)
    assert not _begins_dense(Rotated(3_000))


def _warm_up(law: Rotated, warmup: int) -> tuple[Any, WarmUp]:
    sampler, settings = resolve("fisher_hmc", {})
    model, target = law.target()
    x = np.random.default_rng(15).normal(size=law.d)
    return model, warm_up(sampler, settings, target, x, np.random.default_rng(16), warmup)


def test_no_matrix_is_made_where_a_diagonal_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """No algebra of O(d³) in the whole of warm-up, which settles nevertheless."""
    for name in ("compress", "curvature_metric", "hessian_metric", "learn_dense"):
        monkeypatch.setattr(metric_choice, name, None)
    _model, driver = _warm_up(Rotated(388, layers=0), 600)
    state = driver.finish()
    assert _form(state.metric) == "diagonal"
    assert len(state.hessian) == 0
    assert driver.place.stage < 5


def test_warm_up_on_a_rotated_gaussian_learns_it() -> None:
    law = Rotated(300)
    model, driver = _warm_up(law, 600)
    state = driver.finish()
    assert _form(state.metric) == "dense"
    np.testing.assert_allclose(
        np.linalg.eigvals(state.metric.inverse_mass @ law.precision).real, 1.0, atol=0.02
    )
    assert np.exp(state.search.log_average) > 0.8  # the smallest of 24 other seeds was 1.2
    del model


def test_a_hessian_that_is_asked_for_is_taken_where_the_window_begins() -> None:
    sampler, settings = resolve("fisher_hmc", {})
    law = Rotated(150)
    _model, target = law.target()
    x, rng = np.random.default_rng(17).normal(size=150), np.random.default_rng(18)
    state = sampler.start(target, settings, x, rng)
    asked = state._replace(hessian=np.full((150, 150), np.nan))
    after = sampler.sweep(target, settings, asked, rng, True, empty_trace(3, 150))
    np.testing.assert_allclose(after.hessian, -law.precision, atol=1e-6)
    kept = after.hessian.copy()
    again = sampler.sweep(target, settings, after, rng, True, empty_trace(3, 150))
    np.testing.assert_array_equal(again.hessian, kept)


def test_draws_depend_on_the_seed_alone_and_not_on_blocks() -> None:
    ends = []
    for cut in (1_000, 7):
        _model, driver = _warm_up(Rotated(150), 100)
        while driver.n_left or driver.next_stage():
            driver.run(driver.room(min(cut, driver.n_left)))
        ends.append(driver.state.x)
    np.testing.assert_array_equal(*ends)
