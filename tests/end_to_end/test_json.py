"""What commands print with --json: valid JSON with the documented keys, whatever the names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray
from click.testing import CliRunner, Result

import stanadapt
from stanadapt import cli, samplers
from stanadapt.result import files
from stanadapt.result.container import container

MODELS = Path(__file__).parents[2] / "models"
SCHOOLS = MODELS / "eight_schools" / "eight_schools"
ODD = '<script>"\\n\u2028\U0001f600'  # a quote, a backslash, and what is not in ASCII
FINDING = {"kind", "message", "variables", "chains", "numbers"}

pytestmark = pytest.mark.filterwarnings("ignore::stanadapt.StanAdaptWarning")


def command(*arguments: object) -> Result:
    return CliRunner().invoke(cli.main, [str(argument) for argument in arguments])


def refuse_constant(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


def parse(*arguments: object) -> Any:
    """What the command prints, which must be JSON in its narrowest sense."""
    said = command(*arguments, "--json")
    assert said.exit_code == 0, said.output
    assert said.stdout.isascii()
    return json.loads(said.stdout, parse_constant=refuse_constant)


def write(
    path: Path, draws: dict[str, np.ndarray], stats: dict[str, np.ndarray] | None = None, **attrs: Any
) -> Path:
    """A file with draws (chain, draw, ...), the last axis of which has odd coordinates."""
    held = {name: (("chain", "draw", *["place"] * (each.ndim - 2)), each) for name, each in draws.items()}
    shape = next(iter(draws.values())).shape
    coords: dict[str, Any] = {"chain": np.arange(shape[0]), "draw": np.arange(shape[1])}
    labels = {"place": [ODD, "b"]} if any(each.ndim > 2 for each in draws.values()) else {}
    groups = {"posterior": xarray.Dataset(held, coords=coords | labels, attrs=attrs)}
    if stats:
        columns = {name: (("chain", "draw"), each) for name, each in stats.items()}
        groups["sample_stats"] = xarray.Dataset(columns, coords=coords, attrs=attrs)
    files.write(container(groups, attrs), path)
    return path


@pytest.fixture(scope="module")
def draws() -> np.ndarray:
    return np.random.default_rng(1).normal(size=(4, 500, 2))


def test_summary(draws: np.ndarray, tmp_path: Path) -> None:
    constant = np.ones((4, 500))
    path = write(tmp_path / "fit.nc", {"theta": draws, "one": constant})
    said = parse("summary", path, "--interval", "0.5")
    assert list(said) == ["interval", "quantities"]
    assert said["interval"] == 0.5
    first, second, one = said["quantities"]
    assert [first["name"], second["name"], one["name"]] == [f"theta[{ODD}]", "theta[b]", "one"]
    keys = ["name", "mean", "sd", "lower", "upper", "mcse_mean", "ess_bulk", "ess_tail", "r_hat"]
    assert all(list(row) == keys for row in said["quantities"])
    expected = stanadapt.summary(files.read(path), interval=0.5).iloc[0]
    np.testing.assert_array_equal([first[key] for key in keys[1:]], expected.to_numpy())
    assert one["r_hat"] is None  # which NaN stands for
    assert one["mean"] == 1.0
    assert [row["name"] for row in parse("summary", path, "--var", "one")["quantities"]] == ["one"]


def test_diagnose(draws: np.ndarray, tmp_path: Path) -> None:
    assert parse("diagnose", write(tmp_path / "good.nc", {"theta": draws})) == {"findings": []}
    apart = draws.copy()
    apart[2, :, 0] += 50.0
    said = parse("diagnose", write(tmp_path / "fit.nc", {"theta": apart}))["findings"]
    assert all(set(finding) == FINDING for finding in said)
    found = {finding["kind"]: finding for finding in said}
    assert {"r_hat", "apart"} <= set(found)
    assert found["r_hat"]["variables"] == [f"theta[{ODD}]"]
    assert found["r_hat"]["numbers"]["count"] == 1
    assert found["r_hat"]["numbers"]["of"] == 2
    assert found["r_hat"]["numbers"]["limit"] == 1.01
    assert found["r_hat"]["numbers"]["largest"] > 1.5
    assert found["r_hat"]["message"].startswith("R-hat is over 1.01 for 1 of 2 quantities")
    assert found["apart"]["chains"] == [2]
    assert found["apart"]["numbers"]["r_hat_without"] < 1.05


def test_numbers_of_findings(draws: np.ndarray, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    bad = draws.copy()
    bad[:, :, 1] = np.cumsum(bad[:, :, 1], axis=1)
    bad[0, 0, 0] = np.nan
    accepted = np.ones((4, 500), dtype=bool)
    accepted[1, 100:350] = False
    diverging = np.zeros((4, 500), dtype=bool)
    diverging[3, :20] = True
    stats = {
        "lp": rng.normal(size=(4, 500)),
        "acceptance_rate": np.full((4, 500), 0.8) - 0.5 * (np.arange(4) == 1)[:, None],
        "accepted": accepted,
        "diverging": diverging,
        "tree_depth": np.where(diverging, 10, 3),
        "energy": np.cumsum(rng.normal(size=(4, 500)), axis=1),
    }
    settings = json.dumps({"target_accept": 0.8, "max_tree_depth": 10})
    path = write(tmp_path / "fit.nc", {"theta": bad}, stats, method="nuts", settings=settings)
    found = {finding["kind"]: finding for finding in parse("diagnose", path)["findings"]}
    assert found["nan"]["variables"] == [f"theta[{ODD}]"]
    assert found["nan"]["numbers"] == {"count": 1, "of": 2}
    ess = found["ess_bulk"]
    assert ess["variables"] == ["theta[b]"]
    assert ess["numbers"]["limit"] == 400
    assert 0 < ess["numbers"]["smallest"] < 400
    assert found["acceptance"]["chains"] == [1]
    assert found["acceptance"]["numbers"] == pytest.approx({"target": 0.8, "smallest": 0.3, "largest": 0.3})
    assert (found["still"]["chains"], found["still"]["numbers"]) == ([1], {"longest": 250})
    assert found["divergences"]["numbers"] == {"count": 20, "of": 2000, "without_density": 0}
    assert found["tree_depth"]["numbers"] == {"count": 20, "of": 2000, "max_tree_depth": 10}
    assert found["energy"]["chains"] == [0, 1, 2, 3]
    assert found["energy"]["numbers"]["smallest"] < found["energy"]["numbers"]["limit"] == 0.3


def test_short_runs(draws: np.ndarray, tmp_path: Path) -> None:
    (found,) = parse("diagnose", write(tmp_path / "fit.nc", {"theta": draws[:, :3]}))["findings"]
    assert (found["kind"], found["numbers"]["draws"]) == ("short", 3)


def test_a_hundred_variables_are_named_at_most(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    far = rng.normal(size=(4, 100)) + 30.0 * np.arange(4)[:, None]
    path = write(tmp_path / "fit.nc", {f"x{i}": far + (i == 7) * 10.0 * far**3 for i in range(150)})
    found = parse("diagnose", path)["findings"]
    r_hat = next(finding for finding in found if finding["kind"] == "r_hat")
    assert len(r_hat["variables"]) == 100
    assert r_hat["numbers"]["count"] == 150


def test_methods() -> None:
    said = parse("methods")["methods"]
    assert [row["name"] for row in said] == [*samplers.METHODS, "auto"]
    frame = stanadapt.methods()
    for row in said[:-1]:
        assert list(row) == ["name", "description", "gradient", "warmup", "draws"]
        for key in list(row)[1:]:
            assert row[key] == frame.loc[row["name"], key]
    assert said[-1]["warmup"] is None


@pytest.mark.parametrize("method", [*samplers.METHODS, "auto"])
def test_settings_of_a_method(method: str) -> None:
    said = parse("methods", method)
    assert list(said) == ["name", "description", "settings"]
    assert said["name"] == method
    if method == "auto":
        assert said["settings"] == []
        return
    declared = samplers.settings_of(samplers.sampler(method))
    assert {row["name"]: row["default"] for row in said["settings"]} == {
        name: None if isinstance(each.default, float) and np.isnan(each.default) else each.default
        for name, each in declared.items()
    }
    assert all(list(row) == ["name", "default", "allowed", "meaning"] for row in said["settings"])


def test_check() -> None:
    said = parse("check", f"{SCHOOLS}.stan", "--data", f"{SCHOOLS}.json")
    assert list(said) == ["model", "backend", "dimension", "variables", "start"]
    opened = stanadapt.Posterior(f"{SCHOOLS}.stan", f"{SCHOOLS}.json")
    assert said["dimension"] == opened.dim == 10
    assert said["backend"] == opened.library
    found = {row["name"]: row for row in said["variables"]}
    assert list(found) == list(opened.variables)
    for name, variable in opened.variables.items():
        assert found[name]["shape"] == list(variable.shape)
    assert found["tau"]["kind"] == "parameter"
    assert {row["kind"] for row in said["variables"]} <= {
        "parameter",
        "transformed parameter",
        "generated quantity",
    }
    assert np.isfinite(said["start"]["log_density"])
    assert 0 < said["start"]["seconds_per_gradient"] < 1


def test_a_model_without_parameters_has_no_start(tmp_path: Path) -> None:
    path = tmp_path / "model.stan"
    path.write_text("generated quantities { real y = normal_rng(0, 1); }")
    said = parse("check", path)
    assert said["dimension"] == 0
    assert said["start"] is None
    assert said["variables"] == [{"name": "y", "shape": [], "kind": "generated quantity"}]


def test_errors_stay_on_stderr(tmp_path: Path) -> None:
    for arguments in (("methods", "nuts2"), ("check", f"{SCHOOLS}.stan"), ("summary", f"{SCHOOLS}.stan")):
        said = command(*arguments, "--json")
        assert said.exit_code in (1, 2)
        assert said.stdout == ""
        assert said.stderr != ""
