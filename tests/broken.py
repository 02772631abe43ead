"""Samplers with an error put into their source, to see that a suite goes red for it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import stanadapt


def broken_sampler(method: str, file: str, text: str, other: str, folder: Path) -> ModuleType:
    """The method's module with `text` in one of its sources replaced by `other`."""
    package = Path(stanadapt.__file__).parent
    source = (package / file).read_text(encoding="utf-8")
    assert source.count(text) == 1, f"{file} has no single {text!r} to break"
    broken = source.replace(text, other)
    if file == f"samplers/{method}.py":
        return _load(f"stanadapt.samplers.broken_{method}", broken, folder)
    room, name = Path(file).parent.name, Path(file).stem  # shared with other methods
    _load(f"stanadapt.{room}.broken_{name}", broken, folder)
    importing = (package / "samplers" / f"{method}.py").read_text(encoding="utf-8")
    where = "..numerics." if room == "numerics" else "."
    redirected = importing.replace(f"from {where}{name} import", f"from {where}broken_{name} import")
    assert redirected != importing
    return _load(f"stanadapt.samplers.broken_{method}", redirected, folder)


def _load(name: str, source: str, folder: Path) -> ModuleType:
    path = folder / f"{name.rpartition('.')[2]}.py"
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
