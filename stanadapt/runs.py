"""Runs as values: what beginning, resuming and extending one have in common, and reading one."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from . import check
from .diagnostics.findings import diagnose
from .diagnostics.goals import Goals
from .errors import (
    ArgumentError,
    ChainError,
    FindingsWarning,
    OutputError,
    StanAdaptError,
    StoreError,
    warn,
)
from .predictive.log_prior import LogPrior
from .result.build import bare, build
from .result.container import attributes
from .result.files import rescue
from .result.stores.disk_draws import read_store, thin_run, write_result
from .result.stores.reopening import reopen_posterior
from .result.stores.run_folder import lock
from .result.stores.store import Store, open_store
from .run.draws import Run
from .run.interrupts import Caught, delayed_interrupts, give_up, raised_interrupts
from .run.preparation.prepare import Prepared, prepare_again
from .run.progress import Progress, tell
from .run.request import Request
from .run.workers.turns import Work, run

if TYPE_CHECKING:
    from .result.container import InferenceData


class Fit(NamedTuple):
    """A run that can begin, or go on."""

    prepared: Prepared
    request: Request
    store: Store | None = None
    log_prior: LogPrior | None = None  # which the result is to have


def complete(fit: Fit, began: float) -> InferenceData:
    """Run the chains, build the result, and warn of findings. `began` is the time of the user's call.

    Raises
    ------
    OutputError
        The result cannot be built, and the message names the file that has the draws.
    StoreError
        The store cannot be written, and has what was drawn until then.
    Exception
        The exception of a chain; a store has the draws until then.
    """
    with delayed_interrupts() as caught:  # from here on there are draws to lose
        work, goals = _work(fit, began)
        spent = max((value.spent for value in work.values if value is not None), default=0.0)
        started = time.perf_counter()
        with _safe(fit.store), Progress(fit.prepared.job, fit.request.progress, goals) as look:
            work.look = look if goals is None else goals.with_time_limit(look)
            drawn = run(fit.prepared.turns, work)
        seconds = spent + time.perf_counter() - started
        if fit.store is None:
            _leave(caught, fit)
        if goals is not None:
            drawn = goals.finish(work, drawn)
        notes = {} if goals is None else goals.attributes
        store = fit.store
        shown = thin_run(store, work, drawn) if store is not None and store.is_lazy else drawn
        idata = seen = _build(drawn, fit, seconds, notes, shown)
        is_lazy = store is not None and store.is_lazy  # then `shown` has some of the draws only
        if not is_lazy:
            idata = _with_log_prior(idata, fit)
        if store is not None:
            idata = _keep(idata, drawn, work, store, notes)
        if is_lazy:
            idata = _with_log_prior(idata, fit)
        _leave(caught, fit)
        _warn(seen, fit, drawn, caught)
    return idata


def resume(
    store: str | os.PathLike[str],
    model: Any = None,
    data: Any = None,
    *,
    workers: int | None = None,
    progress: bool = True,
    cluster: Any = None,
) -> InferenceData:
    """Go on with a run that was kept in a folder, wherever it was stopped.

    The draws are those that the run would have had without the stop, bit for bit on the same type of
    processor with the same versions of the packages; where these differ, a warning says so. At most the time
    since the last checkpoints is lost: some ten seconds.

    Parameters
    ----------
    store
        The folder, as `sample(..., store=...)` had it.
    model, data
        The run's own, for a model that was no Stan program: the same Target or library, and its data. Of a
        Stan program they may be left out, since the store has them. They are compared with the run's.
    workers
        Chains that run at the same time; by default as many as there are cores.
    progress
        Show a progress bar.
    cluster
        See `sample`.

    Returns
    -------
    arviz.InferenceData or xarray.DataTree
        What `sample` would have returned. A run that is over already is loaded. A limit of time in `until`
        counts anew.

    Raises
    ------
    StoreError
        The folder holds no run, is damaged or in use, or comes from another version or another model.
    ArgumentError
        An argument is not allowed.
    """
    return _go_on(store, 0, model, data, workers, progress, cluster)


def extend(
    run: Any,
    draws: int,
    model: Any = None,
    data: Any = None,
    *,
    workers: int | None = None,
    progress: bool = True,
    cluster: Any = None,
) -> InferenceData:
    """Add draws to a run that was kept in a folder.

    They equal, bit for bit, the draws of a run that was asked for more from the start. Goals of `until` are
    given up: all draws are drawn.

    Parameters
    ----------
    run
        The folder, or a result that has one.
    draws
        Iterations to add to each chain: to those it has, where goals or a limit ended the run (to those of
        the longest chain, where they differ), or else to those it was asked for.
    model, data, workers, progress, cluster
        See `resume`.

    Returns
    -------
    arviz.InferenceData or xarray.DataTree
        All draws.

    Raises
    ------
    StoreError, ArgumentError
        As `resume`; also for the method nuts, whose chains run as a whole.
    """
    more = check.integer("draws", draws, 1, check.LARGEST_COUNT)
    if not isinstance(run, str | os.PathLike):
        known = attributes(run).get("store")
        if not known:
            raise ArgumentError(
                "run has no store: sample(..., store=...) keeps one, and its folder is needed"
            )
        run = str(known)
    return _go_on(run, more, model, data, workers, progress, cluster)


def load(store: str | os.PathLike[str]) -> InferenceData:
    """Read the run in a folder: its result where it is over, else the draws so far.

    It may be read while the run goes on, by another process too. Nothing is executed. The draws of a run
    that is not over are cut to equal lengths, and its attribute interrupted_note and `diagnose` say what is
    missing. Draws of more than 256 MiB stay on the disk until they are asked for.

    Parameters
    ----------
    store
        The folder, as `sample(..., store=...)` had it.

    Returns
    -------
    arviz.InferenceData or xarray.DataTree

    Raises
    ------
    StoreError
        The folder holds no run, is damaged, or comes from another version.
    """
    return read_store(open_store(store))


def _go_on(
    path: Any, more: int, model: Any, data: Any, workers: Any, progress: Any, cluster: Any
) -> InferenceData:
    began = time.perf_counter()
    if not isinstance(path, str | os.PathLike):
        raise check.refusal("store", path, "the path of a folder")
    most = check.LARGEST_COUNT
    changes: dict[str, Any] = {"progress": check.boolean("progress", progress)}
    changes["workers"] = (
        check.available_cores() if workers is None else check.integer("workers", workers, 1, most)
    )
    store = open_store(path)
    with raised_interrupts(), memory_in_words(), lock(store.folder):
        store = open_store(path)  # read again: now no other process can change it
        ended = store.read_end()
        if ended.get("finished") and not more:
            if model is not None or data is not None:
                reopen_posterior(store, model, data)  # refuses what is of another run
            try:
                return read_store(store, is_own=True)
            except StoreError as error:  # a power cut just after the end: the checkpoints have it all
                warn(f"{error}. The result is built again")
        request, job = store.asked.request._replace(**changes), store.asked.job
        if more:
            if store.is_whole_chains:
                raise ArgumentError(
                    f"{path} is of method={job.method!r}, whose chains run as a whole: none can be extended"
                )
            drawn = min(job.draws, ended["longest"] * job.thin) if ended.get("is_enough") else job.draws
            total = check.integer("draws, with those there are,", drawn + more, 1, most)
            request, job = request._replace(draws=total, until=None), job._replace(draws=total)
        posterior = reopen_posterior(store, model, data)
        store.check_machine(posterior.library)
        asked = store.asked
        prepared = prepare_again(request, job, posterior, asked.inits, asked.notes, cluster)
        store.begin_again(job, request)
        prior = LogPrior(posterior) if request.log_prior else None
        return complete(Fit(prepared, request, store, prior), began)


def _work(fit: Fit, began: float) -> tuple[Work, Goals | None]:
    """The run to go on with, and its state in the store."""
    prepared, store = fit.prepared, fit.store
    goals = None
    if fit.request.until is not None:
        goals = Goals(fit.request.until, prepared.posterior, prepared.job, began)
    work = Work(prepared.posterior, prepared.job, prepared.inits, enough=goals)
    if store is not None:
        room, draws, warmup, values = store.rooms()
        work = Work(
            prepared.posterior,
            prepared.job,
            prepared.inits,
            room=room,
            draws=draws,
            warmup=warmup,
            values=values,
            keeper=store,
            enough=goals,
        )
    return work, goals


@contextlib.contextmanager
def memory_in_words() -> Iterator[None]:
    """What to do where memory runs out. Raises ChainError."""
    try:
        yield
    except MemoryError as error:
        raise ChainError(
            f"the run needs more memory than there is ({check.one_line(error)}): use thin, fewer draws or "
            "fewer chains, or a method without d x d matrices"
        ) from error


@contextlib.contextmanager
def _safe(store: Store | None) -> Iterator[None]:
    """Say with an exception of a chain where its draws are."""
    try:
        yield
    except BaseException as error:
        if store is not None:
            store.close()
        if store is not None and not isinstance(error, StoreError):
            error.add_note(f"The draws so far are in {store.folder}: stanadapt.resume goes on with them.")
        raise


def _build(drawn: Run, fit: Fit, seconds: float, notes: dict[str, Any], shown: Run) -> InferenceData:
    """The result of a run, with the draws of `shown`; where it cannot be built, the draws go to a file.

    Raises
    ------
    OutputError
        It names that file.
    """
    if fit.store is not None:
        notes = notes | {"store": str(fit.store.folder)}
    try:
        return build(drawn, fit.prepared, fit.request, seconds, notes, shown)
    except Exception as error:
        where = "in the store"
        if fit.store is None:
            posterior, job = fit.prepared.posterior, fit.prepared.job
            where = f"in {rescue(bare(drawn, posterior), {'method': job.method, 'seed': job.seed})}"
        raise OutputError(
            f"the result cannot be built ({type(error).__name__}: {check.one_line(error)}). The draws are "
            f"{where}, for stanadapt summary and stanadapt diagnose, and for numpy.load"
        ) from error


def _with_log_prior(idata: InferenceData, fit: Fit) -> InferenceData:
    """The result with the group log_prior, if one was asked for; without it where it fails, and a warning."""
    if fit.log_prior is None:
        return idata
    try:
        return fit.log_prior.add(idata)
    except StanAdaptError as error:
        warn(f"the result has no group log_prior: {error}")
        return idata


def _keep(idata: InferenceData, drawn: Run, work: Work, store: Store, notes: dict[str, Any]) -> InferenceData:
    """Complete the store; the result is returned in any case."""
    lengths = {each.n for each in work.draws}
    finished = len(lengths) == 1 and not drawn.is_interrupted
    try:
        if finished:
            write_result(store, idata, work.draws, work.warmup)
        store.end(
            digest=store.blocks.digest() if finished else "",
            finished=finished,
            is_enough=drawn.is_enough,
            longest=max(lengths),
            ended_by=drawn.ended_by,
            notes=notes,
        )
        if store.is_lazy:
            return read_store(store, is_own=True)
    except StoreError as error:
        if store.is_lazy:  # `idata` has some of the draws only
            raise
        warn(f"the result is returned, and its store is not complete: {error}")
    return idata


def _leave(caught: Caught, fit: Fit) -> None:
    """Raise SystemExit if a signal ends the process and nobody waits for the result; say where draws are."""
    if caught.ends_process:
        where = "are lost: store=... keeps them"
        if fit.store is not None:
            where = f"are in {fit.store.folder}: stanadapt.resume goes on with them"
        tell(f"stanadapt: a signal ends the process; the draws so far {where}")
        give_up(caught.signal or caught.before)


def _is_hurried(drawn: Run, number: int) -> bool:
    """Whether a signal asks to be done at once: one that a kill follows, or Ctrl-C after the run."""
    return number not in (0, signal.SIGINT) or (number != 0 and not drawn.is_interrupted)


def _warn(idata: InferenceData, fit: Fit, drawn: Run, caught: Caught) -> None:
    """What `diagnose` says, in one warning.

    Whatever goes wrong here, the result is there and goes to the user.
    """
    if not fit.prepared.posterior.dim:
        return
    is_hurried, reason = _is_hurried(drawn, caught.signal), "a signal came"
    try:
        with raised_interrupts():
            findings = [] if is_hurried else diagnose(idata, progress=fit.request.progress)
            if findings:
                warn(FindingsWarning(findings))
        if not is_hurried:
            return
    except (KeyboardInterrupt, SystemExit):
        _leave(caught, fit)
    except FindingsWarning as warning:  # for a user whose warnings are errors
        tell(f"stanadapt: {warning}")
        return
    except Exception as error:
        reason = f"{type(error).__name__}: {check.one_line(error)}"
    tell(f"stanadapt: the result was not diagnosed ({reason}); stanadapt.diagnose does it later")
