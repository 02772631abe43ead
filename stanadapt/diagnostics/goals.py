"""Goals and limits of a run while it goes on: when its chains pause, and whether they have drawn enough."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

from ..model.posterior import Posterior
from ..run.draws import Run
from ..run.job import Job
from ..run.stopping import Schedule, Until, check_until
from ..run.workers.board import Board
from ..run.workers.turns import Look, Work
from .status import Status, attributes
from .until import GoalWatch


class Goals:
    """What says how long a run goes on (`run.workers.turns.Enough`), and what it has come to."""

    def __init__(self, until: Until, posterior: Posterior, job: Job, began: float) -> None:
        """`began` is the reading of `time.perf_counter` from which a limit of time counts."""
        check_until(until, posterior, job.chains, job.rows)
        self.until, self.schedule, self.began = until, Schedule(until, job.chains, job.rows), began
        self.watch = GoalWatch(until, posterior)
        self.status: Status | None = None
        self.limit = ""  # what has ended the run before its goals, or nothing
        self.attributes: dict[str, Any] = {}

    def __call__(self, work: Work) -> int | None:
        values = [value for value in work.values if value is not None]
        rows = work.rows
        pause = max((value.goal for value in values), default=0)
        if rows < pause:  # a run that was stopped on its way there
            return pause
        # Searches for coordinates take gradients that no iteration counts.
        searches = sum(int(value.learnt.get("field_gradients", 0)) for value in values)
        evaluations = sum(value.evaluations for value in values) + searches
        before = sum(value.evaluations_warmup for value in values) + searches
        if rows:
            if self.schedule.is_look(rows):
                self.status = self.watch.look(work.values_so_far)
                if self.status.done:
                    return None
            self.limit = self.schedule.limit(rows, evaluations, before)
            if self.limit:
                return None
        # After a pause without a look nothing is left out, since a run that is taken up there knows of none.
        seen = self.status
        not_before = seen.not_before if seen is not None and seen.rows == rows else 0.0
        return self.schedule.next(rows, evaluations, before, not_before)

    def with_time_limit(self, look: Look) -> Look:
        """`look`, and a watch on the limit of time."""

        def both(board: Board) -> None:
            look(board)
            seconds = self.until.seconds
            if seconds is not None and not board.is_stopped and time.perf_counter() - self.began >= seconds:
                self.limit = "seconds"
                board.stop()

        return both

    @property
    def words(self) -> str:
        """How far the goals are, for a progress bar."""
        return "" if self.status is None else self.status.words()

    @property
    def rows_needed(self) -> float:
        """Estimate of the rows at which all goals hold, infinity before the first look."""
        return float("inf") if self.status is None else self.status.rows_needed

    def finish(self, work: Work, run: Run) -> Run:
        """The run as it has ended, which `attributes` tell of."""
        if not run.is_enough and self.limit != "seconds":
            self.limit = "interrupt" if run.is_short else "draws"
        if self.status is None or not self.status.holds or self.status.rows != work.rows:
            self.status = self.watch.look(work.values_so_far, whole=True)
        self.attributes = attributes(self.until, self.status, self.limit)
        return run._replace(is_enough=run.is_enough or self.limit == "seconds")

    def as_json(self) -> dict[str, Any]:
        """The goals, for a record."""
        return dataclasses.asdict(self.until)
