"""The commands optimize, laplace and pathfinder: what they print, write and refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import stanadapt
from stanadapt import cli
from stanadapt.result import files
from stanadapt.result.container import datasets

MODELS = Path(__file__).parents[2] / "models"
SCHOOLS = [f"{MODELS}/eight_schools/eight_schools.stan", f"--data={MODELS}/eight_schools/eight_schools.json"]
FILES = f"{MODELS}/eight_schools/eight_schools.stan", f"{MODELS}/eight_schools/eight_schools.json"

pytestmark = pytest.mark.filterwarnings("ignore::stanadapt.StanAdaptWarning")


def stanadapt_command(*arguments: object) -> Result:
    return CliRunner().invoke(cli.main, [str(argument) for argument in arguments])


@pytest.mark.parametrize(
    ("command", "keywords", "options", "said"),
    [
        ("optimize", {"jacobian": True}, ["--jacobian"], "10 of 10 starts ended at this maximum."),
        ("laplace", {}, [], "Pareto k is 0."),
        ("pathfinder", {"draws": 500}, ["--draws", 500], "Pareto k is 0."),
    ],
)
def test_a_command_writes_what_the_function_returns(
    command: str, keywords: dict[str, Any], options: list[Any], said: str, tmp_path: Path
) -> None:
    out = tmp_path / "fit.nc"
    done = stanadapt_command(command, *SCHOOLS, "--seed=1", "--out", out, *options)
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith(f"{command} with stanli")
    assert said in done.stdout
    assert "theta_trans[0]" in done.stdout
    assert "log_lik" not in done.stdout
    assert f"Written to {out}" in done.stdout
    expected = getattr(stanadapt, command)(*FILES, seed=1, **keywords)
    written = datasets(files.read(out))
    for name in ("mu", "theta"):
        assert np.array_equal(written["posterior"][name].values, expected["posterior"][name].values)
    assert written["posterior"].attrs["method"] == command


def test_findings_are_printed(tmp_path: Path) -> None:
    out = tmp_path / "fit.nc"
    done = stanadapt_command("optimize", *SCHOOLS, "--seed=1", "--starts=3", "--out", out)
    assert done.exit_code == 0
    assert "Findings:\n- 3 of 3 starts ran to the boundary of the support" in done.stdout
    again = stanadapt_command("diagnose", out)
    assert "3 of 3 starts ran to the boundary" in again.stdout


def test_quiet_prints_nothing(tmp_path: Path) -> None:
    done = stanadapt_command(
        "laplace", *SCHOOLS, "--seed=1", "--quiet", "--no-learn", "--out", tmp_path / "a.nc"
    )
    assert (done.exit_code, done.output) == (0, "")


def test_a_file_is_a_start_and_a_warm_start(tmp_path: Path) -> None:
    first, second = tmp_path / "first.nc", tmp_path / "second.nc"
    assert stanadapt_command("laplace", *SCHOOLS, "--seed=1", "--out", first).exit_code == 0
    run = [
        "sample",
        *SCHOOLS,
        "--method=fisher_hmc",
        "--seed=2",
        "--draws=100",
        "--chains=2",
        "--no-progress",
    ]
    assert stanadapt_command(*run, "--init", first, "--out", second).exit_code == 0
    done = stanadapt_command(*run, "--warm", first, "--out", second, "--force")
    assert done.exit_code == 0, done.output
    assert "metric, coordinates of laplace" in datasets(files.read(second))["posterior"].attrs["warm"]


@pytest.mark.parametrize("command", ["optimize", "laplace", "pathfinder"])
def test_help_has_an_example_that_is_the_command(command: str) -> None:
    shown = stanadapt_command(command, "--help")
    assert shown.exit_code == 0
    assert f"stanadapt {command} eight_schools.stan --data eight_schools.json" in shown.output
    assert "--backend" in shown.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["optimize", *SCHOOLS, "--starts=0"], "--starts"),
        (["laplace", *SCHOOLS, "--draws=10"], "--draws"),
        (["pathfinder", *SCHOOLS, "--init", "nowhere.json"], "nowhere.json"),
        (["pathfinder", "nothing.stan"], "nothing.stan"),
        (["laplace", *SCHOOLS, "--log-likelihood", "nothing"], "log_likelihood='nothing'"),
    ],
)
def test_what_is_not_allowed_is_refused(arguments: list[str], words: str, tmp_path: Path) -> None:
    done = stanadapt_command(*arguments, "--out", tmp_path / "fit.nc")
    assert done.exit_code == 2
    assert words in done.output
    assert not (tmp_path / "fit.nc").exists()


def test_a_file_is_replaced_only_if_asked(tmp_path: Path) -> None:
    out = tmp_path / "fit.nc"
    out.write_text("mine")
    done = stanadapt_command("optimize", *SCHOOLS, "--seed=1", "--out", out)
    assert done.exit_code == 2
    assert "--force" in done.output
    assert out.read_text() == "mine"
