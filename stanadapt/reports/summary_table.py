"""Tables of pages: a reader sorts them by a column, searches them, and pages through them.

The page holds all rows as JSON, and the script `table.js` shows some of them at a time, so that thousands of
rows cost nothing. The page holds the first rows as HTML too, for printers and for browsers without scripts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from .. import check

MOST_BYTES = 100_000  # for the rows of a table, by default
_LONGEST = 120  # characters of a cell
_FIRST = 25  # rows that a page shows without scripts
_FEW = 12  # a table of up to so many rows has no search


class Column(NamedTuple):
    """A column of a table."""

    label: str
    meaning: str = ""  # a sentence that the header shows under the pointer
    number: bool = True  # whether its cells are sorted as numbers and aligned to the right
    below: float | None = None  # the page marks smaller values
    above: float | None = None  # the page marks larger values
    descending: bool = False  # whether the first click puts the largest value first

    def is_marked(self, text: str) -> bool:
        """Whether the page marks a cell."""
        value = _number(text)
        low, high = self.below, self.above
        return (low is not None and value < low) or (high is not None and value > high)


class Table:
    """A table for a page.

    Parameters
    ----------
    id
        Letters, digits and hyphens; unique on a page.
    caption
        A phrase that says what the rows are.
    columns
        The first column has the names of the rows.
    rows
        Cells as texts.
    most_bytes
        Largest size of all rows. If they are larger, the table has the first rows and says how many it lacks.
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
        """The rows that the page shows first."""
        return self.rows[:_FIRST]

    @property
    def is_short(self) -> bool:
        """Whether the table has so few rows that it needs no search."""
        return self.total <= _FEW

    @property
    def has_marks(self) -> bool:
        """Whether any cell is marked."""
        return any(
            column.is_marked(cell)
            for row in self.rows
            for column, cell in zip(self.columns, row, strict=True)
        )

    @property
    def size(self) -> int:
        """Number of rows that the page shows at a time."""
        return _FIRST

    @property
    def n_left_out(self) -> int:
        """Number of rows that did not fit in the page."""
        return self.total - len(self.rows)

    @property
    def data(self) -> Markup:
        """The rows and columns as JSON that is safe inside a script element."""
        columns = [
            {"number": each.number, "below": each.below, "above": each.above, "descending": each.descending}
            for each in self.columns
        ]
        return Markup(f'{{"columns":{_safe(json.dumps(columns))},"rows":[{_safe(",".join(self._written))}]}}')


def _safe(text: str) -> str:
    """Escape JSON so that it cannot end a script element or begin a comment in it; its meaning stays."""
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _short(text: Any) -> str:
    shown = check.printable(str(text))
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 1]}…"


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
