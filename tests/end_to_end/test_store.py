"""Runs in folders: their draws are those of runs without, whether resumed, extended or only read."""

from __future__ import annotations

import datetime
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stanadapt
import stores
from cases import partly_thorough, thorough
from stanadapt.errors import ArgumentError, StanAdaptWarning, StoreError
from stanadapt.result.container import attributes, datasets
from stanadapt.result.stores import disk_draws
from stanadapt.result.stores import store as store_module
from stanadapt.result.stores.store import open_store

pytestmark = pytest.mark.timeout(180)

GENERATED = "data { real a; } generated quantities { real z = normal_rng(a, 1); }"
DAYS = [datetime.datetime(2024, 1, 1), datetime.datetime(2024, 2, 29, 12)]
INITS: dict[str, Any] = {
    "dict": {"s": [1.0, 2.0]},
    "list": [{"s": [1.0, 2.0]}, {"s": [0.5, 0.1]}],
    "array": np.array([[0.1, -0.2], [0.3, 0.4]]),
    "number": 0.5,
}


# Where draws stay on the disk more can go wrong. Of runs in memory `make test` has the tests that do not ask.
LAZY = pytest.param(True, id="disk")
IN_MEMORY = pytest.param(False, id="memory", marks=pytest.mark.thorough)


@pytest.fixture(params=[LAZY, IN_MEMORY])
def is_lazy(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the draws stay on the disk."""
    if request.param:
        monkeypatch.setattr("stanadapt.run.preparation.memory.MEMORY_BYTES", 1)
    return bool(request.param)


def stop_and_go_on(tmp_path: Path, model: Any = stores.PROGRAM, data: Any = stores.DATA, **run: Any) -> None:
    """A run that fails on its way and is resumed has the draws, and is loaded as what it is."""
    whole = stores.sample(model, data, **run)
    folder = tmp_path / "run"
    with stores.short_intervals(), stores.stopped_at(3):
        stores.sample(model, data, store=folder, **run)
    given = {} if isinstance(model, str) else {"model": model}
    stores.assert_part(stanadapt.load(folder), whole)
    found = stores.resume(folder, **given)
    stores.assert_same(found, whole)
    stores.assert_same(stanadapt.load(folder), whole)
    assert attributes(stanadapt.load(folder)) == attributes(found)
    stores.assert_same(stores.resume(folder, **given), whole)  # of a run that is over


@pytest.mark.parametrize(
    "run",
    [
        {},
        {"thin": 3, "draws": 100, "save_warmup": False},
        {"keep_unconstrained": True, "warmup": 0},
        {"method": "fisher_hmc", "warmup": 700, "draws": 60},
        {"method": "am", "draws": 61, "thin": 2},
        {"chains": 1},
        {"draws": 1, "warmup": 1},
        {"log_likelihood": "z"},
        {"coords": {"which": ["mean", "spread"]}, "dims": {"s": ["which"]}},
        {
            "coords": {"day": [datetime.datetime(2024, 1, 1), datetime.datetime(2024, 1, 2)]},
            "dims": {"s": ["day"]},
        },
    ],
    ids=lambda run: " ".join(run) or "plain",
)
def test_blocks_and_checkpoints_change_nothing(run: dict[str, Any], is_lazy: bool, tmp_path: Path) -> None:
    with stores.short_intervals():
        idata = stores.sample(store=tmp_path / "run", **run)
    stores.assert_same(idata, stores.sample(**run))
    stores.assert_same(stanadapt.load(tmp_path / "run"), idata)


@pytest.mark.parametrize("method", ["rwm", "fisher_hmc", thorough("nuts"), thorough("auto")])
def test_a_run_that_failed_goes_on(method: str, is_lazy: bool, tmp_path: Path) -> None:
    keywords: dict[str, Any] = {"method": method, "draws": 100}
    if method != "rwm":
        keywords["warmup"] = 200
    if method == "nuts":
        folder = tmp_path / "run"
        with stores.stopped_at(1):
            stores.sample(store=folder, **keywords)
        stores.assert_same(stores.resume(folder), stores.sample(**keywords))
        with pytest.raises(ArgumentError, match="chains run as a whole"):
            stanadapt.extend(folder, 10)
    else:
        stop_and_go_on(tmp_path, **keywords)


@pytest.mark.parametrize("kind", partly_thorough([*INITS, "result"], ("list", "result")))
def test_starts_are_kept(kind: str, tmp_path: Path) -> None:
    given = stores.sample(draws=3, keep_unconstrained=True) if kind == "result" else INITS[kind]
    stop_and_go_on(tmp_path, inits=given)


def test_without_parameters(is_lazy: bool, tmp_path: Path) -> None:
    run = {"model": GENERATED, "data": {"a": 2.0}, "draws": 5_000}
    stores.assert_same(stores.sample(store=tmp_path / "run", **run), stores.sample(**run))
    extended = stores.extend(tmp_path / "run", 1_000)
    stores.assert_same(extended, stores.sample(**run | {"draws": 6_000}))


def target(dim: int = 2, names: tuple[str, ...] = ("a", "b")) -> Any:
    return stanadapt.Target.from_python(lambda x: -0.5 * float(x @ x), dim, names=list(names))


def test_a_python_target(tmp_path: Path) -> None:
    """It is given again, and must be the same as far as can be seen."""
    stop_and_go_on(tmp_path, target(), None, workers=2)
    folder = tmp_path / "run"
    with pytest.raises(ArgumentError, match="pass the same model again"):
        stanadapt.extend(folder, 10)
    with pytest.raises(StoreError, match="another model"):
        stanadapt.extend(folder, 10, model=target(3, ("a", "b", "c")))
    with pytest.raises(StoreError, match="another model"):
        stanadapt.extend(folder, 10, model=target(names=("a", "other")))
    extended = stores.extend(folder, 10, model=target(), workers=1)
    stores.assert_same(extended, stores.sample(target(), None, draws=50))


def test_with_other_numbers_of_workers(tmp_path: Path) -> None:
    stores.sample_part(tmp_path / "run", workers=2)
    stores.assert_same(stores.resume(tmp_path / "run", workers=1), stores.sample())


@pytest.mark.parametrize(("thin", "is_lazy"), [thorough(1, True), (3, False)], indirect=["is_lazy"])
def test_extended_twice(thin: int, is_lazy: bool, tmp_path: Path) -> None:
    """With warm-ups of different lengths, and a run that is extended where it had failed."""
    run = {"method": "fisher_hmc", "warmup": 1_000, "draws": 100, "thin": thin}
    with stores.short_intervals():
        stores.sample(store=tmp_path / "run", **run)
        for total in (150, 191):
            before = run["draws"]
            run["draws"] = total
            idata = stores.extend(tmp_path / "run", total - int(str(before)))
            whole = stores.sample(**run)
            stores.assert_same(idata, whole)
            stores.assert_same(stanadapt.load(tmp_path / "run"), whole)
        with stores.stopped_at(1):
            stores.extend(idata, 100)
        whole = stores.sample(**run | {"draws": 291})
        part = stanadapt.load(tmp_path / "run")
        stores.assert_part(part, whole)
        assert attributes(part)["interrupted"] == 1
        stores.assert_same(stores.resume(tmp_path / "run"), whole)


def test_columns_that_a_method_does_not_know(is_lazy: bool, tmp_path: Path) -> None:
    """A result leaves them out, and an extended run needs them again."""
    with stores.short_intervals():
        idata = stores.sample(store=tmp_path / "run", method="gad_rwm")
        aside = sorted(path.name for path in (tmp_path / "run" / "unknown").glob("*/*"))
        assert aside
        assert not set(aside) & set(datasets(idata)["sample_stats"].data_vars)
        extended = stores.extend(tmp_path / "run", 50)
    stores.assert_same(extended, stores.sample(method="gad_rwm", draws=90))


def test_extended_after_goals(tmp_path: Path) -> None:
    run = {"method": "fisher_hmc", "until": "ess 50", "draws": 5_000, "warmup": 300}
    idata = stores.sample(store=tmp_path / "run", **run)
    drawn = datasets(idata)["posterior"].sizes["draw"]
    assert drawn < 5_000
    assert attributes(stanadapt.load(tmp_path / "run")) == attributes(idata)
    extended = stores.extend(tmp_path / "run", 70)
    whole = stores.sample(**run | {"until": None, "draws": drawn + 70})
    stores.assert_same(extended, whole)
    assert "until_reached" not in attributes(stanadapt.load(tmp_path / "run"))
    assert "until_reached" not in datasets(stanadapt.load(tmp_path / "run"))["posterior"].attrs


@pytest.mark.parametrize("warmup", [0, 10**8])
def test_extended_after_a_limit_of_time(warmup: int, tmp_path: Path) -> None:
    """Also one that has fallen into warm-up: the run is not over then, and nothing is given as draws."""
    idata = stores.sample(store=tmp_path / "run", until="0.2 s", draws=10**6, warmup=warmup, thin=10**2)
    if warmup:
        assert datasets(idata)["posterior"].sizes["draw"] == 0
        assert datasets(stanadapt.load(tmp_path / "run"))["posterior"].sizes["draw"] == 0
        assert "still in warm-up" in attributes(stanadapt.load(tmp_path / "run"))["interrupted_note"]
        return
    longest = max(open_store(tmp_path / "run").checkpoint(i)["draws"]["n"] for i in range(2))
    extended = stores.extend(tmp_path / "run", 1_000)
    assert datasets(extended)["posterior"].sizes["draw"] == longest + 10


def test_a_result_that_a_power_cut_has_torn_is_built_again(tmp_path: Path) -> None:
    whole = stores.sample(store=tmp_path / "run")
    (tmp_path / "run" / "draws.zarr" / "posterior" / "s" / "zarr.json").write_bytes(b"")
    with pytest.raises(StoreError, match="damaged"):
        stanadapt.load(tmp_path / "run")
    with pytest.warns(StanAdaptWarning, match="The result is built again"):
        found = stores.resume(tmp_path / "run")
    stores.assert_same(found, whole)
    stores.assert_same(stanadapt.load(tmp_path / "run"), whole)


def test_another_thread_leaves_no_chunk_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import zarr

    run = {"method": "hmc", "warmup": 60, "draws": 60}  # no draw diverges: zeros alone
    whole = stores.sample(**run)
    with zarr.config.set({"array.write_empty_chunks": False}):
        for name in ("create_array", "require_group"):
            method = getattr(zarr.Group, name)

            def in_the_other_thread(*given: Any, method: Any = method, **keywords: Any) -> Any:
                zarr.config.set({"array.write_empty_chunks": False})
                return method(*given, **keywords)

            monkeypatch.setattr(zarr.Group, name, in_the_other_thread)
        with stores.short_intervals(), stores.stopped_at(3):
            stores.sample(store=tmp_path / "run", **run)
        stores.assert_same(stores.resume(tmp_path / "run"), whole)
        stores.assert_same(stanadapt.load(tmp_path / "run"), whole)


def test_a_run_that_ends_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be read at that moment is read again, though nobody has the lock any more."""
    folder = tmp_path / "run"
    whole = stores.sample(store=folder)
    end = (folder / "end.json").rename(tmp_path / "end.json")

    def refuse_part(_: Any) -> Any:
        raise StoreError("it is being completed")

    def is_locked(_: Path) -> bool:
        if end.exists():
            end.rename(folder / "end.json")
        return False

    monkeypatch.setattr(disk_draws, "_read_part", refuse_part)
    with pytest.raises(StoreError, match="it is being completed"):  # of a run that was killed
        stanadapt.load(folder)
    monkeypatch.setattr(disk_draws, "is_locked", is_locked)
    stores.assert_same(stanadapt.load(folder), whole)


def test_other_programs_open_it(tmp_path: Path) -> None:
    import xarray

    idata = stores.sample(store=tmp_path / "run")
    with xarray.open_datatree(tmp_path / "run" / "draws.zarr", engine="zarr", consolidated=False) as tree:
        opened = tree["posterior"].to_dataset()["s"].to_numpy()
    np.testing.assert_array_equal(opened, datasets(idata)["posterior"]["s"].to_numpy())


def test_nothing_is_pickled(tmp_path: Path) -> None:
    """Arrays, JSON and texts, in a run that is over and in one that is not."""
    stores.sample_part(tmp_path / "part")
    stores.sample(store=tmp_path / "whole")
    for path in tmp_path.rglob("*"):
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as held:
                assert all(held[name].dtype != object for name in held.files)
        elif path.is_file() and path.name not in ("lock", "program.stan") and "c" not in path.parts:
            json.loads(path.read_text())


def test_without_a_store_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(store_module.Store, "__init__", None)
    monkeypatch.setattr("stanadapt.result.stores.blocks.Blocks.__init__", None)
    idata = stores.sample()
    assert "store" not in attributes(idata)
    assert not list(tmp_path.iterdir())
    with pytest.raises(ArgumentError, match="run has no store"):
        stanadapt.extend(idata, 10)


def rewrite(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change what a run was asked, with the hash that goes with it."""
    held = json.loads((folder / "run.json").read_text())
    change(held)
    held["hash"] = hashlib.sha256(json.dumps(held["run"]).encode()).hexdigest()
    (folder / "run.json").write_text(json.dumps(held))


def _version(held: dict[str, Any]) -> None:
    held["run"]["facts"]["machine"]["stanadapt"] = "0.0.1"


def _format(held: dict[str, Any]) -> None:
    held["format"] = 99


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_format, "store of format 99"),
        (_version, "begun by stanadapt 0.0.1"),
        (lambda held: held["run"]["facts"].pop("machine"), "lacks machine"),
        (lambda held: held["run"]["facts"].pop("program"), "lacks program"),
        (lambda held: held["run"].pop("notes"), "another version"),
        (lambda held: held["run"]["job"].pop("thin"), "another version"),
        (lambda held: held["run"]["job"].update(method="none"), "another version"),
        (lambda held: held["run"]["job"].update(more=1), "another version"),
        (lambda held: held["run"]["request"].pop("chains"), "another version"),
        (lambda held: held["run"]["description"].pop("hash"), "another version"),
    ],
)
def test_what_another_version_has_written(change: Any, reason: str, tmp_path: Path) -> None:
    stores.sample_part(tmp_path / "run")
    rewrite(tmp_path / "run", change)
    with pytest.raises(StoreError, match=reason):
        stores.resume(tmp_path / "run")


@pytest.mark.parametrize("name", ["program.stan", "data.json", "asked.npz"])
def test_another_program_or_other_data(name: str, tmp_path: Path) -> None:
    stores.sample_part(tmp_path / "run")
    with (tmp_path / "run" / name).open("ab") as file:
        file.write(b" ")
    with pytest.raises(StoreError, match="has changed since"):
        stores.resume(tmp_path / "run")


def test_another_machine_is_named(tmp_path: Path) -> None:
    def change(held: dict[str, Any]) -> None:
        held["run"]["facts"]["machine"] |= {"numpy": "1.0", "processor": "abacus"}

    stores.sample_part(tmp_path / "run")
    rewrite(tmp_path / "run", change)
    with pytest.warns(StanAdaptWarning, match=r"processor was abacus and is .*numpy was 1\.0"):
        stores.assert_same(stores.resume(tmp_path / "run"), stores.sample())


@pytest.mark.usefixtures("never_runs")
def test_folders_that_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("text")
    with pytest.raises(ArgumentError, match="no empty folder"):
        stores.sample(store=tmp_path / "file")
    with pytest.raises(ArgumentError, match="no empty folder"):
        stores.sample(store=tmp_path / "full")
    with pytest.raises(StoreError, match=r"cannot be written: Not a directory\. No run has begun"):
        stores.sample(store=tmp_path / "file" / "below")
    for given in ("", 5, None, ["a"]):
        if given is not None:
            with pytest.raises(ArgumentError, match="path of a folder"):
                stores.sample(store=given)
        with pytest.raises(ArgumentError):
            stanadapt.load(given)
        with pytest.raises(ArgumentError):
            stanadapt.resume(given)
    for read in (stanadapt.load, stanadapt.resume):
        with pytest.raises(StoreError, match="no store of a run"):
            read(tmp_path / "full")
        with pytest.raises(StoreError, match="no store of a run"):
            read(tmp_path / "nowhere")
    assert (tmp_path / "full" / "mine.txt").read_text() == "text"
    assert not (tmp_path / "full" / "lock").exists()


def test_a_folder_has_one_run(tmp_path: Path) -> None:
    stores.sample(store=tmp_path / "new" / "run")
    with pytest.raises(ArgumentError, match=r"has a run already: stanadapt\.resume"):
        stores.sample(store=tmp_path / "new" / "run")


def test_coordinates_that_no_file_holds(tmp_path: Path) -> None:
    labels = [{"a": 1}, {"b": 2}]
    with pytest.raises(ArgumentError, match="numbers, texts or dates"):
        stores.sample(store=tmp_path / "run", coords={"which": labels}, dims={"s": ["which"]})
    stores.sample(store=tmp_path / "run")
