"""Draws the race for the front page, from the table of rates in the README of the benchmarks.

The picture in examples/pictures has a line for each posterior and is as tall as a page. This one has a line
for each other sampler, so that it fits beside the first lines of the site. It is drawn twice: for light pages
and for dark ones.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter
from sphinx.application import Sphinx

from method_pages import BENCHMARKS

OURS = "fisher_hmc"
PEERS = {  # as the table names them, and as readers know them
    "nutpie_low_rank": "nutpie, low rank",
    "stan_dense": "Stan, dense",
    "nutpie": "nutpie",
    "stan_diag": "Stan, diagonal",
}
SECTION = "## The race against other samplers"
TABLE = "| posterior | d |"
LARGEST = 100.0  # ratio: the race counts larger ones, of samplers that got stuck, as this one
INKS = {"light": ("#23272e", "#8c2532", "#5b8db8"), "dark": ("#d5d9e0", "#f0919b", "#86c5ef")}


def rates(text: str) -> dict[str, np.ndarray]:
    """Effective draws a second of each sampler on every posterior of the table; NaN for capped runs."""
    start = text.index(TABLE, text.index(SECTION))
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text[start : text.index("\n\n", start)].split("\n")
    ]
    columns = {name: i for i, name in enumerate(rows[0])}
    return {name: np.array([_number(row[columns[name]]) for row in rows[2:]]) for name in (OURS, *PEERS)}


def _number(cell: str) -> float:
    """The first number of a cell; NaN for one such as `(2 capped)`."""
    found = re.match(r"[\d,.]+", cell)
    return float(found[0].replace(",", "")) if found else float("nan")


def draw(found: dict[str, np.ndarray], ink: str, line: str, dots: str) -> Figure:
    """A dot for each posterior: by how much our rate is larger; a bar at the geometric mean."""
    figure = Figure(figsize=(5.6, 2.9), layout="constrained")
    ax = figure.subplots()
    for place, name in enumerate(PEERS):
        ratio = np.clip(found[OURS] / found[name], 1.0 / LARGEST, LARGEST)
        ratio = np.sort(ratio[np.isfinite(ratio)])
        height = place + 0.17 * np.sin(2.4 * np.arange(len(ratio)))  # so that dots lie beside each other
        ax.plot(ratio, height, "o", ms=4.2, color=dots, alpha=0.65, mew=0)
        middle = float(np.exp(np.log(ratio).mean()))
        ax.plot([middle, middle], [place - 0.34, place + 0.34], color=line, lw=2.5)
        ax.text(middle, place - 0.38, f"{middle:.2g} times", ha="center", va="bottom", fontsize=9, color=line)
    ax.axvline(1.0, color=ink, lw=1)
    ax.set_xscale("log")
    ax.xaxis.set_major_locator(FixedLocator([1, 2, 5, 10, 20, 50, 100]))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set_xlim(0.7, 1.15 * LARGEST)
    ax.set_ylim(len(PEERS) - 0.55, -0.75)
    ax.set_yticks(range(len(PEERS)), list(PEERS.values()))
    ax.set_xlabel(f"{OURS}: times as many effective draws a second")
    ax.tick_params(colors=ink, which="both")
    ax.tick_params(axis="y", length=0)
    ax.xaxis.label.set_color(ink)
    for side, spine in ax.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(ink)
    return figure


def _write(app: Sphinx) -> None:
    folder = Path(app.srcdir) / "_build" / "pictures"
    folder.mkdir(parents=True, exist_ok=True)
    found = rates(BENCHMARKS.read_text(encoding="utf-8"))
    for scheme, inks in INKS.items():
        draw(found, *inks).savefig(folder / f"race_{scheme}.png", dpi=200, transparent=True)


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("builder-inited", _write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
