"""The draws of a result as a table: a row for each draw, a column for each number, in CmdStan's order."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray

from ... import check
from ...errors import ArgumentError
from ..container import Groups, json_attribute, without_draws
from ..labels import SAMPLE_DIMS

LP = "lp__"  # what Stan calls the log density
# With what Stan draws, in this order.
_GROUPS = ("posterior", "log_likelihood", "posterior_predictive", "predictions")
_NUMBERS = "biufc"  # kinds of arrays
_CHUNK_VALUES = 2**22  # of a table that are in memory at a time, 32 MiB: more than a block of a store has
_PARTS = (".real", ".imag")
_TUPLE = re.compile(r"\w+(\.\d+)*(:\d+(\.\d+)*)+")  # a member of a tuple, `t.1:2`


class QuantityDraws(NamedTuple):
    """A variable of the program with its draws, which may not be in memory."""

    name: str
    values: xarray.Variable
    has_parts: bool  # whether it is complex: its last axis has the real and the imaginary part, or its type

    @property
    def stan_names(self) -> list[str]:
        """`theta.1.2`, as in CmdStan's files: the first index changes fastest."""
        shape = [n for dim, n in self.values.sizes.items() if dim not in SAMPLE_DIMS]
        if self.has_parts and self.values.dtype.kind != "c":
            del shape[-1]
        places = ["".join(f".{i + 1}" for i in index[::-1]) for index in np.ndindex(*shape[::-1])]
        parts = _PARTS if self.has_parts else ("",)
        return [f"{self.name}{place}{part}" for place in places for part in parts]

    @property
    def long_names(self) -> list[str]:
        """`theta[1,2]`, as in R and in CmdStanPy."""
        base = _with_brackets(self.name) if _TUPLE.fullmatch(self.name) else self.name
        places = [name.removeprefix(self.name) for name in self.stan_names]
        return [f"{base}{_with_brackets(place)}" for place in places]

    def rows(self, chain: int, draws: slice) -> np.ndarray:
        """Some draws of a chain, given by its place, as rows of its columns."""
        values = self.values.isel(chain=chain, draw=draws).transpose("draw", ...).values
        if values.dtype.kind == "c":
            values = np.stack([values.real, values.imag], axis=-1)
        first = values.ndim - 1 if self.has_parts else values.ndim  # the parts of a number stay together
        axes = (0, *range(first - 1, 0, -1), *range(first, values.ndim))
        return np.asarray(values.transpose(axes).reshape(len(values), -1), dtype=float)


class ColumnTable:
    """Some of a result's quantities, and statistics of its iterations, by chain and draw."""

    def __init__(
        self, quantities: Sequence[QuantityDraws], stats: Mapping[str, xarray.Variable], chains: list[int]
    ):
        self.quantities, self.stats, self.chains = list(quantities), dict(stats), chains
        self.draws = self.quantities[0].values.sizes["draw"]

    def names(self, *, stan: bool) -> list[str]:
        """Names of the columns, as in CmdStan's files or as in R.

        Raises
        ------
        ArgumentError
            Two columns would have the same name.
        """
        names = [*self.stats]
        for each in self.quantities:
            names += each.stan_names if stan else each.long_names
        if len(set(names)) < len(names):
            twice = Counter(names).most_common(1)[0][0]
            raise ArgumentError(f"idata has two columns named {twice}: leave a variable out with var_names")
        return names

    def chunks(self, place: int) -> Iterator[np.ndarray]:
        """The rows (n, width) of the chain at a place, some at a time."""
        step = max(1, _CHUNK_VALUES // len(self.names(stan=True)))
        for first in range(0, self.draws, step):
            draws = slice(first, min(self.draws, first + step))
            parts = [
                column.isel(chain=place, draw=draws).values.astype(float)[:, None]
                for column in self.stats.values()
            ]
            parts += [each.rows(place, draws) for each in self.quantities]
            yield np.concatenate(parts, axis=1)

    def blocks(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Some rows at a time of all chains: chain, iteration and draw (n, 3), and values (n, width).

        All three count from 1, as in R; draws go on from one chain to the next.
        """
        for place, chain in enumerate(self.chains):
            first = 1
            for rows in self.chunks(place):
                iterations = np.arange(first, first + len(rows))
                draws = place * self.draws + iterations
                yield np.stack([np.full(len(rows), chain), iterations, draws], axis=1), rows
                first += len(rows)


def chain_numbers(posterior: xarray.Dataset) -> list[int]:
    """The numbers of the chains, which count from 1; a run that was stopped may lack some of them."""
    numbers = posterior["chain"].values
    if numbers.dtype.kind not in "iu" or len(set(numbers.tolist())) < len(numbers) or numbers.min() < 0:
        numbers = np.arange(len(numbers))
    return [int(number) + 1 for number in numbers]


def names_of(var_names: Any) -> list[str] | None:
    """The names of variables that a user gives: one, a list of them, or None for all."""
    if var_names is None:
        return None
    given = [var_names] if isinstance(var_names, str) else var_names
    if not isinstance(given, Sequence) or not given:
        raise check.refusal("var_names", var_names, "a list of variables")
    return list(given)


def quantities(
    groups: Groups, attrs: Mapping[str, Any], var_names: Sequence[str] | None
) -> list[QuantityDraws]:
    """What Stan has drawn, under the names of the program: the posterior, likelihoods and predictions.

    Without `var_names` it has all variables that are numbers.

    Raises
    ------
    ArgumentError
        There is no variable, or none with the name; or it holds no numbers by chain and draw.
    """
    posterior = groups.get("posterior", xarray.Dataset())
    parted = set(json_attribute(attrs, "complex", []))
    sizes = {dim: posterior.sizes.get(dim, 0) for dim in SAMPLE_DIMS}
    held = [(group, str(own)) for group in _GROUPS if group in groups for own in groups[group].data_vars]
    names = [_program_name(attrs, group, own) for group, own in held]
    often = Counter(names)
    found: dict[str, xarray.Variable] = {}
    for (group, own), name in zip(held, names, strict=True):
        is_shared = often[name] > 1 and group != _GROUPS[0]  # as PyMC names all that is of an observation
        found[f"{group}_{name}" if is_shared else name] = groups[group].variables[own]
    usable = {name: values for name, values in found.items() if _is_drawn(values, sizes)}
    if not all(sizes.values()) or not usable:
        raise without_draws(groups)
    if var_names is None:
        chosen = list(usable)
    else:
        chosen = list(dict.fromkeys(check.choice("var_names", name, found) for name in var_names))
        for name in chosen:
            if name not in usable:
                raise ArgumentError(f"var_names: {name} has no numbers by chain and draw")
    return [QuantityDraws(name, usable[name], _is_complex(name, usable[name], parted)) for name in chosen]


def _program_name(attrs: Mapping[str, Any], group: str, own: str) -> str:
    """The program's name for a variable of a group; PyMC's `group:name` without the colon."""
    names = json_attribute(attrs, "quantities", {}).get(group)
    name = str(names.get(own, own)) if isinstance(names, dict) else own
    return f"{group}_{own}" if name == f"{group}:{own}" else name


def _is_drawn(values: xarray.Variable, sizes: Mapping[str, int]) -> bool:
    numbers = values.dtype.kind in _NUMBERS
    return numbers and all(values.sizes.get(dim) == n for dim, n in sizes.items()) and values.size > 0


def _is_complex(name: str, values: xarray.Variable, parted: set[str]) -> bool:
    return values.dtype.kind == "c" or (name in parted and values.shape[-1] == len(_PARTS))


def _with_brackets(name: str) -> str:
    """`theta.1.2` as `theta[1,2]`, and `t.1:2` as `t[1].2`, as CmdStanPy has it."""
    parts = []
    for part in name.split(":"):
        base, *indices = part.split(".")
        parts.append(f"{base}[{','.join(indices)}]" if indices else base)
    return ".".join(parts)
