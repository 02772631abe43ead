"""Is the result to be trusted? Findings in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray

from ..result.container import datasets
from ..samplers.base import BOTH_SIDES, POLICY, SURROGATE, Facts
from . import by_chain, missed
from .approximation import approximation_findings, is_approximation
from .by_chain import APART_R_HAT
from .convergence import FEWEST, r_hat
from .finding import Finding, Names, plain_chains
from .origin import facts_of, settings_of, target_accept
from .path_findings import path_findings
from .scalars import ESS_PER_CHAIN, LEAVING, Scalars, r_hat_limit
from .statistics import column, e_bfmi, each, select, usual_names

if TYPE_CHECKING:
    from ..result.container import InferenceData

__all__ = ["Finding", "diagnose"]

ACCEPTANCE_MARGIN = 0.15
APART_SHARE = 0.1  # of what R-hat exceeds 1 by, which may be left then
STILL_SHARE = 0.05  # of a chain's draws without one acceptance in between
BFMI_LIMIT = 0.3  # Betancourt (2016), Diagnosing Suboptimal Cotangent Disintegrations in HMC
# Findings that the noise of a noisy target may be the reason of.
_BY_NOISE = {"r_hat", "ess_bulk", "acceptance", "still"}


def diagnose(
    idata: InferenceData, var_names: list[str] | None = None, *, progress: bool = False
) -> list[Finding]:
    """Worded findings on a result; empty when there is nothing to report.

    Looks at R-hat over 1.01 (over 1.05 of a single chain, whose halves it compares), chains that sit apart
    from the others or still move away, shares of draws in the tails in which chains differ beyond chance,
    chains whose step size, cost, divergences or coordinates are far from those of the others, effective
    sample sizes under 100 a chain, acceptance far from its target, chains that stand still or have learnt
    nothing, failed evaluations of the log density, an interrupted run, and one that ended before the goals of
    `until` held; at heavy tails in which chains move slowly, modes that climbs have found and no chain has
    visited, and a posterior that seems improper; of Hamiltonian methods at divergences, at trees that were
    cut short, and at the energy's Bayesian fraction of missing information (E-BFMI) under 0.3; and has a word
    on noise where that may be the reason. One divergence of NUTS is a finding, as it is for Stan; our own
    methods have some on good posteriors too, and there a share of 0.1 % is none. Of results of `optimize`,
    `laplace` and `pathfinder` it looks at Pareto k over 0.7, starts that disagree, and climbs without a
    maximum.

    Parameters
    ----------
    idata
        A result of `stanadapt.sample`, or anything with a posterior in ArviZ's schema: what is not there is
        not looked at.
    var_names
        Variables of the posterior group. By default all that hold numbers; of a result with more than 8
        million draws of scalars, the parameters of its program. A run warns of the same findings when it
        ends.
    progress
        Say on stderr how far it is, where it takes more than two seconds.

    Raises
    ------
    ArgumentError
        The result has no draws, or a variable is unknown.
    """
    groups = datasets(idata)
    posterior = select(idata, usual_names(idata) if var_names is None else var_names)
    attrs = posterior.attrs
    if is_approximation(attrs):
        return approximation_findings(groups, attrs)
    facts = facts_of(attrs)
    findings = []
    if note := str(attrs.get("interrupted_note", "")):
        findings.append(Finding("interrupted", f"The run was {note}."))
    if "until_reason" in attrs and not np.any(attrs.get("until_reached", 0)):
        text = f"until asked for {attrs.get('until', 'more')}: {attrs['until_reason']}."
        findings.append(Finding("until", text))
    if posterior.sizes["draw"] < FEWEST:
        n = posterior.sizes["draw"]
        text = f"There are {n} draws a chain: too few."
        return [*findings, Finding("short", text, numbers={"draws": n, "limit": FEWEST})]
    stats, adaptation = groups.get("sample_stats"), groups.get("adaptation")
    scalars = each(Scalars.of, posterior, progress=progress)
    findings += _convergence(posterior, scalars, stats)
    findings += by_chain.uneven(stats, adaptation)
    if stats is not None:
        findings += _acceptance(stats, attrs, facts, adaptation)
        findings += _stillness(stats)
        if sticky := missed.sticky_tails(posterior, stats):
            findings.append(sticky)
        findings += _trajectories(stats, attrs, facts)
    if adaptation is not None:
        findings += _find_missed(posterior, scalars, adaptation, stats)
        findings += _ignorance(adaptation, facts)
        findings += _failures(adaptation, stats)
    if "tempering" in groups:
        findings += path_findings(groups["tempering"])
    if np.any(attrs.get("noisy", 0)) and any(finding.kind in _BY_NOISE for finding in findings):
        findings.append(Finding("noise", _NOISE))
    return findings


def _convergence(posterior: xarray.Dataset, scalars: Scalars, stats: xarray.Dataset | None) -> list[Finding]:
    findings = []
    names = Names(posterior)
    chains = posterior["chain"].values
    if not scalars.finite.all():
        findings.append(
            Finding(
                "nan",
                f"NaN or infinite draws in {names.first_names(~scalars.finite)}.",
                variables=names.first(~scalars.finite),
                numbers=_counts(~scalars.finite),
            )
        )
    if scalars.constant.all():
        findings.append(
            Finding(
                "constant",
                f"All draws are the same, in {names.first_names(scalars.constant)}: no chain has moved.",
                variables=names.first(scalars.constant),
            )
        )
    draws = posterior.sizes["draw"]
    values, limit = scalars.r_hat(draws), r_hat_limit(len(chains))
    high = ~(values <= limit)
    if high.any():
        disagree = "chains do not agree" if len(chains) > 1 else "halves of the chain do not agree"
        findings.append(
            Finding(
                "r_hat",
                f"R-hat is over {limit} for {high.sum()} of {len(high)} quantities, worst "
                f"{names.worst(values, high, largest=True)}: the {disagree} yet. "
                "Run longer (warmup, draws), or see whether the posterior has several modes.",
                variables=names.worst_names(values, high, largest=True),
                numbers=_counts(high) | {"limit": limit, "largest": float(np.max(values))},
            )
        )
        lp = None if stats is None else column(stats, "lp", np.sum)
        findings += _apart(chains, scalars.moments[scalars.usable], draws, float(np.nanmax(values)), lp)
    findings += by_chain.tails(posterior, scalars, names)
    findings += _leaving(chains, draws, scalars.journeys(), names)
    for kind in ("bulk", "tail"):
        ess = scalars.ess(kind)
        low = ~(ess >= ESS_PER_CHAIN * len(chains))
        if low.any():
            findings.append(
                Finding(
                    f"ess_{kind}",
                    f"The {kind} effective sample size is under {ESS_PER_CHAIN} a chain for {low.sum()} of "
                    f"{len(low)} quantities, worst {names.worst(ess, low, largest=False)}. Draw more.",
                    variables=names.worst_names(ess, low, largest=False),
                    numbers=_counts(low)
                    | {"limit": ESS_PER_CHAIN * len(chains), "smallest": float(np.min(ess))},
                )
            )
    return findings


def _counts(chosen: np.ndarray) -> dict[str, float]:
    """How many there are, and of how many."""
    return {"count": int(chosen.sum()), "of": chosen.size}


def _apart(
    chains: np.ndarray, moments: np.ndarray, draws: int, worst: float, lp: np.ndarray | None
) -> list[Finding]:
    """Chains without which the others agree, with the log density of every chain (chain, draw)."""
    if len(chains) < 3 or not worst > APART_R_HAT:
        return []
    findings = []
    heights = ""
    if lp is not None and np.isfinite(lp).all():
        shown = ", ".join(
            f"{height:.6g} in chain {c}" for c, height in zip(chains, lp.mean(axis=1), strict=True)
        )
        heights = f" The mean log density is {shown}."
    for i, chain in enumerate(chains):
        without = float(np.nanmax(r_hat(moments, draws, without=i)))
        if without - 1.0 < APART_SHARE * (worst - 1.0):
            text = (
                f"Chain {chain} sits apart from the others: without it the largest R-hat is {without:.3g}, "
                f"with it {worst:.3g}. See whether it has missed the posterior's mass or found another mode."
                f"{heights}"
            )
            numbers = {"r_hat": worst, "r_hat_without": without}
            findings.append(Finding("apart", text, chains=plain_chains([chain]), numbers=numbers))
    return findings


def _leaving(chains: np.ndarray, draws: int, travels: np.ndarray, names: Names) -> list[Finding]:
    """Chains whose mean moves the same way from quarter to quarter of the draws, far beyond their spread."""
    if draws < 4 * FEWEST:
        return []
    findings = []
    for chain, path in zip(chains, travels.T, strict=True):
        far = path > LEAVING
        if far.any():
            text = (
                f"Chain {chain} still moves away, in {names.worst(path, far, largest=True)} spreads of a "
                "quarter of its draws: warm-up has not found the posterior's mass, or it is improper."
            )
            variables = names.worst_names(path, far, largest=True)
            numbers = {"limit": LEAVING, "largest": float(np.nanmax(path))}
            findings.append(Finding("leaving", text, variables, plain_chains([chain]), numbers))
    return findings


def _find_missed(
    posterior: xarray.Dataset, scalars: Scalars, adaptation: xarray.Dataset, stats: xarray.Dataset | None
) -> list[Finding]:
    """What the draws may lack without looking wrong."""
    limit = r_hat_limit(posterior.sizes["chain"])
    disagree = ~(r_hat(scalars.moments, posterior.sizes["draw"]) <= limit)
    lp = None if stats is None else column(stats, "lp", np.mean)
    found = [
        missed.improper(
            posterior, adaptation, scalars.largest, scalars.lowest, disagree, scalars.constant, lp
        ),
        missed.heavy_tails(posterior, adaptation),
        missed.modes(adaptation),
    ]
    return [finding for finding in found if finding is not None]


def _acceptance(
    stats: xarray.Dataset, attrs: dict[str, Any], facts: Facts | None, adaptation: xarray.Dataset | None
) -> list[Finding]:
    target, rates = target_accept(attrs), column(stats, "acceptance_rate", np.mean)
    if facts is None or target is None or rates is None:
        return []
    acceptance = rates.mean(axis=1)
    chains = stats["chain"].values
    aims = np.full(acceptance.shape, target)
    if adaptation is not None and "kinks" in adaptation:
        aims[adaptation["kinks"].values.astype(bool)] = settings_of(attrs).get("kinks_accept", target)
    distance = aims - acceptance
    if facts.acceptance == BOTH_SIDES:
        distance = np.abs(distance)
    far = distance > ACCEPTANCE_MARGIN
    if not far.any():
        return []
    aim = float(aims[far].max())
    shown = ", ".join(f"{acceptance[i]:.2f} in chain {chains[i]}" for i in np.flatnonzero(far))
    advice = "Warm up longer; in a funnel, reparametrise the model."
    if facts.capacity:
        advice = (
            f"What was learnt of the target is not near enough to it: warm up longer, raise {facts.capacity}."
        )
    return [
        Finding(
            "acceptance",
            f"The acceptance rate is far from its target {aim:g}: {shown}. {advice}",
            chains=plain_chains(chains[far]),
            numbers={
                "target": aim,
                "smallest": float(acceptance[far].min()),
                "largest": float(acceptance[far].max()),
            },
        )
    ]


def _ignorance(adaptation: xarray.Dataset, facts: Facts | None) -> list[Finding]:
    """Chains of methods that learn from their history, and had nothing to learn from; and of policies."""
    if facts is None or not np.any(adaptation.attrs.get("tuning_steps", 0)):
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
    return [Finding("nothing_learnt", text, chains=plain_chains(none))]


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
    return [Finding("nothing_learnt", text, chains=plain_chains(without))]


def _stillness(stats: xarray.Dataset) -> list[Finding]:
    accepted = column(stats, "accepted", np.any)
    if accepted is None:
        return []
    chains, draws = stats["chain"].values, accepted.shape[1]
    long = by_chain.waits(accepted, min(max(100, int(STILL_SHARE * draws)), draws))
    if not long:
        return []
    shown = ", ".join(f"chain {chains[place]} for {wait} draws" for place, wait in long)
    text = f"Chains stood still: {shown} without one accepted proposal."
    numbers = {"longest": max(wait for _, wait in long)}
    return [Finding("still", text, chains=plain_chains(chains[place] for place, _ in long), numbers=numbers)]


def _trajectories(stats: xarray.Dataset, attrs: dict[str, Any], facts: Facts | None) -> list[Finding]:
    """What only methods with trajectories have columns for."""
    findings = []
    diverging, tree_depth = column(stats, "diverging", np.any), column(stats, "tree_depth", np.max)
    energy = column(stats, "energy", np.sum)
    if diverging is not None:
        error = column(stats, "energy_error", np.max)
        findings += _divergences(stats["chain"].values, diverging.astype(bool), error, facts)
    deepest = settings_of(attrs).get("max_tree_depth")
    if tree_depth is not None and isinstance(deepest, int):
        count = int((tree_depth >= deepest).sum())
        if count:
            findings.append(
                Finding(
                    "tree_depth",
                    f"{count} of {tree_depth.size} draws hit max_tree_depth={deepest}: their trajectories "
                    "were cut short, which costs efficiency. Try metric='dense', or raise it.",
                    numbers={"count": count, "of": tree_depth.size, "max_tree_depth": deepest},
                )
            )
    if energy is not None:
        bfmi = e_bfmi(energy)
        low = np.flatnonzero(bfmi < BFMI_LIMIT)
        if low.size:
            shown = ", ".join(f"{bfmi[i]:.2f} in chain {stats['chain'].values[i]}" for i in low)
            findings.append(
                Finding(
                    "energy",
                    f"E-BFMI is under {BFMI_LIMIT}: {shown}. The energy changes too slowly for the tails to "
                    "be explored; reparametrise the model.",
                    chains=plain_chains(stats["chain"].values[low]),
                    numbers={"limit": BFMI_LIMIT, "smallest": float(bfmi[low].min())},
                )
            )
    return findings


def _divergences(
    chains: np.ndarray, diverging: np.ndarray, energy_error: np.ndarray | None, facts: Facts | None
) -> list[Finding]:
    """Divergences, if the run or one chain has more than the method has on good posteriors.

    With a reason for each kind, and with the chains that have more than the others.
    """
    count, draws = int(diverging.sum()), diverging.size
    harmless = facts.harmless_divergences if facts else 0.0
    places = by_chain.divergent(diverging, harmless)
    if count <= harmless * draws and not places:
        return []
    # A trajectory without an energy at its end has met a point without a log density.
    met = 0 if energy_error is None else int(np.sum(diverging & np.isposinf(energy_error)))
    of_chains = diverging.sum(axis=1)
    where = ", ".join(
        f"{'all' if of_chains[place] == count else of_chains[place]} of them in chain {chains[place]}"
        for place in places
    )
    text = f"{count} of {draws} draws ended in a divergence{f' ({where})' if where else ''}: "
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
    numbers = {"count": count, "of": draws, "without_density": met}
    return [Finding("divergences", text, chains=plain_chains(chains[places]), numbers=numbers)]


def _total(group: xarray.Dataset | None, name: str) -> int:
    """The sum of counts; 0 where there are none, or something else has their name."""
    if group is None or name not in group.data_vars or group[name].dtype.kind not in "iufb":
        return 0
    return int(np.nan_to_num(float(group[name].sum())))


def _failures(adaptation: xarray.Dataset, stats: xarray.Dataset | None) -> list[Finding]:
    during = _total(adaptation, "failures")
    if not during or "first_failure" not in adaptation:
        return []
    total, before = _total(stats, "n_steps"), _total(adaptation, "failures_warmup")
    first = next((str(text) for text in adaptation["first_failure"].values.ravel() if str(text)), "")
    return [
        Finding(
            "failures",
            f"The log density failed in {during} of {total} evaluations of kept iterations (and {before} in "
            f"warm-up); such proposals are rejected. First reason: {first}",
            numbers={"count": during, "of": total, "count_warmup": before},
        )
    ]


# Doucet et al. (2015), Sherlock et al. (2015).
_NOISE = (
    "The target is noisy: where an estimate comes out far too high, a chain stands still, and steps shrink "
    "where no step is accepted as often as target_accept. If that is the reason, average more estimates, so "
    "that the variance of the logarithm of the density's estimate is about 1 to 3 in the bulk of the "
    "posterior, or lower target_accept."
)
