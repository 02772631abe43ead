"""Traces, ranks and densities of single quantities. ArviZ draws them, and this file handles its two versions.

ArviZ 0.23 draws on given axes. ArviZ 1 draws on a PlotCollection, which this file makes from the axes. Both
get the quantities as q0, q1, ..., because ArviZ does not accept every name that users choose.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import xarray

from ..result.container import container, has_datatree, pictures
from .canvas import GREY, colours

RANKED = 500  # most draws of a chain that ArviZ 1 ranks; its test takes half a minute for 10,000
_FLAT = 3.0  # densities get one height if one of them is more than so many times as high as another
_TRACE, _DENSITY = {"alpha": 0.8, "linewidth": 0.5}, {"linewidth": 1.2}


def draw_chains(
    draws: np.ndarray,
    diverging: np.ndarray | None,
    traces: np.ndarray,
    ranks: np.ndarray,
    densities: np.ndarray,
) -> list[bool]:
    """Draw traces, ranks and densities of k quantities, in a colour for each chain.

    A rank plot compares chains by the ranks of their draws among those of all chains (Vehtari et al. 2021).
    ArviZ 0.23 counts the ranks in bins; ArviZ 1 shows their ECDF minus the uniform one.

    Parameters
    ----------
    draws
        (k, chain, draw).
    diverging
        Which trajectories (chain, draw) diverged, or None. The traces mark them at their lower edge.
    traces, ranks, densities
        Three arrays (k,) of axes.

    Returns
    -------
    list of bool
        For each quantity, whether the densities of its chains were all rescaled to one height.
    """
    k, chains, n = draws.shape
    if draws.dtype == bool:
        draws = draws.astype(int)
    finite = np.isfinite(draws)
    full = np.where(finite, draws, _middles(draws, finite)) if not finite.all() else draws
    coords = {"chain": np.arange(chains), "draw": np.arange(n)}
    dims = ("chain", "draw")
    groups = {"posterior": xarray.Dataset({f"q{i}": (dims, full[i]) for i in range(k)}, coords=coords)}
    if diverging is not None and diverging.any():
        groups["sample_stats"] = xarray.Dataset({"diverging": (dims, diverging)}, coords=coords)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # ArviZ warns of constants and infinite draws; the titles tell that
        draw = _draw_on_collections if has_datatree() else _draw_on_axes
        draw(groups, traces, ranks, densities)
    for ax, rows, known in zip(traces, draws, finite, strict=True):
        if not known.all():
            _leave_gaps(ax, rows, known)
    for ax in densities:
        ax.set_title("")
        ax.set_yticks([])
        for line in ax.lines:
            if line.get_marker() == "|":  # the divergences
                line.set(alpha=0.3, markersize=9)
    for ax in (*traces, *ranks, *densities):
        ax.tick_params(labelsize=8)
    return [_rescale_densities(ax) for ax in densities]


def _rescale_densities(ax: Any) -> bool:
    """Give all densities one height if, beside the highest one, another would look like a flat line.

    The density of a chain that hardly moves is narrow, and so it is high. Returns whether the densities were
    rescaled.
    """
    lines = [line for line in ax.lines if line.get_marker() != "|"]
    heights = np.array([np.max(line.get_ydata(), initial=0.0) for line in lines])
    if len(lines) < 2 or not heights.min() > 0.0 or heights.max() <= _FLAT * heights.min():
        return False
    for line, height in zip(lines, heights, strict=True):
        line.set_ydata(np.asarray(line.get_ydata()) / height)
    for marks in set(ax.lines) - set(lines):
        marks.set_ydata(np.zeros_like(marks.get_ydata()))
    ax.set_ylim(0.0, 1.08)
    return True


def _middles(draws: np.ndarray, finite: np.ndarray) -> np.ndarray:
    """Return the median of the finite draws of each chain (k, chain, 1); 0 if it has none."""
    middles = np.zeros((*draws.shape[:2], 1))
    for place in np.ndindex(*draws.shape[:2]):
        if finite[place].any():
            middles[place] = np.median(draws[place][finite[place]])
    return middles


def _leave_gaps(ax: Any, draws: np.ndarray, finite: np.ndarray) -> None:
    """Cut gaps into traces (chain, draw) at draws that are not finite: ArviZ got chain medians there."""
    lines = [line for line in ax.lines if len(line.get_xdata()) == draws.shape[1]]
    for line, row, known in zip(lines, draws, finite, strict=True):
        line.set_ydata(np.where(known, row, np.nan))


def rank_labels() -> tuple[str, str]:
    """Return the labels of the two axes of a rank plot."""
    return (
        ("fractional rank", "ECDF − uniform") if has_datatree() else ("rank of all draws", "draws in a bin")
    )


def _draw_on_axes(
    groups: dict[str, xarray.Dataset], traces: np.ndarray, ranks: np.ndarray, densities: np.ndarray
) -> None:
    """Draw all panels with ArviZ 0.23."""
    arviz, result = pictures(), container(groups)
    inks = colours(groups["posterior"].sizes["chain"])
    arviz.plot_trace(
        result,
        axes=np.array([densities, traces], dtype=object).T,
        compact=False,
        divergences="bottom",
        chain_prop={"color": inks},
        trace_kwargs=dict(_TRACE),
        plot_kwargs=dict(_DENSITY),
        show=False,
    )
    arviz.plot_rank(
        result,
        ax=ranks,
        kind="vlines",
        colors=inks,
        labels=False,
        ref_line_kwargs={"color": GREY, "lw": 0.8},
        vlines_kwargs={"lw": 1.2},
        marker_vlines_kwargs={"marker": "o", "ms": 3, "lw": 0},
        show=False,
    )


def _draw_on_collections(
    groups: dict[str, xarray.Dataset], traces: np.ndarray, ranks: np.ndarray, densities: np.ndarray
) -> None:
    """Draw all panels with ArviZ 1."""
    arviz, result, data = pictures(), container(groups), groups["posterior"]
    inks = colours(data.sizes["chain"])

    def collection(axes: np.ndarray) -> Any:
        places = {
            name: xarray.DataArray(np.array(ax, dtype=object))
            for name, ax in zip(data.data_vars, axes, strict=True)
        }
        figure = xarray.Dataset({"figure": np.array(axes[0].figure, dtype=object)})
        held = xarray.DataTree(figure, children={"plot": xarray.DataTree(xarray.Dataset(places))})
        aes = {"color": ["chain"], "overlay": ["chain"]}
        return arviz.PlotCollection(data, held, aes=aes, backend="matplotlib", color=inks)

    def without(*visuals: str) -> dict[str, Any]:
        return dict.fromkeys(("title", "xlabel", *visuals), False)

    arviz.plot_trace(
        result,
        plot_collection=collection(traces),
        visuals=without("ticklabels") | {"trace": {"alpha": 0.8, "width": 0.5}},
    )
    arviz.plot_dist(
        result,
        kind="kde",
        plot_collection=collection(densities),
        aes_by_visuals={"dist": ["color", "overlay"]},
        visuals={"dist": {"width": 1.2}, "title": False, "remove_axis": False}
        | dict.fromkeys(("credible_interval", "point_estimate", "point_estimate_text"), False),
        sample_dims=["draw"],
    )
    every = -(-data.sizes["draw"] // RANKED)
    arviz.plot_rank(
        container({"posterior": data.isel(draw=slice(None, None, every))}),
        plot_collection=collection(ranks),
        visuals=without("remove_axis") | {"ecdf_lines": {"width": 1.0}},
    )
    for ax in ranks:
        for artist in (
            *ax.texts,
            *ax.collections,
        ):  # ArviZ's test of uniformity; no option leaves it out
            artist.remove()
        ax.axhline(0.0, color=GREY, lw=0.8, zorder=0)
