"""The log density of a model without the Jacobian of its constraining transforms.

Stan's log density of unconstrained points has the log of the Jacobian determinant of the transforms to the
declared types. A maximum of the posterior density of the constrained parameters, or of the likelihood, is one
without that term; Stan's optimizer leaves it out by default. Libraries of BridgeStan can be asked for either.
stanli cannot. There the term is the whole log density of a program with the same parameters and an empty
model block:

    parameters { ... }                      log density: that of the model, and the term
    model { y ~ normal(mu, sigma); }

    parameters { ... }                      log density: the term
    model {}

So the difference of both has no such term, whatever the declared types are: a simplex, a correlation matrix,
or bounds that depend on other parameters. Stan itself computes the term, and no table of transforms is needed
here. A program that adds to the term itself, by `jacobian +=`, is refused: stanli does not cover that.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np

from .. import check
from ..errors import ModelError, StanAdaptError
from .backends.contract import Model
from .data import to_json
from .includes import ProgramText
from .posterior import Posterior
from .program import has_includes
from .statements import block_texts, words_of

_KEPT = ("functions", "data", "transformed data", "parameters")
_ADVICE = (
    "With jacobian=True the maximum is that of the density of the unconstrained parameters; or open the "
    "program with backend='bridgestan', which can be asked for the density without the Jacobian"
)
_TRIED = 4  # points at which transforms are compared
_SEED = 20220801  # of these points


class WithoutJacobian(NamedTuple):
    """A log density without the Jacobian of the transforms; calls raise RuntimeError as a model's do."""

    model: Model
    native: Any = None  # the StanModel that can be asked for it
    term: Model | None = None  # whose log density is the term

    def log_density(self, x: np.ndarray) -> float:
        """Log density at the unconstrained point `x` (d,)."""
        if self.native is not None:
            return float(self.native.log_density(x, jacobian=False))
        value = self.model.log_density(x)
        return value if self.term is None else value - self.term.log_density(x)

    def log_density_gradient(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """Log density at `x` (d,) and its gradient (d,) with respect to `x`."""
        if self.native is not None:
            value, score = self.native.log_density_gradient(x, jacobian=False)
            return float(value), np.asarray(score)
        value, score = self.model.log_density_gradient(x)
        if self.term is None:
            return value, score
        its_value, its_score = self.term.log_density_gradient(x)
        return value - its_value, score - its_score


def without_jacobian(posterior: Posterior) -> WithoutJacobian:
    """The log density of a posterior without the Jacobian of its transforms.

    Raises
    ------
    ModelError
        It cannot be had for this model; the message says what to do.
    """
    model = posterior.model
    if model.backend == "bridgestan":
        return WithoutJacobian(model, native=cast(Any, model).model)
    if model.backend == "stanli":
        return WithoutJacobian(model, term=_term(posterior))
    if _has_transforms(posterior):
        raise _not_had(f"{posterior.library} gives its log density with the Jacobian alone")
    return WithoutJacobian(model)


def _term(posterior: Posterior) -> Model:
    """The model whose log density is the term, opened with the same data."""
    from .backends.stan import stanli

    if not posterior.code:
        raise _not_had("its text is not known: pass the program rather than an opened model")
    if has_includes(posterior.code):
        raise _not_had("it includes a file that cannot be read here")
    try:
        code = ProgramText(term_program(posterior.code))
        term = stanli.open_program(code, to_json(posterior.data), posterior.seed)
        same = _is_same_transform(posterior, term)
    except (StanAdaptError, RuntimeError) as error:
        raise _not_had(check.one_line(error)) from error
    if not same:
        raise _not_had("its parameters alone have other transforms")
    return term


def term_program(code: str) -> str:
    """The program whose log density is the log of the Jacobian determinant alone.

    Raises
    ------
    ModelError
        The program cannot be read, or adds to the term itself.
    """
    blocks = block_texts(code)
    words = words_of(blocks.get("transformed parameters", ""))
    if any(word == "jacobian" or word.endswith("_jacobian") for word in words):
        raise ModelError("its transformed parameters add to the Jacobian themselves")
    return "\n".join([*(f"{name} {blocks[name]}" for name in _KEPT if name in blocks), "model {}"])


def _is_same_transform(posterior: Posterior, term: Model) -> bool:
    """Whether another model constrains some points as the posterior does."""
    names = posterior.model.names(transformed=False, generated=False)
    if term.dim != posterior.dim or term.names(transformed=False, generated=False) != names:
        return False
    points = np.random.default_rng(_SEED).uniform(-2.0, 2.0, (_TRIED, posterior.dim))
    ours, theirs = (_constrain(model, points, len(names)) for model in (posterior.model, term))
    return bool(np.allclose(ours, theirs, rtol=1e-12, atol=0.0, equal_nan=True))


def _constrain(model: Model, points: np.ndarray, n: int) -> np.ndarray:
    values = np.empty((len(points), len(model.names(transformed=True, generated=True))))
    model.writer(0)(points, values, np.arange(len(points)))
    return values[:, :n]


def _has_transforms(posterior: Posterior) -> bool:
    """Whether constrained parameters are other numbers than the unconstrained ones."""
    n = len(posterior.names)
    if n != posterior.dim:
        return True
    points = np.random.default_rng(_SEED).uniform(-2.0, 2.0, (_TRIED, posterior.dim))
    return not np.array_equal(_constrain(posterior.model, points, n), points)


def _not_had(reason: str) -> ModelError:
    return ModelError(f"model: its log density without the Jacobian cannot be had: {reason}. {_ADVICE}")
