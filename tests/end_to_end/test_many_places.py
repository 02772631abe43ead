"""Many fits in worker processes and on a real Dask cluster, with workers that die and Ctrl-C."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_interrupt import Child
from test_signals import members

import stanadapt
from cases import thorough
from dask_workers import clients_of_two_workers
from stanadapt.errors import ArgumentError, ChainError, DataError
from stanadapt.result.container import datasets as groups_of

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore::stanadapt.StanAdaptWarning"),  # chains this short say little
]

SCHOOLS = Path(__file__).parents[2] / "models" / "eight_schools"
PROGRAM = SCHOOLS / "eight_schools.stan"
SHORT: dict[str, Any] = {"method": "fisher_hmc", "warmup": 150, "draws": 60, "chains": 2, "progress": False}


def schools(i: int) -> dict[str, Any]:
    effects = [28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0]
    return {"J": 8, "y": [y + i for y in effects], "sigma": [15, 10, 16, 11, 9, 11, 10, 18]}


DATA = {f"s{i}": schools(i) for i in range(8)}


def theta(result: Any) -> np.ndarray:
    assert not isinstance(result, Exception), result
    return np.asarray(groups_of(result)["posterior"]["theta"].values)


@pytest.fixture(scope="module")
def alone() -> dict[str, np.ndarray]:
    """Draws of fits in this process."""
    results = stanadapt.sample_many(PROGRAM, DATA, seed=1, workers=1, **SHORT)
    return {key: theta(result) for key, result in results}


def test_processes_draw_what_this_process_does(alone: dict[str, np.ndarray], tmp_path: Path) -> None:
    taken = []

    def generate() -> Iterator[tuple[str, Any]]:
        for key, data in DATA.items():
            taken.append(key)
            yield key, data if key != "s3" else {**data, "J": 7}

    came = {}
    for key, result in stanadapt.sample_many(PROGRAM, generate(), seed=1, workers=2, out=tmp_path, **SHORT):
        came[key] = result
        assert len(taken) <= len(came) + 2 * 2
    assert isinstance(came.pop("s3"), DataError)
    assert set(came) == set(DATA) - {"s3"}
    assert all(np.array_equal(theta(result), alone[key]) for key, result in came.items())
    assert next(iter(came.values())).posterior["theta"].values.flags.writeable
    resumed = dict(stanadapt.sample_many(PROGRAM, DATA, seed=1, workers=1, out=tmp_path, **SHORT))
    assert all(np.array_equal(theta(resumed[key]), alone[key]) for key in DATA)


# A target that ends its process at one data set, as a library that crashes does.
CRASH = """
import os, sys, warnings
import stanadapt
warnings.simplefilter("ignore")

def target(i):
    def log_density(x):
        if i == 3:
            os._exit(7)
        return -0.5 * float(x @ x)
    return stanadapt.Target.from_python(log_density, 1)

fits = {i: (target(i), None) for i in range(8)}
results = stanadapt.sample_many(
    None, fits, method="rwm", warmup=20, draws=20, chains=1, seed=1, workers=2, progress=False
)
for key, result in sorted(results, key=lambda pair: pair[0]):
    print(key, type(result).__name__, str(result).partition(":")[0] if isinstance(result, Exception) else "")
"""


# `make test` has fits that are ended with their process, and others that go on, in test_many.py.
@pytest.mark.thorough
def test_a_fit_that_kills_its_process_has_an_error_and_no_other_does() -> None:
    status, stdout, stderr = Child(CRASH).end()
    assert status == 0, stderr
    lines = stdout.splitlines()
    assert lines[3].startswith("3 ChainError a worker process died (")
    kinds = {line.split()[1] for i, line in enumerate(lines) if i != 3}
    assert len(lines) == 8
    assert kinds <= {"InferenceData", "DataTree"}


# Two fits that are done at once, and others that take minutes. It says so when it is asked for data after the
# second result: then a signal comes to `sample_many`, and not to this script.
LONG = """
import sys, warnings
import stanadapt
warnings.simplefilter("always")
out, workers = sys.argv[1:]
CODE = "data { int n; } parameters { real x; } model { for (i in 1:n) target += -square(x - sin(i)) / n; }"

def data():
    for i in range(100):
        if i == (2 if workers == "1" else 5):
            print("asked", file=sys.stderr, flush=True)
        yield {"n": 1 if i < 2 else 10**5}

arguments = dict(method="rwm", warmup=5, draws=100_000, chains=1, seed=1, progress=False)
came = []
for key, result in stanadapt.sample_many(CODE, data(), out=out, workers=int(workers), **arguments):
    came.append(key)
print(sorted(came))
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked for in /proc")
# Signals to fits in processes are in test_signals_in_loops.py.
@pytest.mark.parametrize("workers", [1, thorough(2)])
def test_ctrl_c_ends_with_the_fits_that_are_done(workers: int, tmp_path: Path) -> None:
    child = Child(LONG, tmp_path, workers)
    child.wait_for("asked")
    child.interrupt()
    status, stdout, stderr = child.end()
    assert (status, stdout) == (0, "[0, 1]\n"), stderr
    assert "The run was interrupted after 2 fits" in stderr
    assert members(child.process.pid) == {}
    assert len((tmp_path / "index.jsonl").read_text().splitlines()) == 2
    assert len(list((tmp_path / "fits").iterdir())) == 2


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    yield from clients_of_two_workers()


def test_a_cluster_draws_what_this_process_does(
    cluster: Any, alone: dict[str, np.ndarray], tmp_path: Path
) -> None:
    bad = {**DATA, "bad": {"J": 8}}
    results = dict(stanadapt.sample_many(PROGRAM, bad, seed=1, cluster=cluster, out=tmp_path, **SHORT))
    assert isinstance(results.pop("bad"), DataError)
    assert all(np.array_equal(theta(results[key]), alone[key]) for key in DATA)
    assert groups_of(results["s0"])["posterior"]["theta"].values.flags.writeable
    assert len(list((tmp_path / "fits").iterdir())) == len(DATA)
    address = cluster.scheduler.address
    again = dict(stanadapt.sample_many(PROGRAM, DATA, seed=1, cluster=address, out=tmp_path, **SHORT))
    assert set(again) == set(DATA)
    assert cluster.status == "running"


def test_a_worker_that_dies_and_one_that_is_added_change_nothing(
    cluster: Any, alone: dict[str, np.ndarray]
) -> None:
    pids = list(cluster.run(os.getpid).values())
    results = stanadapt.sample_many(PROGRAM, DATA, seed=1, cluster=cluster, **SHORT)
    came = dict([next(results)])
    os.kill(pids[0], signal.SIGKILL)
    cluster.cluster.scale(3)
    came |= dict(results)
    assert set(came) == set(DATA)
    assert all(np.array_equal(theta(result), alone[key]) for key, result in came.items())
    assert pids[0] not in cluster.run(os.getpid).values()


@pytest.mark.thorough  # a worker that dies is seen above
def test_a_restart_of_the_cluster_costs_nothing_but_time(cluster: Any, alone: dict[str, np.ndarray]) -> None:
    results = stanadapt.sample_many(PROGRAM, DATA, seed=1, cluster=cluster, **SHORT)
    came = dict([next(results)])
    cluster.restart()
    came |= dict(results)
    assert set(came) == set(DATA)
    assert all(np.array_equal(theta(result), alone[key]) for key, result in came.items())


def test_a_cluster_that_is_gone_is_said(cluster: Any) -> None:
    distributed = pytest.importorskip("distributed")
    client = distributed.Client(cluster.scheduler.address, set_as_default=False)
    results = stanadapt.sample_many(PROGRAM, DATA, seed=1, cluster=client, **SHORT)
    next(results)
    client.close()
    with pytest.raises(ChainError, match="the connection to the Dask cluster is lost"):
        dict(results)
    with pytest.raises(ArgumentError, match="is not connected"):
        stanadapt.sample_many(PROGRAM, DATA, cluster=client, **SHORT)
    with pytest.raises(ArgumentError, match="cannot be reached"):
        stanadapt.sample_many(PROGRAM, DATA, cluster="no address", **SHORT)
