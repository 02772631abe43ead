"""The energy of trajectories: is it explored as widely as it is distributed?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..diagnostics.statistics import column, e_bfmi
from ..errors import ArgumentError
from ..result.container import datasets

if TYPE_CHECKING:
    from ..result.container import InferenceData

_BINS = 60


def plot_energy(idata: InferenceData) -> Any:
    """Histograms of the energy and of its changes from draw to draw, of all chains.

    Betancourt (2016), Diagnosing Suboptimal Cotangent Disintegrations in Hamiltonian Monte Carlo: chains move
    between energies by changes of the momentum alone, so where the changes are much narrower than the
    distribution of the energy, they explore the tails slowly. Draws that ended in a divergence are marks on
    the axis.

    Parameters
    ----------
    idata
        A result of a Hamiltonian method, with sample_stats/energy.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    ArgumentError
        The result has no energy.
    """
    from matplotlib import pyplot

    groups = datasets(idata)
    stats = groups.get("sample_stats")
    energy = None if stats is None else column(stats, "energy", np.sum)
    if stats is None or energy is None or energy.shape[1] < 2:
        raise ArgumentError("idata has no energy: a result of a Hamiltonian method is needed")
    _, axes = pyplot.subplots(figsize=(8.0, 3.2), layout="constrained")
    centred, changes = energy - energy.mean(), np.diff(energy, axis=1)
    finite = [part[np.isfinite(part)] for part in (centred, changes)]
    low, high = np.quantile(np.concatenate(finite), [0.001, 0.999])
    bins = np.linspace(low, high, _BINS + 1).tolist() if high > low else _BINS
    for part, label in zip(finite, ("energy, centred", "changes from draw to draw"), strict=True):
        axes.hist(part, bins=bins, density=True, histtype="stepfilled", alpha=0.45, label=label)
    diverging = column(stats, "diverging", np.any)
    if diverging is not None and diverging.any():
        ended = centred[diverging.astype(bool)]
        axes.plot(
            ended, np.zeros_like(ended), "|", color="C3", markersize=14, label="divergences", clip_on=False
        )
    axes.set(xlabel="energy", ylabel="density", yticks=[])
    shown = ", ".join(f"{value:.2f}" for value in e_bfmi(energy)[:8])
    axes.legend(title=f"E-BFMI of the chains: {shown}", fontsize="small", title_fontsize="small")
    return axes
