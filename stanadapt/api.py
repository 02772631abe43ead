"""The front door: `sample`, and the list of methods."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from . import check, samplers
from .diagnostics.earlier import begin_from
from .diagnostics.statistics import compile_statistics
from .errors import ArgumentError
from .model.posterior import Posterior
from .result.build import try_build
from .result.labels import Labels
from .result.store import check_folder, create_store, lock
from .run.interrupts import raised_interrupts
from .run.preparation.prepare import open_posterior, prepare
from .run.request import Request, resolve
from .runs import Fit, complete, memory_in_words

if TYPE_CHECKING:
    import pandas

    from .result.container import InferenceData
    from .run.stopping import Until

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def refuse_unknown(function: str, given: Mapping[str, Any], allowed: Sequence[str]) -> None:
    """Refuse arguments that a function does not have, in words that lead to those that it has.

    Raises
    ------
    ArgumentError
        It names the first of them.
    """
    for name, value in given.items():
        if name in allowed:
            continue
        setting, method = check.ELSEWHERE.get(name, name), given.get("method", "fisher_mala")
        known = isinstance(method, str) and method in samplers.METHODS
        if known and setting in samplers.declared(samplers.sampler(method)):
            hint = f" (it is a setting: settings={{{setting!r}: {check.shown(value)}}})"
        else:
            hint = check.nearest(name, allowed)
        raise ArgumentError(
            f"{name}={check.shown(value)} is not allowed: {function} has no such argument{hint}"
        )


def _names_arguments(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """`function`, with an ArgumentError that suggests the right name for an unknown argument."""
    allowed = list(inspect.signature(function).parameters)

    @functools.wraps(function)
    def checked(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        refuse_unknown(function.__name__, kwargs, allowed)
        return function(*args, **kwargs)

    return checked


@_names_arguments
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
    log_likelihood: str | Sequence[str] | Mapping[str, str] = (),
    posterior_predictive: str | Sequence[str] | Mapping[str, str] = (),
    keep_unconstrained: bool = False,
    until: str | Mapping[str, Any] | Until | None = None,
    store: str | os.PathLike[str] | None = None,
    cluster: Any = None,
    warm: Any = None,
) -> InferenceData:
    """Draw from the posterior of a Stan program, or of any log density, in parallel chains.

    Parameters
    ----------
    model
        A path to a .stan file; Stan program text; a path to a library that BridgeStan compiled; an open
        `bridgestan.StanModel`; a `cmdstanpy.CmdStanModel`; a `Posterior`; a `Target`, such as `abc` makes of
        a simulator, and `Target.from_jax` of a function in JAX; or a model of PyMC, see `Target.from_pymc`,
        or of NumPyro. The method nuts runs in stanli, or in CmdStan where the model is a CmdStanModel with
        its executable.
    data
        A dict of numbers, arrays, lists, pandas or xarray objects; a path to a JSON file; JSON text; or None.
        For a model of NumPyro, its arguments by name.
    method
        A name that `methods()` lists; or "auto", which takes one of them by what it sees of the posterior:
        `stanadapt methods auto` prints the rule, and the result's attributes have the method, the reason
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
        "auto", "stanli" or "bridgestan", or one that another package brings; see `Posterior`.
    settings
        A dict of the method's settings, which `methods(name)` lists with their meaning, or its Settings. None
        with method="auto".
    progress
        Show a progress bar (lines, where the output is no terminal).
    save_warmup
        Keep the iterations of warm-up too, in groups warmup_posterior and warmup_sample_stats.
    coords, dims
        Names of dimensions and their coordinates, as ArviZ takes them. A PyMC model has its own, which these
        take the place of.
    log_likelihood, posterior_predictive
        Names of generated quantities to put in the groups of that name. Or a dict with the data that they
        are of: {"y": "y_rep"} names y_rep there y, with the dimensions of y, as ArviZ's plots of predictive
        checks want it; the attribute `quantities` keeps the name in the program. For a model of PyMC or
        NumPyro, names of observed variables, whose log likelihood or predictions are made then.
    keep_unconstrained
        Keep the unconstrained draws too, in a group unconstrained_posterior.
    until
        Draw in rounds until goals hold or a limit is reached: "ess 400", "ess 400, rhat 1.01, 10 min", or an
        `Until`. `draws` is the most there may be then, by default 50 times the method's number. The run
        looks at its draws at iterations that depend on nothing but the goals, so the draws of a seed that
        reach a goal are the same everywhere; a limit of time is the one exception. Attributes until_reached,
        until_reason and until_draws say how it ended.
    store
        A new folder in which the run lives while it goes on, with checkpoints every ten seconds or so:
        `resume` goes on with it after a crash, `extend` adds draws, and `load` reads what is there. Draws of
        more than 256 MiB are not held in memory then, and the result reads them when they are asked for.
    cluster
        A `dask.distributed.Client`, or the address of a scheduler: chains run there, in segments.
    warm
        An earlier result for the same parameters, or the path of its netCDF file or store, or a
        `cmdstanpy.CmdStanMCMC`: chains begin with what its chains have learnt (metric, coordinates and, of
        the same method, step size; of NUTS also for fisher_hmc and hmc), at some of its draws, with a short
        warm-up that checks all of it and goes on learning. The data, the number of chains and the method may
        be others. `inits` may set other starts: R-hat compares chains that start apart
        from each other, further out than the posterior, and loses a part of its power where they start at
        draws.

    Returns
    -------
    arviz.InferenceData or xarray.DataTree
        What the installed arviz works with. Groups: posterior, sample_stats, adaptation (step size,
        acceptance and the preconditioner over warm-up, and what each chain has learnt; tail_index where tails
        are heavy, and mode where climbs found one that no chain has visited), observed_data, constant_data,
        and the ones asked for. Ctrl-C once returns the draws so far; with nuts, whose chains run as a whole,
        it returns the draws of the finished chains. So do SIGTERM and SIGHUP, which schedulers and closed
        terminals send, unless the user's program handles them.

    Raises
    ------
    ArgumentError
        An argument or a setting is not allowed; before anything runs.
    ModelError, DataError
        The model cannot be opened, or the data do not fit.
    StoreError
        The store cannot be written.
    InitializationError
        A chain found no starting point with a finite log density.
    ChainError
        A worker process died, memory ran out, or Stan's own sampler gave up.
    OutputError
        The result could not be built of the draws, and the message names the file that has them.

    Examples
    --------
    >>> idata = stanadapt.sample("eight_schools.stan", "eight_schools.json", seed=1)
    >>> stanadapt.summary(idata)
    """
    request = resolve(
        method=method,
        chains=chains,
        warmup=warmup,
        draws=draws,
        thin=thin,
        seed=seed,
        inits=inits,
        init_radius=init_radius,
        workers=workers,
        backend=backend,
        settings=settings,
        progress=progress,
        save_warmup=save_warmup,
        coords=coords,
        dims=dims,
        log_likelihood=log_likelihood,
        posterior_predictive=posterior_predictive,
        keep_unconstrained=keep_unconstrained,
        until=until,
        warm=None if warm is None else begin_from(warm),
    )
    began = time.perf_counter()
    with memory_in_words(), contextlib.ExitStack() as held:
        with raised_interrupts():
            if store is not None:
                held.enter_context(lock(check_folder(store)))
            posterior = _open(model, data, request)
            posterior = posterior.with_quantities(request.log_likelihood, request.posterior_predictive)
            labels = Labels.checked(request.coords, request.dims, posterior)
            request = request.of(posterior)._replace(coords=labels.coords, dims=labels.dims)
            try_build(posterior, request, labels)
            prepared = prepare(request, posterior, stored=store is not None, cluster=cluster)
            compile_statistics(request.progress)
            kept = None if store is None else create_store(store, request, prepared, labels)
        return complete(Fit(prepared, request, labels, kept), began)


def methods(name: str | None = None) -> pandas.DataFrame:
    """The methods, or the settings of one, as a pandas DataFrame.

    Parameters
    ----------
    name
        A method.

    Returns
    -------
    pandas.DataFrame
        A row for each method: description, whether it needs gradients, default numbers of iterations, and
        settings. With `name` a row for each of its settings: default, what is allowed, and meaning; a default
        of None is found at run time.

    Raises
    ------
    ArgumentError
        There is no such method.
    """
    import pandas

    if name is not None:
        declared = samplers.declared(samplers.sampler(name))
        columns = {key: [each.default, each.range, each.meaning] for key, each in declared.items()}
        return pandas.DataFrame.from_dict(columns, orient="index", columns=["default", "allowed", "meaning"])
    rows = {}
    for method, description in samplers.METHODS.items():
        module = samplers.sampler(method)
        settings = [f"{key}={each.default!r}" for key, each in samplers.declared(module).items()]
        rows[method] = {
            "description": description,
            "gradient": module.FACTS.gradient,
            "warmup": module.FACTS.warmup,
            "draws": module.FACTS.draws,
            "settings": ", ".join(settings),
        }
    return pandas.DataFrame.from_dict(rows, orient="index")


def _open(model: Any, data: Any, request: Request) -> Posterior:
    if not isinstance(model, Posterior):
        return open_posterior(request.method, model, data, request.backend)
    if data is not None:
        raise ArgumentError("data are not allowed with a Posterior: it was opened with its data")
    return model
