"""Many chains: how they take turns, whatever runs them.

Workers take turns over the chains, a block at a time, so that all chains get on alike: an interrupted run has
about the same number of draws from each, and three chains on two cores take 1.5 times as long as one.

A run goes in rounds. At the end of a round all chains have the same number of draws. A strategy, `Turns`,
runs a round: threads.py, processes.py and cluster.py have one each.
"""

from __future__ import annotations

import contextlib
import signal
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from ...model.backends.contract import Model
from ...model.posterior import Posterior
from ...model.printing import prints_of
from ...numerics.blas import one_thread
from ...samplers import is_engine, sampler
from ..chain import Chain, KernelChain
from ..draws import ChainResult, Draws, Run, Stack, stacks
from ..engine import EngineChain
from ..guard import Guard, StoppedError
from ..inits import Init
from ..interrupts import interrupts
from ..job import Job
from ..together import are_warm, learn_together, teach
from .board import Board
from .failures import ChainFailure

LOOK_SECONDS = 0.1  # between two looks of the waiting thread at the board

Look = Callable[[Board], None]


class Enough(Protocol):
    """Decides how long a run goes on, see stopping.py."""

    def __call__(self, work: Work) -> int | None:
        """The rows at which all chains are to pause next; None where there are enough."""
        ...


class Keeper(Protocol):
    """What keeps a run on a disk while it goes on, see store.py."""

    def is_due(self, chain: int) -> bool:
        """Whether the last checkpoint of a chain is long ago."""
        ...

    def keep(self, chain: int, value: Any, draws: Draws, warmup: Draws | None) -> None:
        """Write a checkpoint of a chain that is between two blocks. Raises OSError."""
        ...


@dataclass
class Work:
    """The work of a run: the chains of a job, each from its beginning or from its last value."""

    posterior: Posterior
    job: Job
    inits: list[Init]
    look: Look = lambda board: None
    room: tuple[Stack, Stack | None] | None = None  # where draws and warm-up go; made where it is None
    draws: list[Draws] = field(default_factory=list)  # of each chain, in that room
    warmup: list[Draws | None] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)  # None for a chain that begins
    keeper: Keeper | None = None
    enough: Enough | None = None  # None: all rows are wanted

    def __post_init__(self) -> None:
        chains = range(self.job.chains)
        if self.room is None:
            self.room = stacks(self.job, self.posterior, self.job.chains)
        draws, warmup = self.room
        self.draws = self.draws or [draws.chain(i) for i in chains]
        self.warmup = self.warmup or [None if warmup is None else warmup.chain(i) for i in chains]
        self.values = self.values or [None for _ in chains]
        self.board = Board.for_chains(self.job.chains)

    @property
    def rows(self) -> int:
        """Draws that every chain has."""
        return min(draws.n for draws in self.draws)

    @property
    def values_so_far(self) -> np.ndarray:
        """The constrained values (chains, rows, c) of these draws, where memory holds them all."""
        assert self.room is not None
        return self.room[0].values[:, : self.rows]


class Team(Protocol):
    """Workers that have the chains of a run."""

    def advance(self, goal: int) -> None:
        """Run all chains until each has `goal` rows, or the board says stop. Raises what a chain raised."""
        ...

    def results(self) -> list[ChainResult]:
        """The results so far, by chain."""
        ...


class Turns(Protocol):
    """A way to run all chains of a job."""

    def team(self, work: Work) -> contextlib.AbstractContextManager[Team]:
        """The workers, which have ended when the context is left.

        If several chains fail, the exception of the first is raised, with the others' tracebacks in its
        notes. The chain of an engine is one block: it is whole, or has no draws.
        """
        ...


def run(turns: Turns, work: Work) -> Run:
    """Run the chains. Ctrl-C ends every chain at its block's end.

    A second Ctrl-C gives up at once: blocks under way end in the background, and their draws are lost.

    Raises
    ------
    InitializationError
        A chain found no starting point.
    ChainError
        A worker process died.
    OSError
        Draws or a checkpoint cannot be written.
    Exception
        Whatever a Python callable raised.
    """
    rows = work.job.rows
    goal = rows if work.enough is None else work.enough(work)
    with interrupts(work.board) as caught, turns.team(work) as team:
        if learn_together(work.job):
            _warm_up_together(team, work)
        while goal is not None:
            team.advance(min(goal, rows))
            if work.board.is_stopped or work.enough is None:
                break
            goal = work.enough(work)
        results = team.results()
        is_enough = goal is None and not work.board.is_stopped
    assert work.room is not None
    number = caught.signal or caught.before
    ended_by = signal.Signals(number).name if number else ""
    return Run(results, *work.room, is_enough, ended_by)


def _warm_up_together(team: Team, work: Work) -> None:
    """Run the warm-up of chains that learn together, unless the board says stop."""

    def keep(chain: int) -> None:
        if work.keeper is not None:
            work.keeper.keep(chain, work.values[chain], work.draws[chain], work.warmup[chain])

    guard = Guard(work.posterior.model, lambda: work.board.is_stopped)  # for searches, which may be long
    with chain_blas(work.job, work.posterior.model), contextlib.suppress(StoppedError):
        while not are_warm(work.values):
            team.advance(0)
            if work.board.is_stopped:
                return
            spent = sum(value.seconds for value in work.values)
            guard.note(spent / max(1, sum(value.evaluations for value in work.values)))
            teach(work.job, work.values, guard, keep)


def make_chains(
    posterior: Posterior,
    job: Job,
    inits: dict[int, Init],
    board: Board,
    draws: list[Draws],
    warmup: list[Draws | None],
    values: list[Any],
) -> list[Chain]:
    """Chains with their rooms. The method decides which kind of chain they are."""
    kind = EngineChain if is_engine(sampler(job.method)) else KernelChain
    return [
        kind(posterior, job, i, init, board, *place[:2], value=place[2])
        for (i, init), place in zip(inits.items(), zip(draws, warmup, values, strict=True), strict=True)
    ]


def chain_blas(job: Job, model: Model) -> contextlib.AbstractContextManager[Any]:
    """One thread for BLAS, where chains compute with it between blocks, or the model does."""
    facts = sampler(job.method).FACTS
    computes = facts.refits or facts.settles or (facts.takes_pilot and job.settings.pilot > 0)
    computes = computes or getattr(model, "uses_blas", False)
    return one_thread() if computes else contextlib.nullcontext()


Blocks = deque[tuple[int, Iterator[None]]]  # of chains that are not finished, with their indices


def blocks_of(chains: list[Chain]) -> Blocks:
    """What workers take their turns from."""
    return deque((chain.index, chain.blocks()) for chain in chains)


def take_turns(
    waiting: Blocks,
    board: Board,
    after: Callable[[int], None] | None = None,
    is_over: Callable[[], bool] = lambda: False,
) -> ChainFailure | None:
    """Run a block of one chain, then of the next, until all are done, one fails or the run is stopped.

    `after` is called with a chain's index between two of its blocks. Where `is_over` says so, chains are left
    at the end of their blocks as well.
    """
    while not (board.is_stopped or is_over()):
        try:
            chain, blocks = waiting.popleft()
        except IndexError:
            return None
        try:
            with prints_of(chain):
                next(blocks)
            if after is not None:
                after(chain)
        except StopIteration:
            continue
        except BaseException as error:
            board.stop()
            return ChainFailure.of(chain, error)
        waiting.append((chain, blocks))
    return None


def watch(futures: list[Future[Any]], board: Board, look: Look) -> None:
    """Wait for the workers, showing progress."""
    waiting = set(futures)
    while waiting:
        waiting = wait(waiting, timeout=LOOK_SECONDS).not_done
        look(board)
