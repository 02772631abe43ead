"""method="auto": the choice of a method, by what can be seen of a posterior before the run.

`look` finds the facts, and `choose` has the rule.
"""

from __future__ import annotations

import json
import math
import time
from typing import Any, NamedTuple

import numpy as np

from .. import check, samplers
from ..errors import ArgumentError
from ..model.posterior import Posterior
from ..numerics.blas import one_thread
from .board import Board
from .chain import SPECTRUM_LIMIT
from .inits import Init, find
from .interrupts import Caught, interrupts
from .warmup import pilot, warm_up

NAME = "auto"
DESCRIPTION = "takes one of the methods, by what it sees of the posterior"

WARMUP, FROZEN = 150, 30  # iterations of the trial
TINY_STEP = 0.002  # of a trajectory
LARGEST_POLICY = 20  # dimension up to which rlmh learns well
_SPAWN_KEY = 2**31  # of the trial's random numbers; those of chains are smaller


class Facts(NamedTuple):
    """What is seen of a posterior. Those from `step` on are the trial's, None where there is none."""

    d: int
    gradient: bool
    noisy: bool
    step: float | None = None  # the step size it came to, as a share of the length of a trajectory
    acceptance: float | None = None  # mean probability after its warm-up
    condition: float | None = None  # condition number of the metric it learnt
    failures: float | None = None  # share of its gradients that were not finite
    seconds: float | None = None  # that a gradient of it took, with everything around it

    def to_json(self) -> str:
        """JSON knows no infinity, and no NaN."""
        values = self._asdict().items()
        return json.dumps({name: None if _is_odd(value) else value for name, value in values})


class Choice(NamedTuple):
    """What to run, at its default settings, and why."""

    method: str
    reason: str  # goes on from "because"


def choose(facts: Facts) -> Choice:
    """The rule.

    With a gradient, fisher_hmc. But where a trial, 150 iterations of its warm-up from a start like that of
    the first chain and 30 frozen ones, comes to steps shorter than 0.002 of a trajectory, the gradient says
    nothing of where the density goes: it jumps, or its gradient is wrong. Then rlmh, in up to 20 dimensions.
    Funnels and other narrow posteriors of so few have steps of 0.05 or more.

    Without a gradient, rlmh in up to 20 dimensions, and arwmh in more or where the density is noisy: a strong
    noise leaves rlmh without a warm start.

    The trial's acceptance, failures, metric and time of a gradient are reported and decide nothing. No
    measured time does, so that the choice depends on the seed alone, as draws do.
    """
    few = facts.d <= LARGEST_POLICY
    if not facts.gradient:
        seen = f"there is no gradient in {facts.d} dimension{'s' * (facts.d > 1)}"
        if facts.noisy:
            return Choice("arwmh", "the density is only estimated, which arwmh bears best")
        return Choice("rlmh", seen) if few else Choice("arwmh", f"{seen}, which are many for rlmh")
    if facts.step is None:
        return Choice("fisher_hmc", "there are no parameters to look at")
    steps = f"a trial took steps of {100 * facts.step:.3g} % of a trajectory"
    if facts.step < TINY_STEP and few:
        return Choice("rlmh", f"{steps}: the density jumps, or its gradient is wrong")
    return Choice("fisher_hmc", f"there is a gradient, and {steps}")


def check_method(method: Any, settings: Any = None) -> None:
    """Refuse a method that is neither one of the samplers nor "auto", and settings for "auto".

    Raises
    ------
    ArgumentError
        With the nearest names, or with what can be done instead.
    """
    check.choice("method", method, [*samplers.METHODS, NAME])
    if method == NAME and settings is not None and settings != {}:
        raise ArgumentError(
            f"settings={check.shown(settings)} are not allowed with method={NAME!r}, since each method has "
            "its own: leave them out, or name the method that they are for"
        )


def has_trial(posterior: Posterior) -> bool:
    """Whether `look` runs the trial: where there are parameters and a gradient."""
    return posterior.dim > 0 and posterior.model.has_gradient


def look(posterior: Posterior, init: Init, seed: int) -> Facts:
    """The facts that a run with this seed goes by; `init` is the start of its first chain.

    Raises
    ------
    InitializationError
        The trial found no starting point.
    KeyboardInterrupt
        Ctrl-C.
    Exception
        Whatever a Python callable raised.
    """
    facts = Facts(posterior.dim, posterior.model.has_gradient, posterior.model.noisy)
    if not has_trial(posterior):
        return facts
    with interrupts(Board.for_chains(0)) as caught, one_thread():
        return facts._replace(**_trial(posterior, init, seed, caught))


def _trial(posterior: Posterior, init: Init, seed: int, caught: Caught) -> dict[str, Any]:
    """A short run of Fisher HMC, one iteration at a time, so that Ctrl-C is heard."""
    sampler, settings = pilot()
    seeds = np.random.SeedSequence(seed, spawn_key=(_SPAWN_KEY,))
    rng, d = np.random.default_rng(seeds), posterior.dim
    model = posterior.model.for_chain(0, seeds.spawn(1)[0])
    target = model.target()
    x = find(init, posterior, model, 0, rng, use_gradient=True, ascend=samplers.climbs(sampler, settings))
    trial = warm_up(sampler, settings, target, x, rng, WARMUP)
    row = trial.room(1)
    model.raise_pending()
    failed = int(target.failures.total[0])  # on the way to the start
    began, gradients, acceptance = time.perf_counter(), 0, 0.0

    def after_iteration() -> None:
        nonlocal gradients
        model.raise_pending()
        caught.raise_again()
        gradients += int(row.n_steps[0])

    while trial.left or trial.next_stage():
        trial.run(row)
        after_iteration()
    state = trial.state
    for _ in range(FROZEN):
        state = samplers.advance(sampler, target, settings, state, rng, False, row)
        after_iteration()
        acceptance += float(row.accept_prob[0]) / FROZEN
    gradients = max(gradients, 1)
    return {
        "step": float(row.step_size[0]) / settings.trajectory,
        "acceptance": acceptance,
        "condition": _condition(sampler.learnt(state)["preconditioner"]) if d <= SPECTRUM_LIMIT else None,
        "failures": (int(target.failures.total[0]) - failed) / gradients,
        "seconds": (time.perf_counter() - began) / gradients,
    }


def _condition(matrix: np.ndarray) -> float:
    """Condition number of a positive definite matrix."""
    values = np.linalg.eigvalsh(matrix)
    return float(values[-1] / values[0]) if values[0] > 0.0 else math.inf


def _is_odd(value: float | None) -> bool:
    return value is not None and not math.isfinite(value)
