"""Imports run down only, from room to room, and each outside library has one door."""

from __future__ import annotations

import ast
import functools
import graphlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import stanadapt
from cases import kernel_methods, methods, resolve
from stanadapt.run.warmup import warm_up
from stanadapt.trace import empty_trace

PACKAGE = Path(stanadapt.__file__).parent

# From the top down. A module imports from its own room and from the floors below. Rooms of one floor do not
# import each other. The files of the ground are a floor each.
FLOORS: tuple[tuple[str, ...], ...] = (
    ("doors",),
    ("reports",),
    ("plots",),
    ("diagnostics",),
    ("result",),
    ("run",),
    ("samplers", "simulators"),
    ("numerics", "model"),
    ("trace",),
    ("target",),
    ("transport",),
    ("jit",),
    ("compiler",),
    ("late_modules",),
    ("cache",),
    ("garbage",),
    ("check",),
    ("child_processes",),
    ("errors",),
    ("version",),
    ("method_names",),
    ("kinds",),
)
DOORS = (
    "__init__",
    "__main__",
    "api",
    "approximations",
    "cli",
    "comparisons",
    "evidence",
    "many",
    "predictive",
    "runs",
)
FLOOR = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}


def _sources() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


@functools.cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _room(path: Path) -> str:
    top = path.relative_to(PACKAGE).with_suffix("").parts[0]
    return "doors" if top in DOORS else top


def _shown(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def _module(path: Path) -> str:
    """The dotted name of a file of the package."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {_module(path): path for path in _sources()}


def _absolute(path: Path, level: int, name: str) -> str:
    """The dotted name that a relative import in the file `path` means."""
    if level == 0:
        return name
    package = path.relative_to(PACKAGE.parent).parts[:-level]
    return ".".join([*package, *([name] if name else [])])


def _dynamic(path: Path, call: ast.Call) -> str:
    """The dotted name that a call of import_module asks for; a star stands for what only a run knows.

    A call whose argument is neither a text nor an f-string could import anything: its name is a star.
    """
    argument = call.args[0]
    if isinstance(argument, ast.Constant):
        name = str(argument.value)
    elif isinstance(argument, ast.JoinedStr):
        name = "".join(_part(path, part) for part in argument.values)
    else:
        return "*"
    level = len(name) - len(name.lstrip("."))
    return _absolute(path, level, name[level:])


def _part(path: Path, part: ast.expr) -> str:
    if isinstance(part, ast.Constant):
        return str(part.value)
    is_own_name = isinstance(part, ast.FormattedValue) and ast.unparse(part.value) == "__name__"
    return _module(path) if is_own_name else "*"


@functools.cache
def _names_imported(path: Path) -> tuple[str, ...]:
    """Dotted names of all modules that a file imports: in functions, for type checkers and by importlib too.

    Of `from a import b` both `a` and `a.b`, because `b` may be a module.
    """
    return tuple(_each_name(path))


def _each_name(path: Path) -> Iterator[str]:
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(path, node.level, node.module or "")
            # The front door of the package is imported with every part of it.
            yield from [base] * (base != PACKAGE.name)
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in (
            "import_module",
            "__import__",
        ):
            yield _dynamic(path, node)


def _imported(path: Path) -> set[Path]:
    """Files of the package that a file imports."""
    found: set[Path] = set()
    for name in _names_imported(path):
        start, star, _ = name.partition("*")
        if star:
            found |= {file for module, file in FILES.items() if module.startswith(start)}
        elif name in FILES:
            found.add(FILES[name])
        elif name.startswith(f"{PACKAGE.name}.") and name.count(".") == 1 and path != PACKAGE / "__init__.py":
            found.add(PACKAGE / "__init__.py")  # `from . import __version__`, or `from . import sample`
    return found - {path}


def _is_allowed(path: Path, other: Path) -> bool:
    return _room(path) == _room(other) or FLOOR[_room(path)] < FLOOR[_room(other)]


def test_every_file_is_in_a_room() -> None:
    assert {_room(path) for path in _sources()} == set(FLOOR)


def test_imports_run_down_only() -> None:
    wrong = [
        f"{_shown(path)} imports {_shown(other)}"
        for path in _sources()
        for other in sorted(_imported(path))
        if not _is_allowed(path, other)
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("file", "line", "other"),
    [
        ("errors.py", "from . import check", "check.py"),
        ("errors.py", "def f():\n    from .model import data", "model/data.py"),
        ("run/job.py", "if TYPE_CHECKING:\n    from ..result.build import build", "result/build.py"),
        ("model/data.py", "import importlib\nimportlib.import_module('stanadapt.api')", "api.py"),
        ("model/data.py", "import_module('..samplers.rwm', __package__)", "samplers/rwm.py"),
        ("model/data.py", "import stanadapt.samplers.rwm", "samplers/rwm.py"),
        ("model/data.py", "from stanadapt.samplers import rwm", "samplers/rwm.py"),
        ("model/data.py", "importlib.import_module(f'stanadapt.samplers.{name}')", "samplers/rwm.py"),
        ("numerics/walk.py", "from ..model import data", "model/data.py"),
        ("numerics/walk.py", "from .. import sample", "__init__.py"),
        ("numerics/walk.py", "importlib.import_module(name)", "api.py"),
    ],
)
def test_an_import_upwards_is_seen(file: str, line: str, other: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = PACKAGE / file
    monkeypatch.setitem(globals(), "_tree", lambda _: ast.parse(line))
    monkeypatch.setitem(globals(), "_names_imported", _each_name)
    assert PACKAGE / other in _imported(path)
    assert not _is_allowed(path, PACKAGE / other)


def test_no_file_imports_itself_by_way_of_others() -> None:
    imports = {
        _shown(path): {_shown(FILES[name]) for name in _names_imported(path) if name in FILES}
        for path in _sources()
    }
    try:
        graphlib.TopologicalSorter(imports).prepare()
    except graphlib.CycleError as error:
        pytest.fail(f"a circle of imports: {' <- '.join(error.args[1])}")


def test_samplers_do_not_import_each_other() -> None:
    own = {PACKAGE / "samplers" / f"{method}.py" for method in [*methods(), "_skeleton"]}
    wrong = {_shown(path): other for path in own if (other := own & _imported(path))}
    assert wrong == {}


def _modules_by_name(path: Path) -> set[str]:
    """Names under which a file holds other modules of the package."""
    found = set()
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.ImportFrom):
            base = _absolute(path, node.level, node.module or "")
            found |= {alias.asname or alias.name for alias in node.names if f"{base}.{alias.name}" in FILES}
    return found


def test_no_parameter_hides_a_module() -> None:
    wrong = []
    for path in _sources():
        held = _modules_by_name(path)
        for node in ast.walk(_tree(path)):
            if isinstance(node, ast.arg) and node.arg in held:
                wrong.append(f"{_shown(path)}, line {node.lineno}: {node.arg}")
    assert wrong == []


@pytest.mark.parametrize(
    ("library", "door"),
    [
        ("arviz", "result/container.py result/light_arviz.py"),
        ("click", "cli"),
        ("distributed", "run/workers/pools.py many/task.py"),
        ("filelock", "result/stores/run_folder.py"),
        ("loky", "run/workers/process_pool.py"),
        ("jinja2", "reports"),
        ("matplotlib", "plots result/light_arviz.py"),
        (
            "pymc",
            " ".join(
                f"model/backends/pymc/{name}.py" for name in ("pymc_model", "pymc_functions", "pymc_graphs")
            ),
        ),
        ("pytensor", "model/backends/pymc/pymc_functions.py model/backends/pymc/pymc_graphs.py"),
        ("threadpoolctl", "numerics/blas.py"),
        ("tqdm", "run/progress.py"),
        ("zarr", "result/stores/blocks.py"),
    ],
)
def test_each_library_has_one_door(library: str, door: str) -> None:
    """A door is a file, or a whole room."""
    # ArviZ 1 also comes as packages named arviz_base, arviz_stats and so on.
    users = {
        path
        for path in _sources()
        if any(name.partition(".")[0].partition("_")[0] == library for name in _names_imported(path))
    }
    doors = [PACKAGE / name for name in door.split()]
    assert all(any(path.is_relative_to(door) for door in doors) for path in users)
    assert all(any(path.is_relative_to(door) for path in users) for door in doors)


@functools.cache
def _attributes_of_numba(path: Path) -> set[str]:
    """What a file takes from numba as an attribute: `njit` of `numba.njit`."""
    named = (node for node in ast.walk(_tree(path)) if isinstance(node, ast.Attribute))
    return {node.attr for node in named if isinstance(node.value, ast.Name) and node.value.id == "numba"}


@pytest.mark.parametrize("compiler", ["njit", "jit", "cfunc", "CFunc", "vectorize", "guvectorize"])
def test_kernels_are_compiled_at_one_door(compiler: str) -> None:
    users = {
        _shown(path)
        for path in _sources()
        if any(name.startswith("numba.") and name.endswith(f".{compiler}") for name in _names_imported(path))
        or compiler in _attributes_of_numba(path)
    }
    assert users == ({"jit.py"} if compiler in ("njit", "CFunc") else set())


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
    kernel = getattr(sampler, "scans", sampler.sweep)  # the sweep of `tempered` is plain Python
    assert len(kernel.signatures) == 1


@pytest.mark.parametrize("method", methods())
def test_a_sampler_file_fits_a_sitting(method: str) -> None:
    lines = (PACKAGE / "samplers" / f"{method}.py").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 270
    assert any(text in "\n".join(lines) for text in ("Departures from the paper", "This method is our own."))
