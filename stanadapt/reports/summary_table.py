"""Tables of pages: rows that a reader sorts by a column, searches, and pages through.

The page has all rows as JSON, of which the script `table.js` shows some at a time, so that thousands of them
cost nothing. The first ones are there as HTML too, for who has no scripts, and for printers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from .. import check

MOST_BYTES = 100_000  # of the rows of a table, where it is not said
_LONGEST = 120  # characters of a cell
_FIRST = 25  # rows that are there without a script
_FEW = 12  # rows that need no search


class Column(NamedTuple):
    """A column of a table."""

    label: str
    meaning: str = ""  # a sentence, which the header shows on demand
    number: bool = True  # whether it is sorted by value, and right-aligned
    below: float | None = None  # values under it are marked
    above: float | None = None  # values over it are marked
    descending: bool = False  # whether the first click puts the largest value first

    def is_marked(self, text: str) -> bool:
        """Whether a cell is to be seen at a glance."""
        value = _number(text)
        low, high = self.below, self.above
        return (low is not None and value < low) or (high is not None and value > high)


class Table:
    """A table for a page.

    Parameters
    ----------
    id
        Letters, digits and hyphens, no two alike on a page.
    caption
        What the rows are.
    columns
        The first one has the names of rows.
    rows
        Cells as texts.
    most_bytes
        What the rows may take. Where that is not enough, the first ones are shown, and how many are left out.
    note
        A sentence below the table.
    """

    def __init__(
        self,
        id: str,
        caption: str,
        columns: Sequence[Column],
        rows: Sequence[Sequence[str]],
        note: str = "",
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self.id, self.caption, self.columns, self.note = id, caption, list(columns), note
        cells = [[_short(cell) for cell in row] for row in rows]
        written = [json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in cells]
        size, self.total = 0, len(cells)
        kept = 0
        for text in written:
            size += len(_safe(text).encode()) + 1
            if size > most_bytes:
                break
            kept += 1
        self.rows, self._written = cells[:kept], written[:kept]

    @property
    def first_rows(self) -> list[list[str]]:
        """Those that are shown first."""
        return self.rows[:_FIRST]

    @property
    def is_short(self) -> bool:
        """Whether all rows are seen at a glance, so that nobody searches them."""
        return self.total <= _FEW

    @property
    def size(self) -> int:
        """Rows that are shown at a time."""
        return _FIRST

    @property
    def left_out(self) -> int:
        """Rows that did not fit in the page."""
        return self.total - len(self.rows)

    @property
    def data(self) -> Markup:
        """The rows and columns as JSON that can stand inside of a script element."""
        columns = [
            {"number": each.number, "below": each.below, "above": each.above, "descending": each.descending}
            for each in self.columns
        ]
        return Markup(f'{{"columns":{_safe(json.dumps(columns))},"rows":[{_safe(",".join(self._written))}]}}')


def _safe(text: str) -> str:
    """JSON that neither ends a script element nor begins a comment in it; it means the same."""
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _short(text: Any) -> str:
    shown = check.printable(str(text))
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 1]}…"


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
