"""Slow evaluations: none of them begins after the run has been told to stop.

A kernel is not interrupted before its end, and a trajectory may have a thousand gradients, like a search for
a start. Where one gradient takes seconds, a kernel would react to Ctrl-C or a limit of time hours later. So
kernels call the density of such a model through functions that first check whether the run is to stop, and
refuse the evaluation if it is. The output of a kernel after a refusal is meaningless: `raise_pending`
reports it, and the chain returns to its state before that block.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ..model.backends.contract import Model
from ..target import LOG_DENSITY, LOG_DENSITY_GRADIENT, NativeTarget

_SLOW_SECONDS = 0.005  # of an evaluation; a thousand of them take five seconds
_REFUSED = 1  # the return value of a refused evaluation


class StoppedError(Exception):
    """An evaluation was refused because the run is to stop."""


def is_slow(seconds: float) -> bool:
    """Whether an evaluation that takes so long is worth a guard."""
    return seconds >= _SLOW_SECONDS


class Guard:
    """The model of a chain, which takes its place; it refuses evaluations once `stopped` says so.

    A model counts as slow until its first evaluation has been fast. Targets of a fast one are its own, so
    that kernels call it directly.
    """

    def __init__(self, model: Model, stopped: Callable[[], bool]) -> None:
        self.model, self.stopped = model, stopped
        self.is_slow = True
        self.has_refused = False
        self.seconds = np.inf  # of an evaluation, by the last ones
        self._has_been_slow = False
        self._pending: BaseException | None = None
        self._own = own = model.target()
        call = LOG_DENSITY(own.log_density)
        self._density = LOG_DENSITY(lambda *arguments: self._call(call, arguments))
        self._gradient: Any = None
        if own.log_density_gradient:
            call_gradient = LOG_DENSITY_GRADIENT(own.log_density_gradient)
            self._gradient = LOG_DENSITY_GRADIENT(lambda *arguments: self._call(call_gradient, arguments))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def target(self) -> NativeTarget:
        """See `backends.contract.Model`."""
        return self.guard_target(self.model.target())

    def guard_target(self, target: NativeTarget) -> NativeTarget:
        """A target of the model: behind the guard where the model is slow, and not where it is fast."""
        density, gradient = self._own.log_density, self._own.log_density_gradient
        if self.is_slow:
            density = _address(self._density)
            gradient = gradient and _address(self._gradient)
        return target._replace(log_density=density, log_density_gradient=gradient)

    def note(self, seconds: float) -> None:
        """Take the mean of many evaluations, instead of the last one."""
        self.seconds, self.is_slow = seconds, is_slow(seconds)

    def raise_pending(self) -> None:
        """See `backends.contract.Model`. Raises StoppedError if an evaluation has been refused."""
        if self._pending is not None:
            error, self._pending = self._pending, None
            raise error
        if self.has_refused:
            raise StoppedError
        self.model.raise_pending()

    def _call(self, call: Any, arguments: tuple[Any, ...]) -> int:
        """What kernels call; no exception may cross them."""
        try:
            if self.has_refused or self.stopped():
                self.has_refused = True
                return _REFUSED
            began = time.perf_counter()
            code = int(call(*arguments))
            self.seconds = time.perf_counter() - began
            # A density without its gradient may be fast where both are slow.
            self._has_been_slow = self._has_been_slow or is_slow(self.seconds)
            self.is_slow = self._has_been_slow
            return code
        except BaseException as error:  # Ctrl-C, where a kernel runs in the main thread
            self._pending, self.has_refused = error, True
            return _REFUSED


def _address(function: Any) -> int:
    return int(ctypes.cast(function, ctypes.c_void_p).value or 0)
