"""The page of a comparison of methods."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
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
_ESTIMATED = {"value", "mcse", "other", "other_mcse"}
_LEVELLED, _MOST_DECIMALS = 1000.0, 6  # ratio of errors up to which estimates have the same decimals
_LABELS = {"agree": "methods that agree", "level": "error rate of each comparison", "library": "evaluated by"}
_STATISTICS = {
    "quantity": "what is estimated",  # the first column, because readers search in it
    "statistic": "mean, standard deviation (sd), or the 5, 50 or 95 % quantile",
    "method": "the method, all its repeats together",
    "value": "the estimate",
    "mcse": "its standard error",
    "ess": "its effective sample size",
    "other": "the estimate that it is compared with",
    "other_mcse": "the standard error of that estimate",
    "z": "the difference, divided by the standard error of the difference",
    "p_value": "probability that chance makes such a difference, in this one comparison",
}


class Content(NamedTuple):
    """Everything that the page shows."""

    heading: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]  # rows of the short table
    table: pandas.DataFrame
    runs: pandas.DataFrame
    estimates: pandas.DataFrame
    meanings: Mapping[str, str]  # by column of `table`
    short_meanings: Mapping[str, str]  # by column of the short table
    words: Sequence[str]
    notes: Sequence[str]
    facts: Mapping[str, Any]
    limit: float  # |z| beyond which chance does not explain a difference
    level: str  # "good", "care" or "serious"


def view(content: Content) -> str:
    """Make the short table and the sentences, which a notebook shows in its own page."""
    return fill("comparison_view.html", content=content)


def page(content: Content) -> str:
    """Make the whole page."""
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
        "how many standard errors its statistics differ from those of the other methods or the reference.",
    )
    worst = content.estimates.sort_values("z", key=abs, ascending=False, na_position="last")
    tables = {
        "short": _short_table(content),
        "full": [
            *_parts("methods", "Methods", content.table, content.meanings),
            *_parts("runs", "Runs", content.runs, content.meanings),
        ],
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
        facts={_LABELS.get(name, name): _text(value) for name, value in content.facts.items()},
    )


def _short_table(content: Content) -> Table:
    columns = []
    for name in content.header:
        above = {"R-hat": R_HAT_LIMIT, "max |z|": content.limit}.get(name)
        columns.append(
            Column(
                name, content.short_meanings.get(name, ""), name not in _TEXTS, above=above, descending=True
            )
        )
    rows = [[cell.replace(",", "") for cell in row[1:]] for row in content.rows]
    named = [[row[0], *rest] for row, rest in zip(content.rows, rows, strict=True)]
    return Table("comparison", "Methods", columns, named)


def _parts(id: str, caption: str, frame: pandas.DataFrame, meanings: Mapping[str, str]) -> Iterator[Table]:
    """All figures in narrow tables: one with all columns would be several times as wide as a window.

    The notes on the page give the reasons of rows without figures.
    """
    columns = [str(name) for name in frame.columns if name != "reason"]
    sizes = [name for name in columns if name.startswith("ess_")]
    agreement = [name for name in columns if name.startswith(("z", "mmd2"))]
    costs = [name for name in columns if name not in {*sizes, *agreement}]
    parts = {"": ("costs", costs), "-ess": ("effective sample sizes", sizes), "-z": ("agreement", agreement)}
    for ending, (title, names) in parts.items():
        if names:
            yield _table(f"{id}{ending}", f"{caption}: {title}", frame[names].reset_index(), meanings)


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
    decimals = _decimals(frame["mcse"]) if "mcse" in frame else None
    rows = [
        [_cell(str(name), row[name], decimals) for name in frame.columns] for row in frame.to_dict("records")
    ]
    return Table(id, caption, columns, rows)


def _decimals(errors: pandas.Series) -> int | None:
    """Decimals for all estimates, by the smallest standard error; None if these errors differ widely."""
    known = errors[(errors > 0.0) & (errors < math.inf)]
    if known.empty or known.max() > _LEVELLED * known.min():
        return None
    return min(max(0, 1 - math.floor(math.log10(known.min()))), _MOST_DECIMALS)


def _meaning(name: str, meanings: Mapping[str, str]) -> str:
    if name in meanings:
        return meanings[name]
    for ending, words in (("_per_second", "per second"), ("_per_1000", "per 1000 evaluations")):
        if name.endswith(ending):
            return f"{meanings.get(name.removesuffix(ending), '')}, {words}"
    return ""


def _cell(name: str, value: Any, decimals: int | None = None) -> str:
    if name in _TEXTS:
        return ("yes" if value else "no") if isinstance(value, bool) else str(value)
    number = float(value)
    if not math.isfinite(number):
        return "inf" if number == math.inf else ""
    if name in _WHOLE:
        return f"{number:.0f}"
    if name == "r_hat":
        return f"{number:.3f}"
    if name in _ESTIMATED:
        return f"{number:.4g}" if decimals is None else f"{number:.{decimals}f}"
    if name in ("p_value", "mmd2"):
        return f"{number:.1e}"
    return three_figures(number).replace(",", "")


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(str(name) + (f" ({text})" if text else "") for name, text in value.items())
    if isinstance(value, float):
        return f"{value:.3g}"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
