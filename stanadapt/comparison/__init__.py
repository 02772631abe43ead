"""Methods on the same posterior under the same budget, side by side.

    stanadapt.compare(model, data, methods=["fisher_mala", "nuts"], budget="10 s")

The package is not named as its function, since a module that is imported takes its name in the package above.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from scipy import stats

from .. import check
from ..diagnostics.agreement import ERROR_RATE
from ..errors import ArgumentError
from ..model.posterior import Posterior
from ..result.labels import Labels
from .budget import Budget
from .entrants import read_methods
from .frames import discrepancies, make_estimates, make_runs, make_table
from .judging import Disagreement, Judgement, judge
from .quantities import Quantities
from .reference import read_reference
from .result import Comparison
from .running import FAILED, OK, Attempt, Plan, run_all

__all__ = ["Comparison", "Disagreement", "compare"]

METHODS = ("fisher_mala", "fisher_hmc", "rlmh", "nuts")


def compare(
    model: Any,
    data: Any = None,
    *,
    methods: Sequence[str] | Mapping[str, Mapping[str, Any] | None] = METHODS,
    budget: str | int = "10 s",
    repeats: int = 1,
    reference: Any = None,
    var_names: Sequence[str] | None = None,
    mmd: bool = False,
    chains: int = 4,
    thin: int = 1,
    seed: int | None = None,
    inits: Any = None,
    init_radius: float = 2.0,
    workers: int | None = None,
    backend: str = "auto",
    coords: Mapping[str, Sequence[Any]] | None = None,
    dims: Mapping[str, Sequence[str]] | None = None,
    error_rate: float = ERROR_RATE,
    progress: bool = True,
) -> Comparison:
    """Run several methods on the same posterior, in turn, under the same budget, and hold them side by side.

    Parameters
    ----------
    model, data
        As `sample` takes them.
    methods
        Names of methods, at their defaults. Or a dict by label, of dicts with any of method (by default the
        label), settings and warmup: {"nuts": {}, "dense": {"method": "nuts", "settings": {"metric":
        "dense"}}}. A method that fails, or is not for this posterior, is a row with its reason.
    budget
        What every run may spend, warm-up included: a time, such as "10 s" or "2 min", of start, warm-up and
        draws, without compiling and opening the model; or "200000 gradients" of all chains together, where
        methods without gradients count evaluations of the density. Warm-up is the method's own; a budget that
        ends in it is a reason. Or a number: the draws of each chain after the method's warm-up, with the cost
        of both in the rates.
    repeats
        Runs of each method, with seeds that follow from `seed`.
    reference
        What is known of the posterior: an InferenceData; a dict of means and sds by variable; a DataFrame
        with a column for each scalar, named as Stan has it (theta[1]); PosteriorDB's list of chains; or the
        path of such a file. Without it, methods are held against the others that have converged.
    var_names
        Variables that are compared; by default the parameters. Values that never move, or repeat another one,
        are left out.
    mmd
        Also estimate the maximum mean discrepancy from the reference's draws, or where it has none, from
        those of the other methods that agree.
    chains, thin, inits, init_radius, workers, backend, coords, dims
        As `sample` takes them.
    seed
        The results of a method depend on it, the method's label and the repeat alone; under a limit of time
        their length does not.
    error_rate
        Probability that any method is named as disagreeing where all are right.
    progress
        Show what is run, and its progress.

    Returns
    -------
    Comparison
        Its `table` has a row for each method: smallest and median effective sample sizes, also per second and
        per 1000 evaluations, the largest R-hat, acceptance, squared jump distance, findings, and the largest
        |z| of means and quantiles. `disagreements` names methods that differ beyond chance. `print` shows
        both, `plot` draws them, and `write` makes a page or a file of them. Ctrl-C returns what there is.

    Raises
    ------
    ArgumentError
        An argument is not allowed; before anything runs.
    ModelError, DataError
        The model cannot be opened, or the data do not fit.
    KeyboardInterrupt
        Ctrl-C came before there were any draws.

    Notes
    -----
    Rates are effective sample sizes over all that a run has cost. A method under a limit may end sooner, at
    as many draws as memory and the statistics bear (a note says so): its rates are those of what it has done.
    The chains of nuts cannot be stopped in between; a trial, which does not count, tells how many draws fit,
    and its seconds are those that Stan reports, without the start of its processes. Evaluations in the search
    for a start are not counted.

    Standard errors are estimates themselves, so z is taken for Student's t, with degrees of freedom that
    follow from effective sizes and kurtosis; all comparisons share `error_rate` (Bonferroni). Without a
    reference the largest group of methods that agree is looked for first, so that one which is wrong does not
    make the others look wrong.

    Examples
    --------
    >>> comparison = stanadapt.compare("eight_schools.stan", "eight_schools.json", budget="10 s", seed=1)
    >>> print(comparison)
    """
    entrants = read_methods(methods)
    spent = Budget.parse(budget)
    arguments = {
        "chains": check.integer("chains", chains, 1, check.LARGEST_COUNT),
        "thin": check.integer("thin", thin, 1, check.LARGEST_COUNT),
        "inits": inits,
        "init_radius": init_radius,
        "workers": check.available_cores()
        if workers is None
        else check.integer("workers", workers, 1, check.LARGEST_COUNT),
        "coords": coords,
        "dims": dims,
    }
    repeats = check.integer("repeats", repeats, 1, check.LARGEST_COUNT)
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
    plan = Plan(posterior, quantities, entrants, spent, repeats, seed, arguments, progress)
    request = plan.request(entrants[0], seed)  # refuses what no method takes
    Labels.checked(request.coords, request.dims, posterior)
    attempts, signal = run_all(plan)
    first = next((each.idata for each in attempts if each.idata is not None), None)
    names = [] if first is None else quantities.labels(first)
    judgement = judge(attempts, names, None if known is None else known.estimates, rate)
    found = discrepancies(attempts, judgement, None if known is None else known.sample) if mmd else {}
    runs = make_runs(attempts, found)
    return Comparison(
        table=make_table(runs, judgement, names),
        runs=runs,
        estimates=make_estimates(judgement, names),
        results={(each.label, each.repeat): each.idata for each in attempts if each.idata is not None},
        failures={(each.label, each.repeat): each.error for each in attempts if each.error is not None},
        disagreements=judgement.disagreements,
        words=judgement.words,
        notes=_notes(attempts, repeats),
        facts=_facts(plan, judgement, reference is not None),
        limit=_limit(judgement),
        signal=signal,
    )


def _notes(attempts: Sequence[Attempt], repeats: int) -> list[str]:
    """What there is to say of single runs."""
    notes = []
    for each in attempts:
        name = f"{each.label}, repeat {each.repeat}" if repeats > 1 else each.label
        if each.status == FAILED:
            notes.append(f"{name} failed: {each.reason}")
        elif each.reason:
            notes.append(f"{name}: {each.reason}")
        if each.status == OK and each.method != each.label and each.label == "auto":
            notes.append(f"{name} is {each.method}")
        notes += [f"{name}: {text}" for text in each.notes]
    return list(dict.fromkeys(notes))


def _facts(plan: Plan, judgement: Judgement, is_known: bool) -> dict[str, Any]:
    """What was asked for, as texts and numbers."""
    from .. import __version__

    return {
        "version": __version__,
        "budget": str(plan.budget),
        "repeats": plan.repeats,
        "seed": plan.seed,
        "chains": plan.arguments["chains"],
        "workers": plan.arguments["workers"],
        "thin": plan.arguments["thin"],
        "dimension": plan.posterior.dim,
        "quantities": len(plan.quantities),
        "variables": list(plan.quantities.names),
        "library": plan.posterior.library,
        "held_against": "the reference" if is_known else "the other methods",
        "methods": {
            each.label: {"method": each.method, "settings": each.settings or {}, "warmup": each.warmup}
            for each in plan.entrants
        },
        "agree": list(judgement.agreement.group),
        "level": judgement.agreement.level,
    }


def _limit(judgement: Judgement) -> float:
    """The |z| beyond which a difference is not chance, for errors that are well known."""
    return float(stats.norm.isf(judgement.agreement.level / 2.0))
