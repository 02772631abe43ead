"""Read references: draws or moments of a posterior that come from elsewhere."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray

from .. import check
from ..diagnostics.convergence import FEWEST
from ..diagnostics.estimates import QUANTILES, STATISTICS, Estimates
from ..diagnostics.statistics import each_column
from ..errors import ArgumentError
from ..result.container import datasets
from ..result.files import read
from ..result.labels import SAMPLE_DIMS
from .measures import SAMPLE
from .quantities import Quantities

_ALLOWED = (
    "an InferenceData; a dict of means and sds by variable, such as {'mu': {'mean': 0.0, 'sd': 1.0}}; a "
    "DataFrame with a column for each scalar, named theta[1] or theta.1 as Stan has it; a list of one dict "
    "of such columns for each chain, as PosteriorDB has it; or the path of such a file (.nc, .json, .zip, "
    ".csv)"
)
_MOMENTS = {"mean", "sd", "mcse_mean", "mcse_sd", *QUANTILES}
_CHAIN_COLUMNS = ("chain", ".chain", "chain__")


class Reference(NamedTuple):
    """Known estimates of the k scalars of a comparison; NaN for those that are unknown."""

    estimates: Estimates
    sample: np.ndarray | None  # (m, k) every n-th draw; None for moments, or if some draws are not finite


def read_reference(given: Any, quantities: Quantities) -> Reference:
    """Read the argument `reference`.

    Raises
    ------
    ArgumentError
        The reference is not allowed, its file cannot be read, its shapes are wrong, it has too few draws, or
        it has none of the scalars of the comparison.
    OutputError
        The file is a netCDF file that cannot be read.
    """
    if isinstance(given, str | os.PathLike):
        given = _open(Path(given))
    if isinstance(given, Mapping) and isinstance(given.get("moments"), Mapping):
        given = given["moments"]
    if not _is_result(given) and _is_moments(given):
        return Reference(_read_moments(given, quantities), None)
    draws = quantities.gather(_read_draws(given, quantities))
    if draws.shape[1] < FEWEST:
        raise ArgumentError(f"reference has {draws.shape[1]} draws a chain: at least {FEWEST} are needed")
    estimates = each_column(Estimates.of, [draws])
    flat = draws.reshape(-1, draws.shape[2])
    is_whole = bool(np.isfinite(flat).all())
    return Reference(estimates, flat[:: -(-len(flat) // SAMPLE)].copy() if is_whole else None)


def _open(path: Path) -> Any:
    """Read a file as one of the allowed references."""
    if not path.is_file():
        raise ArgumentError(f"reference={str(path)!r} is not allowed: there is no such file")
    kind = path.suffix.lower()
    try:
        if kind == ".json":
            return json.loads(path.read_text("utf-8"))
        if kind == ".zip":
            with zipfile.ZipFile(path) as archive:
                return json.loads(archive.read(archive.namelist()[0]))
        if kind == ".csv":
            import pandas

            return pandas.read_csv(path, comment="#")
    except (ValueError, OSError, zipfile.BadZipFile, IndexError) as error:
        raise ArgumentError(f"reference={str(path)!r} cannot be read: {check.one_line(error)}") from error
    return read(path)


def _is_result(given: Any) -> bool:
    """Return whether `given` is a result or a dataset; dicts of moments are not, but ArviZ's mappings are."""
    holds_groups = hasattr(given, "children") or callable(getattr(given, "groups", None))
    return isinstance(given, xarray.Dataset) or holds_groups


def _is_moments(given: Any) -> bool:
    if not isinstance(given, Mapping) or not given:
        return False
    return all(isinstance(value, Mapping) and set(value) & _MOMENTS for value in given.values())


def _read_moments(given: Mapping[str, Mapping[str, Any]], quantities: Quantities) -> Estimates:
    """Read moments by variable or scalar; a moment without a standard error is taken as exact."""
    columns: dict[str, dict[str, np.ndarray]] = {}
    for name, moments in given.items():
        for moment, values in moments.items():
            check.choice(f"a moment of reference[{name!r}]", moment, sorted(_MOMENTS))
            arrays = columns.setdefault(moment, {})
            _put(arrays, name, values, quantities, f"reference[{name!r}][{moment!r}]")
    if not any(columns.values()):
        raise _nothing(given, quantities)
    gathered = {moment: quantities.gather(arrays) for moment, arrays in columns.items() if arrays}
    unknown = np.full(len(quantities), np.nan)
    value = np.stack([gathered.get(name, unknown) for name in STATISTICS], axis=1)
    error = np.stack([np.nan_to_num(gathered.get(f"mcse_{name}", unknown)) for name in STATISTICS], axis=1)
    known = np.isfinite(value)
    infinite = np.where(known, np.inf, 0.0)
    return Estimates(value, np.where(known, error, np.nan), infinite, np.full(value.shape, np.inf))


def _put(
    arrays: dict[str, np.ndarray], name: str, values: Any, quantities: Quantities, what: str, head: int = 0
) -> None:
    """Put the values of a variable or of one scalar into the arrays by variable; ignore other names.

    `head` is the number of dimensions before those of the variable: 1 for draws, 0 for moments.
    """
    try:
        array = np.asarray(values, dtype=float)
    except (TypeError, ValueError) as error:
        raise check.refusal(what, values, "numbers") from error
    if name in quantities.shapes:
        shape = quantities.shapes[name]
        if array.shape[head:] != shape or array.ndim < head:
            raise ArgumentError(f"{what} has the shape {array.shape[head:]}, and {name} has {shape}")
        arrays[name] = array
        return
    place = quantities.place(name)
    if place is None:
        return
    if array.ndim != head:
        raise ArgumentError(f"{what} has the shape {array.shape}, and is one scalar")
    base, index = place
    whole = arrays.setdefault(base, np.full((*array.shape, *quantities.shapes[base]), np.nan))
    here: Any = (..., *index)
    whole[here] = array


def _read_draws(given: Any, quantities: Quantities) -> dict[str, np.ndarray]:
    """Read draws (chain, draw, *shape) by variable."""
    chains: list[Mapping[str, Any]]
    if _is_result(given):
        return _draws_of_result(given, quantities)
    if hasattr(given, "columns"):
        chains = _chains_of_frame(given)
    elif isinstance(given, Mapping) and given and all(isinstance(name, str) for name in given):
        chains = [given]
    elif isinstance(given, Sequence) and given and all(isinstance(each, Mapping) for each in given):
        chains = list(given)
    else:
        raise check.refusal("reference", given, _ALLOWED)
    parts: list[dict[str, np.ndarray]] = []
    for i, chain in enumerate(chains):
        arrays: dict[str, np.ndarray] = {}
        for name, values in chain.items():
            if name in quantities.shapes or quantities.place(str(name)) is not None:
                _put(arrays, name, values, quantities, f"reference[{name!r}] of chain {i}", head=1)
        parts.append(arrays)
    names = set.intersection(*map(set, parts))
    lengths = {len(array) for arrays in parts for array in arrays.values()}
    if not names:
        raise _nothing(chains[0], quantities)
    if len(lengths) > 1:
        raise ArgumentError(f"reference has columns of different lengths: {sorted(lengths)}")
    return {name: np.stack([arrays[name] for arrays in parts]) for name in names}


def _chains_of_frame(frame: Any) -> list[Mapping[str, Any]]:
    """Divide the columns of a DataFrame by its column of chains, and cut chains to the shortest one."""
    names = [name for name in _CHAIN_COLUMNS if name in frame.columns]
    parts = [part for _, part in frame.groupby(names[0], sort=True)] if names else [frame]
    n = min(map(len, parts))
    return [{str(name): part[name].to_numpy()[:n] for name in part.columns} for part in parts]


def _draws_of_result(given: Any, quantities: Quantities) -> dict[str, np.ndarray]:
    """Read the posterior of a result, or a dataset of draws."""
    try:
        posterior = given if isinstance(given, xarray.Dataset) else datasets(given)["posterior"]
        present = [name for name in quantities.names if name in posterior.data_vars]
        arrays = {name: posterior[name].transpose(*SAMPLE_DIMS, ...).values for name in present}
    except (ArgumentError, KeyError, ValueError, TypeError, AttributeError):
        raise check.refusal("reference", given, _ALLOWED) from None
    if not arrays:
        raise _nothing({str(name): 0 for name in posterior.data_vars}, quantities)
    for name, array in arrays.items():
        if array.shape[2:] != quantities.shapes[name]:
            shape = quantities.shapes[name]
            raise ArgumentError(f"reference: its {name} has the shape {array.shape[2:]}, not {shape}")
    return arrays


def _nothing(given: Mapping[Any, Any], quantities: Quantities) -> ArgumentError:
    """Make the error for a reference that has none of the scalars of the comparison."""
    return ArgumentError(
        f"reference has nothing of {', '.join(quantities.names[:5])}, which are compared; it has "
        f"{', '.join(check.quote(str(name)) for name in list(given)[:5])}"
    )
