"""Draws for other tools: as tables in CSV or Parquet, and as the CSV files that CmdStan writes."""

from __future__ import annotations

import contextlib
import csv
import importlib
import math
import os
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np
import xarray

from ... import check
from ...errors import ArgumentError, OutputError
from ...run.progress import tell
from ..container import OWN_GROUP, attributes, datasets
from ..files import whole_files
from . import stancsv
from .columns import LP, ColumnTable, chain_numbers, names_of, quantities

if TYPE_CHECKING:
    from ..container import InferenceData

FORMATS = ("csv", "parquet", "stancsv")
_SUFFIXES = {".csv": "csv", ".parquet": "parquet"}
_INDEX = (".chain", ".iteration", ".draw")  # as R's posterior and tidybayes have them, from 1
_SILENT_SECONDS = 2.0
_LINES = 256  # that are turned into numbers of Python at a time


def export(
    idata: InferenceData,
    path: str | os.PathLike[str],
    format: str | None = None,
    *,
    var_names: Sequence[str] | None = None,
    overwrite: bool = False,
    progress: bool = False,
) -> list[Path]:
    """Write draws for other tools, without a loss of digits, and without all of them in memory.

    Parameters
    ----------
    idata
        A result of `stanadapt.sample`, or anything with a posterior in ArviZ's schema. Results that are read
        later, as `load` gives them of large stores, are read a part at a time.
    path
        The file to write. With format="stancsv" there is one for each chain: `fit.csv` stands for fit_1.csv,
        fit_2.csv and so on, as it does for CmdStan.
    format
        "csv" or "parquet": one table with the columns `.chain`, `.iteration` and `.draw`, which count from
        1, `lp__` (the log density, if it is known), and theta[1], theta[2] and so on. R's
        `posterior::as_draws_df` takes it as it is, and bayesplot what that gives. Parquet needs pyarrow.
        "stancsv": files as CmdStan writes them, for `cmdstanpy.from_csv`, `cmdstanr::as_cmdstan_fit` and
        `rstan::read_stan_csv`, whose result shinystan takes. They have those of Stan's columns of
        diagnostics that the method has, and no iterations of warm-up. None: what the suffix of `path` says.
    var_names
        Variables, by default all that are numbers: those of the posterior, of log_likelihood and of
        posterior_predictive, under the names of the program.
    overwrite
        Whether files that are there may be replaced.
    progress
        Say on stderr how far it is, where it takes more than two seconds.

    Returns
    -------
    list of pathlib.Path
        The files. They appear together, when all of them are complete.

    Raises
    ------
    ArgumentError
        There are no draws, a variable is unknown, the format cannot hold a name, or pyarrow is missing.
    OutputError
        A file is there already, or cannot be written.

    Examples
    --------
    >>> stanadapt.export(idata, "fit.parquet")
    >>> stanadapt.export(idata, "fit.csv", "stancsv")

    In R: `posterior::as_draws_df(arrow::read_parquet("fit.parquet"))`,
    `posterior::as_draws_df(read.csv("fit.csv", check.names = FALSE))`,
    `cmdstanr::as_cmdstan_fit(c("fit_1.csv", "fit_2.csv"), check_diagnostics = FALSE)`, or
    `shinystan::as.shinystan(rstan::read_stan_csv(c("fit_1.csv", "fit_2.csv")))`.
    """
    kind = choose_format(path, format)
    overwrite, progress = check.boolean("overwrite", overwrite), check.boolean("progress", progress)
    groups, attrs = datasets(idata), attributes(idata)
    chosen = quantities(groups, attrs, names_of(var_names))
    stats = groups.get("sample_stats", xarray.Dataset())
    adaptation = groups.get(OWN_GROUP, xarray.Dataset())
    chains = chain_numbers(groups["posterior"])
    if kind == "stancsv":
        table = ColumnTable(chosen, stancsv.stan_columns(stats), chains)
        stancsv.check_names(table)
        return _write_stancsv(table, path, attrs, adaptation, overwrite, _Told(table, progress))
    lp = {LP: stats.variables["lp"]} if _has_lp(stats) else {}
    table = ColumnTable(chosen, lp, chains)
    write = _write_parquet if kind == "parquet" else _write_csv
    with whole_files([Path(path)], overwrite=overwrite) as (file,):
        write(table, file, _Told(table, progress))
    return [Path(path)]


def choose_format(path: str | os.PathLike[str], format: str | None) -> str:
    """The format for a path, checked, with the packages that it needs.

    Raises
    ------
    ArgumentError
        There is no such format, the suffix names none, or pyarrow is missing.
    """
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise check.refusal("path", path, "the name of a file")
    if format is None:
        format = _SUFFIXES.get(Path(path).suffix.lower())
        if format is None:
            raise check.refusal(
                "path",
                os.fspath(path),
                f"a name that ends in {' or '.join(_SUFFIXES)}, or format must be given",
            )
    check.choice("format", format, FORMATS)
    if format == "parquet":
        try:
            importlib.import_module("pyarrow.parquet")
        except ImportError as error:
            raise ArgumentError(
                "format='parquet' is not allowed without pyarrow, which is not installed: pip install "
                "'stanadapt[parquet]'"
            ) from error
    return format


def chain_paths(path: str | os.PathLike[str], chains: Sequence[int]) -> list[Path]:
    """The files of chains, `fit_1.csv` and so on for `fit.csv`.

    Raises
    ------
    OutputError
        There are files of other chains, which would be read as chains of this run.
    """
    whole = Path(path)
    stem = whole.stem if whole.suffix.lower() == ".csv" else whole.name
    paths = [whole.with_name(f"{stem}_{chain}.csv") for chain in chains]
    pattern = re.compile(re.escape(stem) + r"_\d+\.csv")
    if whole.parent.is_dir():
        for other in sorted(whole.parent.iterdir()):
            if pattern.fullmatch(other.name) and other.name not in {each.name for each in paths}:
                raise OutputError(
                    f"{other} is there, which would be taken for a chain of this run: remove it, or write to "
                    "another name"
                )
    return paths


def _has_lp(stats: xarray.Dataset) -> bool:
    return "lp" in stats.data_vars and stats["lp"].dims == ("chain", "draw")


class _Told:
    """Shows its progress on stderr, if that is wanted."""

    def __init__(self, table: ColumnTable, enabled: bool) -> None:
        self.rows, self.enabled = table.draws * len(table.chains), enabled
        self.done, self.at = 0, time.perf_counter()

    def __call__(self, rows: int) -> None:
        """So many rows more are written."""
        self.done += rows
        if self.enabled and self.done < self.rows and time.perf_counter() - self.at >= _SILENT_SECONDS:
            self.at = time.perf_counter()
            tell(f"stanadapt: writing the draws, {self.done / self.rows:.0%} done")


def _write_csv(table: ColumnTable, file: Path, told: _Told) -> None:
    with _open_text(file) as out:
        lines = csv.writer(out, lineterminator="\n")
        lines.writerow([*_INDEX, *table.names(stan=False)])
        for index, rows in _with_indices(table, told):
            words = (
                rows.tolist() if np.isfinite(rows).all() else [list(map(_word, row)) for row in rows.tolist()]
            )
            lines.writerows(counts + values for counts, values in zip(index.tolist(), words, strict=True))


def _with_indices(table: ColumnTable, told: _Told) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Some lines at a time: chain, iteration and draw (n, 3), and values (n, columns)."""
    for index, rows in table.blocks():
        for start in range(0, len(rows), _LINES):
            lines = slice(start, start + _LINES)
            yield index[lines], rows[lines]
            told(len(rows[lines]))


def _word(value: float) -> Any:
    """A number as R reads it."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Inf" if value > 0 else "-Inf"


def _write_parquet(table: ColumnTable, file: Path, told: _Told) -> None:
    import pyarrow
    import pyarrow.parquet

    names = table.names(stan=False)
    fields = [(name, pyarrow.int32()) for name in _INDEX] + [(name, pyarrow.float64()) for name in names]
    schema = pyarrow.schema(fields)
    with pyarrow.parquet.ParquetWriter(file, schema) as out:
        for index, rows in table.blocks():
            columns = [pyarrow.array(each, type=pyarrow.int32()) for each in index.T]
            columns += [pyarrow.array(np.ascontiguousarray(column)) for column in rows.T]
            out.write_table(pyarrow.Table.from_arrays(columns, schema=schema))
            told(len(rows))


def _write_stancsv(
    table: ColumnTable,
    path: str | os.PathLike[str],
    attrs: dict[str, Any],
    adaptation: xarray.Dataset,
    overwrite: bool,
    told: _Told,
) -> list[Path]:
    paths, header = chain_paths(path, table.chains), ",".join(table.names(stan=True))
    whole = [i for i, name in enumerate(table.stats) if table.stats[name].dtype.kind in "iub"]
    with whole_files(paths, overwrite=overwrite) as files:
        for place, (file, name) in enumerate(zip(files, paths, strict=True)):
            with _open_text(file) as out:
                comments = stancsv.head(attrs, table, adaptation, place, name.name)
                for line in (*comments, header, *stancsv.lessons(attrs, adaptation, place)):
                    out.write(f"{line}\n")
                lines = csv.writer(out, lineterminator="\n")
                for chunk in table.chunks(place):
                    for start in range(0, len(chunk), _LINES):
                        rows = chunk[start : start + _LINES].tolist()
                        for row in rows:
                            for i in whole:
                                row[i] = int(row[i])
                        lines.writerows(rows)
                        told(len(rows))
                for line in stancsv.tail(adaptation, place):
                    out.write(f"{line}\n")
    return paths


@contextlib.contextmanager
def _open_text(file: Path) -> Iterator[TextIO]:
    with file.open("w", encoding="utf-8", newline="") as out:
        yield out
