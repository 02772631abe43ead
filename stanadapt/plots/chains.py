"""Traces, ranks and densities of the worst quantities."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .. import check
from ..diagnostics.statistics import column, rows_of, select
from ..diagnostics.worst import Quantity, Ranking
from ..errors import ArgumentError
from ..result.container import datasets
from . import canvas
from .draw_panels import draw_chains, rank_labels

if TYPE_CHECKING:
    from ..result.container import InferenceData


def plot_chains(
    idata: InferenceData,
    var_names: list[str] | None = None,
    *,
    most: int = 4,
    axes: Any = None,
    figsize: tuple[float, float] | None = None,
) -> np.ndarray:
    """Draw traces, ranks and densities of the worst quantities, chain by chain.

    Each quantity has a row. The quantities with findings of `diagnose` come first: the worst one for every
    kind of finding, then the second of every kind. Titles say what is wrong. If chains lie so far apart that
    one density is more than three times as high as another, each density has its own scale.

    Parameters
    ----------
    idata
        A result of `stanadapt.sample`, or anything with a posterior in ArviZ's schema.
    var_names
        Variables of the posterior to choose from; by default all that hold numbers.
    most
        Largest number of quantities.
    axes
        Axes to draw on, three for each quantity.
    figsize
        Width and height of a new figure in inches.

    Returns
    -------
    numpy.ndarray
        matplotlib's Axes (quantities, 3): the trace, the ranks and the density.

    Raises
    ------
    ArgumentError
        The result has no draws, a variable is unknown, or the number of axes is wrong.
    """
    most = check.integer("most", most, 1, 100)
    posterior = select(idata, var_names)
    if not posterior.sizes["draw"]:
        raise ArgumentError("idata has no draws: its posterior is empty")
    quantities = Ranking(posterior).worst(most)
    draws = rows_of(posterior, [each.row for each in quantities])
    with canvas.style():
        k = len(quantities)
        made = canvas.make_axes(k, 3, axes, figsize, (9.5, 0.7 + 1.55 * k), width_ratios=(2.2, 1, 1))
        diverging = _diverging(idata)
        are_rescaled = draw_chains(draws, diverging, made[:, 0], made[:, 1], made[:, 2])
        for quantity, row in zip(quantities, made, strict=True):
            row[0].set_title(_title(quantity))
            row[0].margins(x=0.01)
        across, up = rank_labels()
        for ax, label in zip(made[-1], ("draw", across, "value"), strict=True):
            ax.set_xlabel(label)
        for ax in made[:, 1]:
            ax.set_ylabel(up)
        for ax, is_rescaled in zip(made[:, 2], are_rescaled, strict=True):
            ax.set_ylabel("density, own scales" if is_rescaled else "density")
        if axes is None:
            marks = {"divergence": {"marker": "|", "color": "black", "ms": 9}}
            shows = diverging is not None and diverging.any()
            canvas.name_chains(made[0, 0], posterior["chain"].values, marks if shows else None)
    return made


def _diverging(idata: InferenceData) -> np.ndarray | None:
    """Return which trajectories (chain, draw) diverged; None if the result does not say."""
    stats = datasets(idata).get("sample_stats")
    found = None if stats is None else column(stats, "diverging", np.any)
    return None if found is None else found.astype(bool)


def _title(quantity: Quantity) -> str:
    """Name a quantity, and say what is wrong with it or in which respect it is the worst."""
    if quantity.faults:
        return f"{canvas.plain(quantity.name)}: {', '.join(quantity.faults)}"
    told = (
        f"R-hat {quantity.r_hat:.3f}" + " (the largest)" * quantity.is_extreme[0],
        f"bulk ESS {quantity.ess_bulk:,.0f}" + " (the smallest)" * quantity.is_extreme[1],
        f"tail ESS {quantity.ess_tail:,.0f}" + " (the smallest)" * quantity.is_extreme[2],
    )
    return f"{canvas.plain(quantity.name)}: {', '.join(told)}"
