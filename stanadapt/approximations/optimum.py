"""The maximum of the posterior density or of the likelihood, from several starts."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray

from .. import check
from ..errors import ModelError
from ..run.progress import StepProgress
from .approximate_result import Problem, build_approximation, check_count, computation, constrain, pose
from .density import ClimbedDensity
from .ends import MAXIMUM, End, Ends, sort_ends
from .quasi_newton import Way, climb_from

if TYPE_CHECKING:
    from ..result.container import InferenceData

MEMORY = 10  # pairs of L-BFGS
OPTIMUM = "optimum"  # the dimension of the different ends


def optimize(
    model: Any,
    data: Any = None,
    *,
    jacobian: bool = False,
    starts: int = 10,
    seed: int | None = None,
    inits: Any = None,
    init_radius: float = 2.0,
    max_iterations: int = 2000,
    backend: str = "auto",
    coords: Mapping[str, Sequence[Any]] | None = None,
    dims: Mapping[str, Sequence[str]] | None = None,
    log_likelihood: str | Sequence[str] | Mapping[str, str] = (),
    posterior_predictive: str | Sequence[str] | Mapping[str, str] = (),
    progress: bool = True,
    include_paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
) -> InferenceData:
    """Find the maximum of a program's density, from several starts.

    With `jacobian=False` this is the maximum of the density of the parameters as they are declared: the
    posterior mode, or, of a program without priors, the maximum likelihood estimate. With `jacobian=True` it
    is the maximum of the density of the unconstrained parameters, around which `laplace` approximates. Both
    words mean what they mean for Stan's optimizer.

    Parameters
    ----------
    model, data, backend
        As `sample` takes them. The model must have gradients.
    jacobian
        Whether the density has the Jacobian of the transforms to the declared types.
    starts
        Number of climbs, each from a start of its own.
    seed
        0 to 2**32 - 1; of the starts, and of random numbers in generated quantities.
    inits, init_radius
        Where climbs start, as for `sample`; a list has an entry for each start.
    max_iterations
        Of each climb.
    coords, dims, log_likelihood, posterior_predictive
        How the result is labelled, as for `sample`.
    progress
        Show a progress bar: a step for each climb, and for what comes after them.
    include_paths
        Folders for the files that the program includes, as for `sample`.

    Returns
    -------
    arviz.InferenceData or xarray.DataTree
        The group posterior holds one draw, which is the best optimum: the highest proper maximum, or the
        highest end if there is no proper maximum. The group optima holds the parameters at all different
        ends, the best first. The group adaptation holds of each of them optimum_lp, optimum_count (how many
        climbs have ended there), and optimum_kind, which is "maximum", "edge" (climbs ran towards the edge of
        the support, or to infinity), "flat" (the density is constant along a line), or "unfinished"; of each
        climb climb_lp, climb_end (the place in optima), climb_iterations and climb_gradients; and, at a
        proper maximum of up to 500 parameters,
        `preconditioner`, the inverse of the negative Hessian of the log density in the unconstrained
        parameters. `inits=` and `warm=` of `sample` take the result. The attribute `approximation` is
        "optimum".

    Raises
    ------
    ArgumentError
        An argument is not allowed, or the model has no parameters, no gradient, or a noisy density.
    ModelError, DataError
        The model cannot be opened, the data do not fit, or the density without the Jacobian cannot be had.
    InitializationError
        A start with a finite log density was not found.

    Notes
    -----
    Climbs are scipy's L-BFGS-B on the unconstrained parameters. In up to 500 dimensions Newton's method moves
    their ends on and tells whether they are maxima: the negative Hessian, from differences of gradients, must
    be positive definite, and the steps must become short. Ends within a tenth of a standard deviation are the
    same. A warning says where starts disagree, or where a climb has found no maximum; `diagnose` says it
    again.

    stanli's densities always have the Jacobian. There the term is taken away: it is the log density of the
    same program with an empty model block, which Stan computes for all of its types.

    Examples
    --------
    >>> idata = stanadapt.optimize("bernoulli.stan", {"N": 5, "y": [0, 1, 0, 0, 1]}, seed=1)
    >>> float(idata["posterior"]["theta"].squeeze())
    """
    jacobian = check.boolean("jacobian", jacobian)
    starts = check_count("starts", starts)
    max_iterations = check_count("max_iterations", max_iterations)
    problem = pose(
        "optimize",
        model,
        data,
        seed=seed,
        inits=inits,
        init_radius=init_radius,
        backend=backend,
        coords=coords,
        dims=dims,
        log_likelihood=log_likelihood,
        posterior_predictive=posterior_predictive,
        progress=progress,
        include_paths=include_paths,
    )
    if OPTIMUM in problem.posterior.variables:
        raise ModelError(
            f"model: its variable {OPTIMUM} has the name of a dimension of the result; rename it"
        )
    with computation(problem, "optimize", starts + 1) as bar:
        settings = {"jacobian": jacobian, "starts": starts, "max_iterations": max_iterations}
        return _optimize(problem, settings, bar)


def _optimize(problem: Problem, settings: dict[str, Any], bar: StepProgress) -> InferenceData:
    jacobian, starts, max_iterations = settings.values()
    density = ClimbedDensity(problem.posterior, jacobian=jacobian)
    density.look = bar.refresh
    ways, costs = climb_all(density, problem.starts(starts), max_iterations, bar)
    bar.begin("their ends")
    ends = sort_ends(density, ways)
    best = ends.places[0]
    notes = {
        "jacobian": int(jacobian),
        "density": "the posterior's, of unconstrained parameters" if jacobian else "without Jacobian",
        "gradients": density.gradients,
        "lp": best.logp,
        "is_maximum": int(best.kind == MAXIMUM),
    }
    return build_approximation(
        problem,
        "optimum",
        settings,
        best.x[None],
        {"lp": np.array([best.logp])},
        _record(problem, best, ways, costs, ends),
        notes,
        {"optima": _optima(problem, ends)},
    )


def climb_all(
    density: ClimbedDensity, points: np.ndarray, most: int, bar: StepProgress
) -> tuple[list[Way], list[int]]:
    """Climbs from points (n, d), and the gradients that each has taken."""
    ways, costs = [], []
    for i, x in enumerate(points, 1):
        bar.begin(f"climb {i}")
        before = density.gradients
        ways.append(climb_from(density, x, memory=MEMORY, most=most))
        costs.append(density.gradients - before)
    return ways, costs


def _record(problem: Problem, best: End, ways: list[Way], costs: list[int], ends: Ends) -> xarray.Dataset:
    """The climbs, and the curvature at the best end, as a dataset."""
    names = problem.posterior.unconstrained_names
    variables: dict[str, Any] = {
        "climb_start": (("climb", "unconstrained"), np.array([way.points[0] for way in ways])),
        "climb_lp": ("climb", np.array([way.logps[-1] for way in ways])),
        "climb_end": ("climb", ends.of_climb),
        "climb_iterations": ("climb", np.array([len(way.points) - 1 for way in ways])),
        "climb_gradients": ("climb", np.array(costs)),
    }
    places = ends.places
    texts = {
        "optimum_kind": [end.kind for end in places],
        "optimum_where": [", ".join(names[i] for i in end.coordinates) for end in places],
    }
    variables |= {name: (OPTIMUM, np.array(column, dtype=object)) for name, column in texts.items()}
    variables |= {
        "optimum_lp": (OPTIMUM, np.array([end.logp for end in places])),
        "optimum_count": (OPTIMUM, np.bincount(ends.of_climb, minlength=len(places))),
        "optimum_x": ((OPTIMUM, "unconstrained"), np.array([end.x for end in places])),
    }
    coords: dict[str, Any] = {"chain": [0], "unconstrained": names}
    if best.kind == MAXIMUM and best.curvature is not None:
        cov = np.linalg.inv(best.curvature)
        variables["preconditioner"] = (("chain", "unconstrained", "unconstrained_2"), cov[None])
        coords["unconstrained_2"] = names
    return xarray.Dataset(variables, coords=coords)


def _optima(problem: Problem, ends: Ends) -> xarray.Dataset:
    """The values of the parameters at the different ends."""
    values = constrain(problem, np.array([end.x for end in ends.places]))
    arrays = {name: variable.take(values) for name, variable in problem.posterior.parameters.items()}
    return problem.schema.labels.dataset(arrays, {OPTIMUM: np.arange(len(ends.places))})
