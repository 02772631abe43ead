"""A chain of Fisher HMC that is frozen, with its coordinates: does it leave exact draws as they are?"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

import stanadapt
from cases import resolve
from stanadapt.run.warmup import variable_groups, warm_up
from stanadapt.samplers.base import advance
from stanadapt.target import log_density_gradient
from stanadapt.transport.composition import into_z

ITERATIONS = 4  # of each exact draw


class Moved(NamedTuple):
    """Exact draws, and where some iterations of a frozen chain have taken each of them."""

    starts: np.ndarray  # (n, d)
    ends: np.ndarray  # (n, d)
    accepted: np.ndarray  # (n, ITERATIONS)
    transport: np.ndarray  # the map that the chain has learned


def move_exact_draws(
    posterior: stanadapt.Posterior,
    start: np.ndarray,
    draw: Callable[[np.random.Generator], np.ndarray],
    n: int,
    rng: np.random.Generator,
) -> Moved:
    """Move each of `n` exact draws by `ITERATIONS` of a chain that was warmed up from `start` (d,)."""
    sampler, settings = resolve("fisher_hmc", {})
    groups = variable_groups(posterior.unconstrained_names)
    driver = warm_up(sampler, settings, posterior.model.target(), start, rng, 600, groups)
    state = driver.finish()
    starts, ends, accepted, trace = [], [], [], driver.room(ITERATIONS)
    for _ in range(n):
        x = draw(rng)
        z, score = np.empty(x.size), np.empty(x.size)
        into_z(state.transport, x, z)
        logp = log_density_gradient(driver.target, z, score)
        here = state._replace(x=z, logp=logp, score=score)
        advance(sampler, driver.target, settings, here, rng, False, trace)
        starts.append(x)
        ends.append(trace.x[-1].copy())
        accepted.append(trace.accepted.copy())
    return Moved(np.array(starts), np.array(ends), np.array(accepted, bool), state.transport)
