"""Modules of other packages that run at their first use."""

from __future__ import annotations

import importlib
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from stanadapt.late_modules import put_off

PART = """
import time
from . import runs
runs.append(1)
time.sleep(0.05)
value = 7
"""
DASK = """
import sys
import numpy as np
import stanadapt.result.container
import xarray
own = xarray.Dataset({"x": ("a", np.ones(3))})
print("dask" in sys.modules)
import dask.array
held = xarray.Dataset({"x": ("a", dask.array.ones(3, chunks=2))})
print(type(held["x"].data).__name__, type(own["x"].data).__name__, float(held["x"].sum().compute()))
from xarray.namedarray import pycompat
print(pycompat.mod_version("dask") == pycompat.DuckArrayModule("dask").version)
"""
IMPORTS = """
import sys
import stanadapt, stanadapt.api, stanadapt.diagnostics.table
print([name for name in ("numpy.f2py.crackfortran", "h5py", "scipy.sparse.csgraph") if name in sys.modules])
import numpy.f2py
print(numpy.f2py.crackfortran.__name__)
import stanadapt.transport.fields.field_learning
print([name for name in ("scipy.interpolate", "scipy.optimize") if name in sys.modules])
"""


def test_a_module_runs_once_at_its_first_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other threads wait for it, and an import alone does not run it."""
    folder = tmp_path / "parted"
    folder.mkdir()
    (folder / "__init__.py").write_text("runs = []\n")
    (folder / "part.py").write_text(PART)
    monkeypatch.syspath_prepend(tmp_path)
    package = importlib.import_module("parted")
    put_off(package, "part")
    put_off(package, "nothing")
    part = importlib.import_module("parted.part")
    assert part is package.part
    assert package.runs == []
    assert not hasattr(part, "__wrapped__")
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(part.value)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [7] * 4
    assert package.runs == [1]
    assert not hasattr(part, "other")
    for name in ("parted", "parted.part"):
        monkeypatch.delitem(sys.modules, name)


def test_a_run_imports_neither_a_compiler_of_fortran_nor_hdf5() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "numpy.f2py.crackfortran", "[]"]


def test_xarray_knows_arrays_of_dask_though_it_does_not_import_it() -> None:
    pytest.importorskip("dask")
    done = subprocess.run([sys.executable, "-c", DASK], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["False", "Array ndarray 3.0", "True"]
