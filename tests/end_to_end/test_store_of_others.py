"""Folders of runs that somebody else has made: nothing in them is executed, and no other file is read."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bridgestan
import numpy as np
import pytest

import stanadapt
import stores
from stanadapt.errors import ArgumentError, StanAdaptError, StoreError
from stanadapt.reports.watch import Watch
from stanadapt.result.container import attributes
from stanadapt.result.stores.store import open_store

pytestmark = pytest.mark.timeout(180)


class Command:
    """Unpickled, it makes a file."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.system, (f"touch '{self.marker}'",)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "run"
    with stores.short_intervals():
        stores.sample(store=folder)
    return folder


@pytest.fixture(scope="module")
def partial(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was stopped on its way, with blocks of draws."""
    folder = tmp_path_factory.mktemp("made") / "run"
    stores.sample_part(folder, keeping=8)
    assert (folder / "draws.zarr" / "posterior" / "s" / "zarr.json").exists()
    return folder


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    """A file that is there when something was executed."""
    return tmp_path / "executed"


def copied(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "run"))


def seal(folder: Path) -> None:
    """Whoever makes a folder gives it the hashes that it is to have."""
    held = json.loads((folder / "run.json").read_text())
    facts = held["run"]["facts"]
    for fact, name in (("program", "program.stan"), ("data", "data.json"), ("starts", "asked.npz")):
        if facts[fact] is not None:
            facts[fact] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    program = facts["program"]
    if program is not None:
        held["run"]["description"]["hash"] = program[:16]
    held["hash"] = hashlib.sha256(json.dumps(held["run"]).encode()).hexdigest()
    (folder / "run.json").write_text(json.dumps(held))
    if (folder / "end.json").exists():
        store = open_store(folder)
        store.end(**store.read_end() | {"digest": store.blocks.digest()})


def rewrite(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    held = json.loads(path.read_text())
    change(held)
    path.write_text(json.dumps(held))


def in_format_2(array: Path, marker: Path) -> None:
    """An array of objects, whose filter is a pickle that makes a file."""
    shutil.rmtree(array)
    array.mkdir()
    description = {
        "zarr_format": 2,
        "shape": [1],
        "chunks": [1],
        "dtype": "|O",
        "compressor": None,
        "fill_value": 0,
        "order": "C",
        "filters": [{"id": "pickle", "protocol": 5}],
    }
    (array / ".zarray").write_text(json.dumps(description))
    (array / ".zattrs").write_text(json.dumps({"_ARRAY_DIMENSIONS": ["which"]}))
    (array / "0").write_bytes(pickle.dumps(Command(marker)))


def all_in_format_2(folder: Path, marker: Path) -> None:
    root = folder / "draws.zarr"
    for place in (root, root / "posterior"):
        (place / "zarr.json").unlink()
        (place / ".zgroup").write_text(json.dumps({"zarr_format": 2}))
    in_format_2(root / "posterior" / "s", marker)


def one_group_in_format_2(folder: Path, marker: Path) -> None:
    group = folder / "draws.zarr" / "posterior"
    (group / "zarr.json").unlink()
    (group / ".zgroup").write_text(json.dumps({"zarr_format": 2}))
    in_format_2(group / "s", marker)


def one_array_in_format_2(folder: Path, marker: Path) -> None:
    in_format_2(folder / "draws.zarr" / "posterior" / "s", marker)


def another_codec(folder: Path, marker: Path) -> None:
    def change(held: dict[str, Any]) -> None:
        held["codecs"].append({"name": "gzip", "configuration": {"level": 1}})

    rewrite(folder / "draws.zarr" / "posterior" / "s" / "zarr.json", change)


def a_codec_by_another_name(folder: Path, marker: Path) -> None:
    def change(held: dict[str, Any]) -> None:
        held["codecs"][0]["name"] = "numcodecs.pickle"

    rewrite(folder / "draws.zarr" / "posterior" / "s" / "zarr.json", change)


def another_type(folder: Path, marker: Path) -> None:
    def change(held: dict[str, Any]) -> None:
        held["data_type"] = {"name": "fixed_length_utf32", "configuration": {"length_bytes": 8}}

    rewrite(folder / "draws.zarr" / "posterior" / "s" / "zarr.json", change)


def descriptions_in_one_place(folder: Path, marker: Path) -> None:
    def change(held: dict[str, Any]) -> None:
        held["consolidated_metadata"] = {"kind": "inline", "must_understand": False, "metadata": {}}

    rewrite(folder / "draws.zarr" / "zarr.json", change)


def a_link_to_a_group(folder: Path, marker: Path) -> None:
    group = folder / "draws.zarr" / "posterior"
    group.rename(folder.parent / "elsewhere")
    group.symlink_to(folder.parent / "elsewhere")


def a_link_to_data(folder: Path, marker: Path) -> None:
    (folder / "data.json").rename(folder.parent / "elsewhere")
    (folder / "data.json").symlink_to(folder.parent / "elsewhere")


def a_link_to_checkpoints(folder: Path, marker: Path) -> None:
    (folder / "chains" / "0").rename(folder.parent / "elsewhere")
    (folder / "chains" / "0").symlink_to(folder.parent / "elsewhere")


def a_pipe(folder: Path, marker: Path) -> None:
    (folder / "end.json").unlink(missing_ok=True)
    os.mkfifo(folder / "end.json")


CHANGES = {
    all_in_format_2: "format 2",
    one_group_in_format_2: "format 2",
    one_array_in_format_2: "format 2",
    another_codec: "names codecs=.*which no store has",
    a_codec_by_another_name: "names codecs=.*which no store has",
    another_type: "names data_type=.*which no store has",
    descriptions_in_one_place: "names consolidated_metadata=.*which no store has",
    a_link_to_a_group: "is a link",
    a_link_to_data: "is a link",
    a_link_to_checkpoints: "is a link",
    a_pipe: "is a link or a device",
}


@pytest.mark.parametrize("read", ["load", "warm", "watch"])
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_what_a_store_does_not_have(
    change: Callable[[Path, Path], None], read: str, finished: Path, marker: Path, tmp_path: Path
) -> None:
    folder = copied(finished, tmp_path)
    change(folder, marker)
    if CHANGES[change].startswith("names"):
        seal(folder)
    readers: dict[str, Callable[[], Any]] = {
        "load": lambda: stanadapt.load(folder),
        "warm": lambda: stores.sample(warm=folder),
        "watch": lambda: Watch(folder).result(),
    }
    with pytest.raises(StanAdaptError, match=CHANGES[change]):
        readers[read]()
    assert not marker.exists()


@pytest.mark.parametrize("change", [one_array_in_format_2, another_codec], ids=lambda change: change.__name__)
def test_the_same_in_a_run_that_goes_on(
    change: Callable[[Path, Path], None], partial: Path, marker: Path, tmp_path: Path
) -> None:
    folder = copied(partial, tmp_path)
    change(folder, marker)
    for read in (stanadapt.load, stores.resume):
        with pytest.raises(StoreError, match=CHANGES[change]):
            read(folder)
    assert not marker.exists()


def test_data_in_format_2(partial: Path, marker: Path, tmp_path: Path) -> None:
    folder = copied(partial, tmp_path)
    rewrite(folder / "draws.zarr" / "observed_data" / "y" / "zarr.json", lambda held: held["codecs"].pop())
    facts = {"labels": open_store(folder).blocks.data_digest()}
    rewrite(folder / "run.json", lambda held: held["run"]["facts"].update(facts))
    seal(folder)
    with pytest.raises(StoreError, match="names codecs="):
        stanadapt.load(folder)


def test_a_program_that_is_a_path_is_no_library(
    partial: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = []
    monkeypatch.setattr(bridgestan, "StanModel", lambda library, *_, **__: opened.append(library))
    folder = copied(partial, tmp_path)
    library = tmp_path / "evil.so"
    library.write_bytes(b"")
    (folder / "program.stan").write_text(str(library))
    seal(folder)
    for go_on in (stores.resume, lambda store: stores.extend(store, 10), stanadapt.replay):
        with pytest.raises(StanAdaptError, match="does not compile"):
            go_on(folder)
    assert not opened


def test_a_program_that_is_a_path_is_no_file(partial: Path, tmp_path: Path) -> None:
    """Not even one that holds the very program."""
    folder = copied(partial, tmp_path)
    (tmp_path / "other.stan").write_text(stores.PROGRAM)
    (folder / "program.stan").write_text(str(tmp_path / "other.stan"))
    seal(folder)
    with pytest.raises(StanAdaptError, match="does not compile"):
        stores.resume(folder)


def test_a_program_includes_no_files(partial: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").write_text("real secret;\n")
    monkeypatch.chdir(tmp_path)
    folder = copied(partial, tmp_path)
    for named in ("secret", tmp_path / "secret"):
        (folder / "program.stan").write_text(
            stores.PROGRAM.replace("parameters {", f"parameters {{\n#include {named}\n")
        )
        seal(folder)
        with pytest.raises(ArgumentError, match="no file is read because a store says so"):
            stores.resume(folder)


def test_no_executable_of_a_store_is_run(marker: Path, tmp_path: Path) -> None:
    script = tmp_path / "evil"
    script.write_text(f"#!/bin/sh\ntouch '{marker}'\n")
    script.chmod(script.stat().st_mode | stat.S_IEXEC)
    folder = tmp_path / "run"
    with stores.stopped_at(1):
        stores.sample(store=folder, method="nuts", warmup=200)
    rewrite(folder / "run.json", lambda held: held["run"]["facts"].update(executable=str(script)))
    seal(folder)
    for go_on in (stores.resume, stanadapt.replay):
        with pytest.raises(ArgumentError, match="no executable is run because a store says so"):
            go_on(folder)
    with pytest.raises(ArgumentError, match="a run by CmdStan"):
        stores.resume(folder, model=stores.PROGRAM)
    assert not marker.exists()


@pytest.mark.parametrize(
    ("place", "name", "value"),
    [
        ("facts", "backend", "of_somebody_else"),
        ("facts", "seed", "1"),
        ("facts", "density", "text"),
        ("job", "thin", 0),
        ("job", "chains", -1),
        ("job", "draws", 1e300),
        ("job", "warmup", None),
        ("job", "method", "../evil"),
        ("job", "save_warmup", "yes"),
    ],
)
def test_what_a_run_cannot_have_been_asked(
    place: str, name: str, value: Any, finished: Path, tmp_path: Path
) -> None:
    """Native code crashes on some of these, and a backend from outside would be imported."""
    folder = copied(finished, tmp_path)
    held = json.loads((folder / "run.json").read_text())
    held["run"][place][name] = value
    held["hash"] = hashlib.sha256(json.dumps(held["run"]).encode()).hexdigest()
    (folder / "run.json").write_text(json.dumps(held))
    with pytest.raises(StoreError, match="damaged, or by another version"):
        stanadapt.load(folder)


@pytest.mark.parametrize("name", ["run.json", "end.json"])
def test_deep_descriptions(name: str, finished: Path, tmp_path: Path) -> None:
    """They are refused, or passed over where that is allowed."""
    folder = copied(finished, tmp_path)
    (folder / name).write_text("[" * 100_000)
    if name == "run.json":
        with pytest.raises(StoreError, match="cannot be read"):
            stanadapt.load(folder)
    else:
        assert attributes(stanadapt.load(folder))["partial"] == 1


@pytest.mark.parametrize("name", ["asked.npz", "checkpoint"])
def test_no_pickle_is_read(name: str, partial: Path, marker: Path, tmp_path: Path) -> None:
    """In a file of those that NumPy reads."""
    folder = copied(partial, tmp_path)
    path = folder / name if name == "asked.npz" else max((folder / "chains" / "0").iterdir())
    evil = np.empty(1, object)
    evil[0] = Command(marker)
    with np.load(path) as held:
        entries = dict(held)
    np.savez(path, **entries | {"0": evil})  # type: ignore[arg-type]
    if name == "checkpoint":
        data = path.read_bytes()
        digest = hashlib.sha256(data).hexdigest()[:32]
        path.rename(path.with_name(f"{path.name[:8]}-{len(data)}-{digest}.npz"))
    seal(folder)
    for read in (stanadapt.load, stores.resume):
        with pytest.raises(StoreError, match="allow_pickle=False"):
            read(folder)
    assert not marker.exists()
