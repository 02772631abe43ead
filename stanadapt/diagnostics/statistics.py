"""Statistics of draws, for every scalar of a posterior at once."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import xarray

from .. import check
from ..errors import ArgumentError
from ..numerics.blas import one_thread
from ..result.container import datasets, json_attribute, without_draws
from ..result.labels import SAMPLE_DIMS
from ..run.progress import tell

if TYPE_CHECKING:
    from ..result.container import InferenceData

_BLOCK = 1 << 15  # draws of scalars at a time, which a core's own cache holds
_TILE = 32  # scalars that lie side by side in memory and are copied together
_SILENT_SECONDS = 2.0  # without a word, when progress is to be shown
_NUMBERS = "biuf"  # kinds of arrays
_MOST_DRAWS = 1 << 23  # of scalars, that findings are about without being asked to: a second's work

Statistics = TypeVar("Statistics", bound=tuple[np.ndarray, ...])


def select(idata: InferenceData, var_names: list[str] | None) -> xarray.Dataset:
    """The variables of the posterior that are draws of numbers: all of them, or those that are named.

    Raises
    ------
    ArgumentError
        There is no draw of a number at all; or a variable that is named is unknown, or none of numbers by
        chain and draw.
    """
    groups = datasets(idata)
    if "posterior" not in groups or not groups["posterior"].data_vars:
        raise without_draws(groups)
    posterior = groups["posterior"]
    usable = [name for name in posterior.data_vars if not _obstacle(posterior.variables[name])]
    if var_names is None:
        if not usable:
            name, values = next(iter(variables(posterior).items()))
            raise ArgumentError(
                f"idata has no draws: in its posterior {name} {_obstacle(values)}; numbers with the "
                "dimensions chain and draw are needed"
            )
        return posterior if len(usable) == len(posterior.data_vars) else posterior[usable]
    wanted = check.names("var_names", var_names, "variables")
    for name in wanted:
        if not isinstance(name, str) or name not in posterior.data_vars:
            known = ", ".join(str(name) for name in posterior.data_vars)
            raise ArgumentError(f"var_names: {check.quote(name)} is not in the posterior, which has {known}")
        if obstacle := _obstacle(posterior.variables[name]):
            raise ArgumentError(f"var_names: {name} {obstacle}")
    chosen: xarray.Dataset = posterior[wanted]
    return chosen


def usual_names(idata: InferenceData) -> list[str] | None:
    """The variables that findings are about where nobody has chosen any: None for all of the posterior group.

    A result whose draws are more than `_MOST_DRAWS` may have most of them on the disk. Of a result of ours
    only the program's parameters are looked at then: all others are computed from them.
    """
    posterior = datasets(idata).get("posterior")
    if posterior is None or sum(values.size for values in variables(posterior).values()) <= _MOST_DRAWS:
        return None
    names = json_attribute(posterior.attrs, "parameters", [])
    return names if names and all(name in posterior.data_vars for name in names) else None


def _obstacle(values: xarray.Variable) -> str:
    """Why a variable does not hold draws of numbers; empty when it does."""
    missing = [dim for dim in SAMPLE_DIMS if dim not in values.dims]
    if missing:
        return f"has no dimension {' and '.join(missing)}, only ({', '.join(map(str, values.dims))})"
    if values.dtype.kind not in _NUMBERS:
        return f"has no numbers but {values.dtype}"
    return "" if values.size or not values.sizes["draw"] else "has no values"


def variables(posterior: xarray.Dataset) -> dict[str, xarray.Variable]:
    """The variables without their coordinates, which xarray would attach to every one in a millisecond."""
    return {str(name): posterior.variables[name] for name in posterior.data_vars}


def row_names(posterior: xarray.Dataset) -> list[str]:
    """`theta[0]`, by the coordinates of theta's own dimensions."""
    names = []
    for name, values in variables(posterior).items():
        own = _own_dims(values)
        labels = [
            posterior.variables[dim].values if dim in posterior.variables else np.arange(values.sizes[dim])
            for dim in own
        ]
        for index in np.ndindex(*[values.sizes[dim] for dim in own]):
            shown = ", ".join(str(label[i]) for label, i in zip(labels, index, strict=True))
            names.append(f"{name}[{shown}]" if own else name)
    return names


def rows_of(posterior: xarray.Dataset, rows: Sequence[int]) -> np.ndarray:
    """The draws (k, chain, draw) of some of the scalars, by their places among all of them."""
    held = variables(posterior)
    ends = np.cumsum([math.prod(values.sizes[dim] for dim in _own_dims(values)) for values in held.values()])
    found = []
    for row in rows:
        place = int(np.searchsorted(ends, row, side="right"))
        values = list(held.values())[place]
        first = int(ends[place - 1]) if place else 0
        own = _own_dims(values)
        index = np.unravel_index(row - first, [values.sizes[dim] for dim in own]) if own else ()
        one = values.isel(dict(zip(own, map(int, index), strict=True)))
        found.append(one.transpose(*SAMPLE_DIMS).values)
    return np.array(found)


def _own_dims(values: xarray.Variable) -> list[Any]:
    """The dimensions of a variable's own."""
    return [dim for dim in values.dims if dim not in SAMPLE_DIMS]


def column(stats: xarray.Dataset, name: str, combine: Callable[..., Any]) -> np.ndarray | None:
    """A statistic of iterations (chain, draw); None where there is none.

    `combine` reduces dimensions of its own, which it has in PyMC where several samplers have drawn.
    """
    if name not in stats.data_vars or _obstacle(stats.variables[name]) or not stats.variables[name].size:
        return None
    values = stats.variables[name].transpose(*SAMPLE_DIMS, ...).values
    own = int(np.prod(values.shape[2:]))
    return np.asarray(combine(values.reshape(*values.shape[:2], own), axis=2))


def each(
    function: Callable[[np.ndarray], Statistics], posterior: xarray.Dataset, *, progress: bool = False
) -> Statistics:
    """Statistics of every scalar, in the order of `row_names`; see `each_column`."""
    arrays = (values.transpose(*SAMPLE_DIMS, ...).values for values in variables(posterior).values())
    flat = [array.reshape(*array.shape[:2], -1) for array in arrays]
    return each_column(function, flat, progress=progress)


def each_column(
    function: Callable[[np.ndarray], Statistics], arrays: Sequence[np.ndarray], *, progress: bool = False
) -> Statistics:
    """Statistics of every column of arrays (chain, draw, column), one array after the other.

    `function` takes draws (k, chain, draw) to a named tuple of arrays whose first axis is k. It sees a block
    of columns at a time, in several threads: copies of all draws might not fit in memory. With `progress`,
    what takes long says on stderr how far it is.
    """

    def of_block(block: list[np.ndarray]) -> Statistics:
        with np.errstate(all="ignore"):  # draws may be infinite, NaN or constant
            return function(_gather(block))

    blocks = list(_blocks(arrays))
    parts: list[Statistics] = []
    told = time.perf_counter()
    pool = ThreadPoolExecutor(check.available_cores(), thread_name_prefix="stanadapt")
    several = len(blocks) > 1
    with one_thread() if several else contextlib.nullcontext():  # of BLAS: the pool's threads take all cores
        try:
            for part in (pool.map if several else map)(of_block, blocks):
                parts.append(part)
                if progress and time.perf_counter() - told >= _SILENT_SECONDS:
                    told = time.perf_counter()
                    tell(f"stanadapt: diagnosing the draws, {len(parts) / len(blocks):.0%} done")
        finally:  # after an exception, be it Ctrl-C, no block begins any more
            pool.shutdown(cancel_futures=True)
    kind: Any = type(parts[0])
    joined: Statistics = kind(*map(np.concatenate, zip(*parts, strict=True)))
    return joined


def _blocks(arrays: Sequence[np.ndarray]) -> Iterator[list[np.ndarray]]:
    """Columns in blocks, each a list of arrays (chain, draw, k)."""
    together = max(1, _BLOCK // max(1, math.prod(arrays[0].shape[:2])))
    block: list[np.ndarray] = []
    room = together
    for array in arrays:
        first = 0
        while first < array.shape[2]:
            piece = array[:, :, first : first + room]
            block.append(piece)
            first, room = first + piece.shape[2], room - piece.shape[2]
            if not room:
                yield block
                block, room = [], together
    if block:
        yield block


def _gather(block: list[np.ndarray]) -> np.ndarray:
    """The scalars of a block as draws (k, chain, draw), each scalar's in one piece of memory."""
    draws = np.empty((sum(piece.shape[2] for piece in block), *block[0].shape[:2]))
    row = 0
    for piece in block:
        for first in range(0, piece.shape[2], _TILE):
            tile = np.ascontiguousarray(piece[:, :, first : first + _TILE])
            draws[row : row + tile.shape[2]] = tile.transpose(2, 0, 1)
            row += tile.shape[2]
    return draws


def e_bfmi(energy: np.ndarray) -> np.ndarray:
    """Mean squared change of the energy over its variance, of every chain (chain, draw); as arviz has it."""
    with np.errstate(all="ignore"):  # one draw, or an energy that never changes or overflows
        return np.asarray(np.square(np.diff(energy, axis=1)).mean(axis=1) / energy.var(axis=1, ddof=1))


def travel(draws: np.ndarray) -> np.ndarray:
    """How far each chain (k, chain) goes from the first quarter of its draws (k, chain, draw) to the last.

    The distance of the quarters' means, in standard deviations of a quarter; 0 where the means do not go one
    way.
    """
    k, chains, n = draws.shape
    quarters = draws[..., : n // 4 * 4].reshape(k, chains, 4, n // 4)
    means = quarters.mean(axis=3)
    moves = np.diff(means, axis=2)
    one_way = np.all(moves > 0.0, axis=2) | np.all(moves < 0.0, axis=2)
    far = np.abs(means[one_way, 3] - means[one_way, 0])
    distance = np.zeros((k, chains))
    distance[one_way] = far / quarters[one_way].std(axis=2).max(axis=1)
    return distance


def longest_wait(accepted: np.ndarray) -> int:
    """The longest run of rejections."""
    moved = np.flatnonzero(np.concatenate(([True], accepted.astype(bool), [True])))
    return int(np.diff(moved).max()) - 1
