"""The numbers of a report: what matters most, the summary of draws, and what each chain did."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..diagnostics.scalars import ESS_PER_CHAIN, r_hat_limit
from ..diagnostics.statistics import column, e_bfmi
from ..diagnostics.table import duration, summary_columns
from ..result.container import Groups
from .facts import number
from .summary_table import Column, Table

if TYPE_CHECKING:
    import pandas
    import xarray

_MOST_BYTES = 1_500_000  # of the summary
_MANY = 10_000  # rows
_MEANINGS = {
    "mean": "Mean of the draws of all chains.",
    "sd": "Standard deviation of the draws.",
    "mcse_mean": "Monte Carlo standard error: by how much the mean may be off, since draws are finite.",
    "ess_bulk": "Effective sample size in the middle: independent draws that would tell as much of it.",
    "ess_tail": "Effective sample size for the 5 % and 95 % quantiles.",
    "r_hat": "Rank-normalised split R-hat: 1 where the chains agree.",
}
_SHOWN = {"mcse_mean": "MCSE of mean", "ess_bulk": "ESS bulk", "ess_tail": "ESS tail", "r_hat": "R-hat"}


class Key(NamedTuple):
    """A figure that the page shows large."""

    label: str
    value: str
    note: str = ""
    is_marked: bool = False


class Worst(NamedTuple):
    """The quantities that are known least."""

    r_hat: float
    ess_bulk: float
    ess_tail: float
    names: tuple[str, ...]  # of the three

    @classmethod
    def of(cls, frame: pandas.DataFrame) -> Worst:
        """Of a summary; NaN where no quantity has a number."""
        worst, names = [], []
        for name, sign in (("r_hat", -1.0), ("ess_bulk", 1.0), ("ess_tail", 1.0)):
            values = frame[name].to_numpy(dtype=float)
            place = int(np.argmin(np.where(np.isfinite(values), sign * values, np.inf)))
            worst.append(float(values[place]))
            names.append(str(frame.index[place]) if np.isfinite(values[place]) else "")
        return cls(worst[0], worst[1], worst[2], tuple(names))

    def clause(self, chains: int) -> str:
        """For the verdict."""
        agree = "the chains agree" if chains > 1 else "the halves of the chain agree"
        return (
            f"{agree} (largest R-hat {self.r_hat:.3f}), and the quantity that is known least has "
            f"{min(self.ess_bulk, self.ess_tail):,.0f} effective draws"
        )


def limits(chains: int) -> tuple[float, float]:
    """R-hat over and effective sample sizes under which there is a finding."""
    return r_hat_limit(chains), float(ESS_PER_CHAIN * chains)


def key_figures(groups: Groups, attrs: dict[str, Any], worst: Worst) -> list[Key]:
    """What matters most, for the top of the page."""
    sizes = groups["posterior"].sizes
    high, low = limits(sizes["chain"])
    m, n = sizes["chain"], sizes["draw"]
    keys = [
        Key("Draws", f"{m * n:,}", f"{m} chains of {n:,}"),
        Key("Largest R-hat", f"{worst.r_hat:.3f}", worst.names[0], not worst.r_hat <= high),
        Key("Smallest bulk ESS", f"{worst.ess_bulk:,.0f}", worst.names[1], not worst.ess_bulk >= low),
        Key("Smallest tail ESS", f"{worst.ess_tail:,.0f}", worst.names[2], not worst.ess_tail >= low),
    ]
    stats = groups.get("sample_stats")
    diverging = None if stats is None else column(stats, "diverging", np.any)
    if diverging is not None:
        keys.append(Key("Divergences", f"{int(diverging.sum()):,}", f"of {diverging.size:,} draws"))
    if (seconds := number(attrs, "sampling_time")) > 0:
        rate = worst.ess_bulk / seconds
        keys.append(Key("Time", duration(seconds), f"{_rate(rate)} effective draws a second, at worst"))
    return keys


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 100.0 else f"{value:.3g}"


def summary_rows(frame: pandas.DataFrame, chains: int) -> Table:
    """The summary of all quantities."""
    high, low = limits(chains)
    columns = [Column("Quantity", number=False)]
    for name in map(str, frame.columns):
        meaning = _MEANINGS.get(name, f"{name[1:]} % of the draws are smaller.")
        is_ess = name.startswith("ess")
        columns.append(
            Column(
                _SHOWN.get(name, f"{name[1:]} %" if name.startswith("q") else name),
                meaning,
                below=low if is_ess else None,
                above=high if name == "r_hat" else None,
                descending=name in ("r_hat", "sd", "mcse_mean"),
            )
        )
    texts = zip(map(str, frame.index), *summary_columns(frame), strict=True)
    rows: list[Sequence[str]] = list(texts)
    note = f"Marked: R-hat over {high}, and effective sample sizes under {low:g}."
    caption = f"{len(rows):,} quantit{'y' if len(rows) == 1 else 'ies'} of the posterior"
    return Table("summary", caption, columns, _worst_first(frame, rows), note, _MOST_BYTES)


def _worst_first(frame: pandas.DataFrame, rows: list[Sequence[str]]) -> list[Sequence[str]]:
    """The rows by falling R-hat, where they might not all fit in the page; else in their own order."""
    if len(rows) <= _MANY:
        return rows
    values = frame["r_hat"].to_numpy(dtype=float)
    return [rows[i] for i in np.argsort(np.where(np.isnan(values), -np.inf, -values), kind="stable")]


def chain_rows(groups: Groups) -> Table | None:
    """What each chain did; None where nothing is known of that."""
    stats, adaptation = groups.get("sample_stats"), groups.get("adaptation")
    chains = groups["posterior"]["chain"].values
    found: list[tuple[Column, list[str]]] = [(Column("Chain", number=False), [str(each) for each in chains])]

    def add(label: str, meaning: str, values: Any, shape: Callable[[float], str]) -> None:
        if values is not None and len(values) == len(chains):
            found.append((Column(label, meaning), [shape(float(value)) for value in values]))

    add("Warm-up", "Iterations of warm-up.", _fact(adaptation, "warmup_iterations"), "{:.0f}".format)
    if stats is not None:
        rates, steps = column(stats, "acceptance_rate", np.mean), column(stats, "n_steps", np.sum)
        add("Acceptance", "Mean probability of acceptance.", _mean(rates), "{:.3f}".format)
    add("Step size", "After warm-up.", _fact(adaptation, "final_step_size"), "{:.3g}".format)
    if stats is not None:
        add("Evaluations", "Of the density or its gradient, per draw.", _mean(steps), "{:.3g}".format)
        diverging, energy = column(stats, "diverging", np.any), column(stats, "energy", np.sum)
        add("Divergences", "", None if diverging is None else diverging.sum(axis=1), "{:.0f}".format)
        add("E-BFMI", "Under 0.3, tails are hardly explored.", _bfmi(energy), "{:.2f}".format)
    add("Failures", "Evaluations that failed after warm-up.", _fact(adaptation, "failures"), "{:.0f}".format)
    add("Warm-up time", "Seconds.", _fact(adaptation, "seconds_warmup"), "{:.3g}".format)
    add("Time", "Seconds, with warm-up.", _fact(adaptation, "seconds_total"), "{:.3g}".format)
    if len(found) == 1:
        return None
    columns, texts = zip(*found, strict=True)
    return Table("chain-table", "What each chain did", columns, list(zip(*texts, strict=True)))


def _fact(adaptation: xarray.Dataset | None, name: str) -> np.ndarray | None:
    """A number of each chain; None where there is none."""
    if adaptation is None or name not in adaptation or adaptation[name].dims != ("chain",):
        return None
    return np.asarray(adaptation[name].values)


def _mean(values: np.ndarray | None) -> np.ndarray | None:
    return None if values is None else np.asarray(values.mean(axis=1))


def _bfmi(energy: np.ndarray | None) -> np.ndarray | None:
    return None if energy is None else e_bfmi(energy)
