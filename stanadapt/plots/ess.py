"""Effective sample sizes against draws and against time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .. import check
from ..diagnostics.convergence import FEWEST, convergence
from ..diagnostics.statistics import rows_of, select
from ..diagnostics.worst import find_worst
from ..errors import ArgumentError
from . import canvas

if TYPE_CHECKING:
    from ..result.container import InferenceData

_POINTS = 20


def plot_ess(
    idata: InferenceData,
    var_names: list[str] | None = None,
    *,
    most: int = 4,
    axes: Any = None,
    figsize: tuple[float, float] | None = None,
) -> np.ndarray:
    """Bulk and tail effective sample sizes of the worst quantities against draws, and against time.

    Returns
    -------
    numpy.ndarray
        matplotlib's Axes (2,), against draws and against time; or (1,) where no time is known.
    """
    most = check.integer("most", most, 1, 100)
    posterior = select(idata, var_names)
    n = posterior.sizes["draw"]
    if n < FEWEST:
        raise ArgumentError("idata has too few draws for effective sample sizes")
    quantities = find_worst(posterior, most)
    draws = rows_of(posterior, [each.row for each in quantities]).astype(float)
    counts = np.unique(np.linspace(FEWEST, n, _POINTS).astype(int))
    found = [convergence(np.ascontiguousarray(draws[:, :, :count])) for count in counts]
    bulk, tail = np.array([[each.ess_bulk, each.ess_tail] for each in found]).transpose(1, 2, 0)
    time = float(posterior.attrs.get("sampling_time", np.nan))
    columns = 1 if np.isnan(time) else 2
    with canvas.style():
        made: np.ndarray = canvas.make_axes(1, columns, axes, figsize, (4.5 * columns, 3.4))[0]
        for ax, scale in zip(made, (posterior.sizes["chain"], time / n), strict=False):
            for ink, quantity, one, other in zip(
                canvas.colours(len(quantities)), quantities, bulk, tail, strict=True
            ):
                ax.plot(counts * scale, one, color=ink, label=canvas.plain(quantity.name))
                ax.plot(counts * scale, other, color=ink, ls="--")
        made[0].set_xlabel("draws of all chains")
        made[0].set_ylabel("effective sample size")
        made[0].legend()
        if columns == 2:
            made[1].set_xlabel("time in seconds")
    return made
