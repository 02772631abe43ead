"""The contract of a method: the names that its file offers to the rest of the package.

A method is a kernel sampler or an engine. A kernel sampler is a module with these names, in this order:

    Settings        NamedTuple of annotated values, with the paper's defaults, see settings.py
    FACTS           what the method is, see `Facts`
    State           NamedTuple of arrays and numbers that a chain carries from one iteration to the next
    stages          settings, warmup, d -> the stages of warm-up (plain Python)
    start           kernel: the state at the starting point
    step            kernel: one iteration; returns the next state and an `Info` (trace.py)
    sweep           `make_sweep(step)`: a block of iterations, see loop.py
    move            target, settings, state, x, log density there or None -> the state of a chain that moves
                    to x (d,) and keeps all that it has learned (plain Python). Most methods set this hook to
                    `move_with_density`, `move_with_score` or `move_with_root` below. x is in the target's
                    coordinates. The chain keeps a log density that is given: a noisy target needs that

A module may leave out these functions in plain Python:

    n_matrices      settings -> number of (d, d) arrays that a chain holds; 0 if left out
    enter           stage, state, settings -> the state at the beginning of the stage; as it was if left out
    history         state -> numbers that warm-up records: names -> numbers; none if left out
    learnt          state -> what a chain has learned when warm-up ends: names -> arrays; none if left out

Some methods can do more than others. Each of these abilities is one or several functions in plain Python, and
a method has the ability if its module has the functions:

    caution         settings, d -> what a user should know before the run, or None

    take_over       state at the first point, a `Handover`, settings -> the state

    until_refit     state -> number of iterations before the method learns in plain Python
    refit           state, settings, rng -> the state after that

    is_settled      state -> whether the stage that has just ended may be the last
    warm_stages     settings, warmup, d -> the stages of warm-up after a `Handover`
    warm_settings   settings -> the settings for `start` before a `Handover`
    look            state, earlier draws and their scores, settings -> the state, and whether they
                    support what was taken over

    explore         target, stage, state, settings -> the state. It follows `enter`, and may ask for the
                    density anywhere

    count_evaluations  settings, warmup, d -> what a search for modes before the run may take for each chain
    find_modes      target, a pilot's `Handover`, settings, evaluations, random numbers, a function that says
                    whether to stop -> `FoundModes`, which all chains begin with

    outcome         state after the draws, settings, the map of its coordinates -> what they have shown beside
                    themselves: names -> arrays, for a group of the result with the name FACTS.outcomes

Three settings mean the same in every method that has them: `faithful` (it follows the paper to the letter),
`vanishing` (adaptation goes on after warm-up, more and more rarely), and `pilot` (so many iterations of
Fisher HMC begin warm-up; it needs `take_over`). A method that learns coordinates has `transport` and
`groups` in its State.

An engine has no kernels: a program outside of this package runs a whole chain at once. Its module has
Settings, FACTS and:

    STATS           the columns that it reports for every iteration: the schema's name -> type
    run             one chain, from its start to its last draw (plain Python)
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeGuard

import numpy as np

from ..model.backends.contract import ChainPlan
from ..target import log_density, log_density_gradient
from ..trace import Trace
from ..transport.composition import rows_into_x

# Families of methods.
WALK, LANGEVIN, HAMILTONIAN, SURROGATE, POLICY = "walk", "Langevin", "Hamiltonian", "surrogate", "policy"
# When an acceptance rate that differs from `target_accept` is a fault: on both sides; only if it is too low,
# because a rate that is too high only costs time; or never, because the method aims at no rate.
BOTH_SIDES, TOO_LOW, NO_TARGET = "both sides", "too low", "no target"
# Whether a random start first climbs out of the far tail.
ALWAYS, UNLESS_FAITHFUL, NEVER = "always", "unless faithful", "never"
# What a method can take from an earlier run to begin with. It takes a step size only from a run of the same
# method, as the setting `initial_step_size`.
METRIC, STEP_SIZE = "metric", "step size"


class Facts(NamedTuple):
    """Facts about a method, for the rest of the package.

    The fields are what a method declares. The properties are what its module tells by having a function, a
    setting or a field of its State.
    """

    module: str  # the name of the method's module, `__name__` there
    family: str  # WALK, LANGEVIN, HAMILTONIAN, SURROGATE or POLICY
    needs: str  # what an iteration evaluates, in words for the user
    learns: tuple[str, ...]  # what it adapts, likewise
    warmup: int  # number of warm-up iterations by default
    draws: int  # number of draws by default
    gradient: bool  # whether it calls the gradient
    gradient_free: tuple[tuple[str, Any], ...] = ()  # settings with which it calls no gradient, if it can
    hessian: bool = False  # whether it needs a finite Hessian (differences of gradients) at every point
    acceptance: str = NO_TARGET  # BOTH_SIDES, TOO_LOW or NO_TARGET
    climbs: str = NEVER  # ALWAYS, UNLESS_FAITHFUL or NEVER
    columns: tuple[tuple[str, type[np.generic]], ...] = ()  # its own in sample_stats, in Info's order
    harmless_divergences: float = 0.0  # divergences in at most this share of draws are no finding
    dims: tuple[
        tuple[str, tuple[str, ...]], ...
    ] = ()  # of arrays in `learnt` and `outcome`, if the shape does not tell the dims
    outcomes: str = ""  # the group of the result for what `outcome` gives; its dims are among `dims`
    capacity: str = ""  # setting that limits how much of the history it can learn from
    leapfrogs: float = 0.0  # one of its steps counts as so many leapfrog steps; 0 if it has other steps
    unscaled: bool = False  # whether its preconditioner is the covariance only up to a factor
    takes_step_size: bool = False  # whether it can begin with the step size of an earlier run

    @property
    def faithful(self) -> bool:
        """Whether it has a setting `faithful`, which follows the paper to the letter."""
        return "faithful" in _fields(self.module, "Settings")

    @property
    def has_vanishing(self) -> bool:
        """Whether it has a setting `vanishing`: adaptation goes on, more and more rarely."""
        return "vanishing" in _fields(self.module, "Settings")

    @property
    def takes_pilot(self) -> bool:
        """Whether Fisher HMC can begin its warm-up."""
        return "pilot" in _fields(self.module, "Settings")

    @property
    def has_replicas(self) -> bool:
        """Whether a chain has points beside its draws, so that a draw alone does not tell where it is."""
        return "replicas" in _fields(self.module, "State")

    @property
    def takes(self) -> str:
        """METRIC, STEP_SIZE, or nothing."""
        if _has(self.module, "take_over"):
            return METRIC
        return STEP_SIZE if self.takes_step_size else ""

    @property
    def refits(self) -> bool:
        """Whether it learns in plain Python between blocks of iterations."""
        return _has(self.module, "refit")

    @property
    def settles(self) -> bool:
        """Whether its warm-up may end before its last stage."""
        return _has(self.module, "is_settled")

    @property
    def transports(self) -> bool:
        """Whether it learns coordinates."""
        return {"transport", "groups"} <= set(_fields(self.module, "State"))

    @property
    def cautious(self) -> bool:
        """Whether it warns of some posteriors."""
        return _has(self.module, "caution")

    @property
    def searches(self) -> bool:
        """Whether it looks for modes before the run."""
        return _has(self.module, "find_modes")

    @property
    def whole_chains(self) -> bool:
        """Whether it is an engine."""
        return _has(self.module, "run")


def _has(module: str, name: str) -> bool:
    return hasattr(sys.modules[module], name)


def _fields(module: str, name: str) -> tuple[str, ...]:
    """The fields of a NamedTuple of a module, if it has one of this name."""
    return getattr(getattr(sys.modules[module], name, None), "_fields", ())


class Stage(NamedTuple):
    """A part of warm-up in which the method keeps one way of adapting."""

    name: str
    length: int


class Handover(NamedTuple):
    """What a method takes over from the pilot that began its warm-up, or from a chain of an earlier run."""

    z: np.ndarray  # (d,) the last point of the pilot's chain; the point where a chain begins
    mean: np.ndarray  # (d,) mean of the pilot's last window, or of earlier draws
    cov: np.ndarray  # (d, d) a metric, which is the covariance of a Gaussian target; (d,) if diagonal
    n: int  # the number of iterations that mean and cov count for
    transport: np.ndarray  # the map of the coordinates that all these are in, see transport/
    # Only from a chain of an earlier run:
    step_size: float = np.nan
    method: str = ""  # the method that has this step size
    points: np.ndarray = np.empty((0, 0))  # (k, d) earlier draws, in x
    # Of a method that looks for modes before the run:
    modes: np.ndarray = np.empty((0, 0))  # (k, d) those that were found, in the map's coordinates


class FoundModes(NamedTuple):
    """What a search for modes before a run has found, in the coordinates of its pilot."""

    modes: np.ndarray  # (k, d)
    evaluations: int  # that it took
    narrowest: float  # scale of a mode that it would every second time have seen, relative to the largest one


class Method(Protocol):
    """The names that the modules of all methods have, for type checkers."""

    __name__: str
    __doc__: str | None
    Settings: Any
    FACTS: Facts

    def n_matrices(self, settings: Any) -> int: ...


class Sampler(Method, Protocol):
    """The module of a kernel sampler, including the functions that only some have."""

    State: Any

    def stages(self, settings: Any, warmup: int, d: int) -> list[Stage]: ...
    def start(self, target: Any, settings: Any, x: Any, rng: Any) -> Any: ...
    def enter(self, stage: str, state: Any, settings: Any) -> Any: ...
    def sweep(self, target: Any, settings: Any, state: Any, rng: Any, adapting: bool, trace: Any) -> Any: ...
    def move(self, target: Any, settings: Any, state: Any, x: np.ndarray, logp: float | None) -> Any: ...
    def history(self, state: Any) -> dict[str, float]: ...
    def learnt(self, state: Any) -> dict[str, Any]: ...

    def caution(self, settings: Any, d: int) -> str | None: ...
    def take_over(self, state: Any, handover: Handover, settings: Any) -> Any: ...
    def until_refit(self, state: Any) -> int: ...
    def refit(self, state: Any, settings: Any, rng: np.random.Generator) -> Any: ...
    def is_settled(self, state: Any) -> bool: ...
    def warm_stages(self, settings: Any, warmup: int, d: int) -> list[Stage]: ...
    def warm_settings(self, settings: Any) -> Any: ...
    def look(self, state: Any, points: Any, scores: Any, settings: Any) -> tuple[Any, bool]: ...
    def explore(self, target: Any, stage: str, state: Any, settings: Any) -> Any: ...
    def count_evaluations(self, settings: Any, warmup: int, d: int) -> int: ...
    def find_modes(
        self, target: Any, handover: Handover, settings: Any, most: int, rng: np.random.Generator, ticked: Any
    ) -> FoundModes: ...
    def outcome(self, state: Any, settings: Any, transport: np.ndarray) -> dict[str, np.ndarray]: ...


class WholeChain(NamedTuple):
    """The chain that an engine ran, not thinned. Rows of warm-up come first if the plan asks for them."""

    names: list[str]  # flat names of the columns; generated quantities may be missing
    values: np.ndarray  # (n, c) values on the constrained scale
    stats: dict[str, np.ndarray]  # (n,) each, with the names of STATS
    learnt: dict[str, np.ndarray]
    seconds: tuple[float, float] | None  # of warm-up and of the draws, if both are known


class Engine(Method, Protocol):
    """The module of an engine. `program`, a `backends.contract.StanProgram`, runs the model."""

    STATS: dict[str, type[np.generic]]

    def run(self, program: Any, settings: Any, x: np.ndarray, plan: ChainPlan) -> WholeChain: ...


def is_engine(method: Method) -> TypeGuard[Engine]:
    """Whether a program outside of this package runs the method's chains."""
    return method.FACTS.whole_chains


def advance(
    sampler: Sampler, target: Any, settings: Any, state: Any, rng: Any, adapting: bool, trace: Trace
) -> Any:
    """Run one iteration for every row of `trace`, and the refits that are due in between.

    The state says when a refit is due, so that draws do not depend on where blocks end. The state is in the
    coordinates of the target; at the end the rows of the trace are in x.
    """
    if adapting and sampler.FACTS.refits:
        state = _advance_refitting(sampler, target, settings, state, rng, trace)
    else:
        state = sampler.sweep(target, settings, state, rng, adapting, trace)
    if len(target.transport):
        rows_into_x(target.transport, trace.x, trace.logp)
    return state


def _advance_refitting(
    sampler: Sampler, target: Any, settings: Any, state: Any, rng: Any, trace: Trace
) -> Any:
    done, n = 0, len(trace.logp)
    while done < n:
        if sampler.until_refit(state) == 0:
            with np.errstate(all="ignore"):  # the fits refuse numbers that are not finite
                state = sampler.refit(state, settings, rng)
        rows = slice(done, min(n, done + sampler.until_refit(state)))
        state = sampler.sweep(target, settings, state, rng, True, trace.part(rows))
        done = rows.stop
    return state


def enter(sampler: Sampler, stage: str, state: Any, settings: Any) -> Any:
    """The state at the beginning of a stage."""
    return sampler.enter(stage, state, settings) if hasattr(sampler, "enter") else state


def explore(sampler: Sampler, target: Any, stage: str, state: Any, settings: Any) -> Any:
    """The state after a look at the density beyond where the chain has been."""
    return sampler.explore(target, stage, state, settings) if hasattr(sampler, "explore") else state


def history(sampler: Sampler, state: Any) -> dict[str, float]:
    """The numbers that warm-up records."""
    return sampler.history(state) if hasattr(sampler, "history") else {}


def knowledge(sampler: Sampler, state: Any) -> dict[str, Any]:
    """What a chain has learned when warm-up ends."""
    return sampler.learnt(state) if hasattr(sampler, "learnt") else {}


def outcome(sampler: Sampler, state: Any, settings: Any, transport: np.ndarray) -> dict[str, np.ndarray]:
    """What the draws of a chain have shown beside themselves."""
    return sampler.outcome(state, settings, transport) if sampler.FACTS.outcomes else {}


def n_matrices(method: Method, settings: Any) -> int:
    """The number of (d, d) arrays that a chain holds."""
    return method.n_matrices(settings) if hasattr(method, "n_matrices") else 0


def move_with_density(target: Any, settings: Any, state: Any, x: np.ndarray, logp: float | None) -> Any:
    """The hook `move` of methods with a State that holds x and its logp."""
    return state._replace(x=x.copy(), logp=log_density(target, x) if logp is None else logp)


def move_with_score(target: Any, settings: Any, state: Any, x: np.ndarray, logp: float | None) -> Any:
    """The hook `move` of methods with a State that holds x, its logp and its score."""
    score = np.empty_like(x)
    return state._replace(x=x.copy(), logp=log_density_gradient(target, x, score), score=score)


def move_with_root(root: str) -> Callable[[Any, Any, Any, np.ndarray, float | None], Any]:
    """The hook `move` of methods with a State that holds x, its logp, its score, and `rotated`.

    `rotated` is the product of the score with a matrix of the State, and `root` is the name of that matrix.
    """

    def move(target: Any, settings: Any, state: Any, x: np.ndarray, logp: float | None) -> Any:
        there = move_with_score(target, settings, state, x, logp)
        return there._replace(rotated=getattr(state, root) @ there.score)

    return move


def keeps_adapting(sampler: Method, settings: Any) -> bool:
    """Whether adaptation goes on after warm-up, more and more rarely."""
    return sampler.FACTS.has_vanishing and bool(settings.vanishing)


def climbs(sampler: Method, settings: Any) -> bool:
    """Whether random starts first climb out of the far tail."""
    if sampler.FACTS.climbs == UNLESS_FAITHFUL:
        return not settings.faithful
    return sampler.FACTS.climbs == ALWAYS


# The columns of samplers that follow Hamiltonian trajectories, with the names of ArviZ's schema: the energy
# of the draw; the rise of the energy from the start of the trajectory to its end, accepted or not, which is
# infinite if the end has no energy; and whether the trajectory diverged (numerics/energy.py).
TRAJECTORY_COLUMNS: tuple[tuple[str, type[np.generic]], ...] = (
    ("energy", np.float64),
    ("energy_error", np.float64),
    ("diverging", np.bool_),
)

# The columns of every kernel sampler. The sampler's own columns follow them.
KERNEL_STATS: dict[str, type[np.generic]] = {
    "lp": np.float64,
    "acceptance_rate": np.float64,
    "accepted": np.bool_,
    "step_size": np.float64,
    "n_steps": np.int32,
}


def stats(method: Method) -> dict[str, type[np.generic]]:
    """The columns that a method reports for every iteration."""
    return method.STATS if is_engine(method) else KERNEL_STATS | dict(method.FACTS.columns)
