"""What a finding is: words for the user, and for programs what the words are about."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import xarray

from .. import check
from .statistics import row_names

_WORST = 3  # quantities that the words name
MOST_NAMES = 100  # quantities that `variables` has


class Finding(NamedTuple):
    """Something that a user should know."""

    kind: str
    text: str
    variables: tuple[str, ...] = ()  # the quantities that it is about, the worst first; 100 at most
    chains: tuple[int | str, ...] = ()  # the chains, where it is about some of them
    numbers: Mapping[str, float] = {}  # those in the words, by names that stay as they are

    def __str__(self) -> str:
        return check.printable(self.text)


def plain_chains(chains: Iterable[Any]) -> tuple[int | str, ...]:
    """Labels of chains as plain values."""
    return tuple(int(chain) if isinstance(chain, int | np.integer) else str(chain) for chain in chains)


class Names:
    """Names of the scalars of a posterior, made when they are needed: there may be many."""

    def __init__(self, posterior: xarray.Dataset) -> None:
        self.posterior = posterior

    @functools.cached_property
    def rows(self) -> list[str]:
        return row_names(self.posterior)

    def first_names(self, chosen: np.ndarray) -> str:
        """The first ones of those that are chosen, and how many more there are."""
        picked = np.flatnonzero(chosen)
        more = f" and {len(picked) - _WORST} more" if len(picked) > _WORST else ""
        return ", ".join(self.rows[i] for i in picked[:_WORST]) + more

    def first(self, chosen: np.ndarray) -> tuple[str, ...]:
        """The first hundred of those that are chosen."""
        return tuple(self.rows[i] for i in np.flatnonzero(chosen)[:MOST_NAMES])

    def worst(self, values: np.ndarray, chosen: np.ndarray, *, largest: bool) -> str:
        """Those of the chosen with the largest values, or the smallest ones, with their values."""
        order = _order(values, largest)
        picked = order[chosen[order]][:_WORST]
        return ", ".join(f"{self.rows[i]} ({values[i]:.4g})" for i in picked)

    def worst_names(self, values: np.ndarray, chosen: np.ndarray, *, largest: bool) -> tuple[str, ...]:
        """The worst hundred of those that are chosen, the worst first."""
        order = _order(values, largest)
        return tuple(self.rows[i] for i in order[chosen[order]][:MOST_NAMES])


def _order(values: np.ndarray, largest: bool) -> np.ndarray:
    """Places of the values from the worst on; NaN is worse than any number."""
    order = np.argsort(np.where(np.isnan(values), np.inf if largest else -np.inf, values))
    return order[::-1] if largest else order
