"""The second process of a first run, which compiles from the other end of the list."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from stanadapt import check
from stanadapt.run.preparation import compiling, second_compiler


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The processes that would be started, on a machine with two cores."""
    found: list[Any] = []

    class Process:
        def __init__(self, command: list[str], **_: Any) -> None:
            self.command, self.ended = command, []
            found.append(self)

        def kill(self) -> None:
            self.ended.append("killed")

        def wait(self) -> None:
            self.ended.append("waited for")

    monkeypatch.setattr(subprocess, "Popen", Process)
    monkeypatch.setattr(check, "available_cores", lambda: 2)
    return found


def test_it_ends_with_the_work(started: list[Any]) -> None:
    """Also where the work fails."""

    def work() -> None:
        with second_compiler.second_compiler(["rwm"]):
            assert started[0].command[:2] == [sys.executable, "-c"]
            assert started[0].ended == []
            raise KeyError

    with pytest.raises(KeyError):
        work()
    assert started[0].ended == ["killed", "waited for"]


def test_where_it_is_not_started(started: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without work for it, in a program that is not Python, and on one core."""
    with second_compiler.second_compiler([]):
        pass
    with monkeypatch.context() as patch:
        patch.setattr(sys, "frozen", True, raising=False)
        with second_compiler.second_compiler(["rwm"]):
            pass
    monkeypatch.setattr(check, "available_cores", lambda: 1)
    with second_compiler.second_compiler(["rwm"]):
        pass
    assert started == []


def test_a_system_that_starts_no_process_ends_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr(subprocess, "Popen", fail)
    monkeypatch.setattr(check, "available_cores", lambda: 2)
    with second_compiler.second_compiler(["rwm"]):
        pass


def test_it_compiles_what_its_methods_need() -> None:
    code = second_compiler._CODE.format(parent=os.getpid(), methods=["rwm"])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    assert all(compiling._is_marked(step) for step in compiling.ahead_steps(["rwm"], wholly=False))
