"""The energy of trajectories: do the chains explore all of its distribution?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..diagnostics.statistics import column, e_bfmi
from ..errors import ArgumentError
from ..result.container import datasets
from . import canvas

if TYPE_CHECKING:
    from ..result.container import InferenceData

_BINS = 60
_SHARE = 0.001  # share of each tail that the histogram leaves out
_NAMED = 8  # the legend gives the E-BFMI of up to so many chains


def plot_energy(
    idata: InferenceData, *, axes: Any = None, figsize: tuple[float, float] | None = None
) -> np.ndarray:
    """Draw histograms of the energy and of its changes from draw to draw, for all chains together.

    Betancourt (2016), Diagnosing Suboptimal Cotangent Disintegrations in Hamiltonian Monte Carlo: only a new
    momentum moves a chain to another energy. If the changes are much narrower than the distribution of the
    energy, the chains explore the tails slowly. Marks on the axis show draws that ended in a divergence.

    Parameters
    ----------
    idata
        A result of a Hamiltonian method, with sample_stats/energy.

    axes, figsize
        One of matplotlib's Axes to draw on, or else the size of a new figure in inches.

    Returns
    -------
    numpy.ndarray
        matplotlib's Axes (1,).

    Raises
    ------
    ArgumentError
        The result has no energy.
    """
    stats = datasets(idata).get("sample_stats")
    energy = None if stats is None else column(stats, "energy", np.sum)
    if stats is None or energy is None or energy.shape[1] < 2:
        raise ArgumentError("idata has no energy: a result of a Hamiltonian method is needed")
    centred, changes = energy - np.nanmean(energy), np.diff(energy, axis=1)
    parts = [part[np.isfinite(part)] for part in (centred, changes)]
    low, high = np.quantile(np.concatenate(parts), [_SHARE, 1.0 - _SHARE])
    bins = np.linspace(low, high, _BINS + 1) if high > low else _BINS
    ended = column(stats, "diverging", np.any)
    with canvas.style():
        made: np.ndarray = canvas.make_axes(1, 1, axes, figsize, (7.5, 3.0))[0]
        inks = canvas.colours(len(parts) + 1)
        for part, ink, label in zip(parts, inks, ("energy", "changes from draw to draw"), strict=False):
            made[0].hist(part, bins=bins, density=True, histtype="stepfilled", color=ink, alpha=0.4)
            made[0].hist(part, bins=bins, density=True, histtype="step", color=ink, label=label)
        if ended is not None and ended.any():
            marks = centred[ended.astype(bool)]
            heights = np.zeros_like(marks)
            made[0].plot(marks, heights, "|", color=inks[-1], markersize=14, label="divergences")
        shown = ", ".join(f"{value:.2f}" for value in e_bfmi(energy)[:_NAMED])
        more = ", ..." if len(energy) > _NAMED else ""
        made[0].set(xlabel="energy around its mean", ylabel="density", yticks=[], xlim=(low, high))
        made[0].legend(title=f"E-BFMI: {shown}{more}")
    return made
