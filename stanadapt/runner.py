"""Many chains: in threads, or in processes where the model is not for threads.

Workers take turns over the chains, a block at a time, so that all chains get on alike: an interrupted run has
about the same number of draws from each, and three chains on two cores take 1.5 times as long as one.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import re
import signal
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from . import check
from .chain import Board, Chain, ChainResult, Job, KernelChain, Stack, stacks
from .engine import EngineChain
from .errors import ArgumentError, ChainError
from .failures import Failure, PackedFailure, raise_first
from .inits import Init
from .numerics.blas import one_thread
from .posterior import Posterior
from .samplers import Engine, pilot, sampler
from .samplers.base import Refitting, Settling

_LOOK_SECONDS = 0.1  # how often the one who waits looks at the board


class Run(NamedTuple):
    """What a run gave."""

    chains: list[ChainResult]
    draws: Stack
    warmup: Stack | None
    interrupted: bool


Look = Callable[[Board], None]


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


def run(
    posterior: Posterior, job: Job, inits: list[Init], workers: int, packed: bytes | None, look: Look
) -> Run:
    """Run all chains; `look` sees the board now and then. Ctrl-C ends every chain at its block's end.

    In threads, or in processes where `packed` is what `pack` gave. If several chains fail, the exception of
    the first is raised, with the others' tracebacks in its notes.

    The chain of an engine is one block: it is whole, or has no draws.

    A second Ctrl-C gives up at once: blocks under way end in the background, and their draws are lost.

    Raises
    ------
    InitializationError
        A chain found no starting point.
    ChainError
        A worker process died.
    Exception
        Whatever a Python callable raised.
    """
    if packed is not None:
        return _run_in_processes(posterior, packed, job, inits, workers, look)
    board = Board.for_chains(job.chains)
    draws, warmup = stacks(job, posterior, job.chains)
    chains = _chains(posterior, job, list(range(job.chains)), inits, board, draws, warmup)
    pool = ThreadPoolExecutor(workers, thread_name_prefix="stanadapt")
    with interrupts(board), _blas(job):
        try:
            turns = _turns(chains)
            futures = [pool.submit(_take_turns, turns, board) for _ in range(workers)]
            _watch(futures, board, look)
        finally:
            board.stop()
            pool.shutdown(wait=False)
    raise_first([failure for future in futures if (failure := future.result())], in_processes=False)
    results = [chain.result() for chain in chains]
    return Run(results, draws, warmup, _incomplete(results))


def _chains(
    posterior: Posterior,
    job: Job,
    indices: list[int],
    inits: list[Init],
    board: Board,
    draws: Stack,
    warmup: Stack | None,
) -> list[Chain]:
    """Chains that write into successive rows of the stacks; here is decided what kind they are."""
    kind = EngineChain if isinstance(sampler(job.method), Engine) else KernelChain
    return [
        kind(posterior, job, i, init, board, draws.chain(k), warmup.chain(k) if warmup else None)
        for k, (i, init) in enumerate(zip(indices, inits, strict=True))
    ]


def _blas(job: Job) -> contextlib.AbstractContextManager[Any]:
    """One thread for BLAS, where chains compute with it."""
    computes = isinstance(sampler(job.method), Refitting | Settling) or pilot.wanted(job.settings)
    return one_thread() if computes else contextlib.nullcontext()


def _turns(chains: list[Chain]) -> deque[Any]:
    return deque((chain.index, chain.blocks()) for chain in chains)


def _take_turns(turns: deque[Any], board: Board) -> Failure | None:
    """Run a block of one chain, then of the next, until all are done, one fails or the run is stopped."""
    while not board.stopped:
        try:
            chain, blocks = turns.popleft()
        except IndexError:
            return None
        try:
            next(blocks)
        except StopIteration:
            continue
        except BaseException as error:
            board.stop()
            return Failure.of(chain, error)
        turns.append((chain, blocks))
    return None


def _watch(futures: list[Future[Any]], board: Board, look: Look) -> None:
    """Wait for the workers, showing progress."""
    waiting = set(futures)
    while waiting:
        waiting = wait(waiting, timeout=_LOOK_SECONDS).not_done
        look(board)


@contextlib.contextmanager
def interrupts(board: Board) -> Iterator[None]:
    """Ctrl-C meanwhile: the first asks all to stop, on the board; the second is raised as KeyboardInterrupt.

    A handler, because an exception that can come between any two lines would now and then lose the run.
    Outside the main thread Python allows none, and delivers no Ctrl-C either.
    """

    seen = False

    def handle(*_: object) -> None:
        nonlocal seen
        if seen:
            raise KeyboardInterrupt
        seen = True
        board.stop()

    present = signal.getsignal(signal.SIGINT)
    ours = threading.current_thread() is threading.main_thread() and present not in (None, signal.SIG_IGN)
    if not ours:
        yield
        return
    signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, present)


def _incomplete(results: list[ChainResult]) -> bool:
    """Whether Ctrl-C came before the last draw: nothing else ends a run early without an exception."""
    return any(result.draws.n < len(result.draws.values) for result in results)


def _run_in_processes(
    posterior: Posterior, packed: bytes, job: Job, inits: list[Init], workers: int, look: Look
) -> Run:
    """The same with a share of the chains for each process.

    loky's workers start from scratch (no fork) and do not run the user's script again, so a script needs no
    `if __name__ == "__main__"`. The board is a file in memory that all of them map.
    """
    from loky import ProcessPoolExecutor
    from loky.process_executor import TerminatedWorkerError

    with tempfile.TemporaryDirectory(prefix="stanadapt-") as folder:
        path = Path(folder) / "board"
        board = Board(np.memmap(path, mode="w+", shape=(job.chains + 1, len(Board.COLUMNS)), dtype=float))
        pool = ProcessPoolExecutor(workers, initializer=_ignore_interrupts)
        shares = [list(range(first, job.chains, workers)) for first in range(workers)]
        with interrupts(board):
            try:
                with _blocked_interrupts():
                    futures = [
                        pool.submit(_run_share, packed, job, share, [inits[i] for i in share], path)
                        for share in shares
                    ]
                _watch(futures, board, look)
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
    return Run(results, draws, warmup, _incomplete(results))


def _run_share(
    packed: bytes, job: Job, share: list[int], inits: list[Init], path: Path
) -> list[ChainResult] | PackedFailure:
    """In a worker process: run some of the chains, one thread for all of them."""
    shape = (job.chains + 1, len(Board.COLUMNS))
    board = Board(np.memmap(path, mode="r+", shape=shape, dtype=float))
    try:
        posterior = pickle.loads(packed)
        chains = _chains(posterior, job, share, inits, board, *stacks(job, posterior, len(share)))
    except BaseException as error:  # a module of the user's may not be there
        board.stop()
        return Failure.of(share[0], error).packed()
    with _blas(job):
        failure = _take_turns(_turns(chains), board)
    if failure is not None:
        return failure.packed()
    results = [chain.result() for chain in chains]
    for result in results:  # rows that an interrupted run never wrote would be sent as well
        result.draws = result.draws.written()
        result.warmup = None if result.warmup is None else result.warmup.written()
    return results


@contextlib.contextmanager
def _blocked_interrupts() -> Iterator[None]:
    """Processes started meanwhile never see Ctrl-C; ours is kept until the end.

    `_ignore_interrupts` alone would come too late for a worker that is still importing.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # starting it later would undo the block
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _ignore_interrupts() -> None:
    """Ctrl-C reaches the whole process group; only the parent acts on it, and tells through the board."""
    if threading.current_thread() is threading.main_thread():
        with contextlib.suppress(ValueError):
            signal.signal(signal.SIGINT, signal.SIG_IGN)


def available_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
