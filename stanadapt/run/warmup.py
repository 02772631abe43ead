"""The one driver of a warm-up: from a starting point through all stages, a block of iterations at a time.

Chains, the trial of method="auto", tests, benchmarks and the figures of the papers all use it. A warm-up is a
plan of segments. There is one, of the method itself; or there are two, where Fisher HMC begins as its pilot:

A chain of short steps finds the typical set slowly while its preconditioner is wrong, and its preconditioner
is wrong until it has been there for long. Trajectories with a metric that is renewed in windows get out of
this in some hundreds of iterations, see samplers/fisher_hmc.py. So a method with the setting `pilot` may let
Fisher HMC, at its defaults, run so many iterations. Then the method starts at the last point of that chain,
with a preconditioner made of its metric (`take_over`), and goes on adapting as it does. In the same way the
first segment takes over what a chain of an earlier run has learnt, see warm_start.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from ..errors import ArgumentError
from ..model.variables import variable_of
from ..samplers import Facts, Handover, Sampler, Stage, advance, enter, explore, resolve, sampler
from ..samplers.base import METRIC
from ..target import log_density_gradient
from ..trace import Trace, empty_trace
from ..transport.composition import points_in_z

PILOT = "fisher_hmc"
LOOKS = (30, 60, 120, 240)  # earlier draws that are looked at, as long as they differ from what was learnt
_PILOT_PREFIX = "pilot_"  # of the names of its stages in results


class WarmupPart(NamedTuple):
    """A part of warm-up that one sampler runs."""

    sampler: Sampler
    settings: Any
    stages: tuple[Stage, ...]  # none of them is empty
    prefix: str  # of the names of its stages in results


class WarmupPlace(NamedTuple):
    """Where in its plan a warm-up is: numbers, so that it can be stored and taken up again."""

    segment: int = 0
    stage: int = -1  # before the first
    left: int = 0  # iterations of the stage


def what_it_takes(facts: Facts) -> str:
    """The part of an earlier run that a method can begin with: METRIC, STEP_SIZE, or nothing."""
    return METRIC if facts.takes_pilot else facts.takes


def pilot() -> tuple[Sampler, Any]:
    """The sampler that begins the warm-up of others, and its settings."""
    found = cast(Sampler, sampler(PILOT))
    return found, resolve(found, None)


def pilot_length(method: Sampler, settings: Any, warmup: int) -> int:
    """Iterations of warm-up that belong to the pilot; where a method has one by default, a quarter at most.

    Raises
    ------
    ArgumentError
        They are more than there are, or the run is to be faithful to a paper.
    """
    n = int(settings.pilot) if method.FACTS.takes_pilot else 0
    if n and n == method.Settings._field_defaults["pilot"]:
        n = min(n, warmup // 4)
    if n and getattr(settings, "faithful", False):
        raise ArgumentError(
            f"settings['pilot']={n} is not allowed with faithful=True: no paper has a "
            "pilot; leave one of them out"
        )
    if n > warmup:
        raise ArgumentError(
            f"settings['pilot']={n} is not allowed with warmup={warmup}: its iterations are among "
            "those of warm-up; use fewer, or a longer warm-up"
        )
    return n


def plan(
    method: Sampler, settings: Any, warmup: int, d: int, warm: Handover | None = None
) -> list[WarmupPart]:
    """The segments of a warm-up of so many iterations in dimension `d`, which may begin with `warm`.

    Raises
    ------
    ArgumentError
        Settings do not go together, or not with this warm-up.
    """
    first = pilot_length(method, settings, warmup)
    if warm is not None and _is_own(warm, method) and np.isnan(getattr(settings, "initial_step_size", 0.0)):
        settings = settings._replace(initial_step_size=warm.step_size)
    own = WarmupPart(method, settings, _stages(method, settings, warmup - first, d, warm), "")
    if not first:
        return [own]
    leader, its_settings = pilot()
    return [
        WarmupPart(leader, its_settings, _stages(leader, its_settings, first, d, warm), _PILOT_PREFIX),
        own,
    ]


def _stages(method: Sampler, settings: Any, length: int, d: int, warm: Handover | None) -> tuple[Stage, ...]:
    stages = method.warm_stages if warm is not None and method.FACTS.settles else method.stages
    return tuple(stage for stage in stages(settings, length, d) if stage.length)


def _is_own(warm: Handover, method: Sampler) -> bool:
    """Whether a step size is one of the same method."""
    return warm.step_size > 0.0 and warm.method == method.__name__.rpartition(".")[2]


class WarmUp:
    """A warm-up under way. `place`, `state` and the target's coordinates are all that changes, beside the
    random numbers.

    The caller enters a stage and runs all its iterations, in blocks of any lengths:

        while warm_up.next_stage():
            while warm_up.n_left:
                warm_up.run(trace)

    Draws do not depend on the blocks.
    """

    def __init__(
        self,
        segments: list[WarmupPart],
        target: Any,
        x: np.ndarray,
        rng: np.random.Generator,
        place: WarmupPlace | None = None,
        state: Any = None,
        groups: np.ndarray | None = None,
        warm: Handover | None = None,
        modes: np.ndarray | None = None,
    ) -> None:
        """From the point `x` (d,); or, where `place` and `state` are given, from there.

        `groups` (d,) are the variables that coordinates belong to, numbered; without them, it is one. `warm`
        is what the first segment takes over, as the plan of the segments had it. `modes` (k, d) are handed
        over from the pilot to the method.
        """
        self.segments, self.target, self.x, self.rng = segments, target, x, rng
        self.place = WarmupPlace() if place is None else place
        self.state = state
        self.modes = np.empty((0, x.size)) if modes is None else modes
        if place is None:
            first = segments[0]
            takes = warm if what_it_takes(first.sampler.FACTS) == METRIC else None
            if takes is None:
                self.state = first.sampler.start(target, first.settings, x, rng)
            else:
                self._begin_warm(first, takes)
            if groups is not None and first.sampler.FACTS.transports and len(self.state.groups):
                self.state = self.state._replace(groups=groups)
            if takes is not None and first.sampler.FACTS.settles:
                self._look(first, target, takes.points)

    @property
    def segment(self) -> WarmupPart:
        """The present one."""
        return self.segments[self.place.segment]

    @property
    def n_left(self) -> int:
        """Iterations of the present stage that are still to be run."""
        return self.place.left

    @property
    def label(self) -> str:
        """The name of the present stage in results."""
        return self.segment.prefix + self.segment.stages[self.place.stage].name

    def next_stage(self) -> bool:
        """Enter the stage that follows. Returns False where there is none, and warm-up is over."""
        place, segment = self.place, self.segment
        last, more = place.segment + 1 == len(self.segments), place.stage + 1 < len(segment.stages)
        if (
            last
            and more  # at the end of the last stage nothing depends on the answer, which takes long
            and place.stage >= 0
            and segment.sampler.FACTS.settles
            and segment.sampler.is_settled(self.state)
        ):
            return False
        if more:
            stage = segment.stages[place.stage + 1]
            with np.errstate(all="ignore"):  # a chain may be on its way to infinity; that is diagnosed later
                seen = segment.sampler, self.target, stage.name, self.state
                self.state = explore(*seen, segment.settings)
                self.state = enter(segment.sampler, stage.name, self.state, segment.settings)
            if segment.sampler.FACTS.transports:
                self.target = self.target._replace(transport=self.state.transport)
            self.place = WarmupPlace(place.segment, place.stage + 1, stage.length)
            return True
        if last:
            return False
        self._hand_over()
        return self.next_stage()

    def run(self, trace: Trace) -> None:
        """One iteration for every row of `trace`, at most as many as are left of the stage."""
        segment, n = self.segment, len(trace.logp)
        self.state = advance(
            segment.sampler, self.target, segment.settings, self.state, self.rng, True, trace
        )
        self.place = self.place._replace(left=self.place.left - n)

    def finish(self) -> Any:
        """Run all that is left. Returns the state at the end."""
        while self.n_left or self.next_stage():
            self.run(self.room(self.n_left))
        return self.state

    def room(self, n: int) -> Trace:
        """An empty trace of `n` iterations for the present sampler."""
        return empty_trace(n, self.x.size, len(self.segment.sampler.FACTS.columns))

    def _hand_over(self) -> None:
        """The state of the next segment's sampler where the pilot has ended.

        It goes on in the pilot's coordinates. Where the sampler needs a Hessian and the point has none, it
        starts at `x`.
        """
        before, after = self.segments[self.place.segment : self.place.segment + 2]
        length = sum(stage.length for stage in before.stages)
        with np.errstate(all="ignore"):
            handover: Handover = cast(Any, before.sampler).hand_over(self.state, before.settings, length)
            self.target = self.target._replace(transport=handover.transport)
            state = after.sampler.start(self.target, after.settings, handover.z, self.rng)
            if state.logp == -np.inf:
                state = after.sampler.start(self.target, after.settings, self._z(handover), self.rng)
            handover = handover._replace(modes=points_in_z(handover.transport, self.modes))
            self.state = after.sampler.take_over(state, handover, after.settings)
        self.place = WarmupPlace(self.place.segment + 1)

    def _begin_warm(self, first: WarmupPart, warm: Handover) -> None:
        """The first state of a sampler that takes over what a chain of an earlier run has learnt."""
        sampler, settings = first.sampler, first.settings
        if sampler.FACTS.settles:
            settings = sampler.warm_settings(settings)
        elif warm.cov.ndim == 1:
            warm = warm._replace(cov=np.diag(warm.cov))
        if not _is_own(warm, sampler):
            warm = warm._replace(step_size=np.nan)
        with np.errstate(all="ignore"):
            warm, moved = warm._replace(z=self._z(warm)), self.target._replace(transport=warm.transport)
            state = sampler.start(moved, settings, warm.z, self.rng)
            if state.logp > -np.inf:
                self.target, self.state = moved, sampler.take_over(state, warm, first.settings)
            else:  # the point is lost by rounding in the coordinates
                self.state = sampler.start(self.target, first.settings, self.x, self.rng)

    def _look(self, first: WarmupPart, target: Any, points: np.ndarray) -> None:
        """Show the sampler earlier draws and their scores, until they support what it took over.

        `target` is in the program's coordinates. Draws without a density are left out.
        """
        scores, inside, seen = np.empty_like(points), np.zeros(len(points), bool), 0
        for k in LOOKS:
            for i in range(seen, min(k, len(points))):
                inside[i] = log_density_gradient(target, points[i], scores[i]) > -np.inf
            seen = min(k, len(points))
            with np.errstate(all="ignore"):
                self.state, is_enough = first.sampler.look(
                    self.state, points[:seen][inside[:seen]], scores[:seen][inside[:seen]], first.settings
                )
            if is_enough or seen == len(points):
                return

    def _z(self, handover: Handover) -> np.ndarray:
        """The starting point in the coordinates that are handed over."""
        return np.asarray(points_in_z(handover.transport, self.x[None])[0])


def warm_up(
    method: Sampler,
    settings: Any,
    target: Any,
    x: np.ndarray,
    rng: np.random.Generator,
    warmup: int,
    groups: np.ndarray | None = None,
) -> WarmUp:
    """A warm-up of so many iterations from `x` (d,), not yet run; `groups` as `WarmUp` has them."""
    return WarmUp(plan(method, settings, warmup, x.size), target, x, rng, groups=groups)


def variable_groups(names: Sequence[str]) -> np.ndarray:
    """The number of the variable that each coordinate (d,) belongs to, by names such as `theta.1`."""
    own = [variable_of(name) for name in names]
    numbers = {name: i for i, name in enumerate(dict.fromkeys(own))}
    return np.array([numbers[name] for name in own], np.int64)
