"""Chains that run elsewhere, in segments: a chain's value goes there, and comes back with its new draws.

Between two segments a chain is here, as a value. So a worker that dies costs one segment; chains that are
more than the workers take turns; and where a segment ends depends on time, which draws do not.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any, NamedTuple

from ...model.posterior import Posterior
from ...model.printing import keep_prints, log_lines, prints_of
from ..draws import ChainResult, Draws, stacks
from ..inits import Init
from ..job import Job
from ..together import learn_together
from .board import Board
from .failures import ChainFailure, PackedFailure, raise_first
from .turns import LOOK_SECONDS, Work, chain_blas, make_chains, take_turns

_TURN_SECONDS = 0.25  # of a chain, where there are more chains than workers


class Segment(NamedTuple):
    """The request to a worker."""

    chain: int
    init: Init
    value: Any  # of the chain, None where it begins
    goal: int  # rows to pause at
    seconds: float  # after which it ends as well, at a block's end


class Piece(NamedTuple):
    """The answer of a worker: the chain's new value, and its rows since the old one."""

    chain: int
    value: Any
    draws: Draws
    warmup: Draws | None
    printed: tuple[str, ...] = ()  # by the program, meanwhile


Submit = Callable[[Segment], "Future[Piece | PackedFailure]"]


def run_segment(
    open_model: Callable[[], Posterior], job: Job, segment: Segment, board: Board
) -> Piece | PackedFailure:
    """Run a segment where the model is, which `open_model` gives; exceptions are packed."""
    with keep_prints() as lines:
        answer = _answer(open_model, job, segment, board)
    return answer._replace(printed=tuple(lines))


def _answer(
    open_model: Callable[[], Posterior], job: Job, segment: Segment, board: Board
) -> Piece | PackedFailure:
    try:
        posterior = open_model()  # a module of the user's may not be there
        before = (0, 0) if segment.value is None else (segment.value.rows, segment.value.warmup_rows)
        draws, warmup = _rooms(job, posterior, segment, before)
        places = [draws], [warmup], [segment.value]
        chain = make_chains(posterior, job, {segment.chain: segment.init}, board, *places)[0]
        chain.goal = chain.value.goal = segment.goal
        blocks = _until_late(chain.blocks(), segment.seconds)
    except BaseException as error:
        return ChainFailure.of(segment.chain, error).pack()
    with chain_blas(job, posterior.model):
        failure = take_turns(deque([(segment.chain, blocks)]), board)
    if failure is not None:
        return failure.pack()
    chain.result()  # puts a failure into words
    return Piece(segment.chain, chain.value, draws.trim(), None if warmup is None else warmup.trim())


def _rooms(
    job: Job, posterior: Posterior, segment: Segment, before: tuple[int, int]
) -> tuple[Draws, Draws | None]:
    """Room for the rows that are still to come. Rows before them are elsewhere."""
    left = job._replace(draws=(segment.goal - before[0]) * job.thin)
    draws, warmup = (None if stack is None else stack.chain(0) for stack in stacks(left, posterior, 1))
    assert draws is not None
    for rows, n, most in ((draws, before[0], job.rows), (warmup, before[1], job.warmup_rows)):
        if rows is not None:
            rows.n = rows.first = n
            rows.rows = most
    return draws, warmup


def _until_late(blocks: Any, seconds: float) -> Any:
    """Blocks until so many seconds are over."""
    late = time.perf_counter() + seconds
    for block in blocks:
        yield block
        if time.perf_counter() >= late:
            return


class SegmentTeam:
    """See `turns.Team`. `submit` has a worker run a segment."""

    def __init__(self, work: Work, submit: Submit, workers: int, most_seconds: float) -> None:
        self.work, self.submit, self.workers = work, submit, workers
        crowded = work.job.chains > workers
        self.seconds = min(most_seconds, _TURN_SECONDS) if crowded else most_seconds

    def advance(self, goal: int) -> None:
        work, board = self.work, self.work.board
        waiting = deque(i for i in range(work.job.chains) if not self._has_reached(i, goal))
        running: dict[Future[Any], int] = {}
        failures: list[ChainFailure] = []
        while running or (waiting and not board.is_stopped):
            while waiting and len(running) < self.workers and not board.is_stopped:
                i = waiting.popleft()
                segment = Segment(i, work.inits[i], work.values[i], goal, self.seconds)
                running[self.submit(segment)] = i
            for future in wait(running, timeout=LOOK_SECONDS, return_when=FIRST_COMPLETED).done:
                i = running.pop(future)
                piece = future.result()
                if piece.printed:
                    with prints_of(i):
                        log_lines("\n".join(piece.printed))
                if isinstance(piece, PackedFailure):
                    failures.append(piece.unpack())
                    board.stop()
                    continue
                self._take(piece)
                if not self._has_reached(i, goal):
                    waiting.append(i)
            work.look(board)
        raise_first(failures, in_processes=True)

    def results(self) -> list[ChainResult]:
        work = self.work
        rooms = zip(work.draws, work.warmup, strict=True)
        return [
            (work.values[i] or self._first_value(i)).result(work.job, *room, work.posterior.library)
            for i, room in enumerate(rooms)
        ]

    def _first_value(self, i: int) -> Any:
        """The value of a chain that was stopped before it began."""
        work = self.work
        rooms = work.draws[i : i + 1], work.warmup[i : i + 1]
        return make_chains(work.posterior, work.job, {i: work.inits[i]}, work.board, *rooms, [None])[0].value

    def _take(self, piece: Piece) -> None:
        """Put the new rows to the others, and keep a checkpoint."""
        work, i = self.work, piece.chain
        draws, warmup = work.draws[i], work.warmup[i]
        draws.append(piece.draws.values, piece.draws.x, piece.draws.stats)
        if warmup is not None and piece.warmup is not None:
            warmup.append(piece.warmup.values, piece.warmup.x, piece.warmup.stats)
        work.values[i] = piece.value
        if work.keeper is not None:
            work.keeper.keep(i, piece.value, draws, warmup)

    def _has_reached(self, i: int, goal: int) -> bool:
        """Whether a chain has nothing to do until it has `goal` rows."""
        value, job = self.work.values[i], self.work.job
        if value is None or value.rows < goal:
            return False
        if goal == 0 and value.warmup_iterations is None:
            return learn_together(job) and bool(value.is_waiting)
        return goal < job.rows or value.done >= job.warmup + job.draws
