"""Imports go one way, and each outside library has one door."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest

import stanadapt
from cases import kernel_methods, methods, resolve
from stanadapt.run.warmup import warm_up
from stanadapt.trace import empty_trace

PACKAGE = Path(stanadapt.__file__).parent

# From the ground up: a room imports only from rooms that stand before it.
ROOMS = [
    "errors",
    "cache",
    "check",
    "jit",
    "target",
    "trace",
    "numerics",
    "samplers",
    "variables",
    "program",
    "data",
    "backends",
    "posterior",
    "priors",
    "simulation",
    "speed",
    "inits",
    "chain",
    "engine",
    "failures",
    "runner",
    "results",
    "diagnostics",
    "table",
    "progress",
    "auto",
    "api",
    "__init__",
    "cli",
]


def _modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def _room(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def _imported(path: Path) -> list[Path]:
    """Files of the package that a module imports when it is itself imported (not inside functions)."""
    found = []
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.level:
            base = path.parents[node.level - 1].joinpath(*(node.module or "").split("."))
            candidates = [base.with_suffix(".py"), base / "__init__.py"]
            candidates += [base / f"{alias.name}.py" for alias in node.names]
            found += [file for file in candidates if file.is_file() and file != PACKAGE / "__init__.py"]
    return found


def test_imports_go_one_way() -> None:
    wrong = [
        f"{path.relative_to(PACKAGE)} imports {other.relative_to(PACKAGE)}"
        for path in _modules()
        for other in _imported(path)
        if ROOMS.index(_room(other)) > ROOMS.index(_room(path))
    ]
    assert wrong == []


def test_samplers_do_not_import_each_other() -> None:
    own = {PACKAGE / "samplers" / f"{method}.py" for method in methods()}
    wrong = [path.name for path in own if own & set(_imported(path))]
    assert wrong == []


@pytest.mark.parametrize(
    ("text", "owners"),
    [
        ('"arviz', {"results.py"}),
        ("numba.njit", {"jit.py"}),
        ("numba.cfunc", {"jit.py"}),
        ("import click", {"cli.py"}),
        ("import tqdm", {"progress.py"}),
        ("threadpoolctl", {"blas.py"}),
        ("from loky", {"runner.py"}),
    ],
)
def test_each_library_has_one_door(text: str, owners: set[str]) -> None:
    users = {path.name for path in _modules() if text in path.read_text(encoding="utf-8")}
    assert users <= owners


@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize("method", kernel_methods())
def test_a_sweep_is_compiled_once(method: str, d: int) -> None:
    """Stages and the freeze keep the types of the state, so nothing is compiled while a user waits.

    One dimension is special: numba takes a 1 x 1 array for C order, whatever order it was made in.
    """
    sampler, settings = resolve(method, {})
    model = stanadapt.Target.from_python(lambda x: -0.5 * float(x @ x), d, lambda x: -x)
    target, rng = model.target(), np.random.default_rng(1)
    state = warm_up(sampler, settings, target, np.ones(d), rng, 400).finish()
    sampler.sweep(target, settings, state, rng, False, empty_trace(10, d))
    assert len(sampler.sweep.signatures) == 1


@pytest.mark.parametrize("method", methods())
def test_a_sampler_file_fits_a_sitting(method: str) -> None:
    lines = (PACKAGE / "samplers" / f"{method}.py").read_text(encoding="utf-8").splitlines()
    assert len(lines) < 250
    assert any(text in "\n".join(lines) for text in ("Departures from the paper", "Our own."))
