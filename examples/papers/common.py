"""What the scripts of this folder share: repeats two at a time, tables, options.

`measure` is one repeat: a chain by `stanadapt.sample`, timed with its kernels compiled. `run` measures all
that the options ask for and prints the paper's figures beside ours.
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import os
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from tqdm import tqdm

import stanadapt
from stanadapt import samplers
from stanadapt.result.container import datasets, statistics
from targets import CLASSIFICATION, SETS, TARGETS, Source

AT_A_TIME = 2  # chains, each on a core of its own


class Method(NamedTuple):
    """A row of a table: the paper's name for a method, ours, and its settings."""

    label: str
    name: str
    settings: dict[str, Any] | None = None
    warmup: int = 20_000
    draws: int = 20_000


class Job(NamedTuple):
    """One repeat of one row."""

    target: str
    source: Source
    method: Method
    repeat: int
    seed: int
    ess: Callable[[np.ndarray], float]
    start_sd: float = 1.0


@functools.cache
def opened(name: str, source: Source) -> stanadapt.Posterior:
    target = TARGETS[name](source)
    return stanadapt.Posterior(target.program, target.data)


def settings_of(method: Method) -> dict[str, Any]:
    """The row's settings, on top of the paper's own warm-up where the method tells it from ours."""
    faithful = {"faithful": True} if "faithful" in samplers.sampler(method.name).Settings._fields else {}
    return faithful | (method.settings or {})


def first_point(d: int, seed: int, repeat: int, sd: float = 1.0) -> np.ndarray:
    """Standard normal unless asked otherwise, as in the papers; the same for all methods."""
    return sd * np.random.default_rng([seed, repeat]).standard_normal(d)


def sample(job: Job, warmup: int, draws: int, **more: Any) -> Any:
    posterior = opened(job.target, job.source)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the table shows what a finding would say
        return stanadapt.sample(
            posterior,
            method=job.method.name,
            settings=settings_of(job.method),
            chains=1,
            warmup=warmup,
            draws=draws,
            seed=job.seed + job.repeat,
            inits=first_point(posterior.dim, job.seed, job.repeat, job.start_sd)[None],
            progress=False,
            **more,
        )


def measure(job: Job) -> dict[str, Any]:
    """Run one chain; its row of figures."""
    if job.method.name != "nuts":  # which has no kernels
        sample(job, 10, 10)  # loads what a first run loads
    groups = datasets(sample(job, job.method.warmup, job.method.draws))
    posterior, stats = groups["posterior"], groups["sample_stats"]
    (draws,) = (values.values[0] for values in posterior.data_vars.values())
    ess = np.array([job.ess(column) for column in draws.T])
    seconds = float(groups["adaptation"]["seconds_total"].sum())  # the chain's own: without opening the model
    return {
        "target": job.target,
        "method": job.method.label,
        "repeat": job.repeat,
        "d": draws.shape[1],
        "warmup": job.method.warmup,
        "draws": job.method.draws,
        "seconds": seconds,
        "acceptance": float(stats["acceptance_rate"].mean()),
        "min_ess": ess.min(),
        "median_ess": np.median(ess),
        "max_ess": ess.max(),
        "min_ess_per_second": ess.min() / seconds,
        "min_arviz_ess": float(statistics().ess(posterior, method="bulk").to_array().min()),
    }


def pool(workers: int = AT_A_TIME) -> ProcessPoolExecutor:
    """Processes of one thread each: two chains in one would share its interpreter's lock."""
    for library in ("OPENBLAS", "OMP", "MKL"):
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")  # read when a process starts
    return ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"))


def measured(workers: ProcessPoolExecutor, jobs: Sequence[Job]) -> pd.DataFrame:
    """The rows of all jobs; a chain that failed leaves a line that says why, and no row."""
    futures = [workers.submit(measure, job) for job in jobs]
    rows = []
    progress = tqdm(futures, jobs[0].target, disable=None, leave=False)
    for job, future in zip(jobs, progress, strict=True):
        try:
            rows.append(future.result())
        except stanadapt.StanAdaptError as error:
            print(f"{job.target}, {job.method.label}, repeat {job.repeat} failed: {error}")
    return pd.DataFrame(rows)


class Published(NamedTuple):
    """A row of a paper's table; empty where it has no such column."""

    ess: tuple[float, ...] = (0.0, 0.0, 0.0)  # min, median, max; 0 where unknown
    seconds: float | None = None
    acceptance: str = ""
    rate: float | None = None  # min ESS/s
    rate_sd: float | None = None
    ess_sd: tuple[float, ...] | None = None


class Panel(NamedTuple):
    """A table of a paper: one target."""

    title: str
    rows: dict[str, Published]


def number(value: float | None, sd: float | None = None) -> str:
    """Three figures that count, and the standard deviation in brackets."""
    if not value or not np.isfinite(value):
        return ""
    digits = 0 if value >= 100 else 1 if value >= 10 else 2 if value >= 1 else 3
    spread = "" if sd is None or not np.isfinite(sd) else f" ({sd:.{digits}f})"
    return f"{value:.{digits}f}{spread}"


HEADER = (
    *("method", "repeats", "time (s)", "acceptance", "min ESS", "median ESS", "max ESS", "min ESS/s"),
    *("min ESS by ArviZ", "min ESS ours/paper"),
)


def beside(paper: str, ours: str) -> str:
    return f"{paper} / {ours}" if paper else ours


def cells(label: str, ours: pd.DataFrame, paper: Published) -> list[str]:
    """A line of the table: the paper's figures beside the means of ours."""
    mean, sd = ours.mean(numeric_only=True), ours.std(numeric_only=True)
    (least, median, most), (least_sd, *_) = paper.ess, paper.ess_sd or (None,)
    return [
        label,
        str(len(ours)),
        beside(number(paper.seconds), number(mean["seconds"])),
        beside(paper.acceptance, f"{mean['acceptance']:.3f}"),
        beside(number(least, least_sd), number(mean["min_ess"], sd["min_ess"])),
        beside(number(median), number(mean["median_ess"])),
        beside(number(most), number(mean["max_ess"])),
        beside(
            number(paper.rate, paper.rate_sd), number(mean["min_ess_per_second"], sd["min_ess_per_second"])
        ),
        number(mean["min_arviz_ess"]),
        number(mean["min_ess"] / least if least else None),
    ]


def table(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Markdown with aligned columns."""
    rows = [list(header), *map(list, lines)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(header))]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    padded = [
        [row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])] for row in [rows[0], rule, *rows[1:]]
    ]
    return "\n".join("| " + " | ".join(row) + " |" for row in padded)


def show(rows: pd.DataFrame, panels: dict[str, Panel]) -> None:
    """Print a table for each target, methods in their order in `rows`."""
    for target, of_target in rows.groupby("target", sort=False):
        panel = panels[str(target)]
        print(f"\n{panel.title}; d = {of_target['d'].iloc[0]}\n")
        groups = of_target.groupby("method", sort=False)
        lines = [cells(str(label), ours, panel.rows.get(str(label), Published())) for label, ours in groups]
        print(table(HEADER, lines), flush=True)


def options(
    description: str | None, panels: dict[str, Panel], methods: Sequence[Method]
) -> argparse.Namespace:
    """The command line of a script."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawTextHelpFormatter)
    add = parser.add_argument
    add(
        "--targets",
        default="",
        help=f"some of {', '.join(panels)}, with commas between; default: all but the digits",
    )
    add("--methods", default="", help=f"some of {', '.join(method.label for method in methods)}")
    add(
        "--repeats",
        type=int,
        help="chains a row, each from its own random start; default 10, as in the paper",
    )
    add(
        "--quick",
        action="store_true",
        help="1,000 + 1,000 iterations, one repeat: shows that everything runs",
    )
    add("--figures", action="store_true", help="draw the paper's figures into pictures/ instead")
    add("--out", type=Path, help="write the measured rows, one a repeat, to this .csv or .json file")
    add(
        "--show",
        type=Path,
        nargs="+",
        help="print the tables of .csv files that --out wrote, and run nothing",
    )
    data = Path(os.environ.get("CLASSIFICATION", CLASSIFICATION))
    add(
        "--data",
        type=Path,
        default=data,
        metavar="FOLDER",
        help="with ripley.csv and the others; CLASSIFICATION",
    )
    add(
        "--mnist", type=Path, metavar="FILE", help="npz (images, labels) or csv (label first) with the digits"
    )
    add(
        "--synthetic-mnist",
        action="store_true",
        help="made-up digits of the same shape, where there is no file",
    )
    add(
        "--start-sd",
        type=float,
        default=1.0,
        help="standard deviation of random starts; default 1, as in the papers",
    )
    add("--seed", type=int, default=1)
    given = parser.parse_args()
    if unknown := set(wanted(given.targets)) - set(panels):
        parser.error(f"no target {', '.join(sorted(unknown))}; there are {', '.join(panels)}")
    if given.repeats is not None and given.repeats < 1:
        parser.error(f"--repeats {given.repeats}: it must be at least 1")
    for path in [path for path in [given.mnist, *(given.show or [])] if path and not path.is_file()]:
        parser.error(f"no file {path}")
    known = {word for method in methods for word in (method.label.lower(), method.name)}
    if unknown := set(wanted(given.methods.lower())) - known:
        parser.error(f"no method {', '.join(sorted(unknown))}; there are {', '.join(sorted(known))}")
    return given


def wanted(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def chosen_targets(given: argparse.Namespace, panels: dict[str, Panel]) -> list[str]:
    """What is asked for and can be run; a line for what cannot."""
    on_request = {"mnist": given.mnist is not None, "synthetic-mnist": given.synthetic_mnist}
    names = wanted(given.targets) or [name for name in panels if on_request.get(name, True)]
    for name in list(names):
        if name in SETS and not (given.data / f"{name}.csv").is_file():
            print(
                f"{name} is skipped: no {name}.csv in {given.data}; --data or CLASSIFICATION names its folder"
            )
            names.remove(name)
        if name == "mnist" and not given.mnist:
            print("mnist is skipped: --mnist names a file of digits, --synthetic-mnist makes some up")
            names.remove(name)
    return names


def chosen_methods(given: argparse.Namespace, methods: Sequence[Method]) -> list[Method]:
    words = wanted(given.methods.lower())
    asked = [m for m in methods if not words or m.label.lower() in words or m.name in words]
    there = [method for method in asked if method.name in samplers.METHODS]
    return [m._replace(warmup=1_000, draws=1_000) for m in there] if given.quick else there


def write(rows: pd.DataFrame, path: Path) -> None:
    if path.suffix == ".json":
        rows.to_json(path, orient="records", indent=1)
    else:
        rows.to_csv(path, index=False)


def kept_rows(
    paths: Sequence[Path], panels: dict[str, Panel], rows_of: Callable[[str], Sequence[Method]]
) -> pd.DataFrame:
    """The rows of earlier runs in the order of the tables."""
    order = {name: i for i, name in enumerate(panels)}
    longest = max((rows_of(target) for target in panels), key=len)
    order |= {method.label: i for i, method in enumerate(longest)}
    rows = pd.concat([pd.read_csv(path) for path in paths])
    return rows.sort_values(["target", "method"], key=lambda column: column.map(order), kind="stable")


def run(
    given: argparse.Namespace,
    panels: dict[str, Panel],
    rows_of: Callable[[str], Sequence[Method]],
    ess: Callable[[np.ndarray], float],
    standardise: bool,
) -> None:
    """Measure and print every target that is asked for; `rows_of` gives the methods of a target."""
    if given.show:
        show(kept_rows(given.show, panels, rows_of), panels)
        return
    repeats = given.repeats or (1 if given.quick else 10)
    source = Source(given.data.resolve(), given.mnist, standardise)
    print(
        f"{repeats} repeats a row, at most {AT_A_TIME} chains at a time, one core each. Times are wall times"
    )
    print("of warm-up and sampling with the kernels compiled. Cells: paper / ours (1 st.d. over repeats).")
    if given.quick:
        print("Chains are too short here to be compared with the paper's.")
    targets = chosen_targets(given, panels)
    rows = {target: rows_of(target) for target in targets}
    for name in sorted({m.name for of_target in rows.values() for m in of_target} - set(samplers.METHODS)):
        print(f"{name} is skipped: it is not among this stanadapt's methods")
    began, done = time.perf_counter(), []
    with pool() as workers:
        for target in targets:
            methods = chosen_methods(given, rows[target])
            jobs = [
                Job(target, source, method, i, given.seed, ess, given.start_sd)
                for method in methods
                for i in range(repeats)
            ]
            if jobs and len(found := measured(workers, jobs)):
                done.append(found)
                show(found, panels)
                if given.out:
                    write(pd.concat(done), given.out)
    print(f"\n{time.perf_counter() - began:.0f} s in all")
