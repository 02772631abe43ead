"""PyMC models: log density and gradient compiled by numba, so that kernels call them without Python.

PyMC itself is imported when a model comes: it takes seconds, and may not be installed.
"""

from __future__ import annotations

import importlib
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .... import check
from ....errors import ArgumentError, DataError, ModelError, StanAdaptError, warn
from ....target import NativeTarget
from ..contract import Writer
from ..python import Target
from .philox import PhiloxStreams

# How near the values of a point must come to the values behind it: relative, and relative to the largest.
_CLOSE, _CLOSE_TO_LARGEST = 1e-5, 1e-8
_SHOWN = 5  # terms of a log density in a message


class PyMCTarget(Target):
    """A `pymc.Model` with the data that it has now. Made by `Target.from_pymc`."""

    backend = "pymc"
    noisy = False
    uses_blas = True  # in products and decompositions, whose last bits depend on its threads

    def __init__(self, model: Any) -> None:
        try:
            graphs = _module("graphs").Graphs(model)
        except StanAdaptError:
            raise
        except Exception as error:  # PyMC reads most of a model only now, and raises what comes
            words = _module("functions").first_words(error)
            raise ModelError(f"model: PyMC cannot evaluate it: {words}") from error
        if reason := check.too_many(graphs.dim):
            raise ModelError(f"model: it has {reason}")
        self._take(graphs, ())

    def __getstate__(self) -> dict[str, Any]:
        return {"model": self._graphs.model, "data": self._graphs.data, "quantities": self._quantities}

    def __setstate__(self, state: dict[str, Any]) -> None:
        # The user may have given the model other data since the target was made.
        module = _module("graphs")
        for shared, value in zip(module.list_shared(state["model"]), state["data"], strict=True):
            shared.set_value(value)
        self._take(module.Graphs(state["model"]), state["quantities"])
        self._is_told = True  # by the process that it comes from

    def _take(self, graphs: Any, quantities: tuple[tuple[str, str], ...]) -> None:
        self._graphs, self._quantities = graphs, quantities
        self.dim, self.library = graphs.dim, _module("graphs").version()
        self.has_gradient = graphs.gradient is not None
        self.data, self.modelled = graphs.record
        self.coords, self.dims = graphs.labels
        self._shapes = graphs.shapes | graphs.quantity_shapes(quantities)
        self._pending: BaseException | None = None
        self._density: Any = None  # compiled when it is first needed
        self._inverse: Any = None
        self._is_told = False
        self._lock = threading.RLock()

    def with_quantities(self, log_likelihood: Sequence[str], posterior_predictive: Sequence[str]) -> Target:
        wanted = {"log_likelihood": log_likelihood, "posterior_predictive": posterior_predictive}
        asked = [(group, name.removeprefix(f"{group}:")) for group, names in wanted.items() for name in names]
        for group, name in asked:
            graphs = self._graphs
            check.choice(group, name, graphs.observed if group == "log_likelihood" else graphs.predictable)
        quantities = tuple(dict.fromkeys(asked))
        if quantities == self._quantities:
            return self
        _module("functions").try_quantities(self._graphs, quantities)
        other = object.__new__(type(self))
        other._take(self._graphs, quantities)
        return other

    @property
    def thread_safe(self) -> bool:  # type: ignore[override]
        self._make_ready()
        return self._compiled

    def compile(self, tell: Callable[[str], None]) -> None:
        functions = _module("functions")
        if not functions.is_ready(self._graphs, self._quantities):
            tell("stanadapt: compiling PyMC's model, once a session")
            began = time.perf_counter()
            self._make_ready()
            functions.rows(self._graphs, self._quantities)
            tell(f"stanadapt: compiled in {time.perf_counter() - began:.1f} s")
        self._make_ready()

    def names(self, *, transformed: bool, generated: bool) -> list[str]:
        graphs = self._graphs
        named = [free.name for free in graphs.free]
        named += graphs.deterministics if transformed else []
        named += [f"{group}:{name}" for group, name in self._quantities] if generated else []
        return [flat for name in named for flat in _flat_names(name, self._shapes[name])]

    def unconstrained_names(self) -> list[str]:
        """The names of the variables, as in Stan; PyMC's own names would end in `_log__` and the like."""
        free = self._graphs.free
        return [flat for each in free for flat in _flat_names(each.name, each.value_shape, last_fastest=True)]

    def target(self) -> NativeTarget:
        self._make_ready()
        return super().target()

    def log_density(self, x: np.ndarray) -> float:
        self._make_ready()
        return super().log_density(x)

    def log_density_gradient(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        self._make_ready()
        return super().log_density_gradient(x)

    def explain(self, x: np.ndarray) -> str:
        program, names = self._graphs.terms_program()
        try:
            terms = _module("functions").look(self._graphs, program)(x, *self._graphs.data)
        except Exception as error:  # the model's own ops may raise anything
            return str(_module("functions").first_words(error))
        values = {name: float(term) for name, term in zip(names, terms, strict=True)}
        bad = [f"{name} ({value})" for name, value in values.items() if not np.isfinite(value)]
        return f"the terms that are not finite: {', '.join(bad[:_SHOWN])}" if bad else ""

    def writer(self, seed: int) -> Writer:
        rows, data = _module("functions").rows(self._graphs, self._quantities), self._graphs.data
        streams = PhiloxStreams(seed, rows.n_generators)

        def write(x: np.ndarray, values: np.ndarray, iterations: np.ndarray) -> None:
            is_new = np.ones(len(x), bool)
            if not rows.n_generators:  # a rejected proposal leaves the same point, with the same values
                is_new[1:] = np.any(x[1:] != x[:-1], axis=1)
            found = np.empty((int(is_new.sum()), values.shape[1]))
            points = np.ascontiguousarray(x[is_new])
            rows.write(points, found, iterations[is_new].astype(np.int64), data, streams)
            values[:] = found[np.cumsum(is_new) - 1]

        return write

    def unconstrain(self, values: Mapping[str, Any]) -> np.ndarray:
        graphs = self._graphs
        with self._lock:
            if self._inverse is None:
                self._inverse = _module("functions").look(graphs, graphs.inverse_program())
            given = [np.asarray(values[free.name], dtype=float) for free in graphs.free]
            with np.errstate(all="ignore"):
                x, *back = self._inverse(*given, *graphs.data)
        for free, wanted, found in zip(graphs.free, given, back, strict=True):
            margin = _CLOSE_TO_LARGEST * np.max(np.abs(wanted), initial=1.0)
            if not np.allclose(found, wanted, rtol=_CLOSE, atol=margin):
                raise RuntimeError(f"{free.name}={check.quote(wanted.tolist())} is not in its support")
        return np.asarray(x)

    def unconstrain_flat(self, values: np.ndarray) -> np.ndarray:
        shaped, begin = {}, 0
        for free in self._graphs.free:
            end = begin + int(np.prod(free.shape, dtype=int))
            shaped[free.name] = values[begin:end].reshape(free.shape, order="F")
            begin = end
        return self.unconstrain(shaped)

    def identity(self) -> bytes:
        return str(self._graphs.identity()).encode()

    def _make_ready(self) -> None:
        """Compile the density, or take what this session has compiled."""
        with self._lock:
            if self._density is not None:
                return
            functions = _module("functions")
            density = functions.density(self._graphs)
            self._compiled = bool(density.callbacks)
            self._arrays = density.make(self._graphs.data)
            if self._compiled:
                self._table = functions.table(self._arrays)
                self._context = self._table.ctypes.data
                addresses = [callback.address for callback in density.callbacks]
                self._density_address, self._gradient_address = addresses[0], addresses[-1]
            else:
                self._bind()
                if not self._is_told:
                    warn(
                        f"model: numba cannot compile it ({density.reason}). PyMC's C backend evaluates it, "
                        "called from Python: that is slower, and chains run in processes"
                    )
            self._density, self._is_told = density, True

    def _checked_value(self, x: np.ndarray) -> float:
        try:
            return float(self._density.functions[0](x, *self._arrays)[0])
        except _module("graphs").REJECTIONS:
            return np.nan

    def _checked_gradient(self, x: np.ndarray) -> np.ndarray:
        return self._both(x)[1]

    def _both(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        try:
            value, score = self._density.functions[1](x, *self._arrays)
        except _module("graphs").REJECTIONS:
            return np.nan, np.full(self.dim, np.nan)
        return float(value), np.asarray(score)

    def _put(self, point: np.ndarray, value: Any, score: np.ndarray | None) -> None:
        """One call gives both, where the gradient is wanted."""
        if score is None:
            value[0] = self._checked_value(point)
        else:
            value[0], score[:] = self._both(point)


def is_model(given: Any) -> bool:
    """Whether it is a `pymc.Model`; PyMC is not imported for that."""
    pymc = sys.modules.get("pymc")
    return pymc is not None and isinstance(given, pymc.Model)


def adopt(model: Any, data: Any) -> tuple[PyMCTarget, dict[str, Any]] | None:
    """A `pymc.Model`, with its observed and constant data."""
    if not is_model(model):
        return None
    if data is not None:
        raise DataError("data are not allowed with a PyMC model, which has its own: pm.set_data changes them")
    target = PyMCTarget(model)
    return target, dict(target.data)


def from_model(model: Any) -> PyMCTarget:
    """See `Target.from_pymc`."""
    try:
        importlib.import_module("pymc")
    except ImportError as error:
        raise ArgumentError(
            "model: PyMC is not installed; pip install 'stanadapt[pymc]' brings it"
        ) from error
    if not is_model(model):
        raise check.refusal("model", model, "a pymc.Model")
    return PyMCTarget(model)


def _module(name: str) -> Any:
    """The files that import PyMC."""
    return importlib.import_module(f".pymc_{name}", __package__)


def _flat_names(name: str, shape: tuple[int, ...], *, last_fastest: bool = False) -> list[str]:
    """`theta.1.2` for the entries of an array, the first index fastest as everywhere; or the last one."""
    order = np.ndindex(*shape) if last_fastest else (index[::-1] for index in np.ndindex(*shape[::-1]))
    return [".".join([name, *(str(i + 1) for i in index)]) for index in order]
