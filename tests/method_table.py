"""The README's table of methods, made from METHODS, from what methods say of themselves, and from defaults.

python tests/method_table.py writes it between its two markers in README.md.
"""

from __future__ import annotations

from pathlib import Path

from stanadapt import samplers
from stanadapt.samplers.base import NO_TARGET

README = Path(__file__).parents[1] / "README.md"
BEGIN, END = "<!-- table of methods: make table -->\n", "<!-- end of the table of methods -->\n"


def table() -> str:
    """The table in Markdown."""
    rows = ["| method | what it does | acceptance | needs |", "| --- | --- | ---: | --- |"]
    for name, description in samplers.METHODS.items():
        method = samplers.sampler(name)
        aims = method.FACTS.acceptance != NO_TARGET
        acceptance = f"{samplers.declared(method)['target_accept'].default:g}" if aims else ""
        rows.append(f"| `{name}` | {description} | {acceptance} | {method.FACTS.needs} |")
    return "\n".join(rows) + "\n"


def with_table(text: str) -> str:
    """A text that has the markers, with the table between them."""
    before, _, rest = text.partition(BEGIN)
    _, marker, after = rest.partition(END)
    if not marker:
        raise ValueError(f"{README.name} lacks a marker: {BEGIN.strip()} or {END.strip()}")
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    README.write_text(with_table(README.read_text(encoding="utf-8")), encoding="utf-8")
