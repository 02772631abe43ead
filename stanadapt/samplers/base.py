"""What a method's file offers to the rest, and the checks of its settings.

A method is a kernel sampler or an engine. A kernel sampler is a module with these names, in this order:

    Settings        NamedTuple of numbers, the paper's values as defaults
    CHOICES         for settings that are picked by name: field -> names (the kernel gets the index)
    LIMITS          allowed range of the others: field -> (low, high), low itself excluded where it says so
    NEEDS_GRADIENT  whether it calls the gradient
    NEEDS_HESSIAN   whether it needs a finite Hessian (differences of the gradient) from the start on
    WARMUP, DRAWS   default numbers of iterations
    State           NamedTuple of arrays and numbers
    n_matrices      settings -> number of (d, d) arrays that a chain holds
    stages          settings, warmup, d -> the stages of warm-up
    start           kernel: the state at the starting point
    enter           the state at the beginning of a stage (plain Python)
    step, sweep     kernels: one iteration, and a block of them
    history         what is worth recording over warm-up: names -> numbers (plain Python)
    learnt          what a chain has learnt when warm-up ends: names -> arrays (plain Python)

One that is known to fail on some posteriors may have

    caution         settings, d -> what a user should know before the run, or None

One that Fisher HMC can find the start for, see pilot.py, has a setting `pilot`, and

    piloted         state at the pilot's point, what it found, settings -> the state with that

One that learns between blocks of iterations, in plain Python, has two more, see `Refitting`:

    until_refit     state -> iterations until then
    refit           the state after learning

One whose warm-up may end before its last stage has

    settled         state -> whether the stage that has just ended was enough (plain Python)

An engine has no kernels: a program outside of this package runs a whole chain at once. Its module has, beside
Settings, CHOICES, LIMITS, NEEDS_GRADIENT, NEEDS_HESSIAN, WARMUP and DRAWS:

    STATS           what it reports of every iteration: the schema's name -> type
    n_matrices      settings -> number of (d, d) arrays that a chain holds
    run             one chain, from its start to its last draw (plain Python)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from .. import check
from ..errors import ArgumentError
from ..trace import Trace


class Stage(NamedTuple):
    """A run of warm-up iterations under one regime."""

    name: str
    length: int


class Limit(NamedTuple):
    """Allowed range of a setting."""

    low: float
    high: float
    open_low: bool = False


POSITIVE = Limit(0.0, float("inf"), True)
PROBABILITY = Limit(0.0, 1.0, True)
NOT_NEGATIVE = Limit(0.0, float("inf"))
SCALE = Limit(1e-100, 1e100)  # its square is a number too


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
    """Lengths of the windows of Fisher HMC's warm-up; the last has half as much again as its own at most."""
    first, left = [15, 15, 30, 40, 60, 96], warmup
    found: list[int] = []
    while left:
        length = first[len(found)] if len(found) < len(first) else int(1.6 * found[-1])
        found.append(left if left < 1.5 * length else length)
        left -= found[-1]
    return found


class Method(Protocol):
    """What the modules of all methods have, for type checkers."""

    __name__: str
    __doc__: str | None
    Settings: Any
    CHOICES: dict[str, tuple[str, ...]]
    LIMITS: dict[str, Limit]
    NEEDS_GRADIENT: bool
    NEEDS_HESSIAN: bool
    WARMUP: int
    DRAWS: int


class Sampler(Method, Protocol):
    """The module of a kernel sampler."""

    State: Any

    def n_matrices(self, settings: Any) -> int: ...
    def stages(self, settings: Any, warmup: int, d: int) -> list[Stage]: ...
    def start(self, target: Any, settings: Any, x: Any, rng: Any) -> Any: ...
    def enter(self, stage: str, state: Any, settings: Any) -> Any: ...
    def sweep(self, target: Any, settings: Any, state: Any, rng: Any, adapting: bool, trace: Any) -> Any: ...
    def history(self, state: Any) -> dict[str, float]: ...
    def learnt(self, state: Any) -> dict[str, Any]: ...


@runtime_checkable
class Refitting(Protocol):
    """What a sampler has beside, if it fits a surrogate to its history between compiled blocks."""

    def until_refit(self, state: Any) -> int: ...
    def refit(self, state: Any, settings: Any, rng: np.random.Generator) -> Any: ...


@runtime_checkable
class Piloted(Protocol):
    """What a sampler has beside, if Fisher HMC can begin its warm-up."""

    def piloted(self, state: Any, found: Any, settings: Any) -> Any: ...


@runtime_checkable
class Cautious(Protocol):
    """What a sampler has beside, if there are posteriors that it is not for."""

    def caution(self, settings: Any, d: int) -> str | None: ...


@runtime_checkable
class Settling(Protocol):
    """What a sampler has beside, if it can tell that it has learnt enough."""

    def settled(self, state: Any) -> bool: ...


def advance(
    sampler: Sampler, target: Any, settings: Any, state: Any, rng: Any, adapting: bool, trace: Trace
) -> Any:
    """Run one iteration for every row of `trace`, and the refits that are due before any of them.

    When they are due is part of the state, so draws do not depend on where blocks end.
    """
    if not (adapting and isinstance(sampler, Refitting)):
        return sampler.sweep(target, settings, state, rng, adapting, trace)
    done, n = 0, len(trace.logp)
    while done < n:
        if sampler.until_refit(state) == 0:
            with np.errstate(all="ignore"):  # what is not finite is refused by the fits
                state = sampler.refit(state, settings, rng)
        rows = slice(done, min(n, done + sampler.until_refit(state)))
        part = Trace(*(column[rows] for column in trace))
        state = sampler.sweep(target, settings, state, rng, True, part)
        done = rows.stop
    return state


def keeps_adapting(settings: Any) -> bool:
    """Whether adaptation goes on after warm-up, ever more rarely."""
    return bool(getattr(settings, "vanishing", False))


def climbs(sampler: Sampler, settings: Any) -> bool:
    """Whether random starts first climb out of the far tail: a gradient helps, and no paper forbids it."""
    return sampler.NEEDS_GRADIENT and not getattr(settings, "faithful", False)


class Plan(NamedTuple):
    """What an engine is asked for, beside its settings."""

    chain: int
    seed: int  # of this chain alone, 1 to 2**31 - 1
    warmup: int
    draws: int
    save_warmup: bool
    stopped: Callable[[], bool]  # whether the run is to end
    tell: Callable[[int], None]  # to be told the iterations done, where they are known


class WholeChain(NamedTuple):
    """What an engine's chain gave, not thinned; rows of warm-up come first, where they were asked for."""

    names: list[str]  # flat names of the columns; generated quantities may be missing
    values: np.ndarray  # (n, c) constrained
    stats: dict[str, np.ndarray]  # (n,) each, under the names of STATS
    learnt: dict[str, np.ndarray]
    seconds: tuple[float, float] | None  # of warm-up and of the draws, where they are known apart


@runtime_checkable
class Engine(Method, Protocol):
    """The module of an engine. `program` is what the model runs in, a `backends.base.StanProgram`."""

    STATS: dict[str, type[np.generic]]

    def n_matrices(self, settings: Any) -> int: ...
    def run(self, program: Any, settings: Any, x: np.ndarray, plan: Plan) -> WholeChain: ...


# What every kernel sampler reports of an iteration.
KERNEL_STATS: dict[str, type[np.generic]] = {
    "lp": np.float64,
    "acceptance_rate": np.float64,
    "accepted": np.bool_,
    "step_size": np.float64,
    "n_steps": np.int32,
}


def stats(method: Sampler | Engine) -> dict[str, type[np.generic]]:
    """The columns that a method reports of every iteration."""
    return method.STATS if isinstance(method, Engine) else KERNEL_STATS


def n_matrices(method: Sampler | Engine, settings: Any) -> int:
    """Number of (d, d) arrays that a chain of the method holds."""
    return method.n_matrices(settings)


def resolve(sampler: Method, given: Any) -> Any:
    """The sampler's Settings with every value checked and in its declared type.

    `given` is None, a mapping of some settings, or the Settings themselves. A setting that is picked by name
    comes in as the name and goes on as its index, and one that may be None goes on as NaN then, which is what
    kernels can use.
    """
    defaults = sampler.Settings()
    if given is None:
        given = {}
    elif isinstance(given, sampler.Settings):
        given = given._asdict()
    elif not isinstance(given, Mapping):
        allowed = f"a dict or {sampler.Settings.__module__}.Settings"
        raise check.refused("settings", given, allowed)
    values = {}
    for name in given:
        check.choice("setting", name, defaults._fields)
    for name, default in defaults._asdict().items():
        values[name] = _setting(sampler, name, given.get(name, default), default)
    return sampler.Settings(**values)


def _setting(sampler: Method, name: str, value: Any, default: Any) -> Any:
    shown = f"settings[{name!r}]"
    if name in sampler.CHOICES:
        return sampler.CHOICES[name].index(check.choice(shown, value, sampler.CHOICES[name]))
    if default is None:
        low, high, open_low = sampler.LIMITS[name]
        return np.nan if value is None else check.number(shown, value, low, high, open_low=open_low)
    if isinstance(default, bool):
        return check.boolean(shown, value)
    if isinstance(default, int):
        low, high, _ = sampler.LIMITS[name]
        return check.integer(
            shown, value, int(low), check.LARGEST_COUNT if high == float("inf") else int(high)
        )
    if isinstance(default, float):
        low, high, open_low = sampler.LIMITS[name]
        return check.number(shown, value, low, high, open_low=open_low)
    raise ArgumentError(f"{sampler.Settings.__module__}.Settings.{name} has a default of no known type")


def named(sampler: Method, settings: Any) -> dict[str, Any]:
    """The settings as a user writes them: the name of a choice, not its index, and None rather than NaN."""
    values: dict[str, Any] = settings._asdict()
    values |= {name: names[values[name]] for name, names in sampler.CHOICES.items()}
    return {name: None if _is_nan(value) else value for name, value in values.items()}


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)
