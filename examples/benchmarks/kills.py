"""Runs that are killed at random moments, resumed each time, and compared with the uninterrupted run.

    python examples/benchmarks/kills.py KILLS [NAME ...]

For each of NAMES (a method of each family, one with a pilot, auto, nuts, a noisy Python target in processes,
and where PyMC and JAX are installed their models): a run in a folder is killed with SIGKILL, resumed, killed
again, and so on until it is over; then the next run begins, until there were so many kills. Where chains run
in processes, every second kill is of one process that the run has started, and the run itself must end with
a ChainError, or be right. After each kill the folder is read as well: its draws must be the first of the
uninterrupted run's. All draws, warm-up, statistics and labels are compared bit for bit.
"""

from __future__ import annotations

import importlib.util
import os
import random
import shutil
import signal
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
LONGEST = 120  # seconds that a run may take to notice that a process of it has died

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


# Models whose chains run in processes.
IN_PROCESSES = {"noisy", "pymc-op", "jax", "numpyro"}
# Models of other packages, which are not of the default list where the package is missing.
OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "pymc": ("pymc", {"method": "fisher_hmc", "warmup": 3_000, "draws": 20_000, "thin": 4}),
    "pymc-op": ("pymc", {"method": "mala", "warmup": 1_000, "draws": 4_000, "thin": 4}),
    "jax": ("jax", {"method": "fisher_hmc", "warmup": 1_000, "draws": 4_000, "thin": 4}),
    "jax-threads": ("jax", {"method": "fisher_hmc", "warmup": 1_000, "draws": 4_000, "thin": 4}),
    "numpyro": ("numpyro", {"method": "fisher_mala", "warmup": 2_000, "draws": 8_000, "thin": 4}),
}
RUNS |= {name: run for name, (package, run) in OTHERS.items() if importlib.util.find_spec(package)}


def noisy() -> Any:
    """A density that is estimated, in Python, so that chains run in processes."""

    def log_density(x: np.ndarray, rng: np.random.Generator) -> float:
        return -0.5 * float(x @ x) + 0.3 * float(rng.standard_normal())

    return stanadapt.Target.from_python(log_density, 2, noisy=True, names=["a", "b"])


def in_jax(threads: bool) -> Any:
    """Eight schools as a log density in JAX."""
    import jax
    from jax import numpy as jnp

    jax.config.update("jax_enable_x64", True)
    effects = jnp.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
    errors = jnp.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])

    def log_density(p: Any) -> Any:
        tau = jnp.exp(p["log_tau"])
        theta = p["mu"] + tau * p["theta_trans"]
        prior = -0.5 * (p["mu"] / 5.0) ** 2 - jnp.log1p((tau / 5.0) ** 2) + p["log_tau"]
        prior -= 0.5 * jnp.sum(p["theta_trans"] ** 2)
        return prior - 0.5 * jnp.sum(((effects - theta) / errors) ** 2)

    example = {"mu": 0.0, "log_tau": 0.0, "theta_trans": np.zeros(8)}
    return stanadapt.Target.from_jax(log_density, example, threads=threads)


def model_and_data(name: str) -> tuple[Any, Any]:
    """What a run is of, made anew in each process."""
    if name == "noisy":
        return noisy(), None
    if name in ("jax", "jax-threads"):
        return in_jax(threads=name == "jax-threads"), None
    if name == "numpyro":
        import jax_pairs

        pair = jax_pairs.pairs()["eight_schools"]
        return pair.model, pair.data
    if name in ("pymc", "pymc-op"):
        import pymc_cases

        return pymc_cases.schools() if name == "pymc" else pymc_cases.own_op(pymc_cases.Twice()), None
    return MODEL / "eight_schools.stan", MODEL / "eight_schools.json"


def run(name: str, folder: Path | None) -> Any:
    arguments = RUNS[name] | {"seed": 3, "progress": False, "save_warmup": True, "chains": 3}
    return stanadapt.sample(*model_and_data(name), store=folder, **arguments)


def child(name: str, folder: Path) -> None:
    """In a process of its own: begin, or go on, with checkpoints and blocks as often as can be."""
    from stanadapt.result.stores import store
    from stanadapt.run.workers import processes

    store.SECONDS, store.SHARE, store.BLOCK_BYTES = 0.05, 0.5, 2**14
    processes._KEEPING_SECONDS = 0.1
    print("begins", flush=True)
    if (folder / "run.json").exists():
        own = name in IN_PROCESSES or name in OTHERS
        stanadapt.resume(folder, *(model_and_data(name) if own else ()), progress=False)
    else:
        run(name, folder)


def kill_one(parent: int, rng: random.Random) -> bool:
    """Kill one of the processes that a process has started; False where it has none."""
    threads = Path(f"/proc/{parent}/task").glob("*/children")
    started = [number for thread in threads for number in thread.read_text().split()]
    if not started:
        return False
    os.kill(int(rng.choice(started)), signal.SIGKILL)
    return True


def kill_often(name: str, kills: int, rng: random.Random) -> str:
    """What came of it, as a row of a table. Raises AssertionError where a draw differs."""
    whole = run(name, None)
    alone = 0  # of the kills, those of one process that the run has started
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "run"
        lasting = 0.0  # seconds of a run
        killed = runs = behind = reads = kept = 0
        while killed < kills or (folder / "run.json").exists():
            process = subprocess.Popen(
                [sys.executable, __file__, "--child", name, str(folder)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            assert process.stdout is not None
            process.stdout.readline()
            began = time.monotonic()
            last = killed >= kills
            try:
                wait = None if last or not lasting else rng.uniform(0.0, lasting)
                status = process.wait(wait)
            except subprocess.TimeoutExpired:
                if name in IN_PROCESSES and killed % 2 and kill_one(process.pid, rng):
                    alone += 1
                    _, words = process.communicate(timeout=LONGEST)
                    assert not process.returncode or "a worker process died" in words, words
                else:
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
            _, words = process.communicate()
            assert status == 0, f"{name}: the run ended with status {status}: {words}"
            lasting = max(lasting, time.monotonic() - began)
            stores.assert_same(stanadapt.load(folder), whole)
            runs += 1
            shutil.rmtree(folder)
        draws = datasets(whole)["posterior"].sizes["draw"]
    return f"| {name} | {killed} | {alone} | {runs} | {draws} | {behind} | {reads} | {kept} | {lasting:.1f} |"


def main() -> None:
    if sys.argv[1] == "--child":
        warnings.simplefilter("ignore")
        child(sys.argv[2], Path(sys.argv[3]))
        return
    warnings.simplefilter("ignore")
    columns = "run", "kills", "of one process", "runs", "draws of each chain", "before it began", "read"
    print(f"| {' | '.join((*columns, 'with draws', 'seconds'))} |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name in sys.argv[2:] or RUNS:
        print(
            kill_often(name, int(sys.argv[1]), random.Random(f"{name} {Path(__file__).name}")),
            flush=True,
        )


if __name__ == "__main__":
    main()
