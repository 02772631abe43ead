"""The scalars of a posterior that should be looked at first, and why."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import xarray

from .convergence import FEWEST
from .scalars import ESS_PER_CHAIN, LEAVING, Scalars, r_hat_limit
from .statistics import each, row_names


class Quantity(NamedTuple):
    """A scalar of a posterior, with what tells whether its draws are to be trusted."""

    name: str
    row: int  # its place among all scalars, as `row_names` has them
    r_hat: float  # NaN where it means nothing, as are the next two
    ess_bulk: float
    ess_tail: float
    faults: tuple[str, ...]  # what is wrong with it, in words; empty if nothing is
    is_extreme: tuple[bool, bool, bool]  # whether none has a larger R-hat, a smaller bulk or tail size


class Ranking:
    """All scalars of a posterior by how bad they are, in the kinds of faults that `diagnose` reports."""

    def __init__(self, posterior: xarray.Dataset) -> None:
        self.names = row_names(posterior)
        self.chains = posterior["chain"].values
        self.draws = posterior.sizes["draw"]
        self.limit = r_hat_limit(len(self.chains))
        self.enough = ESS_PER_CHAIN * len(self.chains)
        if self.draws < FEWEST:
            return
        self.scalars = scalars = each(Scalars.of, posterior)
        self.r_hat, self.bulk, self.tail = scalars.r_hat(self.draws), scalars.ess("bulk"), scalars.ess("tail")
        long = self.draws >= 4 * FEWEST
        self.journeys = scalars.journeys() if long else np.zeros(scalars.travel.shape)

    def worst(self, most: int) -> list[Quantity]:
        """Up to `most` scalars, the worst first.

        Of every kind of fault the worst scalar comes first, then the second of every kind, and so on. The
        kinds are in the order of `diagnose`. Where there are not enough scalars with faults, those with the
        largest R-hat and the smallest effective sample sizes follow.
        """
        if self.draws < FEWEST:
            return [self._quantity(row) for row in range(min(most, len(self.names)))]
        faulty = [_first(most, *kind) for kind in self._kinds()]
        sound = [_first(most, badness) for badness in (self.r_hat, -self.bulk, -self.tail)]
        rows = dict.fromkeys([*_in_turn(faulty), *_in_turn(sound)])
        return [self._quantity(row) for row in [*rows][:most]]

    def slowest(self, most: int) -> list[Quantity]:
        """Up to `most` scalars with the smallest bulk and tail effective sample sizes, in turn."""
        rows = dict.fromkeys(_in_turn([_first(most, -sizes) for sizes in (self.bulk, self.tail)]))
        return [self._quantity(row) for row in [*rows][:most]]

    def median(self) -> list[Quantity]:
        """The scalar whose bulk effective sample size is the median of all; none where there is no size."""
        known = np.flatnonzero(np.isfinite(self.bulk)) if self.draws >= FEWEST else np.empty(0, int)
        order = known[np.argsort(self.bulk[known], kind="stable")] if known.size else known
        return [self._quantity(int(order[known.size // 2]))] if known.size else []

    def _kinds(self) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
        """Of each kind of fault how bad every scalar is (k,), and which ones have it."""
        finite, constant, farthest = self.scalars.finite, self.scalars.constant, self.journeys.max(axis=1)
        return (
            (1.0 * ~finite, ~finite),
            (1.0 * constant, constant),
            (self.r_hat, ~(self.r_hat <= self.limit)),
            (farthest, farthest > LEAVING),
            (-self.bulk, ~(self.bulk >= self.enough)),
            (-self.tail, ~(self.tail >= self.enough)),
        )

    def _quantity(self, row: int) -> Quantity:
        if self.draws < FEWEST:
            return Quantity(self.names[row], row, np.nan, np.nan, np.nan, ("too few draws",), (False,) * 3)
        known, extreme = [np.nan] * 3, (False,) * 3
        if self.scalars.usable[row]:
            known = [float(self.r_hat[row]), float(self.bulk[row]), float(self.tail[row])]
            extreme = (
                bool(known[0] == self.r_hat.max()),
                bool(known[1] == self.bulk.min()),
                bool(known[2] == self.tail.min()),
            )
        return Quantity(self.names[row], row, known[0], known[1], known[2], tuple(self._faults(row)), extreme)

    def _faults(self, row: int) -> Iterator[str]:
        """What is wrong with a scalar, in words."""
        if not self.scalars.finite[row]:
            yield "NaN or infinite draws"
        if self.scalars.constant[row]:
            yield "all draws are the same"
        if not self.r_hat[row] <= self.limit:
            yield f"R-hat {self.r_hat[row]:.4g} > {self.limit}"
        for chain in self.chains[self.journeys[row] > LEAVING]:
            yield f"chain {chain} moves away"
        if not self.bulk[row] >= self.enough:
            yield f"bulk ESS {self.bulk[row]:.0f} < {self.enough}"
        if not self.tail[row] >= self.enough:
            yield f"tail ESS {self.tail[row]:.0f} < {self.enough}"


def _in_turn(kinds: list[list[int]]) -> Iterator[int]:
    """The first of each kind, then the second of each, and so on."""
    return (row for turn in itertools.zip_longest(*kinds) for row in turn if row is not None)


def _first(most: int, badness: np.ndarray, chosen: np.ndarray | None = None) -> list[int]:
    """The places of up to `most` of those chosen (k,), the worst first; NaN is worst of all."""
    rows = np.arange(len(badness)) if chosen is None else np.flatnonzero(chosen)
    key = np.where(np.isnan(badness[rows]), np.inf, badness[rows])
    return [int(row) for row in rows[np.argsort(-key, kind="stable")[:most]]]
