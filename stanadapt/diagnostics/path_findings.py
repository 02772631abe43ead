"""Findings on parallel tempering: whether replicas have travelled, and whether what they say agrees."""

from __future__ import annotations

import numpy as np
import xarray

from ..result.path_results import LEGS
from .finding import Finding, plain_chains

FEWEST_TRIPS = 10  # of replicas from a reference to the posterior, in a chain
APART = 4.0  # standard errors between two estimates of one number that are a finding
_ROUGH = 0.05  # nats; less is no finding, since standard errors are estimates too
_LEAST_WEIGHT = 0.02  # differences of a mode's weight below this are no finding


def path_findings(group: xarray.Dataset) -> list[Finding]:
    """What the group `tempering` of a result says against it."""
    if group.sizes.get("neighbours", 0) == 0:
        return []
    found = [_few_trips(group), _legs_apart(group), _weights_apart(group)]
    return [finding for finding in found if finding is not None]


def _few_trips(group: xarray.Dataset) -> Finding | None:
    trips = group["round_trips"].values
    few = trips.sum(axis=1) < FEWEST_TRIPS
    leg = int(np.argmin(trips.min(axis=0)))
    if few.any():
        chains, where, least = few, "both references", float(trips.sum(axis=1).min())
    elif trips[:, 0].min() < FEWEST_TRIPS / 2:
        chains, where, leg = trips[:, 0] < FEWEST_TRIPS / 2, "the broad reference", 0
        least = float(trips[:, 0].min())
    else:
        return None
    labels = group["chain"].values[chains]
    text = (
        f"Only {least:.0f} replicas have come from {where} to the posterior in chain {labels[0]}"
        f"{' and others' if len(labels) > 1 else ''}: modes that are not known may be missed, and weights of "
        "modes are uncertain. Draw more, or use more rungs (settings rungs, most_rungs)."
    )
    numbers = {"smallest": least, "limit": FEWEST_TRIPS, "leg": leg}
    return Finding("round_trips", text, chains=plain_chains(labels), numbers=numbers)


def _legs_apart(group: xarray.Dataset) -> Finding | None:
    logs, errors = group["log_integral_of_leg"].values, group["log_integral_error_of_leg"].values
    gap = np.abs(logs[:, 0] - logs[:, 1])
    apart = ~(gap <= APART * np.hypot(errors[:, 0], errors[:, 1]) + _ROUGH)
    if not apart.any():
        return None
    labels = group["chain"].values[apart]
    worst = int(np.argmax(np.where(apart, np.nan_to_num(gap, nan=np.inf), -1.0)))
    shown = ", ".join(
        f"{logs[worst, i]:.4g} ± {errors[worst, i]:.2g} from the {leg} one" for i, leg in enumerate(LEGS)
    )
    text = (
        f"The two legs of the path disagree on the evidence, up to a constant: {shown}, in chain "
        f"{group['chain'].values[worst]}. One of them misses a part of the posterior. Warm up longer, draw "
        "more, or raise settings reach and search."
    )
    return Finding("legs", text, chains=plain_chains(labels), numbers={"gap": float(gap[worst])})


def _weights_apart(group: xarray.Dataset) -> Finding | None:
    """A mode to which two chains give different weights; a mode that a chain does not know has none there."""
    modes, weights, errors = (group[name].values for name in ("mode", "mode_weight", "mode_weight_error"))
    scales = group["mode_scale"].values
    chains = group["chain"].values
    worst: tuple[float, int, int, int, float, float] | None = None
    for one in range(len(chains)):
        for m in map(int, np.flatnonzero(np.nan_to_num(weights[one]) > _LEAST_WEIGHT)):
            for other in range(len(chains)):
                if other == one:
                    continue
                same = _same_modes(modes[one, m], scales[one, m], modes[other], scales[other])
                among = _same_modes(modes[one, m], scales[one, m], modes[one], scales[one])
                here, there = np.nansum(weights[one][among]), np.nansum(weights[other][same])
                error = np.sqrt(np.nansum(errors[one][among] ** 2) + np.nansum(errors[other][same] ** 2))
                gap = abs(here - there)
                if gap > _LEAST_WEIGHT + APART * error and (worst is None or gap > worst[0]):
                    worst = (float(gap), one, other, m, float(here), float(there))
    if worst is None:
        return None
    _, one, other, _, here, there = worst
    text = (
        f"Chains disagree on the weight of a mode: {here:.2g} in chain {chains[one]}, {there:.2g} in chain "
        f"{chains[other]}. It is missed by one of them, or replicas travel too seldom. Warm up longer, draw "
        "more, or raise the setting search."
    )
    numbers = {"weight": here, "other": there}
    return Finding("mode_weights", text, chains=plain_chains(chains[[one, other]]), numbers=numbers)


def _same_modes(mode: np.ndarray, scale: np.ndarray, modes: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Which of the modes (M, d) overlap `mode` (d,): components of one wide mode count together."""
    with np.errstate(all="ignore"):
        away = np.abs(modes - mode) / np.maximum(scales, scale)
        far = np.sqrt(np.mean(away**2, axis=1))
    return np.asarray(far < 3.0)
