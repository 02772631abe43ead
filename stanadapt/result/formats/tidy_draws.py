"""Draws as a data frame: a row for each draw, a column for each number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray

from ... import check
from ...errors import ArgumentError
from ..container import Groups, attributes, datasets
from ..labels import SAMPLE_DIMS
from .columns import LP, ColumnTable, chain_numbers, names_of, quantities
from .stancsv import STAN_COLUMNS

if TYPE_CHECKING:
    import pandas

    from ..container import InferenceData

_INDEX = ("chain", "iteration", "draw")
_WARMUP = "warmup"  # the column that tells the iterations of warm-up
_STAN_NAMES = {own: name for name, own in STAN_COLUMNS.items()}


def draws_frame(
    idata: InferenceData,
    var_names: str | Sequence[str] | None = None,
    *,
    warmup: bool = False,
    sample_stats: bool = False,
) -> pandas.DataFrame:
    """Draws as a pandas DataFrame: a row for each draw, a column for each number, named as in Stan.

    Polars and Arrow take the frame as it is, by pandas' own interchange: `polars.DataFrame(frame)`,
    `pyarrow.table(frame)`; for both, pyarrow must be installed.

    Parameters
    ----------
    idata
        A result of `stanadapt.sample`, or anything with a posterior in ArviZ's schema.
    var_names
        A variable or a list of variables, by default all that are numbers: those of the posterior, of
        log_likelihood and of posterior_predictive, under the names of the program.
    warmup
        Whether the iterations of warm-up, which `save_warmup=True` keeps, come before the draws of each
        chain. The column `warmup` tells them. A quantity that was moved to another group, such as a log
        likelihood, is not kept in warm-up.
    sample_stats
        Whether the statistics of each draw come too, under the names that Stan has for them
        (`accept_stat__`, `divergent__`, ...), otherwise under those of the group `sample_stats`.

    Returns
    -------
    pandas.DataFrame
        The columns `chain`, `iteration` and `draw`, which count from 1 as in R and in what `export` writes;
        without `var_names` also `lp__`, the log density, where it is known; then `theta[1]`, `Sigma[2,1]` and
        so on, the first index changing fastest, float64. The draws are copied once, into one array.

    Raises
    ------
    ArgumentError
        There are no draws or no warm-up, a variable is unknown, or two columns would have the same name.

    Examples
    --------
    >>> frame = stanadapt.draws_frame(idata)
    >>> stanadapt.draws_frame(idata, ["mu", "theta"]).groupby("chain").mean()
    """
    import pandas

    warmup, sample_stats = check.boolean("warmup", warmup), check.boolean("sample_stats", sample_stats)
    groups, attrs, names = datasets(idata), attributes(idata), names_of(var_names)
    tables = _tables(groups, attrs, names, warmup)
    stats = _statistics(groups, warmup, every=sample_stats, with_lp=sample_stats or names is None)
    columns = tables[-1].names(stan=False)
    lengths = [table.draws for table in tables]
    chains, n = tables[-1].chains, sum(lengths)
    # A frame of one array keeps its columns as rows: this layout is taken over without a copy.
    values = np.empty((len(columns), len(chains) * n))
    first = 0
    for table in tables:
        for index, rows in table.blocks():
            place = (chains.index(int(index[0, 0])) * n) + first + int(index[0, 1]) - 1
            values[:, place : place + len(rows)] = rows.T
        first += table.draws
    heads: dict[str, np.ndarray] = {
        "chain": np.repeat(np.array(chains, np.int64), n),
        "iteration": np.tile(np.arange(1, n + 1), len(chains)),
        "draw": np.arange(1, len(chains) * n + 1),
    }
    if warmup:
        heads[_WARMUP] = np.tile(np.arange(n) < lengths[0], len(chains))
    twice = next((name for name in (*heads, *stats) if name in columns), None)
    if twice is not None:
        raise ArgumentError(
            f"idata has a variable {twice}, which is the name of another column: leave it out"
        )
    frame = pandas.DataFrame(values.T, columns=columns, copy=False)
    for i, (name, column) in enumerate((heads | stats).items()):
        frame.insert(i, name, column)
    return frame


def _tables(
    groups: Groups, attrs: Mapping[str, Any], names: Sequence[str] | None, warmup: bool
) -> list[ColumnTable]:
    """The draws, after those of warm-up where these are wanted; with the same columns."""
    chosen = quantities(groups, attrs, names)
    chains = chain_numbers(groups["posterior"])
    if not warmup:
        return [ColumnTable(chosen, {}, chains)]
    group = groups.get("warmup_posterior")
    if group is None or not all(group.sizes.get(dim, 0) for dim in SAMPLE_DIMS):
        raise ArgumentError(
            "warmup=True is not allowed: idata has no iterations of warm-up; draw with save_warmup=True"
        )
    if chain_numbers(group) != chains:
        raise ArgumentError("warmup=True is not allowed: idata has the warm-up of other chains")
    begun = {each.name: each for each in quantities({"posterior": group}, attrs, None)}
    if names is not None and (missing := [each.name for each in chosen if each.name not in begun]):
        raise ArgumentError(f"var_names: {missing[0]} is not kept in warm-up")
    chosen = [each for each in chosen if each.name in begun]
    tables = [
        ColumnTable([begun[each.name] for each in chosen], {}, chains),
        ColumnTable(chosen, {}, chains),
    ]
    if tables[0].names(stan=False) != tables[1].names(stan=False):
        raise ArgumentError("warmup=True is not allowed: idata has warm-up of other variables or shapes")
    return tables


def _statistics(groups: Groups, warmup: bool, *, every: bool, with_lp: bool) -> dict[str, np.ndarray]:
    """Columns of the statistics of draws by name, of their own types; `lp__` comes first."""
    held = [groups.get("sample_stats", xarray.Dataset())]
    if warmup:
        held.insert(0, groups.get("warmup_sample_stats", xarray.Dataset()))
    common = [name for name in held[-1].data_vars if all(_is_statistic(group, name) for group in held)]
    named = {_stan_name(str(name), common): name for name in common}
    order = [LP, *(name for name in named if name != LP)] if every else [LP]
    return {
        name: np.concatenate(
            [group.variables[named[name]].transpose(*SAMPLE_DIMS).values for group in held], axis=1
        ).reshape(-1)
        for name in order
        if name in named and (with_lp or name != LP)
    }


def _is_statistic(group: xarray.Dataset, name: Any) -> bool:
    values = group.variables.get(name)
    return values is not None and set(values.dims) == set(SAMPLE_DIMS) and values.dtype.kind in "biuf"


def _stan_name(own: str, names: Sequence[Any]) -> str:
    """Stan's name for a statistic; an evaluation of a method without trajectories is no leapfrog step."""
    if own == "n_steps" and "diverging" not in names:
        return own
    return _STAN_NAMES.get(own, own)
