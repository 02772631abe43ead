"""The board: every chain writes its progress there, the progress bar reads it, and it tells a run to stop."""

from __future__ import annotations

import numpy as np


class Board:
    """A row of numbers for each chain; arrays of several processes may be one file in memory."""

    COLUMNS = ("iteration", "sampling", "acceptance", "step_size", "finished")

    def __init__(self, rows: np.ndarray) -> None:
        self.rows = rows  # (chains + 1, columns); the last row's first entry asks all chains to stop

    @classmethod
    def for_chains(cls, chains: int) -> Board:
        return cls(np.zeros(cls.shape(chains)))

    @classmethod
    def shape(cls, chains: int) -> tuple[int, int]:
        return chains + 1, len(cls.COLUMNS)

    def move(self, rows: np.ndarray) -> None:
        """Go on in other rows of the same shape. A signal may ask the chains to stop meanwhile."""
        before = self.rows
        rows[:] = before
        self.rows = rows
        if before[-1, 0]:
            self.stop()

    def post(self, chain: int, *numbers: float) -> None:
        self.rows[chain] = numbers

    def finish(self, chain: int) -> None:
        self.rows[chain, self.COLUMNS.index("finished")] = 1.0

    def stop(self) -> None:
        self.rows[-1, 0] = 1.0

    @property
    def is_stopped(self) -> bool:
        return bool(self.rows[-1, 0])
