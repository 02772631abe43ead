"""Where many fits run: in this process, in processes of this machine, or on a Dask cluster.

A pool takes tasks and gives futures. What travels to other processes is bytes both ways, so that nothing a
user brings can fail inside of a library's own threads.
"""

from __future__ import annotations

import contextlib
import importlib
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Executor, Future
from typing import Any, NamedTuple, Protocol

from ... import check
from ...errors import ArgumentError, ChainError
from .pickling import dump
from .process_pool import ProcessPool, death

_LOOK_SECONDS = 1.0  # how often a cluster is asked for its size
_HANDSHAKES = 5  # tries to reach a cluster whose answer distributed cannot take


class Task(NamedTuple):
    """One fit, as it travels."""

    key: str  # the text of its key
    common: Any  # what all fits of a run share, packed
    own: Any  # the model, if it is the fit's own, and its data, packed
    seed: int
    workers: int  # chains that run at the same time
    path: str  # of the file for the result; empty where the worker is to write none
    timeout: float | None = None  # seconds after which its process gives up
    mark: str = ""  # the file that tells then that this fit was the reason
    cold: float = 0.0  # seconds more for the first fit of a process, which loads libraries and kernels


Work = Callable[[Task], Any]


class Loss(NamedTuple):
    """Why a fit has no outcome, in words."""

    reason: str
    is_collective: bool = False  # others under way are lost with it, and which was the reason is not known
    is_curable: bool = False  # nothing speaks against trying it again


class Pool(Protocol):
    """A place for fits."""

    writes: bool  # whether workers write the files of results

    def pack(self, value: Any) -> Any:
        """The value in the form in which it travels. Raises the exceptions of its pickling."""
        ...

    def slots(self) -> int:
        """How many fits should be under way at a time."""
        ...

    def submit(self, task: Task) -> Future[Any]:
        """Begin a fit, soon."""
        ...

    def loss(self, error: BaseException) -> Loss | None:
        """The meaning of a future's exception; None for exceptions that this pool does not cause."""
        ...

    def close(self) -> None:
        """End all running tasks at once. Finished futures keep their results.

        Later tasks begin anew, in new processes where the pool has processes.
        """
        ...


class Here:
    """Fits in this process, one after another: each is done when `submit` returns."""

    writes = False  # what Ctrl-C has cut short is no result

    def __init__(self, work: Work) -> None:
        self.work = work

    def pack(self, value: Any) -> Any:
        return value

    def slots(self) -> int:
        return 1

    def submit(self, task: Task) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(self.work(task))
        return future

    def loss(self, error: BaseException) -> Loss | None:
        return None

    def close(self) -> None:
        return None


class LocalProcesses:
    """Worker processes of loky's, which start from scratch and do not run the user's script again."""

    writes = True

    def __init__(self, work: Work, workers: int) -> None:
        self.work, self.workers = work, workers
        self._pool: ProcessPool | None = None

    def pack(self, value: Any) -> Any:
        return dump(value)

    def slots(self) -> int:
        return 2 * self.workers  # so that none waits for this process

    def submit(self, task: Task) -> Future[Any]:
        if self._pool is None:
            self._pool = ProcessPool(self.workers)
        try:
            return self._pool.submit(self.work, task)
        except Exception as error:
            if not death(error):
                raise
            future: Future[Any] = Future()  # another fit has ended its process
            future.set_exception(error)
            return future

    def loss(self, error: BaseException) -> Loss | None:
        reason = death(error)
        return Loss(reason, is_collective=True, is_curable=True) if reason else None

    def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()


class ClusterPool:
    """A Dask cluster. Dask itself runs again what was under way in a worker that died."""

    writes = False  # its machines may have other disks

    def __init__(self, work: Work, cluster: Any) -> None:
        self.work = work
        self.client, self.is_own = connect(cluster)
        self._executor: Executor = self.client.get_executor(pure=False)
        self._threads, self._looked = 0, -_LOOK_SECONDS

    def pack(self, value: Any) -> Any:
        return dump(value)

    def slots(self) -> int:
        now = time.monotonic()
        if now - self._looked >= _LOOK_SECONDS:  # workers come and go
            self._check()
            self._threads, self._looked = sum(self.client.nthreads().values()), now
        return 2 * max(self._threads, 1)

    def submit(self, task: Task) -> Future[Any]:
        self._check()
        return self._executor.submit(self.work, task)

    def loss(self, error: BaseException) -> Loss | None:
        from distributed import KilledWorker
        from distributed.client import FutureCancelledError

        if isinstance(error, CancelledError | FutureCancelledError):
            return Loss("the cluster has dropped it", is_curable=True)
        if isinstance(error, KilledWorker):
            return Loss(f"workers of the cluster died, again and again: {check.one_line(error)}")
        return None

    def close(self) -> None:
        with contextlib.suppress(Exception):  # the cluster may be gone
            self._executor.shutdown(wait=False)
        if self.is_own:
            with contextlib.suppress(Exception):
                self.client.close()

    def _check(self) -> None:
        if self.client.status != "running":
            raise ChainError(
                f"the connection to the Dask cluster is lost (its status is {self.client.status})"
            )


def connect(cluster: Any) -> tuple[Any, bool]:
    """The client, and whether it is made here.

    Raises
    ------
    ArgumentError
        Dask is not installed; or it is neither a client nor an address that answers.
    """
    allowed = "a dask.distributed.Client, or the address of a scheduler such as 'tcp://10.0.0.1:8786'"
    try:
        distributed = importlib.import_module("distributed")
    except ImportError as error:
        raise ArgumentError(
            "cluster: Dask is not installed; pip install 'stanadapt[dask]' brings it"
        ) from error
    if isinstance(cluster, distributed.Client):
        if cluster.asynchronous:
            raise ArgumentError("cluster: this client is asynchronous; use Client(..., asynchronous=False)")
        if cluster.status != "running":
            raise ArgumentError(f"cluster: this client is not connected (its status is {cluster.status})")
        return cluster, False
    if not isinstance(cluster, str):
        raise check.refusal("cluster", cluster, allowed)
    try:
        # distributed asserts that the first answer comes alone. A busy scheduler sends more with it.
        for _ in range(_HANDSHAKES - 1):
            with contextlib.suppress(AssertionError):
                return distributed.Client(cluster, set_as_default=False), True
        return distributed.Client(cluster, set_as_default=False), True
    except (OSError, ValueError) as error:
        raise ArgumentError(
            f"cluster={check.quote(cluster)} cannot be reached: {check.one_line(error)}"
        ) from error
