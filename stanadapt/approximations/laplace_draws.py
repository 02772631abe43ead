"""Laplace's approximation: a normal law around the mode, in the coordinates in which it is nearest."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xarray

from .. import check
from ..diagnostics.approximation import PARETO_K
from ..errors import ArgumentError
from ..result.coordinates import coordinates_text
from ..run.progress import StepProgress
from ..run.warmup import variable_groups
from ..transport.composition import points_in_z
from ..transport.learning import describe, learn_transport
from ..transport.map_table import no_transport
from .approximate_result import (
    Problem,
    build_approximation,
    check_count,
    computation,
    covariance_variables,
    pose,
)
from .density import ClimbedDensity
from .ends import MAXIMUM, End, settle, sort_ends
from .normal_law import NormalLaw, WeightedDraws, weigh
from .optimum import MEMORY, climb_all
from .pathfinder_draws import find_paths
from .quasi_newton import climb_from

if TYPE_CHECKING:
    from ..result.container import InferenceData

_ROUNDS = 3  # of learning coordinates
_TRAINING = 400  # draws and scores that coordinates are learnt from
_JUDGING = 1000  # draws that judge coordinates
_CLEARLY = 0.05  # less in Pareto k, which makes other coordinates worth it
_ITERATIONS = 2000  # of a climb at most
_PATHS, _ELBO_DRAWS = 4, 25  # where there is no mode to begin with
_ROUND, _FINAL = 2**31 + 4, 2**31 + 5  # of random numbers


class JudgedLaw(NamedTuple):
    """A law in some coordinates, with draws that judge it."""

    density: ClimbedDensity
    law: NormalLaw
    judged: WeightedDraws


def laplace(
    model: Any,
    data: Any = None,
    *,
    draws: int = 1000,
    learn: bool = True,
    starts: int = 4,
    seed: int | None = None,
    inits: Any = None,
    init_radius: float = 2.0,
    backend: str = "auto",
    coords: Mapping[str, Sequence[Any]] | None = None,
    dims: Mapping[str, Sequence[str]] | None = None,
    log_likelihood: str | Sequence[str] | Mapping[str, str] = (),
    posterior_predictive: str | Sequence[str] | Mapping[str, str] = (),
    progress: bool = True,
    include_paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
) -> InferenceData:
    """Approximate a posterior by a normal law around its mode (Laplace), and weigh draws of it.

    The mode is that of the density of the unconstrained parameters, the Jacobian included, and the law's
    precision is the negative Hessian there. With `learn` the same is tried in other coordinates, which are
    learnt from draws and their scores as in a warm-up of `fisher_hmc`: a long tail becomes a short one, and
    effects with a scale become those of a program that is not centred. They are taken if Pareto k is clearly
    smaller in them.

    Parameters
    ----------
    model, data, backend
        As `sample` takes them. The model must have gradients.
    draws
        Number of draws, at least 100.
    learn
        Whether coordinates may be learnt. Without, the law is that of Stan's `laplace` with jacobian=true.
    starts
        Number of climbs to the mode, each from a start of its own.
    seed
        0 to 2**32 - 1.
    inits, init_radius
        Where climbs start, as for `sample`; a result of `optimize` is one of them.
    coords, dims, log_likelihood, posterior_predictive
        How the result is labelled, as for `sample`.
    progress
        Show a progress bar: a step for each climb, and for what comes after them.
    include_paths
        Folders for the files that the program includes, as for `sample`.

    Returns
    -------
    arviz.InferenceData or xarray.DataTree
        The group posterior holds independent draws of the law, as one chain; they are not weighted.
        sample_stats holds `lp`; `lp_approximation`, the log density of the law on the unconstrained scale;
        and `log_weight`, the Pareto-smoothed importance weights, whose exponentials add up to 1. The group
        adaptation holds `law_mean`, the mode in the coordinates of the law, `preconditioner`, the covariance
        in these, and `transport`, the map to them, where they were learnt; in words they are in the attribute
        `coordinates`. The attributes are `pareto_k`, `effective_draws` (Kish's number), `pareto_k_program`
        (in the program's own coordinates; NaN where there is no mode in them), `gradients`, `densities`, and
        `approximation`, which is "laplace". `inits=` and `warm=` of `sample` take the result.

    Raises
    ------
    ArgumentError
        An argument is not allowed, the model has no parameters, no gradient, or a noisy density, or its
        density has no maximum to approximate it at.
    ModelError, DataError
        The model cannot be opened, or the data do not fit.
    InitializationError
        A start with a finite log density was not found.

    Notes
    -----
    The Hessian is made of central differences of 2 d gradients. Where the density has no mode in the
    program's coordinates, as that of a centred hierarchy, or Pareto k stays over 0.7, coordinates are learnt
    from draws of Pathfinder.
    Weights: Vehtari, Simpson, Gelman, Yao and Gabry (2024), Pareto smoothed importance sampling, Journal of
    Machine Learning Research 25(72). A Pareto k over 0.7 says that weights cannot correct the approximation:
    a warning says so, and `diagnose`.

    Examples
    --------
    >>> idata = stanadapt.laplace("eight_schools.stan", "eight_schools.json", seed=1)
    >>> weights = np.exp(idata["sample_stats"]["log_weight"])
    >>> float((weights * idata["posterior"]["mu"]).sum())
    """
    draws = check_count("draws", draws, 100)
    starts = check_count("starts", starts)
    learn = check.boolean("learn", learn)
    problem = pose(
        "laplace",
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
    with computation(problem, "laplace", starts + (3 if learn else 2)) as bar:
        return _approximate(problem, {"draws": draws, "learn": learn, "starts": starts}, bar)


def _approximate(problem: Problem, settings: dict[str, Any], bar: StepProgress) -> InferenceData:
    draws, learn, starts = settings.values()
    costs = _Costs()
    density = costs.register(ClimbedDensity(problem.posterior))
    density.look = bar.refresh
    ways, _ = climb_all(density, problem.starts(starts), _ITERATIONS, bar)
    bar.begin("their ends")
    ends = sort_ends(density, ways)
    first = _fit(density, ends.places[0], problem.rng(_ROUND))
    fit = first
    if learn and problem.posterior.dim > 1:
        bar.begin("coordinates")
        fit = _learn(problem, density, first, costs)
    if fit is None:
        raise ArgumentError(_no_mode(problem, ends.places[0], learn))
    bar.begin("draws")
    final = weigh(fit.density, fit.law, draws, problem.rng(_FINAL))
    stats = {"lp": final.logp, "lp_approximation": final.logq, "log_weight": final.log_weights}
    notes = {
        "pareto_k": final.pareto_k,
        "pareto_k_program": np.nan if first is None else first.judged.pareto_k,
        "effective_draws": final.effective,
        "gradients": costs.gradients,
        "densities": costs.densities,
    }
    return build_approximation(problem, "laplace", settings, final.x, stats, _record(problem, fit), notes)


class _Costs:
    """The evaluations of a density in all coordinates in which it is evaluated."""

    def __init__(self) -> None:
        self._densities: list[ClimbedDensity] = []

    def register(self, density: ClimbedDensity) -> ClimbedDensity:
        self._densities.append(density)
        return density

    @property
    def gradients(self) -> int:
        return sum(each.gradients for each in self._densities)

    @property
    def densities(self) -> int:
        return sum(each.densities for each in self._densities)


def _fit(density: ClimbedDensity, end: End, rng: np.random.Generator) -> JudgedLaw | None:
    """The law around the end of a climb, in the coordinates of the density; None if that is no maximum."""
    if end.kind != MAXIMUM:
        return None
    curvature = density.curvature(end.x) if end.curvature is None else end.curvature
    law = None if curvature is None else NormalLaw.around(end.x, curvature)
    if law is None:
        return None
    judged = weigh(density, law, _JUDGING, rng)
    return JudgedLaw(density, law, judged) if np.isfinite(judged.logp).any() else None


def _learn(
    problem: Problem, density: ClimbedDensity, first: JudgedLaw | None, costs: _Costs
) -> JudgedLaw | None:
    """The law in the best of the coordinates that are learnt, the program's own among them.

    They are learnt from draws of the law in the program's coordinates. Where there is none, or it is too far
    from the density even in learnt coordinates, its mode tells little: a funnel is learnt from its neck then.
    So coordinates are learnt from draws of Pathfinder too.
    """
    best = first
    if first is not None:
        best = _improve(problem, density, first, first.judged.x[:_TRAINING], costs)
    if best is None or best.judged.pareto_k > PARETO_K:
        found = find_paths(problem, density, _PATHS, _JUDGING, _ELBO_DRAWS, _ITERATIONS)
        if found is not None:
            points = found.draws.x[found.of_path == found.best]
            best = _improve(problem, density, best, points[:_TRAINING], costs)
    return best


def _improve(
    problem: Problem, density: ClimbedDensity, best: JudgedLaw | None, points: np.ndarray, costs: _Costs
) -> JudgedLaw | None:
    """The law in coordinates that are learnt from points (n, d), in rounds, if it is better than the best.

    Each round learns from draws of the law of the round before.
    """
    groups = variable_groups(problem.posterior.unconstrained_names)
    table = no_transport()
    for k in range(1, _ROUNDS + 1):
        known = [(x, *density.gradient(x)) for x in points]
        known = [each for each in known if each[1] > -np.inf]
        if len(known) < _TRAINING // 4:
            break
        points, heights, scores = (np.array(column) for column in zip(*known, strict=True))
        for _ in range(2):  # what is found at first is judged, and laws that depend on it are added
            table = learn_transport(table, points, scores, groups, len(points) // 2)
        fit = _fit_moved(costs.register(density.in_map(table)), points, heights, problem.rng(_ROUND, k))
        if fit is None or (best is not None and not fit.judged.pareto_k < best.judged.pareto_k - _CLEARLY):
            break
        best, points = fit, fit.judged.x[:_TRAINING]
    return best


def _fit_moved(
    moved: ClimbedDensity, points: np.ndarray, heights: np.ndarray, rng: np.random.Generator
) -> JudgedLaw | None:
    """The law in learnt coordinates, at the end of a climb from the highest of some points (n, d) in x."""
    if not len(moved.transport):
        return None
    highest = points[[int(np.argmax(heights))]]
    start = points_in_z(moved.transport, highest)[0]
    if moved.gradient(start)[0] == -np.inf:
        return None
    return _fit(moved, settle(moved, climb_from(moved, start, memory=MEMORY, most=_ITERATIONS)), rng)


def _record(problem: Problem, fit: JudgedLaw) -> xarray.Dataset:
    """The law, and its coordinates, as a dataset."""
    names, table = problem.posterior.unconstrained_names, fit.density.transport
    variables, coords = covariance_variables(fit.law.cov, names)
    variables["law_mean"] = ("unconstrained", fit.law.mean)
    attrs = {}
    if len(table):
        learnt = describe(table, problem.posterior.dim)
        variables["transport"] = (("chain", "transport_row", "transport_column"), learnt["transport"][None])
        if text := coordinates_text([learnt], names):
            attrs["coordinates"] = text
    return xarray.Dataset(variables, coords=coords, attrs=attrs)


def _no_mode(problem: Problem, end: End, learn: bool) -> str:
    names = problem.posterior.unconstrained_names
    where = ", ".join(names[i] for i in end.coordinates) or names[0]
    tried = ", nor in coordinates that could be learnt" if learn else "; learn=True tries others"
    return (
        f"model: its density has no maximum in the unconstrained parameters{tried}: climbs end at "
        f"no proper maximum ({end.kind}, in {where}). Use pathfinder or sample"
    )
