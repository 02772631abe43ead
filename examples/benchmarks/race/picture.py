"""The race and the scaling as pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from .bars import rates
from .scaling import costs

COLOURS = {  # of Okabe and Ito, told apart by colour-blind readers too
    "stan_diag": "#999999",
    "stan_dense": "#000000",
    "nutpie": "#E69F00",
    "nutpie_low_rank": "#F0E442",
    "walnutpie": "#009E73",
    "blackjax": "#56B4E9",
}
OURS = ("#0072B2", "#D55E00", "#CC79A7", "#882255", "#44AA99")
LEAST = 3e-3  # ratios that are smaller, down to the 0 of stuck chains, are drawn here
MARKERS = {True: "o", False: "D"}  # peers, ours


def colours(names: Sequence[str]) -> dict[str, str]:
    mine = [name for name in names if name not in COLOURS]
    return {name: COLOURS.get(name) or OURS[mine.index(name) % len(OURS)] for name in names}


def race(rows: pd.DataFrame, peers: Sequence[str], path: Path) -> None:
    """A line a problem, the dearest gradient on top: ESS/s of every sampler relative to the best peer's."""
    cost = rows.groupby("problem")["gradient_seconds"].median().sort_values()
    names = list(rows["sampler"].unique())
    shown = colours(names)
    chains = sorted(rows["chains"].unique())
    figure = Figure(figsize=(3.2 + 4.2 * len(chains), 1.6 + 0.22 * len(cost)), layout="constrained")
    axes = figure.subplots(1, len(chains), sharey=True, squeeze=False)[0]
    for axis, n in zip(axes, chains, strict=True):
        rate = rates(rows[rows["chains"] == n], "bulk").reindex(cost.index)
        best = rate[[peer for peer in peers if peer in rate]].max(axis=1)
        for name in (name for name in names if name in rate):
            ratio = (rate[name] / best).clip(lower=LEAST)
            is_peer = name in peers
            axis.scatter(
                ratio,
                np.arange(len(cost)),
                s=20 if is_peer else 26,
                marker=MARKERS[is_peer],
                color=shown[name],
                edgecolors="#444444",
                linewidths=0.4,
                label=name,
                zorder=2 if is_peer else 3,
            )
        axis.axvline(1.0, color="#444444", linewidth=0.8, zorder=1)
        axis.set_xscale("log")
        axis.set_title(f"{n} {'chain on one core' if n == 1 else 'chains on two cores'}", fontsize=10)
        axis.set_xlabel(f"min bulk ESS/s relative to the best peer\n({LEAST:g} or less at the left edge)")
        axis.grid(axis="y", color="#DDDDDD", linewidth=0.6)
        axis.set_axisbelow(True)
    shown = {name: f"{1e6 * s:,.0f}" if s > 1e-5 else f"{1e6 * s:.1f}" for name, s in cost.items()}
    labels = [f"{name}  ({micros} µs)" for name, micros in shown.items()]
    axes[0].set_yticks(np.arange(len(cost)), labels, fontsize=8)
    axes[0].set_ylim(-0.7, len(cost) - 0.3)
    handles, texts = axes[0].get_legend_handles_labels()
    figure.legend(handles, texts, loc="outside upper center", ncols=4, fontsize=8, frameon=False)
    figure.savefig(path, dpi=130)


def scaling(rows: pd.DataFrame, peers: Sequence[str], path: Path) -> None:
    """Gradients, and seconds, per effective sample against d; with a line that grows as d^(1/4)."""
    cost, names = costs(rows), list(rows["sampler"].unique())
    shown = colours(names)
    figure = Figure(figsize=(9.5, 4.2), layout="constrained")
    for axis, (what, label) in zip(
        figure.subplots(1, 2),
        (("gradients", "gradients per effective sample"), ("seconds", "seconds per effective sample")),
        strict=True,
    ):
        for name in names:
            if name in cost.index.get_level_values("sampler"):
                of = cost[what].xs(name, level="sampler")
                is_peer = name in peers
                axis.plot(
                    of.index,
                    of,
                    marker=MARKERS[is_peer],
                    markersize=4,
                    color=shown[name],
                    label=name,
                    linestyle="--" if is_peer else "-",
                )
        if what == "gradients" and len(cost):
            d = np.array(sorted(rows["d"].unique()), dtype=float)
            start = cost[what].xs(int(d[0]), level="d").min()
            axis.plot(d, start * (d / d[0]) ** 0.25, color="#444444", linewidth=0.8, label="$d^{1/4}$")
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_xlabel("d")
        axis.set_title(label, fontsize=10)
    handles, texts = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, texts, loc="outside right center", fontsize=8, frameon=False)
    figure.savefig(path, dpi=130)
