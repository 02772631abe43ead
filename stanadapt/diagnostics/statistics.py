"""Statistics of draws, for every scalar of a posterior at once."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray

from .. import check
from ..errors import ArgumentError
from ..result.container import datasets, statistics

if TYPE_CHECKING:
    from ..result.container import InferenceData

FEWEST = 4  # draws a chain that split R-hat needs
_BLOCK = 4_000_000  # draws of scalars at a time


def select(idata: InferenceData, var_names: list[str] | None) -> xarray.Dataset:
    groups = datasets(idata)
    if "posterior" not in groups or not groups["posterior"].data_vars:
        raise ArgumentError("idata has no draws: a result of stanadapt.sample with a posterior is needed")
    posterior = groups["posterior"]
    if var_names is None:
        return posterior
    if isinstance(var_names, str):
        var_names = [var_names]
    if not isinstance(var_names, list | tuple) or not var_names:
        raise check.refused("var_names", var_names, "a list of variables")
    unknown = [name for name in var_names if name not in posterior]
    if unknown:
        known = ", ".join(str(name) for name in posterior.data_vars)
        raise ArgumentError(f"var_names={unknown!r} are not in the posterior, which has {known}")
    chosen: xarray.Dataset = posterior[list(var_names)]
    return chosen


def variables(posterior: xarray.Dataset) -> dict[str, xarray.Variable]:
    """The variables without their coordinates, which xarray would attach to every one in a millisecond."""
    return {str(name): posterior.variables[name] for name in posterior.data_vars}


def row_names(posterior: xarray.Dataset) -> list[str]:
    """`theta[0]`, by the coordinates of theta's own dimensions."""
    names = []
    for name, values in variables(posterior).items():
        own = [dim for dim in values.dims if dim not in ("chain", "draw")]
        labels = [
            posterior.variables[dim].values if dim in posterior.variables else np.arange(values.sizes[dim])
            for dim in own
        ]
        for index in np.ndindex(*[values.sizes[dim] for dim in own]):
            shown = ", ".join(str(label[i]) for label, i in zip(labels, index, strict=True))
            names.append(f"{name}[{shown}]" if own else name)
    return names


def each(function: Callable[[np.ndarray], np.ndarray], posterior: xarray.Dataset) -> np.ndarray:
    """A statistic of every scalar, in the order of `row_names`.

    `function` takes draws (chain, draw, k) to values (k,). It sees `_BLOCK` numbers at a time: arviz takes
    ten times as long when it gets scalars one by one, and copies of all draws might not fit in memory.
    """
    scalars = []
    for values in variables(posterior).values():
        array = values.transpose("chain", "draw", ...).values
        scalars.append(array.reshape(*array.shape[:2], -1))
    places = [(array, i) for array in scalars for i in range(array.shape[2])]
    results = []
    together = max(1, _BLOCK // (posterior.sizes["chain"] * posterior.sizes["draw"]))
    for first in range(0, len(places), together):
        draws = np.stack([array[:, :, i] for array, i in places[first : first + together]], axis=2)
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # one draw has no standard deviation
            results.append(np.asarray(function(draws.astype(float)), dtype=float))
    return np.concatenate(results)


def _by_arviz(draws: np.ndarray, statistic: str, **options: Any) -> np.ndarray:
    """A statistic of arviz's; NaN where there are too few draws for it."""
    if draws.shape[1] < FEWEST:
        return np.full(draws.shape[2], np.nan)
    dataset = xarray.Dataset({"x": (("chain", "draw", "scalar"), draws)})
    return np.asarray(getattr(statistics(), statistic)(dataset, **options)["x"].values)


ess_bulk = functools.partial(_by_arviz, statistic="ess", method="bulk")
ess_tail = functools.partial(_by_arviz, statistic="ess", method="tail")
mcse_mean = functools.partial(_by_arviz, statistic="mcse", method="mean")
r_hat = functools.partial(_by_arviz, statistic="rhat")


def e_bfmi(energy: np.ndarray) -> np.ndarray:
    """Mean squared change of the energy over its variance, of every chain (chain, draw); as arviz has it."""
    with np.errstate(all="ignore"):  # one draw, or an energy that never changes or overflows
        return np.asarray(np.square(np.diff(energy, axis=1)).mean(axis=1) / energy.var(axis=1, ddof=1))


def travel(draws: np.ndarray) -> np.ndarray:
    """Distance of the mean of the last quarter from that of the first, in standard deviations of a quarter.

    It is 0 where the quarters' means do not go one way.
    """
    n = draws.shape[1] // 4
    quarters = draws[0, : 4 * n].reshape(4, n, -1)
    means = quarters.mean(axis=1)
    moves = np.diff(means, axis=0)
    one_way = np.all(moves > 0.0, axis=0) | np.all(moves < 0.0, axis=0)
    return np.where(one_way, np.abs(means[3] - means[0]) / quarters.std(axis=1).max(axis=0), 0.0)


def longest_wait(accepted: np.ndarray) -> int:
    """The longest run of rejections."""
    moved = np.flatnonzero(np.concatenate(([True], accepted.astype(bool), [True])))
    return int(np.diff(moved).max()) - 1
