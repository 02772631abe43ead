"""Chains in threads of this process: compiled kernels run without Python's lock."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from ..model.posterior import Posterior
from .board import Board
from .draws import Run, stacks
from .failures import raise_first
from .inits import Init
from .interrupts import interrupts
from .job import Job
from .turns import Look, blocks_of, chain_blas, make_chains, take_turns, watch


class Threads(NamedTuple):
    """See `turns.Turns`."""

    workers: int

    def run(self, posterior: Posterior, job: Job, inits: list[Init], look: Look) -> Run:
        board = Board.for_chains(job.chains)
        draws, warmup = stacks(job, posterior, job.chains)
        chains = make_chains(posterior, job, list(range(job.chains)), inits, board, draws, warmup)
        pool = ThreadPoolExecutor(self.workers, thread_name_prefix="stanadapt")
        with interrupts(board), chain_blas(job):
            try:
                waiting = blocks_of(chains)
                futures = [pool.submit(take_turns, waiting, board) for _ in range(self.workers)]
                watch(futures, board, look)
            finally:
                board.stop()
                pool.shutdown(wait=False)
        raise_first([failure for future in futures if (failure := future.result())], in_processes=False)
        return Run([chain.result() for chain in chains], draws, warmup)
