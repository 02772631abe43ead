"""Time from the first import to the printed summary of eight schools: what a user waits for first.

    python examples/benchmarks/start.py [METHOD ...] [--after METHOD] [--cores 1] [--functions 12]

Each method starts from an empty cache of compiled code, in a fresh process ("cold"), and then five times in
fresh processes that find the cache ("warm", medians). With `--after` the cache holds another method at first,
and a line says how much longer than a warm run the first run of each further method takes; "all" stands for
all methods. A process imports the package, fits with
4 x 100 draws and prints the summary, as a script of a user does. CPU seconds are those of the process and of
its children. `--cores 1` keeps all of it on one processor. "Own" is the wall time without the imports of
other packages, which a fresh process of its own takes; the last line has them one by one. `--functions` lists
the functions whose own compilation takes longest, and those whose machine code takes longest to load, without
the functions that they call; the clocks for that add some tenths of a second to a first run.
"""

from __future__ import annotations

import argparse
import collections
import importlib
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
# What a run imports of other packages; of arviz 0.x it is the container without pictures.
OTHERS = [
    *("numpy", "numba", "pandas", "xarray", "scipy.special", "scipy.linalg", "scipy.fft"),
    *("bridgestan", "stanli", "arviz"),
]


def child(method: str, times_functions: bool) -> None:
    """One process of a user; its last line says what it took, and with `times_functions` what in it."""
    begin = last = time.perf_counter()
    took = {}

    def note(phase: str) -> None:
        nonlocal last
        now = time.perf_counter()
        took[phase], last = now - last, now

    import stanadapt

    note("import")
    compiled, loaded = _count_compilations(times_functions), _count_loads(times_functions)
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
    print(json.dumps({"seconds": took, "compiled": compiled, "loaded": loaded}))


def import_others() -> None:
    """One process that imports other packages as ours does, and says what each took beside those before."""
    took = {}
    for name in OTHERS:
        begin = time.perf_counter()
        if name == "arviz":
            importlib.import_module("stanadapt.result.container")
            from stanadapt.result.light_arviz import inference_data_class

            begin = time.perf_counter()
            inference_data_class()
        else:
            importlib.import_module(name)
        took[name] = time.perf_counter() - begin
        if name == "numpy":
            from stanadapt.late_modules import put_off

            put_off(sys.modules["numpy"], "f2py")
    print(json.dumps(took))


class OwnTimes:
    """CPU seconds by name of things that begin and end inside each other, each without those inside of it."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = collections.defaultdict(float)
        self._open: list[list[float]] = []  # when each began, and what those inside it have taken

    def begin(self) -> None:
        self._open.append([time.process_time(), 0.0])

    def end(self, name: str) -> None:
        began, inner = self._open.pop()
        took = time.process_time() - began
        self.seconds[name] += took - inner
        if self._open:
            self._open[-1][1] += took


def _count_compilations(times_functions: bool) -> dict[str, float]:
    """Function -> CPU seconds of its own compilation; it fills while functions are compiled."""
    times = OwnTimes()
    if not times_functions:  # clocks of the process take two tenths of a second in a first run
        return times.seconds
    from numba.core import event

    class Listener(event.Listener):  # type: ignore[misc]
        def on_start(self, event: Any) -> None:
            times.begin()

        def on_end(self, event: Any) -> None:
            function = event.data["dispatcher"].py_func
            times.end(f"{function.__module__}.{function.__qualname__}")

    event.register("numba:compile", Listener())
    return times.seconds


def _count_loads(times_functions: bool) -> dict[str, float]:
    """Kernel -> CPU seconds to load its machine code; it fills while kernels are loaded."""
    times = OwnTimes()
    if not times_functions:
        return times.seconds
    from stanadapt.compiler import kernel_files

    load = kernel_files.load

    def timed(path: Path, *arguments: Any) -> Any:
        times.begin()
        try:
            return load(path, *arguments)
        finally:
            times.end(path.name.rpartition("-")[0])

    kernel_files.load = timed
    return times.seconds


def run(arguments: list[str], cache: str, cores: int) -> tuple[dict[str, Any], float]:
    """What a fresh process says, and its CPU seconds."""
    command = [sys.executable, "-W", "ignore", __file__, *arguments]
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


def row(method: str, kind: str, runs: list[tuple[dict[str, Any], float]], others: float) -> str:
    """A line of the table: medians of runs, where imports of other packages take so many seconds."""
    seconds = [statistics.median(said["seconds"][phase] for said, _ in runs) for phase in ("all", *PHASES)]
    cpu = statistics.median(cpu for _, cpu in runs)
    cells = " | ".join(f"{value:.2f}" for value in (seconds[0], seconds[0] - others, cpu, *seconds[1:]))
    return f"| {method} | {kind} | {cells} |"


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("methods", nargs="*", default=["fisher_hmc", "fisher_mala"], metavar="METHOD")
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--functions", type=int, default=0)
    parser.add_argument("--after", metavar="METHOD")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--import-others", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.import_others:
        import_others()
        return
    if options.child:
        child(options.child, options.functions > 0)
        return
    print(f"| method | cache | seconds | own | CPU seconds | {' | '.join(PHASES)} |")
    print("| --- | --- |" + " ---: |" * (len(PHASES) + 3))
    with tempfile.TemporaryDirectory() as held:
        imports = [run(["--import-others"], held, options.cores)[0] for _ in range(WARM_RUNS)]
        others = {name: statistics.median(took[name] for took in imports) for name in OTHERS}
        if options.after:
            run(["--child", options.after], held, options.cores)
        for method in _all_methods() if options.methods == ["all"] else options.methods:
            measure(method, held, options, sum(others.values()))
    each = ", ".join(f"{name} {took:.2f}" for name, took in others.items())
    print(f"imports of other packages: {sum(others.values()):.2f} s ({each})")


def measure(method: str, held: str, options: argparse.Namespace, others: float) -> None:
    """Print the lines of a method, whose cache is at first as the folder `held`."""
    with tempfile.TemporaryDirectory() as folder:
        cache = f"{folder}/cache"
        shutil.copytree(held, cache)
        arguments = ["--child", method, "--functions", str(options.functions)]
        cold = run(arguments, cache, options.cores)
        print(row(method, f"with {options.after}" if options.after else "cold", [cold], others), flush=True)
        warm = [run(arguments, cache, options.cores) for _ in range(WARM_RUNS)]
        print(row(method, "warm", warm, others), flush=True)
    if options.after:
        more = cold[0]["seconds"]["all"] - statistics.median(said["seconds"]["all"] for said, _ in warm)
        more_cpu = cold[1] - statistics.median(cpu for _, cpu in warm)
        print(f"  {method}: {more:.1f} s more than warm, {more_cpu:.1f} CPU seconds more", flush=True)
    for what, said in (("compiled", cold[0]), ("loaded", warm[0][0])) if options.functions else ():
        print(f"  {len(said[what])} functions {what}")
        for name, took in sorted(said[what].items(), key=lambda item: -item[1])[: options.functions]:
            print(f"  {took:6.3f} s  {what} {name}")


def _all_methods() -> list[str]:
    import stanadapt

    return [str(name) for name in stanadapt.methods().index]


if __name__ == "__main__":
    main()
