"""The machine and the versions of packages: beside the seed, draws depend on them."""

from __future__ import annotations

import functools
import importlib.metadata
import platform

from ..compiler.level_codegen import processor

_PACKAGES = ("stanadapt", "numpy", "numba", "stanli", "bridgestan")
_READERS = ("arviz", "xarray")  # which the draws do not depend on


def machine(library: str) -> dict[str, str]:
    """Facts on which the last bits of draws depend, beside the seed; `library` evaluates the model."""
    return {**_system(), "backend": library, **_versions(_PACKAGES)}


def versions() -> dict[str, str]:
    """The machine and the packages with which a result was made, as the result records them."""
    return {"python": platform.python_version(), **_system(), **_versions(_PACKAGES + _READERS)}


def _system() -> dict[str, str]:
    return {"processor": processor(), "system": platform.system()}


@functools.cache
def _versions(names: tuple[str, ...]) -> dict[str, str]:
    """As they are installed: looking for one takes a millisecond."""
    return {name: importlib.metadata.version(name) for name in names}
