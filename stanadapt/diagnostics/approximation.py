"""Findings on approximations and maxima, whose draws are no chains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray

from ..result.container import OWN_GROUP, Groups
from ..result.labels import SAMPLE_DIMS
from .finding import Finding

PARETO_K = 0.7  # Vehtari et al. (2024), Pareto smoothed importance sampling
OPTIMUM = "optimum"
APPROXIMATIONS = {
    OPTIMUM: "the maximum of the density",
    "laplace": "a normal law around the mode (Laplace)",
    "pathfinder": "normal laws along climbs (Pathfinder)",
}
_MAXIMUM, _EDGE, _FLAT = "maximum", "edge", "flat"
_SHOWN = 4  # optima that the words name


def is_approximation(attrs: Mapping[str, Any]) -> bool:
    """Whether a result holds a maximum, or draws of an approximation, rather than chains."""
    return bool(attrs.get("approximation"))


def name_content(attrs: Mapping[str, Any]) -> str:
    """What a verdict calls what a result holds."""
    return "this maximum" if attrs.get("approximation") == OPTIMUM else "these draws"


def approximation_weights(groups: Groups) -> np.ndarray | None:
    """The importance weights (chain, draw) of draws of an approximation; None if all draws count alike."""
    stats = groups.get("sample_stats")
    if stats is None or "log_weight" not in stats or not is_approximation(groups["posterior"].attrs):
        return None
    logs = stats["log_weight"].transpose(*SAMPLE_DIMS).values
    weights = np.exp(logs - logs.max())
    return np.asarray(weights / weights.sum())


def describe_approximation(groups: Groups, attrs: Mapping[str, Any]) -> str:
    """What tells of an approximation how good it is, as a clause."""
    if "pareto_k" in attrs:
        return f"Pareto k is {float(attrs['pareto_k']):.2f}, and weights correct the approximation"
    own = groups.get(OWN_GROUP)
    if own is None or "optimum_count" not in own:
        return "it is an approximation"
    counts = own["optimum_count"].values
    return f"{counts[0]} of {counts.sum()} starts ended at this maximum"


def approximation_findings(groups: Groups, attrs: Mapping[str, Any]) -> list[Finding]:
    """What there is to say against an approximation, or a maximum; empty if there is nothing."""
    own = groups.get(OWN_GROUP)
    findings = _weights(attrs)
    if own is not None:
        findings += _climbs(own)
        findings += _paths(own)
    return findings


def _weights(attrs: Mapping[str, Any]) -> list[Finding]:
    """Where importance weights say that the approximation is not near enough to the posterior."""
    if "pareto_k" not in attrs:
        return []
    k = float(attrs["pareto_k"])
    if k <= PARETO_K:
        return []
    text = (
        f"Pareto k is {k:.2f}, over {PARETO_K}: the approximation is too far from the posterior for its "
        "importance weights to correct it. Means and intervals of these draws may be wrong. Take them as "
        "starts (inits=, warm=), and draw with sample."
    )
    return [Finding("pareto_k", text, numbers={"pareto_k": k, "limit": PARETO_K})]


def _climbs(own: xarray.Dataset) -> list[Finding]:
    """Climbs that have ended elsewhere than the best one, or at no maximum."""
    if "optimum_lp" not in own:
        return []
    kinds = [str(kind) for kind in own["optimum_kind"].values]
    counts, heights = own["optimum_count"].values, own["optimum_lp"].values
    where = [str(names) for names in own["optimum_where"].values]
    total = int(counts.sum())
    maxima = [i for i, kind in enumerate(kinds) if kind == _MAXIMUM]
    findings = []
    if len(maxima) > 1:
        listed = ", ".join(f"{counts[i]} at {heights[i]:.6g}" for i in maxima[:_SHOWN])
        more = f", and {len(maxima) - _SHOWN} maxima more" if len(maxima) > _SHOWN else ""
        text = (
            f"Starts disagree: {len(maxima)} different maxima have been found from {total} starts (starts "
            f"and log density: {listed}{more}). The highest is the result, and a higher one may have been "
            "missed: raise starts."
        )
        numbers = {"maxima": len(maxima), "starts": total, "highest": float(heights[maxima[0]])}
        findings.append(Finding("optima", text, numbers=numbers))
    for i, kind in enumerate(kinds):
        if kind != _MAXIMUM:
            findings.append(_no_maximum(kind, int(counts[i]), total, float(heights[i]), where[i], own, i))
    return _one_of_a_kind(findings)


def _no_maximum(
    kind: str, count: int, total: int, height: float, where: str, own: xarray.Dataset, i: int
) -> Finding:
    names = tuple(name for name in where.split(", ") if name)
    said = f"{count} of {total} starts"
    numbers = {"count": count, "of": total, "lp": height}
    if kind == _EDGE:
        x = own["optimum_x"].values[i]
        known = [str(name) for name in own["unconstrained"].values]
        shown = ", ".join(f"{name} (unconstrained {x[known.index(name)]:.3g})" for name in names)
        text = (
            f"{said} ran to the boundary of the support, or to infinity, in {shown}: there the log density "
            f"({height:.6g} at the end) rises without end, or tends to a value that it does not reach. No "
            "point is its maximum: give the parameters a prior that is zero there, or draw with sample."
        )
        return Finding("edge", text, names, numbers=numbers)
    if kind == _FLAT:
        text = (
            f"{said} ended where the log density ({height:.6g}) is flat along a line through {where}: the "
            "maximum is not one point, since the data do not tell these parameters apart."
        )
        return Finding("flat", text, names, numbers=numbers)
    text = (
        f"{said} did not converge: the log density was {height:.6g} at the end, and rises still"
        f"{f' in {where}' if where else ''}. Raise max_iterations, or see whether the density is rough."
    )
    return Finding("unfinished", text, names, numbers=numbers)


def _one_of_a_kind(findings: list[Finding]) -> list[Finding]:
    """The first finding of each kind and place, and how many more of the kind there are."""
    kept: list[Finding] = []
    for finding in findings:
        same = [i for i, known in enumerate(kept) if known.kind == finding.kind]
        if len(same) < _SHOWN:
            kept.append(finding)
    return kept


def _paths(own: xarray.Dataset) -> list[Finding]:
    """Paths that gave no approximation."""
    if "path_elbo" not in own:
        return []
    failed = int(np.count_nonzero(~np.isfinite(own["path_elbo"].values)))
    if not failed:
        return []
    total = own.sizes["path"]
    text = (
        f"{failed} of {total} paths gave no approximation with a finite ELBO, and no draws: their climbs "
        "ended at once, or the density fails around them."
    )
    return [Finding("paths", text, numbers={"count": failed, "of": total})]
