"""Priors of simulators: a Stan program, or distributions of scipy, both on an unconstrained scale."""

from __future__ import annotations

import copy
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy import special, stats

from .. import check
from ..errors import ArgumentError
from ..model.backends.contract import Writer
from ..model.posterior import Posterior

_CONTINUOUS, _NORMAL_VECTOR = type(stats.norm()), type(stats.multivariate_normal([0.0]))
_COMPARED = 5  # draws of a distribution at which two ways to its density are compared
_ALLOWED = (
    "a Stan program (a path to it, its text, or a Posterior), or a dict of names and frozen distributions "
    "of scipy.stats"
)


class Prior(Protocol):
    """The prior of a simulator. Methods without a docstring are declared in `backends.contract.Model`."""

    dim: int
    data: Mapping[str, Any]
    thread_safe: bool

    def names(self, *, transformed: bool, generated: bool) -> list[str]: ...
    def unconstrained_names(self) -> list[str]: ...
    def writer(self, seed: int) -> Writer: ...
    def unconstrain(self, values: Mapping[str, Any]) -> np.ndarray: ...
    def unconstrain_flat(self, values: np.ndarray) -> np.ndarray: ...
    def identity(self) -> bytes: ...

    def for_chain(self, index: int, seeds: np.random.SeedSequence) -> Prior: ...

    def log_density(self, x: np.ndarray) -> float:
        """Log density at the unconstrained `x` (d,), with the Jacobian; -inf where the model rejects x."""
        ...

    def values(self, x: np.ndarray) -> dict[str, Any]:
        """The arguments of a simulator at `x` (d,): a float or a read-only array for every name."""
        ...

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """A point (d,) at which to try a simulator."""
        ...


def read(prior: Any, data: Any) -> Prior:
    """The prior that a user gave; `data` are the data of a Stan program.

    Raises
    ------
    ArgumentError
        `prior` is not allowed, or there are `data` but no Stan program to open.
    ModelError, DataError
        The Stan program cannot be opened, or the data do not fit.
    """
    if isinstance(prior, str | os.PathLike):
        return StanPrior(Posterior(prior, data))
    if data is not None:
        raise ArgumentError("prior_data are allowed only where prior is a Stan program, as a path or text")
    if isinstance(prior, Posterior):
        return StanPrior(prior)
    if isinstance(prior, Mapping) and prior:
        return ScipyPrior(prior)
    raise check.refusal("prior", prior, _ALLOWED)


class StanPrior:
    """A Stan program. Simulators get its parameters and transformed parameters."""

    def __init__(self, posterior: Posterior) -> None:
        if posterior.model.noisy:
            raise ArgumentError("prior is a noisy target; its density must be known")
        if posterior.dim == 0:
            raise ArgumentError("prior is a Stan program without parameters; it must have some")
        self.posterior, self.model = posterior, posterior.model
        self.dim, self.thread_safe = posterior.dim, posterior.model.thread_safe
        self.data: Mapping[str, Any] = posterior.data
        self._write: Writer | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_write": None}  # a writer cannot leave its process

    def names(self, *, transformed: bool, generated: bool) -> list[str]:
        return self.model.names(transformed=transformed, generated=generated)

    def unconstrained_names(self) -> list[str]:
        return self.model.unconstrained_names()

    def writer(self, seed: int) -> Writer:
        return self.model.writer(seed)

    def unconstrain(self, values: Mapping[str, Any]) -> np.ndarray:
        return self.model.unconstrain(values)

    def unconstrain_flat(self, values: np.ndarray) -> np.ndarray:
        return self.model.unconstrain_flat(values)

    def identity(self) -> bytes:
        return self.posterior.digest().encode()

    def for_chain(self, index: int, seeds: np.random.SeedSequence) -> StanPrior:
        own = copy.copy(self)
        own.model = self.model.for_chain(index, seeds)
        return own

    def log_density(self, x: np.ndarray) -> float:
        try:
            return self.model.log_density(x)
        except RuntimeError:
            return -np.inf

    def values(self, x: np.ndarray) -> dict[str, Any]:
        if self._write is None:
            self._write = self.model.writer(0)
        row = np.empty((1, self.posterior.n_values))
        self._write(x[None], row, np.zeros(1, np.int64))
        wanted = self.posterior.parameters | self.posterior.transformed_parameters
        taken = {name: variable.take(row[0]) for name, variable in wanted.items()}
        return {name: _read_only(value) if np.ndim(value) else float(value) for name, value in taken.items()}

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        return rng.uniform(-2.0, 2.0, self.dim)


def _read_only(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


class _Part(NamedTuple):
    """One distribution, and the columns of x that belong to it; the first index varies fastest."""

    name: str
    law: Any
    shape: tuple[int, ...]
    columns: slice
    logpdf: Callable[[Any], Any]

    def take(self, theta: np.ndarray) -> Any:
        """The value of this parameter in the flat `theta` (d,)."""
        value = theta[self.columns]
        return value.reshape(self.shape, order="F") if self.shape else float(value[0])


class ScipyPrior:
    """Independent frozen distributions; logarithms and logits make bounded parameters unconstrained."""

    data: Mapping[str, Any] = {}
    thread_safe = True

    def __init__(self, distributions: Mapping[str, Any]) -> None:
        self.parts: list[_Part] = []
        lower, upper = [], []
        self.dim = 0
        for name, law in distributions.items():
            shape, low, high = _shape_and_support(name, law)
            size = int(np.prod(shape))
            self.parts.append(_Part(name, law, shape, slice(self.dim, self.dim + size), _log_density_of(law)))
            self.dim += size
            lower.append(np.broadcast_to(low, shape).ravel(order="F"))
            upper.append(np.broadcast_to(high, shape).ravel(order="F"))
        self.lower, self.upper = np.concatenate(lower), np.concatenate(upper)

    def names(self, *, transformed: bool, generated: bool) -> list[str]:
        listed = []
        for part in self.parts:
            for index in np.ndindex(part.shape[::-1]):
                listed.append(".".join([part.name, *(str(i + 1) for i in index[::-1])]))
        return listed

    def unconstrained_names(self) -> list[str]:
        return self.names(transformed=False, generated=False)

    def writer(self, seed: int) -> Writer:
        def write(x: np.ndarray, values: np.ndarray, iterations: np.ndarray) -> None:
            values[:] = self._constrain(x)[0]

        return write

    def unconstrain(self, values: Mapping[str, Any]) -> np.ndarray:
        flat = [np.ravel(np.asarray(values[part.name], dtype=float), order="F") for part in self.parts]
        return self.unconstrain_flat(np.concatenate(flat))

    def unconstrain_flat(self, values: np.ndarray) -> np.ndarray:
        outside = (values < self.lower) | (values > self.upper)
        if outside.any():
            name = self.unconstrained_names()[int(np.argmax(outside))]
            raise RuntimeError(f"{name} is outside of the support of its prior")
        low, high = np.isfinite(self.lower), np.isfinite(self.upper)
        with np.errstate(divide="ignore"):  # a value on the boundary becomes infinite
            below = np.log(np.where(low, values - self.lower, 1.0))
            above = np.log(np.where(high, self.upper - values, 1.0))
        return np.where(low | high, below - above, values)

    def identity(self) -> bytes:
        return " ".join(f"{part.name} {_format_law(part.law)}" for part in self.parts).encode()

    def for_chain(self, index: int, seeds: np.random.SeedSequence) -> ScipyPrior:
        return self

    def log_density(self, x: np.ndarray) -> float:
        theta, log_jacobian = self._constrain(x)
        # Rounding can put theta on a bound, where a density may be infinite; and x may be beyond every tail.
        if np.any((theta <= self.lower) | (theta >= self.upper)):
            return -np.inf
        return log_jacobian + sum(float(np.sum(part.logpdf(part.take(theta)))) for part in self.parts)

    def values(self, x: np.ndarray) -> dict[str, Any]:
        theta, _ = self._constrain(x)
        theta.flags.writeable = False
        return {part.name: part.take(theta) for part in self.parts}

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        return self.unconstrain({part.name: part.law.rvs(random_state=rng) for part in self.parts})

    def _constrain(self, x: np.ndarray) -> tuple[np.ndarray, float]:
        """The parameters at unconstrained points (..., d), and the sum of their log Jacobians."""
        low, high = np.isfinite(self.lower), np.isfinite(self.upper)
        both = low & high
        with np.errstate(over="ignore", invalid="ignore"):
            theta = np.where(low, self.lower + np.exp(x), x)
            theta = np.where(high, self.upper - np.exp(-x), theta)
            theta = np.where(both, self.lower + (self.upper - self.lower) * special.expit(x), theta)
            log_slope = np.where(low, x, 0.0) - np.where(high & ~low, x, 0.0)
            steep = np.log(self.upper - self.lower) + special.log_expit(x) + special.log_expit(-x)
            log_slope = np.where(both, steep, log_slope)
        return theta, float(log_slope.sum())


def _shape_and_support(name: Any, law: Any) -> tuple[tuple[int, ...], Any, Any]:
    """Shape, lower and upper bound of one distribution."""
    if not isinstance(name, str) or not name.isidentifier():
        raise ArgumentError(f"prior has the name {check.quote(name)}; names must be words without dots")
    if isinstance(law, _NORMAL_VECTOR):
        return (int(law.dim),), -np.inf, np.inf
    if not isinstance(law, _CONTINUOUS):
        raise check.refusal(
            f"prior[{name!r}]", law, "a frozen continuous distribution, such as scipy.stats.norm(0, 1)"
        )
    lower, upper = law.support()
    if np.any(np.isnan(lower)) or np.any(np.isnan(upper)):
        raise ArgumentError(f"prior[{name!r}]={_format_law(law)} has parameters that scipy does not allow")
    return np.shape(law.rvs(random_state=np.random.default_rng(0))), lower, upper


def _log_density_inside(
    dist: Any, shapes: Sequence[np.ndarray], loc: np.ndarray, scale: np.ndarray, x: Any
) -> Any:
    """The log density of a univariate distribution inside of its support.

    For any point scipy looks at each argument anew, which takes 20 times as long as the formula. That of a
    distribution is its `_logpdf`, which scipy documents for those who write their own.
    """
    return dist._logpdf((x - loc) / scale, *shapes) - np.log(scale)


def _log_density_of(law: Any) -> Callable[[Any], Any]:
    """The fastest way to the log density of a distribution that says what scipy's own does at some draws."""
    slow: Callable[[Any], Any] = law.logpdf
    if isinstance(law, _NORMAL_VECTOR):
        return slow
    names = law.dist.shapes.split(", ") if law.dist.shapes else []
    given = {"loc": 0.0, "scale": 1.0}
    given |= dict(zip([*names, "loc", "scale"], law.args, strict=False)) | law.kwds
    shapes = [np.asarray(given[name]) for name in names]
    loc, scale = np.asarray(given["loc"]), np.asarray(given["scale"])
    fast = functools.partial(_log_density_inside, law.dist, shapes, loc, scale)
    draws = [law.rvs(random_state=np.random.default_rng(seed)) for seed in range(_COMPARED)]
    try:
        with np.errstate(all="ignore"):
            agrees = all(np.allclose(fast(x), slow(x), rtol=1e-12, atol=1e-12) for x in draws)
    except Exception:  # a formula may be for arrays alone, and say so in its own way
        return slow
    return fast if agrees else slow


def _format_law(law: Any) -> str:
    """A distribution with its parameters, as text."""
    if isinstance(law, _NORMAL_VECTOR):
        return f"multivariate_normal({law.mean.tolist()}, {law.cov.tolist()})"
    arguments = [repr(value) for value in law.args] + [f"{key}={value!r}" for key, value in law.kwds.items()]
    return f"{law.dist.name}({', '.join(arguments)})"
