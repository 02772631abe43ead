"""The result of a comparison."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import check
from ..diagnostics.table import align_columns, three_figures
from ..result.files import whole_files
from .frames import MEANINGS
from .judging import Disagreement
from .running import OK

if TYPE_CHECKING:
    import numpy as np
    import pandas

    from ..reports.comparison_page import Content
    from ..result.container import InferenceData

SUFFIXES = (".html", ".csv", ".json")
# Columns of the printed table, with their headers.
_PRINTED = {
    "draws": "draws",
    "seconds": "seconds",
    "evaluations": "evaluations",
    "ess_bulk_min": "bulk ESS",
    "ess_tail_min": "tail ESS",
    "ess_bulk_min_per_second": "bulk/s",
    "ess_bulk_min_per_1000": "bulk/1000 ev.",
    "r_hat": "R-hat",
    "acceptance": "accept",
    "esjd": "ESJD",
    "findings": "findings",
    "z": "max |z|",
    "mmd2": "MMD²",
}
_INTERRUPTED = "Interrupted: runs that were going on or still to come are missing."
_WHOLE = {"draws", "evaluations", "ess_bulk_min", "ess_tail_min", "findings"}


class Comparison:
    """A comparison of methods on the same posterior under the same budget. `print` shows its table and notes.

    Attributes
    ----------
    table : pandas.DataFrame
        A row for every method. `meanings` explains its columns.
    runs : pandas.DataFrame
        A row for every method and repeat.
    estimates : pandas.DataFrame
        A row for every method, quantity and statistic: the value with its standard error (mcse) and effective
        sample size, the value that it is compared with, z, and the p-value of this one comparison.
    results : dict
        The InferenceData of every run that has draws, by (method, repeat).
    failures : dict
        The exceptions of runs that failed, by (method, repeat).
    disagreements : list of Disagreement
        Statistics in which a method differs from the reference, or from the others, by more than chance
        explains. They are named tuples, the clearest difference first; as a text each one says how large it
        is.
    words : list of str
        The same in sentences, with remarks on methods that have not converged.
    notes : list of str
        Notes on single runs: why a run has no figures, and its warnings.
    facts : dict
        The budget, the seed and the other arguments.
    interrupted : bool
        Whether a signal ended the comparison early.
    """

    def __init__(
        self,
        *,
        table: pandas.DataFrame,
        runs: pandas.DataFrame,
        estimates: pandas.DataFrame,
        results: dict[tuple[str, int], InferenceData],
        failures: dict[tuple[str, int], BaseException],
        disagreements: list[Disagreement],
        words: list[str],
        notes: list[str],
        facts: dict[str, Any],
        limit: float,
        signal: int,
    ) -> None:
        self.table, self.runs, self.estimates = table, runs, estimates
        self.results, self.failures = results, failures
        self.disagreements, self.words, self.notes = disagreements, words, notes
        self.facts, self.limit, self.signal = facts, limit, signal

    @property
    def interrupted(self) -> bool:
        return self.signal != 0

    @property
    def meanings(self) -> dict[str, str]:
        """The meanings of the columns of `table`."""
        return {name: meaning for name, meaning in MEANINGS.items() if name in self.table}

    @property
    def heading(self) -> str:
        """One sentence that says what was compared."""
        facts = self.facts
        included = "" if facts["budget"].endswith("draws of each chain") else ", warm-up included"
        repeats = f", {facts['repeats']} repeats" if facts["repeats"] > 1 else ""
        return (
            f"{facts['quantities']} quantities of a posterior in {facts['dimension']} dimensions; "
            f"budget {facts['budget']}{included}; {facts['chains']} chains, {facts['workers']} at a "
            f"time{repeats}; seed {facts['seed']}"
        )

    def cells(self) -> tuple[list[str], list[list[str]]]:
        """Make the header and the rows of the table as texts."""
        shown = {name: label for name, label in _PRINTED.items() if name in self.table}
        if (self.table["status"] != OK).any():  # a row without figures, or of a run that was cut, says so
            shown = {"status": "status", **shown}
        rows = [
            [check.printable(str(label)), *(_cell(name, row[name]) for name in shown)]
            for label, row in self.table.iterrows()
        ]
        return ["method", *shown.values()], rows

    def __str__(self) -> str:
        header, rows = self.cells()
        parts = [self.heading, align_columns(header, rows, right=True)]
        parts.append("\n".join(f"- {check.printable(text)}" for text in [*self.words, *self.notes]))
        if self.interrupted:
            parts.append(_INTERRUPTED)
        return "\n\n".join(parts)

    def __repr__(self) -> str:
        return f"Comparison of {', '.join(map(str, self.table.index))}, budget {self.facts['budget']}"

    def _repr_html_(self) -> str:
        from ..reports.comparison_page import view

        return view(self._content())

    def plot(self, axes: Any = None, figsize: tuple[float, float] | None = None) -> np.ndarray:
        """Draw ESS per second, ESS per 1000 evaluations, and the z of all statistics.

        Returns
        -------
        numpy.ndarray
            matplotlib's Axes (3,).
        """
        from ..plots.comparison_plot import plot_comparison

        return plot_comparison(self.table, self.runs, self.estimates, self.limit, axes=axes, figsize=figsize)

    def report(self, path: str | os.PathLike[str]) -> None:
        """Write a page of HTML that stands alone.

        Raises
        ------
        OutputError
            It cannot be written.
        """
        from ..reports.comparison_page import page

        _write(path, page(self._content()))

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write a file; its suffix decides: .html (the report), .csv (the table) or .json (everything).

        Raises
        ------
        ArgumentError
            The suffix is none of these.
        OutputError
            The file cannot be written.
        """
        suffix = check_suffix(path)
        if suffix == ".html":
            self.report(path)
        elif suffix == ".csv":
            _write(path, self.table.to_csv())
        else:
            _write(path, json.dumps(self.as_dict(), indent=2, allow_nan=False, ensure_ascii=False) + "\n")

    def _content(self) -> Content:
        """Collect what pages show."""
        from ..reports.comparison_page import Content

        header, rows = self.cells()
        notes = [*self.notes, _INTERRUPTED] if self.interrupted else self.notes
        doubtful = (self.table["status"] != OK).any() or not self.table["converged"].all()
        return Content(
            heading=self.heading,
            header=header,
            rows=rows,
            table=self.table,
            runs=self.runs,
            estimates=self.estimates,
            meanings=MEANINGS,
            short_meanings={label: MEANINGS[name] for name, label in _PRINTED.items() if name in MEANINGS}
            | {"status": MEANINGS["status"]},
            words=self.words,
            notes=notes,
            facts=self.facts,
            limit=self.limit,
            level="serious" if self.disagreements else "care" if doubtful else "good",
        )

    def as_dict(self) -> dict[str, Any]:
        """Return everything except the draws for JSON; numbers that are not finite become None."""
        return {
            "facts": self.facts,
            "table": _records(self.table.reset_index()),
            "runs": _records(self.runs.reset_index()),
            "estimates": _records(self.estimates),
            "disagreements": [
                found._asdict() | {"against": list(found.against)} for found in self.disagreements
            ],
            "words": self.words,
            "notes": self.notes,
            "interrupted": self.interrupted,
        }


def check_suffix(path: Any) -> str:
    """Return the suffix of a file for `Comparison.write`. Raises ArgumentError if it is not allowed."""
    if not isinstance(path, str | os.PathLike):
        raise check.refusal("path", path, "the path of a file")
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise check.refusal("path", os.fspath(path), f"a file that ends in one of {', '.join(SUFFIXES)}")
    return suffix


def _write(path: str | os.PathLike[str], text: str) -> None:
    """Write a text; the new file replaces an old one when it is complete."""
    with whole_files([path], overwrite=True) as (unfinished,):
        unfinished.write_text(text, encoding="utf-8")


def _cell(name: str, value: Any) -> str:
    if name == "status":
        return str(value)
    number = float(value)
    if name in _WHOLE and math.isfinite(number):
        return f"{number:.0f}"
    if name == "r_hat" and math.isfinite(number):
        return f"{number:.3f}"
    if name == "mmd2" and math.isfinite(number):
        return f"{number:.2g}"
    return "inf" if number == math.inf else three_figures(number)


def _records(frame: pandas.DataFrame) -> list[dict[str, Any]]:
    return [{str(name): _plain(value) for name, value in row.items()} for row in frame.to_dict("records")]


def _plain(value: Any) -> Any:
    """Convert a value for JSON."""
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value
