"""Chains that learn in processes: draws are the same, whatever becomes of the processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import loky
import numpy as np
import pytest
from loky.process_executor import TerminatedWorkerError

import stanadapt
from programs import WALK
from stanadapt import check
from stanadapt.errors import InitializationError
from stanadapt.result.container import attributes, datasets
from stanadapt.run import chain
from stanadapt.run.workers import migration, process_pool, processes
from stanadapt.run.workers.board import Board
from stanadapt.run.workers.process_pool import ProcessPool, death, has_kept, keep_pool, take_pool
from stanadapt.run.workers.processes import ProcessTeam

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(sys.platform == "win32", reason="signals to processes are a POSIX thing"),
]

Y = np.random.default_rng(3).normal(size=30)
WALK_DATA = {"T": len(Y), "y": Y}
PHASE = "PYTEST_CURRENT_TEST"  # pytest changes this between a fixture and its test
HOPELESS = "parameters { real x; } model { if (x < 100) reject(x); }"


def draw(program: str = WALK, data: Any = WALK_DATA, **keywords: Any) -> Any:
    run = {"method": "fisher_hmc", "chains": 3, "draws": 40, "seed": 4, "progress": False, "workers": 2}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return stanadapt.sample(program, data, **(run | keywords))


def assert_same(one: Any, other: Any) -> None:
    ones, others = datasets(one), datasets(other)
    assert set(ones) == set(others)
    for group in ones:
        for name in ones[group]:
            if "seconds" not in name:
                np.testing.assert_array_equal(ones[group][name], others[group][name], err_msg=name)


@pytest.fixture(scope="module")
def alone() -> Any:
    """One chain after the other, in this process."""
    return draw(workers=1, save_warmup=True)


@pytest.fixture
def goals(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What processes were asked for."""
    asked: list[int] = []

    def advance(team: ProcessTeam, goal: int) -> None:
        asked.append(goal)
        was(team, goal)

    was = ProcessTeam.advance
    monkeypatch.setattr(ProcessTeam, "advance", advance)
    return asked


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[ProcessPool]:
    """Two processes that an earlier run has left."""

    def surroundings() -> Any:
        process, folder, variables = was()
        return process, folder, {name: variables[name] for name in set(variables) - {PHASE}}

    was = process_pool._surroundings
    monkeypatch.setattr(process_pool, "_surroundings", surroundings)
    kept = take_pool(2)
    kept.submit(os.getpid).result()
    keep_pool(kept)
    yield kept
    keep_pool(None)


def test_a_run_begins_with_the_processes_of_an_earlier_one(
    pool: ProcessPool, alone: Any, goals: list[int]
) -> None:
    assert_same(draw(save_warmup=True), alone)
    assert goals == [0]  # until warm-up is over
    assert has_kept(2)
    assert not list(pool.folder.iterdir())
    assert draw(HOPELESS.replace("100", "-100"), {})["posterior"]["x"].shape == (3, 40)
    assert goals == [0, 0]
    assert take_pool(2) is pool
    keep_pool(pool)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """All chains wait for the lock of learning until a process is ready, whatever the clock says."""

    def start(team: Any) -> None:
        was(team)
        team.opened[0].result()
        chain._learning.release()

    was = migration._MigratingTeam._start
    monkeypatch.setattr(migration._MigratingTeam, "_start", start)
    monkeypatch.setattr(chain, "_SHORT_SECONDS", np.inf)
    assert chain._learning.acquire(timeout=60)


@pytest.mark.usefixtures("waits")
def test_chains_go_over_to_processes_where_they_have_learned_for_long(
    alone: Any, goals: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migration, "PATIENCE_SECONDS", -1.0)
    assert not has_kept(2)
    assert_same(draw(save_warmup=True), alone)
    assert goals == [0]
    assert has_kept(2)
    keep_pool(None)


@pytest.mark.usefixtures("waits")
def test_what_earlier_runs_have_learned_counts(
    alone: Any, goals: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migration, "PATIENCE_SECONDS", 5.0)
    monkeypatch.setattr(migration._learned, "seconds", 6.0)
    assert_same(draw(save_warmup=True), alone)
    assert goals == [0]
    assert migration._learned.seconds == 0.0
    keep_pool(None)


def test_runs_that_learn_for_a_moment_stay_in_threads(
    alone: Any, goals: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migration._learned, "seconds", 0.0)
    assert_same(draw(save_warmup=True), alone)
    assert not goals
    assert not has_kept(2)
    assert migration._learned.seconds > 0.0


def test_where_there_is_no_memory_for_processes_chains_stay_in_threads(
    pool: ProcessPool, alone: Any, goals: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "free_memory", lambda: 9e8)
    assert_same(draw(save_warmup=True), alone)
    assert not goals


@pytest.mark.parametrize("what", ["files", "processes"])
def test_where_no_process_can_start_chains_stay_in_threads(
    what: str, pool: ProcessPool, alone: Any, goals: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError(f"no more {what}")

    if what == "files":
        monkeypatch.setattr(processes.tempfile, "mkdtemp", refuse)
    else:
        monkeypatch.setattr(ProcessTeam, "open_model", refuse)
    assert_same(draw(save_warmup=True), alone)
    assert not goals
    assert not has_kept(2)
    assert not pool.folder.exists()


def test_without_semaphores_there_are_no_processes_and_no_folder(
    alone: Any, goals: list[int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise ImportError("this platform lacks a functioning sem_open implementation")

    monkeypatch.setattr(loky, "ProcessPoolExecutor", refuse)
    monkeypatch.setattr(migration, "has_kept", lambda workers: True)  # so that the run asks for them
    monkeypatch.setattr(process_pool.tempfile, "tempdir", str(tmp_path))
    assert_same(draw(save_warmup=True), alone)
    assert not goals
    assert not list(tmp_path.iterdir())


def test_kept_processes_that_have_died_are_replaced(pool: ProcessPool, alone: Any, goals: list[int]) -> None:
    process = pool.submit(os.getpid).result()
    running = [pool.submit(time.sleep, 60) for _ in range(2)]
    os.kill(process, signal.SIGKILL)
    for future in running:
        with pytest.raises(TerminatedWorkerError):
            future.result()
    assert_same(draw(save_warmup=True), alone)
    assert goals == [0]
    assert has_kept(2)
    assert not pool.folder.exists()


def test_threads_go_on_where_a_process_dies(
    pool: ProcessPool, alone: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    died = []

    def advance(team: ProcessTeam, goal: int) -> None:
        os.kill(pool.submit(os.getpid).result(), signal.SIGKILL)
        with pytest.raises(Exception) as caught:
            pool.submit(time.sleep, 60).result()
        died.append(death(caught.value))
        was(team, goal)

    was = ProcessTeam.advance
    monkeypatch.setattr(ProcessTeam, "advance", advance)
    assert_same(draw(save_warmup=True), alone)
    assert len(died) == 1
    assert died[0].startswith("a worker process died (SIGKILL")


def test_processes_are_kept_for_runs_that_would_start_the_same(
    pool: ProcessPool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert has_kept(2)
    assert not has_kept(3)
    with monkeypatch.context() as patched:
        patched.setenv("OF_THE_USER", "1")
        assert not has_kept(2)
    with monkeypatch.context() as patched:
        patched.chdir(tmp_path)
        assert not has_kept(2)
    assert has_kept(2)
    pool.idle_since -= 60.0
    assert not has_kept(2)
    other = take_pool(3)
    assert not pool.folder.exists()
    other.close()


def test_after_a_stop_the_processes_are_there_for_the_next_run(
    pool: ProcessPool, alone: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def advance(team: ProcessTeam, goal: int) -> None:
        team.work.board.stop()
        was(team, goal)

    was = ProcessTeam.advance
    with monkeypatch.context() as patched:
        patched.setattr(ProcessTeam, "advance", advance)
        stopped = draw()
    assert attributes(stopped)["interrupted"] == 1
    assert stopped["posterior"].sizes["draw"] == 0
    assert_same(draw(save_warmup=True), alone)
    assert take_pool(2) is pool
    keep_pool(pool)


def test_an_error_in_a_process_arrives_as_it_is(pool: ProcessPool, goals: list[int]) -> None:
    with pytest.raises(InitializationError):
        draw(HOPELESS, {})
    assert goals == [0]
    assert not has_kept(2)
    assert not pool.folder.exists()


def test_a_process_opens_the_model_once_for_all_chains(tmp_path: Path) -> None:
    posterior, seeds = stanadapt.Posterior(WALK, WALK_DATA), np.random.SeedSequence(1)
    (tmp_path / processes._MODEL).write_bytes(processes.pack(posterior))
    theirs = processes._open_model(tmp_path).model
    processes._open_model.cache_clear()
    assert theirs.for_chain(1, seeds) is theirs
    assert posterior.model.for_chain(1, seeds) is not posterior.model  # which threads evaluate together


SCRIPT = """
import os, sys
import stanadapt
from stanadapt.run.workers.process_pool import has_kept, keep_pool, take_pool

pool = take_pool(2)
print(*{pool.submit(os.getpid).result() for _ in range(20)}, flush=True)
keep_pool(pool)
stanadapt.sample("parameters { real x; } model { x ~ normal(0, 1); }", method="fisher_hmc", chains=2,
                 workers=2, draws=20, seed=1, progress=False)
assert has_kept(2)
print("done", flush=True)
if sys.argv[1] == "waits":
    sys.stdin.read()
"""


@pytest.mark.parametrize("ending", ["returns", "waits"])
def test_processes_end_with_their_parent(ending: str, tmp_path: Path) -> None:
    """With a script that ends, and with one that is killed."""
    script = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, ending],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )
    assert script.stdout is not None
    running = [int(each) for each in script.stdout.readline().split()]
    assert script.stdout.readline() == "done\n"
    if ending == "waits":
        script.kill()
    assert script.wait(60) == (0 if ending == "returns" else -signal.SIGKILL)
    while any(is_running(process) for process in running) or list(tmp_path.glob("stanadapt-*")):
        time.sleep(0.05)  # the test's limit of time ends this
    script.stdout.close()


def is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{process}/stat")
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"


FORK = """
import multiprocessing
from stanadapt.run.workers.process_pool import keep_pool, take_pool

pool = take_pool(2)
pool.submit(abs, -3).result()
keep_pool(pool)
fork = multiprocessing.get_context("fork").Process(target=keep_pool, args=(None,))
fork.start()
fork.join()
assert fork.exitcode == 0
assert take_pool(2) is pool
assert pool.submit(abs, -3).result() == 3
"""


def test_a_fork_does_not_end_the_processes_of_its_parent(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", FORK], check=True, env=os.environ | {"TMPDIR": str(tmp_path)})
    assert not list(tmp_path.glob("stanadapt-*"))


def test_a_stop_while_the_board_moves_is_not_lost() -> None:
    class Rows(np.ndarray):
        """A signal arrives when they have been filled."""

        def __setitem__(self, *given: Any) -> None:
            is_first = not self.any()
            super().__setitem__(*given)
            if is_first:
                board.stop()

    board = Board.for_chains(2)
    board.move(np.zeros(Board.shape(2)).view(Rows))
    assert board.is_stopped
