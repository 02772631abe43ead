"""What draws are worth, and how far they move: the worst and the typical of many scalars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .convergence import convergence, r_hat

if TYPE_CHECKING:
    import pandas


class Sizes(NamedTuple):
    """Of k scalars.

    Where a chain does not move, or a draw is not finite, the effective sample sizes are 0 and R-hat is
    infinite, whatever estimators say of constants.
    """

    bulk: np.ndarray  # (k,) effective sample sizes
    tail: np.ndarray
    r_hat: np.ndarray  # of a single chain it compares the halves

    @classmethod
    def of(cls, draws: np.ndarray) -> Sizes:
        """Of draws (k, chains, n)."""
        with np.errstate(all="ignore"):
            stuck = ~np.isfinite(draws).all(axis=(1, 2)) | (np.ptp(draws, axis=2) == 0.0).any(axis=1)
            found = convergence(draws)
            values = r_hat(found.moments, draws.shape[2])
        bulk, tail = (np.where(stuck, 0.0, np.nan_to_num(size)) for size in found[1:3])
        return cls(bulk, tail, np.where(stuck, np.inf, values))


def jump_lengths(x: np.ndarray) -> np.ndarray:
    """Euclidean lengths (..., n - 1) of the steps between draws `x` (..., n, d) that follow each other."""
    return np.asarray(np.linalg.norm(np.diff(x, axis=-2), axis=-1))


def squared_jump_distance(x: np.ndarray) -> float:
    """Mean squared length of the steps between draws `x` (..., n, d): the ESJD.

    Pasarica and Gelman (2010), Adaptively scaling the Metropolis algorithm using expected squared jumped
    distance, Statistica Sinica 20.
    """
    return float(np.mean(jump_lengths(x) ** 2))


def rates(rows: pandas.DataFrame, by: Sequence[str], gain: str, cost: str) -> pandas.Series:
    """What a unit of cost gains in each group of runs: the sum of gains by the sum of costs.

    Runs count by what they cost, so that a short one which was lucky decides nothing.
    """
    sums = rows.groupby(list(by), sort=False)[[gain, cost]].sum()
    return sums[gain] / sums[cost]
