"""Approximations: how far their draws' weights are from equal, and where their climbs have ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..diagnostics.approximation import is_approximation
from ..errors import ArgumentError
from ..result.container import attributes, datasets
from . import canvas

if TYPE_CHECKING:
    from ..result.container import InferenceData

_BINS = 50


def plot_approximation(
    idata: InferenceData, *, axes: Any = None, figsize: tuple[float, float] | None = None
) -> np.ndarray:
    """Draw how near an approximation is, or where the climbs of `optimize` have ended.

    Of `laplace` and `pathfinder` it is a histogram of the log ratios of the posterior's density and the
    approximation's at the draws: the narrower, the better; a long tail to the right is what a large Pareto k
    measures. Of `optimize` it is the log density at the end of each climb, in order.

    Parameters
    ----------
    idata
        A result of `optimize`, `laplace` or `pathfinder`.
    axes, figsize
        One of matplotlib's Axes to draw on, or else the size of a new figure in inches.

    Returns
    -------
    numpy.ndarray
        matplotlib's Axes (1,).

    Raises
    ------
    ArgumentError
        The result is none of these.
    """
    groups, attrs = datasets(idata), attributes(idata)
    if not is_approximation(attrs):
        raise ArgumentError(
            "idata has no approximation: a result of optimize, laplace or pathfinder is needed"
        )
    with canvas.style():
        made: np.ndarray = canvas.make_axes(1, 1, axes, figsize, (7.5, 3.0))[0]
        ink = canvas.colours(1)[0]
        if "pareto_k" in attrs:
            stats = groups["sample_stats"]
            ratios = (stats["lp"] - stats["lp_approximation"]).values.ravel()
            ratios = ratios[np.isfinite(ratios)]
            made[0].hist(ratios - np.median(ratios), bins=_BINS, color=ink, alpha=0.6)
            label = "log density of the posterior over that of the approximation, around the median"
            made[0].set(xlabel=label, ylabel="draws", title=f"Pareto k: {float(attrs['pareto_k']):.2f}")
        else:
            heights = np.sort(groups["adaptation"]["climb_lp"].values)[::-1]
            made[0].plot(np.arange(1, len(heights) + 1), heights, "o", color=ink)
            made[0].set(xlabel="climb, the highest first", ylabel="log density at its end")
    return made
