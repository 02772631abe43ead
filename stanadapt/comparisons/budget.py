"""The budget of every method: a time, a number of gradients, or a number of draws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .. import check
from ..diagnostics.convergence import FEWEST
from ..errors import ArgumentError
from ..run.stopping import Until

_ALLOWED = (
    "a time, such as '10 s', '2 min' or '1 h'; a number of gradients, such as '200000 gradients'; or the "
    "draws of each chain, such as 5000"
)
_DRAWS = "draws"


@dataclass(frozen=True)
class Budget:
    """A budget. One of its three fields is set."""

    seconds: float | None = None  # from the first start to the last draw
    gradients: int | None = None  # of all chains; methods without gradients count evaluations of the density
    draws: int | None = None  # of each chain, after the method's own warm-up

    @classmethod
    def parse(cls, given: Any) -> Budget:
        """Read the argument of a user.

        Raises
        ------
        ArgumentError
            It is not an allowed budget.
        """
        if isinstance(given, cls):
            return given
        if not isinstance(given, str):
            return cls(draws=check.integer("budget", given, FEWEST, check.LARGEST_COUNT, orelse=_OR_TEXT))
        text = " ".join(given.split())
        number = text.removesuffix(_DRAWS).strip()
        if number.isdecimal():
            return cls(draws=check.integer("budget", int(number), FEWEST, check.LARGEST_COUNT))
        try:
            limits = Until.parse(text)
        except ArgumentError:
            limits = None
        if limits is None or limits.has_goals or (limits.seconds and limits.gradients):
            raise check.refusal("budget", given, _ALLOWED)
        return cls(limits.seconds, limits.gradients)

    @property
    def until(self) -> Until | None:
        """The limit of a run; None for a number of draws, which `sample` takes as it is."""
        return None if self.draws is not None else Until(seconds=self.seconds, gradients=self.gradients)

    def __str__(self) -> str:
        return f"{self.draws} draws of each chain" if self.draws is not None else str(self.until)


_OR_TEXT = f", or {_ALLOWED.rpartition('; ')[0]}"
