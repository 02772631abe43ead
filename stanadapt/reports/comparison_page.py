"""The page of a comparison of methods."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..diagnostics.scalars import R_HAT_LIMIT
from ..diagnostics.table import three_figures
from ..plots.canvas import draw_detached
from ..plots.comparison_plot import plot_comparison
from .page import fill, render
from .summary_table import Column, Table
from .vector import picture

if TYPE_CHECKING:
    import pandas

_TEXTS = {"method", "status", "converged", "z_of", "reason", "quantity", "statistic"}
_WHOLE = {"repeat", "repeats", "draws", "evaluations", "findings"}
_STATISTICS = {
    "quantity": "what is estimated",  # first, since it is searched for
    "statistic": "mean, standard deviation (sd), or the 5, 50 or 95 % quantile",
    "method": "the method, all its repeats together",
    "value": "the estimate",
    "mcse": "its standard error",
    "ess": "its effective sample size",
    "other": "what it is held against",
    "other_mcse": "the standard error of that",
    "z": "the difference in standard errors of both",
    "p_value": "probability of such a difference by chance, of this comparison alone",
}


class Content(NamedTuple):
    """What the page shows."""

    heading: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]  # of the short table
    table: pandas.DataFrame
    runs: pandas.DataFrame
    estimates: pandas.DataFrame
    meanings: Mapping[str, str]  # of the columns of `table`
    short_meanings: Mapping[str, str]  # of those of the short table
    words: Sequence[str]
    notes: Sequence[str]
    facts: Mapping[str, Any]
    limit: float  # of |z|
    level: str  # "good", "care" or "serious"


def view(content: Content) -> str:
    """The short table and the sentences, for a notebook's own page."""
    return fill("comparison_view.html", content=content)


def page(content: Content) -> str:
    """The whole page."""
    shown = picture(
        draw_detached(
            plot_comparison,
            content.table,
            runs=content.runs,
            estimates=content.estimates,
            limit=content.limit,
        ),
        "rates",
        "Efficiency and agreement",
        "The smallest bulk effective sample size of each method, per second and per 1000 evaluations, and "
        "how far its statistics are from those that it is held against, in standard errors.",
    )
    worst = content.estimates.sort_values("z", key=abs, ascending=False, na_position="last")
    tables = {
        "short": _short_table(content),
        "full": _table("methods", "Methods: all figures", content.table.reset_index(), content.meanings),
        "runs": _table("runs", "Runs", content.runs.reset_index(), content.meanings),
        "statistics": _table(
            "statistics",
            "Statistics of all quantities, the largest differences first",
            worst[list(_STATISTICS)],
            _STATISTICS,
            {"z": content.limit},
        ),
    }
    return render(
        "comparison.html",
        title="Comparison of methods",
        pictures=[shown],
        shown=shown,
        content=content,
        tables=tables,
        facts={name: _text(value) for name, value in content.facts.items()},
    )


def _short_table(content: Content) -> Table:
    columns = []
    for name in content.header:
        above = {"R-hat": R_HAT_LIMIT, "max |z|": content.limit}.get(name)
        columns.append(
            Column(name, content.short_meanings.get(name, ""), name != "method", above=above, descending=True)
        )
    rows = [[cell.replace(",", "") for cell in row[1:]] for row in content.rows]
    named = [[row[0], *rest] for row, rest in zip(content.rows, rows, strict=True)]
    return Table("comparison", "Methods", columns, named)


def _table(
    id: str,
    caption: str,
    frame: pandas.DataFrame,
    meanings: Mapping[str, str],
    above: Mapping[str, float] | None = None,
) -> Table:
    limits = {"r_hat": R_HAT_LIMIT} | dict(above or {})
    columns = [
        Column(
            str(name).replace("_", " "),
            _meaning(str(name), meanings),
            name not in _TEXTS,
            above=limits.get(str(name)),
            below=-limits["z"] if name == "z" and "z" in limits else None,
            descending=True,
        )
        for name in frame.columns
    ]
    rows = [[_cell(str(name), row[name]) for name in frame.columns] for row in frame.to_dict("records")]
    return Table(id, caption, columns, rows)


def _meaning(name: str, meanings: Mapping[str, str]) -> str:
    if name in meanings:
        return meanings[name]
    for ending, words in (("_per_second", "per second"), ("_per_1000", "per 1000 evaluations")):
        if name.endswith(ending):
            return f"{meanings.get(name.removesuffix(ending), '')}, {words}"
    return ""


def _cell(name: str, value: Any) -> str:
    if name in _TEXTS:
        return ("yes" if value else "no") if isinstance(value, bool) else str(value)
    number = float(value)
    if not math.isfinite(number):
        return "inf" if number == math.inf else ""
    if name in _WHOLE:
        return f"{number:.0f}"
    if name == "r_hat":
        return f"{number:.3f}"
    if name in ("value", "mcse", "other", "other_mcse", "p_value", "mmd2"):
        return f"{number:.4g}"
    return three_figures(number).replace(",", "")


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(str(name) + (f" ({text})" if text else "") for name, text in value.items())
    if isinstance(value, float):
        return f"{value:.3g}"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
