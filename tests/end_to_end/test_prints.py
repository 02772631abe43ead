"""What programs print goes to the log, with the chain that printed it, once."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import stanadapt
from stanadapt.result.container import datasets

pytestmark = pytest.mark.filterwarnings("ignore::stanadapt.StanAdaptWarning")  # few draws

PROGRAM = """
transformed data { print("opened"); }
parameters { real x; }
model { x ~ std_normal(); print(x); }
generated quantities { print("drawn ", x); real z = x; }
"""
RUN: dict[str, Any] = {"chains": 2, "warmup": 3, "draws": 4, "seed": 1, "progress": False}


@pytest.mark.parametrize("method", ["rwm", "mala", "nuts"])
@pytest.mark.parametrize("workers", [1, 2])
def test_lines_come_once_with_their_chain(
    method: str, workers: int, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    idata = stanadapt.sample(PROGRAM, method=method, workers=workers, **RUN)
    said = Counter(caplog.messages)
    assert said["opened"] == 1
    for chain in range(2):  # once for each draw
        draws = datasets(idata)["posterior"]["x"].values[chain]
        assert said[f"chain {chain}: drawn {draws[-1]:.6g}"] >= 1
        drawn = sum(count for line, count in said.items() if line.startswith(f"chain {chain}: drawn"))
        assert drawn == 4
    others = [line for line in caplog.messages if "drawn" not in line and line != "opened"]
    assert {line[:9] for line in others} == {"chain 0: ", "chain 1: "}
    assert all(re.fullmatch(r"chain \d: -?[\d.e-]+", line) for line in others)
    if method == "rwm":  # one evaluation an iteration, beside those of the start
        assert sum(line.startswith("chain 0: ") for line in others) in range(8, 20)
    assert {(record.name, record.levelno) for record in caplog.records} == {("stanadapt", logging.INFO)}
    assert capfd.readouterr() == ("", "")


def test_lines_of_processes_are_in_the_log_too(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    posterior = stanadapt.Posterior(PROGRAM)
    alone = stanadapt.sample(posterior, method="rwm", workers=1, **RUN)
    expected = Counter(caplog.messages)
    caplog.clear()
    posterior.model.thread_safe = False
    idata = stanadapt.sample(posterior, method="rwm", workers=2, **RUN)
    assert Counter(caplog.messages) + Counter({"opened": 1}) == expected
    assert caplog.messages[0].startswith("chain ")
    assert datasets(idata)["posterior"]["x"].equals(datasets(alone)["posterior"]["x"])
    assert capfd.readouterr() == ("", "")


def test_lines_before_a_failure_in_a_process_are_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    posterior = stanadapt.Posterior('parameters { real x; } model { print("here"); reject("no"); }')
    posterior.model.thread_safe = False
    with pytest.raises(stanadapt.InitializationError, match="no finite log density"):
        stanadapt.sample(posterior, inits=[[1.0], [1.0]], method="rwm", workers=2, **RUN)
    assert set(caplog.messages) <= {"chain 0: here", "chain 1: here"}
    assert caplog.messages


def test_a_failure_is_not_evaluated_aloud(caplog: pytest.LogCaptureFixture) -> None:
    program = 'parameters { real x; } model { print("here"); if (x > 0) reject("no"); }'
    with pytest.raises(stanadapt.InitializationError, match="no finite log density"):
        stanadapt.sample(program, inits=[[1.0], [1.0]], method="rwm", **RUN)
    assert Counter(caplog.messages).total() <= 2  # once for each chain that has come to it


def run(script: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """A script in a process where logging is as it sets it up."""
    text = f"import logging, warnings\nimport stanadapt\nwarnings.simplefilter('ignore')\n{script}"
    done = subprocess.run(
        [sys.executable, "-c", text],
        cwd=tmp_path,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


OPEN = f"stanadapt.Posterior({PROGRAM!r}).log_density([1.5])\n"


def test_without_logging_lines_go_to_stderr(tmp_path: Path) -> None:
    done = run(OPEN, tmp_path)
    assert (done.stdout, done.stderr) == ("", "opened\n1.5\n")


@pytest.mark.parametrize("level", ["INFO", "WARNING"])
def test_the_log_is_that_of_the_user(level: str, tmp_path: Path) -> None:
    begun = "logging.basicConfig(filename='log', level='INFO')\n"
    begun += f"logging.getLogger('stanadapt').setLevel('{level}')\n"
    done = run(begun + OPEN, tmp_path)
    assert (done.stdout, done.stderr) == ("", "")
    lines = (tmp_path / "log").read_text().splitlines()
    assert lines == (["INFO:stanadapt:opened", "INFO:stanadapt:1.5"] if level == "INFO" else [])
