"""Whether the draws so far are enough: the looks at a run that ends by `until`.

A look's answer depends on the draws alone, and costs little beside them:

- Long chains are thinned. The mean of all draws varies no more than the mean of every k-th, so an effective
  size of thinned draws is that of fewer draws than there are, and does not promise too much; `_PER_EFFECTIVE`
  draws for each effective one that is asked for leave nearly nothing of the difference.
- Quantities are looked at in batches, those first that were worst at the last look, and a batch in which a
  goal does not hold ends the look: a "no" costs a few quantities, and only a "yes" takes all of them.

Quantities that are constant so far are left out, as `diagnose` leaves them out. One with NaN or infinite
draws can reach no goal: the run ends when all others have reached theirs, and the answer names it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ..model.posterior import Posterior
from ..run.until import MINIMUM, Until
from .convergence import convergence, mcse_mean, r_hat
from .statistics import each_column

_PER_EFFECTIVE = 8  # thinned draws for an effective one that a goal asks for
_THINNED = 4_000  # draws of all chains, and
_THINNED_ROWS = 250  # of each chain, that are left at least
_BATCH = 4  # quantities that are looked at first; a batch is as large as all before it
_LISTED = 3  # quantities that a text names


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
        return f"{self.goal} {self.shown}/{self.limit:.10g}"

    @property
    def shown(self) -> str:
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
    def reached(self) -> bool:
        """Whether all goals hold in every quantity."""
        return self.holds and not self.unusable

    def words(self, seconds_left: float | None = None) -> str:
        """For a progress bar: "ess 310/400, rhat 1.008/1.01, 12 s left"."""
        parts = [str(figure) for figure in self.figures] or [self.obstacle]
        if self.unusable and self.figures:
            parts.append(f"NaN or infinite draws in {self.unusable}")
        if seconds_left is not None and math.isfinite(seconds_left):
            parts.append(f"{_duration(seconds_left)} left")
        return ", ".join(part for part in parts if part)


class _Errors(NamedTuple):
    mcse: np.ndarray  # (k,)


class Watch:
    """Looks at the draws of a run, again and again.

    What it keeps from look to look saves time and changes no answer: whoever begins with a later look gets
    the same.

    Parameters
    ----------
    until
        The goals; see `run.until.check_until` for what may be asked of a posterior.
    posterior
        Whose variables are in the columns of the draws.

    Attributes
    ----------
    computed : int
        How many times the statistics of a quantity were computed, over all looks.
    """

    def __init__(self, until: Until, posterior: Posterior) -> None:
        self.until, self.variables = until, posterior.variables
        ranked: list[str] = []
        if until.ess is not None or until.rhat is not None:
            ranked = list(until.of or posterior.parameters)
        self.columns = self._columns([*ranked, *until.mcse])
        k = len(self.columns)
        # (3, k): the limits of ess, R-hat and the standard error; NaN where a quantity has none.
        self.limits = np.full((3, k), np.nan)
        of = np.isin(self.columns, self._columns(ranked))
        self.limits[0, of], self.limits[1, of] = (
            np.nan if limit is None else limit for limit in (until.ess, until.rhat)
        )
        for name, error in until.mcse.items():
            self.limits[2, np.isin(self.columns, self._columns([name]))] = error
        self.order = np.arange(k)  # the worst quantities of the last look first
        self.finite, self.constant = np.ones((2, k), np.bool_)
        self.seen = 0  # rows that these two are about
        self.computed = 0

    def look(self, values: np.ndarray, *, whole: bool = False) -> Status:
        """What the draws `values` (chains, n, columns) say. They begin with those of the look before.

        With `whole` the figures are those of all quantities in any case, as for the record of a result.
        """
        rows = values.shape[1]
        if not self.until.has_goals:
            return Status(rows, (), False, False, math.inf, "", "")
        if rows < MINIMUM:
            return Status(rows, (), False, False, math.inf, "", f"only {rows} draws of each chain")
        self._see(values)
        unusable = self._listed(np.flatnonzero(~self.finite))
        order = self.order[(self.finite & ~self.constant)[self.order]]
        if not order.size:
            hopeless = not self.finite.any()
            obstacle = f"NaN or infinite draws in {unusable}" if hopeless else "all draws the same"
            return Status(rows, (), False, hopeless, math.inf, unusable, obstacle)
        measures, needs = np.full((2, *self.limits.shape), np.nan)
        strides = self._strides(values, order)
        taken, holds = 0, True
        while taken < len(order) and (holds or whole):
            batch = np.sort(order[taken : len(order) if whole else max(_BATCH, 2 * taken)])
            measures[:, batch] = self._measure(values, batch, strides)
            holds = holds and bool(_meets(measures[:, batch], self.limits[:, batch]).all())
            taken += len(batch)
        looked = order[:taken]
        needs = _needs(measures[:, looked], self.limits[:, looked])
        front = looked[np.argsort(-needs.max(axis=0), kind="stable")[:_BATCH]]
        self.order = np.concatenate((front, np.setdiff1d(np.arange(len(self.columns)), front)))
        figures = self._figures(measures, looked, needs)
        rows_needed = rows * max(1.0, float(needs.max()))
        return Status(rows, figures, holds, holds, rows_needed, unusable, "")

    def _columns(self, names: list[str]) -> np.ndarray:
        """The columns of variables, in order."""
        columns = [self.variables[name].columns.ravel() for name in names]
        return np.unique(np.concatenate([*columns, np.empty(0, np.intp)]))

    def _see(self, values: np.ndarray) -> None:
        """Note in which quantities the draws since the last look are not finite, or no longer constant."""
        for chain in values:
            new = chain[self.seen :]
            with np.errstate(all="ignore"):
                if not np.isfinite(new.sum()):  # one number, and nearly always it will do
                    self.finite &= np.isfinite(new[:, self.columns]).all(axis=0)
            for rows in (new[-1:], new):  # the last row alone tells nearly always
                still = np.flatnonzero(self.constant)
                if still.size:
                    first = values[0, 0, self.columns[still]]
                    self.constant[still] = (rows[:, self.columns[still]] == first).all(axis=0)
        self.seen = values.shape[1]

    def _strides(self, values: np.ndarray, order: np.ndarray) -> tuple[int, int]:
        """Every how many rows are looked at, for R-hat and sizes and for standard errors."""
        chains, rows, _ = values.shape
        ranks = _stride(chains, rows, self.until.ess or 0.0)
        with_error = order[~np.isnan(self.limits[2, order])]
        if not with_error.size:
            return ranks, 1
        some = values[:, :: _stride(chains, rows, 0.0)][..., self.columns[with_error]]
        with np.errstate(all="ignore"):  # of huge draws the variance is infinite, and all rows are taken
            sizes = some.reshape(-1, with_error.size).var(axis=0) / self.limits[2, with_error] ** 2
        return ranks, _stride(chains, rows, float(sizes.max()))

    def _measure(self, values: np.ndarray, batch: np.ndarray, strides: tuple[int, int]) -> np.ndarray:
        """The smaller effective size, R-hat and the standard error of a batch (3, k); NaN for no limit."""
        rows = values.shape[1]
        measures = np.full((3, len(batch)), np.nan)
        ranked = np.flatnonzero(~np.isnan(self.limits[:2, batch]).all(axis=0))
        with_error = np.flatnonzero(~np.isnan(self.limits[2, batch]))
        if ranked.size:
            found = each_column(convergence, [_thin(values, strides[0], self.columns[batch[ranked]])])
            measures[0, ranked] = np.minimum(found.ess_bulk, found.ess_tail)
            # With the number of all rows: the variance between means is weighted as for chains of that
            # length, and means of thinned chains vary no less.
            measures[1, ranked] = r_hat(found.moments, rows)
        if with_error.size:
            thinned = _thin(values, strides[1], self.columns[batch[with_error]])
            measures[2, with_error] = each_column(lambda draws: _Errors(mcse_mean(draws)), [thinned]).mcse
        self.computed += len(batch)
        return measures

    def _figures(self, measures: np.ndarray, looked: np.ndarray, needs: np.ndarray) -> tuple[Figure, ...]:
        """A figure for each goal of which a quantity was looked at."""
        goals = [("ess", 0, self.columns), ("rhat", 1, self.columns)]
        goals += [(f"mcse {name}", 2, self._columns([name])) for name in self.until.mcse]
        figures = []
        for goal, row, columns in goals:
            about = np.isin(self.columns[looked], columns) & ~np.isnan(self.limits[row, looked])
            if about.any():
                place = np.flatnonzero(about)[np.argmax(needs[row, about])]
                value, limit = measures[row, looked[place]], self.limits[row, looked[place]]
                name = self._name(int(self.columns[looked[place]]))
                figures.append(Figure(goal, float(value), float(limit), name))
        return tuple(figures)

    def _name(self, column: int) -> str:
        """`theta[0]`, as results have it that nobody has given labels."""
        name = next(name for name, each in self.variables.items() if np.any(each.columns == column))
        index = np.argwhere(self.variables[name].columns == column)[0]
        return f"{name}[{', '.join(map(str, index))}]" if index.size else name

    def _listed(self, chosen: np.ndarray) -> str:
        """The first ones of the quantities chosen, and how many more there are."""
        names = [self._name(int(column)) for column in self.columns[chosen[:_LISTED]]]
        more = f" and {len(chosen) - _LISTED} more" if len(chosen) > _LISTED else ""
        return ", ".join(names) + more


def _stride(chains: int, rows: int, effective: float) -> int:
    """Every how many rows of a chain are enough to see whether there are so many effective draws."""
    wanted = max(_THINNED_ROWS * chains, _THINNED, _PER_EFFECTIVE * effective)
    return max(1, int(rows * chains // wanted)) if math.isfinite(wanted) else 1


def _thin(values: np.ndarray, stride: int, columns: np.ndarray) -> np.ndarray:
    """Columns of every so many rows, the last one among them: (chains, n, k)."""
    rows = values.shape[1]
    thinned: np.ndarray = values[:, (rows - 1) % stride :: stride][..., columns]
    return thinned


def _meets(measures: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """Whether the sizes, R-hats and errors (3, k) are within their limits; of no limit they are."""
    within = np.stack((measures[0] >= limits[0], measures[1] <= limits[1], measures[2] <= limits[2]))
    met: np.ndarray = within | np.isnan(limits)
    return met


def _needs(measures: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """How many times the draws (3, k) it will take: sizes grow with them, R-hat - 1 and variances fall."""
    with np.errstate(all="ignore"):
        needs = np.stack(
            (
                limits[0] / measures[0],
                (measures[1] ** 2 - 1.0) / (limits[1] ** 2 - 1.0),
                (measures[2] / limits[2]) ** 2,
            )
        )
    needs[np.isnan(measures)] = math.inf  # what has no value is far from any limit
    needs[np.isnan(limits)] = 0.0
    return needs


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
    reached = status.reached if until.has_goals else limit != "interrupt"
    return {
        "until": str(until),
        "until_reached": int(reached),
        "until_reason": _reason(until, status, limit),
        "until_limit": limit,
        "until_draws": status.rows,
    }


def _reason(until: Until, status: Status, limit: str) -> str:
    each_chain = f"{status.rows} of each chain"
    met = ", ".join(f"{each.goal} {each.shown} of {each.limit:.10g}" for each in status.figures)
    if status.reached:
        return f"{met} at draw {each_chain}"
    if status.holds:
        return f"NaN or infinite draws in {status.unusable}, all else has {met} at draw {each_chain}"
    words = {**until.limits, "draws": "the last draw", "interrupt": "an interrupt", "": "the end"}
    came = f"{words[limit]} came {'first, ' if until.has_goals else ''}at draw {each_chain}"
    far = [f"{each.goal} {each.shown} ({each.quantity})" for each in status.figures if not each.is_met]
    if status.unusable and not status.obstacle:
        far.append(f"NaN or infinite draws in {status.unusable}")
    lacks = status.obstacle or ", ".join(far)
    return f"{came}, with {lacks}" if lacks else came


def _duration(seconds: float) -> str:
    if seconds < 120.0:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200.0 else f"{seconds / 3600:.1f} h"
