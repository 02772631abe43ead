"""stanadapt.replay: what it says of draws, what it refuses, and what it depends on."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from scipy import stats

import stanadapt
from exact import D, Exact, gaussian, skewed
from stanadapt import samplers
from stanadapt.diagnostics.law import DISTANCE
from stanadapt.diagnostics.replay import Replay, replay_draws
from stanadapt.errors import ArgumentError
from stanadapt.result.container import container, datasets
from stanadapt.run.job import Job
from stanadapt.run.rerun import Frozen
from stanadapt.run.warmup import warm_up

PROGRAM = """data { int n; vector[n] y; }
parameters { real mu; real<lower=0> tau; simplex[3] p; }
model { mu ~ normal(0, 5); tau ~ normal(0, 1); y ~ normal(mu, tau); p ~ dirichlet([2, 3, 4]'); }"""
DATA = {"n": 4, "y": [0.1, -0.4, 1.2, 0.3]}
RUN: dict[str, Any] = {"chains": 2, "warmup": 500, "draws": 600, "seed": 3, "progress": False}

pytestmark = pytest.mark.filterwarnings("ignore::stanadapt.StanAdaptWarning")


@pytest.fixture(scope="module")
def posterior() -> stanadapt.Posterior:
    return stanadapt.Posterior(PROGRAM, DATA)


@pytest.fixture(scope="module")
def idata(posterior: stanadapt.Posterior) -> Any:
    with pytest.warns(stanadapt.StanAdaptWarning):
        return stanadapt.sample(posterior, method="fisher_mala", **RUN)


def plain_job(method: str, chains: int) -> Job:
    settings = samplers.resolve(samplers.sampler(method), None)
    return Job(method, settings, 1_000, 1_000, 1, chains, 1, False, False)


def frozen_chains(exact: Exact, method: str, chains: int) -> list[Frozen]:
    found = []
    for i in range(chains):
        rng, job = np.random.default_rng(i), plain_job(method, chains)
        sampler: Any = samplers.sampler(method)
        x = exact.draw(1, rng)[0]
        driver = warm_up(sampler, job.settings, exact.target.target(), x, rng, job.warmup)
        found.append(Frozen(driver.finish(), driver.target.transport))
    return found


def of_draws(exact: Exact, draws: np.ndarray, seed: int, method: str = "hmc") -> Replay:
    posterior = stanadapt.Posterior(exact.target)
    frozen = frozen_chains(exact, method, len(draws))
    return replay_draws(posterior, plain_job(method, len(draws)), frozen, draws, seed)


def test_exact_draws_have_the_null_rate() -> None:
    """Of 40 replays of exact draws two may be expected under 0.05, and one in 25 times one under 0.001."""
    exact = skewed()
    posterior, job = stanadapt.Posterior(exact.target), plain_job("fisher_hmc", 4)
    frozen = frozen_chains(exact, "fisher_hmc", 4)
    rng = np.random.default_rng(1)
    found = [
        replay_draws(posterior, job, frozen, exact.draw(1_600, rng).reshape(4, 400, D), seed)
        for seed in range(40)
    ]
    p = np.array([each.p_value for each in found])
    assert (p < 0.05).sum() <= stats.binom(40, 0.05).ppf(0.999)
    assert sum(each.finding is not None for each in found) <= stats.binom(40, 0.001).ppf(0.999)
    # Tests of one replay are not independent of each other, so the error is that of replays.
    shares = np.array([np.mean(each.tests["p"] < 0.1) for each in found])
    assert abs(shares.mean() - 0.1) < 4.0 * shares.std(ddof=1) / np.sqrt(len(shares)) < 0.1


def test_draws_that_are_too_wide_are_found_with_their_width() -> None:
    exact = gaussian()
    x = exact.draw(8_000, np.random.default_rng(2)).reshape(4, 2_000, D)
    found = of_draws(exact, 1.1 * x, seed=1)
    assert found.finding is not None
    assert found.p_value < found.error_rate
    assert "Both kernels change it" in str(found)
    for wider in (1.1, 1.05, 0.95):
        tests = of_draws(exact, wider * x, seed=1).tests
        distance = tests[(tests["check"] == "reference kernel") & (tests["quantity"] == DISTANCE)].iloc[0]
        assert distance.p_corrected < 0.001
        assert distance.effect == pytest.approx(wider - 1.0, abs=0.015)


def test_draws_that_lie_aside_are_found_with_their_distance() -> None:
    exact = gaussian()
    x = exact.draw(8_000, np.random.default_rng(3)).reshape(4, 2_000, D)
    found = of_draws(exact, x + np.array([0.0, 0.0, -0.15 * x[..., 2].std()]), seed=1)
    assert found.finding is not None
    reference = found.tests[found.tests["check"] == "reference kernel"].set_index(["quantity", "what"])
    row = reference.loc[("x.3", "location")]
    assert row.effect == pytest.approx(-0.15, abs=0.06)
    assert row.p_corrected < 0.001


def test_a_sound_run(idata: Any, posterior: stanadapt.Posterior) -> None:
    found = stanadapt.replay(idata, PROGRAM, DATA, progress=False)
    assert found.finding is None
    assert found.p_value >= found.error_rate == 0.001
    assert str(found).startswith("Nothing speaks against the draws: none of 20 tests fails")
    assert set(found.tests["check"]) == {"frozen kernel", "reference kernel"}
    assert set(found.tests["quantity"]) == {
        *posterior.unconstrained_names,
        "log density",
        "distance from the middle",
    }
    assert found.tests["p_corrected"].is_monotonic_increasing
    assert np.isfinite(found.tests["effect"]).all()


def test_it_depends_on_the_seed_alone(idata: Any, posterior: stanadapt.Posterior) -> None:
    first, same, other = (
        stanadapt.replay(idata, posterior, seed=seed, workers=workers, progress=progress).tests
        for seed, workers, progress in ((1, 1, False), (1, 2, True), (2, 2, False))
    )
    pandas.testing.assert_frame_equal(first, same)
    assert not np.allclose(first.sort_values("z")["z"], other.sort_values("z")["z"])


def test_unconstrained_draws_that_were_kept_are_the_same(idata: Any, posterior: stanadapt.Posterior) -> None:
    with pytest.warns(stanadapt.StanAdaptWarning):
        kept = stanadapt.sample(posterior, method="fisher_mala", keep_unconstrained=True, **RUN)
    found = [stanadapt.replay(each, posterior, progress=False).p_value for each in (idata, kept)]
    assert found[0] == pytest.approx(found[1], rel=1e-4)


@pytest.mark.parametrize("method", ["rwm", "hmc", "mmala", "fisher_hmc", "kmc_lite"])
def test_other_methods(method: str, posterior: stanadapt.Posterior) -> None:
    run = stanadapt.sample(posterior, method=method, thin=2, **RUN | {"chains": 3})
    found = stanadapt.replay(run, posterior, progress=False)
    assert found.finding is None
    assert len(found.tests) == 20


def test_a_run_that_has_learned_no_coordinates() -> None:
    plain = stanadapt.Posterior("parameters { vector[3] x; } model { x ~ std_normal(); }")
    run = stanadapt.sample(plain, method="fisher_hmc", seed=1, chains=2, draws=200, progress=False)
    assert "transport" not in datasets(run)["adaptation"]
    assert stanadapt.replay(run, plain, progress=False).finding is None


def test_an_engine_has_no_kernel_to_freeze(posterior: stanadapt.Posterior) -> None:
    found = stanadapt.replay(stanadapt.sample(posterior, method="nuts", **RUN), posterior, progress=False)
    assert set(found.tests["check"]) == {"reference kernel"}
    assert "nuts runs chains as a whole: its kernel was not run again." in str(found)


def test_without_the_run_s_kernel(idata: Any, posterior: stanadapt.Posterior) -> None:
    foreign = with_groups(idata, adaptation=None)
    found = stanadapt.replay(foreign, posterior, kernel=False, progress=False)
    assert set(found.tests["check"]) == {"reference kernel"}
    assert "was not run again" in str(found)
    with pytest.raises(ArgumentError, match=r"has no group adaptation.*kernel=False"):
        stanadapt.replay(foreign, posterior, progress=False)


def test_inits_of_the_run_are_needed(posterior: stanadapt.Posterior) -> None:
    run = stanadapt.sample(posterior, method="rwm", init_radius=1.0, **RUN)
    with pytest.raises(ArgumentError, match=r"chain 0 of the run started elsewhere"):
        stanadapt.replay(run, posterior, progress=False)
    assert stanadapt.replay(run, posterior, init_radius=1.0, progress=False).finding is None


@pytest.mark.parametrize("name", ["step_size", "preconditioner", "warmup_iterations"])
def test_another_warm_up_is_refused(name: str, idata: Any, posterior: stanadapt.Posterior) -> None:
    own = datasets(idata)["adaptation"]
    other = with_groups(idata, adaptation=own.assign({name: own[name] * 2}))
    with pytest.raises(ArgumentError, match=rf"chain 0 comes to another {name} when"):
        stanadapt.replay(other, posterior, progress=False)


def with_groups(idata: Any, **groups: Any) -> Any:
    """A result with other groups; None leaves one out."""
    all_groups = datasets(idata) | groups
    return container({name: group for name, group in all_groups.items() if group is not None}, idata.attrs)


def with_attrs(idata: Any, **attrs: Any) -> Any:
    """A result with other attributes; None leaves one out."""
    groups, kept = (
        {},
        {name: value for name, value in (dict(idata.attrs) | attrs).items() if value is not None},
    )
    for name, group in datasets(idata).items():
        groups[name] = group.copy()
        groups[name].attrs = dict(kept)
    return container(groups, kept)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seed": -1}, r"seed=-1 is not allowed"),
        ({"error_rate": 0.0}, r"error_rate=0.0 is not allowed"),
        ({"error_rate": 0.7}, r"error_rate=0.7 is not allowed"),
        ({"budget": "much"}, r"budget='much' is not allowed"),
        ({"budget": 0}, r"budget=0 is not allowed"),
        ({"kernel": 1}, r"kernel=1 is not allowed"),
        ({"workers": 0}, r"workers=0 is not allowed"),
        ({"backend": "stan"}, r"backend='stan' is not allowed"),
        ({"init_radius": -1.0}, r"init_radius=-1.0 is not allowed"),
        ({"model": None, "data": None}, r"model is missing"),
        ({"model": stanadapt.Target.from_python(lambda x: 0.0, 1)}, r"data are not allowed"),
        ({"model": "parameters { real mu; } model { mu ~ normal(0, 1); }", "data": None}, r"another program"),
        ({"data": DATA | {"y": [1.0, 1.1, 2.0, -3.0]}}, r"data: the log density .* these are other data"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], message: str, idata: Any) -> None:
    with pytest.raises((ArgumentError, stanadapt.errors.DataError), match=message):
        stanadapt.replay(idata, **({"model": PROGRAM, "data": DATA, "progress": False} | arguments))


def test_bad_results(idata: Any, posterior: stanadapt.Posterior) -> None:
    draws = datasets(idata)["posterior"]
    still = draws.copy(deep=True)
    for name in still.data_vars:
        still[name][:] = still[name].values[:, :1]
    cases: list[tuple[Any, str]] = [
        (draws, r"idata=.* is not allowed"),
        (with_groups(idata, posterior=None), r"idata has no draws"),
        (with_groups(idata, posterior=draws.isel(draw=slice(0, 0))), r"idata has no draws"),
        (with_groups(idata, posterior=draws.isel(draw=slice(0, 10)), sample_stats=None), r"10 draws a chain"),
        (with_groups(idata, posterior=still, sample_stats=None), r"a chain that has not moved"),
        (with_groups(idata, posterior=draws.drop_vars("tau"), sample_stats=None), r"lacks the parameter tau"),
        (
            with_groups(idata, posterior=draws.assign(tau=draws["tau"] * 0.0), sample_stats=None),
            r"the boundary of",
        ),
        (with_attrs(idata, method=None), r"lacks the attributes method"),
        (with_attrs(idata, method="gibbs"), r"method 'gibbs', which is unknown"),
        (with_attrs(idata, settings='{"sigma": 1}'), r"setting='sigma' is not allowed"),
    ]
    for bad, message in cases:
        with pytest.raises(ArgumentError, match=message):
            stanadapt.replay(bad, posterior, progress=False)


def test_targets_that_cannot_be_replayed() -> None:
    generated = "generated quantities { real x = normal_rng(0, 1); }"
    run = stanadapt.sample(generated, chains=1, warmup=0, draws=50, seed=1, progress=False)
    with pytest.raises(ArgumentError, match=r"has no parameters"):
        stanadapt.replay(run, generated, progress=False)

    def estimate(x: np.ndarray, rng: np.random.Generator) -> float:
        return float(-0.5 * x @ x + 0.1 * rng.standard_normal())

    noisy = stanadapt.Target.from_python(estimate, 1, noisy=True)
    run = stanadapt.sample(noisy, method="rwm", chains=1, warmup=100, draws=50, seed=1, progress=False)
    with pytest.raises(ArgumentError, match=r"density is only estimated"):
        stanadapt.replay(run, noisy, progress=False)


def counted(limit: int, act: Any) -> stanadapt.Target:
    """A normal density in Python that acts at its `limit`-th evaluation."""
    calls = [0]

    def log_density(x: np.ndarray) -> float:
        calls[0] += 1
        if calls[0] == limit:
            act()
        return float(-0.5 * x @ x)

    return stanadapt.Target.from_python(log_density, 2, threads=True)


def replay_of_python(act: Any) -> Replay:
    """The replay of a run of 2,000 iterations, that meets the act."""
    draws = np.random.default_rng(1).standard_normal((2, 1_000, 2))
    exact = Exact("normal", counted(10**9, act), lambda n, rng: rng.standard_normal((n, 2)), lambda x: x)
    frozen, job = frozen_chains(exact, "rwm", 2), plain_job("rwm", 2)
    return replay_draws(stanadapt.Posterior(counted(3_000, act)), job, frozen, draws, 1)


def test_ctrl_c_ends_it() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        replay_of_python(lambda: os.kill(os.getpid(), signal.SIGINT))
    assert signal.getsignal(signal.SIGINT) is before


def test_exceptions_of_python_functions_come_back() -> None:
    def fail() -> None:
        raise ZeroDivisionError("in the density")

    with pytest.raises(ZeroDivisionError, match="in the density"):
        replay_of_python(fail)


def test_a_library_that_is_not_for_threads(gaussian_libraries: dict[str, Path]) -> None:
    posterior = stanadapt.Posterior(gaussian_libraries["processes"])
    assert not posterior.model.thread_safe
    run = stanadapt.sample(posterior, method="hmc", **RUN | {"workers": 1})
    assert stanadapt.replay(run, posterior, workers=2, progress=False).finding is None


def test_draws_of_another_target_are_refused() -> None:
    outside = stanadapt.Posterior(
        "parameters { vector[3] x; } model { if (x[1] < 0) target += negative_infinity(); x ~ std_normal(); }"
    )
    draws = np.random.default_rng(6).standard_normal((2, 100, 3))
    with pytest.raises(ArgumentError, match=r"at which the log density is not finite"):
        replay_draws(outside, plain_job("hmc", 2), None, draws, 1)


def test_few_moves_and_few_draws_are_told() -> None:
    exact = gaussian()
    x = exact.draw(200, np.random.default_rng(5)).reshape(2, 100, D)
    frozen = [
        each._replace(state=each.state._replace(step_size=1e4)) for each in frozen_chains(exact, "mala", 2)
    ]
    found = replay_draws(stanadapt.Posterior(exact.target), plain_job("mala", 2), frozen, x, 1)
    assert "The frozen kernel moves in 0.00% of its iterations only." in str(found)
    assert "independent ones only" in str(found)


DAMAGED = {
    "a seed": lambda idata: with_attrs(idata, seed="x"),
    "settings": lambda idata: with_attrs(idata, settings="[1,"),
    "words in place of numbers": lambda idata: with_groups(
        idata, adaptation=datasets(idata)["adaptation"].assign(step_size=(("chain", "note"), _words(idata)))
    ),
    "a number in place of one for each chain": lambda idata: with_groups(
        idata, adaptation=datasets(idata)["adaptation"].assign(step_size=1.5)
    ),
    "one chain of all": lambda idata: with_groups(
        idata, adaptation=datasets(idata)["adaptation"].isel(chain=slice(0, 1))
    ),
}


def _words(idata: Any) -> np.ndarray:
    return np.full(datasets(idata)["adaptation"]["step_size"].shape, "x")


@pytest.mark.parametrize("damage", DAMAGED.values(), ids=DAMAGED)
def test_damaged_results_are_refused(damage: Any, idata: Any, posterior: stanadapt.Posterior) -> None:
    with pytest.raises(ArgumentError, match="idata"):
        stanadapt.replay(damage(idata), posterior, progress=False)
