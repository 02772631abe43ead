"""Runs that are interrupted, killed and resumed at random, for as long as is wanted.

    python examples/benchmarks/soak.py --minutes 10 --seed 1

Each run has a random method, model, number of chains and draws. It is drawn once here without a store. Then
it is drawn by another process with a store, which is stopped at random moments by SIGINT, SIGTERM or SIGKILL,
and resumed, until it is whole. Counted are runs, stops survived, results that differ in a bit (there must be
none), the longest time since a checkpoint at a kill, and what this process is left with after so many runs:
memory, file descriptors, threads.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

import stanadapt
from stanadapt.errors import StoreError
from stanadapt.result.container import datasets
from stanadapt.samplers import METHODS

MODELS = {
    "normal": "parameters { real mu; } model { mu ~ normal(0, 1); } generated quantities { real z = mu; }",
    "scale": "parameters { real mu; real<lower=0> tau; } model { mu ~ normal(0, tau); tau ~ gamma(3, 1); }",
    "vector": "parameters { vector[30] x; } model { x ~ normal(0, 2); }",
    "simplex": "parameters { simplex[4] p; } model { p ~ dirichlet(rep_vector(2, 4)); }",
}
INTERVAL = 0.2  # seconds between checkpoints
SLOW = ("kmc", "kmc_lite", "kmc_finite", "kamh", "rlmh", "rlmh_mala")
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGINT, signal.SIGTERM)

CHILD = f"""
import json, signal, sys, warnings
signal.signal(signal.SIGINT, signal.default_int_handler)
warnings.simplefilter("ignore")
import stanadapt
from stanadapt.result.stores import store
store.SECONDS, store.SHARE = {INTERVAL}, 1.0
folder, model, run = sys.argv[1:4]
print("ready", flush=True)
if model:
    stanadapt.sample(model, store=folder, progress=False, **json.loads(run))
else:
    stanadapt.resume(folder, progress=False)
"""


class Tally:
    """What has happened so far."""

    def __init__(self) -> None:
        self.runs = self.differences = self.partial = 0
        self.stops: Counter[str] = Counter()
        self.longest = 0.0  # seconds since a checkpoint, at a kill
        self.errors: list[str] = []


def choose(rng: random.Random) -> tuple[str, dict[str, Any]]:
    """A model, and the arguments of a run."""
    method = rng.choice(list(METHODS))
    draws = rng.choice([500, 2_000, 10_000])
    if method in SLOW:
        draws = 500
    run = {
        "method": method,
        "chains": rng.randint(1, 5),
        "warmup": rng.choice([150, 400]),
        "draws": draws,
        "thin": rng.choice([1, 1, 3]),
        "seed": rng.randrange(2**32),
        "save_warmup": rng.random() < 0.3,
        "keep_unconstrained": rng.random() < 0.3,
        "workers": rng.choice([1, 2, 3]),
    }
    return rng.choice(list(MODELS.values())), run


def is_same(one: Any, other: Any) -> bool:
    """Whether two results have the same draws, statistics and history of adaptation."""
    ones, others = datasets(one), datasets(other)
    if set(ones) != set(others):
        return False
    for name, group in ones.items():
        for key in group.variables:
            if str(key).startswith("seconds"):
                continue
            values, twins = group[key].values, others[name][key].values
            equal_nan = values.dtype.kind == "f"
            if values.shape != twins.shape or not np.array_equal(values, twins, equal_nan=equal_nan):
                return False
    return True


def age_of_checkpoints(folder: Path, stopped_at: float) -> float:
    """Seconds from the oldest of the chains' last checkpoints to the stop; 0 where a chain has none."""
    last = [
        max((path.stat().st_mtime for path in chain.glob("*.npz")), default=stopped_at)
        for chain in (folder / "chains").glob("*")
    ]
    return stopped_at - min(last, default=stopped_at)


def run_with_stops(model: str, run: dict[str, Any], folder: Path, rng: random.Random, tally: Tally) -> Any:
    """The result of a run that is stopped again and again."""
    import json

    for attempt in range(30):
        begins = not (folder / "run.json").exists()
        if begins:
            shutil.rmtree(folder, ignore_errors=True)
        arguments = [str(folder), model if begins else "", json.dumps(run)]
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert child.stdout is not None
        child.stdout.readline()
        patience = rng.uniform(0.0, 3.0) if attempt < 12 else 600.0
        try:
            child.wait(patience)
        except subprocess.TimeoutExpired:
            number = rng.choice(SIGNALS)
            child.send_signal(number)
            stopped_at = time.time()
            tally.stops[number.name] += 1
            child.wait(120.0)
            if number == signal.SIGKILL and (folder / "run.json").exists():
                tally.longest = max(tally.longest, age_of_checkpoints(folder, stopped_at))
            if (folder / "run.json").exists():
                try:
                    stanadapt.load(folder)
                    tally.partial += 1
                except StoreError as error:
                    tally.errors.append(f"load: {error}")
        finally:
            child.stdout.close()
        if child.returncode == 0 and (folder / "end.json").exists():
            result = stanadapt.load(folder)
            if not datasets(result)["posterior"].attrs.get("partial"):
                return result
        elif child.returncode > 0 and child.returncode not in (1, 130, 143):
            tally.errors.append(f"{run}: exit status {child.returncode}")
    tally.errors.append(f"{run}: never whole")
    return None


def kept() -> tuple[float, int, int]:
    """Resident memory in MiB, open file descriptors and threads of this process."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20, descriptors, threading.active_count()


def main() -> None:
    """Run for the time given, and print what happened."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rng, tally = random.Random(options.seed), Tally()
    began, marks = time.monotonic(), []
    while time.monotonic() - began < 60.0 * options.minutes:
        model, run = choose(rng)
        whole = stanadapt.sample(model, progress=False, **run)
        with tempfile.TemporaryDirectory() as place:
            result = run_with_stops(model, run, Path(place) / "run", rng, tally)
            tally.runs += 1
            if result is not None and not is_same(whole, result):
                tally.differences += 1
                tally.errors.append(f"{run}: other draws")
        marks.append(kept())
    third = max(1, len(marks) // 3)
    early, late = (np.mean(part, axis=0) for part in (marks[third : 2 * third], marks[-third:]))
    stops = ", ".join(f"{count} {name}" for name, count in sorted(tally.stops.items()))
    print(f"{tally.runs} runs in {(time.monotonic() - began) / 60:.1f} min; stops: {stops or 'none'}")
    print(f"results that differ: {tally.differences}; partial results read: {tally.partial}")
    print(f"longest time since a checkpoint at a kill: {tally.longest:.2f} s, interval {INTERVAL} s")
    print(f"memory of this process: {early[0]:.0f} MiB in the middle third, {late[0]:.0f} in the last")
    print(f"file descriptors {early[1]:.1f} and {late[1]:.1f}; threads {early[2]:.1f} and {late[2]:.1f}")
    for error in tally.errors:
        print(f"error: {error}")
    sys.exit(bool(tally.errors))


if __name__ == "__main__":
    main()
