"""Log densities in JAX: functions of an array or a pytree; see numpyro_model.py for models of NumPyro.

JAX is imported when the first one is made. A model goes to another process as its functions and data, and is
compiled there again: worker processes start from scratch and hold a JAX of their own.
"""

from __future__ import annotations

import copy
import ctypes
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Self

import numpy as np

from .... import check
from ....errors import ArgumentError
from ....target import LOG_DENSITY, LOG_DENSITY_GRADIENT
from ...variables import flat_names
from ..own import Addresses, OwnModel
from .jax_checks import Preparation, check_scalar, numbers, one_line_errors, require_jax
from .jax_programs import Programs, Source, take_apart

_ROWS = 256  # draws that are constrained in one call, at most
_NUMBERS = 2**22  # floats of these
_HEX = re.compile(r"0x[0-9a-f]+")


class JaxModel(OwnModel):
    """A log density in JAX. Chains that run at the same time do so in processes, or else in threads.

    In threads every chain has an exchange of its own, and all of them one compiled program.
    """

    backend = "jax"
    uses_blas = True  # decompositions and triangular solves: XLA has SciPy's LAPACK do them
    notice = "XLA compiles the model, once in every process"
    _pending: BaseException | None = None  # the exception of an evaluation through Python

    def __init__(self, source: Source, threads: bool = False) -> None:
        require_jax("the model")
        self.thread_safe = check.boolean("threads", threads)
        self.source, self.programs = source, Programs(source)
        self.dim, self.library = source.dim, source.library
        self.data, self.modelled, self.dims = source.data, source.modelled, source.dims
        check_scalar(source)
        self._bind()

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (Preparation(), self.source, self.thread_safe)

    def addresses(self) -> Addresses:
        return self._addresses

    def names(self, *, transformed: bool, generated: bool) -> list[str]:
        return self.source.names(transformed=transformed, generated=generated)

    def unconstrained_names(self) -> list[str]:
        return self.source.unconstrained_names()

    def unconstrain_flat(self, values: np.ndarray) -> np.ndarray:
        given = np.asarray(values, dtype=float)
        if self.source.is_identity:
            return given
        self._rest()
        x, there = (np.array(each) for each in self.programs.inverse(given))
        for names, inside in (
            (self.unconstrained_names(), np.isfinite(x)),
            (self.names(transformed=False, generated=False), np.isclose(there, given, rtol=1e-6)),
        ):
            if not inside.all():
                raise RuntimeError(f"{names[int(np.argmin(inside))]} is not inside of its support")
        return x

    def with_quantities(self, log_likelihood: Sequence[str], posterior_predictive: Sequence[str]) -> Self:
        source = self.source.with_quantities(log_likelihood, posterior_predictive)
        return self if source is self.source else type(self)(source, self.thread_safe)

    def log_density(self, x: np.ndarray) -> float:
        self._rest()
        return float(self.programs.density(np.asarray(x, dtype=float)))

    def log_density_gradient(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        self._rest()
        packed = np.array(self.programs.packed_density(np.asarray(x, dtype=float)))
        return float(packed[0]), packed[1:]

    def constrain(self, x: np.ndarray, values: np.ndarray, iterations: np.ndarray, seed: int) -> None:
        if self.source.is_identity:
            values[:] = x
            return
        self._rest()
        rows = max(1, min(_ROWS, _NUMBERS // max(1, values.shape[1] + self.dim)))
        points, numbers = np.zeros((rows, self.dim)), np.zeros(rows, np.int64)
        halves = np.array([seed >> 32, seed & 0xFFFFFFFF], np.uint32)
        for first in range(0, len(x), rows):
            part = slice(first, min(first + rows, len(x)))
            n = part.stop - first
            points[:n], numbers[:n] = x[part], iterations[part]
            values[part] = np.asarray(self.programs.rows(points, numbers, np.int64(n), halves))[:n]

    def identity(self) -> bytes:
        """The program as JAX writes it, with its constants, among them data."""
        import jax

        program = jax.make_jaxpr(self.source.log_density)(np.zeros(self.dim))
        digest = hashlib.sha256(_HEX.sub("", str(program)).encode())
        for constant in program.consts:
            digest.update(numbers(constant).tobytes())
        return " ".join([digest.hexdigest(), *self.names(transformed=True, generated=False)]).encode()

    def for_chain(self, index: int, seeds: np.random.SeedSequence) -> Self:
        if index == 0:
            return self
        own = copy.copy(self)
        own._bind()
        return own

    def raise_pending(self) -> None:
        self._rest()
        if self._exchange is not None:
            self._exchange.raise_pending()
        error, self._pending = self._pending, None
        if error is not None:
            raise error

    def __copy__(self) -> Self:
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        return other

    def _rest(self) -> None:
        """Free what kernels have XLA hold, before XLA is called in another way."""
        if self._exchange is not None:
            self._exchange.stop()

    def _bind(self) -> None:
        """Addresses of C functions: of an exchange where the system has one, else of callbacks in Python."""
        import jax

        from . import jax_exchange

        self._pending = None
        self._exchange: jax_exchange.Exchange | None = None
        if jax_exchange.is_at_hand() and jax.default_backend() == "cpu":
            self._exchange = jax_exchange.Exchange(self.dim, self.programs.loop)
            self._addresses = Addresses(
                jax_exchange.LOG_DENSITY_ADDRESS, jax_exchange.GRADIENT_ADDRESS, self._exchange.context
            )
            return
        self._callbacks = LOG_DENSITY(self._short), LOG_DENSITY_GRADIENT(self._long)
        pointers = (ctypes.cast(each, ctypes.c_void_p).value or 0 for each in self._callbacks)
        self._addresses = Addresses(*pointers)

    def _short(self, _c: Any, _p: Any, _j: Any, x: Any, value: Any, _e: Any) -> int:
        return self._evaluate_in_python(x, value, None)

    def _long(self, _c: Any, _p: Any, _j: Any, x: Any, value: Any, score: Any, _e: Any) -> int:
        return self._evaluate_in_python(x, value, score)

    def _evaluate_in_python(self, x: Any, value: Any, score: Any) -> int:
        """Evaluate through Python. An exception is kept for the block's end."""
        if self._pending is not None:
            return -1
        try:
            point = np.empty(self.dim)
            ctypes.memmove(point.ctypes.data, x, point.nbytes)
            if score is None:
                value[0] = float(self.programs.density(point))
                return 0
            packed = np.asarray(self.programs.packed_density(point))
            value[0] = packed[0]
            ctypes.memmove(score, packed.ctypes.data + packed.itemsize, point.nbytes)
        except BaseException as error:  # must not cross C frames
            self._pending = error
            return -1
        return 0


class TreeSource:
    """A function of a pytree: every leaf is a parameter, by the name of its place. See `Source`."""

    is_identity = True
    data: Mapping[str, Any] = {}
    modelled: frozenset[str] = frozenset()
    dims: Mapping[str, Sequence[str]] = {}

    def __init__(self, function: Callable[[Any], Any], params: Any) -> None:
        import jax

        if isinstance(params, int | np.integer) and not isinstance(params, bool):
            params = np.broadcast_to(0.0, check.integer("params", params, 1, check.LARGEST_COUNT))
        try:
            leaves, self.structure = jax.tree_util.tree_flatten_with_path(params)
        except (TypeError, ValueError) as error:  # keys of a dict that have no order
            raise check.refusal("params", params, f"a pytree ({check.one_line(error)})") from error
        self.shapes: dict[str, tuple[int, ...]] = {}
        for path, leaf in leaves:
            name = check.label("params", "_".join(_text(key) for key in path) or "x")
            if re.search(r"[.:]", name):
                raise check.refusal("params", name, "a pytree whose names have no dot and no colon")
            if np.asarray(leaf).dtype.kind not in "iuf":
                raise check.refusal(f"params: {name}", leaf, "an array of real numbers, as an example")
            if name in self.shapes:
                raise ArgumentError(f"params: two parameters have the name {name!r}; rename one of them")
            self.shapes[name] = np.shape(leaf)
        self.function = function
        self.dim = sum(int(np.prod(shape)) for shape in self.shapes.values())
        if self.dim == 0:
            raise ArgumentError("params is empty; a log density needs one parameter at least")
        if reason := check.too_many(self.dim):
            raise ArgumentError(f"params has {reason}")
        self.library = f"JAX {jax.__version__}"

    def names(self, *, transformed: bool, generated: bool) -> list[str]:
        return flat_names(self.shapes)

    def unconstrained_names(self) -> list[str]:
        return flat_names(self.shapes)

    def log_density(self, x: Any) -> Any:
        from jax import numpy as jnp

        value = self.function(self.structure.unflatten(take_apart(x, self.shapes.values())))
        return jnp.asarray(value) if isinstance(value, float) else value  # of a constant, or NumPy's

    def row(self, x: Any, key: Any) -> Any:
        return x

    def constrain(self, x: Any) -> Any:
        return x

    def inverse(self, values: Any) -> Any:
        return values

    def with_quantities(
        self, log_likelihood: Sequence[str], posterior_predictive: Sequence[str]
    ) -> TreeSource:
        return self

    def one_line_errors(self, part: str = "") -> AbstractContextManager[None]:
        return one_line_errors(f"log_density: {part}" if part else "log_density")


def from_jax(log_density: Callable[[Any], Any], params: Any, threads: bool = False) -> JaxModel:
    """See `Target.from_jax`."""
    if not callable(log_density):
        raise check.refusal("log_density", log_density, "a function that JAX can trace")
    require_jax("Target.from_jax")
    return JaxModel(TreeSource(log_density, params), threads)


def _text(key: Any) -> str:
    """The name of a step into a pytree."""
    for attribute in ("key", "name", "idx"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)


def _reopen(_: None, source: Source, threads: bool) -> JaxModel:
    return JaxModel(source, threads)
