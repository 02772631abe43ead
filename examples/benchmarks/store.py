"""What a store costs: a run beside the same run without one, and memory of a run that stays on the disk.

python examples/benchmarks/store.py                 # cost, runs of some 20 seconds
python examples/benchmarks/store.py --draws 1e7     # memory: 4 chains of so many draws of eight schools
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import stanadapt
from stanadapt.result.container import datasets

MODELS = Path(__file__).parents[2] / "models"
GAUSSIAN = "data { int d; } parameters { vector[d] x; } model { x ~ normal(0, 1); }"
# Name, model, data, and iterations of each of two chains for each second that is asked for, about.
RUNS = [
    ("eight schools, thinned by 100", "schools", None, {"thin": 100}, 250_000),
    ("normal, d = 100, thinned by 20", GAUSSIAN, {"d": 100}, {"thin": 20}, 40_000),
    ("normal, d = 1,000, dense metric", GAUSSIAN, {"d": 1_000}, {"settings": {"metric": "dense"}}, 60),
]


def sample(model: str, data: Any, **keywords: Any) -> tuple[float, float, Any]:
    """Seconds and processor seconds of a run, and its result."""
    if model == "schools":
        model, data = (str(MODELS / f"eight_schools/eight_schools.{end}") for end in ("stan", "json"))
    began, used = time.perf_counter(), time.process_time()
    idata = stanadapt.sample(model, data, method="fisher_hmc", seed=1, progress=False, **keywords)
    return time.perf_counter() - began, time.process_time() - used, idata


def compare(seconds: float, repeats: int) -> None:
    """Print a table of runs with and without a store, in turn."""
    print("| run | CPU s without | with | ratio | with, but no checkpoint before the end | ratio |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    from stanadapt.result.stores import store

    for name, model, data, more, pace in RUNS:
        run = {"chains": 2, "draws": int(pace * seconds), **more}
        sample(model, data, **run | {"draws": 100})
        spent = [0.0, 0.0, 0.0]
        for _ in range(repeats):
            spent[0] += sample(model, data, **run)[1]
            for place, interval in ((1, store.SECONDS), (2, 1e9)):
                before, store.SECONDS = store.SECONDS, interval
                with tempfile.TemporaryDirectory() as folder:
                    spent[place] += sample(model, data, store=Path(folder) / "run", **run)[1]
                store.SECONDS = before
        without, kept, last = (each / repeats for each in spent)
        figures = f"{kept:.1f} | {kept / without:.3f} | {last:.1f} | {last / without:.3f}"
        print(f"| {name} | {without:.1f} | {figures} |")


def measure_memory(draws: int) -> None:
    """Print what a run of so many draws takes, and what its result is."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        seconds, used, idata = sample("schools", None, chains=4, draws=draws, store=path)
        held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        usage = subprocess.run(["du", "-sm", str(path)], capture_output=True, text=True).stdout
        size = int(usage.split()[0])
        print(
            f"4 chains of {draws} draws: {seconds:.0f} s, {used:.0f} s of processor time, {size} MiB on disk"
        )
        print(f"most memory of the process: {held:.0f} MiB")
        mu = datasets(idata)["posterior"]["mu"].isel(draw=slice(-1_000, None))
        print(f"mean of mu over the last 1,000 draws, read from the disk: {float(mu.mean()):.2f}")


def main() -> None:
    """Measure what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each run, about")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--draws", type=float, help="measure memory with so many instead")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.draws is None:
        compare(options.seconds, options.repeats)
    else:
        measure_memory(int(options.draws))


if __name__ == "__main__":
    sys.exit(main())
