"""Compile kernels before chains start, in a thread of its own, and show the user how far it is.

Compiling is cut into steps. A step that was compiled before, on this machine or for the release, is not
shown: it leaves a mark in the folder of kernels, by its name, the types that it is for, and the processors
that it is for.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, cast

import numba
import numpy as np

from ...cache import private_folder
from ...compiler.kernel_folder import cache_folder, shipped_folder
from ...compiler.level_codegen import target_processor
from ...garbage import paused_collector
from ...jit import compile_late_kernels
from ...model import PROGRAM_BACKENDS
from ...model.posterior import Posterior
from ...numerics.ascent import climb, write_heights
from ...numerics.blas import one_thread
from ...numerics.networks import Shape, first_weights, regress
from ...numerics.reference import reference_steps
from ...samplers import Sampler, history, is_engine, knowledge, resolve, sampler, uses_gradient
from ...samplers.base import POLICY
from ...target import hessian, log_density, log_density_gradient
from ...trace import empty_trace
from ...transport.composition import points_in_z, rows_into_x
from ...transport.learning import learn_funnel
from ...transport.map_table import no_transport
from .. import warmup
from ..background import Background
from ..interrupts import raised_interrupts
from ..job import Job
from ..progress import StepProgress, tell
from .second_compiler import follow, second_compiler

# What kernels are compiled with in place of a model: their types are the same for all.
STAND_IN = "parameters { vector[6] x; } model { x ~ std_normal(); }"
_MANY = 4  # steps that are to be compiled, from which on a second process pays: it takes two seconds to start
_WARMUP = 1000  # iterations, in which every method has learned something
_CAPACITY = 20  # points or features that methods which have so many learn from: fits take its square, or cube
_SEARCH = 1000  # evaluations of a search for modes
_MARKS = "compiled"  # a folder among those of kernels


class Step(NamedTuple):
    """A part of compiling, shown by its name."""

    name: str
    types: str  # what it compiles for
    run: Callable[[], object]
    is_lazy: bool = False  # whether it may be left out where it was compiled before: nothing is loaded then


def _learn_walk() -> object:
    from ...transport.fields.field_learning import learn_walk  # here, since few runs come to it

    return learn_walk()


_COORDINATES = (
    Step("the coordinates of hierarchies", "", learn_funnel, is_lazy=True),
    Step("the coordinates of latent fields", "", _learn_walk, is_lazy=True),
)


def compile_steps(
    steps: Sequence[Step], progress: bool, *, loading: bool = True, methods: Sequence[str] = ()
) -> None:
    """Run the steps, which compiles or loads kernels, and show those that are compiled.

    Without `loading`, steps that were compiled before are left out. If many steps are left that `methods`
    need, a second process compiles them from the end. An interrupted step is finished in the background: an
    exception in the compiler could leave half a kernel.

    Raises
    ------
    KeyboardInterrupt, SystemExit
        A signal came meanwhile.
    """
    marked = [_is_marked(step) for step in steps]

    def work(begin: Callable[[str], None]) -> Iterator[None]:
        with paused_collector():  # a collection between two steps takes a twentieth of a second
            for step, is_known in zip(steps, marked, strict=True):
                if not is_known:
                    begin(step.name)
                if not is_known or (loading and not step.is_lazy):
                    step.run()
                    _mark(step)
                yield

    n = marked.count(False)
    with (
        StepProgress("compiling", n, progress, " for this machine, which happens once") as bar,
        raised_interrupts(),
        second_compiler(methods if n >= _MANY else ()),
    ):
        Background(work).watch(bar.begin, bar.refresh)


def compile_for(parent: int, methods: Sequence[str]) -> None:
    """What the second process does that `parent` has started: the steps of methods, from the last one."""
    follow(parent)
    with paused_collector():
        for step in reversed(ahead_steps(methods, wholly=False)):
            if not _is_marked(step):
                step.run()
                _mark(step)


def _mark_name(step: Step) -> str:
    text = "\n".join((step.name, step.types, target_processor()))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _is_marked(step: Step) -> bool:
    shipped = shipped_folder()
    if shipped is not None and (shipped / _MARKS / _mark_name(step)).exists():
        return True
    try:
        return (cache_folder() / _MARKS / _mark_name(step)).exists()
    except OSError:  # nothing is kept
        return False


def _mark(step: Step) -> None:
    with contextlib.suppress(OSError):
        path = cache_folder() / _MARKS / _mark_name(step)
        if not path.exists():
            private_folder(path.parent)
            path.touch()


def compile_model(posterior: Posterior, progress: bool) -> None:
    """Compile the model itself, if it comes from Python (PyMC, JAX, NumPyro); Stan programs skip this."""
    model: Any = posterior.model
    if hasattr(model, "compile"):

        def work(say: Callable[[str], None]) -> Iterator[None]:
            model.compile(say)
            yield

        with raised_interrupts():
            Background(work).watch(tell if progress else lambda _: None, lambda: None)


def job_steps(job: Job, posterior: Posterior) -> list[Step]:
    """All that the chains of a job call."""
    steps = pilot_steps(posterior) if _begins_with_pilot(job) else []
    return [*steps, *method_steps(job.method, job.settings, posterior)]


def job_methods(job: Job, posterior: Posterior) -> list[str]:
    """The methods whose kernels a job needs, if they are those that every Stan program calls."""
    if posterior.model.backend not in PROGRAM_BACKENDS or is_engine(sampler(job.method)):
        return []
    return [warmup.PILOT, job.method] if _begins_with_pilot(job) else [job.method]


def _begins_with_pilot(job: Job) -> bool:
    method = sampler(job.method)
    if is_engine(method):
        return False
    return warmup.pilot_length(cast(Sampler, method), job.settings, job.warmup) > 0


def pilot_steps(posterior: Posterior) -> list[Step]:
    """The method that runs the pilot of other methods, and the trial of method="auto"."""
    return method_steps(warmup.PILOT, warmup.pilot()[1], posterior)


def _stand_in() -> Posterior:
    return Posterior(STAND_IN, backend="stanli")


def ahead_steps(methods: Sequence[str], *, wholly: bool = True) -> list[Step]:
    """What runs of these methods need for most models, at their default settings.

    With `wholly`, what only few models need is there, too.
    """
    posterior = _stand_in()
    steps: dict[tuple[str, str], Step] = {}
    for name in methods:
        common = method_steps(name, resolve(sampler(name), None), posterior)
        for step in (*common, *(_rare_steps(name, common, posterior) if wholly else ())):
            steps.setdefault(step[:2], step)
    return list(steps.values())


def _rare_steps(method: str, steps: Sequence[Step], posterior: Posterior) -> list[Step]:
    """What few runs of a method come to, beyond these steps: chains compile it where they need it."""
    module: Any = sampler(method)

    def rest() -> None:
        for step in steps:  # what is loaded tells which late kernels it may call
            if not step.is_lazy:  # a step for learning is the warm-up that follows
                step.run()
        _warm_up(module, posterior)
        if module.FACTS.searches:
            _search_modes(module, posterior)
        if module.FACTS.family == POLICY:
            _train_policy()
        compile_late_kernels()

    if is_engine(module):
        return []
    own = Step(f"what few models need of {method}", steps[0].types, rest, is_lazy=True)
    return [*(_COORDINATES if module.FACTS.transports else ()), own]


def method_steps(method: str, settings: Any, posterior: Posterior) -> list[Step]:
    """What the chains of a method call, with the types of this posterior."""
    if posterior.dim == 0:
        return []
    module: Any = sampler(method)
    arguments = (posterior.model.target(), settings, np.zeros(posterior.dim), np.random.default_rng(0))
    target, kind, x, rng = (numba.typeof(argument) for argument in arguments)
    trace = numba.typeof(empty_trace(1, posterior.dim))
    common = str((target, x, rng, trace))
    steps = []
    if is_engine(module):  # of our kernels its chain calls only this one, to check its start
        one = (target, x, x)
        steps.append(Step("the log density", common, lambda: log_density_gradient.prepare(one)))
    else:
        own = f"{common} {kind}"

        def state() -> Any:
            if hasattr(module.start, "prepare"):
                return module.start.prepare((target, kind, x, rng))
            return numba.typeof(_first_state(module, settings)[1])

        def sweep() -> None:
            if hasattr(module.sweep, "prepare"):
                module.sweep.prepare((target, kind, state(), rng, numba.types.boolean, trace))
            else:  # plain Python, which calls a kernel
                small, first = _first_state(module, settings)
                rows = empty_trace(0, len(first.x))
                for adapting in (True, False):
                    module.sweep(small, settings, first, np.random.default_rng(0), adapting, rows)

        def start() -> None:
            if uses_gradient(module, settings):  # the search for a starting point calls these
                log_density_gradient.prepare((target, x, x))
            else:
                log_density.prepare((target, x))
            if module.FACTS.hessian:
                hessian.prepare((target, x, numba.typeof(np.empty((1, 1)))))
            state()

        steps.append(Step(f"the start of {method}", own, start))
        steps.append(Step(f"the iterations of {method}", own, sweep))
        facts = module.FACTS
        if facts.refits or facts.family == POLICY:
            steps.append(
                Step(f"the learning of {method}", own, lambda: _warm_up(module, _stand_in()), is_lazy=True)
            )
    if posterior.model.has_gradient:  # chains climb before the draws, or modes.py climbs after them
        steps.append(Step("climbs", common, lambda: _compile_climbs(target, x)))
    if (backend := posterior.model.backend) in PROGRAM_BACKENDS:
        steps.append(Step("results", backend, lambda: _build_nothing(posterior)))
    return steps


def _first_state(module: Any, settings: Any) -> tuple[Any, Any]:
    """A small target and a state there, where a method starts in plain Python: types are those of any model.

    The model of a run would be evaluated for this, maybe for minutes.
    """
    posterior = _stand_in()
    target = posterior.model.target()
    return target, module.start(target, settings, np.zeros(posterior.dim), np.random.default_rng(0))


def _compile_climbs(target: Any, x: Any) -> None:
    climb.prepare((target, x, numba.types.int64))
    write_heights.prepare((target, numba.typeof(np.zeros((1, 1))), x))


def _warm_up(module: Any, posterior: Posterior) -> Any:
    """A warm-up on a small model: what a method calls between its blocks of iterations.

    Returns the state at the end.
    """
    settings, rng = resolve(module, None), np.random.default_rng(0)
    if capacity := module.FACTS.capacity:
        settings = settings._replace(**{capacity: _CAPACITY})
    target, x = posterior.model.target(), np.full(posterior.dim, 0.1)
    with one_thread():
        state = warmup.warm_up(module, settings, target, x, rng, min(_WARMUP, module.FACTS.warmup)).finish()
    history(module, state)
    knowledge(module, state)
    return state


def _train_policy() -> None:
    """What trains a policy towards actions that are not zero, as most scales of proposals ask for."""
    rng, shape = np.random.default_rng(0), Shape(1, 2, 1)
    points = rng.standard_normal((10, 1))
    regress(shape, first_weights(shape, rng), points, points, rng, epochs=1, good_enough=0.0)


def _search_modes(module: Any, posterior: Posterior) -> None:
    """A short search for modes on a small model, and the moves between coordinates before and after it."""
    leader: Any = sampler(warmup.PILOT)
    handover = leader.hand_over(_warm_up(leader, posterior), warmup.pilot()[1], _WARMUP)
    x = handover.z[None].copy()
    rows_into_x(handover.transport, x, np.zeros(1))
    points_in_z(handover.transport, x)
    rng = np.random.default_rng(0)
    target, settings = posterior.model.target(), resolve(module, None)
    module.find_modes(target, handover, settings, _SEARCH, rng, lambda: False)


def _build_nothing(posterior: Posterior) -> None:
    no_transport()  # what results tell of coordinates where there are none
    rows, values = np.empty((0, posterior.dim)), np.empty((0, posterior.n_values))
    posterior.model.writer(1)(rows, values, np.empty(0, np.int64))


def reference_step(posterior: Posterior) -> Step:
    """The reference kernel, which checks draws (numerics/reference.py)."""
    d, rng = posterior.dim, np.random.default_rng(0)
    points, root, room = np.empty((0, d)), np.empty((0, 0)), (np.empty((0, 2, d)), np.empty((0, 3)))
    arguments = (posterior.model.target(), points, np.ones(d), root, 1.0, True, rng, *room, np.empty((0, 2)))
    types = str(tuple(numba.typeof(argument) for argument in arguments))
    return Step("the reference kernel", types, lambda: reference_steps(*arguments))
