"""Runs that are killed at random moments, resumed each time, and compared with the uninterrupted run.

    python examples/benchmarks/kills.py KILLS [NAME ...]

For each of NAMES (a method of each family, one with a pilot, auto, nuts, and a noisy Python target in
processes): a run in a folder is killed with SIGKILL, resumed, killed again, and so on until it is over;
then the next run begins, until there were so many kills. After each kill the folder is read as well: its
draws must be the first of the uninterrupted run's. All draws, warm-up, statistics and labels are compared
bit for bit.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

import stanadapt  # noqa: E402
import stores  # noqa: E402
from stanadapt.result.container import datasets  # noqa: E402

MODEL = ROOT / "models" / "eight_schools"
SECONDS = 1.0  # about, of a run without its imports

# Name -> arguments of `sample`. Draws are set so that a run takes some seconds.
RUNS: dict[str, dict[str, Any]] = {
    "walk": {"method": "arwmh", "warmup": 20_000, "draws": 60_000, "thin": 10},
    "Langevin": {"method": "fisher_mala", "warmup": 20_000, "draws": 60_000, "thin": 10},
    "Hamiltonian": {"method": "fisher_hmc", "warmup": 5_000, "draws": 20_000, "thin": 4},
    "surrogate": {"method": "kmc_finite", "warmup": 3_000, "draws": 6_000, "thin": 2},
    "policy": {"method": "rlmh", "warmup": 6_000, "draws": 20_000, "thin": 4},
    "pilot": {"method": "mmala", "warmup": 6_000, "draws": 6_000, "thin": 2, "settings": {"pilot": 3_000}},
    "auto": {"method": "auto", "draws": 20_000, "thin": 4},
    "nuts": {"method": "nuts", "warmup": 4_000, "draws": 20_000, "thin": 4},
    "noisy": {"method": "rwm", "warmup": 1_000, "draws": 8_000, "thin": 4},
}


def noisy() -> Any:
    """A density that is estimated, in Python, so that chains run in processes."""

    def log_density(x: np.ndarray, rng: np.random.Generator) -> float:
        return -0.5 * float(x @ x) + 0.3 * float(rng.standard_normal())

    return stanadapt.Target.from_python(log_density, 2, noisy=True, names=["a", "b"])


def run(name: str, folder: Path | None) -> Any:
    arguments = RUNS[name] | {"seed": 3, "progress": False, "save_warmup": True, "chains": 3}
    if name == "noisy":
        return stanadapt.sample(noisy(), None, store=folder, **arguments)
    files = MODEL / "eight_schools.stan", MODEL / "eight_schools.json"
    return stanadapt.sample(*files, store=folder, **arguments)


def child(name: str, folder: Path) -> None:
    """In a process of its own: begin, or go on, with checkpoints and blocks as often as can be."""
    from stanadapt.result import store
    from stanadapt.run.workers import processes

    store.SECONDS, store.SHARE, store.BLOCK_BYTES = 0.05, 0.5, 2**14
    processes._KEEPING_SECONDS = 0.1
    print("begins", flush=True)
    if (folder / "run.json").exists():
        stanadapt.resume(folder, noisy() if name == "noisy" else None, progress=False)
    else:
        run(name, folder)


def kill_often(name: str, kills: int, rng: random.Random) -> str:
    """What came of it, as a row of a table. Raises AssertionError where a draw differs."""
    whole = run(name, None)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "run"
        lasting = 0.0  # seconds of a run
        killed = runs = behind = reads = kept = 0
        while killed < kills or (folder / "run.json").exists():
            process = subprocess.Popen(
                [sys.executable, __file__, "--child", name, str(folder)], stdout=subprocess.PIPE, text=True
            )
            assert process.stdout is not None
            process.stdout.readline()
            began = time.monotonic()
            last = killed >= kills
            try:
                wait = None if last or not lasting else rng.uniform(0.0, lasting)
                status = process.wait(wait)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                killed += 1
                if not (folder / "run.json").exists():
                    behind += 1
                    continue
                part = stanadapt.load(folder)
                kept += stores.assert_part(part, whole) > 0
                reads += 1
                continue
            process.communicate()
            assert status == 0, f"{name}: the run ended with status {status}"
            lasting = max(lasting, time.monotonic() - began)
            stores.assert_same(stanadapt.load(folder), whole)
            runs += 1
            shutil.rmtree(folder)
        draws = datasets(whole)["posterior"].sizes["draw"]
    return f"| {name} | {killed} | {runs} | {draws} | {behind} | {reads} | {kept} | {lasting:.1f} |"


def main() -> None:
    if sys.argv[1] == "--child":
        warnings.simplefilter("ignore")
        child(sys.argv[2], Path(sys.argv[3]))
        return
    warnings.simplefilter("ignore")
    print("| run | kills | runs | draws of each chain | before it began | read | with draws | seconds |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name in sys.argv[2:] or RUNS:
        print(
            kill_often(name, int(sys.argv[1]), random.Random(f"{name} {Path(__file__).name}")),
            flush=True,
        )


if __name__ == "__main__":
    main()
