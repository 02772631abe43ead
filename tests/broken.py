"""Samplers with an error put into their source, to see that a suite goes red for it."""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import stanadapt
from stanadapt.samplers import METHODS

# Faults of five to twenty per cent, which take more draws to be seen.
SLIGHTLY_BROKEN = {
    "mala with nine tenths of the drift": (
        "mala",
        "numerics/langevin.py",
        "x[i] + (0.5 * s * s * score[i]",
        "x[i] + (0.45 * s * s * score[i]",
    ),
    "fisher_mala with nine tenths of the drift": (
        "fisher_mala",
        "numerics/langevin.py",
        "0.5 * s * s * rotated[i]",
        "0.45 * s * s * rotated[i]",
    ),
    "rwm with nine tenths of the log ratio": (
        "rwm",
        "samplers/rwm.py",
        "accept_prob = accept_probability(logp_y - logp)",
        "accept_prob = accept_probability(0.9 * (logp_y - logp))",
    ),
    "arwmh whose walk drifts by a twentieth": (
        "arwmh",
        "numerics/walk.py",
        "y[i], step[i] = x[i], s * z[i]",
        "y[i], step[i] = x[i], s * (z[i] - 0.05)",
    ),
    "kmc_finite that loses a tenth of the momentum": (
        "kmc_finite",
        "samplers/kmc.py",
        "surrogate_leapfrog(surrogate, q, momentum, epsilon, n_leapfrog)",
        "surrogate_leapfrog(surrogate, q, momentum, epsilon, n_leapfrog); momentum *= 0.9",
    ),
}

# What is broken in fisher_hmc. Its kernel takes long to compile, so all of this is in one, and a setting
# `fault` picks from it. Warm-up is sound, or steps could become so small that nothing moves.
FAULTS = [
    "nothing",
    "momenta of another mass",
    "kinetic energy without the metric",
    "acceptance without the kinetic energy",
    "last push too short",
    "momentum lost on the way",
    "number of steps that depends on where they begin",
]
WITH_FAULTS = {
    "numerics/splitting.py": {
        '    n: Integer,\n) -> tuple[Real, Integer]:\n    """`n` steps': (
            '    n: Integer,\n    fault: Any,\n) -> tuple[Real, Integer]:\n    """`n` steps'
        ),
        "momentum[i] += B * h": "momentum[i] += (0.5 if fault == 4 else 1.0) * B * h",
        "                momentum[i] += push * score[i]": (
            "                momentum[i] = (0.9 if fault == 5 else 1.0) * momentum[i] + push * score[i]"
        ),
    },
    "numerics/trajectory.py": {
        "    rng: Generator,\n) ->": "    rng: Generator,\n    fault: Any,\n) ->",
        "    energy = energy_of": (
            "    if fault == 1:\n        for i in range(x.size):\n            room.momentum[i] = z[i]\n"
            "    energy = energy_of"
        ),
        "        velocity_into(z, metric, room.momentum)\n": (
            "        velocity_into(z, metric, room.momentum)\n"
            "        for i in range(x.size):\n"
            "            if fault == 2:\n                z[i] = room.momentum[i]\n"
            "            if fault == 3:\n                energy, z[i] = -logp, 0.0\n"
        ),
        "room.velocity, h, n)": "room.velocity, h, n, fault)",
        "    logp_y, taken =": "    if fault == 6 and x[0] > 0.0:\n        n += 1\n    logp_y, taken =",
    },
    "samplers/fisher_hmc.py": {
        'the draws of all of them"] = False\n': (
            'the draws of all of them"] = False\n    fault: Annotated[int, Limit(0, 6), "which"] = 0\n'
        ),
        "state.most, d, room, rng\n": "state.most, d, room, rng, 0 if adapting else settings.fault\n",
    },
}

# am that goes on learning when draws are kept, and with such settings at a rate that never falls: its
# proposals follow the chain's last points, which gives another law.
GOES_ON_ADAPTING = {
    "samplers/am.py": {
        "class Settings(NamedTuple):\n": (
            'class Settings(NamedTuple):\n    vanishing: Annotated[bool, "adapt after warm-up"] = True\n'
        ),
    }
}
NEVER_LESS = {"horizon": 1e12}  # and a learning rate: one over the number of points that are remembered


def broken_sampler(method: str, file: str, text: str, other: str, folder: Path) -> ModuleType:
    """The method's module with `text` in one of its sources replaced by `other`, to be run frozen only.

    What it does while it adapts is left out of it, because to compile that takes most of the time.
    """
    return edited_sampler(method, {file: {text: other}}, folder, frozen=True)


def edited_sampler(
    method: str, edits: dict[str, dict[str, str]], folder: Path, *, frozen: bool = False
) -> ModuleType:
    """The method's module with texts replaced in its sources: file -> text -> what it becomes.

    A file that others of them import comes before these. With `frozen` kernels take `adapting` for False,
    whatever they are told.
    """
    own = f"samplers/{method}.py"
    importing, broken = edited_source(own, edits.get(own, {})), []
    for file in [file for file in edits if file != own]:  # shared with other methods
        room, name = Path(file).parent.name, Path(file).stem
        source = _redirected(edited_source(file, edits[file]), broken, room)
        _load(f"stanadapt.{room}.broken_{name}", source, folder)
        broken.append((room, name))
    redirected = _redirected(importing, broken, "samplers")
    assert redirected != importing or not broken
    importing = redirected
    if frozen:
        importing = ast.unparse(_Frozen().visit(ast.parse(importing)))
    return _load(f"stanadapt.samplers.broken_{method}", importing, folder)


def _redirected(source: str, broken: list[tuple[str, str]], room: str) -> str:
    """The source of a file in `room` that imports from the broken files in place of the sound ones."""
    for other, name in broken:
        where = "." if other == room else f"..{other}."
        source = source.replace(f"from {where}{name} import", f"from {where}broken_{name} import")
    return source


@contextlib.contextmanager
def offered(sampler: ModuleType) -> Iterator[str]:
    """The name under which a broken sampler can be asked for meanwhile."""
    name = sampler.__name__.rpartition(".")[2]
    METHODS[name] = "broken"
    try:
        yield name
    finally:
        del METHODS[name]


class _Frozen(ast.NodeTransformer):
    """Puts False where the variable `adapting` is read, so that Python compiles no branch that needs it."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(False) if node.id == "adapting" else node


def edited_source(file: str, edits: dict[str, str]) -> str:
    """The source of a file of the package with texts replaced, each of which it must have once."""
    source = (Path(stanadapt.__file__).parent / file).read_text(encoding="utf-8")
    for text, other in edits.items():
        assert source.count(text) == 1, f"{file} has no single {text!r} to break"
        source = source.replace(text, other)
    return source


_TWINS: dict[type, type] = {}  # classes of the sound modules -> those of the modules broken last


def taken_over(value: Any) -> Any:
    """A state, or a part of one, of the sound module in the classes of the one that was broken last."""
    if not hasattr(value, "_fields"):
        return value
    return _TWINS.get(type(value), type(value))(*map(taken_over, value))


def _load(name: str, source: str, folder: Path) -> ModuleType:
    path = folder / f"{name.rpartition('.')[2]}.py"
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    sound = importlib.import_module(name.replace("broken_", ""))
    for key, each in vars(module).items():
        if isinstance(each, type) and each.__module__ == name:
            _TWINS[getattr(sound, key)] = each
            each.__name__ = f"Broken{each.__name__}"  # numba is ten times as long at two tuples of one name
    return module
