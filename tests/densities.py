"""Densities that are written in Python, in the coordinates of a map."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stanadapt.transport import composition
from stanadapt.transport.fields.probes import Evaluate


def in_maps(density: Evaluate) -> Callable[[np.ndarray], Evaluate]:
    """What `learn_field` asks for: the density in the coordinates of the map that it is given."""

    def density_in(rows: np.ndarray) -> Evaluate:
        if not len(rows):
            return density

        def evaluate(z: np.ndarray, score: np.ndarray) -> float:
            x = np.empty_like(z)
            log_det = composition.into_x(rows, z, x)
            logp = density(x, score)
            composition.pull_back(rows, z, x, score)
            return logp + float(log_det)

        return evaluate

    return density_in
