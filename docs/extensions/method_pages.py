"""Writes methods/NAME.md for every method, and the table of methods, from what the methods' files say.

A page has the method's docstring (paper, symbols, departures, cost), its FACTS, its settings, its row in the
benchmark of odd targets, and methods/notes/NAME.md, which says in words when to take it and when it fails. A
method that is new in METHODS gets its page without a change here.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sphinx.application import Sphinx

from stanadapt import samplers
from stanadapt.samplers.base import NO_TARGET

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "examples" / "benchmarks" / "README.md"
ODD_TARGETS = "## Odd targets"
ODD_WORDS = (
    "Whether the tails and the middle of the draws come out right on targets whose truth is known. "
    "*Says so*: they do not, and `stanadapt.diagnose` has a finding. "
    "[The benchmark](../benchmarks.md#odd-targets) has all methods."
)
DEPARTURES = "Departures from the paper"
SOURCE = """\
:::{{dropdown}} `stanadapt/samplers/{name}.py`
```{{literalinclude}} ../../stanadapt/samplers/{name}.py
:language: python
```
:::"""

_CODE = re.compile(r"(`[^`]*`)")
_FILE = re.compile(r"(?<![\w`/])((?:\w+/)*\w+\.py)\b(?!`)")
_MARKDOWN = re.compile(r"([\\*_\[\]<>$|#~])")
_ITEM = re.compile(r"(\d+)\. ")
_GAP = re.compile(r"\S+(?: \S+)*")


class Docstring(NamedTuple):
    """The parts of a method's docstring, as Markdown."""

    title: str
    source: str  # the paper, and what stands before the symbols
    symbols: str
    algorithm: str  # what stands after them
    departures: str
    cost: str


def markdown(text: str) -> str:
    """Plain prose as Markdown: names of files become code, other signs stay what they are."""
    parts = _CODE.split(" ".join(text.split()))
    return "".join(part if part.startswith("`") else _words(part) for part in parts)


def _words(text: str) -> str:
    """Prose without code."""
    pieces = _FILE.split(text)
    return "".join(_file(piece) if i % 2 else _MARKDOWN.sub(r"\\\1", piece) for i, piece in enumerate(pieces))


def _file(path: str) -> str:
    """The name of a file as code, with a link where it is that of a method."""
    name = path.removesuffix(".py")
    return f"[`{name}`](/methods/{name}.md)" if name in samplers.METHODS else f"`{path}`"


def row(cells: Sequence[str]) -> str:
    """A row of a table in Markdown."""
    return f"| {' | '.join(cells)} |"


def symbol_table(lines: Sequence[str]) -> str:
    """A block of aligned columns as a table in Markdown.

    The first line has the names of the columns and says where they begin. A line with an entry in the last
    column alone goes on with the line before.
    """
    starts = [match.start() for match in _GAP.finditer(lines[0])]
    names = _GAP.findall(lines[0])
    rows: list[list[str]] = []
    for line in lines[1:]:
        if not line.strip():
            continue
        cells = [""] * len(starts)
        for match in _GAP.finditer(line):
            # An entry that is too long pushes the next one to the right, and so may skip no column.
            place = max(i for i, start in enumerate(starts) if start <= match.start() or i == 0)
            cells[place] = f"{cells[place]} {match.group()}".strip()
        if len(cells) > 3 and not cells[2] and cells[1].endswith(" ()"):  # one blank where there are two else
            cells[1:3] = cells[1].removesuffix(" ()"), "()"
        if rows and not any(cells[:-1]):
            rows[-1][-1] += f" {cells[-1]}"
        else:
            rows.append(cells)
    table = [row(names), row(["---"] * len(names))]
    for symbol, *middle, meaning in rows:
        shown = [f"`{cell}`".replace("|", r"\|") if cell else "" for cell in middle]
        table.append(row([markdown(symbol), *shown, markdown(meaning)]))
    return "\n".join(table)


def split_docstring(text: str) -> Docstring:
    """The parts of a docstring that follows the order of samplers/base.py."""
    title, _, rest = text.partition("\n")
    source, symbols, algorithm, departures, cost = [], [], [], [], []
    for block in _blocks(rest):
        first = block[0].strip()
        if first.startswith(DEPARTURES):
            words = first.removeprefix(DEPARTURES).lstrip(",: ")
            departures.append(_listed([words[:1].upper() + words[1:], *block[1:]]).strip())
        elif first.startswith("Cost of an iteration"):
            cost.append(markdown(" ".join(block)))
        elif departures and _ITEM.match(first):
            departures.append(_listed(block))
        elif (block[0].startswith("    ") and re.match(r"(paper|symbol) ", first)) or (
            block[0].startswith("    ") and symbols
        ):
            symbols += block
        elif symbols:
            algorithm.append(_listed(block))
        else:
            source.append(_listed(block))
    return Docstring(
        markdown(title),
        "\n\n".join(source),
        symbol_table(symbols) if symbols else "",
        "\n\n".join(algorithm),
        "\n\n".join(departures),
        "\n\n".join(cost),
    )


def _blocks(text: str) -> Iterator[list[str]]:
    """Paragraphs, as lists of lines."""
    block: list[str] = []
    for line in [*text.split("\n"), ""]:
        if line.strip():
            block.append(line)
        elif block:
            yield block
            block = []


def _listed(lines: Sequence[str]) -> str:
    """A paragraph, with the numbered items that it has as a list."""
    parts: list[list[str]] = [[]]
    for line in lines:
        if _ITEM.match(line):
            parts.append([line])
        else:
            parts[-1].append(line)
    shown = [markdown(" ".join(parts[0]))] if parts[0] else []
    items = []
    for part in parts[1:]:
        number, _, words = " ".join(part).partition(". ")
        items.append(f"{number}. {markdown(words)}")
    if items:
        shown.append("\n".join(items))
    return "\n\n".join(shown)


def settings_table(name: str) -> str:
    """The settings of a method, from its file."""
    table = [row(["setting", "default", "allowed", "meaning"]), row(["---"] * 4)]
    for key, each in samplers.settings_of(samplers.sampler(name)).items():
        default = "found at run time" if each.default is None else f"`{each.default!r}`"
        table.append(row([f"`{key}`", default, markdown(each.range), markdown(each.meaning)]))
    return "\n".join(table)


def facts_table(name: str) -> str:
    """What a method says of itself."""
    method = samplers.sampler(name)
    facts, settings = method.FACTS, samplers.settings_of(method)
    rows = [
        ("family", facts.family),
        ("an iteration evaluates", facts.needs),
        ("it learns", ", ".join(facts.learns) or "nothing"),
        ("warm-up and draws by default", f"{facts.warmup:,} and {facts.draws:,} iterations a chain"),
    ]
    if facts.acceptance != NO_TARGET:
        rows.append(("acceptance it aims at", f"{settings['target_accept'].default:g}"))
    if facts.columns:
        rows.append(("its own in `sample_stats`", ", ".join(f"`{column}`" for column, _ in facts.columns)))
    noisy = not facts.gradient and not facts.whole_chains
    rows.append(("noisy densities and simulators", "yes" if noisy else "no"))
    rows.append(("can begin with `warm=`", "with the metric" if _takes_metric(facts) else _partly(facts)))
    if facts.takes_pilot:
        rows.append(("Fisher HMC can begin its warm-up", '`settings={"pilot": 500}`'))
    if facts.faithful:
        rows.append(("exactly as in the paper", '`settings={"faithful": True}`'))
    return "\n".join([row(["property", "value"]), row(["---", "---"]), *(row(each) for each in rows)])


def _takes_metric(facts: samplers.Facts) -> bool:
    return facts.takes_pilot or facts.takes == "metric"


def _partly(facts: samplers.Facts) -> str:
    """What a method that takes no metric takes over from an earlier run."""
    return f"with the {facts.takes} and at its draws" if facts.takes else "at its draws"


def method_table() -> str:
    """The table of all methods, each with a link to its page."""
    rows = [
        row(["method", "what it does", "acceptance", "needs"]),
        row(["---", "---", "---:", "---"]),
    ]
    for name, description in samplers.METHODS.items():
        method = samplers.sampler(name)
        aims = method.FACTS.acceptance != NO_TARGET
        acceptance = f"{samplers.settings_of(method)['target_accept'].default:g}" if aims else ""
        rows.append(
            row([f"[`{name}`](/methods/{name}.md)", markdown(description), acceptance, method.FACTS.needs])
        )
    return "\n".join(rows)


def group_of(facts: samplers.Facts) -> str:
    """The caption under which the sidebar lists a method."""
    if facts.family in ("Hamiltonian", "Langevin"):
        return facts.family
    return "Random walks and learned proposals"


def page_list() -> str:
    """The pages of the methods for the sidebar, a list for each group."""
    groups: dict[str, list[str]] = {}
    for name in samplers.METHODS:
        groups.setdefault(group_of(samplers.sampler(name).FACTS), []).append(name)
    lists = [
        f"```{{toctree}}\n:hidden:\n:caption: {caption}\n\n" + "\n".join(names) + "\n```\n"
        for caption, names in groups.items()
    ]
    return "\n".join(lists)


def odd_targets(name: str) -> str:
    """The row of a method in the benchmark of odd targets, upright; nothing if it was not run."""
    _, _, section = BENCHMARKS.read_text(encoding="utf-8").partition(ODD_TARGETS)
    lines = [line for line in section.split("\n") if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    found = next((each for each in cells if each[0] == f"`{name}`"), None)
    if found is None:
        return ""
    table = [row(["target", "its quantiles and means"]), row(["---", "---"])]
    return "\n".join(
        table + [row([target, said]) for target, said in zip(cells[0][1:], found[1:], strict=True)]
    )


def method_page(name: str) -> str:
    """The page of a method, in Markdown."""
    path = Path(str(samplers.sampler(name).__file__))
    doc = split_docstring(ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "")
    notes = Path(__file__).parents[1] / "methods" / "notes" / f"{name}.md"
    parts = [
        f"(method-{name})=\n\n# `{name}`\n",
        doc.title,
        facts_table(name),
        f'```python\nidata = stanadapt.sample(model, data, method="{name}", seed=1)\n```',
    ]
    if notes.exists():
        parts.append(notes.read_text(encoding="utf-8").strip())
    parts += ["## Paper and algorithm", doc.source]
    parts += [doc.symbols] if doc.symbols else []
    parts += [doc.algorithm] if doc.algorithm else []
    parts += ["## Departures from the paper", doc.departures] if doc.departures else []
    parts += ["## Settings", 'As in `settings={"NAME": value}`, or in a shell `--set NAME=value`.']
    parts += [settings_table(name), "## Cost", doc.cost]
    if odd := odd_targets(name):
        parts += [
            "## Odd targets",
            ODD_WORDS,
            odd,
        ]
    parts += [
        "## Source",
        "The file follows the order of the paper: settings, state, start, one iteration, what is learnt.",
        SOURCE.format(name=name),
    ]
    return "\n\n".join(parts) + "\n"


def write_page(path: Path, text: str) -> None:
    """Write a file unless it has this text already, so that only what has changed is built anew."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def _write(app: Sphinx) -> None:
    folder = Path(app.srcdir) / "methods"
    wanted = {f"{name}.md" for name in samplers.METHODS}
    for path in folder.glob("*.md"):
        if path.name not in {"index.md", *wanted}:
            path.unlink()  # of a method that is gone
    for name in samplers.METHODS:
        write_page(folder / f"{name}.md", method_page(name))
    (folder / "tables").mkdir(exist_ok=True)
    write_page(folder / "tables" / "methods.txt", method_table() + "\n")
    write_page(folder / "tables" / "pages.txt", page_list())


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("builder-inited", _write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
