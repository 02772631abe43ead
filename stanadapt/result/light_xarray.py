"""xarray without Dask until somebody has an array of Dask.

Where Dask is installed, xarray imports dask and dask.array when it makes its first variable, to ask whether
the values are an array of Dask. That takes a fifth of a second, and there can be no such array before Dask
has been imported. So xarray asks a class and a function here, which look for Dask only among the modules
that are imported.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
from typing import Any


class _AnyDaskArray(type):
    def __instancecheck__(cls, value: Any) -> bool:
        array = sys.modules.get("dask.array")
        return array is not None and isinstance(value, array.Array)


class _DaskArray(metaclass=_AnyDaskArray):
    """What all arrays of Dask are instances of, whether Dask is imported or not."""


def put_off_dask() -> None:
    """Have xarray import Dask when it needs more than to tell its arrays, which is where there are some."""
    with contextlib.suppress(ImportError, AttributeError):  # another version of xarray than this file knows
        compat: Any = importlib.import_module("xarray.namedarray.pycompat")
        cached, kind = compat._cached_duck_array_modules, compat.DuckArrayModule
        if "dask" in cached or "dask.array" in sys.modules or importlib.util.find_spec("dask") is None:
            return

        class LateDask(kind):  # type: ignore[misc, valid-type]
            def __init__(self) -> None:
                self.type, self.available = (_DaskArray,), True

            def __getattr__(self, name: str) -> Any:
                if name not in ("module", "version"):
                    raise AttributeError(name)
                return getattr(kind("dask"), name)

        cached["dask"] = LateDask()
        _ask_only_if_imported(importlib.import_module("xarray.namedarray.utils"))


def _ask_only_if_imported(utilities: Any) -> None:
    """Have xarray's `is_dask_collection` import nothing."""
    ask = utilities.is_dask_collection

    def is_dask_collection(x: object) -> bool:
        return "dask" in sys.modules and bool(ask(x))

    utilities.is_dask_collection = is_dask_collection
