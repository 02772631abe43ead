"""README.md and the site's pages are true: their Python and their commands run.

The pages that are notebooks run while the site is built; of them only the commands are run here.
"""

from __future__ import annotations

import functools
import re
import shlex
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

import stanadapt
from stanadapt import api, cli
from stanadapt.result.container import datasets

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
WARMUP, DRAWS = 1_000, 1_000

# Some of the examples are short, and a funnel is among the models: their runs may have findings.
pytestmark = pytest.mark.filterwarnings("ignore::stanadapt.StanAdaptWarning")


class Page(NamedTuple):
    """What of a page can be run."""

    path: Path
    text: str
    blocks: list[str]
    commands: list[str]

    @classmethod
    def of(cls, path: Path) -> Page:
        """Commands stand in indented blocks or in those of a shell; a backslash ends a line that goes on."""
        text = path.read_text(encoding="utf-8")
        blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        typed = re.findall(r"^```shell\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        typed += re.findall(r"^    (stanadapt (?:.*\\\n)*.*)$", text, re.MULTILINE)
        lines = "\n".join(typed).replace("\\\n", " ").split("\n")
        return cls(path, text, blocks, [line for line in lines if line.startswith("stanadapt ")])

    @property
    def name(self) -> str:
        return self.path.relative_to(ROOT).as_posix()


def _pages() -> list[Page]:
    """The README, and the site's pages that are not made while it is built."""
    paths = [
        path for folder in (".", "guide", "how", "tutorials") for path in sorted((DOCS / folder).glob("*.md"))
    ]
    return [Page.of(ROOT / "README.md"), *map(Page.of, paths)]


PAGES = _pages()
WITH_BLOCKS = [page for page in PAGES if page.blocks]
WITH_COMMANDS = [page for page in PAGES if page.commands]


def test_there_is_something_to_run() -> None:
    assert sum(len(page.blocks) for page in PAGES) >= 20
    assert sum(len(page.commands) for page in PAGES) >= 15
    assert PAGES[0] in WITH_BLOCKS


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that has the models, to run in."""
    shutil.copytree(ROOT / "models", tmp_path / "models")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are short where a page does not say how long they are; the defaults are run in other tests."""
    draw = api.sample

    def sample(*arguments: Any, **keywords: Any) -> Any:
        given = {name: value for name, value in keywords.items() if value is not None}
        lengths = {} if "until" in given else {"draws": DRAWS}
        return draw(*arguments, **{"warmup": WARMUP} | lengths | given)

    for module in (stanadapt, api):
        monkeypatch.setattr(module, "sample", functools.wraps(draw)(sample))


@pytest.mark.usefixtures("folder", "short")
@pytest.mark.parametrize("page", WITH_BLOCKS, ids=lambda page: page.name)
def test_python_runs(page: Page) -> None:
    """All blocks of a page in one namespace, since later ones use the names of earlier ones."""
    namespace: dict[str, Any] = {"__name__": "__main__"}  # as in a script
    for block in page.blocks:  # with the page's line numbers in tracebacks
        line = page.text[: page.text.index(block)].count("\n")
        exec(compile("\n" * line + block, page.name, "exec"), namespace)
        if "idata = stanadapt.sample(" in block:
            posterior = datasets(namespace["idata"])["posterior"]
            assert posterior.sizes["chain"] >= 1
            assert posterior.sizes["draw"] > 100


@pytest.mark.usefixtures("folder", "short")
@pytest.mark.parametrize("page", WITH_COMMANDS, ids=lambda page: page.name)
def test_commands_run(page: Page) -> None:
    """In their order, since some read what others wrote."""
    for command in page.commands:
        done = CliRunner().invoke(cli.main, shlex.split(command)[1:])
        assert done.exit_code == 0, f"{command}\n{done.output}"
        assert done.output
