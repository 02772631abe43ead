"""Log densities that are not Stan programs: Python callables, and compiled ones at full speed."""

from __future__ import annotations

import copy
import ctypes
import importlib
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self

import numba
import numpy as np
from llvmlite import ir
from numba import types

from ... import check
from ... import target as native
from ...errors import ArgumentError, DataError
from ...jit import callback, intrinsic
from ...target import NativeTarget, native_target
from .contract import Writer
from .defaults import RowDefaults
from .own import OwnModel

_Pointer = types.CPointer(types.float64)

# What a numba cfunc for `Target.from_python` looks like: double f(const double *x).
LOG_DENSITY = types.float64(_Pointer)
# And its gradient: double g(const double *x, double *gradient), which returns the log density too.
LOG_DENSITY_GRADIENT = types.float64(_Pointer, _Pointer)


class Target(RowDefaults):
    """A log density on R^d without a Stan program. Made by `Target.from_python`; goes where a model goes."""

    #: Signature of a numba cfunc for the log density, see `from_python`.
    LOG_DENSITY = LOG_DENSITY
    #: Signature of a numba cfunc for the log density and its gradient.
    LOG_DENSITY_GRADIENT = LOG_DENSITY_GRADIENT
    backend = "python"
    data: Mapping[str, Any] = {}  # for the record
    modelled: frozenset[str] = frozenset()  # names of the data that the density models
    coords: Mapping[str, Sequence[Any]] = {}  # of dimensions, where the user of a run names no others
    dims: Mapping[str, Sequence[str]] = {}  # names of the dimensions of variables and data

    def __init__(
        self,
        log_density: Any,
        dim: int,
        gradient: Any,
        names: Sequence[str] | None,
        noisy: bool = False,
        threads: bool = False,
    ) -> None:
        self.dim = check.integer("dim", dim, 1)
        if reason := check.too_many(self.dim):
            raise ArgumentError(f"dim={self.dim} is not allowed: the target has {reason}")
        self._log_density = log_density
        self._gradient = gradient
        self._names = _flat_names(names, self.dim)
        self._pending: BaseException | None = None
        self.has_gradient = gradient is not None
        self.noisy = check.boolean("noisy", noisy)
        self._rng = np.random.default_rng(0)
        compiled = _address(log_density) is not None
        self.thread_safe = check.boolean("threads", threads) or compiled
        if not compiled and not callable(log_density):
            raise check.refusal("log_density", log_density, "a callable, a numba cfunc, or its address")
        if gradient is not None and _address(gradient) is None and not callable(gradient):
            raise check.refusal("gradient", gradient, "a callable, a numba cfunc, its address, or None")
        if gradient is not None and (_address(gradient) is not None) != compiled:
            raise ArgumentError(
                f"gradient={gradient!r} is not allowed: gradient and log_density must both be Python "
                "callables or both compiled (a numba cfunc or its address)"
            )
        if self.noisy and compiled:
            raise ArgumentError(
                "noisy=True is not allowed with a compiled log_density: it could not draw from the chain's "
                "own random numbers. Pass a Python callable of (x, rng)"
            )
        if self.noisy and self.has_gradient:
            raise ArgumentError(
                "gradient is not allowed with noisy=True: no method here can use the gradient of an estimate"
            )
        _check_arguments("log_density", log_density, 1)
        _check_arguments("gradient", gradient, 2)
        self.library = f"numba {numba.__version__}" if compiled else "Python"
        self._compiled = compiled
        self._bind()

    @classmethod
    def from_python(
        cls,
        log_density: Callable[..., float] | Any,
        dim: int,
        gradient: Callable[[np.ndarray], np.ndarray] | Any | None = None,
        names: Sequence[str] | None = None,
        *,
        noisy: bool = False,
        threads: bool = False,
    ) -> Target:
        """A target from a log density and its gradient, or from an estimate of the density.

        Chains that run at the same time do so in processes, since one process runs Python code of one thread
        at a time. The callables are sent there with cloudpickle, which takes lambdas, closures and functions
        of a script or a notebook. A compiled target runs in threads.

        Parameters
        ----------
        log_density
            A callable that takes x, shape (d,), and returns the log density up to a constant, -inf outside
            the support. An exception in it ends the run with that exception. For full speed, a numba
            `cfunc` of signature `Target.LOG_DENSITY`, which is `float64(CPointer(float64))`, or its address.
        dim
            d, the number of parameters.
        gradient
            A callable that takes x and returns the gradient, shape (d,). For a compiled `log_density`, a
            cfunc of signature `Target.LOG_DENSITY_GRADIENT`, which is `float64(CPointer(float64),
            CPointer(float64))`, that writes the gradient to its second argument and returns the log density.
            Without it, only methods that need none run.
        names
            A name for a vector of d parameters, `x` by default; or a list of d names, where `b.1`, `b.2` are
            the entries of a vector b.
        noisy
            `log_density` takes (x, rng) and returns the log of an unbiased estimate of the density, which is
            not negative: -inf where it is zero. `rng` is a `numpy.random.Generator` that each chain has of
            its own, so that draws depend on the run's seed alone. Methods that need no gradient then draw
            from the exact density (Andrieu and Roberts, 2009): they keep the estimate of the current point
            and never draw it again. The noisier the estimate, the longer they stand still: a variance of its
            logarithm of about 1 to 3 in the bulk of the posterior is best (Doucet et al., 2015; Sherlock et
            al., 2015). At 3 even the shortest steps are accepted about one time in five only, so that random
            walks need a lower `target_accept` than 0.234; 0.07 is best then, for large d.
        threads
            Run chains in threads: for callables that release Python's lock, that share state, or that cannot
            be sent to another process.

        Raises
        ------
        ArgumentError
            An argument is not of the kind described.

        Notes
        -----
        Andrieu and Roberts (2009), The pseudo-marginal approach for efficient Monte Carlo computations.
        Doucet, Pitt, Deligiannidis and Kohn (2015), Efficient implementation of Markov chain Monte Carlo when
        using an unbiased likelihood estimator. Sherlock, Thiery, Roberts and Rosenthal (2015), On the
        efficiency of pseudo-marginal random walk Metropolis algorithms.
        """
        return cls(log_density, dim, gradient, names, noisy, threads)

    @classmethod
    def from_pymc(cls, model: Any) -> Target:
        """A target from a PyMC model with the data that it has now; `sample` takes the model itself as well.

        The log density on the scale of PyMC's value variables, and its gradient, are compiled by numba. That
        takes some seconds, once a session: a model with other data (`pm.set_data`), or one that is made
        again, is not compiled again. Chains run in threads. Where PyTensor has no numba form of an op, PyMC's
        C backend evaluates the model, and chains run in processes; a warning says so.

        Results have the model's variables, deterministics, coordinates, dimensions, observed and constant
        data. `sample(..., log_likelihood="y", posterior_predictive="y")` adds the groups of these names, for
        observed variables.

        Parameters
        ----------
        model
            A `pymc.Model`. Values that it sets for starting points (`initval`) are not used.

        Raises
        ------
        ArgumentError
            It is no PyMC model, or PyMC is not installed.
        ModelError
            It has no free variables, discrete ones, or some that are not float64; its log density draws
            random numbers; or a name has a dot.
        """
        return _backend("pymc.pymc_model").from_model(model)  # type: ignore[no-any-return]

    @classmethod
    def from_jax(cls, log_density: Callable[[Any], Any], params: Any, *, threads: bool = False) -> OwnModel:
        """A target from a log density in JAX, whose gradient JAX derives.

        XLA compiles it once in every process. Chains that run at the same time do so in processes, each of
        which has a JAX of its own and is sent the function with cloudpickle.

        Parameters
        ----------
        log_density
            A function that JAX can trace, of an argument like `params`. It returns the log density up to
            a constant, a scalar of type float64, -inf outside the support.
        params
            d, for a function of an array (d,); or an example of its argument, a pytree such as a dict of
            arrays; only its names and shapes count. Results have the entries under their own names and
            shapes; names of nested ones are joined by an underscore.
        threads
            Run chains in threads of this process, on one compiled program: a short run is over before another
            process has imported JAX.

        Returns
        -------
        OwnModel
            A target for `sample` and `Posterior`, as the ones from Python are.

        Raises
        ------
        ArgumentError
            JAX is not installed, or in single precision; the function cannot be traced, or returns something
            else; two entries have one name.

        Examples
        --------
        >>> def log_density(p):
        ...     return -0.5 * jnp.sum((p["theta"] / jnp.exp(p["tau"])) ** 2) - 8 * p["tau"] - p["tau"] ** 2
        >>> target = stanadapt.Target.from_jax(log_density, {"tau": 0.0, "theta": np.zeros(8)})
        """
        return _backend("jax.jax_model").from_jax(log_density, params, threads)  # type: ignore[no-any-return]

    @classmethod
    def from_numpyro(cls, model: Callable[..., None], data: Any = None, *, threads: bool = False) -> OwnModel:
        """A target from a model of NumPyro with its data; `sample` takes the model itself as well.

        Results have the model's variables, deterministics, plates as dimensions, observed and constant data.
        `sample(..., log_likelihood="y", posterior_predictive="y")` adds the groups of these names, for
        observed sites.

        Parameters
        ----------
        model
            A function with `numpyro.sample` in it.
        data
            Its arguments by name: a dict, a path to a JSON file, JSON text, or None.
        threads
            As in `from_jax`.

        Returns
        -------
        OwnModel
            A target for `sample` and `Posterior`.

        Raises
        ------
        ArgumentError
            It is no function; JAX or NumPyro is not installed, or JAX in single precision.
        DataError
            The data do not fit the model's arguments.
        ModelError
            It has no latent variables, discrete ones that are not summed out, two of one name, or shapes that
            depend on values.
        """
        return _backend("jax.numpyro_model").from_numpyro(model, data, threads)  # type: ignore[no-any-return]

    def __getstate__(self) -> dict[str, Any]:
        if self._compiled:
            raise TypeError("a target from compiled addresses lives in one process; use threads")
        return {name: value for name, value in self.__dict__.items() if name not in _BOUND}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._bind()  # callbacks cannot travel

    def names(self, *, transformed: bool, generated: bool) -> list[str]:
        return list(self._names)

    def unconstrained_names(self) -> list[str]:
        return list(self._names)

    def target(self) -> NativeTarget:
        return native_target(self._density_address, self._gradient_address, self._context, self.dim)

    def log_density(self, x: np.ndarray) -> float:
        if self._compiled:
            value = np.full(1, np.nan)  # left by a density that fails
            density = native.LOG_DENSITY(self._density_address)
            density(self._context, True, True, _pointer(x), _pointer(value), None)
            return float(value[0])
        return self._checked_value(x)

    def log_density_gradient(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        if not self.has_gradient:
            raise ArgumentError("this target has no gradient: pass gradient=... to Target.from_python")
        if self._compiled:
            value, score = np.full(1, np.nan), np.empty(self.dim)
            density = native.LOG_DENSITY_GRADIENT(self._gradient_address)
            density(self._context, True, True, _pointer(x), _pointer(value), _pointer(score), None)
            return float(value[0]), score
        return self._checked_value(x), self._checked_gradient(x)

    def compile(self, tell: Callable[[str], None]) -> None:
        """Make ready what takes seconds, and `tell` the user so in a line."""

    def with_quantities(self, log_likelihood: Sequence[str], posterior_predictive: Sequence[str]) -> Target:
        """The target whose draws come with these quantities, if it can be asked for more or fewer of them."""
        return self

    def explain(self, x: np.ndarray) -> str:
        """Why the log density at `x` (d,) is not finite, in words; empty where the reason is not known."""
        return ""

    def writer(self, seed: int) -> Writer:
        def write(x: np.ndarray, values: np.ndarray, iterations: np.ndarray) -> None:
            values[:] = x

        return write

    def unconstrain(self, values: Mapping[str, Any]) -> np.ndarray:
        flat: dict[str, float] = {}
        for name, value in values.items():
            array = np.asarray(value, dtype=float)
            if array.ndim == 0:
                flat[name] = float(array)
            else:
                flat |= {f"{name}.{i + 1}": float(entry) for i, entry in enumerate(array.ravel())}
        if set(flat) != set(self._names):
            raise RuntimeError(f"values for {', '.join(self._names)} are needed, got {', '.join(flat)}")
        return np.array([flat[name] for name in self._names])

    def unconstrain_flat(self, values: np.ndarray) -> np.ndarray:
        return values

    def identity(self) -> bytes:
        name = getattr(self._log_density, "__qualname__", "")
        return " ".join([self.library, name, *self._names]).encode()

    def for_chain(self, index: int, seeds: np.random.SeedSequence) -> Self:
        if not self.noisy:
            return self
        own = copy.copy(self)
        own._rng = np.random.default_rng(seeds)
        return own

    def counts(self) -> dict[str, int]:
        return {}

    def carried(self) -> dict[str, Any]:
        return {"rng": self._rng} if self.noisy else {}

    def carry(self, given: Mapping[str, Any]) -> None:
        if self.noisy:
            self._rng = given["rng"]

    def raise_pending(self) -> None:
        if self._pending is not None:
            error, self._pending = self._pending, None
            raise error

    def _put(self, point: np.ndarray, value: Any, score: np.ndarray | None) -> None:
        """Write the density to `value`, and its gradient to `score` where that is wanted and there is one."""
        value[0] = self._checked_value(point)
        if score is not None and value[0] > -np.inf:
            score[:] = self._checked_gradient(point)

    def _checked_value(self, x: np.ndarray) -> float:
        value = self._evaluate(x)
        if np.ndim(value) != 0 or np.asarray(value).dtype.kind not in "iufb":
            raise check.refusal("the value of log_density", value, "one real number")
        if self.noisy and not value < np.inf:
            raise ArgumentError(
                f"log_density returned {value} at x={check.quote(x.tolist())}; of a noisy target it must be "
                "the log of an estimate of the density: a number, or -inf where the estimate is zero"
            )
        return float(value)

    def _evaluate(self, x: np.ndarray) -> Any:
        x = x.copy()  # a function that changes it in place must change neither the chain nor the gradient's
        return self._log_density(x, self._rng) if self.noisy else self._log_density(x)

    def _checked_gradient(self, x: np.ndarray) -> np.ndarray:
        score = np.asarray(self._gradient(x.copy()), dtype=float)
        if score.shape != (self.dim,):
            raise ArgumentError(f"gradient returned shape {score.shape}; it must be ({self.dim},)")
        return score

    def _bind(self) -> None:
        """Addresses with the signature of BridgeStan's functions."""
        if self._compiled:
            # The context of the compiled adapters below is the pair of the user's addresses.
            gradient = _address(self._gradient) if self.has_gradient else 0
            self._addresses = np.array([_address(self._log_density), gradient], dtype=np.uint64)
            self._context = self._addresses.ctypes.data
            self._density_address = _density_of_cfunc.address
            self._gradient_address = _gradient_of_cfunc.address
            return
        self._context = 0
        self._callbacks = native.LOG_DENSITY(self._short), native.LOG_DENSITY_GRADIENT(self._long)
        self._density_address, self._gradient_address = (
            ctypes.cast(function, ctypes.c_void_p).value or 0 for function in self._callbacks
        )

    def _short(self, _m: Any, _p: Any, _j: Any, x: Any, value: Any, _e: Any) -> int:
        return self._evaluate_users_functions(x, value, None)

    def _long(self, _m: Any, _p: Any, _j: Any, x: Any, value: Any, score: Any, _e: Any) -> int:
        return self._evaluate_users_functions(x, value, score)

    def _evaluate_users_functions(self, x: Any, value: Any, score: Any) -> int:
        """Call the user's functions. An exception is kept for the block's end, and every later call fails."""
        if self._pending is not None:
            return -1
        try:
            point = np.ctypeslib.as_array(x, (self.dim,))
            self._put(point, value, None if score is None else np.ctypeslib.as_array(score, (self.dim,)))
        except BaseException as error:  # must not cross C frames; raised again at the end of the block
            self._pending = error
            return -1
        return 0


# What `_bind` makes.
_BOUND = ("_callbacks", "_context", "_density_address", "_gradient_address")


def _backend(name: str) -> Any:
    """The file of another backend, which makes targets of this kind."""
    return importlib.import_module(f"stanadapt.model.backends.{name}")


def _flat_names(names: Sequence[str] | None, dim: int) -> list[str]:
    vector = "x" if names is None else names
    if not isinstance(vector, Iterable) or isinstance(vector, bytes | Mapping):
        raise check.refusal("names", names, "one name, or a list of names")
    listed = [vector] if isinstance(vector, str) else list(itertools.islice(vector, dim + 1))
    if not all(isinstance(name, str) and name for name in listed) or len(set(listed)) != len(listed):
        raise check.refusal("names", names, "different, non-empty strings")
    for name in listed:
        check.label("names", name)
    if isinstance(vector, str):
        return [f"{vector}.{i + 1}" for i in range(dim)]
    if len(listed) != dim:
        raise check.refusal("names", names, f"one name, or a list of dim={dim} names")
    return listed


def _pointer(array: np.ndarray) -> Any:
    return array.ctypes.data_as(ctypes.POINTER(ctypes.c_double))


def _check_arguments(name: str, function: Any, wanted: int) -> None:
    """Refuse a cfunc of another signature, whose call would crash the process. An address shows nothing."""
    signature = getattr(getattr(function, "ctypes", None), "argtypes", None)
    if signature is not None and len(signature) != wanted:
        shown = "LOG_DENSITY" if wanted == 1 else "LOG_DENSITY_GRADIENT"
        raise ArgumentError(
            f"{name} is a cfunc of {len(signature)} arguments; its signature must be stanadapt.Target.{shown}"
        )


def _address(function: Any) -> int | None:
    """The address of a compiled function, None for a Python callable."""
    if isinstance(function, int | np.integer) and not isinstance(function, bool) and function > 0:
        return int(function)
    address = getattr(function, "address", None)
    return address if isinstance(address, int) else None


@intrinsic
def _call_user(typing_context: Any, address: Any, x: Any, score: Any) -> Any:
    """Call the user's C function at `address`: of x alone where `score` is zero, else of both."""
    word, real = ir.IntType(64), ir.DoubleType()

    def generate(_: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        at, point, gradient = arguments
        wanted = builder.icmp_unsigned("!=", gradient, word(0))
        with builder.if_else(wanted) as (with_gradient, without):
            with with_gradient:
                function = builder.inttoptr(at, ir.FunctionType(real, [word, word]).as_pointer())
                long = builder.call(function, [point, gradient])
                long_block = builder.block
            with without:
                function = builder.inttoptr(at, ir.FunctionType(real, [word]).as_pointer())
                short = builder.call(function, [point])
                short_block = builder.block
        value = builder.phi(real)
        value.add_incoming(long, long_block)
        value.add_incoming(short, short_block)
        return value

    return types.float64(types.uintp, types.uintp, types.uintp), generate


_Addresses = types.CPointer(types.uint64)


@callback(types.int32(_Addresses, types.boolean, types.boolean, types.uintp, _Pointer, types.uintp))
def _density_of_cfunc(addresses, propto, jacobian, x, value, message):  # type: ignore[no-untyped-def]
    value[0] = _call_user(addresses[0], x, np.uint64(0))
    return 0


@callback(
    types.int32(_Addresses, types.boolean, types.boolean, types.uintp, _Pointer, types.uintp, types.uintp)
)
def _gradient_of_cfunc(addresses, propto, jacobian, x, value, score, message):  # type: ignore[no-untyped-def]
    value[0] = _call_user(addresses[1], x, score)
    return 0


def adopt(model: Any, data: Any) -> tuple[Target | OwnModel, dict[str, Any]] | None:
    """A `Target`, or another model that is open already, with what it says of its data."""
    if not isinstance(model, Target | OwnModel):
        return None
    if data is not None:
        kind = "Python target" if isinstance(model, Target) else "target that is open"
        raise DataError(f"data are not allowed with a {kind}: its functions hold their own")
    return model, dict(model.data)
