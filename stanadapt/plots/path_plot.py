"""The path of parallel tempering: how often neighbours are exchanged, and the way of a replica along it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ArgumentError
from ..result.container import datasets
from . import canvas

if TYPE_CHECKING:
    from ..result.container import InferenceData

_MOST = 400  # draws of the way that are shown


def plot_path(
    idata: InferenceData, *, axes: Any = None, figsize: tuple[float, float] | None = None
) -> np.ndarray:
    """Draw the rates of exchanges along the path of `tempered`, and the way of a replica.

    Above is how often exchanges between neighbours are refused, from the broad reference on the left over the
    posterior, where the line is, to the fitted reference on the right. A schedule that is learnt makes the
    rates of a leg nearly equal; their sum is its barrier. Below is the rung that replica 0 of each chain is
    on, draw after draw. It should go from end to end many times, and stay nowhere.

    Parameters
    ----------
    idata
        A result of `stanadapt.sample` with `method="tempered"`.
    axes
        Two of matplotlib's Axes to draw on.
    figsize
        Width and height of a new figure in inches.

    Returns
    -------
    numpy.ndarray
        matplotlib's Axes (2,).

    Raises
    ------
    ArgumentError
        The result is of another method, or its path has one rung only.
    """
    groups = datasets(idata)
    group, stats = groups.get("tempering"), groups.get("sample_stats")
    if group is None or stats is None or "rung" not in stats or group.sizes.get("neighbours", 0) == 0:
        raise ArgumentError("idata has no path of rungs: a result of method='tempered' is needed")
    labels = group["chain"].values
    rates, weights = group["refusal_rate"].values, group["weights"].values
    ways = stats["rung"].values[:, :_MOST]
    with canvas.style():
        made: np.ndarray = canvas.make_axes(2, 1, axes, figsize, (7.5, 5.0))[:, 0]
        inks = canvas.colours(len(labels))
        for i, label in enumerate(labels):
            known = np.isfinite(rates[i])
            places = np.arange(known.sum()) + 0.5 - _cold(weights[i])
            made[0].plot(places, rates[i][known], "o-", color=inks[i], markersize=3, label=f"chain {label}")
            made[1].plot(ways[i] - _cold(weights[i]), color=inks[i], linewidth=0.7, label=f"chain {label}")
        made[0].axvline(0.0, color=canvas.GREY, linewidth=0.8)
        made[1].axhline(0.0, color=canvas.GREY, linewidth=0.8)
        made[0].set(xlabel="rung (the posterior is 0)", ylabel="exchanges refused", ylim=(0.0, 1.0))
        made[1].set(xlabel="draw", ylabel="rung of one replica")
        made[0].xaxis.get_major_locator().set_params(integer=True)
        made[1].yaxis.get_major_locator().set_params(integer=True)
        made[0].set_title("broad reference on the left, fitted one on the right")
        if axes is None:
            canvas.name_chains(made[0], labels)
    return made


def _cold(weights: np.ndarray) -> int:
    """The posterior's rung of a chain, from its weights (K, 3)."""
    return int(np.flatnonzero(weights[:, 2] == 1.0)[0])
