"""The scalars of a posterior that should be looked at first, and why."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain as joined
from itertools import zip_longest
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
    r_hat: float  # NaN where there is none
    ess_bulk: float
    ess_tail: float
    faults: tuple[str, ...]  # what is wrong with it, in words; empty if nothing is


def find_worst(posterior: xarray.Dataset, most: int) -> list[Quantity]:
    """Up to `most` scalars of a posterior, the worst first.

    Of every kind of fault the worst scalar comes first, then the second of every kind, and so on. The kinds
    are those that `diagnose` reports of single scalars, in its order. Where there are not enough of them,
    those with the largest R-hat and the smallest effective sample sizes follow.
    """
    names = row_names(posterior)
    draws, chains = posterior.sizes["draw"], posterior["chain"].values
    if draws < FEWEST:
        unknown = (np.nan, np.nan, np.nan, ("too few draws",))
        return [Quantity(name, row, *unknown) for row, name in enumerate(names[:most])]
    scalars = each(Scalars.of, posterior)
    limit, enough = r_hat_limit(len(chains)), ESS_PER_CHAIN * len(chains)
    r_hat, bulk, tail = scalars.r_hat(draws), scalars.ess("bulk"), scalars.ess("tail")
    journeys = scalars.journeys() if draws >= 4 * FEWEST else np.zeros(scalars.travel.shape)
    farthest = journeys.max(axis=1)
    # Of each kind, how bad every scalar is, and which ones are beyond the limit.
    kinds = (
        (~scalars.finite * 1.0, ~scalars.finite),
        (scalars.constant * 1.0, scalars.constant),
        (r_hat, ~(r_hat <= limit)),
        (farthest, farthest > LEAVING),
        (-bulk, ~(bulk >= enough)),
        (-tail, ~(tail >= enough)),
    )

    def faults(row: int) -> Iterator[str]:
        if not scalars.finite[row]:
            yield "NaN or infinite draws"
        if scalars.constant[row]:
            yield "never moves"
        if not r_hat[row] <= limit:
            yield f"R-hat {r_hat[row]:.3g} > {limit}"
        for chain in chains[journeys[row] > LEAVING]:
            yield f"chain {chain} moves away"
        if not bulk[row] >= enough:
            yield f"bulk ESS {bulk[row]:.0f} < {enough}"
        if not tail[row] >= enough:
            yield f"tail ESS {tail[row]:.0f} < {enough}"

    def order(badness: np.ndarray, chosen: np.ndarray) -> list[int]:
        rows = np.flatnonzero(chosen)
        key = np.where(np.isnan(badness[rows]), np.inf, badness[rows])
        return [int(row) for row in rows[np.argsort(-key, kind="stable")[:most]]]

    everywhere = np.ones(len(names), bool)
    faulty = zip_longest(*(order(*kind) for kind in kinds))
    others = zip_longest(*(order(badness, everywhere) for badness in (r_hat, -bulk, -tail)))
    rows = dict.fromkeys(row for row in joined(*faulty, *others) if row is not None)
    known = np.where(scalars.usable, [r_hat, bulk, tail], np.nan).T

    def quantity(row: int) -> Quantity:
        found, its_bulk, its_tail = known[row].tolist()
        return Quantity(names[row], row, found, its_bulk, its_tail, tuple(faults(row)))

    return [quantity(row) for row in [*rows][:most]]
