"""Time from the first import to the printed summary of eight schools: what a user waits for first.

    python examples/benchmarks/start.py [METHOD ...] [--after METHOD] [--cores 1] [--functions 12]

Each method starts from an empty cache of compiled code, in a fresh process ("cold"), and then five times in
fresh processes that find the cache ("warm", medians). With `--after` the cache holds another method at first,
and a line says how much longer than a warm run the first run of each further method takes; "all" stands for
all methods. A process imports the package, fits with
4 x 100 draws and prints the summary, as a script of a user does. CPU seconds are those of the process and of
its children. `--cores 1` keeps all of it on one processor. `--functions` lists the functions whose own
compilation takes longest, without the functions that they call.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "models" / "eight_schools"
PHASES = ("import", "sample", "summary")
WARM_RUNS = 5


def child(method: str) -> None:
    """One process of a user; its last line says what it took."""
    begin = last = time.perf_counter()
    took = {}

    def note(phase: str) -> None:
        nonlocal last
        now = time.perf_counter()
        took[phase], last = now - last, now

    import stanadapt

    note("import")
    compiled = _count_compilations()
    result = stanadapt.sample(
        MODEL / "eight_schools.stan",
        MODEL / "eight_schools.json",
        method=method,
        draws=100,
        seed=1,
        progress=False,
    )
    note("sample")
    print(stanadapt.summary(result))
    note("summary")
    took["all"] = time.perf_counter() - begin
    print(json.dumps({"seconds": took, "compiled": compiled}))


def _count_compilations() -> dict[str, float]:
    """Function -> CPU seconds of its own compilation; it fills while functions are compiled."""
    from numba.core import event

    own: dict[str, float] = collections.defaultdict(float)
    open_ones: list[list[float]] = []  # when each began, and what functions inside it have taken

    class Listener(event.Listener):  # type: ignore[misc]
        def on_start(self, event: Any) -> None:
            open_ones.append([time.process_time(), 0.0])

        def on_end(self, event: Any) -> None:
            began, inner = open_ones.pop()
            took = time.process_time() - began
            function = event.data["dispatcher"].py_func
            own[f"{function.__module__}.{function.__qualname__}"] += took - inner
            if open_ones:
                open_ones[-1][1] += took

    event.register("numba:compile", Listener())
    return own


def run(method: str, cache: str, cores: int) -> tuple[dict[str, Any], float]:
    """What a fresh process says, and its CPU seconds."""
    command = [sys.executable, "-W", "ignore", __file__, "--child", method]
    before = os.times()
    done = subprocess.run(
        command,
        # Images of containers often set the other variable; a user's machine keeps what Python compiles.
        env={name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        | {"XDG_CACHE_HOME": cache},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
        preexec_fn=lambda: os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores]),
    )
    after = os.times()
    cpu = after.children_user - before.children_user + after.children_system - before.children_system
    return json.loads(done.stdout.splitlines()[-1]), cpu


def row(method: str, kind: str, runs: list[tuple[dict[str, Any], float]]) -> str:
    """A line of the table: medians of runs."""
    seconds = [statistics.median(said["seconds"][phase] for said, _ in runs) for phase in ("all", *PHASES)]
    cpu = statistics.median(cpu for _, cpu in runs)
    cells = " | ".join(f"{value:.2f}" for value in (seconds[0], cpu, *seconds[1:]))
    return f"| {method} | {kind} | {cells} | {len(runs[0][0]['compiled'])} |"


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("methods", nargs="*", default=["fisher_hmc", "fisher_mala"], metavar="METHOD")
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--functions", type=int, default=0)
    parser.add_argument("--after", metavar="METHOD")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child)
        return
    print(f"| method | cache | seconds | CPU seconds | {' | '.join(PHASES)} | functions compiled |")
    print("| --- | --- |" + " ---: |" * (len(PHASES) + 3))
    with tempfile.TemporaryDirectory() as held:
        if options.after:
            run(options.after, held, options.cores)
        for method in _all_methods() if options.methods == ["all"] else options.methods:
            measure(method, held, options)


def measure(method: str, held: str, options: argparse.Namespace) -> None:
    """Print the lines of a method, whose cache is at first as the folder `held`."""
    with tempfile.TemporaryDirectory() as folder:
        cache = f"{folder}/cache"
        shutil.copytree(held, cache)
        cold = run(method, cache, options.cores)
        print(row(method, f"with {options.after}" if options.after else "cold", [cold]), flush=True)
        warm = [run(method, cache, options.cores) for _ in range(WARM_RUNS)]
        print(row(method, "warm", warm), flush=True)
    if options.after:
        more = cold[0]["seconds"]["all"] - statistics.median(said["seconds"]["all"] for said, _ in warm)
        more_cpu = cold[1] - statistics.median(cpu for _, cpu in warm)
        print(f"  {method}: {more:.1f} s more than warm, {more_cpu:.1f} CPU seconds more", flush=True)
    slowest = sorted(cold[0]["compiled"].items(), key=lambda item: -item[1])[: options.functions]
    for name, took in slowest:
        print(f"  {took:6.2f} s  {name}")


def _all_methods() -> list[str]:
    import stanadapt

    return [str(name) for name in stanadapt.methods().index]


if __name__ == "__main__":
    main()
