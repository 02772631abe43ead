"""How far a run is from the goals of its `until`, in numbers and in words."""

from __future__ import annotations

import math
from typing import NamedTuple

from ..run.stopping import Until


class Figure(NamedTuple):
    """How far one goal is, in the quantity that is farthest from it."""

    goal: str  # "ess", "rhat" or "mcse NAME"
    value: float
    limit: float
    quantity: str

    @property
    def is_met(self) -> bool:
        return self._holds(self.value)

    def __str__(self) -> str:
        """Such as "ess 310/400"."""
        return f"{self.goal} {self.value_text}/{self.limit:.10g}"

    @property
    def value_text(self) -> str:
        """The value, with as many digits as it takes to see on which side of the limit it is."""
        if not math.isfinite(self.value):
            return str(self.value)
        digits = max(4 if self.limit < 10.0 else 1, len(str(int(self.value))))
        while digits < 17 and self._holds(float(f"{self.value:.{digits}g}")) != self._holds(self.value):
            digits += 1
        return f"{self.value:.{digits}g}"

    def _holds(self, value: float) -> bool:
        return value >= self.limit if self.goal == "ess" else value <= self.limit


class Status(NamedTuple):
    """What a look has seen. Of a "no" the figures are those of the quantities that it took."""

    rows: int  # draws of each chain
    figures: tuple[Figure, ...]  # empty where nothing could be judged
    holds: bool  # whether all goals hold in all quantities that can reach them
    done: bool  # whether more draws would change nothing of that
    rows_needed: float  # estimate of the rows at which all goals hold; infinity where there is none
    unusable: str  # quantities with NaN or infinite draws, as text
    obstacle: str  # why nothing could be judged

    @property
    def is_reached(self) -> bool:
        """Whether all goals hold in every quantity."""
        return self.holds and not self.unusable

    @property
    def not_before(self) -> float:
        """Rows before which it is not worth looking again.

        Half the way to those that the goals need, since that is an estimate; but at most twice as many.
        """
        return self.rows + min((self.rows_needed - self.rows) / 2, self.rows)

    def words(self, seconds_left: float | None = None) -> str:
        """For a progress bar: "ess 310/400, rhat 1.008/1.01, 12 s left"."""
        parts = [str(figure) for figure in self.figures] or [self.obstacle]
        if self.unusable and self.figures:
            parts.append(f"NaN or infinite draws in {self.unusable}")
        if seconds_left is not None and math.isfinite(seconds_left):
            parts.append(f"{_duration(seconds_left)} left")
        return ", ".join(part for part in parts if part)


def attributes(until: Until, status: Status, limit: str = "") -> dict[str, str | int]:
    """The attributes of a result that tell how it ended.

    until
        What was asked, as text.
    until_reached
        1 where all goals hold in every quantity, or where nothing but limits was asked for.
    until_reason
        In words, such as "ess 412 of 400, rhat 1.004 of 1.01 at draw 650 of each chain".
    until_limit
        What ended the run before: "seconds", "gradients", "draws" or "interrupt"; empty if nothing did.
    until_draws
        Draws of each chain at that moment.

    Parameters
    ----------
    until
        What was asked.
    status
        The last look, at all draws there are.
    limit
        What ended the run, as in `until_limit`.
    """
    reached = status.is_reached if until.has_goals else limit != "interrupt"
    return {
        "until": str(until),
        "until_reached": int(reached),
        "until_reason": _reason(until, status, limit),
        "until_limit": limit,
        "until_draws": status.rows,
    }


def _reason(until: Until, status: Status, limit: str) -> str:
    each_chain = f"{status.rows} of each chain"
    met = ", ".join(f"{each.goal} {each.value_text} of {each.limit:.10g}" for each in status.figures)
    if status.is_reached:
        return f"{met} at draw {each_chain}"
    if status.holds:
        return f"NaN or infinite draws in {status.unusable}, all else has {met} at draw {each_chain}"
    words = {**until.limits, "draws": "the last draw", "interrupt": "an interrupt", "": "the end"}
    came = f"{words[limit]} came {'first, ' if until.has_goals else ''}at draw {each_chain}"
    far = [f"{each.goal} {each.value_text} ({each.quantity})" for each in status.figures if not each.is_met]
    if status.unusable and not status.obstacle:
        far.append(f"NaN or infinite draws in {status.unusable}")
    lacks = status.obstacle or ", ".join(far)
    return f"{came}, with {lacks}" if lacks else came


def _duration(seconds: float) -> str:
    if seconds < 120.0:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200.0 else f"{seconds / 3600:.1f} h"
