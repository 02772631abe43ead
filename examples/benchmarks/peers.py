"""The race: our methods against other samplers, on the same gradients in the same run.

    python examples/benchmarks/peers.py [NAME ...] [--model FILE.stan --data FILE.json]
        [--methods fisher_hmc ...] [--peers nutpie ...] [--chains 1 4] [--seeds 1 2] [--draws 2000] [--cap 60]
        [--out peers.csv] [--resume peers.csv] [--show peers.csv] [--cpu] [--picture peers.png]
    python examples/benchmarks/peers.py --scaling [--dimensions 2 5 10 ...]

NAMEs are posteriors of PosteriorDB, by default all of its folder `posterior_database`, the one in
../shared/data or the one that POSTERIORDB names. One chain has one core, four have two. Every run is written
to the file when it ends; `--resume` goes on with a file, `--show` only prints what is in it. What is timed,
and where gradients are counted, says race/samplers.py; what counts as a bar, race/bars.py.
"""

from __future__ import annotations

import argparse
import os

# Before NumPy is imported, here and in the samplers' processes.
os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")

import functools
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from posteriordb import DEFAULT
from race import bars, picture, problems, samplers, scaling, shim
from race.judge import verdict
from race.lane import Lane
from race.problems import Problem
from stanadapt.samplers import METHODS

DEFAULT_METHODS = ("fisher_hmc", "fisher_mala", "hmc")
KEY = ["problem", "sampler", "chains", "seed", "draws"]
FACTS = ["d", "gradient_seconds", "status", "reason"]
FIGURES = ["seconds", "cpu_seconds", "gradients", "bulk", "tail", "r_hat", "z"]
COLUMNS = KEY + FACTS + FIGURES


class Results:
    """The rows of a race, and the file that they are written to as they come."""

    def __init__(self, path: Path, resume: bool) -> None:
        self.path = path
        self.rows = read(path) if resume else pd.DataFrame(columns=COLUMNS)
        if not resume:
            self.rows.to_csv(path, index=False)
        self.done = set(self.rows[KEY].itertuples(index=False, name=None))

    def has(self, *key: object) -> bool:
        return key in self.done

    def add(self, row: dict[str, Any]) -> None:
        line = pd.DataFrame([row], columns=COLUMNS)
        line.to_csv(self.path, mode="a", header=False, index=False)
        self.rows = line if self.rows.empty else pd.concat([self.rows, line], ignore_index=True)
        self.done.add(tuple(row[name] for name in KEY))


def read(path: Path) -> pd.DataFrame:
    """The rows that a race has written."""
    rows = pd.read_csv(path, dtype={"reason": str})
    if missing := [name for name in COLUMNS if name not in rows]:
        sys.exit(f"{path} was not written by this script: it has no column {', '.join(missing)}")
    return rows.fillna({"reason": ""})


def race(
    openers: dict[str, Callable[[], Problem]],
    names: Sequence[str],
    given: argparse.Namespace,
    results: Results,
) -> None:
    """Every sampler on every problem, with every seed; those that are compared run one after the other."""
    for chains in given.chains:
        lanes = {name: Lane(name, chains, cores_for(chains)) for name in names}
        try:
            for problem_name, opener in openers.items():
                runs = [
                    (name, seed)
                    for seed in given.seeds
                    for name in names
                    if not results.has(problem_name, name, chains, seed, given.draws)
                ]
                if not runs:
                    continue
                problem = opener()
                cost = gradient_seconds(problem)
                for name, seed in runs:
                    row = measured(lanes[name], problem, cost, given.draws, seed, given.cap)
                    results.add(row)
                    print(line(row), file=sys.stderr, flush=True)
        finally:
            for lane in lanes.values():
                lane.close()


def measured(lane: Lane, problem: Problem, cost: float, draws: int, seed: int, cap: float) -> dict[str, Any]:
    """Run and judge; `cost` is the seconds of a gradient."""
    result = lane.run(problem, draws, seed, cap)
    row = {
        "problem": problem.name,
        "sampler": lane.name,
        "chains": lane.chains,
        "seed": seed,
        "draws": draws,
        "d": problem.d,
        "gradient_seconds": cost,
        "status": result.status,
        "reason": result.reason,
    }
    if result.outcome is not None:
        row |= {name: getattr(result.outcome, name) for name in ("seconds", "cpu_seconds", "gradients")}
        row |= verdict(problem, result.outcome.draws)._asdict()
    return row


def line(row: dict[str, Any]) -> str:
    """A run, on one line."""
    head = f"{row['problem']}, {row['sampler']}, {row['chains']} x {row['draws']}, seed {row['seed']}: "
    if row["status"] != "ok":
        return f"{head}{row['status']}, {row['reason']}"
    return (
        f"{head}{row['bulk'] / row['seconds']:.0f} ESS/s (bulk {row['bulk']:.0f}, tail {row['tail']:.0f}, "
        f"{row['seconds']:.2f} s, {row['gradients']:.0f} gradients, R-hat {row['r_hat']:.3f}, "
        f"z {row['z']:.1f})"
    )


def gradient_seconds(problem: Problem) -> float:
    """Of stanli's own function; NaN where there is no compiler for the loop around it."""
    if shutil.which("gcc") is None:
        return float("nan")
    return shim.gradient_seconds(shim.opened(problem.bridgestan_data))


def cores_for(chains: int) -> list[int]:
    """The last core for one chain, the last two for more."""
    there = sorted(os.sched_getaffinity(0))
    return there[-1:] if chains == 1 else there[-2:]


def able(names: Sequence[str]) -> list[str]:
    """Those that can run here; a line for each that cannot."""
    lacks = {name: samplers.lacking(name) for name in names}
    for name, what in lacks.items():
        if what:
            print(f"{name} is left out: {what}", file=sys.stderr)
    return [name for name, what in lacks.items() if not what]


def by_cpu_time(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows as on cores that nothing else uses; waiting of a sampler's own threads is left out too."""
    return rows.assign(seconds=rows["cpu_seconds"] / rows["chains"].map(lambda n: len(cores_for(n))))


def problems_of(given: argparse.Namespace) -> dict[str, Callable[[], Problem]]:
    """What opens each problem, by its name."""
    if given.scaling:
        return {f"gaussian-{d}": functools.partial(problems.gaussian, d) for d in given.dimensions}
    if given.model:
        name = given.model.stem
        return {name: functools.partial(problems.opened, name, given.model, given.data)}
    database = Path(os.environ.get("POSTERIORDB", DEFAULT))
    known = problems.posteriordb_names(database)
    if unknown := [name for name in given.names if name not in known]:
        sys.exit(f"{', '.join(unknown)}: not in {database / 'posteriors'}")
    return {
        name: functools.partial(problems.from_posteriordb, database, name) for name in given.names or known
    }


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", help="posteriors of PosteriorDB")
    add("--model", type=Path, help="a Stan program to race on instead")
    add("--data", type=Path, help="and its data, JSON")
    ours = [name for name in METHODS if name != "nuts"]
    default = [name for name in DEFAULT_METHODS if name in ours]
    add(
        "--methods",
        nargs="*",
        default=default,
        choices=[*ours, "all"],
        metavar="METHOD",
        help="of ours, or all",
    )
    add(
        "--peers",
        nargs="*",
        default=list(samplers.PEERS),
        choices=list(samplers.PEERS),
        metavar="PEER",
        help=f"some of {', '.join(samplers.PEERS)}",
    )
    add("--chains", type=int, nargs="+", default=None, help="default 1 4, and 1 with --scaling")
    add("--seeds", type=int, nargs="+", default=[1, 2])
    add("--draws", type=int, default=2000, help="of each chain, after each sampler's own warm-up")
    add("--cap", type=float, default=60.0, help="seconds that a run may take")
    add("--out", type=Path, default=Path("peers.csv"))
    add("--resume", type=Path, metavar="FILE", help="go on with this file of an earlier race")
    add("--show", type=Path, metavar="FILE", help="race nothing: print, and draw, what is in this file")
    add("--cpu", action="store_true", help="print rates by CPU time, for a machine that was not idle")
    add("--picture", type=Path, metavar="FILE.png")
    add(
        "--scaling",
        action="store_true",
        help="cost of an effective sample against the dimension of a Gaussian",
    )
    add("--dimensions", type=int, nargs="+", default=[2, 5, 10, 30, 100, 300, 1000], metavar="D")
    given = parser.parse_args()
    if "all" in given.methods:
        given.methods = ours
    given.chains = given.chains or ([1] if given.scaling else [1, 4])
    return given


def main() -> None:
    given = options()
    if given.show:
        rows = read(given.show)
    else:
        results = Results(given.resume or given.out, given.resume is not None)
        race(problems_of(given), able([*given.methods, *given.peers]), given, results)
        rows = results.rows
    if given.cpu:
        rows = by_cpu_time(rows)
    methods = [name for name in rows["sampler"].unique() if name not in samplers.PEERS]
    if given.scaling:
        print(scaling.table(rows))
    else:
        print(bars.summary(rows, methods, list(samplers.PEERS)))
    if given.picture:
        (picture.scaling if given.scaling else picture.race)(rows, list(samplers.PEERS), given.picture)


if __name__ == "__main__":
    main()
