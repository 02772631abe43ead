"""Read Stan CSV files, one for each chain, as CmdStan and its interfaces write them."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ... import check
from ...errors import ArgumentError
from ..container import container
from .cmdstan_fit import cmdstan_groups
from .stancsv import own_method

if TYPE_CHECKING:
    from ..container import InferenceData

_FACT = re.compile(r"#\s*(\w+)\s*=\s*(.*?)\s*(?:\(Default\)\s*)?$")
# Of methods of CmdStan whose files have draws: how many rows come before them. The variational methods write
# the mean first.
_ROWS_BEFORE = {"sample": 0, "variational": 1, "pathfinder": 0, "laplace": 0}


class _ChainFile(NamedTuple):
    """The contents of the file of a chain."""

    config: dict[str, str]
    header: list[str]
    rows: np.ndarray  # (n, columns) without warm-up


def is_stancsv(given: Any) -> bool:
    """Whether it is the path of a CSV file, or a list of such paths."""
    if isinstance(given, str | os.PathLike):
        return os.fspath(given).endswith(".csv")
    return isinstance(given, list | tuple) and bool(given) and all(map(_is_path, given))


def _is_path(given: Any) -> bool:
    return isinstance(given, str | os.PathLike)


def read_stancsv(given: Any, name: str) -> InferenceData:
    """The draws in Stan CSV files, a chain each, as a result of ours; `name` is that of the argument.

    Raises
    ------
    ArgumentError
        A file cannot be read or has no draws, or the files do not go together.
    """
    paths = [Path(each) for each in (given if isinstance(given, list | tuple) else [given])]
    files = [_read_file(path, name) for path in paths]
    for path, file in zip(paths, files, strict=True):
        if file.header != files[0].header:
            raise ArgumentError(f"{name}: {path} has other columns than {paths[0]}")
        if len(file.rows) != len(files[0].rows):
            raise ArgumentError(
                f"{name}: {path} has {len(file.rows)} draws, and {paths[0]} has {len(files[0].rows)}: chains "
                "must be of one length"
            )
    groups = cmdstan_groups(files[0].header, np.stack([file.rows for file in files]))
    attrs = _attributes(files[0].config)
    for group in groups.values():
        group.attrs.update(attrs)
    return container(groups, attrs)


def _read_file(path: Path, name: str) -> _ChainFile:
    comments: list[str] = []
    lines: list[str] = []
    try:
        with path.open(encoding="utf-8") as file:
            for line in file:
                (comments if line.startswith("#") else lines).append(line.strip())
    except (OSError, ValueError) as error:
        raise ArgumentError(f"{name}: {path} cannot be read: {check.one_line(error)}") from error
    lines = [line for line in lines if line]
    config = {found[1]: found[2] for comment in comments if (found := _FACT.match(comment))}
    method = config.get("method", "sample")
    if method not in _ROWS_BEFORE:
        raise ArgumentError(f"{name}: {path} is of CmdStan's method {method}, whose files have no draws")
    if len(lines) < 2:
        raise ArgumentError(f"{name}: {path} has no draws")
    header = lines[0].split(",")
    rows = _read_rows(lines[1:], path, name)
    if rows.shape[1] != len(header):
        raise ArgumentError(f"{name}: {path} has {len(header)} names of columns and {rows.shape[1]} columns")
    rows = rows[_ROWS_BEFORE[method] + _warmup_rows(config) :]
    if not len(rows):
        raise ArgumentError(f"{name}: {path} has no draws after warm-up")
    return _ChainFile(config, header, rows)


def _read_rows(lines: Sequence[str], path: Path, name: str) -> np.ndarray:
    try:
        return np.loadtxt(lines, delimiter=",", ndmin=2)
    except ValueError as error:
        raise ArgumentError(
            f"{name}: {path} is no Stan CSV file, or it is damaged: {check.one_line(error)}"
        ) from error


def _warmup_rows(config: dict[str, str]) -> int:
    """How many rows of warm-up come first."""
    if config.get("save_warmup", "0") not in ("1", "true"):
        return 0
    thin = max(1, int(config.get("thin", "1")))
    return -(-int(config.get("num_warmup", "0")) // thin)


def _attributes(config: dict[str, str]) -> dict[str, Any]:
    attrs: dict[str, Any] = {"model_hash": config.get("model", "unknown")}
    if config.get("method", "sample") == "sample":
        attrs["method"] = own_method(config)
    version = [config.get(f"stan_version_{part}") for part in ("major", "minor", "patch")]
    if None not in version:
        attrs["backend"] = f"CmdStan {'.'.join(map(str, version))}"
    for name, own in (("seed", "seed"), ("num_warmup", "tuning_steps"), ("thin", "thin")):
        if config.get(name, "").isdigit():
            attrs[own] = int(config[name])
    return attrs
