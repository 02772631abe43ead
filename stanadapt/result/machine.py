"""What draws depend on beside the seed: the machine, and versions of packages."""

from __future__ import annotations

import functools
import importlib.metadata
import platform

from ..jit import processor

_PACKAGES = ("stanadapt", "numpy", "numba", "stanli", "bridgestan")
_READERS = ("arviz", "xarray")  # which the draws do not depend on


def machine(library: str) -> dict[str, str]:
    """What draws depend on to the last bit, beside the seed; `library` evaluates the model."""
    return {**_system(), "backend": library, **_versions(_PACKAGES)}


def versions() -> dict[str, str]:
    """What a result says of the machine and the packages that it was made with."""
    return {"python": platform.python_version(), **_system(), **_versions(_PACKAGES + _READERS)}


def _system() -> dict[str, str]:
    return {"processor": processor(), "system": platform.system()}


@functools.cache
def _versions(names: tuple[str, ...]) -> dict[str, str]:
    """As they are installed: looking for one takes a millisecond."""
    return {name: importlib.metadata.version(name) for name in names}
