"""Which coordinates are heads: of those that are coupled to many, those that change the others' curvature."""

from __future__ import annotations

import numpy as np

MOST_HEADS = 4
HEAD = 0.02  # a wide coordinate is a head if it changes the curvature by this, when it moves by DELTA
FAINT_HEAD = 1e-4  # or by this, if no modes are found: the scale of a walk does nothing while it is small
DELTA = 0.5


def choose_heads(strengths: dict[int, float], least: float = HEAD) -> np.ndarray:
    """The coordinates that change the curvature of the others by `least` or more, the strongest ones."""
    chosen = sorted((k for k in strengths if strengths[k] > least), key=lambda k: -strengths[k])
    return np.array(sorted(chosen[:MOST_HEADS]), np.int64)
