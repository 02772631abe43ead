"""What adaptation did over warm-up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import check
from ..errors import ArgumentError
from ..result.container import OWN_GROUP, datasets
from . import canvas

if TYPE_CHECKING:
    from ..result.container import InferenceData

_BINS = 50  # means that the iterations of a warm-up are shown by, where they were kept and no history was


class _Panel(NamedTuple):
    """How one number of the history is shown."""

    label: str
    log: bool = False


_PANELS = {
    "step_size": _Panel("step size", log=True),
    "acceptance_rate": _Panel("acceptance rate"),
    "preconditioner_trace": _Panel("trace of\npreconditioner", log=True),
    "preconditioner_log_det": _Panel("log determinant of\npreconditioner"),
    "preconditioner_condition": _Panel("condition number of\npreconditioner", log=True),
    "metric_rank": _Panel("rank of metric"),
    "warmup_reward": _Panel("mean reward of\nan episode"),
    "warmup_beta": _Panel("exponent β", log=True),
    "warmup_sigma": _Panel("width of kernel", log=True),
    "warmup_regularisation": _Panel("regularisation", log=True),
    "warmup_fits": _Panel("number of fits"),
}


class _History(NamedTuple):
    """What was noted over warm-up."""

    iterations: np.ndarray  # (n,)
    stages: list[tuple[str, int, int]]  # with their first and last iteration
    columns: dict[str, np.ndarray]  # (chain, n) each
    chains: np.ndarray


def plot_adaptation(
    idata: InferenceData,
    var_names: list[str] | None = None,
    *,
    axes: Any = None,
    figsize: tuple[float, float] | None = None,
) -> np.ndarray:
    """Step size, acceptance and what else was noted of the adaptation, over warm-up, chain by chain.

    The stages of warm-up are shaded in turn. The last mark of each line, to the right of warm-up, is what the
    draws were made with: the frozen step size, and the mean acceptance rate of the draws.

    Parameters
    ----------
    idata
        A result of `stanadapt.sample`.
    var_names
        What to show of the history in the group adaptation; by default all there is: step_size,
        acceptance_rate, trace, log-determinant and condition number of the preconditioner
        (preconditioner_trace, preconditioner_log_det, preconditioner_condition), rewards of a policy
        (warmup_reward), and what else the method notes.
    axes
        Axes to draw on, one for each.
    figsize
        Width and height of a new figure in inches.

    Returns
    -------
    numpy.ndarray
        matplotlib's Axes (numbers,), one below the other.

    Raises
    ------
    ArgumentError
        The result has no history of its warm-up; a name is unknown; or there are not as many axes as are
        needed.
    """
    history = _history(idata)
    names = list(history.columns)
    if var_names is not None:
        wanted = [var_names] if isinstance(var_names, str) else var_names
        names = [check.choice("var_names", name, history.columns) for name in wanted]
    with canvas.style():
        k = len(names)
        made: np.ndarray = canvas.make_axes(k, 1, axes, figsize, (7.5, 0.9 + 1.25 * k), sharex=True)[:, 0]
        for ax, name in zip(made, names, strict=True):
            _draw(ax, name, history)
        made[-1].set_xlabel("iteration of warm-up")
        if axes is None:
            canvas.name_chains(made[0], history.chains)
    return made


def _draw(ax: Any, name: str, history: _History) -> None:
    panel = _PANELS.get(name, _Panel(name.replace("_", " ")))
    for ink, line in zip(canvas.colours(len(history.chains)), history.columns[name], strict=True):
        ax.plot(history.iterations, line, color=ink)
    ax.set_ylabel(panel.label)
    if panel.log:
        ax.set_yscale("log")
    for i, (_, first, last) in enumerate(history.stages):
        if i % 2:
            ax.axvspan(first, last, color=canvas.SHADE, alpha=0.15, lw=0)


def _history(idata: InferenceData) -> _History:
    groups = datasets(idata)
    own = groups.get(OWN_GROUP)
    if own is None or "note" not in own.dims:
        raise ArgumentError("idata has no history of a warm-up in the group adaptation")
    iterations = own["iteration"].values
    columns = {
        str(name): own[name].values
        for name in own.data_vars
        if own[name].dims == ("chain", "note") and not np.all(np.isnan(own[name].values))
    }
    order = [
        *(name for name in _PANELS if name in columns),
        *(name for name in columns if name not in _PANELS),
    ]
    stages: list[tuple[str, int, int]] = []
    for name, end in zip(own["stage"].values, iterations, strict=True):
        if stages and stages[-1][0] == name:
            stages[-1] = (name, stages[-1][1], int(end))
        else:
            stages.append((str(name), stages[-1][2] if stages else 0, int(end)))
    return _History(iterations, stages, {name: columns[name] for name in order}, own["chain"].values)
