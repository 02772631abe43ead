"""What a law learns from."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Training(NamedTuple):
    """Draws and scores of the last two windows, the older ones first, in coordinates that other laws give."""

    points: np.ndarray  # (n, d)
    scores: np.ndarray  # (n, d)
    variables: np.ndarray  # (d,) the numbers of the variables that coordinates belong to
    before: int  # so many of the draws are those of the window before
    new: bool  # whether coordinates that are not moved yet may be: those of a last window nobody would judge
    taken: np.ndarray  # the coordinates that another law moves
