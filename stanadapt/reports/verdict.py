"""The verdict: one sentence that says whether to use the draws, and how serious each finding is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..check import join_names
from ..diagnostics.finding import Finding

GOOD, CARE, SERIOUS, WAIT = "good", "care", "serious", "wait"
UNFINISHED = ("interrupted", "until", "short")  # kinds that do not count while a run is going on
_LONGEST = 2_000  # characters of a finding; it may quote long names
_SAID = 3  # the sentence names up to so many findings
_CHAINS, _ESS, _ADAPTATION, _ENERGY = "chains", "ess", "adaptation", "energy"
_PATH, _APPROXIMATION = "path", "approximation"


class Kind(NamedTuple):
    """How a report treats findings of one kind."""

    level: str
    clause: str  # of the verdict's sentence
    picture: str = ""  # the picture that shows it


KINDS = {
    "short": Kind(SERIOUS, "there are too few draws to judge"),
    "nan": Kind(SERIOUS, "some draws are NaN or infinite", _CHAINS),
    "constant": Kind(SERIOUS, "no chain has moved", _CHAINS),
    "r_hat": Kind(SERIOUS, "the chains do not agree yet", _CHAINS),
    "apart": Kind(SERIOUS, "a chain sits apart from the others", _CHAINS),
    "tails": Kind(SERIOUS, "a chain has other tails than the others", _CHAINS),
    "leaving": Kind(SERIOUS, "a chain still moves away", _CHAINS),
    "still": Kind(SERIOUS, "chains stood still", _CHAINS),
    "improper": Kind(SERIOUS, "the posterior seems to be improper", _CHAINS),
    "modes": Kind(SERIOUS, "there is a mode that no chain has visited", _CHAINS),
    "mode_weights": Kind(SERIOUS, "chains disagree on the weight of a mode", _PATH),
    "replay": Kind(SERIOUS, "the law of the draws changes under a right kernel"),
    "pareto_k": Kind(SERIOUS, "the approximation is too far from the posterior", _APPROXIMATION),
    "edge": Kind(SERIOUS, "climbs ran to the boundary of the support, or to infinity", _APPROXIMATION),
    "flat": Kind(SERIOUS, "the maximum is not one point", _APPROXIMATION),
    "unfinished": Kind(SERIOUS, "climbs did not converge", _APPROXIMATION),
    "optima": Kind(CARE, "starts ended at different maxima", _APPROXIMATION),
    "paths": Kind(CARE, "some paths gave no draws", _APPROXIMATION),
    "divergences": Kind(SERIOUS, "trajectories diverged", _ENERGY),
    "interrupted": Kind(CARE, "the run is not complete"),
    "until": Kind(CARE, "the run ended before its goals held", _ESS),
    "ess_bulk": Kind(CARE, "some means rest on few effective draws", _ESS),
    "ess_tail": Kind(CARE, "some quantiles rest on few effective draws", _ESS),
    "uneven": Kind(CARE, "a chain has learned something else than the others", _ADAPTATION),
    "round_trips": Kind(CARE, "few replicas have come from a reference to the posterior", _PATH),
    "legs": Kind(CARE, "the legs of the path disagree on the evidence", _PATH),
    "sticky_tails": Kind(CARE, "chains hardly move in a tail", _CHAINS),
    "heavy_tails": Kind(CARE, "tails are heavy", _CHAINS),
    "acceptance": Kind(CARE, "the acceptance rate is far from its target", _ADAPTATION),
    "nothing_learnt": Kind(CARE, "chains learned nothing in warm-up", _ADAPTATION),
    "tree_depth": Kind(CARE, "trajectories were cut short", _ENERGY),
    "energy": Kind(CARE, "the energy changes too slowly for the tails to be explored", _ENERGY),
    "failures": Kind(CARE, "the log density failed at times", _ADAPTATION),
    "noise": Kind(CARE, "the target is noisy", _ADAPTATION),
}


def kind_of(finding: Finding) -> Kind:
    """How a report treats a finding. One of an unknown kind asks for care, and stops no report."""
    return KINDS.get(finding.kind, Kind(CARE, f"there is a finding of the kind {finding.kind}"))


class Judged(NamedTuple):
    """A finding as a page shows it."""

    level: str
    text: str
    kind: str
    picture: str

    @classmethod
    def of(cls, finding: Finding) -> Judged:
        kind = kind_of(finding)
        text = str(finding)
        text = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
        return cls(kind.level, text, finding.kind, kind.picture)


class Verdict(NamedTuple):
    """One sentence that says whether the draws can be used."""

    level: str
    sentence: str


def judge(
    findings: Sequence[Finding], worst: str, *, is_running: bool = False, what: str = "these draws"
) -> Verdict:
    """Give the verdict on a result with these findings. `what` names what it holds.

    `worst` is a clause with the largest R-hat and the smallest effective sample size. It is empty if there
    are too few draws to compute them.
    """
    if is_running and not worst:
        return Verdict(WAIT, "There are too few draws yet to say anything about them.")
    kinds = list(dict.fromkeys(map(kind_of, findings)))
    if not kinds:
        start = "So far nothing speaks" if is_running else "Nothing speaks"
        return Verdict(GOOD, f"{start} against {what}: {worst}.")
    level = SERIOUS if any(kind.level == SERIOUS for kind in kinds) else CARE
    clauses = [kind.clause for kind in kinds if kind.level == level]
    more = len(clauses) - _SAID
    said = clauses[:_SAID] + ([f"there {'is' if more == 1 else 'are'} {more} more"] if more > 0 else [])
    if is_running:
        return Verdict(WAIT, f"So far {join_names(said)}.")
    start = f"Do not trust {what} yet" if level == SERIOUS else f"Use {what} with care"
    return Verdict(level, f"{start}: {join_names(said)}.")
