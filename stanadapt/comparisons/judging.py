"""Disagreements between methods that have converged. All repeats of a method count together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ..check import join_names
from ..diagnostics.agreement import Agreement, SampleVerdict, compare_samples, compare_with
from ..diagnostics.estimates import STATISTICS, Contrast, Estimates, combine, contrast
from .running import Attempt

_SHOWN = 3  # a sentence names up to so many differences of a method
_WORDS = {
    "mean": "mean",
    "sd": "standard deviation",
    "q5": "5 % quantile",
    "q50": "median",
    "q95": "95 % quantile",
}


class Disagreement(NamedTuple):
    """A statistic in which a method differs from others by more than chance explains."""

    method: str
    against: tuple[str, ...]  # methods; empty for the reference
    quantity: str
    statistic: str  # one of mean, sd, q5, q50, q95
    value: float
    other: float
    z: float  # the difference, divided by its standard error
    p_value: float  # probability of such a difference by chance, in this comparison alone

    def __str__(self) -> str:
        return f"{self._what}, {self.value:.4g} against {self.other:.4g}"

    @property
    def _what(self) -> str:
        return f"{_WORDS[self.statistic]} of {self.quantity} by {abs(self.z):.1f} standard errors"


class Standing(NamedTuple):
    """The estimates of a method, and how they compare with those of others."""

    estimates: Estimates  # of all its repeats together
    obstacle: str  # why it has not converged; empty if it has
    other: Estimates | None  # the estimates that it is compared with
    contrast: Contrast | None


class Judgement(NamedTuple):
    """Everything that the comparison found."""

    standings: dict[str, Standing]
    agreement: Agreement
    disagreements: list[Disagreement]
    is_known: bool  # whether there is a reference
    words: list[str]


def judge(
    attempts: Sequence[Attempt],
    names: Sequence[str],
    reference: Estimates | None,
    rate: float,
) -> Judgement:
    """Compare every method with the reference, or with the others that have converged.

    Parameters
    ----------
    attempts
        All runs.
    names
        Names of the k scalars.
    reference
        Known estimates of them, or None.
    rate
        Probability of naming any method if all are right.
    """
    obstacles = {}
    of_methods: dict[str, Estimates] = {}
    for label in dict.fromkeys(attempt.label for attempt in attempts):
        runs = [each.figures for each in attempts if each.label == label and each.figures is not None]
        if runs:
            of_methods[label] = combine([run.estimates for run in runs])
            obstacles[label] = ", ".join(dict.fromkeys(text for run in runs for text in run.obstacles))
            if not obstacles[label] and _differ([run.estimates for run in runs], rate):
                obstacles[label] = "its repeats differ from each other"
    converged = {label: each for label, each in of_methods.items() if not obstacles[label]}
    agreement = (
        compare_samples(converged, rate) if reference is None else compare_with(reference, converged, rate)
    )
    standings = {
        label: _stand(label, each, obstacles[label], converged, agreement, reference)
        for label, each in of_methods.items()
    }
    disagreements = [
        found
        for label, verdict in agreement.verdicts.items()
        for found in _disagreements(label, converged[label], verdict, names)
    ]
    disagreements.sort(key=lambda found: found.p_value)
    words = _words(standings, agreement, disagreements, reference is not None)
    return Judgement(standings, agreement, disagreements, reference is not None, words)


def _differ(repeats: Sequence[Estimates], rate: float) -> bool:
    """Return whether the repeats of a method disagree with each other."""
    found = compare_samples({str(i): each for i, each in enumerate(repeats)}, rate)
    return any(verdict.differs.any() for verdict in found.verdicts.values())


def _stand(
    label: str,
    own: Estimates,
    obstacle: str,
    converged: Mapping[str, Estimates],
    agreement: Agreement,
    reference: Estimates | None,
) -> Standing:
    if label in agreement.verdicts:
        verdict = agreement.verdicts[label]
        return Standing(own, obstacle, verdict.other, verdict.contrast)
    others = [converged[name] for name in agreement.group if name != label]
    other = reference if reference is not None else combine(others) if others else None
    return Standing(own, obstacle, other, None if other is None else contrast(own, other))


def _disagreements(
    label: str, own: Estimates, verdict: SampleVerdict, names: Sequence[str]
) -> list[Disagreement]:
    return [
        Disagreement(
            label,
            verdict.against,
            names[row],
            STATISTICS[column],
            float(own.value[row, column]),
            float(verdict.other.value[row, column]),
            float(verdict.contrast.z[row, column]),
            float(verdict.contrast.p_value[row, column]),
        )
        for row, column in np.argwhere(verdict.differs)
    ]


def _words(
    standings: Mapping[str, Standing],
    agreement: Agreement,
    disagreements: Sequence[Disagreement],
    is_known: bool,
) -> list[str]:
    """Write sentences: which methods disagree, in what and by how much; which ones did not take part."""
    words = []
    named = dict.fromkeys(found.method for found in disagreements)
    for label in named:
        own = [found for found in disagreements if found.method == label]
        against = "the reference" if is_known else join_names(own[0].against)
        listed = "; ".join(str(found) for found in own[:_SHOWN])
        count = f"{len(own)} statistics" if len(own) > 1 else "one statistic"
        words.append(f"{label} disagrees with {against} in {count}: {listed}.")
    if named and not is_known and not agreement.is_unique:
        words.append("No side has more methods than the other: these draws do not tell which one is right.")
    if is_known and len(named) > 1 and set(named) == set(agreement.verdicts):
        words.append(
            "All methods disagree with the reference: check that it belongs to this model and these data."
        )
    doubtful = [f"{label} ({each.obstacle})" for label, each in standings.items() if each.obstacle]
    if doubtful:
        has, it, their = ("has", "it", "its") if len(doubtful) == 1 else ("have", "them", "their")
        words.append(
            f"{join_names(doubtful)} {has} not converged: no method is compared with {it}, and {their} own z "
            "says little."
        )
    converged = [label for label, standing in standings.items() if not standing.obstacle]
    if not named and agreement.verdicts:
        largest = max(float(np.nanmax(np.abs(each.contrast.z))) for each in agreement.verdicts.values())
        whom = "with the reference" if is_known else "with each other"
        words.insert(
            0,
            f"{join_names(converged)} agree{'s' * (len(converged) == 1)} {whom} within chance: "
            f"the largest |z| of {_comparisons(agreement)} comparisons is {largest:.1f}.",
        )
    elif not agreement.verdicts:
        words.insert(0, _nobody(len(converged), is_known))
    return words


def _comparisons(agreement: Agreement) -> int:
    return sum(int(np.isfinite(each.contrast.z).sum()) for each in agreement.verdicts.values())


def _nobody(converged: int, is_known: bool) -> str:
    if converged == 0:
        return "No method has converged, so this comparison cannot say whether they agree."
    assert not is_known
    return "Only one method has converged, and there is no reference to compare it with."
