"""Modes that all chains of a run know from the beginning, for methods that look for them.

A chain that looks for modes by itself misses some that another one finds. So one search takes what the
chains would spend, before the first of them begins: a pilot from the start of the first chain learns
coordinates, and climbs begin around it (`find_modes` of the method). Every chain gets the modes with its
start, so that they go wherever the chain goes, to other processes, to clusters, and to folders of runs.

What is found depends on the seed, the start of the first chain, and the number of chains, and not on time.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from ... import samplers
from ...errors import InitializationError
from ...model.backends.contract import Model
from ...model.posterior import Posterior
from ...numerics.blas import one_thread
from ...samplers import Sampler
from ...samplers.base import FoundModes
from ...transport.composition import points_in_z, rows_into_x
from ..guard import Guard, StoppedError
from ..inits import Init, find
from ..interrupts import interrupts
from ..job import Job
from ..progress import StepProgress
from ..warmup import pilot, pilot_length, variable_groups, warm_up
from ..workers.board import Board

_SPAWN_KEY = 2**31 + 4  # of the search's random numbers; seeds of chains have smaller keys


def hand_over(
    job: Job, posterior: Posterior, inits: list[Init], progress: bool
) -> tuple[list[Init], dict[str, Any]]:
    """The same starts with the modes that a search has found, and notes on it for the result.

    Without a pilot, whose kernels and coordinates the search needs, chains look for modes by themselves.

    Raises
    ------
    KeyboardInterrupt
        Ctrl-C.
    Exception
        Whatever a Python callable raised.
    """
    method = cast(Sampler, samplers.sampler(job.method))
    if not (method.FACTS.searches and posterior.dim):
        return inits, {}
    length = pilot_length(method, job.settings, job.warmup)
    most = job.chains * method.count_evaluations(job.settings, job.warmup, posterior.dim)
    if not (length and most):
        return inits, {}
    bar = StepProgress("looking for modes", 1, progress)
    with interrupts(Board.for_chains(0)) as caught, one_thread(), bar:
        bar.begin("before the chains begin")

        def tick() -> bool:
            bar.refresh()
            return bool(caught.signal)

        try:
            found = _search(method, job, posterior, inits[0], length, most, tick)
            caught.raise_again()
        except InitializationError:  # which the chain will say
            return inits, {}
        except StoppedError:
            caught.raise_again()
            raise
    notes = {
        "modes_found": len(found.modes),
        "modes_search_evaluations": found.evaluations,
        "modes_narrowest_seen": found.narrowest,
    }
    return [init._replace(modes=found.modes) for init in inits], notes


def _search(
    method: Sampler, job: Job, posterior: Posterior, init: Init, length: int, most: int, ticked: Any
) -> FoundModes:
    """What the search finds, in the program's coordinates; evaluations are those of the pilot, too."""
    seeds = np.random.SeedSequence(job.seed, spawn_key=(_SPAWN_KEY,))
    rng, d = np.random.default_rng(seeds), posterior.dim
    model = cast(Model, Guard(posterior.model.for_chain(0, seeds.spawn(1)[0]), ticked))
    leader, settings = pilot()
    ascend = samplers.climbs(leader, settings)
    start = find(init, posterior, model, 0, rng, use_gradient=True, ascend=ascend)
    groups = variable_groups(posterior.unconstrained_names)
    trial = warm_up(leader, settings, model.target(), start.x, rng, length, groups)
    taken = 0
    while trial.n_left or trial.next_stage():
        row = trial.room(min(trial.n_left, _ITERATIONS))
        trial.run(row)
        taken += int(row.n_steps.sum())
        model.raise_pending()
    handover = cast(Any, leader).hand_over(trial.state, settings, length)
    tops = points_in_z(handover.transport, np.array(start.tops).reshape(-1, d))
    target = trial.target._replace(transport=handover.transport)
    with np.errstate(all="ignore"):
        found = method.find_modes(target, handover._replace(modes=tops), job.settings, most, rng, ticked)
    model.raise_pending()
    modes = np.array(found.modes).reshape(-1, d)
    rows_into_x(handover.transport, modes, np.zeros(len(modes)))
    modes = modes[np.isfinite(modes).all(axis=1)]
    return found._replace(modes=modes, evaluations=taken + found.evaluations)


_ITERATIONS = 20  # of the pilot, after which exceptions of a Python target are noticed
