"""What a run's draws are worth: effective sample sizes, R-hat, distance from the reference."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np

from posteriordb import mean_and_error
from stanadapt.result.container import statistics

from .problems import Problem, Reference, dataset


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
    chains = len(draws)
    stuck = not np.isfinite(draws).all() or bool((np.ptp(draws, axis=1) == 0.0).any())
    if stuck:
        return 0.0, 0.0, np.inf if chains > 1 else np.nan
    scalars = dataset(draws)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bulk, tail = (
            float(np.nan_to_num(statistics().ess(scalars, method=method).to_array().values).min())
            for method in ("bulk", "tail")
        )
        r_hat = float(statistics().rhat(scalars).to_array().max()) if chains > 1 else np.nan
    return bulk, tail, r_hat


def distance(reference: Reference | None, columns: list[str], draws: np.ndarray) -> float:
    """The largest |mean - reference| in standard errors of both, over what the reference names."""
    if reference is None:
        return np.nan
    place = {name: i for i, name in enumerate(columns)}
    known = [(i, place[name]) for i, name in enumerate(reference.names) if name in place]
    if not known:
        return np.nan
    theirs, own = np.array(known).T
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        mean, error = mean_and_error(dataset(draws[..., own]))
        z = np.abs(mean - reference.mean[theirs]) / np.hypot(error, reference.error[theirs])
    moving = ~((mean == reference.mean[theirs]) & (reference.error[theirs] == 0.0))  # constants on both sides
    return float(np.max(np.where(np.isnan(z), np.inf, z)[moving], initial=0.0))
