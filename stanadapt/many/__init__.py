"""The front door to many fits: `sample_many`."""

from __future__ import annotations

import inspect
import math
import multiprocessing
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .. import api, check, samplers
from ..diagnostics.earlier import begin_from
from ..errors import ArgumentError, warn
from ..model.includes import check_include_paths
from ..model.portable_programs import check_program, portable, program_digest
from ..model.posterior import Posterior
from ..model.source import is_function, is_opened
from ..run.preparation import auto
from ..run.request import Request, resolve
from ..run.workers.pools import ClusterPool, Here, LocalProcesses, Pool
from .datasets import count, entries
from .fits import Fits
from .folder import Folder, plain
from .task import Common, fit, fit_packed

if TYPE_CHECKING:
    from ..result.container import InferenceData

# Arguments of `sample` that a single fit does not have.
_NOT_FOR_FITS = ("model", "data", "seed", "workers", "progress", "store", "cluster")


def sample_many(
    model: Any,
    datasets: Any,
    *,
    out: str | os.PathLike[str] | None = None,
    seed: int | None = None,
    workers: int | None = None,
    cluster: Any = None,
    timeout: float | None = None,
    progress: bool = True,
    **arguments: Any,
) -> Iterator[tuple[Any, InferenceData | Exception]]:
    """Draw from the posteriors of one program with many data sets, or of many programs.

    Simulation-based calibration, folds of a cross-validation, bootstraps, a fit for each region.

    Parameters
    ----------
    model
        What `sample` takes for a program, or a model of NumPyro. Or None, where each fit brings its own.
    datasets
        A mapping of keys to data; or any iterable, a generator too, of tuples (key, data), or of data alone,
        whose keys are 0, 1, 2, ... Data are a mapping, a path to a JSON file, JSON text, or None. With
        model=None pairs (model, data) stand in place of data, in a mapping or in tuples (key, (model, data)).
        A key is a string, an integer, or a tuple of such, and no two are the same. A generator is asked for
        the next item when a worker is about to be free for it.
    out
        A folder for the results, made if it is missing: a netCDF file for each fit, and an index with the
        reasons of those that failed. The same call with the same folder goes on: fits that are there are
        read from their files, what failed or is missing is run.
    seed
        0 to 2**32 - 1. The seed of a fit is made of this one and its key alone, so that draws depend on
        neither the order, nor workers, nor which other fits there are; `sample` with the seed in the result's
        attributes gives the same draws. By default a fresh one, or the seed of the folder `out`.
    workers
        Fits that run at the same time, each in a process of its own; by default as many as there are cores.
        With 1 they run in this process, one after another. Where `datasets` has a length below it, the
        chains of a fit run at the same time too.
    cluster
        A `dask.distributed.Client`, or the address of a scheduler: fits run there. stanadapt must be
        installed on its workers; `pip install 'stanadapt[dask]'` brings Dask.
    timeout
        Seconds that a fit may take, from its opening to its diagnosis, and a minute more for the first one of
        each process, which loads the kernels. The process of a fit that takes longer is ended, whatever it is
        at, and its value is a ChainError; others that are lost with it are run again. By default there is no
        limit. `until="10 min"` in place of it ends a fit between two iterations, and keeps its draws.
    progress
        Show a progress bar over fits (lines, where the output is no terminal).
    **arguments
        Of every fit, as `sample` has them: method, chains, warmup, draws, thin, inits, settings and so on.

    Returns
    -------
    iterator of (key, InferenceData or Exception)
        In the order in which fits end. A fit that fails has its exception in place of a result, and the
        others go on. Results have the attributes key, n_findings and, where there are any, findings, those
        of `diagnose`; one warning at the end sums them up. Fits are run while the iterator is asked, with a
        few ahead; after Ctrl-C no new ones begin, those under way are dropped, and the iterator ends with
        those that were done.

    Raises
    ------
    ArgumentError
        An argument is not allowed; at once, but for items of `datasets`, which are seen as they come. What
        they or their generator raise comes after the results of fits under way.
    ModelError
        The program does not compile.
    OutputError
        The folder `out` holds something else, is in use, or can no longer be written.
    ChainError
        The connection to the cluster is lost.

    Examples
    --------
    >>> folds = {f"fold {k}": leave_out(data, k) for k in range(10)}
    >>> for key, idata in stanadapt.sample_many("model.stan", folds, method="fisher_hmc", seed=1, out="fits"):
    ...     print(key, idata)
    """
    arguments = _complete(arguments)
    request = _resolve(arguments, seed, workers, progress)
    if timeout is not None:
        timeout = check.number("timeout", timeout, 0.0, math.inf, open_low=True, orelse=", or None")
    fits = entries(model, datasets)
    total = count(datasets)
    if isinstance(model, Posterior) or (is_opened(model) and not is_function(model)):
        raise ArgumentError(
            f"model={check.quote(model)} has its own data: pass a program, or model=None and datasets with "
            "(model, None) for each key"
        )
    include_paths = [str(folder) for folder in check_include_paths(arguments["include_paths"])]
    program = None  # each fit has its own
    if model is not None and not is_function(model):
        check_program(model, request.backend, include_paths)
        program = portable(model, include_paths)
    arguments |= {"include_paths": include_paths}
    folder, seed = _folder(out, program, request, arguments, seed)
    try:
        pool, share = _pool(cluster, workers, request.workers, total, timeout)
    except BaseException:
        if folder is not None:
            folder.close()
        raise
    common = Common(program, arguments)
    return Fits(fits, total, common, request, seed, pool, share, folder, timeout).results()


def _complete(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments of every fit, with `sample`'s defaults for those that are not given."""
    parameters = inspect.signature(api.sample).parameters
    allowed = {name: each.default for name, each in parameters.items() if name not in _NOT_FOR_FITS}
    api.refuse_unknown("sample_many", arguments, list(allowed))
    return allowed | arguments


def _resolve(arguments: dict[str, Any], seed: Any, workers: Any, progress: Any) -> Request:
    """The arguments, checked as `sample` does."""
    given = {**arguments, "seed": seed, "workers": workers, "progress": progress}
    if given["warm"] is not None:
        given["warm"] = begin_from(given["warm"])
    return resolve(**{name: given[name] for name in inspect.signature(resolve).parameters})


def _folder(
    out: Any, program: Any, request: Request, arguments: dict[str, Any], seed: int | None
) -> tuple[Folder | None, int]:
    """The folder for results, if one is wanted, and the seed, which the folder may have."""
    if out is None:
        return None, request.seed
    if not isinstance(out, str | os.PathLike) or not os.fspath(out):
        raise check.refusal("out", out, "the name of a folder, or None")
    asked: dict[str, Any] = {
        "program": None if program is None else program_digest(program),
        "arguments": _plain_arguments(request, arguments),
    }
    folder = Folder(out)
    try:
        held = folder.run.get("seed")
        folder.adopt(asked | {"seed": request.seed if seed is not None or held is None else held})
    except BaseException:
        folder.close()
        raise
    return folder, int(folder.run["seed"])


def _plain_arguments(request: Request, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments as an index can hold them: the method's defaults are written out."""
    written = dict(arguments)
    del written["include_paths"]  # the hash of the program tells what it includes
    if request.method != auto.NAME:
        job = request.job(request.method, request.settings)
        settings = samplers.user_values(samplers.sampler(job.method), job.settings)
        written |= {"warmup": job.warmup, "draws": job.draws, "settings": settings}
    return {name: plain(name, value) for name, value in written.items()}


def _pool(
    cluster: Any, asked: int | None, workers: int, total: int | None, timeout: float | None
) -> tuple[Pool, int]:
    """Where fits run, and how many chains of each at a time; 0 where a worker of a cluster knows best."""
    if cluster is not None:
        if asked is not None:
            raise ArgumentError(f"workers={asked} is not allowed with cluster, which has its own")
        if timeout is not None:
            raise ArgumentError(
                f"timeout={timeout:g} is not allowed with cluster, where ending a worker ends what others "
                "run in it: pass until, such as until='10 min'"
            )
        return ClusterPool(fit_packed, cluster), 0
    fits = workers if total is None else min(workers, total)
    share = max(1, workers // max(fits, 1))
    if timeout is not None and multiprocessing.current_process().daemon:
        raise ArgumentError(
            f"timeout={timeout:g} is not allowed here: it ends processes, and this process is a worker of "
            "multiprocessing's, which may not have any. Pass until, such as until='10 min'"
        )
    if fits > 1 and multiprocessing.current_process().daemon:
        warn(
            "the fits run one after another: this process is a worker of multiprocessing's, which may not "
            "have processes of its own. A concurrent.futures.ProcessPoolExecutor starts workers that may"
        )
        fits = 1
    return (LocalProcesses(fit_packed, fits) if fits > 1 or timeout is not None else Here(fit)), share
