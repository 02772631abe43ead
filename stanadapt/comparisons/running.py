"""The runs of a comparison: every method in turn, with its budget and its failures."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .. import api, check
from ..diagnostics.convergence import FEWEST
from ..errors import FindingsWarning, StanAdaptError
from ..model.posterior import Posterior
from ..result.container import attributes, container, datasets
from ..run.interrupts import delayed_interrupts, give_up, raised_interrupts
from ..run.preparation.prepare import prepare
from ..run.progress import tell
from .entrants import Entrant
from .measures import Figures, evaluations_of_warmup, in_words, measure
from .plan import ComparisonPlan
from .whole import SpentError, draws_within

if TYPE_CHECKING:
    from ..result.container import InferenceData

OK, FAILED, INTERRUPTED, NOT_RUN = "ok", "failed", "interrupted", "not run"
_SMALL = "parameters { vector[2] x; } model { x ~ std_normal(); }"
_HINT = (
    "raise the budget, or give the method a shorter warm-up, as in methods={{{label!r}: {{'warmup': 500}}}}"
)


@dataclass
class Attempt:
    """A run of a method, with or without success."""

    label: str
    repeat: int
    method: str  # the method; for method="auto" the one that it chose
    status: str = NOT_RUN
    reason: str = ""  # why the run has no figures, or fewer draws than asked for
    idata: InferenceData | None = None
    figures: Figures | None = None
    error: BaseException | None = None
    notes: list[str] = field(default_factory=list)  # warnings other than findings


def run_all(plan: ComparisonPlan) -> tuple[list[Attempt], int]:
    """Run every method in turn, repeat by repeat. Also return the signal that ended this early, or 0.

    Raises
    ------
    KeyboardInterrupt, SystemExit
        A signal came before the first draw.
    """
    attempts = [
        Attempt(entrant.label, repeat, entrant.method)
        for repeat in range(plan.repeats)
        for entrant in plan.entrants
    ]
    ready: set[str] = set()
    stopped: BaseException | None = None
    with delayed_interrupts() as caught:
        for place, attempt in enumerate(attempts):
            if caught.signal or stopped:
                attempt.reason = "the comparison was interrupted"
                continue
            entrant = plan.entrants[place % len(plan.entrants)]
            if plan.progress:
                of_all = f"{place + 1} of {len(attempts)}"
                tell(f"stanadapt: {attempt.label}, run {of_all}, budget {plan.budget}")
            stopped = _attempt(attempt, entrant, plan, ready)
    signal = caught.signal
    if (signal or stopped) and all(attempt.figures is None for attempt in attempts):
        if stopped is not None:
            raise stopped
        give_up(signal)
    return attempts, signal


def _attempt(
    attempt: Attempt, entrant: Entrant, plan: ComparisonPlan, ready: set[str]
) -> BaseException | None:
    """Run a method once, and put the outcome into `attempt`.

    Return the exception that ends the whole comparison, or None. `ready` holds the labels of methods that
    need no more preparation.
    """
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            if entrant.label not in ready:
                _prime(entrant, plan)
                ready.add(entrant.label)
            idata = _sample(entrant, attempt.repeat, plan)
        attempt.notes = _notes(said)
        attempt.method = str(attributes(idata)["method"])
        _keep(attempt, idata, entrant, plan)
    except (KeyboardInterrupt, SystemExit) as error:
        attempt.status, attempt.reason, attempt.error = INTERRUPTED, "interrupted", error
        return error
    except Exception as error:
        attempt.status, attempt.reason, attempt.error = FAILED, in_words(error), error
        if isinstance(error, SpentError):
            attempt.reason += f": {_HINT.format(label=entrant.label)}"
    return None


def _notes(said: Sequence[warnings.WarningMessage]) -> list[str]:
    """Return the warnings as texts, without findings, which are in the table."""
    ours = [each for each in said if issubclass(each.category, UserWarning)]
    return [str(each.message) for each in ours if each.category is not FindingsWarning]


def _prime(entrant: Entrant, plan: ComparisonPlan) -> None:
    """Compile and load everything that a first run needs, so that no method's time includes it.

    This prepares the posterior's own kernels; a short run on a small posterior compiles the rest.
    """
    with raised_interrupts():
        request = plan.request(entrant, 0, draws=20, thin=1)
        prepare(request, plan.posterior)
        small = Posterior(_SMALL, backend="stanli")
        for warmup in (1_000, entrant.warmup):
            try:
                api.sample(
                    small,
                    method=entrant.method,
                    settings=entrant.settings,
                    chains=1,
                    warmup=warmup,
                    draws=20,
                    seed=0,
                    progress=False,
                )
                return
            except StanAdaptError:  # a warm-up too short for the method, or a method not for this posterior
                continue


def _sample(entrant: Entrant, repeat: int, plan: ComparisonPlan) -> InferenceData:
    """Run a method."""
    seed = entrant.seed(plan.seed, repeat)
    thin = plan.arguments["thin"]
    more: dict[str, Any] = {}
    if plan.budget.draws is not None:
        more["draws"] = plan.budget.draws
    else:
        more["draws"] = min(plan.most_rows(entrant) * thin, check.LARGEST_COUNT)
        if entrant.is_engine:
            request = plan.request(entrant, seed)
            with raised_interrupts():
                more["draws"] = draws_within(plan.budget, request, plan.posterior, more["draws"])
        else:
            more["until"] = plan.budget.until
    return api.sample(
        plan.posterior,
        method=entrant.method,
        settings=entrant.settings,
        warmup=entrant.warmup,
        seed=seed,
        keep_unconstrained=True,
        save_warmup=entrant.is_engine,  # whose gradients are known then
        progress=plan.progress,
        **(plan.arguments | more),
    )


def _keep(attempt: Attempt, idata: InferenceData, entrant: Entrant, plan: ComparisonPlan) -> None:
    """Keep the result and its figures if there are enough draws."""
    groups, attrs = datasets(idata), attributes(idata)
    posterior = groups["posterior"]
    chains, draws = posterior.sizes["chain"], posterior.sizes["draw"]
    note = str(attrs.get("interrupted_note", ""))
    signal = attrs.get("ended_by", "")
    if not signal and (chains < plan.arguments["chains"] or draws < FEWEST):
        raise SpentError(f"the {plan.budget} were over in its warm-up")
    if draws < FEWEST:
        attempt.status, attempt.reason = INTERRUPTED, note
        return
    before = evaluations_of_warmup(groups["adaptation"])
    if plan.budget.gradients is not None and before >= plan.budget.gradients:
        raise SpentError(f"its warm-up takes {before} of the {plan.budget}")
    attempt.figures = measure(idata, plan.quantities, plan.arguments["workers"])
    shown = {
        name: group
        for name, group in groups.items()
        if name != "unconstrained_posterior" and not name.startswith("warmup_")
    }
    attempt.idata = container(shown, attrs)
    attempt.status = INTERRUPTED if signal else OK
    is_cut = attrs.get("until_limit") == "draws"
    if entrant.is_engine and plan.budget.draws is None:
        is_cut = draws == plan.most_rows(entrant)
    if signal:
        attempt.reason = note
    elif is_cut:
        attempt.reason = f"it ended at {draws} draws of each chain, before the {plan.budget} were over"
