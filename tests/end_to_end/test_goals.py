"""Runs that end when it is enough: by goals, or by limits."""

from __future__ import annotations

import itertools
import math
import time
import warnings
from typing import Any

import numpy as np
import pytest

import stanadapt
from stanadapt.diagnostics.status import Status
from stanadapt.diagnostics.until import GoalWatch
from stanadapt.errors import ArgumentError, FindingsWarning
from stanadapt.result.container import attributes, datasets
from stanadapt.run.stopping import FACTOR

PROGRAM = "parameters { real mu; real<lower=0> tau; } model { mu ~ normal(1, 2); tau ~ exponential(1); }"
RUN: dict[str, Any] = {"method": "fisher_hmc", "seed": 4, "progress": False}


def sample(model: Any = PROGRAM, **keywords: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FindingsWarning)
        return stanadapt.sample(model, **(RUN | keywords))


def draws(idata: Any, name: str = "mu") -> np.ndarray:
    values: np.ndarray = datasets(idata)["posterior"][name].values
    return values


def test_a_goal_is_reached_and_no_more_is_drawn() -> None:
    idata = sample(until="ess 800, rhat 1.02")
    table, attrs = stanadapt.summary(idata), attributes(idata)
    assert table[["ess_bulk", "ess_tail"]].values.min() >= 800
    assert table["r_hat"].max() <= 1.02
    n = draws(idata).shape[1]
    assert attrs["until_draws"] == n < 2_000
    assert (attrs["until_reached"], attrs["until_limit"], attrs["interrupted"]) == (1, "", 0)
    assert f"at draw {n} of each chain" in attrs["until_reason"]


def test_draws_are_the_first_of_a_longer_run() -> None:
    some = draws(sample(until="ess 500"))
    all_draws = draws(sample(draws=3_000))
    np.testing.assert_array_equal(some, all_draws[:, : some.shape[1]])


def test_looks_that_cannot_be_good_yet_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    look = GoalWatch.look

    def seeing(watch: GoalWatch, values: np.ndarray, **keywords: Any) -> Status:
        status = look(watch, values, **keywords)
        seen.append(status)
        return status

    monkeypatch.setattr(GoalWatch, "look", seeing)
    sample(until="mcse mu 0.02, 10000000 gradients", draws=10_000)
    looked = {status.rows for status in seen}
    grid = [seen[0].rows]
    while grid[-1] < seen[-1].rows:
        grid.append(math.ceil(FACTOR * grid[-1]))
    assert looked < set(grid)
    for before, after in itertools.pairwise(seen):
        assert after.rows > before.not_before / FACTOR


@pytest.mark.parametrize("other", [{"workers": 1}, {"workers": 4}, {"progress": True}])
def test_where_it_ends_depends_on_the_run_alone(other: dict[str, Any]) -> None:
    one, two = sample(until="ess 900, 200000 gradients"), sample(until="ess 900, 200000 gradients", **other)
    np.testing.assert_array_equal(draws(one), draws(two))
    assert attributes(one)["until_reason"] == attributes(two)["until_reason"]


def test_in_processes_it_ends_at_the_same_draw() -> None:
    target = stanadapt.Target.from_python(lambda x: -0.5 * float(x @ x), 2, lambda x: -x)
    run = {"method": "mala", "until": "ess 200", "warmup": 300}
    one, two = sample(target, workers=1, **run), sample(target, workers=2, **run)
    np.testing.assert_array_equal(draws(one, "x"), draws(two, "x"))


def test_a_limit_of_gradients_ends_a_run_at_a_draw_of_its_seed() -> None:
    one, two = sample(until="ess 100000, 20000 gradients"), sample(until="ess 100000, 20000 gradients")
    np.testing.assert_array_equal(draws(one), draws(two))
    attrs = attributes(one)
    assert (attrs["until_reached"], attrs["until_limit"]) == (0, "gradients")
    steps = datasets(one)["sample_stats"]["n_steps"].values.sum()
    assert 10_000 < steps <= 21_000  # those of warm-up count too
    found = [finding.text for finding in stanadapt.diagnose(one) if finding.kind == "until"]
    assert len(found) == 1
    assert "20000 gradients came first" in found[0]


def test_a_limit_of_time_says_at_which_draw_it_fell() -> None:
    sample(draws=10)  # loads kernels, whose time would count
    began = time.perf_counter()
    idata = sample(draws=1_000_000, until="ess 3900000, 1 s")
    assert time.perf_counter() - began < 30.0
    attrs, n = attributes(idata), draws(idata).shape[1]
    assert (attrs["until_reached"], attrs["until_limit"], attrs["until_draws"]) == (0, "seconds", n)
    assert n > 0
    np.testing.assert_array_equal(draws(sample(draws=n)), draws(idata))


def test_draws_are_the_most_there_may_be() -> None:
    goal = stanadapt.Until(mcse={"mu": 1e-4})  # the size of 400 draws may be more than 399
    attrs = attributes(idata := sample(until=goal, draws=100))
    assert draws(idata).shape == (4, 100)
    assert (attrs["until_limit"], attrs["interrupted"]) == ("draws", 0)
    assert "the last draw came first" in attrs["until_reason"]


def test_thinned_draws_are_what_goals_are_about() -> None:
    idata = sample(until="ess 400", thin=3)
    n = draws(idata).shape[1]
    np.testing.assert_array_equal(draws(idata), draws(sample(draws=3 * n, thin=3)))
    assert stanadapt.summary(idata)[["ess_bulk", "ess_tail"]].values.min() >= 400


@pytest.mark.usefixtures("never_runs")
@pytest.mark.parametrize(
    ("until", "words"),
    [
        ("ess", "until='ess' is not allowed"),
        ("ess 500, of nu", "until.of='nu' is not allowed"),
        ("ess 500, 10 years", "'10 years' is none of these"),
        ("rhat 0.9", "until.rhat=0.9"),
        ("ess 1e9", "at most"),
        ({"mcse": {"mu": -1.0}}, "until.mcse"),
        (400, "until=400"),
    ],
)
def test_goals_out_of_reach_are_refused_at_once(until: Any, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        stanadapt.sample(PROGRAM, until=until, **RUN)


@pytest.mark.usefixtures("never_runs")
def test_whole_chains_have_no_rounds() -> None:
    with pytest.raises(ArgumentError, match="whose chains run as a whole"):
        stanadapt.sample(PROGRAM, until="ess 400", **(RUN | {"method": "nuts"}))


def test_progress_shows_the_goal(capsys: pytest.CaptureFixture[str]) -> None:
    sample(until="ess 20000", progress=True)
    lines = capsys.readouterr().err
    assert "/20000" in lines
    assert "100%" in lines
