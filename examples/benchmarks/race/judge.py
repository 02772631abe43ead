"""What a run's draws are worth: effective sample sizes, R-hat, distance from the reference."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stanadapt.diagnostics.efficiency import Sizes
from stanadapt.diagnostics.statistics import each_column

from .problems import Problem, Reference, mean_and_error


class Verdict(NamedTuple):
    """Over the parameters of a run, the worst of each."""

    bulk: float  # ESS
    tail: float
    r_hat: float  # NaN for one chain
    z: float  # |mean - reference| in standard errors of both; NaN without a reference


def verdict(problem: Problem, draws: np.ndarray) -> Verdict:
    """Of draws (chains, n, k), the parameters first."""
    own = draws[..., : len(problem.parameters)][..., ~problem.steady]
    bulk, tail, r_hat = sizes(own)
    columns = problem.parameters + problem.transformed
    return Verdict(bulk, tail, r_hat, distance(problem.reference, columns, draws))


def sizes(draws: np.ndarray) -> tuple[float, float, float]:
    """Smallest bulk and tail ESS and largest R-hat of draws (chains, n, k).

    A chain that does not move, or is not finite, has an ESS of 0 and an infinite R-hat, whatever arviz says
    of constants; and all is NaN, where there is nothing to judge by.
    """
    if not draws.shape[2]:
        return np.nan, np.nan, np.nan
    found = each_column(Sizes.of, [draws])
    r_hat = float(np.nanmax(found.r_hat)) if len(draws) > 1 else np.nan
    return float(found.bulk.min()), float(found.tail.min()), r_hat


B_SQUARED = 0.01  # the limit below which moments count as known


def gradients_until_known(
    draws: np.ndarray, mean: np.ndarray, variance: np.ndarray, pace: float
) -> tuple[str, str]:
    """Gradients until b² stays under its limit, for the worst coordinate and for the mean, in words.

    For each chain and number n of draws (chains, n, k), b² is (running mean of x_j² - E x_j²)² / Var x_j².
    Then the median over chains is taken. `mean` and `variance` (k,) are those of x_j², and `pace` is the
    number of gradients a draw.
    """
    n = draws.shape[1]
    counts = np.arange(1, n + 1)[:, None]
    b2 = [np.square(np.cumsum(np.square(chain), axis=0) / counts - mean) / variance for chain in draws]
    cells = []
    for values in ([each.max(axis=1) for each in b2], [each.mean(axis=1) for each in b2]):
        over = np.flatnonzero(np.median(values, axis=0) > B_SQUARED)
        last = int(over[-1]) + 2 if over.size else 1
        cells.append(f"{last * pace:,.0f}" if last <= n else f"more than {n * pace:,.0f}")
    return cells[0], cells[1]


def longest_rest(draws: np.ndarray) -> int:
    """The largest number of draws (chains, n, k) in a row at one point."""
    longest = 0
    for chain in draws:
        moved = np.flatnonzero(np.any(np.diff(chain, axis=0) != 0.0, axis=1)) + 1
        longest = max(longest, int(np.diff(np.concatenate(([0], moved, [len(chain)]))).max()))
    return longest


def distance(reference: Reference | None, columns: list[str], draws: np.ndarray) -> float:
    """The largest |mean - reference| in standard errors of both, over what the reference names."""
    if reference is None:
        return np.nan
    place = {name: i for i, name in enumerate(columns)}
    known = [(i, place[name]) for i, name in enumerate(reference.names) if name in place]
    if not known:
        return np.nan
    theirs, own = np.array(known).T
    mean, error = mean_and_error(draws[..., own])
    with np.errstate(all="ignore"):
        z = np.abs(mean - reference.mean[theirs]) / np.hypot(error, reference.error[theirs])
    moving = ~((mean == reference.mean[theirs]) & (reference.error[theirs] == 0.0))  # constants on both sides
    return float(np.max(np.where(np.isnan(z), np.inf, z)[moving], initial=0.0))
