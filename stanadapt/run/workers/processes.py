"""Chains in processes: for a model that must not run in threads, or whose code holds Python's lock.

loky's workers start from scratch (no fork) and do not run the user's script again, so a script needs no
`if __name__ == "__main__"`. The board is a file in memory that all of them map.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
import re
import tempfile
from collections.abc import Iterator
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from ... import check
from ...child_processes import blocked_signals, end_with_parent, ignore_signals
from ...errors import ArgumentError, ChainError
from ...model.posterior import Posterior
from ..job import Job
from .board import Board
from .failures import PackedFailure
from .pickling import dump
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

    @contextlib.contextmanager
    def team(self, work: Work) -> Iterator[SegmentTeam]:
        from loky import ProcessPoolExecutor
        from loky.process_executor import TerminatedWorkerError

        with tempfile.TemporaryDirectory(prefix="stanadapt-") as name:
            folder = Path(name)
            (folder / _MODEL).write_bytes(self.packed)
            rows = np.memmap(folder / _BOARD, mode="w+", shape=Board.shape(work.job.chains), dtype=float)
            work.board.rows = rows
            pool = ProcessPoolExecutor(self.workers, initializer=_begin, initargs=(os.getpid(), folder))

            def submit(segment: Segment) -> Any:
                with blocked_signals():
                    resource_tracker.ensure_running()  # which undoes the block, in older Pythons
                with blocked_signals():
                    return pool.submit(_run, folder, work.job, segment)

            seconds = _KEEPING_SECONDS if work.keeper is not None else np.inf
            try:
                yield SegmentTeam(work, submit, self.workers, seconds)
            except TerminatedWorkerError as error:
                codes = re.search(r"\{(.*)\}", str(error))
                raise ChainError(
                    f"a worker process died ({codes[1] if codes else 'no exit code'}): the model "
                    "crashed in it, or memory ran out"
                ) from error
            finally:
                pool.shutdown(wait=True, kill_workers=True)
                work.board.rows = rows.copy()  # the file goes


def _begin(parent: int, folder: Path) -> None:
    """In a worker process, before all else; `folder` holds the board."""
    end_with_parent(parent, folder)
    ignore_signals()


@functools.lru_cache(maxsize=1)
def _open_model(folder: Path) -> Posterior:
    """In a worker process: the model, opened once."""
    return cast(Posterior, pickle.loads((folder / _MODEL).read_bytes()))


def _run(folder: Path, job: Job, segment: Segment) -> Piece | PackedFailure:
    """In a worker process: run a segment."""
    board = Board(np.memmap(folder / _BOARD, mode="r+", shape=Board.shape(job.chains), dtype=float))
    return run_segment(functools.partial(_open_model, folder), job, segment, board)
