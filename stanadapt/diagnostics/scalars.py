"""What is looked at of every scalar of a posterior, and the limits that it is held to."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .convergence import convergence, r_hat
from .statistics import travel

R_HAT_LIMIT = 1.01  # Vehtari et al. (2021)
ONE_CHAIN_R_HAT = 1.05  # of one chain, since two halves alone give a noisier value
ESS_PER_CHAIN = 100  # likewise
LEAVING = 3.0  # standard deviations of a quarter of the draws


class Scalars(NamedTuple):
    """What is looked at of k scalars."""

    finite: np.ndarray  # (k,) whether all draws are
    constant: np.ndarray
    moments: np.ndarray  # for R-hat, as `convergence` has them
    ess_bulk: np.ndarray
    ess_tail: np.ndarray
    tail_hits: np.ndarray  # (k, 4, chain), as are the next
    tail_clumps: np.ndarray
    travel: np.ndarray  # (k, chain)
    largest: np.ndarray  # (k,) magnitude of a draw
    lowest: np.ndarray  # (k,) draw

    @classmethod
    def of(cls, draws: np.ndarray) -> Scalars:
        """Of draws (k, chain, draw)."""
        finite = np.isfinite(draws).all(axis=(1, 2))
        constant = (draws == draws[:, :1, :1]).all(axis=(1, 2))
        largest = np.abs(draws).max(axis=(1, 2))
        return cls(finite, constant, *convergence(draws), travel(draws), largest, draws.min(axis=(1, 2)))

    @property
    def usable(self) -> np.ndarray:
        """Those (k,) that statistics of convergence mean something for."""
        usable: np.ndarray = self.finite & ~self.constant
        return usable

    def r_hat(self, draws: int) -> np.ndarray:
        """R-hat (k,) of chains of so many draws; 1 where it means nothing."""
        return np.where(self.usable, r_hat(self.moments, draws), 1.0)

    def ess(self, kind: str) -> np.ndarray:
        """The effective sample size (k,) of the bulk or the tail; infinity where it means nothing."""
        return np.where(self.usable, self.ess_bulk if kind == "bulk" else self.ess_tail, np.inf)

    def journeys(self) -> np.ndarray:
        """How far chains travel (k, chain); 0 where it means nothing."""
        return np.where(self.usable[:, None], self.travel, 0.0)


def r_hat_limit(chains: int) -> float:
    """The R-hat above which so many chains, or the halves of one, do not agree."""
    return R_HAT_LIMIT if chains > 1 else ONE_CHAIN_R_HAT
