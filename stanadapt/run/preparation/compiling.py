"""Compile kernels before chains start, in one thread, and tell the user about it."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from ...jit import is_compiled
from ...model.posterior import Posterior
from ...numerics.ascent import climb, write_heights
from ...numerics.reference import reference_steps
from ...numerics.windows import rehearse
from ...samplers import is_engine, sampler
from ...target import log_density_gradient
from ...trace import empty_trace
from ...transport.learning import learn_funnel
from .. import warmup
from ..interrupts import interrupts
from ..job import Job
from ..progress import tell
from ..workers.board import Board

_SEVERAL = 5  # if a variable has at least so many coordinates, a hierarchy is likely


def compile_model(posterior: Posterior, progress: bool) -> None:
    """Compile the model itself, if it comes from Python (PyMC, JAX, NumPyro); Stan programs skip this."""
    if hasattr(posterior.model, "compile"):
        posterior.model.compile(tell if progress else lambda _: None)


def compile_job(job: Job, posterior: Posterior, progress: bool) -> None:
    """Compile all that the chains of a job call."""
    method = sampler(job.method)
    if is_engine(method):  # of our kernels its chain calls only this one, to check its start
        _announce(log_density_gradient, posterior, job.method, progress)
        return
    if method.FACTS.piloted and job.settings.pilot > 0:
        compile_pilot(posterior, progress)
    _compile(job.method, job.settings, posterior, progress)


def is_ready(method: str) -> bool:
    """Whether the kernel that runs a method is compiled, in this process or on disk."""
    module: Any = sampler(method)
    return is_compiled(log_density_gradient if is_engine(module) else module.sweep)


def compile_pilot(posterior: Posterior, progress: bool) -> None:
    """Compile the method that runs the pilot of other methods, and the trial of method="auto"."""
    _compile(warmup.PILOT, warmup.pilot()[1], posterior, progress)


def compile_reference(posterior: Posterior, progress: bool) -> None:
    """Compile the model itself and the reference kernel, which checks draws (numerics/reference.py)."""
    compile_model(posterior, progress)
    _announce(reference_steps, posterior, "the reference kernel", progress)
    d, rng = posterior.dim, np.random.default_rng(0)
    points, root, room = np.empty((0, d)), np.empty((0, 0)), (np.empty((0, 2, d)), np.empty((0, 3)))
    arguments = (posterior.model.target(), points, np.ones(d), root, 1.0, True, rng, *room, np.empty((0, 2)))
    with interrupts(Board.for_chains(0)) as caught:
        reference_steps(*arguments)
    caught.raise_again()


def _announce(kernel: Any, posterior: Posterior, method: str, progress: bool) -> None:
    if progress and posterior.dim and not is_compiled(kernel):
        tell(f"stanadapt: compiling {method} for this machine; this happens once and takes some seconds")


def _compile(method: str, settings: Any, posterior: Posterior, progress: bool) -> None:
    if posterior.dim == 0:
        return
    module: Any = sampler(method)
    _announce(module.sweep, posterior, method, progress)
    rng = np.random.default_rng(0)
    arguments = (posterior.model.target(), settings, np.zeros(posterior.dim), rng)
    target, kind, x, generator = (numba.typeof(argument) for argument in arguments)
    trace = numba.typeof(empty_trace(1, posterior.dim))
    start, sweep = module.start, module.sweep
    board = Board.for_chains(0)
    with interrupts(board) as caught:  # in the compiler Ctrl-C would get lost, or leave a kernel unfinished
        if posterior.model.has_gradient:  # chains climb before the draws, or modes.py climbs after them
            climb.compile((target, x, numba.types.int64))
            write_heights.compile((target, numba.typeof(np.zeros((1, 1))), x))
        start.compile((target, kind, x, generator))
        state = next(iter(start.overloads.values())).signature.return_type
        sweep.compile((target, kind, state, generator, numba.types.boolean, trace))
        if module.FACTS.transports:
            rehearse()
            groups = warmup.variable_groups(posterior.unconstrained_names)
            if np.bincount(groups).max() >= _SEVERAL:
                learn_funnel()
    caught.raise_again()
