"""Start-up, scaling over cores and memory of whole runs; prints a line for each, with its command.

    python examples/benchmarks/run.py [start] [scaling] [memory] [progress]

start     a second start on a machine: program to first draw in-process, and the whole command with netCDF
scaling   throughput of two chains on two cores against one chain on one, alternating
memory    peak resident memory of 4 chains x 100,000 draws of eight schools with generated quantities
progress  time of a run with the progress bar against the same without
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

MODELS = Path(__file__).parents[2] / "models"
PROGRAM = str(MODELS / "eight_schools" / "eight_schools.stan")
DATA = str(MODELS / "eight_schools" / "eight_schools.json")
REPEATS = 5


def _child(code: str, *, env: dict[str, str] | None = None) -> dict[str, float]:
    """Run code in a fresh interpreter; its last line of output is JSON."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ | (env or {})
    )
    return json.loads(done.stdout.strip().splitlines()[-1])


def start() -> None:
    code = f"""
import json, time, warnings
import stanadapt, stanadapt.api, stanadapt.model.backends.stan.stanli
began = time.perf_counter()
posterior = stanadapt.Posterior({PROGRAM!r}, {DATA!r})
opened = time.perf_counter()
warnings.simplefilter("ignore")
from stanadapt.run.workers import threads
marks = []
watch = threads.watch
def marked(futures, board, look):
    while not (board.rows[:-1, 0] > 0).any():
        pass
    marks.append(time.perf_counter())
    return watch(futures, board, look)
threads.watch = marked
stanadapt.sample(posterior, seed=1, progress=False, warmup=1000, draws=1000)
print(json.dumps(dict(opened=opened - began, first=marks[0] - began)))
"""
    _child(code)  # kernels compiled, files in memory
    found = [_child(code) for _ in range(REPEATS)]
    first = np.median([f["first"] for f in found])
    opened = np.median([f["opened"] for f in found])
    print(
        f"start: model opened after {opened:.2f} s, first block of draws after {first:.2f} s (imports done)"
    )
    with tempfile.TemporaryDirectory() as folder:
        out = str(Path(folder) / "fit.nc")
        command = [
            str(Path(sys.executable).parent / "stanadapt"),
            *("sample", PROGRAM, "--data", DATA, "--seed", "1", "--out", out, "--force"),
        ]
        seconds = []
        for _ in range(REPEATS + 1):
            began = time.perf_counter()
            subprocess.run(command, capture_output=True, check=True)
            seconds.append(time.perf_counter() - began)
    print(f"start: whole command on eight schools, netCDF written: {np.median(seconds[1:]):.2f} s")
    with tempfile.TemporaryDirectory() as cache:
        cold = _child(code, env={"XDG_CACHE_HOME": cache})
    print(f"start: the very first, kernels compiled: first block of draws after {cold['first']:.1f} s")


def scaling() -> None:
    import stanadapt

    posterior = stanadapt.Posterior(PROGRAM, DATA)
    n = 4_000_000

    def seconds(chains: int) -> float:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            idata = stanadapt.sample(
                posterior,
                chains=chains,
                workers=chains,
                warmup=1000,
                draws=n,
                thin=100,
                seed=1,
                progress=False,
            )
        return float(idata["posterior"].attrs["sampling_time"])

    seconds(2)
    ratios = []
    for _ in range(REPEATS):
        one, two = seconds(1), seconds(2)
        ratios.append(2 * one / two)
    shown = ", ".join(f"{ratio:.2f}" for ratio in ratios)
    print(f"scaling: two chains against one, throughput: median {np.median(ratios):.2f} ({shown})")


def memory() -> None:
    code = f"""
import json, resource, warnings
import stanadapt
warnings.simplefilter("ignore")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
idata = stanadapt.sample({PROGRAM!r}, {DATA!r}, chains=4, warmup=2000, draws=100_000, seed=1, progress=False)
print(json.dumps(dict(before=before, peak=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)))
"""
    found = _child(code)
    print(
        f"memory: 4 chains x 100,000 draws, 34 values each (104 MiB): peak {found['peak']:.0f} MiB, of which "
        f"{found['before']:.0f} MiB after the import"
    )


def progress() -> None:
    import stanadapt

    posterior = stanadapt.Posterior(PROGRAM, DATA)
    ratios = []
    null = os.open(os.devnull, os.O_WRONLY)
    saved = os.dup(2)
    os.dup2(null, 2)
    try:
        for _ in range(2 * REPEATS):
            seconds = []
            for shown in (False, True):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    began = time.process_time()
                    stanadapt.sample(
                        posterior, chains=2, warmup=1000, draws=1_000_000, thin=1000, seed=1, progress=shown
                    )
                    seconds.append(time.process_time() - began)
            ratios.append(seconds[1] / seconds[0])
    finally:
        os.dup2(saved, 2)
    low, high = np.quantile(ratios, (0.25, 0.75))
    print(
        f"progress: CPU time with the bar / without: median {np.median(ratios):.4f} ({low:.4f} to {high:.4f})"
    )


if __name__ == "__main__":
    parts = {"start": start, "scaling": scaling, "memory": memory, "progress": progress}
    wanted = sys.argv[1:] or list(parts)
    if unknown := [name for name in wanted if name not in parts]:
        sys.exit(f"{', '.join(unknown)}: unknown\n{__doc__}")
    for name in wanted:
        parts[name]()
