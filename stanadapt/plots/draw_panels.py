"""Traces, ranks and densities of single quantities, which ArviZ draws: the file where its versions differ.

ArviZ 0.23 draws on axes that it is given. ArviZ 1 draws on a PlotCollection, which is made of such axes here.
Both get quantities under names of ours, since those of users may be none that they take.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import xarray

from ..result.container import container, has_datatree, pictures
from .canvas import GREY, colours

RANKED = 500  # draws of a chain that ArviZ 1 ranks; its test takes half a minute where there are 10,000
_TRACE, _DENSITY = {"alpha": 0.8, "linewidth": 0.5}, {"linewidth": 1.2}


def draw_chains(
    draws: np.ndarray,
    diverging: np.ndarray | None,
    traces: np.ndarray,
    ranks: np.ndarray,
    densities: np.ndarray,
) -> None:
    """Traces, ranks and densities of k quantities, in a colour for each chain.

    A rank plot compares chains by the ranks of their draws among those of all chains (Vehtari et al. 2021).
    ArviZ 0.23 counts the ranks in bins; ArviZ 1 shows their distribution less the uniform one.

    Parameters
    ----------
    draws
        (k, chain, draw).
    diverging
        (chain, draw), or None: trajectories that diverged, which the traces mark at their lower edge.
    traces, ranks, densities
        (k,) axes each.
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
        warnings.simplefilter("ignore")  # constants and infinite draws have no density, which titles tell
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


def _middles(draws: np.ndarray, finite: np.ndarray) -> np.ndarray:
    """The medians (k, chain, 1) of the finite draws of chains; 0 where there are none."""
    middles = np.zeros((*draws.shape[:2], 1))
    for place in np.ndindex(*draws.shape[:2]):
        if finite[place].any():
            middles[place] = np.median(draws[place][finite[place]])
    return middles


def _leave_gaps(ax: Any, draws: np.ndarray, finite: np.ndarray) -> None:
    """Gaps in the traces of chains (chain, draw), where ArviZ was given a number in the place of none."""
    lines = [line for line in ax.lines if len(line.get_xdata()) == draws.shape[1]]
    for line, row, known in zip(lines, draws, finite, strict=True):
        line.set_ydata(np.where(known, row, np.nan))


def rank_labels() -> tuple[str, str]:
    """What the two axes of a rank plot show."""
    return (
        ("fractional rank", "ECDF − uniform") if has_datatree() else ("rank of all draws", "draws in a bin")
    )


def _draw_on_axes(
    groups: dict[str, xarray.Dataset], traces: np.ndarray, ranks: np.ndarray, densities: np.ndarray
) -> None:
    """With ArviZ 0.23."""
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
    """With ArviZ 1."""
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
        ):  # a test of uniformity, which cannot be asked to stay away
            artist.remove()
        ax.axhline(0.0, color=GREY, lw=0.8, zorder=0)
