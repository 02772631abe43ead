"""Many fits: those that run, those that are ready, and those whose worker has died."""

from __future__ import annotations

import contextlib
import functools
import pickle
import tempfile
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import check
from ..errors import ChainError, DataError, OutputError, StanAdaptWarning, warn
from ..model.data import EVERY, load, read
from ..model.labelled_data import as_pandas, is_table
from ..model.portable_programs import compile_program, portable, program_digest
from ..model.posterior import Posterior
from ..model.source import is_opened
from ..result.container import attributes
from ..result.files import read as read_file
from ..run import warmup
from ..run.interrupts import Caught, interrupts
from ..run.preparation import auto
from ..run.preparation.compiling import ahead_steps, compile_steps
from ..run.preparation.prepare import open_posterior
from ..run.progress import Tally
from ..run.request import Request
from ..run.workers.board import Board
from ..run.workers.failures import PackedFailure
from ..run.workers.pools import Here, LocalProcesses, Loss, Pool, Task
from .datasets import Entry
from .folder import Folder, digest
from .task import Common, Outcome, is_refused_packed, try_write

COLD_SECONDS = 60.0  # more than the limit of time for the first fit of a process
_LOOK_SECONDS = 0.1
_LOSSES = 3  # after which a fit that its cluster drops is given up
_NAMED = 3  # fits or kinds that a warning names

Value = Any  # an InferenceData or an Exception


@dataclass
class _Fit:
    """A fit that was begun."""

    entry: Entry
    task: Task
    input: str  # a hash of its data, and its program where it has its own; empty without a folder
    losses: int = 0
    is_alone: bool = False  # no other is under way with it, since a worker has died before


class Fits:
    """Runs fits as their results are asked for."""

    def __init__(
        self,
        entries: Iterator[Entry],
        total: int | None,
        common: Common,
        request: Request,
        seed: int,
        pool: Pool,
        share: int,
        folder: Folder | None,
        timeout: float | None,
    ) -> None:
        self.timeout = timeout
        self.marks = None if timeout is None else tempfile.TemporaryDirectory(prefix="stanadapt-")
        self.begun = 0
        self.entries, self.common, self.request, self.seed = entries, common, request, seed
        self.pool, self.share, self.folder = pool, share, folder
        self.packed = pool.pack(common)
        self.tally = Tally(f"{request.method}, fits", total, request.progress)
        self.under_way: dict[Future[Any], _Fit] = {}
        self.alone: deque[_Fit] = deque()  # to be run one at a time
        # The next outcomes: each key with a function that returns its value, or None where the fit runs
        # again.
        self.ready: deque[tuple[Entry, Callable[[], Value | None]]] = deque()
        self.is_prepared = self.is_exhausted = self.is_interrupted = False
        self.error: Exception | None = None  # raised at the end
        self.kinds: Counter[str] = Counter()
        self.with_findings = 0
        self.failed: list[str] = []
        self.told: set[tuple[str, str]] = set()

    def results(self) -> Iterator[tuple[Any, Value]]:
        """Keys with results or exceptions, as fits end."""
        try:
            with self.tally:
                while True:
                    with interrupts(Board.for_chains(0)) as caught:  # not while the caller works
                        found = self._next(caught)
                        if caught.signal:
                            self._stop()
                        if caught.ends_process:  # which it does when this handler is put back
                            self._close()
                    if found is None:
                        break
                    yield found
            self._sum_up()
            if self.error is not None:
                raise self.error
        finally:
            self._close()

    def _close(self) -> None:
        self.pool.close()
        if self.folder is not None:
            self.folder.close()
        if self.marks is not None:
            self.marks.cleanup()

    def _next(self, caught: Caught) -> tuple[Any, Value] | None:
        """The next result, waited for; None where there are no more."""
        while True:
            with self._stop_at_signal(caught):
                self._take(caught)
            if caught.signal:
                self._stop()
            if self.ready:
                entry, value_of = self.ready.popleft()
                value = value_of()
                if value is not None:
                    return entry.key, value
            elif not self.under_way:
                return None
            else:
                for future in wait(self.under_way, _LOOK_SECONDS, FIRST_COMPLETED).done:
                    if future in self.under_way:  # others may be lost together with one of them
                        self._finish(future)

    @contextlib.contextmanager
    def _stop_at_signal(self, caught: Caught) -> Iterator[None]:
        """A signal in a fit of this process ends the run, as it does for fits in other processes."""
        try:
            yield
        except (KeyboardInterrupt, SystemExit):
            if not (caught.signal and isinstance(self.pool, Here)):
                raise

    def _take(self, caught: Caught) -> None:
        """Begin fits until enough are under way."""
        if self.alone and not self.under_way:
            self._submit(self.alone.popleft())
        if any(fit.is_alone for fit in self.under_way.values()) or self.alone:
            return
        while not (self.is_exhausted or caught.signal) and self._has_room():
            try:
                entry = next(self.entries)
            except StopIteration:
                self.is_exhausted = True
            except Exception as error:  # the user's, of an item or of a generator
                self.is_exhausted, self.error = True, error
            else:
                if not caught.signal:  # which may have come while a generator was at work
                    self._begin(entry, caught)

    def _has_room(self) -> bool:
        return len(self.under_way) + len(self.ready) < self.pool.slots()

    def _begin(self, entry: Entry, caught: Caught) -> None:
        """Begin a fit; or have its result, or its failure, ready at once."""
        try:
            model, data, given = self._portable(entry)
            own = self.pool.pack((model, data))
        except Exception as error:  # an object that cannot be pickled may raise anything
            self._fail(entry, error, "")
            return
        path = ""
        if self.folder is not None and self.pool.writes:
            path = str(self.folder.path / self.folder.file(entry.text))
        self.begun += 1
        mark = "" if self.marks is None else str(Path(self.marks.name) / str(self.begun))
        seed = entry.seed(self.seed)
        task = Task(entry.text, self.packed, own, seed, self.share, path, self.timeout, mark, COLD_SECONDS)
        fit = _Fit(entry, task, given)
        held = None if self.folder is None else self.folder.entry(entry.text)
        if held is None:
            self._prepare(fit, caught)
            self._submit(fit)
        elif held["input"] != given:
            self.failed.append(entry.text)
            text = f"the folder out holds a fit of {check.quote(entry.key)} with other data"
            self._put(entry, OutputError(f"{text}: use another folder, or another key"))
        else:
            self.ready.append((entry, lambda: self._read(fit, held)))

    def _portable(self, entry: Entry) -> tuple[Any, Any, str]:
        """Model and data as they travel, and their hash where it is wanted."""
        model, data = entry.model, entry.data
        own = None
        if self.common.model is None:
            own = Posterior(model, data, backend=self.request.backend) if _is_object(model) else model
            own = own if isinstance(own, Posterior) else portable(own, self._include_paths)
        if own is not None and _is_object(model):
            data = None  # it has them
        elif isinstance(data, str) or hasattr(data, "__fspath__"):
            data = load(data, "data")
        if self.folder is None:
            return own, data, ""
        program = None
        if own is not None:
            program = own.digest() if isinstance(own, Posterior) else program_digest(own)
        values = own.data if isinstance(own, Posterior) else _values(data)
        return own, data, digest("data", [program, values])

    @property
    def _include_paths(self) -> Any:
        return self.common.arguments["include_paths"]

    def _submit(self, fit: _Fit) -> None:
        self.under_way[self.pool.submit(fit.task)] = fit

    def _prepare(self, fit: _Fit, caught: Caught) -> None:
        """Compile here, before the first fit, what every worker process would compile at the same time.

        A model that may be endless is not opened here, where nothing would end it.
        """
        if self.is_prepared or not isinstance(self.pool, LocalProcesses):
            return
        self.is_prepared = True
        entry, method = fit.entry, self.request.method
        # The fit says the same, and others may go well.
        with contextlib.suppress(Exception), warnings.catch_warnings():
            warnings.simplefilter("ignore", StanAdaptWarning)
            if self.timeout is not None and not is_opened(entry.model):
                refused = functools.partial(self._is_refused, fit, caught)
                program = portable(entry.model, self._include_paths)
                compile_program(program, self.request.backend, refused)
            elif not is_opened(entry.model):
                open_posterior(method, entry.model, entry.data, self.request.backend, self._include_paths)
        steps = ahead_steps([warmup.PILOT if method == auto.NAME else method])
        compile_steps(steps, self.request.progress, loading=False)

    def _is_refused(self, fit: _Fit, caught: Caught) -> bool:
        """Whether stanli refuses the program of a fit, which a worker process says; no, where it is late."""
        assert self.timeout is not None
        pool, late = LocalProcesses(is_refused_packed, 1), time.monotonic() + self.timeout + COLD_SECONDS
        try:
            future = pool.submit(fit.task)
            while not (future.done() or caught.signal) and time.monotonic() < late:
                wait([future], _LOOK_SECONDS)
            return future.done() and bool(pickle.loads(future.result()))
        finally:
            pool.close()

    def _finish(self, future: Future[Any]) -> None:
        """Have the outcome of a fit ready, or begin it again."""
        fit = self.under_way[future]
        try:
            given = future.result()
            outcome: Outcome = given if isinstance(given, Outcome) else pickle.loads(given)
        except Exception as error:
            loss = self.pool.loss(error)
            if loss is None:
                del self.under_way[future]
                self._fail(fit.entry, error, fit.input)
            else:
                self._lose(future, loss)
            return
        del self.under_way[future]
        if isinstance(self.pool, Here) and _is_cut(outcome):
            self._stop()  # the signal came to the fit, which may end before it is seen here
            return
        for warning in outcome.warnings:
            if warning not in self.told:
                self.told.add(warning)
                name, text = warning
                warn(text if name == "StanAdaptWarning" else f"in a fit, {name}: {text}")
        if outcome.failure is not None:
            self._fail(fit.entry, _error(outcome), fit.input)
            return
        kinds = [kind for kind, _ in outcome.findings]
        if self.folder is not None:
            self._note(fit, outcome, kinds)
        self._count(kinds)
        self._put(fit.entry, outcome.result)

    def _lose(self, future: Future[Any], loss: Loss) -> None:
        """Decide about a fit without an outcome, and about the fits that are lost with it."""
        if not loss.is_collective:
            fit = self.under_way.pop(future)
            fit.losses += 1
            if loss.is_curable and fit.losses <= _LOSSES:
                self._submit(fit)
            else:
                self._fail(fit.entry, ChainError(loss.reason), fit.input)
            return
        self.pool.close()
        lost = [
            (other, fit)
            for other, fit in self.under_way.items()
            if not other.done() or other.cancelled() or other.exception() is not None
        ]
        was_late = any(_is_late(fit) for _, fit in lost)
        for other, fit in lost:
            del self.under_way[other]
            if _is_late(fit):
                text = f"it took longer than timeout={self.timeout:g} seconds, and its process was ended"
                self._fail(fit.entry, ChainError(text), fit.input)
            elif was_late:
                self._submit(fit)
            elif fit.is_alone:
                self._fail(fit.entry, ChainError(loss.reason), fit.input)
            else:
                fit.is_alone = True
                self.alone.append(fit)

    def _stop(self) -> None:
        """After a signal: no further fit begins, and finished fits are handed out."""
        if self.is_interrupted:
            return
        self.is_interrupted = self.is_exhausted = True
        self.tally.say("stopping: the fits under way are dropped")
        self.alone.clear()
        for future in list(self.under_way):
            if future.done() and not future.cancelled() and future.exception() is None:
                self._finish(future)
        self.under_way.clear()
        self.pool.close()

    def _note(self, fit: _Fit, outcome: Outcome, kinds: list[str]) -> None:
        """Write the result, unless its worker has, and a line of the index; where that fails, begin none."""
        folder = self.folder
        assert folder is not None
        file = folder.file(fit.entry.text)
        reason = outcome.unwritten
        if not fit.task.path:
            reason = try_write(outcome.result, str(folder.path / file))
        try:
            if reason:
                raise OutputError(f"out={folder.shown!r}: {reason}. The last results are not in it")
            facts = {"status": "done", "file": file, "seed": fit.task.seed, "input": fit.input}
            folder.note(fit.entry.text, facts | {"findings": kinds, "seconds": round(outcome.seconds, 3)})
        except OutputError as error:
            self.error, self.is_exhausted = self.error or error, True

    def _read(self, fit: _Fit, held: dict[str, Any]) -> Value | None:
        """A result that is in the folder; None, and the fit is begun, where its file is damaged."""
        assert self.folder is not None
        try:
            result = read_file(Path(self.folder.path) / held["file"])
        except OutputError:
            self._submit(fit)
            return None
        self._count(held["findings"])
        self.tally.count(kept=True)
        return result

    def _fail(self, entry: Entry, error: Exception, given: str) -> None:
        self.failed.append(entry.text)
        if self.folder is not None:
            facts = {"status": "failed", "error": type(error).__name__, "reason": check.one_line(error)}
            try:
                self.folder.note(entry.text, facts | {"seed": entry.seed(self.seed), "input": given})
            except OutputError as broken:
                self.error, self.is_exhausted = self.error or broken, True
        self._put(entry, error)

    def _put(self, entry: Entry, value: Value) -> None:
        def hand_out() -> Value:
            self.tally.count(failed=isinstance(value, Exception))
            return value

        self.ready.append((entry, hand_out))

    def _count(self, kinds: list[str]) -> None:
        self.with_findings += bool(kinds)
        self.kinds.update(set(kinds))

    def _sum_up(self) -> None:
        """One warning of all findings and failures."""
        done = self.tally.done
        parts = []
        if self.is_interrupted:
            parts.append(f"the run was interrupted after {done} fits")
        if self.failed:
            named = ", ".join(self.failed[:_NAMED])
            more = f" and {len(self.failed) - _NAMED} more" if len(self.failed) > _NAMED else ""
            parts.append(f"{len(self.failed)} of {done} fits failed ({named}{more})")
        if self.with_findings:
            common = ", ".join(f"{kind} in {n}" for kind, n in self.kinds.most_common(_NAMED))
            parts.append(
                f"{self.with_findings} of {done} fits have findings ({common}), which the attribute findings "
                "of their results holds"
            )
        if parts:
            text = "; ".join(parts)
            warn(text[0].upper() + text[1:])


def _is_late(fit: _Fit) -> bool:
    """Whether a fit has ended its process because it took too long, and has left its mark."""
    mark = Path(fit.task.mark)
    return bool(fit.task.mark) and mark.exists() and mark.stat().st_size > 0


def _is_cut(outcome: Outcome) -> bool:
    """Whether a signal has cut short a fit in this process."""
    return outcome.result is not None and bool(attributes(outcome.result).get("interrupted"))


def _is_object(model: Any) -> bool:
    """Whether a model is an object that is still to be opened."""
    return is_opened(model) and not isinstance(model, Posterior)


def _values(data: Any) -> Any:
    """Data as `sample` reads them, for both meanings of Python's tuples; a table as text with all digits."""
    if is_table(data):
        return as_pandas(data).to_json(orient="split", double_precision=15)
    try:
        return read(data)
    except DataError:
        return read(data, tuples=EVERY)


def _error(outcome: Outcome) -> Exception:
    """The exception of a fit, with the traceback that it had in a worker process."""
    failure: Any = outcome.failure
    if isinstance(failure, PackedFailure):
        failure = failure.unpack()
        if failure.traceback:
            failure.error.add_note(f"It was raised in a worker process:\n{failure.traceback}")
    error: Exception = failure.error
    return error
