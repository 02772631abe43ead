"""Learned preconditioners: correlations, scales, and how well chains agree on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xarray
from scipy.cluster import hierarchy
from scipy.spatial.distance import squareform

from .. import check
from ..diagnostics.origin import facts_of
from ..errors import ArgumentError
from ..model.variables import variable_of
from ..result.container import OWN_GROUP, datasets
from . import canvas

if TYPE_CHECKING:
    from ..result.container import InferenceData

_MATRIX, _DIAGONAL = "preconditioner", "preconditioner_diagonal"
_RASTER = 2_000  # a scatter of more points becomes an image in SVG


class _Learned(NamedTuple):
    """The preconditioners of chains for k parameters."""

    names: np.ndarray  # (k,)
    scales: np.ndarray  # (chain, k) standard deviations
    correlations: np.ndarray | None  # (chain, k, k); None if the result has only a diagonal
    chains: np.ndarray  # (chain,) their names
    places: np.ndarray  # (chain,) their places among all chains

    def part(self, rows: np.ndarray) -> _Learned:
        """Select some of the parameters, in this order."""
        held = self.correlations
        kept = None if held is None else held[:, rows[:, None], rows]
        return self._replace(names=self.names[rows], scales=self.scales[:, rows], correlations=kept)


def plot_preconditioner(
    idata: InferenceData,
    var_names: list[str] | None = None,
    *,
    most: int = 40,
    axes: Any = None,
    figsize: tuple[float, float] | None = None,
) -> np.ndarray:
    """Draw the correlations and scales of the learned preconditioner, and how well chains agree on them.

    Parameters are on the unconstrained scale or, if Fisher HMC moves in learned coordinates, in these.
    Correlations are means over chains, and correlated parameters stand side by side (average linkage of one
    minus the absolute correlation, with the optimal order of leaves).

    Parameters
    ----------
    idata
        A result of `stanadapt.sample`.
    var_names
        Parameters, or variables with all of their entries; by default all parameters.
    most
        Largest number of parameters in the map. If there are more, the map shows those with the largest
        correlations or, for a diagonal, those with the largest and the smallest scales.
    axes
        Axes to draw on, three for a matrix and two for a diagonal.
    figsize
        Width and height of a new figure in inches.

    Returns
    -------
    numpy.ndarray
        matplotlib's Axes (3,): the map of correlations; the scales (standard deviations) that each chain
        learned for the same parameters; and the correlations of each chain against their mean. The shape is
        (2,) for one parameter, and for a result that has only the diagonal, as from nuts and from Fisher HMC
        in more than 1,000 dimensions: the scales, and the scales of each chain against their mean.

    Raises
    ------
    ArgumentError
        The method learns no preconditioner, a parameter is unknown, or the number of axes is wrong.
    """
    most = check.integer("most", most, 2, 1_000)
    own = datasets(idata).get(OWN_GROUP)
    if own is None or not {_MATRIX, _DIAGONAL} & set(own.data_vars):
        raise ArgumentError("idata has no preconditioner: the method learns none")
    learned = _read_preconditioners(own)
    learned = learned.part(find_parameters(learned.names, var_names))
    if len(learned.names) == 1:
        learned = learned._replace(correlations=None)
    facts = facts_of(own.attrs)
    is_relative = facts is not None and facts.unscaled
    if is_relative:  # chains agree if their scales are equal up to a factor
        middle = np.exp(np.log(learned.scales).mean(axis=1, keepdims=True))
        learned = learned._replace(scales=learned.scales / middle)
    label = "scale, relative to the mean" if is_relative else "scale (standard deviation)"
    with canvas.style():
        if learned.correlations is None:
            made = _draw_diagonal(learned, label, most, axes, figsize)
        else:
            made = _draw_matrix(learned, learned.correlations, label, most, axes, figsize)
        if own.attrs.get("coordinates"):
            made[0].set_title(f"{made[0].get_title(loc='left')}, in learned coordinates")
        if axes is None:
            canvas.name_chains(made[0], own["chain"].values)
    return made


def _draw_matrix(
    learned: _Learned, correlations: np.ndarray, label: str, most: int, axes: Any, figsize: Any
) -> np.ndarray:
    """Draw the map, the scales beside it, and the agreement of correlations."""
    shown = learned.part(_choose_parameters(correlations.mean(axis=0), most))
    k, d = len(shown.names), len(learned.names)
    side = max(2.6, 0.14 * k)
    grid = {"width_ratios": (side + 0.6, 1.6, 2.5)}
    made: np.ndarray = canvas.make_axes(1, 3, axes, figsize, (side + 6.1, side + 1.4), **grid)[0]
    pairs = correlations[:, *np.triu_indices(d, 1)]
    limit = min(1.0, np.ceil(10.0 * np.abs(pairs).max(initial=0.1)) / 10.0)
    _draw_map(made[0], shown, limit)
    made[0].set_title(
        "correlations" if k == d else f"the {k} of {d:,} parameters with the largest correlations"
    )
    _draw_scales(made[1], shown, label)
    made[1].set_yticks([])
    made[1].set_ylim(made[0].get_ylim())
    _draw_agreement(made[2], pairs, learned, "correlation", f"{_rms(pairs - pairs.mean(axis=0)):.2g}")
    made[2].set(xlim=(-limit, limit), ylim=(-limit, limit))
    return made


def _draw_map(ax: Any, shown: _Learned, limit: float) -> None:
    """Draw the mean correlations of chains as colours, without the diagonal, which is 1."""
    k = len(shown.names)
    mean = np.zeros((k, k)) if shown.correlations is None else shown.correlations.mean(axis=0)
    np.fill_diagonal(mean, np.nan)
    image = ax.imshow(mean, cmap=canvas.DIVERGING, vmin=-limit, vmax=limit, aspect="auto")
    ax.set_facecolor("0.85")
    _name_rows(ax, shown.names)
    ax.set_xticks([])
    ax.spines[:].set_visible(False)
    bar = ax.figure.colorbar(image, ax=ax, location="bottom", shrink=0.7, aspect=35, pad=0.03)
    bar.outline.set_visible(False)
    bar.set_label("correlation, mean of chains")


def _draw_diagonal(learned: _Learned, label: str, most: int, axes: Any, figsize: Any) -> np.ndarray:
    """Draw the largest and smallest scales, and the agreement of all scales."""
    d = len(learned.names)
    order = np.argsort(-np.log(learned.scales).mean(axis=0), kind="stable")
    cut = d > most
    shown = learned.part(np.concatenate((order[: most // 2], order[d - most // 2 :])) if cut else order)
    k = len(shown.names)
    size = (8.5, 1.5 + max(2.6, 0.135 * k))
    made: np.ndarray = canvas.make_axes(1, 2, axes, figsize, size)[0]
    _draw_scales(made[0], shown, label)
    made[0].set_ylim(k - 0.5, -0.5)
    _name_rows(made[0], shown.names)
    made[0].set_title(f"the {most // 2} largest and smallest of {d:,}" if cut else "scales of parameters")
    if cut:
        made[0].axhline(most // 2 - 0.5, color=canvas.GREY, lw=0.8, ls="--")
    logs = np.log(learned.scales)
    share = 100.0 * np.expm1(_rms(logs - logs.mean(axis=0)))
    _draw_agreement(made[1], learned.scales, learned, "scale", f"{share:.2g} %")
    canvas.set_log(made[1], "x", "y")
    return made


def _draw_scales(ax: Any, shown: _Learned, label: str) -> None:
    """Draw the scales of each chain, one parameter below the other."""
    inks = canvas.colours(shown.places.max() + 1)
    for place, row in zip(shown.places, shown.scales, strict=True):
        ax.scatter(row, np.arange(len(row)), color=inks[place], s=10, lw=0, alpha=0.85)
    if shown.scales.max() > 5.0 * shown.scales.min():
        canvas.set_log(ax, "x")
    ax.set_xlabel(label)
    ax.grid(axis="y", lw=0.3, alpha=0.5)
    ax.set_axisbelow(True)


def _draw_agreement(ax: Any, values: np.ndarray, learned: _Learned, what: str, difference: str) -> None:
    """Draw values (chain, n) against their means over chains."""
    inks, mean = canvas.colours(learned.places.max() + 1), values.mean(axis=0)
    for place, row in zip(learned.places, values, strict=True):
        ax.scatter(mean, row, color=inks[place], s=5, lw=0, alpha=0.5, rasterized=row.size > _RASTER)
    ax.axline((0.0, 0.0), (1.0, 1.0), color=canvas.GREY, lw=0.8, ls="--", zorder=0)
    ax.set_aspect("equal", anchor="N")
    ax.set_xlabel(f"{what}, mean of chains")
    ax.set_ylabel(f"{what} of each chain")
    ax.set_title(f"chains differ by {difference} (rms)" if len(values) > 1 else "a single chain")


def _name_rows(ax: Any, names: np.ndarray) -> None:
    """Write the names of parameters on the left, in a size that fits."""
    size = 7.5 if len(names) <= 30 else 6.0 if len(names) <= 60 else 4.0
    labels = [canvas.plain(name) for name in names] if len(names) <= 120 else []
    ax.set_yticks(np.arange(len(labels)), labels, fontsize=size)
    ax.tick_params(axis="y", length=0)


def _read_preconditioners(own: xarray.Dataset) -> _Learned:
    """Read the preconditioners of all chains that have finite ones."""
    names, chains = own["unconstrained"].values, own["chain"].values
    if _MATRIX not in own:
        variances, matrices = own[_DIAGONAL].values, None
    else:
        matrices = own[_MATRIX].values
        variances = np.einsum("cii->ci", matrices)
    usable = np.isfinite(variances if matrices is None else matrices).reshape(len(chains), -1).all(axis=1)
    places = np.flatnonzero(usable & (variances > 0.0).all(axis=1))
    if not places.size:
        raise ArgumentError("idata has no preconditioner: no chain learned one with finite variances")
    scales = np.sqrt(variances[places])
    if matrices is not None:
        matrices = matrices[places] / scales[:, :, None] / scales[:, None, :]
    return _Learned(names, scales, matrices, chains[places], places)


def find_parameters(names: np.ndarray, var_names: Any) -> np.ndarray:
    """Find parameters by their own names or by those of their variables; return their places."""
    if var_names is None:
        return np.arange(len(names))
    wanted = check.names("var_names", var_names, "parameters")
    variables = np.array([variable_of(str(name)) for name in names])
    rows: dict[int, None] = {}
    for name in wanted:
        check.choice("var_names", name, dict.fromkeys([*variables, *map(str, names)]))
        rows |= dict.fromkeys(np.flatnonzero((names == name) | (variables == name)).tolist())
    return np.array([*rows], int)


def _choose_parameters(mean: np.ndarray, most: int) -> np.ndarray:
    """Choose up to `most` parameters with the largest correlations, correlated ones side by side."""
    k = len(mean)
    away = np.abs(mean - np.diag(np.diag(mean)))
    rows = np.arange(k)
    if k > most:
        rows = np.sort(np.argsort(-away.max(axis=0), kind="stable")[:most])
    if len(rows) < 3:
        return rows
    far = 1.0 - np.minimum(1.0, away[np.ix_(rows, rows)])
    far = 0.5 * (far + far.T)
    np.fill_diagonal(far, 0.0)
    tree = hierarchy.linkage(squareform(far, checks=False), "average", optimal_ordering=True)
    return np.asarray(rows[hierarchy.leaves_list(tree)])


def _rms(values: np.ndarray) -> float:
    """Compute the root mean square, without rounding errors; it is 0 for an empty array."""
    return round(float(np.sqrt(np.square(values).mean())), 12) if values.size else 0.0
