"""The constant that a model's log density lacks: with it, the integral of the density is the evidence."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any, NamedTuple, cast

import numpy as np
from scipy.special import gammaln

from .. import check
from ..errors import ModelError, StanAdaptError
from .data import to_json
from .full_densities import keep_constants
from .includes import ProgramText
from .posterior import Posterior
from .variables import variable_of

_CLOSE = 1e-9  # relative difference that rounding leaves in sums of many terms
_CLOSE_SCORE = 1e-6
_SAMPLED = 4  # points at which the gradients are compared as well
_KINDS = {
    "python": "the function of the target, taken as the log of likelihood times prior with all constants",
    "jax": "the log density of the target, taken as that of likelihood times prior with all constants",
    "numpyro": "NumPyro's log density, which has all constants",
    "pymc": "PyMC's log density, which has all constants",
}
_OTHER = "the log density of the backend, which must have all constants: its author knows"
_ADVICE = (
    "Write the program's statements with target += and functions that end in _lpdf or _lpmf, which keep "
    "them, or open it with backend='bridgestan', which can be asked for them"
)


class LogConstant(NamedTuple):
    """What is to be added to a log density."""

    value: float
    density: str  # in words: whose density it is, and how its constants were found


def log_constant(posterior: Posterior, points: np.ndarray) -> LogConstant:
    """What the log density of a posterior lacks, found at some unconstrained `points` (n, d) of its support.

    Raises
    ------
    ModelError
        It cannot be found, or is not the same at all points; the message says what to do.
    """
    model = posterior.model
    if model.backend not in ("stanli", "bridgestan"):
        is_numpyro = model.library.lower().startswith("numpyro")
        return LogConstant(0.0, _KINDS.get("numpyro" if is_numpyro else model.backend, _OTHER))
    points = np.ascontiguousarray(points, dtype=float)
    spheres = _log_spheres(posterior, points)
    native = cast(Any, model).model
    with_dropped = np.array([model.log_density(x) for x in points])
    try:
        whole = np.array([native.log_density(x, propto=False) for x in points])
        how = "Stan's log density, asked for all constants"
    except RuntimeError:  # stanli evaluates densities without these constants only
        whole = _densities_of_rewritten(posterior, points)
        how = "Stan's log density, with the constants of the program as target += ..._lpdf has them"
    return LogConstant(_difference(whole, with_dropped) - spheres, how)


def _difference(whole: np.ndarray, with_dropped: np.ndarray) -> float:
    """The difference of the two log densities (n,), which must be one number."""
    apart = whole - with_dropped
    middle = float(np.median(apart))
    if not np.all(np.abs(apart - middle) <= _CLOSE * (1.0 + np.abs(whole) + np.abs(with_dropped))):
        raise ModelError(
            "model: the constants that its statements with ~ drop are not the same everywhere (they differ "
            f"by {np.ptp(apart):.3g}): which of them run depends on parameters, or their number does, so the "
            "draws are of another density than that with all constants. Write these statements as "
            "target += ..._lpdf(...), and draw again"
        )
    return middle


def _densities_of_rewritten(posterior: Posterior, points: np.ndarray) -> np.ndarray:
    """Log densities (n,) of the program that keeps its constants."""
    from .backends.stan import stanli

    if not posterior.code:
        raise ModelError(
            "model: the constants that its log density lacks cannot be found: its text is not known: pass "
            "the program rather than an opened model"
        )
    try:
        code = keep_constants(posterior.code)
        full = stanli.open_program(ProgramText(code), to_json(posterior.data), posterior.seed)
        values = np.array([full.log_density(x) for x in points])
        pairs = [
            (posterior.model.log_density_gradient(x)[1], full.log_density_gradient(x)[1])
            for x in points[:_SAMPLED]
        ]
    except (StanAdaptError, RuntimeError) as error:
        raise _no_constants_error(check.one_line(error)) from error
    for dropped, kept in pairs:
        if not np.allclose(dropped, kept, rtol=_CLOSE_SCORE, atol=_CLOSE_SCORE * (1.0 + np.abs(kept).max())):
            raise _no_constants_error("the program written with target += has another gradient")
    return values


def _no_constants_error(reason: str) -> ModelError:
    return ModelError(
        "model: the constants that its log density lacks, and without which an evidence would be wrong, "
        f"cannot be found: {reason}. {_ADVICE}"
    )


def unit_vectors(posterior: Posterior, points: np.ndarray) -> dict[str, tuple[int, int]]:
    """Parameters that are unit vectors at all `points` (n, d): name -> number of vectors, length K of each.

    They are told by their values: the program's text may not be known.
    """
    coordinates = Counter(variable_of(name) for name in posterior.unconstrained_names)
    values = posterior.constrain(points)
    found = {}
    for name, variable in posterior.parameters.items():
        # Other types with rows of length 1, such as Cholesky factors of correlations, have fewer coordinates.
        if variable.shape and coordinates[name] == np.prod(variable.shape):
            array = values[name].reshape(len(points), -1, variable.shape[-1])
            if np.allclose((array**2).sum(axis=-1), 1.0, rtol=0.0, atol=1e-9):
                found[name] = array.shape[1:]
    return found


def _log_spheres(posterior: Posterior, points: np.ndarray) -> float:
    """What Stan's density has too much for parameters that are unit vectors.

    Stan has the point y / |y| on the sphere for a y in R^K with density exp(-|y|^2 / 2). The integral on the
    sphere is multiplied by that of r^(K - 1) exp(-r^2 / 2) over the length r, 2^(K / 2 - 1) Gamma(K / 2).
    """
    return sum(
        count * ((k / 2 - 1) * math.log(2.0) + float(gammaln(k / 2)))
        for count, k in unit_vectors(posterior, points).values()
    )
