"""Backends from outside of this package: entry points of the group `stanadapt.backends`.

The page for their authors is docs/backends_contract.md. The package looks for them only where it does not
know a name or an object, because a look at all installed packages takes some milliseconds.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator
from typing import Any

import numpy as np

from .. import check
from ..errors import ArgumentError, ModelError, StanAdaptError, warn
from . import BACKENDS
from .variables import variables

GROUP = "stanadapt.backends"


def check_backend(name: Any) -> str:
    """`name` if there is such a backend, here or outside. Raises ArgumentError."""
    if isinstance(name, str) and name in BACKENDS:
        return name
    return check.choice("backend", name, [*BACKENDS, *names()])


def names() -> list[str]:
    """The names of backends from outside, in alphabetical order."""
    return sorted({point.name for point in importlib.metadata.entry_points(group=GROUP)} - {*BACKENDS})


def open_outside(name: str, model: Any, data: Any) -> tuple[Any, dict[str, Any]]:
    """Open a model with a backend from outside, whatever it is.

    Raises
    ------
    ArgumentError
        The backend does not take it.
    ModelError
        The backend cannot be imported, or does not return a model.
    """
    adopted = _adopt(name, model, data)
    if adopted is None:
        raise ArgumentError(f"model={check.quote(model)} is not allowed: backend={name!r} does not take it")
    return adopted


def claim(model: Any, data: Any) -> tuple[Any, dict[str, Any]] | None:
    """Open an object with the first backend from outside that takes it; None where no backend does.

    One that cannot be imported is passed over with a warning.
    """
    for name in names():
        try:
            _load(name)
        except ModelError as error:
            warn(str(error))
            continue
        adopted = _adopt(name, model, data)
        if adopted is not None:
            return adopted
    return None


def _adopt(name: str, model: Any, data: Any) -> tuple[Any, dict[str, Any]] | None:
    backend = _load(name)
    reason = "adopt must return None, or a model and a dict of its data"
    try:
        adopted = backend.adopt(model, data)
        if adopted is None:
            return None
        if isinstance(adopted, tuple) and len(adopted) == 2 and isinstance(adopted[1], dict):
            reason = "; ".join(_faults(*adopted))
            if not reason:
                return adopted
    except StanAdaptError:  # it says what is wrong with the user's model or data
        raise
    except Exception as error:
        raise ModelError(
            f"model: backend {name!r} fails: {type(error).__name__}: {check.one_line(error)}"
        ) from error
    raise ModelError(f"model: backend {name!r} gives no model that can be used: {reason}")


def _load(name: str) -> Any:
    points = [point for point in importlib.metadata.entry_points(group=GROUP) if point.name == name]
    values = sorted({point.value for point in points})
    if len(values) > 1:
        raise ModelError(f"backend {name!r} is the name of two backends, {' and '.join(values)}: remove one")
    try:
        backend = points[0].load()
    except Exception as error:  # whatever its import raises
        raise ModelError(
            f"backend {name!r} ({values[0]}) cannot be imported: {type(error).__name__}: "
            f"{check.one_line(error)}"
        ) from error
    if not callable(getattr(backend, "adopt", None)):
        raise ModelError(f"backend {name!r} ({values[0]}) has no function adopt(model, data)")
    return backend


_MEMBERS = (
    "backend",
    "library",
    "dim",
    "thread_safe",
    "has_gradient",
    "noisy",
    "names",
    "unconstrained_names",
    "target",
    "log_density",
    "log_density_gradient",
    "writer",
    "unconstrain",
    "unconstrain_flat",
    "identity",
    "for_chain",
    "counts",
    "carried",
    "carry",
    "raise_pending",
)


def _faults(model: Any, data: dict[Any, Any]) -> Iterator[str]:
    """The faults of a model or its data, in words. Checks that need a sound model come last."""
    faults = list(_faults_of_names(model, data))
    yield from faults or _faults_of_calls(model)


def _faults_of_names(model: Any, data: dict[Any, Any]) -> Iterator[str]:
    missing = [name for name in _MEMBERS if not hasattr(model, name)]
    if missing:
        yield f"it has no {', '.join(missing)}; derive it from stanadapt.model.backends.own.OwnModel"
        return
    if strange := [key for key in data if not isinstance(key, str)]:
        yield f"its data have a name that is no str: {check.quote(strange[0])}"
    if not isinstance(model.dim, int | np.integer) or model.dim < 0:
        yield f"dim={check.quote(model.dim)} is not a number of parameters"
        return
    groups = {
        "unconstrained_names()": model.unconstrained_names(),
        "names(transformed=True, generated=True)": model.names(transformed=True, generated=True),
        "names(transformed=False, generated=False)": model.names(transformed=False, generated=False),
    }
    for call, part in groups.items():
        if not isinstance(part, list) or not all(isinstance(name, str) for name in part):
            yield f"{call} is not a list of str: {check.quote(part)}"
            return
    unconstrained, others, parameters = groups.values()
    if len(unconstrained) != model.dim:
        yield f"dim is {model.dim}, and there are {len(unconstrained)} unconstrained names"
    for part in (unconstrained, others):
        if len(set(part)) < len(part):
            twice = next(name for name in part if part.count(name) > 1)
            yield f"two values have the name {twice!r}"
    if others[: len(parameters)] != parameters:
        yield "the names of all values do not begin with the names of the parameters"
    if not variables(others) and not model.dim:
        yield "it has no values"


def _faults_of_calls(model: Any) -> Iterator[str]:
    if not isinstance(model.identity(), bytes):
        yield f"identity() is not bytes: {check.quote(model.identity())}"
    target = model.target()
    if not target.log_density:  # calling either of them would end the process
        yield "the address of its log density is 0"
    if model.has_gradient and not target.log_density_gradient:
        yield "has_gradient is True, and the address of its gradient is 0"
