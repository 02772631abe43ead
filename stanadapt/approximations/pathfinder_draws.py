"""Pathfinder with several paths: draws of the laws that they find, resampled by importance weights.

Algorithm 2 of Zhang, Carpenter, Gelman and Vehtari (2022); path.py has the others, and the table of symbols.

Departures from the paper:

1. A draw is weighed against the mixture of all paths' laws, and not against the law of its own path. With the
   latter a mode in which three paths of four have ended would count three times, as the weights of each path
   add up to the mass that it has found. The mixture is the balance heuristic of Veach and Guibas (1995),
   Optimally combining sampling techniques for Monte Carlo rendering.
2. The draws of a single path are resampled too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xarray
from scipy.special import logsumexp

from ..errors import ArgumentError
from ..run.progress import StepProgress
from .approximate_result import (
    Problem,
    build_approximation,
    check_count,
    computation,
    covariance_variables,
    pose,
)
from .density import ClimbedDensity
from .normal_law import WeightedDraws, weighted_draws
from .path import Path, find_law
from .quasi_newton import Way, climb_from

if TYPE_CHECKING:
    from ..result.container import InferenceData

MEMORY = 5  # pairs of L-BFGS: CmdStan's history_size
ITERATIONS = 1000  # of a climb at most, as CmdStan has it
MOST_DENSE = 1000  # largest dimension whose covariance a result holds as a matrix
_PATH, _RESAMPLED = 1, 2**31 + 3  # of random numbers: (path, _PATH), and (_RESAMPLED,)


class Paths(NamedTuple):
    """What several paths have found."""

    ways: list[Way]
    paths: list[Path]
    draws: WeightedDraws  # of all paths with a law, one path after another
    of_path: np.ndarray  # (n,) the path of each draw
    gradients: np.ndarray  # (paths,) how many each has taken
    densities: np.ndarray  # (paths,) and evaluations of the density alone

    @property
    def best(self) -> int:
        """The path with the largest ELBO."""
        return int(np.argmax([path.elbo for path in self.paths]))


def pathfinder(
    model: Any,
    data: Any = None,
    *,
    draws: int = 1000,
    paths: int = 4,
    draws_per_path: int = 1000,
    elbo_draws: int = 25,
    seed: int | None = None,
    inits: Any = None,
    init_radius: float = 2.0,
    max_iterations: int = ITERATIONS,
    backend: str = "auto",
    coords: Mapping[str, Sequence[Any]] | None = None,
    dims: Mapping[str, Sequence[str]] | None = None,
    log_likelihood: str | Sequence[str] | Mapping[str, str] = (),
    posterior_predictive: str | Sequence[str] | Mapping[str, str] = (),
    progress: bool = True,
    include_paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
) -> InferenceData:
    """Approximate a posterior by Pathfinder: draws of normal laws along climbs, at the cost of a few climbs.

    Each path climbs the log density by L-BFGS. At each iterate the climb's history gives a normal law; that
    with the largest ELBO is kept. Draws of all paths are resampled by Pareto-smoothed importance weights,
    which also gives modes their mass.

    Parameters
    ----------
    model, data, backend
        As `sample` takes them. The model must have gradients.
    draws
        Draws of the result, at least 100.
    paths
        Number of climbs, each from a start of its own.
    draws_per_path
        Draws of each path, at least 100, from which those of the result are resampled.
    elbo_draws
        Draws that estimate the ELBO at each iterate.
    seed
        0 to 2**32 - 1.
    inits, init_radius
        Where climbs start, as for `sample`; a list has an entry for each path.
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
        The group posterior holds the draws, as one chain; they are independent up to repetitions.
        sample_stats holds `lp`, `path`, and `lp_approximation`, the log density of the mixture of all paths'
        laws on the unconstrained scale. The group adaptation holds of each path path_elbo, path_iteration
        (the iterate with the largest ELBO), path_iterations, path_lp (at the end of the climb),
        path_gradients, path_densities and path_weight (its share of the importance weights), and
        `preconditioner`, the covariance of the path with the largest ELBO. The attributes are `pareto_k`,
        `effective_draws` (Kish's number, before resampling), `gradients`, `densities`, and `approximation`,
        which is "pathfinder". `inits=` and `warm=` of `sample` take the result.

    Raises
    ------
    ArgumentError
        An argument is not allowed, the model has no parameters, no gradient, or a noisy density, or no path
        has found a law.
    ModelError, DataError
        The model cannot be opened, or the data do not fit.
    InitializationError
        A start with a finite log density was not found.

    Notes
    -----
    Zhang, Carpenter, Gelman and Vehtari (2022), Pathfinder: Parallel quasi-Newton variational inference,
    Journal of Machine Learning Research 23(306), algorithms 1 to 4, with CmdStan's defaults. Two things are
    other: draws are weighed against the mixture of all paths' laws, without which a mode that several paths
    have found would count several times; and the draws of a single path are resampled too. A Pareto k over
    0.7 says that weights cannot correct the approximation: a warning says so, and `diagnose`.

    Examples
    --------
    >>> start = stanadapt.pathfinder("eight_schools.stan", "eight_schools.json", seed=1)
    >>> idata = stanadapt.sample("eight_schools.stan", "eight_schools.json", inits=start, seed=1)
    """
    draws = check_count("draws", draws, 100)
    paths = check_count("paths", paths)
    draws_per_path = check_count("draws_per_path", draws_per_path, 100)
    elbo_draws = check_count("elbo_draws", elbo_draws)
    max_iterations = check_count("max_iterations", max_iterations)
    problem = pose(
        "pathfinder",
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
    with computation(problem, "pathfinder", paths + 1) as bar:
        settings = {
            "draws": draws,
            "paths": paths,
            "draws_per_path": draws_per_path,
            "elbo_draws": elbo_draws,
            "max_iterations": max_iterations,
        }
        return _approximate(problem, settings, bar)


def _approximate(problem: Problem, settings: dict[str, int], bar: StepProgress) -> InferenceData:
    draws, *plan = settings.values()
    density = ClimbedDensity(problem.posterior)
    density.look = bar.refresh
    found = find_paths(problem, density, *plan, begin=bar.begin)
    if found is None:
        raise ArgumentError(
            "model: no path has found a normal law with a finite ELBO: the climbs end at once, or the log "
            "density is not finite around them. See the model with Posterior.log_density, or give other inits"
        )
    weighted = found.draws
    chosen = resample(weighted.log_weights, draws, problem.rng(_RESAMPLED))
    stats = {
        "lp": weighted.logp[chosen],
        "lp_approximation": weighted.logq[chosen],
        "path": found.of_path[chosen],
    }
    notes = {
        "pareto_k": weighted.pareto_k,
        "effective_draws": weighted.effective,
        "gradients": density.gradients,
        "densities": density.densities,
    }
    own = _record(problem, found)
    return build_approximation(problem, "pathfinder", settings, weighted.x[chosen], stats, own, notes)


def find_paths(
    problem: Problem,
    density: ClimbedDensity,
    paths: int,
    draws_per_path: int,
    elbo_draws: int,
    max_iterations: int,
    *,
    begin: Callable[[str], None] = lambda step: None,
) -> Paths | None:
    """Run several paths, and weigh the draws of all of them; None if no path has found a law.

    `begin` is told of each path, and of the weights.
    """
    ways, found, costs = [], [], []
    points, of_path = [], []
    for i, x in enumerate(problem.starts(paths)):
        begin(f"path {i + 1}")
        rng, before = problem.rng(i, _PATH), (density.gradients, density.densities)
        way = climb_from(density, x, memory=MEMORY, most=max_iterations)
        path = find_law(density, way, MEMORY, elbo_draws, rng)
        densities = density.densities - before[1]
        if path.law is not None:
            points.append(path.law.draw(draws_per_path, rng)[0])
            of_path.append(np.full(draws_per_path, i))
            densities += draws_per_path
        ways.append(way)
        found.append(path)
        costs.append((density.gradients - before[0], densities))
    if not points:
        return None
    begin("weights")
    x = np.concatenate(points)
    laws = [path.law for path in found if path.law is not None]
    logq = logsumexp([law.log_density(x) for law in laws], axis=0) - np.log(len(laws))
    weighted = weighted_draws(density, x, logq, np.zeros(len(x)), x)
    gradients, counts = np.array(costs).T
    return Paths(ways, found, weighted, np.concatenate(of_path), gradients, counts)


def resample(log_weights: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """The places (n,) of draws that are taken with these probabilities, with replacement."""
    return rng.choice(log_weights.size, size=n, p=np.exp(log_weights))


def _record(problem: Problem, found: Paths) -> xarray.Dataset:
    """The paths, and the covariance of the best one, as a dataset."""
    paths, names = found.paths, problem.posterior.unconstrained_names
    weights = np.bincount(found.of_path, np.exp(found.draws.log_weights), minlength=len(paths))
    variables: dict[str, Any] = {
        "path_elbo": ("path", np.array([path.elbo for path in paths])),
        "path_iteration": ("path", np.array([path.iteration for path in paths])),
        "path_iterations": ("path", np.array([len(way.points) - 1 for way in found.ways])),
        "path_lp": ("path", np.array([way.logps[-1] for way in found.ways])),
        "path_gradients": ("path", found.gradients),
        "path_densities": ("path", found.densities),
        "path_weight": ("path", weights),
    }
    coords: dict[str, Any] = {"chain": [0], "unconstrained": names}
    law = paths[found.best].law
    assert law is not None  # there are draws
    if problem.posterior.dim <= MOST_DENSE:
        matrix, its_coords = covariance_variables(law.cov, names)
        variables, coords = variables | matrix, coords | its_coords
    else:
        variables["preconditioner_diagonal"] = (("chain", "unconstrained"), law.variances[None])
    return xarray.Dataset(variables, coords=coords)
