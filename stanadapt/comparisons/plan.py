"""The plan of a comparison: its arguments, checked once, before anything runs."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .. import check
from ..errors import ArgumentError
from ..model.posterior import Posterior
from ..result.labels import Labels
from ..run import inits as starts
from ..run.request import Request, resolve
from .budget import Budget
from .entrants import Entrant, read_methods
from .quantities import Quantities
from .reference_draws import Reference, read_reference

_NUMBERS = 10_000_000  # a run under a limit keeps so many numbers at most
_FREE_SHARE = 0.5  # share of free memory for all runs together
_STATS = 8  # about so many numbers of a draw beside its values


@dataclass
class ComparisonPlan:
    """What all runs share. Everything in it is checked."""

    posterior: Posterior
    quantities: Quantities
    entrants: Sequence[Entrant]
    budget: Budget
    repeats: int
    seed: int
    arguments: dict[str, Any]  # of `sample`, as given
    progress: bool
    reference: Reference | None
    mmd: bool
    error_rate: float
    most: int  # draws of each chain that memory and the statistics allow

    def request(self, entrant: Entrant, seed: int, **more: Any) -> Request:
        """Make the request of a run. Raises ArgumentError if an argument is not allowed."""
        given = {
            "method": entrant.method,
            "settings": entrant.settings,
            "warmup": entrant.warmup,
            "backend": "auto",  # the posterior is open
            "draws": None,
            "until": None,
            "save_warmup": False,
            "log_likelihood": (),
            "posterior_predictive": (),
            "keep_unconstrained": True,
            "progress": self.progress,
            "seed": seed,
        }
        return resolve(**(given | self.arguments | more))

    def most_rows(self, entrant: Entrant) -> int:
        """Return how many draws of each chain a run under a limit keeps; the method's default or more."""
        return max(self.most, entrant.most_draws)


def make_plan(
    model: Any,
    data: Any,
    *,
    methods: Any,
    budget: Any,
    repeats: Any,
    reference: Any,
    var_names: Any,
    mmd: Any,
    seed: Any,
    backend: Any,
    error_rate: Any,
    progress: Any,
    chains: Any,
    thin: Any,
    workers: Any,
    **arguments: Any,
) -> ComparisonPlan:
    """Make the plan from the arguments of `stanadapt.compare`; that function lists the errors."""
    entrants, spent, most = read_methods(methods), Budget.parse(budget), check.LARGEST_COUNT
    arguments |= {
        "chains": check.integer("chains", chains, 1, most),
        "thin": check.integer("thin", thin, 1, most),
        "workers": check.available_cores() if workers is None else check.integer("workers", workers, 1, most),
    }
    repeats = check.integer("repeats", repeats, 1, most)
    seed = secrets.randbits(32) if seed is None else check.integer("seed", seed, 0, 2**32 - 1)
    mmd, progress = check.boolean("mmd", mmd), check.boolean("progress", progress)
    rate = check.number("error_rate", error_rate, 0.0, 0.5, open_low=True)
    posterior = model if isinstance(model, Posterior) else Posterior(model, data, backend=backend)
    if posterior is model and data is not None:
        raise ArgumentError("data are not allowed with a Posterior: it was opened with its data")
    if not posterior.dim:
        raise ArgumentError("model: it has no parameters, so there is nothing to compare")
    quantities = Quantities(posterior, var_names)
    known = None if reference is None else read_reference(reference, quantities)
    plan = ComparisonPlan(
        posterior=posterior,
        quantities=quantities,
        entrants=entrants,
        budget=spent,
        repeats=repeats,
        seed=seed,
        arguments=arguments,
        progress=progress,
        reference=known,
        mmd=mmd,
        error_rate=rate,
        most=_most(posterior, len(entrants) * repeats, arguments["chains"]),
    )
    # An argument that no method takes is an error here, and not a failure of every method.
    request = plan.request(entrants[0], seed, draws=spent.draws)
    Labels.from_user(request.coords, request.dims, posterior)
    starts.plan(request.inits, request.init_radius, posterior, request.chains, request.seed)
    return plan


def _most(posterior: Posterior, runs: int, chains: int) -> int:
    """Return how many draws of each chain a run may keep, so that the draws of all runs fit in memory."""
    numbers = min(_NUMBERS, _FREE_SHARE * check.free_memory() / 8 / runs)
    return int(numbers / (posterior.n_values + posterior.dim + _STATS) / chains)
