"""Values of a posterior that never move, or that repeat another value."""

from __future__ import annotations

import numpy as np

from .posterior import Posterior


def find_steady(posterior: Posterior, columns: int | None = None, n: int = 5) -> np.ndarray:
    """Which values are the same at `n` random points, or equal to an earlier one at all of them.

    Examples are the ones on the diagonal of a correlation matrix, and its entries on one side of the
    diagonal. The program may fail to compute its quantities at a point. Then further points are taken,
    nearer and nearer to the origin; where fewer than two points succeed, no value is steady.

    Parameters
    ----------
    posterior
        The posterior.
    columns
        How many of its values are looked at, in the order of its names; by default the parameters.
    n
        Number of points.

    Returns
    -------
    numpy.ndarray
        A boolean for each of these values.
    """
    count = len(posterior.names) if columns is None else columns
    rng = np.random.default_rng(0)
    written = np.empty((0, count))
    for scale in 2.0 ** -np.arange(10):
        values = np.empty((n, posterior.n_values))
        posterior.model.writer(0)(scale * rng.normal(size=(n, posterior.dim)), values, np.arange(n))
        found = values[:, :count]
        written = np.concatenate((written, found[np.isfinite(found).all(axis=1)]))
        if len(written) >= n:
            break
    if len(written) < 2:
        return np.zeros(count, bool)
    shown = [tuple(f"{value:.9g}" for value in column) for column in written[:n].T]  # but for rounding
    seen: set[tuple[str, ...]] = set()
    steady = np.zeros(count, bool)
    for i, column in enumerate(shown):
        steady[i] = len(set(column)) == 1 or column in seen
        seen.add(column)
    return steady
