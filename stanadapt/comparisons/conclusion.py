"""From the runs of a comparison to its result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scipy import stats

from ..version import __version__
from .comparison_result import Comparison
from .entrants import Entrant
from .frames import discrepancies, make_estimates, make_runs, make_table
from .judging import Judgement, judge
from .plan import ComparisonPlan
from .running import FAILED, OK, Attempt


def conclude(plan: ComparisonPlan, attempts: Sequence[Attempt], signal: int) -> Comparison:
    """Make the comparison from its runs. `signal` is the one that ended it early, or 0."""
    first = next((each.idata for each in attempts if each.idata is not None), None)
    names = [] if first is None else plan.quantities.labels(first)
    estimates, sample = plan.reference or (None, None)
    judgement = judge(attempts, names, estimates, plan.error_rate)
    runs = make_runs(attempts, discrepancies(attempts, judgement, sample) if plan.mmd else None)
    return Comparison(
        table=make_table(runs, judgement, names),
        runs=runs,
        estimates=make_estimates(judgement, names),
        results={(each.label, each.repeat): each.idata for each in attempts if each.idata is not None},
        failures={(each.label, each.repeat): each.error for each in attempts if each.error is not None},
        disagreements=judgement.disagreements,
        words=judgement.words,
        notes=_notes(attempts, plan.repeats),
        facts=_facts(plan, judgement),
        limit=_limit(judgement),
        signal=signal,
    )


def _notes(attempts: Sequence[Attempt], repeats: int) -> list[str]:
    """Collect the notes on single runs."""
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


def _facts(plan: ComparisonPlan, judgement: Judgement) -> dict[str, Any]:
    """Collect what the user asked for, as texts and numbers."""
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
        "held_against": "the reference" if plan.reference is not None else "the other methods",
        "methods": {each.label: _describe(each) for each in plan.entrants},
        "agree": list(judgement.agreement.group),
        "level": judgement.agreement.level,
    }


def _describe(entrant: Entrant) -> str:
    """Describe how a method differs from its label and its defaults."""
    parts = [entrant.method] if entrant.method != entrant.label else []
    if entrant.settings:
        named = entrant.settings._asdict() if hasattr(entrant.settings, "_asdict") else entrant.settings
        parts += [f"{name}={value!r}" for name, value in named.items()]
    return ", ".join([*parts, f"warm-up {entrant.warmup}"] if entrant.warmup is not None else parts)


def _limit(judgement: Judgement) -> float:
    """Compute the |z| beyond which chance does not explain a difference, if errors are well known."""
    return float(stats.norm.isf(judgement.agreement.level / 2.0))
