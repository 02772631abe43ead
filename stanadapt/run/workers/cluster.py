"""Chains on a Dask cluster, in segments: the end of each is a checkpoint here.

What goes over the wire is the model once, then states and draws. A worker opens the model once and keeps it.
Dask starts a segment elsewhere when its worker dies, from the value that the segment began with, so the
draws are the same.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import pickle
import uuid
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any, NamedTuple, cast

from ... import check
from ...errors import ChainError
from ...model.posterior import Posterior
from ..job import Job
from .board import Board
from .failures import PackedFailure
from .pools import connect
from .segments import Piece, Segment, SegmentTeam, run_segment
from .turns import Work

_SECONDS = 2.0  # of a segment: a dying worker loses as much, and Ctrl-C takes as long
_MODELS = 4  # that a worker keeps open


class Cluster(NamedTuple):
    """See `turns.Turns`. All chains are given to the scheduler, which has them wait for workers."""

    client: Any  # a distributed.Client
    packed: bytes  # the posterior
    is_own: bool  # whether the client is closed at the end

    @classmethod
    def of(cls, given: Any, packed: bytes) -> Cluster:
        """The cluster that a user means: a client, or the address of a scheduler.

        Raises
        ------
        ArgumentError
            It is neither, Dask is not installed, or nothing answers there.
        """
        client, is_own = connect(given)
        return cls(client, packed, is_own)

    @contextlib.contextmanager
    def team(self, work: Work) -> Iterator[SegmentTeam]:
        key = hashlib.sha256(self.packed).hexdigest()
        futures: set[Any] = set()  # unfinished: a finished one that is held keeps its draws on the cluster
        numbers = itertools.count()
        name = f"stanadapt-{uuid.uuid4().hex[:12]}"
        # The result of a task, which Dask makes again where the worker that holds it dies. What is scattered
        # is lost then, since Dask saves memory and soon keeps it on one worker alone.
        with _large_graphs():
            model = self.client.submit(bytes, self.packed, pure=False, key=f"{name}-model")

        def submit(segment: Segment) -> Future[Any]:
            own = f"{name}-{segment.chain}-{next(numbers)}"
            theirs = self.client.submit(_run, key, model, work.job, segment, pure=False, key=own)
            futures.add(theirs)
            theirs.add_done_callback(futures.discard)
            return _as_future(theirs, work.board, segment)

        try:
            yield SegmentTeam(work, submit, work.job.chains, _SECONDS)
        finally:
            self.client.cancel(list(futures))
            if self.is_own:
                self.client.close()


def _large_graphs() -> contextlib.AbstractContextManager[Any]:
    """Dask's advice on large arguments is of no use here: a model goes out once."""
    import dask

    return dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TB"})


def _as_future(theirs: Any, board: Board, segment: Segment) -> Future[Any]:
    """Dask's future as one of concurrent.futures; progress is posted where it ends."""
    ours: Future[Any] = Future()

    def end(done: Any) -> None:
        try:
            piece = done.result()
        except BaseException as error:
            ours.set_exception(
                ChainError(
                    f"chain {segment.chain}: its segment failed on the cluster: {check.one_line(error)}"
                )
            )
            return
        if isinstance(piece, Piece):
            numbers = piece.value.done, float(piece.value.warmup_iterations is not None)
            board.post(segment.chain, *numbers, *_figures(piece), 0.0)
        ours.set_result(piece)

    theirs.add_done_callback(end)
    return ours


def _figures(piece: Piece) -> tuple[float, float]:
    """Mean acceptance and last step size of a segment's draws; NaN where it has none."""
    stats, n = piece.draws.stats, piece.draws.n - piece.draws.first
    if not n:
        return float("nan"), float("nan")
    return float(stats["acceptance_rate"].mean()), float(stats["step_size"][-1])


@functools.lru_cache(maxsize=_MODELS)
def _open_model(packed: _Packed) -> Posterior:
    """On a worker: the model, opened once."""
    return cast(Posterior, pickle.loads(packed.data))


class _Packed:
    """A packed model, known by its hash."""

    def __init__(self, key: str, data: bytes) -> None:
        self.key, self.data = key, data

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Packed) and self.key == other.key


def _run(key: str, packed: bytes, job: Job, segment: Segment) -> Piece | PackedFailure:
    """On a worker: run a segment. Nobody else has its board."""
    board = Board.for_chains(job.chains)
    return run_segment(functools.partial(_open_model, _Packed(key, packed)), job, segment, board)
