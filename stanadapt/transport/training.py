"""What the function `learn` of a law gets."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Training(NamedTuple):
    """Draws and scores of the last two windows, the older ones first, in coordinates that other laws give."""

    points: np.ndarray  # (n, d)
    scores: np.ndarray  # (n, d)
    variables: np.ndarray  # (d,) the numbers of the variables that coordinates belong to
    before: int  # the first draws, so many, are from the window before
    new: bool  # whether more coordinates may be moved; not in the last window, since no later one judges them
    taken: np.ndarray  # the coordinates that another law moves
    refused: set[int]  # questions that scores have answered with no, see grouping/exact_laws.py; it grows
    room: bool = True  # whether so much of F is left that another group can be worth it,
    room_for_ridges: bool = True  # and another ridge
    heads: np.ndarray = np.zeros(0, np.int64)  # the coordinates that are scales of groups
