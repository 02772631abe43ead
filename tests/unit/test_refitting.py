"""Methods that learn from their history between blocks: kamh, kmc_lite and kmc_finite."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from scipy import stats
from threadpoolctl import threadpool_limits

import stanadapt
from cases import partly_thorough, resolve, thorough
from exact import Exact, gaussian
from stanadapt import samplers
from stanadapt.errors import ArgumentError, StanAdaptWarning
from stanadapt.numerics import frame, history
from stanadapt.result.container import datasets
from stanadapt.run.warmup import warm_up
from stanadapt.samplers import kamh
from stanadapt.trace import Trace, empty_trace

METHODS = ["kamh", "kmc_lite", "kmc_finite"]
# What kmc_lite and kmc_finite have in common stands in one file: `make test` asks one of them.
MOSTLY = partly_thorough(METHODS, ("kamh", "kmc_lite"))
POLICIES = ["rlmh", "rlmh_mala"]  # refit once, when their warm start ends; see test_policy.py
SMALL = {"kamh": {"subsample": 40}, "kmc_lite": {"subsample": 40}, "kmc_finite": {"basis": 30}}


def draw(target: Any, method: str, **keywords: Any) -> Any:
    """A short run, without the findings that a short run gives."""
    run = {"chains": 2, "warmup": 400, "draws": 100, "seed": 5, "progress": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StanAdaptWarning)
        return stanadapt.sample(target, method=method, **(run | keywords))


def advanced(method: str, settings: dict[str, Any], blocks: list[int], exact: Exact) -> tuple[Any, Trace]:
    """A chain through its stages of 400 iterations, then adapting on in blocks of the given lengths."""
    sampler, resolved = resolve(method, settings)
    target, rng = exact.target.target(), np.random.default_rng(4)
    state = warm_up(sampler, resolved, target, np.array([0.3, -0.2, 1.0]), rng, 400).finish()
    trace = empty_trace(sum(blocks), 3)
    begin = 0
    for n in blocks:
        part = Trace(*(column[begin : begin + n] for column in trace))
        state = samplers.advance(sampler, target, resolved, state, rng, True, part)
        begin += n
    return state, trace


def test_methods_that_refit() -> None:
    refitting = [name for name in samplers.METHODS if samplers.facts(name).refits]
    assert set(refitting) == {*METHODS, *POLICIES}


@pytest.mark.parametrize("faithful", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_draws_do_not_depend_on_where_blocks_end(method: str, faithful: bool) -> None:
    settings, exact = SMALL[method] | {"faithful": faithful}, gaussian()
    state, one = advanced(method, settings, [300], exact)
    other_state, other = advanced(method, settings, [1, 1, 2, 7, 89, 200], exact)
    np.testing.assert_array_equal(one.x, other.x)
    assert state.history.t == other_state.history.t == 700


@pytest.mark.parametrize("method", MOSTLY)
def test_draws_do_not_depend_on_workers(method: str) -> None:
    exact = gaussian()
    runs = [draw(exact.target, method, workers=n, chains=3, settings=SMALL[method]) for n in (1, 2)]
    np.testing.assert_array_equal(*(run["posterior"]["x"].values for run in runs))


@pytest.mark.parametrize(
    ("method", "processes"),
    [("kamh", False), ("kmc_lite", False), thorough("kmc_finite", False), ("kmc_finite", True)],
)
def test_blas_has_one_thread_where_chains_run(method: str, processes: bool) -> None:
    """Asked in the target itself, of all BLAS libraries that are loaded; more threads would change draws."""

    def log_density(x: np.ndarray) -> float:
        from threadpoolctl import threadpool_info

        threads = [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]
        assert threads == [1] * len(threads), threads
        return -0.5 * float(x @ x)

    target = stanadapt.Target.from_python(log_density, 2, threads=not processes)
    with threadpool_limits(2, user_api="blas"):
        draw(target, method, warmup=20, draws=5, workers=2)


@pytest.mark.parametrize("method", MOSTLY)
def test_what_is_learnt_is_frozen_unless_vanishing(method: str) -> None:
    fits = {}
    for vanishing in (False, True):
        for draws in (1, 3_000):
            settings = SMALL[method] | {"vanishing": vanishing}
            idata = draw(gaussian().target, method, draws=draws, settings=settings, save_warmup=True)
            steps = idata["sample_stats"]["step_size"].values
            fits[vanishing, draws] = len(np.unique(steps[0]))
    assert fits[False, 3_000] == 1
    assert fits[True, 3_000] > 1_000


@pytest.mark.parametrize("method", MOSTLY)
def test_vanishing_adaptation_goes_on_learning_ever_more_rarely(method: str) -> None:
    """Updates come with probability t^-1/2: about 2 (sqrt(3000) - sqrt(500)) of them from 500 to 3000."""
    state, _ = advanced(method, SMALL[method] | {"faithful": True}, [100], gaussian())
    later, _ = advanced(method, SMALL[method] | {"faithful": True}, [2_600], gaussian())
    more = _fits(later) - _fits(state)
    assert 40 < more < 90


def _fits(state: Any) -> int:
    return state.fits if hasattr(state, "fits") else state.learnt.fits


@pytest.mark.parametrize("method", METHODS)
def test_schedule_of_the_settings(method: str) -> None:
    often, _ = advanced(method, SMALL[method] | {"faithful": True, "schedule": 0.0}, [20], gaussian())
    assert _fits(often) == 420 - 50  # every iteration from the first fit on
    rarely, _ = advanced(method, SMALL[method] | {"faithful": True, "schedule": 1.0}, [20], gaussian())
    assert 1 <= _fits(rarely) < 12


@pytest.mark.parametrize("method", ["kamh", "kmc_lite"])
def test_subsample_that_the_history_never_fills(method: str) -> None:
    with pytest.raises(ArgumentError, match=r"subsample'\]=500 .* warmup=400 .* 50 points at times"):
        draw(gaussian().target, method, settings={"subsample": 500})
    with pytest.raises(ArgumentError, match=r"subsample'\]=1 is not allowed"):
        draw(gaussian().target, method, settings={"subsample": 1})
    assert draw(gaussian().target, method, warmup=0)["posterior"]["x"].shape == (2, 100, 3)


@pytest.mark.parametrize("method", ["kmc_lite", "kmc_finite"])
def test_empty_range_of_leapfrog_steps(method: str) -> None:
    with pytest.raises(ArgumentError, match=r"n_leapfrog_min'\]=7 .* at most n_leapfrog_max=3"):
        draw(gaussian().target, method, settings={"n_leapfrog_min": 7, "n_leapfrog_max": 3})


@pytest.mark.parametrize("faithful", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_chain_that_never_moves_learns_nothing_and_says_so(method: str, faithful: bool) -> None:
    """All points equal: the target is a needle that no proposal hits."""
    target = stanadapt.Target.from_python(lambda x: 0.0 if np.all(x == 1.0) else -np.inf, 2, threads=True)
    idata = draw(target, method, inits=np.ones((2, 2)), settings={"faithful": faithful})
    learnt = datasets(idata)["adaptation"]
    assert np.all(learnt["skipped"] > 0)
    assert np.all(idata["posterior"]["x"].values == 1.0)
    kinds = {finding.kind: finding.text for finding in stanadapt.diagnose(idata)}
    assert "Chains 0, 1 have learnt nothing" in kinds["nothing_learnt"]


@pytest.mark.parametrize("method", METHODS)
def test_what_is_reported(method: str) -> None:
    idata = draw(gaussian().target, method, settings=SMALL[method])
    learnt = datasets(idata)["adaptation"]
    assert np.all(learnt["fits"] > 0)
    assert np.all(learnt["skipped"] == 0)
    assert np.all(learnt["sigma"] > 0)
    assert np.all(np.diff(learnt["warmup_fits"]) >= 0)
    np.testing.assert_array_equal(learnt["warmup_sigma"].isel(note=-1), learnt["sigma"])
    size = SMALL[method].get("subsample", 30)
    centers = learnt["frequencies" if method == "kmc_finite" else "centers"]
    assert centers.shape == (2, size, 3)
    assert np.all(np.isfinite(centers))
    assert "nothing_learnt" not in {finding.kind for finding in stanadapt.diagnose(idata)}


def test_acceptance_below_its_target_has_its_own_advice() -> None:
    """A surrogate of two features in a basis is not much of one."""
    idata = draw(gaussian().target, "kmc_finite", draws=500, settings={"basis": 2, "step_rate": 0.0})
    texts = {finding.kind: finding.text for finding in stanadapt.diagnose(idata)}
    assert "raise basis" in texts["acceptance"]


@pytest.mark.parametrize("method", ["kmc_lite", "kmc_finite"])
def test_singular_systems_are_counted(method: str) -> None:
    """A kernel much wider than the points, and next to no lambda."""
    settings = SMALL[method] | {"sigma": 1e12, "regularisation": 1e-100}
    idata = draw(gaussian().target, method, settings=settings)
    learnt = datasets(idata)["adaptation"]
    assert np.all(learnt["repaired"] > 0)
    assert np.all(np.isfinite(idata["posterior"]["x"]))


@pytest.mark.parametrize(
    ("method", "kernel"),
    [
        ("kmc_lite", "rational_quadratic"),
        ("kmc_finite", "gaussian"),
        thorough("kmc_lite", "gaussian"),
        thorough("kmc_finite", "rational_quadratic"),
    ],
)
def test_trajectories_are_worth_more_than_a_walk(method: str, kernel: str) -> None:
    """On a Gaussian the squared jumps are several times those of the best random walk, 1.33 at d = 3."""
    sampler, settings = resolve(method, {"kernel": kernel})
    exact, rng = gaussian(), np.random.default_rng(1)
    target = exact.target.target()
    state = warm_up(sampler, settings, target, exact.draw(1, rng)[0], rng, 4_000).finish()
    trace = empty_trace(4_000, 3)
    sampler.sweep(target, settings, state, rng, False, trace)
    z = np.linalg.solve(np.linalg.cholesky(np.cov(exact.draw(50_000, rng).T)), trace.x.T).T
    assert (np.diff(z, axis=0) ** 2).sum(axis=1).mean() > 3.0
    assert trace.accept_prob.mean() > 0.5


def test_reservoir_is_a_uniform_sample() -> None:
    """Each of 100 points is among the 20 kept with probability 1/5, in 300 histories."""
    kept = np.zeros(100)
    rng = np.random.default_rng(1)
    for _ in range(300):
        past = history.empty_history(20, 1)
        for t in range(100):
            past = history.remember(past, np.array([float(t)]), rng)
        points = history.sample_history(past)[:, 0]
        assert np.all(np.diff(points) > 0)  # in the order of the chain
        kept[points.astype(int)] += 1
    assert kept.sum() == 300 * 20
    assert stats.chisquare(kept.reshape(20, 5).sum(axis=1)).pvalue > 0.001


def test_schedule_has_the_stated_probabilities() -> None:
    rng = np.random.default_rng(1)
    past = history.empty_history(1, 1)._replace(t=24)
    waits = np.array([history.schedule_fit(past, 0.5, rng).next_fit - 24 for _ in range(20_000)])
    assert abs((waits == 1).mean() - 25**-0.5) < 0.012
    assert abs((waits == 2).mean() - (1 - 25**-0.5) * 26**-0.5) < 0.012


def test_covariance_of_kamh_is_the_papers() -> None:
    """gamma² I + nu² M H M^T, with M of gradients by finite differences."""
    points, x, sigma, gamma, nu = np.random.default_rng(1).standard_normal((12, 3)), np.ones(3), 2.5, 0.3, 1.7
    m, h = np.empty((3, 12)), 1e-6
    for i, step in enumerate(h * np.eye(3)):
        k = [np.exp(-((points - y) ** 2).sum(axis=1) / sigma) for y in (x + step, x - step)]
        m[i] = 2.0 * (k[0] - k[1]) / (2.0 * h)
    center = np.eye(12) - 1.0 / 12
    covariance = gamma**2 * np.eye(3) + nu**2 * m @ center @ m.T
    chol_t, half_log_det = kamh.chol_near(np.ascontiguousarray(points.T), sigma, gamma, nu, x)
    np.testing.assert_allclose(chol_t.T @ chol_t, covariance, rtol=1e-7)
    assert half_log_det == pytest.approx(0.5 * np.linalg.slogdet(covariance)[1])


def test_frame_is_the_one_of_the_points() -> None:
    points = gaussian().draw(500, np.random.default_rng(1))
    found = frame.estimate_frame(points, frame.plain_frame(np.zeros(3)))
    q = frame.whiten_points(found, points)
    np.testing.assert_allclose(q.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(np.cov(q.T), np.eye(3), atol=1e-12)
    np.testing.assert_allclose(frame.whiten(found, points[7]), q[7], atol=1e-12)
    np.testing.assert_allclose(frame.unwhiten(found, q[7]), points[7], atol=1e-12)


def test_frame_stays_where_points_are_too_few() -> None:
    before = frame.plain_frame(np.ones(3))
    flat = np.random.default_rng(1).standard_normal((100, 1)) * np.array([1.0, 2.0, 0.0])
    for points in (gaussian().draw(8, np.random.default_rng(1)), flat):
        found = frame.estimate_frame(points, before)
        np.testing.assert_array_equal(found.chol_t, before.chol_t)
        np.testing.assert_array_equal(found.center, before.center)
        assert not np.shares_memory(found.chol_t, before.chol_t)  # the walk's frame goes on learning
        assert not np.shares_memory(found.center, before.center)
