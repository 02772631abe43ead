"""Models of NumPyro: functions with `numpyro.sample` in them, and the arguments that they are called with.

Everything of NumPyro's own is asked for inside of a function that JAX traces. So nothing of it is evaluated
operation by operation, which takes seconds, and what it makes stays within one trace. Its handlers stand on
one stack, which all threads of the process share: one thread at a time may be among them.
"""

from __future__ import annotations

import importlib.util
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple, Self

import numpy as np

from .... import check
from ....errors import ArgumentError, ModelError
from ...source import is_function
from ...variables import flat_names
from .jax_checks import one_line_errors, require_jax
from .jax_model import JaxModel
from .jax_programs import put_together, take_apart
from .numpyro_arguments import constants_of, name_of, read_arguments, whole_numbers

_GROUPS = ("log_likelihood", "posterior_predictive")
_HANDLERS = threading.RLock()


class _Site(NamedTuple):
    """A site of the model's trace."""

    kind: str  # latent, discrete, enumerated, deterministic or observed
    shape: tuple[int, ...]
    dims: list[str]


class NumPyroSource:
    """See `jax_model.Source`."""

    is_identity = False

    def __init__(self, model: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
        import jax
        import numpyro

        self.model, self.arguments = model, dict(arguments)
        self.library = f"NumPyro {numpyro.__version__}, JAX {jax.__version__}"
        self.sites = self._look()
        self._check_sites()
        self.observed = [name for name, site in self.sites.items() if site.kind == "observed"]
        parameters, values = self._shapes()
        latent = [name for name in self.sites if name in parameters]
        self.unconstrained = {name: parameters[name] for name in latent}
        self.parameters = {name: values[name] for name in latent}
        self.deterministic = {
            name: values[name] for name in self.sites if name in values and name not in latent
        }
        self.dim = sum(int(np.prod(shape)) for shape in self.unconstrained.values())
        if self.dim == 0:
            raise ModelError(
                f"model: {name_of(model)} has no latent variables with entries, so there is nothing to draw"
            )
        if reason := check.too_many(self.dim):
            raise ModelError(f"model: {name_of(model)} has {reason}")
        for name in self.sites:
            _check_name(name)
        self.quantities: dict[str, tuple[int, ...]] = {}  # that are made on request: their shapes
        observed = self._observed_values()
        self.modelled = frozenset(observed)
        self.data: Mapping[str, Any] = observed | constants_of(self.arguments, observed)
        self.dims: Mapping[str, Sequence[str]] = self._dims()

    def names(self, *, transformed: bool, generated: bool) -> list[str]:
        shapes = dict(self.parameters)
        if transformed:
            shapes |= self.deterministic
        if generated:
            shapes |= self.quantities
        return flat_names(shapes)

    def unconstrained_names(self) -> list[str]:
        return flat_names(self.unconstrained)

    def log_density(self, x: Any) -> Any:
        with _alone():
            return -self._info().potential_fn(self._params(x))

    def row(self, x: Any, key: Any) -> Any:
        with _alone():
            values = self._info().postprocess_fn(self._params(x))
            found = [values[name] for name in (*self.parameters, *self.deterministic)]
            if self.quantities:
                latent = {name: values[name] for name in self.parameters}
                made = self._generate(latent, key)
                found += [made[name] for name in self.quantities]
        return put_together(found)

    def inverse(self, values: Any) -> Any:
        from numpyro.infer.util import unconstrain_fn

        given = dict(zip(self.parameters, take_apart(values, self.parameters.values()), strict=True))
        with _alone():
            found = unconstrain_fn(self._seed(0), (), self.arguments, given)
        return put_together([found[name] for name in self.unconstrained])

    def constrain(self, x: Any) -> Any:
        with _alone():
            values = self._info().postprocess_fn(self._params(x))
        return put_together([values[name] for name in self.parameters])

    def with_quantities(self, log_likelihood: Sequence[str], posterior_predictive: Sequence[str]) -> Self:
        asked = [("log_likelihood", name) for name in log_likelihood]
        asked += [("posterior_predictive", name) for name in posterior_predictive]
        if not asked:
            return self
        for group, name in asked:
            check.choice(group, name, self.observed)
        if any(site.kind == "enumerated" for site in self.sites.values()):
            raise ArgumentError(
                f"{asked[0][0]} is not available for a model with enumerated discrete variables: it "
                "depends on their values, which are not drawn"
            )
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.quantities = {f"{group}:{name}": () for group, name in asked}
        other.quantities = other._quantity_shapes()
        return other

    def one_line_errors(self, part: str = "") -> AbstractContextManager[None]:
        return _model_errors(self.model, part)

    def _params(self, x: Any) -> dict[str, Any]:
        """Unconstrained values by name."""
        return dict(zip(self.unconstrained, take_apart(x, self.unconstrained.values()), strict=True))

    def _seed(self, key: Any) -> Any:
        from numpyro import handlers

        return handlers.seed(self.model, key)

    def _info(self) -> Any:
        """NumPyro's form of the model, within a trace."""
        import jax
        from numpyro.infer.util import initialize_model

        return initialize_model(
            jax.random.key(0), self.model, model_kwargs=self.arguments, validate_grad=False
        )

    def _generate(self, latent: Mapping[str, Any], key: Any) -> dict[str, Any]:
        """Log likelihoods and predictions at values of the latent variables."""
        from numpyro import handlers

        made = {}
        conditioned = handlers.substitute(self._seed(key), data=dict(latent))
        if any(name.startswith("log_likelihood:") for name in self.quantities):
            trace = handlers.trace(conditioned).get_trace(**self.arguments)
            for name in self.observed:
                site = trace[name]
                made[f"log_likelihood:{name}"] = site["fn"].log_prob(site["value"])
        if any(name.startswith("posterior_predictive:") for name in self.quantities):
            from .numpyro_handlers import draw_observed

            free = handlers.substitute(draw_observed(self._seed(key)), data=dict(latent))
            trace = handlers.trace(free).get_trace(**self.arguments)
            made |= {f"posterior_predictive:{name}": trace[name]["value"] for name in self.observed}
        return made

    def _look(self) -> dict[str, _Site]:
        """The sites of the model, in its order."""
        import jax
        from numpyro import handlers
        from numpyro.infer import init_to_uniform

        found: dict[str, _Site] = {}

        def look() -> None:
            ready = handlers.substitute(self._seed(0), substitute_fn=init_to_uniform())
            for name, site in handlers.trace(ready).get_trace(**self.arguments).items():
                if site["type"] == "plate":
                    _check_plate(self.model, name, *site["args"])
                if kind := _kind(site):
                    _check_value(self.model, name, site["value"])
                    found[name] = _Site(kind, np.shape(site["value"]), _site_dims(site))

        with _model_errors(self.model), _alone():
            jax.eval_shape(look)
        return found

    def _check_sites(self) -> None:
        """Refuse functions that are no models, and discrete variables that are not summed over."""
        if not self.sites:
            raise ModelError(
                f"model={name_of(self.model)} is not allowed: the function has no numpyro.sample in it. For "
                "a log density, see Target.from_jax and Target.from_python"
            )
        discrete = [name for name, site in self.sites.items() if site.kind == "discrete"]
        if discrete:
            raise ModelError(
                f"model: {name_of(self.model)} has discrete latent variables, which no method here draws: "
                f"{', '.join(discrete)}. infer={{'enumerate': 'parallel'}} in numpyro.sample sums over their "
                "values"
            )
        enumerated = [name for name, site in self.sites.items() if site.kind == "enumerated"]
        if enumerated:
            with _needs_funsor(enumerated):
                import funsor  # noqa: F401

    def _shapes(self) -> tuple[dict[str, tuple[int, ...]], dict[str, tuple[int, ...]]]:
        """The shapes of unconstrained parameters, and of constrained and deterministic values."""
        import jax

        def look() -> Any:
            info = self._info()
            return info.param_info.z, info.postprocess_fn(info.param_info.z)

        with _model_errors(self.model), _alone():
            unconstrained, values = jax.eval_shape(look)
        for name, value in values.items():
            if np.dtype(value.dtype).kind not in "iufb":
                raise ModelError(f"model: {name} has values of type {value.dtype}; real numbers are needed")
        shapes = [{name: each.shape for name, each in group.items()} for group in (unconstrained, values)]
        return shapes[0], shapes[1]

    def _quantity_shapes(self) -> dict[str, tuple[int, ...]]:
        import jax

        latent = {name: jax.ShapeDtypeStruct(shape, np.float64) for name, shape in self.parameters.items()}
        with _model_errors(self.model), _alone():
            made = jax.eval_shape(lambda latent: self._generate(latent, jax.random.key(0)), latent)
        return {name: made[name].shape for name in self.quantities}

    def _observed_values(self) -> dict[str, np.ndarray]:
        """Observed data by the names of their sites."""
        import jax
        from numpyro import handlers
        from numpyro.infer import init_to_uniform

        def read_observed() -> Any:
            ready = handlers.substitute(self._seed(0), substitute_fn=init_to_uniform())
            trace = handlers.trace(ready).get_trace(**self.arguments)
            return {name: trace[name]["value"] for name in self.observed}

        with _alone():
            return {name: whole_numbers(value) for name, value in jax.jit(read_observed)().items()}

    def _dims(self) -> dict[str, list[str]]:
        """Names of dimensions, from plates and from `event_dims`, as ArviZ has them."""
        drawn = {*self.parameters, *self.deterministic, "chain", "draw"}
        shapes = {
            **self.parameters,
            **self.deterministic,
            **{name: self.sites[name].shape for name in self.observed},
        }
        dims = {}
        for name, shape in shapes.items():
            given = self.sites[name].dims
            taken = {*drawn, *self.observed, *self.data} if name in self.observed else drawn
            if given and len(given) <= len(shape) and len(set(given)) == len(given) and not taken & {*given}:
                dims[name] = given
        return dims


def adopt(model: Any, data: Any) -> tuple[JaxModel, dict[str, Any]] | None:
    """A function with NumPyro's statements, with its arguments; any function, where NumPyro is imported."""
    if not is_function(model) or "numpyro" not in sys.modules:
        return None
    require_jax("a model of NumPyro")
    opened = JaxModel(NumPyroSource(model, read_arguments(model, data)))
    return opened, dict(opened.data)


def from_numpyro(model: Any, data: Any = None, threads: bool = False) -> JaxModel:
    """See `Target.from_numpyro`."""
    if not is_function(model):
        raise check.refusal("model", model, "a function with numpyro.sample in it")
    require_jax("Target.from_numpyro")
    if importlib.util.find_spec("numpyro") is None:
        raise ArgumentError("NumPyro is not installed; pip install 'stanadapt[jax]' brings it")
    return JaxModel(NumPyroSource(model, read_arguments(model, data)), threads)


def _kind(site: Mapping[str, Any]) -> str:
    """The kind of a site; empty where it has no values."""
    if site["type"] == "deterministic":
        return "deterministic"
    if site["type"] != "sample":
        return ""
    if site["is_observed"]:
        return "observed" if np.size(site["value"]) and type(site["fn"]).__name__ != "Unit" else ""
    if not site["fn"].support.is_discrete:
        return "latent"
    return "enumerated" if site["infer"].get("enumerate") == "parallel" else "discrete"


def _site_dims(site: Mapping[str, Any]) -> list[str]:
    frames = sorted(site.get("cond_indep_stack", []), key=lambda frame: frame.dim)
    return [*(frame.name for frame in frames), *(site.get("infer") or {}).get("event_dims", [])]


def _check_plate(model: Any, name: str, size: int, part: int | None) -> None:
    """Refuse a plate of a subsample: the log density of its data is a random estimate."""
    if part is not None and part < size:
        raise ModelError(
            f"model: {name_of(model)} takes a subsample of {part} of {size} in its plate {name}, which no "
            "method here draws from; leave subsample_size out"
        )


def _check_value(model: Any, name: str, value: Any) -> None:
    """Refuse a deterministic value that is several arrays."""
    import jax

    if not jax.tree_util.all_leaves([value]):
        raise ModelError(
            f"model: {name_of(model)} has {name} as a {type(value).__name__}; give "
            "numpyro.deterministic one array"
        )


def _check_name(name: str) -> None:
    """Refuse names that a result cannot have, or that would be taken for entries of an array."""
    if not name or any(character in name for character in "/.:") or not name.isprintable():
        fault = "a slash, a dot, a colon or a control character in its name" if name else "no name"
        raise ModelError(f"model: its variable {name!r} has {fault}, which results cannot have; rename it")


@contextmanager
def _model_errors(model: Any, part: str = "") -> Iterator[None]:
    """Turn an exception while a model, or this part of it, is traced into a message of one line."""
    try:
        with one_line_errors(f"model: {name_of(model)}{part and f': {part}'}", ModelError):
            yield
    except ModelError as error:
        cause = error.__cause__
        if isinstance(cause, AssertionError) and "unique names" in str(cause):
            raise ModelError(
                f"model: {name_of(model)} has two variables of one name: {check.one_line(cause)}"
            ) from cause
        raise


@contextmanager
def _needs_funsor(names: list[str]) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise ModelError(
            f"model: to enumerate {', '.join(names)}, NumPyro needs funsor: pip install funsor"
        ) from error


@contextmanager
def _alone() -> Iterator[None]:
    """NumPyro's handlers for this thread alone, and without notes that NumPyro repeats at every trace."""
    with _HANDLERS, warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        yield
