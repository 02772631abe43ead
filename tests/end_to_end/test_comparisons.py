"""Comparisons of real runs: budgets, failures, interrupts, who is named, the command and its page."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import stanadapt
from broken import SLIGHTLY_BROKEN, edited_sampler, offered
from programs import WALK
from stanadapt.cli import main
from stanadapt.comparisons.running import FAILED, INTERRUPTED, NOT_RUN, OK
from stanadapt.diagnostics.estimates import STATISTICS
from stanadapt.result.container import attributes, datasets

MODELS = Path(__file__).parents[2] / "models"
SCHOOLS = MODELS / "eight_schools" / "eight_schools"
FILES = f"{SCHOOLS}.stan", f"{SCHOOLS}.json"
NORMAL = "parameters { vector[2] x; real<lower=0> y; } model { x ~ std_normal(); y ~ gamma(4, 2); }"
CHEAP = {"rwm": {"warmup": 500}, "fisher_mala": {"warmup": 1_000}}


def compare(*arguments: Any, **keywords: Any) -> stanadapt.Comparison:
    return stanadapt.compare(*arguments, progress=False, **({"seed": 1} | keywords))


def evaluations_of(facts: Any) -> int:
    """All that a run has taken: in warm-up, in searches for coordinates and for its draws."""
    counts = "evaluations", "evaluations_warmup", "field_gradients"
    return int(sum(facts[name].sum() for name in counts if name in facts))


@pytest.fixture(scope="module")
def schools() -> stanadapt.Comparison:
    methods = {"fisher_mala": {"warmup": 2_000}, "fisher_hmc": {}, "am": {"warmup": 5_000}, "nuts": {}}
    return compare(
        *FILES, methods=methods, budget="120000 gradients", reference=f"{SCHOOLS.parent}/truth.json"
    )


def test_every_method_spends_the_budget(schools: stanadapt.Comparison) -> None:
    table = schools.table
    assert (table["status"] == OK).all()
    # The draws that nuts has left are counted by their average cost.
    np.testing.assert_allclose(table["evaluations"], 120_000, rtol=0.05)
    for label, idata in schools.results.items():
        groups = datasets(idata)
        facts, stats = groups["adaptation"], groups["sample_stats"]
        assert int(facts["evaluations"].sum()) == int(stats["n_steps"].sum())
        assert evaluations_of(facts) == table.loc[label[0], "evaluations"]
        assert stats.sizes["draw"] == table.loc[label[0], "draws"]
        assert "unconstrained_posterior" not in groups
        assert "warmup_posterior" not in groups


def test_searches_for_coordinates_are_paid_from_the_budget() -> None:
    data = {"T": 30, "y": np.cumsum(np.random.default_rng(1).normal(size=30))}
    found = compare(WALK, data, methods="fisher_hmc", budget="20000 gradients")
    facts = datasets(found.results["fisher_hmc", 0])["adaptation"]
    assert facts["field_gradients"].sum() > 1_000
    assert evaluations_of(facts) == found.table.loc["fisher_hmc", "evaluations"]
    assert evaluations_of(facts) == pytest.approx(20_000, rel=0.05)


def test_the_row_of_a_method_is_its_result(schools: stanadapt.Comparison) -> None:
    idata, row = schools.results["fisher_hmc", 0], schools.table.loc["fisher_hmc"]
    frame = stanadapt.summary(idata, ["mu", "tau", "theta_trans"])
    assert row["ess_bulk_min"] == pytest.approx(frame["ess_bulk"].min())
    assert row["ess_tail_median"] == pytest.approx(frame["ess_tail"].median())
    assert row["r_hat"] == pytest.approx(frame["r_hat"].max())
    assert row["ess_bulk_min_per_1000"] == pytest.approx(1000 * row["ess_bulk_min"] / row["evaluations"])
    assert row["ess_bulk_min_per_second"] == pytest.approx(row["ess_bulk_min"] / row["seconds"])
    assert row["acceptance"] == pytest.approx(
        datasets(idata)["sample_stats"]["acceptance_rate"].mean().item()
    )
    assert row["seconds"] == attributes(idata)["sampling_time"]
    own = schools.estimates.query("method == 'fisher_hmc' and statistic == 'mean'").set_index("quantity")
    np.testing.assert_allclose(own["value"], frame["mean"])
    np.testing.assert_allclose(own["mcse"], frame["mcse_mean"])


def test_right_methods_agree_with_the_truth(schools: stanadapt.Comparison) -> None:
    assert schools.disagreements == []
    assert "the reference" in schools.words[0]
    assert (schools.table["z_mean"] < 5.0).all()
    assert schools.table["z_quantile"].isna().all()  # truth.json has means and sds
    assert len(schools.estimates) == 4 * 10 * len(STATISTICS)


def test_a_label_and_a_seed_give_the_same_draws_in_other_company(schools: stanadapt.Comparison) -> None:
    alone = compare(*FILES, methods=["fisher_hmc"], budget="120000 gradients")
    for name in ("mu", "theta_trans"):
        one, other = (
            datasets(each.results["fisher_hmc", 0])["posterior"][name].values for each in (alone, schools)
        )
        np.testing.assert_array_equal(one, other)
    assert alone.words[0].startswith("Only one method has converged")


def test_jumps_are_those_of_unconstrained_draws() -> None:
    methods = {"rwm": {"warmup": 200}}
    found = compare(NORMAL, methods=methods, budget=300, chains=2)
    seed = int(attributes(found.results["rwm", 0])["seed"])
    idata = stanadapt.sample(
        NORMAL,
        method="rwm",
        warmup=200,
        draws=300,
        chains=2,
        seed=seed,
        keep_unconstrained=True,
        progress=False,
    )
    x = datasets(idata)["unconstrained_posterior"]["x"].values
    expected = (np.diff(x, axis=1) ** 2).sum(axis=2).mean()
    assert found.table.loc["rwm", "esjd"] == pytest.approx(expected)
    assert found.table.loc["rwm", "draws"] == 300
    assert found.table.loc["rwm", "evaluations"] == 2 * (200 + 300)


# `make test` has right methods above; in unit/test_estimates.py chance is rarely taken for a difference.
@pytest.mark.thorough
def test_right_methods_are_not_named_whatever_the_seed() -> None:
    """At an error rate of 0.001 for each of the comparisons, of draws that depend on each other."""
    posterior = stanadapt.Posterior(NORMAL)
    methods = {"rwm": {"warmup": 500}, "am": {"warmup": 1_000}, "fisher_mala": {"warmup": 1_000}}
    compared = 0
    for seed in range(6):
        found = compare(posterior, methods=methods, budget=6_000, seed=seed, workers=1)
        assert found.disagreements == [], (seed, found.words)
        compared += int(found.table["converged"].sum())
    assert compared > 12  # or there was nothing to name


def test_a_broken_method_is_named_and_it_alone(tmp_path: Path) -> None:
    method, file, text, other = SLIGHTLY_BROKEN["rwm with nine tenths of the log ratio"]
    with offered(edited_sampler(method, {file: {text: other}}, tmp_path)) as broken:
        methods = {broken: {"warmup": 1_000}, "rwm": {"warmup": 1_000}, "fisher_mala": {"warmup": 1_000}}
        found = compare(NORMAL, methods=methods, budget=40_000)
        assert found.table["converged"].all()
        assert {each.method for each in found.disagreements} == {broken}
        assert any(each.statistic == "sd" and each.z > 5.0 for each in found.disagreements)
        assert found.words[0].startswith(f"{broken} disagrees with rwm and fisher_mala in ")
        exact = {"x": {"mean": [0.0, 0.0], "sd": [1.0, 1.0]}, "y": {"mean": 2.0, "sd": 1.0}}
        known = compare(NORMAL, methods=methods, budget=40_000, reference=exact)
        assert {each.method for each in known.disagreements} == {broken}
        assert known.words[0].startswith(f"{broken} disagrees with the reference in ")


def test_a_method_that_is_not_for_the_posterior_is_a_row_with_its_reason() -> None:
    target = stanadapt.Target.from_python(lambda x: -0.5 * float(x @ x), 2)
    found = compare(target, methods={**CHEAP, "nuts": {}}, budget=200, chains=2)
    assert found.table["status"].to_dict() == {"rwm": OK, "fisher_mala": FAILED, "nuts": FAILED}
    assert "needs a gradient" in found.table.loc["fisher_mala", "reason"]
    assert "needs a Stan program" in found.table.loc["nuts", "reason"]
    assert isinstance(found.failures["nuts", 0], stanadapt.errors.ArgumentError)
    assert np.isnan(found.table.loc["nuts", "ess_bulk_min"])
    assert list(found.results) == [("rwm", 0)]


class Failing:
    """A log density that does something at a call."""

    def __init__(self, at: int, act: Any) -> None:
        self.at, self.act, self.calls = at, act, 0

    def __call__(self, x: np.ndarray) -> float:
        self.calls += 1
        if self.calls == self.at:
            self.act()
        return -0.5 * float(x @ x)


def test_an_exception_of_the_model_is_a_reason() -> None:
    def act() -> None:
        raise ZeroDivisionError("nothing here")

    target = stanadapt.Target.from_python(Failing(900, act), 1)
    methods = {"rwm": {"warmup": 100}, "am": {"warmup": 100}}
    found = compare(target, methods=methods, budget=500, chains=1, workers=1)
    assert found.table["status"].to_dict() == {"rwm": OK, "am": FAILED}
    assert "ZeroDivisionError: nothing here" in found.table.loc["am", "reason"]
    assert any(note.startswith("am failed: ZeroDivisionError") for note in found.notes)


def test_ctrl_c_keeps_what_is_there() -> None:
    def act() -> None:
        os.kill(os.getpid(), signal.SIGINT)

    target = stanadapt.Target.from_python(Failing(40_000, act), 1)
    methods = {"rwm": {"warmup": 100}, "am": {"warmup": 100}, "arwmh": {"warmup": 100}}
    found = compare(target, methods=methods, budget=30_000, chains=1, workers=1)
    assert found.table["status"].to_dict() == {"rwm": OK, "am": INTERRUPTED, "arwmh": NOT_RUN}
    assert found.interrupted
    assert 4 <= found.table.loc["am", "draws"] < 30_000
    assert found.table.loc["arwmh", "reason"] == "the comparison was interrupted"
    assert set(found.results) == {("rwm", 0), ("am", 0)}


def test_ctrl_c_before_any_draw_is_raised() -> None:
    def act() -> None:
        os.kill(os.getpid(), signal.SIGINT)

    target = stanadapt.Target.from_python(Failing(50, act), 1)
    with pytest.raises(KeyboardInterrupt):
        compare(target, methods={"rwm": {"warmup": 1_000_000}}, budget=100, chains=1, workers=1)


def test_a_budget_that_ends_in_warm_up_is_a_reason() -> None:
    methods = {"rwm": {"warmup": 3_000}, "am": {"warmup": 100}, "nuts": {}}
    found = compare(NORMAL, methods=methods, budget="2000 gradients", chains=1)
    assert found.table["status"].to_dict() == {"rwm": FAILED, "am": OK, "nuts": FAILED}
    for label in ("rwm", "nuts"):
        assert "of the 2000 gradients: raise the budget" in found.table.loc[label, "reason"]
    slow = {"rwm": {"warmup": 2**30}, "nuts": {"warmup": 2_000_000}}
    late = compare(NORMAL, methods=slow, budget="0.2 s", chains=1)
    assert (late.table["status"] == FAILED).all()
    assert "the 0.2 s were over in its warm-up" in late.table.loc["rwm", "reason"]
    assert "its warm-up takes all of the 0.2 s" in late.table.loc["nuts", "reason"]


def test_a_time_ends_runs() -> None:
    methods = {"rwm": {"warmup": 500}, "nuts": {"warmup": 200}}
    found = compare(NORMAL, methods=methods, budget="0.5 s", chains=2)
    assert (found.table["status"] == OK).all()
    # How long the last blocks and processes take, the machine decides; what came of it depends on the budget.
    assert (found.table["seconds"] > 0.1).all()
    limit = attributes(found.results["rwm", 0])["until_limit"]
    reason = found.table.loc["rwm", "reason"]
    assert (limit, reason) == ("seconds", "") or (limit == "draws" and "before the 0.5 s were over" in reason)
    assert found.table.loc["nuts", "draws"] > 100


def test_repeats_and_other_arguments() -> None:
    found = compare(
        NORMAL,
        methods={"rwm": {"warmup": 200}, "chosen": {"method": "auto"}},
        budget="400",
        repeats=2,
        thin=2,
        chains=2,
        var_names=["y"],
        mmd=True,
        dims={"x": ["axis"]},
        coords={"axis": ["east", "north"]},
    )
    assert list(found.runs.index) == [(label, i) for label in ("rwm", "chosen") for i in (0, 1)]
    assert found.runs["draws"].tolist() == [200.0] * 4
    seeds = {attributes(each)["seed"] for each in found.results.values()}
    assert len(seeds) == 4
    assert found.facts["quantities"] == 1
    assert set(found.estimates["quantity"]) == {"y"}
    assert found.runs["mmd2"].notna().sum() in (0, 2, 4)  # where one has converged, the other has a distance
    x = datasets(found.results["chosen", 1])["posterior"]["x"]
    assert x.coords["axis"].values.tolist() == ["east", "north"]


# --- The command


def run(*arguments: str) -> Any:
    return CliRunner().invoke(main, ["compare", *arguments])


def test_the_command(tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    done = run(
        *(
            FILES[0],
            "--data",
            FILES[1],
            "--methods",
            "fisher_hmc, fisher_mala",
            "--budget",
            "80000 gradients",
        ),
        *(
            "--seed",
            "1",
            "--no-progress",
            "--out",
            str(out),
            "--reference",
            str(SCHOOLS.parent / "truth.json"),
        ),
    )
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert lines[0].startswith("10 quantities of a posterior in 10 dimensions; budget 80000 gradients")
    assert [line.split()[0] for line in lines[3:5]] == ["fisher_hmc", "fisher_mala"]
    assert lines[-1] == f"Written to {out}"
    read = json.loads(out.read_text("utf-8"))
    assert [row["status"] for row in read["table"]] == [OK, OK]
    again = run(FILES[0], "--data", FILES[1], "--out", str(out))
    assert again.exit_code == 2
    assert "use --force" in again.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--budget", "a while"), "budget='a while'"),
        (("--methods", "rwm,nut"), "method='nut'"),
        (("--out", "found.txt"), "one of .html, .csv, .json"),
        (("--var", "sigma"), "var_names='sigma'"),
        (("--chains", "0"), "--chains"),
    ],
)
def test_the_command_refuses(arguments: tuple[str, ...], message: str) -> None:
    done = run(FILES[0], "--data", FILES[1], *arguments)
    assert done.exit_code == 2
    assert message in done.output


def test_the_command_ends_like_others_after_an_interrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from stanadapt import compare as door

    def interrupted(*arguments: Any, **keywords: Any) -> Any:
        found = door(*arguments, **keywords)
        found.signal = int(signal.SIGTERM)
        return found

    monkeypatch.setattr(stanadapt, "compare", interrupted)
    out = tmp_path / "found.csv"
    done = run(
        FILES[0],
        "--data",
        FILES[1],
        "--methods",
        "fisher_hmc",
        "--budget",
        "100",
        "--quiet",
        "--out",
        str(out),
    )
    assert done.exit_code == 128 + signal.SIGTERM
    assert out.is_file()
    assert done.output == ""
