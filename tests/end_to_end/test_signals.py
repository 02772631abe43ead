"""What ends a run from outside: SIGTERM, SIGHUP, kill -9, and Ctrl-C when the draws are there."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import select
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_interrupt import CODE, ENDLESS, TALKATIVE, Child

import stanadapt
from cases import partly_thorough
from stanadapt import runs
from stanadapt.errors import FindingsWarning, OutputError
from stanadapt.result import build, files
from stanadapt.result.container import datasets
from stanadapt.run.interrupts import SIGNALS, delayed_interrupts, interrupts, raised_interrupts
from stanadapt.run.workers.board import Board

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(sys.platform == "win32", reason="signals to processes are a POSIX thing"),
]

RUN = (
    TALKATIVE
    + """
import os, signal, sys
for number in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)
import stanadapt

program, store, mode, draws = sys.argv[1:]
if mode == "python":
    program = stanadapt.Target.from_python(lambda x: -0.5 * float(x @ x), 2, lambda x: -x, names=["x", "s"])
method = "nuts" if mode == "nuts" else "fisher_mala"
run = {"seed": 1, "warmup": 500, "draws": int(draws), "chains": 2, "workers": 2}
stanadapt.sample(program, method=method, store=store, **run)
print("goes on")
"""
)
ENDING = [signal.SIGTERM, signal.SIGHUP]
SHORT: dict[str, Any] = {
    "method": "rwm",
    "seed": 1,
    "warmup": 50,
    "draws": 50,
    "chains": 2,
    "progress": False,
}


@pytest.fixture(autouse=True)
def _signals_are_not_ignored() -> Iterator[None]:
    """As in a terminal, also where tests run in the background, which ignores them, as do its children."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in ENDING:
        signal.signal(number, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where children put their temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def members(group: int) -> dict[int, str]:
    """The processes of a group that are alive, with their command lines, the trackers of resources left out.

    A process that is ending has given up its memory, and so its command line, before it closes its files.
    """
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            state, _, leader = (folder / "stat").read_text().rpartition(")")[2].split()[:3]
            command = (folder / "cmdline").read_text().replace("\0", " ")
            if command and int(leader) == group and state != "Z" and "resource_tracker" not in command:
                found[int(folder.name)] = command
    return found


def test_a_script_ends_with_its_processes(tmp_path: Path, temporary: Path) -> None:
    child = Child(RUN, CODE, tmp_path / "store", "python", ENDLESS // 100)
    child.wait_for(" sampling, accept")
    os.killpg(child.process.pid, signal.SIGTERM)
    status, stdout, stderr = child.end()
    assert (status, stdout) == (-signal.SIGTERM, ""), stderr
    assert f"the draws so far are in {tmp_path / 'store'}" in stderr
    posterior = datasets(stanadapt.load(tmp_path / "store"))["posterior"]
    assert posterior.sizes["draw"] > 0
    assert posterior.attrs["interrupted"] == 1
    assert list(temporary.iterdir()) == []
    assert members(child.process.pid) == {}


def test_nuts_ends_with_its_workers(tmp_path: Path, temporary: Path) -> None:
    child = Child(RUN, CODE, tmp_path / "store", "nuts", ENDLESS // 100)
    child.wait_for(" left, 0/2 chains")
    assert sum("stanli_worker" in line for line in members(child.process.pid).values()) == 2
    os.killpg(child.process.pid, signal.SIGHUP)
    status, stdout, stderr = child.end()
    assert (status, stdout) == (-signal.SIGHUP, ""), stderr
    assert list(temporary.iterdir()) == []
    assert members(child.process.pid) == {}


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked for in /proc")
@pytest.mark.parametrize("mode", ["nuts", "python"])
def test_workers_notice_that_their_parent_is_killed(mode: str, tmp_path: Path, temporary: Path) -> None:
    child = Child(RUN, CODE, tmp_path / "store", mode, ENDLESS // 100)
    child.wait_for(" left, 0/2 chains" if mode == "nuts" else " sampling, accept")
    alive = members(child.process.pid)
    assert len(alive) == 3
    ends = [os.pidfd_open(number) for number in alive if number != child.process.pid]
    child.process.kill()
    child.end()
    for end in ends:  # workers look for their parent now and then; without that they would go on for minutes
        select.select([end], [], [])
        os.close(end)
    assert members(child.process.pid) == {}
    assert list(temporary.glob("stanadapt-*")) == []


ORPHAN = """
import os, subprocess, sys, time
from pathlib import Path
from stanadapt.child_processes import end_with_parent

folder, moment = Path(sys.argv[1]), sys.argv[2]
if len(sys.argv) == 3:
    child = subprocess.Popen([sys.executable, "-c", sys.argv[0], *sys.argv[1:], str(os.getpid())])
    while not (folder / "ready").exists() and child.poll() is None:
        time.sleep(0.001)
    os._exit(0)
parent = int(sys.argv[3])
if moment == "later":
    end_with_parent(parent, folder)
(folder / "ready").touch()
while os.getppid() == parent:
    pass
if moment == "before":
    end_with_parent(parent, folder)
(folder / "more").touch()
raise RuntimeError("the worker fails where its files are gone")
"""


@pytest.mark.parametrize("moment", ["before", "later"])
def test_a_worker_that_fails_as_its_parent_ends_leaves_no_files(moment: str, tmp_path: Path) -> None:
    """The process may end by itself while its files are removed: they are removed all the same."""
    for number in range(10):
        folder = tmp_path / f"folder-{number}"
        folder.mkdir()
        for name in range(20):
            (folder / f"file-{name}").touch()
        # Its output ends when the worker has ended, which has the same pipe.
        subprocess.run(
            [
                sys.executable,
                "-c",
                f"import sys; sys.argv[0] = {ORPHAN!r}; exec(sys.argv[0])",
                folder,
                moment,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert list(tmp_path.iterdir()) == []


# Ctrl-C is in test_interrupt.py.
@pytest.mark.parametrize("number", partly_thorough(SIGNALS, (signal.SIGTERM,)))
def test_command_writes_the_file_and_says_which_signal(number: int, tmp_path: Path) -> None:
    (tmp_path / "model.stan").write_text(CODE)
    child = Child(
        TALKATIVE + "from stanadapt.cli import main; main()",
        *("sample", tmp_path / "model.stan", "--seed", 1, "--warmup", 500, "--draws", ENDLESS // 100),
        *("--out", tmp_path / "fit.nc"),
    )
    child.wait_for(" sampling, accept")
    os.killpg(child.process.pid, number)
    status, stdout, stderr = child.end()
    assert status == 128 + number, stderr
    assert "Traceback" not in stderr
    assert f"Written to {tmp_path / 'fit.nc'}" in stdout
    assert datasets(files.read(tmp_path / "fit.nc"))["posterior"].sizes["draw"] > 0


def test_command_that_is_terminated_before_it_draws(tmp_path: Path) -> None:
    (tmp_path / "model.stan").write_text(CODE)
    script = """
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_DFL)
from stanadapt import api, cli
api.prepare = lambda *_, **__: os.kill(os.getpid(), signal.SIGTERM)
cli.main()
"""
    arguments = ["sample", str(tmp_path / "model.stan"), "--out", str(tmp_path / "fit.nc")]
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True)
    assert done.returncode == 128 + signal.SIGTERM
    assert done.stderr == "Interrupted: nothing was written.\n"


def test_ctrl_c_while_the_result_is_built(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = build.run_groups

    def interrupted(*arguments: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        return whole(*arguments)

    monkeypatch.setattr(build, "run_groups", interrupted)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        idata = stanadapt.sample(CODE, **SHORT)
    assert datasets(idata)["posterior"].sizes["draw"] == 50
    assert capsys.readouterr().err.count("was not diagnosed (a signal came)") == 1


def test_ctrl_c_while_the_result_is_diagnosed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        signal.raise_signal(signal.SIGINT)
        pytest.fail("it goes on")

    monkeypatch.setattr(runs, "diagnose", interrupted)
    idata = stanadapt.sample(CODE, **SHORT)
    assert datasets(idata)["posterior"].sizes["draw"] == 50
    assert capsys.readouterr().err.count("was not diagnosed (a signal came)") == 1


def test_an_error_while_the_result_is_diagnosed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("of\nsomething")

    monkeypatch.setattr(runs, "diagnose", fail)
    idata = stanadapt.sample(CODE, **SHORT)
    assert datasets(idata)["posterior"].sizes["draw"] == 50
    assert "not diagnosed (ZeroDivisionError: of something)" in capsys.readouterr().err


def test_findings_as_errors_lose_no_draws(capsys: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        idata = stanadapt.sample(CODE, **SHORT)
    assert datasets(idata)["posterior"].sizes["draw"] == 50
    assert "R-hat" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore::stanadapt.errors.FindingsWarning")
@pytest.mark.parametrize("error", [MemoryError(), ValueError("odd\x1b[2Jname")])
def test_draws_are_rescued_where_no_result_can_be_built(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    whole = stanadapt.sample(CODE, keep_unconstrained=True, **SHORT)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(build, "run_groups", fail)
    with pytest.raises(OutputError, match="cannot be built") as raised:
        stanadapt.sample(CODE, keep_unconstrained=True, **SHORT)
    (path,) = tmp_path.rglob("*.npz")
    assert str(path) in str(raised.value)
    rescued = files.read(path)
    for group in ("posterior", "sample_stats"):
        for name, values in datasets(whole)[group].items():
            np.testing.assert_array_equal(datasets(rescued)[group][name], values)
    assert stanadapt.summary(rescued).equals(stanadapt.summary(whole))
    with np.load(path, allow_pickle=False) as entries:
        np.testing.assert_array_equal(entries["posterior/x"], datasets(whole)["posterior"]["x"])


@pytest.mark.parametrize("number", SIGNALS)
def test_handlers_are_given_back(number: int) -> None:
    before = [signal.getsignal(each) for each in SIGNALS]
    for handling in (delayed_interrupts, raised_interrupts):
        with handling():
            assert signal.getsignal(number) not in before
        assert [signal.getsignal(each) for each in SIGNALS] == before


def test_what_is_ignored_and_what_the_user_handles_stays() -> None:
    heard: list[int] = []
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, _: heard.append(number))
    with raised_interrupts() as caught:
        signal.raise_signal(signal.SIGHUP)
        signal.raise_signal(signal.SIGTERM)
    assert heard == [signal.SIGTERM]
    assert caught.signal == 0


def test_an_inner_handler_tells_those_around_it() -> None:
    board = Board.for_chains(1)
    with raised_interrupts(ending=False) as outer, delayed_interrupts() as middle:
        with interrupts(board) as inner:
            signal.raise_signal(signal.SIGTERM)
            assert board.is_stopped
            with pytest.raises(SystemExit) as raised:
                signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
    assert raised.value.code == 128 + signal.SIGTERM
    assert {outer.signal, middle.signal, inner.signal} == {signal.SIGTERM}


def test_a_signal_that_an_outer_handler_has_noted_stops_a_run() -> None:
    """Ctrl-C may come when a run is prepared and its chains do not listen yet."""
    with delayed_interrupts() as outer:
        before, after = Board.for_chains(1), Board.for_chains(1)
        with interrupts(before):
            assert not before.is_stopped
        signal.raise_signal(signal.SIGINT)
        with interrupts(after) as inner:
            assert after.is_stopped
        assert (outer.signal, inner.signal) == (signal.SIGINT, 0)
        deeper = Board.for_chains(1)
        with delayed_interrupts(), interrupts(deeper):  # what many fits note, and a fit of theirs does not
            assert deeper.is_stopped


def log_density(x: np.ndarray) -> float:
    return -0.5 * float(x @ x)


def _sample_in_pool(workers: int) -> np.ndarray:
    target = stanadapt.Target.from_python(log_density, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FindingsWarning)
        idata = stanadapt.sample(target, workers=workers, **SHORT)
    return np.asarray(datasets(idata)["posterior"]["x"].values)


def test_a_python_target_in_a_pool() -> None:
    """Whose processes may have none of their own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        together, apart = pool.map(_sample_in_pool, [2, 1])
    np.testing.assert_array_equal(together, apart)
