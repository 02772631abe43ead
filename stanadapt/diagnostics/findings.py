"""Is the result to be trusted? Findings in words."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xarray

from .. import samplers
from ..result.container import datasets
from ..samplers.base import BOTH_SIDES, NO_TARGET, POLICY, SURROGATE, Facts
from .statistics import (
    FEWEST,
    e_bfmi,
    each,
    ess_bulk,
    ess_tail,
    longest_wait,
    r_hat,
    row_names,
    select,
    travel,
)

if TYPE_CHECKING:
    from ..result.container import InferenceData

R_HAT_LIMIT = 1.01  # Vehtari et al. (2021)
ESS_PER_CHAIN = 100  # likewise
ACCEPTANCE_MARGIN = 0.15
APART_R_HAT = 1.1  # above which a chain is looked for without which the others agree
APART_SHARE = 0.1  # of what R-hat exceeds 1 by, which may be left then
LEAVING = 3.0  # standard deviations of a quarter of the draws
STILL_SHARE = 0.05  # of a chain's draws without one acceptance in between
BFMI_LIMIT = 0.3  # Betancourt (2016), Diagnosing Suboptimal Cotangent Disintegrations in HMC
# Findings that the noise of a noisy target may be the reason of.
_BY_NOISE = {"r_hat", "ess_bulk", "acceptance", "still"}
_WORST = 3  # parameters that a finding names


class Finding(NamedTuple):
    """Something that a user should know."""

    kind: str
    text: str

    def __str__(self) -> str:
        return self.text


def diagnose(idata: InferenceData, var_names: list[str] | None = None) -> list[Finding]:
    """Worded findings on a result; empty when there is nothing to report.

    Looks at R-hat over 1.01, chains that sit apart from the others or still move away, effective sample sizes
    under 100 a chain, acceptance far from its target, chains that stand still or have learnt nothing,
    failed evaluations of the log density, and an interrupted run; of Hamiltonian methods at divergences, at
    trees that were cut short, and at the energy's Bayesian fraction of missing information (E-BFMI) under
    0.3; and has a word on noise where that may be the reason. One divergence of NUTS is a finding, as it is
    for Stan; our own methods have some on good posteriors too, and there a share of 0.1 % is none.
    """
    groups = datasets(idata)
    posterior = select(idata, var_names)
    facts = samplers.facts(method) if (method := posterior.attrs.get("method")) in samplers.METHODS else None
    findings = []
    if note := posterior.attrs.get("interrupted_note"):
        findings.append(Finding("interrupted", f"The run was {note}."))
    if posterior.sizes["draw"] < FEWEST:
        return [*findings, Finding("short", f"There are {posterior.sizes['draw']} draws a chain: too few.")]
    findings += _convergence(posterior)
    if "sample_stats" in groups:
        findings += _acceptance(groups["sample_stats"], posterior.attrs, facts)
        findings += _stillness(groups["sample_stats"])
        findings += _trajectories(groups["sample_stats"], posterior.attrs, facts)
    if "adaptation" in groups:
        findings += _ignorance(groups["adaptation"], facts)
    if "failures" in groups.get("adaptation", {}):
        findings += _failures(groups["adaptation"], groups.get("sample_stats"))
    if posterior.attrs.get("noisy") and any(finding.kind in _BY_NOISE for finding in findings):
        findings.append(Finding("noise", _NOISE))
    return findings


def _convergence(posterior: xarray.Dataset) -> list[Finding]:
    findings = []
    names = row_names(posterior)
    chains = posterior.sizes["chain"]
    constant = each(lambda draws: np.all(draws == draws[0, 0], (0, 1)), posterior).astype(bool)
    bad = each(lambda draws: ~np.all(np.isfinite(draws), (0, 1)), posterior).astype(bool)
    if bad.any():
        findings.append(Finding("nan", f"NaN or infinite draws in {_listed(names, bad)}."))
    usable = ~constant & ~bad
    if chains > 1:
        values = np.where(usable, each(r_hat, posterior), 1.0)
        high = ~(values <= R_HAT_LIMIT)
        if high.any():
            findings.append(
                Finding(
                    "r_hat",
                    f"R-hat is over {R_HAT_LIMIT} for {high.sum()} of {len(names)} quantities, worst "
                    f"{_worst(names, values, largest=True)}: the chains do not agree yet. "
                    "Run longer (warmup, draws), or see whether the posterior has several modes.",
                )
            )
            findings += _apart(posterior, usable, float(np.nanmax(values)))
    findings += _leaving(posterior, usable, names)
    for kind, function in (("bulk", ess_bulk), ("tail", ess_tail)):
        ess = np.where(usable, each(function, posterior), np.inf)
        low = ~(ess >= ESS_PER_CHAIN * chains)
        if low.any():
            findings.append(
                Finding(
                    f"ess_{kind}",
                    f"The {kind} effective sample size is under {ESS_PER_CHAIN} a chain for {low.sum()} of "
                    f"{len(names)} quantities, worst {_worst(names, ess, largest=False)}. Draw more.",
                )
            )
    return findings


def _apart(posterior: xarray.Dataset, usable: np.ndarray, worst: float) -> list[Finding]:
    """Chains without which the others agree."""
    chains = posterior["chain"].values
    if len(chains) < 3 or not worst > APART_R_HAT:
        return []
    findings = []
    for chain in chains:
        others = posterior.sel(chain=chains[chains != chain])
        without = float(np.nanmax(np.where(usable, each(r_hat, others), 1.0)))
        if without - 1.0 < APART_SHARE * (worst - 1.0):
            text = (
                f"Chain {chain} sits apart from the others: without it the largest R-hat is {without:.3g}, "
                f"with it {worst:.3g}. See whether it has missed the posterior's mass or found another mode."
            )
            findings.append(Finding("apart", text))
    return findings


def _leaving(posterior: xarray.Dataset, usable: np.ndarray, names: list[str]) -> list[Finding]:
    """Chains whose mean moves the same way from quarter to quarter of the draws, far beyond their spread."""
    if posterior.sizes["draw"] < 4 * FEWEST:
        return []
    findings = []
    for chain in posterior["chain"].values:
        path = np.where(usable, each(travel, posterior.sel(chain=[chain])), 0.0)
        far = path > LEAVING
        if far.any():
            text = (
                f"Chain {chain} still moves away, in {_worst(names, path, largest=True)} spreads of a "
                "quarter of its draws: warm-up has not found the posterior's mass, or it is improper."
            )
            findings.append(Finding("leaving", text))
    return findings


def _acceptance(stats: xarray.Dataset, attrs: dict[str, Any], facts: Facts | None) -> list[Finding]:
    target = _settings(attrs).get("target_accept")
    if facts is None or facts.acceptance == NO_TARGET or target is None:
        return []
    acceptance = stats["acceptance_rate"].mean("draw").values
    chains = stats["chain"].values
    distance = target - acceptance
    if facts.acceptance == BOTH_SIDES:
        distance = np.abs(distance)
    far = distance > ACCEPTANCE_MARGIN
    if not far.any():
        return []
    shown = ", ".join(f"{acceptance[i]:.2f} in chain {chains[i]}" for i in np.flatnonzero(far))
    advice = "Warm up longer; in a funnel, reparametrise the model."
    if facts.capacity:
        advice = (
            f"What was learnt of the target is not near enough to it: warm up longer, raise {facts.capacity}."
        )
    return [
        Finding(
            "acceptance",
            f"The acceptance rate is far from its target {target:g}: {shown}. {advice}",
        )
    ]


def _ignorance(adaptation: xarray.Dataset, facts: Facts | None) -> list[Finding]:
    """Chains of methods that learn from their history, and had nothing to learn from; and of policies."""
    if facts is None or not int(adaptation.attrs.get("tuning_steps", 0)):
        return []
    if facts.family == POLICY:
        return _without_policy(adaptation)
    if facts.family != SURROGATE or "fits" not in adaptation:
        return []
    none = adaptation["chain"].values[adaptation["fits"].values == 0]
    if not none.size:
        return []
    shown = ", ".join(map(str, none))
    text = (
        f"Chains {shown} have learnt nothing in warm-up, since no point of their history differed from the "
        "others, and are random walks. Start elsewhere (inits), or warm up longer."
    )
    return [Finding("nothing_learnt", text)]


def _without_policy(adaptation: xarray.Dataset) -> list[Finding]:
    if "uses_policy" not in adaptation:
        return []
    without = adaptation["chain"].values[adaptation["uses_policy"].values == 0]
    if not without.size:
        return []
    text = (
        f"Chains {', '.join(map(str, without))} have no policy that works, and draw by the walk that their "
        "warm start has learnt: it found too few points, or nearly every proposal of every policy "
        "was rejected. Warm up longer, start elsewhere (inits), or use another method."
    )
    return [Finding("nothing_learnt", text)]


def _stillness(stats: xarray.Dataset) -> list[Finding]:
    if "accepted" not in stats:
        return []
    chains, accepted = stats["chain"].values, stats["accepted"].values
    limit = max(100, int(STILL_SHARE * accepted.shape[1]))
    still = [(chains[i], longest_wait(row)) for i, row in enumerate(accepted)]
    long = [(chain, wait) for chain, wait in still if wait >= min(limit, accepted.shape[1])]
    if not long:
        return []
    shown = ", ".join(f"chain {chain} for {wait} draws" for chain, wait in long)
    return [Finding("still", f"Chains stood still: {shown} without one accepted proposal.")]


def _trajectories(stats: xarray.Dataset, attrs: dict[str, Any], facts: Facts | None) -> list[Finding]:
    """What only methods with trajectories have columns for."""
    findings = []
    draws = stats.sizes["chain"] * stats.sizes["draw"]
    if "diverging" in stats:
        findings += _divergences(stats, facts)
    deepest = _settings(attrs).get("max_tree_depth")
    if "tree_depth" in stats and deepest is not None:
        count = int((stats["tree_depth"] >= deepest).sum())
        if count:
            findings.append(
                Finding(
                    "tree_depth",
                    f"{count} of {draws} draws hit max_tree_depth={deepest}: their trajectories were cut "
                    "short, which costs efficiency. Try metric='dense', or raise it.",
                )
            )
    if "energy" in stats:
        bfmi = e_bfmi(stats["energy"].transpose("chain", "draw").values)
        low = np.flatnonzero(bfmi < BFMI_LIMIT)
        if low.size:
            shown = ", ".join(f"{bfmi[i]:.2f} in chain {stats['chain'].values[i]}" for i in low)
            findings.append(
                Finding(
                    "energy",
                    f"E-BFMI is under {BFMI_LIMIT}: {shown}. The energy changes too slowly for the tails to "
                    "be explored; reparametrise the model.",
                )
            )
    return findings


def _divergences(stats: xarray.Dataset, facts: Facts | None) -> list[Finding]:
    """Divergences, if they are more than the method has on good posteriors; with a reason for each kind."""
    diverging = stats["diverging"].values.astype(bool)
    count, draws = int(diverging.sum()), diverging.size
    if count <= (facts.harmless_divergences if facts else 0.0) * draws:
        return []
    # A trajectory without an energy at its end has met a point without a log density.
    met = int(np.sum(diverging & np.isposinf(stats["energy_error"].values))) if "energy_error" in stats else 0
    text = f"{count} of {draws} draws ended in a divergence: "
    if met < count:
        text += f"in {count - met} of them " if met else ""
        text += (
            "the posterior bends more sharply than the step size can follow, and what lies there is missed. "
            "Raise target_accept, or reparametrise."
        )
    if met:
        text += f" In {met} of them " if met < count else ""
        text += (
            "the trajectory met a point without a log density. Where the support ends within the posterior's "
            "mass, such proposals are lost, and declaring the bounds of parameters in the program (lower, "
            "upper) removes the wall; where the program fails, what lies there is missed."
        )
    return [Finding("divergences", text)]


def _failures(adaptation: xarray.Dataset, stats: xarray.Dataset | None) -> list[Finding]:
    during = int(adaptation["failures"].sum())
    if not during:
        return []
    total = int(stats["n_steps"].sum()) if stats is not None else 0
    before = int(adaptation["failures_warmup"].sum())
    first = next((str(text) for text in adaptation["first_failure"].values if str(text)), "")
    return [
        Finding(
            "failures",
            f"The log density failed in {during} of {total} evaluations of kept iterations (and {before} in "
            f"warm-up); such proposals are rejected. First reason: {first}",
        )
    ]


# Doucet et al. (2015), Sherlock et al. (2015).
_NOISE = (
    "The target is noisy: where an estimate comes out far too high, a chain stands still, and steps shrink "
    "where no step is accepted as often as target_accept. If that is the reason, average more estimates, so "
    "that the variance of the logarithm of the density's estimate is about 1 to 3 in the bulk of the "
    "posterior, or lower target_accept."
)


def _settings(attrs: dict[str, Any]) -> dict[str, Any]:
    settings: dict[str, Any] = json.loads(attrs.get("settings", "{}"))
    return settings


def _listed(names: list[str], chosen: np.ndarray) -> str:
    picked = [names[i] for i in np.flatnonzero(chosen)]
    more = f" and {len(picked) - _WORST} more" if len(picked) > _WORST else ""
    return ", ".join(picked[:_WORST]) + more


def _worst(names: list[str], values: np.ndarray, *, largest: bool) -> str:
    order = np.argsort(np.where(np.isnan(values), np.inf if largest else -np.inf, values))
    picked = order[::-1][:_WORST] if largest else order[:_WORST]
    return ", ".join(f"{names[i]} ({values[i]:.4g})" for i in picked)
