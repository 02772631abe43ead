"""Whether the draws so far are enough: the looks at a run that ends by `until`.

A look's answer depends on the draws alone, and costs little beside them:

- Long chains are thinned. The mean of all draws varies no more than the mean of every k-th, so an effective
  size of thinned draws is that of fewer draws than there are, and does not promise too much. Four draws or
  more for each effective one that is asked for leave nearly nothing of the difference.
- Quantities are looked at in batches, those first that were worst at the last look, and a batch in which a
  goal does not hold ends the look: a "no" costs a few quantities, and only a "yes" takes all of them. Most
  of them are far better than the worst ones, and show it in very few draws; the others get more.

Quantities that are constant so far are left out, as `diagnose` leaves them out. One with NaN or infinite
draws can reach no goal: the run ends when all others have reached theirs, and the answer names it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ..model.posterior import Posterior
from ..run.stopping import MINIMUM, Until
from .convergence import Convergence, EffectiveSizes, convergence, effective_sizes, mcse_mean, r_hat
from .statistics import each_column
from .status import Figure, Status

# Draws for each effective one that a goal asks for, at most, and at least half of them: to see what is clear,
# to decide, and to decide on what is neither here nor there.
_DRAWS = (2, 8, 32)
_CLEAR = 0.8  # of its draws are all that a clear quantity needs
_SIZE = 500  # effective draws that R-hat is thinned for; its means need no more
_THINNED_ROWS = 250  # of each chain that are left, at least half of them
_CANDIDATES = 8  # for the worst quantity by each goal, of those that are clear
_BATCH = 2  # quantities that are looked at first; a batch is as large as all before it
_LISTED = 3  # quantities that a text names


class _Errors(NamedTuple):
    mcse: np.ndarray  # (k,)


class GoalWatch:
    """Looks at the draws of a run, again and again.

    What it keeps from look to look saves time and changes no answer: whoever begins with a later look gets
    the same.

    Parameters
    ----------
    until
        The goals; see `run.stopping.check_until` for what may be asked of a posterior.
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
        unusable = self._first_names(np.flatnonzero(~self.finite))
        order = self.order[(self.finite & ~self.constant)[self.order]]
        if not order.size:
            hopeless = not self.finite.any()
            obstacle = f"NaN or infinite draws in {unusable}" if hopeless else "all draws the same"
            return Status(rows, (), False, hopeless, math.inf, unusable, obstacle)
        measures, fine = np.full(self.limits.shape, np.nan), np.zeros(len(self.columns), np.bool_)
        levels = self._levels(values, order)
        taken, holds = 0, True
        while taken < len(order) and (holds or whole):
            batch = np.sort(order[taken : max(_BATCH, 2 * taken)])
            self._judge(values, batch, levels, measures, fine)
            holds = holds and bool(self._meets(measures, batch).all())
            taken += len(batch)
        looked = order[:taken]
        if holds or whole:  # figures for the record, of those that seem to be the worst ones
            needs = self._needs(measures, looked)
            worst = looked[np.unique(np.argsort(-needs, axis=1, kind="stable")[:, :_CANDIDATES])]
            self._refine(values, worst[~fine[worst]], levels[1], measures)
            fine[worst] = True
        looked = looked[fine[looked]]
        needs = self._needs(measures, looked)
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

    def _levels(self, values: np.ndarray, order: np.ndarray) -> list[list[int]]:
        """Every how many rows are looked at, from coarse to fine: for R-hat and sizes, and for errors."""
        chains, rows, _ = values.shape
        sizes = [max(_SIZE, self.until.ess or 0.0), _SIZE]
        with_error = order[~np.isnan(self.limits[2, order])]
        if with_error.size:
            some = values[:, :: _stride(chains, rows, _DRAWS[1] * _SIZE)][..., self.columns[with_error]]
            with np.errstate(all="ignore"):  # of huge draws the variance is infinite, and all rows are taken
                needed = some.reshape(-1, with_error.size).var(axis=0) / self.limits[2, with_error] ** 2
            sizes[1] = max(_SIZE, float(needed.max()))
        return [[_stride(chains, rows, per * size) for size in sizes] for per in _DRAWS]

    def _judge(
        self,
        values: np.ndarray,
        batch: np.ndarray,
        levels: list[list[int]],
        measures: np.ndarray,
        fine: np.ndarray,
    ) -> None:
        """Measure a batch, by more draws where few do not tell; `fine` is where it was not by the fewest.

        What is done with a quantity depends on its own draws alone, whenever it has its turn.
        """
        for place, strides in enumerate(levels):
            if place == 0 or strides != levels[place - 1]:
                measures[:, batch] = self._measure(values, batch, strides)
            needs = self._needs(measures, batch).max(axis=0)
            fine[batch] = place > 0
            # Few draws may be much worse than all of them, so at first there is no early "no".
            batch = batch[~(needs <= _CLEAR) & ((place == 0) | (needs <= 1.0 / _CLEAR))]

    def _refine(
        self, values: np.ndarray, chosen: np.ndarray, strides: list[int], measures: np.ndarray
    ) -> None:
        """Measure by more draws what a few have shown to be clear, and keep what is better."""
        if chosen.size:
            before, now = measures[:, chosen], self._measure(values, chosen, strides)
            measures[:, chosen] = now
            worse = self._needs(measures, chosen) > 1.0
            measures[:, chosen] = np.where(worse, before, now)

    def _measure(self, values: np.ndarray, batch: np.ndarray, strides: list[int]) -> np.ndarray:
        """The smaller effective size, R-hat and the standard error of a batch (3, k); NaN for no limit."""
        rows = values.shape[1]
        measures = np.full((3, len(batch)), np.nan)
        self.computed += len(batch)
        ranked = np.flatnonzero(~np.isnan(self.limits[:2, batch]).all(axis=0))
        with_error = np.flatnonzero(~np.isnan(self.limits[2, batch]))
        if ranked.size:
            thinned = _thin(values, strides[0], self.columns[batch[ranked]])
            sizes: EffectiveSizes | Convergence
            if self.until.rhat is None:
                sizes = each_column(effective_sizes, thinned)
            else:
                sizes = found = each_column(convergence, thinned)
                # With the number of all rows: the variance between means is weighted as for chains of that
                # length, and means of thinned chains vary no less.
                measures[1, ranked] = r_hat(found.moments, rows)
            measures[0, ranked] = np.minimum(sizes.ess_bulk, sizes.ess_tail)
        if with_error.size:
            thinned = _thin(values, strides[1], self.columns[batch[with_error]])
            measures[2, with_error] = each_column(lambda draws: _Errors(mcse_mean(draws)), thinned).mcse
        return measures

    def _meets(self, measures: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        """Whether measures of the quantities chosen are within their limits (3, k); of no limit they are."""
        (ess, rhat, mcse), limits = measures[:, chosen], self.limits[:, chosen]
        within = np.stack((ess >= limits[0], rhat <= limits[1], mcse <= limits[2]))
        met: np.ndarray = within | np.isnan(limits)
        return met

    def _needs(self, measures: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        """How many times the draws each goal takes (3, k), as sizes grow and R-hat - 1 and variances fall."""
        (ess, rhat, mcse), limits = measures[:, chosen], self.limits[:, chosen]
        with np.errstate(all="ignore"):
            needs = np.stack(
                (limits[0] / ess, (rhat**2 - 1.0) / (limits[1] ** 2 - 1.0), (mcse / limits[2]) ** 2)
            )
        needs[np.isnan(measures[:, chosen])] = math.inf  # what has no value is far from any limit
        needs[np.isnan(limits)] = 0.0
        return needs

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

    def _first_names(self, chosen: np.ndarray) -> str:
        """The first ones of the quantities chosen, and how many more there are."""
        names = [self._name(int(column)) for column in self.columns[chosen[:_LISTED]]]
        more = f" and {len(chosen) - _LISTED} more" if len(chosen) > _LISTED else ""
        return ", ".join(names) + more


def _stride(chains: int, rows: int, draws: float) -> int:
    """Every how many rows of a chain leave so many draws of all chains, or up to half as many."""
    wanted = max(_THINNED_ROWS * chains, draws)
    return math.ceil(max(rows * chains / wanted, 1.0))


def _thin(values: np.ndarray, stride: int, columns: np.ndarray) -> list[np.ndarray]:
    """Columns of every so many rows, the last one among them: views (chains, n, k)."""
    thinned = values[:, (values.shape[1] - 1) % stride :: stride]
    pieces = np.split(columns, np.flatnonzero(np.diff(columns) != 1) + 1)
    return [thinned[:, :, piece[0] : piece[-1] + 1] for piece in pieces]
