"""Ctrl-C, sent for real to a run in another process once it has said how far it is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import stanadapt
from cases import thorough
from stanadapt import samplers
from stanadapt.errors import ArgumentError
from stanadapt.result import files
from stanadapt.result.container import datasets
from stanadapt.run.background import is_under_way
from stanadapt.run.inits import Init
from stanadapt.run.job import Job
from stanadapt.run.preparation import compiling
from stanadapt.run.preparation.compiling import Step, compile_steps
from stanadapt.run.workers.board import Board
from stanadapt.run.workers.segments import Piece, Segment, run_segment

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(sys.platform == "win32", reason="SIGINT to a process group is a POSIX thing"),
]

CODE = "parameters { real x; real<lower=0> s; } model { x ~ std_normal(); s ~ exponential(1); }"
ENDLESS = 10**8  # iterations: minutes

# A line for every look at the board, so that a test knows when the run is where it wants it.
TALKATIVE = "from stanadapt.run import progress; progress._LOG_SHARE = 0.0\n"
RUN = (
    TALKATIVE
    + """
import sys
import stanadapt
from stanadapt.result import files

program, out, mode, warmup, draws = sys.argv[1:]
if mode == "python":
    posterior = stanadapt.Target.from_python(
        lambda x: -0.5 * float(x @ x), 2, lambda x: -x, names=["x", "s"]
    )
else:
    posterior = stanadapt.Posterior(program)
    posterior.model.thread_safe = mode == "threads"
idata = stanadapt.sample(
    posterior, seed=1, warmup=int(warmup), draws=int(draws), thin=100, chains=3, save_warmup=True
)
files.write(idata, out)
print("goes on")
"""
)
STUCK = (
    TALKATIVE
    + """
import os, sys, threading
import stanadapt

chains = int(sys.argv[1])
evaluations = 0

def log_density(x):
    global evaluations
    evaluations += 1
    if evaluations == 200:
        print("stuck", file=sys.stderr, flush=True)
        threading.Event().wait()
    return -0.5 * float(x @ x)

try:
    target = stanadapt.Target.from_python(log_density, 1)
    stanadapt.sample(target, method="rwm", chains=chains, workers=2, seed=1)
except KeyboardInterrupt:
    print("given up", flush=True)
    os._exit(3)
"""
)


class Child:
    """A Python script that gets Ctrl-C as a terminal sends it: all processes of its session."""

    def __init__(self, script: str, *arguments: object) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", script, *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.said: list[str] = []

    def wait_for(self, text: str) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line)
            if text in line:
                return
        pytest.fail(f"it never said {text!r}:\n{''.join(self.said)}")

    def interrupt(self) -> None:
        os.killpg(self.process.pid, signal.SIGINT)

    def end(self) -> tuple[int, str, str]:
        """Exit status, stdout and stderr."""
        try:
            stdout, stderr = self.process.communicate(timeout=60)
        finally:
            if self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGKILL)
        return self.process.returncode, stdout, "".join(self.said) + stderr


# Processes that have Python's functions have signals of their own in test_signals.py.
@pytest.mark.parametrize("mode", ["threads", "processes", thorough("python")])
def test_draws_so_far_are_returned(mode: str, tmp_path: Path) -> None:
    child = Child(RUN, CODE, tmp_path / "fit.nc", mode, 2_000, ENDLESS)
    child.wait_for(" sampling, accept")
    child.interrupt()
    status, stdout, stderr = child.end()
    assert (status, stdout) == (0, "goes on\n"), stderr
    idata = files.read(tmp_path / "fit.nc")
    groups = datasets(idata)
    chains, n = groups["posterior"].sizes["chain"], groups["posterior"].sizes["draw"]
    assert 1 <= chains <= 3
    assert 0 < n < ENDLESS // 100
    assert groups["sample_stats"].sizes["draw"] == n
    assert groups["warmup_posterior"].sizes["draw"] == 20
    for group in ("posterior", "sample_stats", "warmup_posterior", "warmup_sample_stats"):
        for name, values in groups[group].items():
            assert np.all(np.isfinite(values)), (group, name)
    assert groups["posterior"].attrs["interrupted"] == 1
    note = f"interrupted: {chains} of 3 chains, {n} of {ENDLESS // 100} draws each"
    told = groups["posterior"].attrs["interrupted_note"].partition("; still in warm-up: ")
    assert told[0] == note
    assert len(told[2].split(", ")) * bool(told[1]) == 3 - chains
    assert groups["posterior"].attrs["ended_by"] == "SIGINT"
    assert note in stderr
    assert len(stanadapt.summary(idata)) == 2
    assert stanadapt.diagnose(idata)[0].kind == "interrupted"


@pytest.mark.parametrize("mode", ["threads", thorough("processes")])
def test_in_warm_up_there_are_no_draws(mode: str, tmp_path: Path) -> None:
    child = Child(RUN, CODE, tmp_path / "fit.nc", mode, ENDLESS, 100)
    child.wait_for("warm-up, accept")
    child.interrupt()
    status, _, stderr = child.end()
    assert status == 0, stderr
    idata = files.read(tmp_path / "fit.nc")
    groups = datasets(idata)
    assert groups["posterior"].sizes["draw"] == 0
    assert set(groups["posterior"].data_vars) == {"x", "s"}
    assert np.all(np.isfinite(groups["adaptation"]["preconditioner"]))
    assert groups["posterior"].attrs["interrupted"] == 1
    with pytest.raises(ArgumentError, match=r"no draws.*interrupted: \d of 3 chains, 0 of 1 draws"):
        stanadapt.summary(idata)
    assert [finding.kind for finding in stanadapt.diagnose(idata)] == ["interrupted", "short"]


def test_worker_processes_that_still_import_survive(tmp_path: Path) -> None:
    child = Child(RUN, CODE, tmp_path / "fit.nc", "processes", ENDLESS, 100)
    child.wait_for("nothing done yet")
    child.interrupt()
    status, _, stderr = child.end()
    assert status == 0, stderr
    posterior = datasets(files.read(tmp_path / "fit.nc"))["posterior"]
    assert (posterior.sizes["chain"], posterior.sizes["draw"]) == (3, 0)


def test_worker_processes_send_only_the_rows_they_wrote() -> None:
    posterior = stanadapt.Posterior(CODE)
    sampler = samplers.sampler("rwm")
    job = Job("rwm", samplers.resolve(sampler, None), 100, 10**6, 1, 1, 1, True, True)
    board = Board.for_chains(1)
    board.stop()
    piece = run_segment(lambda: posterior, job, Segment(0, Init(2.0), None, 10**6, 1.0), board)
    assert isinstance(piece, Piece)
    assert piece.warmup is not None
    for draws in (piece.draws, piece.warmup):
        assert draws.x is not None
        assert (len(draws.values), len(draws.x), len(draws.stats["lp"])) == (0, 0, 0)


@pytest.mark.parametrize("chains", [1, thorough(2)])  # in a thread, in processes
def test_second_interrupt_is_raised_though_a_chain_hangs(chains: int) -> None:
    child = Child(STUCK, chains)
    child.wait_for("stuck")
    child.interrupt()
    child.wait_for("Ctrl-C again")
    child.interrupt()
    status, stdout, stderr = child.end()
    assert (status, stdout) == (3, "given up\n"), stderr


def test_command_writes_the_file_and_exits_with_130(tmp_path: Path) -> None:
    (tmp_path / "model.stan").write_text(CODE)
    child = Child(
        TALKATIVE + "from stanadapt.cli import main; main()",
        *("sample", tmp_path / "model.stan", "--seed", 1, "--warmup", 2_000, "--draws", ENDLESS),
        *("--thin", 100, "--out", tmp_path / "fit.nc"),
    )
    child.wait_for(" sampling, accept")
    child.interrupt()
    status, stdout, stderr = child.end()
    assert status == 130, stderr
    assert "Traceback" not in stderr
    assert "The run was interrupted" in stdout
    posterior = datasets(files.read(tmp_path / "fit.nc"))["posterior"]
    assert posterior.sizes["draw"] > 0
    assert posterior.attrs["interrupted"] == 1


def test_ctrl_c_does_not_wait_for_a_kernel_and_leaves_it_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step of compiling goes on in the background, and the next run waits for it."""
    went_on, order = threading.Event(), []

    def first() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        assert went_on.wait(60)
        order.append("first")

    monkeypatch.setattr(compiling, "_is_marked", lambda _: False)
    monkeypatch.setattr(compiling, "_mark", lambda _: None)
    steps = [Step("first", "", first), Step("left out", "", lambda: order.append("left out"))]
    with pytest.raises(KeyboardInterrupt):
        compile_steps(steps, progress=False)
    assert is_under_way()
    assert order == []
    released = threading.Thread(target=went_on.set)
    released.start()
    compile_steps([Step("second", "", lambda: order.append("second"))], progress=False)
    assert order == ["first", "second"]
    assert not is_under_way()


def test_an_error_while_compiling_is_raised() -> None:
    def fail() -> None:
        raise ZeroDivisionError("in the compiler")

    with pytest.raises(ZeroDivisionError, match="in the compiler"):
        compile_steps([Step("wrong", "", fail)], progress=False)
    assert not compiling._is_marked(Step("wrong", "", fail))


@pytest.mark.filterwarnings("ignore::stanadapt.StanAdaptWarning")
def test_a_run_leaves_the_handler_of_interrupts_alone() -> None:
    before = signal.getsignal(signal.SIGINT)
    stanadapt.sample(CODE, seed=1, warmup=200, draws=200, chains=1, progress=False)
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.filterwarnings("ignore::stanadapt.StanAdaptWarning")
def test_runs_outside_the_main_thread() -> None:
    found = []

    def run() -> None:
        found.append(stanadapt.sample(CODE, seed=1, warmup=200, draws=200, chains=1, progress=False))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert datasets(found[0])["posterior"].sizes["draw"] == 200
