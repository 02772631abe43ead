"""README.md is true: its Python and its commands run, and its table of methods is the present one."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import method_table
from stanadapt import cli
from stanadapt.result.container import datasets

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
# Indented blocks are what is typed into a shell; a backslash ends a line that goes on.
COMMANDS = [
    command.replace("\\\n", " ")
    for command in re.findall(r"^    (stanadapt (?:.*\\\n)*.*)$", TEXT, re.MULTILINE)
]

# Some of the examples are short, and a funnel is among the models: their runs may have findings.
pytestmark = pytest.mark.filterwarnings("ignore::stanadapt.StanAdaptWarning")


def test_table_of_methods_is_the_present_one() -> None:
    assert method_table.with_table(TEXT) == TEXT, "run `make table`"


def test_there_is_something_to_run() -> None:
    assert len(BLOCKS) >= 4
    assert len(COMMANDS) >= 5


@pytest.fixture(scope="module")
def namespace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """One for all blocks, since later ones use the names of earlier ones; in a folder that has the models."""
    folder = tmp_path_factory.mktemp("readme")
    shutil.copytree(ROOT / "models", folder / "models")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield {"__name__": "__main__"}  # as in a script


def test_python_runs(namespace: dict[str, Any]) -> None:
    for block in BLOCKS:  # with the README's line numbers in tracebacks
        line = TEXT[: TEXT.index(block)].count("\n")
        exec(compile("\n" * line + block, "README.md", "exec"), namespace)
        if "stanadapt.sample(" in block:
            posterior = datasets(namespace["idata"])["posterior"]
            assert posterior.sizes["chain"] >= 1
            assert posterior.sizes["draw"] > 100


def test_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In their order, in a folder that has the models, since some read what others wrote."""
    shutil.copytree(ROOT / "models", tmp_path / "models")
    monkeypatch.chdir(tmp_path)
    for command in COMMANDS:
        done = CliRunner().invoke(cli.main, shlex.split(command)[1:])
        assert done.exit_code == 0, f"{command}\n{done.output}"
        assert done.output
