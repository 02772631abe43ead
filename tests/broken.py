"""Samplers with an error put into their source, to see that a suite goes red for it."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import stanadapt


def broken_sampler(method: str, file: str, text: str, other: str, folder: Path) -> ModuleType:
    """The method's module with `text` in one of its sources replaced by `other`, to be run frozen only.

    What it does while it adapts is left out of it, because to compile that takes most of the time.
    """
    return edited_sampler(method, {file: {text: other}}, folder, frozen=True)


def edited_sampler(
    method: str, edits: dict[str, dict[str, str]], folder: Path, *, frozen: bool = False
) -> ModuleType:
    """The method's module with texts replaced in its sources: file -> text -> what it becomes.

    With `frozen` its kernels take `adapting` for False, whatever they are told.
    """
    own = f"samplers/{method}.py"
    importing = _edited(own, edits.get(own, {}))
    for file in set(edits) - {own}:  # shared with other methods
        room, name = Path(file).parent.name, Path(file).stem
        _load(f"stanadapt.{room}.broken_{name}", _edited(file, edits[file]), folder)
        where = "..numerics." if room == "numerics" else "."
        redirected = importing.replace(f"from {where}{name} import", f"from {where}broken_{name} import")
        assert redirected != importing
        importing = redirected
    if frozen:
        importing = ast.unparse(_Frozen().visit(ast.parse(importing)))
    return _load(f"stanadapt.samplers.broken_{method}", importing, folder)


class _Frozen(ast.NodeTransformer):
    """Puts False where the variable `adapting` is read, so that Python compiles no branch that needs it."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(False) if node.id == "adapting" else node


def _edited(file: str, edits: dict[str, str]) -> str:
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
