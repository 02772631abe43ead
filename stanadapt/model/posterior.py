"""A Stan program with data, opened: names, shapes, transforms, the log density and its gradient."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from .. import check
from ..errors import ArgumentError, EvaluationError
from .data import holds_tuples, read
from .description import Description
from .includes import check_include_paths
from .opening import Check, Opened, open_model
from .printing import no_prints
from .program import in_order_of_values, observed_names
from .source import include_paths_error


class Posterior:
    """A model opened with its data, ready for any number of calls.

    Parameters
    ----------
    model
        A path to a .stan file; Stan program text; a path to a library that BridgeStan compiled; an open
        `bridgestan.StanModel`; a `cmdstanpy.CmdStanModel` (its Stan file is used, and its executable for
        the method nuts); a `stanadapt.Target`, such as `stanadapt.abc` makes; a model of PyMC, or of NumPyro,
        whose `data` are its arguments by name; or an object for a backend from outside. A string that ends in
        .stan, .so, .dylib or .dll, or names a file, is a path.
    data
        A dict of numbers, arrays, lists, pandas or xarray objects; a DataFrame of pandas or polars; a Dataset
        or DataArray of xarray; a path to a JSON file; JSON text; or None. Of a DataFrame the columns that the
        program declares are taken by name, their length is the size that they declare, and a categorical is
        the numbers of its levels, from 1 on. Labels of tables and of xarray go on into results.
        NaN and infinity are numbers, in JSON as bare words or as texts. A Python tuple is an array, unless
        the program declares a Stan tuple, or a ready library takes no array; dicts with the keys 1, 2, ...
        are Stan tuples. Values are checked against the program's declarations.
    backend
        "stanli" runs Stan programs without a C++ compiler; "bridgestan" compiles them; "auto" takes stanli
        and falls back to BridgeStan for what stanli refuses, unless its reason is known to be the data. Or
        the name of a backend that another package brings.
    seed
        For random numbers in the `transformed data` block only, 0 to 2**32 - 1.
    include_paths
        Folders, one or a list, for the files that the program includes. They are looked at after the folder
        of the including file and that of the program.
    pedantic
        Whether to warn of what the pedantic mode of Stan's compiler finds in the program: parameters without
        a prior, priors that are no good idea, divisions of integers and the like. It needs a program named
        stanc: of CmdStan, of BridgeStan, of PyStan, on the path, or named by the environment variable STANC.

    Attributes
    ----------
    dim : int
        d, the number of unconstrained parameters.
    name : str
        What the model is called: the name of its file, or of the object or function. Empty for a text.
    names : list of str
        Flat names of the constrained parameters, `theta.1.2` for theta[1, 2].
    unconstrained_names : list of str
        Flat names of the d unconstrained parameters.
    library : str
        What evaluates the model, with its version.

    Raises
    ------
    ModelError
        The program cannot be found, compiled or opened.
    DataError
        The data do not fit the program.
    """

    def __init__(
        self,
        model: Any,
        data: Any = None,
        *,
        backend: str = "auto",
        seed: int = 0,
        include_paths: Any = (),
        pedantic: bool = False,
    ) -> None:
        pedantic = check.boolean("pedantic", pedantic)
        seed = check.integer("seed", seed, 0, 2**32 - 1)
        self._hold(open_model(model, data, backend, seed, None, include_paths, pedantic))

    @classmethod
    def of(cls, opened: Opened) -> Posterior:
        """The posterior of a model that is open."""
        posterior = cls.__new__(cls)
        posterior._hold(opened)
        return posterior

    def __repr__(self) -> str:
        return f"Posterior(dim={self.dim}, {len(self.variables)} variables, {self.library})"

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in Opened._fields}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._hold(Opened(**state))

    def log_density(self, x: Any) -> float:
        """Log density at the unconstrained point `x` (d,), up to a constant, Jacobian included.

        Of a noisy target it is an estimate, another one at each call; random numbers start from the seed 0.

        Raises
        ------
        EvaluationError
            The model rejects the point; the message is the model's own.
        """
        try:
            return self.model.log_density(self._point(x))
        except RuntimeError as error:
            raise EvaluationError(f"the log density cannot be evaluated: {check.one_line(error)}") from error

    def log_density_gradient(self, x: Any) -> tuple[float, np.ndarray]:
        """Log density at `x` (d,) and its gradient (d,). Raises EvaluationError as `log_density` does."""
        try:
            return self.model.log_density_gradient(self._point(x))
        except RuntimeError as error:
            raise EvaluationError(f"the gradient cannot be evaluated: {check.one_line(error)}") from error

    def constrain(
        self, x: Any, *, transformed: bool = False, generated: bool = False, seed: int = 0
    ) -> dict[str, np.ndarray]:
        """Constrained values of unconstrained points `x`, shape (d,) or (..., d).

        Parameters
        ----------
        x
            Unconstrained points.
        transformed, generated
            Whether transformed parameters and generated quantities come too.
        seed
            For the random numbers of generated quantities, which are others for each point.

        Returns
        -------
        dict
            Name to array of shape `(..., *declared shape)`. Generated quantities that fail are NaN.
        """
        points = self._numbers(x)
        if points.ndim == 0 or points.shape[-1] != self.dim:
            raise check.refusal("x", points.shape, f"an array whose last axis has length dim={self.dim}")
        seed = check.integer("seed", seed, 0, 2**32 - 1)
        wanted = dict(self.parameters)
        if check.boolean("transformed", transformed):
            wanted |= self.transformed_parameters
        if check.boolean("generated", generated):
            wanted |= self.generated_quantities
        values = np.empty((points.size // max(self.dim, 1) if self.dim else 1, self.n_values))
        self.model.writer(seed)(points.reshape(len(values), self.dim), values, np.arange(len(values)))
        values = values.reshape(*points.shape[:-1], self.n_values)
        return {name: variable.take(values) for name, variable in wanted.items()}

    def unconstrain(self, values: Mapping[str, Any]) -> np.ndarray:
        """The unconstrained point (d,) of constrained parameter values.

        Raises
        ------
        ArgumentError
            A parameter is missing, unknown, of the wrong shape, or outside its support.
        """
        given = read(values, "values")
        self.check_parameters("values", given)
        missing = [name for name in self.parameters if name not in given]
        if missing:
            raise ArgumentError(f"values lack parameters of the model: {', '.join(missing)}")
        try:
            return self.model.unconstrain(given)
        except RuntimeError as error:
            raise ArgumentError(f"values are outside the support: {check.one_line(error)}") from error

    def check_parameters(self, what: str, given: Mapping[str, Any]) -> None:
        """Refuse names that are no parameters, and wrong shapes."""
        for name, value in given.items():
            if name not in self.parameters and np.size(value) == 0:
                continue  # no backend names parameters of size zero
            if name not in self.parameters:
                raise ArgumentError(
                    f"{what}[{name!r}] is no parameter of the model; its parameters are "
                    f"{', '.join(self.parameters) or 'none'}{check.nearest(name, self.parameters)}"
                )
            if np.asarray(value).dtype.kind not in "iufbc":
                raise check.refusal(f"{what}[{name!r}]", value, "a number or an array of numbers")
            shape, wanted = np.shape(value), self.parameters[name].shape
            if shape != wanted:
                raise ArgumentError(f"{what}[{name!r}] has shape {shape}; the model declares {wanted}")

    def failure(self, x: np.ndarray, with_gradient: bool) -> str:
        """Why the log density, or its gradient where it is used, is not finite at `x` (d,).

        The model is evaluated again for its own message. A noisy model would not give the same message again.
        """
        if self.model.noisy:
            return "the estimate of the density is zero"
        try:
            with no_prints():  # it was evaluated before
                if not with_gradient:
                    value, score = self.model.log_density(x), np.zeros(0)
                else:
                    value, score = self.model.log_density_gradient(x)
        except RuntimeError as error:
            return check.one_line(error)
        if not np.isfinite(value):
            why = self.model.explain(x) if hasattr(self.model, "explain") else ""
            return f"the log density is {value}{why and f': {why}'}"
        bad = [
            name
            for name, entry in zip(self.unconstrained_names, score, strict=False)
            if not np.isfinite(entry)
        ]
        return (
            f"the gradient is not finite in {', '.join(bad[:5])}"
            if bad
            else "no failure when evaluated again"
        )

    def with_quantities(
        self, log_likelihood: Iterable[str], posterior_predictive: Iterable[str]
    ) -> Posterior:
        """The posterior whose draws come with a log likelihood, or new data, of these observed variables.

        A Stan program has its quantities whether they are asked for or not; other models make some on
        request, as quantities with names such as `log_likelihood:y`, which is taken for y here. Raises
        ArgumentError.
        """
        asked = {"log_likelihood": log_likelihood, "posterior_predictive": posterior_predictive}
        select = getattr(self.model, "with_quantities", None)
        if select is None:
            return self
        names = [[str(name).removeprefix(f"{group}:") for name in given] for group, given in asked.items()]
        model = select(*names)
        if model is self.model:
            return self
        other = copy.copy(self)
        other.model = model
        other._describe()
        return other

    def digest(self) -> str:
        """A hash of the program, for the record: 16 hexadecimal digits."""
        return self.description.hash

    @property
    def data_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the data by name; Stan tuples have none."""
        return {name: np.shape(value) for name, value in self.data.items() if not holds_tuples(value)}

    def split_data(self) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Data that the program models (left of a `~`), and the others, as arrays."""
        own = getattr(self.model, "modelled", None)
        modelled = observed_names(self.code) if own is None else own
        arrays = {name: np.asarray(value) for name, value in self.data.items() if not holds_tuples(value)}
        arrays = {name: value for name, value in arrays.items() if value.dtype.kind in "iuf" and value.size}
        observed = {name: value for name, value in arrays.items() if name in modelled}
        return observed, {name: value for name, value in arrays.items() if name not in modelled}

    def _numbers(self, x: Any) -> np.ndarray:
        try:
            points = np.asarray(x)
        except Exception:  # ragged, or an object of another library with its own error
            points = np.empty(0, dtype=object)
        if points.dtype.kind not in "iuf":
            raise check.refusal("x", x, f"an array of numbers whose last axis has length dim={self.dim}")
        return points.astype(float)

    def _point(self, x: Any) -> np.ndarray:
        point = np.ascontiguousarray(self._numbers(x))
        if point.shape != (self.dim,):
            raise check.refusal("x", point.shape, f"a point of shape ({self.dim},)")
        return point

    def _hold(self, opened: Opened) -> None:
        self.model, self.code, self.data, self.executable, self.name, self.seed = opened[:6]
        self.labels = opened.labels
        self._describe()

    def _describe(self) -> None:
        model = self.model
        self.names = model.names(transformed=False, generated=False)
        description = Description(
            library=model.library,
            noisy=model.noisy,
            unconstrained_names=in_order_of_values(self.code, model.unconstrained_names()),
            flat_names=model.names(transformed=True, generated=True),
            n_parameters=len(self.names),
            n_transformed=len(model.names(transformed=True, generated=False)) - len(self.names),
            hash=hashlib.sha256(self.code.encode() or model.identity()).hexdigest()[:16],
        )
        self.description, self.dim, self.library = description, model.dim, model.library
        self.unconstrained_names, self.n_values = description.unconstrained_names, description.n_values
        self.variables, self.parameters = description.variables, description.parameters
        self.transformed_parameters = description.transformed_parameters
        self.generated_quantities = description.generated_quantities


def as_posterior(
    model: Any,
    data: Any,
    backend: str = "auto",
    before_compiling: Check | None = None,
    include_paths: Any = (),
) -> Posterior:
    """A user's Posterior as it is, or another model opened; see `opening.open_model`.

    Raises
    ------
    ArgumentError, ModelError, DataError
    """
    if not isinstance(model, Posterior):
        return Posterior.of(
            open_model(model, data, backend, before_compiling=before_compiling, include_paths=include_paths)
        )
    if check_include_paths(include_paths):
        raise include_paths_error("a Posterior")
    if data is not None:
        raise ArgumentError("data are not allowed with a Posterior: it was opened with its data")
    return model
