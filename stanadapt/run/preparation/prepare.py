"""From what was asked to a run that can begin: starts, the method, memory, and compiled kernels."""

from __future__ import annotations

import functools
import math
import multiprocessing
from typing import Any, NamedTuple, cast

from ... import check, samplers
from ...errors import ArgumentError, warn
from ...model import PROGRAM_BACKENDS
from ...model.nuts_programs import check_nuts, refuse_before_compiling
from ...model.posterior import Posterior, as_posterior
from .. import inits, warmup
from ..draws import row_bytes
from ..inits import Init
from ..job import Job
from ..progress import tell
from ..request import Request
from ..stopping import Until, check_until
from ..together import learn_together
from ..workers.migration import Migration
from ..workers.processes import Processes, pack
from ..workers.threads import Threads
from ..workers.turns import Turns
from . import auto, known_modes, warm_start
from .compiling import compile_model, compile_steps, job_methods, job_steps, pilot_steps
from .memory import check_chains, check_memory, stays_on_disk
from .named_quantities import check_quantities, describe_quantities


class Prepared(NamedTuple):
    """A run that can begin."""

    posterior: Posterior
    job: Job
    inits: list[Init]
    turns: Turns
    notes: dict[str, Any]  # for the result's attributes: texts and numbers


def open_posterior(method: str, model: Any, data: Any, backend: str, include_paths: Any = ()) -> Posterior:
    """Open a model for a method; a Posterior is open already.

    Raises
    ------
    ArgumentError, ModelError, DataError
    """
    is_engine = method != auto.NAME and samplers.is_engine(samplers.sampler(method))
    before_compiling = functools.partial(refuse_before_compiling, method) if is_engine else None
    return as_posterior(model, data, backend, before_compiling, include_paths)


def prepare(
    request: Request,
    posterior: Posterior,
    *,
    stored: bool = False,
    cluster: Any = None,
) -> Prepared:
    """Prepare all that comes before the first iteration. `stored`: draws go to a disk where they are many.

    Raises
    ------
    ArgumentError
        An argument does not go with this posterior, or the run does not fit in memory.
    InitializationError
        The trial of method="auto" found no starting point.
    """
    check_quantities(request, posterior)
    check_chains(request.chains)
    compile_model(posterior, request.progress)
    starts = _starts(request, posterior)
    job, notes = _choose(request, posterior, starts[0])
    notes |= inits.describe(request.inits, request.init_radius)
    notes |= describe_quantities(request)
    if posterior.name:
        notes["model_name"] = posterior.name
    if request.warm is not None and posterior.dim:
        starts = warm_start.hand_over(request.warm, starts, posterior, job)
        notes |= warm_start.describe(request.warm, job.method, starts)
    _check_method(job, posterior)
    if request.until is not None:
        job = _check_goals(request, request.until, job, posterior)
    on_disk = stored and stays_on_disk(request, job, posterior.description)
    check_memory(posterior, job, request.workers, on_disk)
    sampler = cast(samplers.Sampler, samplers.sampler(job.method))
    if sampler.FACTS.cautious and (advice := sampler.caution(job.settings, posterior.dim)):
        warn(f"method={job.method!r}: {advice}")
    turns = _turns(request, job, posterior, cluster)
    compile_steps(job_steps(job, posterior), request.progress, methods=job_methods(job, posterior))
    starts, found = known_modes.hand_over(job, posterior, starts, request.progress)
    return Prepared(posterior, job, starts, turns, notes | found)


def prepare_again(
    request: Request,
    job: Job,
    posterior: Posterior,
    starts: list[Init],
    notes: dict[str, Any],
    cluster: Any = None,
) -> Prepared:
    """Prepare a run that has begun already, in a store: its job, its starts and its notes are known."""
    check_memory(posterior, job, request.workers, stays_on_disk(request, job, posterior.description))
    compile_model(posterior, request.progress)
    turns = _turns(request, job, posterior, cluster)
    compile_steps(job_steps(job, posterior), request.progress, methods=job_methods(job, posterior))
    return Prepared(posterior, job, starts, turns, notes)


def _starts(request: Request, posterior: Posterior) -> list[Init]:
    """Where chains start: as `inits` has it; else, of a run that begins warm, at earlier draws."""
    if request.warm is not None and posterior.dim:
        warm_start.check_parameters(request.warm, posterior)
        if request.inits is None:
            return warm_start.plan_starts(
                request.warm, posterior, request.chains, request.init_radius, request.seed
            )
    return inits.plan(request.inits, request.init_radius, posterior, request.chains, request.seed)


def _choose(request: Request, posterior: Posterior, init: Init) -> tuple[Job, dict[str, Any]]:
    """The job, with the method that method="auto" takes; and the notes on that choice."""
    if request.method != auto.NAME:
        return request.job(request.method, request.settings), {}
    if auto.has_trial(posterior):
        compile_steps(pilot_steps(posterior), request.progress)
    limit = None if request.until is None else request.until.seconds
    facts = auto.look(posterior, init, request.seed, math.inf if limit is None else limit)
    choice = auto.choose(facts)
    if request.progress:
        tell(f"stanadapt: {choice.method}, because {choice.reason}")
    notes = {"method_requested": request.method, "auto_reason": choice.reason, "auto_facts": facts.to_json()}
    return request.job(choice.method, None), notes


def _check_method(job: Job, posterior: Posterior) -> None:
    """Refuse a method that cannot draw from this posterior, and settings that do not go together."""
    sampler = samplers.sampler(job.method)
    if posterior.model.noisy and sampler.FACTS.gradient:
        raise ArgumentError(
            f"method={job.method!r} is not allowed for a noisy target, whose density is only estimated: use "
            f"one of {_gradient_free()}"
        )
    if samplers.is_engine(sampler):
        check_nuts(job.method, posterior)
    if samplers.uses_gradient(sampler, job.settings) and not posterior.model.has_gradient:
        advice = "pass gradient=... to Target.from_python, or " * (posterior.model.backend == "python")
        if sampler.FACTS.gradient_free:
            advice += f"settings={dict(sampler.FACTS.gradient_free)}, or "
        raise ArgumentError(
            f"method={job.method!r} needs a gradient and this target has none: {advice}use one of "
            f"{_gradient_free()}"
        )
    if not samplers.is_engine(sampler):
        warmup.plan(cast(samplers.Sampler, sampler), job.settings, job.warmup, posterior.dim)


def _gradient_free() -> str:
    """Methods that call nothing but the density; they never call it again at the current point.

    This imports every method, which takes a quarter of a second.
    """
    return ", ".join(name for name in samplers.METHODS if not samplers.facts(name).gradient)


def _check_goals(request: Request, until: Until, job: Job, posterior: Posterior) -> Job:
    """Refuse goals out of reach. Where the user gave no number of draws, the memory limits it."""
    if samplers.facts(job.method).whole_chains:
        raise ArgumentError(
            f"until={str(until)!r} is not allowed with method={job.method!r}, whose chains run as a whole: "
            "leave it out, or use another method"
        )
    if request.draws is None:
        size = row_bytes(job, posterior.n_values, posterior.dim) * job.chains / job.thin
        most = int(min(0.5 * check.free_memory() / size, job.draws))
        job = job._replace(draws=max(most, samplers.facts(job.method).draws))
    check_until(until, posterior, job.chains, job.rows)
    return job


def _turns(request: Request, job: Job, posterior: Posterior, cluster: Any) -> Turns:
    """Threads; or processes, where several chains run at a time and the model is not for threads.

    Chains of programs that learn for long do so in processes.
    """
    if cluster is not None:
        from ..workers.cluster import Cluster

        return Cluster.of(cluster, pack(posterior))
    workers = min(request.workers, request.chains)
    is_daemon = multiprocessing.current_process().daemon
    is_program = posterior.model.backend in PROGRAM_BACKENDS
    if workers == 1 or posterior.model.thread_safe:
        learns = not (samplers.is_engine(samplers.sampler(job.method)) or learn_together(job))
        may_migrate = workers > 1 and learns and is_program and not is_daemon
        return Migration(workers) if may_migrate else Threads(workers)
    if is_daemon:
        warn(
            "the chains run one after another: this process is a worker of multiprocessing's, which may not "
            "have processes of its own. A concurrent.futures.ProcessPoolExecutor starts workers that may"
        )
        return Threads(1)
    packed = pack(posterior)
    if is_program:
        warn(
            f"{posterior.library}: this library was compiled without STAN_THREADS=true and cannot run in "
            "threads; its chains run in processes."
        )
    return Processes(workers, packed)
