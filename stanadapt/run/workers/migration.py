"""Chains that begin in threads, and learn in processes where they learn for long.

What a chain learns is worked out with Python's lock held, so that threads learn one after another however
many cores there are. Processes learn at the same time, but take more than a second to start, which a short
run would not get back. So they start when chains have learned for a while, in this run and earlier ones of
the session, and are kept for the next run, which begins with them. They have the chains until warm-up is
over: compiled kernels draw without the lock, and draws need not travel. All of this is a matter of time
alone: the draws are the same.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import NamedTuple

from ... import check
from ..draws import ChainResult
from .board import Board
from .process_pool import death, has_kept
from .processes import Processes, ProcessTeam, pack
from .threads import Threads, ThreadTeam
from .turns import Work

# Of learning, by all chains together, before processes start. They take about a second to start, and where
# there are no cores but those of two threads they are in the way meanwhile.
PATIENCE_SECONDS = 1.0 if check.available_cores() > 2 else 3.0
_PROCESS_BYTES = 5e8  # that a process may need beside the model's data


@dataclass
class _Learned:
    """Seconds that runs of this session have learned since processes were started."""

    seconds: float = 0.0


_learned = _Learned()


class Migration(NamedTuple):
    """See `turns.Turns`."""

    workers: int

    @contextlib.contextmanager
    def team(self, work: Work) -> Iterator[_MigratingTeam]:
        with Threads(self.workers).team(work) as threads, contextlib.ExitStack() as processes:
            yield _MigratingTeam(work, threads, self.workers, processes)


class _MigratingTeam:
    """See `turns.Team`. `processes` is closed when they have done their work."""

    def __init__(
        self, work: Work, threads: ThreadTeam, workers: int, processes: contextlib.ExitStack
    ) -> None:
        self.work, self.threads, self.workers, self.processes = work, threads, workers, processes
        self.has_started = False
        self.team: ProcessTeam | None = None
        self.opened: list[Future[None]] = []  # done when a process has the model

    def advance(self, goal: int) -> None:
        is_over = False
        if self._is_cold():
            with self.processes:
                is_over = self._warm_up(goal)
        if not is_over:
            self.threads.advance(goal)

    def results(self) -> list[ChainResult]:
        return self.threads.results()

    def _warm_up(self, goal: int) -> bool:
        """Run warm-up, in threads for as long as no process can. Returns whether threads are at the goal."""
        if has_kept(self.workers):
            self._start()
        else:
            self.threads.advance_until(goal, self._may_leave, self._look)
            _learned.seconds = 0.0 if self.has_started else _learned.seconds + self._learning_seconds()
            if not self._may_leave() or self.work.board.is_stopped:
                return True
        if self.team is not None:
            values = self.work.values
            values[:] = [None if value.place is None else value for value in values]  # it has not begun
            try:
                self.team.advance(0)
            except Exception as error:
                if not death(error):
                    raise
                # Memory ran out, say. Threads go on from where the chains came back last.
            finally:
                self.threads.take_up()
        return False

    def _look(self, board: Board) -> None:
        """Start processes when it is time."""
        learning = _learned.seconds + self._learning_seconds()
        if not self.has_started and learning > PATIENCE_SECONDS and self._is_cold():
            self._start()
        self.work.look(board)

    def _start(self) -> None:
        """Have processes open the model, if there is memory for them."""
        self.has_started = True
        packed = pack(self.work.posterior)
        if check.free_memory() > self.workers * (_PROCESS_BYTES + len(packed)):
            turns = Processes(self.workers, packed, keeps=True)
            # Where the system has no semaphores, or allows no more files or processes, threads go on.
            with contextlib.suppress(ImportError, OSError, RuntimeError), contextlib.ExitStack() as starting:
                team = starting.enter_context(turns.team(self.work))
                self.opened, self.team = team.open_model(), team
                self.processes.push(starting.pop_all())

    def _learning_seconds(self) -> float:
        return sum(chain.learning_seconds for chain in self.threads.chains)

    def _is_cold(self) -> bool:
        """Whether a chain is still in warm-up."""
        return any(value.warmup_iterations is None for value in self.work.values)

    def _may_leave(self) -> bool:
        """Whether a process can take a chain that is still in warm-up."""
        is_ready = any(future.done() and future.exception() is None for future in self.opened)
        return is_ready and self._is_cold()
