"""The front door: `sample`, and the list of methods."""

from __future__ import annotations

import contextlib
import functools
import secrets
import time
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numba
import numpy as np

from . import auto, check, engine, inits, results, runner, samplers
from .chain import Board, Job
from .diagnostics import diagnose
from .errors import ArgumentError, ChainError, FindingsWarning, ModelError, StanAdaptWarning
from .jit import is_compiled
from .numerics.ascent import climb
from .posterior import BACKENDS, Posterior
from .progress import Progress, tell
from .target import log_density_gradient
from .trace import empty_trace


def sample(
    model: Any,
    data: Any = None,
    *,
    method: str = "fisher_mala",
    chains: int = 4,
    warmup: int | None = None,
    draws: int | None = None,
    thin: int = 1,
    seed: int | None = None,
    inits: Any = None,
    init_radius: float = 2.0,
    workers: int | None = None,
    backend: str = "auto",
    settings: Any = None,
    progress: bool = True,
    save_warmup: bool = False,
    coords: Mapping[str, Sequence[Any]] | None = None,
    dims: Mapping[str, Sequence[str]] | None = None,
    log_likelihood: str | Sequence[str] = (),
    posterior_predictive: str | Sequence[str] = (),
    keep_unconstrained: bool = False,
) -> Any:
    """Draw from the posterior of a Stan program, or of any log density, in parallel chains.

    Parameters
    ----------
    model
        A path to a .stan file; Stan program text; a path to a library that BridgeStan compiled; an open
        `bridgestan.StanModel`; a `cmdstanpy.CmdStanModel`; a `Posterior`; or a `Target`, such as `abc` makes
        of a simulator. The method nuts runs in stanli, or in CmdStan where the model is a CmdStanModel with
        its executable.
    data
        A dict of numbers, arrays, lists, pandas or xarray objects; a path to a JSON file; JSON text; or None.
    method
        A name that `methods()` lists; or "auto", which takes one of them by what it sees of the posterior:
        `stanadapt.auto.choose` has the rule, and the result's attributes have the method, the reason
        (auto_reason) and what was seen (auto_facts).
    chains
        Number of chains.
    warmup, draws
        Iterations of each chain for adaptation, and after it with everything learnt frozen. The defaults
        are the method's, see `methods()`. Fisher HMC ends its warm-up sooner where it has settled; `warmup`
        is the most there are, and adaptation/warmup_iterations what there were.
    thin
        Keep every thin-th iteration.
    seed
        0 to 2**32 - 1. Draws depend on it and on nothing else: not on workers or progress. By default a
        fresh one, found in the result's attributes.
    inits
        Where chains start. None: uniform on (-init_radius, init_radius) on the unconstrained scale, up to
        100 tries. A number: that radius. A dict of constrained values, maybe of some parameters only, or a
        list of one per chain, or a path to JSON. An array of unconstrained points (chains, d). An earlier
        InferenceData: its last draws.
    init_radius
        Radius for what `inits` leaves open; 0 starts all chains at the origin.
    workers
        Chains that run at the same time; by default as many as there are cores.
    backend
        "auto", "stanli" or "bridgestan"; see `Posterior`.
    settings
        A dict of the method's settings, or its Settings. None with method="auto".
    progress
        Show a progress bar (lines, where the output is no terminal).
    save_warmup
        Keep the iterations of warm-up too, in groups warmup_posterior and warmup_sample_stats.
    coords, dims
        Names of dimensions and their coordinates, as ArviZ takes them.
    log_likelihood, posterior_predictive
        Names of generated quantities to put in the groups of that name.
    keep_unconstrained
        Keep the unconstrained draws too, in a group unconstrained_posterior.

    Returns
    -------
    arviz.InferenceData or xarray.DataTree
        What the installed arviz works with. Groups: posterior, sample_stats, adaptation (step size,
        acceptance and the preconditioner over warm-up, and what each chain has learnt), observed_data,
        constant_data, and the ones asked for. Ctrl-C once returns the draws so far; with nuts, whose chains
        run as a whole, those of the chains that were finished.

    Raises
    ------
    ArgumentError
        An argument or a setting is not allowed; before anything runs.
    ModelError, DataError
        The model cannot be opened, or the data do not fit.
    InitializationError
        A chain found no starting point with a finite log density.
    ChainError
        A worker process died, memory ran out, or Stan's own sampler gave up.

    Examples
    --------
    >>> idata = stanadapt.sample("eight_schools.stan", "eight_schools.json", seed=1)
    >>> stanadapt.summary(idata)
    """
    auto.check_method(method, settings)
    chains = check.integer("chains", chains, 1, check.LARGEST_COUNT)
    warmup = None if warmup is None else check.integer("warmup", warmup, 0, check.LARGEST_COUNT)
    draws = None if draws is None else check.integer("draws", draws, 1, check.LARGEST_COUNT)
    if seed is None:
        seed = secrets.randbits(32)
    plan = functools.partial(
        _job,
        warmup=warmup,
        draws=draws,
        thin=check.integer("thin", thin, 1, draws or check.LARGEST_COUNT),
        chains=chains,
        seed=check.integer("seed", seed, 0, 2**32 - 1),
        save_warmup=check.boolean("save_warmup", save_warmup),
        keep_unconstrained=check.boolean("keep_unconstrained", keep_unconstrained),
    )
    job = None if method == auto.NAME else plan(method, settings)
    radius = check.number("init_radius", init_radius, 0.0, check.LARGEST_RADIUS)
    workers = (
        runner.available_cores()
        if workers is None
        else check.integer("workers", workers, 1, check.LARGEST_COUNT)
    )
    progress = check.boolean("progress", progress)
    check.choice("backend", backend, BACKENDS)

    posterior = model if isinstance(model, Posterior) else Posterior(model, data, backend=backend)
    if isinstance(model, Posterior) and data is not None:
        raise ArgumentError("data are not allowed with a Posterior: it was opened with its data")
    if posterior.n_values == 0:
        raise ModelError("model: it has no parameters and no generated quantities, so nothing to draw")
    moved = {
        "log_likelihood": _generated("log_likelihood", log_likelihood, posterior),
        "posterior_predictive": _generated("posterior_predictive", posterior_predictive, posterior),
    }
    for name in moved["log_likelihood"]:
        if name in moved["posterior_predictive"]:
            raise ArgumentError(f"log_likelihood and posterior_predictive both name {name!r}; only one may")
    _check_labels(posterior, coords, dims)
    _check_chains(chains)
    starts = _starts(inits, radius, posterior, chains)
    notes: dict[str, str] = {}
    if job is None:
        choice, facts = _choose(posterior, starts[0], seed, progress)
        job = plan(choice.method, None)
        notes = {"method_requested": method, "auto_reason": choice.reason, "auto_facts": facts.to_json()}
    sampler = samplers.sampler(job.method)
    _check_model(job.method, posterior, sampler)
    if not isinstance(sampler, samplers.Engine):
        adapting = job.warmup - samplers.pilot.length(sampler, job.settings, job.warmup)
        sampler.stages(job.settings, adapting, posterior.dim)  # refuses settings that do not go together
    _check_memory(posterior, sampler, job, workers)
    if isinstance(sampler, samplers.Cautious) and (advice := sampler.caution(job.settings, posterior.dim)):
        warnings.warn(f"method={job.method!r}: {advice}", StanAdaptWarning, stacklevel=2)
    in_processes = min(workers, chains) > 1 and not posterior.model.thread_safe
    packed = runner.pack(posterior) if in_processes else None
    if isinstance(sampler, samplers.Engine):
        # All that it needs, to check its start.
        _announce(log_density_gradient, posterior, job.method, progress)
    else:
        if samplers.pilot.wanted(job.settings):
            _compile_pilot(posterior, progress)
        _compile(job.method, job.settings, posterior, progress)

    if in_processes and posterior.model.backend != "python":
        warnings.warn(
            f"{posterior.library}: this library was compiled without STAN_THREADS=true and cannot run in "
            "threads; its chains run in processes.",
            StanAdaptWarning,
            stacklevel=2,
        )
    began = time.perf_counter()
    try:
        with Progress(job, progress) as look:
            run = runner.run(posterior, job, starts, min(workers, chains), packed, look)
        idata = results.build(
            run,
            job,
            posterior,
            seconds=time.perf_counter() - began,
            coords=coords,
            dims=dims,
            log_likelihood=moved["log_likelihood"],
            posterior_predictive=moved["posterior_predictive"],
            notes=notes,
        )
    except MemoryError as error:
        raise ChainError(
            f"the run needs more memory than there is ({check.one_line(error)}): use thin, fewer draws or "
            "fewer chains, or a method without d x d matrices"
        ) from error
    _warn(idata, posterior)
    return idata


def methods() -> Any:
    """The methods as a pandas DataFrame: description, whether they need gradients, defaults, settings."""
    import pandas

    rows = {}
    for name, description in samplers.METHODS.items():
        module = samplers.sampler(name)
        rows[name] = {
            "description": description,
            "gradient": module.NEEDS_GRADIENT,
            "warmup": module.WARMUP,
            "draws": module.DRAWS,
            "settings": ", ".join(f"{key}={value!r}" for key, value in module.Settings()._asdict().items()),
        }
    return pandas.DataFrame.from_dict(rows, orient="index")


def _job(
    method: str,
    settings: Any,
    *,
    warmup: int | None,
    draws: int | None,
    thin: int,
    chains: int,
    seed: int,
    save_warmup: bool,
    keep_unconstrained: bool,
) -> Job:
    """What chains share; what is None is as the method has it."""
    sampler = samplers.sampler(method)
    draws = sampler.DRAWS if draws is None else draws
    return Job(
        method=method,
        settings=samplers.resolve(sampler, settings),
        warmup=sampler.WARMUP if warmup is None else warmup,
        draws=draws,
        thin=check.integer("thin", thin, 1, draws),
        chains=chains,
        seed=seed,
        save_warmup=save_warmup,
        keep_unconstrained=keep_unconstrained,
    )


def _choose(
    posterior: Posterior, init: inits.Init, seed: int, progress: bool
) -> tuple[auto.Choice, auto.Facts]:
    """What method="auto" takes, and the facts that it goes by."""
    if auto.has_pilot(posterior):
        _compile_pilot(posterior, progress)
    facts = auto.look(posterior, init, seed)
    choice = auto.choose(facts)
    if progress:
        tell(f"stanadapt: {choice.method}, because {choice.reason}")
    return choice, facts


def _starts(given: Any, radius: float, posterior: Posterior, chains: int) -> list[inits.Init]:
    return inits.plan(given, radius, posterior, chains)


def _check_model(method: str, posterior: Posterior, sampler: samplers.Sampler | samplers.Engine) -> None:
    able = _without_gradients()
    if posterior.model.noisy and method not in able:
        raise ArgumentError(
            f"method={method!r} is not allowed for a noisy target, whose density is only estimated: use one "
            f"of {', '.join(able)}"
        )
    if isinstance(sampler, samplers.Engine):
        engine.check_posterior(method, posterior)
    if sampler.NEEDS_GRADIENT and not posterior.model.has_gradient:
        raise ArgumentError(
            f"method={method!r} needs a gradient and this target has none: pass "
            f"gradient=... to Target.from_python, or use one of {', '.join(able)}"
        )


def _without_gradients() -> list[str]:
    """Methods that call nothing but the density; they never call it again at the current point."""
    return [name for name in samplers.METHODS if not samplers.sampler(name).NEEDS_GRADIENT]


def _generated(name: str, given: str | Sequence[str], posterior: Posterior) -> list[str]:
    if not isinstance(given, str | Sequence):
        raise check.refused(name, given, "a name or a list of names of generated quantities")
    listed = [given] if isinstance(given, str) else list(given)
    for entry in listed:
        check.choice(name, entry, posterior.generated_quantities)
    return listed


def _check_labels(
    posterior: Posterior,
    coords: Mapping[str, Sequence[Any]] | None,
    dims: Mapping[str, Sequence[str]] | None,
) -> None:
    shapes = {name: np.shape(value) for name, value in posterior.data.items() if not isinstance(value, dict)}
    shapes |= {name: variable.shape for name, variable in posterior.variables.items()}
    for name in ("chain", "draw"):
        if name in posterior.variables:
            raise ModelError(
                f"model: its variable {name} has the name of a dimension of the result; rename it"
            )
    for name, given in _checked_dict("dims", dims).items():
        if isinstance(given, str) or not isinstance(given, Sequence) or not all(map(_is_name, given)):
            raise check.refused(f"dims[{name!r}]", given, "a list of names of dimensions")
    for name, given in _checked_dict("coords", coords).items():
        if not _is_flat(given):
            raise check.refused(f"coords[{name!r}]", given, "a list of labels, one for each entry")
    results.check_labels(coords, dims, shapes)
    used = {name for given in (dims or {}).values() for name in given}
    used |= {f"{name}_dim_{i}" for name, shape in shapes.items() for i in range(len(shape))}
    for name in coords or {}:
        if name not in used:
            raise ArgumentError(
                f"coords[{name!r}] is no dimension: name it in dims, for the variables that have it"
                f"{check.nearest(name, used)}"
            )


def _checked_dict(name: str, given: Any) -> Mapping[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(map(_is_name, given)):
        raise check.refused(name, given, "a dict with names as keys")
    return given


def _is_flat(given: Any) -> bool:
    try:
        return np.ndim(given) == 1
    except ValueError:  # ragged
        return False


def _is_name(given: Any) -> bool:
    return isinstance(given, str) and bool(given)


_CHAIN_BYTES = 5_000  # of a chain's objects
_CHAIN_POINTS = 20  # arrays of length d that a chain holds at least: its first block and its state


def _check_chains(chains: int) -> None:
    """Refuse more chains than there is memory for the objects of, before there is one of each."""
    needed, free = _CHAIN_BYTES * chains, check.free_memory()
    if needed > free:
        raise ArgumentError(
            f"chains={chains} need {needed / 2**30:.1f} GiB, and {free / 2**30:.1f} GiB are free: use fewer"
        )


def _check_memory(
    posterior: Posterior, sampler: samplers.Sampler | samplers.Engine, job: Job, workers: int
) -> None:
    """Refuse a run whose arrays cannot fit, with what it would take."""
    free = check.free_memory()
    d = posterior.dim
    matrices = samplers.n_matrices(sampler, job.settings)
    needed = 8 * d * d * (matrices + 1) * job.chains if matrices else 0  # + 1: the result's copy
    if needed > free:
        able = [name for name in samplers.METHODS if not _default_matrices(name)]
        raise ArgumentError(
            f"method={job.method!r} needs {needed / 2**30:.1f} GiB for the {d} x {d} matrices of "
            f"{job.chains} chains, and {free / 2**30:.1f} GiB are free. Methods that need "
            f"none: {', '.join(able)}"
        )
    iterations = job.draws + (job.warmup if job.save_warmup else 0)
    stats = len(samplers.stats(sampler))
    columns = posterior.n_values + (d if job.keep_unconstrained else 0)
    row_bytes = 8 * (columns + stats)
    needed += (row_bytes * (iterations // job.thin) + _CHAIN_BYTES + _CHAIN_POINTS * 8 * d) * job.chains
    if isinstance(sampler, samplers.Engine):  # what a chain hands over at its end, before it is thinned
        needed += 2 * 8 * (posterior.n_values + d + stats) * iterations * min(workers, job.chains)
    if needed > free:
        raise ArgumentError(
            f"draws={job.draws} of {job.chains} chains need {needed / 2**30:.1f} GiB for {columns} values "
            f"each, and {free / 2**30:.1f} GiB are free: use thin, fewer draws or fewer chains"
        )


def _default_matrices(name: str) -> int:
    module = samplers.sampler(name)
    return samplers.n_matrices(module, samplers.resolve(module, None))


def _announce(kernel: Any, posterior: Posterior, method: str, progress: bool) -> None:
    if progress and posterior.dim and not is_compiled(kernel):
        tell(f"stanadapt: compiling {method} for this machine; this happens once and takes some seconds")


def _compile_pilot(posterior: Posterior, progress: bool) -> None:
    _compile(samplers.pilot.METHOD, samplers.pilot.module()[1], posterior, progress)


def _compile(method: str, settings: Any, posterior: Posterior, progress: bool) -> None:
    """Have the kernels ready before chains start, so that one thread compiles and the user is told."""
    if posterior.dim == 0:
        return
    sampler: Any = samplers.sampler(method)
    _announce(sampler.sweep, posterior, method, progress)
    rng = np.random.default_rng(0)
    arguments = (posterior.model.target(), settings, np.zeros(posterior.dim), rng)
    target, kind, x, generator = (numba.typeof(argument) for argument in arguments)
    trace = numba.typeof(empty_trace(1, posterior.dim))
    start, sweep = sampler.start, sampler.sweep
    board = Board.for_chains(0)
    with runner.interrupts(board):  # inside the compiler Ctrl-C would get lost, or leave half a kernel
        if samplers.climbs(sampler, settings):
            climb.compile((target, x))
        start.compile((target, kind, x, generator))
        state = next(iter(start.overloads.values())).signature.return_type
        sweep.compile((target, kind, state, generator, numba.types.boolean, trace))
    if board.stopped:
        raise KeyboardInterrupt


def _warn(idata: Any, posterior: Posterior) -> None:
    """The short version of `diagnose`: of the parameters only, one warning for all findings."""
    if not posterior.dim:
        return
    findings = diagnose(idata, list(posterior.parameters))
    if findings:
        with contextlib.suppress(ValueError):  # stderr is closed
            warnings.warn(FindingsWarning(findings), stacklevel=3)
