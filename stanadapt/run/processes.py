"""Chains in processes: for a model that must not run in threads, or whose code holds Python's lock.

loky's workers start from scratch (no fork) and do not run the user's script again, so a script needs no
`if __name__ == "__main__"`. The board is a file in memory that all of them map.
"""

from __future__ import annotations

import os
import pickle
import re
import tempfile
from multiprocessing import resource_tracker
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .. import check
from ..errors import ArgumentError, ChainError
from ..model.posterior import Posterior
from ..workers import blocked_signals, end_with_parent, ignore_signals
from .board import Board
from .draws import ChainResult, Run, stacks
from .failures import Failure, PackedFailure, raise_first
from .inits import Init
from .interrupts import interrupts
from .job import Job
from .turns import Look, blocks_of, chain_blas, make_chains, take_turns, watch


def pack(posterior: Posterior) -> bytes:
    """A posterior as it goes to worker processes.

    Raises
    ------
    ArgumentError
        A Python target has functions that cannot go there.
    """
    import cloudpickle

    try:
        return bytes(cloudpickle.dumps(posterior))
    except Exception as error:  # an object that a function holds may raise anything
        raise ArgumentError(
            f"the target's functions cannot be sent to worker processes ({check.one_line(error)}): make what "
            "they hold inside of them, or pass threads=True where the target is made, or workers=1"
        ) from error


class Processes(NamedTuple):
    """See `turns.Turns`. Each process has a share of the chains, and one thread for all of them."""

    workers: int
    packed: bytes  # the posterior, as `pack` gives it

    def run(self, posterior: Posterior, job: Job, inits: list[Init], look: Look) -> Run:
        from loky import ProcessPoolExecutor
        from loky.process_executor import TerminatedWorkerError

        with tempfile.TemporaryDirectory(prefix="stanadapt-") as folder:
            path = Path(folder) / "board"
            board = Board(np.memmap(path, mode="w+", shape=Board.shape(job.chains), dtype=float))
            pool = ProcessPoolExecutor(self.workers, initializer=_begin, initargs=(os.getpid(), path.parent))
            shares = [list(range(first, job.chains, self.workers)) for first in range(self.workers)]
            with interrupts(board):
                try:
                    with blocked_signals():
                        resource_tracker.ensure_running()  # which undoes the block, in older Pythons
                    with blocked_signals():
                        futures = [
                            pool.submit(_run_share, self.packed, job, share, [inits[i] for i in share], path)
                            for share in shares
                        ]
                    watch(futures, board, look)
                    shared = [future.result() for future in futures]
                except TerminatedWorkerError as error:
                    codes = re.search(r"\{(.*)\}", str(error))
                    raise ChainError(
                        f"a worker process died ({codes[1] if codes else 'no exit code'}): the model "
                        "crashed in it, or memory ran out"
                    ) from error
                finally:
                    pool.shutdown(wait=True, kill_workers=True)
        failures = [share.opened() for share in shared if isinstance(share, PackedFailure)]
        raise_first(failures, in_processes=True)
        draws, warmup = stacks(job, posterior, job.chains)
        results = [result for share in shared for result in share]
        for result in results:
            result.draws = draws.absorb(result.index, result.draws)
            if warmup is not None and result.warmup is not None:
                result.warmup = warmup.absorb(result.index, result.warmup)
        results.sort(key=lambda result: result.index)
        return Run(results, draws, warmup)


def _begin(parent: int, folder: Path) -> None:
    """In a worker process, before all else; `folder` holds the board."""
    end_with_parent(parent, folder)
    ignore_signals()


def _run_share(
    packed: bytes, job: Job, share: list[int], inits: list[Init], path: Path
) -> list[ChainResult] | PackedFailure:
    """In a worker process: run some of the chains."""
    board = Board(np.memmap(path, mode="r+", shape=Board.shape(job.chains), dtype=float))
    try:
        posterior = pickle.loads(packed)
        chains = make_chains(posterior, job, share, inits, board, *stacks(job, posterior, len(share)))
    except BaseException as error:  # a module of the user's may not be there
        board.stop()
        return Failure.of(share[0], error).packed()
    with chain_blas(job):
        failure = take_turns(blocks_of(chains), board)
    if failure is not None:
        return failure.packed()
    results = [chain.result() for chain in chains]
    for result in results:  # rows that an interrupted run never wrote would be sent as well
        result.draws = result.draws.written()
        result.warmup = None if result.warmup is None else result.warmup.written()
    return results
