"""Runs in folders that are killed, with full disks, whose files are damaged: nothing wrong is ever read."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stanadapt
import stores
from cases import thorough
from stanadapt.errors import ChainError, StoreError
from stanadapt.result.container import attributes, datasets
from stanadapt.result.stores import store as store_module
from stanadapt.result.stores.run_folder import lock

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(sys.platform == "win32", reason="forks, limits and signals of POSIX"),
]


@pytest.fixture(scope="module")
def whole() -> Any:
    """The run without interruption, and without a store."""
    return stores.sample()


# `make test` has extensions that are killed, and files that may not grow.
@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["kill", "full"])
def test_at_any_change_of_a_file(kind: str, tmp_path: Path) -> None:
    """Killed, or with a disk that is full from then on; in a process without threads, which it forks."""
    command = [sys.executable, stores.__file__, kind, str(tmp_path / "runs"), "7", "430"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 3


def test_killed_while_it_is_extended(tmp_path: Path) -> None:
    """At any change of a file: what was drawn is there, and the extension goes on to the same draws."""
    command = [sys.executable, stores.__file__, "extend", str(tmp_path / "runs"), "5", "270"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 3


@pytest.mark.parametrize("is_over", [True, thorough(False)], ids=["over", "part"])
def test_damaged_files(is_over: bool, whole: Any, tmp_path: Path) -> None:
    """One of each kind: a bit in its middle, its last byte gone, or the file itself gone."""
    folder = tmp_path / "run"
    if is_over:
        with stores.short_intervals():
            stores.sample(store=folder)
    else:
        stores.sample_part(folder)
    damage = stores.Damage(folder, whole)
    kinds = {file.name if file.parts[0] != "chains" else "checkpoint": file for file in damage.files}
    kinds |= {str(file): file for file in damage.files if file.parts[:3:2] == ("draws.zarr", "y")}
    assert {"run.json", "asked.npz", "data.json", "program.stan", "checkpoint", "zarr.json"} <= set(kinds)
    assert any(file.name.isdecimal() for file in kinds.values())
    for number, file in enumerate(kinds.values()):
        size = (folder / file).stat().st_size
        if number % 3 == 0 or not size:
            damage.remove(file)
        elif number % 3 == 1:
            damage.cut(file, size - 1)
        else:
            damage.flip(file, size // 2, 3)
    assert damage.refused > 2
    assert damage.right > 2


def test_a_last_checkpoint_of_any_length(whole: Any, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    stores.sample_part(folder)
    older, newest = sorted((folder / "chains" / "0").glob("*.npz"))
    data, before = newest.read_bytes(), older.read_bytes()
    store = store_module.open_store(folder)
    expected = store.checkpoint(0)["draws"]["n"]
    newest.unlink()
    n = store.checkpoint(0)["draws"]["n"]
    assert n < expected
    older.unlink()
    for size in [*range(0, len(data), 5), *range(len(data) - 30, len(data))]:  # none is whole
        newest.write_bytes(data[:size])
        assert store.checkpoint(0) is None
    older.write_bytes(before)
    for size in (0, 1, len(data) // 2, len(data) - 1):
        newest.write_bytes(data[:size])
        assert store.checkpoint(0)["draws"]["n"] == n
    stores.assert_same(stores.resume(folder), whole)


def test_a_missing_block_is_named(tmp_path: Path) -> None:
    stores.sample_part(tmp_path / "run", 6)
    block = sorted((tmp_path / "run" / "draws.zarr" / "posterior" / "s" / "c").rglob("*/0/0"))[0]
    block.unlink()
    for read in (stanadapt.load, stores.resume):
        with pytest.raises(StoreError, match="is missing"):
            read(tmp_path / "run")


def test_a_block_that_is_read_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that stay on the disk are refused when they are asked for."""
    monkeypatch.setattr("stanadapt.run.preparation.memory.MEMORY_BYTES", 1)
    with stores.short_intervals():
        idata = stores.sample(store=tmp_path / "run")
    block = next(path for path in (tmp_path / "run" / "draws.zarr" / "posterior" / "s" / "c").rglob("0"))
    block = block if block.is_file() else next(path for path in block.rglob("*") if path.is_file())
    data = bytearray(block.read_bytes())
    data[10] ^= 1
    block.write_bytes(bytes(data))
    with pytest.raises(StoreError, match="damaged"):
        datasets(idata)["posterior"]["s"].to_numpy()
    with pytest.raises(StoreError, match="damaged"):
        datasets(stanadapt.load(tmp_path / "run"))["posterior"]["s"].to_numpy()


def environment() -> dict[str, str]:
    """In which a process finds the tests' own modules."""
    places = [str(Path(stores.__file__).parent), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, places))}


LIMITED = """
import resource, signal, sys
import stores
from stanadapt.errors import StoreError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
sys.dont_write_bytecode = True  # or modules that are imported later would be cut off for all other processes
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
with stores.short_intervals():
    try:
        stores.sample(store=sys.argv[1], draws=400)
    except StoreError as error:
        print(error)
"""


def test_files_that_may_not_grow(tmp_path: Path) -> None:
    """The system's own refusal, when a checkpoint is larger than a file may be."""
    command = [sys.executable, "-c", LIMITED, str(tmp_path / "run"), "7280"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment())
    assert done.returncode == 0, done.stderr
    assert "cannot be written: File too large" in done.stdout
    assert "stanadapt.resume goes on" in done.stdout
    stores.assert_same(stores.resume(tmp_path / "run"), stores.sample(draws=400))


ENDLESS = """
import signal, sys
for number in (signal.SIGTERM, signal.SIGHUP):  # which nohup has had ignored
    signal.signal(number, signal.SIG_DFL)
import stanadapt, stores
from stanadapt.result.stores import store
from stanadapt.run import progress
progress._LOG_SHARE = 0.0
store.SECONDS, store.SHARE = 0.01, 1e9
stores.sample(store=sys.argv[1], draws=10**8, thin=10**5, warmup=int(sys.argv[2]), progress=True)
print("goes on")
"""


def begin(folder: Path, warmup: int = 20) -> subprocess.Popen[str]:
    """A run of hours in another process, which has drawn something."""
    command = [sys.executable, "-c", ENDLESS, str(folder), str(warmup)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    child = subprocess.Popen(command, env=environment(), **pipes)  # type: ignore[call-overload]
    while not (folder / "chains" / "1").exists() or not list((folder / "chains" / "1").glob("*.npz")):
        assert child.poll() is None, child.stderr.read()
        time.sleep(0.01)
    return child  # type: ignore[no-any-return]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, thorough(signal.SIGHUP)])
def test_signals_leave_a_run_that_goes_on(number: signal.Signals, tmp_path: Path) -> None:
    """After Ctrl-C the program goes on, with the result so far; others end it. The folder can be resumed."""
    child = begin(tmp_path / "run")
    child.send_signal(number)
    out, err = child.communicate()
    goes_on = number == signal.SIGINT
    assert child.returncode == (0 if goes_on else -number), err
    assert out.endswith("goes on\n") == goes_on
    assert json.loads((tmp_path / "run" / "end.json").read_text())["ended"]["ended_by"] == number.name
    found = attributes(stanadapt.load(tmp_path / "run"))
    assert f"ended by {number.name}" in found["interrupted_note"]
    assert found["interrupted"] == 1


def test_two_processes_and_a_dead_one(tmp_path: Path) -> None:
    """While a run goes on it is read, and nobody else runs it; when it is dead, its lock is free."""
    folder = tmp_path / "run"
    child = begin(folder)
    try:
        lengths, last = [], {}
        for _ in range(10):
            idata = stanadapt.load(folder)
            posterior = datasets(idata)["posterior"]
            assert "it goes on at this moment" in attributes(idata)["interrupted_note"]
            for chain in posterior["chain"].values:
                draws = posterior["s"].sel(chain=chain).to_numpy()
                before = last.get(chain, draws[:0])
                n = min(len(before), len(draws))  # a chain that draws its first shortens the others
                np.testing.assert_array_equal(draws[:n], before[:n])
                last[chain] = draws
            lengths.append(posterior.sizes["draw"])
        assert lengths[-1] >= 0
        with pytest.raises(StoreError, match="in use by another process"):
            stanadapt.resume(folder, progress=False)
        with pytest.raises(StoreError, match="in use by another process"):
            stanadapt.extend(folder, 10, progress=False)
    finally:
        child.kill()
        child.communicate()
    assert "it was killed, or has failed" in attributes(stanadapt.load(folder))["interrupted_note"]
    with lock(folder):
        pass


def test_warmup_is_never_given_as_draws(tmp_path: Path) -> None:
    child = begin(tmp_path / "run", 10**8)
    child.kill()
    child.communicate()
    idata = stanadapt.load(tmp_path / "run")
    groups = datasets(idata)
    assert groups["posterior"].sizes["draw"] == 0
    assert "still in warm-up: 0, 1" in attributes(idata)["interrupted_note"]
    assert any("interrupted" in str(finding) for finding in stanadapt.diagnose(idata, progress=False))


def mortal(path: Path) -> stanadapt.Target:
    """A standard normal whose evaluation kills another process than this, once, when a file is there."""
    here = os.getpid()

    def log_density(x: np.ndarray) -> float:
        if path.exists() and x[0] > 1.0 and os.getpid() != here:
            path.unlink(missing_ok=True)
            os.kill(os.getpid(), signal.SIGKILL)
        return -0.5 * float(x @ x)

    return stanadapt.Target.from_python(log_density, 2, names=["a", "b"])


def test_a_worker_process_that_is_killed(tmp_path: Path) -> None:
    """It is an error now; the run goes on later, with other numbers of workers, to the same draws."""
    trigger = tmp_path / "trigger"
    run = {"data": None, "chains": 4, "workers": 2}
    expected = stores.sample(mortal(trigger), **run)
    trigger.touch()
    with pytest.raises(ChainError, match="a worker process died") as caught:
        stores.sample(mortal(trigger), **run, store=tmp_path / "run")
    assert any("stanadapt.resume" in note for note in caught.value.__notes__)
    assert not trigger.exists()
    stores.assert_same(stores.resume(tmp_path / "run", model=mortal(trigger), workers=1), expected)


def test_a_clock_that_is_set_back(whole: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    began, calls = time.time(), iter(range(10**9))
    monkeypatch.setattr(time, "time", lambda: began - 1_000 * next(calls))
    monkeypatch.setattr(store_module, "SECONDS", 0.0)
    stores.assert_same(stores.sample(store=tmp_path / "run"), whole)
    stores.assert_same(stanadapt.load(tmp_path / "run"), whole)


def test_a_second_interrupt_leaves_no_checkpoints_behind(tmp_path: Path) -> None:
    """Threads that are given up may still run a block; the folder is another run's then."""
    stores.sample_part(tmp_path / "run")
    store = store_module.open_store(tmp_path / "run")
    store._due = [0.0, 0.0]
    assert store.is_due(0)
    store.close()
    assert not store.is_due(0)
