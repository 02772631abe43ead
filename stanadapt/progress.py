"""One progress bar for all chains: in a terminal, in a notebook, or as lines in a log file."""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np

from .chain import Board, Job

_LOG_SHARE = 0.1  # a log file gets a line for every tenth of the run,
_LOG_SECONDS = 10.0  # but for a long tenth at least one in so many seconds


class Progress:
    """Shows the board's state; a context manager. `enabled=False` shows nothing."""

    def __init__(self, job: Job, enabled: bool) -> None:
        self.job = job
        self.total = job.chains * (job.warmup + job.draws)
        self.enabled = enabled
        self.bar: Any = None
        self.logging = enabled and not (sys.stderr.isatty() or _in_notebook())
        self.began = self.logged_at = time.perf_counter()
        self.logged = 0.0

    def __enter__(self) -> Progress:
        if self.enabled and not self.logging:
            from tqdm.auto import tqdm

            self.bar = tqdm(
                total=self.total,
                desc=self.job.method,
                unit="it",
                unit_scale=True,
                bar_format="{desc} {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{remaining} left{postfix}]",
            )
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.close()

    def __call__(self, board: Board) -> None:
        """Bring what is shown up to date."""
        if not self.enabled:
            return
        rows = board.rows[:-1]
        done = int(rows[:, 0].sum())
        if self.bar is not None:
            self.bar.set_postfix_str(_state(rows), refresh=False)
            self.bar.update(done - self.bar.n)
            return
        now = time.perf_counter()
        share = done / self.total
        finished = share == 1.0 and self.logged < 1.0
        if finished or share - self.logged >= _LOG_SHARE or now - self.logged_at >= _LOG_SECONDS:
            left = (now - self.began) * (1 - share) / share if share else float("nan")
            text = f"{self.job.method}: {share:4.0%}, {done}/{self.total} iterations, {_state(rows)}"
            print(f"{text}, {left:.0f} s left", file=sys.stderr, flush=True)
            self.logged, self.logged_at = share, now


def _state(rows: np.ndarray) -> str:
    """Stage, acceptance and step size over chains."""
    sampling = int(rows[:, 1].sum())
    stage = {0: "warm-up", len(rows): "sampling"}.get(sampling, f"{sampling}/{len(rows)} sampling")
    started = rows[rows[:, 0] > 0]
    if not len(started):
        return stage
    return f"{stage}, acceptance {started[:, 2].mean():.2f}, step size {np.median(started[:, 3]):.3g}"


def _in_notebook() -> bool:
    """Whether this is a Jupyter kernel."""
    shell = sys.modules.get("IPython")
    if shell is None:
        return False
    return type(shell.get_ipython()).__name__ == "ZMQInteractiveShell"
