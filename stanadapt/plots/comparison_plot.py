"""A comparison of methods: their efficiency, and how well they agree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from ..diagnostics.table import three_figures
from . import canvas

if TYPE_CHECKING:
    import pandas

_RATES = (
    ("per_second", "smallest bulk ESS per second"),
    ("per_1000", "smallest bulk ESS per 1000 evaluations"),
)
_MOST_POINTS = 2_000  # for each method in the panel of z: the largest ones, and some of the others
_ROW = 0.34  # inches


def plot_comparison(
    table: pandas.DataFrame,
    runs: pandas.DataFrame,
    estimates: pandas.DataFrame,
    limit: float,
    *,
    axes: Any = None,
    figsize: tuple[float, float] | None = None,
) -> np.ndarray:
    """Draw a comparison; see `Comparison.plot`.

    Each method has a dot, which is hollow if the method has not converged, and a bar from its worst repeat to
    its best one, on logarithmic axes. In the third panel each dot is a statistic of a quantity. Chance does
    not explain dots beyond the dashed lines; a dot there is orange unless heavy tails or few effective draws
    explain it.

    Returns
    -------
    numpy.ndarray
        matplotlib's Axes (3,).
    """
    labels = list(table.index)
    places = np.arange(len(labels))
    with canvas.style():
        default = (11.0, 1.3 + _ROW * max(len(labels), 3))
        made: np.ndarray = canvas.make_axes(1, 3, axes, figsize, default, sharey=axes is None)[0]
        for ax, (unit, title) in zip(made[:2], _RATES, strict=True):
            _draw_rates(ax, labels, table, runs, f"ess_bulk_min_{unit}")
            ax.set_xlabel(title)
        if not table["converged"].all():
            made[0].set_title("hollow: not converged")
        _draw_distances(made[2], labels, table, estimates, limit)
        for ax in made:
            ax.set_yticks(places, [canvas.plain(label) for label in labels])
            ax.set_ylim(len(labels) - 0.4, -0.6)  # the first method on top
            ax.tick_params(axis="y", length=0)
    return made


def _draw_rates(
    ax: Any, labels: list[str], table: pandas.DataFrame, runs: pandas.DataFrame, column: str
) -> None:
    values = table[column].to_numpy(float)
    known = {place: float(value) for place, value in enumerate(values) if value > 0.0}
    if not known:
        ax.set_xlim(0.0, 1.0)
        ax.text(0.5, 0.5, "no figures", transform=ax.transAxes, ha="center", color=canvas.NOTE)
        return
    for place, value in known.items():
        of_runs = runs.loc[[labels[place]], column].to_numpy(float)
        of_runs = of_runs[of_runs > 0.0]
        ax.plot([of_runs.min(), of_runs.max()], [place, place], lw=4, color=canvas.COLOURS[4], alpha=0.6)
        trusted = bool(table.at[labels[place], "converged"])
        face = canvas.COLOURS[0] if trusted else "none"
        ax.plot(value, place, "o", ms=7, mec=canvas.COLOURS[0], mfc=face, mew=1.3)
        # The numbers stand in a column at the right, so that readers can compare them.
        shown = canvas.plain(three_figures(value))
        ax.text(1.0, place, shown, transform=ax.get_yaxis_transform(), ha="right", va="center", fontsize=8)
    low, high = min(known.values()), max(known.values())
    room = max(np.log10(high / low), 1.0)
    ax.set_xlim(low / 10 ** (0.12 * room), high * 10 ** (0.5 * room))
    canvas.set_log(ax, "x")
    ax.grid(axis="x", lw=0.5, alpha=0.4)


def _draw_distances(
    ax: Any, labels: list[str], table: pandas.DataFrame, estimates: pandas.DataFrame, limit: float
) -> None:
    largest, level = 0.0, 2.0 * stats.norm.sf(limit)
    for place, label in enumerate(labels):
        own = estimates[(estimates["method"] == label) & estimates["z"].notna()]
        if own.empty:
            continue
        shown, p_values = own["z"].to_numpy(float), own["p_value"].to_numpy(float)
        order = np.argsort(-np.abs(shown))
        if len(order) > _MOST_POINTS:
            order = np.concatenate((order[:50], order[50 :: len(order) // _MOST_POINTS]))
        shown, beyond = shown[order], p_values[order] < level
        largest = max(largest, float(np.abs(shown).max()))
        # Shifts that depend on the rank keep dots of one value apart without random numbers.
        height = place + 0.26 * np.sin(np.arange(len(shown)) * 2.4)
        trusted = bool(table.at[label, "converged"])
        for part, ink in ((~beyond, canvas.COLOURS[0]), (beyond, canvas.COLOURS[1])):
            face = ink if trusted else "none"
            ax.plot(shown[part], height[part], "o", ms=3.2, mec=ink, mfc=face, mew=0.6, alpha=0.75)
    for side in (-limit, limit):
        ax.axvline(side, color=canvas.GREY, ls="--", lw=1)
    ax.axvline(0.0, color=canvas.GREY, lw=0.8)
    edge = 1.15 * max(largest, limit)
    ax.set_xlim(-edge, edge)
    if edge > 50.0:
        ax.set_xscale("symlog", linthresh=limit)
    ax.set_xlabel("z of means, sds and quantiles")
    ax.set_title("between the dashed lines: chance")
