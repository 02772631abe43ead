"""Suite 3, continued: what each method learns, against its paper's formulas and finite differences."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import linalg

import stanadapt
from cases import kernel_methods, resolve
from exact import TARGETS
from stanadapt import samplers
from stanadapt.numerics import cholesky, covariance, leapfrog, speed_measure
from stanadapt.numerics.softabs import softabs, softabs_metric
from stanadapt.run.warmup import warm_up
from stanadapt.samplers import am, arwmh, gad, gad_mala_exact, gad_mala_fast, gad_rwm, mmala
from stanadapt.target import hessian, hessian_vector, log_density, log_density_gradient
from stanadapt.trace import Trace, empty_trace

D = 3
SIZES = [1, 2, 3, 8]


def _lower(rng: np.random.Generator, d: int) -> np.ndarray:
    return np.tril(rng.normal(size=(d, d)), -1) + np.diag(rng.uniform(0.5, 2.0, d))


def _t(matrix: np.ndarray) -> np.ndarray:
    """As the package keeps factors."""
    return np.ascontiguousarray(matrix.T)


def _learning(method: str, settings: dict[str, Any], n: int, stage: str = "") -> tuple[Any, Any, Any, Trace]:
    """A sampler before and after `n` adapting iterations on the skewed target, settings, and the trace."""
    sampler, resolved = resolve(method, settings)
    exact, rng = TARGETS["skewed"](), np.random.default_rng(4)
    target = exact.target.target()
    before = sampler.start(target, resolved, np.array([0.3, -0.2, 0.5]), rng)
    first = samplers.enter(sampler, stage or sampler.stages(resolved, 1_000, D)[0].name, before, resolved)
    trace = empty_trace(n, D)
    return first, resolved, sampler.sweep(target, resolved, first, rng, True, trace), trace


# ---- numerics


@pytest.mark.parametrize("d", SIZES)
def test_triangular_solve(d: int) -> None:
    rng = np.random.default_rng(d)
    factor, v = _lower(rng, d), rng.normal(size=d)
    wanted = linalg.solve_triangular(factor, v, lower=True)
    cholesky.solve_lower(_t(factor), v)
    np.testing.assert_allclose(v, wanted, rtol=1e-10)


@pytest.mark.parametrize("d", SIZES)
def test_factor_moves_towards_an_outer_product(d: int) -> None:
    """Titsias and Dellaportas (2019), supplement, Section B: L + rho L [v v^T - I]_lower."""
    rng = np.random.default_rng(d)
    factor, v, rho = _lower(rng, d), rng.normal(size=d), 0.07
    wanted = factor + rho * factor @ np.tril(np.outer(v, v) - np.eye(d))
    chol_t = _t(factor)
    cholesky.follow_outer(chol_t, v, rho)
    np.testing.assert_allclose(chol_t.T, wanted, rtol=1e-12, atol=1e-14)


def test_covariance_recursion_keeps_weighs_and_rescales() -> None:
    rng = np.random.default_rng(1)
    factor = _lower(rng, D)
    sigma, mean = factor @ factor.T, rng.normal(size=D)
    chol_t, scale, trace, mu = _t(factor), 1.0, float(np.trace(sigma)), mean.copy()
    for i in range(40):
        x, keep, weight = rng.normal(size=D), 1e-6 if i % 7 == 0 else 0.8, 0.3
        sigma = keep * sigma + weight * np.outer(x - mean, x - mean)
        mean = mean + 0.1 * (x - mean)
        scale, trace = covariance.learn_point(mu, chol_t, scale, trace, x, keep, weight, 0.1)
    np.testing.assert_allclose(scale * chol_t.T @ chol_t, sigma, rtol=1e-9)
    np.testing.assert_allclose(scale * trace, np.trace(sigma), rtol=1e-9)
    np.testing.assert_allclose(mu, mean, rtol=1e-12)


def test_hessian_is_the_derivative_of_the_gradient() -> None:
    exact = TARGETS["gaussian"]()
    found = np.empty((D, D))
    assert hessian(exact.target.target(), np.array([0.3, -40.0, 1e-3]), found)
    from exact import PRECISION

    np.testing.assert_allclose(found, -PRECISION, rtol=1e-7, atol=1e-8)

    curved = TARGETS["skewed"]()
    target, x, h = curved.target.target(), np.array([0.3, -0.5, 0.2]), 1e-5
    assert hessian(target, x, found)
    for i in range(D):
        for j in range(D):
            e, f = h * np.eye(D)[i], h * np.eye(D)[j]
            corners = [log_density(target, x + a * e + b * f) for a in (1, -1) for b in (1, -1)]
            second = (corners[0] - corners[1] - corners[2] + corners[3]) / (4 * h * h)
            np.testing.assert_allclose(found[i, j], second, rtol=1e-3, atol=1e-3)
    u, along = np.array([2.0, -1.0, 0.5]), np.empty(D)
    assert hessian_vector(target, x, u, along)
    np.testing.assert_allclose(along, found @ u, rtol=1e-6, atol=1e-8)


def _edge(score: Callable[[np.ndarray], np.ndarray]) -> Any:
    return stanadapt.Target.from_python(lambda x: -0.5 * float(x @ x), 2, score)


def test_hessian_next_to_points_without_a_gradient_is_reported() -> None:
    model = _edge(lambda x: np.full(2, np.nan) if x[1] > 1.0 else -x)
    target, out = model.target(), np.empty((2, 2))
    assert hessian(target, np.array([0.0, 0.5]), out)
    assert not hessian(target, np.array([0.0, 1.0]), out)
    assert not hessian_vector(target, np.array([0.0, 1.0]), np.array([0.0, 1.0]), np.empty(2))
    settings = resolve("mmala", {})[1]
    assert mmala.state_at(target, settings, np.array([0.0, 1.0]), 1.0).logp == -np.inf
    assert mmala.state_at(target, settings, np.array([0.0, 0.5]), 1.0).logp > -np.inf


def test_softabs() -> None:
    values = np.array([-300.0, -1.0, -1e-3, 0.0, 1e-9, 1e-5, 2.0, 1e8])
    found = np.array([softabs(value, 10.0) for value in values])
    with np.errstate(all="ignore"):
        wanted = values / np.tanh(10.0 * values)
    wanted[values == 0.0] = 0.1
    np.testing.assert_allclose(found, wanted, rtol=1e-9)


@pytest.mark.parametrize("definite", [True, False])
@pytest.mark.parametrize("d", SIZES)
def test_softabs_metric_and_its_root(d: int, definite: bool) -> None:
    """Both ways to the root: by Cholesky where -H is positive definite, and by eigenvectors."""
    rng = np.random.default_rng(d)
    a = rng.normal(size=(d, d))
    h, alpha = -(a @ a.T + 5.0 * np.eye(d)) if definite else a + a.T + np.eye(d), 5.0
    metric, root_t = np.empty((d, d)), np.empty((d, d))
    log_det = softabs_metric(h, alpha, metric, root_t)
    values, vectors = np.linalg.eigh(-h)
    wanted = vectors @ np.diag(values / np.tanh(alpha * values)) @ vectors.T
    np.testing.assert_allclose(metric, wanted, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(root_t.T @ root_t, np.linalg.inv(wanted), rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(log_det, np.linalg.slogdet(wanted)[1], rtol=1e-9)


@pytest.mark.parametrize("d", SIZES)
def test_factor_and_its_inverse(d: int) -> None:
    rng = np.random.default_rng(d)
    a = rng.normal(size=(d, d))
    cov, chol_t, inverse = a @ a.T + np.eye(d), np.full((d, d), np.nan), np.full((d, d), np.nan)
    assert cholesky.factorise(cov, 0.5, chol_t)
    factor = np.linalg.cholesky(cov - 0.5 * np.eye(d))
    np.testing.assert_allclose(chol_t.T, factor, rtol=1e-10, atol=1e-12)
    cholesky.invert_lower(chol_t, inverse)
    np.testing.assert_allclose(inverse, np.linalg.inv(factor), rtol=1e-9, atol=1e-10)
    assert not cholesky.factorise(cov, np.linalg.eigvalsh(cov)[0] * (1 + 1e-9), chol_t)
    assert not cholesky.factorise(np.full((d, d), np.nan), 0.0, chol_t)


def test_singular_hessian_has_a_metric() -> None:
    """A flat direction: the metric has 1 / alpha there, and the sampler goes on."""
    model = _edge(lambda x: np.array([-x[0], 0.0]))
    settings = resolve("mmala", {"softabs": 100.0})[1]
    state = mmala.state_at(model.target(), settings, np.array([0.5, 0.5]), 1.0)
    np.testing.assert_allclose(np.linalg.eigvalsh(state.metric), [0.01, 1.0], rtol=1e-6)
    assert np.all(np.isfinite(state.root_t))


def _end(target: Any, x: np.ndarray, p: np.ndarray, epsilon: float, n: int) -> tuple[np.ndarray, float, int]:
    y, momentum, score = x.copy(), p.copy(), np.empty_like(x)
    log_density_gradient(target, y, score)
    logp, taken = leapfrog.leapfrog(target, y, momentum, score, epsilon, n)
    return np.concatenate([y, momentum]), logp, taken


def test_leapfrog_is_reversible_keeps_volume_and_nearly_energy() -> None:
    exact = TARGETS["skewed"]()
    target, rng = exact.target.target(), np.random.default_rng(5)
    x, p = 0.3 * rng.normal(size=D), rng.normal(size=D)
    there, logp, taken = _end(target, x, p, 0.1, 7)
    assert taken == 7
    assert logp == log_density_gradient(target, there[:D], np.empty(D))
    back, _, _ = _end(target, there[:D], -there[D:], 0.1, 7)
    np.testing.assert_allclose(back, np.concatenate([x, -p]), rtol=1e-9, atol=1e-10)

    z, h = np.concatenate([x, p]), 1e-6
    jacobian = np.array(
        [(_end(target, *np.split(z + h * e, 2), 0.1, 7)[0] - there) / h for e in np.eye(2 * D)]
    )
    np.testing.assert_allclose(np.linalg.det(jacobian), 1.0, rtol=1e-4)

    energy = 0.5 * p @ p - log_density(target, x)
    errors = []
    for n in (8, 16):
        end, logp, _ = _end(target, x, p, 0.8 / n, n)
        errors.append(abs(0.5 * end[D:] @ end[D:] - logp - energy))
    assert 3.0 < errors[0] / errors[1] < 5.0  # second order


def test_trajectory_ends_where_there_is_no_density() -> None:
    model = _edge(lambda x: np.full(2, np.nan) if x[0] > 0.35 else -x)
    _, logp, taken = _end(model.target(), np.zeros(2), np.array([1.0, 0.0]), 0.1, 50)
    assert logp == -np.inf
    assert taken == 4


# ---- am, arwmh, amala


def test_am_recursion() -> None:
    """Andrieu and Thoms (2008), Section 5.1.1, point by point, with the learning rate 0.001 / (1 + t/T)."""
    first, settings, after, trace = _learning("am", {"horizon": 50.0, "learning_rate": 0.01}, 200)
    mean, factor = trace.x[0] * 0 + np.array([0.3, -0.2, 0.5]), 0.1 / np.sqrt(D) * np.eye(D)
    for t, x in enumerate(trace.x, start=1):
        rho = 0.01 / (1 + t / 50.0)
        v = np.linalg.solve(factor, x - mean)
        factor = factor + rho * factor @ np.tril(np.outer(v, v) - np.eye(D))
        mean = mean + rho * (x - mean)
    np.testing.assert_allclose(after.chol_t.T, factor, rtol=1e-8)
    np.testing.assert_allclose(after.mean, mean, rtol=1e-10)
    assert first.step_size == 1.0
    assert after.step_size != 1.0
    assert am.Settings().learning_rate == 0.001
    assert am.Settings().horizon == 4000.0
    assert settings.horizon == 50.0


def test_arwmh_recursion() -> None:
    """Algorithm 3, with gamma_i = (i + 1)^-beta from i = 1 on."""
    _, _, after, trace = _learning("arwmh", {"beta": 0.7}, 200)
    log_lambda, mean, sigma = 0.0, np.array([0.3, -0.2, 0.5]), np.eye(D)
    for i, (x, accept_prob) in enumerate(zip(trace.x, trace.accept_prob, strict=True), start=1):
        gamma = (i + 1) ** -0.7
        log_lambda += gamma * (accept_prob - 0.234)
        sigma = sigma + gamma * (np.outer(x - mean, x - mean) - sigma)
        mean = mean + gamma * (x - mean)
    np.testing.assert_allclose(after.step_size**2, np.exp(log_lambda), rtol=1e-9)
    np.testing.assert_allclose(after.scale * after.chol_t.T @ after.chol_t, sigma, rtol=1e-8)
    np.testing.assert_allclose(after.mean, mean, rtol=1e-9)


@pytest.mark.parametrize("stage", ["forgetting", "covariance"])
def test_ada_mala_recursion(stage: str) -> None:
    """Equation (17) of Titsias (2023) for the points of the trace; the second one keeps all of lambda I."""
    first, settings, after, trace = _learning("ada_mala", {}, 200, stage)
    mean, sigma, n = np.array([0.3, -0.2, 0.5]), settings.damping * np.eye(D), 1.0
    most = settings.memory * D if stage == "forgetting" else np.inf
    square = first.step_size**2
    for x, accept_prob in zip(trace.x, trace.accept_prob, strict=True):
        n = min(n + 1.0, most)
        keep = (n - 2.0) / (n - 1.0) if n > 2.0 else 1.0
        sigma = keep * sigma + np.outer(x - mean, x - mean) / n
        mean = mean + (x - mean) / n
        square *= 1.0 + settings.step_rate * (accept_prob - settings.target_accept)
    assert 0 < trace.accepted.mean() < 1
    assert after.n == n
    np.testing.assert_allclose(after.mean, mean, rtol=1e-9)
    np.testing.assert_allclose(after.scale * after.chol_t.T @ after.chol_t, sigma, rtol=1e-8)
    np.testing.assert_allclose(after.scale * after.tr, np.trace(sigma), rtol=1e-8)
    np.testing.assert_allclose(after.step_size**2, square, rtol=1e-9)


@pytest.mark.parametrize("faithful", [False, True])
def test_gad_rwm_recursion(faithful: bool) -> None:
    """Algorithm 1 of Titsias and Dellaportas (2019) with the random numbers of the chain, in plain NumPy."""
    _, _, after, trace = _learning("gad_rwm", {"faithful": faithful, "initial_scale": 1.5}, 2_000)
    exact, rng = TARGETS["skewed"](), np.random.default_rng(4)
    target = exact.target.target()
    x, beta = np.array([0.3, -0.2, 0.5]), 1.0
    factor, square = 1.5 / np.sqrt(D) * np.eye(D), np.full((D, D), 0.01)
    eta = 0.00005 if faithful else 0.001
    logp, score_y, rejections = log_density(target, x), np.empty(D), 0
    for row, accept_prob in zip(trace.x, trace.accept_prob, strict=True):
        eps = rng.standard_normal(D)
        y = x + factor @ eps
        logp_y = log_density_gradient(target, y, score_y)
        np.testing.assert_allclose(accept_prob, np.exp(min(0.0, logp_y - logp)), rtol=1e-6)
        slope = beta * np.diag(1.0 / np.diag(factor))
        if logp_y < logp:
            slope = slope + np.tril(np.outer(score_y, eps))
        units = np.ones((D, 1)) if faithful else np.linalg.norm(factor, axis=1, keepdims=True)
        square = 0.9 * square + 0.1 * (units * slope) ** 2
        factor = factor + units * eta / (1.0 + np.sqrt(square)) * units * slope
        accepted = bool(rng.random() < accept_prob)
        beta *= 1.0 + 0.02 * (accepted - 0.25)
        if not faithful:
            beta = min(max(beta, 0.001), 10.0)
        if accepted:
            x, logp = y, logp_y
        rejections += not accepted
        np.testing.assert_allclose(row, x, rtol=1e-6, atol=1e-9)
    assert 200 < rejections < 1_800
    np.testing.assert_allclose(after.chol_t.T, factor, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(after.beta, beta, rtol=1e-9)


GAUSSIAN = TARGETS["gaussian"]()


@pytest.mark.parametrize("stage", ["forgetting", "fisher"])
def test_fisher_mala_recursion(stage: str) -> None:
    """Algorithm 1 of Titsias (2023) with the random numbers of the chain, in plain NumPy; f < 1 forgets."""
    settings = {"initial_step_size": 1.0, "damping": 2.0, "memory": 3.0}
    _, _, after, trace = _learning("fisher_mala", settings, 200, stage)
    exact, rng = TARGETS["skewed"](), np.random.default_rng(4)
    target, x, root, sigma = exact.target.target(), np.array([0.3, -0.2, 0.5]), np.eye(D) / np.sqrt(2.0), 1.0
    score, score_y, inverse = np.empty(D), np.empty(D), 2.0 * np.eye(D)
    logp = log_density_gradient(target, x, score)
    for row, accept_prob in zip(trace.x, trace.accept_prob, strict=True):
        a = root @ root.T
        s = sigma / np.sqrt(np.trace(a) / D)
        y = x + 0.5 * s**2 * a @ score + s * root @ rng.standard_normal(D)
        logp_y = log_density_gradient(target, y, score_y)
        there, back = y - x - 0.5 * s**2 * a @ score, x - y - 0.5 * s**2 * a @ score_y
        ratio = 0.5 * (there @ np.linalg.solve(a, there) - back @ np.linalg.solve(a, back)) / s**2
        np.testing.assert_allclose(
            accept_prob, np.exp(min(0.0, logp_y - logp + ratio)), rtol=1e-5, atol=1e-12
        )
        signal = np.sqrt(accept_prob) * (score_y - score)
        forget = 1.0 - accept_prob / (3.0 * D) if stage == "forgetting" else 1.0
        inverse = forget * inverse + np.outer(signal, signal)
        root = root / np.sqrt(forget)
        phi = root.T @ signal
        r = 1.0 / (1.0 + np.sqrt(1.0 / (1.0 + phi @ phi)))
        root = root - r / (1.0 + phi @ phi) * np.outer(root @ phi, phi)
        sigma *= np.sqrt(1.0 + 0.015 * (accept_prob - 0.574))
        if rng.random() < accept_prob:
            x, logp, score, score_y = y, logp_y, score_y, score
        np.testing.assert_allclose(row, x, rtol=1e-5, atol=1e-8)
    assert 0 < trace.accepted.mean() < 1
    np.testing.assert_allclose(np.linalg.inv(after.root_t.T @ after.root_t), inverse, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(after.step_size, sigma, rtol=1e-6)


def _after_warmup(method: str, settings: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    """A sampler, its settings, a target and the state after a warm-up on the correlated Gaussian."""
    sampler, resolved = resolve(method, settings)
    target, rng = GAUSSIAN.target.target(), np.random.default_rng(4)
    driver = warm_up(sampler, resolved, target, np.array([0.3, -0.2, 1.0]), rng, 1_200)
    return sampler, resolved, target, driver.finish()


@pytest.mark.parametrize("step_rate", [1.0, 0.3])
def test_kamh_step_size_recursion(step_rate: float) -> None:
    """log nu² <- log nu² + gain t^-1/2 (alpha - alpha*), t iterations after the coordinates were learnt."""
    settings = {"subsample": 40, "step_rate": step_rate}
    sampler, resolved, target, state = _after_warmup("kamh", settings)
    assert state.points_t.size
    n, nu = state.n, state.step_size
    trace = empty_trace(200, D)
    after = sampler.sweep(target, resolved, state, np.random.default_rng(5), True, trace)
    for accept_prob, found in zip(trace.accept_prob, trace.step_size, strict=True):
        n += 1.0
        nu *= np.exp(0.5 * step_rate * n**-0.5 * (accept_prob - resolved.target_accept))
        np.testing.assert_allclose(found, nu, rtol=1e-9)
    assert after.n == n
    assert np.ptp(trace.accept_prob) > 0.5


@pytest.mark.parametrize("method", ["kmc_lite", "kmc_finite"])
def test_kmc_step_size_recursion(method: str) -> None:
    """log epsilon <- log epsilon + t^-1/2 (alpha - alpha*), t trajectories after all was learnt anew."""
    settings = {"faithful": True} | ({"basis": 30} if method == "kmc_finite" else {"subsample": 40})
    sampler, resolved, target, state = _after_warmup(method, settings)
    assert state.surrogate.weights.size
    n, flow = state.steps.n_flow, state.steps.flow
    trace = empty_trace(200, D)
    after = samplers.advance(sampler, target, resolved, state, np.random.default_rng(5), True, trace)
    for accept_prob, found in zip(trace.accept_prob, trace.step_size, strict=True):
        n += 1.0
        flow *= np.exp(resolved.step_rate * n**-0.5 * (accept_prob - resolved.target_accept))
        np.testing.assert_allclose(found, flow, rtol=1e-9)
    assert resolved.step_rate == 1.0
    assert after.steps.n_flow == n
    assert np.ptp(trace.accept_prob) > 0.5


def test_arwmh_tries_exponents_from_one_place_and_keeps_the_fastest() -> None:
    sampler, settings = resolve("arwmh", {})
    exact, rng = TARGETS["gaussian"](), np.random.default_rng(6)
    target = exact.target.target()
    state = sampler.start(target, settings, np.zeros(D), rng)
    stages = sampler.stages(settings, 10_000, D)
    assert [stage.length for stage in stages] == [2_000, *[1_000] * 5, 3_000]
    origin, speeds, ends = None, {}, {}
    for stage in stages:
        state = samplers.enter(sampler, stage.name, state, settings)
        if stage.name == "covariance":
            break
        if stage.name.startswith("beta"):
            origin = state.x.copy() if origin is None else origin
            np.testing.assert_array_equal(state.x, origin)
            assert state.i == 2_000.0
            assert state.beta == float(stage.name.removeprefix("beta_"))
        trace = empty_trace(stage.length, D)
        state = sampler.sweep(target, settings, state, rng, True, trace)
        volume = np.linalg.slogdet(state.scale * state.step_size**2 * state.chol_t.T @ state.chol_t)[1] / D
        found = arwmh.log_volume(state.chol_t, state.scale, state.step_size)
        np.testing.assert_allclose(found, volume, rtol=1e-9)
        if stage.name.startswith("beta"):
            assert state.n == stage.length
            np.testing.assert_allclose(state.accepted, trace.accept_prob.sum(), rtol=1e-12)
            speeds[state.beta] = np.log(state.accepted / state.n) + state.volume / state.n
            ends[state.beta] = state.x.copy()
    best = max(speeds, key=speeds.__getitem__)
    assert state.beta == best
    np.testing.assert_array_equal(state.x, ends[best])


@pytest.mark.parametrize("faithful", [False, True])
def test_amala_epochs(faithful: bool) -> None:
    """Algorithm 5: Sigma <- alpha Sigma + (1 - alpha) cov, epsilon <- epsilon exp(rho - 0.574)."""
    first, settings, after, trace = _learning("amala", {"faithful": faithful}, 300)
    if faithful:
        assert first.step_size == np.sqrt(2.0)
        assert after.step_size == first.step_size
    then = resolve("amala", {})[0].enter("epoch_1", after, settings)
    cov = 0.3 * np.eye(D) + 0.7 * np.cov(trace.x.T)
    np.testing.assert_allclose(then.cov, cov, rtol=1e-9)
    np.testing.assert_allclose(then.chol_t.T @ then.chol_t, cov, rtol=1e-9)
    np.testing.assert_allclose(then.rotated, then.chol_t @ then.score, rtol=1e-12)
    epsilon, before = then.step_size**2 / 2, after.step_size**2 / 2
    moved = np.exp(trace.accept_prob.mean() - 0.574) if faithful else 1.0
    np.testing.assert_allclose(epsilon, before * moved, rtol=1e-12)
    assert then.n == 0.0


def test_amala_has_ten_epochs_of_a_thousand() -> None:
    sampler, settings = resolve("amala", {})
    stages = sampler.stages(settings, sampler.FACTS.warmup, D)
    assert [stage.length for stage in stages] == [1_000] * 10


# ---- gradient-based adaptation

X = np.array([0.3, -0.5, 0.2])
EPS = np.array([1.2, -0.4, -1.5])


def _ratio(target: Any, factor: np.ndarray, langevin: bool, stopped: np.ndarray | None = None) -> float:
    """The log ratio as a function of L, with eps fixed; `stopped` is grad(y) held constant."""
    score, score_y = np.empty(D), np.empty(D)
    logp = log_density_gradient(target, X, score)
    y = X + factor @ EPS + (0.5 * factor @ factor.T @ score if langevin else 0.0)
    logp_y = log_density_gradient(target, y, score_y)
    if not langevin:
        return float(logp_y - logp)
    end = score_y if stopped is None else stopped
    w = 0.5 * factor.T @ (score + end) + EPS
    return float(logp_y - logp - 0.5 * (w @ w - EPS @ EPS))


def _numerical(function: Callable[[np.ndarray], float], factor: np.ndarray) -> np.ndarray:
    gradient, h = np.zeros((D, D)), 1e-6
    for i in range(D):
        for j in range(i + 1):
            e = np.zeros((D, D))
            e[i, j] = h
            gradient[i, j] = (function(factor + e) - function(factor - e)) / (2 * h)
    return gradient


@pytest.mark.parametrize("name", TARGETS)
def test_learning_gradients_against_finite_differences(name: str) -> None:
    exact = TARGETS[name]()
    target = exact.target.target()
    factor = 0.7 * _lower(np.random.default_rng(3), D)
    chol_t = _t(factor)
    score, score_y = np.empty(D), np.empty(D)
    log_density_gradient(target, X, score)

    # gad_rwm: grad(y) eps^T
    y = X + factor @ EPS
    log_density_gradient(target, y, score_y)
    wanted = _numerical(lambda f: _ratio(target, f, langevin=False), factor)
    np.testing.assert_allclose(np.tril(np.outer(score_y, EPS)), wanted, rtol=1e-5, atol=1e-6)

    v = 0.5 * factor.T @ score + EPS
    y = X + factor @ v
    log_density_gradient(target, y, score_y)
    rotated_y = factor.T @ score_y

    # gad_mala_fast: grad(y) in the ratio of the proposals is taken as constant
    left, right = np.zeros((1, D)), np.zeros((1, D))
    assert gad_mala_fast.ratio_gradient(target, chol_t, score, y, score_y, v, rotated_y, left, right)
    wanted = _numerical(lambda f: _ratio(target, f, langevin=True, stopped=score_y), factor)
    np.testing.assert_allclose(np.tril(left.T @ right), wanted, rtol=1e-5, atol=1e-6)

    # gad_mala_exact: nothing is
    left, right = np.zeros((3, D)), np.zeros((3, D))
    assert gad_mala_exact.ratio_gradient(target, chol_t, score, y, score_y, v, rotated_y, left, right)
    wanted = _numerical(lambda f: _ratio(target, f, langevin=True), factor)
    np.testing.assert_allclose(np.tril(left.T @ right), wanted, rtol=1e-4, atol=1e-5)
    if name != "gaussian":
        stopped = _numerical(lambda f: _ratio(target, f, langevin=True, stopped=score_y), factor)
        assert np.abs(wanted - stopped).max() > 1e-3  # so that the two can be told apart


@pytest.mark.parametrize("faithful", [True, False])
@pytest.mark.parametrize("terms", [1, 3])
def test_rmsprop_as_printed(terms: int, faithful: bool) -> None:
    rng = np.random.default_rng(7)
    factor, square = _lower(rng, D), np.tril(rng.uniform(0.0, 1.0, (D, D)))
    left, right, beta, eta = rng.normal(size=(terms, D)), rng.normal(size=(terms, D)), 0.8, 0.003
    chol_t, square_t = _t(factor), _t(square)
    speed_measure.climb_speed(chol_t, square_t, left, right, beta, eta, faithful)
    units = np.ones((D, 1)) if faithful else np.linalg.norm(factor, axis=1, keepdims=True)
    gradient = units * (np.tril(left.T @ right) + beta * np.diag(1 / np.diag(factor)))
    g = np.tril(0.9 * square + 0.1 * gradient**2)
    np.testing.assert_allclose(np.tril(square_t.T), g, rtol=1e-12)
    np.testing.assert_allclose(chol_t.T, factor + units * eta / (1 + np.sqrt(g)) * gradient, rtol=1e-12)


def test_a_step_keeps_the_factor_a_factor() -> None:
    chol_t, square = np.diag([1e-5, 1.0]), speed_measure.first_squares(2)
    down = np.array([[-1e6, 0.0]])
    speed_measure.climb_speed(chol_t, square, down, np.array([[1.0, 0.0]]), 1.0, 0.01, True)
    assert chol_t[0, 0] == 0.5e-5
    before = chol_t.copy()
    speed_measure.climb_speed(chol_t, square, np.array([[np.nan, 0.0]]), down, 1.0, 0.01, True)
    np.testing.assert_array_equal(chol_t, before)


def test_beta_follows_the_acceptance() -> None:
    printed = resolve("gad_mala_fast", {"faithful": True})[1]
    assert speed_measure.adapt_beta(2.0, True, printed) == 2.0 * (1 + 0.02 * (1 - 0.55))
    assert speed_measure.adapt_beta(2.0, False, printed) == 2.0 * (1 - 0.02 * 0.55)
    bounded = resolve("gad_mala_fast", {})[1]
    assert speed_measure.adapt_beta(10.0, True, bounded) == 10.0
    assert speed_measure.adapt_beta(0.001, False, bounded) == 0.001


@pytest.mark.parametrize(
    ("name", "file", "printed"),
    [("gad_rwm", gad_rwm, 0.00005), ("gad_mala_fast", gad, 0.00015), ("gad_mala_exact", gad, 0.00015)],
)
def test_learning_rates_of_the_paper(name: str, file: Any, printed: float) -> None:
    rates = file.FAITHFUL_RATE, file.OWN_RATE
    assert gad.learning_rate(resolve(name, {"faithful": True})[1], *rates) == printed
    assert gad.learning_rate(resolve(name, {})[1], *rates) == file.OWN_RATE
    assert gad.learning_rate(resolve(name, {"learning_rate": 0.5})[1], *rates) == 0.5


@pytest.mark.parametrize("method", ["gad_mala_fast", "gad_mala_exact"])
def test_rotated_score_follows_the_factor(method: str) -> None:
    _, _, after, trace = _learning(method, {}, 500)
    np.testing.assert_allclose(after.rotated, after.chol_t @ after.score, rtol=1e-12)
    assert 0 < trace.accepted.mean() < 1


def test_exact_gradient_is_paid_for_where_it_is_needed() -> None:
    """Two more gradients where the log ratio is negative, none where the proposal is accepted for sure."""
    _, _, _, trace = _learning("gad_mala_exact", {}, 300)
    np.testing.assert_array_equal(trace.n_steps, np.where(trace.accept_prob < 1.0, 3, 1))


# ---- what is reported


def _root_of(method: str, state: Any) -> np.ndarray:
    """R in the state of a method, with which it proposes R z; the preconditioner is R R^T."""
    if method in ("kamh", "kmc_lite", "kmc_finite"):
        return np.sqrt(state.frame.scale) * state.frame.chol_t.T
    if method in ("rlmh", "rlmh_mala"):
        return state.policy.space.root_t.T
    if method == "fisher_mala":
        return state.root_t.T
    if method == "fisher_hmc":
        return np.linalg.inv(state.metric.chol_t)  # momenta are drawn with the factor of the inverse
    if method == "tempered":
        return np.linalg.inv(state.metrics.chol_t[state.cold])
    return np.sqrt(getattr(state, "scale", 1.0)) * state.chol_t.T


@pytest.mark.parametrize("method", kernel_methods())
def test_reported_preconditioner_is_the_one_that_proposals_have(method: str) -> None:
    """R R^T entry by entry, of a root whose R^T R is another matrix."""
    sampler, _, _, state = _after_warmup(method, {})
    learnt = samplers.knowledge(sampler, state)
    assert ("preconditioner" in learnt) == (method not in ("rwm", "mala", "mmala", "hmc"))
    if "preconditioner" not in learnt:
        return
    root = _root_of(method, state)
    wanted = [[sum(root[i, k] * root[j, k] for k in range(D)) for j in range(D)] for i in range(D)]
    np.testing.assert_allclose(learnt["preconditioner"], wanted, rtol=1e-7, atol=1e-10)
    assert np.abs(root.T @ root - wanted).max() > 1e-4 * np.abs(wanted).max()


# ---- hmc


def test_hmc_freezes_the_geometric_mean_of_the_second_half() -> None:
    sampler, settings = resolve("hmc", {})
    assert [stage.length for stage in sampler.stages(settings, 101, D)] == [51, 50]
    assert [stage.length for stage in sampler.stages(resolve("hmc", {"faithful": True})[1], 101, D)][:1] == [
        101
    ]
    exact, rng = TARGETS["gaussian"](), np.random.default_rng(8)
    target, state, trace = exact.target.target(), None, empty_trace(50, D)
    driver = warm_up(sampler, settings, target, np.zeros(D), rng, 101)
    while driver.next_stage():
        trace = driver.room(driver.n_left)
        driver.run(trace)
    state = driver.state
    frozen = empty_trace(5, D)
    sampler.sweep(target, settings, state, rng, False, frozen)
    np.testing.assert_allclose(frozen.step_size, np.exp(np.log(trace.step_size).mean()), rtol=1e-12)
    assert frozen.step_size[0] != trace.step_size[-1]


@pytest.mark.parametrize("method", kernel_methods())
def test_a_chain_that_is_moved_is_there_with_all_that_it_has_learned(method: str) -> None:
    """There and back again: what belongs to the place is that of the place, and nothing else changes."""
    sampler, settings, target, state = _after_warmup(method, {})
    y, score = state.x + np.array([0.1, -0.3, 0.2]), np.empty(D)
    moved = sampler.move(target, settings, state, y, None)
    np.testing.assert_array_equal(moved.x, y)
    assert moved.x is not y
    assert moved.logp == pytest.approx(log_density_gradient(target, y, score), rel=1e-12)
    if hasattr(moved, "score"):
        np.testing.assert_allclose(moved.score, score, rtol=1e-12)
    of_place = {"x", "logp", "score", "rotated"}
    if method == "tempered":  # copies of what scans change
        of_place |= {"replicas", "counts"}
        np.testing.assert_array_equal(moved.replicas.points[state.cold], y)
        others = np.arange(len(state.weights)) != state.cold
        np.testing.assert_array_equal(moved.replicas.points[others], state.replicas.points[others])
    for name in {"step_size"} if method == "mmala" else set(state._fields) - of_place:  # its metric is local
        assert getattr(moved, name) is getattr(state, name) or getattr(moved, name) == getattr(state, name)
    back = sampler.move(target, settings, moved, state.x, None)
    for name in (of_place & set(state._fields)) - {"replicas", "counts"}:
        np.testing.assert_allclose(getattr(back, name), getattr(state, name), rtol=1e-9, atol=1e-12)


def test_a_method_without_the_hook_is_no_sampler() -> None:
    """Nothing guesses from the names of a state's fields what belongs to a place."""
    for method in [*kernel_methods(), "_skeleton"]:
        module = importlib.import_module(f"stanadapt.samplers.{method}")
        assert callable(module.move), method
