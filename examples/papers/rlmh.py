"""Wang, Chen, Kanagawa and Oates (2024), Reinforcement Learning for Adaptive MCMC: Table 1 beside ours.

    python examples/papers/rlmh.py [--names NAME ...] [--methods ...] [--repeats N] [--quick] [--figures]

44 posteriors of PosteriorDB. Every chain adapts for 60,000 iterations, of which RLMH's first 10,000 are its
warm start, and then draws 5,000 with everything frozen, from which the figures come. `--published-mmd` also
computes what the paper's column MMD holds, which is not the MMD that the paper defines.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import re
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from tqdm import tqdm

import stanadapt
from common import AT_A_TIME, Method, beside, first_point, number, pool, table, write
from mmd import Benchmark, benchmark_of, exact_mmd, gaussian_mmd, published_mmd
from posteriors import DATABASE, opened, reference
from stanadapt import samplers
from stanadapt.diagnostics.efficiency import jump_lengths, squared_jump_distance
from stanadapt.result.container import datasets

TABLE = Path(__file__).with_name("rlmh_table1.csv")
WARMUP, DRAWS = 60_000, 5_000
RENEWALS = {"epochs": 60, "initial_step_size": 0.1, "faithful": True}  # of the authors' published code
ROWS = (
    Method("RLMH", "rlmh", {"faithful": True, "warm_start": 10_000}, WARMUP, DRAWS),
    Method("RLMH, defaults", "rlmh", {}, WARMUP, DRAWS),
    Method("ARWMH", "arwmh", {}, WARMUP, DRAWS),
    Method("AMALA", "amala", RENEWALS, WARMUP, DRAWS),
    Method("AMALA, Algorithm 5", "amala", {"faithful": True}, 10_000, DRAWS),
)
FROM_ORIGIN = ("rlmh", "arwmh")  # the others start from N(0, I)
ALL_STATES = 60_000  # more of ARWMH's, for its column MMD in the paper: see the README


class Job(NamedTuple):
    """All chains on one posterior."""

    task: str
    database: Path
    methods: Sequence[Method]
    repeats: int
    seed: int
    published: bool


def parsed(cell: str) -> tuple[float, float]:
    """Mean and standard error of `1.9(0.2)E-2`."""
    mean, error, exponent = re.fullmatch(r"([\d.]+)(?:\(([\d.]+)\)E(-?\d+))?", cell).groups()
    scale = 10.0 ** int(exponent or 0)
    return float(mean) * scale, float(error or 0) * scale


@functools.cache
def published_table() -> pd.DataFrame:
    """Table 1 of the paper, a row a task; its cells as printed, those in `settled` as we read a poor scan."""
    return pd.read_csv(TABLE, dtype=str, keep_default_na=False).set_index("task")


def paper(task: str, label: str, metric: str) -> float:
    """A mean of the paper's table."""
    return parsed(published_table().loc[task, f"{label.lower()}_{metric}"])[0]


def start(posterior: stanadapt.Posterior, method: Method, seed: int, repeat: int) -> np.ndarray:
    """A point (1, d): the origin, or the first of normal ones where the gradient is finite."""
    if method.name in FROM_ORIGIN:
        return np.zeros((1, posterior.dim))
    for attempt in range(100):
        x = first_point(posterior.dim, seed, repeat + 1_000 * attempt)
        try:
            finite = np.isfinite(posterior.log_density_gradient(x)[1]).all()
        except stanadapt.StanAdaptError:
            continue
        if finite:
            break
    return x[None]


def sample(posterior: stanadapt.Posterior, method: Method, seed: int, repeat: int, **more: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the table shows what a finding would say
        return datasets(
            stanadapt.sample(
                posterior,
                method=method.name,
                settings=method.settings,
                warmup=method.warmup,
                draws=method.draws,
                chains=1,
                seed=seed + repeat,
                inits=start(posterior, method, seed, repeat),
                keep_unconstrained=True,
                progress=False,
                **more,
            )
        )


def shortened(method: Method) -> Method:
    """A twentieth of warm-up and warm start, a tenth of the draws."""
    settings = dict(method.settings or {})
    if "warm_start" in settings:
        settings["warm_start"] //= 20
    return method._replace(settings=settings, warmup=method.warmup // 20, draws=method.draws // 10)


def measure_chain(
    posterior: stanadapt.Posterior, benchmark: Benchmark | None, job: Job, method: Method, repeat: int
) -> dict[str, Any]:
    """Run one chain; its row of figures."""
    n = method.draws
    more = ALL_STATES if job.published and method.name == "arwmh" else 0
    groups = sample(posterior, method._replace(draws=n + more), job.seed, repeat)
    states = groups["unconstrained_posterior"]["x"].values[0]
    row = {
        "task": job.task,
        "d": posterior.dim,
        "method": method.label,
        "repeat": repeat,
        "seconds": float(groups["adaptation"]["seconds_total"].sum()),
        "acceptance": float(groups["sample_stats"]["acceptance_rate"].mean()),
        "jump": jump_lengths(states[:n]).mean(),
        "esjd": squared_jump_distance(states[:n]),
    }
    if benchmark is not None:
        row |= {"mmd": gaussian_mmd(states[:n], benchmark), "exact_mmd": exact_mmd(n, benchmark)}
    if benchmark is not None and job.published:
        row["published"] = published_mmd(states, benchmark)
    return row


def measure(job: Job) -> tuple[pd.DataFrame, list[str]]:
    """The rows of all chains on a posterior, and what those that failed say."""
    posterior = opened(job.database, job.task)
    points = reference(job.database, job.task, posterior)
    benchmark = None if points is None else benchmark_of(points)
    rows, failures = [], []
    for method in job.methods:
        with contextlib.suppress(stanadapt.StanAdaptError):  # what is too short for a posterior
            sample(posterior, shortened(method), job.seed, 0)  # loads what a first run loads
        for repeat in range(job.repeats):
            try:
                rows.append(measure_chain(posterior, benchmark, job, method, repeat))
            except stanadapt.StanAdaptError as error:
                failures.append(f"{job.task}, {method.label}, repeat {repeat} failed: {error}")
    return pd.DataFrame(rows), failures


METRICS = ("jump", "esjd", "mmd", "published")
TITLES = {
    "jump": "Mean length of a jump, which is what the paper's column ESJD holds: paper / ours",
    "esjd": "ESJD, the mean squared length of a jump: ours",
    "mmd": "MMD as in Appendix C.4: ours. Exact: of as many independent draws from the posterior",
    "published": "What the paper's column MMD holds: paper / ours",
}
COLUMNS = {"jump": "esjd", "published": "mmd"}  # of the paper's table, to put beside


def cell(task: str, label: str, metric: str, ours: pd.Series) -> str:
    """The mean over repeats, its standard error in brackets, the paper's mean before it."""
    if ours.isna().all():
        return ""
    mine = f"{ours.mean():.3g}" + (f" ({ours.sem():.1g})" if len(ours) > 1 else "")
    known = metric in COLUMNS and f"{label.lower()}_esjd" in published_table()
    return beside(f"{paper(task, label, COLUMNS[metric]):.2g}" if known else "", mine)


def show_metric(rows: pd.DataFrame, metric: str) -> None:
    """A table with a line a task and a column a method."""
    labels = list(dict.fromkeys(rows["method"]))
    exact = ["exact"] if metric == "mmd" else []
    lines = []
    for (task, d), of_task in rows.groupby(["task", "d"], sort=False):
        columns = [of_task.loc[of_task["method"] == label, metric] for label in labels]
        cells = [cell(str(task), label, metric, ours) for label, ours in zip(labels, columns, strict=True)]
        yardstick = [number(of_task["exact_mmd"].mean()) for _ in exact]
        if any(cells):
            lines.append([str(task), str(d), *cells, *yardstick])
    print(f"\n{TITLES[metric]}\n\n{table(['task', 'd', *labels, *exact], lines)}", flush=True)


def wins(first: pd.Series, second: pd.Series, larger: bool) -> str:
    """Share of the tasks where the first is better, and with those where both are the same."""
    both = pd.concat([first, second], axis=1).dropna().to_numpy()
    if not len(both):
        return ""
    above = both[:, 0] > both[:, 1] if larger else both[:, 0] < both[:, 1]
    same = both[:, 0] == both[:, 1]
    ties = f" ({np.mean(above | same):.0%} with ties)" if same.any() else ""
    return f"{np.mean(above):.0%} of {len(both)}{ties}"


def show_shares(rows: pd.DataFrame) -> None:
    """How often RLMH does better than ARWMH."""
    names = list(dict.fromkeys(rows["task"]))
    means = rows.groupby(["method", "task"]).mean(numeric_only=True)
    policies = [row.label for row in ROWS if row.name == "rlmh" and row.label in set(rows["method"])]
    if not policies or "ARWMH" not in set(rows["method"]):
        return
    stated, lines = {"esjd": "86%", "mmd": "93%"}, []
    for metric in [name for name in METRICS if name in rows]:
        larger, column = metric in ("jump", "esjd"), COLUMNS.get(metric)
        against = means.loc["ARWMH", metric]
        ours = [wins(means.loc[label, metric], against, larger) for label in policies]
        printed = [
            pd.Series({name: paper(name, label, column) for name in names}) if column else pd.Series()
            for label in ("RLMH", "ARWMH")
        ]
        lines.append([metric, stated.get(column or "", ""), wins(*printed, larger), *ours])
    print("\nTasks on which RLMH does better than ARWMH\n")
    print(table(["", "the paper says", "its table", *policies], lines))


def show_seconds(rows: pd.DataFrame) -> None:
    """Wall times of a task: warm-up and draws of one chain."""
    by_task = rows.groupby(["method", "task"], sort=False)["seconds"].mean()
    lines = [
        [str(label), number(of_method.median()), number(of_method.min()), number(of_method.max())]
        for label, of_method in by_task.groupby("method", sort=False)
    ]
    print("\nSeconds of a chain, over tasks (the paper: median of RLMH 132)\n")
    print(table(["", "median", "least", "most"], lines))


def show(rows: pd.DataFrame) -> None:
    for metric in [name for name in METRICS if name in rows]:
        show_metric(rows, metric)
    show_shares(rows)
    show_seconds(rows)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    add = parser.add_argument
    add("--names", nargs="+", metavar="NAME", help="some of the 44 posteriors")
    add("--methods", nargs="+", metavar="LABEL", help=f"some of {', '.join(row.label for row in ROWS)}")
    add("--repeats", type=int, default=3, help="chains a row; default 3 (the paper has 10)")
    add("--quick", action="store_true", help="short chains, one repeat: shows that everything runs")
    add("--published-mmd", action="store_true", help="also compute what the paper's column MMD holds")
    add("--workers", type=int, default=AT_A_TIME, help="posteriors at a time, one core each")
    add("--database", type=Path, default=DATABASE, metavar="FOLDER", help="posterior_database; POSTERIORDB")
    add("--figures", action="store_true", help="draw the paper's figures into pictures/ instead")
    add("--out", type=Path, help="write the measured rows, one a chain, to this .csv or .json file")
    add("--show", type=Path, metavar="FILE", help="print the tables of a .csv that --out wrote, run nothing")
    add("--seed", type=int, default=1)
    given = parser.parse_args()
    for name, known in (("names", list(published_table().index)), ("methods", [row.label for row in ROWS])):
        if unknown := set(getattr(given, name) or []) - set(known):
            parser.error(f"--{name} {', '.join(sorted(unknown))}: there are {', '.join(known)}")
    for name in ("repeats", "workers"):
        if getattr(given, name) < 1:
            parser.error(f"--{name} {getattr(given, name)}: it must be at least 1")
    if not given.show and not (given.database / "posteriors").is_dir():
        parser.error(f"no PosteriorDB in {given.database}; --database or POSTERIORDB names its folder")
    return given


def chosen(given: argparse.Namespace) -> list[Method]:
    """The rows that are asked for and that this stanadapt has."""
    asked = [row for row in ROWS if not given.methods or row.label in given.methods]
    for row in asked:
        if row.name not in samplers.METHODS:
            print(f"{row.label} is skipped: it is not among this stanadapt's methods")
    there = [row for row in asked if row.name in samplers.METHODS]
    return [shortened(row) for row in there] if given.quick else there


def jobs(given: argparse.Namespace) -> list[Job]:
    names = given.names or list(published_table().index)
    repeats = 1 if given.quick else given.repeats
    rest = (chosen(given), repeats, given.seed, given.published_mmd)
    return [Job(name, given.database.resolve(), *rest) for name in names]


def run(given: argparse.Namespace) -> pd.DataFrame:
    """Measure all that is asked for; rows are written as they come."""
    done: list[pd.DataFrame] = []
    with pool(given.workers) as workers:
        futures = [workers.submit(measure, job) for job in jobs(given)]
        for future in tqdm(futures, "posteriors", disable=None, leave=False):
            rows, failures = future.result()
            print(*failures, sep="\n", end="\n" if failures else "")
            done.append(rows)
            if given.out:
                write(pd.concat(done), given.out)
    return pd.concat(done)


def main() -> None:
    given = options()
    if given.figures:
        import rlmh_figures

        rlmh_figures.draw(given.seed)
        return
    if given.show:
        show(pd.read_csv(given.show))
        return
    if given.quick:
        print("Chains are too short here to be compared with the paper's.")
    began = time.perf_counter()
    show(run(given))
    print(f"\n{time.perf_counter() - began:.0f} s in all")


if __name__ == "__main__":
    main()
