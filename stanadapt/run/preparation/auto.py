"""method="auto": the choice of a method from facts about the posterior before the run.

`look` collects the facts, and `choose` has the rule.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import numpy as np

from ... import check, samplers
from ...errors import ArgumentError
from ...model.backends.contract import Model
from ...model.posterior import Posterior
from ...numerics.blas import one_thread
from ...numerics.mode_search import MOST_DENSE, Known, Peak, Surface, is_joined, new_peaks, search
from ..chain import SPECTRUM_LIMIT
from ..guard import Guard, StoppedError
from ..inits import Init, find
from ..interrupts import Caught, interrupts
from ..warmup import WarmUp, pilot, variable_groups, warm_up
from ..workers.board import Board

NAME = "auto"
DESCRIPTION = "takes one of the methods, by what it sees of the posterior"

WARMUP, FROZEN = 150, 30  # iterations of the trial
TINY_STEP = 0.002  # share of a trajectory
LARGEST_POLICY = 20  # dimension up to which rlmh learns well
_SHARE = 0.01  # a mode matters if it has this share of the mass of the largest one
_VALLEY = 4.0  # nats below the lower of two modes, from which chains seldom go between them
_SPAWN_KEY = 2**31  # of the trial's random numbers; seeds of chains have smaller keys


class PosteriorFacts(NamedTuple):
    """Facts about a posterior. Those from `step` on come from the trial; None if there was none."""

    d: int
    gradient: bool
    noisy: bool
    step: float | None = None  # its step size as a share of the length of a trajectory
    acceptance: float | None = None  # mean probability after its warm-up
    condition: float | None = None  # condition number of its metric
    failures: float | None = None  # share of its gradients that failed
    seconds: float | None = None  # time of the trial over the number of its gradients
    modes: int | None = None  # that matter and that no chain goes between

    def to_json(self) -> str:
        """The facts as JSON, with null for infinity and NaN, which JSON does not have."""
        values = self._asdict().items()
        return json.dumps({name: None if _is_not_finite(value) else value for name, value in values})


class MethodChoice(NamedTuple):
    """What to run, at its default settings, and why."""

    method: str
    reason: str  # a clause that follows "because"


def choose(facts: PosteriorFacts) -> MethodChoice:
    """Choose a method by these rules.

    With a gradient it is fisher_hmc. If climbs, of which the trial makes as many as cost what the rest of it
    costs, end at several modes with more than 1 % of the mass (by Laplace's approximation) and a deep valley
    between them, it is tempered. A trial of it has 150 iterations of warm-up, from a start like that of
    the first chain, and 30 frozen iterations. If it ends with steps shorter than 0.002 of a trajectory, the
    gradient does not tell how the density changes: the density jumps, or its gradient is wrong. Then it is
    rlmh, in up to 20 dimensions. Funnels and other narrow posteriors in so few dimensions have steps of 0.05
    or more.

    Without a gradient it is rlmh in up to 20 dimensions. It is arwmh in more dimensions, and where the
    density is noisy, because strong noise leaves rlmh without a warm start.

    Acceptance, failures, metric and time of the trial are reported but do not influence the choice. The
    choice uses no measured time, so it depends on the seed alone, as the draws do.
    """
    few = facts.d <= LARGEST_POLICY
    if not facts.gradient:
        seen = f"there is no gradient in {facts.d} dimension{'s' * (facts.d > 1)}"
        if facts.noisy:
            return MethodChoice("arwmh", "the density is only estimated, which arwmh bears best")
        return (
            MethodChoice("rlmh", seen) if few else MethodChoice("arwmh", f"{seen}, which are many for rlmh")
        )
    if facts.step is None:
        if not facts.d:
            return MethodChoice("fisher_hmc", "there are no parameters to look at")
        return MethodChoice("fisher_hmc", "the limit of time came before a trial was over")
    if facts.modes is not None and facts.modes > 1:
        return MethodChoice("tempered", f"climbs have found {facts.modes} modes with a valley between them")
    steps = f"a trial took steps of {100 * facts.step:.3g} % of a trajectory"
    if facts.step < TINY_STEP and few:
        return MethodChoice("rlmh", f"{steps}: the density jumps, or its gradient is wrong")
    return MethodChoice("fisher_hmc", f"there is a gradient, and {steps}")


def check_method(method: Any, settings: Any = None) -> None:
    """Refuse a method that is neither a sampler nor "auto", and settings for "auto".

    Raises
    ------
    ArgumentError
        The message has the nearest names, or what to do instead.
    """
    check.choice("method", method, [*samplers.METHODS, NAME])
    if method == NAME and settings is not None and settings != {}:
        raise ArgumentError(
            f"settings={check.quote(settings)} are not allowed with method={NAME!r}, since each method has "
            "its own: leave them out, or name the method that they are for"
        )


def has_trial(posterior: Posterior) -> bool:
    """Whether `look` runs the trial, which needs parameters and a gradient."""
    return posterior.dim > 0 and posterior.model.has_gradient


def look(posterior: Posterior, init: Init, seed: int, limit: float = math.inf) -> PosteriorFacts:
    """The facts for a run with this seed; `init` is the start of its first chain.

    A trial that takes more seconds than `limit` is ignored.

    Raises
    ------
    InitializationError
        The trial found no starting point.
    KeyboardInterrupt
        Ctrl-C.
    Exception
        Whatever a Python callable raised.
    """
    facts = PosteriorFacts(posterior.dim, posterior.model.has_gradient, posterior.model.noisy)
    if not has_trial(posterior):
        return facts
    with interrupts(Board.for_chains(0)) as caught, one_thread():
        try:
            late = time.perf_counter() + limit
            return facts._replace(**_run_trial(posterior, init, seed, caught, late))
        except StoppedError:
            caught.raise_again()
            return facts


def _run_trial(posterior: Posterior, init: Init, seed: int, caught: Caught, late: float) -> dict[str, Any]:
    """Run Fisher HMC for a short time, one iteration at a time, so that Ctrl-C stops it.

    Raises StoppedError where it is stopped within an iteration, or the time is `late`.
    """

    def is_over() -> bool:
        return bool(caught.signal) or time.perf_counter() > late

    sampler, settings = pilot()
    seeds = np.random.SeedSequence(seed, spawn_key=(_SPAWN_KEY,))
    rng, d = np.random.default_rng(seeds), posterior.dim
    own = posterior.model.for_chain(0, seeds.spawn(1)[0])
    model = cast(Model, Guard(own, is_over))
    target = model.target()
    ascend = samplers.climbs(sampler, settings)
    found = find(init, posterior, model, 0, rng, use_gradient=True, ascend=ascend)
    x = found.x
    groups = variable_groups(posterior.unconstrained_names)
    trial = warm_up(sampler, settings, target, x, rng, WARMUP, groups)
    row = trial.room(1)
    model.raise_pending()
    failed = int(target.failures.total[0])  # before the trial
    began, gradients, acceptance = time.perf_counter(), 0, 0.0

    def after_iteration() -> None:
        nonlocal gradients
        model.raise_pending()
        caught.raise_again()
        if is_over():
            raise StoppedError
        gradients += int(row.n_steps[0])

    while trial.n_left or trial.next_stage():
        trial.run(row)
        after_iteration()
    state = trial.state
    for _ in range(FROZEN):
        state = samplers.advance(sampler, trial.target, settings, state, rng, False, row)
        after_iteration()
        acceptance += float(row.accept_prob[0]) / FROZEN
    gradients = max(gradients, 1)
    seconds = (time.perf_counter() - began) / gradients
    return {
        "modes": _count_modes(target, state.x.size, found.tops, trial, gradients, rng, is_over),
        "step": float(row.step_size[0]) / settings.trajectory,
        "acceptance": acceptance,
        "condition": _condition(sampler.learnt(state)["preconditioner"]) if d <= SPECTRUM_LIMIT else None,
        "failures": (int(target.failures.total[0]) - failed) / gradients,
        "seconds": seconds,
    }


def _count_modes(
    target: Any,
    d: int,
    tops: np.ndarray,
    trial: WarmUp,
    most: int,
    rng: np.random.Generator,
    is_over: Callable[[], bool],
) -> int | None:
    """How many modes matter: of those at `tops` (k, d), and of those that `most` evaluations find."""
    if d > MOST_DENSE:
        return None
    surface = Surface(target, d, is_over)
    points = trial.state.windows.points[: trial.state.windows.seen]
    spread, peak = points.std(axis=0), points[-1]
    if not (np.isfinite(points).all() and (spread > 0.0).all()):
        return None
    known = Known(points, spread, peak, np.ones(d, bool), np.zeros(d, np.int64))
    ends = search(known, surface, most, rng).points
    peaks = new_peaks(surface, [peak, *tops, *ends], [])
    masses = np.array([each.log_mass for each in peaks])
    kept: list[Peak] = []
    for i in np.flatnonzero(masses > np.max(masses, initial=-np.inf) + math.log(_SHARE)):
        if not any(is_joined(peaks[i].x, other.x, surface, _VALLEY) for other in kept):
            kept.append(peaks[i])
    return len(kept)


def _condition(matrix: np.ndarray) -> float:
    """The condition number of a positive definite matrix."""
    values = np.linalg.eigvalsh(matrix)
    return float(values[-1] / values[0]) if values[0] > 0.0 else math.inf


def _is_not_finite(value: float | None) -> bool:
    """Whether the value is infinity or NaN."""
    return value is not None and not math.isfinite(value)
