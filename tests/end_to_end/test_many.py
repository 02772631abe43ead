"""Many fits: what is taken for data sets and keys, seeds, results as they come, and the folder of results."""

from __future__ import annotations

import json
import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import stanadapt
from stanadapt import api
from stanadapt.errors import ArgumentError, DataError, ModelError, OutputError
from stanadapt.many import fits, task
from stanadapt.many.datasets import Entry, count, entries, key_text
from stanadapt.many.folder import Folder
from stanadapt.model.backends.stan import bridgestan
from stanadapt.result import files
from stanadapt.result.container import datasets as groups_of
from stanadapt.run.workers import pools

CODE = "data { int n; vector[n] y; } parameters { real mu; } model { mu ~ normal(0, 10); y ~ normal(mu, 1); }"
DATA = {"n": 3, "y": [1.0, 2.0, 3.0]}
SHORT: dict[str, Any] = {
    "method": "rwm",
    "warmup": 50,
    "draws": 40,
    "chains": 2,
    "workers": 1,
    "progress": False,
}
pytestmark = pytest.mark.filterwarnings("ignore::stanadapt.StanAdaptWarning")  # chains this short say little


def many(datasets: Any, model: Any = CODE, **more: Any) -> Iterator[tuple[Any, Any]]:
    return stanadapt.sample_many(model, datasets, **{**SHORT, "seed": 1, **more})


def mu(result: Any) -> np.ndarray:
    return np.asarray(groups_of(result)["posterior"]["mu"].values)


def shifted(by: float) -> dict[str, Any]:
    return {"n": 3, "y": [1.0 + by, 2.0 + by, 3.0 + by]}


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("a", '"a"'),
        (3, "3"),
        ("3", '"3"'),
        (np.int64(3), "3"),
        (("a", 3), '["a", 3]'),
        ((("a", 1), 2), '[["a", 1], 2]'),
        ("é\n", '"\\u00e9\\n"'),
    ],
)
def test_keys_have_one_text_each(key: Any, text: str) -> None:
    assert key_text(key) == text


@pytest.mark.parametrize("key", [1.0, True, None, (), ["a"], ("a", 0.5), b"a"])
def test_other_keys_are_refused(key: Any) -> None:
    with pytest.raises(ArgumentError, match="is not allowed: a key must be a string, an integer, or a tuple"):
        key_text(key)


def test_seeds_depend_on_the_key_and_the_runs_seed_alone() -> None:
    def seed(key: Any, of_run: int) -> int:
        return Entry(key, key_text(key), None, None).seed(of_run)

    keys = ["a", "b", 1, "1", (1,), ("a", 1), ("a", "1")]
    assert len({seed(key, run) for key in keys for run in (0, 1, 2**32 - 1)}) == 3 * len(keys)
    assert seed("a", 1) == seed("a", 1)
    assert seed(1, 1) == seed(np.int32(1), 1)
    # Written down, since a change of it would change the draws of every run that is resumed.
    assert (seed("a", 1), seed(0, 1)) == (647703899, 3656865249)


def test_forms() -> None:
    def listed(datasets: Any, model: Any = CODE) -> list[tuple[Any, Any, Any]]:
        return [(entry.key, entry.model, entry.data) for entry in entries(model, datasets)]

    assert listed({"a": DATA, "b": None}) == [("a", CODE, DATA), ("b", CODE, None)]
    assert listed([("a", DATA), (2, "x.json")]) == [("a", CODE, DATA), (2, CODE, "x.json")]
    assert listed([DATA, None, "x.json"]) == [(0, CODE, DATA), (1, CODE, None), (2, CODE, "x.json")]
    assert listed(iter([("a", DATA)])) == [("a", CODE, DATA)]
    assert listed({"a": ("m.stan", DATA)}, None) == [("a", "m.stan", DATA)]
    assert listed([("a", ("m.stan", DATA))], None) == [("a", "m.stan", DATA)]
    assert listed([]) == []
    assert (count([1, 2]), count({"a": 1}), count(iter([1]))) == (2, 1, None)


@pytest.mark.parametrize(
    ("datasets", "words"),
    [
        (DATA, "seems to be a single data set: datasets\\['n'\\] is 3.*sample for one data set"),
        ({"y": [1.0]}, "seems to be a single data set"),
        ("data.json", "datasets must be a mapping of keys to data"),
        (Path("data.json"), "datasets must be a mapping"),
        (None, "datasets must be a mapping"),
        (3, "datasets must be a mapping"),
        (np.zeros((3, 2)), "datasets must be a mapping"),
    ],
)
def test_what_is_no_collection_of_data_sets_is_refused_at_once(datasets: Any, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        many(datasets)


@pytest.mark.parametrize(
    ("datasets", "model", "words"),
    [
        ([DATA, ("b", DATA)], CODE, r"item 1 of datasets, \('b'.*same form"),
        ([("a", DATA), DATA], CODE, r"item 1 of datasets, \{'n'"),
        ([("a", DATA, 3)], CODE, r"item 0 of datasets"),
        ([[1.0, 2.0]], CODE, r"item 0 of datasets"),
        ([("a", DATA), ("a", DATA)], CODE, "the key 'a' comes twice"),
        ([(1, DATA), (np.int64(1), DATA)], CODE, "the key .*1.* comes twice"),
        ([(0.5, DATA)], CODE, "the key 0.5 is not allowed"),
        ([(CODE, DATA)], None, "item 0 of datasets.*model=None"),
        ([CODE], None, "item 0 of datasets.*model=None"),
    ],
)
def test_items_of_no_form_are_refused_after_the_results_before_them(
    datasets: Any, model: Any, words: str
) -> None:
    results = many(datasets, model)
    for _ in datasets[1:]:
        assert mu(next(results)[1]).shape == (2, 40)
    with pytest.raises(ArgumentError, match=words):
        next(results)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"draws": 0}, "draws=0 is not allowed"),
        ({"mehtod": "rwm"}, r"mehtod='rwm' is not allowed.*nearest: method"),
        ({"method": "rwn"}, "method='rwn'"),
        ({"seed": -1}, "seed=-1"),
        ({"workers": 0}, "workers=0"),
        ({"progress": 1}, "progress=1"),
        ({"settings": {"x": 1}}, "x"),
        ({"out": 3}, "out=3 is not allowed"),
        ({"out": ""}, "out='' is not allowed"),
        ({"cluster": "tcp://127.0.0.1:1"}, "workers=1 is not allowed with cluster"),
    ],
)
@pytest.mark.usefixtures("never_runs")
def test_arguments_are_checked_at_once(more: dict[str, Any], words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        many([DATA], **more)


def test_what_is_no_cluster_is_refused() -> None:
    pytest.importorskip("distributed", reason="Dask is not installed")
    with pytest.raises(ArgumentError, match="cluster=3 is not allowed"):
        many([DATA], cluster=3, workers=None)


def test_without_dask_a_cluster_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ArgumentError, match=r"pip install 'stanadapt\[dask\]'"):
        many([DATA], cluster="tcp://127.0.0.1:1", workers=None)


@pytest.mark.usefixtures("never_runs")
def test_a_program_that_does_not_compile_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="does not compile"):
        many([DATA], "parameters { rael x; }")
    with pytest.raises(ModelError, match="there is no such file"):
        many([DATA], tmp_path / "none.stan")
    with pytest.raises(ArgumentError, match="has its own data"):
        many([DATA], stanadapt.Posterior(CODE, DATA))


def test_draws_are_those_of_sample_with_the_seed_in_the_result() -> None:
    key, result = next(many({"a": DATA}))
    attrs = result.attrs
    again = stanadapt.sample(CODE, DATA, seed=attrs["seed"], **SHORT)
    assert (key, attrs["key"]) == ("a", '"a"')
    assert np.array_equal(mu(result), mu(again))


def test_draws_depend_on_neither_order_nor_the_other_fits() -> None:
    data = {f"s{i}": shifted(i) for i in range(4)}
    forward = {key: mu(result) for key, result in many(data)}
    backward = {key: mu(result) for key, result in many(reversed(list(data.items())))}
    alone = {key: mu(result) for key, result in many({"s2": data["s2"]})}
    assert list(forward) == list(reversed(backward)) == list(data)
    assert all(np.array_equal(forward[key], backward[key]) for key in data)
    assert np.array_equal(forward["s2"], alone["s2"])
    assert not np.array_equal(forward["s1"] - 1.0, forward["s2"] - 2.0)


def test_a_generator_is_consumed_as_results_are_asked_for() -> None:
    taken = []

    def generate() -> Iterator[tuple[int, Any]]:
        for i in range(10):
            taken.append(i)
            yield i, DATA

    results = many(generate())
    assert taken == []
    for i in range(3):
        assert next(results)[0] == i
        assert taken == list(range(i + 1))
    results.close()


def test_a_bad_data_set_does_not_end_the_others(tmp_path: Path) -> None:
    bad = {"n": 2, "y": [1.0]}
    data = [("a", DATA), ("b", bad), ("c", tmp_path / "none.json"), ("d", 5), ("e", DATA)]
    with pytest.warns(stanadapt.StanAdaptWarning, match=r'3 of 5 fits failed \("b", "c", "d"\)'):
        results = dict(many(data))
    assert isinstance(results["b"], DataError)
    assert "shape (1,)" in str(results["b"])
    assert isinstance(results["c"], DataError)
    assert "there is no such file" in str(results["c"])
    assert isinstance(results["d"], DataError)
    assert mu(results["a"]).shape == mu(results["e"]).shape == (2, 40)


def test_what_a_generator_raises_comes_after_the_results() -> None:
    def generate() -> Iterator[Any]:
        yield DATA
        raise ZeroDivisionError("mine")

    results = many(generate())
    assert next(results)[0] == 0
    with pytest.raises(ZeroDivisionError, match="mine"):
        next(results)


def test_many_models() -> None:
    other = CODE.replace("normal(0, 10)", "normal(0, 0.01)")
    target = stanadapt.Target.from_python(lambda x: -0.5 * float(x @ x), 1, names=["mu"])
    fits = {
        "wide": (CODE, DATA),
        "narrow": (other, DATA),
        "mine": (target, None),
        "open": (stanadapt.Posterior(CODE, DATA), None),
        "wrong": (target, DATA),
        "no": ("x.stan", None),
    }
    results = dict(many(fits, None))
    assert abs(mu(results["narrow"]).mean()) < 0.2 < 1.0 < mu(results["wide"]).mean()
    assert isinstance(results["wrong"], DataError)
    assert isinstance(results["no"], ModelError)
    assert {key for key, value in results.items() if not isinstance(value, Exception)} == {
        "wide",
        "narrow",
        "mine",
        "open",
    }


def test_includes_and_paths(tmp_path: Path) -> None:
    (tmp_path / "data.stan").write_text("int n; vector[n] y;")
    program = tmp_path / "model.stan"
    program.write_text(CODE.replace("int n; vector[n] y;", "\n#include data.stan\n") + "// data.stan")
    (tmp_path / "a.json").write_text(json.dumps(DATA))
    results = dict(many({"path": tmp_path / "a.json", "text": json.dumps(DATA), "dict": DATA}, program))
    for key, result in results.items():
        again = stanadapt.sample(program, DATA, **{**SHORT, "seed": result.attrs["seed"]})
        assert np.array_equal(mu(result), mu(again)), key


def test_one_warning_sums_up() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        results = dict(many([DATA, DATA, DATA]))
    assert len(caught) == 1
    assert "3 of 3 fits have findings (" in str(caught[0].message)
    assert caught[0].filename == __file__
    for result in results.values():
        findings = stanadapt.diagnose(result)
        assert result.attrs["n_findings"] == len(findings) > 0
        assert result.attrs["findings"] == "\n".join(str(finding) for finding in findings)


def test_a_sequence_shorter_than_the_cores_leaves_them_to_chains(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def sample(*_: Any, workers: int, **__: Any) -> None:
        seen.append(workers)
        raise DataError("enough")

    monkeypatch.setattr(task, "api", SimpleNamespace(sample=sample))
    list(many([DATA], workers=4))
    list(many([DATA], workers=1))
    assert seen == [4, 1]


def runs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The data of every fit from now on."""
    ran = []

    def sample(model: Any, data: Any, **more: Any) -> Any:
        ran.append(data["y"][0])
        return api.sample(model, data, **more)

    monkeypatch.setattr(task, "api", SimpleNamespace(sample=sample))
    return ran


def test_a_folder_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "deep" / "fits"
    data = {f"s{i}": shifted(i) for i in range(4)}
    whole = {key: mu(result) for key, result in many(data)}
    ran = runs(monkeypatch)
    begun = many(data, out=out)
    for _ in range(2):
        next(begun)
    begun.close()
    assert ran == [1.0, 2.0]
    again = {key: mu(result) for key, result in many(data, out=out)}
    assert ran == [1.0, 2.0, 3.0, 4.0]
    assert all(np.array_equal(whole[key], again[key]) for key in data)
    index = [json.loads(line) for line in (out / "index.jsonl").read_text().splitlines()]
    assert [line["key"] for line in index] == list(data)
    for line in index:
        result = files.read(out / line["file"])
        assert np.array_equal(mu(result), whole[line["key"]])
        assert result.attrs["n_findings"] == len(line["findings"])
        assert result.attrs["seed"] == line["seed"]
    assert len(dict(many(data, out=out, seed=None))) == len(dict(many(data, out=str(out)))) == 4
    assert len(ran) == 4


def test_failures_are_recorded_and_tried_again(tmp_path: Path) -> None:
    bad = {"n": 2, "y": [1.0]}
    results = dict(many({"a": DATA, "b": bad}, out=tmp_path))
    line = json.loads((tmp_path / "index.jsonl").read_text().splitlines()[1])
    assert (line["key"], line["status"], line["error"]) == ("b", "failed", "DataError")
    assert line["reason"] == str(results["b"])
    again = dict(many({"a": DATA, "b": {"n": 1, "y": [1.0]}}, out=tmp_path))
    assert mu(again["b"]).shape == (2, 40)
    third = dict(many({"b": DATA}, out=tmp_path))
    assert isinstance(third["b"], OutputError)
    assert "other data" in str(third["b"])


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"model": CODE + " "}, "another program"),
        ({"draws": 41}, "draws=40, and draws=41 is asked for"),
        ({"seed": 2}, "seed=1, and seed=2 is asked for"),
        ({"method": "am"}, "method='rwm', and method='am'"),
        ({"inits": np.zeros((2, 1))}, "inits=None"),
        ({"settings": {"target_accept": 0.3}}, "target_accept=.*, and target_accept=0.3"),
        ({"model": None, "datasets": {"a": (CODE, DATA)}}, "another program"),
    ],
)
def test_a_folder_of_something_else_is_refused(tmp_path: Path, more: dict[str, Any], words: str) -> None:
    list(many({"a": DATA}, out=tmp_path))
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(OutputError, match=words):
        many(**{"datasets": {"a": DATA}, "out": tmp_path, **more})
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_with_other_files_or_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(OutputError, match=r"holds other files \(thesis.tex\)"):
        many([DATA], out=tmp_path)
    with pytest.raises(OutputError, match="is a file"):
        many([DATA], out=tmp_path / "thesis.tex")
    first = many([DATA, DATA], out=tmp_path / "fits")
    next(first)
    with pytest.raises(OutputError, match="is in use"):
        many([DATA], out=tmp_path / "fits")
    first.close()
    assert len(list(many([DATA], out=tmp_path / "fits"))) == 1
    with pytest.raises(ArgumentError, match=r"coords=.* is not allowed with out="):
        many([DATA], out=tmp_path / "more", coords={"a": [object()]}, dims={"mu": []})


def test_what_a_crash_leaves_is_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = {f"s{i}": shifted(i) for i in range(4)}
    whole = {key: mu(result) for key, result in many(data, out=tmp_path)}
    index = tmp_path / "index.jsonl"
    lines = index.read_bytes().splitlines(keepends=True)
    paths = {line["key"]: tmp_path / line["file"] for line in map(json.loads, lines)}
    paths["s0"].unlink()
    paths["s1"].write_bytes(paths["s1"].read_bytes()[:1000])
    paths["s2"].with_name("left.nc.1.part").write_text("")
    index.write_bytes(b"".join(lines)[:-20])  # the line of s3 is torn
    ran = runs(monkeypatch)
    again = {key: mu(result) for key, result in many(data, out=tmp_path)}
    assert sorted(ran) == [1.0, 2.0, 4.0]
    assert all(np.array_equal(whole[key], again[key]) for key in data)
    assert list(tmp_path.rglob("*.part")) == []
    assert {key: mu(result).shape for key, result in many(data, out=tmp_path)} == dict.fromkeys(data, (2, 40))
    assert len(ran) == 3
    index.write_bytes(b"no JSON\n" + b"".join(lines))
    with pytest.raises(OutputError, match=r"line 1 of index\.jsonl cannot be read"):
        many(data, out=tmp_path)
    (tmp_path / "run.json").write_text('{"format": 99}')
    with pytest.raises(OutputError, match="another version of stanadapt, in format 99"):
        many(data, out=tmp_path)


def test_what_killed_workers_were_writing_goes_with_the_end(tmp_path: Path) -> None:
    """A worker that is ended because of another fit leaves a part of its file."""
    for _ in many([DATA], out=tmp_path):
        (tmp_path / "fits" / "1-0.nc.1.part").write_bytes(b"part")
    assert [path.suffix for path in (tmp_path / "fits").iterdir()] == [".nc"]


def test_an_index_names_no_other_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of somebody else: a file elsewhere is not read, and its fit is run again."""
    (_, whole), *_ = many([DATA], out=tmp_path / "fits")
    index = tmp_path / "fits" / "index.jsonl"
    line = json.loads(index.read_text())
    (tmp_path / "fits" / line["file"]).rename(tmp_path / "elsewhere.nc")
    ran = runs(monkeypatch)
    for other in (str(tmp_path / "elsewhere.nc"), "../elsewhere.nc"):
        index.write_text(json.dumps(line | {"file": other}) + "\n")
        (_, again), *_ = many([DATA], out=tmp_path / "fits")
        assert np.array_equal(mu(whole), mu(again))
    assert len(ran) == 2


def test_a_full_disk_ends_the_run_after_the_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def note(*_: Any) -> None:
        raise OutputError("no space left")

    monkeypatch.setattr(Folder, "note", note)
    results = many([DATA, DATA, DATA], out=tmp_path)
    key, result = next(results)
    assert (key, mu(result).shape) == (0, (2, 40))
    with pytest.raises(OutputError, match="no space left"):
        next(results)


ENDLESS = """data { int endless; } parameters { real mu; }
model { real s = 0; if (endless == 1) { while (s < 1) { s += 1e-300; } } mu ~ normal(s, 1); }"""


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.thorough), 2])
def test_an_endless_fit_is_ended_and_the_others_go_on(workers: int) -> None:
    """Its log density never returns. What is lost with its process is run again, with the same draws."""
    datasets = {key: {"endless": int(key == "c")} for key in "abcdefg"}
    found = dict(many(datasets, ENDLESS, workers=workers, timeout=5))
    assert sorted(found) == sorted(datasets)
    assert isinstance(found["c"], stanadapt.ChainError)
    assert "took longer than timeout=5 seconds" in str(found["c"])
    assert not [key for key, value in found.items() if isinstance(value, Exception) and key != "c"]
    alone = dict(many({"e": {"endless": 0}}, ENDLESS))
    np.testing.assert_array_equal(mu(found["e"]), mu(alone["e"]))


# `make test` has an endless fit above; both are ended from outside of their process.
@pytest.mark.thorough
@pytest.mark.timeout(300)
def test_an_endless_fit_that_holds_pythons_lock_is_ended() -> None:
    """No thread of Python's has a turn while the pattern is searched for, which takes for ever."""

    def endless(x: np.ndarray) -> float:
        return float(bool(re.match("(a+)+$", "a" * 80 + "b")))

    def normal(x: np.ndarray) -> float:
        return -0.5 * float(x @ x)

    targets = {key: stanadapt.Target.from_python(endless if key == "b" else normal, 1) for key in "abc"}
    found = dict(many({key: (each, None) for key, each in targets.items()}, None, timeout=5))
    assert sorted(found) == sorted(targets)
    assert isinstance(found["b"], stanadapt.ChainError)
    assert "took longer than timeout=5 seconds" in str(found["b"])
    assert not any(isinstance(found[key], Exception) for key in "ac")


ENDLESS_DATA = """data { int endless; }
transformed data { real s = 0; if (endless == 1) { while (s < 1) { s += 1e-300; } } }
parameters { real mu; } model { mu ~ normal(s, 1); }"""


# `make test` has a later fit that is endless above.
@pytest.mark.thorough
@pytest.mark.timeout(300)
def test_a_first_fit_that_is_endless_when_it_is_opened_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing could end it in this process, which compiles what the fits need and so opens no model."""
    opened: list[Any] = []
    monkeypatch.setattr(fits, "COLD_SECONDS", 9.0)
    monkeypatch.setattr(fits, "open_posterior", lambda *arguments: opened.append(arguments))
    found = dict(many({"a": {"endless": 1}, "b": {"endless": 0}}, ENDLESS_DATA, timeout=4))
    assert opened == []
    assert "took longer than timeout=4 seconds" in str(found["a"])
    assert mu(found["b"]).shape == (2, 40)


@pytest.mark.timeout(300)
def test_with_a_limit_of_time_a_refused_program_is_compiled_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker says whether stanli takes it with its data, and the compiler is given the program alone."""
    compiled = []
    monkeypatch.setattr(bridgestan, "is_at_hand", lambda *_: True)
    monkeypatch.setattr(bridgestan, "compile_library", lambda program: compiled.append(program.code))
    program = "parameters { real x; } model { complex z = x; target += -square(get_real(z)); }"
    for code in (program, CODE):
        list(many({"a": DATA if code is CODE else None}, code, timeout=60, backend="auto"))
    assert compiled == [program]


@pytest.mark.parametrize("timeout", [0, -1.0, "10 s", True, float("nan")])
def test_times_that_are_none(timeout: Any) -> None:
    with pytest.raises(ArgumentError, match="timeout"):
        many([DATA], timeout=timeout)


def test_a_limit_of_time_is_not_for_a_cluster() -> None:
    with pytest.raises(ArgumentError, match="timeout=3 is not allowed with cluster"):
        many([DATA], timeout=3, cluster="tcp://127.0.0.1:9", workers=None)


def test_a_busy_cluster_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    """distributed asserts that the scheduler's first answer has one message; a busy one may send two."""
    distributed = pytest.importorskip("distributed", reason="distributed is not installed")
    tries = []

    class Client:
        def __init__(self, address: str, **_: Any) -> None:
            tries.append(address)
            assert len(tries) > 2

    monkeypatch.setattr(distributed, "Client", Client)
    client, is_own = pools.connect("tcp://127.0.0.1:8786")
    assert isinstance(client, Client)
    assert is_own
    assert len(tries) == 3
