"""A process of its own for each sampler, so that one which hangs or crashes ends its run and not the race.

It stays for the next problem, because imports take seconds; after a run that was capped, or killed it, it is
replaced.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

from .problems import Problem, small
from .racer import Outcome

_OPEN_SECONDS = 300.0  # to import, compile and open a model, which is not raced
_AFTER_SECONDS = 300.0  # from the end of what is timed until its draws are here


class Result(NamedTuple):
    """What came of a run: "ok" with the outcome, "capped", or "failed" with a reason."""

    status: str
    reason: str = ""
    outcome: Outcome | None = None


class Lane:
    """A sampler for a number of chains on given cores."""

    def __init__(self, name: str, chains: int, cores: list[int]) -> None:
        self.name, self.chains, self.cores = name, chains, cores
        self._process: multiprocessing.process.BaseProcess | None = None

    def run(self, problem: Problem, draws: int, seed: int, cap: float) -> Result:
        """One run, which may take `cap` seconds once its model is open."""
        try:
            if self._process is None:
                self._start()
            self._connection.send((problem, draws, seed))
            for status, stage, seconds in (
                ("failed", "opening the model", _OPEN_SECONDS),
                ("capped", "warm-up and draws", cap),
                ("failed", "handing over the draws", _AFTER_SECONDS),
            ):
                if not self._connection.poll(seconds):
                    self.close()
                    return Result(status, f"{stage} took more than {seconds:g} s")
                said, what = self._connection.recv()
                if said == "failed":
                    return Result("failed", what)
        except (EOFError, OSError):  # it is dead
            reason = self._last_words()
            self.close()
            return Result("failed", reason)
        return Result("ok", outcome=what)

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._connection.close()
            self._log.unlink(missing_ok=True)
        self._process = None

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        handle, path = tempfile.mkstemp(prefix="stanadapt-peers-", suffix=".log")
        os.close(handle)
        self._log = Path(path)
        self._process = context.Process(
            target=_work, args=(theirs, self.name, self.chains, self.cores, path), daemon=True
        )
        self._process.start()
        theirs.close()

    def _last_words(self) -> str:
        assert self._process is not None
        self._process.join(5.0)
        code = self._process.exitcode
        how = f"exit status {code}" if code is None or code >= 0 else signal.Signals(-code).name
        lines = self._log.read_text("utf-8", errors="replace").strip().splitlines()
        return f"its process died ({how})" + (f": {lines[-1]}" if lines else "")


def _work(connection: Connection, name: str, chains: int, cores: list[int], log: str) -> None:
    """The process: problems come in, and of each what `Lane.run` waits for goes out."""
    os.sched_setaffinity(0, cores)
    said = os.open(log, os.O_WRONLY | os.O_APPEND)
    for stream in (1, 2):  # samplers and Stan print on both; the log is for last words
        os.dup2(said, stream)
    from . import samplers

    open_problem = samplers.racer(name)
    racer = open_problem(small(), chains, len(cores))
    racer.prepare(20)
    racer.run(20, 1)()  # loads what a first run loads
    opened: tuple[str, int] | None = None
    while True:
        try:
            problem, draws, seed = connection.recv()
        except EOFError:  # the race is over
            return
        os.truncate(log, 0)
        try:
            if opened != (problem.name, draws):  # another seed needs no other model
                opened = None
                racer = open_problem(problem, chains, len(cores))
                racer.prepare(draws)
                opened = (problem.name, draws)
            connection.send(("opened", None))
            outcome = racer.run(draws, seed)
            connection.send(("drawn", None))
            connection.send(("done", outcome()))
        except Exception as error:
            connection.send(("failed", f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"))
