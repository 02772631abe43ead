"""The site's sources: links and files that are named exist, and pages keep up with the package."""

from __future__ import annotations

import ast
import functools
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import method_pages
import race_picture
import stanadapt
from stanadapt import samplers
from stanadapt.cli import main

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
MADE = {DOCS / "methods" / f"{name}.md" for name in samplers.METHODS} | {DOCS / "reference" / "command.md"}
NOTES = DOCS / "methods" / "notes"
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    ROOT / "VISION.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "examples").glob("*/README.md")),
    *(
        path
        for path in sorted(DOCS.rglob("*.md"))
        if path not in MADE and not {"_build", "generated"} & set(path.relative_to(DOCS).parts)
    ),
]
LINK = re.compile(r"\]\(([^()\s]*(?:\([^()\s]*\))?[^()\s]*)\)")
FILE = re.compile(r"`((?:stanadapt|examples|tests|docs|models)/[\w./-]+\.\w+)")
INCLUDED = re.compile(r"^```\{include\} (\S+)", re.MULTILINE)
CALL = re.compile(r"`(stanadapt\.\w+(?:\.\w+)?\([^`]*\)[^`]*)`")


def _read(path: Path) -> str:
    """A page, with what it includes."""
    text = path.read_text(encoding="utf-8")
    files = [path.parent / name for name in INCLUDED.findall(text) if not name.startswith("tables/")]
    return "\n".join([text, *(each.read_text(encoding="utf-8") for each in files)])


@functools.cache
def _anchors(path: Path) -> set[str]:
    """The anchors of a page: its headings as GitHub writes them."""
    is_method = path in MADE and path.parent.name == "methods"
    text = method_pages.method_page(path.stem) if is_method else _read(path)
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def _home(page: Path) -> Path:
    """The folder that a page's links start from. Notes are a part of the pages of their methods."""
    return page.parents[1] if page.parent == NOTES else page.parent


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    wrong = []
    for link in LINK.findall(page.read_text(encoding="utf-8")):
        if not link or re.match(r"https?://|mailto:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (_home(page) / name).resolve() if name else page
        exists = target.exists() or target in MADE
        if not exists or (anchor and target.suffix == ".md" and anchor not in _anchors(target)):
            wrong.append(link)
    assert wrong == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_files_that_are_named_exist(page: Path) -> None:
    names = FILE.findall(page.read_text(encoding="utf-8"))
    assert [name for name in names if not ("NAME" in name or (ROOT / name).exists())] == []


def test_wrong_links_are_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A title\n[a](#a-title) [b](#b) [c](other.md) [d](page.md#a-title) [e](https://a.org/)")
    with pytest.raises(AssertionError, match=re.escape("['#b', 'other.md']")):
        test_links_lead_somewhere(page)


def _calls() -> Iterator[tuple[Path, str]]:
    for page in PAGES:
        for text in CALL.findall(page.read_text(encoding="utf-8")):
            yield page, text


def test_calls_in_sentences_and_tables_are_possible() -> None:
    """Names are public, and keywords are those of the function, or of a method of what it makes."""
    seen = 0
    for page, text in _calls():
        tree = ast.parse(text.replace(", ...", "").replace("...", "None"), mode="eval")
        for call in [node for node in ast.walk(tree) if isinstance(node, ast.Call)]:
            name = ast.unparse(call.func)
            maker, _, method = name.partition(").")
            if method:  # Posterior(model, data).constrain(x)
                name = f"{maker.partition('(')[0]}.{method}"
            if not name.startswith("stanadapt."):
                continue
            first, *rest = name.split(".")[1:]
            assert first in stanadapt.__all__, f"{page.name}: {text}"
            function = functools.reduce(getattr, [first, *rest], stanadapt)
            known = set(inspect.signature(function).parameters)
            assert {each.arg for each in call.keywords} <= known, f"{page.name}: {text}"
            seen += 1
    assert seen > 20


def _errors() -> set[str]:
    """What stanadapt raises and warns."""
    kinds = (stanadapt.StanAdaptError, stanadapt.StanAdaptWarning)
    return {
        name
        for name, value in vars(stanadapt.errors).items()
        if isinstance(value, type) and issubclass(value, kinds)
    }


def test_every_error_can_be_caught_by_its_name() -> None:
    assert len(_errors()) == 11
    for name in _errors():
        assert name in stanadapt.__all__
        assert getattr(stanadapt, name) is getattr(stanadapt.errors, name)


def test_every_public_name_is_in_the_reference() -> None:
    text = (DOCS / "reference" / "api.rst").read_text(encoding="utf-8")
    listed = set(re.findall(r"^   (\w+)$", text, re.MULTILINE))
    apart = {"__version__", "errors", *_errors()}  # the errors have a section
    assert listed == set(stanadapt.__all__) - apart
    assert "automodule:: stanadapt.errors" in text


def test_every_command_is_on_its_page() -> None:
    import command_pages

    page = command_pages.command_page()
    assert set(re.findall(r"^## stanadapt (\w+)$", page, re.MULTILINE)) >= set(main.commands)
    assert "{option} --seed N" in page


def test_outputs_of_cells_are_there_before_pages_are_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from jupyter_cache import get_cache
    from jupyter_cache.executors.utils import ExecutionResult
    from myst_nb.core.config import NbParserConfig
    from myst_parser.config.main import MdParserConfig

    import parallel_cells

    def run(notebook: Any, cwd: str, **_: object) -> ExecutionResult:
        (cell,) = (cell for cell in notebook.cells if cell["cell_type"] == "code")
        ran.append((cell["source"], cwd))
        return ExecutionResult(notebook, cwd, 1.0, ZeroDivisionError() if "/" in cell["source"] else None)

    pages = {"text": "A page", "sum": "```{code-cell}\n1 + 2\n```", "ratio": "```{code-cell}\n1 / 0\n```"}
    for name, text in pages.items():
        top = "---\nfile_format: mystnb\nkernelspec: {name: python3, display_name: Python 3}\n---\n\n"
        (tmp_path / f"{name}.md").write_text(text if name == "text" else top + text, encoding="utf-8")
    config = NbParserConfig(execution_mode="cache", execution_cache_path=str(tmp_path / "cells"))
    env = SimpleNamespace(
        mystnb_config=config, myst_config=MdParserConfig(), doc2path=lambda name: tmp_path / f"{name}.md"
    )
    monkeypatch.setattr(parallel_cells, "single_nb_execution", run)
    ran: list[tuple[str, str]] = []
    parallel_cells.run_cells(None, env, list(pages))
    assert {cell for cell, _ in ran} == {"1 + 2", "1 / 0"}
    assert len({folder for _, folder in ran}) == 2
    (record,) = get_cache(config.execution_cache_path).list_cache_records()
    assert record.uri == str(tmp_path / "sum.md")  # and not the page that failed
    ran.clear()
    parallel_cells.run_cells(None, env, list(pages))
    assert [cell for cell, _ in ran] == ["1 / 0"]


def test_which_method_to_take_is_said_in_one_sentence() -> None:
    """Readers meet it in several places, which must not differ."""
    places = {
        "README.md": (ROOT / "README.md").read_text(encoding="utf-8"),
        "docs/start.md": (DOCS / "start.md").read_text(encoding="utf-8"),
        "docs/choose.md": (DOCS / "choose.md").read_text(encoding="utf-8"),
        "docs/methods/index.md": (DOCS / "methods" / "index.md").read_text(encoding="utf-8"),
        "stanadapt.sample": inspect.getdoc(stanadapt.sample) or "",
        "stanadapt sample --help": main.commands["sample"].help or "",
    }
    said = {name: re.findall(r"Take `fisher_hmc` if [^.]*\.", text) for name, text in places.items()}
    assert {name: len(sentences) for name, sentences in said.items()} == dict.fromkeys(places, 1)
    assert len({" ".join(sentence.split()) for (sentence,) in said.values()}) == 1
    default = inspect.signature(stanadapt.sample).parameters["method"].default
    assert f"`{default}`, a published method, runs if you name none." in " ".join(places["README.md"].split())


def test_parameters_of_sample_are_described_once_in_groups() -> None:
    """The site shows each group under its heading; a name that shares a description would have it twice."""
    text = inspect.getdoc(stanadapt.sample) or ""
    groups = re.split(r"\n\n([A-Z][\w ]+)\n-+\n", text.partition("\n\nReturns\n")[0])
    assert groups[1::2] == ["Parameters", "How long", "Where it goes", "How results are labelled"]
    described = re.findall(r"^(\w.*)$", "\n".join(groups[2::2]), re.MULTILINE)
    assert sorted(described) == sorted(inspect.signature(stanadapt.sample).parameters)


def test_every_room_is_on_the_map_of_contributing() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rooms = {path.parent.name for path in (ROOT / "stanadapt").glob("*/__init__.py")}
    assert {room for room in rooms if f"{room}/" not in text.partition("## To run the checks")[0]} == set()


def test_methods_stand_in_three_groups() -> None:
    """The sidebar has nineteen pages, which nobody takes in as one list."""
    groups = method_pages.page_list().split("```{toctree}")[1:]
    assert len(groups) == 3
    assert all(":caption: " in group for group in groups)
    names = [line for group in groups for line in group.split("\n") if re.fullmatch(r"\w+", line)]
    assert sorted(names) == sorted(samplers.METHODS)


@pytest.mark.parametrize("method", samplers.METHODS)
def test_tables_of_facts_have_a_header(method: str) -> None:
    assert method_pages.facts_table(method).startswith("| property | value |\n")


def test_every_room_is_on_the_page_of_the_architecture() -> None:
    text = (DOCS / "how" / "architecture.md").read_text(encoding="utf-8")
    rooms = {path.parent.name for path in (ROOT / "stanadapt").glob("*/__init__.py")}
    assert {room for room in rooms if f"{room}/" not in text} == set()


def test_every_benchmark_is_on_its_page() -> None:
    text = (DOCS / "benchmarks.md").read_text(encoding="utf-8")
    scripts = {path.name for path in (ROOT / "examples" / "benchmarks").glob("*.py")}
    assert {name for name in scripts if f"`{name}`" not in text} == set()


def test_the_race_of_the_front_page_is_that_of_the_benchmarks() -> None:
    text = race_picture.BENCHMARKS.read_text(encoding="utf-8")
    found = race_picture.rates(text)
    assert {len(values) for values in found.values()} == {44}
    ratio = found["fisher_hmc"] / found["nutpie_low_rank"]
    middle = f"**{np.exp(np.log(ratio).mean()):.2f}**"
    assert f"against the best single peer (`nutpie_low_rank`), geometric mean | 5 | {middle}" in text
    labels = [label.get_text() for label in race_picture.draw(found, "k", "k", "k").axes[0].texts]
    assert labels == ["2.9 times", "6.8 times", "18 times", "23 times"]


def test_every_kind_of_finding_has_its_row() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "stanadapt" / "diagnostics").glob("*.py"))
    kinds = set(re.findall(r'Finding\(\s*"(\w+)"', sources)) | {"ess_bulk", "ess_tail"}
    table = (DOCS / "guide" / "findings.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1] for line in table.split("\n") if line.startswith("| `")]
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == kinds


@pytest.mark.parametrize("method", samplers.METHODS)
def test_every_method_has_notes(method: str) -> None:
    text = (NOTES / f"{method}.md").read_text(encoding="utf-8")
    assert re.findall(r"^#+ .*$", text, re.MULTILINE) == ["## When to take it", "## When it fails"]


def test_notes_are_about_methods() -> None:
    assert {path.stem for path in NOTES.glob("*.md")} == set(samplers.METHODS)


@pytest.mark.parametrize("method", samplers.METHODS)
def test_a_page_has_what_the_file_says(method: str) -> None:
    module = samplers.sampler(method)
    page = method_pages.method_page(method)
    for name, setting in samplers.settings_of(module).items():
        assert f"| `{name}` |" in page
        assert method_pages.markdown(setting.meaning) in page
    doc = method_pages.split_docstring(inspect.getdoc(module) or "")
    assert doc.source
    assert doc.cost.startswith("Cost of an iteration")
    assert "| meaning |" in doc.symbols
    assert all(line.count(" | ") == 3 for line in doc.symbols.split("\n"))


def test_columns_of_symbols() -> None:
    """An entry that is too long, one that goes on, one blank for two, and signs that Markdown would read."""
    lines = [
        "    paper   here       shape   meaning",
        "    x_n     state.x    (d,)    position",
        "    a       state.long_name (d, d)  matrix |a|",
        "                               and the rest",
        "    b       of.one.row ()      number",
        "            c                  of no symbol",
    ]
    assert method_pages.symbol_table(lines).split("\n")[2:] == [
        "| x\\_n | `state.x` | `(d,)` | position |",
        "| a | `state.long_name (d, d)` |  | matrix \\|a\\| and the rest |",
        "| b | `of.one.row` | `()` | number |",
        "|  | `c` |  | of no symbol |",
    ]


def test_odd_targets_are_those_of_the_benchmark() -> None:
    assert "| two modes | right |" in method_pages.odd_targets("rlmh")
    assert "| two modes | says so |" in method_pages.odd_targets("fisher_hmc")
    assert method_pages.odd_targets("no_method") == ""
