"""What a run says of its progress, and that saying it never ends a run."""

from __future__ import annotations

import io
import math
import subprocess
import sys
import types
from typing import Any

import numpy as np
import pytest

import stanadapt
from stanadapt.result.container import datasets
from stanadapt.run import progress
from stanadapt.run.job import Job
from stanadapt.run.progress import Progress, StepProgress
from stanadapt.run.workers.board import Board

CODE = "parameters { vector[2] x; } model { x ~ std_normal(); }"
JOB = Job("rwm", None, 100, 300, 1, 2, 0, False, False)

pytestmark = pytest.mark.filterwarnings("ignore::stanadapt.StanAdaptWarning")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Broken(Terminal):
    """Nobody reads it, after so many writes."""

    left = 0

    def write(self, text: str) -> int:
        if self.left == 0:
            raise BrokenPipeError("nobody reads")
        self.left -= 1
        return super().write(text)


def closed() -> io.StringIO:
    stream = io.StringIO()
    stream.close()
    return stream


def run(progress: bool = True) -> Any:
    return stanadapt.sample(CODE, method="rwm", chains=2, warmup=100, draws=300, seed=1, progress=progress)


def board(*rows: tuple[float, ...]) -> Board:
    filled = Board.for_chains(len(rows))
    for i, row in enumerate(rows):
        filled.post(i, *row)
    return filled


def test_silent_when_disabled(capfd: pytest.CaptureFixture[str]) -> None:
    run(progress=False)
    assert capfd.readouterr() == ("", "")


def test_lines_of_a_log_end_at_100_percent(capsys: pytest.CaptureFixture[str]) -> None:
    run()
    out, err = capsys.readouterr()
    assert out == ""
    assert "\r" not in err
    last = err.splitlines()[-1]
    assert last.startswith("rwm: 100%, 800/800 iterations, 0:00:00 spent, sampling, accept 0.")
    assert ", step " in last


def test_a_log_gets_a_line_for_every_tenth_only(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(JOB, True) as look:
        for done in range(1, 401):
            look(board((done, 1.0, 0.5, 2.0, 0.0), (done, 0.0, 0.3, 4.0, 0.0)))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 10
    assert lines[0].startswith("rwm:  10%, 80/800 iterations, ")
    assert lines[0].endswith(" left, 1/2 sampling, accept 0.40, step 3")


def test_nothing_is_said_of_acceptance_before_the_first_block() -> None:
    stream = Terminal()
    with pytest.MonkeyPatch.context() as patch, Progress(JOB, False) as look:
        patch.setattr(sys, "stderr", stream)
        look.enabled, look.logged_at = True, -1e9
        look(board((0, 0, 0, 0, 0), (0, 0, 0, 0, 0)))
    assert stream.getvalue() == "rwm:   0%, 0/800 iterations, nothing done yet, warm-up\n"


def test_one_bar_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    run()
    shown = stream.getvalue()
    assert shown.count("\n") == 1  # one bar, left in place at the end
    last = shown.split("\r")[-1]
    assert last.startswith("rwm 100%|")
    assert "| 800/800, " in last
    assert "sampling, accept 0." in last


def test_bar_says_that_it_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    stopped = board((50, 0.0, 0.5, 2.0, 0.0), (50, 0.0, 0.3, 4.0, 0.0))
    stopped.stop()
    with Progress(JOB, True) as look:
        look(stopped)
        look(stopped)
    assert stream.getvalue().count("Ctrl-C again") == 1


def test_lines_say_that_the_time_is_up(capsys: pytest.CaptureFixture[str]) -> None:
    stopped = board((50, 0.0, 0.5, 2.0, 0.0), (50, 0.0, 0.3, 4.0, 0.0))
    stopped.stop()
    goal = types.SimpleNamespace(limit="seconds", words="", rows_needed=math.inf)
    with Progress(JOB, True, goal) as look:
        look(stopped)
    error = capsys.readouterr().err
    assert "rwm: its time is up, and it stops when the present block ends" in error
    assert "Ctrl-C" not in error


@pytest.mark.parametrize("stream", [None, closed(), Broken()], ids=["none", "closed", "broken"])
def test_no_stderr_no_harm(stream: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = datasets(run(progress=False))["posterior"]
    monkeypatch.setattr(sys, "stderr", stream)
    found = datasets(run())["posterior"]
    np.testing.assert_array_equal(found["x"], expected["x"])


def test_stderr_that_breaks_during_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Broken()
    stream.left = 2
    monkeypatch.setattr(sys, "stderr", stream)
    with Progress(JOB, True) as look:
        monkeypatch.setattr(look.bar, "mininterval", 0.0)
        for done in range(50, 400, 50):
            look(board((done, 0.0, 0.5, 2.0, 0.0), (done, 0.0, 0.3, 4.0, 0.0)))
    assert stream.left == 0
    assert not look.enabled


def test_warnings_are_no_harm_without_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", closed())
    with pytest.MonkeyPatch.context() as patch:
        # What Python does with a warning that no filter drops; pytest collects them otherwise.
        patch.setattr("warnings.showwarning", lambda message, *_: print(message, file=sys.stderr))
        assert datasets(run())["posterior"].sizes["draw"] == 300


def notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Jupyter kernel, as far as one can tell from inside."""
    shell = types.SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))  # type: ignore[misc]


def test_text_bar_where_the_notebook_has_no_widgets(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def without_widgets(**_: Any) -> None:
        raise ImportError("IProgress not found")

    notebook(monkeypatch)
    monkeypatch.setattr("tqdm.auto.tqdm", without_widgets)
    run()
    assert "rwm 100%|" in capsys.readouterr().err


def test_notebook_bar_where_it_has_widgets(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    class Widget:
        n = 0

        def __init__(self, **shape: Any) -> None:
            made.append(shape)

        def update(self, n: int) -> None:
            Widget.n += n

        def set_postfix_str(self, text: str, refresh: bool) -> None: ...
        def close(self) -> None: ...

    notebook(monkeypatch)
    monkeypatch.setattr("tqdm.auto.tqdm", Widget)
    run()
    assert made[0]["total"] == Widget.n == 800


def test_tqdm_itself_without_widgets() -> None:
    """tqdm chooses its bar when it is imported, so this needs a process of its own."""
    script = """
import sys, types
class ZMQInteractiveShell:
    kernel = object()
sys.modules["IPython"] = types.SimpleNamespace(get_ipython=ZMQInteractiveShell)
sys.modules["ipykernel.zmqshell"] = types.ModuleType("ipykernel.zmqshell")
sys.modules["ipywidgets"] = None
from stanadapt.run.workers.board import Board
from stanadapt.run.job import Job
from stanadapt.run.progress import Progress, StepProgress
board = Board.for_chains(1)
with Progress(Job("rwm", None, 10, 20, 1, 1, 0, False, False), True) as look:
    board.post(0, 30, 1.0, 0.5, 2.0, 1.0)
    look(board)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "rwm 100%|" in done.stderr
    assert "IProgress" not in done.stderr


def steps(stream: Any, monkeypatch: pytest.MonkeyPatch, enabled: bool = True, total: int = 3) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    with StepProgress("compiling", total, enabled, " here") as bar:
        for name in ("one", "two", "three")[:total]:
            bar.begin(name)
            bar.refresh("7 gradients")


def test_steps_in_a_terminal_show_the_present_one_and_how_many_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = Terminal()
    steps(stream, monkeypatch)
    for text in ("0/3, 00:00, one", "1/3, 00:00, two", "2/3, 00:00, three", "100%"):
        assert text in stream.getvalue()


def test_steps_in_a_file_are_a_line_in_ten_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([0.0, 0.1, 5.0, 5.1, 12.0, 12.1])
    monkeypatch.setattr(progress.time, "perf_counter", lambda: next(now))
    stream = io.StringIO()
    steps(stream, monkeypatch)
    assert stream.getvalue().splitlines() == [
        "stanadapt: compiling here: 1/3, one",
        "stanadapt: compiling: 3/3, three",
    ]


def test_steps_without_an_opening_are_silent_at_first_and_tell_how_far_one_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    times = [0.0, 1.0, 1.1, 11.0, 11.0, 11.1]
    now = iter(times)
    monkeypatch.setattr(progress.time, "perf_counter", lambda: next(now))
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with StepProgress("optimize", 2, True) as bar:
        bar.begin("climb 1")
        for count in (1, 2, 3):
            bar.refresh(f"{count} gradients")
    assert stream.getvalue() == "stanadapt: optimize: 1/2, climb 1, 2 gradients\n"


def test_steps_that_nobody_wants_to_see(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    steps(stream, monkeypatch, enabled=False)
    steps(stream, monkeypatch, total=0)
    assert stream.getvalue() == ""
    for broken in (Broken(), closed(), None):
        steps(broken, monkeypatch)
