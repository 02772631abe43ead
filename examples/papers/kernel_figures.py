"""Figures 2 to 4 of Strathmann et al. (2015), drawn by `python examples/papers/kernel_hmc.py --figures`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from scipy import stats

from ess import autocorrelation
from figures import COLOURS, new_figure, save, tidy

NAMES = {"hmc": "HMC", "kmc_finite": "KMC finite", "kamh": "KAMH", "rwm": "RW"}


def figure_2(rows: pd.DataFrame, _: dict[str, Any]) -> None:
    dims, sizes = sorted(set(rows["d"])), sorted(set(rows["n"]))
    means = rows.pivot_table("kmc", "d", "n", "mean")
    figure, ((image, by_dim, by_size),) = new_figure(12, 3.4, 1, 3)
    shown = image.imshow(means, vmin=0, vmax=1, cmap="viridis", origin="lower", aspect="auto")
    image.set_xticks(range(len(sizes)), [str(n) for n in sizes])
    image.set_yticks(range(len(dims)), [str(d) for d in dims])
    for i, d in enumerate(dims):
        for j, n in enumerate(sizes):
            value = means.loc[d, n]
            image.text(
                j, i, f"{value:.2f}", ha="center", va="center", fontsize=8, color="w" if value < 0.7 else "k"
            )
    figure.colorbar(shown, ax=image, shrink=0.9).ax.tick_params(labelsize=7)
    tidy(image, "acceptance of KMC finite", "n = m, points and features", "dimension d")
    n, d = max(sizes), 8 if 8 in dims else max(dims)
    slices(by_dim, rows[rows["n"] == n], "d")
    tidy(by_dim, f"n = m = {n}", "dimension d", "acceptance")
    slices(by_size, rows[rows["d"] == d], "n")
    tidy(by_size, f"d = {d}", "n = m", "acceptance")
    by_dim.legend(fontsize=8, loc="lower left")
    save(figure, "kernel_hmc_figure_2")


def slices(axes: Axes, rows: pd.DataFrame, along: str) -> None:
    """Means over trials, and the ranges that half of them and nine tenths of them are in."""
    groups = rows.groupby(along)
    x = np.array(sorted(set(rows[along])))
    for low, high, alpha, label in ((0.05, 0.95, 0.15, "KMC, 5% to 95%"), (0.25, 0.75, 0.3, "25% to 75%")):
        bounds = [groups["kmc"].quantile(q).to_numpy() for q in (low, high)]
        axes.fill_between(x, *bounds, color=COLOURS["KMC finite"], alpha=alpha, lw=0, label=label)
    axes.plot(x, groups["kmc"].mean(), "o-", ms=3, color=COLOURS["KMC finite"], label="KMC, mean")
    axes.plot(x, groups["hmc"].mean(), "s--", ms=3, color=COLOURS["HMC"], label="HMC, mean")
    axes.set_xscale("log")
    axes.set_xticks(x, [str(value) for value in x])
    axes.minorticks_off()
    axes.set_ylim(0, 1.02)


def figure_3(rows: pd.DataFrame, _: dict[str, Any]) -> None:
    columns = {"acceptance": "acceptance", "norm_of_mean": "norm of the mean", "min_ess": "minimum ESS"}
    figure, (panels,) = new_figure(12, 3.4, 1, 3)
    widest = rows["n"].max()
    for axes, (column, title) in zip(panels, columns.items(), strict=True):
        for method, of_method in rows.groupby("method", sort=False):
            name = NAMES[str(method)]
            if of_method["n"].max() == 0:  # no n: a band over the panel
                median, (low, high) = of_method[column].median(), of_method[column].quantile([0.1, 0.9])
                axes.axhline(median, color=COLOURS[name], ls="--", lw=1.2, label=name)
                axes.axhspan(low, high, color=COLOURS[name], alpha=0.08, lw=0)
                continue
            groups = of_method.groupby("n")[column]
            x, median = np.array(list(groups.groups)), groups.median()
            bars = [median - groups.quantile(0.1), groups.quantile(0.9) - median]
            axes.errorbar(x, median, bars, fmt="o-", ms=3, capsize=2, color=COLOURS[name], label=name)
        axes.set_xlim(0, 1.03 * widest)
        tidy(axes, title, "n = m, points and features")
    panels[0].set_ylim(0, 1)
    panels[1].set_yscale("log")
    panels[2].set_yscale("log")
    panels[0].legend(fontsize=8, loc="upper left", ncols=2)
    save(figure, "kernel_hmc_figure_3")


def median_and_range(axes: Axes, x: np.ndarray, curves: np.ndarray, label: str) -> None:
    """The median over repeats (r, k), and the range of the middle three fifths."""
    low, median, high = np.quantile(curves, [0.2, 0.5, 0.8], axis=0)
    axes.fill_between(x, low, high, color=COLOURS[label], alpha=0.15, lw=0)
    axes.plot(x, median, color=COLOURS[label], lw=1.5, label=label)


def figure_4_left(_: pd.DataFrame, curves: dict[str, Any]) -> None:
    figure, ((axes,),) = new_figure(5.5, 3.6, 1, 1)
    at = curves.pop("at")
    for label, paths in curves.items():
        median_and_range(axes, at, paths, label)
    axes.set_yscale("log")
    axes.legend(fontsize=8)
    tidy(axes, "Glass: distance from a long run", "iteration", "squared MMD, moments up to order 3")
    save(figure, "kernel_hmc_figure_4_left")


def figure_4_right(_: pd.DataFrame, curves: dict[str, Any]) -> None:
    figure, ((lags, marginal),) = new_figure(10, 3.4, 1, 2)
    exact = curves.pop("exact")[:, 0]
    grid = np.linspace(exact.mean() - 5 * exact.std(), exact.mean() + 5 * exact.std(), 300)
    marginal.fill_between(grid, stats.gaussian_kde(exact[:10_000])(grid), color="0.85", lw=0, label="exact")
    for label, draws in curves.items():
        correlations = np.array([autocorrelation(x[:, 0])[:100] for x in draws])
        median_and_range(lags, np.arange(100), correlations, label)
        pooled = np.concatenate([x[:, 0] for x in draws])
        marginal.plot(grid, stats.gaussian_kde(pooled)(grid), color=COLOURS[label], lw=1.5, label=label)
    lags.set_ylim(-0.1, 1)
    lags.legend(fontsize=8)
    marginal.legend(fontsize=8)
    marginal.set_ylim(bottom=0)
    tidy(lags, "ABC: autocorrelation of theta_1", "lag")
    tidy(marginal, "ABC: marginal of theta_1", "theta_1", "density")
    save(figure, "kernel_hmc_figure_4_right")


DRAW: dict[int, Callable[[pd.DataFrame, dict[str, Any]], None]] = {
    1: figure_2,
    2: figure_3,
    3: figure_4_left,
    4: figure_4_right,
}
