"""One progress bar for all chains: in a terminal, as a widget in a notebook, or as lines in a log file.

A notebook without ipywidgets has a bar of text. One in VS Code has lines: widgets are not there before they
were loaded from a server elsewhere, and it does not write over text.

An error while showing progress (a closed stderr, a broken pipe, no widgets) never ends a run.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import time
import warnings
from datetime import timedelta
from typing import Any, Protocol

import numpy as np

from ..jit import is_compiling
from ..samplers import is_engine, sampler
from .job import Job
from .workers.board import Board

_LOG_SHARE = 0.1  # a log file gets a line for every tenth of the run,
_LOG_SECONDS = 10.0  # but for a long tenth at least one in so many seconds
_REFRESH_SECONDS = 0.2  # between two refreshes of a bar of steps
_MANY = 10_000  # counts from here on are written as 10.0k
_STEPS = "{desc} {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt}, {elapsed}{postfix}"
_BAR = "{desc} {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt}, {remaining} left{postfix}"


class Goal(Protocol):
    """How far a run with `until` is."""

    limit: str  # what has ended it before its goals, or nothing

    @property
    def words(self) -> str: ...

    @property
    def rows_needed(self) -> float:
        """Infinity where it is not known."""
        ...


class Progress:
    """Show the board's state; a context manager. `enabled=False` shows nothing.

    Where there is a goal, the whole bar is the estimated work that reaches it.
    """

    def __init__(self, job: Job, enabled: bool, goal: Goal | None = None) -> None:
        self.job, self.goal = job, goal
        self.total = job.chains * (job.warmup + job.draws)
        self.enabled = enabled
        self.whole = is_engine(sampler(job.method))  # whether a chain tells nothing before its end
        self.bar: Any = None
        self.began = self.logged_at = time.perf_counter()
        self.logged = 0.0
        self.stopping = False

    def __enter__(self) -> Progress:
        if self.enabled:
            try:
                if _has_bars():
                    self.bar = _bar(self.job.method, self.total)
            except Exception:  # stderr is closed or None
                self.enabled = False
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            with contextlib.suppress(Exception):
                self.bar.close()

    def __call__(self, board: Board) -> None:
        """Update the bar."""
        if not self.enabled:
            return
        try:
            self._show(board)
        except Exception:  # nobody reads any longer
            self.enabled = False

    def _show(self, board: Board) -> None:
        rows = board.rows[:-1]
        done = int(rows[:, 0].sum())
        if self.goal is not None:
            self._aim(done)
        if self.bar is None:
            self._log(done, rows)
        else:
            self.bar.set_postfix_str(self._state(rows), refresh=False)
            self.bar.update(done - self.bar.n)
        if board.is_stopped and not self.stopping and done < self.total:
            self.stopping = True
            end = "with the chains that are whole" if self.whole else "when the present block ends"
            if self.goal is not None and self.goal.limit:  # nobody has interrupted it
                text = f"{self.job.method}: its time is up, and it stops {end}"
            else:
                text = f"{self.job.method}: stopping {end}; Ctrl-C again gives up at once"
            tell(text) if self.bar is None else self.bar.write(text, file=sys.stderr)

    def _aim(self, done: int) -> None:
        """Make the work up to the goal the whole bar."""
        assert self.goal is not None
        job, needed = self.job, self.goal.rows_needed
        whole = job.chains * (job.warmup + job.draws)
        if math.isfinite(needed):
            whole = min(whole, job.chains * (job.warmup + math.ceil(needed) * job.thin))
        self.total = max(whole, done)
        if self.bar is not None:
            self.bar.total = self.total

    def _log(self, done: int, rows: np.ndarray) -> None:
        now = time.perf_counter()
        share = done / self.total
        finished = share == 1.0 and self.logged < 1.0
        if finished or share - self.logged >= _LOG_SHARE or now - self.logged_at >= _LOG_SECONDS:
            when = _time(now - self.began, share)
            text = f"{self.job.method}: {share:4.0%}, {done}/{self.total} iterations, {when}"
            print(f"{text}, {self._state(rows)}", file=sys.stderr, flush=True)
            self.logged, self.logged_at = share, now

    def _state(self, rows: np.ndarray) -> str:
        """Stage, acceptance and step size over chains; of whole chains, how many there are."""
        finished = rows[rows[:, 4] > 0]
        if not self.whole:
            aims = f", {self.goal.words}" if self.goal is not None and self.goal.words else ""
            waits = ", compiling" if is_compiling() else ""  # what few models need is not compiled before
            return _stage(rows) + _figures(rows[rows[:, 0] > 0]) + aims + waits
        return f"{len(finished)}/{len(rows)} chains" + _figures(finished)


class Tally:
    """Count the finished ones of many fits, and show the number; a context manager.

    `enabled=False` shows nothing.
    """

    def __init__(self, name: str, total: int | None, enabled: bool) -> None:
        self.name, self.total, self.enabled = name, total, enabled
        self.done = self.failed = self.kept = 0  # kept: of an earlier run
        self.bar: Any = None
        self.began = self.logged_at = time.perf_counter()
        self.logged = 0

    def __enter__(self) -> Tally:
        with contextlib.suppress(Exception):  # stderr is closed or None
            if self.enabled and _has_bars():
                self.bar = _bar(self.name, self.total)
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            with contextlib.suppress(Exception):
                self.bar.close()

    def count(self, *, failed: bool = False, kept: bool = False) -> None:
        """One fit more."""
        self.done, self.failed, self.kept = self.done + 1, self.failed + failed, self.kept + kept
        if self.enabled:
            with contextlib.suppress(Exception):  # nobody reads any longer
                self._show()

    def say(self, text: str) -> None:
        """Write a line for the user, apart from a bar."""
        if not self.enabled:
            return
        if self.bar is None:
            tell(text)
            return
        with contextlib.suppress(Exception):
            self.bar.write(text, file=sys.stderr)

    def _show(self) -> None:
        if self.bar is not None:
            self.bar.set_postfix_str(self._state(), refresh=False)
            self.bar.update(1)
            return
        now = time.perf_counter()
        step = max(1.0, _LOG_SHARE * self.total) if self.total else float("inf")
        if self.done == self.total or self.done - self.logged >= step or now - self.logged_at >= _LOG_SECONDS:
            of_all, when = "", ""
            if self.total:
                new = (self.done - self.kept) / max(self.total - self.kept, 1)
                share = 1.0 if self.done == self.total else new
                of_all, when = f"/{self.total}", f", {_time(now - self.began, share)}"
            tell(f"{self.name}: {self.done}{of_all} done{self._state()}{when}")
            self.logged, self.logged_at = self.done, now

    def _state(self) -> str:
        failed = f", {self.failed} failed" if self.failed else ""
        return f"{failed}, {self.kept} from before" if self.kept else failed


class StepProgress:
    """Show which of several steps is under way, and how many there are; a context manager.

    `enabled=False` shows nothing, and neither do no steps. In a log file the first line comes at the first
    step if `opening`, which are words for it, is given, and else when some seconds have gone by.
    """

    def __init__(self, name: str, total: int, enabled: bool, opening: str = "") -> None:
        self.name, self.total, self.enabled = name, total, enabled and total > 0
        self.opening = opening
        self.done, self.step = -1, ""  # before the first
        self.bar: Any = None
        self.logged_at = -math.inf if opening else time.perf_counter()
        self.shown_at = -math.inf

    def __enter__(self) -> StepProgress:
        with contextlib.suppress(Exception):  # stderr is closed or None
            if self.enabled and _has_bars():
                self.bar = _bar(self.name, self.total, _STEPS)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self.bar is not None:
            with contextlib.suppress(Exception):
                if kind is None:
                    self.bar.set_postfix_str("", refresh=False)
                    self.bar.update(self.total - self.bar.n)
                self.bar.close()

    def begin(self, step: str) -> None:
        """The next step begins."""
        self.done, self.step = self.done + 1, step
        self._show(step)

    def refresh(self, words: str = "") -> None:
        """Show that time passes, and how far the step is. It may be called as often as one likes."""
        if self.enabled and time.perf_counter() - self.shown_at >= _REFRESH_SECONDS:
            self._show(f"{self.step}, {words}" if words else self.step)

    def _show(self, text: str) -> None:
        if not self.enabled:
            return
        self.shown_at = time.perf_counter()
        with contextlib.suppress(Exception):  # nobody reads any longer
            if self.bar is not None:
                self.bar.set_postfix_str(text, refresh=False)
                self.bar.update(self.done - self.bar.n)
                self.bar.refresh()
            elif self.shown_at - self.logged_at >= _LOG_SECONDS:
                why = self.opening if self.done == 0 else ""
                tell(f"stanadapt: {self.name}{why}: {self.done + 1}/{self.total}, {text}")
                self.logged_at = self.shown_at


def tell(text: str) -> None:
    """A line on stderr, if there is one."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            print(text, file=sys.stderr, flush=True)


def _has_bars() -> bool:
    """Whether stderr is a terminal or a notebook, where a line can be written over."""
    return sys.stderr.isatty() or _in_notebook()


def _bar(name: str, total: int | None, shown: str = _BAR) -> Any:
    """tqdm's bar for the terminal or the notebook; its text bar in a notebook that has no widgets."""
    from tqdm.std import tqdm as text_bar

    shape: dict[str, Any] = {"total": total, "desc": name, "dynamic_ncols": True}
    shape["unit_scale"] = total is None or total >= _MANY
    if total is not None:
        shape["bar_format"] = shown
    # Without miniters tqdm learns it from fast iterations, and then the bar freezes at slow ones.
    shape |= {"miniters": 1, "mininterval": 0.25}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that widgets are missing
        try:
            from tqdm.auto import tqdm

            return tqdm(**shape)
        except ImportError:
            return text_bar(**shape)


def _stage(rows: np.ndarray) -> str:
    sampling = int(rows[:, 1].sum())
    return {0: "warm-up", len(rows): "sampling"}.get(sampling, f"{sampling}/{len(rows)} sampling")


def _figures(rows: np.ndarray) -> str:
    """Acceptance and step size over chains, as far as there are any."""
    if not len(rows):
        return ""
    acceptance, step_size = rows[:, 2].mean(), np.median(rows[:, 3])
    shown = "" if np.isnan(acceptance) else f", accept {acceptance:.2f}"
    return shown if np.isnan(step_size) else f"{shown}, step {step_size:.3g}"


def _time(spent: float, share: float) -> str:
    """Time left at the pace so far, or the whole of it at the end."""
    if share == 1.0:
        return f"{timedelta(seconds=round(spent))} spent"
    return f"{timedelta(seconds=round(spent * (1 - share) / share))} left" if share else "nothing done yet"


def _in_notebook() -> bool:
    """Whether this is a Jupyter kernel, and not one of VS Code."""
    library = sys.modules.get("IPython")
    shell = None if library is None else library.get_ipython()
    return hasattr(shell, "kernel") and not _in_vscode(shell)


def _in_vscode(shell: Any) -> bool:
    """Whether a kernel was started by VS Code, which leaves one of these marks."""
    return "VSCODE_PID" in os.environ or "__vsc_ipynb_file__" in getattr(shell, "user_ns", {})
