"""The numbers of a report: the key figures, the summary of draws, and a row for each chain."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import check
from ..diagnostics.approximation import OPTIMUM, PARETO_K, is_approximation
from ..diagnostics.scalars import ESS_PER_CHAIN, r_hat_limit
from ..diagnostics.statistics import column, e_bfmi
from ..diagnostics.table import duration, summary_columns
from ..result.container import Groups
from .facts import number, parse_list
from .summary_table import Column, Table

if TYPE_CHECKING:
    import pandas
    import xarray

_MOST_BYTES = 1_500_000  # for the two tables of the summary together
_MANY = 10_000  # rows
_APART = 100.0  # ratio of numbers beyond which they do not have the same decimals
_MEANINGS = {
    "value": "At the maximum.",
    "mean": "Mean of the draws of all chains.",
    "sd": "Standard deviation of the draws.",
    "mcse_mean": "Monte Carlo standard error: the error of the mean because draws are finite.",
    "ess_bulk": "Effective sample size for the middle: as many independent draws would be worth as much.",
    "ess_tail": "Effective sample size for the 5 % and 95 % quantiles.",
    "r_hat": "Rank-normalised split R-hat: 1 where the chains agree.",
}
_OF_CHAINS = ("mcse_mean", "ess_bulk", "ess_tail", "r_hat")  # columns
_APPROXIMATED = {  # notes below the summary of an approximation
    "laplace": "The draws count by their weights, whose logarithms are log_weight in sample_stats.",
    "pathfinder": "The draws were resampled by their weights, and count alike.",
}
_SHOWN = {"mcse_mean": "MCSE of mean", "ess_bulk": "ESS bulk", "ess_tail": "ESS tail", "r_hat": "R-hat"}


class Key(NamedTuple):
    """A figure that the page shows in large type."""

    label: str
    value: str
    note: str = ""
    is_marked: bool = False


class Worst(NamedTuple):
    """The worst R-hat and effective sample sizes, with the quantities that have them."""

    r_hat: float
    ess_bulk: float
    ess_tail: float
    names: tuple[str, ...]  # of the quantities with these three

    @classmethod
    def of(cls, frame: pandas.DataFrame) -> Worst:
        """Find them in a summary; a figure is NaN if no quantity has it."""
        worst, names = [], []
        for name, sign in (("r_hat", -1.0), ("ess_bulk", 1.0), ("ess_tail", 1.0)):
            values = frame[name].to_numpy(dtype=float)
            place = int(np.argmin(np.where(np.isfinite(values), sign * values, np.inf)))
            worst.append(float(values[place]))
            names.append(str(frame.index[place]) if np.isfinite(values[place]) else "")
        return cls(worst[0], worst[1], worst[2], tuple(names))

    def clause(self, chains: int) -> str:
        """Write the clause for the verdict."""
        agree = "the chains agree" if chains > 1 else "the halves of the chain agree"
        return (
            f"{agree} (largest R-hat {self.r_hat:.3f}), and the quantity that is known least has "
            f"{min(self.ess_bulk, self.ess_tail):,.0f} effective draws"
        )


def limits(chains: int) -> tuple[float, float]:
    """Return the largest R-hat and the smallest effective sample size without a finding."""
    return r_hat_limit(chains), float(ESS_PER_CHAIN * chains)


def key_figures(groups: Groups, attrs: dict[str, Any], worst: Worst) -> list[Key]:
    """Choose the key figures for the top of the page."""
    if is_approximation(attrs):
        return _approximation_figures(groups, attrs)
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
        keys.append(Key("Time", duration(seconds), f"{_rate(rate)} effective draws a second, at least"))
    return keys


def _approximation_figures(groups: Groups, attrs: Mapping[str, Any]) -> list[Key]:
    """Choose those of an approximation or a maximum, which has no chains to compare."""
    draws = groups["posterior"].sizes["draw"]
    k, enough = number(attrs, "pareto_k"), number(attrs, "effective_draws")
    if math.isfinite(k):
        keys = [
            Key("Draws", f"{draws:,}", "of the approximation"),
            Key("Pareto k", f"{k:.2f}", f"weights correct up to {PARETO_K}", k > PARETO_K),
            Key("Effective draws", f"{enough:,.0f}", "of the weights"),
        ]
    else:
        keys = [Key("Log density", f"{number(attrs, 'lp'):.6g}", "at the maximum")]
    keys += [
        Key(label, f"{number(attrs, name):,.0f}")
        for label, name in (("Gradients", "gradients"), ("Densities", "densities"))
        if name in attrs
    ]
    if (seconds := number(attrs, "sampling_time")) > 0:
        keys.append(Key("Time", duration(seconds)))
    return keys


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 100.0 else f"{value:.3g}"


class Summary(NamedTuple):
    """The summary of draws: a table, and a second one that is folded below it."""

    table: Table
    others: Table | None  # quantities that the program computes from the parameters
    names: str  # of the variables in `others`
    is_open: bool  # whether to unfold `others`, because cells in it are marked


def summary_rows(frame: pandas.DataFrame, posterior: xarray.Dataset, attrs: Mapping[str, Any]) -> Summary:
    """Summarise all quantities, the parameters apart from the others if the result says which they are."""
    chains = posterior.sizes["chain"]
    count = chains * posterior.sizes["draw"]
    approximation = str(attrs["approximation"]) if is_approximation(attrs) else ""
    variables = [
        str(name) for name, values in posterior.data_vars.items() for _ in range(values.size // count)
    ]
    parameters = set(parse_list(attrs.get("parameters")))
    own = np.array([name in parameters for name in variables], bool)
    if own.all() or not own.any():
        caption = f"{_quantities_text(len(frame))} of the posterior"
        table = _summary_table("summary", caption, frame, chains, _MOST_BYTES, approximation)
        return Summary(table, None, "", False)
    half = _MOST_BYTES // 2
    caption = f"{_quantities_text(int(own.sum()))} {'of the approximation' if approximation else 'sampled'}"
    table = _summary_table("summary", caption, frame[own], chains, half, approximation)
    caption = f"{_quantities_text(int((~own).sum()))} computed from the parameters"
    others = _summary_table("others", caption, frame[~own], chains, half, approximation)
    names = ", ".join(dict.fromkeys(name for name, is_own in zip(variables, own, strict=True) if not is_own))
    return Summary(table, others, check.printable(names), others.has_marks)


def _quantities_text(rows: int) -> str:
    return f"{rows:,} quantit{'y' if rows == 1 else 'ies'}"


def _summary_table(
    id: str, caption: str, frame: pandas.DataFrame, chains: int, most: int, approximation: str
) -> Table:
    high, low = limits(chains)
    columns = [Column("Quantity", number=False)]
    texts = dict(zip(map(str, frame.columns), summary_columns(frame, level=True), strict=True))
    note = f"Marked: R-hat over {high}, and effective sample sizes under {low:g}."
    if approximation:
        note = _APPROXIMATED.get(approximation, "")
        texts = {name: cells for name, cells in texts.items() if name not in _OF_CHAINS}
    if approximation == OPTIMUM:  # one draw
        texts = {"value": texts["mean"]}
    for name in texts:
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
    rows: list[Sequence[str]] = list(zip(map(str, frame.index), *texts.values(), strict=True))
    return Table(id, caption, columns, _worst_first(frame, rows), note, most)


def _worst_first(frame: pandas.DataFrame, rows: list[Sequence[str]]) -> list[Sequence[str]]:
    """Sort the rows by decreasing R-hat if there are so many that the page may not hold all of them."""
    if len(rows) <= _MANY:
        return rows
    values = frame["r_hat"].to_numpy(dtype=float)
    return [rows[i] for i in np.argsort(np.where(np.isnan(values), -np.inf, -values), kind="stable")]


def chain_rows(groups: Groups) -> Table | None:
    """Make a table with a row for each chain; None if the result says nothing about single chains."""
    stats, adaptation = groups.get("sample_stats"), groups.get("adaptation")
    chains = groups["posterior"]["chain"].values
    found: list[tuple[Column, list[str]]] = [(Column("Chain", number=False), [str(each) for each in chains])]

    def add(label: str, meaning: str, values: Any, decimals: int | None = None) -> None:
        if values is not None and len(values) == len(chains):
            found.append((Column(label, meaning), _alike(np.asarray(values, float), decimals)))

    add("Warm-up", "Iterations of warm-up.", _fact(adaptation, "warmup_iterations"), 0)
    if stats is not None:
        rates, steps = column(stats, "acceptance_rate", np.mean), column(stats, "n_steps", np.sum)
        add("Acceptance", "Mean probability of acceptance.", _mean(rates), 3)
    add("Step size", "After warm-up.", _fact(adaptation, "final_step_size"))
    if stats is not None:
        add("Evaluations", "Of the density or its gradient, per draw.", _mean(steps))
        diverging, energy = column(stats, "diverging", np.any), column(stats, "energy", np.sum)
        add("Divergences", "", None if diverging is None else diverging.sum(axis=1), 0)
        add("E-BFMI", "Below 0.3 the chain hardly explores the tails.", _bfmi(energy), 2)
    add("Failures", "Evaluations that failed after warm-up.", _fact(adaptation, "failures"), 0)
    add("Warm-up time", "Seconds.", _fact(adaptation, "seconds_warmup"))
    add("Time", "Seconds, with warm-up.", _fact(adaptation, "seconds_total"))
    if len(found) == 1:
        return None
    columns, texts = zip(*found, strict=True)
    return Table("chain-table", "What each chain did", columns, list(zip(*texts, strict=True)))


def _alike(values: np.ndarray, decimals: int | None) -> list[str]:
    """Write numbers with the same decimals; by default the largest one has three significant figures."""
    known = np.abs(values[np.isfinite(values) & (values != 0.0)])
    if decimals is None:
        decimals = max(0, 2 - math.floor(math.log10(known.max()))) if known.size else 0
        if known.size and known.max() > _APART * known.min():  # the smallest ones would be zeros
            return [f"{value:.3g}" for value in values]
    return [f"{value:.{decimals}f}" for value in values]


def _fact(adaptation: xarray.Dataset | None, name: str) -> np.ndarray | None:
    """Return a fact that has a number for each chain; None if there is none."""
    if adaptation is None or name not in adaptation or adaptation[name].dims != ("chain",):
        return None
    return np.asarray(adaptation[name].values)


def _mean(values: np.ndarray | None) -> np.ndarray | None:
    return None if values is None else np.asarray(values.mean(axis=1))


def _bfmi(energy: np.ndarray | None) -> np.ndarray | None:
    return None if energy is None else e_bfmi(energy)
