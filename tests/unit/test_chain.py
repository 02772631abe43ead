"""A chain between two blocks is a value: it can be written there, and taken up by another chain."""

from __future__ import annotations

import io
import json
import pickle
from itertools import islice
from typing import Any

import numpy as np
import pytest

import stanadapt
from cases import kernel_methods, partly_thorough
from stanadapt import samplers
from stanadapt.result.stores.encoding import decode, encode
from stanadapt.run import chain as chain_module
from stanadapt.run.chain import KernelChain
from stanadapt.run.draws import ChainResult, stacks
from stanadapt.run.inits import Init
from stanadapt.run.job import Job
from stanadapt.run.warmup import WarmupPlace
from stanadapt.run.workers.board import Board

PROGRAM = """
parameters { real mu; real<lower=0> tau; }
model { mu ~ normal(1, 2); tau ~ exponential(1); }
generated quantities { real y = mu * tau; }
"""
# Long enough for every stage of warm-up, a refit and a few episodes of a policy.
WARMUP, DRAWS = 420, 60
SETTINGS: dict[str, dict[str, Any]] = {
    "rlmh": {"episode": 20},
    "rlmh_mala": {"episode": 20},
    "kmc_lite": {"subsample": 40},
    "kmc_finite": {"basis": 20},
    "kamh": {"subsample": 40},
}


def job(method: str, settings: dict[str, Any] | None = None) -> Job:
    given = SETTINGS.get(method, {}) if settings is None else settings
    return Job(method, samplers.resolve(samplers.sampler(method), given), WARMUP, DRAWS, 2, 1, 3, True, True)


def whole(posterior: stanadapt.Posterior, what: Job) -> ChainResult:
    """A chain that is run through."""
    draws, warmup = stacks(what, posterior, 1)
    assert warmup is not None
    chain = KernelChain(posterior, what, 0, Init(2.0), Board.for_chains(1), draws.chain(0), warmup.chain(0))
    for _ in chain.blocks():
        pass
    return chain.result()


def relayed(posterior: stanadapt.Posterior, what: Job) -> tuple[ChainResult, int]:
    """The same, where another chain takes up what was written; and how often one did.

    It does so after one block, then after two and so on, and after the seventh begins with one again.
    """
    draws, warmup = stacks(what, posterior, 1)
    assert warmup is not None
    value, count = None, 0
    rows = draws.chain(0), warmup.chain(0)
    while True:
        chain = KernelChain(
            pickle.loads(pickle.dumps(posterior)),
            what,
            0,
            Init(2.0),
            Board.for_chains(1),
            *rows,
            value=value,
        )
        n = 1 + count % 7
        if len(list(islice(chain.blocks(), n))) < n:
            return chain.result(), count
        value, count = decode(encode(chain.value)), count + 1


@pytest.fixture
def _short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chains give way after every block."""
    monkeypatch.setattr(chain_module, "_BLOCK_SECONDS", 1e-4)


def assert_equal(one: ChainResult, other: ChainResult) -> None:
    for name in ("draws", "warmup"):
        rows, others = getattr(one, name).trim(), getattr(other, name).trim()
        assert rows.n == others.n > 0
        np.testing.assert_array_equal(others.values, rows.values)
        np.testing.assert_array_equal(others.x, rows.x)
        for column in rows.stats:
            np.testing.assert_array_equal(others.stats[column], rows.stats[column])
    assert list(one.history) == list(other.history)
    for name, column in one.history.items():
        np.testing.assert_array_equal(other.history[name], column)
    for name, array in one.learnt.items():
        np.testing.assert_array_equal(other.learnt[name], array)
    for name in (
        "warmup_iterations",
        "failures",
        "failures_warmup",
        "evaluations",
        "evaluations_warmup",
        "first_failure",
        "counts",
        "counts_warmup",
    ):
        assert getattr(one, name) == getattr(other, name)
    np.testing.assert_array_equal(one.start, other.start)


# States of each form: arrays alone, surrogates that are fitted again, windows with a map, networks. Runs with
# rungs are taken up in test_tempered_runs.py.
TAKEN_UP = ("fisher_mala", "arwmh", "kmc_finite", "kamh", "fisher_hmc", "rlmh")


@pytest.mark.usefixtures("_short_turns")
@pytest.mark.parametrize("method", partly_thorough(kernel_methods(), TAKEN_UP))
def test_a_chain_that_is_taken_up_again_draws_the_same(method: str) -> None:
    posterior = stanadapt.Posterior(PROGRAM)
    other, count = relayed(posterior, job(method))
    assert count > 3
    assert_equal(whole(posterior, job(method)), other)


@pytest.mark.usefixtures("_short_turns")
def test_with_a_pilot() -> None:
    posterior = stanadapt.Posterior(PROGRAM)
    what = job("fisher_mala", {"pilot": 200})
    other, count = relayed(posterior, what)
    assert count > 3
    assert_equal(whole(posterior, what), other)


def _estimate(x: np.ndarray, rng: np.random.Generator) -> float:
    return -0.5 * float(x @ x) + float(rng.normal(-0.125, 0.5))


@pytest.mark.usefixtures("_short_turns")
def test_random_numbers_of_a_noisy_target_are_taken_along() -> None:
    posterior = stanadapt.Posterior(stanadapt.Target.from_python(_estimate, 2, noisy=True))
    other, count = relayed(posterior, job("am"))
    assert count > 3
    assert_equal(whole(posterior, job("am")), other)


def _simulate(theta: dict[str, Any], rng: np.random.Generator) -> np.ndarray:
    return np.asarray(rng.normal(theta["mu"], 1.0, 3))


@pytest.mark.usefixtures("_short_turns")
def test_simulations_are_counted_on() -> None:
    from scipy import stats

    target = stanadapt.abc(_simulate, [0.1, 0.4, -0.3], {"mu": stats.norm(0, 1)}, epsilon=1.0)
    posterior = stanadapt.Posterior(target)
    other, count = relayed(posterior, job("am"))
    assert count > 3
    assert other.counts["n_simulations"] > 0
    assert_equal(whole(posterior, job("am")), other)


def _failing(x: np.ndarray) -> float:
    return float("nan") if x[0] > 1.0 else -0.5 * float(x @ x)


@pytest.mark.usefixtures("_short_turns")
def test_failures_are_counted_on() -> None:
    posterior = stanadapt.Posterior(stanadapt.Target.from_python(_failing, 1))
    other, _ = relayed(posterior, job("rwm"))
    assert (other.failures or 0) > 0
    assert_equal(whole(posterior, job("rwm")), other)


@pytest.mark.parametrize("late", [0, 5])
def test_failures_of_warmup_and_of_draws_are_told_apart(late: int) -> None:
    """A random walk asks for one density an iteration, and the start is given."""
    calls, failing = 0, {*range(50, 57), *range(500, 500 + late)}

    def log_density(x: np.ndarray) -> float:
        nonlocal calls
        calls += 1
        return float("nan") if calls in failing else -0.5 * float(x @ x)

    posterior = stanadapt.Posterior(stanadapt.Target.from_python(log_density, 1))
    result = whole(posterior, job("rwm")._replace(draws=200))
    assert calls > 600
    assert (result.failures_warmup, result.failures) == (7, late)


def test_checkpoints_of_earlier_versions_are_read() -> None:
    """A class keeps its place in files where it has got another name."""
    tree = json.dumps({"class": "run.warmup.Place", "fields": {"segment": 1, "stage": 2, "left": 3}})
    file = io.BytesIO()
    np.savez(file, tree=np.frombuffer(tree.encode(), np.uint8))
    assert decode(file.getvalue()) == WarmupPlace(1, 2, 3)


@pytest.mark.usefixtures("_short_turns")
def test_a_chain_that_waits_for_another_one_to_learn_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """It can be written there, and taken up, also before it has learned anything."""
    posterior, what = stanadapt.Posterior(PROGRAM), job("fisher_hmc")
    expected = whole(posterior, what)
    waits = []

    class Busy:
        def acquire(self, timeout: float) -> bool:
            waits.append(timeout)
            return len(waits) % 3 == 0

        def release(self) -> None:
            pass

    monkeypatch.setattr(chain_module, "_learning", Busy())
    monkeypatch.setattr(chain_module, "_SHORT_SECONDS", np.inf)
    result, count = relayed(posterior, what)
    assert count > 10
    assert len(waits) > 6
    assert_equal(expected, result)
