"""One of many fits, where it runs: in this process, in one of loky's, or in a worker of a cluster."""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import importlib
import pickle
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from .. import api, check
from ..errors import FindingsWarning, OutputError, StanAdaptWarning
from ..model.portable_programs import is_refused
from ..result.files import write
from ..run.workers.failures import ChainFailure, PackedFailure
from ..run.workers.pools import Task

# Threads of a cluster's worker take turns, because caught warnings, printed text and threads of BLAS belong
# to the whole process. The chains of the fit have the threads instead.
_TURN = threading.Lock()
_warm = threading.Event()  # once this process has done a fit


class Common(NamedTuple):
    """What all fits of a run share."""

    model: Any  # None where each fit has its own
    arguments: dict[str, Any]  # of `sample`


class Outcome(NamedTuple):
    """The outcome of a fit."""

    result: Any  # an InferenceData, or None
    failure: ChainFailure | PackedFailure | None
    findings: list[tuple[str, str]]  # their kinds and texts
    warnings: list[tuple[str, str]]  # others: the names of their categories, and texts
    seconds: float
    unwritten: str  # why the file of the result could not be written


def fit(task: Task) -> Outcome:
    """Run a fit. Its exceptions and warnings are in the outcome."""
    result: Any = None
    failure = None
    unwritten = ""
    with _TURN, _end_at_timeout(task), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", StanAdaptWarning)
        began = time.perf_counter()
        try:
            common, (model, data) = _common(task.common), _unpack(task.own)
            program = common.model if model is None else model
            # A text has its includes in place; another machine need not have the folders.
            own = {"include_paths": ()} if isinstance(program, str) else {}
            result = api.sample(
                program,
                data,
                seed=task.seed,
                workers=task.workers or _threads(),
                progress=False,
                **(common.arguments | own),
            )
        except Exception as error:
            failure = ChainFailure.of(None, error)
        seconds = time.perf_counter() - began
    findings: list[tuple[str, str]] = []
    others: list[tuple[str, str]] = []
    for each in caught:
        if isinstance(each.message, FindingsWarning):
            findings += [(str(getattr(one, "kind", "")), str(one)) for one in each.message.findings]
        else:
            others.append((each.category.__name__, str(each.message)))
    if result is not None:
        result.attrs |= {"key": task.key, "n_findings": len(findings)}
        if findings:
            result.attrs["findings"] = "\n".join(text for _, text in findings)
        if task.path:
            unwritten = try_write(result, task.path)
    return Outcome(result, failure, findings, others, seconds, unwritten)


@contextlib.contextmanager
def _end_at_timeout(task: Task) -> Iterator[None]:
    """End this process where a fit takes too long: nothing else stops native code that does not return.

    The thread that waits is not Python's: code may hold Python's lock and never give it back. It writes where
    the process was to the mark before it ends it.
    """
    if task.timeout is None:
        yield
        return
    seconds = min(task.timeout + (0.0 if _warm.is_set() else task.cold), threading.TIMEOUT_MAX)
    with Path(task.mark).open("wb") as mark:
        faulthandler.dump_traceback_later(seconds, file=mark, exit=True)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()
            _warm.set()


def fit_packed(task: Task) -> bytes:
    """Run a fit, and return its outcome as bytes, so that unpacking cannot fail in a library's threads."""
    outcome = fit(task)
    if isinstance(outcome.failure, ChainFailure):
        outcome = outcome._replace(failure=outcome.failure.pack())
    return pickle.dumps(outcome, protocol=5)


def is_refused_packed(task: Task) -> bytes:
    """Whether stanli refuses the program of a fit; what else is wrong with it the fit says itself."""
    refused = False
    with contextlib.suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        common, (model, data) = _common(task.common), _unpack(task.own)
        refused = is_refused(common.model if model is None else model, data)
    return pickle.dumps(refused)


def try_write(result: Any, path: str) -> str:
    """Write the file of a result. Returns why it could not be, or nothing."""
    try:
        write(result, path)
    except OutputError as error:
        return check.one_line(error)
    return ""


def _common(packed: Any) -> Common:
    return _unpickle_once(packed) if isinstance(packed, bytes) else packed


@functools.lru_cache(maxsize=4)
def _unpickle_once(packed: bytes) -> Common:
    """What fits share is made once in a process; the compiled program is kept where programs are opened."""
    common: Common = pickle.loads(packed)
    return common


def _unpack(own: Any) -> tuple[Any, Any]:
    pair: tuple[Any, Any] = pickle.loads(own) if isinstance(own, bytes) else own
    return pair


def _threads() -> int:
    """Threads of the Dask worker that this runs in."""
    with contextlib.suppress(ValueError):  # there is none
        return int(importlib.import_module("distributed").get_worker().state.nthreads)
    return 1
