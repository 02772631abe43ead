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

_TRACE, _DENSITY = {"alpha": 0.8, "linewidth": 0.5}, {"linewidth": 1.2}


def draw_chains(draws: np.ndarray, traces: np.ndarray, ranks: np.ndarray, densities: np.ndarray) -> None:
    """Draws (k, chain, draw) of k quantities in a colour for each chain; a quantity has an axes of each kind.

    A rank plot compares chains by the ranks of their draws among those of all chains (Vehtari et al. 2021).
    ArviZ 0.23 counts the ranks in bins; ArviZ 1 shows their distribution less the uniform one.
    """
    k, chains, n = draws.shape
    coords = {"chain": np.arange(chains), "draw": np.arange(n)}
    data = xarray.Dataset({f"q{i}": (("chain", "draw"), draws[i]) for i in range(k)}, coords=coords)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter(
            "ignore"
        )  # constants and infinite draws have no density, which the picture says
        if has_datatree():
            _draw_on_collections(data, traces, ranks, densities)
        else:
            _draw_on_axes(data, traces, ranks, densities)


def _draw_on_axes(data: xarray.Dataset, traces: np.ndarray, ranks: np.ndarray, densities: np.ndarray) -> None:
    """With ArviZ 0.23."""
    arviz, inks = pictures(), colours(data.sizes["chain"])
    pairs = np.array([densities, traces], dtype=object).T
    arviz.plot_trace(
        data,
        axes=pairs,
        compact=False,
        divergences=False,
        chain_prop={"color": inks},
        trace_kwargs=dict(_TRACE),
        plot_kwargs=dict(_DENSITY),
        show=False,
    )
    arviz.plot_rank(
        data,
        ax=np.array(ranks, dtype=object),
        kind="vlines",
        colors=inks,
        labels=False,
        ref_line_kwargs={"color": GREY, "lw": 0.8},
        vlines_kwargs={"lw": 1.2},
        marker_vlines_kwargs={"marker": "o", "ms": 3, "lw": 0},
        show=False,
    )


def _draw_on_collections(
    data: xarray.Dataset, traces: np.ndarray, ranks: np.ndarray, densities: np.ndarray
) -> None:
    """With ArviZ 1."""
    arviz, tree = pictures(), container({"posterior": data})
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

    bare = dict.fromkeys(("title", "xlabel", "ticklabels", "divergence"), False)
    arviz.plot_trace(
        tree, plot_collection=collection(traces), visuals=bare | {"trace": {"alpha": 0.8, "width": 0.5}}
    )
    nothing = dict.fromkeys(
        ("title", "remove_axis", "credible_interval", "point_estimate", "point_estimate_text"), False
    )
    arviz.plot_dist(
        tree,
        kind="kde",
        plot_collection=collection(densities),
        aes_by_visuals={"dist": ["color", "overlay"]},
        visuals=nothing | {"dist": {"width": 1.2}},
        sample_dims=["draw"],
    )
    arviz.plot_rank(
        tree,
        plot_collection=collection(ranks),
        method="envelope",  # the newer test takes minutes of 20,000 draws
        visuals={"title": False, "xlabel": False, "remove_axis": False, "ecdf_lines": {"width": 1.0}},
    )
