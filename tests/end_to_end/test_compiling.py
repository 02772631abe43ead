"""Compiling ahead: afterwards a run compiles nothing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import stanadapt
from cases import partly_thorough
from kernels import copy_kernels
from stanadapt import api, cli
from stanadapt.compiler.kernel_files import load
from stanadapt.compiler.kernel_folder import cache_folder
from stanadapt.errors import ArgumentError
from stanadapt.run.preparation.compiling import Step

pytestmark = pytest.mark.timeout(300)

SCHOOLS = Path(__file__).parents[2] / "models" / "eight_schools" / "eight_schools"
# Of each kind: without gradients, with windows, refits, a policy, Hessians, replicas, and an engine.
METHODS = ["rwm", "fisher_mala", "fisher_hmc", "kmc_finite", "rlmh", "mmala", "tempered", "nuts"]

FRESH = """
import json, sys, warnings
warnings.simplefilter("ignore")
import stanadapt
from numba.core.dispatcher import Dispatcher
from stanadapt import api
from stanadapt.run.preparation import compiling

schools, methods = sys.argv[1], sys.argv[2:]
compiling._is_marked = lambda step: False  # so that no step is left out

def loaded():
    # Of all kernels of the package, the types for which this process has compiled or loaded them.
    found = set()
    for name, module in list(sys.modules.items()):
        if name.startswith("stanadapt"):
            kernels = [each for each in vars(module).values() if isinstance(each, Dispatcher)]
            kernels += [vars(each)["entry"] for each in kernels if "entry" in vars(each)]
            found |= {(each.py_func.__qualname__, str(types)) for each in kernels for types in each.overloads}
    return found

for method in methods:
    api.compile(method, progress=False)
    before = loaded()
    run = {"chains": 2, "warmup": 500, "draws": 200, "seed": 1, "progress": False}
    idata = stanadapt.sample(f"{schools}.stan", f"{schools}.json", method=method, **run)
    stanadapt.summary(idata)
    print(json.dumps([method, sorted(loaded() - before)]))
"""


@pytest.mark.thorough
def test_a_run_after_it_calls_no_other_kernels() -> None:
    """It has compiled, or loaded, all kernels and types that Python calls in a run of the method."""
    command = [sys.executable, "-c", FRESH, str(SCHOOLS), *METHODS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    assert [json.loads(line) for line in done.stdout.splitlines()] == [[method, []] for method in METHODS]


COUNTED = """
import sys, warnings
warnings.simplefilter("ignore")
import stanadapt
from numba.core import codegen, event

compiled = []

class Listener(event.Listener):
    def on_start(self, event):
        compiled.append(event.data["dispatcher"].py_func.__qualname__)

    def on_end(self, event):
        pass

event.register("numba:compile", Listener())
generate = codegen.CPUCodeLibrary.finalize

def generate_counted(library):  # machine code that is made without numba's compiler
    if library.name not in ("nrt", *compiled):  # each process makes numba's own
        compiled.append(library.name)
    generate(library)

codegen.CPUCodeLibrary.finalize = generate_counted
schools, method = sys.argv[1:]
run = {"chains": 2, "warmup": 300, "draws": 100, "seed": 1, "progress": False}
stanadapt.summary(stanadapt.sample(f"{schools}.stan", f"{schools}.json", method=method, **run))
print(*compiled)
"""


def run_here(method: str) -> None:
    """The run of COUNTED in this process, so that this user's cache has all that it calls."""
    run: dict[str, Any] = {"chains": 2, "warmup": 300, "draws": 100, "seed": 1, "progress": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        stanadapt.summary(stanadapt.sample(f"{SCHOOLS}.stan", f"{SCHOOLS}.json", method=method, **run))


@pytest.mark.parametrize("method", partly_thorough(METHODS, ("fisher_hmc",)))
def test_a_second_process_compiles_nothing(method: str) -> None:
    run_here(method)
    command = [sys.executable, "-c", COUNTED, str(SCHOOLS), method]
    done = subprocess.run(command, capture_output=True, text=True, timeout=140)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []


def test_kernels_that_came_with_the_package(tmp_path: Path) -> None:
    """A copy of the package that brings them compiles nothing, but damaged ones, whose files it leaves."""

    def run() -> list[str]:
        command = [sys.executable, "-c", COUNTED, str(SCHOOLS), "rwm"]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=140, env=environment, cwd=tmp_path
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    environment = dict(os.environ)
    run_here("rwm")
    package = tmp_path / "stanadapt"
    shutil.copytree(Path(stanadapt.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    shipped = package / "compiled" / cache_folder().name
    copy_kernels(shipped)
    environment |= {"PYTHONPATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    assert run() == []
    assert not list((tmp_path / "cache").rglob("*.code"))
    damaged = list(shipped.rglob("rwm.sweep-*.code"))
    for file in damaged:
        file.write_bytes(file.read_bytes()[:-1])
    assert damaged
    assert run() == ["sweep"]
    assert run() == []
    assert len(list((tmp_path / "cache").rglob("*.code"))) == 1
    assert all(load(file, (), None) is None for file in damaged)


def test_the_command_fills_a_cache(tmp_path: Path) -> None:
    """A copy of this user's cache without what is a method's own, and results', to save time."""

    def command(*arguments: str) -> str:
        run = [sys.executable, "-c", "from stanadapt.cli import main; main()", *arguments]
        done = subprocess.run(run, capture_output=True, text=True, env=environment, timeout=280)
        assert done.returncode == 0, done.stderr
        return done.stderr

    def files() -> set[Path]:
        return set(tmp_path.rglob("*.code"))

    missing = ("rwm.", "streams.")
    copy_kernels(tmp_path / "cache" / "stanadapt" / "kernels" / cache_folder().name, without=missing)
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    said = command("compile", "rwm")
    assert "compiling for this machine, which happens once: 1/5, the start of rwm" in said
    assert command("compile", "rwm") == ""
    compiled = files()
    assert {path.name.partition(".")[0] + "." for path in compiled} >= set(missing)
    model = [f"{SCHOOLS}.stan", "--data", f"{SCHOOLS}.json", "--method", "rwm", "--seed", "1"]
    short = ("--chains", "2", "--warmup", "500", "--draws", "500")
    said = command("sample", *model, "--out", str(tmp_path / "fit.nc"), *short)
    assert "compiling" not in said
    assert files() == compiled


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The names of methods that something compiles, which is not done."""
    found: list[list[str]] = []

    def ahead(methods: list[str]) -> list[Step]:
        found.append(list(methods))
        return []

    monkeypatch.setattr(api, "ahead_steps", ahead)
    return found


def test_which_methods(asked: list[list[str]]) -> None:
    stanadapt.compile(progress=False)
    stanadapt.compile("rwm", progress=False)
    stanadapt.compile(["am", "gad_rwm"], progress=False)
    for arguments in ([], ["--all"], ["hmc", "nuts"]):
        assert CliRunner().invoke(cli.main, ["compile", "--no-progress", *arguments]).exit_code == 0
    default = ["fisher_hmc", "fisher_mala"]
    every = list(stanadapt.methods().index)
    assert asked == [default, ["rwm"], ["am", "gad_rwm"], default, every, ["hmc", "nuts"]]


def test_what_is_not_allowed(asked: list[list[str]]) -> None:
    with pytest.raises(ArgumentError, match=r"methods='fisher_hcm'.*fisher_hmc"):
        stanadapt.compile("fisher_hcm")
    with pytest.raises(ArgumentError, match="progress=3"):
        stanadapt.compile("rwm", progress=3)  # type: ignore[arg-type]
    result = CliRunner().invoke(cli.main, ["compile", "--all", "rwm"])
    assert result.exit_code == 2
    assert "--all is not allowed with names of methods" in result.output
    assert CliRunner().invoke(cli.main, ["compile", "fisher_hcm"]).exit_code == 2
    assert asked == []
