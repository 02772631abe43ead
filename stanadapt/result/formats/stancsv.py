"""The text around the draws in CmdStan's CSV files: names of columns, settings, learnt values of a chain.

A file holds the facts that are true of its method, under CmdStan's keys where CmdStan has them. So a method
without trees has no column treedepth__: zeros there would claim that no tree was cut short. CmdStanPy,
CmdStanR and RStan read files with some of Stan's seven columns as well. CmdStanPy counts divergences and
trees only where all seven are there; in other files its `divergences` are zeros, and `method_variables()`
has the column.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import xarray

from ... import samplers
from ...errors import ArgumentError
from ..container import json_attribute
from ..labels import SAMPLE_DIMS
from .columns import LP, ColumnTable

# Stan's columns in its order, with the schema's names.
STAN_COLUMNS = {
    LP: "lp",
    "accept_stat__": "acceptance_rate",
    "stepsize__": "step_size",
    "treedepth__": "tree_depth",
    "n_leapfrog__": "n_steps",
    "divergent__": "diverging",
    "energy__": "energy",
}
_NAME = re.compile(r"[^\W\d]\w*(\.\d+)*(:\d+(\.\d+)*)*")
_FORMAT = ("2", "36", "0")
# Of methods that are Stan's own: what Stan calls them.
_ALGORITHMS = {"nuts": ("hmc", "nuts"), "hmc": ("hmc", "static")}


def own_method(config: Mapping[str, Any]) -> str:
    """The method that the comments of a file name: NUTS, where they name none that is known here."""
    named = (str(config.get("algorithm", "")), str(config.get("engine", "")))
    found = next((method for method, words in _ALGORITHMS.items() if words == named), named[0])
    return found if found in samplers.METHODS else "nuts"


def stan_columns(stats: xarray.Dataset) -> dict[str, xarray.Variable]:
    """The statistics of iterations that are there, under Stan's names.

    Raises
    ------
    ArgumentError
        There is no log density, with which all of CmdStan's files begin.
    """
    found = {
        name: stats.variables[own]
        for name, own in STAN_COLUMNS.items()
        if own in stats.data_vars and set(stats.variables[own].dims) == set(SAMPLE_DIMS)
    }
    if LP not in found:
        raise ArgumentError(
            "idata has no log density of each draw (lp in the group sample_stats), with which a Stan CSV "
            "file begins: use the format csv or parquet"
        )
    if "divergent__" not in found:  # one evaluation of a method without trajectories is no leapfrog step
        found.pop("n_leapfrog__", None)
    return found


def check_names(table: ColumnTable) -> None:
    """Refuse variables that a Stan program cannot have, whose names readers would take apart."""
    for each in table.quantities:
        if not _NAME.fullmatch(each.name) or each.name.endswith("__"):
            raise ArgumentError(
                f"var_names: {each.name!r} is no name of a variable in a Stan program, and a Stan CSV file "
                "cannot hold it: leave it out, or use the format csv or parquet"
            )


def head(
    attrs: Mapping[str, Any], table: ColumnTable, adaptation: xarray.Dataset, place: int, file: str
) -> list[str]:
    """The comments before the names of the columns, for the chain at a place."""
    method, settings = str(attrs.get("method", "unknown")), json_attribute(attrs, "settings", {})
    thin = int(attrs.get("thin", 1))
    facts: list[tuple[int, str, Any]] = [(0, key, value) for key, value in _version(attrs).items()]
    facts += [
        (0, "model", f"model_{attrs['model_hash']}" if attrs.get("model_hash") else "model"),
        (0, "method", "sample (Default)"),
        (1, "num_samples", table.draws * thin),
        (1, "num_warmup", max(1, int(attrs.get("tuning_steps", 0)))),  # CmdStanPy reads no file that has 0
        (1, "save_warmup", 0),  # a number: RStan does not know false
        (1, "thin", thin),
    ]
    if isinstance(settings.get("target_accept"), float):
        facts.append((1, "delta", settings["target_accept"]))
    algorithm, engine = _ALGORITHMS.get(method, (method, ""))
    facts.append((1, "algorithm", algorithm))
    if engine:
        facts.append((2, "engine", engine))
    if isinstance(settings.get("max_tree_depth"), int):
        facts.append((2, "max_depth", settings["max_tree_depth"]))
    if kind := metric_kind(method, adaptation):
        facts.append((2, "metric", kind))
    facts.append((0, "id", table.chains[place]))
    if "seed" in attrs:
        facts.append((0, "seed", attrs["seed"]))
    facts.append((0, "file", file))
    library = f"{attrs.get('inference_library', 'unknown')} {attrs.get('inference_library_version', '')}"
    facts += [(0, "inference_library", library.strip()), (0, "backend", attrs.get("backend", "unknown"))]
    return [f"# {'  ' * depth}{key} = {_one_line(value)}" for depth, key, value in facts]


def lessons(attrs: Mapping[str, Any], adaptation: xarray.Dataset, place: int) -> list[str]:
    """The chain's learnt values, as comments between the names of the columns and the draws.

    Only Hamiltonian methods write the inverse mass matrix, and only in the program's own coordinates.
    """
    if "final_step_size" not in adaptation:
        return []
    lines = [
        "# Adaptation terminated",
        f"# Step size = {float(adaptation['final_step_size'].values[place])!r}",
    ]
    kind = metric_kind(str(attrs.get("method", "")), adaptation)
    if kind == "dense_e":
        rows = adaptation["preconditioner"].values[place]
        return [*lines, "# Elements of inverse mass matrix:", *map(_row, rows)]
    if kind == "diag_e":
        row = adaptation["preconditioner_diagonal"].values[place]
        return [*lines, "# Diagonal elements of inverse mass matrix:", _row(row)]
    return lines


def metric_kind(method: str, adaptation: xarray.Dataset) -> str:
    """What CmdStan calls the form of the metric; empty where it has no such thing."""
    if method == "hmc":
        return "unit_e"
    if method not in ("nuts", "fisher_hmc") or "transport" in adaptation:
        return ""
    if "preconditioner" in adaptation:
        return "dense_e"
    return "diag_e" if "preconditioner_diagonal" in adaptation else ""


def tail(adaptation: xarray.Dataset, place: int) -> Iterator[str]:
    """The comments after the draws: the times, where they are known."""
    yield "# "
    known = [name for name in ("seconds_warmup", "seconds") if name in adaptation]
    if len(known) == 2:
        times = [float(adaptation[name].values[place]) for name in known]
        words = zip((*times, sum(times)), ("Warm-up", "Sampling", "Total"), strict=True)
        for begin, (seconds, word) in zip(("  Elapsed Time: ", " " * 16, " " * 16), words, strict=True):
            yield f"#{begin}{seconds:.6f} seconds ({word})"
    yield "# "


def _row(values: np.ndarray) -> str:
    return "# " + ", ".join(map(repr, values.tolist()))


def _version(attrs: Mapping[str, Any]) -> dict[str, str]:
    """The version of CmdStan that has run, or else that whose format this is: CmdStanPy asks for one."""
    found = re.fullmatch(r"CmdStan (\d+)\.(\d+)\.(\d+)", str(attrs.get("backend", "")))
    parts = found.groups() if found else _FORMAT
    return {
        f"stan_version_{name}": part for name, part in zip(("major", "minor", "patch"), parts, strict=True)
    }


def _one_line(value: Any) -> str:
    return " ".join(str(value).split())
