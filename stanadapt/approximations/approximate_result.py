"""What all approximations share: their arguments, checked, and the result that is made of their points."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xarray

from .. import check
from ..diagnostics.approximation import approximation_findings
from ..errors import ArgumentError, FindingsWarning, warn
from ..model.posterior import Posterior, as_posterior
from ..numerics.blas import one_thread
from ..result.build import data_groups, finish, record_attributes, try_build
from ..result.container import OWN_GROUP, Groups
from ..result.labels import Labels
from ..result.schema import Schema
from ..run.draws import Stack
from ..run.inits import describe as describe_starts
from ..run.inits import find, plan
from ..run.interrupts import raised_interrupts
from ..run.preparation.named_quantities import check_quantities, describe_quantities, name_quantities
from ..run.progress import StepProgress
from ..run.request import Request, resolve
from ..runs import memory_in_words

if TYPE_CHECKING:
    from ..result.container import InferenceData

FUNCTIONS = {"optimum": "optimize", "laplace": "laplace", "pathfinder": "pathfinder"}  # that make them
_WRITER_KEY = 2**31 + 2  # of the random numbers of generated quantities; starts have smaller keys


class Problem(NamedTuple):
    """A posterior with the arguments that all approximations have."""

    posterior: Posterior
    request: Request
    schema: Schema
    began: float

    @property
    def seed(self) -> int:
        return self.request.seed

    def rng(self, *key: int) -> np.random.Generator:
        """Random numbers that depend on the seed and on `key`."""
        return np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=key))

    def starts(self, n: int) -> np.ndarray:
        """Points (n, d) with a finite density, as `inits` and `init_radius` of `sample` have it.

        Raises
        ------
        ArgumentError
            The given points do not suit the model.
        InitializationError
            No start was found.
        """
        request, posterior = self.request, self.posterior
        planned = plan(request.inits, request.init_radius, posterior, n, self.seed)
        return np.array(
            [
                find(init, posterior, posterior.model, i, self.rng(i), use_gradient=True, ascend=False).x
                for i, init in enumerate(planned)
            ]
        )


def pose(
    function: str,
    model: Any,
    data: Any,
    *,
    seed: Any,
    inits: Any,
    init_radius: Any,
    backend: Any,
    coords: Any,
    dims: Any,
    log_likelihood: Any,
    posterior_predictive: Any,
    progress: Any,
    include_paths: Any,
) -> Problem:
    """Check the arguments that all approximations have, and open the model.

    Raises
    ------
    ArgumentError
        An argument is not allowed, or the model has no parameters, no gradient, or a density that is only
        estimated.
    ModelError, DataError
        The model cannot be opened, or the data do not fit.
    """
    began = time.perf_counter()
    request = resolve(
        method="fisher_mala",
        chains=1,
        warmup=None,
        draws=None,
        thin=1,
        seed=seed,
        inits=inits,
        init_radius=init_radius,
        workers=1,
        backend=backend,
        settings=None,
        progress=progress,
        save_warmup=False,
        coords=coords,
        dims=dims,
        log_likelihood=log_likelihood,
        posterior_predictive=posterior_predictive,
        keep_unconstrained=True,
    )
    posterior = as_posterior(model, data, request.backend, include_paths=include_paths)
    posterior = posterior.with_quantities(request.log_likelihood, request.posterior_predictive)
    if not posterior.dim:
        raise ArgumentError(f"model: it has no parameters, so there is nothing for {function} to find")
    if posterior.model.noisy:
        raise ArgumentError(
            f"model: its density is only estimated, and {function} climbs it by its gradient: use sample"
        )
    if not posterior.model.has_gradient:
        raise ArgumentError(
            f"model: {function} needs a gradient and this target has none: pass gradient=... to "
            "Target.from_python"
        )
    labels = Labels.from_user(request.coords, request.dims, posterior)
    request = name_quantities(request._replace(coords=labels.coords, dims=labels.dims), posterior)
    check_quantities(request, posterior)
    try_build(posterior, request)
    return Problem(posterior, request, Schema.of(request, posterior.description), began)


@contextlib.contextmanager
def computation(problem: Problem, function: str, steps: int) -> Iterator[StepProgress]:
    """The surroundings of all that is computed: signals raise, and sums do not depend on cores.

    Yields what shows the progress of so many steps.
    """
    with (
        raised_interrupts(),
        memory_in_words(),
        one_thread(),
        StepProgress(function, steps, problem.request.progress) as bar,
    ):
        yield bar


def build_approximation(
    problem: Problem,
    kind: str,
    settings: Mapping[str, Any],
    x: np.ndarray,
    stats: Mapping[str, np.ndarray],
    own: xarray.Dataset,
    notes: Mapping[str, Any],
    others: Groups | None = None,
) -> InferenceData:
    """The result of an approximation; what `diagnose` has to say of it is warned of.

    Parameters
    ----------
    problem
        What was asked.
    kind
        "optimum", "laplace" or "pathfinder": the attribute `approximation`.
    settings
        The arguments of the function by name, beside those that all functions have.
    x
        Unconstrained points (n, d), which are the draws.
    stats
        For sample_stats, (n,) each.
    own
        The group `adaptation`: what was learnt of the posterior, and of the way there.
    notes
        Attributes beside those that every result has.
    others
        Other groups.
    """
    posterior, schema = problem.posterior, problem.schema
    groups = schema.draws(
        Stack(
            constrain(problem, x)[None],
            x[None],
            {name: np.asarray(column)[None] for name, column in stats.items()},
            len(x),
        ),
        [0],
    )
    groups[OWN_GROUP] = own
    seconds = time.perf_counter() - problem.began
    attrs = record_attributes(posterior.description, posterior.library, problem.seed, seconds)
    attrs |= {
        "method": FUNCTIONS[kind],
        "approximation": kind,
        "settings": json.dumps(dict(settings)),
        **notes,
    }
    attrs |= describe_starts(problem.request.inits, problem.request.init_radius)
    attrs |= describe_quantities(problem.request)
    if posterior.name:
        attrs["model_name"] = posterior.name
    groups |= data_groups(posterior, schema) | (others or {})
    idata = finish(groups, attrs, posterior.code)
    if findings := approximation_findings(groups, attrs):
        warn(FindingsWarning(findings))
    return idata


def constrain(problem: Problem, x: np.ndarray) -> np.ndarray:
    """The values (n, c) of all quantities at unconstrained points (n, d)."""
    seeds = np.random.SeedSequence(problem.seed, spawn_key=(_WRITER_KEY,))
    x = np.ascontiguousarray(x)
    values = np.empty((len(x), problem.posterior.n_values))
    write = problem.posterior.model.writer(int(seeds.generate_state(1, np.uint64)[0]))
    write(x, values, np.arange(len(x)))
    return values


def covariance_variables(cov: np.ndarray, names: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A covariance (d, d) as the group `adaptation` has it, and its coordinates."""
    coords = {"chain": [0], "unconstrained": names, "unconstrained_2": names}
    return {"preconditioner": (("chain", "unconstrained", "unconstrained_2"), cov[None])}, coords


def check_count(name: str, value: Any, low: int = 1) -> int:
    """A number of starts, paths, draws or iterations."""
    return check.integer(name, value, low, check.LARGEST_COUNT)
