"""What the policies of rlmh and rlmh_mala have learnt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ArgumentError
from ..result.container import OWN_GROUP, datasets
from . import canvas

if TYPE_CHECKING:
    from ..result.container import InferenceData


def plot_policy(
    idata: InferenceData,
    var_names: list[str] | None = None,
    *,
    axes: Any = None,
    figsize: tuple[float, float] | None = None,
) -> np.ndarray:
    """The policy of rlmh before and after it has learnt from rewards.

    Returns
    -------
    numpy.ndarray
        matplotlib's Axes (1,).
    """
    own = datasets(idata).get(OWN_GROUP)
    if own is None or "actor" not in own:
        raise ArgumentError("idata has no policy: only rlmh and rlmh_mala learn one")
    with canvas.style():
        made: np.ndarray = canvas.make_axes(1, 1, axes, figsize, (5.0, 4.0))[0]
        for ink, one in zip(canvas.colours(own.sizes["chain"]), own["episode_reward"].values, strict=True):
            made[0].plot(one, color=ink)
        made[0].set_xlabel("episode")
        made[0].set_ylabel("mean reward")
    return made
