"""Many chains: how they take turns, whatever runs them.

Workers take turns over the chains, a block at a time, so that all chains get on alike: an interrupted run has
about the same number of draws from each, and three chains on two cores take 1.5 times as long as one.

What runs the workers is a strategy, `Turns`: threads.py and processes.py have one each.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from typing import Any, Protocol

from ..model.posterior import Posterior
from ..numerics.blas import one_thread
from ..samplers import is_engine, sampler
from .board import Board
from .chain import Chain, KernelChain
from .draws import Run, Stack
from .engine import EngineChain
from .failures import Failure
from .inits import Init
from .job import Job

_LOOK_SECONDS = 0.1  # how often the one who waits looks at the board

Look = Callable[[Board], None]


class Turns(Protocol):
    """A way to run all chains of a job."""

    def run(self, posterior: Posterior, job: Job, inits: list[Init], look: Look) -> Run:
        """Run all chains; `look` sees the board now and then. Ctrl-C ends every chain at its block's end.

        If several chains fail, the exception of the first is raised, with the others' tracebacks in its
        notes. The chain of an engine is one block: it is whole, or has no draws. A second Ctrl-C gives up at
        once: blocks under way end in the background, and their draws are lost.

        Raises
        ------
        InitializationError
            A chain found no starting point.
        ChainError
            A worker process died.
        Exception
            Whatever a Python callable raised.
        """
        ...


def make_chains(
    posterior: Posterior,
    job: Job,
    indices: list[int],
    inits: list[Init],
    board: Board,
    draws: Stack,
    warmup: Stack | None,
) -> list[Chain]:
    """Chains that write into successive rows of the stacks; here is decided what kind they are."""
    kind = EngineChain if is_engine(sampler(job.method)) else KernelChain
    return [
        kind(posterior, job, i, init, board, draws.chain(k), warmup.chain(k) if warmup else None)
        for k, (i, init) in enumerate(zip(indices, inits, strict=True))
    ]


def chain_blas(job: Job) -> contextlib.AbstractContextManager[Any]:
    """One thread for BLAS, where chains compute with it between blocks."""
    facts = sampler(job.method).FACTS
    computes = facts.refits or facts.settles or (facts.piloted and job.settings.pilot > 0)
    return one_thread() if computes else contextlib.nullcontext()


Blocks = deque[tuple[int, Iterator[None]]]  # of chains that are not finished, with their indices


def blocks_of(chains: list[Chain]) -> Blocks:
    """What workers take their turns from."""
    return deque((chain.index, chain.blocks()) for chain in chains)


def take_turns(waiting: Blocks, board: Board) -> Failure | None:
    """Run a block of one chain, then of the next, until all are done, one fails or the run is stopped."""
    while not board.stopped:
        try:
            chain, blocks = waiting.popleft()
        except IndexError:
            return None
        try:
            next(blocks)
        except StopIteration:
            continue
        except BaseException as error:
            board.stop()
            return Failure.of(chain, error)
        waiting.append((chain, blocks))
    return None


def watch(futures: list[Future[Any]], board: Board, look: Look) -> None:
    """Wait for the workers, showing progress."""
    waiting = set(futures)
    while waiting:
        waiting = wait(waiting, timeout=_LOOK_SECONDS).not_done
        look(board)
