"""Checks of JAX and of functions for it, each with a message of one line; and JAX in a new process."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from .... import check
from ....errors import ArgumentError, ModelError

if TYPE_CHECKING:
    from .jax_programs import Source

X64_LINE = 'jax.config.update("jax_enable_x64", True)'
_LONGEST = 200  # characters of a message of another library


def require_jax(what: str) -> None:
    """Refuse `what` where JAX is not installed, or in single precision.

    Arrays that were made before a switch to double precision would stay as they are; so it is not made here.

    Raises
    ------
    ArgumentError
        It has the line that installs it, or that sets double precision.
    """
    try:
        import jax
    except ImportError as error:
        raise ArgumentError(f"{what} needs JAX ({error}); pip install 'stanadapt[jax]' brings it") from error
    if not jax.config.jax_enable_x64:
        raise ArgumentError(
            "JAX is in single precision (float32), which is too coarse for samplers: put the line "
            f"{X64_LINE} before any array is made"
        )


def check_scalar(source: Source) -> None:
    """Refuse a log density that JAX cannot trace or differentiate, or whose value is no float64.

    Raises
    ------
    ArgumentError, ModelError
    """
    import jax

    def check_value(x: Any) -> Any:
        with source.one_line_errors():
            value = source.log_density(x)
        shape, kind = getattr(value, "shape", None), getattr(value, "dtype", None)
        if shape != () or kind is None or np.dtype(kind).kind not in "iuf":
            shown = check.quote(value) if kind is None else f"an array of type {kind} and shape {shape}"
            raise ArgumentError(f"log_density returned {shown}; it must return one real number")
        if kind != np.float64:
            raise ArgumentError(
                f"log_density returned a number of type {kind}; float64 is needed: leave out what makes that "
                f"type of it, and put the line {X64_LINE} before any array is made"
            )
        return value

    with source.one_line_errors("its gradient"):
        jax.eval_shape(jax.value_and_grad(check_value), jax.ShapeDtypeStruct((source.dim,), np.float64))


@contextlib.contextmanager
def one_line_errors(what: str, kind: type[Exception] = ArgumentError) -> Iterator[None]:
    """Turn an exception while JAX traces a user's function into one of this kind, with one line."""
    import jax

    try:
        yield
    except (ArgumentError, ModelError):
        raise
    except (jax.errors.ConcretizationTypeError, jax.errors.NonConcreteBooleanIndexError) as error:
        raise kind(
            f"{what} cannot be compiled: its shapes, or which branch is taken, depend on values of the "
            f"parameters, which JAX does not know yet ({_first_line(error)})"
        ) from error
    except (jax.errors.TracerArrayConversionError, jax.errors.TracerIntegerConversionError) as error:
        raise kind(
            f"{what} cannot be compiled: NumPy or Python gets values there that JAX does not know yet; call "
            "jax.numpy instead, and give jax.numpy.asarray(a) where such values are an index into a "
            f"({_first_line(error)})"
        ) from error
    except Exception as error:
        raise kind(f"{what} fails: {type(error).__name__}: {_first_line(error)}") from error


def numbers(array: Any) -> np.ndarray:
    """The numbers of an array of JAX, or those that a key for random numbers is made of."""
    import jax

    return np.asarray(jax.random.key_data(array) if is_key(array) else array)


def is_key(value: Any) -> bool:
    """Whether it is a key for random numbers of its own type, as `jax.random.key` makes it."""
    import jax

    return isinstance(value, jax.Array) and jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key)


def prepare_process() -> None:
    """Have JAX in double precision, in a process that has not imported it yet.

    Its programs then run in the thread that calls them: no pool of threads can be full of those that wait.
    """
    if "jax" not in sys.modules:
        import jax

        jax.config.update("jax_enable_x64", True)
        jax.config.update("jax_cpu_enable_async_dispatch", False)


class Preparation:
    """The first step of unpickling a model: `prepare_process`, before user's modules make arrays."""

    def __reduce__(self) -> tuple[Any, ...]:
        return prepare_process, ()


def _first_line(error: BaseException) -> str:
    line = str(error).strip().partition("\n")[0].rstrip(".: ")
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."
