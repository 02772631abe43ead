"""Suite 5: simulation-based calibration of every method on two models. `make calibrate` runs it.

A test looks at all quantities of a model and fails when its smallest p-value is under the Bonferroni limit of
a family-wise level of 0.1 %: that is the rate at which a right method fails it. Tests that are not marked
`calibration` are of the suite itself and take seconds.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import time
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from typing import NamedTuple

import numpy as np
import pytest
from scipy import stats

from calibration import (
    KEPT,
    OF_FIELDS,
    OF_HIERARCHIES,
    REPLICATES,
    SIMULATED,
    Draws,
    all_replicates,
    effective_share,
    ranks,
    regression_posterior,
    regression_prior,
    simulation,
    with_log_likelihood,
    without_jacobian,
)
from cases import methods
from stanadapt.check import available_cores
from stanadapt.run.preparation import auto
from stanadapt.samplers import sampler
from uniformity import PValues, ecdf, histogram, p_values, spread
from walk_law import scale_shares

pytestmark = pytest.mark.timeout(1_800)  # a run of all replicates takes a minute on an idle machine

LEVEL = 0.001
LEAST_SHARE = (
    0.75  # of the kept draws that must be effective; ranks are then all but those of independent ones
)
NARROWER = 0.9


def _chosen() -> list[str]:
    """All methods and "auto", or those that CALIBRATE names."""
    every = [*methods(), auto.NAME]
    named = os.environ.get("CALIBRATE", "").replace(",", " ").split()
    unknown = set(named) - set(every)
    assert not unknown, f"CALIBRATE names {sorted(unknown)}; methods are {', '.join(every)}"
    return named or every


def _cases() -> list[tuple[str, str]]:
    """Methods and models; those with coordinates to learn only for those that learn them."""
    learners = {method for method in methods() if sampler(method).FACTS.transports} | {auto.NAME}
    of_fields = {"fisher_hmc", auto.NAME}
    return [
        (method, model)
        for method in _chosen()
        for model in SIMULATED
        if (model not in OF_HIERARCHIES or method in learners)
        and (model not in OF_FIELDS or method in of_fields)
    ]


class Verdict(NamedTuple):
    """A line of the table at the end."""

    method: str
    model: str
    p: PValues
    share: np.ndarray  # (k,) of the kept draws that are effective
    seconds: float

    @property
    def limit(self) -> float:
        return LEVEL / self.p.count()

    @property
    def calibrated(self) -> bool:
        return self.p.smallest()[0] > self.limit

    @property
    def independent(self) -> bool:
        return bool(self.share.min() > LEAST_SHARE)

    def where(self) -> str:
        _, test, quantity = self.p.smallest()
        return f"{test} of {SIMULATED[self.model].labels[quantity] if quantity >= 0 else 'all parameters'}"

    def details(self) -> str:
        """Every p-value, by quantity."""
        lines = [f"{'quantity':16} {'histogram':>10} {'ecdf':>10} {'effective':>10}"]
        rows = zip(SIMULATED[self.model].labels, self.p.histogram, self.p.ecdf, self.share, strict=True)
        lines += [f"{label:16} {a:10.2g} {b:10.2g} {100 * share:9.0f}%" for label, a, b, share in rows]
        lines.append(f"spread of all parameters {self.p.spread:.2g}; limit of a p-value {self.limit:.1g}")
        return "\n".join(lines)

    def line(self) -> str:
        verdict = "calibrated" if self.calibrated else "NOT CALIBRATED"
        verdict = verdict if self.independent else "DRAWS TOO DEPENDENT"
        return (
            f"{self.method:16} {self.model:18} {self.p.smallest()[0]:10.2g} {self.limit:8.1g}  {verdict:20} "
            f"{100 * self.share.min():8.0f}% {self.seconds:7.0f} s  {self.where()}"
        )


class _Table:
    """Writes the table when pytest sums up."""

    def __init__(self) -> None:
        self.verdicts: list[Verdict] = []

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("simulation-based calibration")
        header = (
            f"{'method':16} {'model':18} {'smallest p':>10} {'limit':>8}  {'verdict':20} {'effective':>9} "
            f"{'time':>9}  where it is smallest"
        )
        for line in [
            f"{REPLICATES} data sets from each model's prior, {KEPT} draws kept of each posterior.",
            "Smallest p: of all tests that ranks are uniform; it must be over its limit.",
            f"Effective: the smallest share of the draws kept; it must be over {100 * LEAST_SHARE:.0f} %.",
            "",
            header,
            *[verdict.line() for verdict in self.verdicts],
        ]:
            terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def table(request: pytest.FixtureRequest) -> _Table:
    report = _Table()
    request.config.pluginmanager.register(report)
    return report


@pytest.fixture(scope="session")
def pool() -> Iterator[Executor]:
    """Processes, since most of a replicate's time goes to Python. Draws do not depend on them."""
    with ProcessPoolExecutor(available_cores(), multiprocessing.get_context("spawn")) as executor:
        yield executor


@functools.cache
def _draws(method: str, model: str, pool: Executor) -> Draws:
    return all_replicates(method, model, pool)


def _judge(method: str, model: str, draws: Draws, seconds: float = 0.0) -> Verdict:
    draws = with_log_likelihood(model, draws)
    return Verdict(method, model, p_values(ranks(draws), KEPT), effective_share(draws.kept), seconds)


def _narrower(draws: Draws) -> Draws:
    mean = draws.kept.mean(axis=1, keepdims=True)
    return draws._replace(kept=mean + NARROWER * (draws.kept - mean))


@pytest.mark.calibration
@pytest.mark.parametrize(("method", "model"), _cases())
def test_method_is_calibrated(method: str, model: str, pool: Executor, table: _Table) -> None:
    began = time.perf_counter()
    draws = _draws(method, model, pool)
    verdict = _judge(method, model, draws, time.perf_counter() - began)
    table.verdicts.append(verdict)
    print(verdict.details())
    assert verdict.calibrated
    assert verdict.independent, (
        f"the draws kept are too close to one another: SPACING of {method} must be larger"
    )


@pytest.mark.calibration
@pytest.mark.parametrize("method", [method for method, model in _cases() if model == "random_walk"])
def test_scales_of_a_walk_have_their_exact_law(method: str, pool: Executor) -> None:
    """Their exact distribution functions at the draws are uniform, in the tails too.

    Draws of one data set depend on each other, data sets do not. A right method fails one of 18 tests at 4.5
    standard errors in one run of 8,000.
    """
    draws = _draws(method, "random_walk", pool)
    data = [simulation("random_walk", replicate)[1] for replicate in range(REPLICATES)]
    pairs = zip(data, draws.kept, strict=True)
    shares = np.array([scale_shares(given["y"], kept[:, :2]) for given, kept in pairs])
    for p in (0.001, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 0.999):
        below = (shares < p).mean(axis=1)
        errors = (below.mean(axis=0) - p) / (below.std(axis=0) / np.sqrt(REPLICATES))
        print(f"{p}: {below.mean(axis=0)}, {errors} standard errors")
        assert (np.abs(errors) < 4.5).all()


@pytest.mark.calibration
@pytest.mark.parametrize(("method", "model"), _cases())
def test_suite_goes_red_for_draws_that_are_too_narrow(method: str, model: str, pool: Executor) -> None:
    """A posterior standard deviation that is 10 % too small."""
    assert not _judge(method, model, _narrower(_draws(method, model, pool))).calibrated


@pytest.mark.calibration
def test_suite_goes_red_without_the_jacobian(pool: Executor) -> None:
    """One method is enough: what is broken is the density that all of them would sample."""
    program = without_jacobian(SIMULATED["linear_regression"].program)
    draws = all_replicates(_chosen()[0], "linear_regression", pool, program)
    assert not _judge(_chosen()[0], "linear_regression", draws).calibrated


def _exact_draws(seed: int) -> Draws:
    rng = np.random.default_rng(seed)
    simulations = [simulation("linear_regression", replicate) for replicate in range(REPLICATES)]
    kept = [regression_posterior(data, KEPT, rng) for _, data in simulations]
    return Draws(np.array([truth for truth, _ in simulations]), np.array(kept))


@pytest.mark.seeds(1, rate=LEVEL)
def test_exact_draws_are_calibrated(seed: int) -> None:
    """The simulations are of the model that is sampled, so that a red suite means a wrong method."""
    verdict = _judge("exact", "linear_regression", _exact_draws(seed))
    assert verdict.calibrated, verdict.details()
    assert verdict.independent, verdict.details()


@pytest.mark.seeds(1, rate=0.01)
def test_exact_draws_that_are_too_narrow_are_not(seed: int) -> None:
    assert not _judge("exact", "linear_regression", _narrower(_exact_draws(seed))).calibrated


@pytest.mark.seeds(1, rate=LEVEL)
def test_only_the_log_likelihood_sees_draws_that_ignore_the_data(seed: int) -> None:
    """Draws from the prior are what a method gives that never reads the data."""
    rng = np.random.default_rng(seed)
    prior = np.array([regression_prior(KEPT, rng) for _ in range(REPLICATES)])
    verdict = _judge("prior", "linear_regression", _exact_draws(seed)._replace(kept=prior))
    parameters = np.append(verdict.p.ecdf[:-1], verdict.p.spread)
    assert parameters.min() > verdict.limit
    assert not verdict.calibrated
    assert verdict.where().endswith("log_lik")


@pytest.mark.seeds(2, rate=0.001)  # 0.12 is about four and a half standard deviations of a share
def test_dependent_draws_are_told(seed: int) -> None:
    rng = np.random.default_rng(seed)
    walk = rng.standard_normal((REPLICATES, KEPT + 1, 1))
    moving_average = walk[:, 1:] + walk[:, :-1]  # correlation 1/2 at lag 1: half the draws are effective
    assert effective_share(walk[:, 1:])[0] == pytest.approx(1.0, abs=0.12)
    assert effective_share(moving_average)[0] == pytest.approx(0.5, abs=0.12)
    assert effective_share(np.zeros((2, KEPT, 1)))[0] < 0.1


@pytest.mark.seeds(3, rate=0.001)
@pytest.mark.parametrize("test", [histogram, ecdf, lambda ranks, kept: spread(ranks[:, None], kept)])
def test_p_values_are_uniform_under_uniform_ranks(test: object, seed: int) -> None:
    assert callable(test)
    rng = np.random.default_rng(seed)
    found = np.array([test(rng.integers(0, KEPT + 1, 200), KEPT) for _ in range(1_000)])
    for level in (0.01, 0.1, 0.5):
        expected, error = 1_000 * level, np.sqrt(1_000 * level * (1 - level))
        assert abs(np.sum(found <= level) - expected) < 4 * error


# Of the data sets of `make calibrate`, and of no sampler.
@pytest.mark.thorough
def test_the_truth_has_the_exact_law_of_a_walks_scales() -> None:
    """Over data sets the exact distribution functions at the truth are uniform, or the law is another one."""
    simulations = [simulation("random_walk", replicate) for replicate in range(REPLICATES // 4)]
    shares = [scale_shares(data["y"], truth[None, :2])[0] for truth, data in simulations]
    for column in np.array(shares).T:
        assert stats.kstest(column, "uniform").pvalue > LEVEL


def test_ecdf_agrees_with_its_definition() -> None:
    """With two ranks on 0, 1, 2 all nine outcomes can be counted."""
    outcomes = [(i, j) for i in range(3) for j in range(3)]
    p = [ecdf(np.array(ranks), 2) for ranks in outcomes]
    # Binomial p-values at the two steps: of 0 0 and 2 2 the smaller one is 2/9, of 0 2 and 2 0 it is 1, of
    # all others 8/9. The p-value is the share of outcomes that are as extreme.
    expected = [2 / 9 if i == j != 1 else 1.0 if {i, j} == {0, 2} else 7 / 9 for i, j in outcomes]
    assert p == pytest.approx(expected)
