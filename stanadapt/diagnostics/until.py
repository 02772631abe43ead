"""Whether the draws so far are enough: the looks at a run that ends by `until`.

A look's answer depends on the draws alone, and costs little beside them:

- Long chains are thinned. The mean of all draws varies no more than the mean of every k-th, so an effective
  size of thinned draws is that of fewer draws than there are, and never promises too much; `_THIN_TO` draws
  for each effective one leave nearly nothing of the difference.
- Quantities are looked at in batches, those first that were worst at the last look, and a batch in which a
  goal does not hold ends the look: a "no" costs a few quantities, and only a "yes" takes all of them.

Quantities that are constant so far are left out, as `diagnose` leaves them out. One with NaN or infinite
draws can reach no goal: the run ends when all others have reached theirs, and the answer names it.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ..model.posterior import Posterior
from ..run.until import MINIMUM, Schedule, Until
from .convergence import convergence, mcse_mean, r_hat
from .statistics import each_column

_THIN_TO = 8  # draws for an effective one that a goal asks for
_ROWS = 250  # a chain that are left at least, for R-hat
_BATCH = 4  # quantities that are looked at first; a batch is as large as all before it
_LISTED = 3  # quantities that a text names


class Figure(NamedTuple):
    """How far one goal is."""

    goal: str  # "ess", "rhat" or "mcse NAME"
    value: float  # of the worst quantity
    limit: float
    quantity: str  # the worst one
    holds: bool

    def __str__(self) -> str:
        """Such as "ess 310/400"."""
        return f"{self.goal} {self.shown}/{self.limit:.10g}"

    @property
    def shown(self) -> str:
        """The value, with so many digits that one sees whether the goal holds."""
        digits = max(4, len(str(int(self.value)))) if math.isfinite(self.value) else 4
        text = f"{self.value:.{digits}g}"
        while math.isfinite(self.value) and digits < 17 and self._holds(float(text)) != self.holds:
            digits += 1
            text = f"{self.value:.{digits}g}"
        return text

    def _holds(self, value: float) -> bool:
        return value >= self.limit if self.goal == "ess" else value <= self.limit


class Status(NamedTuple):
    """What a look has seen. Of a "no" the figures are those of the batches that it took."""

    rows: int  # draws of each chain
    figures: tuple[Figure, ...]  # of the goals; empty where no quantity could be judged
    holds: bool  # whether all goals hold in all quantities that can be judged
    unusable: str  # quantities with NaN or infinite draws, as text
    rows_needed: float  # an estimate, infinity where there is none, of the rows at which goals will hold
    obstacle: str = ""  # why nothing can be judged

    @property
    def reached(self) -> bool:
        """Whether all goals hold in every quantity."""
        return self.holds and not self.unusable

    @property
    def done(self) -> bool:
        """Whether more draws would not help: all goals hold, in all quantities that can reach them."""
        return self.holds

    def words(self, seconds_left: float | None = None) -> str:
        """For a progress bar: "ess 310/400, rhat 1.008/1.01, 12 s left"."""
        raise NotImplementedError


class Watch:
    """Looks at the draws of a run, again and again.

    Parameters
    ----------
    until
        The goals.
    posterior
        Whose variables are the columns of the draws.

    Attributes
    ----------
    computed : int
        Of how many quantities statistics were computed, over all looks.
    """

    def __init__(self, until: Until, posterior: Posterior) -> None:
        raise NotImplementedError

    def look(self, values: np.ndarray, *, whole: bool = False) -> Status:
        """What draws `values` (chains, n, columns) say; `whole` takes all quantities in any case.

        At each look `values` begins with the rows of the look before.
        """
        raise NotImplementedError


def attributes(until: Until, status: Status, limit: str) -> dict[str, Any]:
    """The attributes of a result: until, until_reached, until_reason and until_limit.

    `limit` is what ended the run, if the goals did not: "seconds", "gradients", "draws", "interrupt" or "".
    """
    raise NotImplementedError
