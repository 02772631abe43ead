"""The command `stanadapt`: what it writes, prints and refuses, and its exit statuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import xarray
from click.testing import CliRunner, Result

import stanadapt
from stanadapt import api, cli, samplers
from stanadapt.cli import options
from stanadapt.diagnostics import table
from stanadapt.result import files, netcdf
from stanadapt.result.container import datasets

MODELS = Path(__file__).parents[2] / "models"
SCHOOLS = [f"{MODELS}/eight_schools/eight_schools.stan", f"--data={MODELS}/eight_schools/eight_schools.json"]
SHORT = ["--seed=1", "--warmup=200", "--draws=200", "--chains=2", "--no-progress"]
NORMAL = "parameters { real x; } model { x ~ std_normal(); }"

pytestmark = pytest.mark.filterwarnings("ignore::stanadapt.StanAdaptWarning")


def stanadapt_command(*arguments: object) -> Result:
    return CliRunner().invoke(cli.main, [str(argument) for argument in arguments])


@pytest.fixture
def normal(tmp_path: Path) -> Path:
    """A small model; its file."""
    path = tmp_path / "normal.stan"
    path.write_text(NORMAL)
    return path


@pytest.fixture(scope="module")
def fit(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """The file of a short run on eight schools, and what the command said."""
    out = tmp_path_factory.mktemp("cli") / "fit.nc"
    return out, stanadapt_command("sample", *SCHOOLS, *SHORT, "--out", out)


def groups(path: Path) -> dict[str, xarray.Dataset]:
    return datasets(files.read(path))


def test_a_fit_begins_with_what_an_earlier_one_has_learnt(normal: Path, tmp_path: Path) -> None:
    run = [normal, "--method=fisher_hmc", "--draws=100", "--chains=2", "--no-progress"]
    first, second = tmp_path / "first.nc", tmp_path / "second.nc"
    assert stanadapt_command("sample", *run, "--seed=1", "--out", first).exit_code == 0
    done = stanadapt_command("sample", *run, "--seed=2", "--warm", first, "--out", second)
    assert done.exit_code == 0, done.output
    found = groups(second)["adaptation"]
    assert found["warmup_iterations"].values.max() <= 100
    assert found.attrs["warm"].startswith("starts, metric, step size of fisher_hmc, seed 1")
    refused = stanadapt_command("sample", *run, "--warm", normal, "--out", tmp_path / "third.nc")
    assert refused.exit_code == 2
    assert "warm" in refused.output


def test_version_and_help() -> None:
    version = f"stanadapt, version {stanadapt.__version__}\n"
    assert stanadapt_command("--version").output == version
    as_module = [sys.executable, "-m", "stanadapt", "--version"]
    assert subprocess.run(as_module, capture_output=True, text=True, check=True).stdout == version
    shown = stanadapt_command("--help")
    assert shown.exit_code == 0
    assert "stanadapt sample eight_schools.stan --data eight_schools.json" in shown.output
    assert "..." not in shown.output.replace("[ARGS]...", "")


@pytest.mark.parametrize("command", ["sample", "summary", "diagnose", "evidence", "methods", "check"])
def test_every_command_has_an_example(command: str) -> None:
    shown = stanadapt_command(command, "--help")
    assert f"Example:\n    stanadapt {command}" in shown.output


def test_help_imports_nothing_slow() -> None:
    script = (
        "import sys, stanadapt.cli\n"
        "print(sorted({'numpy', 'numba', 'xarray', 'arviz', 'scipy', 'stanli'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_sample_gives_the_draws_of_the_python_function(fit: tuple[Path, Result]) -> None:
    out, said = fit
    assert said.exit_code == 0, said.output
    data = SCHOOLS[1].removeprefix("--data=")
    expected = stanadapt.sample(
        SCHOOLS[0], data, seed=1, warmup=200, draws=200, chains=2, progress=False, workers=1
    )
    np.testing.assert_array_equal(groups(out)["posterior"]["theta"], datasets(expected)["posterior"]["theta"])


def test_sample_reports(fit: tuple[Path, Result]) -> None:
    out, said = fit
    lines = said.stdout.splitlines()
    assert lines[0].startswith("fisher_mala with stanli ")
    assert ": 2 chains, 200 draws each after 200 iterations of warm-up, seed 1, in " in lines[0]
    assert lines[2].split() == ["mean", "sd", "q5", "q95", "mcse_mean", "ess_bulk", "ess_tail", "r_hat"]
    assert [line.split()[0] for line in lines[3:13]] == [
        "mu",
        "tau",
        *(f"theta_trans[{i}]" for i in range(8)),
    ]
    assert "Findings:\n- " in said.stdout
    assert "effective sample size is under 100 a chain" in said.stdout
    assert lines[-1] == f"Written to {out}"
    assert said.stderr == ""


def test_sample_passes_its_options_on(tmp_path: Path) -> None:
    out = tmp_path / "fit.nc"
    said = stanadapt_command(
        *("sample", *SCHOOLS, "--seed=7", "--warmup=200", "--draws=300", "--chains=3", "--workers=1"),
        *("--thin=3", "--save-warmup", "--keep-unconstrained", "--log-likelihood=log_lik", "--out", out),
        *("--posterior-predictive=y_rep", "--set", "damping=1", "--set", "faithful=yes", "--quiet"),
        *("--set", "signal=score", "--set", "simple_mala=50", "--init-radius=0.5", "--backend=stanli"),
    )
    assert (said.exit_code, said.stdout, said.stderr) == (0, "", "")
    written = groups(out)
    assert dict(written["posterior"].sizes)["chain"] == 3
    assert written["posterior"].sizes["draw"] == 100
    assert written["warmup_posterior"].sizes["draw"] == 66
    assert written["unconstrained_posterior"]["x"].shape == (3, 100, 10)
    assert set(written["log_likelihood"]) == {"log_lik"}
    assert set(written["posterior_predictive"]) == {"y_rep"}
    assert np.all(np.abs(written["adaptation"]["start"]) <= 0.5)
    settings = json.loads(written["posterior"].attrs["settings"])
    chosen = {name: settings[name] for name in ("damping", "faithful", "signal", "simple_mala")}
    assert chosen == {"damping": 1.0, "faithful": True, "signal": "score", "simple_mala": 50}
    assert written["posterior"].attrs["seed"] == 7


def test_default_file_is_named_by_the_model(
    normal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert stanadapt_command("sample", normal, *SHORT).exit_code == 0
    assert (tmp_path / "normal.nc").is_file()


def test_init_takes_a_radius_a_json_file_and_an_earlier_run(normal: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first.nc", tmp_path / "second.nc"
    sample = ("sample", normal, *SHORT, "--set", "faithful=true")
    assert stanadapt_command(*sample, "--out", first, "--init", "0").exit_code == 0
    assert np.all(groups(first)["adaptation"]["start"] == 0.0)

    assert stanadapt_command(*sample, "--out", second, "--init", first).exit_code == 0
    last = groups(first)["posterior"]["x"].isel(draw=-1)
    np.testing.assert_array_equal(groups(second)["adaptation"]["start"].values[:, 0], last)

    values = tmp_path / "init.json"
    values.write_text('{"x": 1.25}')
    assert stanadapt_command(*sample, "--out", second, "--force", "--init", values).exit_code == 0
    assert np.all(groups(second)["adaptation"]["start"] == 1.25)

    said = stanadapt_command(*sample, "--out", second, "--force", "--init", "nowhere.json")
    assert said.exit_code == 2
    assert "'nowhere.json' is neither a number nor a file" in said.stderr


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--set", "damping=-1", "settings['damping']=-1.0 is not allowed"),
        ("--set", "damping=much", "settings['damping']='much' is not allowed"),
        ("--set", "faithful=maybe", "settings['faithful']='maybe' is not allowed"),
        ("--set", "dampin=1", "nearest: damping"),
        ("--set", "damping", "'damping' is not of the form NAME=VALUE"),
        ("--method", "fisher", "nearest: fisher_hmc, fisher_mala"),
        ("--chains", "0", "--chains"),
        ("--seed", "-1", "--seed"),
        ("--thin", "201", "thin=201 is not allowed"),
        ("--init-radius", "nan", "init_radius=nan is not allowed"),
        ("--log-likelihood", "nothing", "log_likelihood='nothing' is not allowed"),
        ("--data", "nowhere.json", "nowhere.json"),
    ],
)
def test_bad_values_exit_with_2(normal: Path, tmp_path: Path, option: str, value: str, message: str) -> None:
    said = stanadapt_command("sample", normal, *SHORT, "--out", tmp_path / "fit.nc", option, value)
    assert said.exit_code == 2
    assert message in said.stderr
    assert "Traceback" not in said.output
    assert not (tmp_path / "fit.nc").exists()


def test_a_setting_given_twice_is_refused(normal: Path, tmp_path: Path) -> None:
    twice = ("--set", "damping=1", "--set", "damping=2")
    said = stanadapt_command("sample", normal, *SHORT, "--out", tmp_path / "fit.nc", *twice)
    assert said.exit_code == 2
    assert "damping is set twice" in said.stderr


@pytest.mark.parametrize(
    ("program", "data", "message"),
    [
        ("parameters { real x; } model { x ~ nothing(); }", "{}", "does not compile"),
        ("data { int n; } parameters { real x; } model { x ~ std_normal(); }", "{}", "data lack"),
        ('parameters { real x; } model { reject("never"); }', "{}", "no finite log density"),
        (NORMAL, "{", "not valid JSON"),
    ],
)
def test_runs_that_fail_exit_with_1(tmp_path: Path, program: str, data: str, message: str) -> None:
    (tmp_path / "model.stan").write_text(program)
    (tmp_path / "data.json").write_text(data)
    said = stanadapt_command(
        *("sample", tmp_path / "model.stan", "--data", tmp_path / "data.json", *SHORT),
        *("--out", tmp_path / "fit.nc"),
    )
    assert said.exit_code == 1
    assert said.stderr.startswith("Error: ")
    assert message in said.stderr
    assert said.stdout == ""


def a_folder(folder: Path) -> Path:
    return folder


def an_existing_file(folder: Path) -> Path:
    (folder / "fit.nc").write_text("precious")
    return folder / "fit.nc"


def a_missing_folder(folder: Path) -> Path:
    return folder / "nowhere" / "fit.nc"


def a_long_name(folder: Path) -> Path:
    return folder / ("x" * 300)


def a_device(folder: Path) -> Path:
    return Path(os.devnull)


def a_locked_folder(folder: Path) -> Path:
    if os.geteuid() == 0:
        pytest.skip("the superuser writes everywhere")
    (folder / "locked").mkdir(mode=0o500)
    return folder / "locked" / "fit.nc"


@pytest.mark.parametrize(
    ("place", "message"),
    [
        (a_folder, "is a directory"),
        (an_existing_file, "use --force"),
        (a_missing_folder, "there is no folder"),
        (a_long_name, "cannot be written"),
        (a_device, "is no regular file"),
        (a_locked_folder, "cannot be written"),
    ],
)
def test_out_is_refused_before_anything_else(
    tmp_path: Path, place: Callable[[Path], Path], message: str
) -> None:
    (tmp_path / "model.stan").write_text("this does not compile")
    said = stanadapt_command("sample", tmp_path / "model.stan", "--out", place(tmp_path))
    assert said.exit_code == 2
    assert "--out" in said.stderr
    assert message in said.stderr


def test_force_replaces(normal: Path, tmp_path: Path) -> None:
    out = an_existing_file(tmp_path)
    assert stanadapt_command("sample", normal, *SHORT, "--out", out, "--force").exit_code == 0
    assert groups(out)["posterior"].sizes["draw"] == 200


def test_file_that_cannot_be_finished_leaves_the_old_one(
    normal: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill_the_disk(_: object, __: object, out: Any) -> None:
        out.write(b"half")
        raise OSError(28, "No space left on device")

    out = an_existing_file(tmp_path)
    temporary = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setattr(netcdf, "dump", fill_the_disk)
    said = stanadapt_command("sample", normal, *SHORT, "--out", out, "--force")
    assert said.exit_code == 1
    assert "No space left" in said.stderr
    assert out.read_text() == "precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fit.nc", "normal.stan"]
    (rescued,) = temporary.rglob("*.npz")
    assert str(rescued) in said.stderr
    assert groups(rescued)["posterior"].sizes["draw"] == 200


def test_draws_are_rescued_when_the_folder_vanishes_meanwhile(
    normal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, rescued = tmp_path / "results", tmp_path / "temporary"
    folder.mkdir()
    rescued.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(rescued))
    run = api.sample

    def sample_and_lose_the_folder(*arguments: Any, **keywords: Any) -> Any:
        idata = run(*arguments, **keywords)
        folder.rmdir()
        return idata

    monkeypatch.setattr(api, "sample", sample_and_lose_the_folder)
    said = stanadapt_command("sample", normal, *SHORT, "--out", folder / "fit.nc")
    assert said.exit_code == 1
    (found,) = rescued.rglob("fit.nc")
    assert str(found) in said.stderr
    assert groups(found)["posterior"].sizes["draw"] == 200


def test_interrupt_before_the_first_draw_exits_with_130(
    normal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(api, "sample", interrupted)
    said = stanadapt_command("sample", normal, *SHORT, "--out", tmp_path / "fit.nc")
    assert said.exit_code == 130
    assert "nothing was written" in said.stderr


def test_summary(fit: tuple[Path, Result]) -> None:
    said = stanadapt_command("summary", fit[0], "--var", "tau", "--var", "theta", "--interval", "0.5")
    assert said.exit_code == 0
    lines = said.stdout.splitlines()
    assert lines[0].split()[2:4] == ["q25", "q75"]
    assert [line.split()[0] for line in lines[1:]] == ["tau", *(f"theta[{i}]" for i in range(8))]
    expected = stanadapt.summary(files.read(fit[0]), ["tau"], 0.5)
    shown = lines[1].split()[1]
    decimals = len(shown.partition(".")[2])
    assert decimals >= 1
    assert shown == f"{expected['mean'].iloc[0]:.{decimals}f}"


def test_summary_of_everything_is_not_cut(fit: tuple[Path, Result]) -> None:
    said = stanadapt_command("summary", fit[0])
    assert len(said.stdout.splitlines()) == 1 + 34
    assert "..." not in said.stdout


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--var", "nobody"], 2, "var_names: 'nobody' is not in the posterior, which has mu"),
        (["--interval", "1"], 2, "--interval"),
    ],
)
def test_summary_refuses(fit: tuple[Path, Result], arguments: list[str], status: int, message: str) -> None:
    said = stanadapt_command("summary", fit[0], *arguments)
    assert said.exit_code == status
    assert message in said.stderr


def test_files_that_are_no_results(normal: Path, tmp_path: Path) -> None:
    said = stanadapt_command("summary", normal)
    assert said.exit_code == 1
    assert "cannot be read as netCDF" in said.stderr
    xarray.Dataset({"x": 1}).to_netcdf(tmp_path / "other.nc", engine="h5netcdf")
    said = stanadapt_command("diagnose", tmp_path / "other.nc")
    assert said.exit_code == 1
    assert "no group named posterior" in said.stderr


def test_diagnose(fit: tuple[Path, Result], normal: Path, tmp_path: Path) -> None:
    said = stanadapt_command("diagnose", fit[0])
    assert said.exit_code == 0
    assert said.stdout.startswith("Findings:\n- ")
    out = tmp_path / "good.nc"
    stanadapt_command("sample", normal, "--seed=1", "--warmup=1000", "--draws=4000", "--quiet", "--out", out)
    assert stanadapt_command("diagnose", out).stdout.startswith("No findings")


def test_methods_are_all_listed() -> None:
    lines = stanadapt_command("methods").stdout.splitlines()
    assert [line.split()[0] for line in lines[1:-2]] == list(samplers.METHODS)
    for line, description in zip(lines[1:-2], samplers.METHODS.values(), strict=True):
        assert line.endswith(description)


@pytest.mark.parametrize("method", samplers.METHODS)
def test_settings_of_every_method_are_listed(method: str) -> None:
    said = stanadapt_command("methods", method)
    assert said.exit_code == 0
    names = [line.split()[0] for line in said.stdout.splitlines()[3:]]
    assert names == list(samplers.sampler(method).Settings()._fields)


@pytest.mark.parametrize("method", samplers.METHODS)
def test_listed_defaults_can_be_set(method: str) -> None:
    """What `stanadapt methods NAME` shows is what --set reads."""
    lines = stanadapt_command("methods", method).stdout.splitlines()[3:]
    pairs = ["=".join(line.split()[:2]) for line in lines]
    module = samplers.sampler(method)
    assert samplers.resolve(module, options.parse_settings(method, pairs)) == samplers.resolve(module, None)


def test_check() -> None:
    said = stanadapt_command("check", *SCHOOLS)
    assert said.exit_code == 0, said.output
    rows = [line.split() for line in said.stdout.splitlines()]
    assert ["dimension", "10", "unconstrained", "parameters"] in rows
    assert ["theta_trans", "8", "parameter"] in rows
    assert ["tau", "1", "parameter"] in rows
    assert ["y_rep", "8", "generated", "quantity"] in rows
    assert "A finite start was found" in said.stdout
    assert "A gradient takes " in said.stdout


@pytest.mark.parametrize("radius", ["nan", "inf", "1e308", "-1"])
def test_check_refuses_radii(radius: str) -> None:
    said = stanadapt_command("check", *SCHOOLS, f"--init-radius={radius}")
    assert said.exit_code == 2
    assert "radius" in said.stderr
    assert said.stdout == ""


@pytest.mark.parametrize("arguments", [["--help"], ["methods", "rwm"], ["sample", "--help"]])
def test_output_that_takes_no_more(arguments: list[str]) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("there is no device that is always full")
    command = [sys.executable, "-c", "from stanadapt.cli import main; main()", *arguments]
    with open("/dev/full", "w") as full:
        said = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert said.returncode == 1
    assert said.stderr == "Error: the output cannot be written: No space left on device\n"


def test_check_without_a_finite_start(tmp_path: Path) -> None:
    (tmp_path / "model.stan").write_text('parameters { real x; } model { reject("never"); }')
    said = stanadapt_command("check", tmp_path / "model.stan")
    assert said.exit_code == 1
    assert "dimension" in said.stdout
    assert "never" in said.stderr


def summary_frame(**rows: list[float]) -> pandas.DataFrame:
    columns = ["mean", "sd", "mcse_mean", "ess_bulk", "r_hat"]
    return pandas.DataFrame.from_dict(rows, orient="index", columns=columns)


def test_table_rounds_to_the_standard_error_and_aligns_points() -> None:
    shown = table.summary_table(
        summary_frame(
            mu=[4.36184, 3.28532, 0.0379, 7355.8, 1.00151],
            big=[-1234.5678, 99.999, 1.27, 6000.2, 1.2],
            zero=[-0.0001, 0.5, 0.011, 2000.0, 1.0],
        )
    )
    assert shown.splitlines() == [
        "           mean       sd  mcse_mean  ess_bulk  r_hat",
        "mu        4.362    3.285      0.038      7356  1.002",
        "big   -1234.6    100.0        1.3        6000  1.200",
        "zero      0.000    0.500      0.011      2000  1.000",
    ]


def test_table_keeps_values_that_no_error_is_known_of() -> None:
    nan = float("nan")
    shown = table.summary_table(
        summary_frame(
            fixed=[2.0, 0.0, 0.0, nan, nan],
            tiny=[1.2341e-9, 2e-10, 3e-12, 500.0, 1.0],
            huge=[6.02214e23, 1e21, 1e20, 500.0, 1.0],
            broken=[nan, nan, nan, nan, nan],
        )
    )
    cells = [line.split() for line in shown.splitlines()[1:]]
    assert cells == [
        ["fixed", "2", "0", "0", "nan", "nan"],
        ["tiny", "1.234e-09", "2e-10", "3e-12", "500", "1.000"],
        ["huge", "6.022e+23", "1e+21", "1e+20", "500", "1.000"],
        ["broken", "nan", "nan", "nan", "nan", "nan"],
    ]


def test_the_evidence_of_a_fit(fit: tuple[Path, Result], normal: Path) -> None:
    out, _ = fit
    said = stanadapt_command("evidence", out, *SCHOOLS)
    assert said.exit_code == 0
    assert said.output.startswith("log evidence ")
    record = json.loads(stanadapt_command("evidence", out, *SCHOOLS, "--json").output)
    assert f"{record['log_evidence']:.3f}" in said.output
    assert {"standard_error", "by_chain", "density", "findings"} <= set(record)
    refused = stanadapt_command("evidence", out, normal)
    assert refused.exit_code == 2
    assert "lacks the parameter x of the model" in refused.output


def test_replay_says_whether_the_law_is_kept(tmp_path: Path) -> None:
    out = tmp_path / "fit.nc"
    assert stanadapt_command("sample", *SCHOOLS, *SHORT, "--init-radius=1", f"--out={out}").exit_code == 0
    outcome = stanadapt_command("replay", out, *SCHOOLS, "--init-radius=1", "--seed=2", "--no-progress")
    assert outcome.exit_code == 0
    assert outcome.output.startswith("Nothing speaks against the draws: none of 44 tests fails")
    refused = stanadapt_command("replay", out, *SCHOOLS, "--no-progress")
    assert refused.exit_code == 2
    assert "chain 0 of the run started elsewhere" in refused.output
    without = stanadapt_command("replay", out, *SCHOOLS, "--no-kernel", "--no-progress")
    assert "The frozen kernel was not run again." in without.output
