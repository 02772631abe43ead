"""Summaries of draws: as a DataFrame, and as text with the digits that mean something."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .. import check
from ..errors import ArgumentError
from ..result.container import datasets
from .approximation import approximation_weights
from .convergence import TAIL, convergence, mcse_mean, r_hat
from .statistics import each, row_names, select

if TYPE_CHECKING:
    import pandas

    from ..result.container import InferenceData

_PLAIN = 1e7  # larger numbers are written with an exponent,
_DECIMALS = 6  # and so are those that need more decimals than these
_TAILS = (TAIL, 1.0 - TAIL)  # the quantiles that the tail ESS is about
_LEVELLED = 1000.0  # ratio of standard errors up to which all rows of a table have the same decimals
# Of times: the unit, its seconds, and from how many seconds on it is taken.
_UNITS = (
    ("h", 3600.0, 7200.0),
    ("min", 60.0, 120.0),
    ("s", 1.0, 1.0),
    ("ms", 1e-3, 1e-3),
    ("µs", 1e-6, 1e-6),
)


class _Rows(NamedTuple):
    """Of k scalars."""

    mean: np.ndarray  # (k,)
    sd: np.ndarray
    ends: np.ndarray  # (k, 2) of the interval
    mcse_mean: np.ndarray
    moments: np.ndarray  # for R-hat, as `convergence` has them
    ess_bulk: np.ndarray
    ess_tail: np.ndarray

    @classmethod
    def of(cls, draws: np.ndarray, ends: tuple[float, float]) -> _Rows:
        """Of draws (k, chain, draw)."""
        flat = draws.reshape(len(draws), -1)
        sd, mcse = np.full((2, len(flat)), np.nan)
        if flat.shape[1] > 1:
            sd, mcse = flat.std(axis=1, ddof=1), mcse_mean(draws)
        quantiles = np.quantile(flat, ends, axis=1).T
        return cls(flat.mean(axis=1), sd, quantiles, mcse, *convergence(draws)[:3])

    @classmethod
    def from_weighted(cls, draws: np.ndarray, ends: tuple[float, float], weights: np.ndarray) -> _Rows:
        """Of independent draws (k, chain, draw) with weights (chain, draw) that add up to 1.

        The standard error is that of self-normalised importance sampling. An effective sample size is the
        number of draws of the posterior that would give as exact a mean, or the less exact of the shares
        under the 5 % and the 95 % quantile.
        """
        flat, w = draws.reshape(len(draws), -1), weights.ravel()
        mean = flat @ w
        apart = flat - mean[:, None]
        variance = (apart**2 @ w) / (1.0 - w @ w)
        error = apart**2 @ w**2
        order = np.argsort(flat, axis=1)
        ordered, own = np.take_along_axis(flat, order, axis=1), w[order]
        below = np.cumsum(own, axis=1) - own / 2
        shares, wanted = np.array(_TAILS), [*ends, *_TAILS]
        found = np.array([np.interp(wanted, *row) for row in zip(below, ordered, strict=True)])
        quantiles, tails = found[:, : len(ends)], found[:, len(ends) :]
        off = (flat[:, None] <= tails[:, :, None]) - shares[:, None]
        tail = (shares * (1.0 - shares) / (off**2 @ w**2)).min(axis=1)
        none = np.full((len(flat), 4, 2 * draws.shape[1]), np.nan)  # as of chains that are too short
        return cls(mean, np.sqrt(variance), quantiles, np.sqrt(error), none, variance / error, tail)


def summary(
    idata: InferenceData, var_names: list[str] | None = None, interval: float = 0.9
) -> pandas.DataFrame:
    """Posterior summary as a pandas DataFrame, a row for every scalar.

    Parameters
    ----------
    idata
        A result of `stanadapt.sample`, or anything with a posterior in ArviZ's schema.
    var_names
        Variables of the posterior group; by default all that hold numbers.
    interval
        Probability of the central interval.

    Returns
    -------
    pandas.DataFrame
        mean, sd, the ends of the interval, mcse_mean (standard error of the mean), ess_bulk, ess_tail and
        r_hat (rank-normalised, split), as in Vehtari et al. (2021); of a single chain r_hat compares its
        halves. Draws of `laplace` count by their weights, and have no r_hat.

    Raises
    ------
    ArgumentError
        A variable is unknown, or the interval is not between 0 and 1.
    """
    import pandas

    posterior = select(idata, var_names)
    if not posterior.sizes["draw"]:
        note = posterior.attrs.get("interrupted_note", "the posterior is empty")
        raise ArgumentError(f"idata has no draws to summarise ({note})")
    if not (isinstance(interval, float) and 0.0 < interval < 1.0):
        raise ArgumentError(f"interval={interval!r} is not allowed: it must be between 0 and 1")
    ends = (0.5 - interval / 2, 0.5 + interval / 2)
    weights = approximation_weights(datasets(idata))
    if weights is None:
        rows = each(lambda draws: _Rows.of(draws, ends), posterior)
    else:
        rows = each(lambda draws: _Rows.from_weighted(draws, ends, weights), posterior)
    columns = {
        "mean": rows.mean,
        "sd": rows.sd,
        f"q{100 * ends[0]:.4g}": rows.ends[:, 0],
        f"q{100 * ends[1]:.4g}": rows.ends[:, 1],
        "mcse_mean": rows.mcse_mean,
        "ess_bulk": rows.ess_bulk,
        "ess_tail": rows.ess_tail,
        "r_hat": r_hat(rows.moments, posterior.sizes["draw"]),
    }
    return pandas.DataFrame(columns, index=row_names(posterior))


def align_columns(header: Sequence[str], rows: Sequence[Sequence[str]], *, right: bool = False) -> str:
    """Columns two spaces apart under their header; the first one left-aligned, the rest as `right` says."""
    columns = list(zip(header, *rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    lines = []
    for row in (header, *rows):
        cells = [
            cell.rjust(width) if right and i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def three_figures(value: float) -> str:
    """A number for a table with three figures that count; nothing for what is unknown."""
    if not math.isfinite(value):
        return ""
    if value == 0.0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{min(digits, 4)}f}"


def summary_table(frame: pandas.DataFrame) -> str:
    """The DataFrame of `stanadapt.summary` as text.

    Every variable is written to the second digit of its standard error; further ones would be noise.
    """
    columns = [_on_the_point(cells) for cells in summary_columns(frame)]
    names = [check.printable(str(name)) for name in frame.index]
    rows = [list(row) for row in zip(names, *columns, strict=True)]
    return align_columns(["", *frame.columns], rows, right=True)


def summary_columns(frame: pandas.DataFrame, *, level: bool = False) -> list[list[str]]:
    """The columns of the DataFrame of `stanadapt.summary` as texts, rounded as `summary_table` rounds them.

    With `level`, all rows have as many decimals as the one that needs the most, unless their standard errors
    differ by a factor of more than 1000.
    """
    errors = _typical_errors(frame)
    known = [error for error in errors if error > 0.0]
    if level and known and max(known) <= _LEVELLED * min(known):
        errors = [min(known)] * len(errors)
    columns = []
    for name in frame.columns:
        values = [float(value) for value in frame[name]]
        if name.startswith("ess"):
            cells = [_in_decimals(value, 0) for value in values]
        elif name == "r_hat":
            cells = [_in_decimals(value, 3) for value in values]
        else:
            cells = [_round(value, error) for value, error in zip(values, errors, strict=True)]
        columns.append(cells)
    return columns


def duration(seconds: float) -> str:
    """Seconds in the unit that suits them."""
    for unit, size, least in _UNITS:
        if seconds >= least:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def _typical_errors(frame: pandas.DataFrame) -> list[float]:
    """For every row the median standard error of its variable, so that theta[0], theta[1], ... look alike."""
    variables = [str(name).partition("[")[0] for name in frame.index]
    errors: dict[str, list[float]] = {}
    for variable, error in zip(variables, frame["mcse_mean"], strict=True):
        if math.isfinite(error):
            errors.setdefault(variable, []).append(float(error))
    medians = {variable: median(found) for variable, found in errors.items()}
    return [medians.get(variable, 0.0) for variable in variables]


def _round(value: float, error: float) -> str:
    if not (math.isfinite(value) and error > 0.0):
        return f"{value:.4g}"
    decimals = max(0, 1 - math.floor(math.log10(error)))
    if abs(value) >= _PLAIN or decimals > _DECIMALS:
        return f"{value:.4g}"
    return _in_decimals(value, decimals)


def _in_decimals(value: float, decimals: int) -> str:
    text = f"{value:.{decimals}f}"
    return text.lstrip("-") if not text.strip("-0.") else text  # no minus sign before a zero


def _on_the_point(cells: list[str]) -> list[str]:
    """Cells padded on the right so that their decimal points stand below each other."""
    after = [len(cell) - cell.find(".") if "." in cell else 0 for cell in cells]
    return [cell + " " * (max(after) - own) for cell, own in zip(cells, after, strict=True)]
