"""The race against other samplers: what it makes of rows and draws, and the library that counts gradients."""

from __future__ import annotations

import argparse
import shutil
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest

import peers
import stanadapt
from race import bars, judge, problems, samplers, scaling, shim
from race.lane import Lane, Result
from race.problems import Problem, Reference
from race.racer import Outcome
from stanadapt.model.steady import find_steady

CORRELATION = "parameters { corr_matrix[3] R; real x; } model { x ~ std_normal(); }"

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc to compile shim.c with")


def rows(**speed: dict[str, float]) -> pd.DataFrame:
    """A race of one seed, 1 s each: of every sampler its ESS by problem; NaN is a run that was capped."""
    lines = [
        {
            "problem": problem,
            "sampler": sampler,
            "chains": 4,
            "seed": 1,
            "draws": 100,
            "d": 2,
            "gradient_seconds": 1e-6,
            "status": "ok" if np.isfinite(ess) else "capped",
            "reason": "",
            "seconds": 1.0 if np.isfinite(ess) else np.nan,
            "cpu_seconds": 1.0,
            "gradients": 1000.0,
            "bulk": ess,
            "tail": ess / 2,
            "r_hat": 1.001,
            "z": 1.0,
        }
        for sampler, by_problem in speed.items()
        for problem, ess in by_problem.items()
    ]
    return pd.DataFrame(lines, columns=peers.COLUMNS)


def bar(found: list[bars.Bar], start: str) -> bars.Bar:
    (one,) = (each for each in found if each.what.startswith(start))
    return one


RACE = rows(
    ours={"a": 800.0, "b": 100.0, "c": 10.0},
    fast={"a": 100.0, "b": 10.0, "c": np.nan},
    slow={"a": 50.0, "b": 50.0, "c": 20.0},
)


def test_ratios_to_the_best_peer_and_to_each() -> None:
    rate = bars.rates(RACE, "bulk")
    ratio = bars.to_best(rate, "ours", ["fast", "slow"])
    assert ratio.to_dict() == {"a": 8.0, "b": 2.0, "c": 0.5}
    each = bars.to_each(rate, "ours", ["fast", "slow"])
    assert each["fast"] == pytest.approx(np.sqrt(8.0 * 10.0))  # where it finished
    assert each["slow"] == pytest.approx((16.0 * 2.0 * 0.5) ** (1 / 3))


def test_bars_say_what_is_met_and_who_missed() -> None:
    found = bars.bars(RACE, "ours", ["fast", "slow", "not raced"])
    best = bar(found, "bulk ESS/s, at least 3 times")
    assert best.value == "2.00 over 3"
    assert not best.met
    single = bar(found, "bulk ESS/s, at least 5 times")
    assert single.value.startswith("2.52 times slow")
    assert bar(found, "bulk ESS/s, no posterior").missed == ["c (0.50)"]
    assert bar(found, "tail ESS/s").met  # 2.00 of 2
    assert all(bar(found, start).met for start in ("R-hat", "means", "runs"))


def test_a_run_of_ours_that_was_capped_is_missed() -> None:
    race = rows(ours={"a": 800.0, "b": np.nan}, fast={"a": 1.0, "b": 1.0})
    ratio = bars.to_best(bars.rates(race, "bulk"), "ours", ["fast"])
    assert ratio.to_dict() == {"a": 800.0, "b": 0.0}
    assert bars.geometric_mean(ratio) == pytest.approx(1.0)  # 100 and 1/100: neither decides alone
    found = bars.bars(race, "ours", ["fast"])
    assert bar(found, "bulk ESS/s, no posterior").missed == ["b (0.00)"]
    assert bar(found, "R-hat").missed == ["b (inf)"]
    assert bar(found, "runs").missed == ["b (capped)"]


def test_r_hat_is_excused_where_every_peer_fails_too() -> None:
    race = rows(ours={"a": 1.0, "b": 1.0}, fast={"a": 1.0, "b": 1.0}, slow={"a": 1.0, "b": np.nan})
    race.loc[race["sampler"] == "ours", "r_hat"] = 1.2
    race.loc[(race["sampler"] == "fast") & (race["problem"] == "b"), "r_hat"] = 1.1
    found = bar(bars.bars(race, "ours", ["fast", "slow"]), "R-hat")
    assert found.missed == ["a (1.200)"]
    assert "1 where every peer fails too" in found.value


def test_means_off_the_reference_are_told() -> None:
    race = RACE.assign(z=[1.0, 5.0, np.nan] + [9.0] * 6)
    found = bar(bars.bars(race, "ours", ["fast", "slow"]), "means")
    assert (found.value, found.missed) == ("1 of 2", ["b (5.0)"])


def test_a_machine_that_is_not_idle_is_told_of() -> None:
    assert bars.disturbed(RACE.assign(chains=1)) == ""
    busy = RACE.assign(chains=1, cpu_seconds=[0.5] * 2 + [1.0] * 7)
    assert bars.disturbed(busy).startswith("The machine was not idle: 2 of 8 runs")
    alone = peers.by_cpu_time(busy)
    assert bars.disturbed(alone) == ""
    assert list(alone["seconds"][:3]) == [0.5, 0.5, 1.0]


def test_seeds_are_added_up() -> None:
    second = rows(ours={"a": 100.0}).assign(seed=2, seconds=8.0)
    rate = bars.rates(pd.concat([rows(ours={"a": 800.0}), second]), "bulk")
    assert rate.at["a", "ours"] == 100.0  # 900 in 9 s


def test_the_table_names_the_best_and_marks_what_is_wrong() -> None:
    race = RACE.copy()
    race.loc[0, "r_hat"] = 1.3
    lines = bars.table(race).splitlines()
    assert lines[2] == "| a | 2 | 1.00 | 800* | 100 | 50.0 | ours | 800 |"
    assert lines[4] == "| c | 2 | 1.00 | 10.0 | (1 capped) | 20.0 | slow | 20.0 |"


def test_chains_that_are_stuck_have_no_effective_draws() -> None:
    draws = np.random.default_rng(1).normal(size=(4, 500, 3))
    bulk, tail, r_hat = judge.sizes(draws)
    assert 1000 < bulk < 3000
    assert 1000 < tail < 3000
    assert r_hat < 1.02
    for spoil in (0.7, np.nan):
        spoilt = draws.copy()
        spoilt[2, :, 1] = spoil
        assert judge.sizes(spoilt) == (0.0, 0.0, np.inf)
    assert judge.sizes(np.ones((1, 500, 2)))[:2] == (0.0, 0.0)


def test_entries_that_cannot_move_are_left_out() -> None:
    problem = problems.opened("correlation", CORRELATION, None)
    free = [name for name, steady in zip(problem.parameters, problem.steady, strict=True) if not steady]
    assert free == ["R.2.1", "R.3.1", "R.3.2", "x"]
    posterior = stanadapt.Posterior(CORRELATION)
    draws = np.empty((2, 300, 10))
    points = np.random.default_rng(1).normal(size=(600, 4))
    posterior.model.writer(0)(points, draws.reshape(600, 10), np.arange(600))
    found = judge.verdict(problem, draws)
    assert found.bulk > 300
    assert np.isfinite(found.r_hat)


@pytest.mark.parametrize("least", ["0.2", "-50"], ids=["at some points", "at all points"])
def test_a_failed_write_makes_no_parameter_steady(least: str) -> None:
    program = f"""parameters {{ real a; }}
      transformed parameters {{ real b = a; if (a > {least}) reject("a"); }} model {{ a ~ std_normal(); }}"""
    assert not find_steady(stanadapt.Posterior(program)).any()


def test_without_a_parameter_that_moves_there_is_no_verdict() -> None:
    draws = np.random.default_rng(1).normal(size=(4, 100, 1))
    problem = Problem("steady", "", "", 1, ["a"], [], np.ones(1, bool))
    assert np.isnan(judge.verdict(problem, draws)).all()


def test_distance_is_in_errors_of_both() -> None:
    draws = np.random.default_rng(2).normal([0.0, 1.0], size=(4, 1000, 2))
    exact = Reference(["b", "a", "elsewhere"], np.array([1.0, 0.0, 7.0]), np.zeros(3))
    assert judge.distance(exact, ["a", "b"], draws) < 4.0
    error = draws[..., 1].std() / np.sqrt(4000)
    far = Reference(["b"], np.array([1.0 + 10 * error]), np.array([0.0]))
    assert judge.distance(far, ["a", "b"], draws) == pytest.approx(10.0, abs=3.0)
    unsure = Reference(["b"], np.array([1.0 + 10 * error]), np.array([10 * error]))
    assert judge.distance(unsure, ["a", "b"], draws) < 1.4
    assert np.isnan(judge.distance(None, ["a", "b"], draws))


@needs_gcc
def test_the_shim_is_stanli_and_counts_gradients() -> None:
    problem = problems.opened("correlation", CORRELATION, None)
    posterior = stanadapt.Posterior(CORRELATION)
    model = shim.opened(problem.bridgestan_data, 3)
    points = np.random.default_rng(3).normal(size=(40, 4))
    expected = [posterior.log_density_gradient(x) for x in points]
    before = shim.gradients()
    with ThreadPoolExecutor(4) as threads:  # one more than there are copies
        found = list(threads.map(model.log_density_gradient, points))
    assert shim.gradients() - before == 40
    for (value, score), (known, known_score) in zip(found, expected, strict=True):
        assert value == known
        np.testing.assert_array_equal(score, known_score)
    assert model.log_density(points[0]) == posterior.log_density(points[0])
    assert model.param_names() == problem.parameters
    np.testing.assert_array_equal(model.param_constrain(points[0])[-1], posterior.constrain(points[0])["x"])
    assert shim.gradients() - before == 40
    del model  # a closed model's count stays
    assert shim.gradients() - before == 40


@needs_gcc
def test_the_shim_passes_errors_on() -> None:
    program = "data { real a; } parameters { real x; } model { x ~ normal(0, a); }"
    problem = problems.opened("scale", program, {"a": 1})
    with pytest.raises(RuntimeError, match="a"):
        shim.opened(problem.bridgestan_data.replace('"a": 1', '"b": 1'))
    assert shim.gradient_seconds(shim.opened(problem.bridgestan_data)) > 0.0


@needs_gcc
def test_our_methods_count_all_their_gradients() -> None:
    problem = problems.small()
    racer = samplers.racer("hmc")(problem, 2, 1)
    outcome = racer.run(100, 1)()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stanadapt.StanAdaptWarning)  # chains this short say little
        stats = stanadapt.sample(
            "parameters { vector[2] x; } model { x ~ std_normal(); }",
            method="hmc",
            chains=2,
            draws=100,
            seed=1,
            save_warmup=True,
            progress=False,
        )
    steps = sum(int(stats[group]["n_steps"].sum()) for group in ("sample_stats", "warmup_sample_stats"))
    assert outcome.draws.shape == (2, 100, 2)
    searched = int(stats["adaptation"]["search_evaluations"])  # for modes, some of them without a gradient
    assert 0 <= outcome.gradients - steps < 200 + searched  # the search for a start


def test_the_gaussian_has_the_condition_number_that_it_says() -> None:
    problem = problems.gaussian(13)
    posterior = stanadapt.Posterior(problems.GAUSSIAN, problem.data)
    at_zero = posterior.log_density_gradient(np.zeros(13))[1]
    precision = np.array([at_zero - posterior.log_density_gradient(x)[1] for x in np.eye(13)])
    np.testing.assert_allclose(precision, precision.T, atol=1e-12)
    np.testing.assert_allclose(1 / np.linalg.eigvalsh(precision)[::-1], np.geomspace(1.0, 1e4, 13), rtol=1e-6)
    covariance = np.linalg.inv(precision)
    scales = np.sqrt(np.diag(covariance))
    assert np.linalg.cond(covariance / np.outer(scales, scales)) > 1000  # no diagonal metric is enough


class _Straight:
    """A lane without a process, which draws from a standard Gaussian, and fails for "broken"."""

    runs: ClassVar[list[tuple[str, str, int]]] = []

    def __init__(self, name: str, chains: int, cores: list[int]) -> None:
        self.name, self.chains = name, chains

    def run(self, problem: Problem, draws: int, seed: int, cap: float) -> Result:
        self.runs.append((problem.name, self.name, seed))
        if self.name == "broken":
            return Result("failed", "as always")
        values = np.random.default_rng(seed).normal(size=(self.chains, draws, problem.d))
        return Result("ok", outcome=Outcome(0.5, 0.5, 100.0, values))

    def close(self) -> None: ...


@pytest.fixture
def straight(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, int]]:
    monkeypatch.setattr(peers, "Lane", _Straight)
    _Straight.runs.clear()
    return _Straight.runs


def test_a_race_goes_on_where_it_was_left(tmp_path: Path, straight: list[Any]) -> None:
    path = tmp_path / "peers.csv"
    openers = {"small": problems.small}
    given = argparse.Namespace(chains=[2], seeds=[1], draws=50, cap=1.0)
    peers.race(openers, ["one", "broken"], given, peers.Results(path, resume=False))
    assert straight == [("small", "one", 1), ("small", "broken", 1)]
    text = path.read_text()

    straight.clear()
    given.seeds = [1, 2]
    again = peers.Results(path, resume=True)
    peers.race(openers, ["one", "broken"], given, again)
    assert straight == [("small", "one", 2), ("small", "broken", 2)]
    assert path.read_text().startswith(text)
    pd.testing.assert_frame_equal(peers.read(path), again.rows, check_dtype=False)
    assert list(again.rows["status"]) == ["ok", "failed"] * 2
    assert "broken failed, 2 runs (small): as always" in bars.summary(again.rows, ["one"], ["broken"])


def test_files_of_something_else_are_refused(tmp_path: Path) -> None:
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(SystemExit, match="no column problem"):
        peers.read(tmp_path / "other.csv")


def test_show_prints_and_draws_what_a_file_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    race = RACE.replace({"fast": "nutpie", "slow": "stan_diag"})
    race.to_csv(tmp_path / "peers.csv", index=False)
    command = ["peers.py", "--show", str(tmp_path / "peers.csv"), "--picture", str(tmp_path / "peers.png")]
    monkeypatch.setattr("sys.argv", command)
    peers.main()
    said = capsys.readouterr().out
    assert "Bars of `ours`, 4 chains" in said
    assert "2.52 times stan_diag" in said
    monkeypatch.setattr("sys.argv", [*command[:4], str(tmp_path / "scaling.png"), "--scaling"])
    peers.main()
    assert "| 2 | 1.00 |" in capsys.readouterr().out
    assert all((tmp_path / name).stat().st_size > 10_000 for name in ("peers.png", "scaling.png"))


def test_costs_of_an_effective_sample() -> None:
    cost = scaling.costs(rows(ours={"a": 200.0, "b": 50.0}))
    assert cost.loc[(2, "ours")].to_dict() == {"gradients": 8.0, "seconds": 0.008}


@needs_gcc
def test_a_run_over_its_time_is_ended_and_the_next_one_goes_well() -> None:
    lane = Lane("hmc", 1, peers.cores_for(1))
    try:
        assert lane.run(problems.small(), 1_000_000, 1, 0.01).status == "capped"
        found = lane.run(problems.small(), 50, 1, 60.0)
        assert found.status == "ok", found.reason
        assert found.outcome is not None
        assert found.outcome.draws.shape == (1, 50, 2)
        broken = problems.opened("broken", 'parameters { real x; } model { reject("no"); }', None)
        failed = lane.run(broken, 50, 1, 60.0)
        assert (failed.status, failed.reason[:19]) == ("failed", "InitializationError")
    finally:
        lane.close()
