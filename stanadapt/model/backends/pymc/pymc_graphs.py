"""A PyMC model as graphs of PyTensor: its declarations, its data, and the values that a run has to evaluate.

All graphs are functions of one point x (d,), on the scale of PyMC's value variables, and of the model's data
(`pm.Data` and the lengths of dimensions), which stay inputs: with other data the same graphs are evaluated.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pymc
import pytensor
import pytensor.tensor as pt
from pymc.backends.arviz import coords_and_dims_for_inferencedata, find_constants, find_observations
from pymc.pytensorf import rewrite_pregrad
from pymc.sampling.forward import observed_dependent_deterministics
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.gradient import NullTypeGradError
from pytensor.graph.basic import Constant
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors, io_toposort
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.type import DenseTensorType
from scipy import sparse

from .... import check
from ....errors import ModelError

LOOK = "FAST_COMPILE"  # PyTensor's mode for what is evaluated once or twice
# Exceptions of a log density at a point without one; any other is a mistake in the model's own ops.
REJECTIONS = (ArithmeticError, AssertionError, ValueError, np.linalg.LinAlgError)

_PLAIN = bool | int | float | str  # settings of ops that are told by their values
_ADDRESS = re.compile(r"0x[0-9a-fA-F]+")
# Ops whose results are not worth keeping: they give another view of an array, or its shape.
_VIEWS = {
    "DimShuffle",
    "ExpandDims",
    "Reshape",
    "ScalarFromTensor",
    "Shape",
    "Shape_i",
    "SpecifyShape",
    "Subtensor",
    "TensorFromScalar",
}


class Free(NamedTuple):
    """A free random variable."""

    name: str
    shape: tuple[int, ...]  # of its values
    value_shape: tuple[int, ...]  # of PyMC's value variable, which is unconstrained


class GraphProgram(NamedTuple):
    """Graphs to be compiled. Arrays that depend on data alone are computed once, and are inputs too."""

    inputs: list[Any]  # x first, then arrays
    outputs: list[Any]
    given: list[Any]  # the data, as inputs of `made`
    made: list[Any]  # graphs of the arrays that come after the data


class Graphs:
    """A model, read with the data that it has at this time.

    `data` are the arrays that the graphs take; `record` has observed and constant data by name, and the names
    of the observed ones; `labels` has coordinates and dimensions.
    """

    def __init__(self, model: Any) -> None:
        """Raises ModelError where a run cannot draw from it."""
        _check(model)
        self.model = model
        self.free = _find_free(model)
        self.dim = sum(_size(free.value_shape) for free in self.free)
        self.density = _log_density(model)
        named = [*model.free_RVs, *model.deterministics]
        constrained = [_as_tensor(each) for each in model.replace_rvs_by_values(named)]
        self.shared = list_shared(model, [self.density, *constrained, *_observed_variables(model)])
        if any(isinstance(each.type, RandomType) for each in _shared_variables([self.density])):
            raise ModelError(
                "model: its log density draws random numbers (pm.Minibatch or pm.Simulator), and must not"
            )
        self.data = [np.array(each.get_value(borrow=True), order="C") for each in self.shared]
        self.labels, self.record = self._read_labels(), self._read_data()
        self.x = pt.vector("x", shape=(self.dim,), dtype="float64")
        self.inputs = [each.type(name=f"data_{i}") for i, each in enumerate(self.shared)]
        self._replaced = dict(zip(self.shared, self.inputs, strict=True)) | self._slices()
        self.constrained = dict(zip([each.name for each in named], constrained, strict=True))
        self.shapes = {free.name: free.shape for free in self.free}
        self.shapes |= self._find_shapes({name: self.constrained[name] for name in self.deterministics})
        self.key = (
            model.check_bounds,
            tuple(free.value_shape for free in self.free),
            signature([self.density, *constrained], [*model.value_vars, *self.shared]),
        )
        self._stable = rewrite_pregrad(self.density)
        self.gradient = self._differentiate()

    @property
    def deterministics(self) -> list[str]:
        return [each.name for each in self.model.deterministics]

    @property
    def observed(self) -> list[str]:
        return [each.name for each in _observed_variables(self.model)]

    @property
    def predictable(self) -> list[str]:
        """The observed variables, and deterministics made of them: such as `y` with missing values."""
        return [*self.observed, *(each.name for each in observed_dependent_deterministics(self.model))]

    def _read_labels(self) -> tuple[dict[str, Any], dict[str, list[str]]]:
        """Coordinates by dimension, and dimensions by variable, as PyMC gives them to ArviZ."""
        coords, dims = coords_and_dims_for_inferencedata(self.model)
        return coords, {
            name: [dim or f"{name}_dim_{i}" for i, dim in enumerate(given)] for name, given in dims.items()
        }

    def _read_data(self) -> tuple[dict[str, np.ndarray], frozenset[str]]:
        """Observed and constant data, and the names of the observed ones."""
        observed = {name: _array(value) for name, value in find_observations(self.model).items()}
        constant = {name: _array(value) for name, value in find_constants(self.model).items()}
        return constant | observed, frozenset(observed)

    def density_program(self) -> GraphProgram:
        """The log density, and its gradient where there is one."""
        outputs = self.of_point([self._stable, *([] if self.gradient is None else [self.gradient])])
        made = list(_variables_of_data(outputs, self.x, self.inputs))
        arrays = [each.type(name=f"made_{i}") for i, each in enumerate(made)]
        outputs = clone_replace(outputs, dict(zip(made, arrays, strict=True)))
        return GraphProgram([self.x, *self.inputs, *arrays], outputs, self.inputs, made)

    def values_program(self, quantities: Sequence[tuple[str, str]]) -> tuple[GraphProgram, list[Any]]:
        """All values of a draw as one vector, last index slowest, and the generators that it takes."""
        parts = [*self.constrained.values(), *self.quantities(quantities).values()]
        flat = [pt.cast(_reverse_axes(each), "float64").ravel() for each in self.of_point(parts)]
        output = pt.concatenate(flat) if flat else pt.zeros(0)
        generators = [each for each in _shared_variables([output]) if isinstance(each.type, RandomType)]
        inputs = [each.type(name=f"rng_{i}") for i, each in enumerate(generators)]
        (output,) = clone_replace([output], dict(zip(generators, inputs, strict=True)))
        return GraphProgram([self.x, *self.inputs], [output], self.inputs, []), inputs

    def quantities(self, quantities: Sequence[tuple[str, str]]) -> dict[str, Any]:
        """Graphs of the log likelihood, or of new data, by `group:name`; of pairs of group and variable."""
        model = self.model
        found: dict[tuple[str, str], Any] = {}
        rvs = {rv.name: rv for rv in _observed_variables(model)}
        if wanted := [name for group, name in quantities if group == "log_likelihood"]:
            graphs = model.logp(vars=[rvs[name] for name in wanted], sum=False)
            found |= {("log_likelihood", name): each for name, each in zip(wanted, graphs, strict=True)}
        if wanted := [name for group, name in quantities if group == "posterior_predictive"]:
            free = {rv: self._value_graph(rv) for rv in model.free_RVs}
            graphs = clone_replace([model[name] for name in wanted], free)
            found |= {("posterior_predictive", name): each for name, each in zip(wanted, graphs, strict=True)}
        return {f"{group}:{name}": _as_tensor(found[group, name]) for group, name in quantities}

    def quantity_shapes(self, quantities: Sequence[tuple[str, str]]) -> dict[str, tuple[int, ...]]:
        return self._find_shapes(self.quantities(quantities))

    def terms_program(self) -> tuple[GraphProgram, list[str]]:
        """The terms of the log density, each the sum over a variable, and their names."""
        model = self.model
        named = [*model.free_RVs, *_observed_variables(model), *model.potentials]
        terms = [_as_tensor(each).sum() for each in model.logp(vars=named, sum=False)]
        program = GraphProgram([self.x, *self.inputs], self.of_point(terms), self.inputs, [])
        return program, [each.name for each in named]

    def inverse_program(self) -> GraphProgram:
        """The point x of the values of all free variables, and then the values at x again."""
        values = {rv: rv.type(name=rv.name) for rv in self.model.free_RVs}
        parts = []
        for rv in self.model.free_RVs:
            transform = self.model.rvs_to_transforms[rv]
            value = rv if transform is None else transform.forward(rv, *rv.owner.inputs)
            parts.append(_as_tensor(value).ravel())
        data = dict(zip(self.shared, self.inputs, strict=True))
        (joined,) = clone_replace([pt.concatenate(parts)], values | data)
        x = pt.specify_shape(joined, (self.dim,))
        again = self.of_point([self.constrained[free.name] for free in self.free])
        return GraphProgram(
            [*values.values(), *self.inputs], [x, *clone_replace(again, {self.x: x})], self.inputs, []
        )

    def identity(self) -> str:
        """A text that identifies this model in every session: its variables as the user made them."""
        model = self.model
        named = [*model.free_RVs, *_observed_variables(model), *model.potentials, *model.deterministics]
        transforms = [type(model.rvs_to_transforms[rv]).__name__ for rv in model.free_RVs]
        named_values = [model.rvs_to_values[rv] for rv in _observed_variables(model)]
        walk = signature([*named, *named_values], self.shared, as_text=True)
        return repr(([each.name for each in named], transforms, walk))

    def of_point(self, graphs: Iterable[Any]) -> list[Any]:
        """Graphs of value variables and shared data as graphs of x and inputs."""
        return list(clone_replace(list(graphs), self._replaced))

    def _slices(self) -> dict[Any, Any]:
        """The value variables as parts of x."""
        slices, begin = {}, 0
        for rv, free in zip(self.model.free_RVs, self.free, strict=True):
            value = self.model.rvs_to_values[rv]
            end = begin + _size(free.value_shape)
            part = self.x[begin:end].reshape(free.value_shape)
            slices[value] = value.type.filter_variable(_like(part, value), allow_convert=True)
            begin = end
        return slices

    def _value_graph(self, rv: Any) -> Any:
        """A free variable as a graph of its value variable, of its own type."""
        (value,) = self.model.replace_rvs_by_values([rv])
        return rv.type.filter_variable(value, allow_convert=True)

    def _find_shapes(self, graphs: dict[str, Any]) -> dict[str, tuple[int, ...]]:
        """Shapes by name, which must be the same at all points. Raises ModelError."""
        away = np.random.default_rng(0).normal(size=self.dim)
        places = [[x, *self.data] for x in (np.zeros(self.dim), away, -away)]
        shapes = _shapes(self.of_point(graphs.values()), [self.x, *self.inputs], places)
        for name, *found in zip(graphs, *shapes, strict=True):
            if len(several := dict.fromkeys(found)) > 1:
                raise ModelError(
                    f"model: the shape of {name} depends on the values of parameters "
                    f"({' or '.join(map(str, several))}), and the same shape is needed everywhere"
                )
        return dict(zip(graphs, shapes[0], strict=True))

    def _differentiate(self) -> Any:
        """The gradient, flat; None where an op has none."""
        try:
            parts = pytensor.grad(self._stable, self.model.value_vars, disconnected_inputs="ignore")
        except (NotImplementedError, NullTypeGradError):
            return None
        return pt.concatenate([_as_tensor(each).ravel() for each in parts])


def _find_free(model: Any) -> list[Free]:
    """The free variables with their shapes."""
    values = []
    for rv in model.free_RVs:
        transform = model.rvs_to_transforms[rv]
        values.append(rv if transform is None else transform.forward(rv, *rv.owner.inputs))
    observed = {rv: model.rvs_to_values[rv] for rv in _observed_variables(model)}
    (shapes,) = _shapes(clone_replace([*model.free_RVs, *values], observed), [], [[]])
    n = len(values)
    return [Free(rv.name, shapes[i], shapes[n + i]) for i, rv in enumerate(model.free_RVs)]


def _shapes(
    graphs: Sequence[Any], inputs: Sequence[Any], places: Sequence[Sequence[Any]]
) -> list[list[tuple[int, ...]]]:
    """Shapes of graphs at places, which are values of the inputs.

    A place that cannot be evaluated is left out, except the first one, which must be evaluated. Shapes
    that are known from types are not evaluated.
    """
    known = [each.type.shape for each in graphs]
    unknown = [i for i, shape in enumerate(known) if None in shape]
    if not unknown:
        return [[_plain(shape) for shape in known]]
    outputs = [_as_tensor(_as_tensor(graphs[i]).shape) for i in unknown]
    settings = {"mode": LOOK, "on_unused_input": "ignore", "no_default_updates": True}
    evaluate = pytensor.function(list(inputs), outputs, **settings)
    found = [evaluate(*places[0])]
    for place in places[1:]:
        with contextlib.suppress(*REJECTIONS):
            found.append(evaluate(*place))
    told = [dict(zip(unknown, shapes, strict=True)) for shapes in found]
    return [[_plain(shapes.get(i, shape)) for i, shape in enumerate(known)] for shapes in told]


def _observed_variables(model: Any) -> list[Any]:
    """The observed variables, each once: PyMC 5 lists them twice after posterior predictive draws."""
    return list(dict.fromkeys(model.observed_RVs))


def _log_density(model: Any) -> Any:
    return model.logp(vars=[*model.free_RVs, *_observed_variables(model), *model.potentials])


def list_shared(model: Any, graphs: Sequence[Any] | None = None) -> list[Any]:
    """The shared variables of a model that hold its data, in an order that only its graphs decide."""
    if graphs is None:
        graphs = [
            _log_density(model),
            *model.replace_rvs_by_values([*model.free_RVs, *model.deterministics]),
            *_observed_variables(model),
        ]
    found = [each for each in _shared_variables(graphs) if not isinstance(each.type, RandomType)]
    for each in found:
        if not isinstance(each.type, DenseTensorType):
            raise ModelError(
                f"model: its shared variable {each.name or each} is a {type(each.type).__name__}, and only "
                "arrays are taken: make it a constant"
            )
    return found


def signature(outputs: Sequence[Any], inputs: Sequence[Any], *, as_text: bool = False) -> tuple[Any, ...]:
    """A graph as a tuple that is equal where graphs are; as text, it is so in other sessions too."""
    places: dict[Any, Any] = {each: ("input", i, str(each.type)) for i, each in enumerate(inputs)}
    nodes = []
    # Roots that are no inputs, generators of random numbers for one, are told by their types.
    for number, node in enumerate(io_toposort(list(inputs), list(outputs))):
        refs = tuple(places.get(each) or _root(each) for each in node.inputs)
        nodes.append((_op(node.op, as_text), refs, tuple(str(out.type) for out in node.outputs)))
        places |= {out: (number, i) for i, out in enumerate(node.outputs)}
    return tuple(nodes), tuple(places.get(each) or _root(each) for each in outputs)


def _op(op: Any, as_text: bool) -> Any:
    inner = getattr(op, "fgraph", None)
    text = _ADDRESS.sub("", str(op))
    if inner is not None:
        # Settings that no graph shows, such as how far back the gradient of a scan goes.
        settings = sorted((name, value) for name, value in vars(op).items() if isinstance(value, _PLAIN))
        own = (type(op).__name__, text, str(getattr(op, "info", "")), str(settings))
        return (*own, signature(inner.outputs, inner.inputs, as_text=as_text))
    return text if as_text else op


def _root(variable: Any) -> Any:
    if not isinstance(variable, Constant):
        return ("root", str(variable.type))
    data = variable.data
    if sparse.issparse(data):
        parts = data.tocoo()
        return ("constant", str(variable.type), data.shape, *map(_digest, (parts.row, parts.col, parts.data)))
    if isinstance(data, np.ndarray | np.generic) and np.asarray(data).dtype != object:
        held = np.asarray(data)
        return ("constant", str(held.dtype), held.shape, _digest(held))
    return ("constant", str(variable.type), _ADDRESS.sub("", repr(data)))


def _digest(array: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def _check(model: Any) -> None:
    """Refuse models that no run can draw from. Raises ModelError."""
    names = {model.values_to_rvs[each].name for each in model.discrete_value_vars}
    if discrete := [rv.name for rv in model.free_RVs if rv.name in names]:
        raise ModelError(
            f"model: its variables {', '.join(discrete)} are discrete, and only continuous ones can be "
            "drawn: sum them out, as pm.Mixture or pymc_extras.marginalize does"
        )
    if not model.free_RVs:
        raise ModelError("model: this PyMC model has no free variables, so there is nothing to draw")
    for rv in model.free_RVs:
        if (dtype := model.rvs_to_values[rv].dtype) != "float64":
            raise ModelError(
                f"model: its variable {rv.name} is {dtype}, and float64 is needed: set "
                "pytensor.config.floatX = 'float64' before the model is made"
            )
    for each in model.deterministics:
        if each.type.dtype.startswith("complex"):
            raise ModelError(
                f"model: its deterministic {each.name} is complex, and real numbers are needed: "
                "take its real and its imaginary part"
            )
    for each in [*model.free_RVs, *model.deterministics, *_observed_variables(model), *model.data_vars]:
        check.label("model: the name", each.name)
        if "." in each.name:
            raise ModelError(f"model: the name {each.name!r} has a dot, which stands for an index: rename it")


def _shared_variables(graphs: Iterable[Any]) -> list[Any]:
    return [each for each in ancestors(list(graphs)) if isinstance(each, SharedVariable)]


def _variables_of_data(outputs: list[Any], x: Any, data: list[Any]) -> Iterator[Any]:
    """Variables that depend on data and not on x, and that something which does depend on x takes.

    With frozen data PyTensor would fold them into constants. Views are left in the graph, and the variables
    that they show are taken.
    """
    moving, fixed, seen = {x}, set(data), set()
    takers = []
    for node in io_toposort([x, *data], outputs):
        if not moving.isdisjoint(node.inputs):
            moving.update(node.outputs)
            takers.append(node)
        elif not fixed.isdisjoint(node.inputs):
            fixed.update(node.outputs)
    waiting = [each for node in takers for each in node.inputs]
    while waiting:
        each = waiting.pop()
        if each not in fixed or each.owner is None or each in seen:
            continue
        seen.add(each)
        if type(each.owner.op).__name__ in _VIEWS or not isinstance(each.type, DenseTensorType):
            waiting += each.owner.inputs
        else:
            yield each


def _like(part: Any, value: Any) -> Any:
    """A part of x with named dimensions, where a variable of `pymc.dims` has them."""
    dims = getattr(value.type, "dims", None)
    if dims is None:
        return part
    from pytensor.xtensor import as_xtensor

    return as_xtensor(part, dims=dims)


def _as_tensor(variable: Any) -> Any:
    return pt.as_tensor(variable, allow_xtensor_conversion=True)


def _reverse_axes(variable: Any) -> Any:
    return variable.transpose() if variable.ndim > 1 else variable


def _array(value: Any) -> np.ndarray:
    array: np.ndarray = np.asarray(np.ma.filled(value, np.nan) if np.ma.isMA(value) else value)
    return array.astype(int) if array.dtype.kind == "b" else array


def _plain(shape: Any) -> tuple[int, ...]:
    return tuple(int(n) for n in shape)


def _size(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape, dtype=int))


def version() -> str:
    """The libraries that evaluate models, for the record."""
    return f"pymc {pymc.__version__}, pytensor {pytensor.__version__}"
