"""Effective sample sizes against draws and against time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xarray

from .. import check
from ..diagnostics.convergence import FEWEST, convergence
from ..diagnostics.scalars import ESS_PER_CHAIN
from ..diagnostics.statistics import rows_of, select
from ..diagnostics.worst import Ranking
from ..errors import ArgumentError
from ..result.container import OWN_GROUP, datasets
from . import canvas

if TYPE_CHECKING:
    from ..result.container import InferenceData

_POINTS = 25  # numbers of draws for which it computes the sizes


class _Time(NamedTuple):
    """Seconds of a run."""

    whole: float
    warmup: float


def plot_ess(
    idata: InferenceData,
    var_names: list[str] | None = None,
    *,
    most: int = 4,
    axes: Any = None,
    figsize: tuple[float, float] | None = None,
) -> np.ndarray:
    """Draw bulk and tail effective sample sizes against draws, and against time.

    The picture shows the quantities with the smallest bulk and tail sizes in turn and, in black, the quantity
    with the median bulk size. If chains mix, the sizes grow in proportion to the draws. If a size levels off
    or decreases, the chains have found something new and disagree. The dashed line is the size that
    `diagnose` asks for: 100 a chain.

    Parameters
    ----------
    idata
        A result of `stanadapt.sample`, or anything with a posterior in ArviZ's schema.
    var_names
        Variables of the posterior to choose from; by default all that hold numbers.
    most
        Largest number of quantities with small sizes.
    axes
        Axes to draw on: four, or two if the result does not say how long the run took.
    figsize
        Width and height of a new figure in inches.

    Returns
    -------
    numpy.ndarray
        matplotlib's Axes (2, 2): bulk in the upper row and tail in the lower one, against the draws of all
        chains on the left and against seconds since the run began on the right. The seconds are those of the
        attribute sampling_time, for the whole run with compiling; the times that chains took for warm-up and
        draws divide them. Without that attribute the shape is (2, 1).

    Raises
    ------
    ArgumentError
        The result has too few draws, a variable is unknown, or the number of axes is wrong.
    """
    most = check.integer("most", most, 1, 100)
    posterior = select(idata, var_names)
    n, chains = posterior.sizes["draw"], posterior.sizes["chain"]
    if n < FEWEST:
        raise ArgumentError(f"idata has {n} draws a chain: effective sample sizes need {FEWEST}")
    ranking = Ranking(posterior)
    worst = ranking.slowest(most)
    middle = [each for each in ranking.median() if each.row not in {other.row for other in worst}]
    shown = [*worst, *middle]
    inks = [*canvas.colours(len(worst)), *["black"] * len(middle)]
    labels = [canvas.plain(each.name) for each in worst]
    labels += [f"{canvas.plain(each.name)} (median of {len(ranking.names):,})" for each in middle]
    draws = rows_of(posterior, [each.row for each in shown])
    counts = np.unique(np.linspace(max(FEWEST, n / _POINTS), n, _POINTS).astype(int))
    sizes = _sizes(draws, counts)
    time = _time(idata, posterior)
    columns = 1 if time is None else 2
    with canvas.style():
        size = (1.0 + 4.2 * columns, 5.2)
        made = canvas.make_axes(2, columns, axes, figsize, size, sharey="row", sharex="col")
        for row, found, kind in zip(made, sizes, ("bulk", "tail"), strict=True):
            for ax, place in zip(row, _places(counts, n, chains, time), strict=True):
                for ink, label, line in zip(inks, labels, found, strict=True):
                    ax.plot(place, line, color=ink, label=label)
                wanted = f"{ESS_PER_CHAIN} a chain"
                ax.axhline(ESS_PER_CHAIN * chains, color=canvas.GREY, lw=0.9, ls="--", label=wanted)
                ax.set_ylim(bottom=0.0)
                ax.set_xlim(left=0.0)
            row[0].set_ylabel(f"{kind} effective sample size")
        made[1, 0].set_xlabel("draws of all chains")
        if time is not None:
            _show_time(made[:, 1], time)
        if axes is None:
            handles, names = made[0, 0].get_legend_handles_labels()
            made[0, 0].figure.legend(handles, names, loc="outside lower center", ncols=min(3, len(names)))
    return made


def _sizes(draws: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Compute bulk and tail sizes (2, k, counts) of the first draws of each chain (k, chain, draw)."""
    with np.errstate(all="ignore"):  # draws may be infinite, NaN or constant
        found = [convergence(np.ascontiguousarray(draws[:, :, :count], float)) for count in counts]
    return np.array([[each.ess_bulk, each.ess_tail] for each in found]).transpose(1, 2, 0)


def _places(counts: np.ndarray, n: int, chains: int, time: _Time | None) -> list[np.ndarray]:
    """Place the numbers of draws on each axis."""
    places = [counts * chains]
    if time is not None:
        places.append(time.warmup + (time.whole - time.warmup) * counts / n)
    return places


def _show_time(axes: np.ndarray, time: _Time) -> None:
    """Shade warm-up, which gives no draws."""
    for ax in axes:
        ax.axvspan(0.0, time.warmup, color=canvas.SHADE, alpha=0.16, lw=0)
    axes[1].set_xlabel("seconds since the run began")
    if time.warmup > 0.12 * time.whole:
        axes[0].text(
            0.5 * time.warmup,
            0.5,
            "warm-up",
            transform=axes[0].get_xaxis_transform(),
            ha="center",
            va="center",
            fontsize=7.5,
            color=canvas.NOTE,
        )


def _time(idata: InferenceData, posterior: xarray.Dataset) -> _Time | None:
    """Return how long the run took, and its warm-up if that is known; None if nothing is known."""
    whole = posterior.attrs.get("sampling_time")
    if not isinstance(whole, int | float | np.number) or not whole > 0.0:
        return None
    own = datasets(idata).get(OWN_GROUP, xarray.Dataset())
    share = 0.0
    if {"seconds_warmup", "seconds_total"} <= set(own.data_vars):
        total = float(own["seconds_total"].sum())
        share = float(own["seconds_warmup"].sum()) / total if total > 0.0 else 0.0
    return _Time(float(whole), share * float(whole))
