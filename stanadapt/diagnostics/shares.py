"""The share of each chain's draws in the tails, and a test of whether chains have the same.

R-hat compares chains by their ranks, so a chain that never goes into a tail of 1 % hardly changes it. Here a
tail is what lies beyond a quantile of the draws of all chains together, and a hit is a draw in it.

Hits come in clumps, since draws depend on each other. The size of clumps is the factor by which the variance
of a number of hits exceeds that of independent draws. It is found from the hits in successive batches of a
chain, of several lengths; the largest result counts, of the chain itself or of all chains together. So a
chain without a hit is judged by the clumps of the others. Where C chains are right, the hits of one of them
given all hits are binomial with probability 1 / C, once they are divided by the size of clumps.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import betainc

TAILS = ((0.01, "under"), (0.05, "under"), (0.95, "over"), (0.99, "over"))
ERROR_RATE = 1e-3  # that any tail of any scalar is named where all chains are right
_BATCHES = 64  # of a chain, at most
_FEWEST_BATCHES = 16  # likewise, in the longest batches
# A few clumps that happen to be long give a chain many hits, while no chain has fewer than none. So clumps
# are taken to be larger by this factor where a chain seems to have too many.
_LONG_CLUMPS = 2.0


class Unlike(NamedTuple):
    """A chain whose share of draws in a tail is not that of the others."""

    row: int  # of the scalar
    tail: int  # of TAILS
    chain: int  # its place
    share: float  # of its draws
    others: float  # the mean share of the chains that agree
    errors: float  # standard errors between the two
    p_value: float  # the smallest one in this tail


def count_tails(order: np.ndarray, ordered: np.ndarray, chains: int) -> tuple[np.ndarray, np.ndarray]:
    """Hits and sizes of clumps (k, 4, chains) in TAILS of k scalars.

    `order` and `ordered` (k, n) are what `convergence.sort` gives for the draws of one chain after another.
    Draws that equal the last one of a tail belong to it too. A tail that would have more than half of all
    draws then, as in variables with few values, has no hits; nor has any where there are too few draws.
    """
    k, n = order.shape
    hits, clumps = np.zeros((2, k, len(TAILS), chains))
    if chains < 2 or n < _BATCHES * chains:
        return hits, clumps
    for tail, (p, side) in enumerate(TAILS):
        if side == "under":
            limit = ordered[:, _goal(p, n) - 1, None]
            sizes = (ordered <= limit).sum(axis=1)
        else:
            limit = ordered[:, n - _goal(1.0 - p, n), None]
            sizes = (ordered >= limit).sum(axis=1)
        usable = np.flatnonzero(sizes <= n // 2)
        if usable.size:
            most = sizes[usable].max()
            outer = slice(most) if side == "under" else slice(n - most, n)
            values, places = ordered[usable, outer], order[usable, outer]
            is_hit = values <= limit[usable] if side == "under" else values >= limit[usable]
            batches = _batches(places, is_hit, n // chains, chains)
            hits[usable, tail], clumps[usable, tail] = batches.sum(axis=2), _clumps(batches)
    return hits, clumps


def _goal(p: float, n: int) -> int:
    """How many of n draws a tail of probability p has, if no draws are equal."""
    return max(1, int(round(p, 9) * n))


def _batches(places: np.ndarray, is_hit: np.ndarray, length: int, chains: int) -> np.ndarray:
    """Hits in successive batches of chains (k, chains, batches), from places (k, most) that may be hits.

    Places are those among the draws of one chain after another, `length` of each.
    """
    rows, columns = np.nonzero(is_hit)
    place = places[rows, columns]
    batch = (rows * chains + place // length) * _BATCHES + place % length * _BATCHES // length
    k = len(places)
    return np.bincount(batch, minlength=k * chains * _BATCHES).reshape(k, chains, _BATCHES)


def _clumps(batches: np.ndarray) -> np.ndarray:
    """Sizes of the clumps of hits (k, chains), from hits in batches (k, chains, batches)."""
    k, chains, most = batches.shape
    hits = batches.sum(axis=2)
    common, own, size = np.ones((k, 1)), np.ones((k, chains)), 1
    while most // size >= _FEWEST_BATCHES:
        number = most // size
        means = hits / number
        variance = batches.reshape(k, chains, number, size).sum(axis=3).var(axis=2, ddof=1)
        own = np.maximum(own, variance / np.where(hits > 0, means, np.inf))
        common = np.maximum(common, (variance.sum(axis=1) / means.sum(axis=1))[:, None])
        size *= 2
    return np.maximum(own, common)


def find_unlike(hits: np.ndarray, clumps: np.ndarray, usable: np.ndarray, draws: int) -> list[Unlike]:
    """Chains and the tails in which they do not agree with the others, the surest first.

    `usable` (k,) are the scalars to be looked at. One probability of error, `ERROR_RATE`, is shared by all
    chains and tails that are looked at (Bonferroni). In each tail the chain whose hits are farthest from the
    mean is set aside, and so on while the rest do not agree: a chain that is wrong is outvoted. Where as many
    chains have too few hits as have too many, those that have too few are named. Of two chains nobody can say
    which is right, and both are named.
    """
    chains = hits.shape[2]
    looked = usable[:, None] & (hits.sum(axis=2) > 0.0)
    if chains < 2 or not looked.any():
        return []
    level = ERROR_RATE / (chains * int(looked.sum()))
    places, hits, clumps = np.argwhere(looked), hits[looked], clumps[looked]
    found = []
    for i in np.flatnonzero((_p_values(hits, clumps, np.ones(chains, bool)) < level).any(axis=1)):
        differing, p_value = _find_outvoted(hits[i], clumps[i], level)
        shares, (row, tail) = hits[i] / draws, map(int, places[i])
        for chain in differing:
            rest = [c for c in range(chains) if c not in differing] or [
                c for c in range(chains) if c != chain
            ]
            others = float(shares[rest].mean())
            variance = clumps[i, chain] * shares.mean() * (1.0 / draws + 1.0 / (draws * len(rest)))
            errors = float(abs(shares[chain] - others) / np.sqrt(variance))
            found.append(Unlike(row, tail, chain, float(shares[chain]), others, errors, p_value))
    return sorted(found, key=lambda each: (each.p_value, -each.errors))


def _find_outvoted(hits: np.ndarray, clumps: np.ndarray, level: float) -> tuple[list[int], float]:
    """Places of the chains without which the others agree, and the smallest p-value."""
    active, differing, smallest = np.ones(len(hits), bool), [], 1.0
    while active.sum() > 1:
        values = _p_values(hits, clumps, active)
        if not values.min() < level:
            break
        smallest = min(smallest, float(values.min()))
        distance = hits - hits[active].mean()
        distance = np.where(distance > 0.0, distance / np.sqrt(_LONG_CLUMPS), -distance)
        worst = int(np.argmax(np.where(active, distance, -1.0)))
        if active.sum() == 2:  # nobody can say which of them is right
            differing += [int(place) for place in np.flatnonzero(active)]
            break
        differing.append(worst)
        active[worst] = False
    return differing, smallest


def _p_values(hits: np.ndarray, clumps: np.ndarray, active: np.ndarray) -> np.ndarray:
    """Two-sided p-values (..., chains) of hits among the chains that are active."""
    share = 1.0 / active.sum()
    rest = np.where(active, hits, 0.0).sum(axis=-1, keepdims=True) - hits
    few = _binomial(hits / clumps, rest / clumps, share)
    many = _binomial(rest / (_LONG_CLUMPS * clumps), hits / (_LONG_CLUMPS * clumps), 1.0 - share)
    return np.where(active, np.minimum(1.0, 2.0 * np.minimum(few, many)), 1.0)


def _binomial(successes: np.ndarray, failures: np.ndarray, p: float) -> np.ndarray:
    """The probability of as many successes or fewer; both need not be integers."""
    some = failures > 0.0
    return np.where(some, betainc(np.where(some, failures, 1.0), successes + 1.0, 1.0 - p), 1.0)
