"""What learned coordinates undo: latents of a field against a head, before and after."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import check
from ..errors import ArgumentError
from ..result.container import OWN_GROUP, Groups, datasets
from ..transport.composition import is_map, points_in_z
from ..transport.effects_table import Effects, log_scales_at
from ..transport.field import Field, features_at
from ..transport.field_table import factors_in, fields_of, has_weights, innovations_of, split
from ..transport.innovations import into_u
from ..transport.map_table import COLUMNS, KIND
from ..transport.weights_table import Weights, weights_of
from . import canvas
from .preconditioner import find_parameters

if TYPE_CHECKING:
    from ..result.container import InferenceData

Law = Field | Effects | Weights

_MOST = 1_000  # draws of each chain that are shown
_RASTER = 2_000  # a scatter of more points becomes an image in SVG


class _Draws(NamedTuple):
    """Of the chains with a field, in x and in z."""

    x: np.ndarray  # (chain, draw, d), with series in place of their innovations
    z: np.ndarray
    laws: list[Law]  # of the latents, in the first of these chains
    heads: np.ndarray  # coordinates that are heads in all of these chains
    latents: np.ndarray  # likewise
    places: np.ndarray  # (chain,) their places among all chains


def plot_field(
    idata: InferenceData,
    var_names: list[str] | None = None,
    *,
    head: str | None = None,
    most: int = 3,
    axes: Any = None,
    figsize: tuple[float, float] | None = None,
) -> np.ndarray:
    """Draw latents of a field against a head, before and after the learned coordinates undo what ties them.

    A head is a parameter, such as a log scale, on which the law of the latents depends. Above is a latent
    minus its linear regression on those neighbours on which its law depends, which is what a sampler with a
    metric alone can make of it. Where its spread or its place changes with the head, no metric fits. Below is
    the learned coordinate, where neither should change. Chains without a field are left out.

    Parameters
    ----------
    idata
        A result of `stanadapt.sample` with `method="fisher_hmc"` and `keep_unconstrained=True`.
    var_names
        Latents, or variables with all of their entries; by default those whose scales depend most on it.
    head
        The head, by its unconstrained name; by default the one on which the scales of latents depend most.
    most
        Largest number of latents.
    axes
        Axes to draw on, two for each latent.
    figsize
        Width and height of a new figure in inches.

    Returns
    -------
    numpy.ndarray
        matplotlib's Axes (2, k): a column for each latent, without its regression above and in the learned
        coordinate below.

    Raises
    ------
    ArgumentError
        The result has no latent field or no unconstrained draws, a name is unknown, or the number of axes is
        wrong.
    """
    most = check.integer("most", most, 1, 20)
    groups = datasets(idata)
    drawn = _read(groups)
    own = groups[OWN_GROUP]
    names = own["unconstrained"].values
    heads, latents = _heads(drawn, names, head), _latents(drawn, names, var_names)
    strengths = _strengths(drawn)[np.ix_(heads, latents)]
    row = int(np.argmax(np.square(strengths).mean(axis=1)))
    chosen = latents[np.argsort(-strengths[row], kind="stable")[:most]].tolist()
    with canvas.style():
        k = len(chosen)
        made: np.ndarray = canvas.make_axes(2, k, axes, figsize, (1.2 + 2.4 * k, 5.4))
        inks = [canvas.colours(own.sizes["chain"])[i] for i in drawn.places]
        height, label = drawn.x[..., heads[row]], canvas.plain(names[heads[row]])
        for (above, below), j in zip(made.T, chosen, strict=True):
            _scatter(above, _without_regression(drawn, j), height, inks)
            _scatter(below, drawn.z[..., j], height, inks)
            above.set_xlabel(f"{canvas.plain(names[j])} minus its regression")
            below.set_xlabel(f"{canvas.plain(names[j])}, learned coordinate")
        for ax, title in zip(made[:, 0], ("given its neighbours", "where the chains moved"), strict=True):
            ax.set_ylabel(label)
            ax.set_title(title)
        if axes is None:
            canvas.name_chains(made[0, 0], own["chain"].values)
    return made


def _heads(drawn: _Draws, names: np.ndarray, head: str | None) -> np.ndarray:
    """The heads, or the one that is asked for."""
    if head is None:
        return drawn.heads
    check.choice("head", head, dict.fromkeys(str(names[i]) for i in drawn.heads))
    return np.asarray(drawn.heads[names[drawn.heads] == head])


def _latents(drawn: _Draws, names: np.ndarray, var_names: list[str] | None) -> np.ndarray:
    """The latents, or those that are asked for."""
    if var_names is None:
        return drawn.latents
    wanted = find_parameters(names, var_names)
    wanted = wanted[np.isin(wanted, drawn.latents)]
    if not wanted.size:
        raise ArgumentError("var_names: none of them is a latent of the field in all chains that have one")
    return wanted


def _strengths(drawn: _Draws) -> np.ndarray:
    """How much the log scale of a coordinate changes over two standard deviations of a head (d, d)."""
    d = drawn.x.shape[2]
    strengths = np.zeros((d, d))
    for law in drawn.laws:
        points = drawn.x[..., law.heads].reshape(-1, len(law.heads))
        middle, spread = points.mean(axis=0), points.std(axis=0)
        for place, head in enumerate(law.heads):
            move = np.zeros(len(law.heads))
            move[place] = spread[place]
            change = _log_scales(law, middle + move) - _log_scales(law, middle - move)
            strengths[head, law.own.ravel()] = np.abs(change)
    return strengths


def _log_scales(law: Law, theta: np.ndarray) -> np.ndarray:
    """s (n,) of the law at the heads `theta` (m,)."""
    if isinstance(law, Effects):
        return log_scales_at(law, theta).ravel()
    if isinstance(law, Weights):
        return law.log_deviations(theta)
    constant, *others = law.coefficients[0]
    return np.asarray(
        constant + (law.bases[0] @ features_at(theta, law)) @ np.reshape(others, (-1, constant.size))
    )


def _without_regression(drawn: _Draws, j: int) -> np.ndarray:
    """Draws (chain, draw) of a latent minus its linear regression on the later latents that its law has."""
    x, law = drawn.x, next(law for law in drawn.laws if j in law.own)
    if isinstance(law, Effects):
        group = law.own[np.any(law.own == j, axis=1)].ravel()
        neighbours = group[group != j]
    elif isinstance(law, Weights):
        neighbours = law.own[law.own != j]
    else:
        row = int(np.flatnonzero(law.own == j)[0])
        neighbours = law.own[law.later[law.starts[row] : law.starts[row + 1]]]
        if law.frame.size:
            neighbours = np.delete(law.own, row)
    points = x[..., [j, *neighbours]].reshape(-1, 1 + len(neighbours))
    points = points - points.mean(axis=0)
    found = np.linalg.lstsq(points[:, 1:], points[:, 0])[0]
    return np.asarray(points[:, 0] - points[:, 1:] @ found).reshape(x.shape[:2])


def _scatter(ax: Any, across: np.ndarray, up: np.ndarray, inks: list[Any]) -> None:
    """Draw values (chain, draw) of a latent against those of a head, a colour for each chain."""
    thinned = slice(None, None, -(-across.shape[1] // _MOST))
    for points, heights, ink in zip(across, up, inks, strict=True):
        few = {"s": 4, "lw": 0, "alpha": 0.4, "rasterized": across.size > _RASTER}
        ax.scatter(points[thinned], heights[thinned], color=ink, **few)


def _read(groups: Groups) -> _Draws:
    """Read the draws of the chains that have a field with heads, and move them to its coordinates."""
    own = groups.get(OWN_GROUP)
    if own is None or "transport" not in own:
        raise ArgumentError("idata has no latent field: the chains moved in the coordinates of the program")
    tables = np.asarray(own["transport"].values, float)
    names = own["unconstrained"].values
    d = len(names)
    if tables.ndim != 3 or tables.shape[2] != COLUMNS:
        raise ArgumentError(f"idata: its transport has shape {tables.shape}, and it is no map")
    maps = [np.ascontiguousarray(table[np.isfinite(table[:, KIND])]) for table in tables]
    if not all(is_map(table, d) for table in maps):
        raise ArgumentError(f"idata: its transport is no map of {d} coordinates")
    fields = [split(table)[0] for table in maps]
    first = {i: _laws_of_latents(rows) for i, rows in enumerate(fields) if len(rows)}
    laws = {i: own for i, own in first.items() if len(own[0].heads)}
    if not laws:
        raise ArgumentError("idata has no latent field with heads: no chain has learned one")
    places = np.array([*laws])
    heads, latents = (
        _common([np.concatenate([getattr(law, part).ravel() for law in own]) for own in laws.values()])
        for part in ("heads", "own")
    )
    if not (heads.size and latents.size):
        raise ArgumentError("idata has no latent field with a head that all chains have in common")
    group = groups.get("unconstrained_posterior")
    if group is None or "x" not in group or group["x"].shape[::2] != (len(tables), d):
        raise ArgumentError(
            "idata has no unconstrained draws, from which this picture is made: draw with "
            "keep_unconstrained=True"
        )
    x = np.asarray(group["x"].values, float)[places]
    z = np.array([points_in_z(maps[i], draws) for i, draws in zip(places, x, strict=True)])
    for i, draws in zip(places, x, strict=True):
        series = innovations_of(fields[i])
        if len(series):
            for draw in draws:
                into_u(series, draw)
    return _Draws(x, z, laws[int(places[0])], heads, latents, places)


def _laws_of_latents(rows: np.ndarray) -> list[Law]:
    """The laws of the latents, of the effects of each factor or of weights, among rows that hold these."""
    if has_weights(rows):
        return [weights_of(rows)]
    return [*factors_in(rows), *fields_of(rows)[0]]


def _common(coordinates: list[np.ndarray]) -> np.ndarray:
    """Those that are in all lists, in order."""
    return functools.reduce(np.intersect1d, coordinates)
