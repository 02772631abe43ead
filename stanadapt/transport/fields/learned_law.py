"""What a search finds: the rows of a map, and the metric that goes with them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Learned(NamedTuple):
    """A field, and the metric that it suggests for the coordinates that it gives.

    Without rows there is none, and another search would not find one either.
    """

    rows: np.ndarray  # of a map
    scale: np.ndarray  # (d,) of a diagonal metric: the heads' standard deviations, else 1
    directions: np.ndarray  # (k, d) orthonormal directions beside it, and the variances there
    variances: np.ndarray  # (k,)


def without_directions(rows: np.ndarray, scale: np.ndarray) -> Learned:
    """What was found, if its metric is diagonal."""
    return Learned(rows, scale, np.zeros((0, len(scale))), np.zeros(0))
