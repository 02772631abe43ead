"""What a method's file offers to the rest of the package.

A method is a kernel sampler or an engine. A kernel sampler is a module with these names, in this order:

    Settings        NamedTuple of annotated numbers with the paper's values as defaults, see settings.py
    FACTS           what the method is, see `Facts`
    State           NamedTuple of arrays and numbers: what a chain carries from one iteration to the next
    n_matrices      settings -> number of (d, d) arrays that a chain holds
    stages          settings, warmup, d -> the stages of warm-up
    start           kernel: the state at the starting point
    enter           the state at the beginning of a stage (plain Python)
    step            kernel: one iteration; returns the next state and an `Info` (trace.py)
    sweep           `swept(step)`: a block of iterations, see loop.py
    history         what is worth recording over warm-up: names -> numbers (plain Python)
    learnt          what a chain has learnt when warm-up ends: names -> arrays (plain Python)

FACTS says which of these it has beside:

    caution         (cautious) settings, d -> what a user should know before the run, or None
    piloted         (piloted) state at the pilot's last point, its `Handover`, settings -> the first state
    until_refit     (refits) state -> iterations until the method learns in plain Python
    refit           (refits) the state after that
    settled         (settles) state -> whether the stage that has just ended was enough (plain Python)

An engine has no kernels: a program outside of this package runs a whole chain at once. Its module has, beside
Settings, FACTS and n_matrices:

    STATS           what it reports of every iteration: the schema's name -> type
    run             one chain, from its start to its last draw (plain Python)
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, TypeGuard

import numpy as np

from ..model.backends.base import Plan
from ..trace import Trace

# Families of methods.
WALK, LANGEVIN, HAMILTONIAN, SURROGATE, POLICY = "walk", "Langevin", "Hamiltonian", "surrogate", "policy"
# What it means that an acceptance rate differs from `target_accept`: too low or too high is a fault; only too
# low is, because steps cannot grow further or nothing is lost but time; or there is no rate to aim at.
BOTH_SIDES, TOO_LOW, NO_TARGET = "both sides", "too low", "no target"
# When a random start first climbs out of the far tail.
ALWAYS, UNLESS_FAITHFUL, NEVER = "always", "unless faithful", "never"


class Facts(NamedTuple):
    """What a method is. The rest of the package reads this and guesses nothing from names of settings."""

    family: str  # WALK, LANGEVIN, HAMILTONIAN, SURROGATE or POLICY
    needs: str  # what an iteration evaluates, in words
    learns: tuple[str, ...]  # what it adapts, in words
    warmup: int  # iterations by default
    draws: int  # likewise
    gradient: bool  # whether it calls the gradient
    hessian: bool = False  # whether it needs a finite Hessian (differences of gradients) from the start on
    acceptance: str = NO_TARGET  # BOTH_SIDES, TOO_LOW or NO_TARGET
    climbs: str = NEVER  # ALWAYS, UNLESS_FAITHFUL or NEVER
    columns: tuple[tuple[str, type[np.generic]], ...] = ()  # of its own in sample_stats, in Info's order
    harmless_divergences: float = 0.0  # share of draws up to which divergences are no finding
    dims: tuple[
        tuple[str, tuple[str, ...]], ...
    ] = ()  # of what `learnt` gives, where the shape does not tell
    capacity: str = ""  # setting that bounds how much of the history it can learn from
    faithful: bool = False  # whether there is a setting `faithful`, which follows the paper to the letter
    vanishing: bool = False  # whether there is a setting `vanishing`: adaptation goes on, ever more rarely
    piloted: bool = False  # whether Fisher HMC can begin its warm-up (setting `pilot`)
    refits: bool = False  # whether it learns in plain Python between blocks of iterations
    settles: bool = False  # whether its warm-up may end before its last stage
    cautious: bool = False  # whether there are posteriors that it warns of
    whole_chains: bool = False  # whether it is an engine


class Stage(NamedTuple):
    """A run of warm-up iterations under one regime."""

    name: str
    length: int


class Handover(NamedTuple):
    """What a pilot hands to the method whose warm-up it has begun."""

    x: np.ndarray  # (d,) the last point of its chain
    mean: np.ndarray  # (d,) of its last window
    cov: np.ndarray  # (d, d) its metric, which is the covariance where the target is a Gaussian
    n: int  # its iterations


def preconditioned_stages(settings: Any, warmup: int, last: str) -> list[Stage]:
    """Simple MALA; learning with a short memory, unless faithful; then the paper's recursion as `last`.

    A pilot has done what the first two are for.
    """
    if settings.pilot:
        return [Stage(last, warmup)]
    simple = min(settings.simple_mala, warmup if settings.faithful else warmup // 4)
    rest = warmup - simple
    forgetting = 0 if settings.faithful else int(settings.forgetting * rest)
    return [Stage("simple_mala", simple), Stage("forgetting", forgetting), Stage(last, rest - forgetting)]


def growing_windows(warmup: int) -> list[int]:
    """Lengths of the windows of Fisher HMC's warm-up: 15, 15, 30, 40, 60, 96, then 1.6 times the one before.

    What is left at the end joins the last window if it is less than half of the next one.
    """
    first, left = [15, 15, 30, 40, 60, 96], warmup
    lengths: list[int] = []
    while left:
        length = first[len(lengths)] if len(lengths) < len(first) else int(1.6 * lengths[-1])
        lengths.append(left if left < 1.5 * length else length)
        left -= lengths[-1]
    return lengths


class Method(Protocol):
    """What the modules of all methods have, for type checkers."""

    __name__: str
    __doc__: str | None
    Settings: Any
    FACTS: Facts

    def n_matrices(self, settings: Any) -> int: ...


class Sampler(Method, Protocol):
    """The module of a kernel sampler, with the functions that only some have."""

    State: Any

    def stages(self, settings: Any, warmup: int, d: int) -> list[Stage]: ...
    def start(self, target: Any, settings: Any, x: Any, rng: Any) -> Any: ...
    def enter(self, stage: str, state: Any, settings: Any) -> Any: ...
    def sweep(self, target: Any, settings: Any, state: Any, rng: Any, adapting: bool, trace: Any) -> Any: ...
    def history(self, state: Any) -> dict[str, float]: ...
    def learnt(self, state: Any) -> dict[str, Any]: ...

    def caution(self, settings: Any, d: int) -> str | None: ...
    def piloted(self, state: Any, handover: Handover, settings: Any) -> Any: ...
    def until_refit(self, state: Any) -> int: ...
    def refit(self, state: Any, settings: Any, rng: np.random.Generator) -> Any: ...
    def settled(self, state: Any) -> bool: ...


class WholeChain(NamedTuple):
    """What an engine's chain gave, not thinned; rows of warm-up come first, where they were asked for."""

    names: list[str]  # flat names of the columns; generated quantities may be missing
    values: np.ndarray  # (n, c) constrained
    stats: dict[str, np.ndarray]  # (n,) each, under the names of STATS
    learnt: dict[str, np.ndarray]
    seconds: tuple[float, float] | None  # of warm-up and of the draws, where they are known apart


class Engine(Method, Protocol):
    """The module of an engine. `program` is what the model runs in, a `model.backends.base.StanProgram`."""

    STATS: dict[str, type[np.generic]]

    def run(self, program: Any, settings: Any, x: np.ndarray, plan: Plan) -> WholeChain: ...


def is_engine(method: Method) -> TypeGuard[Engine]:
    """Whether a program outside of this package runs the method's chains."""
    return method.FACTS.whole_chains


def advance(
    sampler: Sampler, target: Any, settings: Any, state: Any, rng: Any, adapting: bool, trace: Trace
) -> Any:
    """Run one iteration for every row of `trace`, and the refits that are due before any of them.

    When they are due is part of the state, so draws do not depend on where blocks end.
    """
    if not (adapting and sampler.FACTS.refits):
        return sampler.sweep(target, settings, state, rng, adapting, trace)
    done, n = 0, len(trace.logp)
    while done < n:
        if sampler.until_refit(state) == 0:
            with np.errstate(all="ignore"):  # what is not finite is refused by the fits
                state = sampler.refit(state, settings, rng)
        rows = slice(done, min(n, done + sampler.until_refit(state)))
        state = sampler.sweep(target, settings, state, rng, True, trace.part(rows))
        done = rows.stop
    return state


def keeps_adapting(sampler: Method, settings: Any) -> bool:
    """Whether adaptation goes on after warm-up, ever more rarely."""
    return sampler.FACTS.vanishing and bool(settings.vanishing)


def climbs(sampler: Method, settings: Any) -> bool:
    """Whether random starts first climb out of the far tail."""
    if sampler.FACTS.climbs == UNLESS_FAITHFUL:
        return not settings.faithful
    return sampler.FACTS.climbs == ALWAYS


# What samplers that follow Hamiltonian trajectories report beside, under the names of ArviZ's schema: the
# energy of the draw; by how much the energy rose from the start of the trajectory to its end, accepted or
# not, and infinity where the end has no energy; and whether the trajectory diverged (numerics/energy.py).
TRAJECTORY_COLUMNS: tuple[tuple[str, type[np.generic]], ...] = (
    ("energy", np.float64),
    ("energy_error", np.float64),
    ("diverging", np.bool_),
)

# What every kernel sampler reports of an iteration; its own columns follow.
KERNEL_STATS: dict[str, type[np.generic]] = {
    "lp": np.float64,
    "acceptance_rate": np.float64,
    "accepted": np.bool_,
    "step_size": np.float64,
    "n_steps": np.int32,
}


def stats(method: Method) -> dict[str, type[np.generic]]:
    """The columns that a method reports of every iteration."""
    return method.STATS if is_engine(method) else KERNEL_STATS | dict(method.FACTS.columns)
