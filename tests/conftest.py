"""Shared by all tests."""

from __future__ import annotations

import gc
import importlib
import os
import shutil
import signal
import subprocess
import warnings
from collections.abc import Iterator
from pathlib import Path

import bridgestan
import pytest

import proof
from stanadapt import check
from stanadapt.numerics.blas import one_thread
from stanadapt.run.workers import migration
from stanadapt.run.workers.processes import Processes
from stanadapt.run.workers.threads import Threads

ROOT = Path(__file__).parents[1]


def pytest_addoption(parser: pytest.Parser) -> None:
    proof.add_option(parser)


def pytest_configure(config: pytest.Config) -> None:
    # numba's objects stay for as long as a process lives. To look through them after every 700 new ones takes
    # six percent of the time of all tests.
    gc.set_threshold(20_000, 20, 20)
    if config.getoption("--proof"):
        config.pluginmanager.register(proof.Table())
    if getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput"):
        # When arviz 0.x is imported it writes to a file which day it is. Processes that do so together, as
        # the first of a day, move each other's file away, and all but one fail.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            importlib.import_module("arviz")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    proof.choose_seeds(metafunc)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores: many tests wait for processes and files most of their time."""
    return check.available_cores() + 1


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    proof.keep_those_with_seeds(config, items)


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """Of a statistical test; see proof.py."""
    return proof.seed_of(request)


@pytest.fixture(scope="session", autouse=True)
def _interrupts_are_not_ignored() -> None:
    """As in a terminal. Where a shell runs the tests in the background they are, and in children too."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _blas_as_in_chains() -> Iterator[None]:
    """One thread, for tests that run kernels and fits without the runner: more only wait for each other."""
    with one_thread():
        yield


@pytest.fixture(scope="session", autouse=True)
def _chains_stay_in_threads() -> Iterator[None]:
    """Whether chains learn for long enough to be worth processes is the clock's doing."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(migration, "PATIENCE_SECONDS", float("inf"))
        yield


@pytest.fixture
def never_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sampling fails the test: what is refused must be refused before it."""

    def run(*_: object) -> None:
        pytest.fail("sampling began")

    for turns in (Threads, Processes):
        monkeypatch.setattr(turns, "team", run)


@pytest.fixture(scope="session")
def posteriordb() -> Path:
    """PosteriorDB's folder `posterior_database`: from POSTERIORDB, or beside the project."""
    default = ROOT.parent / "shared" / "data" / "posteriordb" / "posterior_database"
    folder = Path(os.environ.get("POSTERIORDB", default))
    if not (folder / "posteriors").is_dir():
        pytest.skip("PosteriorDB is not here; POSTERIORDB names its folder posterior_database")
    return folder


@pytest.fixture(scope="session")
def gaussian_libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """tests/native/gaussian.c as libraries that say they are safe in "threads", and that they are not."""
    folder = tmp_path_factory.mktemp("native")
    return {
        "threads": build_gaussian(folder / "threads_model.so", "-DTHREADS"),
        "processes": build_gaussian(folder / "processes_model.so"),
    }


def build_gaussian(library: Path, *flags: str) -> Path:
    """Compile tests/native/gaussian.c, as a library of the installed BridgeStan's version."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler, which the stand-in for a compiled Stan program needs")
    source = ROOT / "tests" / "native" / "gaussian.c"
    version = zip(("MAJOR", "MINOR", "PATCH"), bridgestan.__version__.split("."), strict=True)
    numbers = [f"-D{name}={number}" for name, number in version]
    command = [compiler, "-O1", "-shared", "-fPIC", *numbers, *flags, str(source), "-o", str(library), "-lm"]
    subprocess.run(command, check=True)
    return library
