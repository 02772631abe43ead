"""Suite 2: methods that must be one another, draw for draw, with the same random numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stanadapt
from cases import kernel_methods, resolve
from exact import gaussian
from stanadapt.numerics import score_matching
from stanadapt.numerics.frame import plain_frame
from stanadapt.numerics.surrogate import Surrogate, surrogate_gradient, surrogate_leapfrog
from stanadapt.target import log_density_gradient
from stanadapt.trace import Trace, empty_trace

pytestmark = pytest.mark.one_seed("two methods draw the same, whatever is drawn")

X = np.array([0.3, -0.2, 1.0])
STEP = 0.3


def _run(
    method: str, settings: dict[str, Any], *, n: int = 500, adapting: bool = False, **state_fields: Any
) -> Trace:
    sampler, resolved = resolve(method, settings)
    if "initial_step_size" in resolved._fields:
        resolved = resolved._replace(initial_step_size=STEP)
    exact = gaussian()
    target = exact.target.target()
    rng = np.random.default_rng(3)
    state = sampler.start(target, resolved, X, rng)._replace(**state_fields)
    trace = empty_trace(n, X.size)
    sampler.sweep(target, resolved, state, rng, adapting, trace)
    return trace


def _same(one: Trace, other: Trace, rtol: float = 1e-9) -> None:
    np.testing.assert_allclose(other.x, one.x, rtol=rtol)
    np.testing.assert_array_equal(other.accepted, one.accepted)
    assert 0 < one.accepted.mean() < 1


def _score() -> np.ndarray:
    exact, score = gaussian(), np.empty(X.size)
    log_density_gradient(exact.target.target(), X, score)
    return score


@pytest.mark.parametrize("method", ["fisher_mala", "ada_mala", "amala"])
def test_nothing_learnt_is_mala(method: str) -> None:
    _same(_run("mala", {}), _run(method, {}))


@pytest.mark.parametrize("method", ["gad_mala_fast", "gad_mala_exact"])
def test_isotropic_factor_is_mala(method: str) -> None:
    factor = {"chol_t": STEP * np.eye(X.size), "rotated": STEP * _score()}
    _same(_run("mala", {}), _run(method, {}, **factor))


@pytest.mark.parametrize("method", ["am", "arwmh", "gad_rwm"])
def test_isotropic_covariance_is_random_walk_metropolis(method: str) -> None:
    _same(_run("rwm", {}), _run(method, {}, chol_t=STEP * np.eye(X.size)))


def test_one_leapfrog_step_is_mala() -> None:
    hmc = _run("hmc", {"n_leapfrog": 1})
    _same(_run("mala", {}), hmc)
    np.testing.assert_allclose(hmc.accept_prob, _run("mala", {}).accept_prob, rtol=1e-9)


def test_constant_metric_is_preconditioned_mala() -> None:
    """The Hessian of a Gaussian is the same everywhere; differences give it to ten digits."""
    mmala, settings = resolve("mmala", {})
    exact = gaussian()
    there = mmala.state_at(exact.target.target(), settings, X, STEP)
    metric = {"root_t": there.root_t, "rotated": there.rotated, "tr": float(X.size)}
    manifold = _run("mmala", {})
    _same(_run("fisher_mala", {}, **metric), manifold, rtol=1e-6)
    np.testing.assert_array_equal(manifold.n_steps, 2 * X.size + 1)


NO_LEARNING = {
    "rwm": {"step_rate": 0.0},
    "am": {"step_rate": 0.0, "learning_rate": 0.0},
    "gad_rwm": {"learning_rate": 0.0, "beta_rate": 0.0},
    "mala": {"step_rate": 0.0},
    "ada_mala": {"step_rate": 0.0},
    "amala": {"step_rate": 0.0},
    "fisher_mala": {"step_rate": 0.0},
    "gad_mala_fast": {"learning_rate": 0.0, "beta_rate": 0.0},
    "gad_mala_exact": {"learning_rate": 0.0, "beta_rate": 0.0},
    "mmala": {"step_rate": 0.0},
    "hmc": {"step_rate": 0.0},
    "kamh": {"step_rate": 0.0, "subsample": 1_000, "faithful": True},
    "kmc_lite": {"step_rate": 0.0, "subsample": 1_000, "faithful": True},
    "kmc_finite": {"step_rate": 0.0, "faithful": True},
}


def test_every_method_can_be_kept_from_learning() -> None:
    never = {"arwmh", "rlmh", "rlmh_mala"}  # begin with a walk whose rate, a power of i + 1, is never zero
    never |= {"fisher_hmc", "tempered"}  # have no rate; see test_fisher_hmc.py and test_tempering.py
    assert set(NO_LEARNING) == set(kernel_methods()) - never


@pytest.mark.parametrize("method", NO_LEARNING)
def test_zero_learning_rate_is_the_frozen_sampler(method: str) -> None:
    frozen = _run(method, NO_LEARNING[method])
    learning_nothing = _run(method, NO_LEARNING[method], adapting=True)
    np.testing.assert_allclose(learning_nothing.x, frozen.x, rtol=1e-12)
    assert frozen.accepted.any()


def _surrogate() -> Surrogate:
    points = gaussian().draw(200, np.random.default_rng(2))
    return score_matching.fit_lite(points, score_matching.RadialFunction(0, 30.0), 1e-2).surrogate


def _density_of(surrogate: Surrogate) -> stanadapt.Target:
    """The surrogate itself as a target, with its own gradient."""

    def log_density(x: np.ndarray) -> float:
        squares = ((surrogate.centers_t - x[:, None]) ** 2).sum(axis=0)
        return float(surrogate.weights @ np.exp(-squares / surrogate.sigma))

    def gradient(x: np.ndarray) -> np.ndarray:
        return score_matching.derivatives(surrogate, x[None, :])[0][0]

    return stanadapt.Target.from_python(log_density, X.size, gradient, threads=True)


@pytest.mark.parametrize("method", ["kmc_lite", "kmc_finite"])
def test_kernel_hmc_with_the_exact_gradient_is_hmc(method: str) -> None:
    """The target is the surrogate, so that the surrogate's gradient is the exact one."""
    surrogate = _surrogate()
    model = _density_of(surrogate)
    target = model.target()
    trajectories = {"n_leapfrog_min": 5, "n_leapfrog_max": 5, "step_low": 1.0, "faithful": True}
    traces = []
    for name, given in ((method, trajectories), ("hmc", {"n_leapfrog": 5})):
        sampler, settings = resolve(name, given | {"initial_step_size": STEP})
        rng = np.random.default_rng(3)
        state = sampler.start(target, settings, X, rng)
        if name == method:
            state = state._replace(surrogate=surrogate, frame=plain_frame(np.zeros(X.size)))
        trace = empty_trace(200, X.size)
        sampler.sweep(target, settings, state, rng, False, trace)
        traces.append(trace)
    _same(traces[1], traces[0])
    np.testing.assert_allclose(traces[0].accept_prob, traces[1].accept_prob, rtol=1e-6)


@pytest.mark.parametrize("method", ["kmc_lite", "kmc_finite"])
def test_kernel_hmc_that_has_learnt_nothing_is_a_random_walk(method: str) -> None:
    one_step = {"n_leapfrog_min": 1, "n_leapfrog_max": 1, "step_low": 1.0, "faithful": True}
    _same(_run("rwm", {}), _run(method, one_step))
    _same(_run("rwm", {}), _run(method, {}))


def test_kmc_lite_is_a_random_walk_where_it_has_no_data() -> None:
    """Proposition 3: the gradient vanishes far from the points, and trajectories there are straight."""
    surrogate, far = _surrogate(), np.full(X.size, 1000.0)
    near, there = np.empty(X.size), np.empty(X.size)
    surrogate_gradient(surrogate, X, near)
    surrogate_gradient(surrogate, far, there)
    assert np.linalg.norm(near) > 0.1
    np.testing.assert_array_equal(there, 0.0)
    x, momentum = far.copy(), np.array([1.0, -2.0, 0.5])
    surrogate_leapfrog(surrogate, x, momentum, 0.1, 10)
    np.testing.assert_allclose(x, far + momentum, rtol=1e-12)


def test_kamh_without_points_is_a_random_walk() -> None:
    _same(_run("rwm", {}), _run("kamh", {"gamma": STEP, "faithful": True}))
    _same(_run("rwm", {}), _run("kamh", {}))


def test_kamh_far_from_its_points_is_a_random_walk() -> None:
    points_t = np.ascontiguousarray(gaussian().draw(50, np.random.default_rng(2)).T) + 1e3
    _same(_run("rwm", {}), _run("kamh", {"gamma": STEP, "faithful": True}, points_t=points_t, sigma=2.0))


def test_scale_of_the_root_does_not_matter() -> None:
    """The proposal is normalised by tr(A)/d, so A and kA are the same preconditioner (Equation 7)."""
    root = np.array([[1.0, 0.0, 0.0], [0.5, 2.0, 0.0], [-0.3, 0.1, 0.4]])
    score = _score()
    traces = [
        _run(
            "fisher_mala",
            {},
            root_t=np.ascontiguousarray(k * root.T),
            rotated=k * (root.T @ score),
            tr=float(k**2 * (root**2).sum()),
        )
        for k in (1.0, 100.0)
    ]
    np.testing.assert_allclose(traces[1].x, traces[0].x, rtol=1e-9)


def test_draws_do_not_depend_on_where_blocks_end() -> None:
    sampler, settings = resolve("fisher_mala", {})
    exact = gaussian()
    target = exact.target.target()

    def draws(blocks: tuple[int, ...]) -> np.ndarray:
        rng = np.random.default_rng(4)
        state = sampler.start(target, settings, X, rng)
        state = sampler.enter("fisher", state, settings)
        parts = []
        for n in blocks:
            trace = empty_trace(n, X.size)
            state = sampler.sweep(target, settings, state, rng, True, trace)
            parts.append(trace.x)
        return np.concatenate(parts)

    np.testing.assert_array_equal(draws((300,)), draws((1, 99, 200)))
