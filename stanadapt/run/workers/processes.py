"""Chains in processes: for a model that must not run in threads, or whose code holds Python's lock.

The board is a file in memory that all of them map.
"""

from __future__ import annotations

import contextlib
import functools
import pickle
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from ... import check
from ...errors import ArgumentError, ChainError
from ...model.posterior import Posterior
from ..job import Job
from .board import Board
from .failures import PackedFailure
from .pickling import dump
from .process_pool import ProcessPool, death, lease_pool
from .segments import Piece, Segment, SegmentTeam, run_segment
from .turns import Work

_MODEL, _BOARD = "model", "board"  # files that the processes share
_KEEPING_SECONDS = 10.0  # of a segment, where its end is a checkpoint


def pack(posterior: Posterior) -> bytes:
    """A posterior as it goes to worker processes.

    Raises
    ------
    ArgumentError
        A Python target has functions that cannot go there.
    """
    try:
        return dump(posterior)
    except Exception as error:  # an object that a function holds may raise anything
        raise ArgumentError(
            f"the target's functions cannot be sent to worker processes ({check.one_line(error)}): make what "
            "they hold inside of them, or pass threads=True where the target is made, or workers=1"
        ) from error


class Processes(NamedTuple):
    """See `turns.Turns`. A process has a chain for as long as its segment lasts, and one thread."""

    workers: int
    packed: bytes  # the posterior, as `pack` gives it
    keeps: bool = False  # whether the processes stay for the next run

    @contextlib.contextmanager
    def team(self, work: Work) -> Iterator[ProcessTeam]:
        seconds = _KEEPING_SECONDS if work.keeper is not None else np.inf
        try:
            with lease_pool(self.workers, self.keeps) as pool, _folder(pool, self.packed, work) as folder:
                yield ProcessTeam(work, pool, folder, self.workers, seconds)
        except Exception as error:
            if reason := death(error):
                raise ChainError(reason) from error
            raise


@contextlib.contextmanager
def _folder(pool: ProcessPool, packed: bytes, work: Work) -> Iterator[Path]:
    """A folder with the model and the board, which is there until the end."""
    with tempfile.TemporaryDirectory(dir=pool.folder, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / _MODEL).write_bytes(packed)
        shape = Board.shape(work.job.chains)
        work.board.move(np.memmap(folder / _BOARD, mode="w+", shape=shape, dtype=float))
        try:
            yield folder
        finally:
            work.board.move(np.empty(shape))


class ProcessTeam(SegmentTeam):
    """See `turns.Team`. `folder` has the model and the board."""

    def __init__(
        self, work: Work, pool: ProcessPool, folder: Path, workers: int, most_seconds: float
    ) -> None:
        super().__init__(work, functools.partial(pool.submit, _run, folder, work.job), workers, most_seconds)
        self._open: Callable[[], Any] = functools.partial(pool.submit, _begin_work, folder)

    def open_model(self) -> list[Any]:
        """Have the processes start, and open the model. Each future is done when one of them has."""
        return [self._open() for _ in range(self.workers)]


@functools.lru_cache(maxsize=1)
def _open_model(folder: Path) -> Posterior:
    """In a worker process: the model, opened once, since one thread has all chains that come."""
    posterior = cast(Posterior, pickle.loads((folder / _MODEL).read_bytes()))
    if hasattr(posterior.model, "is_alone"):
        posterior.model.is_alone = True
    return posterior


def _begin_work(folder: Path) -> None:
    """In a worker process: open the model before the first segment comes."""
    _open_model(folder)


def _run(folder: Path, job: Job, segment: Segment) -> Piece | PackedFailure:
    """In a worker process: run a segment."""
    board = Board(np.memmap(folder / _BOARD, mode="r+", shape=Board.shape(job.chains), dtype=float))
    return run_segment(functools.partial(_open_model, folder), job, segment, board)
