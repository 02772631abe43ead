"""Modules of other packages that are imported when they are first used, not when something imports them."""

from __future__ import annotations

import importlib.util
import sys
import threading
from types import ModuleType
from typing import Any

_LOADING = threading.RLock()


def put_off(package: ModuleType, part: str) -> None:
    """Have the module `part` of a package run only when somebody looks for a name in it.

    Nothing else differs: it can be imported as ever. Where it is imported already, nothing happens.
    """
    name = f"{package.__name__}.{part}"
    with _LOADING:
        if name in sys.modules:
            return
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:  # a version of the package that does not have it
            return
        module = importlib.util.module_from_spec(spec)
        module.__class__ = _LateModule  # type: ignore[assignment]
        sys.modules[name] = module
        setattr(package, part, module)


class _LateModule(ModuleType):
    """A module that has not run yet. Other threads wait while it runs."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__all__":  # what looks at all modules asks for these
            raise AttributeError(name)
        with _LOADING:
            if type(self) is _LateModule:
                self.__class__ = _RunningModule
                try:
                    self.__spec__.loader.exec_module(self)  # type: ignore[union-attr]
                except BaseException:
                    self.__class__ = _LateModule
                    raise
                self.__class__ = ModuleType  # type: ignore[assignment]
            elif type(self) is _RunningModule:  # it has asked itself for a name that it does not have yet
                raise AttributeError(name)
        return getattr(self, name)


class _RunningModule(_LateModule):
    """A module that runs at the moment."""
