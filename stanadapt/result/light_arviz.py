"""InferenceData of arviz 0.x without the pictures of arviz.

`import arviz` of the 0.x series imports its pictures, which import matplotlib's and SciPy's largest parts: a
multiple of what a short run takes. A run needs the class InferenceData alone, and its module needs little. So
this file puts the package arviz into `sys.modules` before the package has run, imports the module with the
class, and lets the package run in full as soon as anybody looks for anything else in it. To `import arviz` of
a user, and to `arviz.plot_trace`, nothing differs, except that the second waits where the first did.

arviz 1.x needs none of this: a result is xarray's DataTree there.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import logging
import sys
import threading
from types import ModuleType
from typing import Any

from ..cache import import_with_home

_LOADING = threading.RLock()
_PYPLOT = "matplotlib.pyplot"


def inference_data_class() -> Any:
    """arviz.InferenceData, of the whole package where that is imported already or cannot be put off."""
    with _LOADING:
        if "arviz" not in sys.modules:
            try:
                import_with_home(_import_without_pictures)
            except Exception:  # another layout of the package than this file knows
                _forget()
                import_with_home(lambda: importlib.import_module("arviz"))
        return sys.modules["arviz"].InferenceData


class _Package(ModuleType):
    """The package arviz, which runs when a name is looked for that it does not have yet.

    Python looks for `__path__` to import a further module of the package, and for `__all__` to import all
    names.
    """

    opening = True  # while its module for data is imported, which looks for parts of the package

    def __getattr__(self, name: str) -> Any:
        if self.opening or (name.startswith("__") and name not in ("__path__", "__all__")):
            raise AttributeError(name)
        _run(self)
        return getattr(self, name)

    def __dir__(self) -> list[str]:
        _run(self)
        return dir(self)


class _Pyplot(ModuleType):
    """matplotlib.pyplot for arviz.utils, which names it at import and seldom uses it."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(_PYPLOT) is self:
            raise AttributeError(name)
        return getattr(importlib.import_module("matplotlib.pyplot"), name)


def _import_without_pictures() -> ModuleType:
    spec = importlib.util.find_spec("arviz")
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError("arviz")
    package = importlib.util.module_from_spec(spec)
    package.__class__ = _Package
    package.__dict__.update(__version__=importlib.metadata.version("arviz"), _log=logging.getLogger("arviz"))
    sys.modules["arviz"] = package
    stands_in = "matplotlib" not in sys.modules
    if stands_in:
        sys.modules[_PYPLOT] = _Pyplot(_PYPLOT)
        sys.modules["matplotlib"] = ModuleType("matplotlib")
        sys.modules["matplotlib"].pyplot = sys.modules[_PYPLOT]  # type: ignore[attr-defined]
    try:
        importlib.import_module("arviz.utils")
    finally:
        if stands_in:
            del sys.modules[_PYPLOT], sys.modules["matplotlib"]
    package.InferenceData = importlib.import_module("arviz.data").InferenceData  # type: ignore[attr-defined]
    del package.__dict__["__path__"]
    package.opening = False  # type: ignore[attr-defined]
    return package


def _run(package: ModuleType) -> None:
    """Run the package in full, once."""
    with _LOADING:
        if type(package) is not _Package:
            return  # another thread was first
        spec: Any = package.__spec__
        package.__class__ = ModuleType  # type: ignore[assignment]
        package.__path__ = spec.submodule_search_locations
        spec.loader.exec_module(package)
        sys.modules["arviz.utils"].plt = importlib.import_module("matplotlib.pyplot")  # type: ignore[attr-defined]


def _forget() -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "arviz"]:
        del sys.modules[name]
