"""The history of the adaptation over warm-up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xarray

from .. import check
from ..diagnostics.origin import target_accept
from ..diagnostics.statistics import column
from ..errors import ArgumentError
from ..result.container import OWN_GROUP, Groups, datasets
from . import canvas

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..result.container import InferenceData

_BINS = 50  # the picture shows means over so many bins if the result has iterations and no history
_DECADE = 20.0  # a scale is logarithmic if the largest number is more than so many times the smallest


class _Panel(NamedTuple):
    """The title and the scale of a panel."""

    title: str
    log: bool = False


_PANELS = {
    "step_size": _Panel("step size", log=True),
    "acceptance_rate": _Panel("acceptance rate"),
    "warmup_reward": _Panel("mean reward of the last episode"),
    "preconditioner_trace": _Panel("trace of the preconditioner", log=True),
    "preconditioner_log_det": _Panel("log-determinant of the preconditioner"),
    "preconditioner_condition": _Panel("condition number of the preconditioner", log=True),
    "metric_rank": _Panel("rank of the metric"),
    "warmup_beta": _Panel("β", log=True),
    "warmup_sigma": _Panel("length scale of the kernel", log=True),
    "warmup_regularisation": _Panel("regularisation", log=True),
    "warmup_fits": _Panel("number of fits"),
}


class _History(NamedTuple):
    """The history of warm-up, and the values that the draws used."""

    iterations: np.ndarray  # (n,)
    stages: list[tuple[str, int, int]]  # with their first and last iteration
    columns: dict[str, np.ndarray]  # (chain, n) each
    frozen: dict[str, np.ndarray]  # (chain,) each
    chains: np.ndarray  # their names


def plot_adaptation(
    idata: InferenceData,
    var_names: list[str] | None = None,
    *,
    axes: Any = None,
    figsize: tuple[float, float] | None = None,
) -> np.ndarray:
    """Draw step size, acceptance and the rest of the adaptation's history over warm-up, chain by chain.

    Every second stage of warm-up is shaded. The diamonds to the right of warm-up show the values of the
    draws: the frozen step size, and the mean acceptance rate. During warm-up, each value of the acceptance
    rate is a mean since the previous value; a dashed line shows the rate that the method aims at.

    Parameters
    ----------
    idata
        A result of `stanadapt.sample`. For a result of another program or of the method nuts, the picture
        shows the group warmup_sample_stats.
    var_names
        Names from the history in the group adaptation; by default all that change: step_size,
        acceptance_rate, rewards of a policy (warmup_reward), trace, log-determinant and condition number of
        the preconditioner (preconditioner_trace, preconditioner_log_det, preconditioner_condition), and
        others of the method.
    axes
        Axes to draw on, one for each name.
    figsize
        Width and height of a new figure in inches.

    Returns
    -------
    numpy.ndarray
        matplotlib's Axes (names,), one below the other.

    Raises
    ------
    ArgumentError
        The result has no history of its warm-up, a name is unknown, or the number of axes is wrong.
    """
    groups = datasets(idata)
    history = _history(groups)
    moving = {name: np.nanmin(values) < np.nanmax(values) for name, values in history.columns.items()}
    names = [name for name in moving if moving[name] or not any(moving.values())]
    if var_names is not None:
        wanted = check.names("var_names", var_names, "what the history has")
        names = [check.choice("var_names", name, history.columns) for name in wanted]
    target = target_accept(groups[OWN_GROUP].attrs) if OWN_GROUP in groups else None
    with canvas.style():
        k = len(names)
        made: np.ndarray = canvas.make_axes(k, 1, axes, figsize, (7.5, 0.9 + 1.3 * k), sharex=True)[:, 0]
        for ax, name in zip(made, names, strict=True):
            _draw(ax, name, history)
            if name == "acceptance_rate" and target is not None:
                ax.axhline(target, color=canvas.GREY, lw=0.9, ls="--", zorder=1)
                ax.set_title(f"{ax.get_title(loc='left')} (aim {target:g}, dashed)")
        _name_stages(made[0], history.stages)
        made[-1].set_xlabel("iteration of warm-up")
        if axes is None:
            draws = {"draws": {"marker": "D", "color": canvas.GREY}} if history.frozen else {}
            canvas.name_chains(made[0], history.chains, draws)
    return made


def _draw(ax: Any, name: str, history: _History) -> None:
    """Draw one panel of the history."""
    panel = _PANELS.get(name, _Panel(name.replace("_", " ")))
    lines, end = history.columns[name], history.iterations[-1]
    inks = canvas.colours(len(history.chains))
    alone = {"marker": "o", "ms": 3} if len(history.iterations) < 3 else {}
    for ink, line in zip(inks, lines, strict=True):
        ax.plot(history.iterations, line, color=ink, alpha=0.85, **alone)
    if name in history.frozen:
        ax.scatter([1.025 * end] * len(inks), history.frozen[name], c=inks, marker="D", s=14, lw=0, zorder=3)
    for i, (_, first, last) in enumerate(history.stages):
        if i % 2:
            ax.axvspan(first, last, color=canvas.SHADE, alpha=0.16, lw=0, zorder=0)
    ax.axvline(end, color=canvas.GREY, lw=0.6)
    ax.set_xlim(0, 1.05 * end)
    ax.set_title(panel.title)
    known = lines[np.isfinite(lines)]
    if panel.log and known.size and known.min() > 0.0 and known.max() > _DECADE * known.min():
        canvas.set_log(ax, "y")


def _name_stages(ax: Any, stages: list[tuple[str, int, int]]) -> None:
    """Write the names of stages above the axes, the longest stages first, as long as there is room."""
    height = 14 if len(stages) > 1 else 0
    if not height:
        return
    whole = ax.get_xlim()[1]
    taken: list[tuple[float, float]] = []
    size = ax.get_window_extent().width / ax.figure.dpi * 72.0  # points
    for name, first, last in sorted(stages, key=lambda stage: stage[1] - stage[2]):
        text = name.replace("_", " ")
        half = 0.5 * 4.2 * len(text) / size * whole
        middle = max(0.5 * (first + last), half)
        if any(middle - half < right and middle + half > left for left, right in taken):
            continue
        taken.append((middle - half, middle + half))
        ax.annotate(
            text,
            (middle, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(0, height + 4),
            textcoords="offset points",
            ha="center",
            fontsize=7.5,
            color=canvas.NOTE,
            annotation_clip=False,
        )


def _history(groups: Groups) -> _History:
    """Read the history from the group adaptation, or compute it from kept iterations of warm-up."""
    own, warmup = groups.get(OWN_GROUP), groups.get("warmup_sample_stats")
    stages: list[tuple[str, int, int]] = []
    if own is not None and "note" in own.dims:
        iterations, chains = own["iteration"].values, own["chain"].values
        found = {str(name): own[name].values for name in own.data_vars if own[name].dims == ("chain", "note")}
        for name, end in zip(own["stage"].values, iterations, strict=True):
            if stages and stages[-1][0] == name:
                stages[-1] = (str(name), stages[-1][1], int(end))
            else:
                stages.append((str(name), stages[-1][2] if stages else 0, int(end)))
    elif warmup is not None and warmup.sizes.get("draw", 0):
        iterations, found = _means(warmup)
        chains = warmup["chain"].values
    else:
        raise ArgumentError(
            "idata has no history of a warm-up: the run had none, or the method keeps no history, as nuts; "
            "save_warmup=True keeps the iterations"
        )
    columns = {name: found[name] for name in (*_PANELS, *found) if name in found}
    columns = {name: values for name, values in columns.items() if not np.all(np.isnan(values))}
    return _History(iterations, stages, columns, _frozen(groups, chains), chains)


def _means(warmup: xarray.Dataset) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return the ends of bins of iterations, and the means (chain, bin) of step size and acceptance."""
    n = warmup.sizes["draw"]
    ends = np.unique(np.linspace(0, n, min(_BINS, n) + 1).astype(int))[1:]
    starts = np.append(0, ends[:-1])
    found = {}
    for name in ("step_size", "acceptance_rate"):
        rows = column(warmup, name, np.mean)
        if rows is not None:
            found[name] = np.add.reduceat(rows, starts, axis=1) / (ends - starts)
    thin = int(warmup.attrs.get("thin", 1))
    return ends * thin, found


def _frozen(groups: Mapping[str, xarray.Dataset], chains: np.ndarray) -> dict[str, np.ndarray]:
    """Return the values of the draws: the last step size, and the mean acceptance rate (chain,)."""
    stats = groups.get("sample_stats")
    if stats is None or not stats.sizes.get("draw", 0) or not np.array_equal(stats["chain"].values, chains):
        return {}
    found = {}
    steps, rates = column(stats, "step_size", np.mean), column(stats, "acceptance_rate", np.mean)
    if steps is not None:
        found["step_size"] = steps[:, -1]
    if rates is not None:
        found["acceptance_rate"] = rates.mean(axis=1)
    return found
