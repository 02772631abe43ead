"""The energy of trajectories: what is reported of it, when they diverge, and what an overflow may not do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
import xarray

import stanadapt
from cases import resolve
from exact import gaussian
from stanadapt.model.backends.python import LOG_DENSITY, LOG_DENSITY_GRADIENT
from stanadapt.numerics import splitting
from stanadapt.numerics.energy import LIMIT, diverges, energy_of
from stanadapt.numerics.langevin import langevin_proposal, log_proposal_ratio
from stanadapt.numerics.leapfrog import leapfrog
from stanadapt.numerics.metric import dense_metric, momentum_into, velocity_into
from stanadapt.numerics.metropolis import accept_probability, accept_probability_if_finite
from stanadapt.numerics.splitting import split_steps
from stanadapt.result.container import container, datasets
from stanadapt.run.warmup import warm_up
from stanadapt.samplers import fisher_hmc, mala
from stanadapt.samplers.base import stats
from stanadapt.target import log_density_gradient
from stanadapt.trace import empty_trace

MODELS = Path(__file__).parents[2] / "models"
METHODS = ("hmc", "fisher_hmc")
HALF_LINE = """
    parameters { real x; vector[4] y; }
    model { if (x < 0) target += negative_infinity(); x ~ normal(0, 1); y ~ normal(0, 1); }"""
HUGE = 1e160  # whose square is infinity


@numba.cfunc(LOG_DENSITY)
def _steep(x: Any) -> Any:
    """0 at the origin, and below it everywhere else, with a slope there that no momentum can follow."""
    return 0.0 if x[0] == 0.0 and x[1] == 0.0 else -12.6


@numba.cfunc(LOG_DENSITY_GRADIENT)
def _steep_gradient(x: Any, score: Any) -> Any:
    origin = x[0] == 0.0 and x[1] == 0.0
    score[0] = 0.0 if origin else 1e160
    score[1] = 0.0 if origin else 2e160
    return 0.0 if origin else -12.6


def run(method: str, model: str, *data: Any, **keywords: Any) -> dict[str, np.ndarray]:
    """The statistics of a short run, by name."""
    with pytest.warns(stanadapt.errors.FindingsWarning):
        idata = stanadapt.sample(
            model, *data, method=method, chains=2, draws=1_000, seed=1, progress=False, **keywords
        )
    return {str(name): column.values for name, column in datasets(idata)["sample_stats"].items()}


# ---- what is reported


def test_energy_of_leapfrog_trajectories() -> None:
    """Energies before and after, from the same random numbers and with the momentum at hand."""
    sampler, settings = resolve("hmc", {"initial_step_size": 0.7, "n_leapfrog": 3})
    exact, rng = gaussian(), np.random.default_rng(5)
    target = exact.target.target()
    state = sampler.start(target, settings, np.array([0.3, -0.2, 0.5]), rng)
    outcomes = set()
    for _ in range(40):
        again = np.random.default_rng()
        again.bit_generator.state = rng.bit_generator.state
        x, momentum, score = state.x.copy(), again.standard_normal(3), state.score.copy()
        before = -state.logp + 0.5 * momentum @ momentum
        logp, _ = leapfrog(target, x, momentum, score, state.step_size, 3)
        after = -logp + 0.5 * momentum @ momentum
        state, info = sampler.step(target, settings, state, rng, False)
        energy, rise, diverging = info.own
        assert energy == pytest.approx(after if info.accepted else before, rel=1e-12)
        assert rise == pytest.approx(after - before, rel=1e-9)
        assert info.accept_prob == pytest.approx(min(1.0, np.exp(before - after)))
        assert not diverging
        outcomes.add(bool(info.accepted))
    assert outcomes == {True, False}


def test_energy_of_two_stage_trajectories() -> None:
    """The same, with the metric that warm-up learns, written out as a matrix."""
    settings = resolve("fisher_hmc", {"jitter": 0.0})[1]
    exact, rng = gaussian(), np.random.default_rng(5)
    target = exact.target.target()
    state = warm_up(fisher_hmc, settings, target, np.array([0.3, -0.2, 0.5]), rng, 300).finish()
    state, logp, room = state._replace(most=1), state.logp, splitting.room(3)
    outcomes, h, matrix = set(), 2.8, state.metric.inverse_mass  # long steps, so that some are rejected
    assert matrix.shape == (3, 3)
    for _ in range(40):
        again = np.random.default_rng()
        again.bit_generator.state = rng.bit_generator.state
        momentum = np.empty(3)
        momentum_into(momentum, state.metric, again.standard_normal(3))
        x, score = state.x.copy(), state.score.copy()
        before = -logp + 0.5 * momentum @ matrix @ momentum
        logp_y, _ = split_steps(target, state.metric, x, momentum, score, np.empty(3), h, 1)
        after = -logp_y + 0.5 * momentum @ matrix @ momentum
        logp, info, met = fisher_hmc.step(target, settings, state, logp, h, False, room, rng)
        energy, rise, diverging = info.own
        assert energy == pytest.approx(after if info.accepted else before, rel=1e-9)
        assert rise == pytest.approx(after - before, rel=1e-6, abs=1e-9)
        assert not diverging
        assert not met
        outcomes.add(bool(info.accepted))
    assert outcomes == {True, False}


@pytest.mark.parametrize("method", METHODS)
def test_columns_have_the_schemas_names(method: str) -> None:
    kinds = stats(stanadapt.samplers.sampler(method))
    assert list(kinds)[-3:] == ["energy", "energy_error", "diverging"]
    assert kinds["diverging"] is np.bool_


# ---- divergences


def test_limit() -> None:
    assert [diverges(rise) for rise in (-np.inf, -1e9, 0.0, LIMIT)] == [0.0] * 4
    assert [diverges(rise) for rise in (1.001 * LIMIT, np.inf, np.nan)] == [1.0] * 3


@pytest.mark.parametrize("method", METHODS)
def test_divergences_at_a_neck(method: str) -> None:
    """The energy rises by more than the limit, up to numbers that e^-rise cannot tell apart any more.

    Steps are made too long on purpose: 200 other seeds then had seven such divergences and more, while at
    the default acceptance rate 10 of 50 had none.
    """
    settings = {"target_accept": 0.1} | ({"transport": "off"} if method == "fisher_hmc" else {})
    funnel = MODELS / "funnel"
    found = run(method, funnel / "funnel.stan", funnel / "funnel.json", settings=settings)
    np.testing.assert_array_equal(found["diverging"], ~(found["energy_error"] <= LIMIT))
    assert found["diverging"].any()
    assert np.isfinite(found["energy_error"][found["diverging"]]).any()
    np.testing.assert_allclose(
        found["acceptance_rate"], np.exp(-np.maximum(found["energy_error"], 0.0)), rtol=1e-12
    )
    has_second_tries = method == "fisher_hmc"
    assert found["accepted"][found["diverging"]].any() == has_second_tries
    assert np.isfinite(found["energy"]).all()


@pytest.mark.parametrize("method", METHODS)
def test_divergences_at_a_wall(method: str) -> None:
    """Trajectories that leave the half-line have no energy at their end."""
    found = run(method, HALF_LINE, warmup=500)
    assert found["diverging"].mean() > 0.05
    assert np.isposinf(found["energy_error"][found["diverging"]]).all()
    assert np.isfinite(found["energy_error"][~found["diverging"]]).all()
    assert np.isfinite(found["energy"]).all()


@pytest.mark.parametrize("method", METHODS)
def test_no_divergences_on_a_gaussian(method: str) -> None:
    """The mean of e^-rise is 1 in the stationary law. In 300 runs it was within 2.6 standard errors.

    At the default acceptance rate of hmc a few large rises make up that mean, so steps are shorter here.
    """
    sampler, settings = resolve(method, {"target_accept": 0.9} if method == "hmc" else {})
    exact, rng = gaussian(), np.random.default_rng(2)
    target = exact.target.target()
    state = warm_up(sampler, settings, target, np.ones(3), rng, 600).finish()
    trace = empty_trace(5_000, 3, 3)
    sampler.sweep(target, settings, state, rng, False, trace)
    _, rise, diverging = trace.own.T
    assert not diverging.any()
    assert rise.max() < 20.0
    share = np.exp(-rise)
    assert abs(np.mean(share) - 1.0) < 5.0 * np.std(share) / np.sqrt(share.size)
    assert abs(np.mean(rise)) < 1.0


# ---- overflow


def test_energy_of_no_point_and_of_an_overflow() -> None:
    assert energy_of(-2.0, 1.5) == 3.5
    assert energy_of(-2.0, 0.0) == 2.0
    for logp, kinetic in ((-np.inf, 1.0), (-2.0, np.inf), (-2.0, -np.inf), (-2.0, np.nan), (-2.0, -1e-300)):
        assert energy_of(logp, kinetic) == np.inf


def test_a_momentum_that_overflows_is_rejected() -> None:
    """p^T A p has terms of both signs. Here their sum is -infinity, or NaN where none are fused."""
    steep = stanadapt.Target.from_python(_steep, 2, _steep_gradient)
    target = steep.target()
    settings = resolve("fisher_hmc", {})[1]
    metric = dense_metric(np.linalg.cholesky(np.linalg.inv(np.array([[1.0, -0.9], [-0.9, 1.0]]))).T.copy())
    velocity, momentum = np.empty(2), np.array([1.0, 2.0])
    velocity_into(velocity, metric, momentum)
    assert momentum[0] * velocity[0] < 0.0 < momentum @ velocity
    state = fisher_hmc.start(target, settings, np.zeros(2), np.random.default_rng(0))
    state = state._replace(logp=0.0, score=np.zeros(2), metric=metric, most=1)
    for seed in range(20):
        rng = np.random.default_rng(seed)
        _, info, met = fisher_hmc.step(target, settings, state, 0.0, 1.0, False, splitting.room(2), rng)
        assert (info.accept_prob, info.accepted) == (0.0, False)
        assert info.own[1:] == (np.inf, 1.0)
        assert not met
        np.testing.assert_array_equal(state.x, np.zeros(2))


def test_acceptance_of_infinite_ratios() -> None:
    """Of a noisy target the current point may have no log density, and is left for any that has one."""
    for ratio, wanted in ((-np.inf, 0.0), (-1.0, np.exp(-1.0)), (0.0, 1.0), (1e300, 1.0), (np.nan, 0.0)):
        assert accept_probability(ratio) == accept_probability_if_finite(ratio) == wanted
    assert accept_probability(np.inf) == 1.0
    assert accept_probability_if_finite(np.inf) == 0.0


def test_a_langevin_ratio_that_overflows_is_rejected() -> None:
    """The squared norm of the score overflows; what the ratio has against the proposal does not."""
    exact, s = gaussian(), 1e-10
    target = exact.target.target()
    x, y, score_y = np.zeros(3), np.empty(3), np.empty(3)
    score = np.array([HUGE, 0.0, 0.0])
    rng = np.random.default_rng(1)
    _, accept_prob = langevin_proposal(
        target, x, 0.0, score, score, np.eye(3), s, rng, y, score_y, np.empty(3)
    )
    log_density_gradient(target, y, score_y)
    assert np.isfinite(y).all()
    assert log_proposal_ratio(x, score, score, y, score_y, score_y, s) == np.inf
    assert accept_prob == 0.0
    settings = resolve("mala", {})[1]
    state, info = mala.step(target, settings, mala.State(x, 0.0, score, s), rng, False)
    assert (info.accept_prob, info.accepted) == (0.0, False)
    np.testing.assert_array_equal(state.x, x)


# ---- findings


def made_up(method: str, rises: np.ndarray) -> list[str]:
    """What is found of 2 chains of good draws whose trajectories rose by `rises` (4000,)."""
    rng, shape, dims = np.random.default_rng(3), (2, 2_000), ("chain", "draw")
    attrs = {"method": method, "settings": json.dumps({"target_accept": 0.8})}
    columns = {
        "acceptance_rate": np.full(shape, 0.8),
        "accepted": np.arange(4_000).reshape(shape) % 2 == 0,
        "energy": rng.standard_normal(shape),
        "energy_error": rises.reshape(shape),
        "diverging": (rises > LIMIT).reshape(shape),
    }
    if method == "nuts":
        del columns["energy_error"], columns["accepted"]
    groups = {
        "posterior": xarray.Dataset({"x": (dims, rng.standard_normal(shape))}, attrs=attrs),
        "sample_stats": xarray.Dataset({name: (dims, column) for name, column in columns.items()}),
    }
    return [str(finding) for finding in stanadapt.diagnose(container(groups, attrs))]


def rises_of(high: int, none: int) -> np.ndarray:
    return np.repeat([1e4, np.inf, 0.1], [high, none, 4_000 - high - none])


@pytest.mark.parametrize("method", METHODS)
def test_divergences_are_a_finding_from_a_share_of_the_draws_on(method: str) -> None:
    assert made_up(method, rises_of(4, 0)) == []
    (text,) = made_up(method, rises_of(5, 0))
    assert text.startswith("5 of 4000 draws ended in a divergence: the posterior bends")
    assert "target_accept" in text
    assert "without a log density" not in text


def test_one_divergence_of_nuts_is_a_finding() -> None:
    (text,) = made_up("nuts", rises_of(1, 0))
    assert text.startswith("1 of 4000 draws ended in a divergence: the posterior bends")
    assert made_up("nuts", rises_of(0, 0)) == []


def test_walls_have_words_of_their_own() -> None:
    (text,) = made_up("fisher_hmc", rises_of(0, 40))
    assert text.startswith(
        "40 of 4000 draws ended in a divergence (all of them in chain 0): the trajectory met a"
    )
    assert "bounds" in text
    assert "target_accept" not in text
    (text,) = made_up("fisher_hmc", rises_of(10, 30))
    assert text.startswith(
        "40 of 4000 draws ended in a divergence (all of them in chain 0): in 10 of them the"
    )
    assert "In 30 of them the trajectory met a point without a log density." in text
