"""What learned coordinates undo: latents of a field against a head, before and after."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.stats import rankdata

from .. import check
from ..errors import ArgumentError
from ..result.container import OWN_GROUP, Groups, datasets
from ..transport.composition import is_map, transport_draws
from ..transport.field import describe, header_of
from ..transport.map_table import COLUMNS, KIND
from . import canvas
from .preconditioner import find_parameters

if TYPE_CHECKING:
    from ..result.container import InferenceData

_LATENT, _HEAD = 1, 2  # roles of coordinates
_MOST = 1_000  # draws of each chain that are shown
_RASTER = 2_000  # a scatter of more points becomes an image in SVG


class _Draws(NamedTuple):
    """Of the chains with a field, in x and in z."""

    x: np.ndarray  # (chain, draw, d)
    z: np.ndarray
    role: np.ndarray  # (d,) that the coordinates have in all of these chains, else 0
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
    """Draw latents of a field against a head, as the program has them and in the learned coordinates.

    A head is a parameter, such as a log scale, on which the law of the latents depends. In the coordinates of
    the program the spread of a latent, or its place, changes with the head; in the learned coordinates
    neither should. Chains without a field are left out.

    Parameters
    ----------
    idata
        A result of `stanadapt.sample` with `method="fisher_hmc"` and `keep_unconstrained=True`.
    var_names
        Latents, or variables with all of their entries; by default those that depend most on the head.
    head
        The head, by its unconstrained name; by default the one on which the spread of latents depends most.
    most
        Largest number of latents.
    axes
        Axes to draw on, two for each latent.
    figsize
        Width and height of a new figure in inches.

    Returns
    -------
    numpy.ndarray
        matplotlib's Axes (2, k): a column for each latent, in the program's coordinates above and in the
        learned ones below.

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
    heads = np.flatnonzero(drawn.role == _HEAD)
    if head is not None:
        check.choice("head", head, dict.fromkeys(str(names[i]) for i in heads))
        heads = heads[names[heads] == head]
    latents = np.flatnonzero(drawn.role == _LATENT)
    if var_names is not None:
        wanted = find_parameters(names, var_names)
        latents = wanted[np.isin(wanted, latents)]
        if not latents.size:
            raise ArgumentError(
                "var_names: none of them is a latent of the field in all chains that have one"
            )
    strengths = np.array([_dependence(drawn.x, i, latents) for i in heads])
    row = int(np.argmax(np.square(strengths).mean(axis=1)))
    chosen = latents[np.argsort(-strengths[row], kind="stable")[:most]]
    with canvas.style():
        k = len(chosen)
        made: np.ndarray = canvas.make_axes(2, k, axes, figsize, (1.2 + 2.4 * k, 5.4))
        inks = canvas.colours(own.sizes["chain"])
        for column, j in zip(made.T, chosen, strict=True):
            for ax, draws, where in zip(
                column, (drawn.x, drawn.z), ("the program's", "learned"), strict=True
            ):
                for place, points, before in zip(drawn.places, draws, drawn.x, strict=True):
                    thinned = slice(None, None, -(-len(points) // _MOST))
                    ax.scatter(
                        points[thinned, j],
                        before[thinned, heads[row]],
                        color=inks[place],
                        s=4,
                        lw=0,
                        alpha=0.4,
                        rasterized=drawn.x[..., 0].size > _RASTER,
                    )
                ax.set_xlabel(f"{canvas.plain(names[j])}, {where} coordinate")
        for ax in made[:, 0]:
            ax.set_ylabel(canvas.plain(names[heads[row]]))
        made[0, 0].set_title("as the program has it")
        made[1, 0].set_title("where the chains moved")
        if axes is None:
            canvas.name_chains(made[0, 0], own["chain"].values)
    return made


def _dependence(x: np.ndarray, head: int, latents: np.ndarray) -> np.ndarray:
    """How much the spread of latents (k,) depends on a head, from draws (chain, draw, d).

    It is the absolute rank correlation of the head with the distance of a latent from its median.
    """
    points = x.reshape(-1, x.shape[2])
    far = np.abs(points[:, latents] - np.median(points[:, latents], axis=0))
    both = np.column_stack((points[:, head], far))
    ranks = rankdata(both, axis=0) - 0.5 * (len(both) + 1)
    sizes = np.sqrt(np.square(ranks).sum(axis=0))
    with np.errstate(invalid="ignore"):
        return np.nan_to_num(np.abs(ranks[:, 0] @ ranks[:, 1:]) / (sizes[0] * sizes[1:]))


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
    roles = np.array([describe(table[header_of(table) :], d)["field_role"] for table in maps])
    places = np.flatnonzero((roles == _HEAD).any(axis=1))
    if not places.size:
        raise ArgumentError("idata has no latent field with heads: no chain has learned one")
    role = np.where((roles[places] == roles[places[0]]).all(axis=0), roles[places[0]], 0)
    if not (role == _HEAD).any() or not (role == _LATENT).any():
        raise ArgumentError("idata has no latent field with a head that all chains have in common")
    group = groups.get("unconstrained_posterior")
    if group is None or "x" not in group or group["x"].shape[::2] != (len(tables), d):
        raise ArgumentError(
            "idata has no unconstrained draws, from which this picture is made: draw with "
            "keep_unconstrained=True"
        )
    x = np.asarray(group["x"].values, float)[places]
    z = np.array(
        [
            transport_draws(maps[i], draws, np.zeros(draws.shape))[0]
            for i, draws in zip(places, x, strict=True)
        ]
    )
    return _Draws(x, z, role, places)
