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
from .errors import ArgumentError
from .predictive.log_prior import LogPrior
from .result.build import try_build
from .result.labels import Labels
from .result.stores.run_folder import check_folder, lock
from .result.stores.store import create_store
from .run.interrupts import raised_interrupts
from .run.preparation.compiling import ahead_steps, compile_steps
from .run.preparation.named_quantities import name_quantities
from .run.preparation.prepare import open_posterior, prepare
from .run.request import resolve
from .runs import Fit, complete, memory_in_words

if TYPE_CHECKING:
    import pandas

    from .result.container import InferenceData
    from .run.stopping import Until

DEFAULT_METHODS = ("fisher_hmc", "fisher_mala")  # what `compile` takes if none is named
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
        if known and setting in samplers.settings_of(samplers.sampler(method)):
            hint = f" (it is a setting: settings={{{setting!r}: {check.quote(value)}}})"
        else:
            hint = check.nearest(name, allowed)
        raise ArgumentError(
            f"{name}={check.quote(value)} is not allowed: {function} has no such argument{hint}"
        )


def _names_arguments(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """`function`, with an ArgumentError that suggests the right name for an unknown argument."""
    allowed = list(inspect.signature(function).parameters)

    @functools.wraps(function)
    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        refuse_unknown(function.__name__, kwargs, allowed)
        return function(*args, **kwargs)

    return call


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
    log_prior: bool = False,
    keep_unconstrained: bool = False,
    until: str | Mapping[str, Any] | Until | None = None,
    store: str | os.PathLike[str] | None = None,
    cluster: Any = None,
    warm: Any = None,
    include_paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
) -> InferenceData:
    """Draw from the posterior of a Stan program, or of any log density, in parallel chains.

    Take `fisher_hmc` if the model has gradients, `rlmh` if it has none and at most 20 dimensions, and `arwmh`
    if it has more or is noisy; `fisher_mala`, a published method, runs if you name none.

    Parameters
    ----------
    model
        One of: a path to a .stan file; the text of a Stan program; a path to a library that BridgeStan
        compiled; an open `bridgestan.StanModel`; a `cmdstanpy.CmdStanModel`; a `Posterior`; a `Target`, such
        as `abc` makes of a simulator and `Target.from_jax` makes of a function in JAX; a model of PyMC, see
        `Target.from_pymc`; a model of NumPyro.
    data
        A dict of numbers, arrays, lists, pandas or xarray objects; a DataFrame of pandas or polars; a Dataset
        or DataArray of xarray; a path to a JSON file; JSON text; or None; see `Posterior` for tables.
        A model of NumPyro takes its arguments by name here.
    method
        A name that `methods()` lists, or "auto", which tries the posterior and chooses one of them:
        `stanadapt methods auto` prints the rule. The attributes method, auto_reason and auto_facts of the
        result say what "auto" chose, why, and what it saw. The method nuts runs in stanli, or in CmdStan if
        the model is a CmdStanModel with its executable.
    settings
        A dict of settings of the method, or its Settings; `methods(name)` lists them with their meaning. It
        must be None with method="auto".
    chains
        Number of chains.
    seed
        0 to 2**32 - 1. The draws depend on the seed and not on the number of workers or on progress. By
        default the seed is a fresh one, which the result's attributes hold.
    inits
        Where the chains start. None: uniformly on (-init_radius, init_radius) on the unconstrained scale, in
        up to 100 tries. A number: the same with this radius. A dict of constrained values, which may leave
        some parameters out, a list of one such dict for each chain, or a path to one in JSON. An array of
        unconstrained points (chains, d). A function of a chain's number, from 0, and a numpy Generator, which
        depends on the seed and the chain alone; it returns such a dict, an unconstrained point (d,), or None.
        An earlier InferenceData: its last draws, of its chains in turn if it has another number of them.
    init_radius
        Radius of the starts of what `inits` leaves open; 0 starts all chains at the origin.
    warm
        An earlier result for the same parameters, or the path of its netCDF file or store, or a
        `cmdstanpy.CmdStanMCMC`. The chains begin at some of its draws with what its chains learned: the
        metric, the coordinates and, from the same method, the step size (from NUTS also for fisher_hmc and
        hmc). A short warm-up checks all of this and goes on learning. The data, the number of chains and the
        method may differ. `inits` may set other starts: R-hat compares chains that start apart from each
        other, further out than the posterior, and loses some of its power if they start at draws.
    backend
        "auto", "stanli" or "bridgestan", or a backend that another package brings; see `Posterior`.
    include_paths
        Folders, one or a list, for the files that the program includes. They are looked at after the folder
        of the including file and that of the program.

    How long
    --------
    warmup
        Iterations in which each chain adapts; the default is the method's, see `methods()`. Fisher HMC ends
        its warm-up as soon as the adaptation has settled: `warmup` is the largest number then, and
        adaptation/warmup_iterations holds the actual one.
    draws
        Iterations of each chain after warm-up, in which nothing adapts any more; the default is the method's.
        With `until` it is the largest number, by default 50 times the method's.
    thin
        Keep every thin-th iteration.
    until
        Draw in rounds until goals hold or a limit is reached: "ess 400", "ess 400, rhat 1.01, 10 min", or an
        `Until`. Only the goals decide at which iterations the run looks at its draws, so a seed gives the
        same draws everywhere; a limit of time is the one exception. The attributes until_reached,
        until_reason and until_draws say how the run ended.

    Where it goes
    -------------
    workers
        Number of chains that run at the same time; by default the number of cores. They run in threads.
        Chains that learn for long do so in processes, which later runs of the session find ready.
    cluster
        A `dask.distributed.Client`, or the address of a scheduler. The chains run there, in segments.
    progress
        Show a progress bar; if the output is no terminal, show lines.
    store
        A new folder for the run, which writes a checkpoint about every ten seconds: `resume` goes on with the
        run after a crash, `extend` adds draws, and `load` reads what is there. Draws of more than 256 MiB
        stay in the folder, and the result reads them when you ask for them.
    save_warmup
        Keep the iterations of warm-up too, in the groups warmup_posterior and warmup_sample_stats.
    keep_unconstrained
        Keep the unconstrained draws too, in the group unconstrained_posterior.

    How results are labelled
    ------------------------
    coords
        Coordinates of dimensions by name, as ArviZ takes them. They replace those that a PyMC model has.
    dims
        Names of the dimensions of each variable, as ArviZ takes them. They replace those that a PyMC model
        has.
    log_likelihood
        Names of the generated quantities that are pointwise log likelihoods. Or a dict from data to
        quantities: {"y": "log_lik"} calls log_lik y in the group log_likelihood and gives it the dimensions
        of y, as ArviZ's functions expect; the attribute `quantities` keeps the program's name. "y=log_lik",
        as in a shell, is the same, by itself or in a list. For a model of
        PyMC or NumPyro these are names of observed variables, and the log likelihood is computed then.
    posterior_predictive
        Names of the generated quantities that are replicated data, or {"y": "y_rep"} or "y=y_rep", likewise.
    log_prior
        Add the group log_prior: the log density of the prior at each draw, for ArviZ's power-scaling. It
        comes from the statements of a Stan program that are not its likelihood; `prior_predictive` says how
        these are told. A store keeps it with the result, unless its draws stay on the disk.

    Returns
    -------
    arviz.InferenceData or xarray.DataTree
        The container of the installed arviz. Its groups are posterior, sample_stats, observed_data,
        constant_data, the groups that you asked for, and adaptation. This last group holds step size,
        acceptance and preconditioner over warm-up, and what each chain learned; it holds tail_index if tails
        are heavy, and mode if the search for modes found one that no chain has visited. After Ctrl-C the
        function returns the draws so far; the method nuts runs chains as a whole and returns only those that
        are finished. SIGTERM and SIGHUP, which schedulers and closed terminals send, end the process, unless
        your program handles them; with `store` the draws so far are in the folder.

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
        The result could not be built from the draws; the message names the file that holds them.

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
        log_prior=log_prior,
    )
    began = time.perf_counter()
    with raised_interrupts(), memory_in_words(), contextlib.ExitStack() as held:
        if store is not None:
            held.enter_context(lock(check_folder(store)))
        posterior = open_posterior(request.method, model, data, request.backend, include_paths)
        prior = LogPrior(posterior) if request.log_prior else None
        posterior = posterior.with_quantities(request.log_likelihood, request.posterior_predictive)
        labels = Labels.from_user(request.coords, request.dims, posterior)
        request = request._replace(coords=labels.coords, dims=labels.dims)
        request = name_quantities(request, posterior)
        try_build(posterior, request)
        prepared = prepare(request, posterior, stored=store is not None, cluster=cluster)
        kept = None if store is None else create_store(store, request, prepared)
        return complete(Fit(prepared, request, kept, prior), began)


def compile(methods: str | Sequence[str] | None = None, *, progress: bool = True) -> None:
    """Compile ahead what runs of these methods need on this machine, for images and clusters.

    A run compiles its kernels if they are missing in the user's cache. After this function, `sample` with
    the method at its default settings compiles nothing, whatever the Stan program. Models of PyMC and JAX are
    compiled by their own libraries in each process.

    Parameters
    ----------
    methods
        A method, or a list of them; by default fisher_hmc and fisher_mala. All are
        `stanadapt.methods().index`.
    progress
        Show a progress bar; if the output is no terminal, show lines.

    Raises
    ------
    ArgumentError
        There is no such method.

    Examples
    --------
    >>> stanadapt.compile("fisher_hmc")
    """
    wanted = DEFAULT_METHODS if methods is None else [methods] if isinstance(methods, str) else list(methods)
    wanted = [check.choice("methods", name, samplers.METHODS) for name in wanted]
    progress = check.boolean("progress", progress)
    with raised_interrupts():
        compile_steps(ahead_steps(wanted), progress, loading=False, methods=wanted)


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
        declared = samplers.settings_of(samplers.sampler(name))
        columns = {key: [each.default, each.range, each.meaning] for key, each in declared.items()}
        return pandas.DataFrame.from_dict(columns, orient="index", columns=["default", "allowed", "meaning"])
    rows = {}
    for method, description in samplers.METHODS.items():
        module = samplers.sampler(method)
        settings = [f"{key}={each.default!r}" for key, each in samplers.settings_of(module).items()]
        rows[method] = {
            "description": description,
            "gradient": module.FACTS.gradient,
            "warmup": module.FACTS.warmup,
            "draws": module.FACTS.draws,
            "settings": ", ".join(settings),
        }
    return pandas.DataFrame.from_dict(rows, orient="index")
