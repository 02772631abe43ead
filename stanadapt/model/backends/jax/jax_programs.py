"""The programs that XLA compiles for a model, each at its first use and once in a process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any, Protocol

import numpy as np


class Source(Protocol):
    """The parts of a model, in a form that pickles. JAX traces the functions of arrays."""

    dim: int
    library: str
    data: Mapping[str, Any]
    modelled: frozenset[str]
    dims: Mapping[str, Sequence[str]]
    is_identity: bool  # whether the variables are the parameters as they are

    def names(self, *, transformed: bool, generated: bool) -> list[str]: ...

    def unconstrained_names(self) -> list[str]: ...

    def log_density(self, x: Any) -> Any:
        """Log density, a scalar, at `x` (d,)."""
        ...

    def row(self, x: Any, key: Any) -> Any:
        """All values (c,) at `x` (d,), in the order of all names; `key` is for random numbers."""
        ...

    def constrain(self, x: Any) -> Any:
        """The constrained parameters (p,) at `x` (d,)."""
        ...

    def inverse(self, values: Any) -> Any:
        """The point (d,) of constrained parameters (p,)."""
        ...

    def with_quantities(
        self, log_likelihood: Sequence[str], posterior_predictive: Sequence[str]
    ) -> Source: ...

    def one_line_errors(self, part: str = "") -> AbstractContextManager[None]:
        """What fails while JAX traces the log density, or this part, in one line that names the function."""
        ...


class Programs:
    """Compiled programs of a model, which the models of all its chains share."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._lock = threading.Lock()  # two chains need the same at the same time

    @cached_property
    def density(self) -> Any:
        """Log density at x (d,)."""
        import jax

        return jax.jit(self.source.log_density)

    @cached_property
    def packed_density(self) -> Any:
        """Log density at x (d,) and its gradient, in one array (1 + d,)."""
        import jax

        return jax.jit(pack(self.source.log_density))

    @cached_property
    def inverse(self) -> Any:
        """The point of constrained parameters, and the parameters at that point."""
        import jax

        def both(values: Any) -> Any:
            x = self.source.inverse(values)
            return x, self.source.constrain(x)

        return jax.jit(both)

    @cached_property
    def rows(self) -> Any:
        """Rows of values for the first n of some points (rows, d), with the iterations that they are of.

        It is a loop over the points rather than one program over all of them (`vmap`). A row must not depend,
        in its last digits, on its place among others: where blocks end depends on time, and draws do not.
        """
        import jax
        from jax import lax
        from jax import numpy as jnp

        width = len(self.source.names(transformed=True, generated=True))

        def run(points: Any, iterations: Any, n: Any, halves: Any) -> Any:
            key = jax.random.fold_in(jax.random.fold_in(jax.random.key(0), halves[0]), halves[1])

            def body(i: Any, rows: Any) -> Any:
                return rows.at[i].set(self.source.row(points[i], jax.random.fold_in(key, iterations[i])))

            return lax.fori_loop(0, n, body, jnp.zeros((len(points), width)))

        return jax.jit(run)

    def loop(self) -> Callable[..., Any]:
        """The loop of an exchange, see jax_exchange.py."""
        with self._lock:
            return self._loop

    @cached_property
    def _loop(self) -> Callable[..., Any]:
        import jax

        from .jax_exchange import loop

        words = jax.ShapeDtypeStruct((), np.int64)
        result = jax.ShapeDtypeStruct((1 + self.source.dim,), np.float64)
        program = jax.jit(loop(self.source.log_density, pack(self.source.log_density)))
        compiled: Callable[..., Any] = program.lower(words, result).compile()
        return compiled


def pack(density: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function of x (d,) that returns the log density and its gradient in one array (1 + d,)."""
    import jax
    from jax import numpy as jnp

    def both(x: Any) -> Any:
        value, score = jax.value_and_grad(density)(x)
        return jnp.concatenate([value[None], score])

    return both


def take_apart(x: Any, shapes: Iterable[tuple[int, ...]]) -> list[Any]:
    """Arrays of these shapes from a flat one that has them one after another, first index fastest."""
    parts, first = [], 0
    for shape in shapes:
        size = int(np.prod(shape))
        parts.append(x[first : first + size].reshape(shape[::-1]).T)
        first += size
    return parts


def put_together(arrays: Iterable[Any]) -> Any:
    """The opposite, of arrays of any real type."""
    from jax import numpy as jnp

    flat = [jnp.ravel(jnp.asarray(array).T).astype(np.float64) for array in arrays]
    return jnp.concatenate(flat) if flat else jnp.zeros(0)
