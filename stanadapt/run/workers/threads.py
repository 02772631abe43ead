"""Chains in threads of this process: compiled kernels run without Python's lock."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from ..chain import Chain
from ..draws import ChainResult
from .failures import raise_first
from .turns import Look, Work, blocks_of, chain_blas, make_chains, take_turns, watch


class Threads(NamedTuple):
    """See `turns.Turns`."""

    workers: int

    @contextlib.contextmanager
    def team(self, work: Work) -> Iterator[ThreadTeam]:
        pool = ThreadPoolExecutor(self.workers, thread_name_prefix="stanadapt")
        team = ThreadTeam(work, pool, self.workers)
        try:
            with chain_blas(work.job, work.posterior.model):
                yield team
        finally:
            work.board.stop()
            pool.shutdown(wait=False)


class ThreadTeam:
    """See `turns.Team`."""

    def __init__(self, work: Work, pool: ThreadPoolExecutor, workers: int) -> None:
        self.work, self.pool, self.workers = work, pool, workers
        self.take_up()

    def take_up(self) -> None:
        """Make the chains, from what the work has of them."""
        work = self.work
        inits = dict(enumerate(work.inits))
        self.chains: list[Chain] = make_chains(
            work.posterior, work.job, inits, work.board, work.draws, work.warmup, work.values
        )
        work.values[:] = [chain.value for chain in self.chains]

    def advance(self, goal: int) -> None:
        self.advance_until(goal, lambda: False, self.work.look)

    def advance_until(self, goal: int, is_over: Callable[[], bool], look: Look) -> None:
        """The same, but chains are left between two blocks where `is_over` says so."""
        work = self.work
        for chain in self.chains:
            chain.goal = chain.value.goal = goal
        waiting = blocks_of(self.chains)
        futures = [
            self.pool.submit(take_turns, waiting, work.board, self._keep_if_due, is_over)
            for _ in range(self.workers)
        ]
        watch(futures, work.board, look)
        failures = [failure for future in futures if (failure := future.result())]
        self._keep({failure.chain for failure in failures})
        raise_first(failures, in_processes=False)

    def results(self) -> list[ChainResult]:
        return [chain.result() for chain in self.chains]

    def _keep_if_due(self, index: int) -> None:
        """A checkpoint of a chain, if the last one is long ago."""
        keeper, chain = self.work.keeper, self.chains[index]
        if keeper is not None and keeper.is_due(index):
            keeper.keep(index, chain.value, chain.draws, chain.warmup)

    def _keep(self, failed: set[int | None]) -> None:
        """A checkpoint of every chain that is between two blocks."""
        if self.work.keeper is None:
            return
        for chain in self.chains:
            if chain.index not in failed:
                self.work.keeper.keep(chain.index, chain.value, chain.draws, chain.warmup)
