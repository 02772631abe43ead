"""What preconditioners have learnt: correlations, scales, and whether chains agree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .. import check
from ..errors import ArgumentError
from ..result.container import OWN_GROUP, datasets
from . import canvas

if TYPE_CHECKING:
    from ..result.container import InferenceData


def plot_preconditioner(
    idata: InferenceData,
    var_names: list[str] | None = None,
    *,
    most: int = 40,
    axes: Any = None,
    figsize: tuple[float, float] | None = None,
) -> np.ndarray:
    """The correlations that the preconditioner has learnt, and the agreement between chains.

    Returns
    -------
    numpy.ndarray
        matplotlib's Axes (2,).
    """
    check.integer("most", most, 2, 1_000)
    own = datasets(idata).get(OWN_GROUP)
    if own is None or not ({"preconditioner", "preconditioner_diagonal"} & set(own.data_vars)):
        raise ArgumentError("idata has no preconditioner: the method learns none")
    with canvas.style():
        made: np.ndarray = canvas.make_axes(1, 2, axes, figsize, (9.0, 4.2))[0]
        if "preconditioner" in own:
            a = own["preconditioner"].values
            sd = np.sqrt(np.einsum("cii->ci", a))
            r = a / sd[:, :, None] / sd[:, None, :]
            image = made[0].imshow(r.mean(axis=0)[:most, :most], cmap=canvas.DIVERGING, vmin=-1, vmax=1)
            made[0].figure.colorbar(image, ax=made[0], label="correlation")
        else:
            sd = np.sqrt(own["preconditioner_diagonal"].values)
            made[0].plot(np.sort(sd.mean(axis=0)))
        for ink, one in zip(canvas.colours(len(sd)), sd, strict=True):
            made[1].plot(sd.mean(axis=0), one, ".", color=ink)
    return made
