"""Runs in folders go on with their own program and data, or not at all: nothing is mixed."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stanadapt
import stores
from cases import partly_thorough, thorough
from stanadapt.errors import ArgumentError, DataError, StoreError
from stanadapt.model.data import to_json
from stanadapt.model.portable_programs import portable
from stanadapt.model.source import Contents, is_path
from stanadapt.result.stores.identity import check_data

pytestmark = pytest.mark.timeout(180)

RANDOM = """
data { int n; array[n] real y; }
transformed data { real shift = normal_rng(0, 5); }
parameters { real m; }
model { y ~ normal(m + shift, 1); }
"""


@pytest.fixture(scope="module", params=[thorough("whole"), "part"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that is over, and one that is not."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    if request.param == "whole":
        stores.sample(store=folder)
    else:
        stores.sample_part(folder)
    return folder


def changed(**entries: Any) -> dict[str, Any]:
    return stores.DATA | entries


@pytest.mark.parametrize(
    ("data", "difference"),
    [
        (changed(y=[0.3, 1.2, -0.4, 2.2, 0.95]), r"y\[5\] is 0\.95, and in the run 0\.9"),
        (changed(y=[0.4, 1.3, -0.4, 2.2, 0.9]), r"y\[1\] is 0\.4, and in the run 0\.3, and 1 more"),
        (changed(y=[0.3, 1.2], n=2), "n is 2, and in the run 5"),
        (changed(y=[0.3, 1.2, -0.4, 2.2, float("nan")]), r"y\[5\] is nan, and in the run 0\.9"),
        (changed(w=1), "w is new"),
    ],
    ids=["one", "two", "sizes", "nan", "new"],
)
def test_other_data_are_refused(data: Any, difference: str, run: Path) -> None:
    for model in (None, stores.PROGRAM, stanadapt.Posterior(stores.PROGRAM, data)):
        given = None if isinstance(model, stanadapt.Posterior) else data
        for go_on in (stores.resume, lambda store, **given: stores.extend(store, 10, **given)):
            with pytest.raises(StoreError, match=f"other data: {difference}"):
                go_on(run, model=model, data=given)
        with pytest.raises(StoreError, match=f"other data: {difference}"):
            stanadapt.replay(run, model, given)


@pytest.mark.parametrize(
    ("program", "line"),
    [
        (stores.PROGRAM.replace("exponential(1)", "exponential(2)"), 4),
        (stores.PROGRAM + "// more", 6),
        (stores.PROGRAM.replace("real z", "real w"), 5),
    ],
    ids=["model", "comment", "name"],
)
def test_another_program_is_refused(program: str, line: int, run: Path, tmp_path: Path) -> None:
    (tmp_path / "model.stan").write_text(program)
    models = (program, tmp_path / "model.stan", stanadapt.Posterior(program, stores.DATA))
    for model in models:
        with pytest.raises(StoreError, match=f"line {line} of the run's program"):
            stores.resume(run, model=model)
        with pytest.raises(StoreError, match=f"line {line} of the run's program"):
            stores.extend(run, 10, model=model)


def test_a_model_of_another_kind_is_refused(run: Path, tmp_path: Path) -> None:
    target = stanadapt.Target.from_python(lambda x: -0.5 * float(x @ x), 2)
    with pytest.raises(StoreError, match="the run was of a Stan program, and this is none"):
        stores.resume(run, model=target)
    stores.sample(target, None, store=tmp_path / "run")
    with pytest.raises(StoreError, match="the run had no Stan program, and this is one"):
        stores.resume(tmp_path / "run", model=stores.PROGRAM, data=stores.DATA)


def test_data_that_do_not_fit_are_told_of(run: Path) -> None:
    with pytest.raises(DataError, match="data lack what the Stan program declares"):
        stores.resume(run, data={"n": 5})
    with pytest.raises(ArgumentError, match="not allowed with a Posterior"):
        stores.resume(run, model=stanadapt.Posterior(stores.PROGRAM, stores.DATA), data=stores.DATA)


def test_data_beside_a_posterior_without_a_program_are_refused(tmp_path: Path) -> None:
    target = stanadapt.Target.from_python(lambda x: -0.5 * float(x @ x), 2)
    stores.sample(target, None, store=tmp_path / "run")
    with pytest.raises(ArgumentError, match="not allowed with a Posterior"):
        stores.resume(tmp_path / "run", model=stanadapt.Posterior(target), data={"y": 1.0})


EQUAL: dict[str, Any] = {
    "order": {"y": stores.DATA["y"], "n": 5},
    "array": {"n": np.int64(5), "y": np.array(stores.DATA["y"])},
    "text": json.dumps(stores.DATA),
    "nothing": None,
}


@pytest.mark.parametrize("kind", partly_thorough([*EQUAL, "path"], ("text", "nothing", "path")))
def test_equal_data_and_programs_are_accepted(kind: str, tmp_path: Path) -> None:
    (tmp_path / "model.stan").write_text(stores.PROGRAM)
    (tmp_path / "data.json").write_text(json.dumps({"y": stores.DATA["y"], "n": 5}))
    data = tmp_path / "data.json" if kind == "path" else EQUAL[kind]
    stores.sample_part(tmp_path / "run")
    stores.assert_same(
        stores.resume(tmp_path / "run", model=tmp_path / "model.stan", data=data), stores.sample()
    )
    extended = stores.extend(tmp_path / "run", 10, model=stores.PROGRAM, data=data)
    stores.assert_same(extended, stores.sample(draws=50))
    stores.assert_same(stanadapt.load(tmp_path / "run"), extended)


def test_whole_numbers_for_reals_and_nan(tmp_path: Path) -> None:
    """One and 1.0 are equal, as are two NaNs."""
    program = "data { int n; vector[n] y; real unused; } parameters { real m; } model { y ~ normal(m, 1); }"
    data = {"n": 2, "y": [1, 2], "unused": float("nan")}
    stores.sample(program, data, store=tmp_path / "numbers")
    equal = {"unused": "NaN", "y": [1.0, 2.0], "n": 2}
    stores.extend(tmp_path / "numbers", 10, model=program, data=equal)
    with pytest.raises(StoreError, match=r"unused is 1\.0, and in the run nan"):
        stores.extend(tmp_path / "numbers", 10, model=program, data=data | {"unused": 1.0})


def test_tuples_are_compared(tmp_path: Path) -> None:
    """No backend opens them here, so the texts are compared that a store would hold."""
    was = to_json({"pairs": [{"1": 1, "2": [0.5, 1.0]}, {"1": 2, "2": [0.25, 2.0]}], "y": np.ones(2)})
    equal = to_json({"y": [1, 1], "pairs": [{"2": [0.5, 1], "1": 1}, {"1": 2, "2": [0.25, 2.0]}]})
    check_data("run", was, equal)
    with pytest.raises(StoreError, match=r"pairs\.2\.2\[2\] is 3\.0, and in the run 2\.0"):
        check_data("run", was, equal.replace("2.0", "3.0"))
    with pytest.raises(StoreError, match=r"pairs\.2\.1 is missing"):
        check_data("run", was, equal.replace('"1": 2', '"3": 2'))


def test_another_function_is_refused(tmp_path: Path) -> None:
    """Its text cannot be compared, so its values are."""

    def target(scale: float, shift: float = 0.0) -> Any:
        return stanadapt.Target.from_python(lambda x: shift - 0.5 * scale * float(x @ x), 2, names=["a", "b"])

    stores.sample(target(1.0), None, store=tmp_path / "run")
    for go_on in (stores.resume, lambda store, model: stores.extend(store, 10, model=model)):
        with pytest.raises(StoreError, match="another model: at a point where the run's log density"):
            go_on(tmp_path / "run", model=target(1.01))
    stores.extend(tmp_path / "run", 10, model=target(1.0, shift=3.0))  # the same law


def test_a_posterior_with_random_data_keeps_its_seed(tmp_path: Path) -> None:
    data = {"n": 3, "y": [0.1, 0.2, 0.3]}
    posterior = stanadapt.Posterior(RANDOM, data, seed=5)
    stores.sample(posterior, None, store=tmp_path / "run")
    extended = stores.extend(tmp_path / "run", 10)
    stores.assert_same(extended, stores.sample(stanadapt.Posterior(RANDOM, data, seed=5), None, draws=50))
    with pytest.raises(StoreError, match="another model: at a point where the run's log density"):
        stores.extend(tmp_path / "run", 10, model=stanadapt.Posterior(RANDOM, data, seed=6))


@pytest.mark.parametrize("ending", ["// see model.stan", "// libmodel.so"])
def test_a_program_that_ends_like_a_path(ending: str, tmp_path: Path) -> None:
    """A store, and whoever opens the program elsewhere, know that it is text."""
    path = tmp_path / "model.stan"
    path.write_text(stores.PROGRAM + ending)
    stores.sample_part(tmp_path / "run", model=path)
    stores.assert_same(stores.resume(tmp_path / "run"), stores.sample())
    stores.assert_same(stores.extend(tmp_path / "run", 10), stores.sample(draws=50))
    carried = pickle.loads(pickle.dumps(portable(path)))
    assert stanadapt.Posterior(carried, stores.DATA).code == path.read_text()


def test_ends_of_lines_are_kept(tmp_path: Path) -> None:
    program = stores.PROGRAM.replace("\n", "\r\n") + "// more\r"
    stores.sample_part(tmp_path / "run", model=program)
    stores.assert_same(stores.resume(tmp_path / "run"), stores.sample())


def test_data_that_name_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run without data goes on beside a file whose name is `{}`."""
    monkeypatch.chdir(tmp_path)
    program = "parameters { real m; } model { m ~ std_normal(); }"
    stores.sample_part(tmp_path / "run", model=program, data=None)
    (tmp_path / "{}").write_text("no JSON")
    stores.assert_same(stores.resume(tmp_path / "run"), stores.sample(program, None))


def test_what_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").write_text("")
    ends = (".stan", ".so")
    assert is_path("a b {\n.stan", ends, looks_like_contents=True)
    assert not is_path(Contents("a b {\n.stan"), ends, looks_like_contents=False)
    assert is_path("there", ends, looks_like_contents=True)
    assert not is_path("not there", ends, looks_like_contents=True)
    assert is_path("not there", ends, looks_like_contents=False)
    assert is_path(Path("not there"), ends, looks_like_contents=True)
    assert not is_path("\0" + "long" * 10_000, ends, looks_like_contents=True)


@pytest.mark.usefixtures("never_runs")
def test_a_path_that_is_no_text_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results, pages and netCDF files name the folder."""
    name = os.fsdecode(b"run\xff")
    for call in (lambda: stores.sample(store=tmp_path / name), lambda: stanadapt.load(tmp_path / name)):
        with pytest.raises(ArgumentError, match=r"^store=.* is not allowed: .*UTF-8"):
            call()
    (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / name)
    with pytest.raises(ArgumentError, match="UTF-8"):
        stores.sample(store="below")
    assert not list((tmp_path / name).iterdir())
